"""``parity diff``: find where two models differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from parity.cli.support.command_line import parse
from parity.cli.support.comparing import Comparing
from parity.cli.support.reading import shown_as


@dataclass(frozen=True)
class Diff(Comparing):
    """Find the first module whose output differs although its inputs agree: forward, then backward, then
    step by step. Each model runs in its own process. Then print the lines of source, as `parity locate`
    finds them, of the forward pass or, if that is the same, of the backward pass. Exit status: 0 equal,
    1 different or not all compared, 2 bad input.
    """

    picture: Annotated[Path | None, shown_as("FILE")] = None
    """Also draw the errors by depth, with the envelope of rounding, as .png, .svg or .pdf."""


def main(argv: list[str], prog: str = "parity diff") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Diff, argv, prog=prog)

    from parity.measure.verdict import status
    from parity.verifier.diff.diff_report import print_difference
    from parity.verifier.reports.of_difference import report_of_difference
    from vit_config.files.atomic import check_writable
    from vit_config.screen import screen

    if arguments.picture is not None:
        check_writable(arguments.picture)
    difference = arguments.run()
    print_difference(difference, screen(110))
    arguments.finish(difference, report_of_difference(difference))
    if arguments.picture:
        from parity.verifier.diff.picture import draw

        draw(difference, arguments.picture)
    return status(difference.verdict)
