"""``--repro FILE.py``: write the first place that was found as a program of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parity.verifier.report.comparison import Place
from parity.verifier.repro import write_repro
from vit_config import InputError
from vit_config.terminal import complain, say


def reproduce(places: Sequence[Place], path: Path, a: str, b: str) -> None:
    """Write the program and say what it prints, or why there is none."""
    if not places:
        complain(f"note: nothing differs, so {path} was not written")
        return
    try:
        printed = write_repro(places[0], path, a=a, b=b)
    except InputError as error:  # what was found stands, and so does its exit status
        complain(f"note: no program was written: {error}")
        return
    which = "place 1" if len(places) > 1 else "the place"
    say("", f"{path}: {which} as a program; it prints: {printed}")
