"""Tables on narrow screens: no word and no number is cut, at any width."""

import ast
import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from parity.cli import main
from parity.measure.tables import show_table

ROOT = Path(__file__).parents[3]
CELLS = (
    (
        "float64",
        "activations",
        "152",
        "blocks.11.attn.q_norm.weight",
        "3.1e-15",
        "",
        "1.0e-12",
        "[green]ok[/]",
    ),
    (
        "bfloat16",
        "gradients",
        "152",
        "fc_norm.weight",
        "1.9e-02",
        "2.0e-02",
        "5.3e-02",
        "[red]3 differ[/]",
    ),
)


def printed(width, *, fold=True, box=True):
    table = Table(title="parity check vit_tiny_patch16_224", caption="relative difference of the twins")
    if not box:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("type", "level", "tensors", "worst tensor", "JAX", "PyTorch", "limit", ""):
        table.add_column(name, overflow="fold" if fold and name == "worst tensor" else "ellipsis")
    for row in CELLS:
        table.add_row(*row)
    file = io.StringIO()
    show_table(table, Console(width=width, file=file))
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("box", [True, False])
def test_nothing_is_cut(width, fold, box):
    said = printed(width, fold=fold, box=box)
    assert max(map(len, said.splitlines())) <= width
    assert "…" not in said
    words = {word for row in CELLS for cell in row for word in cell.replace("[", "]").split("]")}
    words -= {"", "green", "red", "/"}
    assert not [word for word in " ".join(words).split() if word not in said]


def test_a_table_that_fits_is_a_table_and_another_is_told_row_by_row():
    assert "│ blocks.11.attn.q_norm.weight │ 3.1e-15 │" in printed(140)
    lines = [line.rstrip() for line in printed(60).splitlines()]
    assert lines[:3] == [
        "parity check vit_tiny_patch16_224",
        "float64",
        "  level activations, tensors 152, worst tensor",
    ]
    assert lines[-1] == "relative difference of the twins"


def test_every_table_is_shown_so():
    """No module that makes a table prints it in another way."""
    makers = 0
    for path in sorted((ROOT / "parity").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        makers += any(getattr(call.func, "id", "") == "Table" for call in calls)
        for call in calls:
            if getattr(call.func, "attr", "") == "print" and path.name != "tables.py":
                given = ast.unparse(call.args[0]) if call.args else ""
                assert not given.startswith(("table", "_table(", "layer_table(", "score_table(")), path
    assert makers > 12


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(
    "words",
    [["list", "vit_base*"], ["list", "--dialects"], ["inspect", "vit_tiny_patch16_224"], ["--help"]],
    ids=lambda words: words[-1],
)
def test_commands_on_narrow_screens(words, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= width
