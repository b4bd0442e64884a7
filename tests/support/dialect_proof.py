"""How every dialect is shown to be right: a real model of its library, there and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import torch
from flax import nnx

from parity.porting.formats import Stored
from parity.porting.models.files import load
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.tiny import error

FIXED = ("input_min", "input_max", "output_min", "std_bias", "std_scale")
"""Buffers that are no parameters, and drawn all the same."""
Logits = Callable[[np.ndarray], np.ndarray]
"""Images (B, C, H, W) float64 to logits (B, classes): a library's model."""


Model = TypeVar("Model", bound=torch.nn.Module)


def redraw(model: Model, seed: int = 0) -> Model:
    """A torch model in float64 and evaluation mode, no parameter left at a value that hides a fault."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        values = 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        gain = parameter.ndim == 1 and name.endswith(("weight", "gamma", "lambda1"))
        parameter.data = values + 1.0 if gain else values
    for name, buffer in model.named_buffers():
        if name.endswith(FIXED):  # the highest output stays infinite
            away = -1.5 if name.endswith("min") else 1.5 if name.endswith("max") else 0.0
            buffer.data = away + 0.2 * torch.randn(
                buffer.shape, generator=generator, dtype=torch.float64
            )
    return model.double().eval()


def images_for(cfg: Any, batch: int = 2, seed: int = 1) -> np.ndarray:
    """Random images (B, C, H, W) float64 of a schema's size."""
    size = (batch, cfg.in_channels, *cfg.image_size)
    return np.random.default_rng(seed).standard_normal(size)


def twin_logits(path: Path, images: np.ndarray) -> dict[str, np.ndarray]:
    """What both twins make of images (B, C, H, W), from a file of the project's own."""
    logits = {}
    with torch.no_grad():
        model = load(path, framework="torch").model
        logits["torch"] = model(torch.from_numpy(images)).logits.numpy()
    with jax.enable_x64(True):
        graph, state = nnx.split(load(path, framework="jax").model)
        compute = jax.jit(lambda state, images: nnx.merge(graph, state)(images).logits)  # one program
        logits["jax"] = np.asarray(compute(state, jax.numpy.asarray(images.transpose(0, 2, 3, 1))))
    return logits


def prove(
    saved: Path,
    reference: Logits,
    *,
    to: str,
    out: Path,
    reload: Callable[[Path], Logits] | None = None,
    tolerance: float = 1e-12,
    **reading: Any,
) -> None:
    """From a library's file to both twins and back to the library, equal at every station.

    Args:
        saved: what the library's own saver wrote, of a float64 model.
        reference: that model.
        to: the dialect's name.
        out: where the way back ends: a folder, or a file with a suffix.
        reload: the library's strict loading of what was written; None where it is not installed.
        tolerance: relative, of logits.
        reading: what `read_checkpoint` has to be told.
    """
    source = read_checkpoint(saved, **reading)
    assert source.dialect.name == to
    own = saved.parent / "own.safetensors"
    converted = convert(source, to="parity", out=own)
    images = images_for(converted.config)
    expected = reference(images)
    for name, logits in twin_logits(own, images).items():
        assert error(logits, expected) <= tolerance, f"{name} twin: {error(logits, expected):.1e}"
    convert(own, to=to, out=out)
    if reload is not None:
        assert error(reload(out)(images), expected) <= tolerance
    assert_same_tensors(read_checkpoint(out, **reading).tensors, source.tensors)


def assert_same_tensors(written: Mapping[str, Stored], saved: Mapping[str, Stored]) -> None:
    """The same names, types and values, bit for bit."""
    assert written.keys() == saved.keys()
    for name, stored in saved.items():
        assert written[name].dtype == stored.dtype
        np.testing.assert_array_equal(written[name].load(), stored.load(), err_msg=name)
