"""Tensor by tensor: the error, the envelope of rounding, and the first place that leaves it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from parity.diff.align import Alignment, Pair, layout_between
from parity.tolerance import epsilon
from parity.traces import Event, Site, Stage, Trace
from parity.traces.format import STAGES

FACTOR = 32.0
"""How many times the effect of one unit in the last place rounding may have. Measured: see
docs/verifying.md."""

NOISE = 1e-3
"""The share of its layer's gradients below which a gradient is compared on their scale."""

_NOISE_GRAINS = 1e3
"""Units in the last place of a leaf's largest gradient, below which an element of it is noise."""
_ASSUMED = 256.0
"""Units in the last place that rounding may make without a shadow: the largest of `parity.tolerance`."""

Mode = Literal["flowing", "fed"]


class Judged(NamedTuple):
    """How one pair of tensors fared."""

    a: Site
    b: Site
    error: float
    """||b - a|| / ||a||."""
    limit: float
    finite: bool
    """Whether both are."""

    @property
    def score(self) -> float:
        """The error over its limit; above 1 is a difference."""
        return 0.0 if self.error == 0.0 else self.error / self.limit

    @property
    def passed(self) -> bool:
        """Whether rounding explains the error."""
        return self.score <= 1.0


@dataclass(frozen=True)
class Divergence:
    """The first place, in the order in which things are computed, where two models differ."""

    mode: Mode
    stage: Stage
    where: str
    """The module of A whose own code it is, empty for the model itself; or the parameter."""
    where_b: str
    """The same in B."""
    what: str
    """What differs, and after what."""
    judged: Judged

    def __str__(self) -> str:
        name = self.where or "(model)"
        if self.where_b != self.where:
            name += f" = {self.where_b or '(model)'}"
        return f"{name}: {self.what}"


@dataclass(frozen=True)
class Comparison:
    """All pairs of one stage of one step, in one mode."""

    mode: Mode
    stage: Stage
    step: int
    judged: tuple[Judged, ...]
    """In the order in which they were computed."""
    divergences: tuple[Divergence, ...]
    """Every pair that differs, as the place that is to blame if everything before it is equal. Flowing,
    that holds of the first alone; fed, it holds of each, for errors are not passed on."""

    @property
    def divergence(self) -> Divergence | None:
        """The first place that differs."""
        return self.divergences[0] if self.divergences else None

    @property
    def passed(self) -> bool:
        """Whether nothing differs."""
        return not self.divergences

    @property
    def worst(self) -> Judged | None:
        """The pair nearest to, or farthest beyond, its limit."""
        return max(self.judged, key=lambda each: each.score, default=None)


@dataclass(frozen=True)
class Traces:
    """The recordings that a comparison needs."""

    a: Trace
    b: Trace
    shadow: Trace | None
    """A once more, one unit in the last place away; None judges by the type's epsilon alone."""
    mode: Mode


def compare(traces: Traces, alignment: Alignment, stage: Stage, step_a: int, step_b: int) -> Comparison:
    """Judge one stage of one step."""
    pairs = list(_pairs(traces, alignment, stage, step_a, step_b))
    scales = _scales(traces.a, pairs)
    judged = [_judge(traces, pair, scale) for pair, scale in zip(pairs, scales, strict=True)]
    called = {event.path for event in traces.a.of("forward", step_a)}
    divergences = tuple(
        _divergence(traces.mode, stage, judged, i, alignment, called)
        for i, each in enumerate(judged)
        if not each.passed
    )
    return Comparison(traces.mode, stage, step_a, tuple(judged), divergences)


def stages_of(trace: Trace, step: int) -> tuple[Stage, ...]:
    """The stages that a trace has of a step, in order."""
    found = {event.stage for event in trace.events if event.step == step}
    return tuple(stage for stage in STAGES if stage in found)


def _pairs(
    traces: Traces, alignment: Alignment, stage: Stage, step_a: int, step_b: int
) -> Iterator[Pair]:
    a, b = traces.a, traces.b
    if stage in ("forward", "backward"):
        found = []
        for pair in alignment.pairs:
            mine = Site(step_a, stage, *pair.a.site[2:])
            theirs = Site(step_b, stage, *pair.b.site[2:])
            if mine in a and theirs in b:
                found.append(Pair(a[mine], b[theirs], pair.axes))
        yield from found if stage == "forward" else reversed(found)
        return
    if stage in ("batch", "loss"):  # called as each program calls them: paired as they come
        for mine, theirs in zip(a.of(stage, step_a), b.of(stage, step_b), strict=False):
            axes = layout_between(mine.shape, theirs.shape)
            if axes is not None:
                yield Pair(mine, theirs, None if axes == "same" else axes)
        return
    partners = _named(b, stage, step_b)
    events = list(a.of(stage, step_a))
    # gradients are computed from the last module to the first
    for event in reversed(events) if stage == "gradients" else events:
        module, _, leaf = event.path.rpartition(".")
        other = alignment.path_in_b(module)
        names = [event.path, f"{other}.{leaf}" if other else leaf] if other is not None else [event.path]
        for name in names:
            partner = partners.get((name, event.port, event.call))
            axes = layout_between(event.shape, partner.shape) if partner else None
            if partner and axes is not None:
                yield Pair(event, partner, None if axes == "same" else axes)
                break


def _scales(a: Trace, pairs: list[Pair]) -> list[float]:
    """For each pair the size below which a tensor is compared on the scale of others.

    A gradient may be zero in theory, such as that of the bias of attention's keys, which softmax
    ignores: what is computed is the rounding noise of its layer, so it is compared on the scale of the
    layer's other gradients. So is what comes of it. Elsewhere only what is next to nothing beside the
    largest tensor is.
    """
    norms = [_norm(a.read(pair.a)) for pair in pairs]
    largest = max(norms, default=0.0)
    beside: dict[tuple[str, str], float] = {}
    for pair, norm in zip(pairs, norms, strict=True):
        key = pair.a.path.rpartition(".")[0], pair.a.port
        beside[key] = max(beside.get(key, 0.0), norm)
    found = []
    for pair, norm in zip(pairs, norms, strict=True):
        layer = beside[pair.a.path.rpartition(".")[0], pair.a.port]
        noise = pair.a.stage in ("gradients", "clipped", "moments") and norm < NOISE * layer
        found.append(layer if noise else 1e-16 * largest)
    return found


def _named(trace: Trace, stage: Stage, step: int) -> dict[tuple[str, str, int], Event]:
    return {(e.path, e.port, e.call): e for e in trace.of(stage, step)}


def _judge(traces: Traces, pair: Pair, scale: float) -> Judged:
    a, b = traces.a.read(pair.a), traces.b.read(pair.b)
    sampled = bool(pair.a.statistics) or bool(pair.b.statistics)
    if pair.axes is not None and not sampled:
        b = b.transpose(pair.axes)
    finite = bool(np.isfinite(_wide(a)).all() and np.isfinite(_wide(b)).all())
    limit = _limit(traces, pair, scale)
    if a.shape != b.shape:  # samples of other layouts
        return Judged(pair.a.site, pair.b.site, 0.0, limit, finite)
    told = None if sampled else _told(traces.a, pair.a)
    found = error(b, a, scale) if told is None else error(b[told], a[told], scale)
    return Judged(pair.a.site, pair.b.site, found, limit, finite)


def _limit(traces: Traces, pair: Pair, scale: float) -> float:
    """What rounding may do to a tensor."""
    grain, first = _grain(pair), pair.a.step == traces.a.steps[0]
    if pair.a.stage == "batch" or (pair.a.stage == "parameters" and first):
        return grain  # nothing has been computed yet
    if traces.shadow is not None:
        return FACTOR * max(_envelope(traces, pair, scale), grain)
    # of later steps each starts from what rounding left of the one before
    return _ASSUMED * grain * (1 + pair.a.step - traces.a.steps[0])


def _told(a: Trace, event: Event) -> np.ndarray | None:
    """Which elements of a moment or of an updated parameter say something: a mask, or None for all.

    Where the gradient is zero in theory, as in the third of a packed bias that belongs to the keys, it
    is rounding noise, which Adam divides by its own size: steps as large as any, in no direction.
    """
    if event.stage not in ("moments", "updated"):
        return None
    site = Site(event.step, "gradients", event.path)
    if site not in a or a[site].statistics or a[site].shape != event.shape:
        return None
    gradient = np.abs(_wide(a.read(site)))
    return gradient > _NOISE_GRAINS * epsilon(event.dtype) * gradient.max(initial=0.0)


def _envelope(traces: Traces, pair: Pair, scale: float) -> float:
    """How far one unit in the last place moves the tensor in A."""
    site = pair.a.site
    if traces.shadow is None or site not in traces.shadow:
        return 0.0
    moved = traces.shadow.read(site)
    found = error(moved, traces.a.read(pair.a), scale)
    return found if math.isfinite(found) else 0.0


def _grain(pair: Pair) -> float:
    types = {pair.a.dtype, pair.b.dtype}
    floats = [epsilon(name) for name in types if "float" in name]
    return max(floats, default=0.0)


def error(value: np.ndarray, reference: np.ndarray, scale: float) -> float:
    """||value - reference|| / ||reference|| in float64.

    Args:
        scale: what the size of the reference counts as at least.
    """
    value, reference = _wide(value), _wide(reference)
    same = (value == reference) | (np.isnan(value) & np.isnan(reference))
    if same.all():
        return 0.0
    distance = float(np.linalg.norm(np.where(same, 0.0, value - reference)))
    size = max(_norm(reference), scale)
    found = distance / size if size else math.inf
    return math.inf if math.isnan(found) else found


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def _norm(array: np.ndarray) -> float:
    values = _wide(array)
    return float(np.linalg.norm(values[np.isfinite(values)]))


def _divergence(
    mode: Mode,
    stage: Stage,
    judged: list[Judged],
    index: int,
    alignment: Alignment,
    called: set[str],
) -> Divergence:
    found = judged[index]
    if stage not in ("forward", "backward"):
        what = "differs" if found.finite else "is not finite in one of the two"
        return Divergence(
            mode, stage, found.a.path, found.b.path, f"{_STAGE_WORDS[stage]} {what}", found
        )
    before = judged[index - 1].a if index else None
    entered = found.a.port.startswith("in")
    own = found.a.path
    # a tensor that enters a module was made by the code around it; a gradient that reaches a module's
    # output likewise
    blamed = _parent(own, called) if entered == (stage == "forward") and own else own
    after = f"after {before}" if before else "from the start"
    gradient = "the gradient of " if stage == "backward" else ""
    if blamed == own:
        same, another = ("input", "output") if stage == "forward" else ("gradient", "one passed on")
        what = f"{gradient}{found.a.port}: same {same}, another {another}"
    else:
        what = f"{gradient}{found.a} differs, everything {after} agrees"
    if not found.finite:
        what += "; not finite"
    other = alignment.path_in_b(blamed)
    return Divergence(mode, stage, blamed, blamed if other is None else other, what, found)


def _parent(path: str, called: set[str]) -> str:
    """The module that calls another: a list of modules is none."""
    parent = path.rpartition(".")[0]
    while parent and parent not in called:
        parent = parent.rpartition(".")[0]
    return parent


_STAGE_WORDS: dict[str, str] = {
    "batch": "the input",
    "parameters": "the parameter",
    "loss": "the loss",
    "gradients": "the gradient",
    "clipped": "the clipped gradient",
    "learning rate": "the learning rate",
    "moments": "the moment",
    "updated": "the updated parameter",
}
