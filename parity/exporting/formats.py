"""The formats that programs are written in: how, and how they are read without what wrote them."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from parity.exporting.programs import example, jax_program, torch_program
from parity.exporting.subject import Subject
from vit_config import ConfigError

PLATFORMS = ("cpu", "cuda", "tpu")
"""For which a StableHLO program is lowered, unless told."""
AXES = ("batch", "height", "width")
"""What the axes are called whose length may be any: of uint8 pictures the first three."""
ABOUT = "vit.about"
"""The entry in an artefact that tells of the model, where the format has a place for it."""
MOST = 2**31 - 1
"""Bytes of an ONNX file at most: it is one protobuf."""


@dataclass(frozen=True)
class Format:
    """One format."""

    name: str
    suffix: str
    """What file names end in, by custom."""
    layout: str
    """Of images that are prepared already."""
    write: Callable[[Subject, Mapping[str, Any], Sequence[str]], bytes]
    """The artefact, given what is told of the model and the platforms."""
    reader: str
    """Python that defines ``run(images) -> {name: array}`` of the artefact at `path`."""
    without: tuple[str, ...]
    """What the reader's process cannot import."""


def stablehlo(subject: Subject, about: Mapping[str, Any], platforms: Sequence[str]) -> bytes:
    """`jax.export` of the JAX twin. The format has no place for what is told of the model."""
    import flatbuffers  # noqa: F401  # which jax.export needs, and does not bring along
    import jax
    from jax import export

    known = {"cpu", "cuda", "rocm", "tpu"}
    if not platforms or set(platforms) - known or len(set(platforms)) < len(platforms):
        told = ",".join(platforms)
        raise ConfigError(
            f"platforms {told!r}: give one or more of {', '.join(sorted(known))}, each once"
        )
    shape, dtype = example(subject, "NHWC")
    symbols = iter(export.symbolic_shape(", ".join(AXES)))
    spec = jax.ShapeDtypeStruct([next(symbols) if n is None else n for n in shape], dtype)
    return bytes(export.export(jax.jit(jax_program(subject)), platforms=platforms)(spec).serialize())


def torch_export(subject: Subject, about: Mapping[str, Any], platforms: Sequence[str]) -> bytes:
    """`torch.export` of the PyTorch twin."""
    import torch

    file = io.BytesIO()
    with _quiet():
        torch.export.save(_traced(subject), file, extra_files={ABOUT: json.dumps(about)})
    return file.getvalue()


def onnx(subject: Subject, about: Mapping[str, Any], platforms: Sequence[str]) -> bytes:
    """ONNX of the PyTorch twin, by PyTorch's own exporter."""
    import onnx
    import onnxruntime  # noqa: F401  # before the work is done that it checks
    import onnxscript  # noqa: F401
    import torch

    if subject.dtype == "bfloat16":
        raise ConfigError(
            "ONNX Runtime does not compute in bfloat16 on a CPU, so that what is written could not be"
            " compared; give --dtype float16 or float32"
        )
    weights = sum(each.nbytes for each in subject.arrays.values())
    if weights > MOST:
        raise ConfigError(
            f"the weights take {weights:,} bytes, and an ONNX file holds {MOST:,}; give --dtype"
            " float16, or"
            " --to torch-export or stablehlo"
        )
    with _quiet():
        made = torch.onnx.export(
            _traced(subject), dynamo=True, verbose=False, input_names=["images"],
            output_names=list(subject.outputs),
        )  # fmt: skip
    assert made is not None
    model = made.model_proto
    symbols = [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim if dim.dim_param]
    named = dict(zip(symbols, AXES, strict=False))
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = named.get(dim.dim_param, dim.dim_param)
    del model.graph.value_info[:]  # the lengths by the exporter's own names
    onnx.helper.set_model_props(model, {ABOUT: json.dumps(about)})
    return model.SerializeToString()


def _traced(subject: Subject) -> Any:
    """The PyTorch twin as an exported program."""
    import torch

    shape, dtype = example(subject, "NCHW")
    odd = iter((2, 37, 41))  # no two equal, which would be taken for one length
    images = torch.zeros([next(odd) if n is None else n for n in shape], dtype=getattr(torch, dtype))
    free = {axis: torch.export.Dim(AXES[axis]) for axis, n in enumerate(shape) if n is None}
    with torch.no_grad():
        return torch.export.export(torch_program(subject), (images,), dynamic_shapes=(free,))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what exporters say of their own insides."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


OURS = ("parity", "vit_config", "vit_jax", "vit_torch", "vit_train")

FORMATS = {
    each.name: each
    for each in (
        Format(
            name="stablehlo",
            suffix=".stablehlo",
            layout="NHWC",
            write=stablehlo,
            reader="""
import jax
from jax import export
program = export.deserialize(bytearray(open(path, "rb").read()))
run = lambda images: program.call(images)
""",
            without=(*OURS, "flax", "torch"),
        ),
        Format(
            name="onnx",
            suffix=".onnx",
            layout="NCHW",
            write=onnx,
            reader="""
import onnxruntime
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
names = [each.name for each in session.get_outputs()]
run = lambda images: dict(zip(names, session.run(names, {"images": images})))
""",
            without=(*OURS, "torch", "jax", "onnx"),
        ),
        Format(
            name="torch-export",
            suffix=".pt2",
            layout="NCHW",
            write=torch_export,
            reader="""
import io
import torch
program = torch.export.load(io.BytesIO(open(path, "rb").read())).module()
def run(images):
    with torch.no_grad():
        return program(torch.from_numpy(images))
""",
            without=(*OURS, "jax", "flax", "onnx"),
        ),
    )
}
