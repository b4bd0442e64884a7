"""A torch program, operation by operation: what reaches the dispatcher, forward or backward.

The program runs once, with its own Python control flow; composite operators are taken apart. Whatever
number type it asks for, it runs in float64. Writing into a tensor yields a new value; views of what was
written are taken anew.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from parity.verifier.operations.aten.calls import (
    VIEWS,
    Call,
    Pick,
    attributes_of,
    is_number,
    name_of,
    to_numpy,
    widened,
    written_by,
)
from parity.verifier.operations.aten.context import Context, named_tensors
from parity.verifier.operations.aten.rules import DECOMPOSITIONS
from parity.verifier.operations.aten.storage import Storage, View, Write, geometry_of
from parity.verifier.operations.fingerprint import fingerprint
from parity.verifier.operations.jaxprs.values import rounding_of
from parity.verifier.operations.names import LAYOUT, TORCH_NAMES
from parity.verifier.operations.program import Kind, Operation, Program, Ref, Source

aten = torch.ops.aten


def record_torch(
    function: Callable[..., Any],
    leaves: Sequence[tuple[Kind, str, torch.Tensor, float]],
    name: str,
    modules: dict[int, str] | None = None,
    *,
    gradients: bool = False,
    as_it_is: bool = False,
) -> Program:
    """Run a function of no arguments and record it.

    Args:
        function: runs the program; what it reads is in float64.
        leaves: what its tensors are: kind, path, tensor, rounding of the type that it came in.
        name: what the program is called.
        modules: paths of modules by their `id`.
        gradients: whether it runs backward; then all that it computes stays in memory until it ends.
        as_it_is: run it in the types that it asks for, composite operators as they are, and note the
            rounding of every result; run again, operations compute in float64.
    """
    recorder = _Recorder(Program(name), Context(modules or {}), hold=gradients, as_it_is=as_it_is)
    for kind, label, tensor, epsilon in leaves:
        recorder.leaf(tensor, kind, label, epsilon)
    default = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, default)
        if not as_it_is:
            torch.set_default_dtype(torch.float64)
        stack.enter_context(recorder.context.module_hooks())
        if gradients:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")  # it keeps the lines
            stack.enter_context(torch.autograd.detect_anomaly(check_nan=False))
        else:
            stack.enter_context(torch.no_grad())
        stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        with recorder:
            result = function()
        program = recorder.program
        for path, tensor in named_tensors(result):
            index = recorder.node(tensor)
            program.outputs.append((path, index))
            program.keep(index, to_numpy(tensor), always=True)
            if as_it_is:
                program.ran.append(to_numpy(tensor).astype(np.float64))
    return program


class _Recorder(TorchDispatchMode):
    def __init__(self, program: Program, context: Context, *, hold: bool, as_it_is: bool) -> None:
        super().__init__()
        self.as_it_is = as_it_is
        self.program, self.context, self.hold = program, context, hold
        self.nodes: dict[int, tuple[Any, int, int]] = {}
        """By id of a tensor: a weak reference to it, its operation, and the writes its storage had
        seen."""
        self.held: list[torch.Tensor] = []
        self.places: dict[Any, torch.Tensor] = {}
        """Of a program that runs backward: the last tensor at an address, of a geometry."""
        self.storages: dict[int, Storage] = {}
        self.sharing: dict[int, list[int]] = {}
        """By address of a storage: the operations whose values were kept in it."""
        self.scope = ""
        self.line: Source | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch._dynamo would be imported, which takes longer than a tiny pair

    def leaf(self, tensor: torch.Tensor, kind: Kind, label: str, epsilon: float) -> int:
        key = id(tensor)
        if key in self.nodes and self.nodes[key][0]() is tensor:
            return self.nodes[key][1]
        self.held.append(tensor)
        value = to_numpy(tensor).copy()  # the program may write into it
        return self.add(
            Operation(-1, kind, (), None, kind, label, epsilon=epsilon), tensor, value, always=True
        )

    def add(self, op: Operation, tensor: Any, value: Any, *, always: bool = False) -> int:
        op.index = len(self.program)
        self.program.operations.append(op)
        if isinstance(value, np.ndarray):
            op.shape, op.dtype = value.shape, str(value.dtype)
            inherited = (
                self.program.operations[op.inputs[0]].mark if op.is_layout and op.inputs else None
            )
            op.mark = fingerprint(value) if inherited is None else inherited
        self.program.keep(op.index, value, always=always)
        if isinstance(tensor, torch.Tensor):
            if self.as_it_is:
                op.epsilon = rounding_of(tensor.dtype)
            self.register(tensor, op.index)
            self.sharing.setdefault(tensor.untyped_storage().data_ptr(), []).append(op.index)
        return op.index

    def unshare(self, tensor: Any) -> None:
        """Before memory is written to, the values that were kept in it become copies."""
        for index in self.sharing.pop(tensor.untyped_storage().data_ptr(), ()):
            value = self.program.kept.get(index)
            if isinstance(value, np.ndarray):
                self.program.kept[index] = value.copy()

    def register(self, tensor: torch.Tensor, index: int) -> None:
        key = id(tensor)
        if self.hold:
            self.held.append(tensor)
            self.places[(tensor.data_ptr(), *geometry_of(tensor))] = tensor
        self.nodes[key] = (weakref.ref(tensor), index, self.writes(tensor))

    def writes(self, tensor: torch.Tensor) -> int:
        storage = self.storages.get(tensor.untyped_storage()._cdata)
        return storage.writes if storage is not None and storage.alive() else 0

    def node(self, tensor: torch.Tensor) -> int:
        """The operation whose value a tensor holds now."""
        known = self.nodes.get(id(tensor))
        index = known[1] if known is not None and known[0]() is tensor else self.twin(tensor)
        if index is None:
            index = self.leaf(tensor, "constant", "constant", 0.0)
            known = self.nodes[id(tensor)]
        storage = self.storages.get(tensor.untyped_storage()._cdata)
        if storage is not None and storage.alive() and (known is None or known[2] < storage.writes):
            index = self.again(tensor, storage)
        return index

    def twin(self, tensor: torch.Tensor) -> int | None:
        """Autograd unpacks what it saved as a new tensor of the same storage."""
        other = self.places.get((tensor.data_ptr(), *geometry_of(tensor)))
        return None if other is None else self.nodes[id(other)][1]

    def again(self, tensor: torch.Tensor, storage: Storage) -> int:
        """What a view holds after its storage was written to."""
        if storage.geometry == geometry_of(tensor):
            self.register(tensor, storage.index)
            return storage.index
        run = View(storage.geometry, geometry_of(tensor), storage.length)
        op = Operation(
            -1,
            "view",
            (Ref(storage.index),),
            run,
            label="",
            source=self.context.where(),
            module=self.context.module,
        )
        return self.add(op, tensor, to_numpy(tensor))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.as_it_is:
            return self.record(func, args, kwargs or {})
        self.narrows(args, kwargs or {})
        args, kwargs = widened(args), widened(kwargs or {})
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

    def narrows(self, args: Any, kwargs: Any) -> None:
        """Note a line that asks for a smaller type of a floating point tensor."""
        asked = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.dtype)]
        if asked and isinstance(args[0], torch.Tensor) and rounding_of(asked[0]):
            line = self.line or self.context.where()
            if line is not None and args[0].is_floating_point():
                self.program.narrowed.setdefault(line, str(asked[0]).removeprefix("torch."))

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
        label = ", ".join(str(each).replace(" ", "") for each in attributes_of(func, args, kwargs))
        first = next((each for each in flat if isinstance(each, torch.Tensor)), None)
        for each in writes:
            self.unshare(each)
        result = func(*args, **kwargs)
        layout = common in LAYOUT or (
            common == "convert" and first is not None and isinstance(result, torch.Tensor)
            and first.dtype.is_floating_point == result.dtype.is_floating_point
        )  # fmt: skip
        run = Call(VIEWS.get(func, func), widened(fixed), slots, structure, written)
        line = self.line or self.context.where()

        def made(operands: tuple[Any, ...], run: Callable[..., Any], label: str) -> Operation:
            return Operation(-1, common, operands, run, "operation", label, line, self.context.module,
            self.scope,
                             is_layout=layout and not written)  # fmt: skip

        random = torch.Tag.nondeterministic_seeded in func.tags
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

    def wrote(self, tensor: torch.Tensor, index: int) -> None:
        """A tensor was written to; if it is a part of a storage, the storage has a new value too."""
        storage = tensor.untyped_storage()
        known = self.storages.get(storage._cdata)
        length = storage.nbytes() // tensor.element_size()
        if known is None or not known.alive():
            known = self.storages[storage._cdata] = Storage(weakref.ref(tensor), length)
            known.index, known.geometry = index, geometry_of(tensor)
            base = tensor if tensor._base is None else tensor._base
            known.keeper = base
            if base is not tensor:
                entry = self.nodes.get(id(base))
                before = entry[1] if entry is not None else None
                self.scatter(known, before, geometry_of(base), tensor, index)
        elif geometry_of(tensor) == known.geometry:
            known.index = index
        else:
            self.scatter(known, known.index, known.geometry, tensor, index)
        known.writes += 1
        self.register(tensor, index)

    def scatter(
        self, storage: Storage, before: int | None, outer: Any, tensor: torch.Tensor, index: int
    ) -> None:
        """The whole of a storage after a part of it was written to."""
        whole = torch.as_strided(tensor, *outer)
        if before is None:
            before = self.leaf(whole.clone(), "constant", "constant", 0.0)
        op = Operation(
            -1,
            "write",
            (Ref(before), Ref(index)),
            Write(outer, geometry_of(tensor), storage.length),
            source=self.line or self.context.where(),
            module=self.context.module,
        )
        storage.index = self.add(op, None, to_numpy(whole).copy())
        storage.geometry = outer
