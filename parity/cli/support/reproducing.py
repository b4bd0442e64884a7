"""``--repro FILE.py``: write the first place that was found as a program of its own."""

from __future__ import annotations

from pathlib import Path

from parity.verifier.operations import Comparison
from parity.verifier.operations.repro import write_repro
from vit_config import InputError
from vit_config.terminal import complain, say


def reproduce(found: Comparison, path: Path, a: str, b: str) -> None:
    """Write the program and tell what it prints, or why there is none."""
    if not found.places:
        complain(f"note: nothing differs, so {path} was not written")
        return
    try:
        printed = write_repro(found.places[0], path, a=a, b=b)
    except InputError as error:  # the comparison stands, and so does its exit status
        complain(f"note: no program was written: {error}")
        return
    which = "place 1" if len(found.places) > 1 else "the place"
    say("", f"{path}: {which} as a program; it prints: {printed}")
