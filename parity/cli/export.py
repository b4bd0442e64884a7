"""``parity export``: write a model as a program of another format."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.kept import refuse_replacing_inputs
from parity.cli.support.reading import ReadingFlags, parse_size, shown_as
from parity.cli.support.run_weights import runs_here, weights_of
from vit_config import ConfigError
from vit_config.terminal import complain, say


@dataclass(frozen=True)
class Export:
    """Write a model as a program of another format. The program is read again in a
    process that cannot import this project, and compared with both twins. Exit status: 0 written, 1 not
    the same function, so that nothing is written, 2 refused, 70 a fault of this program.
    """

    source: Annotated[str, tyro.conf.Positional, shown_as("RUN|CHECKPOINT")]
    """Folder of a training run, or a checkpoint of any dialect: a file, a folder, a name on the Hub."""
    out: Annotated[Path, tyro.conf.Positional, shown_as("OUT")]
    """File to write; its description is written beside it, as OUT.json."""
    to: Literal["stablehlo", "onnx", "torch-export"]
    """Format: StableHLO by jax.export of the JAX twin; ONNX and torch.export of the PyTorch twin."""
    reading: Annotated[ReadingFlags, tyro.conf.arg(name="")] = field(default_factory=ReadingFlags)
    input: Literal["uint8", "float32", "tokens"] = "uint8"
    """Input of the program. uint8: pictures (B, h, w, C) of any size, resized, cropped and normalised
    inside as the file says; float32: images that the caller has prepared as OUT.json says; tokens: ids
    of texts, for the text tower of a CLIP or a SigLIP."""
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16", "int8"] | None,
        shown_as("TYPE", "the type that the file has"),
    ] = None
    """Type of weights and computation: float32, float16, bfloat16 or, of ONNX, int8: ONNX Runtime then
    quantises the products, and what that costs is measured. Outputs are float32."""
    keep_float32: Annotated[str | None, shown_as("auto|NAME,...")] = None
    """What stays in float32 of a program in a smaller type: auto, the operations of which none can be
    left out; or modules such as blocks.0.mlp, lines such as block.py:46, names that auto printed."""
    bound: float | None = None
    """The largest relative error of an output, such as 1e-2, that --keep-float32 is to reach."""
    images: Annotated[Path | None, shown_as("DIR")] = None
    """Folder of pictures on which the program is run too; the first 8 by name."""
    labels: Annotated[str | None, shown_as("A,B,...")] = None
    """Classes in words, of a CLIP or a SigLIP: the logits are those of their texts."""
    template: str = "{}"
    """Text of each of these classes, with {} in its place, such as "a photo of {}"."""
    image_size: Annotated[str | None, shown_as("HxW", "the model's")] = None
    """Size of the images that the model itself sees; its positions are resampled to it."""
    batch: Annotated[str, shown_as("N")] = "dynamic"
    """Number of images or texts of each call, or "dynamic", for any."""
    opset: Annotated[int | None, shown_as("N", "PyTorch's choice")] = None
    """Version of ONNX's operators."""
    platforms: Annotated[str, shown_as("NAME,...")] = "cpu,cuda,tpu"
    """Platforms that StableHLO is lowered for."""
    step: Annotated[int | None, shown_as("N", "the weights it ended with, else the newest or best")] = (
        None
    )
    """Step of the training run's checkpoint."""
    force: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing OUT."""


MADE_OF = {
    **dict.fromkeys(
        ("litert", "tflite"), ("LiteRT", "vit.pt2 --to torch-export --input float32 --batch 1")
    ),
    **dict.fromkeys(("coreml", "mlpackage"), ("Core ML", "vit.pt2 --to torch-export --input float32")),
    **dict.fromkeys(("tensorrt", "trt"), ("TensorRT", "vit.onnx --to onnx --input float32")),
    "openvino": ("OpenVINO", "vit.onnx --to onnx"),
}
"""Programs that other tools make of an exported file: whose, and the export to begin with."""


def main(argv: list[str], prog: str = "parity export") -> int:
    """Run the command, which the user calls `prog`."""
    for flag, value in pairwise(argv):
        if flag == "--to" and value.lower() in MADE_OF:
            name, first = MADE_OF[value.lower()]
            raise ConfigError(
                f"--to {value}: {name} reads or converts an exported file; write it by"
                f" `{prog} CKPT {first}`; what follows is in docs/serving.md, Mobile, edge, browser"
            )
    arguments = parse(Export, runs_here(argv), prog=prog)

    from parity.cli.predict import images_of, labels_of
    from parity.exporting.export import DifferentError, description_path, export
    from parity.exporting.formats import Settings
    from parity.verifier.exported import explain
    from vit_config.waiting import Waiting

    for path in (arguments.out, description_path(arguments.out)):
        refuse_replacing_inputs(path, arguments, arguments.source)
    given = [*images_of([str(arguments.images)])] if arguments.images is not None else []
    for _, error in given:
        if error is not None:
            raise error
    what, different, done = f"reading {arguments.source}", None, None
    with weights_of(arguments.source, arguments.step) as weights, Waiting(what) as waiting:
        try:
            done = export(
                weights,
                arguments.out,
                to=arguments.to,
                input=arguments.input,
                dtype=arguments.dtype,
                labels=labels_of(arguments.labels, arguments.template),
                template=arguments.template,
                image_size=parse_size(arguments.image_size),
                batch=_batch(arguments.batch),
                settings=Settings(
                    [each.strip() for each in arguments.platforms.split(",")], arguments.opset
                ),
                force=arguments.force,
                keep_float32=[e for e in (arguments.keep_float32 or "").split(",") if e],
                bound=arguments.bound,
                images=[Path(path) for path, _ in given],
                explain=explain,
                on_stage=waiting.now,
                **arguments.reading.options(),
            )
        except DifferentError as error:
            different = error
    if done is None:
        assert different is not None
        complain(f"{prog}: {different}")
        say(*different.where.splitlines())
        return 1
    shape = ", ".join(map(str, done.about["input"]["shape"]))
    size = done.path.stat().st_size
    what = "texts" if arguments.input == "tokens" else "images"
    say(f"{done.path}  {arguments.to}, {size:,} bytes, {what} ({shape}) {done.about['input']['dtype']}")
    for each in done.compared:
        shape = ", ".join(map(str, done.about["outputs"][each.output]["shape"]))
        cost = "" if each.limit is not None else f"; {each.origin}"
        twins = ", ".join(f"{twin} {error:.1e}" for twin, error in each.twins.items())
        own = "" if each.own is None else f"; every result rounded {each.own:.1e}"
        says = f"; says nothing: {each.unseen}" if each.unseen else ""
        say(f"  {each.output} ({shape})  {each.error:.1e} from float64; twins: {twins}{own}{cost}{says}")
    say(*(done.kept.to_text() if done.kept else ()))
    say(f"{done.beside}  describes its inputs, outputs and origin")
    if (done.about["preprocess"] or {}).get("exif") == "apply":
        say("photos are turned as their camera noted by whoever calls it: PIL.ImageOps.exif_transpose")
    if all(each.unseen for each in done.compared):
        complain(f"{prog}: UNCERTIFIED: no output could have differed, see above")
        return 1
    return 0


def _batch(text: str) -> int | None:
    """Parse a number of images; None for "dynamic"."""
    if text == "dynamic":
        return None
    if re.fullmatch(r"[1-9]\d{0,4}", text) is None:
        raise ConfigError(f'--batch {text}: expected a number of images, such as 1, or "dynamic"')
    return int(text)
