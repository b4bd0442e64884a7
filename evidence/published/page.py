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
    """The page."""
    asked = ("transformers", "timm", "open_clip_torch", "torchvision", "torch", "jax")
    versions = ", ".join(f"{name} {version(name)}" for name in asked)
    ran = sum(line.run for line in lines)
    ours = sum(_is_installed(published()[line.name]) for line in lines)
    others = len(lines) - ours
    page = [
        "# Published checkpoints, at their own sizes",
        "",
        "For those who want to know whether the checkpoint that they have goes where they want it.",
        "",
        f"Written by `python -m evidence.published {_flags(lines)}--write docs/published.md`",
        f"on {date.today().isoformat()} ({versions}; Python {platform.python_version()}).",
        "",
        f"{len(lines)} checkpoints by the entries of config.json or model_args that"
        " `evidence/published`",
        "holds. The weights are random, as nothing is downloaded. Each is made by its own library,",
        f"converted, and converted back. {ran} of them, {_which(lines)}",
        "were drawn, saved and run on an image in float64, in both twins and in the",
        "libraries of both ends; `error` is the largest of logits, or of the pooled vector (larger than",
        "rounding in float64 where a library computes rotary angles or positions in float32), and what",
        "came back unrewritten came back bit for bit. Of the others names and shapes were compared with",
        "those of the target library's own class, built from the config file that would be written.",
        "Everything written is read again with this project's header and without it.",
        _unheld(lines),
        "",
        f"Where the entries are from: those of {ours} are what timm, torchvision and OpenCLIP, as",
        "installed, hold of the checkpoint of that name or of its architecture. Those of the other",
        f"{others} (transformers' config.json, timm's of other people, and files without one) are",
        "what is publicly known of the models: **none was held against the real file**, and no table of",
        "random weights shows whether a real file has other entries than these.",
        "",
        "`=` the same, `~` the same after an exact rewriting, `-` refused, `!` different;",
        "the second sign is the way back to the source's dialect.",
        "",
        "| checkpoint | read as | parameters | timm | Hugging Face | JAX | error |",
        "|---|---|---|---|---|---|---|",
    ]
    page += [shown(line) for line in lines]
    page += ["", "What was rewritten, and why what was refused was:", ""]
    for line in lines:
        page += [f"- {line.name}: not read: {line.refused}"] if line.refused else []
        for way in line.ways:
            for said in way.unrun:
                page.append(f"- {line.name} to {TARGETS[way.target]}: no library: {said}")
            if way.said:
                page.append(f"- {line.name} to {TARGETS[way.target]}: {WORDS[way.symbol]}{way.said}")
            if way.back_said:
                said = f"{WORDS[way.back]}{way.back_said}"
                page.append(f"- {line.name} back from {TARGETS[way.target]}: {said}")
    return "\n".join(page) + "\n"


def _unheld(lines: Sequence[Line]) -> str:
    """Say how often a library had no model to hold what was written against."""
    number = sum(bool(way.unrun) for line in lines for way in line.ways)
    if not number:
        return "In every one of these ways the libraries of both ends had a model of it."
    return f"In {number} of these ways a library of one end had no model of it: they are listed below."


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
