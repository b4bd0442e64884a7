"""The page that holds the whole idea: one model twice, equal, and a mistake of one word is seen."""

from pathlib import Path

import jax
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "twice.py"


def run(text):
    """Run the page's text; JAX's flag is as before afterwards."""
    wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    try:
        exec(compile(text, PAGE, "exec"), {"__name__": "__main__"})
    finally:
        jax.config.update("jax_enable_x64", wide)


def test_the_two_models_are_one_function(capsys):
    text = PAGE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150, "to be read in five minutes"
    run(text)
    assert capsys.readouterr().out.endswith("EQUAL: one function, written twice\n")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("approximate=False", "approximate=True", "not the same: logits"),
        ("(2, 3, 1, 0)", "(3, 2, 1, 0)", "not the same: logits"),
        ("self.norm1 = nnx.LayerNorm", "self.norm0 = nnx.LayerNorm", "norm0"),
    ],
)
def test_a_mistake_of_one_word_ends_the_page(right, wrong, said):
    text = PAGE.read_text(encoding="utf-8")
    assert right in text
    with pytest.raises((AssertionError, KeyError), match=said):
        run(text.replace(right, wrong, 1))
