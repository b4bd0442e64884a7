"""Tiny towers of transformers; `evidence/gguf_towers.py` wrote their files by llama.cpp's library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from parity.porting.models.files import load
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for, redraw
from tests.support.tiny import error

SMALL: dict[str, Any] = {
    "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 8, "patch_size": 4,
}  # fmt: skip


class Tower(NamedTuple):
    """A tower, and how its file is written."""

    kind: str
    projector: str
    type: str = "F32"
    swapped: bool = False
    """Whether the layers of the MLP have each other's names, as older converters gave them."""
    norm: bool = True
    """Whether the file has the last norm, which LLaVA does without."""


TOWERS = {
    "CLIP": Tower("clip", "mlp"),
    "CLIP, as older converters wrote LLaVA's": Tower("clip", "mlp", "F16", swapped=True, norm=False),
    "SigLIP": Tower("siglip", "gemma3", "BF16"),
    "SigLIP, as older converters wrote it": Tower("siglip", "idefics3", swapped=True),
}


def path_of(name: str) -> Path:
    """The recorded file of a tower."""
    return Path(__file__).with_name(f"tower{list(TOWERS).index(name)}.gguf")


def build(name: str) -> tuple[Any, Callable[[np.ndarray], np.ndarray]]:
    """transformers' tower in float64 with numbers that its file holds exactly; its tokens of images."""
    import_timm()
    from transformers import CLIPVisionConfig, CLIPVisionModel, SiglipVisionConfig, SiglipVisionModel

    tower = TOWERS[name]
    torch.manual_seed(0)
    if tower.kind == "clip":
        model: Any = CLIPVisionModel(CLIPVisionConfig(**SMALL))
    else:
        model = SiglipVisionModel(SiglipVisionConfig(**SMALL, vision_use_head=False))
    redraw(model)
    for parameter in model.parameters():
        parameter.data = parameter.data.mul(64).round().div(64)  # few bits, which every type has

    def tokens(images: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            output = model(torch.from_numpy(images), output_hidden_states=True)
            if tower.kind == "siglip":
                return output.last_hidden_state.numpy()
            last = output.hidden_states[-1]
            return (model.post_layernorm(last) if tower.norm else last).numpy()

    return model, tokens


def errors(path: Path, tokens: Callable[[np.ndarray], np.ndarray], own: Path) -> dict[str, float]:
    """How far the tokens of both twins are from those of the tower that a file holds, in float64.

    Args:
        own: where the project's own file is put.
    """
    convert(path, to="parity", out=own, dtype="float64", force=True)
    twin, images = load(own, framework="torch").model, images_for(read_checkpoint(own).config)
    with torch.no_grad():
        tokens_of = {"torch": twin.forward_features(torch.from_numpy(images)).numpy()}
    with jax.enable_x64(True):
        model = load(own, framework="jax").model
        tokens_of["jax"] = np.asarray(
            model.forward_features(jax.numpy.asarray(images.transpose(0, 2, 3, 1)))
        )
    return {name: error(each, tokens(images)) for name, each in tokens_of.items()}
