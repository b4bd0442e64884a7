"""``parity inspect``: what a preset or a checkpoint is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from rich.console import Console
from rich.markup import escape

from parity.cli.support import checkpoint_facts as facts
from parity.cli.support.command_line import parse
from parity.cli.support.layer_table import (
    bytes_text,
    flops_text,
    layer_table,
    lines,
    per_image,
    shape_text,
    totals,
)
from parity.cli.support.reading import Reading, shown_as
from parity.cli.support.sizes import parse_size
from parity.measure.shown import screen, write_json
from parity.porting.anomalies import anomalies
from parity.porting.checkpoint import Checkpoint, read_checkpoint
from parity.porting.hub import is_path
from parity.porting.metadata import Metadata
from parity.twins.anatomy import Part, anatomy
from vit_config import (
    PRESETS,
    ConfigError,
    ViTConfig,
    preset,
    preset_preprocess,
    preset_tags,
)
from vit_config.files.weights_file import check_writable

JSON_VERSION = 3
MAX_BATCH = 2**12
"""Images; beyond it the bytes of a preset's attention weights no longer fit in 64 bits."""


@dataclass(frozen=True)
class Inspect:
    """Show what a model is made of: the schema, how pixels are prepared, and each layer's type, shapes,
    parameters and FLOPs; of a checkpoint in any dialect also what it is, where each field of its schema
    is from, and what is odd about its values.
    """

    subject: Annotated[str, tyro.conf.Positional, shown_as("NAME|FILE")] = ""
    """A preset, such as vit_base_patch16_224 or, with a pretrained tag of timm's, name.tag; or the path
    of a checkpoint, a file or a folder. `parity list` shows every preset."""
    reading: Annotated[Reading, tyro.conf.arg(name="")] = field(default_factory=Reading)
    skip_values: tyro.conf.FlagCreatePairsOff[bool] = False
    """Do not read a checkpoint's values to look for anomalies."""
    depth: int = 3
    """How many levels of the tree to show below the model."""
    batch_size: int = 1
    """Images in the batch; shapes and FLOPs of the table are those of the whole batch."""
    image_size: Annotated[str | None, shown_as("HxW")] = None
    """Height and width of images to use instead of the schema's; a model without dynamic_image_size is
    built anew for them."""
    all: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show every block, where blocks that are alike share a row, and what does nothing in evaluation,
    such as dropout."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write everything, every layer included, as JSON to this file."""


class Subject(NamedTuple):
    """What is inspected."""

    name: str
    config: ViTConfig
    metadata: Metadata
    tag: str | None
    """The pretrained tag of timm's that the preprocessing is of."""
    checkpoint: Checkpoint | None = None
    anomalies: tuple[str, ...] | None = None
    """Of a checkpoint; None where nobody looked."""


def main(argv: list[str], prog: str = "parity inspect") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Inspect, argv, prog=prog)
    if not arguments.subject:
        raise ConfigError(f"give a preset or a checkpoint; {prog} --help explains")
    if arguments.json:
        check_writable(arguments.json)
    if arguments.depth < 0:
        raise ConfigError(f"--depth {arguments.depth}: must not be negative")
    if not 1 <= arguments.batch_size <= MAX_BATCH:
        raise ConfigError(f"--batch-size {arguments.batch_size}: must be 1 to {MAX_BATCH}")
    size = parse_size(arguments.image_size)
    subject = _subject(arguments)
    parts = anatomy(subject.config, batch_size=arguments.batch_size, image_size=size)
    console = screen(120, highlight=False)
    _print_facts(console, subject, parts[0])
    if subject.checkpoint is not None:
        facts.print_origins(console, subject.checkpoint)
    console.print(layer_table(list(lines(parts, depth=arguments.depth, everything=arguments.all))))
    console.print(totals(parts[0]))
    if arguments.json:
        write_json(arguments.json, to_dict(subject, parts))
    return 0


def _subject(arguments: Inspect) -> Subject:
    """The preset or checkpoint of that name.

    Raises:
        ConfigError: there is no such preset or tag, or something has to be stated.
        MissingFileError: there is no such file.
        WeightsError: see `parity.porting.checkpoint.read_checkpoint`.
    """
    name = arguments.subject
    if name in PRESETS or not is_path(name):
        if arguments.reading != Reading():
            raise ConfigError(f"{name} is a preset; --set, --like and --override go with a checkpoint")
        cfg = preset(name)
        tags = preset_tags(name)
        tag = (name.partition(".")[2] or tags[0]) if tags else None
        return Subject(name, cfg, Metadata.of(preset_preprocess(name) if tags else None), tag)
    checkpoint = read_checkpoint(name, **arguments.reading.options())
    found = None if arguments.skip_values else tuple(anomalies(checkpoint.arrays))
    return Subject(name, checkpoint.config, checkpoint.metadata, None, checkpoint, found)


def _print_facts(console: Console, subject: Subject, model: Part) -> None:
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
    console.print(table)
    console.print()


def _preprocessing(subject: Subject) -> str:
    if subject.metadata.pixels is not None:
        origin = subject.checkpoint and f"from {subject.checkpoint.preprocess_origin}"
        origin = origin or f"of the tag {subject.tag}"
        return f"{facts.preprocessing(subject.metadata.pixels)} ({origin})"
    if subject.checkpoint is None:
        return "none: there are no pretrained weights"
    return "unknown; give --preprocess FILE if you know"


def _metadata(metadata: Metadata) -> dict[str, Any]:
    """How pixels are prepared, the names of classes and the licence, each once."""
    elsewhere = {"class_names", "license"}
    return {
        "preprocess": metadata.pixels and metadata.pixels.model_dump(mode="json", exclude=elsewhere),
        "class_names": metadata.class_names,
        "license": metadata.license,
    }


def to_dict(subject: Subject, parts: Sequence[Part]) -> dict[str, Any]:
    """Everything that is known of the subject as plain data."""
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
