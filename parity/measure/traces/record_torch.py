"""Recording a PyTorch program through the hooks of its model and of its optimiser."""

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
from parity.measure.traces.pool import Pooled
from parity.measure.traces.pool_torch import TensorRooms
from parity.measure.traces.record_arrays import PlainArrays
from parity.measure.traces.recorder import OPTIMIZER, Recorder
from parity.measure.traces.sample import Sample
from parity.measure.traces.stream import FileTensor
from parity.measure.traces.watch_torch import is_array, watch, watch_gradient
from parity.measure.traces.watching import kind_of
from vit_config import ConfigError


class Torch(PlainArrays):
    """A PyTorch model and, perhaps, its optimiser."""

    name: Literal["torch", "jax", ""] = "torch"

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Prepare a model.

        Raises:
            ConfigError: `optimizer` is not an optimiser of torch.
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
        """Parameters at the start of the step; walking through all modules takes a millisecond."""
        self._gradients: dict[str, Pooled | Sample] = {}
        self._arrived: dict[str, torch.Tensor] = {}
        """Parameters that the running backward pass has reached."""
        self._updated = False
        """Whether the optimiser has run in this step."""
        self._rooms = TensorRooms(None)
        self._tap: TorchTap | None = None

    def versions(self) -> dict[str, str]:
        """Return torch's version, and the device of the model."""
        first = next(self._model.parameters(), torch.zeros(0))
        return {"torch": torch.__version__, "device": str(first.device)}

    def precision(self) -> dict[str, str]:
        """Return the flags of torch."""
        return torch_precision()

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield all modules; a module with two names has the first."""
        return self._model.named_modules()

    def facts(self, module: Any) -> dict[str, Any]:
        """Return the attributes of a module, without buffers and parameters."""
        return vars(module)

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample | Pooled]]:
        """Yield the tensors in a value, or its arrays as `PlainArrays` does."""
        if isinstance(value, torch.Tensor):
            yield "", "", self._rooms.take(value)
        elif isinstance(value, Mapping) and all(isinstance(x, torch.Tensor) for x in value.values()):
            for name, part in self._rooms.take_all(stage, value).items():
                yield str(name), "", part
        else:
            yield from super().named(stage, value)

    @contextmanager
    def watch(self, recorder: Recorder) -> Iterator[None]:
        """Watch modules, gradients of parameters, and the steps of the optimiser."""
        self._rooms = TensorRooms(recorder.keep)
        self._tap = TorchTap(recorder, self._rooms)
        handles = [
            self._watch_gradient(p, recorder) for p in self._model.parameters() if p.requires_grad
        ]
        if (optimizer := self._optimizer) is not None:
            # by the time the optimiser is called, the user has clipped the gradients
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
        """Record the parameters that the step starts from."""
        self._rooms.empty()
        self._gradients.clear()
        self._arrived.clear()
        self._updated = False
        self._parameters = dict(self._model.named_parameters())
        recorder.log("parameters", self._parameters)

    def end_step(self, recorder: Recorder) -> None:
        """Record what modules saw, the gradients unless logged before, and parameters if updated."""
        self._settle()
        if not recorder.logged("gradients"):
            recorder.log("gradients", self._all_gradients())
        self._log_updated(recorder)

    def abandon_step(self, recorder: Recorder) -> None:
        """Record the gradients, as far as they were computed."""
        self._settle()
        self._keep_gradients()
        if not recorder.logged("gradients"):
            recorder.log("gradients", self._gradients)
        self._log_updated(recorder)

    def _log_updated(self, recorder: Recorder) -> None:
        if self._updated:  # at the step's end: another optimiser, or a limit on weights, may follow
            recorder.log("updated", dict(self._model.named_parameters()))

    def _settle(self) -> None:
        if self._tap is not None:
            self._tap.settle()

    def _watch_gradient(self, parameter: nn.Parameter, recorder: Recorder) -> Any:
        name = self._names[id(parameter)]

        def arrived(parameter: torch.Tensor) -> None:
            if recorder.running:
                if not self._arrived:
                    # at the end of the backward pass, before anything is clipped in place
                    torch.autograd.Variable._execution_engine.queue_callback(self._keep_gradients)
                self._arrived[name] = parameter

        return parameter.register_post_accumulate_grad_hook(arrived)

    def _keep_gradients(self) -> None:
        """Keep the gradients of a backward pass that ended; of several, the last has the whole sums."""
        arrived, self._arrived = self._arrived, {}
        grads = {name: p.grad for name, p in arrived.items() if p.grad is not None}
        for name, gradient in self._rooms.take_all("gradients", grads).items():
            self._gradients[name] = gradient if isinstance(gradient, Pooled) else gradient.copied()

    def _all_gradients(self) -> dict[str, Sample | Pooled]:
        """Return all gradients, zeros (as in JAX) where the loss does not reach; before backward,
        none."""
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
        # an optimiser that takes a closure, such as LBFGS, computes gradients later: end_step has them
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
            if id(parameter) in self._names  # the optimiser may hold other parameters too
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
        if len(counts) == 1:  # torch counts steps for every parameter
            recorder.log("moments", counts.pop(), port="step")
        self._updated = True


class TorchTap:
    """Tap that records every tensor at the edge of a module, and the gradient that arrives at it."""

    def __init__(self, recorder: Recorder, rooms: TensorRooms) -> None:
        self._recorder = recorder
        self._forward, self._backward = _Taking(recorder, rooms), _Taking(recorder, rooms)
        self._seen: dict[Stage, list[tuple[Where, FileTensor | Pooled, int]]] = {
            "forward": [],
            "backward": [],
        }

    def begin(self, path: str, module: nn.Module) -> int:
        """Begin a call of a module; return its number, negative within a backward pass."""
        # torch.utils.checkpoint calls modules again there, for values that were seen before
        replayed = torch._C._current_graph_task_id() != -1
        return -1 if replayed else self._recorder.begin(path, module)

    def tensor(self, where: Where, value: torch.Tensor) -> torch.Tensor:
        """Record a tensor; return its stand-in in the graph."""
        if not self._recorder.running or where.call < 0:
            return value
        # between two large products each line of Python is slow: settle() does the rest
        order = len(self._seen["forward"])  # gradients come in reverse
        self._seen["forward"].append((where, self._forward.take(value), order))

        def arrived(gradient: torch.Tensor) -> None:
            self._seen["backward"].append((where, self._backward.take(gradient), order))

        passed = watch_gradient(value, arrived)
        self._forward.passed_on(passed)
        return passed

    def end(self, path: str) -> None:
        """Do nothing."""

    def settle(self) -> None:
        """Record the tensors seen in this step, and release them."""
        for stage, seen in self._seen.items():
            for where, value, order in seen:
                self._recorder.seen(stage, where, value, order if stage == "backward" else None)
            seen.clear()
        self._forward.passed_on(None)
        self._backward.passed_on(None)


class _Taking:
    """Keeper of tensors, each once: what one module returns is most often what the next is given."""

    def __init__(self, recorder: Recorder, rooms: TensorRooms) -> None:
        self._recorder, self._rooms = recorder, rooms
        self._last: torch.Tensor | None = None
        self._version = 0
        self._stored: FileTensor | Pooled | None = None

    def take(self, x: torch.Tensor) -> FileTensor | Pooled:
        """Store a tensor; return where it is."""
        if x is not self._last or self._stored is None or x._version != self._version:
            taken = self._rooms.take(x)
            self._stored = taken if isinstance(taken, Pooled) else self._recorder.store(taken)
            self.passed_on(x)
        return self._stored

    def passed_on(self, x: torch.Tensor | None) -> None:
        """Set the stand-in for the tensor taken last; it counts until it is changed in place."""
        if x is None or x.is_inference():  # these do not count changes in place
            self._last, self._version = None, 0
        else:
            self._last, self._version = x, x._version
