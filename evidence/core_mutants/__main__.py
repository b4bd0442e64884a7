"""Mutants of the core, made and judged by cosmic-ray: which of them do the nearest tests let live?

    python -m evidence.core_mutants [--each 7] [--only WORD] [--share K/N] [--suite] [--sessions FOLDER]

A mutant is one other operator, comparison, number or condition, in a copy of the repository. `--each`
are drawn of each file of the core, and judged by the tests nearest to it (`nearest.py`). What
`--sessions` keeps is not judged again. Exit status 0 if 80 % are killed (half of a share).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from evidence import ROOT
from evidence.core_mutants.nearest import GROUPS
from tests.support.cost import NEW, budgets
from tests.support.share import ALL, parse

OPERATORS = (
    *(f"ReplaceBinaryOperator_{each}" for each in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul")),
    *(f"ReplaceBinaryOperator_{each}" for each in ("Pow_Mul", "FloorDiv_Mul", "Mod_Mul")),
    *(f"ReplaceComparisonOperator_{each}" for each in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"ReplaceComparisonOperator_{each}" for each in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")),
    *(f"Replace{each}" for each in ("AndWithOr", "OrWithAnd", "TrueWithFalse", "FalseWithTrue")),
    *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "AddNot", "NumberReplacer"),
)
"""Of cosmic-ray's, about one for each expression."""
SLOWER, SLACK = 5.0, 120.0
"""A mutant is killed after this many times its tests' budgets, and these seconds on top."""


def draw(file: str, count: int) -> list[Any]:
    """Draw `count` of cosmic-ray's work items of a file, by a hash of the mutation."""
    from cosmic_ray.commands.init import init  # pyright: ignore[reportMissingImports]
    from cosmic_ray.work_db import use_db  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder, use_db(f"{folder}/every.sqlite") as every:
        init([Path(file)], every, {})
        items = [each for each in every.work_items if name_of(each).split()[1] in OPERATORS]
    return sorted(items, key=lambda each: hashlib.sha256(name_of(each).encode()).digest())[:count]


def name_of(item: Any) -> str:
    """Return a mutant's file, operator and the operator's place in the file."""
    (mutation,) = item.mutations
    operator = mutation.operator_name.removeprefix("core/")
    return f"{mutation.module_path} {operator} {mutation.occurrence}"


def judge(file: str, command: str, limit: float, count: int, sessions: Path) -> list[tuple[Any, Any]]:
    """Run a command against each mutant of a file without a result; return each with its result."""
    from cosmic_ray.commands.execute import execute  # pyright: ignore[reportMissingImports]
    from cosmic_ray.config import ConfigDict  # pyright: ignore[reportMissingImports]
    from cosmic_ray.work_db import use_db  # pyright: ignore[reportMissingImports]

    config = {"test-command": command, "timeout": limit, "distributor": {"name": "local"}}
    with use_db(str(sessions / f"{file.replace('/', '--')}.sqlite")) as session:
        if not session.num_work_items:
            session.add_work_items(draw(file, count))
        execute(session, ConfigDict(config))
        items = {each.job_id: each for each in session.work_items}
        return [(items[name], result) for name, result in session.results]


def command_of(group: str, suite: bool) -> tuple[str, float]:
    """Return the command of the tests nearest to a group, cheap ones first, and its limit in seconds."""
    tests = [f"tests/{each}" for each in GROUPS[group].tests]
    cost = {each: budgets().get(each.partition("::")[0], NEW) for each in tests}
    argv = [sys.executable, "-m", "pytest", "-n0", "-xq", "-p", "no:cacheprovider"]
    argv += [] if suite else ["--share=all"]
    return shlex.join([*argv, *sorted(tests, key=cost.__getitem__)]), SLACK + SLOWER * sum(cost.values())


def go_on_in_a_copy(folder: Path) -> None:
    """Copy the repository, and make the copy the current folder and the one that Python imports from."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    given = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *(p for p in given if Path(p) != ROOT)])
    os.chdir(folder)


def main() -> int:
    """Draw, judge, list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=7, help="how many mutants of a file")
    parser.add_argument("--only", default="", help="files whose name or group has this in it")
    parser.add_argument("--share", default="all", help="K/N or rotating/N of the files")
    parser.add_argument("--suite", action="store_true", help="leave out the exhaustive cases")
    parser.add_argument("--sessions", type=Path, help="keep results in this folder, and go on from them")
    arguments = parser.parse_args()
    share, only, results = parse(arguments.share), arguments.only, []
    files = [(group, name) for group, each in GROUPS.items() for name in each.sources(ROOT)]
    files = [each for each in files if only in each[0] or only in each[1]][share.index :: share.parts]
    with tempfile.TemporaryDirectory() as folder:
        sessions = (arguments.sessions or Path(folder) / "sessions").absolute()
        sessions.mkdir(parents=True, exist_ok=True)
        go_on_in_a_copy(Path(folder) / "copy")
        for group in dict.fromkeys(group for group, _ in files):
            command, limit = command_of(group, arguments.suite)
            if subprocess.run(shlex.split(command), stdout=sys.stderr).returncode:
                parser.exit(2, f"{group}: its tests fail without any mutant\n")
            for name in [name for each, name in files if each == group]:
                own = judge(name, command, limit, arguments.each, sessions)
                killed = sum(result.is_killed for _, result in own)
                print(f"{group}: {name}: {killed} of {len(own)} killed", flush=True)
                results += own
    for item, result in results:
        if not result.is_killed:
            print(f"alive: {name_of(item)}\n{result.diff}")
    killed = sum(result.is_killed for _, result in results)
    print(f"{killed} of {len(results)} killed")
    return 1 if killed < (0.8 if share == ALL else 0.5) * len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
