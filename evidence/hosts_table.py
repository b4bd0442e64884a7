"""Every host that is known here: its tower out, changed, and back, run at both ends.

    python -m evidence.hosts_table [--write docs/hosts.md] [NAME ...]

Each host is a class of transformers, built tiny, drawn anew and saved by transformers itself. Its tower
is converted to the project's own file and run by both twins and by the host's own module; then one
matrix of it is changed, it is put back into the host, and run again by all three. Every other tensor of
the host is compared byte by byte. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parity.porting.formats import open_container
from parity.porting.hosts.into import put_into
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.verification.verified import convert_verified
from tests.support.hosts import HOSTS, build
from vit_config import write_weights
from vit_config.errors import first_line

MATRIX = "blocks.1.mlp.fc2.weight"
INTRODUCTION = """# Towers out of their hosts, and back

For those whose Vision Transformer is a part of something larger.

Written by `python -m evidence.hosts_table --write docs/hosts.md` on {day}, with transformers
{transformers}. Each host is built tiny from its own class. `out` is the largest relative difference
between what the host's own module makes of images and what both twins make of them, in float64; `back`
is the same after one matrix of the tower was changed and `parity convert TOWER OUT --into HOST` wrote
the host again. `untouched` counts the tensors of the host that are the same, byte by byte. Gemma 4's own
module computes rotary angles and means in float32, whatever its type.

| host | class | tower | out | back | changed | untouched |
|---|---|---|---|---|---|---|
"""


class Line(NamedTuple):
    """The result of one host."""

    host: str
    kind: str
    dialect: str
    out: str
    back: str
    changed: int
    untouched: int
    passed: bool


def rows(folder: Path, names: Sequence[str]) -> Iterator[Line]:
    """The hosts of these names, one after another."""
    for number, name in enumerate(names):
        yield _line(name, folder / str(number))


def _line(name: str, folder: Path) -> Line:
    part, host = HOSTS[name].part, folder / "host"
    model = build(name)
    model.save_pretrained(host)
    source = read_checkpoint(host, part=part)
    out = _error(host, part, folder / "out.safetensors")
    arrays = {name: each.load() for name, each in source.arrays.items()}
    arrays[MATRIX] = arrays[MATRIX] + np.asarray(0.5, arrays[MATRIX].dtype)
    write_weights(folder / "new.safetensors", source.config, arrays)
    done = put_into(folder / "new.safetensors", host, folder / "again", host_part=part)
    before, after = open_container(host).tensors, open_container(folder / "again").tensors
    same = sum(before[n].load().tobytes() == after[n].load().tobytes() for n in before)
    back = _error(folder / "again", part, folder / "back.safetensors")
    passed = "DIFFERENT" not in out + back and same == len(before) - 1 and [*done.changed] != []
    kind = type(model).__name__
    return Line(name, kind, source.dialect.name, out, back, len(done.changed), same, passed)


def _error(host: Path, part: str | None, out: Path) -> str:
    """Return the distance of the host's module from the twins, or the difference."""
    verification = convert_verified(read_checkpoint(host, part=part), to="parity", out=out).verification
    ran = {row.ran_in for row in verification.rows}
    if not verification.passed or "transformers" not in ran:
        return f"DIFFERENT: {verification.problem or '; '.join(verification.not_run)}"
    return f"{max(row.error or 0.0 for row in verification.rows):.0e}"


def page(lines: Sequence[Line]) -> str:
    """The table as a page."""
    text = INTRODUCTION.format(day=date.today(), transformers=version("transformers"))
    return text + "".join(
        f"| {each.host} | {each.kind} | {each.dialect} | {each.out} | {each.back} | {each.changed} |"
        f" {each.untouched} |\n"
        for each in lines
    )


def main() -> int:
    """Make the table; the exit status."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--write", type=Path, default=None)
    parser.add_argument("names", nargs="*", default=list(HOSTS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = []
        for line in rows(Path(folder), arguments.names):
            lines.append(line)
            print(*line, flush=True)
    if arguments.write:
        arguments.write.write_text(page(lines), encoding="utf-8")
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
