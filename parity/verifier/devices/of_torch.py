"""A program of PyTorch as it runs on a device: in its own types, by that device's kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from parity.verifier.devices.step import MOVES, About, Run, Signature, Step, kinds_of, nudge
from parity.verifier.programs.aten.calls import name_of
from parity.verifier.programs.aten.context import Context, outputs_of
from parity.verifier.programs.callables import is_floating, map_arrays
from parity.verifier.programs.names import TORCH_NAMES
from parity.verifier.programs.sides import GivenSide
from vit_config import ConfigError
from vit_torch.weights import from_numpy, to_numpy

ATTRIBUTES = 60
"""Most characters of an operation's numbers and flags that are kept."""


def run(given: GivenSide, device: str) -> Run:
    """Run a program whole, and again operation by operation.

    Modules run in evaluation mode. What is compiled is recorded before its compilation.

    Raises:
        ConfigError: there is no such device.
    """
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"device {device}: {str(error).splitlines()[0]}") from None

    def placed(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            value = from_numpy(_own(value, given))
        return value.to(device) if isinstance(value, torch.Tensor | torch.nn.Module) else value

    if given.promises_more and next(given.function.parameters()).dtype == torch.float64:
        given.function.float()
    args, kwargs = map_arrays(placed, given.args), map_arrays(placed, given.kwargs)
    function = placed(given.function)
    modules = [e for e in (function, *given.args) if isinstance(e, torch.nn.Module)]
    for module in modules:
        module.eval()

    def outputs(args: Any = args, kwargs: Any = kwargs) -> list[tuple[str, np.ndarray]]:
        found = outputs_of(function(*args, **kwargs))
        return [(path, _array(each)) for path, each in found]

    whole = outputs()
    recorder = _Recorder({id(each): path for m in modules for path, each in m.named_modules()})
    with recorder:
        getattr(function, "_orig_mod", function)(*args, **kwargs)
    about = About("torch", torch.__version__, _name_of(device))
    return Run(about, recorder.steps, whole, partial(_nudged, modules, (args, kwargs), outputs))


def _own(array: np.ndarray, given: GivenSide) -> np.ndarray:
    """Return an input in the type of the model's parameters, where NumPy or a preset made it another."""
    other = array.dtype == np.float64 or given.promises_more
    if not other or not is_floating(array) or not isinstance(given.function, torch.nn.Module):
        return array
    kinds = [each.dtype for each in given.function.parameters() if each.is_floating_point()]
    return array if not kinds else to_numpy(from_numpy(array).to(kinds[0]))


def _nudged(
    modules: Sequence[torch.nn.Module], inputs: tuple[Any, Any], outputs: Callable[..., Any], seed: int
) -> list[np.ndarray]:
    """Return the outputs of a whole run whose parameters and inputs are moved by a rounding each."""
    rng = np.random.default_rng(seed)

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return from_numpy(nudge(to_numpy(value), rng)).to(value.device)

    tensors = [each.data for module in modules for each in module.parameters()]
    before = [each.clone() for each in tensors]
    try:
        for each in tensors:
            each.copy_(moved(each))
        return [each for _, each in outputs(*map_arrays(moved, inputs))]
    finally:
        for each, old in zip(tensors, before, strict=True):
            each.copy_(old)


class _Recorder(TorchDispatchMode):
    """Keeps each operation that computes, with copies of what it read and made."""

    def __init__(self, modules: dict[int, str]) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._context = Context(modules)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch._dynamo would be imported, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat, structure = tree_flatten((args, kwargs or {}))
        places = [i for i, each in enumerate(flat) if isinstance(each, torch.Tensor)]
        name = TORCH_NAMES.get(name_of(func), name_of(func))
        if name in MOVES or "empty" in name or not places:  # what is empty holds any numbers
            return func(*args, **kwargs or {})
        operands = [to_numpy(flat[i]) for i in places]
        result = func(*args, **kwargs or {})
        results = [_array(each) for each in tree_flatten(result)[0] if isinstance(each, torch.Tensor)]
        if any(map(is_floating, results)):
            others = [str(each) for each in flat if type(each) in (int, float, bool, str)]
            numbers = ", ".join(others)[:ATTRIBUTES]
            like = {i: _Layout.of(flat[i]) for i in places}
            rest = [None if i in like else each for i, each in enumerate(flat)]
            again = partial(_again, func, rest, structure, like)
            seeded = torch.Tag.nondeterministic_seeded in func.tags  # attention, too, without dropout
            draws = seeded and not _are_equal(again(operands), results)
            signature = Signature(name, kinds_of(operands), kinds_of(results), numbers)
            line = self._context.where()
            self.steps.append(Step(signature, line, operands, results, again, draws))
        return result


class _Layout(NamedTuple):
    """How a tensor lies in memory, without its numbers."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Layout:
        """Describe a tensor; one whose elements share memory, as if they did not."""
        reach = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        tensor = tensor.contiguous() if reach < tensor.numel() else tensor
        return cls(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)

    def filled(self, values: np.ndarray) -> torch.Tensor:
        """Return a tensor that lies so."""
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return made.copy_(from_numpy(values))


def _again(
    func: Any, rest: Sequence[Any], structure: Any, like: Mapping[int, _Layout],
    operands: Sequence[np.ndarray],
) -> list[np.ndarray]:  # fmt: skip
    """Run an operation on other operands of the same types and shapes, each laid out as it was."""
    filled = list(rest)
    for (i, layout), each in zip(like.items(), operands, strict=True):
        filled[i] = layout.filled(each)
    args, kwargs = tree_unflatten(filled, structure)
    with torch.no_grad():
        made = tree_flatten(func(*args, **kwargs))[0]
    return [_array(each) for each in made if isinstance(each, torch.Tensor)]


def _are_equal(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    """Return whether the floating point arrays of two runs are the same."""
    pairs = zip(some, others, strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs if is_floating(a))


def _array(value: Any) -> np.ndarray:
    return to_numpy(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _name_of(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"cpu ({torch.backends.cpu.get_cpu_capability()})" if device == "cpu" else device
