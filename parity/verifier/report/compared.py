"""Result of comparing two programs, forward and backward, as values, as text and as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parity.measure.shown import first_three
from parity.measure.verdict import Verdict, worst
from parity.verifier.report.comparison import MODULE_COLUMNS, Comparison, Place


@dataclass(frozen=True, repr=False)
class Compared:
    """The outcome of `compare`."""

    name_a: str
    name_b: str
    forward: Comparison
    backward: Comparison | None = None
    """Comparison of the gradients; None if the forward passes differ or no gradients were compared."""
    no_backward: str = ""
    """Reason why gradients were not compared although they were asked for; empty if there is none."""
    gradients_left_out: bool = False
    """Whether A has gradients, and they were not compared for that reason."""
    trained: tuple[str, ...] = ()
    """Layers that act in training alone and were on as given, as "B's dropout (0.5, port.py:12)"; both
    programs ran without them."""
    in_type: InType | None = None
    """Runs in a smaller type, if that was asked for."""

    def __repr__(self) -> str:
        """Return one line; `to_text` has everything."""
        shown = self.backward if self.backward is not None and self.backward.places else self.forward
        return f"<Compared {self.name_a} and {self.name_b}: {self.verdict}; {shown!r}>"

    @property
    def verdict(self) -> Verdict:
        """Verdict on the two programs."""
        parts = [self.forward, *filter(None, (self.backward, self.in_type))]
        verdict = worst(part.verdict for part in parts)
        verdict = worst((verdict, "INCOMPLETE")) if self.gradients_left_out else verdict
        return worst((verdict, "UNCERTIFIED")) if self.unseen else verdict

    @property
    def unseen(self) -> str:
        """Why nothing that was compared could have differed; empty if something could."""
        if any(part.counts.sees for part in self.parts):
            return ""
        if not any(part.counts.elements for part in self.parts):
            return "there are no numbers in what was compared; give rows"
        return (
            "all that was compared is zero on both sides, or the same whatever was given, where no"
            " difference shows; give other weights or inputs"
        )

    @property
    def equal(self) -> bool:
        """Whether all of A was compared and equals B up to rounding."""
        return self.verdict == "EQUAL"

    @property
    def parts(self) -> tuple[Comparison, ...]:
        """Comparisons that were made: forward, then backward."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    @property
    def places(self) -> tuple[Place, ...]:
        """Places where the two differ: forward, else backward, else in the smaller type."""
        apart = self.in_type.apart if self.in_type else None
        return tuple(place for each in (*self.parts, *filter(None, [apart])) for place in each.places)

    @property
    def causes(self) -> tuple[str, ...]:
        """Names of the causes that were found, in order."""
        return tuple(place.cause for place in self.places if place.cause)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Facts about a side that its author may not expect, as "A: ..."."""
        return tuple(dict.fromkeys(each for part in self.parts for each in part.remarks))

    def summary(self) -> str:
        """Say how much of A was compared, and how far apart it is."""
        text = self.forward.summary()
        if self.backward is not None:
            text += f"; {self.backward.summary()}"
        return f"{text}; no gradients" if self.no_backward else text

    def headline(self) -> str:
        """Return the verdict, and what it holds for: "EQUAL in evaluation mode; B's dropout .. is on as
        given"."""
        if self.verdict == "UNCERTIFIED" and self.unseen:
            return f"UNCERTIFIED, as {self.unseen}"
        if not self.trained:
            return self.verdict
        on = f"{first_three(self.trained)} {'is' if len(self.trained) == 1 else 'are'} on as given"
        return f"{self.verdict} in evaluation mode; {on}"

    def to_text(self) -> str:
        """Return the report as text."""
        lines = [f"{self.headline()}: {self.summary()}", *self.forward.details()]
        lines += [f"gradients were not compared: {self.no_backward}"] if self.no_backward else []
        if self.backward is not None:
            own = [each for each in self.backward.details(brief=True) if each not in lines]
            parts = bool(self.backward.places)
            lines += ["", "the outputs are the same; their gradients are not:"] * parts + own
        lines += self.in_type.to_text() if self.in_type else []
        return "\n".join(lines)

    def module_rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the head and the rows of the table of those modules of B that have results."""
        if self.backward is None:
            return (*MODULE_COLUMNS, ""), list(self.forward.module_rows())
        backward = {each.path: each for each in self.backward.modules}
        rows = []
        for path, of_a, same, state in self.forward.module_rows():
            each = backward.get(path)
            then = f"{each.same} of {each.results}" if each and each.results else "-"
            state = each.state if each and each.places else state
            rows.append((path, of_a, same, then, state))
        return (*MODULE_COLUMNS, "backward", ""), rows

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data: the verdict on the whole, the fields of the forward
        comparison, and the backward comparison as one field."""
        fields = self.forward.to_dict() | {
            "verdict": self.verdict,
            "unseen": self.unseen,
            "backward": None if self.backward is None else self.backward.to_dict(),
            "no_backward": self.no_backward,
            "trained": list(self.trained),
        }
        if self.in_type is not None:
            each = self.in_type
            fields["in_type"] = {"dtype": each.dtype, "errors": list(each.errors), "apart": each.side}
        return fields


@dataclass(frozen=True)
class InType:
    """Result of running two programs, equal in float64, in a smaller type."""

    dtype: str
    errors: tuple[float, float]
    """Largest relative distance of an output from the same output in float64, for A and for B."""
    apart: Comparison | None
    """Comparison of the side that is too far off with its own float64 run; None if neither side is."""
    side: str = ""

    @property
    def verdict(self) -> Verdict:
        """Verdict on the two in this type."""
        return "DIFFERENT" if self.side else "EQUAL"

    def to_text(self) -> list[str]:
        """Return the result as lines of text."""
        a, b = self.errors
        lines = [f"in {self.dtype}: A is {a:.2g} from itself in float64, B {b:.2g}"]
        if self.apart is not None and self.apart.places:
            lines += ["", f"{self.side} in float64 (A) and in {self.dtype} (B):"]
            lines += self.apart.places_to_text()
        elif self.side:
            lines += [
                f"{self.side} is the same function in both types, and loses digits on these numbers"
            ]
        return lines
