"""Checks that two recordings can be of one model: depth, width, and shapes of inputs and outputs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from parity.measure.error import wide
from parity.measure.traces import Event, Trace
from parity.verifier.recordings.align import layout_between
from vit_config import InputError


def check_comparable(name_a: str, a: Trace, name_b: str, b: Trace) -> None:
    """Refuse two recordings of different models, or with inputs of different shapes.

    Raises:
        InputError: depth, width, or the shape of an input or output differs; both sides have values that
            are not finite, other than the same infinities; or nothing was recorded.
    """
    for name, trace in ((name_a, a), (name_b, b)):
        if not trace.events:
            raise InputError(
                f"{name}: nothing was recorded in it; wrap the steps in `with trace.step():`"
            )
    problems = [
        f"{what} {ours} in {name_a}, {theirs} in {name_b}"
        for what, ours, theirs in _facts(a, b)
        if ours != theirs
    ]
    if problems:
        raise InputError("not the same model: " + "; ".join(problems))
    both = [_first_not_finite(a, b), _first_not_finite(b, a)]
    if all(both):
        raise InputError(
            f"both models produce values that are not finite, {name_a} first at {both[0]},"
            f" {name_b} first"
            f" at {both[1]}; give inputs and weights that keep them finite"
        )


def _facts(a: Trace, b: Trace) -> Iterator[tuple[str, object, object]]:
    for mine, theirs in zip(a.of("batch", min(a.steps)), b.of("batch", min(b.steps)), strict=False):
        if layout_between(mine.shape, theirs.shape) is None:
            yield "input", mine.shape, theirs.shape
    depth_a, depth_b = _depth(a), _depth(b)
    if depth_a and depth_b:
        yield "depth", depth_a, depth_b
    widths_a, widths_b = _widths(a), _widths(b)
    if widths_a and widths_b and widths_a[0] not in widths_b and widths_b[0] not in widths_a:
        yield "width", widths_a[0], widths_b[0]
    outputs = [_output(trace) for trace in (a, b)]
    if outputs[0] and outputs[1] and layout_between(outputs[0].shape, outputs[1].shape) is None:
        yield "output", outputs[0].shape, outputs[1].shape


def _depth(trace: Trace) -> int | None:
    """Return the length of the list that contains most called modules; None if it contains few.

    A list is a name with numbers, ``blocks.0`` or ``encoderblock_0``. Only members of its most common
    class count, because a container may hold the embedding and the head too.
    """
    called = {event.path for event in trace.of("forward", min(trace.steps))} - {""}
    members: dict[str, dict[str, str]] = defaultdict(dict)  # by list: its members, with their classes
    below: Counter[str] = Counter()
    for path in called:
        for match in re.finditer(r"(?<=[._])\d+(?=\.|$)", path):
            members[path[: match.start()]][path[: match.end()]] = _class(trace, path[: match.end()])
            below[path[: match.start()]] += 1
    if not below:
        return None
    # the outermost of nested lists; then by name, so that the order of a set does not matter
    name = min(below, key=lambda each: (-below[each], len(each), each))
    longest = Counter(members[name].values()).most_common(1)[0][1]
    return longest if longest > 1 and below[name] > len(called) / 3 else None


def _widths(trace: Trace) -> list[int]:
    """Return the numbers of channels that norms have, the most common first: the length of a norm's
    parameters, as channels may be the second axis or the last; without parameters, the last axis."""
    step = min(trace.steps)
    of_module = {e.path.rpartition(".")[0]: e.shape[-1] for e in trace.of("parameters", step) if e.shape}
    sizes = Counter(
        of_module.get(event.path, event.shape[-1])
        for event in trace.of("forward", step)
        if event.port == "out" and len(event.shape) > 1 and "norm" in _class(trace, event.path)
    )
    return sorted(sizes, key=lambda each: (-sizes[each], each))


def _class(trace: Trace, path: str) -> str:
    return trace.modules[path].name.lower() if path in trace.modules else ""


def _output(trace: Trace) -> Event | None:
    """Return the event of the model's logits, or of the first tensor that it returns."""
    outputs = [
        e for e in trace.of("forward", min(trace.steps)) if e.path == "" and e.port.startswith("out")
    ]
    return next((e for e in outputs if e.port == "out.logits"), outputs[0] if outputs else None)


def _first_not_finite(trace: Trace, other: Trace) -> str | None:
    """Return the first tensor with NaN, or with as many infinities as no tensor of the other trace has.

    An additive mask holds infinities by design, so equal numbers of them are accepted here. Whether they
    are at the same places is judged with everything else.
    """
    known: set[tuple[int, int, int]] | None = None
    for event in trace.of("forward", min(trace.steps)):
        counts = _infinities(trace, event)
        if counts is not None and known is None:
            known = {c for e in other.of("forward", min(other.steps)) if (c := _infinities(other, e))}
        if counts is not None and (counts[0] < 0 or counts not in (known or ())):
            return str(event.site)
    return None


def _infinities(trace: Trace, event: Event) -> tuple[int, int, int] | None:
    """Return the size of a tensor (-1 if it has NaN) and its counts of positive and of negative
    infinities; None if all is finite."""
    if "float" not in event.dtype:
        return None
    values = wide(trace.read(event))
    if np.isfinite(values).all():
        return None
    size = -1 if np.isnan(values).any() else values.size
    return size, int(np.isposinf(values).sum()), int(np.isneginf(values).sum())
