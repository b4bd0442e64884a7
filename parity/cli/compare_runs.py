"""``parity compare-runs``: measure how far apart two training runs are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from vit_config import ConfigError


@dataclass(frozen=True)
class CompareRuns:
    """Compare the parameters, moments and averages of two training runs of one job after the same number
    of updates, whichever framework trained them. Exit status: 0; 1 if --limit is given and exceeded; 2
    for bad input, such as runs of two jobs.
    """

    a: Annotated[Path, tyro.conf.Positional, shown_as("A")]
    """Folder of a run of `parity train`."""
    b: Annotated[Path, tyro.conf.Positional, shown_as("B")]
    """Folder of another run."""
    step: Annotated[int | None, shown_as("N", "the newest that both have")] = None
    """Step of both runs' checkpoints."""
    limit: Annotated[float | None, shown_as("X", "none")] = None
    """Largest distance of any part that counts as equal; `parity check-steps` measures what rounding
    explains."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file."""


def main(argv: list[str], prog: str = "parity compare-runs") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(CompareRuns, argv, prog=prog)

    from parity.measure.shown import write_json
    from vit_config.screen import screen

    limit = arguments.limit
    if limit is not None and not 0 <= limit < float("inf"):
        raise ConfigError(f"--limit {limit}: give a distance, 0 or more")
    from parity.runs.compare import compare_runs, print_comparison, to_dict
    from vit_config.waiting import Waiting

    with Waiting("looking into both folders") as waiting:
        comparison = compare_runs(arguments.a, arguments.b, arguments.step, on_stage=waiting.now)
    if arguments.json is not None:
        write_json(arguments.json, to_dict(comparison, limit))
    print_comparison(comparison, limit, screen(110))
    return 1 if limit is not None and comparison.beyond(limit) else 0
