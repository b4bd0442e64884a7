"""The converter's core: layouts as text."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.porting.dialects.layout import Layout
from parity.porting.dialects.table import Row, bind_theirs
from vit_config import WeightsError

pytestmark = pytest.mark.quick


@st.composite
def layouts(draw_from):
    """Both sides' axes and the size of each letter."""
    names = "abcde"[: draw_from(st.integers(1, 5))]
    sizes = {letter: draw_from(st.integers(1, 4)) for letter in names}

    def side():
        order, axes = list(draw_from(st.permutations(names))), []
        while order:
            count = draw_from(st.integers(1, 3))
            axes.append(tuple(order[:count]))
            axes += [()] * draw_from(st.booleans())  # an axis of one
            order = order[count:]
        return axes

    return side(), side(), sizes


def text_of(axes) -> str:
    return " ".join(
        "1" if not axis else axis[0] if len(axis) == 1 else f"({' '.join(axis)})" for axis in axes
    )


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_a_layout_moves_every_value_where_its_letters_say(case):
    theirs, ours, sizes = case
    layout = Layout.parse(f"{text_of(theirs)} -> {text_of(ours)}")
    assert layout.inverse.inverse == layout
    shape, expected = (
        tuple(math.prod(sizes[letter] for letter in axis) for axis in side) for side in (theirs, ours)
    )
    array = np.arange(math.prod(shape)).reshape(shape)

    moved = layout.apply(array, sizes)

    assert moved.shape == layout.shape(shape, sizes) == expected
    assert layout.inverse.shape(expected, sizes) == shape
    np.testing.assert_array_equal(layout.inverse.apply(moved, sizes), array)
    for place in itertools.product(*(range(size) for size in sizes.values())):
        at = dict(zip(sizes, place, strict=True))

        def index(side, at=at):
            return tuple(
                int(np.ravel_multi_index([at[n] for n in axis], [sizes[n] for n in axis])) if axis else 0
                for axis in side
            )

        assert moved[index(ours)] == array[index(theirs)]


@pytest.mark.parametrize(
    ("text", "shape", "known", "why"),
    [
        ("i o -> o i", (2, 3, 4), {}, r"has shape \(2, 3, 4\), expected the axes i o"),
        ("(h d) o -> h d o", (6, 2), {}, "nothing known"),
        ("(h d) o -> h d o", (6, 2), {"h": 4}, "h = 4"),
        ("(h d) o -> h d o", (6, 2), {"h": 2, "d": 2}, "h = 2, d = 2"),
        ("1 o -> o", (2, 3), {}, r"has shape \(2, 3\), which 1 o"),
        ("o -> 1 o", (), {}, "expected the axes o"),
    ],
)
def test_a_shape_that_a_layout_does_not_describe_is_refused(text, shape, known, why):
    with pytest.raises(WeightsError, match=why):
        Layout.parse(text).apply(np.zeros(shape), known)
    with pytest.raises(WeightsError, match=why):
        Layout.parse(text).shape(shape, known)


def test_one_length_of_an_axis_follows_from_the_others():
    layout = Layout.parse("(h d) o -> h d o")
    assert layout.apply(np.arange(12).reshape(6, 2), {"h": 2}).shape == (2, 3, 2)
    assert layout.shape((6, 2), {"d": 2}) == (3, 2, 2)


def test_a_layout_has_the_same_letters_on_both_sides():
    with pytest.raises(ValueError, match="both sides"):
        Layout.parse("i o -> o")


def test_a_stack_has_an_axis_of_blocks():
    table = (Row(ours=("blocks.{i}.a",), theirs=("a",), layout="L D -> D"),)
    [one], left = bind_theirs(table, {"a": (2, 3)})
    assert (one.ours, left) == (("blocks.0.a", "blocks.1.a"), [])
    assert bind_theirs(table, {"a": ()}) == ([], ["a"])
