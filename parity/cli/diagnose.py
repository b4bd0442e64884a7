"""``parity diagnose``: another name of ``parity diff``, for one release."""

from __future__ import annotations

from parity.cli.diff import main as diff


def main(argv: list[str], prog: str = "parity diagnose") -> int:
    """Run `parity diff`; `prog` is the name that the user called it by."""
    return diff(argv, prog)
