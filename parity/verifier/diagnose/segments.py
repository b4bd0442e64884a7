"""From a comparison to the two stretches of code that differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parity.measure.traces import ModuleFacts, Site, Trace
from parity.verifier.diagnose.backward import GradientSegment
from parity.verifier.diagnose.cutting import Cuttings
from parity.verifier.diagnose.segment import Segment, StepSegment
from parity.verifier.diagnose.step_segments import step_segment
from parity.verifier.diff.align import Alignment
from parity.verifier.diff.difference import Difference
from parity.verifier.diff.judge import Divergence, Traces


def segments(
    difference: Difference, divergence: Divergence, *, shared: bool = False
) -> tuple[Segment, Segment]:
    """The code that makes the first tensor that differs, in A and in B; for the stage ``forward``.

    Args:
        shared: leave out what came from modules without parameters that only one of the two has.
    """
    traces = difference.traces(divergence.mode)
    fed = _fed(difference, traces) if divergence.mode == "fed" else {}
    alignment = difference.alignment
    a = Cuttings(traces.a, {}, alignment.only_a if shared else ())
    b = Cuttings(traces.b, fed, alignment.only_b if shared else ())
    mine = a.segment(divergence.judged.site, divergence.where)
    theirs = b.segment(divergence.judged.partner, divergence.where_b)
    return mine, _called_as(mine, theirs, alignment)


def _called_as(a: Segment, b: Segment, alignment: Alignment) -> Segment:
    """B with the modules that it calls named as A names their partners, where they have one."""

    def own(path: str, module: str) -> str:
        return path.removeprefix(module + ".") if module else path

    names = {
        own(theirs.path, b.module.path): own(mine.path, a.module.path)
        for mine, theirs in reversed(list(alignment.modules.items()))
    }
    called: list[str] = []
    for path in b.called:
        name = names.get(path, path)
        while name in called:  # two of B are called as one of A: both stay
            name = f"{name} (again)"
        called.append(name)
    return replace(b, called=tuple(called))


def batch_segments(difference: Difference, divergence: Divergence) -> tuple[Segment, Segment]:
    """The inputs of the two programs, as if each had made them from those of A."""
    traces = difference.flowing
    given = _channels_last(traces.a.read(divergence.judged.site), traces.a.index.framework)

    def one(trace: Trace, site: Site) -> Segment:
        return Segment(
            framework=trace.index.framework,
            module=ModuleFacts(path="", kind="input"),
            target="in",
            result=_channels_last(trace.read(site), trace.index.framework),
            before={"in": given},
            parameters={},
            dtype=trace[site].dtype,
        )

    return one(traces.a, divergence.judged.site), one(traces.b, divergence.judged.partner)


def gradient_segments(
    difference: Difference, divergence: Divergence
) -> tuple[GradientSegment, GradientSegment] | None:
    """The backward pass of the module, or of the parameter's module, whose gradient is the first that
    differs; None if what it needs was not recorded."""
    traces = difference.traces(divergence.mode)
    fed = _fed(difference, traces) if divergence.mode == "fed" else {}
    site = divergence.judged.site
    module = divergence.where if site.stage == "backward" else divergence.where.rpartition(".")[0]
    theirs = divergence.judged.partner
    module_b = divergence.where_b if site.stage == "backward" else divergence.where_b.rpartition(".")[0]
    a = Cuttings(traces.a, {}, ()).gradient(site, module)
    b = Cuttings(traces.b, fed, ()).gradient(theirs, module_b)
    if a is None or b is None:
        return None
    # what arrived was A's on both sides
    return a, replace(b, arrived=a.arrived, inside=a.inside)


def step_segments(difference: Difference, divergence: Divergence) -> tuple[StepSegment, StepSegment]:
    """The stage of a training step that is the first to differ; parameters are called as A calls
    them."""
    traces, alignment = difference.flowing, difference.alignment
    mine, theirs = divergence.judged.site, divergence.judged.partner
    names = {}
    for event in traces.a.of("parameters", mine.step):
        module, _, leaf = event.path.rpartition(".")
        other = alignment.path_in_b(module)
        if other is not None:
            names[f"{other}.{leaf}" if other else leaf] = event.path
    return (
        step_segment(traces.a, mine.step, mine.stage),
        step_segment(traces.b, theirs.step, theirs.stage, names),
    )


def _channels_last(array: np.ndarray, framework: str) -> np.ndarray:
    wide = array.astype(np.float64)
    return wide.transpose(0, 2, 3, 1) if framework == "torch" and wide.ndim == 4 else wide


def _fed(difference: Difference, traces: Traces) -> dict[Site, np.ndarray]:
    """What B's code was given at each place: the reference's tensors, in B's layout."""
    found = {}
    step_a, step_b = traces.a.steps[0], traces.b.steps[0]
    for pair in difference.alignment.pairs:
        mine = traces.a.read(Site(step_a, "forward", *pair.a.site[2:]))
        if pair.axes is not None:
            mine = mine.transpose(tuple(int(i) for i in np.argsort(pair.axes)))
        found[Site(step_b, "forward", *pair.b.site[2:])] = mine
    return found
