"""Tiny models of transformers: made, saved by its own saver, loaded strictly."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parity.porting.reading.libraries.peers import import_timm
from tests.support.dialect_proof import Logits, redraw

import_timm()  # declares what transformers' torchvision lacks
import transformers  # noqa: E402

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SIZES = {
    "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 5, "image_size": (21, 10),
    "patch_size": (7, 5),
}  # fmt: skip
"""Of a model that takes any."""
SQUARE = {**SIZES, "image_size": 15, "patch_size": 5}
"""Of a model whose code takes squares alone."""
MLP = {"intermediate_size": 44}
CLASSES = {"id2label": {0: "tench", 1: "crane", 2: "crane, a bird"}}


def build(name: str, config: str, **entries: Any) -> Any:
    """A model by the names of its class and config, redrawn in float64; no mask token is learned."""
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**entries))
    redraw(model)
    for key, parameter in model.named_parameters():
        if key.endswith("mask_token"):
            parameter.data.zero_()
    return model


def save(model: Any, folder: Path, processor: Any = None) -> Path:
    """What the library itself writes."""
    model.save_pretrained(folder)
    if processor is not None:
        processor.save_pretrained(folder)
    return folder


def save_memory(model: Any, folder: Path) -> Path:
    """A state dict as it is in memory, saved by hand beside the config file."""
    folder.mkdir()
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def logits(model: torch.nn.Module) -> Logits:
    """Its logits, or of a model without a classifier the vector that it pools."""
    return outputs(model, lambda out: out.logits if "logits" in out else out.pooler_output)


def class_token(model: torch.nn.Module) -> Logits:
    """The first token behind the last norm."""
    return outputs(model, lambda out: out.last_hidden_state[:, 0])


def outputs(model: torch.nn.Module, pick: Callable[[Any], torch.Tensor]) -> Logits:
    """Some output for images (B, C, H, W)."""

    def run(images: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return pick(model(pixel_values=torch.from_numpy(images))).numpy()

    return run


def reload(
    pick: Callable[[torch.nn.Module], Logits] = logits, auto: str | None = None, **options: Any
) -> Callable[[Path], Logits]:
    """Strict loading: no tensor missing, none unexpected.

    Args:
        auto: the class; None takes the automatic one for what ``config.json`` says.
    """

    def load(folder: Path) -> Logits:
        config = transformers.AutoConfig.from_pretrained(folder)
        kind = "AutoModelForImageClassification" if _has_head(config) else "AutoModel"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, info = getattr(transformers, auto or kind).from_pretrained(
                folder, output_loading_info=True, **options
            )
        assert not any(info.values()), info
        return pick(model.double().eval())

    return load


def _has_head(config: Any) -> bool:
    return "ForImageClassification" in config.architectures[0]
