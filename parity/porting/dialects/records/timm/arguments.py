"""Conversion between the arguments of timm's model classes and the fields of a schema.

A ``config.json`` of timm's names an architecture and overrides some of its arguments by JSON values.
Some arguments are classes or functions in timm's own code, which no JSON value can express: the
architecture fixes them, see `architecture_only`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.records.timm.argument import EPS, NEEDLESS, TENSORS_TELL, Fields, pair
from parity.porting.dialects.records.timm.classes import CLASSES, ROPES, TABLE_OPTIONS
from parity.porting.dialects.records.timm.rules import TABLE_RULES
from vit_config import ConfigError, ViTConfig
from vit_config.rope import Rope


def rope_of(arguments: Mapping[str, Any], before: Rope | None) -> Rope | None:
    """Return the rotary positions of an architecture after EVA's arguments changed them."""
    if not arguments.get("use_rot_pos_emb", before is not None):
        return None
    fields = before.model_dump() if before else {}
    kind = arguments.get("rope_type")
    if kind is not None and kind not in ROPES:
        raise ConfigError(f"rope_type = {kind!r}; expected one of {', '.join(ROPES)}")
    values = {
        "kind": ROPES[kind] if kind else None,
        "theta": arguments.get("rope_temperature"),
        "offset": arguments.get("rope_grid_offset"),
        "axes": {"ij": "hw", "xy": "wh", None: None}[arguments.get("rope_grid_indexing")],
        "pairs": {True: "half", False: "interleaved", None: None}[arguments.get("rope_rotate_half")],
        "reference_grid": pair(arguments["ref_feat_shape"]) if arguments.get("ref_feat_shape") else None,
    }
    fields |= {name: value for name, value in values.items() if value is not None}
    if fields.get("kind", "axial") != "axial":
        fields["reference_grid"] = None
    return Rope(**fields)


def rope_arguments(rope: Rope | None) -> dict[str, Any]:
    """Return EVA's arguments for rotary positions."""
    if rope is None:
        return {"use_rot_pos_emb": False}
    back = {ours: theirs for theirs, ours in ROPES.items()}
    grid = rope.reference_grid
    return {
        "use_rot_pos_emb": True,
        "rope_type": back[rope.kind],
        "rope_temperature": rope.theta,
        "rope_grid_offset": rope.offset,
        "rope_grid_indexing": {"hw": "ij", "wh": "xy"}[rope.axes],
        "rope_rotate_half": rope.pairs == "half",
        **({"ref_feat_shape": list(grid) if grid else None} if rope.kind == "axial" else {}),
    }


def arguments_of(cfg: ViTConfig, module: str) -> dict[str, Any]:
    """Return every argument that has an effect on a model, None for one that must not be given."""
    arguments = {name: argument.said(cfg) for name, argument in CLASSES[module].items()}
    arguments = {name: value for name, value in arguments.items() if value is not NEEDLESS}
    return arguments | rope_arguments(cfg.rope) if module == "eva" else arguments


def fields_of_arguments(arguments: Mapping[str, Any], module: str, base: ViTConfig) -> Fields:
    """Return the fields of an architecture's schema after some of its arguments were overridden.

    Fields that the tensors show are left out.

    Raises:
        ConfigError: no field can express an argument or a value; it is named.
    """
    known = CLASSES[module]
    given = {name: value for name, value in arguments.items() if value is not None}
    if strange := [name for name in given if name not in known]:
        raise ConfigError(f"the argument {strange[0]} = {given[strange[0]]!r} is not supported")
    fields: Fields = {name: getattr(base, name) for name in base.fields()}
    for name in (name for name in known if name in given):
        try:
            fields |= known[name].meant(given[name], fields)
        except (ConfigError, TypeError, ValueError) as error:
            raise ConfigError(f"{name} = {error}") from None
    try:
        fields |= _together(fields, given, module, base)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(f"arguments that do not fit together: {error!r}") from None
    return {name: value for name, value in fields.items() if value is not TENSORS_TELL}


def _together(fields: Fields, given: Mapping[str, Any], module: str, base: ViTConfig) -> Fields:
    """Return the fields that depend on several arguments."""
    sides = zip(fields["image_size"], fields["patch_size"], strict=True)
    cropped = any(side % patch for side, patch in sides)
    dependent: Fields = {"patch_remainder": "crop" if cropped else "refuse"}
    if fields["pool"] != "map":  # another pooling than the architecture's
        dependent |= {"pool_num_heads": None, "pool_mlp_dim": None}
    if module == "eva":
        tokens = fields["class_token"] or fields["register_tokens"]
        dependent["pool_prefix"] = fields["pool"] == "map" and bool(tokens)
        dependent["rope"] = rope_of(given, base.rope)
    if module == "naflexvit":
        dependent |= _table(fields, given, base)
    return dependent


def _table(fields: Fields, given: Mapping[str, Any], base: ViTConfig) -> Fields:
    """Return how `NaFlexEmbeds` fits its position table, and which tokens have no row in it."""
    if fields["pos_embed"] == "none":
        return {
            "pos_embed_grid": None,
            "pos_embed_resize": "bicubic_antialias",
            "pos_embed_aspect": "stretch",
        }
    if fields["pos_embed"] == "factorized":
        return {"pos_embed_resize": "bilinear", "pos_embed_prefix": "auto"}
    options = dict(zip(TABLE_OPTIONS, TABLE_RULES[base.pos_embed_resize], strict=True))
    chosen = tuple({**options, **{key: given[key] for key in TABLE_OPTIONS if key in given}}.values())
    (rule,) = [rule for rule, each in TABLE_RULES.items() if each == chosen]
    tokens = fields["class_token"] or fields["register_tokens"]
    return {"pos_embed_resize": rule, "pos_embed_prefix": "none" if tokens else "auto"}


def architecture_only(cfg: ViTConfig, module: str) -> Fields:
    """Return the fields that the architecture itself must have, because no JSON value expresses them."""
    if module == "gemma4_vit":  # the encoder pools squares, and an activation is a function
        return {name: getattr(cfg, name) for name in ("pool", "act")}
    fixed = ["distill_token"] if module in ("vision_transformer", "deit") else ["norm", "norm_eps"]
    if module in ("vision_transformer", "deit"):
        fixed += ["block", "num_parallel", "mlp"]
        fixed += ["attention"] if cfg.block == "parallel" else []
        fixed += ["norm", "norm_eps"] if cfg.norm_eps != EPS else []
        fixed += ["patch_norm"] if not cfg.patch_norm or cfg.norm_eps != EPS else []
    return {name: getattr(cfg, name) for name in fixed}
