"""Resolves shapes, config files and the user's statements to a schema, with the origin of each field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.porting.dialects.dialect import NEUTRAL, Dialect, Unsaid, agree
from parity.porting.dialects.questions import ROPE, decided, question, unstated
from parity.porting.dialects.shapes import Shapes, fields_of, prefix_rows, square_grid
from vit_config import ConfigError, ViTConfig, WeightsError
from vit_config.errors import UnstatedError
from vit_config.parameters import parameters
from vit_config.rope import Rope

SIDES = ("image_size", "patch_size")
"""Fields that are pairs of a height and a width."""
COUNTS = (*SIDES, "hidden_size", "num_heads", "attention_head_dim", "in_channels")
"""Fields from which others are computed here."""

SQUARE = "shapes, taking the grid to be square"
SQUARE_PATCH = "shapes and in_channels, taking patches to be square"
SHAPES, GIVEN, OVERRIDDEN, ASSUMED = "shapes", "given", "overridden", "assumed"
"""Origins of a field, beside the names of files and presets."""
PRESET = "preset "
"""Prefix of the origin of a field from a preset."""


@dataclass(frozen=True)
class Resolved:
    """A schema and the origin of each of its fields."""

    config: ViTConfig
    origins: dict[str, str]
    overridden: tuple[str, ...] = ()
    """Notes on statements that the user overrode."""


@dataclass
class Origins:
    """Every source of a schema's fields other than the tensors."""

    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the user states and that must not contradict another source."""
    override: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the user states and that replace what files state; a note says so."""
    stated: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Fields that files and presets state, each with its source."""
    fallback: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Fields, each with its source, that are used only where no other source states them."""


def resolve(dialect: Dialect, shapes: Shapes, letters: Mapping[str, int], told: Origins) -> Resolved:
    """Determine the schema of a checkpoint.

    Args:
        shapes: shapes of the checkpoint's tensors by the twins' names.
        letters: sizes found in its layouts, see `parity.porting.dialects.transfer.letters`.

    Raises:
        WeightsError: two origins contradict each other, or the tensors are not those of the schema.
        ConfigError: a given field contradicts another source, and is no override.
        UnstatedError: a field is unknown and must not be guessed; the message names the flags.
    """
    known = _Known()
    shown = _from_shapes(shapes, letters)
    known.take({name: each for name, each in shown.items() if name not in dialect.unshown}, SHAPES)
    known.take(told.override, OVERRIDDEN)
    known.take(told.given, GIVEN)
    _refuse_half_a_rope({**told.given, **told.override})
    for where, stated in told.stated:
        known.take(_without_overruled(stated, told.override), where)
    _settle_heads(known, shapes)
    _settle_scale(known, shapes)
    _settle_by_code(known, dialect, shapes)
    _settle_heads(known, shapes)
    _settle_patch(known, shapes)
    if dialect.square:
        _settle_image(known, shapes)
    for where, stated in told.fallback:
        if known.origins.get("image_size") == SQUARE:
            size = _comparable("image_size", stated.get("image_size"))
            known.origins["image_size"] += f", as {where}" * (size == known.fields["image_size"])
        known.fill(stated, where)
    _settle_prefix(known, shapes)
    if unknown := unstated(dialect, known.fields):
        raise question(dialect, unknown, shapes, _shown(known))
    fields = known.fields
    cfg = ViTConfig(**fields)
    _compare(cfg, shapes)
    origins = {name: known.origins.get(name, ASSUMED) for name in cfg.fields()}
    return Resolved(cfg, origins, tuple(known.overridden.values()))


@dataclass
class _Known:
    """The fields known so far, and their origins."""

    fields: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    overridden: dict[str, str] = field(default_factory=dict)
    """Notes on overridden statements, by field."""

    def take(self, stated: Mapping[str, Any], where: str) -> None:
        """Add the fields that a source states; refuse a contradiction of an earlier source."""
        for name, value in stated.items():
            value = _comparable(name, value)
            if isinstance(value, Unsaid):
                self._take_unsaid(name, value, where)
                continue
            if self.origins.get(name) not in (GIVEN, OVERRIDDEN):
                _check_counts(name, value, where)
            if name not in self.fields:
                self.fields[name], self.origins[name] = value, where
                continue
            before, origin = self.fields[name], self.origins[name]
            if before == value:
                if where in (GIVEN, OVERRIDDEN):  # the user confirms the tensors, whatever a file says
                    self.origins[name] = where
                continue
            if origin == GIVEN:
                raise ConfigError(
                    f"{name} = {word(value)} ({where}), but {word(before)} (--set); to overrule the"
                    f" file, give --override {name}={word(before)}"
                )
            if origin == OVERRIDDEN:
                said = f"{name} = {word(before)} by --override, where {where} says {word(value)}"
                self.overridden.setdefault(name, said)
            elif where == OVERRIDDEN:
                raise WeightsError(
                    f"{name} = {word(before)} ({origin}), but {word(value)} (--override); tensors cannot"
                    " be overridden"
                )
            elif not agree(name, before, value) and (name not in NEUTRAL or origin == SHAPES):
                ways = f"to go with the first, give --override {name}={word(before)}"
                if where.startswith(PRESET) and origin == SHAPES:
                    ways = (
                        f"give --like another preset, or none; --override {name}={word(before)} keeps it"
                    )
                raise WeightsError(
                    f"{name} = {word(before)} ({origin}), but {word(value)} ({where}); {ways}"
                )

    def _take_unsaid(self, name: str, value: Unsaid, where: str) -> None:
        """Keep the user's value in place of one that no schema can express; ask if there is none."""
        if self.origins.get(name) not in (GIVEN, OVERRIDDEN):
            raise UnstatedError(f"{where} says {value.said}, and {value.why}", (name,))
        said = f"{name} = {word(self.fields[name])} as stated, where {where} says {value.said}"
        self.overridden.setdefault(name, said)

    def fill(self, stated: Mapping[str, Any], where: str) -> None:
        """Add the fields that a source states and that are unknown so far."""
        self.take({name: v for name, v in stated.items() if name not in self.fields}, where)


def _refuse_half_a_rope(stated: Mapping[str, Any]) -> None:
    """Ask for entries of rope that the user left out: the schema's defaults would fill them."""
    rope = stated.get("rope")
    left = [name for name in ROPE if name not in rope] if isinstance(rope, dict) else []
    if left:
        said = f"rope = {json.dumps(rope)} leaves {', '.join(left)} open"
        raise UnstatedError(f"{said}; give JSON with {', '.join(ROPE)}", ("rope",))


def _without_overruled(stated: Mapping[str, Any], override: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop a source's activation if the user overrides its MLP, to which the activation belongs."""
    if "mlp" in override and stated.get("mlp", override["mlp"]) != override["mlp"]:
        return {name: value for name, value in stated.items() if name != "act"}
    return stated


def _comparable(name: str, value: Any) -> Any:
    """Return a value in a comparable form: a size as a pair, rope as a `Rope`, a list as a tuple."""
    if name in SIDES and isinstance(value, int):
        return (value, value)
    if name == "rope" and isinstance(value, dict):
        return Rope(**value)
    return tuple(value) if isinstance(value, list) else value


def _check_counts(name: str, value: Any, where: str) -> None:
    """Refuse invalid values of fields from which others are computed; the schema checks the rest."""
    if name in COUNTS and value is not None:
        counts = value if isinstance(value, tuple) else (value,)
        number = 2 if name in SIDES else 1
        positive = all(type(each) is int and each > 0 for each in counts)
        if not positive or isinstance(value, tuple) != (number > 1) or len(counts) != number:
            what = "a height and a width" if number > 1 else "a positive whole number"
            advice = f"; give --override {name}={'HxW' if number > 1 else 'N'}"
            said = f"{name} = {json.dumps(value)} ({where}); expected {what}"
            raise WeightsError(said + advice * (where not in (GIVEN, OVERRIDDEN, SHAPES)))


def _from_shapes(shapes: Shapes, letters: Mapping[str, int]) -> dict[str, Any]:
    fields = fields_of(shapes)
    if "h" in letters:
        fields["num_heads"] = letters["h"]
        if letters["h"] * letters["d"] != fields["hidden_size"]:
            fields["attention_head_dim"] = letters["d"]
    if "g" in letters:
        fields["pool_num_heads"] = letters["g"] if letters["g"] != fields.get("num_heads") else None
    return fields


def _settle_heads(known: _Known, shapes: Shapes) -> None:
    """Compute the number of heads from their width, or their width from the number of heads."""
    joined = shapes.get("blocks.0.attn.proj.weight", (0, 0))[1]
    heads, width = (known.fields.get(name) for name in ("num_heads", "attention_head_dim"))
    if width and not heads and joined % width == 0:
        known.take({"num_heads": joined // width}, f"{SHAPES} and attention_head_dim")
    elif heads and not width and joined not in (0, known.fields["hidden_size"]):
        known.take({"attention_head_dim": joined // heads}, f"{SHAPES} and num_heads")


def _settle_by_code(known: _Known, dialect: Dialect, shapes: Shapes) -> None:
    """Fill fields that the library's code decides, where no source states them."""
    by_code = {name: each.value for name, each in dialect.fixed.items()}
    by_code |= {name: each.value for name, each in dialect.follows(known.fields).items()}
    if "pos_embed" not in shapes:
        by_code.pop("pos_embed_resize", None)  # only a table can be resized
    known.fill(by_code, f"code of {dialect.title}")
    known.fill(decided(dialect, known.fields), f"code of {dialect.title}")


def _settle_patch(known: _Known, shapes: Shapes) -> None:
    """Compute channels from patch size, or a square patch size from channels, of a linear projection."""
    values = shapes["patch_embed.proj.weight"][1:]
    if len(values) != 1:
        return
    patch, channels = (known.fields.get(name) for name in ("patch_size", "in_channels"))
    if patch:
        if values[0] % (patch[0] * patch[1]) == 0:
            known.fill({"in_channels": values[0] // (patch[0] * patch[1])}, f"{SHAPES} and patch_size")
    elif channels:
        side = math.isqrt(values[0] // channels)
        if side * side * channels == values[0]:
            known.take({"patch_size": (side, side)}, SQUARE_PATCH)


def _settle_image(known: _Known, shapes: Shapes) -> None:
    """Compute an unknown image size from the position table, if only one square grid fits it."""
    patch = known.fields.get("patch_size")
    if patch and "image_size" not in known.fields and (grid := square_grid(shapes, known.fields)):
        size = (grid[0] * patch[0], grid[1] * patch[1])
        known.take({"image_size": size}, SQUARE)


def _settle_prefix(known: _Known, shapes: Shapes) -> None:
    """Find which tokens before the patches have a position row, and whether patches cover the image."""
    patch, size = known.fields.get("patch_size"), known.fields.get("image_size")
    if not patch or not size:
        return
    if any(side % p for side, p in zip(size, patch, strict=True)):
        known.fill({"patch_remainder": "crop"}, known.origins["image_size"])
    if "pos_embed" in shapes:
        patches = (size[0] // patch[0]) * (size[1] // patch[1])
        rows = prefix_rows(shapes["pos_embed"][1], patches, known.fields)
        known.fill({"pos_embed_prefix": rows}, SHAPES)


def _settle_scale(known: _Known, shapes: Shapes) -> None:
    """Find whether there are layer scales; their initial value no longer matters."""
    scaled = any(name.endswith("gamma") for name in shapes)
    known.fill({"layer_scale": 1.0 if scaled else None}, SHAPES)


def _compare(cfg: ViTConfig, shapes: Shapes) -> None:
    """Refuse tensors that are not exactly those of the schema."""
    expected = {name: each.shape for name, each in parameters(cfg).items()}
    problems = [
        f"{name}: missing, the schema has {shape}"
        for name, shape in expected.items()
        if name not in shapes
    ]
    problems += [f"{name}: unexpected" for name in shapes if name not in expected]
    problems += [
        f"{name}: shape {tuple(shapes[name])} in the file, {shape} by the schema"
        for name, shape in expected.items()
        if name in shapes and tuple(shapes[name]) != shape
    ]
    if problems:
        shown = "; ".join(problems[:8]) + ("; ..." if len(problems) > 8 else "")
        number = "1 tensor does" if len(problems) == 1 else f"{len(problems)} tensors do"
        left = all(each.endswith(": unexpected") for each in problems)
        advice = "; if no part of the model uses them, save the file without them" if left else ""
        raise WeightsError(f"{number} not fit the schema: {shown}{advice}")


def word(value: Any) -> str:
    """Format a field's value as the command line takes it."""
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]}x{value[1]}"
    if isinstance(value, Rope):
        return value.to_json()
    return value if isinstance(value, str) else json.dumps(value)


def _shown(known: _Known) -> dict[str, Any]:
    """Return the fields from shapes, but not those that fine-tuning changes."""
    weak = ("image_size", "num_classes")
    return {
        name: each
        for name, each in known.fields.items()
        if known.origins[name] == SHAPES and name not in weak
    }
