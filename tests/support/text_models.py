"""Tiny CLIPs and SigLIPs of transformers, drawn in float64, and texts for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from parity.porting.formats import Stored
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.text.read import TextCheckpoint, read_text
from tests.support.dialect_proof import redraw
from tests.support.hf_models import transformers

LENGTH, VOCABULARY, END = 13, 59, 57
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2,
    "num_attention_heads": 3, "max_position_embeddings": LENGTH, "bos_token_id": 0, "pad_token_id": 1,
}  # fmt: skip
VISION: dict[str, Any] = {
    "hidden_size": 20, "intermediate_size": 28, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 15, "patch_size": 5,
}  # fmt: skip
KINDS = ("clip", "clip of old", "siglip")
"""A CLIP of today, which pools at an id; one that pools at the largest id; and a SigLIP."""


def build(kind: str = "clip") -> Any:
    """A model of both towers; no parameter is left at a value that hides a fault."""
    if kind == "siglip":
        config = transformers.SiglipConfig(
            text_config={**TEXT, "eos_token_id": END, "projection_size": VISION["hidden_size"]},
            vision_config=VISION,
        )
        return redraw(transformers.SiglipModel(config))
    end = 2 if kind == "clip of old" else END
    config = transformers.CLIPConfig(
        text_config={**TEXT, "eos_token_id": end}, vision_config=VISION, projection_dim=17
    )
    return redraw(transformers.CLIPModel(config))


def texts(count: int = 3, length: int = LENGTH - 2, seed: int = 0) -> np.ndarray:
    """Ids (count, length); of each, some are behind its end, the larger ones too."""
    stream = np.random.default_rng(seed)
    ids = stream.integers(2, END, (count, length))
    for row, end in enumerate(stream.integers(3, length - 1, count)):
        ids[row, end] = END
        ids[row, end + 2 :] = END  # and once more, behind one that is another
    return ids


def pictures(count: int = 3, seed: int = 1) -> np.ndarray:
    """Images (B, C, H, W) float64."""
    side = VISION["image_size"]
    return np.random.default_rng(seed).standard_normal((count, 3, side, side))


def read_live(model: Any) -> TextCheckpoint:
    """The model's text tower, as it is read from memory."""
    return read_text(read_checkpoint(model))


def loaded(checkpoint: TextCheckpoint) -> dict[str, np.ndarray]:
    """Its parameters by the twins' names."""
    return {name: stored.load() for name, stored in checkpoint.arrays.items()}


def gradients(model: Any, checkpoint: TextCheckpoint) -> dict[str, np.ndarray]:
    """The gradients of the model's own text tower, by the twins' names."""
    from parity.porting.dialects.table import bind_theirs
    from parity.porting.dialects.transfer import read

    by_name: Mapping[str, Stored] = {
        name: Stored.of(p.grad.numpy())
        for name, p in model.named_parameters()
        if name in checkpoint.tensors
    }
    shapes = {name: stored.shape for name, stored in by_name.items()}
    bound, left = bind_theirs(checkpoint.dialect.tables[0], shapes)
    assert not left
    return {name: stored.load() for name, stored in read(bound, by_name).items()}


def peer(model: Any, ids: np.ndarray, images: np.ndarray) -> Any:
    """What the model gives for both, with its loss."""
    return model(
        input_ids=torch.from_numpy(ids), pixel_values=torch.from_numpy(images), return_loss=True
    )
