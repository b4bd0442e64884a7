"""A region of a program as one short line of mathematics."""

from __future__ import annotations

from collections.abc import Collection
from string import ascii_lowercase

import numpy as np

from parity.verifier.programs.operation import Operation, Ref, Source
from parity.verifier.programs.program import Program
from parity.verifier.report.relation import is_usual
from parity.verifier.search.meeting import Index

LONGEST = 160
_INFIX = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "div": ("/", 2),
          "pow": ("**", 3), "matmul": ("@", 2),
          "eq": ("==", 0), "ge": (">=", 0), "gt": (">", 0), "le": ("<=", 0), "lt": ("<", 0)}  # fmt: skip
_UNSEEN = frozenset(
    ["broadcast", "convert", "copy", "detach", "stop_gradient", "contiguous", "squeeze", "unsqueeze",
     "view"]
)  # fmt: skip
_LETTERS = [*"xyzuvwpqrst", *ascii_lowercase[:15]]


class Letters:
    """Names of the values that formulas read; a value that both programs have has one name."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.of_class: dict[int, str] = {}
        self.legend: dict[str, dict[str, Operation]] = {}
        self.read: list[tuple[str, Operation]] = []
        """Each value that was named, once for each time that it was."""
        self.relations: dict[str, dict[str, None]] = {}
        """How B's values lie to A's, by what stands for them."""

    def name(self, program: Program, op: Operation) -> str:
        """Name a value from outside a formula's region."""
        if op.number is not None and op.kind != "input":
            return number(op.number)
        name = self._name(program, op)
        self.read.append((name, op))
        return name

    def _name(self, program: Program, op: Operation) -> str:
        if op.run is None and op.kind == "parameter":
            return ".".join(op.label.split(".")[-2:])
        partners = self.index.meets(op) if op.mark is not None else []
        if partners:
            key = min(each.index for each in partners)
        elif op.kind == "input":
            return op.label or "input"
        else:
            key = -1 - op.index if program is not self.index.program else op.index
        if key not in self.of_class:
            used = len(self.of_class)
            self.of_class[key] = _LETTERS[used] if used < len(_LETTERS) else f"x{used}"
        letter = self.of_class[key]
        self.legend.setdefault(letter, {})[program.name] = op
        if partners and program is not self.index.program:
            self.legend[letter].setdefault(self.index.program.name, partners[0])
        return letter

    def described(self) -> dict[str, str]:
        """Return what each letter stands for: A's operation, B's, and how B's value lies to A's."""
        legend = {}
        for letter in {**self.legend, **self.relations}:
            sides = self.legend.get(letter, {})
            told = [each for each in self.relations.get(letter, {}) if sides or not is_usual(each)]
            entries = [f"{side} {_made(op)}" for side, op in sorted(sides.items())]
            if entries or told:
                legend[letter] = "; ".join([*entries, *told])
        return legend


def _made(op: Operation) -> str:
    where = f"{op.source} " if op.source else ""
    return f"{where}{op.label or op.name if op.run is None else op.name} {list(op.shape)}"


def number(value: float) -> str:
    """Write a number as a person would."""
    return f"{value:.12g}" if abs(value) < 1e15 else f"{value:.3g}"


def formula(
    program: Program, end: int, region: Collection[int], letters: Letters, *, layout: bool = False
) -> str:
    """Write a value as an expression of the values outside its region.

    Args:
        program: the program of the value.
        end: the value.
        region: operations to write out.
        letters: names of all other values.
        layout: show transposes and reshapes.
    """
    text, _ = _expression(program, end, frozenset(region), letters, layout, 12)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _expression(
    program: Program, index: int, region: frozenset[int], letters: Letters, layout: bool, depth: int
) -> tuple[str, int]:
    """Return the text of a value, and how strongly its outermost operator binds."""
    op = program.operations[index]
    if index not in region or op.run is None:
        return letters.name(program, op), 9
    if depth == 0:
        return "…", 9
    inputs = [
        _expression(program, each.index, region, letters, layout, depth - 1)
        if isinstance(each, Ref)
        else (number(float(each)) if np.ndim(each) == 0 and not np.iscomplexobj(each) else "[…]", 9)
        for each in op.operands
    ]
    if inputs and (op.name in _UNSEEN or (op.is_layout and not layout)):
        return inputs[0]
    if op.name in _INFIX and len(inputs) == 2:
        sign, strength = _INFIX[op.name]
        left, right = inputs
        first = f"({left[0]})" if left[1] < strength else left[0]
        second = f"({right[0]})" if right[1] <= strength else right[0]
        return f"{first} {sign} {second}", strength
    if len(op.operands) == 1 and not op.label and _is_written_by(program, op):
        return inputs[0]
    if op.name == "neg":
        return f"-{inputs[0][0]}" if inputs[0][1] > 2 else f"-({inputs[0][0]})", 2
    if op.name == "rsub":
        return f"{inputs[1][0]} - {inputs[0][0]}", 1
    parts = [text for text, _ in inputs]
    if op.extra.get("primitive") == "select_n" and len(parts) == 3:  # JAX has what is false first
        parts = [parts[0], parts[2], parts[1]]
    if op.label and op.name not in ("add", "mul"):
        parts.append(op.label)
    return f"{op.name}({', '.join(parts)})", 9


def _is_written_by(program: Program, op: Operation) -> bool:
    """Return whether a value is what an in-place operation left in the memory that it wrote to."""
    (each,) = op.operands
    whole = program.operations[each.index] if isinstance(each, Ref) else op
    return whole is not op and whole.mark is None and whole.name == op.name


def lines(program: Program, indices: Collection[int]) -> list[Source]:
    """Return the distinct source lines of operations, in the order in which they ran."""
    sources = (program.operations[each].source for each in sorted(indices))
    return list(dict.fromkeys(each for each in sources if each is not None))
