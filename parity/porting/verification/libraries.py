"""The libraries that dialects belong to, as far as they are installed: the judges of what is written."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.measure.tolerance import FLOAT64
from parity.porting.checkpoint import Checkpoint

Run = Callable[[np.ndarray], np.ndarray]
"""Images (B, H, W, C) float64 to logits (B, classes)."""


@dataclass(frozen=True)
class Library:
    """A model that a library loaded, strictly."""

    name: str
    run: Run
    limit: float = FLOAT64
    """How far its logits may be from the twins': more than float64's rounding where the library computes
    something in float32 whatever the model's type."""


def library(checkpoint: Checkpoint) -> Library | str:
    """A library's own model of a checkpoint; or, in words, why there is none here."""
    name = checkpoint.dialect.name
    for prefix, (package, load) in _LOADERS.items():
        if name.startswith(prefix):
            if not importlib.util.find_spec(package):
                return f"{package} is not installed"
            return load(checkpoint)
    return f"no library here reads {name}"


def _torchvision(checkpoint: Checkpoint) -> Library | str:
    from parity.porting.verification.peers import import_timm

    cfg = checkpoint.config
    import_timm()  # declares the operators without which torchvision does not load here
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(
        image_size=cfg.image_size[0],
        patch_size=cfg.patch_size[0],
        num_layers=cfg.depth,
        num_heads=cfg.num_heads,
        hidden_dim=cfg.hidden_size,
        mlp_dim=cfg.mlp_dim,
        num_classes=cfg.num_classes,
        representation_size=cfg.head_hidden,
    )
    return Library("torchvision", _run(_strictly(model, checkpoint)))


def _timm(checkpoint: Checkpoint) -> Library | str:
    from parity.porting.verification.peers import import_timm

    path = checkpoint.path
    if not (path / "config.json").is_file():
        return "a file of timm's without config.json does not say which model it is"
    model = import_timm().create_model(f"local-dir:{path.absolute()}")
    return Library(
        "timm", _run(_strictly(model, checkpoint)), 1e-5 if checkpoint.config.rope else FLOAT64
    )


def _transformers(checkpoint: Checkpoint) -> Library | str:
    from parity.porting.verification.peers import import_timm

    import_timm()  # as above: transformers imports torchvision
    import transformers

    transformers.utils.logging.disable_progress_bar()
    path, cfg = checkpoint.path, checkpoint.config
    if not (path / "config.json").is_file():
        return "weights of Hugging Face without config.json do not say which model they are"
    (name,) = transformers.AutoConfig.from_pretrained(path).architectures or ["AutoModel"]
    model, report = getattr(transformers, name).from_pretrained(path, output_loading_info=True)
    if report["missing_keys"] or report["unexpected_keys"]:
        return f"transformers does not load it strictly: {report}"

    def logits(output: Any) -> Any:
        for part in ("logits", "image_embeds", "pooler_output"):
            if getattr(output, part, None) is not None:
                return getattr(output, part)
        tokens = output.last_hidden_state
        return tokens[:, 0] if cfg.class_token else tokens.mean(dim=1)

    run = _run(model.double().eval(), lambda model, images: logits(model(pixel_values=images)))
    return Library("transformers", run, 1e-5 if cfg.rope else FLOAT64)


def _vit_pytorch(checkpoint: Checkpoint) -> Library | str:
    import vit_pytorch

    cfg = checkpoint.config
    options: dict[str, Any] = {
        "image_size": cfg.image_size,
        "patch_size": cfg.patch_size,
        "num_classes": cfg.num_classes,
        "dim": cfg.hidden_size,
        "depth": cfg.depth,
        "heads": cfg.num_heads,
        "mlp_dim": cfg.mlp_dim,
        "channels": cfg.in_channels,
        "dim_head": cfg.head_dim,
    }
    if cfg.pos_embed == "learned":
        model = vit_pytorch.ViT(**options, pool="cls" if cfg.pool == "class" else "mean")
    else:
        model = vit_pytorch.SimpleViT(**options)
    return Library("vit-pytorch", _run(_strictly(model, checkpoint)))


_LOADERS: dict[str, tuple[str, Callable[[Checkpoint], Library | str]]] = {
    "torchvision": ("torchvision", _torchvision),
    "timm": ("timm", _timm),
    "hf-": ("transformers", _transformers),
    "vit-pytorch": ("vit_pytorch", _vit_pytorch),
    "simple-vit-pytorch": ("vit_pytorch", _vit_pytorch),
}
"""By how a dialect's name begins: the package it needs, and what loads it."""


def _strictly(model: Any, checkpoint: Checkpoint) -> Any:
    """The model with exactly the tensors of a file, in float64 and evaluation mode."""
    from vit_torch.weights import from_numpy

    state = {name: from_numpy(stored.load()) for name, stored in checkpoint.tensors.items()}
    model.load_state_dict(state, strict=True)
    return model.double().eval()


def _run(model: Any, logits: Callable[[Any, Any], Any] = lambda model, images: model(images)) -> Run:
    import torch

    def run(images: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return logits(model, torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()

    return run
