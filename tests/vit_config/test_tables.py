"""Fixed position tables, value by value against the formulas written out as loops."""

import math

import numpy as np
import pytest

from tests.support.tiny import TINY
from vit_config.numerics.rope import frequencies, rotation_table
from vit_config.numerics.tables import (
    count_relative_positions,
    fixed_position_table,
    relative_position_index,
    sincos1d,
    sincos2d,
    sincos2d_simple,
)
from vit_config.rope import Rope

pytestmark = [pytest.mark.versions, pytest.mark.quick]

ROWS, COLUMNS, D = 3, 5, 12


def test_sincos1d():
    table = sincos1d(7, D)
    for i in range(7):
        for j in range(D // 2):
            angle = i / 10000 ** (2 * j / D)
            assert table[i, 2 * j] == pytest.approx(math.sin(angle), abs=1e-15)
            assert table[i, 2 * j + 1] == pytest.approx(math.cos(angle), abs=1e-15)


@pytest.mark.parametrize(
    ("make", "last"), [(sincos2d, D // 4), (sincos2d_simple, D // 4 - 1)], ids=["mae", "simple"]
)
def test_sincos2d(make, last):
    table = make((ROWS, COLUMNS), D)
    assert table.shape == (ROWS * COLUMNS, D)
    for y in range(ROWS):
        for x in range(COLUMNS):
            for k in range(D // 4):
                omega = 10000 ** -(k / last)
                expected = [f(v * omega) for v in (x, y) for f in (math.sin, math.cos)]
                np.testing.assert_allclose(table[y * COLUMNS + x, k :: D // 4], expected, atol=1e-15)


@pytest.mark.parametrize(("kind", "factor"), [("axial", 1.0), ("centered", 2 * math.pi)])
def test_frequencies(kind, factor):
    actual = frequencies(Rope(kind=kind, theta=50.0), 12)
    assert actual == pytest.approx([factor * 50 ** (-4 * i / 12) for i in range(3)], rel=1e-15)


@pytest.mark.parametrize(
    "rope",
    [
        Rope(offset=0.25, reference_grid=(4, 7)),
        Rope(axes="wh"),
        Rope(kind="centered", offset=0.25),
    ],
)
def test_angles(rope):
    table = rotation_table(rope, (ROWS, COLUMNS), 8)
    assert not table.flags.writeable
    bands = frequencies(rope, 8)  # (2,)
    for y in range(ROWS):
        for x in range(COLUMNS):
            places = []
            for axis, (place, side) in enumerate(((y, ROWS), (x, COLUMNS))):
                if rope.kind == "centered":
                    place = 2 * (place + 0.5 + rope.offset) / side - 1
                else:
                    place = place + rope.offset
                places.append(place * rope.reference_grid[axis] / side if rope.reference_grid else place)
            order = places if rope.axes == "hw" else places[::-1]
            expected = [place * band for place in order for band in bands]
            np.testing.assert_allclose(table[y * COLUMNS + x], expected, rtol=1e-14)


def test_rows_of_relative_positions():
    offsets = [(y, x) for y in range(1 - ROWS, ROWS) for x in range(1 - COLUMNS, COLUMNS)]
    places = [(y, x) for y in range(ROWS) for x in range(COLUMNS)]
    N = len(offsets)
    assert count_relative_positions((ROWS, COLUMNS)) == N + 3
    inside = [[offsets.index((y - v, x - u)) for v, u in places] for y, x in places]
    expected = [[N + 2] + [N] * len(places), *([N + 1, *row] for row in inside)]
    np.testing.assert_array_equal(relative_position_index((ROWS, COLUMNS)), expected)


def test_tables_of_schemas():
    assert fixed_position_table(TINY, TINY.grid) is None
    assert fixed_position_table(TINY.replace(pos_embed="none"), TINY.grid) is None
    cfg = TINY.replace(pos_embed="sincos1d", register_tokens=2)
    table = fixed_position_table(cfg, cfg.grid)
    np.testing.assert_array_equal(table, sincos1d(3 + 9, 30))
    assert not table.flags.writeable
    cfg = TINY.replace(pos_embed="sincos2d", hidden_size=20)
    np.testing.assert_array_equal(fixed_position_table(cfg, cfg.grid), sincos2d((3, 3), 20))
