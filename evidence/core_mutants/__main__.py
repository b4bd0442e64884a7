"""Mutants of the core, drawn from its syntax trees: which of them do the nearest tests let live?

    python -m evidence.core_mutants [--mutants 500] [--seed 0] [--only WORD] [--share K/N] [--seconds S]
    python -m evidence.core_mutants --results *.jsonl --write docs/core_mutants.md

A mutant is one other operator, comparison, number or condition, or one argument left out, in a copy of
the repository. They are drawn evenly from the files of the core; each is judged by the tests that run
its line, but for those that `equal.py` says the reason of. What is judged is a line of JSON in a file of
results: a command that is given one goes on from there, and shares that many processes judged are put
together. Exit status 0 if at least 97 % are killed or equal (half of a share, which is few), and
no test fails for one that is said to be equal; `--equal` tries these.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from evidence import ROOT
from evidence.core_mutants.draw import shuffled
from evidence.core_mutants.equal import EQUAL
from evidence.core_mutants.nearest import GROUPS
from evidence.core_mutants.page import page
from evidence.core_mutants.session import Job, Outcome, Session
from tests.support.share import ALL, parse


def drawn(count: int, seed: int) -> Iterator[tuple[str, Job]]:
    """`count` mutants, each with its group: of every file as many as of any other, while it has them."""
    left = {}
    for group, each in GROUPS.items():
        for name in each.sources(ROOT):
            order = shuffled(name, (ROOT / name).read_text(encoding="utf-8"), seed)
            left[name] = group, [Job(name, one) for one in order]
    sizes = dict.fromkeys(left, 0)
    while sum(sizes.values()) < count and (open_ := [n for n in left if sizes[n] < len(left[n][1])]):
        for name in open_[: count - sum(sizes.values())]:
            sizes[name] += 1
    for name, (group, order) in left.items():
        yield from ((group, job) for job in order[: sizes[name]])


def key(job: Job) -> tuple[str, str, str]:
    """A mutant's name, which a change elsewhere in the file does not change."""
    return job.file, *job.mutant.name


def main() -> int:
    """Draw, run, list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="of files whose name or group has this in it")
    parser.add_argument("--share", default="all", help="K/N or rotating/N: a slice, of few groups")
    parser.add_argument(
        "--suite", action="store_true", help="by the tests that always run: no exhaustive case"
    )
    parser.add_argument(
        "--equal", action="store_true", help="those that are said to be equal, which are not run else"
    )
    parser.add_argument("--seconds", type=float, help="after which no other is begun")
    parser.add_argument("--results", type=Path, nargs="+", help="go on from them; write to the first")
    parser.add_argument("--write", type=Path, help="only write the page about the results")
    arguments = parser.parse_args()
    share = parse(arguments.share)
    jobs = [
        (group, job)
        for group, job in drawn(sys.maxsize if arguments.equal else arguments.mutants, arguments.seed)
        if (arguments.only in job.file or arguments.only in group)
        and (key(job) in EQUAL or not arguments.equal)
    ]
    first, last = (len(jobs) * each // share.parts for each in (share.index, share.index + 1))
    jobs = jobs[first:last]
    with tempfile.TemporaryDirectory() as folder:
        results = arguments.results or [Path(folder) / "results.jsonl"]
        known = _read(results)
        done = known.keys() if arguments.equal else known.keys() | EQUAL.keys()
        todo = [(group, job) for group, job in jobs if key(job) not in done]
        if todo and not arguments.write:
            _run(Path(folder) / "copy", todo, results[0], not arguments.suite, arguments.seconds)
        known = _read(results)
    known = dict.fromkeys(EQUAL, Outcome("", 0.0)) | known
    outcomes = [(group, job, known.get(key(job))) for group, job in jobs]
    judged = [(group, job, outcome) for group, job, outcome in outcomes if outcome]
    alive = [job for _, job, outcome in judged if not outcome.by and key(job) not in EQUAL]
    for job in alive:
        print(f"alive {job.file}:{job.mutant.line} {job.mutant.change}")
    refuted = {each: known[each].by for each in EQUAL if known[each].by}
    for (file, _, change), test in refuted.items():
        print(f"said to be equal {file} {change}: {test} fails")
    print(f"{len(judged) - len(alive)} of {len(judged)} killed or equal")
    if arguments.write:
        own = {key(job) for _, job in jobs}
        every = drawn(sys.maxsize, arguments.seed)
        earlier = [
            (group, job, known[key(job)]) for group, job in every if key(job) in known.keys() - own
        ]
        text = page(judged, earlier, key, arguments.seed, len(jobs))
        arguments.write.write_text(text, encoding="utf-8")
    least = 0.97 if share == ALL else 0.5
    return 1 if refuted or len(judged) - len(alive) < least * len(judged) else 0


def _run(
    copy: Path, jobs: list[tuple[str, Job]], results: Path, rare: bool, seconds: float | None
) -> None:
    """Judge mutants in a copy of the repository; each is noted when it has been."""
    results = results.absolute()
    shutil.copytree(ROOT, copy, ignore=_left_out)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    given = os.environ.get("PYTHONPATH")  # without ROOT, whose packages are those of the copy
    others = [each for each in (given or "").split(os.pathsep) if each and Path(each).resolve() != ROOT]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(copy), *others])
    sys.path.insert(0, str(copy))
    os.chdir(copy)
    for name in [each for each in sys.modules if each.partition(".")[0] in ("tests", "evidence")]:
        del sys.modules[name]  # pytest imports them from the copy

    def note(job: Job, outcome: Outcome) -> None:
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps([*key(job), *outcome]) + "\n")
        if not outcome.by:
            print(f"no test fails: {job.file}:{job.mutant.line} {job.mutant.change}", file=sys.stderr)

    end = math.inf if seconds is None else time.monotonic() + seconds
    for name in dict.fromkeys(group for group, _ in jobs):
        own = [job for group, job in jobs if group == name]
        Session(copy, GROUPS[name].tests, note, rare, end).judge(own)


def _left_out(folder: str, names: list[str]) -> set[str]:
    made = {"build", "dist", "runs"} if Path(folder) == ROOT else set()
    return {name for name in names if name.startswith(".") or name in made | {"__pycache__"}}


def _read(results: list[Path]) -> dict[tuple[str, ...], Outcome]:
    """Read the outcome of each mutant, by its key; a later file and line counts."""
    texts = [each.read_text(encoding="utf-8") for each in results if each.exists()]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return {tuple(each[:3]): Outcome(*each[3:]) for each in lines}


if __name__ == "__main__":
    sys.exit(main())
