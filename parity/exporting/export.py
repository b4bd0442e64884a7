"""Export of a model to a program file, which is read back and compared before it gets its name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Unpack

import numpy as np

from parity.exporting.checks import MOST_IMAGES, REPLAY, Checks, check_kept
from parity.exporting.compare import EXACT, RUN, TWINS, OutputComparison, pictures, read_pictures
from parity.exporting.formats import FORMATS, Format, Settings, quantised
from parity.exporting.narrow.search import Kept
from parity.exporting.programs import example
from parity.exporting.subject import DType, Input, Subject, subject_of
from parity.measure.shown import json_text
from parity.porting.formats.weights_folder import read_json
from parity.porting.opening.provenance import versions
from parity.porting.text.tokens import Tokens
from vit_config import ConfigError, TextConfig, WeightsError
from vit_config.files.atomic import atomic_file, check_spares, check_writable, together
from vit_config.pretrained import Reading
from vit_config.waiting import Plan, Stage, nobody

To = Literal["stablehlo", "onnx", "torch-export"]


TRACING, SEARCH = "tracing", "looking for what must stay in float32"
NUMBERS = 86_567_656
"""Parameters of a ViT-B/16, of which the seconds below are, on one core."""
SEARCHED = 120.0
TRACED = {"stablehlo": 2.3, "onnx": 15.6, "torch-export": 6.3}
SECONDS = {REPLAY: 5.0, EXACT: 4.0, **dict(zip(map(RUN.format, TWINS), (5.0, 1.5), strict=True))}

Explain = Callable[[Subject, Format, Path], str]
"""Function that says where a program parts from its twin, given the model and the program's file."""


class DifferentError(WeightsError):
    """The exported program computes another function than the twins; no file is kept."""

    def __init__(self, message: str, compared: tuple[OutputComparison, ...], where: str) -> None:
        super().__init__(message)
        self.compared = compared
        self.where = where
        """Where the program parts from its twin and why, in lines; empty where nobody looked."""


@dataclass(frozen=True)
class Exported:
    """An exported program that agrees with the twins."""

    path: Path
    beside: Path
    """The JSON file that describes the program."""
    about: Mapping[str, Any]
    compared: tuple[OutputComparison, ...]
    kept: Kept | None = None
    """What stays in float32 of a program in a small type, if asked for."""

    def __repr__(self) -> str:
        return (
            f"<Exported {self.path}: {self.about['format']}, outputs {', '.join(self.about['outputs'])}>"
        )


def export(
    source: Any,
    out: str | Path,
    *,
    to: To,
    input: Input,
    dtype: DType | None,
    labels: Sequence[str],
    template: str,
    image_size: tuple[int, int] | int | None,
    batch: int | None,
    settings: Settings,
    force: bool,
    explain: Explain,
    keep_float32: Sequence[str] = (),
    bound: float | None = None,
    images: Sequence[Path] = (),
    on_stage: Stage = nobody,
    **reading: Unpack[Reading],
) -> Exported:
    """Write a model as a program of another format; `parity.export` says what each argument is.

    Args:
        explain: called with the program before it is deleted, if it is another function than the twins.
        on_stage: called before each stage with its description, and the seconds that it and all others
            are expected to take.
    """
    if to not in FORMATS:
        raise ConfigError(f"to = {to!r}: expected one of {', '.join(FORMATS)}")
    form, out = FORMATS[to], Path(out)
    _check_out(out, force)
    if settings.opset is not None and to != "onnx":
        raise ConfigError("opset (--opset) is of ONNX's operators; give to = onnx (--to onnx)")
    if tuple(settings.platforms) != Settings().platforms and to != "stablehlo":
        raise ConfigError(f"platforms (--platforms) is of StableHLO; {to} runs where its runtime does")
    subject = subject_of(
        source, input=input, dtype=dtype, labels=labels, template=template, image_size=image_size,
        batch=batch, **reading,
    )  # fmt: skip
    for path in (out, description_path(out)):
        check_spares(path, subject.files)
    if subject.int8 and to != "onnx":
        raise ConfigError("dtype = int8 (--dtype int8) is ONNX Runtime's; give to = onnx (--to onnx)")
    check_kept(subject, keep_float32, bound)
    pictured = [*pictures(subject), *read_pictures(subject, images[:MOST_IMAGES])]
    about = describe(subject, form, settings.platforms)
    compared: tuple[OutputComparison, ...] = ()
    size = sum(each.size for each in subject.arrays.values()) / NUMBERS
    works = {TRACING: TRACED[to], **({SEARCH: SEARCHED} if keep_float32 else {}), **SECONDS}
    plan = Plan(on_stage, {what: size * each for what, each in works.items()})
    checks = Checks(subject, form, pictured, bound)

    def measured(path: Path, subject: Subject) -> None:
        nonlocal compared
        compared = checks.compare(path, subject, plan.begin)
        if not all(each.passed for each in compared):
            plan.begin("looking for where it differs")
            unfit = checks.unfit(compared, subject)
            message = f"{out}: not written, for {unfit}" if unfit else _refusal(out, compared)
            raise DifferentError(message, compared, "" if unfit else explain(subject, form, path))

    with (
        TemporaryDirectory(prefix="parity-") as folder,
        together(),
        atomic_file(description_path(out), force=force) as description,
    ):

        def check(path: Path) -> None:
            measured(path, subject)
            about["compared"] = [each.to_dict() for each in compared]
            description.write(f"{json_text(about)}\n".encode())

        wide: Mapping[int, str] = {}
        if keep_float32:
            plan.begin(SEARCH)
            kept = checks.find(keep_float32)
            wide, about["kept"] = kept.wide, kept.to_dict()
        plan.begin(TRACING)
        own = settings if subject.int8 else settings._replace(wide=wide)
        program = form.write(subject, dict(about), own)
        if subject.int8:  # what is quantised is first shown to be the twins' function
            exact = Path(folder, f"float32{form.suffix}")
            exact.write_bytes(program)
            measured(exact, replace(subject, int8=False))
            program = quantised(exact, [*wide.values()])
        with atomic_file(out, force=force, check=check) as file:
            file.write(program)
    return Exported(out, description_path(out), about, compared, checks.kept)


def description_path(out: Path) -> Path:
    """Return the path of the JSON file that describes a program."""
    return out.with_name(f"{out.name}.json")


def _check_out(out: Path, force: bool) -> None:
    """Refuse a program's path, or that of its description, which cannot be written or would be lost.

    Raises:
        ConfigError: it is a folder, or exists and `force` is not set; or the file in the description's
            place describes no program.
        MissingFileError: its folder does not exist.
    """
    for path in (out, description_path(out)):
        check_writable(path)
        if os.path.lexists(path) and not force:
            raise ConfigError(f"{path}: already exists; give another path, or --force to replace it")
    if description_path(out).is_file() and not _describes_a_program(description_path(out)):
        raise ConfigError(
            f"{description_path(out)}: already exists and describes no program; give another OUT"
        )


def _describes_a_program(path: Path) -> bool:
    try:
        about = read_json(path)
    except WeightsError:
        return False
    return isinstance(about, dict) and "format" in about


def describe(subject: Subject, form: Format, platforms: Sequence[str]) -> dict[str, Any]:
    """Return the description of a program, as JSON values."""
    shape, dtype = example(subject, form.layout)
    inside, text = subject.inside is not None, isinstance(subject.config, TextConfig)
    metadata = subject.metadata
    return {
        "format": form.name,
        "input": {
            "name": subject.input_name,
            "shape": ["Bhw"[axis] if length is None else length for axis, length in enumerate(shape)],
            "layout": "BN" if text else "NHWC" if inside else form.layout,
            "dtype": dtype,
            "preprocessing": "inside" if inside else "left to the caller",
            **(_tokens(subject.tokens) if subject.tokens else {}),
        },
        "outputs": {
            name: {"shape": each, "dtype": "float32"} for name, each in subject.shapes().items()
        },
        "dtype": "int8" if subject.int8 else subject.dtype,
        **({"platforms": list(platforms)} if form.name == "stablehlo" else {}),
        "schema": json.loads(subject.config.to_json()),
        "preprocess": None if text or not metadata.pixels else json.loads(metadata.pixels.to_json()),
        "class_names": subject.labels.names if subject.labels else metadata.class_names,
        **({"texts": subject.labels.texts} if subject.labels else {}),
        "license": metadata.license,
        "provenance": subject.provenance,
        "versions": versions(),
    }


def _tokens(tokens: Tokens) -> dict[str, Any]:
    """Return what a caller does to make the ids of a text, besides its tokenizer.json."""
    return {"fill": {"id": tokens.pad, "left": tokens.left}, "cleaned": tokens.cleaned or None}


def _refusal(out: Path, compared: Sequence[OutputComparison]) -> str:
    worst = max(compared, key=lambda each: each.error / (each.limit or np.inf))
    twins = ", ".join(f"{twin} {error:.1e}" for twin, error in worst.twins.items())
    return (
        f"{out}: not written, for {worst.output} would be {worst.error:.1e} from the twins' float64 run"
        f" where the twins are {twins}; at most {worst.limit:.1e} is rounding ({worst.origin})"
    )
