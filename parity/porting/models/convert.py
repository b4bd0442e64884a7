"""Conversion as users call it from Python: with verification, if they ask for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.verification.verified import convert_verified
from parity.porting.writing import conversion
from parity.porting.writing.channels import Rule
from parity.porting.writing.conversion import Converted
from parity.porting.writing.conversion_plan import asked_at_once
from vit_config import WeightsError
from vit_config.pretrained import DType, Reading, hands_on


@hands_on(Reading)
def convert(
    source: Checkpoint | str | Path | Any,
    *,
    to: str,
    out: str | Path,
    dtype: DType | None = None,
    image_size: tuple[int, int] | int | None = None,
    num_classes: int | None = None,
    channels: int | None = None,
    by: Rule | None = None,
    prefix: str = "",
    wrapper: str | None = None,
    text: bool = False,
    allow_nonfinite: bool = False,
    no_open: bool = False,
    verify: bool = False,
    force: bool = False,
    **reading: Unpack[Reading],
) -> Converted:
    """Convert a checkpoint to a dialect.

    Args:
        source: a file or folder of any dialect, or a model or state dict in memory; `reading` are
            options of `read_checkpoint`.
        to: a dialect, or a family of them such as ``hf``.
        out: a file, whose suffix chooses the format; or a folder, which gets the config files too.
        dtype: the type of all tensors; None keeps them.
        image_size: the new height and width in pixels, one number for both; None keeps them.
        num_classes: 0 removes the head and a pooler; another number puts a head of zeros on.
        channels: the new number of channels of an image; None keeps it. The preprocessing is extended,
            or has to be that of the new channels.
        by: the rule for the patch projection's weights, see `parity.porting.writing.channels`.
        prefix: text before every name, such as ``teacher.backbone.``; only of a file.
        wrapper: key of the dictionary in a file of PyTorch that holds the tensors, such as ``model``.
        text: also write the text tower beside the model, of a CLIP or a SigLIP, and its tokenizer.
        allow_nonfinite: allow NaN and infinite values; the provenance says so.
        no_open: do not open a written folder by the library that it is for.
        verify: run the source and what was written in every framework and library that is installed, in
            float64; a result that is not equal is kept beside `out`, with ``.different`` in its name.
        force: replace an existing `out`.

    Raises:
        ConfigError: the target cannot hold the model; the message names every field in the way.
        WeightsError: see `read_checkpoint`; also values that are not finite, every such tensor named; or
            the written file could not be read again, or a folder not be opened by the library that it
            is for, and was removed; or `verify` found another function.
        MissingFileError: there is no such file, or no folder to write in.
    """
    if not isinstance(source, Checkpoint):
        with asked_at_once(num_classes):
            source = read_checkpoint(source, **reading)
    options: dict[str, Any] = {
        "to": to, "out": out, "dtype": dtype, "image_size": image_size, "num_classes": num_classes,
        "channels": channels, "by": by, "prefix": prefix, "wrapper": wrapper, "text": text,
        "allow_nonfinite": allow_nonfinite, "no_open": no_open, "force": force,
    }  # fmt: skip
    if not verify:
        return conversion.convert(source, **options)
    done = convert_verified(source, **options)
    found, made = done.verification, done.converted
    if not found.passed:
        raise WeightsError(f"{out}: not equal: {found.problem}; what was written is {done.path}")
    said = [f"what was compared says nothing: {found.unseen}"] if found.unseen else []
    return replace(made, warnings=(*made.warnings, *said))
