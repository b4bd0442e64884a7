"""Recording a PyTorch program: its model by hooks, its optimiser by hooks of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from parity.measure.precision import torch_precision
from parity.measure.site import Stage, Where
from parity.measure.traces.pool import Part
from parity.measure.traces.pool_torch import TensorRooms
from parity.measure.traces.record_arrays import Arrays
from parity.measure.traces.recorder import OPTIMIZER, Recorder
from parity.measure.traces.sample import Sample
from parity.measure.traces.stream import Kept
from parity.measure.traces.watch_torch import is_array, watch, watch_gradient
from parity.measure.traces.watching import kind_of
from vit_config import ConfigError


class Torch(Arrays):
    """A PyTorch model and, perhaps, its optimiser."""

    name: Literal["torch", "jax", ""] = "torch"

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Prepare a model.

        Raises:
            ConfigError: not an optimiser of torch.
        """
        if optimizer is not None and not hasattr(optimizer, "register_step_pre_hook"):
            raise ConfigError(
                f"optimizer = {kind_of(optimizer)}: expected one torch.optim.Optimizer; record one, and"
                " log what another does by trace.log"
            )
        self._model = model
        self._optimizer = optimizer
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._parameters: dict[str, nn.Parameter] = {}
        """Those that the step began with; to walk through all modules takes a millisecond."""
        self._gradients: dict[str, Part | Sample] = {}
        self._arrived: dict[str, torch.Tensor] = {}
        """Parameters that the running backward pass has come to."""
        self._updated = False
        """Whether the optimiser has come in this step."""
        self._rooms = TensorRooms(None)
        self._tap: RecordingTap | None = None

    def versions(self) -> dict[str, str]:
        """Of torch, and the device of the model."""
        first = next(self._model.parameters(), torch.zeros(0))
        return {"torch": torch.__version__, "device": str(first.device)}

    def precision(self) -> dict[str, str]:
        """The flags of torch."""
        return torch_precision()

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """The whole tree; a module with two names has the first."""
        return self._model.named_modules()

    def facts(self, module: Any) -> dict[str, Any]:
        """The attributes of a module, buffers and parameters left out."""
        return vars(module)

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample | Part]]:
        """As for arrays."""
        if isinstance(value, torch.Tensor):
            yield "", "", self._rooms.take(value)
        elif isinstance(value, Mapping) and all(isinstance(x, torch.Tensor) for x in value.values()):
            for name, kept in self._rooms.take_all(stage, value).items():
                yield str(name), "", kept
        else:
            yield from super().named(stage, value)

    @contextmanager
    def watch(self, recorder: Recorder) -> Iterator[None]:
        """Modules, gradients of parameters, and the steps of the optimiser."""
        self._rooms = TensorRooms(recorder.keep)
        self._tap = RecordingTap(recorder, self._rooms)
        handles = [
            self._watch_gradient(p, recorder) for p in self._model.parameters() if p.requires_grad
        ]
        if (optimizer := self._optimizer) is not None:
            # the user has clipped the gradients when the optimiser is called
            handles.append(optimizer.register_step_pre_hook(lambda *_: self._before_update(recorder)))
            handles.append(optimizer.register_step_post_hook(lambda *_: self._after_update(recorder)))
            recorder.describe(OPTIMIZER, optimizer, optimizer.defaults)
        try:
            with watch(self._model, self._tap):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def begin_step(self, recorder: Recorder) -> None:
        """The parameters that the step starts from."""
        self._rooms.empty()
        self._gradients.clear()
        self._arrived.clear()
        self._updated = False
        self._parameters = dict(self._model.named_parameters())
        recorder.log("parameters", self._parameters)

    def end_step(self, recorder: Recorder) -> None:
        """What modules saw; the gradients, if no optimiser has come for them; what it left behind."""
        self._settle()
        if not recorder.logged("gradients"):
            recorder.log("gradients", self._all_gradients())
        self._log_updated(recorder)

    def abandon_step(self, recorder: Recorder) -> None:
        """The gradients, as far as they were computed."""
        self._settle()
        self._keep_gradients()
        if not recorder.logged("gradients"):
            recorder.log("gradients", self._gradients)
        self._log_updated(recorder)

    def _log_updated(self, recorder: Recorder) -> None:
        if self._updated:  # another optimiser may come later in the step, or a limit on weights
            recorder.log("updated", dict(self._model.named_parameters()))

    def _settle(self) -> None:
        if self._tap is not None:
            self._tap.settle()

    def _watch_gradient(self, parameter: nn.Parameter, recorder: Recorder) -> Any:
        name = self._names[id(parameter)]

        def arrived(parameter: torch.Tensor) -> None:
            if recorder.running:
                if not self._arrived:
                    # when the backward pass ends: nobody has clipped anything in place yet
                    torch.autograd.Variable._execution_engine.queue_callback(self._keep_gradients)
                self._arrived[name] = parameter

        return parameter.register_post_accumulate_grad_hook(arrived)

    def _keep_gradients(self) -> None:
        """Of a backward pass that ended; of several, the last has the whole sums."""
        arrived, self._arrived = self._arrived, {}
        grads = {name: p.grad for name, p in arrived.items() if p.grad is not None}
        for name, kept in self._rooms.take_all("gradients", grads).items():
            self._gradients[name] = kept if isinstance(kept, Part) else kept.copied()

    def _all_gradients(self) -> dict[str, Sample | Part]:
        """With zeros, as in JAX, for what the loss does not reach; nothing before a backward pass."""
        if not self._gradients:
            return {}
        return {
            name: self._gradients[name]
            if name in self._gradients
            else self._rooms.take(torch.zeros_like(p))
            for name, p in self._parameters.items()
            if p.requires_grad
        }

    def _before_update(self, recorder: Recorder) -> None:
        # what takes a closure, such as LBFGS, computes its gradients later, and the step's end has them
        if recorder.running and self._gradients:
            grads = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
            recorder.log("gradients", self._all_gradients())
            recorder.log("clipped", grads)

    def _after_update(self, recorder: Recorder) -> None:
        if not recorder.running or self._optimizer is None:
            return
        groups = self._optimizer.param_groups
        rates = {f"group {i}": float(group["lr"]) for i, group in enumerate(groups)}
        recorder.log("learning rate", rates if len(set(rates.values())) > 1 else rates["group 0"])
        states = {
            self._names[id(parameter)]: state
            for parameter, state in self._optimizer.state.items()
            if id(parameter) in self._names  # it may hold parameters of something else too
        }
        moments: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
        for name, state in states.items():
            for port, value in state.items():
                if is_array(value) and value.shape == self._parameters[name].shape and port != "step":
                    moments[port][name] = value
        taken = {port: self._rooms.take_all(f"moments {port}", x) for port, x in moments.items()}
        for name in states:
            for port in taken:
                if name in taken[port]:
                    recorder.log("moments", taken[port][name], path=name, port=port)
        counts = {int(state["step"]) for state in states.values() if "step" in state}
        if len(counts) == 1:  # torch counts for every parameter
            recorder.log("moments", counts.pop(), port="step")
        self._updated = True


class RecordingTap:
    """Records every tensor at the edge of a module, and the gradient that arrives at it."""

    def __init__(self, recorder: Recorder, rooms: TensorRooms) -> None:
        self._recorder = recorder
        self._forward, self._backward = _Taking(recorder, rooms), _Taking(recorder, rooms)
        self._seen: dict[Stage, list[tuple[Where, Kept | Part, int]]] = {"forward": [], "backward": []}

    def begin(self, path: str, module: nn.Module) -> int:
        """A call of a module begins; negative within a backward pass."""
        # torch.utils.checkpoint calls modules again there, for values that were seen before
        replayed = torch._C._current_graph_task_id() != -1
        return -1 if replayed else self._recorder.begin(path, module)

    def tensor(self, where: Where, value: torch.Tensor) -> torch.Tensor:
        """Record it; pass on what stands for it in the graph."""
        if not self._recorder.running or where.call < 0:
            return value
        # between two large products each line of Python is slow: the rest is done when the step ends
        order = len(self._seen["forward"])  # gradients come the other way round
        self._seen["forward"].append((where, self._forward.take(value), order))

        def arrived(gradient: torch.Tensor) -> None:
            self._seen["backward"].append((where, self._backward.take(gradient), order))

        passed = watch_gradient(value, arrived)
        self._forward.passed_on(passed)
        return passed

    def end(self, path: str) -> None:
        """Nothing is left to be done."""

    def settle(self) -> None:
        """Record what was seen in this step, and let go of it."""
        for stage, seen in self._seen.items():
            for where, kept, order in seen:
                self._recorder.seen(stage, where, kept, order if stage == "backward" else None)
            seen.clear()
        self._forward.passed_on(None)
        self._backward.passed_on(None)


class _Taking:
    """What one module returns is most often what the next is given, and is taken once."""

    def __init__(self, recorder: Recorder, rooms: TensorRooms) -> None:
        self._recorder, self._rooms = recorder, rooms
        self._last: torch.Tensor | None = None
        self._version = 0
        self._kept: Kept | Part | None = None

    def take(self, x: torch.Tensor) -> Kept | Part:
        """Have a tensor kept."""
        if x is not self._last or self._kept is None or x._version != self._version:
            taken = self._rooms.take(x)
            self._kept = taken if isinstance(taken, Part) else self._recorder.store(taken)
            self.passed_on(x)
        return self._kept

    def passed_on(self, x: torch.Tensor | None) -> None:
        """What stands for the tensor that was taken last, until it is changed in place."""
        if x is None or x.is_inference():  # those do not tell whether they were changed
            self._last, self._version = None, 0
        else:
            self._last, self._version = x, x._version
