"""What hostile files and data sets take: each file of the suite is opened in a process of its own, the
sets one after the other.

python -m evidence.hostile --write docs/hostile.md
"""

from __future__ import annotations

import argparse
from datetime import date
from importlib.metadata import version
from pathlib import Path

from parity.porting.formats.budget import MOST_OBJECTS
from tests.support.hostile import FILES, MIB, in_a_child
from tests.support.hostile_sets import REFUSED, opened_sets
from vit_config.files.held import FLOOR, MULTIPLE

MARK = "<!-- written by evidence/hostile.py -->\n"


def table() -> str:
    """The budget, and a line for each file."""
    lines = [
        f"- Tensors, and what is packed: {FLOOR // MIB} MiB and {MULTIPLE} times the file's size.",
        f"- Names, numbers, containers: as much, and at most {MOST_OBJECTS // MIB} MiB.",
        "",
        "| a file of | bytes | opening it takes | is |",
        "|---|---|---|---|",
    ]
    refused = 0
    for name in FILES:
        entry = in_a_child(name)[name]
        refused += bool(entry["said"])
        end = "refused" if entry["said"] else "read"
        lines.append(f"| {name} | {entry['bytes']:,} | {entry['mib']} MiB | {end} |")
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("numpy", "torch", "pillow", "pyarrow", "tensorstore")
    )
    lines += ["", f"{refused} of {len(FILES)} refused.", "", *_sets()]
    return "\n".join([*lines, "", f"`python -m evidence.hostile`, {date.today()}, {versions}.", ""])


def _sets() -> list[str]:
    """A line for each kind of data set."""
    lines = ["| data sets | refused | read, though odd | most memory |", "|---|---|---|---|"]
    entries = opened_sets()
    for kind in ("folder", "tar", "hf"):
        mine = {name: each for name, each in entries.items() if each["kind"] == kind}
        refused = sum(bool(each["said"]) for each in mine.values())
        most = max(each["mib"] for each in mine.values())
        lines.append(f"| `{kind}:` | {refused} | {len(mine) - refused} | {most} MiB |")
    wrong = [name for name, each in entries.items() if bool(each["said"]) != (name in REFUSED)]
    return [*lines, "", f"{len(entries) - len(wrong)} of {len(entries)} as they should be."]


def main() -> None:
    """Print the table, or put it into a page behind its mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    page = parser.parse_args().write
    if page is None:
        print(table())
    else:
        head = page.read_text().partition(MARK)[0]
        page.write_text(head + MARK + table())


if __name__ == "__main__":
    main()
