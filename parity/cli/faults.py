"""``parity faults``: list the deliberate mistakes that the checks must catch."""

from __future__ import annotations

from dataclasses import dataclass

from parity.cli.support.command_line import parse
from vit_config.terminal import say


@dataclass(frozen=True)
class Faults:
    """List the deliberate mistakes that `parity check --fault` and `parity check-steps --fault` make in
    one twin; the latter also those of training steps.
    """


def main(argv: list[str], prog: str = "parity faults") -> int:
    """Run the command, which the user calls `prog`."""
    parse(Faults, argv, prog=prog)

    from parity.faults import FAULTS
    from parity.faults.step_table import STEP_FAULTS
    from parity.faults.twin import FRAMEWORKS

    for name, fault in FAULTS.items():
        say(f"{name:33}{FRAMEWORKS[fault.twin]}: {fault.summary}")
    for name, step_fault in STEP_FAULTS.items():
        say(f"{name:33}check-steps: {step_fault.summary}")
    return 0
