"""Every dialect into every family whose library is here: what is written is what the library builds."""

import numpy as np
import pytest

from evidence import dialect_table
from parity.porting.formats import Stored
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.installed import LIBRARIES, misfits


@pytest.mark.slow
@pytest.mark.exhaustive  # in every run of continuous integration: make table
@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_names_and_shapes_are_those_of_the_librarys_own_class(tmp_path):
    cells = list(dialect_table.table(tmp_path, tuple(LIBRARIES)))
    assert [cell for cell in cells if cell.symbol == "!"] == []
    assert all(cell.checked for cell in cells if cell.symbol in "=~")
    checked = {cell.family for cell in cells if cell.checked}
    assert checked == set(LIBRARIES)


@pytest.mark.filterwarnings("ignore")
def test_the_page_has_a_row_and_a_reason_for_each_pair(tmp_path, monkeypatch):
    few = {name: row for name, row in dialect_table.sources().items() if name in ("timm-vit", "google")}
    monkeypatch.setattr(dialect_table, "sources", lambda: few)
    page = dialect_table.markdown(list(dialect_table.table(tmp_path, ("hf", "timm", "dinov3"))))
    title, first, *_ = page.split("\n\n")
    assert title.startswith("# ")
    assert first.startswith("For ")
    assert "| from | hf | timm | dinov3 |\n|---|---|---|---|\n| timm-vit | = | = | - |\n" in page
    assert (
        "\n**google**\n\n- to hf: exact: hf-vit\n- to timm: exact: timm-vit\n- to dinov3: refused: "
        in page
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dialect", ["hf-dinov2-registers", "timm-vit", "torchvision"])
def test_another_shape_and_another_name_are_told(tmp_path, dialect):
    """A row for each register is what was written once, and nobody saw it."""
    from parity.porting.dialects import find_dialects

    path, _ = dialect_table.write_sample(find_dialects(dialect)[0], tmp_path)
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
