"""Mistakes on the way from images to the first block: patches, tokens, positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evidence.faults.operations import apply, setting
from parity.faults.registry import fault
from parity.faults.twin import Here

PROJ = "patch_embed.proj"
PLACED: dict[str, Any] = {"pos_embed": lambda kind: kind != "none"}
WITH_PREFIX_ROWS: dict[str, Any] = {**PLACED, "num_prefix_rows": bool}


def _with_weight(here: Here, images: Any, change: Callable[[Any], Any]) -> Any:
    weight = change(here.twin.weight(here.module))  # (D, C, ph, pw)
    return apply(here, images, weight, here.twin.bias(here.module))


@fault("values of each patch row read from right to left", PROJ, "reversed", patch_embed="conv")
def _patch_order(here: Here, conv: Callable, images: Any) -> Any:
    return _with_weight(here, images, lambda weight: here.xp.flip(weight, (3,)))


@fault("rows of each patch read from bottom to top", PROJ, "reversed", patch_embed="conv")
def _patch_rows_reversed(here: Here, conv: Callable, images: Any) -> Any:
    return _with_weight(here, images, lambda weight: here.xp.flip(weight, (2,)))


@fault("rows and columns of each patch swapped", PROJ, "parameter", patch_embed="conv",
       patch_size=lambda size: size[0] == size[1])  # fmt: skip
def _transposed_patches(here: Here, conv: Callable, images: Any) -> Any:
    return _with_weight(here, images, lambda weight: here.xp.swapaxes(weight, 2, 3))


@fault("channels in the order BGR", PROJ, "reversed", patch_embed="conv",
       in_channels=lambda count: count > 1)  # fmt: skip
def _reversed_channels(here: Here, conv: Callable, images: Any) -> Any:
    return _with_weight(here, images, lambda weight: here.xp.flip(weight, (1,)))


@fault("the bias of the patch projection unused", PROJ, "bias-left-out", patch_embed="conv",
       patch_bias=True)  # fmt: skip
def _unused_patch_bias(here: Here, conv: Callable, images: Any) -> Any:
    return apply(here, images, here.twin.weight(here.module), None)


@fault("images normalised twice, from 0..1 to -1..1", "", "one-step-too-many")
def _normalised_twice(here: Here, forward: Callable, images: Any, **options: Any) -> Any:
    return forward(2 * images - 1, **options)


@fault("the class token after the patches", "", "shifted or one-step-too-many", method="add_positions",
       num_prefix_tokens=bool)  # fmt: skip
def _class_token_last(here: Here, add_positions: Callable, *args: Any) -> Any:
    return here.xp.roll(add_positions(*args), -1, 1)


@fault("positions shifted by one token", "", "one-step-too-many", method="position_table", **PLACED)
def _shifted_positions(here: Here, position_table: Callable, *args: Any) -> Any:
    return here.xp.roll(position_table(*args), 1, 1)


@fault("positions added to the patches only", "", "term-left-out", method="position_table",
       **WITH_PREFIX_ROWS)  # fmt: skip
def _positions_on_patches_only(here: Here, position_table: Callable, *args: Any) -> Any:
    table = position_table(*args)
    rows = here.cfg.num_prefix_rows
    return here.xp.concatenate([here.xp.zeros_like(table[:, :rows]), table[:, rows:]], axis=1)


@fault("the first row of positions given to the first patch, before the class token is put in front", "",
       None, method="add_positions", **WITH_PREFIX_ROWS)  # fmt: skip
def _positions_before_the_class_token(
    here: Here, add_positions: Callable, prefix: Any, x: Any, grid: Any
) -> Any:
    table = here.module.position_table(grid, x)
    return here.xp.concatenate([prefix, x + table[:, : x.shape[1]]], axis=1)


@fault("no positions", "", "term-left-out", method="position_table", **PLACED)
def _missing_positions(here: Here, position_table: Callable, *args: Any) -> Any:
    return None


@fault("the position table resampled by another rule (needs images of another size to be seen)", "",
       "table", method="position_table", pos_embed="learned",
       dynamic_image_size=True)  # fmt: skip
def _other_resampling(here: Here, position_table: Callable, *args: Any) -> Any:
    cfg = here.cfg
    rule = "bilinear_corners" if cfg.pos_embed_resize != "bilinear_corners" else "bicubic_antialias"
    with setting(here, cfg=cfg.replace(pos_embed_resize=rule)):
        return position_table(*args)
