"""Recording a PyTorch program: its model by hooks, its optimiser by hooks of its own."""

from __future__ import annotations

from collections.abc import Iterator
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
from parity.measure.traces.watch_torch import is_array, watch, watch_gradient


class Torch(Arrays):
    """A PyTorch model and, perhaps, its optimiser."""

    name: Literal["torch", "jax", ""] = "torch"

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Prepare a model."""
        self._model = model
        self._optimizer = optimizer
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._gradients: dict[str, Part | Sample] = {}
        self._rooms = TensorRooms(None)

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
        else:
            yield from super().named(stage, value)

    @contextmanager
    def watch(self, recorder: Recorder) -> Iterator[None]:
        """Modules, gradients of parameters, and the steps of the optimiser."""
        self._rooms = TensorRooms(recorder.keep)
        handles = [self._keep_gradient(p, recorder) for p in self._model.parameters() if p.requires_grad]
        if (optimizer := self._optimizer) is not None:
            # the user has clipped the gradients when the optimiser is called
            handles.append(optimizer.register_step_pre_hook(lambda *_: self._before_update(recorder)))
            handles.append(optimizer.register_step_post_hook(lambda *_: self._after_update(recorder)))
            recorder.describe(OPTIMIZER, optimizer, optimizer.defaults)
        try:
            with watch(self._model, RecordingTap(recorder, self._rooms)):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def begin_step(self, recorder: Recorder) -> None:
        """The parameters that the step starts from."""
        self._rooms.empty()
        self._gradients.clear()
        recorder.log("parameters", dict(self._model.named_parameters()))

    def end_step(self, recorder: Recorder) -> None:
        """The gradients, if no optimiser has come for them."""
        if not recorder.logged("gradients"):
            recorder.log("gradients", self._all_gradients())

    def abandon_step(self, recorder: Recorder) -> None:
        """The gradients, as far as they were computed."""
        if not recorder.logged("gradients"):
            recorder.log("gradients", self._gradients)

    def _keep_gradient(self, parameter: nn.Parameter, recorder: Recorder) -> Any:
        name = self._names[id(parameter)]

        def keep(parameter: torch.Tensor) -> None:
            if recorder.running and parameter.grad is not None:
                # the last of several is the whole sum; it may be clipped in place later
                kept = self._rooms.take(parameter.grad)
                self._gradients[name] = kept if isinstance(kept, Part) else kept.copied()

        return parameter.register_post_accumulate_grad_hook(keep)

    def _all_gradients(self) -> dict[str, Sample | Part]:
        """With zeros, as in JAX, for what the loss does not reach; nothing before a backward pass."""
        if not self._gradients:
            return {}
        return {
            name: self._gradients[name]
            if name in self._gradients
            else self._rooms.take(torch.zeros_like(p))
            for name, p in self._model.named_parameters()
            if p.requires_grad
        }

    def _before_update(self, recorder: Recorder) -> None:
        if recorder.running:
            grads = {name: p.grad for name, p in self._model.named_parameters() if p.grad is not None}
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
        shapes = {name: p.shape for name, p in self._model.named_parameters()}
        for name, state in states.items():
            for port, value in state.items():
                if is_array(value) and value.shape == shapes[name] and port != "step":
                    recorder.log("moments", value, path=name, port=port)
        counts = {int(state["step"]) for state in states.values() if "step" in state}
        if len(counts) == 1:  # torch counts for every parameter
            recorder.log("moments", counts.pop(), port="step")
        recorder.log("updated", dict(self._model.named_parameters()))


class RecordingTap:
    """Records every tensor at the edge of a module, and the gradient that arrives at it."""

    def __init__(self, recorder: Recorder, rooms: TensorRooms) -> None:
        self._recorder, self._rooms = recorder, rooms

    def begin(self, path: str, module: nn.Module) -> int:
        """A call of a module begins; negative within a backward pass."""
        # torch.utils.checkpoint calls modules again there, for values that were seen before
        replayed = torch._C._current_graph_task_id() != -1
        return -1 if replayed else self._recorder.begin(path, module)

    def tensor(self, where: Where, value: torch.Tensor) -> torch.Tensor:
        """Record it; pass on what stands for it in the graph."""
        if not self._recorder.running or where.call < 0:
            return value
        self._see("forward", where, value)
        order = self._recorder.next_order()  # gradients come the other way round
        return watch_gradient(value, lambda gradient: self._see("backward", where, gradient, order))

    def end(self, path: str) -> None:
        """Nothing is left to be done."""

    def _see(self, stage: Stage, where: Where, value: torch.Tensor, order: int | None = None) -> None:
        self._recorder.seen(stage, where, self._rooms.take(value), order)
