"""What hostile files take: each of the suite's is opened in a process of its own.

python tools/hostile.py --write docs/hostile.md
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

from parity.porting.formats.budget import FLOOR, MOST_OBJECTS, MULTIPLE
from tests.support.hostile import FILES, MIB, in_a_child

MARK = "<!-- written by tools/hostile.py -->\n"


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
        found = in_a_child(name)[name]
        refused += bool(found["said"])
        end = "refused" if found["said"] else "read"
        lines.append(f"| {name} | {found['bytes']:,} | {found['mib']} MiB | {end} |")
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "torch"))
    return "\n".join([*lines, "", f"{refused} of {len(FILES)} refused; 2026-11-25, {versions}.", ""])


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
