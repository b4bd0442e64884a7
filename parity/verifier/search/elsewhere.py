"""A parameter that holds another one, repaired in every layer at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import layout_changes
from parity.verifier.search.meeting import Index
from parity.verifier.search.round import Round
from parity.verifier.search.trials import Repair, Trial

_LEAVES = ("parameter", "input")


def same_elsewhere(now: Round, repair: Repair) -> list[Repair]:
    """Return the repairs of the parameters that hold, in other layers, what the one repaired holds in
    its own; B is patched with all of them. None if that leaves more of B apart from A."""
    leaf, wanted = now.b.maker(repair.trial.y), now.a.maker(repair.trial.x)
    if leaf.kind not in _LEAVES or wanted.kind not in _LEAVES or len(now.readers[leaf.index]) > 1:
        return []
    trials = {trial.y: trial for held in _held(now, leaf) for trial in _trials(now, leaf, held, wanted)}
    if not trials:
        return []
    fed = repair.fed.fed({y: trial.value for y, trial in trials.items()}, {})
    one, all_of_them = (
        Round(now.a, each, now.index, now.outputs, unequal) if unequal else None
        for each, unequal in ((p, now.outputs.unequal(now.a, p)) for p in (repair.fed, fed))
    )
    if all_of_them is not None and (one is None or len(all_of_them.unmet_b) > len(one.unmet_b)):
        return []
    return [
        replace(repair, trial=each, own=np.asarray(now.b.cache[y]), fed=fed, size=0, order=False)
        for y, each in sorted(trials.items())
    ]


def _held(now: Round, leaf: Operation) -> list[Operation]:
    return [each for each in now.index.meets(leaf) if each.kind in _LEAVES and each.size == leaf.size]


def _trials(now: Round, leaf: Operation, held: Operation, wanted: Operation) -> Iterator[Trial]:
    """Yield the trials of B's leaves whose names differ from one's in a number, and that hold A's whose
    name differs from the held one's by as much."""
    of_a, of_b = ({op.label: op for op in p.operations if op.kind in _LEAVES} for p in (now.a, now.b))
    index = Index(now.a, {held.index, wanted.index, *(op.index for op in of_a.values())})
    for label, other in of_b.items():
        step = _step(leaf.label, label)
        if not step or len(now.readers[other.index]) > 1 or other.mark is None:
            continue
        met = {each.index for each in index.find(other.mark)}
        pairs = [*_moved(held.label, step)], [*_moved(wanted.label, step)]
        # the same number of both, as of the block and not of the layer in it
        for there, belongs in (
            zip(*pairs, strict=True) if len({*map(len, pairs)}) == 1 else product(*pairs)
        ):
            x, own = of_a.get(belongs), of_a.get(there)
            if x is None or own is None or own.index not in met or x.index in met:
                continue
            value = in_its_layout(now.a, now.b, own, x, other)
            if value is not None:
                yield Trial(x.index, other.index, value, ())


def _step(label: str, other: str) -> int:
    """Return by how much one number of two names differs; 0 where more differs, or none."""
    parts, others = (re.split(r"(\d+)", each) for each in (label, other))
    if len(parts) != len(others):
        return 0
    apart = [(a, b) for a, b in zip(parts, others, strict=True) if a != b]
    return int(apart[0][1]) - int(apart[0][0]) if len(apart) == 1 and apart[0][0].isdigit() else 0


def _moved(label: str, step: int) -> Iterator[str]:
    """Yield the names in which one number is larger by a step."""
    for each in re.finditer(r"\d+", label):
        yield f"{label[: each.start()]}{int(each[0]) + step}{label[each.end() :]}"


def in_its_layout(
    a: Program, b: Program, held: Operation, wanted: Operation, op: Operation
) -> np.ndarray | None:
    """Return what belongs into a parameter of B's, laid out as what it holds is."""
    if wanted.shape != held.shape:
        return None
    for change in layout_changes(held.shape, op.shape):
        if np.array_equal(change.of(a.cache[held.index]), b.cache[op.index]):
            return np.ascontiguousarray(change.of(a.cache[wanted.index]))
    return None
