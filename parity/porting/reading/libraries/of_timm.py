"""Builds and runs timm's own model of a checkpoint, by its config.json or by the call for its schema."""

from __future__ import annotations

import functools
from typing import Any

from parity.porting.dialects.records.timm.config import TimmSettings
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.reading.libraries.installed import NoModelError
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.recognition.known import OVERRIDDEN
from vit_config import ConfigError, ViTConfig


def build(checkpoint: Checkpoint) -> Any:
    """Build the model with initial values: by config.json, or by the schema if the user overrode it.

    Raises:
        NoModelError: no call builds it.
    """
    timm = import_timm()
    overruled = [name for name, where in checkpoint.origins.items() if where == OVERRIDDEN]
    if (checkpoint.path / "config.json").is_file() and not {*overruled} - {"pool"}:
        config = checkpoint.opened.container.sidecars["config.json"]
        options = {"num_classes": checkpoint.config.num_classes}
        if config.get("pretrained_cfg"):
            return timm.create_model(f"local-dir:{checkpoint.path.absolute()}", **options)
        # without it timm would use the whole file, to which transformers' TimmWrapper adds entries
        options = {**(config.get("model_args") or {}), **options}
        return timm.create_model(config["architecture"], **options)
    settings = checkpoint.dialect.settings
    assert isinstance(settings, TimmSettings)
    try:
        call = settings.constructor(checkpoint.config)
    except ConfigError as error:
        raise NoModelError(str(error)) from None
    arguments = dict(call.arguments)
    if call.norm is not None:
        norm = functools.partial(getattr(timm.layers, call.norm), eps=call.norm_eps)
        arguments |= dict.fromkeys(call.norm_arguments, norm)
    return timm.create_model(call.name, **arguments)


def call(model: Any, images: Any, cfg: ViTConfig) -> Any:
    """Compute logits (B, classes) of images (B, C, H, W), or the pooled vector without a head.

    The vector is the one that the schema pools, even if the model pools another: the tokens are the
    same.
    """
    pools = {"class": ("token",), "mean": ("avg",)}
    if cfg.num_classes or cfg.pool not in pools or model.global_pool in pools[cfg.pool]:
        return model(images)
    tokens = model.forward_features(images)
    start = 0 if cfg.pool_prefix else cfg.num_prefix_tokens
    return model.fc_norm(tokens[:, 0] if cfg.pool == "class" else tokens[:, start:].mean(dim=1))
