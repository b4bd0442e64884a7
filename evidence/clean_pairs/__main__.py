"""Pairs that must be equal: one model in many styles, each against others, in each number type.

    python -m evidence.clean_pairs --write docs/clean_pairs.md

Every style is recorded once per type; a pair is one of torch and one of JAX, or two of one framework.
The first is also compared with each of the others forward and backward.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import jax
import torch

from evidence.clean_pairs import as_torchvision, clip, in_flax, in_jax, in_torch, libraries, weights
from parity.verifier.compare import compare
from parity.verifier.locate import compare_programs
from parity.verifier.programs.program import Program
from parity.verifier.programs.sides import record
from parity.verifier.report.comparison import Comparison
from vit_config.errors import first_line

TORCH = (
    in_torch.STYLES
    | as_torchvision.STYLES
    | {n: f for n, f in libraries.STYLES.items() if "JAX" not in n}
    | clip.TORCH
)
JAX = (
    in_jax.STYLES | in_flax.STYLES | {n: f for n, f in libraries.STYLES.items() if "JAX" in n} | clip.JAX
)
CLIP = clip.TORCH | clip.JAX
"""Styles of another function, compared with each other alone."""
TYPES = ("float32", "bfloat16", "float16")
NO_GRADIENTS = ("torch.jit.trace",)
"""Styles traced in float32, which cannot run backward in float64."""
PARTNERS = 3
"""Styles of JAX that each style of torch is compared with in a type, and the other way round."""


def styles() -> dict[str, Callable[..., Any]]:
    """All that can be built here; Equinox where it is installed."""
    every = TORCH | JAX
    with suppress(ModuleNotFoundError):
        every |= importlib.import_module("evidence.clean_pairs.in_equinox").STYLES
    return every


def pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    """Each torch style with some of JAX, in turn; and each style with the next of its own framework."""
    for group in ([n for n in names if n not in CLIP], [n for n in names if n in CLIP]):
        yield from _pairs(group)


def _pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    of_torch, of_jax = [n for n in names if n in TORCH], [n for n in names if n not in TORCH]
    count = max(len(of_torch), len(of_jax))
    seen: set[tuple[str, str]] = set()
    for shift, i in itertools.product(range(PARTNERS), range(count)):
        pair = of_torch[i % len(of_torch)], of_jax[(i * PARTNERS + shift) % len(of_jax)]
        if pair not in seen:
            seen.add(pair)
            yield pair
    yield from itertools.pairwise(of_torch)
    yield from itertools.pairwise(of_jax)


def held_in(side: Any, dtype: str) -> Any:
    """The same side with its weights held in a type."""
    model, *rest = side
    if dtype == "float32":
        return side
    if isinstance(model, torch.nn.Module) and not isinstance(model, torch.jit.ScriptModule):
        return (model.to(getattr(torch, dtype)), *rest)

    def change(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            return each.to(getattr(torch, dtype)) if each.is_floating_point() else each
        is_float = getattr(getattr(each, "dtype", None), "kind", "") == "f"
        return jax.numpy.asarray(each, dtype) if is_float else each

    return (jax.tree.map(change, model), *(jax.tree.map(change, each) for each in rest))


@dataclass
class Score:
    """Pairs of one type."""

    tried: int = 0
    alarms: list[str] = field(default_factory=list)
    worst: float = 0.0


def judge(comparison: Comparison, name: str, score: Score) -> None:
    """Enter one outcome."""
    score.tried += 1
    score.worst = max(score.worst, comparison.error)
    if comparison.verdict != "EQUAL":
        places = ", ".join(f"{each.cause or each.kind} at {each.b.where}" for each in comparison.places)
        score.alarms.append(f"{name}: {comparison.verdict} {places}")
        print("   ", score.alarms[-1], flush=True)


def drawn(name: str) -> dict[str, Any]:
    """The weights of a style."""
    return clip.draw() if name in CLIP else weights.draw()


Recorded = dict[str, Program | str]
"""Every style as a program, or why it could not be recorded."""


def recorded(dtype: str) -> Recorded:
    """All styles, with their weights held in a type."""
    programs: Recorded = {}
    for name, make in styles().items():
        try:
            programs[name] = record(held_in(make(drawn(name)), dtype), name)
        except Exception as error:
            programs[name] = f"{type(error).__name__}: {error}"
    return programs


def by_operations(of_a: Recorded, of_b: Recorded) -> Score:
    """The score of forward passes, for sides recorded in one type or in two."""
    score = Score()
    for a, b in pairs(list(of_a)):
        first, second = of_a[a], of_b[b]
        if isinstance(first, str) or isinstance(second, str):
            score.tried += 1
            score.alarms.append(f"{a} and {b}: {first if isinstance(first, str) else second}")
            print("   ", score.alarms[-1], flush=True)
        else:
            judge(compare_programs(first, second), f"{a} and {b}", score)
    return score


def from_the_first() -> Iterator[tuple[str, str]]:
    """The first style of each function with every other."""
    names = list(styles())
    for group in ([n for n in names if n not in CLIP], [n for n in names if n in CLIP]):
        yield from ((group[0], name) for name in group[1:])


def by_gradients() -> Score:
    """The score of gradients."""
    score = Score()
    for first, name in from_the_first():
        compared = compare(*(styles()[each](drawn(each)) for each in (first, name)))
        assert compared.backward or name in NO_GRADIENTS, (name, compared.no_backward)
        judge(compared.backward or compared.forward, f"{first} and {name}", score)
    return score


PAGE = """# Pairs that are equal

For those who want to know how often the verifier raises a false alarm. One small Vision Transformer and
the image tower of a small CLIP are written in {styles} styles: {names}. Each of torch
meets some of JAX, each style the next of its own framework; nothing may be reported.

`python -m evidence.clean_pairs --write docs/clean_pairs.md` ({today}, {seconds:.0f} CPU seconds):

| | pairs | alarms | largest error |
|---|---|---|---|
{rows}

Both sides hold their weights in the type; of two types, A holds them in the one and B in the other,
and what the smaller one rounded away is no difference. Everything is computed in float64. Of gradients
the pairs are the first style of each function with every other; {no_gradients}
has no gradients in float64. The styles are in `evidence/clean_pairs`; Equinox is tried where it is
installed.
{missed}"""


def main() -> int:
    """Print the scores; write the page if asked; 1 where a pair raised an alarm."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.process_time()
    scores: dict[str, Score] = {}
    programs = {dtype: recorded(dtype) for dtype in TYPES}
    for a, b in [*((each, each) for each in programs), *(("float32", each) for each in TYPES[1:])]:
        name = a if a == b else f"{a} and {b}"
        scores[f"forward, {name}"] = by_operations(programs[a], programs[b])
    scores["gradients"] = by_gradients()
    total = Score(sum(s.tried for s in scores.values()), [a for s in scores.values() for a in s.alarms],
                  max(s.worst for s in scores.values()))  # fmt: skip
    rows = [_row(name, score) for name, score in {**scores, "all": total}.items()]
    print("\n".join(rows))
    if arguments.write is not None:
        missed = "".join(f"\n- {each}" for each in total.alarms)
        names = "; ".join(styles())
        arguments.write.write_text(PAGE.format(
            styles=len(styles()), names=names, no_gradients=", ".join(NO_GRADIENTS), missed=missed,
            rows="\n".join(rows), today=date.today(),
            seconds=time.process_time() - started))  # fmt: skip
    return 1 if total.alarms else 0


def _row(name: str, score: Score) -> str:
    worst = f"{score.worst:.1e}" if score.worst else "-"
    return f"| {name} | {score.tried} | {len(score.alarms)} | {worst} |"


if __name__ == "__main__":
    sys.exit(main())
