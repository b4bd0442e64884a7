"""The facts of a preset or a checkpoint that `parity inspect` shows, on screen and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from parity.cli.support import checkpoint_facts as facts
from parity.cli.support.checkpoint_facts import bytes_text, flops_text, per_image, shape_text
from parity.cli.support.reading import ReadingFlags
from parity.measure.tables import show_table
from parity.porting.formats.metadata import Metadata
from parity.porting.opening.hub import is_path
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.reading.health import anomalies
from parity.twins.anatomy import ModulePart
from vit_config import PRESETS, ConfigError, ViTConfig, preset, preset_preprocess, preset_tags
from vit_config.waiting import Waiting

JSON_VERSION = 3


class Inspected(NamedTuple):
    """The inspected preset or checkpoint."""

    name: str
    config: ViTConfig
    metadata: Metadata
    tag: str | None
    """timm's pretrained tag that the preprocessing belongs to."""
    checkpoint: Checkpoint | None = None
    anomalies: tuple[str, ...] | None = None
    """Anomalies of a checkpoint's values; None if nobody looked."""


def read_subject(name: str, reading: ReadingFlags, *, values: bool) -> Inspected:
    """Read the preset or checkpoint of that name.

    Args:
        values: whether to look for anomalies of a checkpoint's values.

    Raises:
        ConfigError: there is no such preset or tag, or something has to be stated.
        MissingFileError: there is no such file.
        WeightsError: see `parity.porting.reading.checkpoint.read_checkpoint`.
    """
    if name in PRESETS or not is_path(name):
        if reading != ReadingFlags():
            raise ConfigError(f"{name} is a preset; --set, --like and --override go with a checkpoint")
        cfg = preset(name)
        tags = preset_tags(name)
        tag = (name.partition(".")[2] or tags[0]) if tags else None
        return Inspected(name, cfg, Metadata.of(preset_preprocess(name) if tags else None), tag)
    checkpoint = read_checkpoint(name, **reading.options())
    problems = _anomalies(name, checkpoint) if values else None
    return Inspected(name, checkpoint.config, checkpoint.metadata, None, checkpoint, problems)


def _anomalies(name: str, checkpoint: Checkpoint) -> tuple[str, ...]:
    """Look for anomalies of a checkpoint's values, and show at the terminal how far that is."""
    total, done = sum(each.nbytes for each in checkpoint.arrays.values()), 0
    with Waiting(f"looking at the values of {name}", total) as waiting:

        def progress(count: int) -> None:
            nonlocal done
            done += count
            waiting.note_share(min(done / total, 1.0))

        return tuple(anomalies(checkpoint.arrays, progress))


def print_facts(console: Console, subject: Inspected, model: ModulePart) -> None:
    """Print the facts of the subject as a whole."""
    table = facts.facts_table()
    if subject.checkpoint is None:
        table.add_row(
            "schema", escape(facts.differences(subject.config) or "every field at its default")
        )
        if subject.metadata.license:
            table.add_row("licence", escape(subject.metadata.license))
    else:
        facts.add_checkpoint(table, subject.checkpoint, subject.anomalies)
    table.add_row("preprocessing", escape(_preprocessing(subject)))
    table.add_row("parameters", f"{model.parameters:,}, {bytes_text(model.parameters * 4)} in float32")
    channels, *image = (model.input_shape or (1, 1))[1:]
    table.add_row("one image", f"{shape_text([*image, channels])}, {flops_text(per_image(model))}")
    console.print(f"[bold]{escape(subject.name)}[/]")
    show_table(table, console)
    console.print()
    if subject.checkpoint is not None:
        facts.print_origins(console, subject.checkpoint)


def _preprocessing(subject: Inspected) -> str:
    if subject.metadata.pixels is not None:
        origin = subject.checkpoint and f"from {subject.checkpoint.preprocess_origin}"
        origin = origin or f"of the tag {subject.tag}"
        return f"{facts.preprocessing(subject.metadata.pixels)} ({origin})"
    if subject.checkpoint is None:
        return "none: there are no pretrained weights"
    return "unknown; give --preprocess FILE if you know"


def _metadata(metadata: Metadata) -> dict[str, Any]:
    """Return the preprocessing, the names of classes and the licence, each once."""
    elsewhere = {"class_names", "license"}
    return {
        "preprocess": metadata.pixels and metadata.pixels.model_dump(mode="json", exclude=elsewhere),
        "class_names": metadata.class_names,
        "license": metadata.license,
    }


def to_dict(subject: Inspected, parts: Sequence[ModulePart]) -> dict[str, Any]:
    """Return all facts of the subject as plain data."""
    model, checkpoint = parts[0], subject.checkpoint
    return {
        "version": JSON_VERSION,
        "subject": subject.name,
        "schema": subject.config.model_dump(mode="json"),
        **_metadata(subject.metadata),
        "tag": subject.tag,
        "file": checkpoint and facts.to_dict(checkpoint, subject.anomalies),
        "input_shape": model.input_shape,
        "parameters": model.parameters,
        "float32_bytes": model.parameters * 4,
        "flops": model.flops,
        "flops_per_image": per_image(model),
        "layers": [
            {
                "path": part.path,
                "depth": part.depth,
                "type": part.type,
                "input_shape": part.input_shape,
                "output_shape": part.output_shape,
                "parameters": part.parameters,
                "own_parameters": part.own_parameters,
                "own": part.own,
                "flops": part.flops,
            }
            for part in parts
        ],
    }
