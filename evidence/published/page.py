"""The table of published checkpoints as a page."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from typing import NamedTuple

from evidence.published.facts import Published, published
from evidence.published.ways import Way

TARGETS = {"timm": "timm", "hf": "Hugging Face", "parity": "JAX"}
"""Dialects, and what the page calls them; the project's own is what the JAX twin reads."""
WORDS = {"=": "", "~": "rewritten: ", "-": "refused: ", "!": "DIFFERENT: "}


class Line(NamedTuple):
    """The results of one checkpoint."""

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


def markdown(lines: Sequence[Line]) -> str:
    """The page: sums, what was refused, and what is wrong."""
    asked = ("transformers", "timm", "open_clip_torch", "torchvision", "torch", "jax")
    versions = ", ".join(f"{name} {version(name)}" for name in asked)
    ran = sum(line.run for line in lines)
    ours = sum(_is_installed(published()[line.name]) for line in lines)
    page = [
        "# Published checkpoints, at their own sizes",
        "",
        "For those who want to know whether the checkpoint that they have goes where they want it.",
        "",
        f"Written by `python -m evidence.published {_flags(lines)}--write docs/published.md`",
        f"on {date.today().isoformat()} ({versions}; Python {platform.python_version()}).",
        "",
        f"{len(lines)} checkpoints by the entries of config files that `evidence/published` holds, with",
        "random weights. Each is made by its own library, converted, and converted back.",
        f"{ran} of them, {_which(lines)}",
        "were run on an image in float64, in both twins and in the libraries of both ends; what came",
        "back unrewritten came back bit for bit. Of the others names and shapes were compared with",
        "those of the target library's own class. `error` is the largest of logits or pooled vectors:",
        "above rounding where a library computes angles or positions in float32.",
        "",
        f"The entries of {ours} are what timm, torchvision and OpenCLIP hold of the checkpoint. The",
        f"other {len(lines) - ours} are publicly known of the models: **none was held against the real",
        "file**.",
        "",
        "| from | checkpoints | run | " + " | ".join(TARGETS.values()) + " | error |",
        "|---|---|---|---|---|---|---|",
        *(_sums(library, [line for line in lines if line.library == library]) for library in _of(lines)),
        _sums("all", lines),
        "",
        "`=` the same there and back, `~` the same after an exact rewriting, `-` refused there or back.",
        "`python -m evidence.published --shapes --only NAME` prints one, and what was rewritten or why.",
    ]
    wrong = [f"- {line.name}: {text}" for line in lines for text in wrongs(line)]
    return "\n".join([*page, "", *(wrong or ["Nothing differs, and all were read."])]) + "\n"


def _of(lines: Sequence[Line]) -> list[str]:
    """Return the libraries, in order."""
    return list(dict.fromkeys(line.library for line in lines))


def _sums(title: str, lines: Sequence[Line]) -> str:
    """The row of several checkpoints."""
    cells = []
    for target in TARGETS:
        ways = [f"{way.symbol}{way.back}" for line in lines for way in line.ways if way.target == target]
        counts = {sign: sum(_worst(way) == sign for way in ways) for sign in WORDS}
        cells.append(", ".join(f"{count} `{sign}`" for sign, count in counts.items() if count))
    errors = [way.error for line in lines for way in line.ways if way.error is not None]
    error = f"{max(errors):.0e}" if errors else "names, shapes"
    ran = sum(line.run for line in lines)
    return f"| {title} | {len(lines)} | {ran} | {' | '.join(cells)} | {error} |"


def _worst(way: str) -> str:
    """Return the sign of both directions."""
    return next(sign for sign in "!-~=" if sign in way)


def wrongs(line: Line) -> list[str]:
    """Return what is wrong: it is not read, differs, or a library has no model of it."""
    found = [f"not read: {line.refused}"] if line.refused else []
    for way in line.ways:
        found += [f"to {TARGETS[way.target]}: no library: {said}" for said in way.unrun]
        found += [f"{where}: DIFFERENT: {said}" for sign, where, said in _said(way) if sign == "!"]
    return found


def details(line: Line) -> list[str]:
    """Return what was rewritten, and why what was refused was."""
    return [f"{where}: {WORDS[sign]}{said}" for way in line.ways for sign, where, said in _said(way)]


def _said(way: Way) -> list[tuple[str, str, str]]:
    """Return what is said of each direction that something is said of, with its sign."""
    title = TARGETS[way.target]
    both = [(way.symbol, f"to {title}", way.said), (way.back, f"back from {title}", way.back_said)]
    return [each for each in both if each[2]]


def _is_installed(one: Published) -> bool:
    """Whether its entries are those of the library itself, as installed."""
    return one.library in ("timm", "torchvision", "open_clip") and one.model_args is None


def _left(lines: Sequence[Line]) -> set[str]:
    """Return the checkpoints of sizes S and B that were not run."""
    full = {name for name, one in published().items() if one.full}
    return full - {line.name for line in lines if line.run}


def _flags(lines: Sequence[Line]) -> str:
    """Return the flags of a call that does not run what others before it did not."""
    return "--kept build/published.jsonl --shapes " if _left(lines) else ""


def _which(lines: Sequence[Line]) -> str:
    """Say which checkpoints were run."""
    full = [name for name, one in published().items() if one.full]
    left = _left(lines)
    every = "all of sizes S and B that are models by themselves,"
    return every if not left else f"of the {len(full)} of sizes S and B that are models by themselves,"


def shown(line: Line) -> str:
    """The row of the table."""
    if line.refused:
        return f"| {line.name} | not read | | - | - | - | |"
    marks = " | ".join(f"`{way.symbol}{way.back}`" for way in line.ways)
    errors = [way.error for way in line.ways if way.error is not None]
    error = f"{max(errors):.0e}" if errors else "names, shapes"
    return f"| {line.name} | {line.dialect} | {line.parameters / 1e6:.0f} M | {marks} | {error} |"
