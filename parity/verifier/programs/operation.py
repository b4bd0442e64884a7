"""One operation of a program: what it reads, how it runs, and the line of the user's code behind it."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from parity.measure.nearness import LEAST as NEAREST
from parity.measure.nearness import Nearness
from parity.verifier.programs.fingerprint import INFINITE, LEAST, MOST

Kind = Literal["input", "parameter", "constant", "operation"]

BUILT = "<built>"
"""Function of a line that built what runs, such as an optimiser; its caller is the line that runs it."""

DRAWN = "drawn"
"""Key in `extra` of the operations of torch that draw random numbers, and would draw others again."""

MOST_LINES = 8
"""Most lines of a call that are shown."""


@dataclass(frozen=True)
class Source:
    """A line of the user's code."""

    file: str
    line: int
    function: str = ""
    caller: Source | None = field(default=None, compare=False, repr=False)
    """The line of the user's code that called the function."""

    @property
    def text(self) -> str:
        """The line itself, stripped; of a call that built something, all its arguments. Empty where the
        file cannot be read."""
        text = linecache.getline(self.file, self.line).strip()
        for line in range(self.line + 1, self.line + MOST_LINES) if self.function == BUILT else ():
            if sum(text.count(each) for each in "([{") <= sum(text.count(each) for each in ")]}"):
                break
            text += " " * (text[-1:] not in "([{") + linecache.getline(self.file, line).strip()
        return text

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True)
class Construction:
    """Where a module was built, and so was given its arguments."""

    source: Source
    ready_made: bool
    """Whether the module's class is a framework's, whose own lines say nothing of the model."""


@dataclass(frozen=True)
class Ref:
    """An operand that another operation produced."""

    index: int


@dataclass(slots=True)
class Operation:
    """One value of a program and how it was made."""

    index: int
    name: str
    """In the vocabulary of `names.py`, the same for both frameworks: add, matmul, sum, ..."""
    operands: tuple[Any, ...]
    """`Ref`s, and numbers written in the program."""
    run: Callable[[Sequence[Any]], Any] | None
    """Function from the operands' values to this value; None for a leaf."""
    kind: Kind = "operation"
    label: str = ""
    """The path of a leaf; the attributes of an operation, as they are printed ("axis=-1")."""
    source: Source | None = None
    module: str = ""
    scope: str = ""
    """The library function that it is a part of ("gelu"), where there is one."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    mark: np.ndarray | None = None
    """Its fingerprint; None where it has no numbers (keys, tuples)."""
    near: Nearness = NEAREST
    """What rounding may do to it; `nearness.py` measures that."""
    grain: float = 0.0
    """Root mean square of what a nudge of all leaves moves it by; 0 where that is a choice that falls
    out otherwise, and not round-off."""
    is_layout: bool = False
    """Whether it only moves or repeats the elements of its one operand."""
    epsilon: float = 0.0
    """Rounding of the number type that the program asked for; 0 for float64."""
    extra: dict[str, Any] = field(default_factory=dict)
    inputs: list[int] = field(init=False, repr=False, compare=False)
    """The operations that it reads."""

    def __post_init__(self) -> None:
        self.inputs = [each.index for each in self.operands if isinstance(each, Ref)]

    @property
    def number(self) -> float | None:
        """The number that all its elements are; None where they differ or are not finite."""
        if self.mark is None or self.mark[LEAST] != self.mark[MOST] or self.mark[INFINITE]:
            return None
        return float(self.mark[LEAST])

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)
