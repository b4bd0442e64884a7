"""Who says what of a checkpoint: its header, config files, training records, presets and the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.containers.base import Container
from parity.dialects import sidecars
from parity.dialects.dialect import FALLBACK_FIELDS, Dialect, Settings
from parity.dialects.recognise import Found
from parity.dialects.resolve import SHAPES, Sources
from vit_config import (
    PRESETS,
    ConfigError,
    Preprocess,
    ViTConfig,
    WeightsError,
    preset,
    preset_preprocess,
    preset_tags,
)

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
    else:
        sources.stated.append(("config.json", sidecars.fields(dialect, container.sidecars)))
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
    cfg: ViTConfig,
) -> tuple[Preprocess | None, str]:
    """How pixels are prepared, and who says so; None where nobody does.

    Args:
        cfg: the model; a convention for images of other channels does not count.

    Raises:
        ConfigError: what a file says of it is not valid.
        WeightsError: header and config files contradict each other, or the model.
    """
    found, origin = _preprocessing(container, dialect, like, given, cfg.in_channels)
    names = found.class_names if found else None
    if names is not None and cfg.num_classes not in (0, len(names)):
        raise WeightsError(f"{len(names)} names of classes by {origin}, num_classes = {cfg.num_classes}")
    return found, origin


def _preprocessing(
    container: Container, dialect: Dialect, like: str | None, given: Preprocess | None, channels: int
) -> tuple[Preprocess | None, str]:
    if given is not None:
        return given, "given"
    beside = sidecars.tell(dialect, container.sidecars)
    told = sidecars.preprocess(dialect, container.sidecars)
    text = container.metadata.get("vit.preprocess", "null")
    if text != "null":
        header = Preprocess.from_json(text, where=f"{container.path}: vit.preprocess")
        if dialect.settings is not None and beside:
            _check_agreement(container, dialect.settings, header, told)
        return header, HEADER
    if told is not None:
        return told, "config files"
    if like is not None and like.partition(".")[0] in PRESETS and preset_tags(like):
        return preset_preprocess(like), f"preset {like}"
    convention = dialect.preprocess
    if convention is not None and not beside and len(convention.mean) == channels:
        return convention, f"convention of {dialect.title}"
    return None, "unknown"


def _check_agreement(
    container: Container, settings: Settings, header: Preprocess, told: Preprocess | None
) -> None:
    """Refuse config files that say something else of pixels and classes than was written beside this
    header; a file that is gone says nothing."""
    cfg = ViTConfig.from_json(container.metadata["vit.schema"], where="vit.schema")
    try:
        written = settings.files(cfg, header)
    except ConfigError:  # it was written without them
        return
    expected = settings.preprocess(written)
    if told == expected or (told is None and not written.keys() <= container.sidecars.keys()):
        return
    for name in Preprocess.fields():
        ours, theirs = (each and getattr(each, name) for each in (expected, told))
        if ours != theirs:
            said = f"{theirs} by config files" if told else "config files say what no Preprocess can"
            raise WeightsError(
                f"{name} is {ours} by {HEADER} but {said}; give --preprocess FILE, or convert from the"
                " source again"
            )
