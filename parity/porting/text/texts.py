"""A text tower that was loaded: texts to embeddings, and their likeness to images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.porting.dialects.transfer import cast
from parity.porting.dialects.transform import DTYPES
from parity.porting.formats.base import Stored
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.text.read import read_text
from parity.porting.text.tokens import Tokens, read_tokens
from vit_config import InputError, TextConfig
from vit_config.errors import naming
from vit_train.frameworks import Framework

BATCH = 32
"""Texts in one batch."""


class ZeroShot(NamedTuple):
    """The likeness of each image to each text."""

    logits: np.ndarray
    """(B, T), float32, or float64 of a float64 model: transformers' ``logits_per_image``."""
    probabilities: np.ndarray
    """(B, T) float64: over the texts, a softmax; of a model with a bias, as SigLIP, which learned each
    pair by itself, the sigmoid of each logit."""


@dataclass(frozen=True)
class Texts:
    """The text tower of a model, ready for texts."""

    config: TextConfig
    origins: dict[str, str]
    """Source of each field of `config`, in words."""
    framework: Framework
    model: Any
    """`vit_jax.TextTower`, or `vit_torch.TextTower` in evaluation mode."""
    path: Path
    """The file or folder that it was read from; its tokenizer is beside it."""
    cleaned: str = ""
    """What the library's code does to texts before its tokenizer, see `TextDialect.cleans`."""

    @cached_property
    def tokens(self) -> Tokens:
        """The checkpoint's tokenizer, read when it is first used.

        Raises:
            InputError, WeightsError: see `parity.porting.text.tokens.read_tokens`.
        """
        return read_tokens(self.path, self.config, self.cleaned)

    def embed(self, texts: Any) -> np.ndarray:
        """Embed texts, (T, E), float32, or float64 of a float64 model.

        Args:
            texts: strings, or token ids (T, tokens); at least one text.

        Raises:
            InputError: strings where the checkpoint has no tokenizer, or ids that do not fit the model.
            WeightsError: the tokenizer is damaged.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        if not texts or isinstance(texts[0], str) != all(isinstance(each, str) for each in texts):
            raise InputError(
                "texts are neither strings nor token ids (texts, tokens); give at least one"
            )
        if isinstance(texts[0], str):
            ids = self.tokens.ids(texts)
        else:
            try:
                ids = np.asarray(texts)
            except ValueError:
                raise InputError("texts of different numbers of tokens; fill them up to one") from None
        self.config.check_ids(ids)
        ids = ids.astype(np.int32)
        return np.concatenate([self._embed(ids[i : i + BATCH]) for i in range(0, len(ids), BATCH)])

    def compare(self, images: np.ndarray, texts: np.ndarray) -> ZeroShot:
        """Compare embeddings of images (B, E) and texts (T, E)."""
        logits = self._compare(images, texts)
        wide = logits.astype(np.float64)
        if self.config.logit_bias:
            return ZeroShot(logits, 1 / (1 + np.exp(-wide)))
        exponentials = np.exp(wide - wide.max(axis=1, keepdims=True))
        return ZeroShot(logits, exponentials / exponentials.sum(axis=1, keepdims=True))

    @cached_property
    def _embed(self) -> Callable[[np.ndarray], np.ndarray]:
        run = {"jax": _run_jax, "torch": _run_torch}[self.framework]
        return run(self.model, lambda model, ids: model(ids).embeddings)

    @cached_property
    def _compare(self) -> Callable[..., np.ndarray]:
        run = {"jax": _run_jax, "torch": _run_torch}[self.framework]
        return run(self.model, lambda model, images, texts: model.compare(images, texts))


def load_texts(
    checkpoint: Checkpoint, *, framework: Framework, kernel: str = "auto", dtype: str | None = None
) -> Texts:
    """Read the text tower beside an image tower into one twin.

    Args:
        kernel, dtype: see `parity.porting.models.files.load`.

    Raises:
        InputError, WeightsError, ConfigError: see `parity.porting.text.read.read_text`.
    """
    with naming(checkpoint.path):
        read = read_text(checkpoint)
        arrays = read.arrays
        if dtype is not None:
            arrays = {name: cast(stored, DTYPES[dtype]) for name, stored in arrays.items()}
        model = build(framework, read.config, arrays, kernel=kernel)
    cleaned = read.dialect.cleans(checkpoint.container.sidecars)
    return Texts(read.config, read.origins, framework, model, checkpoint.path, cleaned)


def build(
    framework: Framework, cfg: TextConfig, arrays: Mapping[str, Stored], *, kernel: str = "auto"
) -> Any:
    """Build a text tower in one twin, with the given parameters in their type."""
    if framework == "jax":
        from vit_jax import text_from_arrays
    else:
        from vit_torch import text_from_arrays
    return text_from_arrays(cfg, {n: each.load() for n, each in arrays.items()}, kernel=kernel)


def _run_jax(model: Any, function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    import jax
    from flax import nnx

    graph, state = nnx.split(model)
    dtype = model.token_embed.dtype
    compiled = jax.jit(lambda state, *inputs: function(nnx.merge(graph, state), *inputs))

    def run(*inputs: np.ndarray) -> np.ndarray:
        with jax.enable_x64(dtype == np.float64):
            values = np.asarray(compiled(state, *map(jax.numpy.asarray, inputs)))
        return values.astype(np.float64 if dtype == np.float64 else np.float32)

    return run


def _run_torch(model: Any, function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    import torch

    def run(*inputs: np.ndarray) -> np.ndarray:
        place = model.token_embed
        with torch.no_grad():
            values = function(model, *(torch.from_numpy(each).to(place.device) for each in inputs))
        wide = torch.float64 if place.dtype == torch.float64 else torch.float32
        return values.to(wide).cpu().numpy()

    return run
