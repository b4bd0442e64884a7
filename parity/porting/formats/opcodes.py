"""A machine for pickle opcodes that only builds containers and records.

Python's own unpickler imports and calls whatever a file names. This one cannot: a table of this
package's functions serves known calls, and any other call gives an `Inert` record. It does not recurse,
and counts the memory of its objects against the file's `Budget`. Opcodes of protocol 0 alone are not
read: PyTorch itself reads none of its files.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from parity.porting.formats.allowed import check_allowed, python3_name
from parity.porting.formats.budget import Budget
from parity.porting.formats.calls import call
from parity.porting.formats.inert import Global, Inert, NumpyArray, NumpyType
from parity.porting.formats.numpy_pickles import set_array, set_type
from parity.porting.formats.stack import Stack

_MOST_OPCODES = 4_000_000
_MOST_COPIED = 1_000_000
_LONGEST_LINE = 1 << 16
_COST = 32
_COSTS = {
    "EMPTY_SET": 216, "FROZENSET": 216, "EMPTY_DICT": 96, "EMPTY_LIST": 96,
    "TUPLE": 96, "TUPLE1": 96, "TUPLE2": 96, "TUPLE3": 96, "REDUCE": 512, "OBJ": 512,
    "NEWOBJ": 512, "NEWOBJ_EX": 512, "GLOBAL": 128, "STACK_GLOBAL": 128, "SETITEM": 128,
    "MEMOIZE": 96, "PUT": 96, "BINPUT": 96, "LONG_BINPUT": 96,
}  # fmt: skip
"""Most bytes that an opcode's result takes, in addition to letters and digits in the pickle."""
_IGNORED = {"PROTO", "FRAME"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_FRESH: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_SET": set, "EMPTY_TUPLE": tuple,
}  # fmt: skip
_LITERALS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING",
    "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE",
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
}  # fmt: skip


class Bounded:
    """A file wrapper that never reads past the file's end, whatever length is asked for."""

    def __init__(self, file: BinaryIO, size: int):
        self._file = file
        self._left = size - file.tell()

    def read(self, count: int) -> bytes:
        """Read at most `count` bytes."""
        content = self._file.read(max(0, min(count, self._left)))
        self._left -= len(content)
        return content

    def readline(self) -> bytes:
        """Read one line, at most 64 KiB of it."""
        line = self._file.readline(min(_LONGEST_LINE, self._left))
        self._left -= len(line)
        return line


class Machine(Stack):
    """Reads one pickle after another from a file.

    Args:
        size: size of `file` in bytes.
        persistent: a function that returns an object stored outside of the pickle, by its id.
        budget: budget of the file.
        torchscript: allow the classes of a TorchScript archive.
    """

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        persistent: Callable[[Any], Any],
        budget: Budget,
        *,
        torchscript: bool = False,
    ):
        super().__init__()
        self._file = Bounded(file, size)
        self._size = size
        self._budget = budget
        self._copied = 0
        self._persistent = persistent
        self._torchscript = torchscript

    def load(self) -> Any:
        """Read the next object.

        Raises:
            WeightsError: the pickle names a global that is not allowed.
            ValueError, IndexError, KeyError, TypeError: the pickle is not well-formed.
        """
        self._stack, self._memo = [], {}
        for count, (opcode, argument, _) in enumerate(pickletools.genops(cast(BinaryIO, self._file))):
            if count > _MOST_OPCODES:
                raise ValueError(f"a pickle of more than {_MOST_OPCODES} operations")
            if opcode.name == "STOP":
                return self._take()
            self._step(opcode.name, argument)

    def _step(self, name: str, argument: Any) -> None:
        self._budget.objects(_COSTS.get(name, _COST))
        if name in _LITERALS:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _FRESH:
            self._stack.append(_FRESH[name]())
        elif name in _IGNORED:
            pass
        else:
            method = getattr(self, f"_do_{name.lower()}", None)
            if method is None:
                raise ValueError(f"a pickle with {name}, which no checkpoint needs")
            method(argument)

    def _do_global(self, argument: str) -> None:
        self._push_global(*argument.split(" ", 1))

    def _do_stack_global(self, _: None) -> None:
        name, module = self._take(), self._take()
        self._push_global(module, name)

    def _push_global(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a global whose name is not text")
        module, name = python3_name(module, name)
        check_allowed(module, name, torchscript=self._torchscript)
        self._stack.append(Global(module, name))

    def _do_reduce(self, _: None) -> None:
        args, function = self._take(), self._take()
        self._push_made(call(function, args))

    def _do_newobj(self, _: None) -> None:
        self._do_reduce(_)

    def _push_made(self, value: Any) -> None:
        self._count_copied(value)
        self._stack.append(value)

    def _count_copied(self, value: Any) -> None:
        """Count copies that calls make of the memo: a small pickle could fill any memory with them."""
        if isinstance(value, NumpyArray):
            self._copied += 0 if value.array is None else value.array.nbytes
        elif isinstance(value, list | tuple | dict | set | frozenset | str | bytes):
            self._copied += len(value)
        if self._copied > self._size + _MOST_COPIED:
            raise ValueError("a pickle whose calls make more than it holds")

    def _do_newobj_ex(self, _: None) -> None:
        kwargs, args, cls = self._take(), self._take(), self._take()
        if not isinstance(cls, Global) or not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise TypeError("an object whose class is not named")
        self._stack.append(Inert(cls, args, items=dict(kwargs)))

    def _do_obj(self, _: None) -> None:
        cls, *args = self._take_to_mark()
        self._push_made(call(cls, tuple(args)))

    def _do_build(self, _: None) -> None:
        state, target = self._take(), self._top()
        if isinstance(target, NumpyArray):
            set_array(target, state)
            self._count_copied(target)
        elif isinstance(target, NumpyType):
            set_type(target, state)
        elif isinstance(target, Inert):
            target.state = state
        elif isinstance(target, Global | str | bytes | int | float | list | set | tuple | None):
            raise TypeError(f"state set on {type(target).__name__}")
        # else a dict or a tensor: a state dict's _metadata, a tensor's hooks

    def _do_binpersid(self, _: None) -> None:
        self._stack.append(self._persistent(self._take()))
