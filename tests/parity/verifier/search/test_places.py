"""Where two programs part when more than one thing is wrong, and where a chance meeting tempts."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from parity.verifier.locate import compare
from parity.verifier.search.places import _is_of_a_sibling
from parity.verifier.search.region import Gap, Region
from parity.verifier.search.widened import MOST, widened
from tests.support import operations_models as models

B, N, H, D = 2, 5, 3, 21
"""Images, tokens, heads, width."""


def attention(packing, scale, p, x):
    """(B, N, D); what is packed comes as (q k v, head) or as (head, q k v), `packing`."""
    qkv = (x @ p["qkv"]).reshape((B, N, 3, H, D // H) if packing else (B, N, H, 3, D // H))
    q, k, v = jnp.moveaxis(qkv, 2 if packing else 3, 0).swapaxes(2, 3)  # (B, H, N, D / H) each
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / scale)
    x = x + (weights @ v).swapaxes(1, 2).reshape(B, N, D) @ p["proj"]
    return x + jax.nn.gelu(x @ p["fc1"]) @ p["fc2"]


def test_two_faults_in_one_attention_are_two_places():
    """The scores read both: they are placed again once the packing in front of them is known."""
    rng = np.random.default_rng(7)
    p = {"qkv": (D, 3 * D), "proj": (D, D), "fc1": (D, 35), "fc2": (35, D)}
    p = {name: rng.normal(size=shape) / 5 for name, shape in p.items()}
    x = rng.normal(size=(B, N, D))
    right = functools.partial(attention, True, (D // H) ** 0.5)
    comparison = compare((right, (p, x)), (functools.partial(attention, False, D**0.5), (p, x)))
    packing, number = comparison.places
    assert packing.cause == "transposed"
    assert "packing" in packing.b.lines[-1].text
    assert number.cause == "number"
    assert [line.text for line in number.b.lines] == [
        "weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / scale)"
    ]


def test_faults_in_two_blocks_are_one_place_twice():
    model, weights, x = models.torch_model(depth=2)
    comparison = compare((model, x), (models.jax_model("scaled twice", 2), (weights, x)))
    assert [place.times for place in comparison.places] == [2]


def normed(x):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def post_norm(p, x, branch):
    x = normed(x) * p[0, 0]
    for i in (1, 2):
        x = normed(x + branch(p[i], x)) * p[0, i]  # B without the branch
    return x


def test_a_norm_of_any_value_is_no_repair():
    """normed(x + x) is normed(x), which both have before."""
    p, x = np.random.default_rng(4).normal(size=(3, 7, 7)), np.random.default_rng(5).normal(size=(5, 7))
    sides = [
        (functools.partial(post_norm, branch=each), (p, x))
        for each in (lambda p, x: jnp.tanh(x @ p) @ p, lambda p, x: x)
    ]
    comparison = compare(*sides)
    assert [place.cause for place in comparison.places] == ["left out"]
    assert comparison.places[0].times == 2
    assert "without the branch" in comparison.places[0].b.lines[-1].text


def test_a_sibling_that_gets_its_own_value_is_no_place_of_its_own():
    """It reads nothing itself, was repaired before, and an earlier place on its line has siblings."""

    def gap(end, operations=(), siblings=(), program=None):
        b = SimpleNamespace(program=program or held, end=end, operations=operations)
        return SimpleNamespace(b=b, siblings=siblings)

    ops = [SimpleNamespace(name=name, source=source) for name, source in (
        ("mul", "a:1"), ("mul", "a:1"), ("mul", "a:2"), ("add", "a:1")
    )]  # fmt: skip
    held = SimpleNamespace(operations=ops, repaired={1, 2, 3})
    first = gap(0, operations=(0,), siblings=(1,))
    own = gap(1)
    assert _is_of_a_sibling(own, [first, own])
    assert not _is_of_a_sibling(own, [own])
    assert not _is_of_a_sibling(own, [gap(0, operations=(0,)), own])  # which has no siblings
    assert not _is_of_a_sibling(gap(1, operations=(1,)), [first])
    assert not _is_of_a_sibling(gap(2), [first])  # on another line
    assert not _is_of_a_sibling(gap(3), [first])  # of another operation
    assert not _is_of_a_sibling(first, [first])
    alone = SimpleNamespace(operations=ops, repaired=set())
    assert not _is_of_a_sibling(gap(1, program=alone), [first])
    with_siblings = gap(1, siblings=(0,))
    assert not _is_of_a_sibling(with_siblings, [with_siblings])


def chain(length, *, size=5):
    """A program in which each operation reads the one before, and the first reads nothing."""
    ops = [
        SimpleNamespace(
            index=i, inputs=[i - 1] if i else [], size=size, mark=1, run=bool(i), is_layout=False
        )
        for i in range(length)
    ]
    return SimpleNamespace(operations=ops)


def test_the_side_that_computes_nothing_grows_to_what_the_other_reads():
    def grow(of_a, of_b, length=6, size=5, meets=lambda index: index):
        a, b = chain(length, size=size), chain(length, size=size)

        def met(op):
            return [a.operations[meets(op.index)]] if meets(op.index) is not None else []

        gap = Gap(Region(a, length - 1, of_a), Region(b, length - 1, of_b), np.zeros(1), np.ones(1))
        grown = widened(gap, SimpleNamespace(meets=met))
        return grown and (grown.a.operations, grown.b.operations)

    assert grow([4, 5], []) == ([4, 5], [4, 5])
    assert grow([], [4, 5]) == ([4, 5], [4, 5])
    assert grow([3, 4, 5], []) == ([3, 4, 5], [3, 4, 5])
    assert grow([], [3, 4, 5]) == ([3, 4, 5], [3, 4, 5])
    assert grow([4], [5]) is None
    assert grow([], []) is None
    assert grow([4, 5], [], meets=lambda _: None) is None  # nothing meets on the way to the input
    assert grow([], [4, 5], meets=lambda _: None) is None
    assert grow([4, 5], [], size=1) is None  # one number says nothing
    assert grow([], [4, 5], size=1) is None
    for many, found in ((MOST, True), (MOST + 1, False)):
        length = many + 2
        every = list(range(2, length))
        assert (grow(every, [], length) is not None) == found
        assert (grow([], every, length) is not None) == found
