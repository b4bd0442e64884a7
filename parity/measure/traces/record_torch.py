"""Recording a PyTorch program through the hooks of its model and of its optimiser."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import ml_dtypes
import numpy as np
import torch
from torch import nn

from parity.measure.precision import torch_precision
from parity.measure.site import Stage, Where
from parity.measure.traces.record_arrays import PlainArrays
from parity.measure.traces.recorder import OPTIMIZER, Recorder
from parity.measure.traces.sample import Sample, sample
from parity.measure.traces.watching import Tap, drops, kind_of, visit_arrays, visit_call
from vit_config import ConfigError


def is_array(value: Any) -> bool:
    """Return whether a value is a dense tensor; the wrapped tensors of `torch.func` do not count."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(value)  # type: ignore[attr-defined]


@contextmanager
def watch(model: nn.Module, tap: Tap) -> Iterator[None]:
    """Show `tap` every tensor that enters or leaves `model` and each module below it, when called."""
    handles = [handle for path, module in model.named_modules() for handle in _hooks(path, module, tap)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hooks(path: str, module: nn.Module, tap: Tap) -> Iterator[Any]:
    running: list[int] = []  # a stack: a module may call itself

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        running.append(tap.begin(path, module))
        where = lambda port: Where(path, port, running[-1])  # noqa: E731
        return visit_call(args, kwargs, is_array, lambda port, x: tap.tensor(where(port), x))

    def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        call = running.pop()
        see = lambda port, x: tap.tensor(Where(path, port, call), x)  # noqa: E731
        seen = visit_arrays(output, "out", is_array, see)
        tap.end(path)
        return seen

    yield module.register_forward_pre_hook(before, with_kwargs=True)
    yield module.register_forward_hook(after, with_kwargs=True)


_AS_BITS = {
    torch.bfloat16: (torch.uint16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}
"""Types that numpy lacks, with the type to view their bits as and the type of ml_dtypes."""

_SAME = {"square_avg": "exp_avg_sq", "sum": "exp_avg_sq", "grad_avg": "exp_avg"}
"""Names of moments in RMSprop and Adagrad, with those in Adam for the same."""


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's values bit for bit, of any type in numpy or ml_dtypes; memory may be shared."""
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    bits, dtype = _AS_BITS.get(tensor.dtype, (tensor.dtype, None))
    return tensor.numpy() if dtype is None else tensor.view(bits).numpy().view(dtype)


def _taken(
    tensors: Mapping[str, torch.Tensor], keep: int | None, taken: Mapping[str, Sample] | None = None
) -> dict[str, Sample]:
    """Return tensors, or their samples, in memory of their own; those of one type leave their device
    together, so that a GPU is waited for once.

    Args:
        taken: those that were taken before; of a tensor that has not changed since, no copy is made.
    """
    parts, groups = dict[str, Sample](), defaultdict[Any, list[str]](list)
    for name, x in tensors.items():
        x = x.detach() if x.layout is torch.strided else x.detach().to_dense()
        if taken is not None and name in taken and _is_same(x, taken[name]):
            parts[name] = taken[name]
            continue
        parts[name] = sample(x, keep)
        groups[x.dtype, x.device].append(name)
    for (dtype, _), names in groups.items():
        flat = [parts[name].values.reshape(-1).view(_AS_BITS.get(dtype, (dtype,))[0]) for name in names]
        row, begin = as_numpy(torch.cat(flat)), 0
        row = row.view(_AS_BITS[dtype][1]) if dtype in _AS_BITS else row
        for name in names:
            part = parts[name]
            end = begin + part.values.numel()
            own = row[begin:end].reshape(tuple(part.values.shape))
            parts[name] = part._replace(values=own, owned=True)
            begin = end
    return parts


def _is_same(x: torch.Tensor, part: Sample) -> bool:
    """Return whether a tensor in the memory of this machine has the bits that were taken."""
    if x.device.type != "cpu" or part.spacing is not None or tuple(x.shape) != part.shape:
        return False
    here, there = as_numpy(x), part.values
    if here.dtype != there.dtype or here.dtype.itemsize > 8:
        return False
    bits = f"i{here.dtype.itemsize}"  # a NaN is the same, and a zero of another sign is not
    return torch.equal(*(torch.from_numpy(each.view(bits)) for each in (here, there)))


class Torch(PlainArrays):
    """A PyTorch model and, perhaps, its optimiser."""

    name: Literal["torch", "jax", ""] = "torch"

    def __init__(self, model: nn.Module, optimizer: Any = None) -> None:
        """Prepare a model.

        Args:
            optimizer: one of torch, also within a wrapper of Lightning's or Accelerate's.

        Raises:
            ConfigError: `optimizer` is not an optimiser of torch.
        """
        while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
            optimizer = inner
        if optimizer is not None and not hasattr(optimizer, "register_step_pre_hook"):
            raise ConfigError(
                f"optimizer = {kind_of(optimizer)}: expected one torch.optim.Optimizer; record one, and"
                " log what another does by trace.log"
            )
        self._model = model
        self._optimizer = optimizer
        self._keep: int | None = None
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._parameters: dict[str, nn.Parameter] = {}
        """Parameters at the start of the step; walking through all modules takes a millisecond."""
        self._left: dict[str, Sample] = {}
        """Parameters as the last recorded step left them."""
        self._gradients: dict[str, Sample] = {}
        self._arrived: dict[str, torch.Tensor] = {}
        """Parameters that the running backward pass has reached."""
        self._losses: list[torch.Tensor] = []
        """Losses that the model itself returned."""
        self._given = False
        """Whether the running update was given its gradients, and not a closure that computes them."""
        self._updated = False
        """Whether the optimiser has run in this step."""

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

    def named(self, stage: Stage, value: Any) -> Iterator[tuple[str, str, np.ndarray | Sample]]:
        """Yield the tensors in a value, or its arrays as `PlainArrays` does."""
        if isinstance(value, torch.Tensor):
            yield "", "", _taken({"": value}, self._keep)[""]
        elif isinstance(value, Mapping) and all(isinstance(x, torch.Tensor) for x in value.values()):
            for name, part in _taken(value, self._keep).items():
                yield str(name), "", part
        else:
            yield from super().named(stage, value)

    @contextmanager
    def watch(self, recorder: Recorder) -> Iterator[None]:
        """Watch what the model returns, active dropout, the gradients of parameters, and the steps of
        the optimiser."""
        self._keep = recorder.keep
        model, optimizer = self._model, self._optimizer
        handles = [self._watch_gradient(p, recorder) for p in model.parameters() if p.requires_grad]
        handles.append(model.register_forward_pre_hook(self._entered(recorder), with_kwargs=True))
        handles.append(model.register_forward_hook(self._returned(recorder)))
        for path, module in model.named_modules():
            if path and drops(module):
                handles.append(module.register_forward_hook(self._dropped(recorder, path)))
        if optimizer is not None:
            # by the time the optimiser is called, the user has clipped the gradients
            handles.append(optimizer.register_step_pre_hook(lambda *_: self._before_update(recorder)))
            handles.append(optimizer.register_step_post_hook(lambda *_: self._after_update(recorder)))
            recorder.describe(OPTIMIZER, optimizer, optimizer.defaults)
        try:
            with self._unscaled():
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _entered(self, recorder: Recorder) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> None:
            if _is_seen(recorder) and not recorder.has_batch:
                visit_call(args, kwargs, is_array, lambda port, x: self._see(recorder, "batch", port, x))

        return hook

    def _returned(self, recorder: Recorder) -> Callable[..., None]:
        def see(port: str, x: torch.Tensor) -> torch.Tensor:
            if port == "out.loss":
                self._losses.append(x.detach())
                return x
            return self._see(recorder, "forward", "", x, port)

        def hook(_: nn.Module, args: Any, output: Any) -> None:
            if _is_seen(recorder):
                visit_arrays(output, "out", is_array, see)

        return hook

    def _dropped(self, recorder: Recorder, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if _is_seen(recorder) and module.training and args and all(map(is_array, (args[0], output))):
                self._see(recorder, "forward", path, args[0], "in")
                self._see(recorder, "forward", path, output, "out")

        return hook

    def _see(
        self, recorder: Recorder, stage: Stage, path: str, x: torch.Tensor, port: str = ""
    ) -> torch.Tensor:
        recorder.add(stage, path, port, _taken({"": x}, self._keep)[""])
        return x

    def begin_step(self, recorder: Recorder) -> None:
        """Record the parameters that the step starts from."""
        self._gradients.clear()
        self._arrived.clear()
        self._losses.clear()
        self._updated = False
        self._parameters = dict(self._model.named_parameters())
        self._add(recorder, "parameters", _taken(self._parameters, self._keep, self._left))

    def end_step(self, recorder: Recorder) -> None:
        """Record the gradients and losses unless logged before, and parameters if updated."""
        if not recorder.logged("gradients"):
            self._log_gradients(recorder)
        if not recorder.logged("loss"):
            for loss in self._losses:
                recorder.log("loss", loss)
        self._losses.clear()
        if self._updated:  # at the step's end: another optimiser, or a limit on weights, may follow
            self._left = _taken(dict(self._model.named_parameters()), self._keep)
            self._add(recorder, "updated", self._left)

    def _add(self, recorder: Recorder, stage: Stage, taken: Mapping[str, Sample]) -> None:
        for name, part in taken.items():
            recorder.add(stage, name, "", part)

    def abandon_step(self, recorder: Recorder) -> None:
        """Record the same, with the gradients as far as they were computed."""
        self._keep_gradients()
        self._parameters = {name: p for name, p in self._parameters.items() if name in self._gradients}
        self.end_step(recorder)

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
        self._gradients |= _taken(grads, self._keep)

    @contextmanager
    def _unscaled(self) -> Iterator[None]:
        """Divide the gradients that were kept by the scale of a `GradScaler` when it divides its own."""
        kind, original = torch.amp.GradScaler, torch.amp.GradScaler.unscale_

        def unscale_(scaler: Any, optimizer: Any) -> None:
            original(scaler, optimizer)
            if scaler.is_enabled() and self._optimizer in (None, optimizer):
                scale = scaler.get_scale()
                for name, part in self._gradients.items():
                    whole = part.values / np.asarray(scale, part.values.dtype)
                    self._gradients[name] = part._replace(values=whole)

        kind.unscale_ = unscale_  # type: ignore[method-assign]
        try:
            yield
        finally:
            kind.unscale_ = original  # type: ignore[method-assign]

    def _log_gradients(self, recorder: Recorder) -> None:
        """Record all gradients, zeros (as in JAX) where the loss does not reach; before backward,
        none."""
        missing = {
            name: torch.zeros_like(p)
            for name, p in self._parameters.items()
            if p.requires_grad and name not in self._gradients and self._gradients
        }
        known = self._gradients | _taken(missing, self._keep)
        for name in self._parameters:
            if name in known:
                recorder.add("gradients", name, "", known[name])

    def _before_update(self, recorder: Recorder) -> None:
        self._given = bool(self._gradients)
        if recorder.running and self._given:
            self._log_given(recorder)

    def _log_given(self, recorder: Recorder) -> None:
        grads = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        self._log_gradients(recorder)
        self._add(recorder, "clipped", _taken(grads, self._keep, self._gradients))

    def _after_update(self, recorder: Recorder) -> None:
        if not recorder.running or self._optimizer is None:
            return
        if not self._given:  # it was given a closure, as Lightning gives one to all and LBFGS needs
            self._log_given(recorder)
        groups = self._optimizer.param_groups
        rates = {f"group {i}": float(group["lr"]) for i, group in enumerate(groups)}
        recorder.log("learning rate", rates if len(set(rates.values())) > 1 else rates["group 0"])
        states = {
            self._names[id(parameter)]: state
            for parameter, state in self._optimizer.state.items()
            if id(parameter) in self._names  # the optimiser may hold other parameters too
        }
        moments = {
            (name, _SAME.get(str(port), str(port))): value
            for name, state in states.items()
            for port, value in state.items()
            if is_array(value) and value.shape == self._parameters[name].shape and port != "step"
        }
        taken = _taken({f"{name} {port}": x for (name, port), x in moments.items()}, self._keep)
        for name, port in moments:
            recorder.add("moments", name, port, taken[f"{name} {port}"])
        counts = {int(state["step"]) for state in states.values() if "step" in state}
        if len(counts) == 1:  # torch counts steps for every parameter
            recorder.log("moments", counts.pop(), port="step")
        self._updated = True


def _is_seen(recorder: Recorder) -> bool:
    # torch.utils.checkpoint calls modules again in the backward pass, for values that were seen before
    return recorder.running and torch._C._current_graph_task_id() == -1
