"""timm's own model of a checkpoint: by its config.json, or by the call that makes it."""

from __future__ import annotations

import functools
from typing import Any

from parity.porting.checkpoint import Checkpoint
from parity.porting.dialects.timm.config import TimmSettings
from parity.porting.verification.libraries import NoModelError
from parity.porting.verification.peers import import_timm
from vit_config import ConfigError


def build(checkpoint: Checkpoint) -> Any:
    """The model, freshly drawn.

    Raises:
        NoModelError: no call makes it.
    """
    timm = import_timm()
    if (checkpoint.path / "config.json").is_file():
        return timm.create_model(f"local-dir:{checkpoint.path.absolute()}")
    settings = checkpoint.dialect.settings
    assert isinstance(settings, TimmSettings)
    try:
        made = settings.constructor(checkpoint.config)
    except ConfigError as error:
        raise NoModelError(str(error)) from None
    arguments = dict(made.arguments)
    if made.norm is not None:
        norm = functools.partial(getattr(timm.layers, made.norm), eps=made.norm_eps)
        arguments |= dict.fromkeys(made.norm_arguments, norm)
    return timm.create_model(made.name, **arguments)
