"""Checkpoints of DeepSpeed's ZeRO 3: parameters cut into equal pieces, joined as they are read.

Each process saves its piece of every parameter, one behind the other, as flat tensors of float32 in the
file of its optimiser; the names and shapes are in the file of its model. DeepSpeed's own
``zero_to_fp32.py``, which it copies beside them, joins them with PyTorch; here nothing is executed.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.porting.formats.archive import Archive
from parity.porting.formats.base import Container, Stored, guarded
from parity.porting.formats.budget import Budget, folder_budget
from parity.porting.formats.flatten import check_names
from parity.porting.formats.torch_types import View
from parity.porting.formats.torch_zip import prefix_of, read_pickle
from vit_config.errors import MissingFileError, WeightsError
from vit_config.files.foreign import read_text
from vit_config.files.stored import checked_shape

LATEST = "latest"
"""File beside the checkpoints of a run, with the name of the newest one's folder."""
WHOLE = "mp_rank_00_model_states.pt"
"""File of a checkpoint of ZeRO 0, 1 or 2, with the parameters whole."""
MODELS = re.compile(r"zero_pp_rank_(\d{1,6})_mp_rank_00_model_states\.pt")
OPTIMIZERS = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d{1,6})_mp_rank_00_optim_states\.pt")
_PIECE = 200
"""Bytes of memory for what is known of a piece."""


class Cut(NamedTuple):
    """A parameter in pieces of one length, the last padded."""

    shape: tuple[int, ...]
    pieces: tuple[tuple[View, ...], ...]
    """For each process the views that make up its piece."""

    def stored(self, budget: Budget) -> Stored:
        """Return the parameter without reading its pieces."""
        views = [view for piece in self.pieces for view in piece]
        dtype, size = views[0].dtype, math.prod(self.shape)
        if len(types := {view.dtype for view in views}) > 1:
            raise ValueError(f"a tensor whose pieces are of {', '.join(sorted(map(str, types)))}")
        left = [sum(view.shape[0] for view in views) * dtype.itemsize]  # the first read counts

        def load() -> np.ndarray:
            budget.values(left.pop() if left else 0)
            values = [view.stored().load() for view in views]
            return np.concatenate(values)[:size].reshape(self.shape)

        return Stored(self.shape, dtype, load)


def find_zero(folder: Path) -> Path | None:
    """Return the folder of a ZeRO 3 checkpoint, or the file of another stage's, in a folder.

    It is looked for in the folder itself and in the one that its file `LATEST` names; None if it is in
    neither.

    Raises:
        WeightsError: its tensors are cut over several devices, too.
    """
    inside = [folder]
    if (folder / LATEST).is_file():
        name = read_text(folder / LATEST, most=256).strip()
        inside += [folder / name] if re.fullmatch(r"[\w-]+", name) else []
    for each in inside:
        if (each / WHOLE.replace("00", "01")).is_file() or [*each.glob("zero_pp_rank_*_mp_rank_01_*")]:
            raise WeightsError(
                f"{each}: its tensors were cut over several devices (mp_rank_01 beside mp_rank_00); join"
                " them by the code that cut them, and save model.state_dict()"
            )
        if _by_process(each, MODELS):
            return each
        if (each / WHOLE).is_file():
            return each / WHOLE
    return None


def read_zero(folder: Path) -> Container:
    """Open a checkpoint; its pieces are read and joined when a tensor is loaded.

    Raises:
        MissingFileError: the file of a process is missing.
        WeightsError: a file is damaged, or the pieces do not add up to the parameters.
    """
    with guarded(folder, "checkpoint of DeepSpeed's ZeRO 3"):
        budget = folder_budget(folder)
        models, optimizers = (_by_process(folder, each) for each in (MODELS, OPTIMIZERS))
        roots = [read_root(path, budget) for _, path in sorted(models.items())]
        states = [_dict(read_root(path, budget), "optimizer_state_dict")
                  for _, path in sorted(optimizers.items())]  # fmt: skip
        count = states[0].get("partition_count") if states else len(models)
        for which, paths in (("model", models), ("optim", optimizers)):
            saved = count if isinstance(count, int) else len(paths)
            if len(paths) != saved or sorted(paths) != list(range(len(paths))):
                raise MissingFileError(
                    f"{folder}: has {which}_states of {len(paths)} processes, but {count} saved pieces;"
                    " copy those of the others, too"
                )
        tensors = {name: cut.stored(budget) for name, cut in _trained(roots[0], states, budget)}
        tensors |= {name: cut.stored(budget) for name, cut in _frozen(roots, budget)}
        for name in roots[0].get("buffer_names") or ():
            tensors[name] = _view(_dict(roots[0], "module"), name).stored()
        for name, same in (roots[0].get("shared_params") or {}).items():
            tensors[name] = tensors[same]
        check_names(tensors)
    files = tuple(sorted((*models.values(), *optimizers.values())))
    return Container(folder, files, f"torch, DeepSpeed's ZeRO 3 ({len(models)} processes)", tensors)


def _by_process(folder: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    entries = folder.iterdir() if folder.is_dir() else ()
    return {int(match[1]): each for each in entries if (match := pattern.fullmatch(each.name))}


def read_root(path: Path, budget: Budget) -> Mapping[str, Any]:
    """Return the dictionary in a file of torch.save. WeightsError: it holds another object."""
    archive = Archive(path, "file of torch.save", budget)
    prefix = prefix_of(archive)
    root = read_pickle(archive, prefix) if prefix is not None else None
    if not isinstance(root, dict):
        raise WeightsError(f"{path}: holds no dictionary; copy it again")
    return root


def _dict(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"no {name} in it")
    return value


def _view(fields: Mapping[str, Any], name: str) -> View:
    value = fields.get(name)
    if not isinstance(value, View):
        raise ValueError(f"no tensor {name} in it")
    return value


def _trained(
    root: Mapping[str, Any], states: Sequence[Mapping[str, Any]], budget: Budget
) -> Iterator[tuple[str, Cut]]:
    """Yield the parameters that the optimiser trains, by name."""
    groups = [[flat_view(each) for each in state["fp32_flat_groups"]] for state in states]
    lengths = [[each.shape[0] for each in flat] for flat in groups]
    if any(each != lengths[0] for each in lengths):
        raise WeightsError(f"its processes have pieces of other lengths: {lengths!s:.200}")
    begins = [0, *accumulate(lengths[0])]
    at = 0
    for shapes in root["param_shapes"]:
        for name, sizes in shapes.items():
            shape = checked_shape(sizes, groups[0][0].dtype.itemsize)
            length = -(-math.prod(shape) // len(groups))
            pieces = tuple(tuple(between(flat, begins, at, at + length, budget)) for flat in groups)
            yield name, Cut(shape, pieces)
            at += length
    if at != begins[-1]:
        raise WeightsError(f"its pieces have {begins[-1]} values for each process, its parameters {at}")


def flat_view(value: Any) -> View:
    """Return a tensor of one axis. ValueError: it is none."""
    if not isinstance(value, View) or len(value.shape) != 1 or value.stride != (1,):
        raise ValueError("a group of parameters that is no flat tensor")
    return value


def between(
    flat: Sequence[View], begins: Sequence[int], begin: int, end: int, budget: Budget
) -> Iterator[View]:
    """Yield the views of some values of tensors that follow each other."""
    if end > begins[-1]:
        raise WeightsError(f"its pieces end at value {begins[-1]}, a parameter at {end}")
    at = bisect_right(begins, begin, hi=len(flat)) - 1
    while True:
        view, start = flat[at], begin - begins[at]
        stop = min(end - begins[at], view.shape[0])
        budget.objects(_PIECE)
        yield View(view.storage, view.dtype, view.offset + start, (stop - start,), (1,))
        begin, at = begins[at] + stop, at + 1
        if begin == end:
            return


def _frozen(roots: Sequence[Mapping[str, Any]], budget: Budget) -> Iterator[tuple[str, Cut]]:
    """Yield the parameters that are not trained, whose pieces are in the files of the models."""
    for name, sizes in (roots[0].get("frozen_param_shapes") or {}).items():
        budget.objects(_PIECE * len(roots))
        pieces = tuple((flat_view(_dict(each, "frozen_param_fragments")[name]),) for each in roots)
        shape = checked_shape(sizes, pieces[0][0].dtype.itemsize)
        if (count := sum(view.shape[0] for (view,) in pieces)) < math.prod(shape):
            raise WeightsError(f"{name}: its pieces have {count} values, the tensor {math.prod(shape)}")
        yield name, Cut(shape, pieces)
