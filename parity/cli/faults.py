"""``parity faults``: list the deliberate mistakes that the checks must catch."""

from __future__ import annotations

from dataclasses import dataclass

from parity.cli.support.command_line import parse


@dataclass(frozen=True)
class Faults:
    """List the deliberate mistakes that `parity check --fault` and `parity check-steps --fault` make in
    one twin; mistakes in training steps go with the latter only.
    """


def main(argv: list[str], prog: str = "parity faults") -> int:
    """Run the command, which the user calls `prog`."""
    parse(Faults, argv, prog=prog)

    from rich.table import Table

    from parity.faults import FAULTS
    from parity.faults.step_table import STEP_FAULTS
    from parity.faults.twin import FRAMEWORKS
    from parity.measure.tables import show_table
    from vit_config.screen import screen

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column("")
    table.add_column("")
    table.add_column("", overflow="fold")
    for name, fault in FAULTS.items():
        table.add_row(name, FRAMEWORKS[fault.twin], fault.summary)
    for name, step_fault in STEP_FAULTS.items():
        table.add_row(name, "check-steps", step_fault.summary)
    show_table(table, screen(160, highlight=False))
    return 0
