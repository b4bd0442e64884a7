"""``python -m evidence.originals``: compare recipes with the code that they come from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from evidence import ROOT
from parity.cli.dispatch import in_one_line
from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from vit_config import ConfigError, MissingFileError
from vit_config.terminal import say

FOLDER = ROOT / "recipes"
"""Folder of the recipes, in a checkout."""


@dataclass(frozen=True)
class CheckRecipe:
    """Train tiny models by recipes and by the code that these come from - Big Vision's chain, timm,
    DeiT's and MAE's scripts - for twenty steps in float64, and print how far losses, parameters and
    images are apart. Exit status: 0 equal, 1 different, 2 bad input.
    """

    recipe: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("NAME or FILE")] = ()
    """Recipes of recipes/, or files; `all` for every one that has an original."""
    seed: int = 0
    """Seed of the initial values and the data."""


PROG = "python -m evidence.originals"


def main(argv: list[str]) -> int:
    """Run the command; a user's mistake becomes one line and status 2."""
    return in_one_line(lambda: _main(argv), PROG)


def _main(argv: list[str]) -> int:
    arguments = parse(CheckRecipe, argv, prog=PROG)

    from evidence.originals.check import ORIGINALS, STEPS, check_recipe
    from parity.cli.support.job_file import base_job
    from parity.measure.rows import Column, Rows

    if not arguments.recipe:
        raise ConfigError(f"give a recipe, one of {', '.join(ORIGINALS)}, or all")
    if arguments.seed < 0:
        raise ConfigError(f"--seed {arguments.seed}: must not be negative")
    names = ORIGINALS if arguments.recipe == ("all",) else arguments.recipe
    paths = [_path(name) for name in names]
    say(f"{STEPS} steps in float64, largest relative errors", flush=True)
    table = Rows(
        Column("recipe", 20, right=False),
        Column("twin", 9, right=False),
        Column("losses", 9),
        Column("parameters", 12),
        Column("  images", 24, right=False),
    )
    failed = 0
    for path in paths:
        for row in check_recipe(path.stem, base_job(None, path), arguments.seed):
            failed += not row.passed
            cells = row.recipe, row.twin, f"{row.loss:.1e}", f"{row.params:.1e}", f"  {row.pixels}"
            table.add(*cells, verdict="" if row.passed else f"DIFFERENT, worst {row.where}")
    return 1 if failed else 0


def _path(asked: str) -> Path:
    from evidence.originals.check import ORIGINALS

    path = Path(asked)
    if not path.suffix:
        path = FOLDER / f"{asked}.toml"
    if path.stem not in ORIGINALS:
        raise ConfigError(
            f"{asked}: has no original to be compared with; these have: {', '.join(ORIGINALS)}, or all"
        )
    if not path.is_file():
        raise MissingFileError(
            f"{path}: no such file; the recipes are in the folder recipes of a checkout"
        )
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
