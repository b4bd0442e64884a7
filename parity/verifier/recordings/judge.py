"""Verdict on each pair of tensors: its error against what rounding explains, and where it differs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from parity.measure.error import norm, relative_error, wide
from parity.measure.judged import Judged
from parity.measure.policies import ABSENT, Limit, assumed_limit
from parity.measure.tolerance import epsilon
from parity.measure.traces import Event, Site, Stage, Trace
from parity.verifier.recordings.pairs import Counterparts, EventPair, Traces, pairs_of, read_pair

_NOISE_GRAINS = 1e3
"""Units in the last place of a leaf's largest gradient below which an element of the leaf is noise."""

GRAINS = 32
"""Units in the last place of the root mean square of all gradients below which a gradient is noise."""


def limit(traces: Traces, pair: EventPair, apart: Mapping[str, float]) -> Limit:
    """Return the limit for the error of a tensor that rounding explains.

    Args:
        apart: distances of the parameters that a later step starts from, see `parameters_apart`.
    """
    least, first = grain(pair), pair.a.step == traces.a.steps[0]
    if pair.a.stage == "batch" or (pair.a.stage == "parameters" and first):
        return Limit(least, "1 eps")  # nothing has been computed yet
    # later steps start from parameters that rounding has moved: Adam divides a gradient that is only
    # noise by its own size, so an element may move either way, and all that is computed from it follows
    own = pair.a.stage in ("parameters", "updated")
    left = apart.get(pair.a.path if own else "", 0.0)
    return assumed_limit(least, 1 + pair.a.step - traces.a.steps[0], left)


def above_noise(a: Trace, event: Event) -> np.ndarray | None:
    """Return a mask of the elements of a moment or updated parameter that are not noise; None for all.

    Where the gradient is zero in theory, as in the third of a packed bias that belongs to the keys, it
    is rounding noise. Adam divides it by its own size, so its steps are as large as any, in a random
    direction.
    """
    if event.stage not in ("moments", "updated"):
        return None
    site = Site(event.step, "gradients", event.path)
    if site not in a or a[site].spacing != event.spacing or a[site].shape != event.shape:
        return None
    gradient = np.abs(wide(a.read(site)))
    if not gradient.any():  # the loss does not depend on it, or rounding left nothing in this step
        before = [event.site._replace(step=step) for step in a.steps if step < event.step]
        return above_noise(a, a[before[-1]]) if before and before[-1] in a else None
    least = max(_NOISE_GRAINS * gradient.max(initial=0.0), GRAINS * usual_gradient(a, event.step))
    return gradient > least * epsilon(event.dtype)


def _is_noise(trace: Trace, events: Iterable[Event]) -> bool:
    """Return whether no element of a moment or updated parameter, in parts, is more than noise."""
    masks = [above_noise(trace, each) for each in events]
    return all(each is not None and not each.any() for each in masks)


@lru_cache(maxsize=4)
def usual_gradient(a: Trace, step: int) -> float:
    """Return the root mean square of all gradients of a step."""
    events = list(a.of("gradients", step))
    squares = sum(norm(a.read(each)) ** 2 for each in events if each.spacing is None)
    return math.sqrt(squares / max(sum(each.size for each in events if each.spacing is None), 1))


def grain(pair: EventPair) -> float:
    """Return the epsilon of the coarser of two types; 0 for integers."""
    types = {pair.a.dtype, pair.b.dtype}
    floats = [epsilon(name) for name in types if "float" in name]
    return max(floats, default=0.0)


NOISE = 1e-3
"""Size, relative to the gradients of its layer, below which a gradient is compared on their scale: there
the rounding of theirs, of 1e-7 in float32, is 1e-4 of its own."""


@dataclass(frozen=True)
class Divergence:
    """A place where two recordings differ: what to blame if everything computed before it agrees."""

    stage: Stage
    where: str
    """Name of the tensor in A; empty for the model itself, or an only value."""
    where_b: str
    """The same in B."""
    what: str
    """What differs."""
    judged: Judged

    def __str__(self) -> str:
        name = self.where or "(model)"
        if self.where_b != self.where:
            name += f" = {self.where_b or '(model)'}"
        return f"{name}: {self.what}"


@dataclass(frozen=True)
class StageComparison:
    """All pairs of one stage of one step."""

    stage: Stage
    step: int
    judged: tuple[Judged, ...]
    """One for each pair, in the order of computation."""
    divergences: tuple[Divergence, ...]
    """One for each pair that differs: the place to blame if everything before it is equal."""

    @property
    def divergence(self) -> Divergence | None:
        """First place that differs; None if nothing does."""
        return self.divergences[0] if self.divergences else None

    @property
    def passed(self) -> bool:
        """Whether nothing differs."""
        return not self.divergences

    @property
    def worst(self) -> Judged | None:
        """Pair nearest to, or farthest beyond, its limit."""
        return max(self.judged, key=lambda each: each.score, default=None)


def compare(
    traces: Traces,
    counterparts: Counterparts,
    stage: Stage,
    step_a: int,
    step_b: int,
    apart: Mapping[str, float] | None = None,
) -> StageComparison:
    """Judge one stage of one step; `apart` is the result of `parameters_apart`."""
    pairs = list(pairs_of(traces, counterparts, stage, step_a, step_b))
    scales = _scales(traces.a, pairs)
    judged = [
        _judge(traces, pair, scale, apart or {}) for pair, scale in zip(pairs, scales, strict=True)
    ]
    divergences = tuple(divergence_of(each) for each in judged if not each.passed)
    missing = missing_gradients(traces, counterparts, step_a, step_b) if stage == "gradients" else ()
    absent = tuple(_absent(each, step_a, step_b) for each in missing if each.matters)
    judged = (*(each.judged for each in absent), *judged)
    return StageComparison(stage, step_a, judged, (*absent, *divergences))


def _absent(missing: Missing, step_a: int, step_b: int) -> Divergence:
    a, b = missing.name_a, missing.names_b[0]
    sites = Site(step_a, "gradients", a), Site(step_b, "gradients", b)
    judged = Judged(sites[0], (math.inf,), ABSENT.value, "on one side only", sites[1])
    return Divergence("gradients", a, b, f"the gradient is missing in {missing.side}", judged)


def parameters_apart(traces: Traces, counterparts: Counterparts, index: int) -> dict[str, float]:
    """Return the distances of the parameters that the step before left, which judged them; by A's names,
    and under no name that of all that is computed from them.

    For the latter, a parameter counts as at least as large as its layer's others: a bias of zeros that
    noise has moved is far from itself, but moves its layer's output little.

    Args:
        index: position of the step among those of each trace.
    """
    if index == 0:
        return {}  # nothing has been computed yet
    before = traces.a.steps[index - 1], traces.b.steps[index - 1]
    pairs = [p for p in pairs_of(traces, counterparts, "updated", *before) if not p.a.port]
    sizes = {pair.a.path: norm(traces.a.read(pair.a)) for pair in pairs}
    layers: dict[str, float] = {}
    for pair in pairs:
        layer = pair.a.path.rpartition(".")[0]
        usual = sizes[pair.a.path] / max(pair.a.size, 1) ** 0.5
        layers[layer] = max(layers.get(layer, 0.0), usual) if layer else 0.0
    distances, most = {}, 0.0
    for pair in pairs:
        a, b = read_pair(traces.a, traces.b, pair)
        distances[pair.a.path] = relative_error(b, a, holes=True)
        usual = layers[pair.a.path.rpartition(".")[0]] * pair.a.size**0.5
        most = max(most, relative_error(b, a, at_least=usual, holes=True))
    return distances | {"": most}


def _scales(a: Trace, pairs: list[EventPair]) -> list[float]:
    """Return for each pair the least size relative to which its error is measured.

    A gradient may be zero in theory, such as that of the bias of attention's keys, which softmax
    ignores. Its value is the rounding noise of its layer, so it is compared on the scale of the layer's
    other gradients, and so are the clipped gradient and the moments computed from it. Where the layer
    has no other, it is compared on the scale of all gradients. Otherwise the least size is the rounding
    of the largest tensor.
    """
    norms = [norm(a.read(pair.a)) for pair in pairs]
    largest = max(norms, default=0.0)
    beside: dict[tuple[str, str], float] = {}
    for pair, size in zip(pairs, norms, strict=True):
        key = pair.a.path.rpartition(".")[0], pair.a.port
        beside[key] = max(beside.get(key, 0.0), size)
    typical = _typical(pairs, norms)
    scales = []
    for pair, size in zip(pairs, norms, strict=True):
        layer = beside[pair.a.path.rpartition(".")[0], pair.a.port]
        usual = typical[pair.a.port] * pair.a.size**0.5
        rounded = (GRAINS * grain(pair)) ** (2 if pair.a.port == "exp_avg_sq" else 1)
        own = [layer] * (size < NOISE * layer) + [usual] * (size < rounded * usual)
        of_gradients = pair.a.stage in ("gradients", "clipped", "moments")
        least = max(epsilon("float64") * largest, _output(a, pair.a))
        scales.append(own[0] if own and of_gradients else least)
    return scales


def _typical(pairs: list[EventPair], norms: list[float]) -> dict[str, float]:
    """Return the root mean square of all tensors of each port."""
    squares: dict[str, list[float]] = {}
    for pair, size in zip(pairs, norms, strict=True):
        total = squares.setdefault(pair.a.port, [0.0, 0.0])
        total[0] += size**2
        total[1] += pair.a.size
    return {port: (total / max(count, 1)) ** 0.5 for port, (total, count) in squares.items()}


def _output(a: Trace, loss: Event) -> float:
    """Return the size of the output of which a loss is the weighted sum, else 0: terms of the sum may
    cancel, and one nudge may leave it unchanged by chance."""
    site = Site(loss.step, "forward", loss.path, loss.port)
    return norm(a.read(a[site])) if loss.stage == "loss" and loss.port and site in a else 0.0


def _judge(traces: Traces, pair: EventPair, scale: float, apart: Mapping[str, float]) -> Judged:
    a, b = read_pair(traces.a, traces.b, pair)
    mask = above_noise(traces.a, pair.a)
    if mask is None and _is_noise(traces.b, pair.all_b):  # A's may have left nothing
        mask = np.zeros(a.shape, bool)
    clear_a, clear_b = (a, b) if mask is None or mask.shape != a.shape else (a[mask], b[mask])
    error = relative_error(clear_b, clear_a, at_least=scale, holes=True)
    most = limit(traces, pair, apart)
    finite = bool(np.isfinite(wide(a)).all() and np.isfinite(wide(b)).all())
    return Judged(pair.a.site, (error,), most.value, most.origin, pair.b.site, finite)


def divergence_of(one: Judged) -> Divergence:
    """Say what differs in a pair of tensors."""
    site, what = one.site, "differs" if one.finite else "is not finite in one of the two"
    words = f"{site.port}: the output" if site.stage == "forward" else _STAGE_WORDS[site.stage]
    return Divergence(site.stage, site.path, one.partner.path, f"{words} {what}", one)


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


class Missing(NamedTuple):
    """A parameter without a gradient on one side."""

    name_a: str
    names_b: tuple[str, ...]
    side: Literal["A", "B"]
    """The side that has none."""
    matters: bool
    """Whether the other side's is more than rounding, and moves the parameter, which else is frozen on
    both."""


def missing_gradients(
    traces: Traces, counterparts: Counterparts, step_a: int, step_b: int
) -> tuple[Missing, ...]:
    """Return the parameters of a step that one side alone has a gradient of.

    A parameter that was updated had a gradient, which the program did not log.
    """
    first = traces.a.steps[0], traces.b.steps[0]
    of_a = {each.path: each for each in traces.a.of("gradients", step_a)}
    of_b = {each.path: each for each in traces.b.of("gradients", step_b)}
    missing = []
    for pair in pairs_of(traces, counterparts, "parameters", *first) if of_a and of_b else ():
        mine, theirs = pair.a.path, tuple(each.path for each in pair.all_b)
        there = [name for name in theirs if name in of_b]
        if (mine in of_a) == (len(there) == len(theirs)) or (mine not in of_a and not there):
            continue
        if mine in of_a:
            lacking = [name for name in theirs if name not in of_b]
            own = np.ravel(traces.a.read(of_a[mine]))
            if pair.parts is not None and pair.parts.index is not None and of_a[mine].spacing is None:
                owner = np.repeat(np.arange(len(theirs)), [each.size for each in pair.parts.events])
                absent = [theirs.index(name) for name in lacking]
                own = own[np.isin(owner[pair.parts.index], absent)]
            seen = _is_seen(traces.a, of_a[mine], own)
        else:
            lacking = []
            seen = any(_is_seen(traces.b, of_b[name], traces.b.read(of_b[name])) for name in there)
        move_a = _moved(traces.a, step_a, mine)
        moves_b = [_moved(traces.b, step_b, name) for name in lacking or there]
        has, lacks = ([move_a], moves_b) if lacking else (moves_b, [move_a])
        if not any(lacks):
            matters = seen and any(each is not False for each in has)
            missing.append(Missing(mine, theirs, "B" if lacking else "A", matters))
    return tuple(missing)


def _is_seen(trace: Trace, event: Event, gradient: np.ndarray) -> bool:
    """Return whether a gradient is more than rounding beside all others."""
    least = GRAINS * epsilon(event.dtype) * usual_gradient(trace, event.step)
    return norm(gradient) > least * gradient.size**0.5


def _moved(trace: Trace, step: int, name: str) -> bool | None:
    """Return whether a step moves a parameter; None if that was not recorded."""
    before, after = Site(step, "parameters", name), Site(step, "updated", name)
    if before not in trace or after not in trace:
        return None
    return not np.array_equal(trace.read(trace[before]), trace.read(trace[after]))
