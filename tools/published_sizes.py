"""Published checkpoints, at their own sizes: to timm, to Hugging Face, to JAX, and back.

    python tools/published_sizes.py [--only dinov2] [--run NAME ...] [--write docs/published.md]

Each checkpoint of tools/published is made as its own library makes it, from the entries of its real
config file, and read, converted and read again. Of sizes S and B the weights are drawn, and what was
read and what was written is run in both twins and in the libraries, in float64; of larger ones names
and shapes are compared with those of the target library's own class, and nothing is written. ``--run``
names those that are run instead; one of 1370 tokens takes minutes. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from published.facts import Published, published
from published.sources import drawn, names_and_shapes

from parity.porting.checkpoint import Checkpoint, read_checkpoint
from parity.porting.conversion_plan import plan
from parity.porting.reopened import compare
from parity.porting.verification.libraries import NoModelError, misfits
from parity.porting.verification.verified import convert_verified
from parity.porting.verification.verify import Verification
from tests.support.unread import as_written, unread
from vit_config import ConfigError, WeightsError

TARGETS = {"timm": "timm", "hf": "Hugging Face", "parity": "JAX"}
"""Dialects, and what the page calls them; the project's own is what the JAX twin reads."""


class Way(NamedTuple):
    """One checkpoint to one target and back."""

    target: str
    symbol: str
    """``=`` equal, ``~`` equal after a rewriting, ``-`` refused, ``!`` different."""
    said: str = ""
    """What was rewritten, why it was refused, or in what it differs."""
    back: str = ""
    """The same symbols, of the way back to the source's dialect."""
    back_said: str = ""
    error: float | None = None
    """The largest relative error of logits or of the pooled vector, of those that were run."""


class Line(NamedTuple):
    """What became of one checkpoint."""

    name: str
    library: str
    size: str
    dialect: str
    parameters: int
    run: bool
    ways: tuple[Way, ...]
    refused: str = ""
    """Why it was not read."""

    @property
    def passed(self) -> bool:
        """Whether nothing differs; a refusal is an answer."""
        return not any("!" in (way.symbol, way.back) for way in self.ways)


def rows(
    folder: Path, names: Sequence[str] | None = None, run: Sequence[str] | None = None
) -> Iterator[Line]:
    """Every checkpoint, or some.

    Args:
        run: those whose weights are drawn and run; None: all of sizes S and B.
    """
    known = published()
    run = [name for name, one in known.items() if one.full] if run is None else run
    for number, name in enumerate(names if names is not None else known):
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{number}.") as inside:
            yield _line(known[name], Path(inside), run=name in run)


def _line(one: Published, folder: Path, *, run: bool) -> Line:
    try:
        opened = (drawn if run else names_and_shapes)(one, folder / "source")
        source = read_checkpoint(opened, given=one.given, override=one.override)
    except (ConfigError, WeightsError) as error:
        return Line(one.name, one.library, one.size, "-", 0, False, (), _reason(error, folder))
    number = sum(each.nbytes // each.dtype.itemsize for each in source.arrays.values())
    way = _ran if run else _compared
    ways = tuple(way(one, source, target, folder) for target in TARGETS)
    return Line(one.name, one.library, one.size, source.dialect.name, number, run, ways)


def _reason(error: Exception, folder: Path) -> str:
    """What a refusal says, without the path that it may begin with."""
    path, _, said = str(error).replace(f"{folder}/", "").partition(": ")
    return f"{path}: {said}" if " " in path and said else said or path


def _compared(one: Published, source: Checkpoint, target: str, folder: Path) -> Way:
    """By names and shapes: what would be written, read with and without this project's header."""
    try:
        there = plan(source, target)
    except ConfigError as error:
        return Way(target, "-", _reason(error, folder))
    said = "; ".join(there.state.said)
    symbol = "~" if said else "="
    try:
        again = _reread(there, folder / target)
    except (ConfigError, WeightsError) as error:
        return Way(target, "!", _reason(error, folder))
    try:
        back = plan(again, source.dialect.name)
    except ConfigError as error:
        return Way(target, symbol, said, "-", _reason(error, folder))
    try:
        _reread(back, folder / f"{target}-back")
    except (ConfigError, WeightsError) as error:
        return Way(target, symbol, said, "!", _reason(error, folder))
    if lost := _lost(source, set(back.tensors), {n: t.shape for n, t in back.tensors.items()}):
        return Way(target, symbol, said, "~", f"other tensors: {lost}")
    return Way(target, symbol, said, "~" if back.state.said else "=", "; ".join(back.state.said))


def _reread(there, folder: Path) -> Checkpoint:
    """What would be written, read as a reader would; and against the library's own class.

    Raises:
        WeightsError: it is another model.
    """
    again = read_checkpoint(as_written(there, folder))
    compare(again, there)
    sidecars = again.opened.sidecars
    if sidecars.are_of(there.dialect):
        shapes = {name: stored.shape for name, stored in again.container.tensors.items()}
        compare(read_checkpoint(unread(shapes, folder, sidecars.contents)), there)
    with suppress(NoModelError):
        if problems := misfits(again):
            raise WeightsError("; ".join(problems[:4]))
    return again


def _lost(source: Checkpoint, names: set[str], shapes: dict) -> str:
    """In which tensors the way back differs from the source's own, three at most."""
    body = source.dialect.body
    own = {name.removeprefix(body): each.shape for name, each in source.tensors.items()}
    found = {name.removeprefix(body): shape for name, shape in shapes.items()}
    wrong = [name for name in own if name in found and found[name] != own[name]]
    wrong += [name for name in own if name not in found]
    return ", ".join(wrong[:3])


def _ran(one: Published, source: Checkpoint, target: str, folder: Path) -> Way:
    """By running it: the source and what was written, and what was written of that."""
    try:
        there = convert_verified(source, to=target, out=folder / target)
    except ConfigError as error:
        return Way(target, "-", _reason(error, folder))
    said = "; ".join(there.converted.target.state.said)
    symbol, error = _judged(there.verification, "~" if said else "=")
    if symbol == "!":
        return Way(target, "!", there.verification.problem, error=error)
    if target == "parity":
        return Way(target, symbol, said, error=error)
    again = read_checkpoint(there.path)
    try:
        back = convert_verified(again, to=source.dialect.name, out=folder / f"{target}-back")
    except ConfigError as refusal:
        return Way(target, symbol, said, "-", _reason(refusal, folder), error)
    rewritten = "; ".join(back.converted.target.state.said)
    back_symbol, worse = _judged(back.verification, "~" if rewritten else "=")
    problem = back.verification.problem if back_symbol == "!" else rewritten
    return Way(target, symbol, said, back_symbol, problem, max(error, worse))


def _judged(verification: Verification, symbol: str) -> tuple[str, float]:
    errors = [row.error for row in verification.rows if row.error is not None]
    return symbol if verification.passed else "!", max(errors, default=0.0)


def markdown(lines: Sequence[Line]) -> str:
    """The table as a page."""
    asked = ("transformers", "timm", "open_clip_torch", "torchvision", "torch", "jax")
    versions = ", ".join(f"{name} {version(name)}" for name in asked)
    ran = sum(line.run for line in lines)
    page = [
        "# Published checkpoints, at their own sizes",
        "",
        "For those who want to know whether the checkpoint that they have goes where they want it.",
        "",
        f"Written by `{_command(lines)}`",
        f"on {date.today().isoformat()} ({versions}; Python {platform.python_version()}).",
        "",
        f"{len(lines)} checkpoints by the entries of config.json or model_args that `tools/published`",
        "holds. The files themselves were not at hand: most entries are from what is publicly known of",
        "the models, and are to be held against the files where it matters. The weights are random, as",
        "nothing is downloaded. Each is made by its",
        f"own library, converted, and converted back. {ran} of them were drawn and run, in float64,",
        "in both twins and in the libraries of both ends; `error` is the largest of logits, or of the",
        "pooled vector. Of the others names and shapes were compared with those of the target library's",
        "own class, built from the config file that would be written. Everything written is read again",
        "with this project's header and without it.",
        "",
        "`=` the same, `~` the same after an exact rewriting, `-` refused, `!` different;",
        "the second sign is the way back to the source's dialect.",
        "",
        "| checkpoint | read as | parameters | timm | Hugging Face | JAX | error |",
        "|---|---|---|---|---|---|---|",
    ]
    page += [_shown(line) for line in lines]
    page += ["", "What was rewritten, and why what was refused was:", ""]
    for line in lines:
        page += [f"- {line.name}: not read: {line.refused}"] if line.refused else []
        for way in line.ways:
            words = {"=": "", "~": "rewritten: ", "-": "refused: ", "!": "DIFFERENT: "}
            if way.said:
                page.append(f"- {line.name} to {TARGETS[way.target]}: {words[way.symbol]}{way.said}")
            if way.back_said:
                said = f"{words[way.back]}{way.back_said}"
                page.append(f"- {line.name} back from {TARGETS[way.target]}: {said}")
    return "\n".join(page) + "\n"


def _command(lines: Sequence[Line]) -> str:
    """The call that makes this page."""
    known, run = published(), [line.name for line in lines if line.run]
    every = run == [name for name, one in known.items() if one.full]
    named = "" if every else f" --run {' '.join(run)}"
    return f"python tools/published_sizes.py{named} --write docs/published.md"


def _shown(line: Line) -> str:
    if line.refused:
        return f"| {line.name} | not read | | - | - | - | |"
    marks = " | ".join(f"`{way.symbol}{way.back}`" for way in line.ways)
    errors = [way.error for way in line.ways if way.error is not None]
    error = f"{max(errors):.0e}" if errors else "names, shapes"
    return f"| {line.name} | {line.dialect} | {line.parameters / 1e6:.0f} M | {marks} | {error} |"


def main() -> int:
    """Make the table; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="those with this in their names")
    parser.add_argument("--run", nargs="*", default=None, help="these alone are run, not all of S and B")
    parser.add_argument("--write", type=Path, default=None)
    arguments = parser.parse_args()
    names = [name for name in published() if arguments.only in name]
    lines = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in rows(Path(folder), names, arguments.run):
            print(_shown(line), flush=True)
            lines.append(line)
    if arguments.write:
        arguments.write.write_text(markdown(lines), encoding="utf-8")
    for line in lines:
        for said in (line.refused, *(f"{w.target}: {w.said}; back: {w.back_said}" for w in line.ways)):
            print(f"{line.name}: {said}") if "!" in said or not line.passed or line.refused else None
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
