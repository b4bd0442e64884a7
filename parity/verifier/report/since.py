"""What has become of the places of an earlier report: gone, still there, changed; and which are new."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vit_config.errors import InputError, MissingFileError, first_line
from vit_config.files.foreign import parse_json, read_text

SCHEMAS = ("parity.report/1", "parity.operations/1")
EQUAL_ERRORS = 1e-3
"""Relative difference up to which two errors are one: less than the two digits of a report show."""
_LETTER = re.compile(r"(?<![\w.])[a-z]\d*(?![\w.(])")


@dataclass(frozen=True)
class Seen:
    """A place as a report in JSON has it."""

    number: int
    """Its number in the report, from 1."""
    title: str
    where_a: str
    where_b: str
    cause: str
    error: float | None
    lines_a: tuple[tuple[str, str], ...]
    """File and text of A's lines; their numbers may move."""
    lines_b: tuple[str, ...]
    formula_a: str
    """A's formula, its letters in order."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Everything else that may change, by what it is called."""

    @property
    def where(self) -> str:
        """The first line of each side."""
        sides = (("A", self.where_a), ("B", self.where_b))
        return ", ".join(f"{name} {where}" for name, where in sides if where)


@dataclass(frozen=True)
class Since:
    """A report compared with an earlier one."""

    path: str
    before: int
    """How many places the earlier report had."""
    gone: tuple[Seen, ...]
    still: tuple[tuple[Seen, Seen], ...]
    """Places of both reports, each as it was and as it is."""
    new: tuple[Seen, ...]

    def to_text(self) -> list[str]:
        """Return what has changed, as lines."""
        number = len(self.gone), self.before, len(self.still), len(self.new)
        head = f"since {self.path}: %d of %d places gone, %d still there, %d new" % number
        return [
            head,
            *(f"  gone: {each.title} ({each.where})" for each in self.gone),
            *(f"  {_change(was, now)}" for was, now in self.still),
            *(f"  new: {each.number}. {each.title} ({each.where})" for each in self.new),
            "",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return what has changed, as plain data."""
        return {
            "file": self.path,
            "gone": [{"was": e.number, "title": e.title, "a": e.where_a, "b": e.where_b}
                     for e in self.gone],
            "still": [{"was": was.number, "place": now.number, "change": _kind(was, now),
                       "error_was": was.error, "error": now.error, "changes": _changes(was, now)}
                      for was, now in self.still],
            "new": [{"place": each.number, "title": each.title} for each in self.new],
        }  # fmt: skip


def read_report(path: Path) -> list[Seen]:
    """Return the places of a report that `--json` wrote.

    Raises:
        MissingFileError: there is no such file.
        InputError: it is no report on two programs.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give what --json wrote of an earlier run")
    try:
        content = parse_json(read_text(path))
        schema = content["schema"] if isinstance(content, dict) else None
        if schema not in SCHEMAS:
            raise InputError(f"schema {schema!r}; a report on two programs has {SCHEMAS[0]}")
        if "places" not in content:
            raise InputError("a report on two recordings; --since goes with one on two programs")
        return seen_in(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        why = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"{path}: not a report that --json wrote of two programs ({why})") from error


def seen_in(content: Mapping[str, Any]) -> list[Seen]:
    """Return the places of a report as plain data: forward, then backward."""
    parts = [content, *filter(None, [content.get("backward")])]
    places = [(place, part.get("legend", {})) for part in parts for place in part["places"]]
    return [_seen(number, *each) for number, each in enumerate(places, 1)]


def compare_reports(path: Path, before: Sequence[Seen], now: Sequence[Seen]) -> Since:
    """Compare the places of two reports; they are matched by A's side first, then by their cause."""
    pairs: dict[int, Seen] = {}
    left = list(before)
    for alike in (_same_place, _same_lines, _same_cause):
        for each in now:
            was = next((e for e in left if alike(e, each)), None) if each.number not in pairs else None
            if was is not None:
                pairs[each.number] = was
                left.remove(was)
    still = tuple((pairs[each.number], each) for each in now if each.number in pairs)
    new = tuple(each for each in now if each.number not in pairs)
    return Since(str(path), len(before), tuple(left), still, new)


def _same_place(was: Seen, now: Seen) -> bool:
    return (was.lines_a, was.formula_a) == (now.lines_a, now.formula_a)


def _same_lines(was: Seen, now: Seen) -> bool:
    other = was.cause and now.cause and was.cause != now.cause  # one line computes a whole layer
    return bool(was.lines_a) and was.lines_a == now.lines_a and not other


def _same_cause(was: Seen, now: Seen) -> bool:
    shared = {*was.lines_a} & {*now.lines_a} or {*was.lines_b} & {*now.lines_b}
    return bool(shared) and was.cause == now.cause


def _seen(number: int, place: Mapping[str, Any], legend: Mapping[str, Any]) -> Seen:
    a, b = place["a"], place["b"]
    named = _renamed(f"{a['formula']}\n{b['formula']}", legend)
    shown, formula_b = named(f"{a['formula']}\n{b['formula']}").split("\n")
    error = place["error"]
    error = float(error) if not isinstance(error, str) else float(error.replace("nan", "inf"))
    operands = {named(each["letter"]): each["relation"] for each in b.get("operands", ())}
    terms = {named(e["b"] or e["a"]): e["relation"] for e in place.get("terms", ())}
    head = place["cause"] or place["kind"]
    title = f"{head}: {place['message']}" if place["message"] else head
    facts = {"cause": place["cause"] or "none", "B's formula": formula_b, "times": place.get("times", 1)}
    facts |= {f"operand {name}": relation for name, relation in operands.items()}
    facts |= {f"term {name}": relation for name, relation in terms.items()}
    return Seen(
        number, title, _where(a["lines"]), _where(b["lines"]), place["cause"],
        error if error >= 0 else None,
        tuple((Path(each["file"]).name, each["text"]) for each in a["lines"]),
        tuple(each["text"] for each in b["lines"]), shown, facts,
    )  # fmt: skip


def _where(lines: Sequence[Mapping[str, Any]]) -> str:
    return f"{Path(lines[0]['file']).name}:{int(lines[0]['line'])}" if lines else ""


def _renamed(text: str, legend: Mapping[str, Any]) -> Callable[[str], str]:
    """Return a function that renames the letters of a place in the order in which they appear there: a
    report gives the same value another letter if an earlier place is gone."""
    letters = dict.fromkeys(each for each in _LETTER.findall(text) if each in legend)
    names = {each: f"v{number}" for number, each in enumerate(letters, 1)}
    return lambda some: _LETTER.sub(lambda match: names.get(match[0], match[0]), some)


def _kind(was: Seen, now: Seen) -> str:
    before, after = was.error or 0.0, now.error or 0.0
    if None in (was.error, now.error) or before == after:
        before = after = 0.0
    if abs(after - before) > EQUAL_ERRORS * max(before, after):
        return "smaller" if after < before else "larger"
    return "changed" if _changes(was, now) else "unchanged"


def _changes(was: Seen, now: Seen) -> list[str]:
    """Say what of a place has changed, besides its error."""
    names = dict.fromkeys([*now.facts, *was.facts])
    changes = [
        f"{name} is now {now.facts.get(name, 'not there')}, was {was.facts.get(name, 'not there')}"
        for name in names if was.facts.get(name) != now.facts.get(name)
    ]  # fmt: skip
    fresh = [text for text in now.lines_b if text not in was.lines_b]
    return [*changes, *(f"a line of B is now {text}" for text in fresh)]


def _change(was: Seen, now: Seen) -> str:
    kind, changes = _kind(was, now), _changes(was, now)
    place = f"{now.number}. {now.title} ({now.where})"
    if kind in ("smaller", "larger"):
        size = f"relative error {was.error or 0.0:.2g} -> {now.error or 0.0:.2g}"
        return "; ".join([f"{kind}: {place}: {size}", *changes])
    return f"unchanged: {place}" if not changes else f"the same place, but {place}: {'; '.join(changes)}"
