"""Write docs/causes.md, the causes that `parity diff` can name: ``python tools/causes_page.py``."""

from pathlib import Path

from parity.cli.list import step_causes
from parity.verifier.causes import CAUSES
from parity.verifier.causes.examples import SHAPES, SIZE

PAGE = Path(__file__).parents[1] / "docs" / "causes.md"
HEAD = f"""# The causes that are named

For anyone who reads a report of `parity diff`: what the name of a cause means. `parity list --causes`
prints this list, `parity list --causes NAME` one of them. `tools/causes_page.py` writes this page from
the same records.

## Where two programs part

A name is given only if exchanging that one thing makes B's value A's, and everything after it is then
the same. A difference that no single exchange explains has no name. Operations that one side alone has
on some rows are called *of a part*, as in *bias left out of a part*.

In the examples, A is right and B is wrong; a test compares each pair and demands this name and no
other. Their input is `x` {list(SIZE)}; their parameters are
{", ".join(f"`{name}` {list(shape)}" for name, shape in SHAPES.items())};
`parity/verifier/causes/examples.py` defines the helpers.

| cause | B against A | example of A | example of B |
|---|---|---|---|
"""
STEPS = """
## Where two recordings of training part

A stage of a step is recomputed under every rule that is known. A name is given if exchanging one
choice explains both sides.

| cause | what to change |
|---|---|
"""


def page() -> str:
    """Return the page."""
    rows = [
        " | ".join((f"| {each.name}", each.meaning, _code(each.a), f"{_code(each.b)} |"))
        for each in CAUSES
    ]
    steps = [f"| {name} | {advice} |" for name, advice in step_causes().items()]
    return HEAD + "\n".join(rows) + "\n" + STEPS + "\n".join(steps) + "\n"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
