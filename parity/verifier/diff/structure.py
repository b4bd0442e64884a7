"""Whether two recordings can be of one model at all: depth, width, what they were fed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from parity.measure.error import wide
from parity.measure.traces import Event, Trace
from parity.verifier.diff.align import layout_between
from vit_config import InputError


def check_comparable(name_a: str, a: Trace, name_b: str, b: Trace) -> None:
    """Refuse two recordings that are of different models, or of different inputs.

    Raises:
        InputError: another depth, width or shape of the input or of the output; values that are not
            finite on either side, other than the same infinities; or nothing was recorded.
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
    """The length of the list that most called modules are below; None if these are few.

    A list is a name with a number, ``blocks.0`` or ``encoderblock_0``; of what it holds, the most common
    class counts, for a container may hold the embedding and the head too.
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
    # of nested lists the outermost; by name, so that no order of a set decides
    name = min(below, key=lambda each: (-below[each], len(each), each))
    longest = Counter(members[name].values()).most_common(1)[0][1]
    return longest if longest > 1 and below[name] > len(called) / 3 else None


def _widths(trace: Trace) -> list[int]:
    """How many channels the norms have, the most common number first: the length of their parameters,
    for channels may be the second axis or the last; of a norm without, the last axis."""
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
    """The model's logits, or the first tensor it returns."""
    found = [
        e for e in trace.of("forward", min(trace.steps)) if e.path == "" and e.port.startswith("out")
    ]
    return next((e for e in found if e.port == "out.logits"), found[0] if found else None)


def _first_not_finite(trace: Trace, other: Trace) -> str | None:
    """The first tensor with NaN, or with infinities that no tensor of the other trace has as many of.

    A mask that is added holds infinities by design, and equal ones say nothing against a model; whether
    they stand at the same places is judged with everything else.
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
    """The size of a tensor and how many infinities of either sign it has, -1 first where there is NaN;
    None where all is finite."""
    if "float" not in event.dtype:
        return None
    values = wide(trace.read(event))
    if np.isfinite(values).all():
        return None
    size = -1 if np.isnan(values).any() else values.size
    return size, int(np.isposinf(values).sum()), int(np.isneginf(values).sum())
