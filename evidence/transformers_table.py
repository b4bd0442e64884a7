"""Every class of transformers that is converted, to timm and back.

    python -m evidence.transformers_table [--write docs/transformers_table.md]

Each model is built tiny from its config, drawn anew and saved by transformers itself. It is converted
to timm, or refused; what was written and what was read are run in both twins and in their own libraries;
and what was written is converted back and run in transformers once more. Exit status 1 if anything
differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.verification.verified import convert_verified
from parity.porting.verification.verify import Verification
from vit_config import ConfigError, WeightsError
from vit_config.errors import first_line

SIZES = {
    "hidden_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "image_size": 24,
    "patch_size": 8,
}
VISION = {**SIZES, "intermediate_size": 52}
GEMMA = {
    **{name: value for name, value in VISION.items() if name != "image_size"},
    **{"head_dim": 8, "num_key_value_heads": 5, "pooling_kernel_size": 2, "position_embedding_size": 48},
}
FLAT = {**{name: value for name, value in VISION.items() if name != "image_size"}, "num_patches": 9}
TEXT = {
    "hidden_size": 20,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 30,
    "vocab_size": 50,
    "max_position_embeddings": 7,
    "eos_token_id": 1,
    "bos_token_id": 0,
}
DECODER = {f"decoder_{name}": TEXT[name] for name in list(TEXT)[:4]}
SHARED = {**VISION, "num_register_tokens": 2, "num_key_value_heads_per_layer": [5, 1]}
HEAD = {"num_labels": 3}
GATED = {"use_swiglu_ffn": True}


class Model(NamedTuple):
    """A class of transformers, built in one way."""

    name: str
    config: str
    entries: dict[str, Any]
    options: Mapping[str, Any] = MappingProxyType({})
    """Arguments of the class beside its config."""


def _towers(name: str, vision: dict[str, Any], **more: Any) -> Iterator[tuple[str, Model]]:
    config, both = f"{name}Config", {"vision_config": vision, "text_config": TEXT, **more}
    yield f"{name}Model, both towers", Model(f"{name}Model", config, both)
    yield f"{name}VisionModel", Model(f"{name}VisionModel", f"{name}VisionConfig", vision)
    yield (
        f"{name}ForImageClassification",
        Model(f"{name}ForImageClassification", config, {**both, **HEAD}),
    )


def _plain(name: str, entries: dict[str, Any]) -> Iterator[tuple[str, Model]]:
    yield f"{name}Model", Model(f"{name}Model", f"{name}Config", entries)
    classifier = Model(f"{name}ForImageClassification", f"{name}Config", {**entries, **HEAD})
    yield f"{name}ForImageClassification", classifier


BARE = {"add_pooling_layer": False}
MODELS: dict[str, Model] = {
    "ViTModel, pooler": Model("ViTModel", "ViTConfig", VISION),
    "ViTModel, bare": Model("ViTModel", "ViTConfig", VISION, BARE),
    "ViTModel, norm_eps of timm's": Model(
        "ViTModel", "ViTConfig", {**VISION, "layer_norm_eps": 1e-6}, BARE
    ),
    "ViTForImageClassification": Model("ViTForImageClassification", "ViTConfig", {**VISION, **HEAD}),
    "ViTForMaskedImageModeling": Model(
        "ViTForMaskedImageModeling", "ViTConfig", {**VISION, "encoder_stride": 8}
    ),
    **dict(_plain("ViTMSN", VISION)),
    **dict(_plain("IJepa", VISION)),
    "ViTMAEModel": Model("ViTMAEModel", "ViTMAEConfig", VISION),
    "ViTMAEForPreTraining": Model("ViTMAEForPreTraining", "ViTMAEConfig", {**VISION, **DECODER}),
    "DeiTModel, pooler": Model("DeiTModel", "DeiTConfig", VISION),
    "DeiTModel, bare": Model("DeiTModel", "DeiTConfig", VISION, BARE),
    "DeiTForImageClassification": Model("DeiTForImageClassification", "DeiTConfig", {**VISION, **HEAD}),
    "DeiTForImageClassificationWithTeacher": Model(
        "DeiTForImageClassificationWithTeacher", "DeiTConfig", {**VISION, **HEAD}
    ),
    "DeiTForMaskedImageModeling": Model(
        "DeiTForMaskedImageModeling", "DeiTConfig", {**VISION, "encoder_stride": 8}
    ),
    **dict(_plain("Beit", VISION)),
    **dict(_plain("Data2VecVision", VISION)),
    "BeitModel, relative positions": Model(
        "BeitModel", "BeitConfig", {**VISION, "use_relative_position_bias": True}
    ),
    "BeitModel, class token": Model(
        "BeitModel",
        "BeitConfig",
        {**VISION, "use_mean_pooling": False, "use_absolute_position_embeddings": True},
    ),
    **dict(_plain("Dinov2", SIZES)),
    "Dinov2Model, gated": Model("Dinov2Model", "Dinov2Config", {**SIZES, **GATED}),
    "Dinov2Backbone": Model("Dinov2Backbone", "Dinov2Config", SIZES),
    **dict(_plain("Dinov2WithRegisters", SIZES)),
    "Dinov2WithRegistersModel, gated": Model(
        "Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", {**SIZES, **GATED}
    ),
    "DINOv3ViTModel": Model("DINOv3ViTModel", "DINOv3ViTConfig", {**VISION, "num_register_tokens": 4}),
    "DINOv3ViTModel, gated": Model(
        "DINOv3ViTModel",
        "DINOv3ViTConfig",
        {**VISION, "use_gated_mlp": True, "hidden_act": "silu", "key_bias": True},
    ),
    **dict(_towers("CLIP", VISION, projection_dim=11)),
    "CLIPVisionModelWithProjection": Model(
        "CLIPVisionModelWithProjection", "CLIPVisionConfig", {**VISION, "projection_dim": 11}
    ),
    **dict(_towers("Siglip", VISION)),
    "SiglipVisionModel, no pooling head": Model(
        "SiglipVisionModel", "SiglipVisionConfig", {**VISION, "vision_use_head": False}
    ),
    **dict(_towers("Siglip2", FLAT)),
    "Siglip2VisionModel, no pooling head": Model(
        "Siglip2VisionModel", "Siglip2VisionConfig", {**FLAT, "vision_use_head": False}
    ),
    "Gemma4VisionModel": Model("Gemma4VisionModel", "Gemma4VisionConfig", GEMMA),
    "Gemma4VisionModel, bounds": Model(
        "Gemma4VisionModel",
        "Gemma4VisionConfig",
        {**GEMMA, "use_clipped_linears": True, "standardize": True},
    ),
    "JanusVisionModel": Model("JanusVisionModel", "JanusVisionConfig", {**SIZES, "mlp_ratio": 1.5}),
    "BlipVisionModel": Model("BlipVisionModel", "BlipVisionConfig", VISION),
    "Blip2VisionModel": Model("Blip2VisionModel", "Blip2VisionConfig", VISION),
    "OwlViTVisionModel": Model("OwlViTVisionModel", "OwlViTVisionConfig", VISION),
    "Aimv2VisionModel": Model("Aimv2VisionModel", "Aimv2VisionConfig", {**VISION, "use_head": False}),
    "InternVLVisionModel": Model("InternVLVisionModel", "InternVLVisionConfig", VISION),
    "Tipsv2VisionModel": Model("Tipsv2VisionModel", "Tipsv2VisionConfig", SIZES),
    "Tipsv2VisionModel, gated": Model("Tipsv2VisionModel", "Tipsv2VisionConfig", {**SIZES, **GATED}),
    "Sapiens2Model": Model("Sapiens2Model", "Sapiens2Config", SHARED),
    "VideoMAEModel": Model(
        "VideoMAEModel", "VideoMAEConfig", {**VISION, "num_frames": 1, "tubelet_size": 1}
    ),
}


class Line(NamedTuple):
    """The results of one model."""

    model: str
    dialect: str
    asked: str
    """Fields that had to be asked for beside timm."""
    to_timm: str
    back: str
    refused: str
    """Parts of the model that timm cannot hold as they are."""
    passed: bool


def rows(folder: Path, names: Sequence[str] | None = None) -> Iterator[Line]:
    """Every model there and back, or some."""
    for number, name in enumerate(names or MODELS):
        inside = folder / str(number)
        inside.mkdir()
        save(MODELS[name], inside / "saved")
        yield _line(name, inside)


def save(model: Model, folder: Path) -> None:
    """A random model as transformers writes it."""
    import_timm()
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    stream = torch.Generator().manual_seed(0)
    config = getattr(transformers, model.config)(**model.entries)
    made = getattr(transformers, model.name)(config, **model.options)
    for name, parameter in made.named_parameters():
        gain = parameter.ndim == 1 and name.endswith(("weight", "lambda1"))
        parameter.data = 0.2 * torch.randn(parameter.shape, generator=stream) + float(gain)
    made.save_pretrained(folder)


def _line(name: str, folder: Path) -> Line:
    source = read_checkpoint(folder / "saved")
    refused = ""
    try:
        there = convert_verified(source, to="timm", out=folder / "timm")
    except (ConfigError, WeightsError) as error:
        refused = str(error).partition(": ")[2] or str(error)
        try:
            there = convert_verified(source, to="timm", out=folder / "timm", num_classes=0)
        except (ConfigError, WeightsError):
            return Line(name, source.dialect.name, "", "refused", "", refused, True)
    by = "model.py" if (there.path / "model.py").is_file() else "config.json"
    try:
        back = convert_verified(read_checkpoint(there.path), to="hf", out=folder / "back")
        said, passed = (
            f"{back.converted.dialect}: {_errors_in_words(back.verification)}",
            back.verification.passed,
        )
    except ConfigError:  # its table is computed here, and learned in timm
        said, passed = "refused", True
    return Line(
        model=name,
        dialect=source.dialect.name,
        asked="`--num-classes 0`" if refused else "",
        to_timm=f"{_errors_in_words(there.verification)}; {by}",
        back=said,
        refused=refused,
        passed=there.verification.passed and passed,
    )


def _errors_in_words(verification: Verification) -> str:
    """The largest error of each library and twin, and what was not run."""
    if not verification.passed:
        return f"DIFFERENT: {verification.problem}"
    equal = f"{len(verification.rows)} equal"
    usual = ("no installed library reads", "in its own library")
    lost = [each for each in verification.not_run if not any(text in each for text in usual)]
    return f"{equal}, not run: {'; '.join(lost)}" if lost else equal


def markdown(lines: Sequence[Line]) -> str:
    """The table as a page."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("transformers", "timm"))
    page = [
        "# Every class of transformers, to timm and back",
        "",
        "For those who use transformers and want to know how their class fares in timm.",
        "",
        "Written by `python -m evidence.transformers_table --write docs/transformers_table.md`",
        f"on {date.today()}. Each",
        "model is built tiny from its config, drawn anew, saved by transformers, converted",
        f"`--to timm --verify`, and from there `--to hf --verify` ({libraries}).",
        "Equal are the runs of what was written, in both twins and in its own library, and of what was",
        "read in its own, each against what was read in the PyTorch twin. timm builds the model from",
        "`config.json`; where that cannot say an epsilon, `model.py` in the folder does.",
        "",
        "| model | read as | asked for | to timm | and back |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        page.append(f"| {line.model} | {line.dialect} | {line.asked} | {line.to_timm} | {line.back} |")
    page += ["", "Refused without what was asked for, or altogether:", ""]
    page += [f"- {line.model}: {line.refused}" for line in lines if line.refused]
    return "\n".join(page) + "\n"


def main() -> int:
    """Make the table; the exit status."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--write", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = list(rows(Path(folder)))
    page = markdown(lines)
    if arguments.write:
        arguments.write.write_text(page, encoding="utf-8")
    print(page)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
