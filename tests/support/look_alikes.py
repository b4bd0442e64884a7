"""Models that look alike in a file: other functions under the same names and shapes.

A quantity that shapes do not show - heads, channels against patch, the grid, an activation - must come
from an entry of the file, from the code of the format's library, or from the user. Here each schema that
a dialect can write is varied in each such quantity; what comes out with the same names and shapes is one
group, across all dialects. A reader that guesses is wrong for a member of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence import dialect_table
from parity.porting.dialects import dialects
from parity.porting.dialects.buffers import make_buffers
from parity.porting.dialects.dialect import NEUTRAL, Dialect
from parity.porting.dialects.rewrites import canonical
from parity.porting.dialects.transfer import write
from parity.porting.formats.base import Container, Stored
from parity.porting.formats.metadata import Metadata
from parity.porting.opening.opened import Opened
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.recognition.matching import bind
from vit_config import ConfigError, Rope, ViTConfig, WeightsError
from vit_config.errors import UnstatedError
from vit_config.parameters import parameters

F32 = np.dtype(np.float32)
Signature = frozenset[tuple[str, tuple[int, ...] | bytes]]

CHOICES: dict[str, tuple[Any, ...]] = {
    "act": ("gelu", "gelu_tanh", "quick_gelu", "silu", "relu"),
    "norm_eps": (1e-5, 1e-6, 1e-12),
    "pool": ("class", "mean"),
    "pool_prefix": (False, True),
    "pool_num_heads": (None, 1, 2),
    "block": ("pre_norm", "res_post"),
    "rope": (
        None,
        Rope(),
        Rope(theta=100.0),
        Rope(axes="wh"),
        Rope(kind="centered", theta=100.0, pairs="half"),
        Rope(kind="centered", theta=50.0, pairs="half"),
        Rope(theta=50.0, axes="wh", pairs="half_of_axis"),
    ),
    "pos_embed": ("none", "sincos1d", "sincos2d", "sincos2d_simple"),
    "patch_embed": ("linear_hwc", "linear_chw"),
    "head_activation": ("none", "softmax"),
    "pos_embed_aspect": ("stretch", "keep"),
    "pool_window": (1, 2, 3),
    "attention_scale": (None, 1.0),
    "v_norm": (False, True),
    "centre_pixels": (False, True),
}
"""Values of the fields whose effect no shape shows."""
PUBLISHED = {"hidden_size": 192, "num_heads": 3, "mlp_dim": 768, "depth": 1}
"""A width that published models have, with other heads in other people's."""
TELLING = {"mae": {"mask_token": (1, 1, 8), "decoder_embed.weight": (8, 8)}}
"""Tensors beside the encoder by which a dialect is told."""
ROUNDS = 3
"""Questions that are answered one after another before a reading counts as one without an end."""


@dataclass
class Group:
    """What looks alike: every member has these names and shapes."""

    tensors: dict[str, Stored]
    members: dict[ViTConfig, str] = field(default_factory=dict)
    """Schemas of different functions, each with the dialect that writes it."""


def variants(cfg: ViTConfig) -> Iterator[tuple[str, ViTConfig]]:
    """Every schema that differs in one silent quantity and has the same parameters; and which it is."""
    wanted = {name: each.shape for name, each in parameters(cfg).items()}
    for quantity, changes in _changes(cfg):
        try:
            other = cfg.replace(**changes)
            same = {name: each.shape for name, each in parameters(other).items()} == wanted
        except ConfigError:
            continue
        if same and function(other) != function(cfg):
            yield quantity, other


def function(cfg: ViTConfig) -> tuple[Any, ...]:
    """What of a schema decides what its model computes."""
    cfg = canonical(cfg)
    idle = {*NEUTRAL, "layer_scale"}
    if cfg.num_prefix_tokens == 0 or cfg.pool in ("class", "class_mean"):
        idle.add("pool_prefix")
    if cfg.pool != "map":
        idle.add("pool_num_heads")
    if cfg.num_classes == 0:
        idle |= {"head_bias", "head_activation"}
    if cfg.pos_embed == "none" and cfg.rope is not None and cfg.rope.kind == "centered":
        idle.add("image_size")  # positions are relative to whatever image comes
    if cfg.dynamic_image_size and cfg.pos_embed_grid and cfg.pos_embed_resize == "leading_rows":
        idle.add("image_size")  # positions are looked up, whatever image comes
    return tuple(getattr(cfg, name) for name in cfg.fields() if name not in idle)


def _changes(cfg: ViTConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, values in CHOICES.items():
        for value in values:
            if value != getattr(cfg, name):
                yield name, {name: value}
    if not cfg.final_norm_affine:
        yield "final_norm", {"final_norm": "none", "final_norm_affine": True}
    yield from _heads(cfg)
    (rows, columns), (height, width) = cfg.grid, cfg.patch_size
    for other in range(1, rows * columns + 1):
        if rows * columns % other == 0 and other != rows:
            size = (other * height, rows * columns // other * width)
            yield "image_size", {"image_size": size}
    values = height * width * cfg.in_channels
    for patch in ((height // 2, width // 2), (2 * height, 2 * width), (2 * height, width // 2), (1, 1)):
        if 0 not in patch and values % (patch[0] * patch[1]) == 0 and patch != cfg.patch_size:
            yield (
                "patch_size",
                {
                    "patch_size": patch,
                    "image_size": (rows * patch[0], columns * patch[1]),
                    "in_channels": values // (patch[0] * patch[1]),
                },
            )


def _heads(cfg: ViTConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    joined = cfg.attention_width
    for heads in range(1, joined + 1):
        if joined % heads or heads == cfg.num_heads:
            continue
        own = joined // heads if joined != cfg.hidden_size else None
        changes: dict[str, Any] = {"num_heads": heads, "attention_head_dim": own}
        if cfg.num_kv_heads is not None:
            kv = tuple(each * heads / cfg.num_heads for each in cfg.kv_heads)
            if any(each != int(each) or not each for each in kv):
                continue
            changes["num_kv_heads"] = tuple(map(int, kv))
        yield "num_heads", changes


def bases() -> Iterator[tuple[Dialect, ViTConfig]]:
    """A model of each dialect, and those that are built in less common ways."""
    for dialect, changes in dialect_table.sources().values():
        if dialect.name != "parity":
            cfg = dialect_table.sample(dialect, changes)
            yield dialect, cfg
            with suppress(ConfigError):  # one head alone, say
                yield dialect, dialect_table.sample(dialect, {**_own(cfg), **PUBLISHED})


def _own(cfg: ViTConfig) -> dict[str, Any]:
    """In what a schema differs from the default."""
    return {
        name: getattr(cfg, name)
        for name in cfg.fields()
        if getattr(cfg, name) != getattr(ViTConfig(), name)
    }


def tensors_of(dialect: Dialect, cfg: ViTConfig) -> dict[str, Stored]:
    """The tensors of a model as a dialect's file has them, all zero but for what the schema says."""
    arrays = {
        name: Stored(each.shape, F32, lambda shape=each.shape: np.zeros(shape, F32))
        for name, each in parameters(cfg).items()
    }
    made = write(bind(dialect, cfg, arrays), arrays, cfg)
    made = dialect.with_body(made | make_buffers(dialect, cfg, F32))
    made |= {
        name: Stored.of(np.zeros(shape, F32)) for name, shape in TELLING.get(dialect.name, {}).items()
    }
    return {f"{dialect.wrapper}.{n}": t for n, t in made.items()} if dialect.wrapper else made


def groups() -> list[Group]:
    """All that looks alike, each with two functions or more."""
    by_signature: dict[tuple[str, Signature], Group] = {}
    for dialect, base in bases():
        for cfg in [base, *(other for _, other in variants(base))]:
            if dialect.problems(canonical(cfg)):
                continue
            tensors = tensors_of(dialect, canonical(cfg))
            key = dialect.container, _signature(tensors, dialect)
            group = by_signature.setdefault(key, Group(tensors))
            if all(function(cfg) != function(each) for each in group.members):
                group.members[canonical(cfg)] = dialect.name
    return [group for group in by_signature.values() if len(group.members) > 1]


def _signature(tensors: Mapping[str, Stored], dialect: Dialect) -> Signature:
    """Names and shapes, and what is in the tensors that the schema determines."""
    stated = {
        (name, tensors[name].load().tobytes())
        for name in tensors
        if any(name == buffer for buffer in dialect.buffers)
    }
    return frozenset({(name, each.shape) for name, each in tensors.items()} | stated)


def read(
    tensors: Mapping[str, Stored], sidecars: Mapping[str, Any] | None = None, **said: Any
) -> Checkpoint:
    """Read a file of these tensors that says nothing of itself."""
    path = Path("look-alike")
    return read_checkpoint(
        Opened(
            Container(path, (path,), "test", dict(tensors), sidecars=dict(sidecars or {})), str(path)
        ),
        **said,
    )


def answered(
    tensors: Mapping[str, Stored],
    cfg: ViTConfig,
    dialect: str,
    sidecars: Mapping[str, Any] | None = None,
) -> tuple[Checkpoint, list[str]]:
    """Read a file and answer what is asked as one model of its group would; and what was asked.

    Args:
        cfg, dialect: the model, and what wrote it.

    Raises:
        UnstatedError: it is asked again and again.
    """
    asked: list[str] = []
    said: dict[str, Any] = {}
    for _ in range(ROUNDS):
        given = {name: getattr(cfg, name) for name in asked if name != "dialect"}
        try:
            return read(tensors, sidecars, given=given, **said), asked
        except UnstatedError as error:
            new = [name for name in error.fields or ("dialect",) if name not in asked]
            if not new:
                raise
            asked += new
            said |= {"dialect": dialect} if "dialect" in new else {}
    return read(
        tensors,
        sidecars,
        given={name: getattr(cfg, name) for name in asked if name != "dialect"},
        **said,
    ), asked


class Outcome(NamedTuple):
    """What became of one model of a group when its file was read."""

    dialect: str
    kind: str
    """One of `KINDS`."""
    said: str = ""


KINDS = {
    "asked": "asked, and what was answered is taken",
    "told": "its config file tells it apart",
    "square": "taken for a square as the library's own code does, and said in a note",
    "WRONG": "read as another function",
}


def bare(group: Group) -> Iterator[Outcome]:
    """A file of the tensors alone, once for each model that it may be."""
    for cfg, dialect in group.members.items():
        try:
            checkpoint, asked = answered(group.tensors, cfg, dialect)
        except (ConfigError, WeightsError) as error:
            yield Outcome(dialect, "WRONG", str(error))
            continue
        yield _judged(cfg, dialect, checkpoint, "asked" if asked else "WRONG")


def beside_config(group: Group) -> Iterator[Outcome]:
    """The same tensors beside the config files that the dialect's library has for each model."""
    for cfg, name in group.members.items():
        dialect = next(each for each in dialects() if each.name == name)
        if (sidecars := _sidecars(dialect, cfg)) is None:
            continue
        try:
            checkpoint, asked = answered(tensors_of(dialect, cfg), cfg, name, sidecars)
        except (ConfigError, WeightsError) as error:
            yield Outcome(name, "WRONG", str(error))
            continue
        yield _judged(cfg, name, checkpoint, "asked" if asked else "told")


def _judged(cfg: ViTConfig, dialect: str, actual: Checkpoint, kind: str) -> Outcome:
    lost = (*NEUTRAL, "layer_scale")
    every = [name for name in cfg.fields() if name not in lost]
    differing = [name for name in every if getattr(cfg, name) != getattr(actual.config, name)]
    said = f"{', '.join(differing)} read as another, by {actual.dialect.name}"
    if differing == ["image_size"] and any("for a square of" in note for note in actual.notes):
        return Outcome(dialect, "square", said)
    if function(actual.config) != function(cfg):
        return Outcome(dialect, "WRONG", said)
    if kind == "WRONG" and any("for a square of" in note for note in actual.notes):
        kind = "square"  # it is one
    return Outcome(dialect, kind)


def _sidecars(dialect: Dialect, cfg: ViTConfig) -> dict[str, Any] | None:
    """The config files of a model; None where the dialect has none for it."""
    if dialect.settings is None:
        return None
    try:
        return dict(dialect.settings.files(cfg, Metadata()))
    except ConfigError:
        return None
