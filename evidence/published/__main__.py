"""Published checkpoints, at their own sizes: to timm, to Hugging Face, to JAX, and back.

    python -m evidence.published [--only dinov2] [--share rotating/30 [--one]]
        [--kept build/published.jsonl] [--shapes] [--write docs/published.md]

Each checkpoint of evidence/published is made as its own library makes it, from the entries of its config
file, and read, converted and read again. Of sizes S and B the weights are drawn, and what was read and
what was written is run on an image, in both twins and in the libraries, in float64; of larger ones
names and shapes are compared with those of the target library's own class, and nothing is written. All
of it takes an hour of one core; a call that was stopped goes on behind the rows that are kept, and with
``--shapes`` those that are missing are compared by names and shapes. With ``--one`` so are all of a
share, but for one that is run: the one of sizes S and B whose turn it is, if that takes a minute at
most. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from evidence.published.facts import Published, published
from evidence.published.page import TARGETS, Line, details, markdown, shown
from evidence.published.sources import drawn, names_and_shapes
from evidence.published.ways import Way, compared, ran, reason
from parity.porting.opening.opened import Opened
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.verification.runs import LogitsCache
from parity.porting.verification.verify import sample
from tests.support.share import due, parse
from vit_config import ConfigError, WeightsError
from vit_config.errors import first_line

MINUTE = 87e6 * 260
"""What is run there and back in a minute of one core: parameters by patches."""


def rows(
    folder: Path,
    names: Sequence[str] | None = None,
    run: Collection[str] | None = None,
    most: float = math.inf,
) -> Iterator[Line]:
    """Every checkpoint, or some.

    Args:
        run: those whose weights are drawn and run; None: all of sizes S and B.
        most: parameters by patches of those that are run; names and shapes of larger ones are compared.
    """
    known = published()
    run = [name for name, one in known.items() if one.full] if run is None else run
    for number, name in enumerate(names if names is not None else known):
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{number}.") as inside:
            yield _line(known[name], Path(inside), most if name in run else 0)


def _line(one: Published, folder: Path, most: float) -> Line:
    try:
        source = _read(one, names_and_shapes(one, folder / "source"))
        number = sum(each.nbytes // each.dtype.itemsize for each in source.arrays.values())
        run = number * math.prod(source.config.grid) <= most
        source = _read(one, drawn(one, folder / "drawn")) if run else source
    except (ConfigError, WeightsError) as error:
        return Line(one.name, one.library, one.size, "-", 0, False, (), reason(error, folder))
    ways = tuple(_ways(source, folder, run=run))
    return Line(one.name, one.library, one.size, source.dialect.name, number, run, ways)


def _read(one: Published, opened: Opened) -> Checkpoint:
    return read_checkpoint(opened, part=one.part or None, given=one.given, override=one.override)


def _ways(source: Checkpoint, folder: Path, *, run: bool) -> Iterator[Way]:
    runs = LogitsCache(sample(source.config, 1))
    for target in TARGETS:
        yield ran(source, target, folder, runs) if run else compared(source, target, folder)


def saved_lines(path: Path | None) -> dict[str, Line]:
    """The rows of a call that was stopped, by name; what it was writing then is left out."""
    lines = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path and path.is_file() else []:
        try:
            row = json.loads(text)
        except json.JSONDecodeError:
            continue
        ways = tuple(Way(*way)._replace(unrun=tuple(way[-1])) for way in row["ways"])
        lines[row["name"]] = Line(**{**row, "ways": ways})
    return lines


def keep(path: Path | None, line: Line) -> None:
    """Add a finished row to the file."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line._asdict()) + "\n")


def _whose_turn_it_is() -> list[str]:
    """One of those that are run: the next one each day, and each commit."""
    full = [name for name, one in published().items() if one.full]
    return [full[due(len(full))]]


def main() -> int:
    """Make the table; the exit status."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--only", default="", help="those with this in their names")
    parser.add_argument("--share", type=parse, default="all", help="K/N or rotating/N")
    parser.add_argument("--one", action="store_true", help="run one alone, the one that is due")
    parser.add_argument("--kept", type=Path, default=None, help="a file of finished rows")
    parser.add_argument("--shapes", action="store_true", help="run nothing; what is kept was run")
    parser.add_argument("--write", type=Path, default=None)
    arguments = parser.parse_args()
    share = arguments.share.of([*published()])
    run = _whose_turn_it_is() if arguments.one else [] if arguments.shapes else None
    share += [name for name in run or () if name not in share]
    names = [name for name in share if arguments.only in name]
    lines = saved_lines(arguments.kept)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        missing = [name for name in names if name not in lines]
        for line in rows(Path(folder), missing, run, MINUTE if arguments.one else math.inf):
            print(shown(line), flush=True)
            if arguments.only:
                print("\n".join(details(line)))
            if not arguments.shapes:
                keep(arguments.kept, line)
            lines[line.name] = line
    made = [lines[name] for name in names]
    if arguments.write:
        arguments.write.write_text(markdown(made), encoding="utf-8")
    for line in made:
        for way in line.ways:
            if "!" in (way.symbol, way.back):
                print(f"{line.name}, {way.target}: {way.said}; back: {way.back_said}")
    return 0 if all(line.passed for line in made) else 1


if __name__ == "__main__":
    sys.exit(main())
