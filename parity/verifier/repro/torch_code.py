"""One operation of a torch program as an expression in Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_unflatten

from parity.verifier.programs.aten.calls import OperatorCall, Pick, name_of
from parity.verifier.programs.aten.storage import Write, WrittenView

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "mm": "@", "bmm": "@", "mv": "@",
         "matmul": "@", "eq": "==", "ne": "!=", "ge": ">=", "gt": ">", "le": "<=", "lt": "<",
         "bitwise_and": "&", "bitwise_or": "|"}  # fmt: skip
_BACKEND = frozenset(["device", "layout", "pin_memory", "memory_format", "non_blocking"])
"""Arguments that change no number."""


class Text(str):
    """Code, whose `repr` is the code itself."""

    __slots__ = ()
    __repr__ = str.__str__


def torch_code(run: Any, operands: Sequence[str]) -> list[str]:
    """Return the lines that compute an operation; the last one is the expression of its value.

    Args:
        run: how the program runs it.
        operands: expressions of its operands.
    """
    if isinstance(run, Pick):
        return [f"{operands[0]}[{run.number}]"]
    if isinstance(run, WrittenView | Write):
        return _storage(run, operands)
    assert isinstance(run, OperatorCall), run
    flat = run.filled([Text(each) for each in operands])
    before = []
    for position in run.written:
        before.append(f"written_{position} = {flat[position]}.clone()")
        flat[position] = Text(f"written_{position}")
    args, kwargs = tree_unflatten(flat, run.structure)
    call = _call(run.func, args, kwargs)
    if not run.written:
        return [*before, call]
    return [*before, call, "(" + "".join(f"written_{i}, " for i in run.written).rstrip() + ")"]


def _storage(run: WrittenView | Write, operands: Sequence[str]) -> list[str]:
    lines = [
        f"flat = torch.zeros({run.length}, dtype={operands[0]}.dtype)",
        f"torch.as_strided(flat, *{run.whole}).copy_({operands[0]})",
    ]
    if isinstance(run, WrittenView):
        return [*lines, f"torch.as_strided(flat, *{run.part})"]
    return [*lines, f"torch.as_strided(flat, *{run.part}).copy_({operands[1]})",
            f"torch.as_strided(flat, *{run.whole})"]  # fmt: skip


def _call(func: Any, args: Any, kwargs: Any) -> str:
    name = name_of(func)
    kwargs = {key: each for key, each in kwargs.items() if each is not None and key not in _BACKEND}
    if name in INFIX and len(args) == 2 and not kwargs and not func._schema.is_mutable:
        return f"{_shown(args[0])} {INFIX[name]} {_shown(args[1])}"
    if func._schema.is_mutable:
        name = func._schema.name.partition("::")[2]
    args = list(args)
    while args and args[-1] is None:
        args.pop()
    parts = [_shown(each) for each in args] + [f"{k}={_shown(each)}" for k, each in kwargs.items()]
    return f"aten.{name}({', '.join(parts)})"


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
