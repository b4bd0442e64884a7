"""Who says what of a checkpoint: its header, config files, training records, presets and the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from parity.porting.dialects import sidecars
from parity.porting.dialects.dialect import FALLBACK_FIELDS, NEUTRAL, Dialect
from parity.porting.dialects.recognise import Found
from parity.porting.dialects.resolve import GIVEN, SHAPES, Sources
from parity.porting.formats.base import Container
from parity.porting.metadata import PREPROCESS, Card
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
CONFIG_FILES = "config files"
"""Origin of what the files beside the tensors say of pixels and classes."""
RECORDS = "its training's records"
"""Origin of what a training script wrote beside the tensors."""


def schema_sources(
    container: Container,
    found: Found,
    like: str | None,
    tag: str | None,
    given: Mapping[str, Any],
    override: Mapping[str, Any],
) -> Sources:
    """Whoever says something of the schema.

    Args:
        given, override: see `Sources`. A preset that the user names gives way to both, as do records of
            what acts in training alone.
        tag: a name of timm's that the weights were asked for by; then no config file is asked, as one
            repository may serve several of timm's names.
    """
    dialect, sources = found.dialect, Sources(given=given, override=override)
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
        of_training = {*NEUTRAL} & {*given, *override}
        stated = {name: value for name, value in trained.stated.items() if name not in of_training}
        sources.stated.append((RECORDS, stated))
        sources.fallback.append((RECORDS, trained.fallback))
    else:
        cfg = preset(like)
        fields = {name: getattr(cfg, name) for name in cfg.fields() if name not in {*given, *override}}
        weak = {name: fields.pop(name) for name in FALLBACK_FIELDS if name in fields}
        sources.stated.append((f"preset {like}", fields))
        sources.fallback.append((f"preset {like}", weak))
    return sources


def read_card(
    container: Container,
    dialect: Dialect,
    like: str | None,
    given: Preprocess | None,
    cfg: ViTConfig,
) -> tuple[Card, str]:
    """What is told of pixels, classes and licence, and who says how pixels are prepared.

    Args:
        given: what the user states of it; what it leaves open is the file's.
        cfg: the model; a convention for images of other channels does not count.

    Raises:
        ConfigError: what a file says of it is not valid.
        WeightsError: header and config files contradict each other, or the model.
    """
    said = Card.of(given)
    try:
        own, origin = _own_card(container, dialect, said)
    except ConfigError:
        if given is None:
            raise
        own, origin = Card(), GIVEN  # what the user states stands, whatever is in the files
    card = said.completed(own)
    if said.pixels is not None:
        origin = GIVEN
    elif own.pixels is None:
        more, origin = _assumed(container, dialect, like, cfg.in_channels)
        card = card.completed(more)
    if card.class_names is not None and cfg.num_classes not in (0, len(card.class_names)):
        raise WeightsError(
            f"{len(card.class_names)} class names, but num_classes = {cfg.num_classes}; give"
            " --preprocess FILE with as many class_names"
        )
    return card, origin


def _assumed(
    container: Container, dialect: Dialect, like: str | None, channels: int
) -> tuple[Card, str]:
    """What is known of pixels where neither the user nor the file says it."""
    if like is not None and like.partition(".")[0] in PRESETS and preset_tags(like):
        return Card.of(preset_preprocess(like)), f"preset {like}"
    silent = PREPROCESS not in container.metadata and not sidecars.tell(dialect, container.sidecars)
    convention = dialect.preprocess
    if convention is not None and silent and len(convention.mean) == channels:
        return Card(pixels=convention), f"convention of {dialect.title}"
    return Card(), "unknown"


def _own_card(container: Container, dialect: Dialect, given: Card) -> tuple[Card, str]:
    """What the file itself says: its header, and config files of what the header leaves open.

    Raises:
        WeightsError: config files say something else than was written beside this header, and the user
            states nothing of it. A file that is gone says nothing.
    """
    header = Card.from_metadata(container.metadata, where=str(container.path))
    told = sidecars.card(dialect, container.sidecars)
    if header is None:
        return told, CONFIG_FILES
    if dialect.settings is None or not sidecars.tell(dialect, container.sidecars):
        return header, HEADER
    cfg = ViTConfig.from_json(container.metadata["vit.schema"], where="vit.schema")
    try:
        written = dialect.settings.files(cfg, header)
    except ConfigError:  # it was written without them
        return header, HEADER
    expected = dialect.settings.card(written)
    news = {n: getattr(told, n) for n in Card.fields() if getattr(told, n) != getattr(expected, n)}
    if told.pixels is None and not written.keys() <= container.sidecars.keys():
        news.pop("pixels", None)
    for name in news:
        if getattr(header, name) is not None and getattr(given, name) is None:
            _refuse(name, getattr(expected, name) or getattr(header, name), news[name])
    origin = HEADER if header.pixels is not None else CONFIG_FILES
    return header.completed(Card(**news)), origin


def _refuse(name: str, ours: Any, theirs: Any) -> NoReturn:
    """Refuse an entry of the card that header and config files do not agree on."""
    said = f"{name} is {ours} by {HEADER} but {theirs} by {CONFIG_FILES}"
    if name == "pixels" and theirs is None:
        said = f"{HEADER} says how pixels are prepared but {CONFIG_FILES} state what it cannot hold"
    elif name == "pixels":
        one = next(n for n in Preprocess.fields() if getattr(ours, n) != getattr(theirs, n))
        said = f"{one} is {getattr(ours, one)} by {HEADER} but {getattr(theirs, one)} by {CONFIG_FILES}"
    raise WeightsError(f"{said}; give --preprocess FILE, or convert from the source again")
