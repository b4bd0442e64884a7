"""Sources of a checkpoint's schema and metadata: header, config files, records, presets, user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from parity.porting.dialects.dialect import FALLBACK_FIELDS, NEUTRAL, Dialect
from parity.porting.dialects.sidecars import Sidecars
from parity.porting.formats.metadata import Metadata
from parity.porting.opening.opened import Opened
from parity.porting.recognition.known import GIVEN, PRESET, SHAPES
from parity.porting.recognition.recognise import Model
from parity.porting.recognition.resolve import Origins
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
"""Origin of values from the file's own header."""
CONFIG_FILES = "config files"
"""Origin of preprocessing and class names from the config files beside the tensors."""
MODULES, CONFIG = "its modules", "its config"
"""Origins of fields of a model in memory."""
RECORDS = "its training's records"
"""Origin of values that a training script wrote beside the tensors."""


FEATURIZERS = ("featurizer", "fused_featurizer")
"""Prismatic's towers, by the order of their names in its config.json."""


def preset_of_tower(opened: Opened, model: Model) -> str | None:
    """Return timm's name of a tower inside of Prismatic's models, such as OpenVLA; None if config.json
    names none, or one that no preset is."""
    config, tower = opened.container.sidecars.get("config.json"), model.branch.rpartition(".")[2]
    if not isinstance(config, dict) or tower not in FEATURIZERS:
        return None
    place = FEATURIZERS.index(tower)
    names, acts = (config.get(key) for key in ("timm_model_ids", "timm_override_act_layers"))
    if not isinstance(names, list) or len(names) <= place or not isinstance(names[place], str):
        return None
    kept = not acts or (isinstance(acts, list) and not any(acts[place : place + 1]))
    return names[place] if kept and names[place].partition(".")[0] in PRESETS else None


def schema_origins(
    opened: Opened,
    model: Model,
    like: str | None,
    given: Mapping[str, Any],
    override: Mapping[str, Any],
) -> Origins:
    """Collect every source that states fields of the schema.

    Args:
        given, override: see `Origins`. Both take precedence over a preset that the user names, and over
            training records of fields that act in training only.
    """
    dialect, header = model.dialect, opened.header
    is_stated = model.asked or header.dialect is not None or opened.sidecars.are_of(dialect)
    origins = Origins(given=given, override=override, dialect_is_stated=is_stated)
    if shown := dialect.stated({name: stored.shape for name, stored in model.tensors.items()}):
        origins.stated.append((SHAPES, shown))
    if (cfg := header.schema) is not None:
        fields = {name: getattr(cfg, name) for name in cfg.fields()}
        if opened.classes is not None:  # they are of the head before
            odd = ("head_hidden", "head_bias", *(["pool"] if "pool" in dialect.problems(cfg) else []))
            fields = {name: value for name, value in fields.items() if name not in odd}
        origins.stated.append((HEADER, fields))
    if opened.live is not None:
        origins.stated.append((MODULES, opened.live.facts))
        origins.fallback.append((CONFIG, opened.sidecars.fields(dialect)))
    elif opened.preset is not None and like is None:  # one repository may serve several of timm's names
        cfg = preset(opened.preset)
        fields = {name: getattr(cfg, name) for name in cfg.fields()}
        origins.stated.append((f"{PRESET}{opened.preset}", fields))
    else:
        where = getattr(dialect.settings, "file", "config.json")
        origins.stated.append((where, opened.sidecars.fields(dialect)))
        if model.asked:
            origins.stated.append(("config.json", opened.sidecars.of_relative(dialect)[0]))
    if like is None:
        trained = dialect.trained(opened.container.objects)
        of_training = {*NEUTRAL} & {*given, *override}
        stated = {name: value for name, value in trained.stated.items() if name not in of_training}
        origins.stated.append((RECORDS, stated))
        origins.fallback.append((RECORDS, trained.fallback))
    if like := like or preset_of_tower(opened, model):
        cfg = preset(like)
        fields = {name: getattr(cfg, name) for name in cfg.fields() if name not in {*given, *override}}
        weak = {name: fields.pop(name) for name in FALLBACK_FIELDS if name in fields}
        origins.stated.append((f"{PRESET}{like}", fields))
        origins.fallback.append((f"{PRESET}{like}", weak))
    return origins


def stated_preprocess(stated: Any) -> Preprocess | None:
    """Return the preprocessing that a user states, itself or by a file.

    Raises:
        ConfigError, MissingFileError: it is neither.
    """
    if isinstance(stated, str | Path):
        return Preprocess.load(stated)
    if not isinstance(stated, Preprocess | None):
        raise ConfigError(
            f"preprocess is a {type(stated).__name__}; give vit_config.Preprocess(mean=..., std=...)"
        )
    return stated


def read_metadata(
    opened: Opened,
    dialect: Dialect,
    like: str | None,
    given: Preprocess | None,
    cfg: ViTConfig,
) -> tuple[Metadata, str]:
    """Read preprocessing, class names and licence, and return them with the source of the preprocessing.

    Args:
        given: the user's statement; the file supplies what it leaves open. If it names classes alone,
            its defaults of pixels are no statement.
        cfg: the model; a dialect's convention for another number of channels does not apply.

    Raises:
        ConfigError: a file's entry is not valid.
        WeightsError: header and config files contradict each other or the model.
    """
    stated = Metadata.of(given)
    if given is not None and {"class_names"} <= given.model_fields_set <= {"class_names", "license"}:
        stated = stated.replace(pixels=None)  # names alone say nothing of pixels
    try:
        own, origin = _own_metadata(opened, dialect, stated)
    except ConfigError:
        if given is None:
            raise
        own, origin = Metadata(), GIVEN  # the user's statement holds whatever is in the files
    metadata = stated.completed(own)
    if stated.pixels is not None:
        origin = GIVEN
    elif own.pixels is None:
        more, origin = _assumed(opened, dialect, like, cfg.in_channels)
        metadata = metadata.completed(more)
    metadata.check_classes(cfg.num_classes, "give --preprocess FILE with as many class_names")
    return metadata, origin


def _assumed(opened: Opened, dialect: Dialect, like: str | None, channels: int) -> tuple[Metadata, str]:
    """Return the preprocessing of a preset or a convention, where neither user nor file states it."""
    if like is not None and like.partition(".")[0] in PRESETS and preset_tags(like):
        metadata = Metadata.of(preset_preprocess(like))
        if like != opened.preset:  # other weights of that architecture than the preset's
            metadata = metadata.replace(license=None)
        return metadata, f"{PRESET}{like}"
    silent = not opened.header.has_metadata and not opened.sidecars.are_of(dialect)
    convention = dialect.preprocess
    if convention is not None and silent and len(convention.mean) == channels:
        return Metadata(pixels=convention), f"convention of {dialect.title}"
    return Metadata(), "unknown"


def _own_metadata(opened: Opened, dialect: Dialect, given: Metadata) -> tuple[Metadata, str]:
    """Read the file's own metadata: its header, and config files for what the header leaves open.

    Raises:
        WeightsError: config files contradict those that were written with this header, and the user does
            not state the entry. A missing config file contradicts nothing.
    """
    header, cfg = opened.header.metadata, opened.header.schema
    own = opened.sidecars.metadata(dialect)
    if header is None:
        return own, CONFIG_FILES
    if dialect.settings is None or cfg is None or not opened.sidecars.are_of(dialect):
        return header, HEADER
    try:
        written = dialect.settings.files(cfg, header)
    except ConfigError:  # so the header was written without config files
        return header, HEADER
    expected = Sidecars(written).metadata(dialect)
    news = {n: getattr(own, n) for n in Metadata.fields() if getattr(own, n) != getattr(expected, n)}
    if own.pixels is None and not written.keys() <= opened.sidecars.contents.keys():
        news.pop("pixels", None)
    for name in news:
        if getattr(header, name) is not None and getattr(given, name) is None:
            _refuse(name, getattr(expected, name) or getattr(header, name), news[name])
    origin = HEADER if header.pixels is not None else CONFIG_FILES
    return header.completed(Metadata(**news)), origin


def _refuse(name: str, ours: Any, theirs: Any) -> NoReturn:
    """Refuse an entry of the metadata on which header and config files disagree."""
    text = f"{name} = {ours} ({HEADER}), but {theirs} ({CONFIG_FILES})"
    if name == "pixels" and theirs is None:
        text = f"{HEADER} says how pixels are prepared but {CONFIG_FILES} state what it cannot hold"
    elif name == "pixels":
        one = next(n for n in Preprocess.fields() if getattr(ours, n) != getattr(theirs, n))
        text = f"{one} = {getattr(ours, one)} ({HEADER}), but {getattr(theirs, one)} ({CONFIG_FILES})"
    raise WeightsError(f"{text}; give --preprocess FILE, or convert from the source again")
