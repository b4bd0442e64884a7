"""Who says what of a checkpoint: its header, config files, training records, presets and the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.containers.base import Container
from parity.dialects.dialect import FALLBACK_FIELDS, Dialect
from parity.dialects.recognise import Found
from parity.dialects.resolve import SHAPES, Sources
from vit_config import PRESETS, Preprocess, ViTConfig, preset, preset_preprocess, preset_tags

HEADER = "its header"
"""Origin of what a file's own header says."""
RECORDS = "its training's records"
"""Origin of what a training script wrote beside the tensors."""


def schema_sources(
    container: Container,
    found: Found,
    like: str | None,
    tag: str | None,
    given: Mapping[str, Any],
) -> Sources:
    """Whoever says something of the schema.

    Args:
        tag: a name of timm's that the weights were asked for by; then no config file is asked, as one
            repository may serve several of timm's names.
    """
    dialect, sources = found.dialect, Sources(given=given)
    if said := dialect.stated({name: stored.shape for name, stored in found.tensors.items()}):
        sources.stated.append((SHAPES, said))
    if "vit.schema" in container.metadata:
        where = f"{container.path}: vit.schema"
        cfg = ViTConfig.from_json(container.metadata["vit.schema"], where=where)
        sources.stated.append((HEADER, {name: getattr(cfg, name) for name in cfg.fields()}))
    if tag is not None and like is None:
        cfg = preset(tag)
        sources.stated.append((f"preset {tag}", {name: getattr(cfg, name) for name in cfg.fields()}))
    elif dialect.settings is not None and dialect.settings.recognise(container.sidecars):
        sources.stated.append(("config.json", dialect.settings.fields(container.sidecars)))
    if like is None:
        trained = dialect.trained(container.objects)
        sources.stated.append((RECORDS, trained.stated))
        sources.fallback.append((RECORDS, trained.fallback))
    else:
        cfg = preset(like)
        fields = {name: getattr(cfg, name) for name in cfg.fields()}
        weak = {name: fields.pop(name) for name in FALLBACK_FIELDS}
        sources.stated.append((f"preset {like}", fields))
        sources.fallback.append((f"preset {like}", weak))
    return sources


def preprocessing(
    container: Container,
    dialect: Dialect,
    like: str | None,
    given: Preprocess | None,
    channels: int,
) -> tuple[Preprocess | None, str]:
    """How pixels are prepared, and who says so; None where nobody does.

    Args:
        channels: of the model's images; a convention for images of others does not count.

    Raises:
        ConfigError: what a file says of it is not valid.
    """
    if given is not None:
        return given, "given"
    text = container.metadata.get("vit.preprocess", "null")
    if text != "null":
        return Preprocess.from_json(text, where=f"{container.path}: vit.preprocess"), HEADER
    if dialect.settings is not None and (told := dialect.settings.preprocess(container.sidecars)):
        return told, "config files"
    if like is not None and like.partition(".")[0] in PRESETS and preset_tags(like):
        return preset_preprocess(like), f"preset {like}"
    convention = dialect.preprocess
    if convention is not None and len(convention.mean) == channels:
        return convention, f"convention of {dialect.title}"
    return None, "unknown"
