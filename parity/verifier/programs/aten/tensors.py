"""Keeping track of the operation whose value each tensor holds now: by the tensor's identity, and once
it was written into, by its memory.

Writing into a tensor yields a new value; views of the written memory are taken anew.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from parity.verifier.programs.aten.calls import to_numpy
from parity.verifier.programs.aten.context import Context
from parity.verifier.programs.aten.storage import (
    Geometry,
    Write,
    WrittenStorage,
    WrittenView,
    geometry_of,
)
from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.jaxprs.values import rounding_held, rounding_of
from parity.verifier.programs.operation import Kind, Operation, Ref, Source
from parity.verifier.programs.program import Program


class Tensors:
    """A program being recorded, and the operation of every tensor that is alive."""

    def __init__(self, program: Program, context: Context, *, hold: bool, as_it_is: bool) -> None:
        self.program, self.context, self.hold, self.as_it_is = program, context, hold, as_it_is
        self.nodes: dict[int, tuple[Any, int, int, int]] = {}
        """A weak reference to a tensor, its operation, how often its storage had been written, and the
        address of that storage; by the tensor's id."""
        self.held: list[torch.Tensor] = []
        self.places: dict[Any, torch.Tensor] = {}
        """The last tensor at an address and of a geometry, in a program that runs backward."""
        self.storages: dict[int, WrittenStorage] = {}
        self.whole: dict[int, tuple[int, Geometry]] = {}
        """The last operation that holds all of a storage, and how it lies there, by the address: pieces
        of what torch splits unsafely, as in its GRU, do not know their base."""
        self.sharing: dict[int, list[int]] = {}
        """The operations whose cached values lie in a storage, by its address."""
        self.line: Source | None = None
        """Line of the composite operator that runs."""

    def leaf(self, tensor: torch.Tensor, kind: Kind, label: str, epsilon: float) -> int:
        """Return the operation of a tensor from outside, appended if it is new."""
        known = self.known(tensor)
        if known is not None:
            return known[1]
        self.held.append(tensor)
        name = f"the {kind} {label}" if label != kind else f"a {kind}"
        value = to_numpy(tensor, name)  # where the program writes into it, it is copied before
        return self.add(
            Operation(-1, kind, (), None, kind, label, epsilon=epsilon), tensor, value, always=True
        )

    def add(self, op: Operation, tensor: Any, value: Any, *, always: bool = False) -> int:
        """Append an operation and return its index; `tensor` holds its value, or is None."""
        op.index = len(self.program)
        self.program.operations.append(op)
        if isinstance(value, np.ndarray):
            op.shape, op.dtype = value.shape, str(value.dtype)
            inherited = (
                self.program.operations[op.inputs[0]].mark if op.is_layout and op.inputs else None
            )
            op.mark = fingerprint(value) if inherited is None else inherited
        if value is not None:  # several results are computed again where one of them is not cached
            self.program.keep(op.index, value, always=always)
        if isinstance(tensor, torch.Tensor):
            if self.as_it_is:
                op.epsilon = rounding_of(tensor.dtype)
            self.register(tensor, op.index)
            self.sharing.setdefault(tensor.untyped_storage().data_ptr(), []).append(op.index)
        return op.index

    def unshare(self, tensor: Any) -> None:
        """Copy the cached values that lie in a tensor's memory, before that memory is written to."""
        for index in self.sharing.pop(tensor.untyped_storage().data_ptr(), ()):
            value = self.program.cache.get(index)
            if isinstance(value, np.ndarray):
                self.program.cache[index] = value.copy()

    def register(self, tensor: torch.Tensor, index: int) -> None:
        """Note that a tensor holds an operation's value."""
        key = id(tensor)
        if self.hold and torch.is_grad_enabled():  # or autograd saves none of it
            self.held.append(tensor)
            self.places[(tensor.data_ptr(), *geometry_of(tensor))] = tensor
        address = tensor.untyped_storage().data_ptr()
        if _is_whole(tensor):
            self.whole[address] = index, geometry_of(tensor)
        self.nodes[key] = (weakref.ref(tensor), index, self.writes(tensor), address)

    def known(self, tensor: torch.Tensor) -> tuple[Any, int, int, int] | None:
        """Return what is noted of a tensor; None if it is new, or its `data` was replaced."""
        note = self.nodes.get(id(tensor))
        if note is None or note[0]() is not tensor:
            return None
        return note if note[3] == tensor.untyped_storage().data_ptr() else None

    def writes(self, tensor: torch.Tensor) -> int:
        """Return how often the memory of a tensor was written to."""
        storage = self.storages.get(tensor.untyped_storage()._cdata)
        return storage.writes if storage is not None else 0

    def node(self, tensor: torch.Tensor) -> int:
        """Return the operation whose value a tensor holds now."""
        known = self.known(tensor)
        index = known[1] if known is not None else self.twin(tensor)
        if index is None:
            index = self.leaf(tensor, "constant", "constant", rounding_held(to_numpy(tensor)))
            known = self.nodes[id(tensor)]
        storage = self.storages.get(tensor.untyped_storage()._cdata)
        if storage is not None and (known is None or known[2] < storage.writes):
            index = self.again(tensor, storage)
        return index

    def twin(self, tensor: torch.Tensor) -> int | None:
        """Return the operation of a tensor that autograd unpacked as a new one of the same storage."""
        other = self.places.get((tensor.data_ptr(), *geometry_of(tensor)))
        return None if other is None else self.nodes[id(other)][1]

    def again(self, tensor: torch.Tensor, storage: WrittenStorage) -> int:
        """Record what a view holds after its storage was written to."""
        if storage.geometry == geometry_of(tensor):
            self.register(tensor, storage.index)
            return storage.index
        run = WrittenView(storage.geometry, geometry_of(tensor), storage.length)
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

    def wrote(self, tensor: torch.Tensor, index: int) -> None:
        """Note that a tensor was written to; if it is a part of a storage, that has a new value too."""
        storage = tensor.untyped_storage()
        known = self.storages.get(storage._cdata)
        length = storage.nbytes() // tensor.element_size()
        if known is None:
            base = tensor if tensor._base is None else tensor._base
            known = WrittenStorage(length, index, geometry_of(tensor), base)
            self.storages[storage._cdata] = known
            around = None if _is_whole(base) else self.whole.get(storage.data_ptr())
            if around is not None:
                self.scatter(known, *around, tensor, index)
            elif base is not tensor:
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
        self, storage: WrittenStorage, before: int | None, outer: Any, tensor: torch.Tensor, index: int
    ) -> None:
        """Record the whole of a storage after a part of it was written to."""
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


def _is_whole(tensor: torch.Tensor) -> bool:
    """Return whether each number of a tensor's storage is in the tensor."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
