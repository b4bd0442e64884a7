"""``parity convert``: convert a checkpoint of any dialect to any other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.kept import refuse_replacing_inputs
from parity.cli.support.reading import ReadingFlags, parse_size, shown_as
from parity.cli.support.run_weights import weights_of
from vit_config import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

WRITTEN = 3e8
"""Bytes that are read, hashed and written in a second, until it is known how many are."""

INTO = (
    "paths", "reading", "into", "into_part", "step", "num_classes", "force",
    "out",
)  # fmt: skip
LORA = ("paths", "to", "step", "lora", "force")
MANIFEST = ("to", "verify", "force", "manifest", "out")
ROWS = ("reading", "dtype", "image_size", "num_classes", "allow_nonfinite")
"""Flags that are fields of a manifest's rows."""
READING = "--set, --override, --like, --dialect, --part, --preprocess, --license"


@dataclass(frozen=True)
class ConvertFiles:
    """Convert a checkpoint of any dialect to any other, every tensor exact, with the config files that
    the target's library expects. Nothing is written unless everything fits. Exit status: 0 done, 1 not
    equal when verified, 2 refused, 70 a fault of this program.
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, shown_as("SRC DST")] = ()
    """Checkpoint to read, a file or folder; and path to write: a folder, or a file that ends in
    .safetensors, .npz, .msgpack, .pth, .pt or .bin."""
    reading: Annotated[ReadingFlags, tyro.conf.arg(name="")] = field(default_factory=ReadingFlags)
    to: Annotated[str, shown_as("DIALECT")] = ""
    """Dialect to write, or a family that chooses one by the model: parity, jax and torch (this
    project's file), hf, timm, torchvision, google, big-vision and others; `parity list --dialects` shows
    all."""
    into: Annotated[Path | None, shown_as("HOST")] = None
    """In place of --to: write HOST, a larger model, to DST with this tower in it, all else byte for
    byte; the changed tensors are listed, also in DST/tower.json (DST.tower.json of a file)."""
    into_part: Annotated[str | None, shown_as("NAME")] = None
    """With --into: the tower to replace in a HOST with several, by how its names begin."""
    step: Annotated[int | None, shown_as("N", "the weights it ended with, else the newest or best")] = (
        None
    )
    """Step of the training run's checkpoint, where SRC is a run."""
    dtype: Literal["float64", "float32", "float16", "bfloat16"] | None = None
    """Type of all written tensors; by default the one they have."""
    image_size: Annotated[str | None, shown_as("HxW")] = None
    """Fit the model to images of this size, by its own rule for positions."""
    num_classes: int | None = None
    """Change the number of classes: a head of zeros; 0 removes the head, and a pooler or pre_logits."""
    channels: Annotated[int | None, shown_as("N")] = None
    """Make the model for images of N channels; --by says how."""
    by: Literal["repeat", "sum", "mean-scale", "zeros"] | None = None
    """With --channels, the weights of the patch projection: the old ones repeated in order, scaled by
    old / N (timm's rule); one channel of their sum (timm's for N = 1: a grey image gives what it gave
    three times); each an equal share of the sum; or zeros for the channels that are added."""
    prefix: Annotated[str, shown_as("PREFIX")] = ""
    """Text before every name in the written file, such as teacher.backbone. or model."""
    wrapper: Annotated[str | None, shown_as("KEY")] = None
    """Key of the dictionary in a .pth file that holds the tensors, such as teacher or state_dict."""
    text: tyro.conf.FlagCreatePairsOff[bool] = False
    """Also write the text tower beside the model, of a CLIP or a SigLIP, and its tokenizer."""
    lora: tyro.conf.FlagCreatePairsOff[bool] = False
    """SRC is a run that trains adapters: write only these and the head, as a folder that PEFT loads onto
    the model of --to."""
    allow_nonfinite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Accept NaN and infinite values, which are otherwise refused; the provenance says so."""
    verify: tyro.conf.FlagCreatePairsOff[bool] = False
    """Run SRC and what was written on the same images, in every installed framework and library, and
    write the result with the output. An output that is not equal does not get the name DST."""
    no_open: tyro.conf.FlagCreatePairsOff[bool] = False
    """Do not open a written folder by the library that it is for, which is else done if it is there."""
    force: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing DST."""
    manifest: Annotated[Path | None, shown_as("FILE")] = None
    """Convert every checkpoint of a manifest that `parity scan` wrote, into --out."""
    out: Annotated[Path | None, shown_as("DIR")] = None
    """With --manifest: folder to write to; a stopped run continues where it was."""


def main(argv: list[str], prog: str = "parity convert") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(ConvertFiles, argv, prog=prog)

    from vit_config.screen import screen

    console = screen(120, highlight=False)
    if arguments.into is not None:
        why = "where the host says it; leave it out, or convert to a file first"
        _refuse_but(INTO, arguments, f"not with --into, {why}")
    elif not arguments.to:
        raise ConfigError("give --to DIALECT, such as --to hf; `parity list --dialects` shows all")
    elif arguments.into_part is not None:
        raise ConfigError(f"--into-part {arguments.into_part}: goes with --into HOST")
    if arguments.manifest is not None:
        return _convert_manifest(arguments, console)
    if arguments.out:
        raise ConfigError("--out: goes with --manifest only; otherwise give SRC and DST")
    if len(arguments.paths) != 2:
        raise ConfigError(
            f"expected SRC and DST, got {len(arguments.paths)} paths; {prog} --help explains"
        )
    source, out = arguments.paths
    refuse_replacing_inputs(out, arguments, source)
    if arguments.lora:
        return _write_lora(arguments, source, out, console)
    return _convert_one(arguments, source, out, console)


def _convert_one(arguments: ConvertFiles, source: Path, out: Path, console: Console) -> int:
    with weights_of(str(source), arguments.step) as weights:
        write = _convert_file if arguments.into is None else _put_into_host
        return write(arguments, Path(weights), out, console)


def _write_lora(arguments: ConvertFiles, source: Path, out: Path, console: Console) -> int:
    from rich.markup import escape

    from parity.runs.weights import write_run_lora

    _refuse_but(LORA, arguments, "not with --lora, which writes what a run trained; leave it out")
    step, layers = write_run_lora(source, out, arguments.to, arguments.step, force=arguments.force)
    console.print(
        f"[bold]{escape(str(out))}[/]  the LoRA of step {step}: {len(layers)} layers, such as"
        f" {escape(layers[0])}",
        soft_wrap=True,
    )
    return 0


def _refuse_but(fits: Collection[str], arguments: ConvertFiles, why: str) -> None:
    """Refuse flags that are given and not among those that fit. ConfigError: there are such."""
    usual = vars(ConvertFiles())
    odd = [name for name, value in vars(arguments).items() if name not in fits and value != usual[name]]
    if odd:
        flags = (READING if name == "reading" else "--" + name.replace("_", "-") for name in odd)
        raise ConfigError(f"{', '.join(flags)}: {why}")


def _put_into_host(arguments: ConvertFiles, source: Path, out: Path, console: Console) -> int:
    from rich.markup import escape

    from parity.porting.hosts.into import put_into

    assert arguments.into is not None
    done = put_into(
        source,
        arguments.into,
        out,
        host_part=arguments.into_part,
        num_classes=arguments.num_classes,
        force=arguments.force,
        **arguments.reading.options(),
    )
    for note in done.notes:
        console.print(f"  {escape(note)}")
    console.print(f"[bold]{escape(str(done.path))}[/]  {escape(done.summary)}", soft_wrap=True)
    for name, change in done.changed.items():
        console.print(f"  {escape(name)}  {change:.1e}", soft_wrap=True)
    return 0


def _convert_file(arguments: ConvertFiles, source: Path, out: Path, console: Console) -> int:
    from rich.markup import escape

    from parity.porting.reading.checkpoint import read_checkpoint
    from parity.porting.writing.conversion import convert
    from parity.porting.writing.conversion_plan import asked_at_once
    from vit_config.waiting import Waiting

    with asked_at_once(arguments.num_classes):
        checkpoint = read_checkpoint(source, **arguments.reading.options())
    options: dict[str, Any] = {
        "to": arguments.to,
        "out": out,
        "dtype": arguments.dtype,
        "image_size": parse_size(arguments.image_size),
        "num_classes": arguments.num_classes,
        "channels": arguments.channels,
        "by": arguments.by,
        "prefix": arguments.prefix,
        "wrapper": arguments.wrapper,
        "text": arguments.text,
        "allow_nonfinite": arguments.allow_nonfinite,
        "no_open": arguments.no_open,
        "force": arguments.force,
    }
    done, then = None, 0.0
    if arguments.verify:
        from parity.porting.verification.runs import all_seconds, installed_twins

        then = all_seconds(checkpoint.config, installed_twins(), libraries=2)
    with Waiting("writing") as waiting:
        total = written = 0

        def started(count: int) -> None:
            nonlocal total
            total = max(count, 1)
            waiting.now(f"writing {count:,} bytes", count / WRITTEN, then)

        def progress(count: int) -> None:
            nonlocal written
            written += count
            waiting.note_share(min(written / total, 1.0))

        options |= {"started": started, "progress": progress}
        if arguments.verify:
            from parity.porting.verification.verified import convert_verified

            done = convert_verified(checkpoint, on_stage=waiting.now, **options)
            result = done.converted
        else:
            result = convert(checkpoint, **options)
    read = f"{checkpoint.container.kind}, {checkpoint.dialect.name}"
    console.print(f"[bold]{escape(str(arguments.paths[0]))}[/]  {read}")
    for note in result.notes:
        console.print(f"  {escape(note)}")
    for warning in result.warnings:
        console.print(f"  [yellow]warning:[/] {escape(warning)}")
    path = out if done is None else done.path
    console.print(f"[bold]{escape(str(path))}[/]  {result.dialect}, {result.nbytes:,} bytes of tensors")
    for hint in result.hints:
        console.print(f"  {escape(hint)}", soft_wrap=True)
    if done is None:
        return 0
    from parity.porting.verification.verify import print_verification

    print_verification(done.verification, console)
    if done.verification.passed:
        return 1 if done.verification.unseen else 0
    verdict = f"not equal, so there is no {out}; what was written is {path}"
    console.print(f"[red]{escape(verdict)}[/]", soft_wrap=True)
    return 1


def _convert_manifest(arguments: ConvertFiles, console: Console) -> int:
    from parity.porting.fleet import run_manifest
    from vit_config.waiting import Waiting

    assert arguments.manifest is not None
    if arguments.paths:
        raise ConfigError("--manifest: takes --out DIR, not SRC and DST")
    if arguments.out is None:
        raise ConfigError("--manifest: needs --out DIR, the folder to write to")
    if arguments.reading.adapter is not None:
        raise ConfigError("--adapter: goes with one checkpoint; convert it by itself")
    _refuse_but((*MANIFEST, *ROWS), arguments, "go with one checkpoint; convert it by itself")
    _refuse_but(MANIFEST, arguments, "go with one checkpoint; write them in the manifest's rows")
    with Waiting("converting") as waiting:
        return run_manifest(
            arguments.manifest,
            to=arguments.to,
            out=arguments.out,
            verify=arguments.verify,
            force=arguments.force,
            console=console,
            on_stage=waiting.now,
        )
