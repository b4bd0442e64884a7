"""Logits of a text tower for fixed texts, in float64, for comparing what was written with its source."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from parity.porting.dialects.transfer import cast
from parity.porting.formats.base import Stored
from parity.porting.text.texts import Texts, build
from vit_config import TextConfig
from vit_train.frameworks import Framework

TEXTS, IMAGES = 4, 3


def likeness(framework: str, cfg: TextConfig, arrays: Mapping[str, Stored]) -> np.ndarray:
    """Compare random texts with random embeddings of images, (images, texts), in float64."""
    stream = np.random.default_rng(0)
    ids = stream.integers(0, cfg.vocab_size, (TEXTS, cfg.context_length))
    if cfg.eos_id is not None:
        ids[np.arange(TEXTS), stream.integers(0, cfg.context_length, TEXTS)] = cfg.eos_id
    images = stream.standard_normal((IMAGES, cfg.projection_dim or cfg.hidden_size))
    wide = {name: cast(stored, np.dtype(np.float64)) for name, stored in arrays.items()}
    twin: Framework = "jax" if framework == "jax" else "torch"
    with _wide(twin):
        texts = Texts(cfg, {}, twin, build(twin, cfg, wide), Path())
        return texts.compare(images, texts.embed(ids)).logits


def _wide(framework: Framework) -> Any:
    if framework != "jax":
        return nullcontext()
    import jax

    return jax.enable_x64(True)
