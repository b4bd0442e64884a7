"""Verification of a conversion: source and result are run on the same images and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.measure.error import relative_error
from parity.measure.redraw import random_batch
from parity.measure.seen import is_zero, unseen
from parity.measure.shown import first_three, write_json
from parity.measure.tables import show_table
from parity.measure.tolerance import FLOAT64
from parity.porting.dialects.rewrites import ModelState
from parity.porting.dialects.transfer import cast
from parity.porting.dialects.transform import with_classes
from parity.porting.formats.base import Stored
from parity.porting.opening.provenance import versions
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.reading.libraries.installed import NoModelError, RefusedError, library_of
from parity.porting.text.read import read_text
from parity.porting.text.texts import Texts, build
from parity.porting.verification.runs import NAMES, LogitsCache, all_seconds, installed_twins
from parity.porting.writing.conversion import Converted
from vit_config import TextConfig, ViTConfig
from vit_train.frameworks import Framework

BATCH = 2
"""Number of images to compare on."""


@dataclass(frozen=True)
class VerifiedRun:
    """One run, compared with the reference."""

    what: str
    """The weights: ``source`` or ``written``."""
    ran_in: str
    """The twin or library."""
    error: float | None
    """Relative error of all logits, or of what a head of zeros sees; None if the library did not load
    the weights."""
    limit: float
    why: str = ""
    """The library's message if it refused the weights."""

    @property
    def passed(self) -> bool:
        """Whether the error is within its limit."""
        return self.error is not None and self.error <= self.limit


@dataclass(frozen=True)
class Verification:
    """The results of a verification."""

    rows: tuple[VerifiedRun, ...]
    reference: str
    """Description of the run that the others are compared with."""
    not_run: tuple[str, ...]
    """Runs that were not possible, with the reason."""
    versions: dict[str, str]
    unseen: str = ""
    """Why the logits could not have differed, so that equal ones say nothing; empty if they could."""
    zeros: tuple[str, ...] = ()
    """Parameters that multiply and are zero throughout: what they multiply was not compared."""

    @property
    def passed(self) -> bool:
        """Whether there is a comparison and all are within their limits."""
        return bool(self.rows) and all(row.passed for row in self.rows)

    @property
    def problem(self) -> str:
        """A phrase for each run that is not equal; empty if all are."""
        if not self.rows:
            return "nothing could be run"
        return "; ".join(_problem(row) for row in self.rows if not row.passed)


def verify(converted: Converted, *, runs: LogitsCache | None = None) -> Verification:
    """Run the source's weights - changed as asked, but in memory - and the written file's, in float64.

    The reference is the rewritten source in one twin. The file is read again, by the dialect that it
    states, and run in each installed twin and in the library that it was written for. If no change was
    asked for, the source is also run as it was read: in its own library, and in the twin if it was
    rewritten for the target. If a rewrite rounds a sum of parameters, the source's limit is its own
    round-off in the type of its weights, if that is larger. A text tower that was written too is run in
    each twin. Runs that a library cannot do are in
    `not_run`, with the reason.

    Args:
        runs: a cache of earlier runs; its images are used.

    Raises:
        ConfigError: neither PyTorch nor JAX is installed.
        WeightsError: the written file cannot be read.
    """
    twins = installed_twins()
    cfg, source = converted.config, converted.target.source
    runs = runs or LogitsCache(sample(cfg))
    runs.ahead = all_seconds(cfg, twins, 2 if converted.target.unchanged else 1)
    arrays = converted.target.state.arrays
    reference = seen = runs.twin(twins[0], cfg, arrays, "source")
    bare = "head.weight" in arrays and is_zero("head.weight", arrays["head.weight"].load)
    if bare:  # as one that is put on for other classes: what it sees is compared
        seen = runs.twin(twins[0], *without_head(cfg, arrays), "source")
    written = read_checkpoint(converted.path)
    rows, not_run = [], []
    own = written.config, written.arrays
    for name in twins:
        values = runs.twin(name, *(without_head(*own) if bare else own), "written")
        rows.append(VerifiedRun("written", f"{NAMES[name]} twin", relative_error(values, seen), FLOAT64))
    rows += _texts_compared(converted, written, twins)
    limit = FLOAT64
    if converted.target.unchanged and converted.target.state.said:
        original = runs.twin(twins[0], source.config, source.arrays, "source")
        if converted.target.state.rounds:
            own = runs.twin(twins[0], source.config, source.arrays, "source", wide=False)
            limit = max(FLOAT64, relative_error(own, original))
        error = relative_error(original, reference)
        rows.append(VerifiedRun("source", f"{NAMES[twins[0]]} twin", error, limit))
    sides = [("written", written), *([("source", source)] if converted.target.unchanged else [])]
    for what, checkpoint in sides:
        least = limit if what == "source" else FLOAT64
        row = _run_library(what, checkpoint, runs, reference, least)
        if isinstance(row, VerifiedRun):
            rows.append(row)
        else:
            not_run.append(f"{what}: {row}")
    if not converted.target.unchanged:
        not_run.append(
            "source, in its own library: changes were asked for, so it computes what was before"
        )
    not_run += [f"pixels: {note}" for note in _pixels_apart(converted)]
    return Verification(
        tuple(rows), f"source, {NAMES[twins[0]]} twin", tuple(not_run), versions(), unseen([seen]),
        tuple(name for name, each in arrays.items() if is_zero(name, each.load)),
    )  # fmt: skip


def without_head(cfg: ViTConfig, arrays: Mapping[str, Stored]) -> tuple[ViTConfig, Mapping[str, Stored]]:
    """Return a model whose logits are what its head sees."""
    state = with_classes(ModelState(cfg, dict(arrays)), 0)
    return state.config, state.arrays


def sample(cfg: ViTConfig, count: int = BATCH) -> np.ndarray:
    """Draw images (B, H, W, C) to compare a model on."""
    return random_batch(cfg, count, seed=0).images


def _texts_compared(
    converted: Converted, written: Checkpoint, twins: Sequence[str]
) -> Iterator[VerifiedRun]:
    """Compare the written text tower, if there is one, with the source's, on the same random texts."""
    if (text := converted.target.text) is None:
        return
    read = read_text(written)
    reference = likeness(twins[0], text.config, text.arrays)
    for name in twins:
        error = relative_error(likeness(name, read.config, read.arrays), reference)
        yield VerifiedRun("written, texts", f"{NAMES[name]} twin", error, FLOAT64)


def _pixels_apart(converted: Converted) -> Iterator[str]:
    """Yield how the target's library may prepare other pixels of an image than the source's."""
    source, target = converted.target.source, converted.target.dialect
    pixels = converted.target.metadata.pixels
    one_end = (source.dialect.family, target.family).count("hf") == 1
    if pixels is None or not one_end or not converted.path.is_dir():
        return
    size = pixels.image_size or converted.config.image_size
    over = [whole - side for whole, side in zip(pixels.resized(size), size, strict=True)]
    if pixels.crop_mode == "center" or any(each % 4 == 3 for each in over):
        yield (
            "prepared tensors were compared; transformers begins a centre crop a pixel before everybody"
            " else where an image has 3, 7, 11 ... pixels too many (docs/preprocessing.md)"
        )


def _run_library(
    what: str, checkpoint: Checkpoint, runs: LogitsCache, reference: np.ndarray, least: float
) -> VerifiedRun | str:
    """Run a checkpoint in its own library, and return the comparison, or in words why it was not run."""
    try:
        library = library_of(checkpoint)
    except NoModelError as error:
        return str(error)
    limit = least
    try:
        limit = max(least, library.limit(checkpoint))
        logits = runs.library(checkpoint, what)
    except NoModelError as error:
        return str(error)
    except RefusedError as error:
        if what == "source":  # the twins loaded it, so the difference may not matter
            return str(error)
        return VerifiedRun(what, library.name, None, limit, str(error))
    except Exception as error:  # libraries raise errors of any kind
        message = (" ".join(str(error).split()) or "no message")[:300]
        return f"{library.name} failed with {type(error).__name__}: {message}"
    if logits.shape != reference.shape:
        return f"{library.name} gives {logits.shape}, the twins {reference.shape}: not the same output"
    return VerifiedRun(what, library.name, relative_error(logits, reference), limit)


def write_verification(verification: Verification, out: Path) -> Path:
    """Write the result as JSON: into the verified folder, or beside the verified file."""
    name = "verification.json"
    path = out / name if out.is_dir() else out.with_name(f"{out.name}.{name}")
    content = {**asdict(verification), "passed": verification.passed}
    write_json(path, content)
    return path


def print_verification(verification: Verification, console: Console) -> None:
    """Show the result as a table."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("weights", "run in", "error of the logits", "limit", ""):
        table.add_column(heading)
    for row in verification.rows:
        verdict = "[green]equal" if row.passed else "[red]DIFFERENT"
        error = "not loaded" if row.error is None else f"{row.error:.1e}"
        table.add_row(row.what, row.ran_in, error, f"{row.limit:.0e}", verdict)
    show_table(table, console)
    for row in verification.rows:
        if row.why:
            console.print(f"[red]{row.what}, {row.ran_in}:[/] {escape(row.why)}")
    if verification.unseen:
        console.print(
            f"[bold yellow]UNCERTIFIED[/]: what was compared says nothing: {escape(verification.unseen)}"
        )
    if count := len(verification.zeros):
        are = "parameter is" if count == 1 else "parameters are"
        some = escape(first_three(verification.zeros))
        console.print(
            f"[yellow]{count} {are} zero; what is multiplied by it was not compared:[/] {some}"
        )
    for note in verification.not_run:
        console.print(f"[dim]not run - {escape(note)}[/]")


def _problem(row: VerifiedRun) -> str:
    if row.error is None:
        return f"{row.what} run in {row.ran_in}: {row.why}"
    return f"{row.what} run in {row.ran_in}: off by {row.error:.1e}, limit {row.limit:.0e}"


TEXTS, IMAGES = 4, 3


def likeness(framework: str, cfg: TextConfig, arrays: Mapping[str, Stored]) -> np.ndarray:
    """Compare random texts with random embeddings of images, (images, texts), in float64."""
    stream = np.random.default_rng(0)
    ids = stream.integers(0, cfg.vocab_size, (TEXTS, cfg.context_length))
    if cfg.eos_id is not None:
        ids[np.arange(TEXTS), stream.integers(0, cfg.context_length, TEXTS)] = cfg.eos_id
    images = stream.standard_normal((IMAGES, cfg.projection_dim or cfg.hidden_size))
    wide = {name: cast(stored, np.dtype(np.float64)) for name, stored in arrays.items()}
    twin: Framework = "jax" if framework == "jax" else "torch"
    with _wide(twin):
        texts = Texts(cfg, {}, twin, build(twin, cfg, wide), Path())
        return texts.compare(images, texts.embed(ids)).logits


def _wide(framework: Framework) -> Any:
    if framework != "jax":
        return nullcontext()
    import jax

    return jax.enable_x64(True)
