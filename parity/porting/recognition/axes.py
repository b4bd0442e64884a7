"""Axes of a patch projection: their order, and one of time that has a single frame.

PyTorch keeps channels second, tools of MLX last.

Names do not tell the two apart, nor do all shapes: (D, 16, 16, 3) is sixteen channels in patches of
16x3, or three channels in patches of 16x16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parity.porting.dialects.table import Bound
from parity.porting.dialects.transfer import change_when_read
from parity.porting.formats.base import Container
from parity.porting.recognition.known import comparable
from parity.porting.recognition.questions import Question
from parity.porting.recognition.recognise import PATCHES, Model
from parity.porting.recognition.resolve import OpenAxes, Origins
from vit_config.errors import OtherModelError

MLX = "mlx"
"""Value of ``format`` that MLX writes into the header of safetensors."""
CHANNELS_FIRST = ("pt", "torch")
"""Values of ``format``, and kinds of file, whose convolutions have channels second."""

OPEN_CLIP = "open_clip_model.safetensors"
"""File name that OpenCLIP alone writes, from PyTorch and without a format."""


def one_frame(model: Model, bound: list[Bound], origins: Origins) -> tuple[Model, tuple[str, ...]]:
    """Drop the time axis, of length one, of a patch projection (D, C, 1, h, w) for videos.

    Returns:
        The model, and a note if there was such an axis.

    Raises:
        OtherModelError: the position table has rows for several frames.
    """
    name = next((one.theirs[0] for one in bound if PATCHES in one.ours and not one.row.layout), "")
    shape = model.tensors[name].shape if name else ()
    if len(shape) != 5 or shape[2] != 1:
        return model, ()
    table = next((model.tensors[one.theirs[0]] for one in bound if "pos_embed" in one.ours), None)
    for where, stated in _stated(origins):
        size = comparable("image_size", stated.get("image_size"))
        if table is None or size is None:
            continue
        patches = (size[0] // shape[3]) * (size[1] // shape[4])
        if (frames := table.shape[-2] // max(patches, 1)) > 1:
            raise OtherModelError(
                f"its position table has {table.shape[-2]} rows and an image {patches} patches ({where}"
                f" image_size = {size[0]}x{size[1]}): it sees {frames} frames at a time, so it is a"
                " model of videos or of images of several times, which is not converted; if those are"
                " one image for you, each frame below the one before it, give"
                f" --dialect timm-vit --set image_size={frames * size[0]}x{size[1]}"
            )
    flat = (*shape[:2], *shape[3:])
    stored = change_when_read(model.tensors[name], lambda array: array.reshape(flat), flat)
    note = f"read {name} {shape}, of one frame, as a convolution of images"
    return model._replace(tensors={**model.tensors, name: stored}), (note,)


def channels_first(
    model: Model, bound: list[Bound], container: Container, origins: Origins
) -> tuple[Model, tuple[str, ...], OpenAxes | None]:
    """Move the channels of a model's patch projection to the second axis if they are last.

    Args:
        bound: the matched rows, one of which has the patch projection.
        origins: sources of the schema's fields, such as its channels.

    Returns:
        The model; a note if the channels were last; and what to ask if both orders fit and no source
        decides.
    """
    rows = [one for one in bound if PATCHES in one.ours and not one.row.layout]
    name = rows[0].theirs[0] if rows else ""
    shape = model.tensors[name].shape if name else ()
    if len(shape) != 4 or model.dialect.header == {}:  # the project's own file
        return model, (), None
    D, height, width, channels = shape
    turned = (D, channels, height, width)
    source = _says_last(shape, container, origins, model.asked)
    if source is None:
        return model, (), OpenAxes(_question(shape), (shape, turned))
    if not source:
        return model, (), None
    stored = change_when_read(model.tensors[name], lambda array: np.moveaxis(array, -1, 1), turned)
    note = f"read {name} {shape} with its channels last, as {source}"
    return model._replace(tensors={**model.tensors, name: stored}), (note,), None


def _says_last(
    shape: tuple[int, ...], container: Container, origins: Origins, dialect_is_named: bool
) -> str | None:
    """Return the source that says that channels are last, in words; empty if they are second, None if
    that is open."""
    header_format = container.metadata.get("format", "")
    if header_format == MLX:
        return f"format = {MLX} in its header says"
    if header_format in CHANNELS_FIRST or container.kind.lower().startswith(CHANNELS_FIRST):
        return ""
    if all(file.name == OPEN_CLIP for file in container.files) and container.files:
        return ""
    _, first, second, last = shape
    for where, stated in _stated(origins):
        as_second = _fits(stated, first, (second, last))
        as_last = _fits(stated, last, (first, second))
        if as_second != as_last:
            return where if as_last else ""
    if second == last != first or (dialect_is_named and first == second == last):
        return ""  # square patches; or by the user's word a library's own file, and these are PyTorch's
    return None


def _question(shape: tuple[int, ...]) -> Question:
    """Ask for whatever tells the two readings apart."""
    _, first, second, last = shape
    if first == second == last:
        text = (
            f"patch projection {shape}: its channels may be second, as in PyTorch, or last, as MLX saves"
            " them; give --dialect NAME if the library of these names wrote the file, or save it as"
            f' safetensors with metadata={{"format": "{MLX}"}}'
        )
        return Question(said=(text,))
    text = (
        f"patch projection {shape}: {first} channels in patches of {second}x{last}, or with channels"
        f" last, as MLX saves them, {last} channels in patches of {first}x{second}"
    )
    return Question(("patch_size" if first == last else "in_channels",), (text,))


def _stated(origins: Origins) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "--override says", origins.override
    yield "--set says", origins.given
    for where, stated in (*origins.stated, *origins.fallback):
        yield f"{where} says", stated


def _fits(stated: Mapping[str, Any], channels: int, patch: tuple[int, int]) -> bool:
    """Return whether the stated fields allow these channels and this patch size."""
    size = stated.get("patch_size", patch)
    size = (size, size) if isinstance(size, int) else tuple(size)
    return stated.get("in_channels", channels) == channels and size == patch
