"""Resolves shapes, config files and the user's statements to a schema, with the origin of each field."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.shapes import Shapes, fields_of, prefix_rows, prefix_tokens, square_grid
from parity.porting.recognition.known import (
    ASSUMED,
    GIVEN,
    OVERRIDDEN,
    SHAPES,
    Known,
    comparable,
    word,
)
from parity.porting.recognition.questions import (
    Question,
    ask,
    decided,
    of_half_a_rope,
    of_look_alike,
    of_unstated,
)
from parity.porting.recognition.recognise import PATCHES
from vit_config import ConfigError, ViTConfig, WeightsError
from vit_config.errors import UnstatedError
from vit_config.parameters import parameters

SQUARE = "shapes, taking the grid to be square"
ABSENT = {"pool": ("mean",), "final_norm": ("none",)}
"""Values of fields that nothing but the absence of tensors suggests."""
SQUARE_PATCH = "shapes and in_channels, taking patches to be square"


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
    dialect_is_stated: bool = False
    """Whether the dialect is stated, not recognised by the tensors alone."""


OF_AXES = ("in_channels", "patch_size")
"""Fields that the order of axes decides."""


class OpenAxes(NamedTuple):
    """A patch projection whose order of axes nothing tells."""

    question: Question
    shapes: tuple[tuple[int, ...], ...]
    """The shape by each order, in PyTorch's layout."""


def resolve(
    dialect: Dialect,
    shapes: Shapes,
    letters: Mapping[str, int],
    sources: Origins,
    axes: OpenAxes | None = None,
) -> Resolved:
    """Determine the schema of a checkpoint.

    Args:
        shapes: shapes of the checkpoint's tensors by the twins' names.
        letters: sizes found in its layouts, see `parity.porting.dialects.transfer.letters`.
        axes: the order of axes, if it is open too.

    Raises:
        WeightsError: two origins contradict each other, or the tensors are not those of the schema.
        ConfigError: a given field contradicts another source, and is no override.
        UnstatedError: facts are unknown and must not be guessed; the message names the flags of all.
    """
    if axes is not None:
        raise _ask_with(axes, dialect, shapes, letters, sources)
    known = _settled(dialect, shapes, letters, sources)
    if questions := _questions(known, dialect, shapes, sources):
        raise ask(questions, _shown(known))
    try:
        cfg = ViTConfig(**known.fields)
    except ConfigError as error:
        raise ConfigError(_with_who_says_it(str(error), known.origins)) from None
    _compare(cfg, shapes)
    origins = {name: known.origins.get(name, ASSUMED) for name in cfg.fields()}
    return Resolved(cfg, origins, tuple(known.overridden.values()))


def _with_who_says_it(message: str, origins: Mapping[str, str]) -> str:
    """Replace a contradiction's advice on building a model by who says what, and how to overrule it."""
    fact, advice, _ = message.partition("; ")
    said = {n: by for n, by in origins.items() if by != SHAPES and re.search(rf"\b{n} = ", fact)}
    if not (said and advice):
        return message
    files = [n for n, by in said.items() if by not in (GIVEN, OVERRIDDEN)]
    where = ", ".join(f"{n} is {'' if n not in files else 'from '}{by}" for n, by in said.items())
    flags = " ".join(f"{n}=VALUE" for n in files)
    return f"{fact}; {where}: give {f'--override {flags}' if files else 'another value'}"


def _ask_with(
    axes: OpenAxes, dialect: Dialect, shapes: Shapes, letters: Mapping[str, int], sources: Origins
) -> UnstatedError:
    """Return the error that asks for the order of axes, and at once for all else that is open."""
    for patches in axes.shapes:
        read = {**shapes, PATCHES: patches}
        try:
            known = _settled(dialect, read, letters, sources)
        except (ConfigError, WeightsError):
            continue  # contradicted in this order
        like = {name: each for name, each in _shown(known).items() if name not in OF_AXES}
        return ask([axes.question, *_questions(known, dialect, read, sources)], like)
    return ask([axes.question])


def _questions(known: Known, dialect: Dialect, shapes: Shapes, sources: Origins) -> list[Question]:
    """Return everything that has to be asked."""
    silent = of_unstated(dialect, {**dict.fromkeys(known.asked), **known.fields}, shapes)
    twin = None if sources.dialect_is_stated else of_look_alike(dialect, known.fields)
    return [*known.asked.values(), *([silent] if silent.fields else []), *([twin] if twin else [])]


def _settled(dialect: Dialect, shapes: Shapes, letters: Mapping[str, int], sources: Origins) -> Known:
    """Take what every source states, and compute what follows."""
    known = Known()
    shown = _from_shapes(shapes, letters)
    known.take({n: each for n, each in shown.items() if not _unshown(dialect, n, shown)}, SHAPES)
    if half := of_half_a_rope({**sources.given, **sources.override}):
        known.asked["rope"] = half
    known.take(_without(known.asked, sources.override), OVERRIDDEN)
    known.take(_without(known.asked, sources.given), GIVEN)
    for where, stated in sources.stated:
        known.take(_without_overruled(stated, sources.override), where)
    _settle_heads(known, shapes)
    _settle_scale(known, shapes)
    _settle_by_code(known, dialect, shapes)
    _settle_heads(known, shapes)
    _settle_patch(known, shapes)
    if dialect.square:
        _settle_image(known, shapes)
    for where, stated in sources.fallback:
        if known.origins.get("image_size") == SQUARE:
            size = comparable("image_size", stated.get("image_size"))
            known.origins["image_size"] += f", as {where}" * (size == known.fields["image_size"])
        known.fill(stated, where)
    _settle_prefix(known, shapes)
    return known


def _unshown(dialect: Dialect, name: str, shown: Mapping[str, Any]) -> bool:
    """Return whether a field does not follow from shapes after all: several functions have them, or
    tensors are absent that a function need not have (a norm without gain, means of squares)."""
    return name in dialect.unshown and shown[name] in ABSENT.get(name, (shown[name],))


def _without(names: Container[str], stated: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stated.items() if name not in names}


def _without_overruled(stated: Mapping[str, Any], override: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop a source's activation if the user overrides its MLP, to which the activation belongs."""
    if "mlp" in override and stated.get("mlp", override["mlp"]) != override["mlp"]:
        return {name: value for name, value in stated.items() if name != "act"}
    return stated


def _from_shapes(shapes: Shapes, letters: Mapping[str, int]) -> dict[str, Any]:
    fields = fields_of(shapes)
    if "h" in letters:
        fields["num_heads"] = letters["h"]
        if letters["h"] * letters["d"] != fields["hidden_size"]:
            fields["attention_head_dim"] = letters["d"]
    if "g" in letters:
        fields["pool_num_heads"] = letters["g"] if letters["g"] != fields.get("num_heads") else None
    return fields


def _settle_heads(known: Known, shapes: Shapes) -> None:
    """Compute the number of heads from their width, or their width from the number of heads."""
    joined = shapes.get("blocks.0.attn.proj.weight", (0, 0))[1]
    heads, width = (known.fields.get(name) for name in ("num_heads", "attention_head_dim"))
    if width and not heads and joined % width == 0:
        known.take({"num_heads": joined // width}, f"{SHAPES} and attention_head_dim")
    elif heads and not width and joined not in (0, known.fields["hidden_size"]):
        known.take({"attention_head_dim": joined // heads}, f"{SHAPES} and num_heads")


def _settle_by_code(known: Known, dialect: Dialect, shapes: Shapes) -> None:
    """Fill fields that the library's code decides, where no source states them."""
    by_code = {name: each.value for name, each in dialect.fixed.items()}
    by_code |= {name: each.value for name, each in dialect.follows(known.fields).items()}
    if "pos_embed" not in shapes and "pos_embed_y" not in shapes:
        by_code.pop("pos_embed_resize", None)  # only a table can be resized
    known.fill(by_code, f"code of {dialect.title}")
    known.fill(decided(dialect, known.fields), f"code of {dialect.title}")


def _settle_patch(known: Known, shapes: Shapes) -> None:
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


def _settle_image(known: Known, shapes: Shapes) -> None:
    """Compute an unknown image size from the position table, if only one square grid fits it."""
    patch = known.fields.get("patch_size")
    if patch and "image_size" not in known.fields and (grid := square_grid(shapes, known.fields)):
        size = (grid[0] * patch[0], grid[1] * patch[1])
        known.take({"image_size": size}, SQUARE)


def _settle_prefix(known: Known, shapes: Shapes) -> None:
    """Find which tokens before the patches have a position row, and whether patches cover the image."""
    patch, size = known.fields.get("patch_size"), known.fields.get("image_size")
    if not patch or not size:
        return
    if any(side % p for side, p in zip(size, patch, strict=True)):
        known.fill({"patch_remainder": "crop"}, known.origins["image_size"])
    if "pos_embed" in shapes:
        grid = known.fields.get("pos_embed_grid") or (size[0] // patch[0], size[1] // patch[1])
        rows = prefix_rows(shapes["pos_embed"][1], grid[0] * grid[1], known.fields)
        if rows is None:
            raise WeightsError(_ill_sized(known, shapes, grid[0] * grid[1]))
        known.fill({"pos_embed_prefix": rows}, SHAPES)


def _ill_sized(known: Known, shapes: Shapes, patches: int) -> str:
    """Say that a position table is not for the image, who states the image, and how to state another."""
    grid, patch = square_grid(shapes, known.fields), known.fields["patch_size"]
    size = word((grid[0] * patch[0], grid[1] * patch[1])) if grid else "HxW"
    name = "pos_embed_grid" if known.fields.get("pos_embed_grid") else "image_size"
    flag = "--set" if known.origins[name] == GIVEN else "--override"
    fit = f"; give {flag} image_size={size}" if name == "image_size" else ""
    return (
        f"the position table has {shapes['pos_embed'][1]} rows, the image {patches} patches by {name} ="
        f" {word(known.fields[name])} ({known.origins[name]}), and there are"
        f" {prefix_tokens(known.fields)} tokens before them{fit}"
    )


def _settle_scale(known: Known, shapes: Shapes) -> None:
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
        raise WeightsError(f"{number} not fit the schema: {shown}")


def _shown(known: Known) -> dict[str, Any]:
    """Return the fields from shapes, but not those that fine-tuning changes."""
    weak = ("image_size", "num_classes")
    return {
        name: each
        for name, each in known.fields.items()
        if known.origins[name] == SHAPES and name not in weak
    }
