"""Both sides of a comparison: recordings that are opened, and checked to be of one model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from parity.measure.error import wide
from parity.measure.traces import Event, Trace
from parity.measure.traces.reader import is_trace
from parity.verifier.recordings.pairs import layout_between
from vit_config import ConfigError, InputError, MissingFileError


class Recorded:
    """A recording, opened for a comparison."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.trace = Trace(path)


def recordings(a: str | Path, b: str | Path) -> tuple[Recorded, Recorded] | None:
    """Open both sides if they are recordings; return None if neither is.

    Raises:
        ConfigError: only one of them is a recording.
        MissingFileError, WeightsError: a recording is missing or damaged.
    """
    recorded = [str(each).endswith(".trace") or is_trace(each) for each in (a, b)]
    if not any(recorded):
        return None
    if not all(recorded):
        one, other = (a, b) if recorded[0] else (b, a)
        if ":" not in str(other) and not Path(other).exists():
            raise MissingFileError(f"{other}: no such file or folder; give a recording, as {one} is")
        raise ConfigError(
            f"{one} is a recording and {other} is none; record both by parity.record, or give both as"
            " programs"
        )
    return Recorded(Path(a)), Recorded(Path(b))


def check_comparable(name_a: str, a: Trace, name_b: str, b: Trace) -> None:
    """Refuse two recordings of different models, or with inputs of different shapes.

    Raises:
        InputError: the shape of an input or of the output differs; both models return values that are
            not finite, other than as many infinities; or nothing was recorded.
    """
    for name, trace in ((name_a, a), (name_b, b)):
        if not trace.events:
            raise InputError(
                f"{name}: nothing was recorded in it; wrap the steps in `with trace.step():`"
            )
    problems = [
        f"{what} {ours} in {name_a}, {theirs} in {name_b}" for what, ours, theirs in _shapes(a, b)
    ]
    if problems:
        raise InputError("not the same model: " + "; ".join(problems))
    told = [list(_not_finite(each)) for each in (a, b)]
    sites = [next((s for s, counts in each if counts[0] < 0 or counts not in other), None)
             for each, other in ((told[0], _counts(told[1])), (told[1], _counts(told[0])))]  # fmt: skip
    if all(sites):
        raise InputError(
            f"both models produce values that are not finite, {name_a} first at {sites[0]},"
            f" {name_b} first at {sites[1]}; give inputs and weights that keep them finite"
        )


def _shapes(a: Trace, b: Trace) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    for mine, theirs in zip(a.of("batch", min(a.steps)), b.of("batch", min(b.steps)), strict=False):
        if layout_between(mine.shape, theirs.shape) is None:
            yield "input", mine.shape, theirs.shape
    outputs = [_output(trace) for trace in (a, b)]
    if outputs[0] and outputs[1] and layout_between(outputs[0].shape, outputs[1].shape) is None:
        yield "output", outputs[0].shape, outputs[1].shape


def _output(trace: Trace) -> Event | None:
    """Return the event of the model's logits, or of the first tensor that it returns."""
    outputs = [
        e for e in trace.of("forward", min(trace.steps)) if e.path == "" and e.port.startswith("out")
    ]
    return next((e for e in outputs if e.port == "out.logits"), outputs[0] if outputs else None)


_Counts = tuple[int, int, int]
"""Size of a tensor (-1 if it has NaN), and its counts of positive and of negative infinities."""


def _counts(told: list[tuple[str, _Counts]]) -> set[_Counts]:
    return {counts for _, counts in told}


def _not_finite(trace: Trace) -> Iterator[tuple[str, _Counts]]:
    """Yield the outputs of the first step that are not finite. An additive mask holds infinities by
    design; whether they are at the same places is judged with everything else."""
    for event in trace.of("forward", min(trace.steps)):
        values = wide(trace.read(event)) if "float" in event.dtype else np.zeros(0)
        if not np.isfinite(values).all():
            size = -1 if np.isnan(values).any() else values.size
            yield str(event.site), (size, int(np.isposinf(values).sum()), int(np.isneginf(values).sum()))
