"""Every dialect into every family whose library is here: what is written is what the library builds."""

from pathlib import Path

import numpy as np
import pytest

from evidence import dialect_table
from parity.porting.checkpoint import read_checkpoint
from parity.porting.formats import Stored
from parity.porting.verification.libraries import LIBRARIES, misfits

REPOSITORY = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.exhaustive  # in every run of continuous integration: make table
@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_names_and_shapes_are_those_of_the_librarys_own_class(tmp_path):
    cells = list(dialect_table.table(tmp_path, tuple(LIBRARIES)))
    assert [cell for cell in cells if cell.symbol == "!"] == []
    assert all(cell.checked for cell in cells if cell.symbol in "=~")
    checked = {cell.family for cell in cells if cell.checked}
    assert checked == set(LIBRARIES)
    page = (REPOSITORY / "docs/dialect_table.md").read_text(encoding="utf-8")
    for cell in cells:
        section = page.partition(f"\n**{cell.source}**\n")[2].partition("\n**")[0]
        assert dialect_table.line_of(cell) in section.splitlines(), "write docs/dialect_table.md anew"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dialect", ["hf-dinov2-registers", "timm-vit", "torchvision"])
def test_another_shape_and_another_name_are_told(tmp_path, dialect):
    """A row for each register is what was written once, and nobody saw it."""
    from parity.porting.dialects import called

    path, _ = dialect_table.write_sample(called(dialect)[0], tmp_path)
    source = read_checkpoint(path)
    assert misfits(source) == []
    tensors = dict(source.container.tensors)
    name = next(name for name in tensors if "pos" in name)
    _, rows, width = tensors[name].shape
    tensors[name] = Stored.of(np.zeros((1, rows + 4, width), np.float32))
    tensors["more.weight"] = tensors.pop(
        next(name for name in tensors if "norm" in name or "ln" in name)
    )
    object.__setattr__(source.container, "tensors", tensors)
    problems = misfits(source)
    assert [each.split()[-1] for each in problems[:1]] == ["missing"]
    assert problems[1].startswith("more.weight is not in")
    assert problems[2].split(" is (")[0] == name.removeprefix(source.dialect.body)
    assert f"(1, {rows + 4}, {width}), in" in problems[2]
    assert len(problems) == 3
