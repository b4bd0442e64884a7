"""One call of an operator: what it reads and writes, what a formula says of it, how it runs again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from parity.verifier.programs.mistakes import UnreadableError
from parity.verifier.programs.pools import POOL, pool_of_torch
from parity.verifier.programs.windows import (
    WINDOW,
    transform_of_torch,
    window_of_torch,
)

aten = torch.ops.aten

_SMALL = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64,
          torch.complex64: torch.complex128}  # fmt: skip
LAST = 2**63 - 1
"""The end of a slice that has none."""
VIEWS = {aten.view.default: aten.reshape.default, aten._unsafe_view.default: aten.reshape.default}
"""Views that are run as reshapes: a patched value may have other strides."""


def to_numpy(tensor: torch.Tensor, name: str = "a tensor") -> np.ndarray:
    """Return a tensor's elements as an array, shared where possible.

    Raises:
        UnreadableError: it is sparse, nested, quantised or has no numbers; `name` is what it is called.
    """
    if tensor.is_meta:
        raise UnreadableError(
            f"{name} is on the device meta, so it has no numbers; give it some on the CPU"
        )
    if tensor.is_nested or tensor.is_quantized or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else "quantised" if tensor.is_quantized else "sparse"
        layout = str(tensor.dtype if tensor.is_quantized else tensor.layout).removeprefix("torch.")
        raise UnreadableError(
            f"{name} is {kind} ({layout}), and only dense ones are compared: make it so"
        )
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return (tensor.double() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy()


def name_of(func: Any) -> str:
    """Return an operator's name without its overload; an in-place one is called as the other."""
    return func._schema.name.partition("::")[2].removesuffix("_") or func._schema.name


def widened(tree: Any) -> Any:
    """Replace every small floating point type among arguments by float64."""
    flat, structure = tree_flatten(tree)
    return tree_unflatten(
        [_SMALL.get(each, each) if isinstance(each, torch.dtype) else each for each in flat], structure
    )


def is_number(func: Any, position: int) -> bool:
    """Return whether an argument is a number that is computed with, not an axis or a size."""
    arguments = func._schema.arguments
    return position < len(arguments) and str(arguments[position].type) in (
        "number",
        "Scalar",
        "float",
        "Tensor",
    )


def written_by(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the tensors among the arguments that an operator writes into."""
    if not func._schema.is_mutable:
        return []
    written = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            written += (
                value if isinstance(value, (list, tuple)) else [value] if value is not None else []
            )
    return written


def attributes_of(func: Any, args: Any, kwargs: Any) -> tuple[str, dict[str, Any]]:
    """Return what a formula shows of a call besides its operands, and what causes read of it."""
    name = name_of(func)
    if name == "convolution":
        window = window_of_torch(args)
        return window.text, {WINDOW: window}
    if name in ("_fft_r2c", "_fft_c2r", "_fft_c2c"):
        return transform_of_torch(name, args), {}
    pool = pool_of_torch(name, args) if not kwargs else None
    extra = {} if pool is None else {POOL: pool}
    return ", ".join(each.replace(" ", "") for each in _attributes(func, args, kwargs)), extra


def _attributes(func: Any, args: Any, kwargs: Any) -> list[str]:
    """List axes, sizes and modes."""
    given = [*zip(func._schema.arguments, args, strict=False)]
    given += [(a, kwargs[a.name]) for a in func._schema.arguments if a.name in kwargs]
    attributes = []
    for argument, value in given:
        kind = str(argument.type)
        if (
            isinstance(value, (torch.Tensor, float))
            or value is None
            or "Scalar" in kind
            or kind == "number"
        ):
            continue
        if type(value) is int and value == LAST:
            continue
        if isinstance(value, (int, str)) or (
            isinstance(value, (list, tuple)) and all(type(v) is int for v in value)
        ):
            attributes.append(f"{argument.name}={value}")
    return attributes


@dataclass(frozen=True)
class Pick:
    """The choice of one of several results."""

    number: int

    def __call__(self, operands: Sequence[Any]) -> Any:
        """Return the chosen result, of those in the one operand."""
        return operands[0][self.number]


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator, to be repeated with other operands."""

    func: Any
    fixed: list[Any]
    """Its arguments, flat, without the operands."""
    slots: list[int]
    """Positions of the operands among the arguments."""
    structure: Any
    written: list[int]
    """Positions of the arguments that it writes into."""

    def __call__(self, operands: Sequence[Any]) -> Any:
        """Return the result as arrays; for an operator that writes, what it wrote into."""
        flat = self.filled(
            [
                tensor_of(each) if isinstance(each, (np.ndarray, np.generic)) else each
                for each in operands
            ]
        )
        for position in self.written:
            flat[position] = flat[position].clone()
        args, kwargs = tree_unflatten(flat, self.structure)
        with torch.no_grad():
            result = self.func(*args, **kwargs)
        if self.written:
            return [to_numpy(flat[i]) for i in self.written]
        if isinstance(result, torch.Tensor):
            return to_numpy(result)
        return [to_numpy(each) if isinstance(each, torch.Tensor) else each for each in result]

    def filled(self, operands: Sequence[Any]) -> list[Any]:
        """Return the arguments, flat, with operands in their places."""
        flat = list(self.fixed)
        for position, each in zip(self.slots, operands, strict=True):
            flat[position] = each
        return flat


def is_unset(name: str) -> bool:
    """Return whether an operator gives memory as it finds it, whose numbers mean nothing."""
    return name.removeprefix("new_").partition("_")[0] == "empty"


def zeros_like(tensor: torch.Tensor) -> OperatorCall:
    """Return a call that makes zeros of a tensor's shape and type, from no operands."""
    return _call(aten.zeros.default, None, list(tensor.shape), dtype=tensor.dtype)


def copy_of(target: torch.Tensor, given: torch.Tensor) -> OperatorCall | None:
    """Return a call that makes what a tensor holds after another was copied into it, whatever it held
    before; None between types that do not both have fractions, or of another type and shape."""
    if target.dtype != given.dtype:
        if target.shape != given.shape or not (target.is_floating_point() and given.is_floating_point()):
            return None
        return _call(aten._to_copy.default, given, dtype=target.dtype)
    if target.shape == given.shape:
        return _call(aten.clone.default, given)
    return _call(aten.expand_copy.default, given, list(target.shape))


def _call(func: Any, operand: Any, *args: Any, **kwargs: Any) -> OperatorCall:
    """Return a call with one operand in front of fixed arguments, or with none."""
    given = args if operand is None else (operand, *args)
    flat, structure = tree_flatten((given, kwargs))
    slots = [] if operand is None else [0]
    return OperatorCall(
        func, [None if i in slots else each for i, each in enumerate(flat)], slots, structure, []
    )


def tensor_of(array: Any) -> torch.Tensor:
    """Return a numpy array as a tensor, copied where torch cannot share it."""
    array = np.asarray(array)
    if any(stride < 0 for stride in array.strides) or not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)
