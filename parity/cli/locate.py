"""``parity locate``: where two programs stop computing the same, on the line of source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from parity.verifier.operations import compare
from vit_config.files.atomic import check_writable, write_atomically


@dataclass(frozen=True)
class Locate:
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
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file."""


def main(argv: list[str], prog: str = "parity locate") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Locate, argv, prog=prog)
    if arguments.json is not None:
        check_writable(arguments.json)
    found = compare(arguments.a, arguments.b, gradients=arguments.gradients)
    print(found.to_text())
    if arguments.json is not None:
        write_atomically(arguments.json, (found.to_json() + "\n").encode())
    return 0 if found.verdict == "EQUAL" else 1
