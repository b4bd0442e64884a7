"""Outcomes in a file, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evidence import ROOT
from evidence.mutants.judging import Outcome


class Outcomes:
    """The outcomes of a file, by model and key; new ones are appended as they come."""

    def __init__(self, path: Path, *, afresh: bool = False, again: bool = False) -> None:
        """
        Args:
            path: the file, one outcome a line; the last of a mutant counts.
            afresh: judge all anew.
            again: judge anew what was missed or named doubtfully by another version of the search.
        """
        self.path, self.again, self.engine = path, again, version()
        self.known: dict[tuple[str, str], Outcome] = {}
        if path.exists() and not afresh:
            for line in path.read_text().splitlines():
                fields: dict[str, Any] = json.loads(line)
                fields |= {name: tuple(fields[name]) for name in ("named", "doubtful", "said")}
                self.known[fields["model"], fields["key"]] = Outcome(**fields)

    def outcome(self, model: str, key: str, judge: Callable[[], Outcome]) -> Outcome:
        """Return a mutant's outcome: the saved one, or one judged and saved now."""
        known = self.get(model, key)
        if known is None:
            known = replace(judge(), engine=self.engine)
            self.known[model, key] = known
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as stream:
                stream.write(json.dumps(asdict(known)) + "\n")
        return known

    def get(self, model: str, key: str) -> Outcome | None:
        """An outcome that stands; None if the mutant is to be judged."""
        outcome = self.known.get((model, key))
        anew = outcome is not None and self.again and outcome.is_missed and outcome.engine != self.engine
        return None if anew else outcome


def version() -> str:
    """The version of the search: a hash of its files."""
    rooms = (ROOT / "parity" / "verifier" / room for room in ("programs", "search", "causes"))
    files = sorted(file for room in rooms for file in room.rglob("*.py"))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:8]
