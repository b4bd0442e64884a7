"""Tables whose rows come one by one, on wide and narrow screens."""

from __future__ import annotations

import io

import pytest

from evidence.timm_sweep.architecture import ArchitectureResult
from evidence.timm_sweep.sweep import COLUMNS, show
from parity.measure.rows import Column, Rows
from vit_config.screen import screen

RESULT = ArchitectureResult(
    "vit_a_patch7_35x21",
    "vision_transformer",
    123_456_789,
    1_234,
    {"jax": {"output": 1.5e-15}, "torch": {"output": 2.5e-15}},
    {"output": 3.5e-15, "gradients": 4.5e-15},
    ("blocks.0.norm1: other", "blocks.1.norm1: other", "blocks.2.norm1: other", "head.weight: other"),
)
CELLS = (
    "123,456,789",
    "1234",
    "1.5e-15",
    "2.5e-15",
    "3.5e-15",
    "4.5e-15",
    "DIFFERENT",
    "2.norm1",
    "1 more",
)


def printed(width):
    out = io.StringIO()
    show(RESULT, Rows(*COLUMNS, console=screen(width=width, file=out)))
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_every_screen_is_told_everything_in_lines_that_fit(width):
    text = printed(width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    assert all(cell in flat for cell in (RESULT.name, *CELLS)), text


def test_a_narrow_screen_has_each_number_behind_its_heading():
    flat = " ".join(printed(80).split())
    assert "tensors 1234, JAX - timm 1.5e-15, torch - timm 2.5e-15, twins 3.5e-15" in flat


def test_a_wide_screen_has_numbers_below_their_headings():
    head, row, *_ = printed(130).splitlines()
    assert head.index("tensors") + len("tensors") == row.index("1234") + len("1234")


def test_a_cell_that_is_too_long_keeps_its_distance():
    out = io.StringIO()
    table = Rows(Column("name", 5, right=False), Column("error", 6), console=screen(60, file=out))
    table.add("longer than five", "1.0e-15", verdict="EQUAL")
    assert out.getvalue().splitlines()[1] == "longer than five  1.0e-15  EQUAL"
