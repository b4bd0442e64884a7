"""The judge: does each parameter of a model hold a file's numbers?

Names are the first guess and numbers the proof. Where most names of the model are the file's, a
parameter must hold the numbers of the tensor of its name. Where they are not, the file is read as a
Vision Transformer, if it is one, under this project's names; what is left is found by its values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from parity.porting.formats.base import Stored
from parity.verifier.loaded.by_value import ALIKE, SUMS, Copies, Found, find_by_value
from parity.verifier.loaded.models import Held, Leaf, leaves_of, read_model
from parity.verifier.loaded.names import ADAPTER, pair_names, tokens
from parity.verifier.loaded.numbers import AS_INITIALISED, CUT, LONGER, Related, looks_drawn, relate
from parity.verifier.loaded.report import OTHERS, Finding, Report
from parity.verifier.loaded.suspect import beside_what_is_drawn, turned_otherwise
from parity.verifier.loaded.unused import part_unused
from vit_config import ConfigError, WeightsError
from vit_config.errors import USER_ERRORS
from vit_config.waiting import Stage, nobody

ENOUGH = 0.5
"""Share of the names, of the side that has fewer, that both sides of one dialect have."""
ASKED = 12
"""Number of pairs that are compared where names leave a choice."""


class _View(NamedTuple):
    """One way to read the file, with the pairs of names."""

    tensors: Mapping[str, Stored]
    pairs: dict[str, str]
    note: str = ""

    def same_dialect(self, leaves: Sequence[Leaf]) -> bool:
        """Return whether most names of the model are the file's, or most of the file's the model's."""
        return len(self.pairs) >= ENOUGH * min(len(leaves), len(self.tensors))


def judge(
    model: Any,
    file: Any,
    *,
    apart_from: Sequence[str] = (),
    on_stage: Stage = nobody,
) -> Report:
    """Find whether a model holds a file's numbers.

    Args:
        model: see `parity.verifier.loaded.models.read_model`.
        file: whatever `parity inspect` opens, or arrays by name.
        apart_from: patterns of names, as a shell has them, of parameters that are not the file's, and of
            tensors of the file that the model is not to have.
        on_stage: called with each stage as it begins.

    Raises:
        ConfigError: a pattern fits no name.
        InputError, MissingFileError, WeightsError: a side cannot be read.
    """
    on_stage("reading the model", 0, 0)
    held = read_model(model)
    tensors = dict(_read_file(file))
    title = Path(file).name if isinstance(file, str | Path) else "the state dict"
    asked, apart, tensors = _without(held.leaves, tensors, apart_from)
    if not asked:
        raise ConfigError(
            f"{', '.join(apart_from)}: every parameter of the model; leave some to ask for"
        )
    asked, adapter = _of_adapter(asked, tensors)
    on_stage("comparing what has the same name", 0, 0)
    view = _view(file, asked, tensors)
    return _judged(held, asked, view, title, (*apart, *adapter), on_stage)


def _read_file(file: Any) -> Mapping[str, Stored]:
    if isinstance(file, Mapping):
        tensors = {each.name: each.stored for each in leaves_of(file) if each.stored is not None}
    else:
        from parity.porting.opening.opened import open_checkpoint

        tensors = open_checkpoint(file).container.tensors
    if not tensors:
        raise WeightsError(f"{'the state dict' if isinstance(file, Mapping) else file}: has no tensors")
    return tensors


def _without(
    leaves: Sequence[Leaf], tensors: Mapping[str, Stored], patterns: Sequence[str]
) -> tuple[list[Leaf], list[str], dict[str, Stored]]:
    """Leave out what the user says to be of elsewhere."""

    def fits(name: str, pattern: str) -> bool:
        return fnmatchcase(name, pattern)

    for pattern in patterns:
        if not any(fits(name, pattern) for name in (*tensors, *(each.name for each in leaves))):
            raise ConfigError(
                f"{pattern} fits no name of the model, such as {leaves[0].name}, and none of the file,"
                f" such as {next(iter(tensors))}; leave it out"
            )
    apart = [each.name for each in leaves if any(fits(each.name, pattern) for pattern in patterns)]
    kept = {n: each for n, each in tensors.items() if not any(fits(n, pattern) for pattern in patterns)}
    return [each for each in leaves if each.name not in apart], apart, kept


def _of_adapter(leaves: list[Leaf], tensors: Mapping[str, Stored]) -> tuple[list[Leaf], list[str]]:
    """Of a model with an adapter, ask for what the file is of: the base, the adapter, or both."""
    ours = [each for each in leaves if ADAPTER.search(each.name)]
    theirs = [name for name in tensors if ".lora_" in name]
    if not ours or not tensors:
        return leaves, []
    base = [each for each in leaves if not ADAPTER.search(each.name)]
    if not theirs:
        return base, [each.name for each in ours]
    whole = {tokens(each.name) for each in base} & {tokens(name) for name in tensors}
    if len(whole) > ENOUGH * len(base):
        return leaves, []
    return ours, [each.name for each in base]


def _view(file: Any, leaves: Sequence[Leaf], tensors: Mapping[str, Stored]) -> _View:
    """Choose how the file is read: by its own names or, where these are not the model's, by ours."""
    own = _View(tensors, _pairs(leaves, tensors))
    if own.same_dialect(leaves) or not isinstance(file, str | Path):
        return own
    from parity.porting.reading.checkpoint import read_checkpoint

    try:
        read = read_checkpoint(file)
    except USER_ERRORS:  # no Vision Transformer, or it asks: values decide
        return own
    ours = _View(read.arrays, _pairs(leaves, read.arrays), f"FILE is read as {read.dialect.title}")
    return ours if ours.same_dialect(leaves) else own


def _pairs(leaves: Sequence[Leaf], tensors: Mapping[str, Stored]) -> dict[str, str]:
    by_name = {each.name: each for each in leaves}
    return pair_names(
        {each.name: each.also for each in leaves}, tensors, partial(_agreeing, by_name, tensors)
    )


def _agreeing(
    leaves: Mapping[str, Leaf], tensors: Mapping[str, Stored], pairs: Mapping[str, str]
) -> float:
    """Count, of a few pairs, those that hold the same numbers."""
    telling = [
        (stored, tensors[b])
        for a, b in pairs.items()
        if (stored := leaves[a].stored) is not None and stored.shape == tensors[b].shape
    ]
    some = sorted(telling, key=lambda each: -len(each[0].shape))[:ASKED]
    return sum(relate(one.load(), other.load()).held for one, other in some)


def _judged(
    held: Held, asked: list[Leaf], view: _View, title: str, apart: Sequence[str], on_stage: Stage
) -> Report:
    tensors, pairs = view.tensors, view.pairs
    same_dialect = view.same_dialect(asked)
    findings: dict[str, Finding] = {}
    related: dict[str, Related] = {}
    left: list[Leaf] = []
    sizes = {each.name: each.stored.nbytes for each in asked if each.stored}
    for leaf in asked:
        partner = pairs.get(leaf.name)
        if leaf.stored is None:
            findings[leaf.name] = _finding(leaf, NO_NUMBERS, partner)
            continue
        if partner is None:
            left.append(leaf)
            continue
        result = relate(leaf.stored.load(), tensors[partner].load())
        related[leaf.name] = result
        if result.held:
            findings[leaf.name] = _finding(leaf, result, partner)
        else:
            left.append(leaf)
    taken = {name for each in findings.values() if each.held for name in each.of}
    on_stage("finding the others by their values", sum(sizes.get(each.name, 0) for each in left), 0)
    copies = Copies(left, tensors)
    # one whose tensor has its shape is looked for elsewhere only whole, or in a sum, as of a class token
    named = {each.name for each in left if same_dialect and _of_one_shape(each, pairs, tensors)}
    alone = [each for each in left if each.name not in named or _is_row(each)]
    free = {name: each for name, each in tensors.items() if name not in taken}
    found, taken_by_value, cut = find_by_value(alone, free, same_dialect=same_dialect)
    for leaf in left:
        value = found.get(leaf.name)
        if leaf.name in named and value is not None and value.related.state not in SUMS:
            value = None
        elsewhere = value is not None or copies.of(leaf)
        partner = None if elsewhere and not same_dialect else pairs.get(leaf.name)
        result = related.get(leaf.name)
        findings[leaf.name] = _of_left(leaf, partner, result, value, copies.of(leaf))
    taken |= {n for f in findings.values() if f.held for n in f.of} | taken_by_value
    taken |= {name for leaf in left for name in copies.of(leaf)}
    findings |= turned_otherwise(findings, tensors)
    findings |= beside_what_is_drawn(findings, {each.name: each.stored for each in left})
    ordered = tuple(findings[each.name] for each in asked if not _is_made(each, findings[each.name]))
    wanting = {name for each in ordered if not each.held for name in each.of}
    cut -= wanting
    also = [tokens(name) for each in asked for name in each.also]
    vague = {name for each in ordered if each.state == ALIKE for name in each.of}
    missed, outside = part_unused(tensors, taken, wanting, vague, held.unsaved, also)
    notes = [view.note.replace("FILE", title)] if view.note else []
    notes += _on_prefix(ordered, pairs, title)
    return Report(
        title,
        tuple(_named(each, title) for each in ordered),
        (*(name for name in cut if name not in missed), *missed),
        outside,
        tuple(apart),
        tuple(notes),
        tuple(tensors),
    )


def _of_one_shape(leaf: Leaf, pairs: Mapping[str, str], tensors: Mapping[str, Stored]) -> bool:
    """Return whether the tensor of a parameter's name has its shape."""
    partner = pairs.get(leaf.name)
    return (
        partner is not None and leaf.stored is not None and tensors[partner].shape == leaf.stored.shape
    )


def _is_row(leaf: Leaf) -> bool:
    """Return whether a parameter is one row, such as a class token."""
    shape = () if leaf.stored is None else leaf.stored.shape
    return len(shape) > 1 and math.prod(shape) == shape[-1]


def _finding(leaf: Leaf, related: Related, *of: str | None) -> Finding:
    return Finding(
        leaf.name, leaf.kind, *related, of=tuple(each for each in of if each is not None), also=leaf.also
    )


NO_NUMBERS = Related(False, "no numbers: on torch's meta device, lazy, quantised, or abstract in JAX")


def _of_left(
    leaf: Leaf,
    partner: str | None,
    related: Related | None,
    found: Found | None,
    copies: Sequence[str],
) -> Finding:
    """Say what a parameter holds that does not hold the tensor of its name.

    Args:
        partner: the tensor of its name; None where names do not tell.
        related: what it is to that tensor.
        found: what its values tell.
        copies: whole tensors that hold its numbers.
    """
    if partner and related and found and not found.related.held and related.state in (CUT, LONGER):
        return _finding(leaf, related, partner)
    if found is not None and not (partner and copies):
        return _finding(leaf, found.related, *found.of)
    if copies and partner is None:
        return _finding(leaf, Related(True, "a copy of another"), copies[0])
    if copies and partner not in copies:
        return _finding(leaf, Related(False, OTHERS, copies[0]), partner)
    if partner is not None and related is not None:
        return _finding(leaf, related, partner)
    assert leaf.stored is not None
    drawn = looks_drawn(leaf.stored.load())
    words = f"{AS_INITIALISED}: {drawn}" if drawn else ""
    return _finding(leaf, Related(False, "not in FILE", words))


def _named(finding: Finding, title: str) -> Finding:
    """Return a finding with the file's name in its words."""
    state, words = (each.replace("FILE", title) for each in (finding.state, finding.words))
    return replace(finding, state=state, words=words)


def _is_made(leaf: Leaf, finding: Finding) -> bool:
    """Return whether a buffer that the file lacks is one that the constructor makes: whole numbers."""
    made = leaf.stored is not None and leaf.stored.dtype.kind in "iub"
    return made and leaf.kind == "buffer" and not finding.held and not finding.of


def _on_prefix(findings: Sequence[Finding], pairs: Mapping[str, str], title: str) -> list[str]:
    """Note the likely reason where nothing was loaded: the file's names have a prefix, or lack one."""
    wrong = [each.name for each in findings if not each.held and each.name in pairs]
    if 4 * len(wrong) < len(findings):  # biases of zeros and norms of ones may be equal all the same
        return []
    changes = Counter(
        (name.removesuffix(end), pairs[name].removesuffix(end))
        for name in wrong
        if (end := _common_end(name, pairs[name])) and name != pairs[name]
    )
    if not changes:
        return []
    (ours, theirs), count = changes.most_common(1)[0]
    if 2 * count < len(wrong):
        return []
    begin = [f"with {each!r}" if each else "without it" for each in (theirs, ours)]
    if not theirs:
        begin = [f"without {ours!r}", "with it"]
    return [
        f"{title}'s names begin {begin[0]}, the model's {begin[1]}: a loader that passes over unknown"
        " names takes none"
    ]


def _common_end(one: str, other: str) -> str:
    parts = one.split("."), other.split(".")
    count = 0
    while count < min(map(len, parts)) and parts[0][-1 - count] == parts[1][-1 - count]:
        count += 1
    return ".".join(parts[0][len(parts[0]) - count :]) if count else ""
