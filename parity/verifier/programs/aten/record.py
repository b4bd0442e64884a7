"""A torch program, operation by operation: what reaches the dispatcher, forward or backward.

The program runs once, with its own Python control flow; composite operators are taken apart. Whatever
number type it asks for, it runs in float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from parity.verifier.programs.aten.calls import (
    VIEWS,
    OperatorCall,
    Pick,
    attributes_of,
    copy_of,
    is_number,
    is_unset,
    name_of,
    to_numpy,
    widened,
    written_by,
    zeros_like,
)
from parity.verifier.programs.aten.context import Context, named_leaves
from parity.verifier.programs.aten.flex import uncompiled
from parity.verifier.programs.aten.rules import DECOMPOSITIONS
from parity.verifier.programs.aten.storage import strided
from parity.verifier.programs.aten.tensors import Tensors
from parity.verifier.programs.callables import described, is_cache, is_floating, numbers_of
from parity.verifier.programs.jaxprs.values import rounding_of
from parity.verifier.programs.memory import check, of_leaves
from parity.verifier.programs.names import LAYOUT, TORCH_NAMES
from parity.verifier.programs.operation import DRAWN, Kind, Operation, Ref
from parity.verifier.programs.program import Program

aten = torch.ops.aten
PRODUCTS = ("matmul", "addmm", "addbmm", "baddbmm", "conv", "linear")
"""Operations that autocast computes in a smaller type."""


def record_torch(
    function: Callable[..., Any],
    leaves: Sequence[tuple[Kind, str, torch.Tensor, float]],
    name: str,
    modules: dict[int, str] | None = None,
    *,
    gradients: bool = False,
    as_it_is: bool = False,
    own: bool = False,
) -> Program:
    """Run a function of no arguments and record it.

    Args:
        function: runs the program; what it reads is in float64.
        leaves: for each tensor that it reads: kind, path, tensor, rounding of the type that it came in.
        name: what the program is called.
        modules: paths of modules by their `id`.
        gradients: whether it runs backward; then all that it computes stays in memory until it ends.
        as_it_is: run it in the types that it asks for, composite operators as they are, and note the
            rounding of every result; run again, operations compute in float64.
        own: run it in the types that it asks for, for it refuses others; `in_float64` runs it again.
    """
    numbers = {id(tensor): tensor.numel() for _, _, tensor, _ in leaves}
    check(of_leaves(sum(numbers.values())), "recording its operations")
    recorder = _Recorder(Program(name), Context(modules or {}), hold=gradients, as_it_is=as_it_is)
    recorder.own = own or as_it_is
    for kind, label, tensor, epsilon in leaves:
        recorder.leaf(tensor, kind, label, epsilon)
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        fast = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)  # where a whole layer is one operation
        if not recorder.own:
            torch.set_default_dtype(torch.float64)
        stack.enter_context(recorder.context.module_hooks())
        stack.enter_context(recorder.context.autocasts())
        if gradients:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")  # it keeps the lines
            stack.enter_context(torch.autograd.detect_anomaly(check_nan=False))
        else:
            stack.enter_context(torch.no_grad())
        stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        stack.enter_context(uncompiled())
        with recorder:
            result = function()
        program = recorder.program
        program.built = recorder.context.built
        for path, each in named_leaves(result):
            tensor = each if isinstance(each, torch.Tensor) else recorder.number(path, each)
            if tensor is None and is_cache(each):
                program.notes.append(f"returns {described(path, each)}, a cache, which is not compared")
                continue
            if tensor is None:
                program.without_numbers.append(described(path, each))
                continue
            index = recorder.node(tensor)
            program.outputs.append((path, index))
            program.keep(index, to_numpy(tensor), always=True)
            if as_it_is:
                program.ran.append(to_numpy(tensor).astype(np.float64))
    return program


def returns_draws(program: Program) -> bool:
    """Return whether an output depends on random numbers: those of a model's initial values, replaced
    before it runs, do not count."""
    seen: set[int] = set()
    stack = [index for _, index in program.outputs]
    while stack:
        index = stack.pop()
        if index not in seen:
            seen.add(index)
            op = program.operations[index]
            if DRAWN in op.extra:
                return True
            stack += op.inputs
    return False


def in_float64(program: Program) -> Program:
    """Compute a program that ran in its own types again in float64."""
    for op in program.operations:
        value = program.cache.get(op.index)
        if op.run is None and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            program.cache[op.index] = value.astype(np.float64)
            op.dtype = "float64"
        if isinstance(op.run, OperatorCall):
            op.run = replace(op.run, fixed=widened(op.run.fixed))
    again = [op.index for op in program.operations if op.run is not None]
    for index in again:
        program.cache.pop(index, None)
    program.refresh(again)
    return program


class _Recorder(Tensors, TorchDispatchMode):
    def __init__(self, program: Program, context: Context, *, hold: bool, as_it_is: bool) -> None:
        TorchDispatchMode.__init__(self)
        Tensors.__init__(self, program, context, hold=hold, as_it_is=as_it_is)
        self.scope = ""
        self.own = False
        """Whether the program runs in the types that it asks for."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch._dynamo would be imported, which takes longer than a tiny pair

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.as_it_is:
            return self.record(func, args, kwargs or {})
        self.narrows(args, kwargs or {})
        self.autocasts(func)
        kwargs = kwargs or {}
        args, kwargs = (args, kwargs) if self.own else (widened(args), widened(kwargs))
        rule = DECOMPOSITIONS.get(func)
        if rule is not None:
            outer = self.scope, self.line
            self.line = self.line or self.context.where()
            self.scope = self.scope or name_of(func)
            try:
                with self:
                    result = rule(*args, **kwargs)
            finally:
                self.scope, self.line = outer
            if result is not NotImplemented:
                return result
        return self.record(func, args, kwargs)

    def number(self, path: str, value: Any) -> torch.Tensor | None:
        """Return a tensor of what a program returns as numbers of Python or of NumPy; None if it is no
        numbers."""
        array = numbers_of(value)
        if array is None:
            return None
        # in its own types the program computes in float32, for all that Python's numbers tell
        epsilon = rounding_of("float32" if self.own and type(value) is float else array.dtype)
        tensor = torch.from_numpy(array.astype(np.float64) if is_floating(array) else np.array(array))
        self.program.cut_off.add(self.leaf(tensor, "constant", path or "output", epsilon))
        return tensor

    def narrows(self, args: Any, kwargs: Any) -> None:
        """Note a line that asks for a smaller type of a floating point tensor."""
        asked = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.dtype)]
        if asked and isinstance(args[0], torch.Tensor) and rounding_of(asked[0]):
            line = self.line or self.context.where()
            if line is not None and args[0].is_floating_point():
                self.program.narrowed.setdefault(line, str(asked[0]).removeprefix("torch."))

    def autocasts(self, func: Any) -> None:
        """Note a line whose product `torch.autocast` would compute in a smaller type; what is in float64
        it leaves alone."""
        if (
            self.context.autocast is None
            or TORCH_NAMES.get(name_of(func), name_of(func)) not in PRODUCTS
        ):
            return
        line, asked = self.line or self.context.where(), self.context.autocast
        if line is not None and asked is not None:
            self.program.narrowed.setdefault(line, str(asked).removeprefix("torch."))

    def record(self, func: Any, args: Any, kwargs: Any) -> Any:
        flat, structure = tree_flatten((args, kwargs))
        operands: list[Any] = []
        slots: list[int] = []
        for position, each in enumerate(flat):
            if isinstance(each, torch.Tensor):
                operands.append(Ref(self.node(each)))
                slots.append(position)
            elif isinstance(each, float) or (type(each) is int and is_number(func, position)):
                operands.append(each)
                slots.append(position)
        writes = written_by(func, args, kwargs)
        written = [i for i, each in enumerate(flat) if any(each is w for w in writes)]
        name = name_of(func)
        common = TORCH_NAMES.get(name, name)
        fixed = [None if i in slots else each for i, each in enumerate(flat)]
        label, extra = attributes_of(func, args, kwargs)
        first = next((each for each in flat if isinstance(each, torch.Tensor)), None)
        for each in writes:
            self.unshare(each)
        result = func(*args, **kwargs)
        line = self.line or self.context.where()
        if is_unset(name) and isinstance(result, torch.Tensor):
            result.zero_()  # or the numbers would be those that lay there before
            op = Operation(-1, "empty", (), zeros_like(result), source=line, module=self.context.module)
            self.add(op, result, to_numpy(result))
            return result
        if func is aten.copy_.default and not self.as_it_is and (run := copy_of(*args[:2])) is not None:
            op = Operation(-1, "copy", (Ref(self.node(args[1])),), run, source=line,
                           module=self.context.module, scope=self.scope, is_layout=True)  # fmt: skip
            self.wrote(args[0], self.add(op, None, to_numpy(args[0]).copy()))
            return result
        layout = common in LAYOUT or (
            common == "convert" and first is not None and isinstance(result, torch.Tensor)
            and first.dtype.is_floating_point == result.dtype.is_floating_point
        )  # fmt: skip
        run: Any = OperatorCall(VIEWS.get(func, func), widened(fixed), slots, structure, written)
        if func is aten.as_strided.default:
            run = strided(*args)

        random = torch.Tag.nondeterministic_seeded in func.tags
        if random and "attention" not in name:  # which draws only where it drops weights, by an own call
            self.program.draws[str(line or name)] = None
            extra = {**extra, DRAWN: True}

        def made(operands: tuple[Any, ...], run: Callable[..., Any], label: str) -> Operation:
            return Operation(-1, common, operands, run, "operation", label, line, self.context.module,
            self.scope,
                             is_layout=layout and not written, extra=extra)  # fmt: skip

        if written:
            tensors = [flat[i] for i in written]
            whole = self.add(made(tuple(operands), run, label), None, None)
            for i, tensor in enumerate(tensors):
                op = made((Ref(whole),), Pick(i), "")
                op.epsilon = rounding_of(tensor.dtype) if self.as_it_is else 0.0
                index = self.add(op, None, to_numpy(tensor).copy(), always=random)
                self.wrote(tensor, index)
            return result
        if isinstance(result, torch.Tensor):
            value = to_numpy(result)
            self.add(made(tuple(operands), run, label), result, value, always=random)
        elif isinstance(result, (tuple, list)):
            whole = self.add(made(tuple(operands), run, label), None, None)
            for i, each in enumerate(result):
                if isinstance(each, torch.Tensor):
                    op = made((Ref(whole),), Pick(i), f"[{i}]")
                    op.is_layout = False
                    self.add(op, each, to_numpy(each), always=random)
        return result
