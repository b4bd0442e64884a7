"""Write tests/support/repeats.json, the cases that repeat what others test: ``make repeats``.

A case of a parametrised test repeats others if each line and each branch that it runs is run by another
case that stays. A quarter of the cases of every test stays, at least one; the costliest are left out
first. The tests of the twins stay as they are: there, the same lines compute many functions. So does a
test that has marked some of its cases as exhaustive: it was thinned by hand.

    python tools/repeats.py .coverage durations.xml   # of a run with --cov-context=test
"""

import contextlib
import io
import json
import math
import sqlite3
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.share import REPEATS, split  # noqa: E402

TWINS = ("tests/twins/", "tests/vit_jax/", "tests/vit_torch/", "tests/parity/twins/")
"""Folders of tests that stay as they are."""
LEAST = 0.1
"""Seconds of a case that is worth leaving out."""
STAYS = 0.25
"""Share of a test's cases that stays."""


class Thinned:
    """Plugin of pytest that notes which tests have exhaustive cases."""

    def __init__(self) -> None:
        """Start without any."""
        self.tests: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note the tests."""
        exhaustive = (item for item in items if item.get_closest_marker("exhaustive"))
        self.tests = {split(item.nodeid)[0] for item in exhaustive}


def lines_run(file: Path) -> dict[str, set[tuple[int, int, int]]]:
    """Return the lines and branches, each a (file, from, to), that each case runs."""
    base = sqlite3.connect(file)
    contexts = dict(base.execute("select id, context from context"))
    lines: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
    for context, *arc in base.execute("select context_id, file_id, fromno, tono from arc"):
        if case := contexts[context].rpartition("|")[0]:
            lines[case].add(tuple(arc))
    return lines


def seconds(file: Path, cases: set[str]) -> dict[str, float]:
    """Return the seconds that each case took."""
    by_names = {}
    for case in cases:
        path, _, rest = case.partition("::")
        by_names[path.removesuffix(".py").replace("/", "."), rest] = case
    times = {}
    for each in ElementTree.parse(file).iter("testcase"):
        case = by_names.get((each.get("classname", ""), each.get("name", "")))
        if case is not None:
            times[case] = float(each.get("time", "0"))
    return times


def repeats(
    lines: dict[str, set[tuple[int, int, int]]], times: dict[str, float], thinned: set[str]
) -> list[str]:
    """Return the cases to leave out."""
    runs = Counter(line for each in lines.values() for line in each)
    cases = Counter(split(case)[0] for case in lines)
    stays = {test: max(1, math.ceil(STAYS * count)) for test, count in cases.items()}
    out = []
    for case in sorted(times, key=lambda case: -times[case]):
        test, values = split(case)
        if not values or test in thinned or test.startswith(TWINS):
            continue
        if times[case] < LEAST or cases[test] <= stays[test]:
            continue
        if all(runs[line] > 1 for line in lines[case]):
            runs.subtract(lines[case])
            cases[test] -= 1
            out.append(case)
    return out


def main() -> int:
    """Write the file."""
    thinned = Thinned()
    arguments = ["--collect-only", "--share", "all", str(ROOT / "tests")]
    imported = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # tests.support, above
    with contextlib.redirect_stdout(io.StringIO()):
        status = pytest.main([*arguments, *imported], plugins=[thinned])
    if status:
        return status
    lines = lines_run(Path(sys.argv[1]))
    times = seconds(Path(sys.argv[2]), set(lines))
    by_test: dict[str, list[str]] = defaultdict(list)
    for case in repeats(lines, times, thinned.tests):
        test, values = split(case)
        by_test[test].append(values)
    rows = (f"  {json.dumps(test)}: {json.dumps(sorted(by_test[test]))}" for test in sorted(by_test))
    REPEATS.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    left_out = sum(times[f"{test}[{values}]"] for test, each in by_test.items() for values in each)
    print(
        f"{sum(map(len, by_test.values()))} cases, {left_out:.0f} of {sum(times.values()):.0f} seconds"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
