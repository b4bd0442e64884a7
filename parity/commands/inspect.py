"""``parity inspect``: what a preset or a weights file is made of."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from parity.anatomy import Part, Run, Shape, anatomy, fold
from parity.command_line import parse
from vit_config import (
    PRESETS,
    ConfigError,
    Preprocess,
    Schema,
    ViTConfig,
    WeightsError,
    preset,
    preset_preprocess,
    preset_tags,
)
from vit_config.weights_file import (
    Header,
    check_writable,
    match_arrays,
    read_header,
    write_atomically,
)
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model

JSON_VERSION = 1
MAX_BATCH, MAX_SIDE = 2**12, 2**13
"""Images and pixels; beyond these the bytes of a preset's attention weights no longer fit in 64 bits."""
IDLE = ("Dropout", "DropPath", "PatchDropout", "Identity")
"""Layers that do nothing in evaluation."""


def _flag(metavar: str) -> Any:
    """How the help shows a flag that has no default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


@dataclass(frozen=True)
class Arguments:
    """Show what a model is made of: the schema, how pixels are prepared, and each layer's type, shapes,
    parameters and FLOPs. Of a weights file only the header is read; exit status 1 where its tensors are
    not those that its schema asks for.
    """

    subject: Annotated[str, tyro.conf.Positional, _flag("NAME|FILE")] = ""
    """A preset, such as vit_base_patch16_224 or, with a pretrained tag of timm's, name.tag; or the path
    of a weights file. `parity list` shows every preset."""
    depth: int = 3
    """How many levels of the tree to show below the model."""
    batch_size: int = 1
    """Images in the batch; shapes and FLOPs of the table are those of the whole batch."""
    image_size: Annotated[str | None, _flag("HxW")] = None
    """Height and width of the images, if not the schema's: a model with dynamic_image_size takes them,
    another one is built for them."""
    all: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show every block, where blocks that are alike share a row, and what does nothing in evaluation,
    such as dropout."""
    json: Annotated[Path | None, _flag("FILE")] = None
    """Also write everything, every layer included, as JSON to this file."""


class Subject(NamedTuple):
    """What is inspected."""

    name: str
    config: ViTConfig
    preprocess: Preprocess | None
    tag: str | None
    """The pretrained tag of timm's that the preprocessing is of."""
    header: Header | None
    """Of a weights file."""
    mismatch: str | None
    """In what the file's tensors are not those that its schema asks for."""


class Line(NamedTuple):
    """One row of the table: a module, or a parameter of a module that has modules too."""

    depth: int
    name: str
    type: str
    input_shape: Shape | None
    output_shape: Shape | None
    parameters: int
    flops: int


def main(argv: list[str], prog: str = "parity inspect") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Arguments, argv, prog=prog)
    if not arguments.subject:
        raise ConfigError(f"give a preset or a weights file; {prog} --help explains")
    if arguments.json:
        check_writable(arguments.json)
    if arguments.depth < 0:
        raise ConfigError(f"--depth {arguments.depth}: must not be negative")
    if not 1 <= arguments.batch_size <= MAX_BATCH:
        raise ConfigError(f"--batch-size {arguments.batch_size}: must be 1 to {MAX_BATCH}")
    size = _size(arguments.image_size)
    subject = _subject(arguments.subject)
    parts = anatomy(subject.config, batch_size=arguments.batch_size, image_size=size)
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    _print_facts(console, subject, parts[0])
    console.print(_table(list(lines(parts, depth=arguments.depth, everything=arguments.all))))
    console.print(_totals(parts[0]))
    if arguments.json:
        content = json.dumps(to_dict(subject, parts), indent=2)
        write_atomically(arguments.json, content.encode())
    return 1 if subject.mismatch else 0


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})(?:x(\d{1,9}))?", text)
    size = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
    if 0 in size:
        raise ConfigError(f"--image-size {text}: expected height and width in pixels, such as 224x224")
    if max(size) > MAX_SIDE:
        raise ConfigError(f"--image-size {text}: a side has at most {MAX_SIDE} pixels here")
    return size


def _subject(name: str) -> Subject:
    """The preset or weights file of that name.

    Raises:
        ConfigError: there is no such preset or tag.
        MissingFileError: there is no such file.
        WeightsError: see `vit_config.weights_file.read_header`.
    """
    if name in PRESETS or not _looks_like_a_path(name):
        cfg = preset(name)
        tags = preset_tags(name)
        tag = (name.partition(".")[2] or tags[0]) if tags else None
        return Subject(name, cfg, preset_preprocess(name) if tags else None, tag, None, None)
    header = read_header(name)
    expected = {leaf.name: leaf.shape for leaf in leaves(abstract_model(header.config))}
    try:
        match_arrays(expected, header.tensors)
        mismatch = None
    except WeightsError as error:
        mismatch = str(error)
    return Subject(name, header.config, header.preprocess, None, header, mismatch)


def _looks_like_a_path(subject: str) -> bool:
    return Path(subject).exists() or "/" in subject or subject.endswith(".safetensors")


def lines(parts: Sequence[Part], *, depth: int, everything: bool) -> Iterator[Line]:
    """The rows of the table.

    Args:
        depth: levels to show below the model.
        everything: whether to show repeated blocks one by one, and what does nothing.
    """
    if everything:
        runs = [Run(part, part.path, 1) for part in parts]
    else:
        runs = fold([part for part in parts if part.type not in IDLE or part.parameters])
    parents = {part.path.rpartition(".")[0] for part in parts if part.path}
    for run in runs:
        part = run.first
        if part.depth > depth:
            continue
        name = part.path.rpartition(".")[2]
        if run.count > 1:
            name += f" - {run.last.rpartition('.')[2]} (each of {run.count})"
        shapes = (part.input_shape, part.output_shape)
        yield Line(part.depth, name or "model", part.type, *shapes, part.parameters, part.flops)
        if part.path in parents and part.depth < depth:
            for own, shape in part.own.items():
                count = math.prod(shape)
                yield Line(part.depth + 1, own, "parameter", None, shape, count, 0)


def _print_facts(console: Console, subject: Subject, model: Part) -> None:
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("schema", escape(_differences(subject.config) or "every field at its default"))
    of_tag = f" [dim](of the tag {escape(subject.tag)})[/]" if subject.tag else ""
    facts.add_row("preprocessing", escape(_preprocessing(subject)) + of_tag)
    size = model.parameters * 4
    facts.add_row("parameters", f"{model.parameters:,}, {_bytes(size)} in float32")
    channels, *image = (model.input_shape or (1, 1))[1:]
    facts.add_row("one image", f"{_shape([*image, channels])}, {_flops(_per_image(model))}")
    if subject.header is not None:
        facts.add_row("file", _file_facts(subject.header, subject.mismatch))
    console.print(f"[bold]{escape(subject.name)}[/]")
    console.print(facts)
    console.print()


def _differences(schema: Schema) -> str:
    """The fields that are not their default, as one line."""
    fields = schema.model_dump(exclude_defaults=True)
    return ", ".join(f"{name}={value}" for name, value in _flat(fields))


def _flat(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{below}", text) for below, text in _flat(value))
        elif name in ("image_size", "patch_size", "reference_grid") and value is not None:
            yield name, _shape(value)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value)


def _preprocessing(subject: Subject) -> str:
    preprocess = subject.preprocess
    if preprocess is None:
        return "unknown" if subject.header else "none: there are no pretrained weights"
    texts = [
        f"{name}={getattr(preprocess, name)}"
        for name in preprocess.fields()
        if name != "class_names" and getattr(preprocess, name) is not None
    ]
    names = preprocess.class_names
    return ", ".join(texts if names is None else [*texts, f"{len(names)} class names"])


def _file_facts(header: Header, mismatch: str | None) -> str:
    types = sorted({tensor.dtype.name for tensor in header.tensors.values()})
    size = sum(t.dtype.itemsize * math.prod(t.shape) for t in header.tensors.values())
    said = f"{len(header.tensors)} tensors in {', '.join(types)}, {_bytes(size)}; "
    if mismatch is None:
        return said + "[green]their names and shapes are those of the schema[/]"
    return said + f"[bold red]not those of the schema[/]: {escape(mismatch)}"


def _bytes(count: int) -> str:
    for power, unit in ((9, "GB"), (6, "MB")):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def _flops(count: float) -> str:
    return f"{count / 1e9:,.2f} GFLOPs" if count >= 1e8 else f"{count / 1e6:,.2f} MFLOPs"


def _per_image(model: Part) -> float:
    return model.flops / (model.input_shape or (1,))[0]


def _table(rows: Sequence[Line]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("layer", "type", "input", "output"):
        table.add_column(name, no_wrap=True)
    for name in ("parameters", "MFLOPs"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text("  " * row.depth + row.name),
            row.type,
            _shape(row.input_shape),
            _shape(row.output_shape),
            f"{row.parameters:,}" if row.parameters else "-",
            f"{row.flops / 1e6:,.2f}" if row.flops else "-",
            style="dim" if row.type == "parameter" else None,
        )
    return table


def _shape(shape: Sequence[int] | None) -> str:
    return "-" if shape is None else "x".join(map(str, shape))


def _totals(model: Part) -> str:
    batch = (model.input_shape or (1,))[0]
    images = "1 image" if batch == 1 else f"{batch} images"
    return (
        f"[bold]{model.parameters:,}[/] parameters;"
        f" [bold]{_flops(model.flops)}[/] for {images}"
        " (matrix products and convolutions, a multiply-add counted as two)"
    )


def to_dict(subject: Subject, parts: Sequence[Part]) -> dict[str, Any]:
    """Everything that is known of the subject as plain data."""
    model, header = parts[0], subject.header
    return {
        "version": JSON_VERSION,
        "subject": subject.name,
        "schema": subject.config.model_dump(mode="json"),
        "preprocess": subject.preprocess and subject.preprocess.model_dump(mode="json"),
        "tag": subject.tag,
        "file": header
        and {
            "matches": subject.mismatch is None,
            "mismatch": subject.mismatch,
            "tensors": {
                name: {"shape": tensor.shape, "dtype": tensor.dtype.name}
                for name, tensor in header.tensors.items()
            },
        },
        "input_shape": model.input_shape,
        "parameters": model.parameters,
        "float32_bytes": model.parameters * 4,
        "flops": model.flops,
        "flops_per_image": _per_image(model),
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
