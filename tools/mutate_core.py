"""Mutants of the core, drawn from its syntax trees: which of them do the nearest tests let live?

    python tools/mutate_core.py [--mutants 3] [--seed 0] [--only WORD]

Each mutant changes one operator, comparison, constant or condition of one file, in a copy of the
repository. Survivors are listed; exit status 0 if there are none.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEAREST = {
    "parity/measure/error.py": ("parity/measure/test_exact.py", "parity/measure/test_measure.py"),
    "parity/measure/redraw.py": ("parity/measure/test_exact.py",),
    "vit_config/schedule.py": ("parity/measure/test_exact.py", "vit_config/test_schedules.py"),
    "parity/porting/formats/stack.py": (
        "parity/measure/test_exact.py",
        "parity/porting/formats/test_containers_pickles.py",
    ),
    "parity/porting/formats/budget.py": ("parity/porting/formats/test_hostile.py",),
    "vit_config/files/foreign.py": ("vit_config/test_foreign.py",),
    "vit_config/terminal.py": ("vit_config/test_foreign.py",),
}
"""Files of the core, and the tests that are run against their mutants."""
OTHER: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[int, str]]:
    """Every mutant of a source: its line, and the source of it."""
    places = [node for node in ast.walk(ast.parse(source)) if _is_place(node)]
    for number, place in enumerate(places):
        tree = ast.parse(source)
        _change([node for node in ast.walk(tree) if _is_place(node)][number])
        yield getattr(place, "lineno", 0), ast.unparse(tree)


def _is_place(node: ast.AST) -> bool:
    match node:
        case ast.BinOp() | ast.BoolOp():
            return type(node.op) in OTHER
        case ast.Compare():
            return type(node.ops[0]) in OTHER
        case ast.Constant():
            return type(node.value) in (int, float, bool)
        case ast.If() | ast.IfExp():
            return True
    return False


def _change(node: ast.AST) -> None:
    match node:
        case ast.BinOp() | ast.BoolOp():
            node.op = OTHER[type(node.op)]()
        case ast.Compare():
            node.ops[0] = OTHER[type(node.ops[0])]()
        case ast.Constant():
            value = node.value
            node.value = not value if isinstance(value, bool) else value + 1  # type: ignore[operator]
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)


def killed(copy: Path, tests: tuple[str, ...]) -> bool:
    """Whether a test fails in a copy of the repository."""
    argv = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    paths = [f"tests/{each}" for each in tests]
    try:
        done = subprocess.run(
            [*argv, *paths], cwd=copy, env=environment, capture_output=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    """Draw, run, list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=3, help="of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    tried, alive = 0, []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
        for name, tests in NEAREST.items():
            if arguments.only not in name:
                continue
            if killed(copy, tests):
                raise SystemExit(f"{name}: its tests fail without any mutant")
            path, source = copy / name, (copy / name).read_text()
            every = list(mutants(source))
            draw = random.Random(f"{arguments.seed} {name}")
            for line, mutant in draw.sample(every, min(arguments.mutants, len(every))):
                path.write_text(mutant)
                tried += 1
                if not killed(copy, tests):
                    alive.append(f"{name}:{line}")
                    print("alive", alive[-1], flush=True)
            path.write_text(source)
    print(f"{tried - len(alive)} of {tried} killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
