"""``parity locate``: another name of ``parity diff``, for one release."""

from __future__ import annotations

from parity.cli.diff import main as diff


def main(argv: list[str], prog: str = "parity locate") -> int:
    """Run `parity diff`, which the user calls `prog`."""
    return diff(argv, prog)
