"""Both sides of a comparison, reduced to the elements that decide it, and bounds on their rounding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from parity.measure.error import joint_error
from parity.verifier.recordings.steps.segments import StepSegment

KEPT = 512
"""Most elements of a leaf that are compared: half evenly spread, half where results differ most."""
NOISE = 32
"""Roundings of the root mean square of all gradients; a smaller gradient is only rounding, like that of
a key's bias, which softmax ignores."""
DISAGREE = 1e-2
"""Relative difference of gradients between programs that agree elsewhere; beyond it both are only
rounding, too. The least that counts, of `NOISE` roundings, is off by one of them, which is three
hundredths; a third of that leaves out what is off by more than its rounding."""

MAPPINGS = (
    "result",
    "parameters",
    "gradients",
    "clipped",
    "moments_before",
    "moments",
    "gradients_before",
    "gradients_single",
    "clipped_before",
)


@dataclass(frozen=True)
class RecordedSide:
    """One program, in the form that hypotheses are tried on."""

    segment: StepSegment
    """Segment with every leaf flattened and reduced to the deciding elements."""
    eps: float
    """Epsilon of the type that its values are in."""
    norms: Mapping[str, float]
    """Norm of every whole gradient, by leaf."""
    norms_before: Mapping[str, float] = field(default_factory=dict)
    """The same of the gradients of the step before."""
    norms_single: Mapping[str, float] = field(default_factory=dict)
    """The same of `StepSegment.gradients_single`."""
    following: RecordedSide | None = None
    """Same elements of `StepSegment.following`."""

    @property
    def gradients(self) -> list[tuple[dict[str, str], Mapping[str, np.ndarray], Mapping[str, float]]]:
        """The gradients that the optimiser may have been given, with their norms: those of this step,
        and those of the step before."""
        own = {"mean of micro-batches": "in its own type"}
        this, before = (
            own | {"step of the gradient": text} for text in ("this step", "the step before")
        )
        options = [(this, self.segment.gradients, self.norms)]
        if self.segment.gradients_single:
            single = this | {"mean of micro-batches": "in float32"}
            options.append((single, self.segment.gradients_single, self.norms_single))
        if self.segment.gradients_before:
            options.append((before, self.segment.gradients_before, self.norms_before))
        return options


def leaf_of(key: str, stage: str) -> str:
    """Return the parameter that an entry of a result belongs to: ``NAME exp_avg`` to ``NAME``."""
    return key.rpartition(" ")[0] if stage == "moments" else key


def make_sides(a: StepSegment, b: StepSegment) -> tuple[RecordedSide, RecordedSide]:
    """Reduce both sides to the same elements of the leaves that both have in the same shape.

    Elements whose gradient is zero in theory are left out. They hold rounding noise, which Adam makes as
    large as any other update: they would dominate the difference and tell nothing about its cause.
    """
    eps = tuple(_eps(_values(each)) for each in (a, b))
    norms = (_norms(a.gradients), _norms(b.gradients))
    if a.stage in ("loss", "learning rate"):
        return RecordedSide(a, eps[0], norms[0]), RecordedSide(b, eps[1], norms[1])
    chosen = _chosen(a, b, max(eps), norms)
    return _side(a, eps[0], norms[0], chosen), _side(b, eps[1], norms[1], chosen)


def _norms(gradients: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {name: float(np.linalg.norm(g)) for name, g in gradients.items()}


def _side(
    segment: StepSegment, eps: float, norms: dict[str, float], chosen: Mapping[str, np.ndarray]
) -> RecordedSide:
    after = segment.following
    following = None if after is None else _side(after, eps, _norms(after.gradients), chosen)
    before = _norms(segment.gradients_before) if segment.stage in ("clipped", "moments") else {}
    single = _norms(segment.gradients_single)
    reduced = _reduced(segment, chosen)
    reduced = _at_rest(reduced) if segment.stage == "updated" else reduced
    return RecordedSide(reduced, eps, norms, before, single, following)


def _at_rest(segment: StepSegment) -> StepSegment:
    """Return a stage in which a frozen parameter, without gradient or moments, has zeros."""

    def filled(values: Mapping[str, np.ndarray], ports: Iterable[str]) -> dict[str, np.ndarray]:
        zeros = {f"{k}{port}": np.zeros_like(v) for k, v in segment.result.items() for port in ports}
        return {**zeros, **values}

    changed = {}
    for each in ("gradients", "clipped", "moments", "moments_before"):
        values = getattr(segment, each)
        ports = {f" {key.rpartition(' ')[2]}" for key in values} if "moments" in each else {""}
        changed[each] = filled(values, ports if values else ())
    return replace(segment, **changed)


def _values(segment: StepSegment) -> Iterable[np.ndarray]:
    yield from (segment.result[name] for name in segment.result)
    if segment.stage == "loss" and segment.logits is not None:
        yield segment.logits


def _eps(arrays: Iterable[np.ndarray]) -> float:
    """Return the epsilon of the narrowest type, float32 or float64, that holds all values exactly."""
    for array in arrays:
        with np.errstate(over="ignore"):
            if (array.astype(np.float32).astype(np.float64) != array).any():
                return float(np.finfo(np.float64).eps)
    return float(np.finfo(np.float32).eps)


def _chosen(
    a: StepSegment, b: StepSegment, eps: float, norms: tuple[dict[str, float], ...]
) -> dict[str, np.ndarray]:
    """Return the indices of the deciding elements, by leaf."""
    floor = 0.0
    if a.stage != "gradients":
        counts = sum(a.gradients[name].size for name in norms[0])
        floor = NOISE * eps * float(np.sqrt(sum(n**2 for n in norms[0].values()) / max(counts, 1)))
    disagree = DISAGREE if _agree(a.gradients, b.gradients) else 2.0  # no two are farther apart
    leaves: dict[str, list[str]] = {}
    for key in a.result:
        if key in b.result and a.result[key].shape == b.result[key].shape:
            leaves.setdefault(leaf_of(key, a.stage), []).append(key)
    chosen = {}
    for leaf, keys in leaves.items():
        if leaf not in a.parameters and a.stage == "updated":
            continue
        apart = sum(np.abs(a.result[key] - b.result[key]).reshape(-1) for key in keys)
        size = np.size(apart)
        trusted = np.ones(size, dtype=bool)
        if a.stage != "gradients" and leaf in a.gradients:
            left = a.gradients[leaf].reshape(-1)
            right = b.gradients[leaf].reshape(-1) if leaf in b.gradients else left
            larger = np.maximum(np.abs(left), np.abs(right))
            trusted = (larger == 0) | (larger >= floor) & (np.abs(left - right) <= disagree * larger)
        where = np.flatnonzero(trusted)
        if where.size > KEPT:
            even = where[np.arange(KEPT // 2) * where.size // (KEPT // 2)]
            largest = where[np.argpartition(np.asarray(apart)[where], -KEPT // 2)[-KEPT // 2 :]]
            where = np.union1d(even, largest)
        if where.size:
            chosen[leaf] = where
    return chosen


def _agree(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    """Return whether gradients agree as a whole; those of two different losses do not."""
    both = [name for name in a if name in b and a[name].shape == b[name].shape]
    return joint_error((b[name], a[name]) for name in both) <= DISAGREE


def _reduced(segment: StepSegment, chosen: Mapping[str, np.ndarray]) -> StepSegment:
    def reduce(mapping: Mapping[str, np.ndarray], moments: bool) -> dict[str, np.ndarray]:
        parts = {}
        for key in mapping:
            where = chosen.get(leaf_of(key, "moments" if moments else ""))
            if where is not None:
                values = mapping[key].reshape(-1)
                if where[-1] < values.size:
                    parts[key] = values[where]
        return parts

    kinds = {
        name: "moments" in name or (name == "result" and segment.stage == "moments") for name in MAPPINGS
    }
    return replace(segment, **{name: reduce(getattr(segment, name), kinds[name]) for name in MAPPINGS})


SHARES = {
    "loss": 64,
    "gradients": 2000,
    "clipped": 64,
    "learning rate": 16,
    "moments": 400,
    "updated": 2000,
}
"""Number of roundings that is allowed of what a stage changes. That of the update is large because
1 - beta2^t is small, and optax computes it in the type of the parameters."""
FLOOR = 1e-3
"""Least bound, as a share of one rounding of the root mean square: smaller elements count as zero. A
thousand of them, off by as much, are off by less than one rounding of the whole."""
TINY = 1e-150
"""Stand-in for zero in divisors and squares: its square, 1e-300, is a normal number of float64."""


def noise(side: RecordedSide) -> dict[str, np.ndarray]:
    """Return bounds on the rounding of every element of the result, by entry."""
    segment, eps = side.segment, side.eps
    share = SHARES[segment.stage] * eps
    kinds: dict[str, list[str]] = {}
    for key in segment.result:
        kinds.setdefault(key.rpartition(" ")[2] if segment.stage == "moments" else "", []).append(key)
    bounds = {}
    for keys in kinds.values():
        squares = [np.mean(segment.result[key] ** 2) for key in keys if segment.result[key].size]
        rms = float(np.sqrt(np.mean(squares))) if squares else 0.0
        for key in keys:
            if segment.stage == "gradients":  # sums in another order, rounded like their largest terms
                own = np.sqrt(np.mean(segment.result[key] ** 2))
                bounds[key] = np.full_like(segment.result[key], share * (rms + own) + TINY)
            else:
                bounds[key] = _bound(side, key, share) + (FLOOR * eps * rms or TINY)
    return bounds


def _bound(side: RecordedSide, key: str, share: float) -> np.ndarray:
    segment = side.segment
    result = segment.result[key]
    if segment.stage == "updated":
        start = segment.parameters[key]
        return 2 * side.eps * np.abs(start) + share * np.abs(start - result)
    if segment.stage == "moments":
        start = segment.moments_before.get(key, np.zeros_like(result))
        return 4 * side.eps * (np.abs(start) + np.abs(result)) + share * np.abs(result - start)
    if segment.stage == "loss" and segment.logits is not None:
        return share * (np.abs(result) + np.abs(segment.logits).max(initial=0.0))
    return share * np.abs(result)
