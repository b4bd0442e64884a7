"""Mutants that no test can kill, each with the reason."""

EQUAL: dict[tuple[str, str, str], str] = {}
"""File, line and change: why the two compute the same."""
