"""The same numbers in another order, on the line where that order arises."""

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
