"""Finding a Vision Transformer among a file's tensors, and whose spelling it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from parity.porting.dialects import sidecars
from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.table import bind_theirs
from parity.porting.formats.base import Container, Stored
from vit_config import WeightsError
from vit_config.errors import UnstatedError

BRANCHES = (
    "state_dict", "state_dict_ema", "model", "model_state_dict", "model_ema", "ema", "teacher",
    "student", "target_encoder", "encoder", "net", "network", "module", "_orig_mod", "backbone",
    "params", "opt", "target", "img", "visual.trunk", "visual", "vision_model", "trunk", "vit",
    "timm_model",
)  # fmt: skip
"""What people put around a model: a key of a dictionary, an attribute, a wrapper's name."""

PATCHES = "patch_embed.proj.weight"
DEPTH = 5
"""How many of them may lie in each other."""


class Found(NamedTuple):
    """A model in a file."""

    dialect: Dialect
    branch: str
    """What was stripped of every name; empty if nothing was."""
    tensors: dict[str, Stored]
    """By the dialect's names."""
    why: str
    """How it was recognised."""


def find(
    container: Container,
    dialects: Sequence[Dialect],
    *,
    part: str | None = None,
    asked: bool = False,
) -> Found:
    """The model in a file.

    Args:
        dialects: those that it may be in, the more special ones first.
        part: the branch to take, where a file has several.
        asked: the user says that it is in one of these, so a patch projection of that name is enough.

    Raises:
        WeightsError: there is none, or none in `part`.
        UnstatedError: there are several and `part` does not choose.
    """
    found = list(_all_found(container, dialects, part))
    if asked and not found:
        found = list(_all_projecting(container, dialects, part))
    if not found:
        if not container.tensors:
            raise WeightsError(f"{container.path}: there are no tensors in it")
        for each in dialects:
            sidecars.fields(each, container.sidecars)  # a config file says more of what it is not
        names = ", ".join(list(container.tensors)[:4])
        where = f" under {part!r}" if part else ""
        raise WeightsError(
            f"{container.path}: no Vision Transformer of a known dialect{where};"
            f" its tensors are {names} ..."
        )
    nearest = min(each.branch.count("\0") for each in found)
    near = [each for each in found if each.branch.count("\0") == nearest]
    branches = sorted({_readable(each.branch) for each in near})
    if len(branches) > 1:
        raise UnstatedError(
            f"{container.path}: holds several models, {', '.join(branches)};"
            f" choose by --part {branches[0]}"
        )
    best = near[0]
    return best._replace(branch=_readable(best.branch))


def _all_found(container: Container, dialects: Sequence[Dialect], part: str | None) -> Iterator[Found]:
    for branch, tensors in _views(container.tensors):
        if part is not None and _readable(branch) != part:
            continue
        told = [each for each in dialects if sidecars.tell(each, container.sidecars)]
        for each in [*told, *(each for each in dialects if each not in told)]:
            wrapped = not each.wrapper or branch.endswith(f"\0{each.wrapper}")
            if wrapped and marked(each, inside := each.within_body(tensors)):
                why = "its config file and " if each in told else ""
                yield Found(each, branch, inside, f"{why}the tensors {', '.join(_shown(each))}")
                break


def _all_projecting(
    container: Container, dialects: Sequence[Dialect], part: str | None
) -> Iterator[Found]:
    """The models that a dialect's names make at least a patch projection of."""
    for branch, tensors in _views(container.tensors):
        if part is not None and _readable(branch) != part:
            continue
        for each in dialects:
            inside = each.within_body(tensors)
            shapes = {name: stored.shape for name, stored in inside.items()}
            bound = [one for table in each.tables for one in bind_theirs(table, shapes)[0]]
            if names := [name for one in bound if PATCHES in one.ours for name in one.theirs]:
                yield Found(each, branch, inside, f"the tensor {names[0]}")
                break


def _shown(dialect: Dialect) -> list[str]:
    return [re.split("[:|]", mark)[0] for mark in dialect.marks if not mark.startswith("!")][:2]


def marked(dialect: Dialect, tensors: Mapping[str, Stored]) -> bool:
    """Whether the tensors by which a dialect is recognised are there."""
    fits = (_is_there(mark.removeprefix("!"), tensors) != mark.startswith("!") for mark in dialect.marks)
    return bool(dialect.marks) and all(fits)


def _is_there(mark: str, tensors: Mapping[str, Stored]) -> bool:
    for each in mark.split("|"):
        name, _, axes = each.partition(":")
        if name in tensors and (not axes or len(tensors[name].shape) == int(axes)):
            return True
    return False


def _views(tensors: Mapping[str, Stored]) -> Iterator[tuple[str, dict[str, Stored]]]:
    """The tensors themselves, and those under each known wrapper, the outermost first.

    The wrappers that were stripped are joined by a zero character.
    """
    level = [("", dict(tensors))]
    for _ in range(DEPTH + 1):
        yield from level
        level = [
            (f"{branch}\0{name}", inside)
            for branch, outside in level
            for name in BRANCHES
            if (inside := _inside(outside, name))
        ]


def _inside(tensors: Mapping[str, Stored], name: str) -> dict[str, Stored]:
    for separator in "./":
        prefix = f"{name}{separator}"
        found = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        if found:
            return found
    return {}


def _readable(branch: str) -> str:
    return ".".join(branch.split("\0")[1:])
