"""Command lines of before: what once were flags of `parity check` are commands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vit_config.terminal import complain


def today(command: str, argv: Sequence[str]) -> tuple[str, list[str]]:
    """What a command line is called now; says so where that is something else."""
    argv = list(argv)
    if command != "check":
        return command, argv
    flags = [word.partition("=")[0] for word in argv]
    if "--all" in flags:
        return _now("--all", "sweep", [word for word in argv if word != "--all"])
    if "--fault=list" in argv or ("--fault", "list") in pairwise(argv):
        return _now("--fault list", "faults", [])
    if "--recipe" in flags:
        words = [part for word in argv for part in word.split("=", 1)]
        return _now("--recipe", "check-recipe", [word for word in words if word != "--recipe"])
    if "--steps" in flags:
        return _now("--steps", "check-steps", argv)
    return command, argv


def _now(before: str, command: str, argv: list[str]) -> tuple[str, list[str]]:
    complain(f"parity check {before} is now parity {command}")
    return command, argv
