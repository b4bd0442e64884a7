"""Compare random programs with themselves in the other framework, and with changed copies.

    python -m evidence.random_programs --count 1000 --write docs/random_programs.md

A program is up to nine operations in a row, some with a residual connection; a change is another
argument, another operation, one left out, two exchanged, or a residual connection more or less. Whether
the change matters is computed in float64 by PyTorch, without the verifier.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from evidence.random_programs.operations import OPERATIONS, ROWS, WIDTH
from parity.verifier.compare import compare
from parity.verifier.report.compared import Compared

X = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
FRAMEWORKS = ("jax", "torch")
LONGEST = 9
SAME, OTHER = 1e-12, 1e-7
"""Relative errors up to which a change does not matter, and from which it does; between them, neither
verdict is wrong."""


class Step(NamedTuple):
    """One operation of a program."""

    name: str
    arguments: tuple[Any, ...]
    residual: bool
    """Whether what the step before read is added to its result."""


Program = tuple[Step, ...]


def drawn(rng: random.Random) -> Step:
    """Draw one step."""
    name = rng.choice(list(OPERATIONS))
    return Step(name, rng.choice(OPERATIONS[name].choices), rng.random() < 0.4)


def changed(program: Program, rng: random.Random) -> Program:
    """Change one step of a program, or the order of two."""
    i = rng.randrange(len(program))
    before, step, after = program[:i], program[i], program[i + 1 :]
    match rng.choice(["argument", "operation", "left out", "exchanged", "residual"]):
        case "argument":
            return *before, step._replace(arguments=rng.choice(OPERATIONS[step.name].choices)), *after
        case "operation":
            return *before, drawn(rng)._replace(residual=step.residual), *after
        case "left out" if len(program) > 1:
            return *before, *after
        case "exchanged" if after:
            return *before, after[0], step, *after[1:]
    return *before, step._replace(residual=not step.residual), *after


def function(program: Program, framework: str) -> Callable[[Any], Any]:
    """Write a program in a framework."""

    def run(x: Any) -> Any:
        before = x
        for step in program:
            y = getattr(OPERATIONS[step.name], framework)(x, *step.arguments)
            before, x = x, y + before if step.residual else y
        return x

    return run


def side(program: Program, framework: str) -> tuple[Callable[[Any], Any], Any]:
    """Return a side of a comparison."""
    return function(program, framework), jnp.asarray(X) if framework == "jax" else torch.from_numpy(X)


def apart(program: Program, other: Program) -> float:
    """Return the largest difference of two programs' outputs, relative to the first one's largest."""
    x = torch.from_numpy(X).double()
    a, b = (function(each, "torch")(x) for each in (program, other))
    return float((a - b).abs().max() / a.abs().max())


def judge(seed: int) -> dict[str, tuple[Compared, str]]:
    """Compare the program of a seed with itself, and with a changed copy; return both results, and the
    verdict that each should have: "" where any is right."""
    rng = random.Random(seed)
    program = tuple(drawn(rng) for _ in range(rng.randint(2, LONGEST)))
    other = changed(program, rng)
    one, two = rng.choice(FRAMEWORKS), rng.choice(FRAMEWORKS)
    distance = apart(program, other)
    expected = "EQUAL" if distance < SAME else "DIFFERENT" if distance > OTHER else ""
    given = side(program, one)
    return {
        "the same": (compare(given, side(program, two)), "EQUAL"),
        "changed": (compare(given, side(other, two)), expected),
    }


def main() -> int:
    """Judge the programs of many seeds; exit with 1 if one is judged wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    parser.add_argument("--write", type=Path, help="the page to write")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.process_time()
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    for seed in track(seeds, "programs", disable=not sys.stderr.isatty(), console=Console(stderr=True)):
        for pair, (compared, expected) in judge(seed).items():
            counts[pair, expected] += 1
            if expected not in ("", compared.verdict):
                why = "; ".join(place.message for place in compared.places if place.message)
                wrong.append(f"program {seed}, {pair}: {compared.verdict}, not {expected}: {why}")
                print(wrong[-1], flush=True)
    seconds = time.process_time() - started
    command = f"python -m evidence.random_programs --count {arguments.count} --seed {arguments.seed}"
    text = PAGE.format(
        command=f"`{command}` ({date.today()}, {seconds:.0f} CPU seconds)",
        operations=len(OPERATIONS),
        wrong="\n".join(f"- {each}" for each in wrong) or "- none",
        same=counts["the same", "EQUAL"],
        changed=counts["changed", "DIFFERENT"],
        unchanged=counts["changed", "EQUAL"],
        between=counts["changed", ""],
    )
    print(text)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
    return 1 if wrong else 0


PAGE = """# Random programs

For those who want to know how the verifier does on programs that nobody chose. Two to nine of
{operations} operations (`evidence/random_programs/operations.py`) in a row, some with a residual
connection, are written in JAX and in PyTorch. Each program is compared with itself in either
framework, and with a copy that has one change, forward and backward. Whether the change matters is
computed in float64 by PyTorch alone.

{command}:

| pairs | number | must be |
|---|---|---|
| the same program | {same} | EQUAL |
| a change that matters | {changed} | DIFFERENT |
| a change without effect, such as ReLU of what is positive | {unchanged} | EQUAL |
| a change of between 1e-12 and 1e-7 | {between} | - |

Judged otherwise:

{wrong}
"""


if __name__ == "__main__":
    sys.exit(main())
