"""The result of comparing a program on two devices, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parity.measure.shown import first_three
from parity.measure.verdict import Verdict
from parity.verifier.devices.rounding import Apart
from parity.verifier.devices.step import About
from parity.verifier.programs.operation import Source

SCHEMA = "parity.devices/1"
WHOLE = 16.0
"""Multiple of what nudged leaves move an output by that a whole run may be away."""
SHOWN = 8
"""How many places, and how many outputs, are shown as text."""


@dataclass(frozen=True)
class Devices:
    """Result of `compare_devices`."""

    a: About
    b: About
    settings: dict[str, str]
    apart: tuple[Apart, ...]
    """Operations that differ by more than rounding, in the order in which they run."""
    judged: int
    """How many operations were run on both."""
    drawn: int
    """How many draw random numbers, and were not compared."""
    alone: tuple[str, ...]
    """Operations of one side that the other does not have."""
    outputs: tuple[tuple[str, float, float], ...]
    """Path of each output; how far the whole runs are apart, and how far rounding alone moves it."""
    zero: bool = False
    """Whether all outputs are zero, where no difference shows."""

    @property
    def fused(self) -> list[tuple[str, float, float]]:
        """Outputs that are too far apart, where no single operation is, and nothing was drawn."""
        far = [each for each in self.outputs if each[1] > WHOLE * max(each[2], 1e-16)]
        return [] if self.apart or self.drawn else far

    @property
    def verdict(self) -> Verdict:
        """EQUAL: no operation differs by more than its type's rounding, nor does the whole."""
        if self.apart or self.fused:
            return "DIFFERENT"
        if self.alone or not self.judged:
            return "INCOMPLETE"
        return "UNCERTIFIED" if self.zero else "EQUAL"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; a field is never renamed or removed within a version of `schema`."""
        return {
            "schema": SCHEMA, "verdict": self.verdict, "a": self.a._asdict(), "b": self.b._asdict(),
            "settings": self.settings, "operations": self.judged, "drawn": self.drawn,
            "alone": list(self.alone),
            "apart": [{**each._asdict(), "source": _line(each.source)} for each in self.apart],
            "outputs": [
                {"path": path, "apart": apart, "rounding": rounding}
                for path, apart, rounding in self.outputs
            ],
        }  # fmt: skip

    def to_text(self) -> str:
        """Return the result as text, the verdict first."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        side = ", ".join([*self.b, *(f"{name}={value}" for name, value in self.settings.items())])
        if self.verdict == "DIFFERENT" and self.apart:
            yield (
                f"DIFFERENT  {len(self.apart)} of {_operations(self.judged)} of B, run on A's numbers,"
                " differ by more than rounding"
            )
        elif self.verdict == "DIFFERENT":
            yield (
                f"DIFFERENT  each of {_operations(self.judged)} alone agrees, and the whole run of B"
                " does not: what its compiler fused, or reordered"
            )
        else:
            count = _operations(self.judged)
            yield f"{self.verdict}  to rounding: {count} of B, each run on A's numbers"
        if self.verdict == "UNCERTIFIED":
            yield "all outputs are zero, where no difference shows; give other weights or inputs"
        yield f"A: {', '.join(self.a)}; B: {side}"
        worst = sorted(self.outputs, key=lambda each: each[1] / (each[2] or 1e-16), reverse=True)
        for path, apart, rounding in worst[:SHOWN]:
            which = path or "output"
            yield f"whole runs: {which} {apart:.1e} apart; rounding alone moves it by {rounding:.1e}"
        if len(worst) > SHOWN:
            yield f"whole runs: {len(worst) - SHOWN} more outputs are nearer, as rounding goes"
        if self.drawn:
            yield f"{_operations(self.drawn)} drew random numbers, and were not compared"
        if self.alone:
            yield f"without a counterpart: {first_three(self.alone)}"
        for number, each in enumerate(self._places()[:SHOWN], 1):
            yield ""
            yield f"{number}. {each}"
        more = len(self._places()) - SHOWN
        if more > 0:
            yield f"\n{more} more lines; --json has them"

    def _places(self) -> list[str]:
        """Describe the operations, those of one line and one reason together."""
        groups: dict[Any, list[Apart]] = {}
        for each in self.apart:
            groups.setdefault((each.source, each.name, each.reason), []).append(each)
        places = []
        for (source, name, reason), same in groups.items():
            first, times = same[0], max(each.times for each in same)
            count = f", {len(same)} times" if len(same) > 1 else ""
            where = f"{source}  {source.text}" if source else "no line of yours"
            size = "" if times == float("inf") else f"{max(e.error for e in same):.1e} of its size, "
            far = "beyond all bounds" if times == float("inf") else f"{times:,.1f} times what may differ"
            places.append(
                f"{name} {first.dtype} {list(first.shape)}{count}: {size}{far}\n   {reason}\n   {where}"
            )
        return places


def _operations(count: int) -> str:
    return "1 operation" if count == 1 else f"{count} operations"


def _line(source: Source | None) -> dict[str, Any] | None:
    """Return a line as plain data."""
    return source and {"file": source.file, "line": source.line, "text": source.text}
