"""Stretches of code and backward passes, cut out of one recording."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from parity.measure.traces import Event, ModuleFacts, Site, Stage, Trace
from parity.verifier.diagnose.backward import GradientSegment
from parity.verifier.diagnose.segment import Segment
from parity.verifier.diff.align import kind_of

UNKNOWN = "unknown"
"""The class of a module that the trace does not describe."""


class Cuttings:
    """One recording, with what was fed in the place of what it computed."""

    def __init__(self, trace: Trace, fed: dict[Site, np.ndarray], unshared: Collection[str]) -> None:
        self._trace = trace
        self._fed = fed
        holding = {event.path.rpartition(".")[0] for event in trace.of("parameters", trace.steps[0])}
        self._left_out = set(unshared) - holding

    def segment(self, target: Site, module: str) -> Segment:
        """The part of a module's own code that ends in `target`."""
        trace, framework = self._trace, self._trace.index.framework
        events = list(trace.of("forward", target.step))
        end = next(i for i, event in enumerate(events) if event.site == target)
        called = {event.path for event in events}
        before, given = {}, {}
        for event in events[self._start(events, end, module) : end]:
            name = None if event.path in self._left_out else _edge(module, event, called)
            if name and _is_seen(module, event):
                before[name] = self._array(event, self._fed.get(event.site))
            elif name:
                given[name] = self._array(event, None)  # as it was made, whatever was fed in its place
        own = module + "." if module else ""
        around = [module]
        while around[-1]:
            around.append(around[-1].rpartition(".")[0])
        step = trace.steps[0]
        parameters = {
            event.path.removeprefix(own): trace.read(event).astype(np.float64)
            for event in trace.of("parameters", step)
            if event.path.rpartition(".")[0] == module and not event.statistics
        }
        return Segment(
            framework=framework,
            module=trace.modules.get(module, ModuleFacts(path=module, kind=UNKNOWN)),
            target=target.port
            if target.path == module
            else f"{target.path.removeprefix(own)} {target.port}",
            result=self._array(trace[target], None),
            before=before,
            parameters=parameters,
            children={
                path.removeprefix(own): facts
                for path, facts in trace.modules.items()
                if path != module and path.startswith(own)
            },
            around=tuple(trace.modules[path] for path in around[1:] if path in trace.modules),
            dtype=trace[target].dtype,
            beside=self._beside(module),
            called=tuple(
                dict.fromkeys(e.path.removeprefix(own) for e in events if e.path.startswith(own))
            ),
            given=given,
        )

    def _beside(self, module: str) -> dict[str, np.ndarray]:
        """The parameters of the siblings of a module that are of its class."""
        trace, parent = self._trace, module.rpartition(".")[0]
        if module not in trace.modules:
            return {}
        kind = trace.modules[module].kind
        siblings = (p for p in trace.modules if p != module and p.rpartition(".")[0] == parent)
        alike = {path for path in siblings if trace.modules[path].kind == kind}
        return {
            event.path.removeprefix(parent).removeprefix("."): trace.read(event).astype(np.float64)
            for event in trace.of("parameters", trace.steps[0])
            if event.path.rpartition(".")[0] in alike and not event.statistics
        }

    def gradient(self, target: Site, module: str) -> GradientSegment | None:
        """The backward pass of a module, of which `target` is what comes out."""
        trace, step = self._trace, target.step

        def first(stage: Stage, port: str) -> Event | None:
            events = (event for event in trace.of(stage, step) if event.path == module)
            return next((e for e in events if e.port.startswith(port) and not e.statistics), None)

        arrived, given = first("backward", "out"), first("forward", "in")
        if arrived is None or given is None:
            return None
        return GradientSegment(
            framework=trace.index.framework,
            path=module,
            arrived=trace.read(arrived).astype(np.float64),
            passed=trace.read(target).astype(np.float64),
            given=self._array(given, self._fed.get(given.site)),
            dtype=trace[target].dtype,
            inside=self._gradients_inside(target, module),
        )

    def _gradients_inside(self, target: Site, module: str) -> dict[str, np.ndarray]:
        """The gradients of what a module's children returned, those of the shape of `target`."""
        trace, shape = self._trace, self._trace[target].shape
        called = {event.path for event in trace.of("backward", target.step)}
        return {
            name: trace.read(event).astype(np.float64)
            for event in trace.of("backward", target.step)
            if event.path != module and event.shape == shape and not event.statistics
            if _is_seen(module, event) and (name := _edge(module, event, called))
        }

    def _start(self, events: list[Event], end: int, module: str) -> int:
        """Where the call of the module begins in which `events[end]` is made."""
        entered = [
            i for i, e in enumerate(events[: end + 1]) if e.path == module and e.port.startswith("in")
        ]
        if not entered:
            return 0
        call = events[entered[-1]].call
        return next(i for i in entered if events[i].call == call)

    def _array(self, event: Event, fed: np.ndarray | None) -> np.ndarray:
        array = self._trace.read(event) if fed is None else fed
        array = array.astype(np.float64)
        return array.transpose(0, 2, 3, 1) if self._is_channels_first(event) else array

    def _is_channels_first(self, event: Event) -> bool:
        """Whether it is what a convolution of PyTorch takes or gives."""
        if self._trace.index.framework != "torch" or len(event.shape) != 4 or event.statistics:
            return False
        if kind_of(self._trace, event.path) == "conv":
            return True
        return event.port.startswith("in") and event.shape in set(self._convolved())

    def _convolved(self) -> Iterator[tuple[int, ...]]:
        for event in self._trace.of("forward", self._trace.steps[0]):
            if event.port == "in" and kind_of(self._trace, event.path) == "conv":
                yield event.shape


def _edge(module: str, event: Event, called: set[str]) -> str | None:
    """How a module's own code calls a tensor that it was given, or that it gave to a child or got from
    one; None for the tensors of others."""
    if event.path == module:
        return event.port if event.port.startswith("in") else None
    own = module + "." if module else ""
    if not event.path.startswith(own):
        return None
    between = event.path.rpartition(".")[0]
    while between != module and between not in called and between:
        between = between.rpartition(".")[0]
    return f"{event.path.removeprefix(own)} {event.port}" if between == module else None


def _is_seen(module: str, event: Event) -> bool:
    """Whether a tensor came to a module's own code, as its input or from a child."""
    return event.path == module or event.port.startswith("out")
