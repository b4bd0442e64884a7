"""Where an exported program parts from its twin, operation by operation."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from parity.exporting.checks import laid_out
from parity.exporting.compare import pictures, prepare_pictures
from parity.exporting.formats import Format
from parity.exporting.programs import torch_program
from parity.exporting.subject import Subject
from parity.verifier.compare import compare
from parity.verifier.programs.files import read_program
from parity.verifier.programs.program import Program
from parity.verifier.programs.sides import record
from vit_config import ConfigError, Preprocess
from vit_config.images.pixels import prepare

UNFOLLOWED = (
    "operations of StableHLO are not followed, so which one differs is not known; try another version of"
    " JAX, or --to onnx or --to torch-export, which are"
)


def explain(subject: Subject, form: Format, path: Path) -> str:
    """Compare an exported program with the PyTorch twin on prepared images, as `parity diff` does; of a
    program that takes pictures, compare its pixels with PIL's first.

    Returns:
        Lines; empty without PyTorch, and the reason for a program that cannot be followed.
    """
    if form.name == "stablehlo":
        return UNFOLLOWED
    if find_spec("torch") is None:
        return ""
    named = path.with_name(f"exported{form.suffix}")  # what the lines of the program are called
    named.write_bytes(path.read_bytes())
    try:
        program = read_program(named, trusted=True)
        given = batch = pictures(subject)[0]
        if subject.inside is None:
            given = laid_out(prepare_pictures(subject, batch), form)
        elif problem := _resize(record((program, batch), "B"), batch, subject, subject.inside):
            return problem
        sides = (torch_program(subject), given), (program, given)
        compared = compare(*sides, names=("twin", named.name), backward=False)
        return compared.to_text()
    except ConfigError as error:
        return str(error)
    finally:
        named.unlink()


def _resize(program: Program, batch: np.ndarray, subject: Subject, stated: Preprocess) -> str:
    """Say how the pixels that a program makes of pictures differ from PIL's; empty if none do."""
    wanted = np.stack([prepare(each, subject.image_size, stated) for each in batch])
    wanted = wanted.transpose(0, 3, 1, 2).astype(np.float64)  # (B, C, H, W)
    nearest, line = np.inf * np.ones(wanted.shape), ""
    for op in program.operations:
        if op.shape == wanted.shape and op.run is not None:
            apart = np.abs(np.asarray(program.values([op.index])[op.index]) - wanted)
            if apart.mean() < nearest.mean():
                nearest, line = apart, f" at {op.source}" if op.source else ""
    if nearest.max() == 0:
        return ""
    share = float(np.mean(nearest > 0))
    return (
        f"1. resize: the pixels{line} are not PIL's by interpolation = {stated.interpolation!r},"
        f" crop_mode = {stated.crop_mode!r}, crop_fraction = {stated.crop_fraction:g}\n"
        f"   {share:.0%} of them differ, by up to {nearest.max():.0f} of 255"
    )
