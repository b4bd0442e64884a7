"""``parity locate``: where two programs stop computing the same, on the line of source."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from parity.cli.support.reporting import Reporting
from parity.verifier.operations import Comparison, compare
from parity.verifier.operations.repro import check_repro, write_repro
from parity.verifier.reports.of_comparison import report_of_comparison


@dataclass(frozen=True)
class Locate(Reporting):
    """Record every operation of two programs in float64, find where their values stop meeting, and
    print the two formulas there with their lines of source. Needs no module in common, and no ViT.
    Exit status: 0 equal, 1 different or not all compared, 2 bad input.
    """

    a: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")]
    """The reference: FILE.py:FUNCTION or MODULE:FUNCTION that returns a callable with its inputs; or a
    preset or a checkpoint, of which jax:NAME and torch:NAME are the two twins."""
    b: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="B")]
    """What is compared with it."""
    gradients: tyro.conf.FlagCreatePairsOff[bool] = False
    """The callables compute gradients themselves, as a training step does: record the backward pass."""
    repro: Annotated[Path | None, shown_as("FILE.py")] = None
    """Also write the first place as a program of its own, which computes both formulas from what they
    were given and prints the difference; arrays that are not small go into an .npz beside it."""


def main(argv: list[str], prog: str = "parity locate") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Locate, argv, prog=prog)
    arguments.check()
    if arguments.repro is not None:
        check_repro(arguments.repro)
    found = compare(arguments.a, arguments.b, gradients=arguments.gradients)
    print(found.to_text())
    arguments.write(report_of_comparison(found, arguments.a, arguments.b))
    if arguments.repro is not None:
        _write_repro(found, arguments)
    return 0 if found.verdict == "EQUAL" else 1


def _write_repro(found: Comparison, arguments: Locate) -> None:
    assert arguments.repro is not None
    if not found.places:
        print(f"note: nothing differs, so {arguments.repro} was not written", file=sys.stderr)
        return
    printed = write_repro(found.places[0], arguments.repro, a=arguments.a, b=arguments.b)
    which = "place 1" if len(found.places) > 1 else "the place"
    print(f"\n{arguments.repro}: {which} as a program; it prints: {printed}")
