"""Whether a comparison finds what was changed: caught, on its line, under a name that can be true."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from evidence.mutants.changes import Mutant
from parity.verifier.locate import compare_programs
from parity.verifier.programs.program import Program
from parity.verifier.programs.sides import record
from parity.verifier.report.comparison import Comparison

ROUNDING = 1e-13
"""Relative change of the outputs in float64 up to which a mutant is none."""
SMALL = 1e-9
"""Up to which `EQUAL` is said by definition."""

_SUMS = {"operation", "sign", "term left out", "one term too many", "residual left out", "left out",
         "one residual too many", "bias left out"}  # fmt: skip
_FACTORS = {"operation", "factor", "number", "numbers", "scale left out", "one scale too many",
            "factor left out", "one factor too many", "epsilon", "arguments", "activation",
            "gain left out", "n - 1 for n"}  # fmt: skip
_ORDERS = {"transposed", "reversed", "shifted", "permuted", "halves exchanged", "axis", "slice", "index",
           "axis split the other way round", "reshaped without moving axes", "arguments"}  # fmt: skip
_STEPS = {"left out", "one step too many", "norm left out", "one norm too many", "mask", "causal mask",
          "activation", "term left out of a part"}  # fmt: skip
_READS = {"other value read", "term left out of a part"}
_ROWS = {"reduction"}
_WINDOWS = {"padding", "stride", "dilation", "padding and stride", "padding and dilation"}
KINDS = {
    "operator": _SUMS | _FACTORS | {"mask", "causal mask", "table"},  # of indices into a table
    "number or axis": _ORDERS | _FACTORS | _SUMS | _STEPS | _READS | _ROWS | _WINDOWS,
    "flag": _STEPS | _ORDERS | _FACTORS | _SUMS | _WINDOWS,
    "sign": _SUMS | _ORDERS,  # of an amount by which rows are rolled
    "slice": _ORDERS | _READS | _ROWS,
    "function": _FACTORS | _STEPS | _ROWS | {"axis"},
    "arguments exchanged": _ORDERS | _SUMS | _READS | _WINDOWS
    | {"operation", "operands exchanged", "activation", "mask"},
    "term or factor left out": _SUMS | _FACTORS | _STEPS | _READS,
    "call left out": _STEPS | _FACTORS | _ORDERS | _READS,
    "keyword left out": _STEPS | _ORDERS | _FACTORS | _SUMS | _ROWS | _WINDOWS,
    "what a module holds": _FACTORS | _ORDERS | _STEPS | _READS | _WINDOWS,
}  # fmt: skip
"""The kinds of changes, and what each may rightly be called; any other name is printed as doubtful."""


@dataclass(frozen=True)
class Outcome:
    """The fate of one mutant."""

    model: str
    kind: str
    place: str
    what: str
    key: str
    state: str
    """tried; or no mutant: unable (it cannot run), unchanged, small (its outputs change by less than
    `SMALL`), type (something is computed in another number type, which is not compared)."""
    change: float = 0.0
    """Distance of the outputs, relative in the norm."""
    caught: bool = False
    placed: bool = False
    first: bool = False
    """Whether the first printed line places it."""
    named: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    """Lines, then what is printed of the first place."""
    seconds: float = 0.0
    engine: str = ""
    """Version of the search that judged it."""

    @property
    def is_missed(self) -> bool:
        """Whether it is listed: not caught, not placed, or named doubtfully."""
        return self.state == "tried" and not (self.caught and self.placed and not self.doubtful)


def outcome(name: str, model: Any, inputs: Any, original: Program, mutant: Mutant) -> Outcome:
    """Run a mutant and compare it."""
    import time

    about = (name, mutant.kind, mutant.place, mutant.what, mutant.key)
    started = time.process_time()
    try:
        changed = mutant.apply(model)
        change = distance(outputs_of(model, inputs), outputs_of(changed, inputs))
        if change <= ROUNDING:
            return Outcome(*about, "unchanged", change)
        program = record((changed, inputs), "B")
    except Exception:  # a mutant that cannot run is no mutant
        return Outcome(*about, "unable")
    comparison = compare_programs(original, program)
    if comparison.verdict == "EQUAL" and (change <= SMALL or "dtype=torch.float" in mutant.what):
        return Outcome(*about, "small" if change <= SMALL else "type", change)
    seconds = time.process_time() - started
    return judged(Outcome(*about, "tried", change, seconds=seconds), comparison, mutant)


def judged(tried: Outcome, comparison: Comparison, mutant: Mutant) -> Outcome:
    """The outcome, completed by the comparison."""
    from dataclasses import replace

    lines = [line for place in comparison.places for line in place.b.lines]
    if mutant.is_omission:  # what is missing stands on A's line
        lines += [line for place in comparison.places for line in place.a.lines]
    marks = [(line.file, line.line) in mutant.lines for line in lines]
    named = {place.cause for place in comparison.places} - {""}
    text = comparison.to_text().partition("\n1. ")[2].partition("\n2. ")[0]
    return replace(
        tried,
        caught=comparison.verdict == "DIFFERENT",
        placed=any(marks),
        first=marks[:1] == [True],
        named=tuple(sorted(named)),
        doubtful=tuple(sorted(named - KINDS[mutant.kind])),
        said=(*dict.fromkeys(map(str, lines)), text),
    )


def outputs_of(model: Any, inputs: Any) -> list[np.ndarray]:
    """The numbers that a model puts out, in float64, without the verifier."""
    if isinstance(model, torch.nn.Module):
        double = copy.deepcopy(model).double()
        with torch.no_grad():
            output = double(**{name: _double(each) for name, each in inputs.items()})
        return [each.numpy() for each in _tensors(output)]
    import jax

    with jax.enable_x64(True):
        return [np.asarray(each) for each in jax.tree.leaves(model(*inputs))]


def _double(each: Any) -> Any:
    return each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each


def _tensors(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, Mapping):
        return [leaf for each in tree.values() for leaf in _tensors(each)]
    if isinstance(tree, (tuple, list)):
        return [leaf for each in tree for leaf in _tensors(each)]
    return []


def distance(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """The largest relative distance of two lists of outputs, for which an axis of length one is none;
    infinite if they cannot be compared."""
    a, b = ([each.squeeze() for each in side] for side in (a, b))
    if [each.shape for each in a] != [each.shape for each in b]:
        return np.inf
    apart = [np.linalg.norm(x - y) / max(float(np.linalg.norm(x)), 1e-300)
             for x, y in zip(a, b, strict=True) if x.size]  # fmt: skip
    return float(np.nan_to_num(max(apart, default=0.0), nan=np.inf))
