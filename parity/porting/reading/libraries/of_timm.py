"""Builds and runs timm's own model of a checkpoint, by its config.json or by the call for its schema."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from parity.porting.dialects.records.timm.config import TimmSettings
from parity.porting.dialects.records.timm.nearest import Constructor, constructor
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
    return _create(call)


@contextmanager
def registered(name: str, cfg: ViTConfig) -> Iterator[None]:
    """Let timm have the model of a schema by a name of ours."""
    import_timm()
    from timm.models._registry import _model_entrypoints

    def create(pretrained: bool = False, **options: Any) -> Any:
        return _create(constructor(cfg, ("vision_transformer",)), **options)

    with patch.dict(_model_entrypoints, {name: create}):  # register_model has no reverse
        yield


def _create(call: Constructor, **options: Any) -> Any:
    """Build the model of a call; options take the place of its arguments."""
    timm = import_timm()
    arguments = dict(call.arguments)
    if call.norm is not None:
        norm = functools.partial(getattr(timm.layers, call.norm), eps=call.norm_eps)
        arguments |= dict.fromkeys(call.norm_arguments, norm)
    return timm.create_model(call.name, **{**arguments, **options})


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
