"""Each cause's example is given that cause and no other."""

import ast
from pathlib import Path

import pytest

from parity.cli.dispatch import main
from parity.verifier import causes
from parity.verifier.causes import CAUSES
from parity.verifier.causes.examples import sides
from parity.verifier.compare import compare
from tools.causes_page import PAGE, page

NAMES = {cause.name for cause in CAUSES}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.rule)
def test_an_example_has_its_cause_and_no_other(cause):
    comparison = compare(*sides(cause))
    assert set(comparison.causes) == {cause.name}
    assert all(place.cause for place in comparison.places)
    assert comparison.places[0].message


def test_every_name_that_a_judge_gives_is_listed():
    """As far as names are written out: those put together, such as "bias left out", are not read."""
    assert len(NAMES) == len(CAUSES)
    given = set()
    for path in Path(causes.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            value = node.value if isinstance(node, ast.Return) else None
            if isinstance(value, ast.Tuple) and len(value.elts) == 2:
                name = value.elts[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value:
                    given.add(name.value)
    assert given - {"parameter", "operations"} <= NAMES  # kinds of a wrong parameter's place
    assert len(given) > 20


def test_the_page_is_that_of_the_records():
    assert PAGE.read_text() == page()


def test_the_command_lists_all_and_shows_one(capsys):
    assert main(["list", "--causes"]) == 0
    shown = capsys.readouterr().out
    assert all(cause.rule in shown for cause in CAUSES)
    assert "weight-decay" in shown
    assert main(["list", "--causes", "causal mask"]) == 0
    assert "  B  nn.softmax" in capsys.readouterr().out
    assert main(["list", "--causes", "causal-masc"]) == 2
    assert capsys.readouterr().err.endswith("did you mean 'causal-mask'?\n")
    assert main(["list", "--causes", "causal-mask", "gelu"]) == 2
    assert capsys.readouterr().err.endswith("--causes: goes alone, or with one CAUSE\n")
