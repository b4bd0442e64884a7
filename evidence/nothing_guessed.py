"""The source of each quantity that no shape shows, and whether two functions are ever confused.

    python -m evidence.nothing_guessed [--write docs/nothing_guessed.md]

Every schema that a dialect can write is varied in each quantity that names and shapes do not show;
models that look alike then are read from bare tensors, and from tensors beside their library's config
files. Exit status 1 if one is read as another.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

from evidence import dialect_table
from parity.porting.dialects import dialects
from parity.porting.dialects.dialect import Dialect, Fixed
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.recognition.questions import SILENT
from parity.porting.recognition.resolve import SQUARE
from tests.support import look_alikes
from tests.support.look_alikes import Outcome
from vit_config.errors import first_line

SHOWN = (
    "num_heads",
    "norm_eps",
    "act",
    "pool",
    "patch_size",
    "image_size",
    "pos_embed",
    "rope",
    "block",
)
"""The rows of the first table."""
INTRODUCTION = """# Nothing is guessed

For those who want to know where the quantities of a model come from that no shape shows.

Written by `python -m evidence.nothing_guessed --write docs/nothing_guessed.md` on {day}.

## Sources

`shapes`: the shapes of the file's tensors. `code`: the format's library has one value for every file, or
derives it from the others. `code, square`: the library takes a position table of unknown grid for a
square, and a note says so. `entry`: an entry of the config file, and asked for where
there is none. `ask`: nobody states it, so `--set` or `--like` has to. Of a file, `parity inspect FILE`
prints the source of each field, with the place in the library's code.

How many dialects have which source:
"""
ALIKE = """
## Models that look alike

Models of other functions under the same names and shapes, made from every dialect's samples by varying
heads, activation, epsilon, pooling, kind of block, rotary and fixed positions, channels against patch,
and grid. Each is read once for every model that it may be.
"""
WORDS = {"shapes": "shapes", "code": "code", "ask": "ask", "file": "entry", "square": "code, square"}


class Sources(NamedTuple):
    """One dialect's sources of the silent fields."""

    dialect: Dialect
    cells: dict[str, str]
    places: dict[str, str]
    """The place in the library's code that decides each field."""


def sources() -> Iterator[Sources]:
    """Those of a small model of each dialect, read from bare tensors with what is asked answered."""
    for dialect in dialects():
        if not dialect.writes or dialect.name == "parity":
            continue
        cfg = dialect_table.sample(dialect)
        source, asked = look_alikes.answered(look_alikes.tensors_of(dialect, cfg), cfg, dialect.name)
        open_word = "file" if dialect.settings is not None else "ask"
        cells = {name: open_word if name in asked else _source(source, name) for name in SILENT}
        places = {name: each.by for name, each in _by_code(dialect, source).items() if name in SILENT}
        if cells["image_size"] == "square":
            places["image_size"] = dialect.square
        yield Sources(dialect, cells, places)


def _source(source: Checkpoint, name: str) -> str:
    origin = source.origins[name]
    if origin == SQUARE:
        return "square"
    return "code" if origin.startswith(("code of", "assumed")) else "shapes"


def _by_code(dialect: Dialect, source: Checkpoint) -> dict[str, Fixed]:
    fields = {name: getattr(source.config, name) for name in source.config.fields()}
    return {**dialect.fixed, **dialect.follows(fields)}


def page(rows: list[Sources], bare: list[Outcome], beside: list[Outcome]) -> str:
    """The tables as a page."""
    words = list(WORDS.values())
    lines = [
        INTRODUCTION.format(day=date.today()),
        "| field | " + " | ".join(words) + " |",
        "|---" * (len(words) + 1) + "|",
    ]
    for name in SHOWN:
        counts = Counter(WORDS[row.cells[name]] for row in rows)
        lines.append(f"| `{name}` | " + " | ".join(str(counts[word]) for word in words) + " |")
    kinds = list(look_alikes.KINDS)
    lines += [ALIKE, "| read | readings | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 2) + "|"]
    for title, outcomes in (("tensors alone", bare), ("tensors beside config files", beside)):
        counts = Counter(each.kind for each in outcomes)
        numbers = (len(outcomes), *(counts[kind] for kind in kinds))
        lines.append(f"| {title} | " + " | ".join(map(str, numbers)) + " |")
    lines += ["", *(f"- {kind}: {said}" for kind, said in look_alikes.KINDS.items())]
    wrong = [each for each in (*bare, *beside) if each.kind == "WRONG"]
    lines += ["", *(f"- {each.dialect}: {each.said}" for each in wrong)] if wrong else []
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--write", type=Path, default=None)
    arguments = parser.parse_args()
    groups = look_alikes.groups()
    bare = [each for group in groups for each in look_alikes.bare(group)]
    beside = [each for group in groups for each in look_alikes.beside_config(group)]
    if arguments.write:
        arguments.write.write_text(page(list(sources()), bare, beside), encoding="utf-8")
    counts = Counter(each.kind for each in (*bare, *beside))
    print(
        f"{len(groups)} groups, {len(bare)} models: " + ", ".join(f"{n} {k}" for k, n in counts.items())
    )
    for each in (*bare, *beside):
        if each.kind == "WRONG":
            print(f"{each.dialect}: {each.said}")
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
