"""The same numbers in another order, on the line where that order arises."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F

from parity.verifier.locate import compare, compare_programs
from parity.verifier.programs.sides import record

RNG = np.random.default_rng(5)


def lines(comparison):
    return [line.text for line in comparison.places[0].b.lines]


def test_interleaved_groups_are_no_transposition():
    """Twelve channels in groups of four neighbours; in B, every third belongs together."""
    gain, shift, x = RNG.normal(size=12), RNG.normal(size=12), RNG.normal(size=(2, 12, 5, 7))

    def original(x):
        weight, bias = torch.from_numpy(gain), torch.from_numpy(shift)
        return F.silu(F.group_norm(torch.tanh(x), 3, weight, bias, 1e-6))

    def port(interleaved):
        def norm(x):  # (B, H, W, C)
            y = jnp.tanh(x)
            groups, axes = y.reshape(2, 35, 3, 4), (1, 3)
            if interleaved:
                groups, axes = y.reshape(2, 35, 4, 3), (1, 2)  # every third channel
            mean, variance = groups.mean(axes, keepdims=True), groups.var(axes, keepdims=True)
            groups = (groups - mean) * jax.lax.rsqrt(variance + 1e-6)
            return jax.nn.silu(groups.reshape(x.shape) * gain + shift)

        return norm, np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    assert compare((original, torch.from_numpy(x)), port(False)).verdict == "EQUAL"
    comparison = compare((original, torch.from_numpy(x)), port(True))
    assert {place.cause for place in comparison.places} == {"axis split the other way round"}
    assert any("every third channel" in line for line in lines(comparison))


def test_a_grid_of_whole_numbers_with_its_axes_exchanged():
    weight, x = RNG.normal(size=(8, 8)), RNG.normal(size=(2, 12, 8))
    frequencies = 10.0 ** -np.arange(4)

    def original(x):
        rows, columns = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")
        angles = torch.cat([each.flatten()[:, None] * torch.from_numpy(frequencies)
                            for each in (rows, columns)], -1)  # fmt: skip
        return (x @ torch.from_numpy(weight)) * angles.cos()

    def port(indexing):
        def turned(x):
            rows, columns = jnp.meshgrid(jnp.arange(3), jnp.arange(4), indexing=indexing)
            angles = [each.ravel()[:, None] * frequencies for each in (rows, columns)]
            return (x @ weight) * jnp.cos(jnp.concatenate(angles, -1))

        return turned, x

    assert compare((original, torch.from_numpy(x)), port("ij")).verdict == "EQUAL"
    comparison = compare((original, torch.from_numpy(x)), port("xy"))
    assert comparison.places[0].cause == "axis split the other way round"
    assert any("jnp.meshgrid" in line for line in lines(comparison))


def test_parts_of_several_sizes():
    x = RNG.normal(size=(3, 7))

    def gradient(x):
        return jax.grad(lambda x: (jnp.concatenate([x, x[:, :2] ** 2], 1) ** 3).sum())(x)

    def original(x):
        x.requires_grad_()
        (torch.cat([x, x[:, :2] ** 2], 1) ** 3).sum().backward()
        return x.grad

    a = record((original, torch.from_numpy(x)), "A", gradients=True)
    assert compare_programs(a, record((gradient, x), "B")).verdict == "EQUAL"


KERNEL = np.random.default_rng(4).standard_normal((5, 3, 2, 2)).astype(np.float32)


def cut_by_convolution(x):
    return jax.lax.conv(x, KERNEL, (2, 2), "VALID").reshape(2, 5, -1).mT


def cut_by_hand(x, turn):
    x = x[:, ::-1] if turn else x
    n, c, h, w = x.shape
    x = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 2, 4, 3, 5, 1).reshape(n, -1, 4 * c)
    return x @ KERNEL.transpose(2, 3, 1, 0).reshape(-1, 5)


def test_what_turns_channels_round_is_shown_however_they_are_moved_since():
    x = np.random.default_rng(5).standard_normal((2, 3, 4, 6)).astype(np.float32)
    right, wrong = (partial(cut_by_hand, turn=each) for each in (False, True))
    assert compare((cut_by_convolution, x), (right, x)).verdict == "EQUAL"
    (place,) = compare((cut_by_convolution, x), (wrong, x)).places
    assert place.cause == "reversed"
    assert place.message.startswith("axis 1 of [2, 3, 4, 6] runs backwards in ")
    assert place.b.lines[place.b.likely or 0].text == "x = x[:, ::-1] if turn else x"


def attend(q, k, v):
    return jax.nn.softmax(jnp.einsum("bihd,bjhd->bhij", q, k)) @ jnp.moveaxis(v, 1, 2)


def test_a_packed_projection_split_by_heads_first():
    x, *weights = (RNG.normal(size=shape) for shape in ((2, 5, 12), (12, 12), (12, 12), (12, 12)))

    def apart(x):
        return attend(*((x @ each).reshape(2, 5, 4, 3) for each in weights))

    def packed(x, heads_first):
        qkv = x @ np.concatenate(weights, 1)
        if heads_first:
            return attend(*jnp.moveaxis(qkv.reshape(2, 5, 4, 3, 3), 3, 0))
        return attend(*jnp.moveaxis(qkv.reshape(2, 5, 3, 4, 3), 2, 0))

    right, wrong = (partial(packed, heads_first=each) for each in (False, True))
    assert compare((apart, x), (right, x)).verdict == "EQUAL"
    places = compare((apart, x), (wrong, x)).places
    assert {place.cause for place in places} == {"axis split the other way round"}
    assert places[0].message == "12 = 4 x 3 where A has 3 x 4"
    assert ".reshape(2, 5, 4, 3, 3)" in places[0].b.lines[places[0].b.likely or 0].text


def test_an_input_that_is_read_with_its_axes_exchanged_is_the_input_that_was_given():
    kernel, weight, x = (RNG.normal(size=shape) for shape in ((3, 3, 3, 4), (4, 3), (2, 8, 8, 3)))

    def net(x, axes):
        y = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=(axes, "HWIO", axes)
        )
        return jnp.tanh(y).mean((1, 2)) @ weight

    right, wrong = (partial(net, axes=each) for each in ("NHWC", "NWHC"))
    (place,) = compare((right, x), (wrong, x)).places
    assert (place.kind, place.cause) == ("order", "transposed")
    (place,) = compare((right, x), (right, x.transpose(0, 2, 1, 3))).places
    assert place.kind == "input"


def test_neighbours_turned_by_the_sines_of_halves_in_queries_and_keys():
    w, v, u, x = (RNG.normal(size=shape) for shape in ((8, 8), (8, 8), (8, 8), (6, 8)))
    angles = np.tile(np.arange(6)[:, None] / 10.0 ** np.arange(4), 2)

    def halves(x):
        return jnp.concatenate([-x[:, 4:], x[:, :4]], -1)

    def neighbours(x):
        return jnp.stack([-x[:, 1::2], x[:, ::2]], -1).reshape(x.shape)

    def attention(x, turned):
        q, k = (each * np.cos(angles) + turned(each) * np.sin(angles) for each in (x @ w, x @ v))
        return jnp.tanh(jax.nn.softmax(q @ k.T) @ (x @ u))

    right, wrong = (partial(attention, turned=each) for each in (halves, neighbours))
    (place,) = compare((right, x), (wrong, x)).places
    assert place.cause == "axis split the other way round"
    assert place.message.startswith("in both operands: neighbours of 8 channels where A turns the two")
