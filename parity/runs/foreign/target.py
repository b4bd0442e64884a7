"""A run in a library's form: tensors by its names, in its order and parameter groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.porting.dialects import called
from parity.porting.dialects.buffers import make_buffers
from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.matching import bind
from parity.porting.dialects.rewrites import ModelState, express
from parity.porting.dialects.table import Bound
from parity.porting.dialects.transfer import write
from parity.porting.formats.base import Stored
from parity.porting.metadata import Metadata
from parity.runs.foreign.groups import spared_by_timm, spared_by_trainer
from parity.runs.foreign.order import HF_WRITTEN, hf_orders, timm_order
from parity.runs.foreign.read import Training, open_foreign
from parity.runs.run import Run
from parity.runs.state import Arrays
from vit_config import ConfigError, Recipe
from vit_config.errors import CheckpointError, UnstatedError, naming
from vit_config.recipe import is_decayed

FAMILIES = {"timm": "timm", "hf": "hf", "lightning": "timm"}
"""Family of dialects in which each kind is written."""
Named = dict[str, np.ndarray]
"""Arrays by the library's names."""


class ParameterGroup(NamedTuple):
    """A parameter group of the optimiser."""

    names: tuple[str, ...]
    decays: bool


@dataclass(frozen=True)
class LibraryFiles:
    """The contents of a library's files."""

    run: Run
    dialect: Dialect
    params: Named
    """Parameters in the order of the library's model, or of the file that is followed."""
    buffers: Named
    moments: dict[str, Named]
    ema: Named | None
    groups: tuple[ParameterGroup, ...]
    """Parameter groups in the order of the optimiser."""
    like: Training | None

    @property
    def steps_per_epoch(self) -> int:
        """Number of updates in an epoch. UnstatedError: it is unknown."""
        if self.run.steps_per_epoch is None:
            raise UnstatedError(
                "how many steps an epoch has is unknown, and this library's files count epochs; give"
                " --steps-per-epoch N"
            )
        return self.run.steps_per_epoch

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the contents of the dialect's config files, by name."""
        settings = self.dialect.settings
        return {} if settings is None else settings.files(self.run.config, Metadata())


def plan(run: Run, kind: str, like_file: str | Path | None) -> LibraryFiles:
    """Convert a run to a library's names, order and parameter groups.

    Args:
        like_file: a training state of the same model by the same library, whose order and groups are
            followed.

    Raises:
        ConfigError: the library has no such model, or only with rewritten values.
        CheckpointError: `like_file` is of another model, or the groups contradict the recipe.
    """
    _check_sayable(run.recipe)
    like = None
    if like_file is not None:
        with naming(Path(like_file)):
            like = open_foreign(Path(like_file))
            _check_same(run, like)
    dialect, bound = _expressed(run, like.checkpoint.dialect.name if like else FAMILIES[kind])
    spelled = _spell(run, bound, run.state.params)
    order = list(like.names.values()) if like else _order(run, kind, dialect, spelled)
    params = {name: spelled[name] for name in _in_file_order(like, order)}
    dtype = next(iter(params.values())).dtype
    buffers = {
        name: each.load()
        for name, each in make_buffers(dialect, run.config, dtype).items()
        if like is None or name in like.checkpoint.tensors
    }
    moments = {moment: _spell(run, bound, each) for moment, each in run.state.moments.items()}
    ema = None if run.state.ema is None else _spell(run, bound, run.state.ema)
    if ema is not None:
        ema = {name: ema[name] for name in params}
    groups = _groups(run, kind, bound, params, like)
    return LibraryFiles(run, dialect, params, buffers, moments, ema, groups, like)


def _check_sayable(recipe: Recipe) -> None:
    if recipe.optimizer == "lamb":
        raise CheckpointError('optimizer = "lamb": only torch\'s AdamW, Adam and SGD are written')
    if recipe.layer_decay != 1.0:
        raise CheckpointError(
            f"layer_decay = {recipe.layer_decay}: only groups of what decays, and of what does not,"
            " are written"
        )


def _check_same(run: Run, like: Training) -> None:
    theirs = like.checkpoint.config
    if odd := [name for name in theirs.fields() if getattr(theirs, name) != getattr(run.config, name)]:
        raise CheckpointError(
            f"{odd[0]} is {getattr(theirs, odd[0])} there but {getattr(run.config, odd[0])} in the run;"
            " give a file of the same model"
        )


def _expressed(run: Run, name: str) -> tuple[Dialect, list[Bound]]:
    """Return the dialect, of this name or family, that expresses the model unchanged, and its rows."""
    arrays = {name: Stored.of(value) for name, value in run.state.params.items()}
    refused = []
    for dialect in called(name):
        try:
            state = express(ModelState(run.config, arrays), dialect)
            if not state.said:
                return dialect, bind(dialect, run.config, arrays)
            refused.append(
                f"{dialect.name} has this model only with other values ({state.said[0]}), and moments"
                " cannot be rewritten"
            )
        except ConfigError as error:
            refused.append(str(error))
    raise ConfigError(min(refused, key=len))


def _spell(run: Run, bound: list[Bound], arrays: Arrays) -> Named:
    stored = write(bound, {name: Stored.of(value) for name, value in arrays.items()}, run.config)
    return {name: each.load() for name, each in stored.items()}


def _order(run: Run, kind: str, dialect: Dialect, spelled: Mapping[str, Any]) -> list[str]:
    """Return the names of the parameters in the order of the library's model."""
    if kind == "hf":
        return hf_orders(dialect.name, HF_WRITTEN, spelled)[0]
    return timm_order(spelled, dialect.name, run.config)


def _in_file_order(like: Training | None, order: list[str]) -> list[str]:
    return order if like is None else [name for name in like.checkpoint.tensors if name in set(order)]


def _groups(
    run: Run, kind: str, bound: list[Bound], params: Named, like: Training | None
) -> tuple[ParameterGroup, ...]:
    """Return the parameter groups: those of `like`, or those that the library makes.

    Raises:
        CheckpointError: the groups contradict the run's recipe; the message names a parameter.
    """
    strong = run.recipe.weight_decay > 0.0
    decays = _decays(run, bound)
    if like is not None:
        return _as_there(like, decays)
    spares = spared_by_trainer if kind == "hf" else spared_by_timm
    spared = {name for name, value in params.items() if spares(name, value.shape)}
    if kind == "lightning":
        spared = {name for name in params if strong and not decays[name]}
    elif kind == "timm" and (not strong or all(decays.values())):
        spared = set()  # one group: without weight decay, or with filter_bias_and_bn off
    elif strong:
        for name in params:
            if decays[name] == (name in spared):
                ours, theirs = ("decays", "does not") if decays[name] else ("does not decay", "does")
                raise CheckpointError(
                    f"{name} {ours} in the recipe, but {theirs} in the groups that {kind} makes; give"
                    " --like-file, a file of a script that makes them as the recipe says"
                )
    last = ParameterGroup(tuple(name for name in params if name in spared), decays=False)
    rest = ParameterGroup(tuple(name for name in params if name not in spared), decays=strong)
    if kind == "hf":  # the Trainer makes both groups, even empty ones
        return rest, last
    return tuple(part for part in ((last, rest) if kind == "timm" else (rest, last)) if part.names)


def _decays(run: Run, bound: list[Bound]) -> dict[str, bool]:
    """Return whether each parameter of the library decays; several of ours in one must agree."""
    by_name = {}
    for one in bound:
        ours = [name for name in one.ours if name is not None]
        decays = {is_decayed(run.recipe, name, run.state.params[name].ndim) for name in ours}
        if len(decays) > 1 and run.recipe.weight_decay:
            raise CheckpointError(f"{', '.join(ours)} are one tensor there, but only part of it decays")
        by_name |= dict.fromkeys(one.theirs, bool(run.recipe.weight_decay) and decays == {True})
    return by_name


def _as_there(like: Training, decays: Mapping[str, bool]) -> tuple[ParameterGroup, ...]:
    groups = []
    for group in like.optimizer.groups:
        names = tuple(like.names[index] for index in group.indices)
        if odd := [name for name in names if decays[name] != decays[names[0]]]:
            raise CheckpointError(
                f"{odd[0]} and {names[0]} are in one group of --like-file, but only one of them decays"
                " by the recipe"
            )
        groups.append(ParameterGroup(names, bool(names) and decays[names[0]]))
    return tuple(groups)
