"""The outcome of comparing two programs, as values, as text and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from parity.measure.shown import first_three, json_text
from parity.measure.verdict import Verdict
from parity.verifier.report.modules import Module
from parity.verifier.report.relation import SAME
from parity.verifier.report.sides import PlaceSide, Term
from parity.verifier.search.region import Gap, Kind

SCHEMA = "parity.operations/1"
"""Version of the JSON; a field is never renamed or removed within a version."""

UNCOMPARED = -1.0
"""Stands for an error where two values cannot be compared."""

MOST_LINES = 4
"""Most lines of each side of a place that are printed."""

MODULE_COLUMNS = ("module of B", "is A's", "results that A has")


@dataclass(frozen=True)
class Place:
    """Where two programs part, up to where they meet again."""

    kind: Kind
    a: PlaceSide
    b: PlaceSide
    error: float
    """||a - b|| / ||a|| of the value at its end; `UNCOMPARED` where there is none."""
    limit: float
    """Largest error that rounding explains."""
    message: str = ""
    """What is known beyond the two formulas, in one sentence."""
    cause: str = ""
    """A name from `causes`: exchanging that one thing makes everything downstream meet. Empty where no
    cause fits."""
    modules: tuple[str, ...] = ()
    """Further modules of B where the same line parts in the same way."""
    times: int = 1
    terms: tuple[Term, ...] = ()
    """Terms of both sides, where both are sums, with those that differ."""
    gap: Gap | None = field(default=None, repr=False, compare=False)
    """The regions of both programs; no part of the JSON."""

    @property
    def rule(self) -> str:
        """The cause as a slug; where none is known, the kind of the place."""
        return (self.cause or self.kind).replace(",", "").replace(" ", "-")


@dataclass(frozen=True)
class Counts:
    """How much was compared."""

    outputs: int
    elements: int
    outputs_left_out: tuple[str, ...]
    operations_a: int
    operations_b: int
    met: int
    """Values of B that A has too."""
    comparable: int
    """Values of B that could have met."""
    inputs: int = 0
    parameters: int = 0
    unused: tuple[str, ...] = ()
    """Parameters from which no path leads to an output that was compared."""
    tally: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many of A's outputs were compared, and how many it has, by what they are: outputs; or
    gradients of parameters and of inputs."""
    zero_in_theory: tuple[str, ...] = ()
    """Compared outputs that are nothing but round-off, such as the gradient of a key's bias."""
    unread: tuple[str, ...] = ()
    """Parameters of A alone that reach no output, and so have no gradient."""
    unmoved: int = 0
    """Compared pairs of outputs that are zero on both sides, of which nothing can be seen."""
    unseen: int = 0
    """These, and pairs of gradients to which only parameters and inputs of zeros lead."""

    @property
    def sees(self) -> bool:
        """Whether a number was compared in which a difference could show."""
        return bool(self.elements) and self.unseen < self.outputs


@dataclass(frozen=True, repr=False)
class Comparison:
    """The outcome of `compare`."""

    verdict: Verdict
    error: float
    """The largest relative distance of two outputs, in the norm."""
    counts: Counts
    places: tuple[Place, ...] = ()
    """Faults, in the order in which B runs them; `notes` holds what rounding explains."""
    notes: tuple[Place, ...] = ()
    rounded: tuple[str, ...] = ()
    """Leaves, and lines of constants, that one side holds with fewer digits, and that were taken as the
    same."""
    types: tuple[str, ...] = ()
    """Where one side alone asks for a smaller number type; both were compared in float64."""
    remarks: tuple[str, ...] = ()
    """Facts that the author of a side may not expect: what was done to it, what is random. "A: ..."."""
    legend: dict[str, str] = field(default_factory=dict)
    """What the letters of the formulas stand for."""
    modules: tuple[Module, ...] = ()
    """Modules of B, where it has any, in the order in which they begin."""
    seconds: float = 0.0
    stopped: str = ""
    """Why the search for places ended before all were found; empty where it did not."""
    backward: bool = False
    """Whether the outputs are gradients; the forward passes are then the same."""

    def __repr__(self) -> str:
        """One line; `to_text` has all."""
        where = "; ".join(f"{each.cause or each.kind} at {each.b.where}" for each in self.places[:3])
        more = f" and {len(self.places) - 3} more" if len(self.places) > 3 else ""
        count = self.counts.outputs
        size = f"{count} output{'s' * (count != 1)}, relative error {self.error:.2g}"
        return f"<Comparison {self.verdict}: {size}" + (f"; {where}{more}>" if where else ">")

    def to_json(self) -> str:
        """Return the comparison as JSON, with `schema` first."""
        return json_text(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, with `schema` first; infinities stay."""
        bare = replace(
            self,
            places=tuple(replace(each, gap=None) for each in self.places),
            notes=tuple(replace(each, gap=None) for each in self.notes),
        )
        fields = asdict(bare)
        for place in (*fields["places"], *fields["notes"]):
            del place["gap"]
        return {"schema": SCHEMA, **fields}

    def to_text(self) -> str:
        """Return the comparison as a text for people."""
        return "\n".join([f"{self.verdict}: {self.summary()}", *self.details()])

    def summary(self) -> str:
        """Say how much was compared, of how much, and how far apart it is."""
        c = self.counts
        every = " and ".join(
            f"{compared} of {number} {what if number != 1 else what[:-1]}"
            for what, (compared, number) in c.tally.items()
        )
        if self.backward:
            return f"gradients of {every} ({c.elements} numbers), {self.error:.2g}"
        return f"{every} compared ({c.elements} numbers), largest relative error {self.error:.2g}"

    def details(self, *, brief: bool = False) -> list[str]:
        """Return the lines of `to_text` below the first; `brief`: without counts."""
        c = self.counts
        lines = [
            f"{c.operations_a} operations in A, {c.operations_b} in B;"
            f" {c.met} of B's {c.comparable} values are also A's"
        ][: not brief]
        said_of_b = "B alone has a gradient of" if brief else "B alone returns"
        promised = not brief and self.verdict == "EQUAL"
        said_of_a = "without a gradient in B" if brief else "not compared"
        said_of_a = "B does not return A's" if promised else said_of_a
        for phrase, start in ((said_of_a, "A"), (said_of_b, "B")):
            names = [each.removeprefix("B's ") for each in c.outputs_left_out if each[0] == start]
            names = [each.removeprefix("A's ") for each in names] if brief or promised else names
            shown = _some(tuple(names)) if brief else ", ".join(names)
            lines += [f"{phrase}: {shown}"] if names else []
        if c.zero_in_theory:
            names = [each.partition("'s ")[2] for each in c.zero_in_theory]
            lines.append(
                f"zero in theory, and nothing but round-off on both sides: {_some(tuple(names))}"
            )
        if c.unread:
            lines.append(f"A's parameters that reach no output: {_some(c.unread)}")
        if c.unmoved:
            what = "gradients" if self.backward else "outputs"
            lines.append(f"zero on both sides, which says nothing: {c.unmoved} of {c.outputs} {what}")
        if c.unused and not brief:
            lines.append(f"parameters that reach no output: {', '.join(c.unused)}")
        if self.rounded:
            lines.append(f"with fewer digits on one side, and taken as the same: {_some(self.rounded)}")
        lines += [f"compared in float64 all the same: {each}" for each in self.types]
        lines += self.places_to_text()
        for note in self.notes:
            lines += [
                "",
                f"rounding: {note.a.where} and {note.b.where},"
                f" {note.error:.2g} (limit {note.limit:.2g})",
            ]
        return lines

    def module_rows(self) -> list[tuple[str, str, str, str]]:
        """Return a row for each module of B that has results: path, module of A, how many of its results
        A has, and how it compares."""
        return [
            (each.path, each.of_a or "-", f"{each.same} of {each.results}", self.said_of(each))
            for each in self.modules
            if each.results
        ]

    def said_of(self, module: Module) -> str:
        """Say how a module compares: where nothing differs, it may compute the same in another way."""
        return "in another way" if module.state == "differs" and not self.places else module.state

    def places_to_text(self) -> list[str]:
        """Return the lines of the places alone, and of what their letters stand for."""
        lines = []
        for number, place in enumerate(self.places, 1):
            lines += ["", *_place(number, place)]
        if self.stopped:
            lines += ["", f"the places are INCOMPLETE: {self.stopped}"]
        used = {letter: text for letter, text in self.legend.items() if self._uses(letter)}
        if used:
            lines += ["", "where"]
            lines += [f"  {letter} = {text}" for letter, text in used.items()]
        return lines

    def _uses(self, letter: str) -> bool:
        from re import search

        return any(
            search(rf"\b{letter}\b", part.formula)
            for place in self.places
            for part in (place.a, place.b)
        )


KINDS = {
    "operations": "other operations",
    "order": "the same numbers in another order",
    "parameter": "parameter",
    "digits": "lost digits",
    "rounding": "rounding",
    "input": "input",
    "open": "no end found",
}


def title_of(place: Place) -> str:
    """Return the cause of a place, or its kind, and what is known of it, as one phrase."""
    head = place.cause or KINDS[place.kind]
    return f"{head}: {place.message}" if place.message else head


def _place(number: int, place: Place) -> list[str]:
    width = max(len(place.a.where), len(place.b.where))
    lines = [f"{number}. {title_of(place)}"]
    for side, part in (("A", place.a), ("B", place.b)):
        lines.append(f"   {side} {part.where:<{width}}  {part.formula}")
        lines += _source(part)
    if not place.cause and any(term.relation != SAME for term in place.terms):
        lines += _terms(place.terms)
    where = f" in {place.b.module}" if place.b.module else ""
    size = (
        "no relative error: one of the two is zero or infinite, or integers beyond 2^53 differ"
        if place.error == math.inf
        else f"relative error {place.error:.2g}"
        if place.error >= 0
        else "no value of A's makes the rest meet"
        if place.kind == "open"
        else "no error between these shapes"
    )
    named = place.kind not in ("parameter", "input")  # the message has the names of all of these
    others = tuple(each for each in place.modules if each != place.b.module)
    also = f": also {_some(others)}" if named else ""
    lines.append(f"   {size}{where}" + (f"; {place.times} times{also}" if place.times > 1 else ""))
    return lines


def _source(part: PlaceSide) -> list[str]:
    """Return the first lines of a side and the one that most likely holds the difference, marked where
    there are others."""
    likely = part.likely if part.likely is not None and len(part.lines) > 1 else -1
    shown = [*range(len(part.lines))]
    shown = shown[:MOST_LINES] if likely < MOST_LINES else [*shown[: MOST_LINES - 1], likely]
    lines = ((" >"[k == likely], part.lines[k]) for k in shown)
    return [f"   {mark} {line.line:>5} | {line.text}" for mark, line in lines]


def _terms(terms: tuple[Term, ...]) -> list[str]:
    """Return a line for each term of the sums that both sides are."""
    rows = [(each.a or "-", each.b or "-", each.relation) for each in terms]
    width_a, width_b = (max(len(row[k]) for row in rows) for k in (0, 1))
    return [
        "   both are sums; their terms:",
        *(f"     A {a:<{width_a}}  B {b:<{width_b}}  {how}" for a, b, how in rows),
    ]


def _some(modules: tuple[str, ...]) -> str:
    return first_three([each for each in dict.fromkeys(modules) if each]) or "in later calls"
