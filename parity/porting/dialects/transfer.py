"""Lazy conversion of tensors through a table: a tensor is read only when its values are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from parity.porting.dialects.table import Bound, layout_of
from parity.porting.formats.base import Stored
from vit_config import ViTConfig, WeightsError
from vit_config.files.stored import Extent

Shape = tuple[int, ...]


def read(bound: Sequence[Bound], tensors: Mapping[str, Stored]) -> dict[str, Stored]:
    """Convert a file's tensors to the twins' by the matched rows.

    Raises:
        WeightsError: a tensor's shape or type does not fit its row.
    """
    arrays: dict[str, Stored] = {}
    for one in bound:
        made = _read_row(one, tensors)
        if twice := sorted(made.keys() & arrays.keys()):
            raise WeightsError(f"{one.theirs[0]}: {twice[0]} appears twice; the file is inconsistent")
        arrays |= made
    return arrays


def write(bound: Sequence[Bound], arrays: Mapping[str, Stored], cfg: ViTConfig) -> dict[str, Stored]:
    """Convert the twins' tensors to a file's by the matched rows.

    Results of one tensor are adjacent, in the order of `arrays`, so that writing them in order reads
    each tensor once.
    """
    place = {name: index for index, name in enumerate(arrays)}
    rows = sorted(bound, key=lambda one: min(place[name] for name in one.ours if name is not None))
    return {name: stored for one in rows for name, stored in _write_row(one, arrays, cfg).items()}


def letters(bound: Sequence[Bound], tensors: Mapping[str, Stored]) -> dict[str, int]:
    """Return the sizes of a model that its tensors' layouts show, such as ``h``, the number of heads.

    Raises:
        WeightsError: two tensors disagree.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for one in bound:
        layout = layout_of(one.row)
        if layout is None:
            continue
        for name in one.theirs:
            shape = tensors[name].shape[one.row.stacked :]
            for letter, size in _named(name, partial(layout.bind, shape, {})).items():
                first, where = sizes.setdefault(letter, (size, name))
                if letter in "hdg" and first != size:
                    raise WeightsError(
                        f"{name}: {size} where {where} has {first}; the file is inconsistent"
                    )
    return {letter: size for letter, (size, _) in sizes.items() if letter in "hdg"}


def sizes_of(cfg: ViTConfig) -> dict[str, int]:
    """Return a model's sizes by the letters of layouts: heads h, their width d, heads of the pool g,
    rows y and columns x of a position table."""
    rows, columns = cfg.table_grid
    heads = {"h": cfg.num_heads, "d": cfg.head_dim, "g": cfg.pool_num_heads or cfg.num_heads}
    return {**heads, "y": rows, "x": columns}


def change_when_read(stored: Stored, change: Callable[[np.ndarray], np.ndarray], shape: Shape) -> Stored:
    """Return a tensor that is changed when it is read."""
    return replace(stored, shape=shape, load=lambda: change(stored.load()))


def cast(stored: Stored, dtype: np.dtype) -> Stored:
    """Return a tensor that is cast to another type when it is read."""
    if stored.dtype == dtype:
        return stored
    return Stored(stored.shape, dtype, lambda: stored.load().astype(dtype))


Make = Callable[[Sequence[np.ndarray], int], list[np.ndarray]]
"""Computes the tensors of one block from the loaded ones."""


class _Shared:
    """Tensors computed from the same sources, which are loaded once if each tensor is read once.

    The sources are kept until the last block is computed.

    Args:
        width: number of tensors of one block, which are computed together.
        depth: number of blocks.
    """

    def __init__(self, load: Callable[[], Sequence[np.ndarray]], make: Make, width: int, depth: int):
        self.load = load
        self.make = make
        self.width = width
        self.unmade = set(range(depth))
        self.loaded: Sequence[np.ndarray] | None = None
        self.waiting: dict[int, np.ndarray] = {}

    def take(self, index: int) -> np.ndarray:
        if index not in self.waiting:
            block = index // self.width
            loaded = self.load() if self.loaded is None else self.loaded
            made = self.make(loaded, block)
            self.waiting |= {block * self.width + place: each for place, each in enumerate(made)}
            self.unmade.discard(block)
            self.loaded = loaded if self.unmade else None
        return self.waiting.pop(index)


def _share(
    names: Sequence[str | None],
    shapes: Sequence[Shape],
    dtype: np.dtype,
    load: Callable[[], Sequence[np.ndarray]],
    make: Make,
    depth: int = 1,
) -> dict[str, Stored]:
    shared = _Shared(load, make, len(names) // depth, depth)
    return {
        name: Stored(shape, dtype, lambda index=index: shared.take(index))
        for index, (name, shape) in enumerate(zip(names, shapes, strict=True))
        if name is not None
    }


def _read_row(one: Bound, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
    row, sources = one.row, [tensors[name] for name in one.theirs]
    if row.shared:
        return {name: sources[0] for name in one.ours if name is not None}
    if not row.layout and len(one.ours) == len(sources) == 1 and one.ours[0]:
        return {one.ours[0]: sources[0]}
    layout = layout_of(row)
    stacked = row.stacked
    per_block = [
        _named(name, lambda s=source: layout.shape(s.shape[stacked:]) if layout else s.shape)
        for name, source in zip(one.theirs, sources, strict=True)
    ]
    dtype = np.result_type(*{source.dtype for source in sources})
    depth = sources[0].shape[0] if stacked else 1
    for name, source in zip(one.theirs, sources, strict=True):
        if stacked and source.shape[0] != depth:
            raise WeightsError(f"{name}: has {source.shape[0]} blocks where {one.theirs[0]} has {depth}")
    shapes = _joined_shapes(one, per_block)

    def load() -> list[np.ndarray]:
        return [source.load() for source in sources]

    def make(loaded: Sequence[np.ndarray], block: int) -> list[np.ndarray]:
        pieces = [each[block] if stacked else each for each in loaded]
        pieces = [layout.apply(piece) if layout else piece for piece in pieces]
        whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        made = _cut(whole, row.parts or (1,) * len(row.ours))
        return [np.asarray(each, order="C") for each in made]

    return _share(one.ours, shapes * depth, dtype, load, make, depth)


def _joined_shapes(one: Bound, shapes: Sequence[Shape]) -> list[Shape]:
    """Return the shapes of one block's tensors after joining or splitting along the first axis."""
    if len(shapes) > 1:
        if len({shape[1:] for shape in shapes}) > 1:
            text = ", ".join(f"{name} {shape}" for name, shape in zip(one.theirs, shapes, strict=True))
            raise WeightsError(f"shapes that cannot be joined: {text}")
        return [(sum(shape[0] for shape in shapes), *shapes[0][1:])]
    if len(one.row.ours) == 1:
        return list(shapes)
    parts = one.row.parts or (1,) * len(one.row.ours)
    length = shapes[0][0] if shapes[0] else 0
    if not length or length % sum(parts):
        raise WeightsError(f"{one.theirs[0]}: {shapes[0]} does not divide into {sum(parts)} parts")
    return [(length * part // sum(parts), *shapes[0][1:]) for part in parts]


def _cut(array: np.ndarray, parts: Sequence[int]) -> list[np.ndarray]:
    if len(parts) == 1:
        return [array]
    ends = np.cumsum(parts)[:-1] * (len(array) // sum(parts))
    return np.split(array, ends)


def _write_row(one: Bound, arrays: Mapping[str, Stored], cfg: ViTConfig) -> dict[str, Stored]:
    row = one.row
    present = [arrays[name] for name in one.ours if name is not None]
    if not row.layout and len(one.ours) == len(one.theirs) == 1:
        return {one.theirs[0]: present[0]}
    back = layout.inverse if (layout := layout_of(row)) else None
    known = sizes_of(cfg)
    depth = cfg.depth if row.stacked else 1
    per_block = len(row.ours)
    whole = _whole_shape(row.ours, [each.shape for each in present])
    if len(one.theirs) == 1:
        shapes, lengths = [whole], [whole[0] if whole else 0]
    else:
        lengths = _lengths(cfg, one, whole[0])
        shapes = [(length, *whole[1:]) for length in lengths]
    outer = [back.shape(shape, known) if back else shape for shape in shapes]
    outer = [(depth, *shape) for shape in outer] if row.stacked else outer
    dtype = np.result_type(*{each.dtype for each in present})

    def pieces_of(block: int) -> list[np.ndarray]:
        whole = _join(one.ours[block * per_block : (block + 1) * per_block], arrays)
        pieces = np.split(whole, np.cumsum(lengths)[:-1]) if len(lengths) > 1 else [whole]
        return [back.apply(piece, known) if back else piece for piece in pieces]

    def make(*_: object) -> list[np.ndarray]:
        if not row.stacked:
            return [np.asarray(piece, order="C") for piece in pieces_of(0)]
        stacks = [np.empty(shape, dtype) for shape in outer]
        for block in range(depth):
            for stack, piece in zip(stacks, pieces_of(block), strict=True):
                stack[block] = piece
        return stacks

    made = _share(one.theirs, outer, dtype, tuple, make)
    if len(one.ours) == 1 and not row.stacked and not back:
        return _parts_in_file(made, present[0])
    return made


def _parts_in_file(parts: dict[str, Stored], whole: Stored) -> dict[str, Stored]:
    """Give parts of one stored tensor, split along the first axis, their own extents in the file."""
    if not isinstance(whole.load, Extent):
        return parts
    stored, begin = {}, whole.load.begin
    for name, part in parts.items():
        stored[name] = replace(part, load=replace(whole.load, begin=begin, load=part.load))
        begin += part.nbytes
    return stored


def _whole_shape(ours: Sequence[str | None], shapes: Sequence[Shape]) -> Shape:
    """Return the shape of one block's tensors joined along the first axis; zeros count as the first."""
    if len(ours) == 1:
        return shapes[0]
    missing = sum(name is None for name in ours)
    present = shapes[: len(ours) - missing]
    return (sum(shape[0] for shape in present) + missing * present[0][0], *present[0][1:])


def _join(names: Sequence[str | None], arrays: Mapping[str, Stored]) -> np.ndarray:
    if len(names) == 1 and names[0] is not None:
        return arrays[names[0]].load()
    loaded = [arrays[name].load() if name is not None else None for name in names]
    zeros = np.zeros_like(next(each for each in loaded if each is not None))
    return np.concatenate([zeros if each is None else each for each in loaded])


def _lengths(cfg: ViTConfig, one: Bound, length: int) -> list[int]:
    """Return the length of the first axis of each of their tensors that one of ours is split into."""
    if one.row.parts:
        return [length * part // sum(one.row.parts) for part in one.row.parts]
    if one.index is None or len(one.theirs) != 3:
        return [length // len(one.theirs)] * len(one.theirs)
    kv_width = cfg.kv_heads[one.index] * cfg.head_dim
    return [length - 2 * kv_width, kv_width, kv_width]


def _named(name: str, work: Callable):
    """Run `work`, putting the tensor's name before the message of a WeightsError."""
    try:
        return work()
    except WeightsError as error:
        raise WeightsError(f"{name}: {error}") from None
