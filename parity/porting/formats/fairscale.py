"""Shards of fairscale's FSDP, as fairseq saves them: flat parameters, cut into a piece for each process.

The entry ``shard_metadata`` of each file tells the names and shapes of what was joined, and how much of
the piece is padding. `FullyShardedDataParallel.consolidate_shard_weights` joins them with PyTorch; here
nothing is executed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from parity.porting.formats.base import Container, Stored, guarded
from parity.porting.formats.budget import Budget, budget_of
from parity.porting.formats.deepspeed import Cut, between, flat_view, read_root
from parity.porting.formats.flatten import check_names
from parity.porting.formats.torch_types import View
from vit_config.errors import MissingFileError, WeightsError
from vit_config.files.stored import checked_shape, counts

SAID = "shard_metadata"
NAME = re.compile(r"(.*-shard)(\d{1,6})(\.\w+)")
"""Name of the file of a process."""


def is_fairscale(container: Container) -> bool:
    """Return whether a file is of one process, with what tells the shapes of its flat parameters."""
    return any(name.startswith(f"{SAID}.param_metadata.") for name in container.objects)


def read_fairscale(container: Container) -> Container:
    """Join the file of a process with those of the others beside it; pieces are read when loaded.

    Raises:
        MissingFileError: the file of a process is missing.
        WeightsError: a file is damaged, or the pieces do not add up to the parameters.
    """
    path = container.path
    match = NAME.fullmatch(path.name)
    if match is None:
        raise WeightsError(
            f"{path}: holds the part of one process; name the files of all, from 0 on, as fairseq does:"
            " NAME-shard0.pt"
        )
    others = ((NAME.fullmatch(each.name), each) for each in path.parent.iterdir())
    shards = {int(m[2]): each for m, each in others if m and (m[1], m[3]) == (match[1], match[3])}
    files = tuple(shards[number] for number in sorted(shards))
    if sorted(shards) != list(range(len(shards))):
        raise MissingFileError(f"{path}: beside it are shards {sorted(shards)}; copy the others, too")
    with guarded(path, "shard of fairscale"):
        budget = budget_of(path, files)
        roots = [read_root(each, budget) for each in files]
        tensors = {name: each for name, each in _joined(roots, budget)}
        for name in roots[0][SAID]["buffer_names"]:
            if isinstance(view := roots[0]["model"].get(name), View):
                tensors[name] = view.stored()
        check_names(tensors)
    return Container(path, files, f"torch, fairscale's FSDP ({len(files)} processes)", tensors)


def _joined(roots: Sequence[Mapping[str, Any]], budget: Budget) -> Iterator[tuple[str, Stored]]:
    """Yield the parameters that were joined in each wrapped module."""
    for number, wrapped in enumerate(roots[0][SAID]["param_metadata"]):
        within = f"{wrapped['fsdp_path']}." if wrapped["fsdp_path"] else ""
        for flat, about in wrapped["params"].items():
            pieces = [_piece(root, number, within, flat) for root in roots]
            pieces = pieces[:1] if wrapped["no_broadcast_optim_state"] else pieces
            shapes = [checked_shape(sizes, pieces[0].dtype.itemsize) for sizes in about["shapes"]]
            begins = [0, *accumulate(each.shape[0] for each in pieces)]
            ends = [0, *accumulate(map(math.prod, shapes))]
            if ends[-1] != begins[-1]:
                raise WeightsError(
                    f"{within}{flat} has {begins[-1]} values in {len(pieces)} processes, its parameters"
                    f" {ends[-1]}; copy the files of all processes"
                )
            for name, shape, at in zip(about["names"], shapes, ends, strict=False):
                views = tuple(between(pieces, begins, at, at + math.prod(shape), budget))
                yield f"{within}{name}", Cut(shape, (views,)).stored(budget)


def _piece(root: Mapping[str, Any], number: int, within: str, flat: str) -> View:
    """Return a process' piece of a flat parameter, without its padding."""
    view = flat_view(root["model"][f"{within}{flat}"])
    (padding,) = counts([root[SAID]["param_metadata"][number]["params"][flat]["padding"]])
    length = max(view.shape[0] - padding, 0)
    return View(view.storage, view.dtype, view.offset, (length,), (1,))
