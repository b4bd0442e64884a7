"""Audit of a user's mapping of leaves: whether each line is right, and what would be."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from parity.verifier.match.links import Link, Matched
from vit_config import ConfigError, MissingFileError
from vit_config.files.foreign import parse_json, read_text

Verdict = Literal[
    "right",
    "unknown",
    "used twice",
    "wrong leaf",
    "wrong order",
    "transposition",
    "not shown",
    "missing",
]
FORM = '"leaf", ["leaf", ...] joined along the first axis, or {"leaf": ..., "transpose": true}'
"""Forms that a line of a map may have."""


class Line(NamedTuple):
    """One line of a map, judged."""

    a: str
    b: str
    """Text of the map's entry; empty for a leaf that the map leaves out."""
    verdict: Verdict
    said: str
    """What would be right instead."""

    @property
    def right(self) -> bool:
        """Whether the line may stay as it is."""
        return self.verdict == "right"


class _Target(NamedTuple):
    leaves: tuple[str, ...]
    transpose: bool | None
    """Whether the entry is transposed; None: as is usual, see `audit`."""

    @property
    def text(self) -> str:
        return " + ".join(self.leaves)


def read_map(path: Path) -> dict[str, Any]:
    """Read a map from a JSON file.

    Raises:
        MissingFileError: there is no such file.
        ConfigError: the file is not JSON, or not an object whose values are lines of a map.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give a JSON object of A's leaves and B's")
    try:
        found = parse_json(read_text(path))
    except ValueError as error:
        raise ConfigError(
            f"{path}: not valid JSON ({error}); give an object of A's leaves and B's"
        ) from None
    if not isinstance(found, dict) or not found:
        what = "an empty object" if found == {} else type(found).__name__
        raise ConfigError(f"{path}: {what} where an object of A's leaves and B's should be")
    for name, value in found.items():
        _target(name, value)
    return found


def audit(lines: Mapping[str, Any], matched: Matched) -> list[Line]:
    """Judge every line of a map, and name the leaves of A that it leaves out.

    Args:
        lines: for each leaf of A a leaf of B, several that are joined along the first axis, or an object
            with "leaf" and "transpose". A plain name means the same values with the usual transposition:
            as the shapes require; a square matrix is transposed if only one side calls it ``kernel``.

    Raises:
        ConfigError: a line has another form.
    """
    targets = {name: _target(name, value) for name, value in lines.items()}
    uses = Counter(leaf for target in targets.values() for leaf in set(target.leaves))
    judged = [_judge(name, target, targets, uses, matched) for name, target in targets.items()]
    missing = [name for name in matched.a if name not in targets and matched.of(name)]
    return judged + [Line(name, "", "missing", _is(name, matched)) for name in missing]


def _target(name: str, value: Any) -> _Target:
    transpose = None
    leaf = value
    if isinstance(value, dict) and "leaf" in value and not value.keys() - {"leaf", "transpose"}:
        leaf, transpose = value["leaf"], value.get("transpose")
    leaves = (leaf,) if isinstance(leaf, str) else leaf
    is_list = isinstance(leaves, list | tuple) and leaves and all(isinstance(x, str) for x in leaves)
    if not is_list or not (transpose is None or isinstance(transpose, bool)):
        raise ConfigError(f"the map's entry for {name} is {json.dumps(value)[:80]}; expected {FORM}")
    return _Target(tuple(leaves), transpose)


def _judge(
    name: str, target: _Target, targets: Mapping[str, _Target], uses: Counter[str], matched: Matched
) -> Line:
    def line(verdict: Verdict, said: str) -> Line:
        return Line(name, target.text, verdict, said)

    if name not in matched.a:
        return line("unknown", f"A has no {name}{_close(name, matched.a)}")
    if lost := next((leaf for leaf in target.leaves if leaf not in matched.b), None):
        return line("unknown", f"B has no {lost}{_close(lost, matched.b)}; {_is(name, matched)}")
    links = matched.of(name)
    found = tuple(link.b for link in links)
    if target.leaves != found:
        if found and sorted(found) == sorted(target.leaves):
            return line("wrong order", f"the parts are {' + '.join(found)}")
        return line(*_wrong_leaf(name, target, targets, uses, matched))
    for link in links:
        if said := _moved(link, target, matched):
            return line(*said)
    return line("right", "")


def _wrong_leaf(
    name: str, target: _Target, targets: Mapping[str, _Target], uses: Counter[str], matched: Matched
) -> tuple[Verdict, str]:
    truth = _is(name, matched)
    if not matched.of(name):
        possible = set(target.leaves) <= set(matched.ambiguous.get(name, ()))
        if possible and all(uses[leaf] == 1 for leaf in target.leaves):
            return "right", "the values agree, though others have them too"
        if twice := next((leaf for leaf in target.leaves if uses[leaf] > 1), None):
            others = [other for other, each in targets.items() if twice in each.leaves and other != name]
            return "used twice", f"{twice} is also given to {', '.join(others)}; {truth}"
        return "not shown", truth
    found = {link.b for link in matched.of(name)}
    swapped = [
        other
        for other, each in targets.items()
        if other != name
        and found & set(each.leaves)
        and set(target.leaves) & {link.b for link in matched.of(other)}
    ]
    owners = [link.a for link in matched.links if link.b in target.leaves and link.a != name]
    said = f"; swapped with {swapped[0]}" if swapped else ""
    if not swapped and owners:
        said = f"; {target.text} is {owners[0]}"
    twice = not swapped and any(uses[leaf] > 1 for leaf in target.leaves)
    return "used twice" if twice else "wrong leaf", truth + said


def _moved(link: Link, target: _Target, matched: Matched) -> tuple[Verdict, str] | None:
    """Return what is wrong with the arrangement of numbers that a line states; None if nothing is."""
    arrangement = link.arrangement
    if not arrangement.known:
        return "wrong order", "the numbers are the same, in an order that was not recognised"
    if arrangement.orders:
        return "wrong order", f"{link.b}: {'; '.join(order.words for order in arrangement.orders)}"
    ours = link.part_a.shape(matched.a[link.a]) if link.part_a else matched.a[link.a]
    theirs = link.part_b.shape(matched.b[link.b]) if link.part_b else matched.b[link.b]
    square = ours == theirs and len([length for length in ours if length > 1]) == 2
    kernels = sum(leaf.endswith("kernel") for leaf in (link.a, link.b))
    usual = kernels == 1 if square else arrangement.permuted
    said = usual if target.transpose is None else target.transpose
    if said == arrangement.permuted:
        return None
    if arrangement.permuted:
        return "transposition", f'{link.b} is transposed; give {{"leaf": ..., "transpose": true}}'
    return "transposition", f"{link.b} is not transposed"


def _is(name: str, matched: Matched) -> str:
    links = matched.of(name)
    if links:
        return f"{name} is {' + '.join(dict.fromkeys(link.b for link in links))}"
    if candidates := matched.ambiguous.get(name):
        return f"{name} may be {', '.join(candidates)}"
    return f"no leaf of B has the values of {name}"


def _close(name: str, names: Mapping[str, Any]) -> str:
    found = difflib.get_close_matches(name, list(names), n=1)
    return f"; perhaps {found[0]}" if found else ""
