"""``parity diagnose``: explain why two models differ."""

from __future__ import annotations

from dataclasses import dataclass

from parity.cli.support.command_line import parse
from parity.cli.support.comparing import Comparing


@dataclass(frozen=True)
class Diagnose(Comparing):
    """Find the first difference as `parity diff` does, and its cause. Two models are compared operation
    by operation: a cause is named if exchanging that one thing makes everything behind it the same, and
    the formulas and lines of source follow. A step of recorded training is computed again under each
    known rule, until one reproduces both sides. Exit status: 0 equal, 1 different or not all compared,
    2 bad input.
    """


def main(argv: list[str], prog: str = "parity diagnose") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Diagnose, argv, prog=prog)

    from parity.measure.verdict import status
    from parity.verifier.diagnose.diagnosis import diagnose
    from parity.verifier.diagnose.diagnosis_report import print_diagnosis
    from parity.verifier.reports.of_difference import report_of_diagnosis
    from vit_config.screen import screen

    difference = arguments.run()
    diagnosis = diagnose(difference)
    print_diagnosis(diagnosis, screen(110))
    arguments.finish(difference, report_of_diagnosis(diagnosis))
    return status(difference.verdict)
