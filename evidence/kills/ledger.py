"""What `hosts.py` has done, a line of JSON for each run that was compared; and its page."""

from __future__ import annotations

import datetime
import json
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evidence import ROOT

PAGE = ROOT / "docs" / "killed_hosts.md"
FILE = "kills.jsonl"
CLOSE = 1e-12
"""How near a tensor of a run that went on with others has to be, as a share of its norm."""
PACKAGES = ("jax", "jaxlib", "flax", "orbax-checkpoint", "numpy")
HEAD = """# Processes killed while they train together

For those who ask what becomes of a run on several hosts when one of them dies.

Several processes on one machine train as one, over Gloo, four emulated devices between them on
`data=2,fsdp=2`, in float64, with dropout, mixup, clipping, an average and a best checkpoint. One of them
at random is killed (SIGKILL) at a random moment, while it starts, trains, saves or evaluates. The others
have to end by themselves; all are started again, until the run has come to its end, and every tensor of
it is compared with that of a run that nobody disturbed. Some runs always go on with *as many* processes,
and have to be the same with every bit of state and log. Of the *others* one, two or four go on, chosen
at random each time, and every tensor has to be the same to 1e-12 of its norm, as sums are taken in
another order. *Apart* is how often processes lost each other with none killed, for want of time on the
machine; they were started again, and it counts as no kill.
"""


class Ledger:
    """The runs that were compared, kept in a folder; what is there goes on.

    Raises:
        SystemExit: they were made with other packages.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self.rows: list[dict[str, Any]] = []
        if self.path.is_file():
            *lines, _ = self.path.read_bytes().split(b"\n")  # one that was cut off has no end
            self.rows = [json.loads(line) for line in lines]
            self.path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        for row in self.rows:
            if row["packages"] != (here := packages()):
                sys.exit(
                    f"{self.path}: made with {row['packages']}, here is {here}; take another --folder"
                )

    def add(self, **row: Any) -> None:
        """Note a run that was compared."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
        self.rows.append({**row, "packages": packages(), "finished": now})
        with self.path.open("a") as file:
            file.write(json.dumps(self.rows[-1]) + "\n")

    def of(self, count: int, others: Sequence[int]) -> list[dict[str, Any]]:
        """The runs of one way."""
        return [row for row in self.rows if (row["count"], row["others"]) == (count, list(others))]


def packages() -> str:
    """Return the versions of the packages and of Python."""
    named = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return f"{named}, Python {platform.python_version()}"


def kills_of(row: dict[str, Any]) -> int:
    """Return the number of processes that were killed in a run."""
    return row["places"].get("start", 0) + row["places"].get("training", 0)


def sentence(count: int, others: Sequence[int], rows: Sequence[dict[str, Any]]) -> str:
    """Describe the kills of one way."""
    numbers, places = Counter[str](), Counter[str]()
    for row in rows:
        numbers.update(row["numbers"])
        places.update(row["places"], lost=row["apart"])
    by = ", ".join(f"{times} of {number}" for number, times in sorted(numbers.items()))
    same = "every bit" if len(others) == 1 else f"every tensor to {CLOSE:g}"
    apart = f", {places['lost']} times apart" if places["lost"] else ""
    return (
        f"{count} processes, then {' or '.join(map(str, others))}: {sum(map(kills_of, rows))} kills in"
        f" {len(rows)} runs ({by}), {places['start']} while starting{apart}; {same} as nobody"
        " had killed any"
    )


def page(ledger: Ledger) -> str:
    """A sentence on each way, and all runs."""
    rows = ledger.rows
    ways = dict.fromkeys((row["count"], tuple(row["others"])) for row in rows)
    table = ["| finished (UTC) | processes | went on with | kills of | while starting | apart |"]
    table += ["|---|---|---|---|---|---|"]
    for row in rows:
        going = "as many" if len(row["others"]) == 1 else "others"
        by = ", ".join(f"{times} of {count}" for count, times in sorted(row["numbers"].items()) if times)
        last = f"{by} | {row['places'].get('start', 0)} | {row['apart']} |"
        table.append(f"| {row['finished']} | {row['count']} | {going} | {last}")
    start, apart = (
        sum(row["places"].get("start", 0) for row in rows),
        sum(row["apart"] for row in rows),
    )
    said = (
        f"**{sum(map(kills_of, rows))} kills in {len(rows)} runs**, {start} of them while starting;"
        f" {apart} times apart. No run came to another end: one that does ends the command with an"
        " error."
    )
    made = f"By `python -m evidence.kills.hosts --folder DIR --write`, with {rows[-1]['packages']}:"
    sentences = [sentence(*way, ledger.of(*way)) for way in sorted(ways)]
    return "\n".join([HEAD, made, "", "```", *sentences, "```", "", said, "", *table]) + "\n"
