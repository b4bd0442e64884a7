"""``python -m evidence.timm_sweep``: both twins beside every architecture of the installed timm."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.dispatch import in_one_line
from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from vit_config import ConfigError

MAX_PARAMETERS = 150e6


@dataclass(frozen=True)
class Sweep:
    """Compare both twins with every architecture of the installed timm, in float64: the names and shapes
    of all tensors, then the function of a copy shrunk in depth and width. Exit status: 0 all equal, 1
    different, 2 bad input.
    """

    pattern: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("[PATTERN ...]")] = ()
    """Architectures to compare, such as 'vit_base_*'; by default all."""
    full_size: tyro.conf.FlagCreatePairsOff[bool] = False
    """Do not shrink, but leave out architectures larger than --max-parameters."""
    max_parameters: Annotated[float | None, shown_as("N", f"{MAX_PARAMETERS:.0f}")] = None
    """With --full-size: parameters of the largest architecture to compare."""
    processes: int = 2
    """Number of processes that share the work."""
    seed: int = 0
    """Seed of the re-drawn weights and of the batch."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file."""


PROG = "python -m evidence.timm_sweep"


def main(argv: list[str]) -> int:
    """Run the command; a user's mistake becomes one line and status 2."""
    return in_one_line(lambda: _main(argv), PROG)


def _main(argv: list[str]) -> int:
    arguments = parse(Sweep, argv, prog=PROG)

    from evidence.timm_sweep.sweep import sweep
    from vit_config.files.atomic import check_writable

    if arguments.seed < 0:
        raise ConfigError(f"--seed {arguments.seed}: must not be negative")
    if arguments.processes < 1:
        raise ConfigError(f"--processes {arguments.processes}: must be at least 1")
    if arguments.max_parameters is not None and not arguments.full_size:
        raise ConfigError("--max-parameters: goes with --full-size only")
    if arguments.json is not None:
        check_writable(arguments.json)
    most = MAX_PARAMETERS if arguments.max_parameters is None else arguments.max_parameters
    return sweep(
        arguments.pattern,
        processes=arguments.processes,
        max_parameters=most if arguments.full_size else None,
        seed=arguments.seed,
        json_path=arguments.json,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
