"""A region of a program as a Python function, and the arrays that it is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.measure.tolerance import FLOAT64
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program
from parity.verifier.search.region import Region
from vit_config import InputError
from vit_config.errors import one_line

_RESULT = {
    "torch": ("torch.tensor({})", "{}.numpy() * 1.0"),
    "jax": ("jnp.asarray({})", "np.asarray({}) * 1.0"),
    "numpy": ("{}", "{} * 1.0"),
}
"""How a framework is given an array, and its result made one of numpy."""


@dataclass
class Arrays:
    """The arrays that both functions are given, by name; none of their numbers are in the text."""

    held: dict[str, np.ndarray] = field(default_factory=dict)

    def give(self, value: Any) -> str:
        """Return the name of an array: of one that both sides read, if there is such a one."""
        value = np.asarray(value, order="C")
        for name, each in self.held.items():
            if (each.shape, each.dtype) == (value.shape, value.dtype) and distance(
                each, value
            ) <= FLOAT64:
                return name
        self.held[f"x{len(self.held)}"] = value
        return f"x{len(self.held) - 1}"


@dataclass(frozen=True)
class CodeSide:
    """One side of a place as code."""

    framework: str
    """torch, jax, or numpy where nothing is computed."""
    lines: tuple[str, ...]
    """The function."""
    result: str
    """Expression of what it returns for its arrays."""


def side_of(letter: str, region: Region, arrays: Arrays, given: np.ndarray | None = None) -> CodeSide:
    """Write a region as a function.

    Args:
        letter: the function's name.
        region: operations, and the value at their end.
        arrays: what functions are given; extended by what the region reads.
        given: the value at the end, where the region has no operations.

    Raises:
        InputError: it reads what no array holds, such as the key of a random generator.
    """
    program, end = region.program, region.end
    operations, outside = _closed(program, set(region.operations), end)
    operations = [each for each in operations if each <= end]
    framework = _framework(program, operations)
    names, body, last = {}, [], ""
    for index, value in outside.items():
        names[index] = arrays.give(given if given is not None and index == end else value)
        op = program.operations[index]
        what = (op.label if op.run is None else op.name) or op.kind
        body.append(_comment(f"{names[index]}: {program.name} reads {what}", op.source))
    read = dict.fromkeys(names.values())
    for number, index in enumerate(operations):
        op = program.operations[index]
        operands = []
        for each in op.operands:
            plain = not isinstance(each, Ref) and np.ndim(each) == 0
            name = _literal(each) if plain else names[each.index] if isinstance(each, Ref) else ""
            operands.append(name or arrays.give(each))
            if not name:
                read[operands[-1]] = None
        *before, expression = _code(framework, op, operands)
        names[index] = f"v{number}"
        note = f"  {_comment('', op.source)}" if op.source and str(op.source) != last else ""
        last = str(op.source or last)
        body += [*before, f"v{number} = {expression}{note}"]
    body.append(f"return {names[end]}")
    into, out = _RESULT[framework]
    called = ", ".join(into.format(f'arrays["{name}"]') for name in read)
    lines = (f"def {letter}({', '.join(read)}):", *(f"    {line}" for line in body))
    return CodeSide(framework, lines, out.format(f"{letter}({called})"))


def _comment(text: str, source: Any) -> str:
    """Return a comment of what programs and files call things, which cannot leave its line."""
    return f"# {one_line(' '.join(filter(None, (text, str(source or '')))))}"


def _closed(program: Program, inside: set[int], end: int) -> tuple[list[int], dict[int, Any]]:
    """Return a region's operations, with those before it whose results are no arrays, and the values
    that they read."""
    while True:
        read = {i for index in inside for i in program.operations[index].inputs} - inside
        wanted = sorted(read | ({end} - inside))
        values = program.values(wanted)
        more = {i for i in wanted if not isinstance(values[i], np.ndarray | np.generic)}
        if not more:
            return sorted(inside), values
        for index in more:
            if program.operations[index].run is None:
                raise InputError(
                    f"{program.name}: {program.operations[index].label or 'a constant'} is no array of"
                    " numbers; no program can be written"
                )
        inside = inside | more


def _framework(program: Program, operations: list[int]) -> str:
    if not operations:
        return "numpy"
    runs = (program.operations[each].run for each in operations)
    return "torch" if any(".aten." in type(run).__module__ for run in runs) else "jax"


def _code(framework: str, op: Operation, operands: list[str]) -> list[str]:
    if framework == "torch":
        from parity.verifier.repro.torch_code import torch_code

        return torch_code(op.run, operands)
    from parity.verifier.repro.jax_code import jax_code

    return jax_code(op, operands)


def _literal(value: Any) -> str:
    plain = np.asarray(value).item()
    return repr(plain) if not isinstance(plain, float) or np.isfinite(plain) else f'float("{plain}")'
