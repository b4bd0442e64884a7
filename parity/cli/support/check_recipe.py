"""``parity check --recipe``: recipes beside the code that they come from."""

from __future__ import annotations

from pathlib import Path

from parity.cli.support.train_options import base_job
from parity.twins.originals.check import ORIGINALS, STEPS, Row, check_recipe
from vit_config import ConfigError, MissingFileError

FOLDER = Path(__file__).parents[3] / "recipes"
"""The recipes shipped, in a checkout."""


def check(asked: str, seed: int) -> int:
    """Check one recipe, or all, and print a table.

    Args:
        asked: a name, a file whose name is that of a recipe, or ``all``.

    Returns:
        The exit status.

    Raises:
        ConfigError: no original of it is known.
        MissingFileError: there is no such file.
    """
    paths = [FOLDER / f"{name}.toml" for name in ORIGINALS] if asked == "all" else [_path(asked)]
    print(f"{STEPS} steps in float64, largest relative errors\n" + header(), flush=True)
    failed = 0
    for path in paths:
        for row in check_recipe(path.stem, base_job(None, path), seed):
            failed += not row.passed
            print(line(row), flush=True)
    return 1 if failed else 0


def header() -> str:
    """The first line of the table."""
    return f"{'recipe':20}{'twin':9}{'losses':>9}{'parameters':>12}  {'images':22}"


def line(row: Row) -> str:
    """A line of the table."""
    worst = "" if row.passed else f"  DIFFERENT, worst {row.where}"
    errors = f"{row.loss:9.1e}{row.params:12.1e}"
    return f"{row.recipe:20}{row.twin:9}{errors}  {row.pixels:22}{worst}".rstrip()


def _path(asked: str) -> Path:
    path = Path(asked)
    if not path.suffix:
        path = FOLDER / f"{asked}.toml"
    if path.stem not in ORIGINALS:
        raise ConfigError(
            f"--recipe {asked}: no original of it is known; there are {', '.join(ORIGINALS)}, or all"
        )
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; recipes lie in a checkout's folder recipes")
    return path
