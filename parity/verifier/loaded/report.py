"""What was found of each parameter, as a sentence, a list and plain data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from shlex import quote
from typing import Any, Literal

from parity.verifier.match.families import INDEX, show

JSON_VERSION = 1
SHOWN = 3
"""Most groups of names in the sentence."""
BLOCK = re.compile(r"(?:(?<=[._/])|^)\d+(?=[._/]|$)")
"""The number of a block in a name; that of `norm1` is part of a word."""
OFF = " off"
CAST = re.compile("(cast|widened) to ")
SHAPE = "of another shape"
"""State of a parameter whose tensor of the file has another shape, such as a new head."""
OTHERS = "other tensors of FILE"
"""State of a parameter that holds the numbers of a tensor that is not its own."""


@dataclass(frozen=True)
class Finding:
    """One parameter or buffer of the model."""

    name: str
    kind: Literal["parameter", "buffer"]
    held: bool
    """Whether it holds the file's numbers."""
    state: str
    """In a word: ``bit for bit``, ``transposed``, ``cast to float16``; or what it holds instead."""
    words: str = ""
    """The details."""
    of: tuple[str, ...] = ()
    """Tensors of the file that it holds, or should hold."""
    also: tuple[str, ...] = ()
    """Other names of the same tensor."""


@dataclass(frozen=True)
class Report:
    """Whether a model holds a file's numbers."""

    file: str
    """Name of the file."""
    findings: tuple[Finding, ...]
    """Of each parameter and buffer of the model that the file should give."""
    missed: tuple[str, ...] = ()
    """Tensors of the file that belong into modules of the model, and that nothing took."""
    outside: tuple[str, ...] = ()
    """Other tensors of the file that nothing took: of parts that the model does not have."""
    apart: tuple[str, ...] = ()
    """Parameters that the user said to be of elsewhere, and those of an adapter that the file lacks."""
    notes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    """All names in the file."""

    @cached_property
    def wrong(self) -> tuple[Finding, ...]:
        """What does not hold the file's numbers."""
        return tuple(each for each in self.findings if not each.held)

    @property
    def loaded(self) -> bool:
        """Whether the model holds the file's numbers, all that belong into it."""
        return not self.wrong and not self.missed and bool(self.findings)

    def __bool__(self) -> bool:
        return self.loaded

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        every = Counter(each.kind for each in self.findings)
        if self.loaded:
            hold = "holds" if len(self.findings) == 1 else "hold"
            text = f"LOADED: {_of_all(every, every)} {hold} {self.file}'s numbers ({self._how()})"
        else:
            wrong = Counter(each.kind for each in self.wrong)
            groups = [f"{_some(names)} ({state})" for state, names in self._states(self.wrong)]
            are = "is" if len(self.wrong) == 1 else "are"
            text = f"NOT LOADED: {_of_all(wrong, every)} {are} not {self.file}'s: {_some(groups)}"
            if not self.wrong:
                text = f"NOT LOADED: {_of_all(every, every)} hold {self.file}'s numbers"
        if self.missed:
            names = _some(collapse(self.missed, self.tensors))
            text += f"; {_tensors(self.missed)} of {self.file} went nowhere: {names}"
        return text

    def to_text(self) -> str:
        """Return the sentence and, below it, what it does not have room for."""
        lines = [self.sentence]
        for state, names in self._states(self.wrong):
            words = _ranged([x.words for x in self.wrong if x.state == state and x.words])
            if words or len(names) > SHOWN:
                lines.append(f"  {state}: {_some(names, 12)}{f'; {words}' if words else ''}")
        if len(collapse(self.missed, self.tensors)) > SHOWN:
            lines.append(f"  went nowhere: {', '.join(collapse(self.missed, self.tensors))}")
        for each in self.findings:
            if each.held and each.words and not CAST.match(each.words):
                lines.append(f"  {each.state}: {each.name}; {each.words}")
        if self.wrong and len(self.wrong) < len(self.findings):
            lines.append(f"  the others hold its numbers: {self._how()}")
            new = [name for state, names in self._states(self.wrong) if state == SHAPE for name in names]
            if new:
                lines.append(
                    f"  if they are new on purpose: --apart-from {' '.join(map(quote, new[:SHOWN]))}"
                )
        if self.outside:
            names = _some(collapse(self.outside, self.tensors), 6)
            lines.append(
                f"  {_tensors(self.outside)} of what the model does not have, or computes: {names}"
            )
        if self.apart:
            every = (*self.apart, *(each.name for each in self.findings))
            lines.append(f"  not asked for: {_some(collapse(self.apart, every), 6)}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return all results as plain data; docs/loaded.md describes each entry."""
        return {
            "version": JSON_VERSION,
            "loaded": self.loaded,
            "sentence": self.sentence,
            "leaves": [_listed(each) for each in self.findings],
            "missed": list(self.missed),
            "outside": list(self.outside),
            "apart": list(self.apart),
            "notes": list(self.notes),
        }

    def _how(self) -> str:
        """Count in which ways numbers are held."""
        counts = Counter(each.state for each in self.findings if each.held)
        counts.update(each.words for each in self.findings if each.held and CAST.match(each.words))
        tied = sum(bool(each.also) for each in self.findings)
        whole = len(counts) == 1 and counts.total() == len(self.findings)
        ways = [f"{'all' if whole else count} {way}" for way, count in counts.most_common()]
        return ", ".join([*ways, *([f"{tied} tied"] if tied else [])])

    def _states(self, findings: Iterable[Finding]) -> list[tuple[str, list[str]]]:
        """Return the names of each state."""
        by_state: dict[str, list[str]] = {}
        for each in findings:
            by_state.setdefault(each.state, []).append(each.name)
        by_state = dict(sorted(by_state.items(), key=lambda item: -len(item[1])))
        every = [each.name for each in self.findings]
        return [
            (state, collapse(names, every) if len(names) < len(every) else ["all"])
            for state, names in by_state.items()
        ]


def _listed(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "of": list(finding.of), "also": list(finding.also)}


def _ranged(words: Sequence[str]) -> str:
    """Join details of several parameters, each kind of them once."""
    if all(each.endswith(OFF) for each in words):
        errors = sorted({float(each.removesuffix(OFF)) for each in words})
        return (
            " to ".join(f"{each:.1g}" for each in dict.fromkeys((errors[0], errors[-1]))) + OFF
            if errors
            else ""
        )
    return _some(list(dict.fromkeys(words)), between="; ")


def _of_all(some: Mapping[str, int], every: Mapping[str, int]) -> str:
    parts = [
        f"{some[kind]} of {every[kind]} {kind}{'s' if every[kind] != 1 else ''}"
        for kind in ("parameter", "buffer")
        if some.get(kind)
    ]
    return " and ".join(parts) or "nothing"


def _tensors(names: Sequence[str]) -> str:
    return f"{len(names)} tensor{'s' if len(names) != 1 else ''}"


def _some(texts: Sequence[str], most: int = SHOWN, between: str = ", ") -> str:
    more = f"{between}... ({len(texts)} in all)" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def collapse(names: Sequence[str], among: Sequence[str] = ()) -> list[str]:
    """Return names in few words: ``blocks.{6-11}.*`` for all that is in these blocks.

    Args:
        names: the names to write.
        among: all names; a module all of whose parts are to be written becomes one word.
    """
    wanted, rest = set(names), set(among) - set(names)
    spoilt = {front for name in rest for front in _fronts(name)}
    short: dict[str, None] = {}
    for name in names:
        whole = next((f for f in _fronts(name) if f not in spoilt), None) if among else None
        several = whole and sum(each.startswith(f"{whole}.") for each in wanted) > 1
        short[f"{whole}.*" if several else name] = None
    groups: dict[str, list[int]] = {}
    for each in short:
        number = BLOCK.search(each)
        key = each if number is None else f"{each[: number.start()]}{INDEX}{each[number.end() :]}"
        groups.setdefault(key, []).extend([int(number[0])] if number else [])
    return [
        show(key, sorted(numbers))
        if len(numbers) > 1
        else key.replace(INDEX, "".join(map(str, numbers)))
        for key, numbers in groups.items()
    ]


def _fronts(name: str) -> list[str]:
    """Return the modules around a name, the outermost first."""
    return [name[: mark.start()] for mark in re.finditer(r"[./]", name)]
