"""The export formats: how a program is written, and how it is run without this project."""

from __future__ import annotations

import ast
import io
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from parity.exporting.programs import example, jax_program, torch_program
from parity.exporting.subject import Subject
from parity.measure.shown import machine_folders, portable
from parity.porting.formats.suffixes import PROGRAMS
from vit_config import ConfigError
from vit_config.terminal import quiet

AXES = ("batch", "height", "width")
"""Names of the axes of dynamic length: the first three of uint8 pictures."""
ABOUT = "vit.about"
"""Key of the model's description inside an exported file, where the format has a place for it."""
LEAST = 18
"""The oldest version of ONNX's operators that PyTorch's exporter writes by itself."""
_PATHS = "jax_hlo_source_file_canonicalization_regex"
MOST = 2**31 - 1
"""Maximum size of an ONNX file in bytes: it is one protobuf."""


class Settings(NamedTuple):
    """What a format is told besides the model; each is of one of them."""

    platforms: Sequence[str] = ("cpu", "cuda", "tpu")
    """Platforms that StableHLO is lowered for."""
    opset: int | None = None
    """Version of ONNX's operators; None is the exporter's own."""
    wide: Mapping[int, str] = {}
    """The operations of a small type whose results stay in float32; see
    `parity.exporting.narrow.search.Kept`."""


@dataclass(frozen=True)
class Format:
    """One export format."""

    name: str
    suffix: str
    """Customary ending of file names."""
    layout: str
    """Layout of prepared images: ``NHWC`` or ``NCHW``."""
    write: Callable[[Subject, Mapping[str, Any], Settings], bytes]
    """Returns the bytes of the file, given the model and its description."""
    reader: str
    """Python source that defines ``run(images) -> {name: array}`` for the program at `path`."""
    without: tuple[str, ...]
    """Packages that the reader's process cannot import."""


def here() -> str:
    """Return what JAX runs a program on that was written: the CPU, unless the environment says else."""
    return os.environ.get("JAX_PLATFORMS", "cpu")


def stablehlo(subject: Subject, about: Mapping[str, Any], settings: Settings) -> bytes:
    """Export the JAX twin by `jax.export`. The format has no place for the model's description."""
    import flatbuffers  # noqa: F401  # jax.export needs it, but does not install it
    import jax
    from jax import export

    known, platforms = {"cpu", "cuda", "rocm", "tpu"}, settings.platforms
    if not platforms or set(platforms) - known or len(set(platforms)) < len(platforms):
        stated = ",".join(platforms)
        raise ConfigError(
            f"platforms {stated!r}: give one or more of {', '.join(sorted(known))}, each once"
        )
    if here() == "cpu" and "cpu" not in platforms:
        raise ConfigError(
            f"platforms {','.join(platforms)!r}: what is written is first run here, on a CPU; add cpu,"
            " or set JAX_PLATFORMS to one of them that this machine has"
        )
    shape, dtype = example(subject, "NHWC")
    program = jax_program(subject)
    if settings.wide:
        from parity.exporting.narrow.equations import kept

        program = kept(program, settings.wide, subject.dtype)
    symbols = (*export.symbolic_shape(", ".join(AXES)), None)
    spec = jax.ShapeDtypeStruct(
        [symbol if n is None else n for symbol, n in zip(symbols, shape, strict=False)], dtype
    )
    before = getattr(jax.config, _PATHS)
    jax.config.update(_PATHS, machine_folders())  # of the lines that it was traced from
    try:
        exported = export.export(jax.jit(program), platforms=platforms)(spec)
    finally:
        jax.config.update(_PATHS, before)
    return bytes(exported.serialize())


def torch_export(subject: Subject, about: Mapping[str, Any], settings: Settings) -> bytes:
    """Export the PyTorch twin by `torch.export`."""
    import torch

    file = io.BytesIO()
    with quiet("torch.onnx", "onnxscript"):
        torch.export.save(
            torch_traced(subject, settings.wide), file, extra_files={ABOUT: json.dumps(about)}
        )
    return file.getvalue()


def onnx(subject: Subject, about: Mapping[str, Any], settings: Settings) -> bytes:
    """Export the PyTorch twin to ONNX by PyTorch's own exporter."""
    import onnx
    import onnxruntime  # noqa: F401  # so that a missing one fails before the export, not after it
    import onnxscript  # noqa: F401
    import torch

    most, opset = onnx.defs.onnx_opset_version(), settings.opset
    if opset is not None and not LEAST <= opset <= most:
        raise ConfigError(f"opset = {opset} (--opset {opset}): expected {LEAST} to {most}")
    weights = sum(each.nbytes for each in subject.arrays.values())
    if weights > MOST:
        raise ConfigError(
            f"the weights take {weights:,} bytes, and an ONNX file holds {MOST:,}; give --dtype"
            " float16, or"
            " --to torch-export or stablehlo"
        )
    with quiet("torch.onnx", "onnxscript"):
        program = torch.onnx.export(
            torch_traced(subject, settings.wide, apart=bool(settings.wide)), dynamo=True,
            verbose=False, input_names=[subject.input_name], output_names=list(subject.outputs),
            opset_version=opset,
        )  # fmt: skip
    assert program is not None
    model = program.model_proto
    written = next(each.version for each in model.opset_import if not each.domain)
    if opset not in (None, written):
        raise ConfigError(
            f"opset = {opset} (--opset {opset}): PyTorch's exporter could not translate the model to it,"
            f" and wrote {written}; leave it out, or give {written}"
        )
    shape = model.graph.input[0].type.tensor_type.shape.dim
    named = {dim.dim_param: axis for dim, axis in zip(shape, AXES, strict=False) if dim.dim_param}
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = named.get(dim.dim_param, dim.dim_param)
    del model.graph.value_info[:]  # it names the axes as the exporter did
    for node in (*model.graph.node, *(each for made in model.functions for each in made.node)):
        for entry in node.metadata_props:
            entry.value = portable(entry.value)
    onnx.helper.set_model_props(model, {ABOUT: json.dumps(about)})
    return model.SerializeToString()


def quantised(path: Path, kept: Collection[str] = ()) -> bytes:
    """Quantise an ONNX file by ONNX Runtime: weights of products to int8, rows of what they multiply to
    8 bits when it runs.

    Args:
        kept: products that stay in float32, by their names in the PyTorch program.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    out, left = path.with_name("int8.onnx"), list[str]()
    for node in onnx.load(path, load_external_data=False).graph.node if kept else ():
        scopes = [e.value for e in node.metadata_props if e.key == "pkg.torch.onnx.name_scopes"]
        called = ast.literal_eval(scopes[0])[-1] if scopes else ""
        if node.op_type in ("MatMul", "Gemm", "Conv") and called in kept:
            left += [node.name, f"{node.name}_MatMul"]  # as it is called where a Gemm becomes two
    with quiet(""):  # it advises to prepare the graph first, which changes it
        quantize_dynamic(path, out, per_channel=True, weight_type=QuantType.QInt8, nodes_to_exclude=left)
    return out.read_bytes()


def torch_traced(subject: Subject, wide: Mapping[int, str] = {}, *, apart: bool = False) -> Any:
    """Trace the PyTorch twin to a `torch.export.ExportedProgram`.

    Args:
        wide: the operations whose results stay in float32.
        apart: whether layers are written as the operations that ONNX has.
    """
    import torch

    shape, dtype = example(subject, "NCHW")
    odd = iter((2, 37, 41))  # no two equal: equal lengths would be taken for one
    images = torch.zeros([next(odd) if n is None else n for n in shape], dtype=getattr(torch, dtype))
    free = {axis: torch.export.Dim(AXES[axis]) for axis, n in enumerate(shape) if n is None}
    with torch.no_grad():
        program = torch.export.export(torch_program(subject), (images,), dynamic_shapes=(free,))
    if wide or apart:
        from parity.exporting.narrow.aten import as_onnx, keep

        with quiet(""):  # torch warns of itself
            program = as_onnx(program) if apart else program
        program = keep(program, wide, subject.dtype) if wide else program
    for node in program.graph.nodes:
        node.meta["stack_trace"] = portable(node.meta.get("stack_trace"))
    return program


OURS = ("parity", "vit_config", "vit_jax", "vit_torch", "vit_train")

FORMATS = {
    each.name: each
    for each in (
        Format(
            name="stablehlo",
            suffix=PROGRAMS["stablehlo"],
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
            suffix=PROGRAMS["onnx"],
            layout="NCHW",
            write=onnx,
            reader="""
import onnxruntime
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
names = [each.name for each in session.get_outputs()]
called = session.get_inputs()[0].name
run = lambda images: dict(zip(names, session.run(names, {called: images})))
""",
            without=(*OURS, "torch", "jax", "onnx"),
        ),
        Format(
            name="torch-export",
            suffix=PROGRAMS["torch-export"],
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
