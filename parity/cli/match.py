"""``parity match``: find which leaf of one model is which leaf of another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from vit_config import ConfigError


@dataclass(frozen=True)
class Match:
    """Find which leaf of A is which leaf of B, whatever their names: equal, transposed, reshaped, split,
    joined, stacked, heads in another order. Where values do not tell, the leaves around may; the
    others are reported with their candidates, never guessed. Exit status: 0 if everything is matched,
    1 if not."""

    files: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="A B", help_behavior_hint="")
    ] = ()
    """Two checkpoints of any kind; no dialect has to be known."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file."""
    table: Annotated[Path | None, shown_as("FILE.py")] = None
    """Also write a dialect's table that reads and writes B's names, if A has this project's."""
    all: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show every block, instead of one row for blocks that are alike."""


def main(argv: list[str], prog: str = "parity match") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Match, argv, prog=prog)

    from parity.measure.shown import write_json
    from parity.verifier.match import match
    from parity.verifier.match.leaves import read_leaves
    from parity.verifier.match.match_report import print_links, print_rest, to_dict
    from parity.verifier.match.table_text import table_text
    from vit_config.files.atomic import together, write_atomically
    from vit_config.screen import screen
    from vit_config.waiting import Waiting

    if len(arguments.files) != 2:
        raise ConfigError(
            f"expected two files, A and B, got {len(arguments.files)}; {prog} --help explains"
        )
    with Waiting("opening both files") as waiting:
        matched = match(*map(read_leaves, arguments.files), on_stage=waiting.now)
    table = table_text(matched, arguments.files[1].name) if arguments.table else ""
    with together():
        if arguments.table:
            write_atomically(arguments.table, table.encode())
        if arguments.json:
            content = {
                "a": str(arguments.files[0]),
                "b": str(arguments.files[1]),
                **to_dict(matched),
            }
            write_json(arguments.json, content)
    console = screen(140, highlight=False)
    print_links(matched, console, every=arguments.all)
    print_rest(matched, console)
    return 0 if matched.complete else 1
