"""Results of pairs in a file, line by line, so that a run that was stopped goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path

from evidence.clean_pairs.draw import Pair
from evidence.clean_pairs.judge import Result

LEFT_OUT = ("pair", "report")
FIELDS = tuple(each.name for each in fields(Result) if each.name not in LEFT_OUT)


def commit() -> str:
    """Return the commit of the code that judges."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def keep(path: Path, result: Result, memory: float, made_at: str) -> None:
    """Add a result to a file."""
    content = {name: getattr(result, name) for name in FIELDS}
    line = {"pair": result.pair.name, "commit": made_at, "memory": memory, **content}
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(line)}\n")


def kept(path: Path, pairs: Iterable[Pair]) -> tuple[list[tuple[Result, float]], set[str]]:
    """Return the results of pairs in a file, each with its memory in GiB, and the commits they were made
    at; the last of several of one pair counts."""
    by_name = {each.name: each for each in pairs}
    found, commits = {}, set()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        content = json.loads(line)
        if (pair := by_name.get(content["pair"])) is not None:
            given = {name: content[name] for name in FIELDS} | {"left_out": tuple(content["left_out"])}
            found[pair.name] = replace(Result(pair), **given), content["memory"]
            commits.add(content["commit"])
    return list(found.values()), commits
