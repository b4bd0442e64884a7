"""Omissions planted into loaded models of other libraries: found; models loaded rightly: no alarm.

    python -m evidence.loaded [--only GROUP ...] [--show WORD] [--write docs/loaded.md]

PEFT, Keras and KerasHub are no dependencies: where one is not installed, its cases are left out.
Exit status 1 if an omission is not found, or a model that was loaded rightly raises an alarm.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from evidence.loaded.case import GROUPS, Case, cases_of


class Outcome(NamedTuple):
    """What was said of one case."""

    case: Case
    right: bool
    text: str
    seconds: float


def judge_case(case: Case) -> Outcome:
    """Build a case and judge it."""
    from parity.verifier.loaded import judge

    with tempfile.TemporaryDirectory() as folder:
        situation = case.build(Path(folder))
        start = time.perf_counter()
        report = judge(situation.model, situation.file, apart_from=situation.apart_from)
        seconds = time.perf_counter() - start
    right = report.loaded == case.loaded and case.says in report.to_text()
    return Outcome(case, right, report.to_text(), seconds)


def main() -> int:
    """Judge all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="groups of cases")
    parser.add_argument(
        "--show", metavar="WORD", help="print the report of each case with this in its name"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the score into this page")
    arguments = parser.parse_args()
    outcomes = []
    for group in arguments.only:
        for case in cases_of(group):
            if arguments.show and arguments.show not in f"{case.library} {case.name}":
                continue
            outcomes.append(judge_case(case))
            one = outcomes[-1]
            if arguments.show or not one.right:
                mark = "" if one.right else "WRONG: "
                print(f"{mark}{case.library}, {case.name} ({'right' if case.loaded else 'planted'})")
                print("   ", one.text.replace("\n", "\n    "), flush=True)
    print("\n".join(score(outcomes)))
    if arguments.write:
        _write(arguments.write, score(outcomes))
    return 0 if all(each.right for each in outcomes) else 1


def score(outcomes: list[Outcome]) -> list[str]:
    """Return the score as rows of a table, a library each."""
    libraries = dict.fromkeys(each.case.library for each in outcomes)
    counts = Counter((e.case.library, e.case.loaded, e.right) for e in outcomes)
    rows = ["| library | planted | found | loaded rightly | alarms |", "|---|---|---|---|---|"]

    def row(name: str, every: list[str]) -> str:
        found, passed = (sum(counts[one, kind, True] for one in every) for kind in (False, True))
        missed, alarms = (sum(counts[one, kind, False] for one in every) for kind in (False, True))
        return f"| {name} | {found + missed} | {found} | {passed + alarms} | {alarms} |"

    rows += [row(name, [name]) for name in libraries]
    return [*rows, row("**all**", list(libraries))]


BEGIN, END = "<!-- score -->", "<!-- end of score -->"
PACKAGES = ("torch", "timm", "transformers", "torchvision", "open_clip_torch", "peft", "flax", "jax",
            "keras", "keras-hub")  # fmt: skip


def _write(page: Path, rows: list[str]) -> None:
    def of(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return f"no {name}"

    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    said = f"Written by `{COMMAND}` on {date.today()}, with {', '.join(map(of, PACKAGES))}."
    page.write_text("\n".join([before + BEGIN, said, "", *rows, END + after]), encoding="utf-8")


COMMAND = "python -m evidence.loaded --write docs/loaded.md"

if __name__ == "__main__":
    sys.exit(main())
