"""Search for a Vision Transformer among a file's tensors, and recognition of its dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.directions import multiplied
from parity.porting.dialects.quantised import dequantised
from parity.porting.dialects.table import REST, bind_theirs
from parity.porting.formats.base import Stored
from parity.porting.opening.opened import Opened
from parity.porting.recognition.heads import levels
from parity.porting.recognition.matching import some, unknown
from parity.porting.recognition.strangers import stranger
from parity.porting.recognition.unfit import unfit
from vit_config import WeightsError
from vit_config.errors import OtherModelError, UnstatedError

PATCHES = "patch_embed.proj.weight"
SEPARATORS = (".", "/")
"""Separators between the levels of a name; JAX's files have the second."""

WRAPPERS = re.compile(r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""Levels that torch.compile, FSDP and activation checkpointing insert into names of wrapped modules."""
BOXES = re.compile(r"[./](value|raw_value)$")
"""Suffix that a Flax variable gets when its state is saved as a tree."""

OPTIMIZER = {
    "mu", "nu", "trace", "exp_avg", "exp_avg_sq", "momentum_buffer", "acc_grads", "opt_state",
    "optimizer", "optimizer_state", "v_row", "v_col",
}  # fmt: skip
"""Keys of optimiser state, whose tensors have the names of parameters."""

MOST_MODELS = 64
"""Maximum number of prefixes in one file that are searched."""


class Model(NamedTuple):
    """A model found in a file."""

    dialect: Dialect
    branch: str
    """Prefix that was stripped from every name; empty if there was none."""
    tensors: dict[str, Stored]
    """The model's tensors by the dialect's names."""
    why: str
    """How the dialect was recognised."""
    respelled: tuple[str, ...] = ()
    """Notes on other changes to the names."""
    asked: bool = False
    """Whether the user named the dialect."""
    outside: int = 0
    """Number of the file's tensors that are not under that prefix."""


def find(
    opened: Opened,
    dialects: Sequence[Dialect],
    *,
    part: str | None = None,
    asked: bool = False,
) -> Model:
    """Find the model in a file.

    Args:
        dialects: the dialects to try, the more specific ones first.
        part: the branch to take from a file that has several; any prefix of names.
        asked: whether the user named these dialects; a patch projection by their names is then enough.

    Raises:
        WeightsError: there is no model, or none in `part`; or it is a known model that cannot be read.
        UnstatedError: there are several models and `part` does not choose one.
    """
    tensors, respelled = unwrapped(opened.container.tensors)
    tensors, widened = dequantised(tensors)
    tensors, joined = multiplied(tensors)
    respelled = (*respelled, *widened, *joined)
    every = _models(tensors, opened, dialects, asked)
    if not every and (separated := _joined_otherwise(tensors)):
        others, text = separated
        if every := _models(others, opened, dialects, asked):
            tensors, respelled = others, (*respelled, text)
    models = every if part is None else [each for each in every if _is_under(each.branch, part)]
    if part is not None and not models:
        within = {name: each for name, each in tensors.items() if _is_under(name, part)}
        models = list(_outermost(_marked(within, opened, dialects)))
    if not models:
        other = part is None and opened.container.tensors
        refused = OtherModelError if other else WeightsError
        raise refused(f"{opened.path}: {_refusal(opened, dialects, part, every, asked)}")
    if len(models) > 1:
        raise UnstatedError(
            f"{opened.path}: holds several models, {_listed(models)};"
            f" choose by --part {sorted(each.branch for each in models)[0] or 'NAME'}"
        )
    best = models[0]
    names = [f"{best.branch}.{name}" for name in best.tensors]
    if text := stranger(names, opened.sidecars.model_type) or unfit(best.tensors):
        raise OtherModelError(f"{opened.path}: {text}")
    return best._replace(respelled=respelled, outside=len(tensors) - len(best.tensors))


def _models(
    tensors: Mapping[str, Stored], opened: Opened, dialects: Sequence[Dialect], asked: bool
) -> list[Model]:
    """Find every model among a file's tensors that is not inside another."""
    every = list(_outermost(_marked(tensors, opened, dialects)))
    return every or (list(_outermost(_projecting(tensors, dialects))) if asked else [])


def _joined_otherwise(tensors: Mapping[str, Stored]) -> tuple[dict[str, Stored], str] | None:
    """Replace the separator in every name by the other one, and return a note on it; None if the names
    have both separators or neither."""
    separators = [each for each in SEPARATORS if any(each in name for name in tensors)]
    if len(separators) != 1:
        return None
    (here,) = separators
    there = SEPARATORS[SEPARATORS.index(here) - 1]
    respelled = {name.replace(here, there): each for name, each in tensors.items()}
    return respelled, f"read {here!r} in the names as {there!r}"


def unwrapped(tensors: Mapping[str, Stored]) -> tuple[dict[str, Stored], tuple[str, ...]]:
    """Remove the levels that wrappers of modules and variables add to names; return a note on each.

    If that made two names equal, return the tensors unchanged.
    """
    respelled = {BOXES.sub("", WRAPPERS.sub("", name)): each for name, each in tensors.items()}
    if len(respelled) != len(tensors):
        return dict(tensors), ()
    every = (match for name in tensors for match in (*WRAPPERS.findall(name), *BOXES.findall(name)))
    return respelled, tuple(f"took {each!r} out of the names" for each in dict.fromkeys(every))


def has_marks(dialect: Dialect, tensors: Mapping[str, Stored], *, by_config: bool = False) -> bool:
    """Return whether the tensors have the marks of a dialect.

    Args:
        by_config: whether a config file names this dialect.
    """
    marks = dialect.config_marks if by_config and dialect.config_marks else dialect.marks
    fits = (_is_there(mark.removeprefix("!"), tensors) != mark.startswith("!") for mark in marks)
    return bool(marks) and all(fits)


def _is_there(mark: str, tensors: Mapping[str, Stored]) -> bool:
    for each in mark.split("|"):
        name, _, axes = each.partition(":")
        if name in tensors and (not axes or len(tensors[name].shape) == int(axes)):
            return True
    return False


def _marked(
    tensors: Mapping[str, Stored], opened: Opened, dialects: Sequence[Dialect]
) -> Iterator[Model]:
    """Yield the models that have all marks of a dialect.

    Of several dialects, one that a config file names is preferred, then the first.
    """
    by_config = [each for each in dialects if opened.sidecars.are_of(each)]
    anchors = {each.name: [_names(each)[0]] for each in dialects if each.marks}
    for prefix, inside in _places(tensors, dialects, anchors):
        for each in [*by_config, *(each for each in dialects if each not in by_config)]:
            if not each.wrapper or levels(prefix)[-1:] == [each.wrapper]:
                own = each.within_body(inside)
                if has_marks(each, own, by_config=each in by_config):
                    why = "its config file and " if each in by_config else ""
                    yield Model(
                        each, prefix[:-1], own, f"{why}the tensors {', '.join(_names(each)[:2])}"
                    )
                    break


def _projecting(tensors: Mapping[str, Stored], dialects: Sequence[Dialect]) -> Iterator[Model]:
    """Yield the models that have at least a patch projection by a dialect's names."""
    anchors = {
        each.name: [
            row.theirs[0].removesuffix("*") + (PATCHES if row.ours == REST.ours else "")
            for table in each.tables
            for row in table
            if PATCHES in row.ours or row.ours == REST.ours
        ]
        for each in dialects
    }
    for prefix, inside in _places(tensors, dialects, anchors):
        for each in dialects:
            own = each.within_body(inside)
            shapes = {name: stored.shape for name, stored in own.items()}
            bound = [one for table in each.tables for one in bind_theirs(table, shapes)[0]]
            if names := [name for one in bound if PATCHES in one.ours for name in one.theirs]:
                yield Model(each, prefix[:-1], own, f"the tensor {names[0]}")
                break


def _names(dialect: Dialect) -> list[str]:
    """Return the tensors that a dialect's marks require, without those that have alternatives.

    If all have alternatives, return the first of each.
    """
    positive = [mark for mark in dialect.marks if not mark.startswith("!")]
    alone = [mark for mark in positive if "|" not in mark]
    return [re.split("[:|]", mark)[0] for mark in alone or positive]


def _places(
    tensors: Mapping[str, Stored], dialects: Sequence[Dialect], anchors: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, dict[str, Stored]]]:
    """Yield where in a file models may be, the outermost first.

    Each is a prefix with its separator, and the tensors under it by the rest of their names.

    Args:
        anchors: by dialect, tensors of which every model of that dialect has at least one.
    """
    endings = {
        f"{body}{anchor}": None
        for each in dialects
        for anchor in anchors.get(each.name, ())
        for body in {"", each.body}
    }
    prefixes = {
        name.removesuffix(ending)
        for name in tensors
        if name.endswith(tuple(endings))
        for ending in endings
        if name.endswith(ending)
    }
    whole = [each for each in prefixes if not each or each.endswith(SEPARATORS)]
    models = [each for each in whole if not _is_of_optimizer(each, tensors)]
    for prefix in sorted(models, key=lambda each: (len(levels(each)), each))[:MOST_MODELS]:
        yield prefix, {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _is_of_optimizer(prefix: str, names: Iterable[str]) -> bool:
    """Return whether the tensors under a prefix are an optimiser's moments of the parameters."""
    keys = levels(prefix)
    beside = f"{prefix[:-2]}v_row/"  # Adafactor's
    return bool(OPTIMIZER & set(keys)) or (
        keys[-1:] == ["v"] and any(name.startswith(beside) for name in names)
    )


def _outermost(models: Iterable[Model]) -> Iterator[Model]:
    """Yield the models that are not inside another."""
    taken: list[str] = []
    for each in models:
        if not any(_is_under(each.branch, branch) for branch in taken):
            taken.append(each.branch)
            yield each


def _is_under(name: str, branch: str) -> bool:
    """Return whether a name begins with a branch, treating ``.`` and ``/`` alike."""
    keys = levels(WRAPPERS.sub("", f"{branch}."))
    return levels(name)[: len(keys)] == keys


def _tops(opened: Opened) -> list[str]:
    """Return the first levels of all names, at most eight."""
    tops = list(dict.fromkeys(levels(name)[0] for name in opened.container.tensors if levels(name)))
    return [*tops[:8], *(["..."] if len(tops) > 8 else [])]


def _nearest(tensors: Mapping[str, Stored], dialects: Sequence[Dialect], *, advise: bool) -> str:
    """Say which dialect's tensors are all there, without its wrapper or beside others.

    The dialect is advised only if it knows all tensors.

    Args:
        advise: whether a dialect may be advised; not if a config file names a model that none knows.
    """
    for each in dialects:
        if each.wrapper and has_marks(each, each.within_body(tensors)):
            text = f"its tensors are named as those of {each.title}, but not under {each.wrapper!r}"
            return f"{text}; give --dialect {each.name} if that is what it is" if advise else text
    near = []
    for each in dialects:
        own = each.within_body(tensors)
        names = [mark for mark in each.marks if not mark.startswith("!")]
        marks = [one for mark in each.marks if mark.startswith("!") for one in mark[1:].split("|")]
        beside = [one.partition(":")[0] for one in marks if _is_there(one, own)]
        if names and beside and all(_is_there(mark, own) for mark in names):
            near.append((unknown(each, own), beside, each))
    if not near:
        return ""
    left, beside, nearest = min(near, key=lambda each: len(each[0]))
    text = f"its tensors are named as those of {nearest.title}, but for"
    if left:
        return f"{text} {some(list(dict.fromkeys([*beside, *left])))}"
    text = f"{text} {', '.join(beside)}"
    return f"{text}; give --dialect {nearest.name} if that is what it is" if advise else text


def _listed(models: Sequence[Model]) -> str:
    texts = [f"{each.branch or 'the names as they are'} ({each.dialect.name})" for each in models]
    return ", ".join(sorted(texts))


def _refusal(
    opened: Opened,
    dialects: Sequence[Dialect],
    part: str | None,
    every: Sequence[Model],
    asked: bool,
) -> str:
    """Say why no model was found, as precisely as possible."""
    if not opened.container.tensors:
        return "there are no tensors in it"
    inside = [name for name in opened.container.tensors if part is None or _is_under(name, part)]
    names = ", ".join(inside[:4])
    if not inside:
        there = _listed(every) if every else ", ".join(_tops(opened))
        return f"nothing in it begins with {part!r}; there is {there}"
    if every:
        return (
            f"no Vision Transformer of a known dialect under {part!r}, whose tensors are {names} ...;"
            f" there is {_listed(every)}"
        )
    tensors, _ = unwrapped(opened.container.tensors)
    if reason := stranger(tensors, opened.sidecars.model_type) or unfit(tensors):
        return reason
    for each in dialects:
        opened.sidecars.fields(each)  # raises a more precise error if a config file states another model
    where, model_type = f" under {part!r}" if part else "", opened.sidecars.model_type
    near = _nearest(opened.container.tensors, dialects, advise=not model_type) if part is None else ""
    if near:
        return near
    of = f" (config.json says model_type = {model_type})" if model_type else ""
    kind = " or ".join(each.title for each in dialects) if asked else "a known dialect"
    return f"no Vision Transformer of {kind}{where}{of}; its tensors are {names} ..."
