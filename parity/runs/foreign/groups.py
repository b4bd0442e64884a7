"""Assignment of names to an optimiser's numbered parameters.

torch numbers parameters group by group, and within a group in the model's order; only the script knows
which parameters are in which group. The rules here are the known ways to split them; a rule applies if
the numbers of parameters and every shape fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from parity.runs.foreign.optimizer import Group, OptimizerState
from vit_config.errors import CheckpointError

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of a model's parameters, in the model's order."""

_TOKENS = ("pos_embed", "cls_token", "dist_token")
_NORM = re.compile(r"norm\w*\.")


class DecayRule(NamedTuple):
    """A way to split a model's parameters in two groups."""

    said: str
    spares: Callable[[str, tuple[int, ...]], bool]
    """Returns whether a parameter does not decay, given name and shape."""


def _spared_by_timm(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether timm exempts a parameter from decay, also by its models' ``no_weight_decay``."""
    return _older_timm(name, shape) or name.rpartition(".")[2] == "reg_token"


def _spared_by_trainer(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether Hugging Face's Trainer exempts a parameter from decay: biases and norms."""
    return "bias" in name or bool(_NORM.search(name.lower()))


def _older_timm(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) <= 1 or name.endswith(".bias") or name.rpartition(".")[2] in _TOKENS


RULES = (
    DecayRule("timm's rule", _spared_by_timm),
    DecayRule("timm's rule before it had registers", _older_timm),
    DecayRule("the Trainer's rule", _spared_by_trainer),
    DecayRule("vectors apart", lambda name, shape: len(shape) < 2),
    DecayRule(
        "all but matrices apart", lambda name, shape: len(shape) < 2 or not name.endswith("weight")
    ),
)


def assign(optimizer: OptimizerState, model: Shapes) -> dict[int, str]:
    """Return the name of each numbered parameter.

    Raises:
        CheckpointError: the number of parameters differs, shapes do not fit, no known rule makes these
            groups, or two rules make them with different names.
    """
    if optimizer.count != len(model):
        raise CheckpointError(
            f"the optimiser has {optimizer.count} parameters, the model {len(model)}; it is the state of"
            " another model, or some parameters were not trained"
        )
    if all(group.names is not None for group in optimizer.groups):
        names = _by_names(optimizer, model)
        _check_shapes(optimizer, model, names)
        return names
    if len(optimizer.groups) == 1:
        names = dict(zip(optimizer.groups[0].indices, model, strict=True))
        _check_shapes(optimizer, model, names)
        return names
    if len(optimizer.groups) > 2:
        scaled = " with an lr_scale each" if "lr_scale" in optimizer.groups[0].options else ""
        raise CheckpointError(
            f"the optimiser has {len(optimizer.groups)} groups{scaled}: which parameter is in which,"
            " the file does not say; build it from named parameters"
        )
    return _by_rules(optimizer, model)


def assign_any(optimizer: OptimizerState, orders: Sequence[Shapes]) -> dict[int, str]:
    """Return the name of each numbered parameter, by the one order of the parameters that fits.

    Args:
        orders: possible orders, those of newer versions of the library first.

    Raises:
        CheckpointError: no order fits, or several fit and give different names.
    """
    fitting: list[dict[int, str]] = []
    refused: list[CheckpointError] = []
    for order in orders:
        try:
            names = assign(optimizer, order)
        except CheckpointError as error:
            refused.append(error)
            continue
        if not any(equivalent(optimizer, names, other) for other in fitting):
            fitting.append(names)
    if not fitting:
        raise refused[0]
    if len(fitting) > 1:
        one, other = fitting[:2]
        index = next(index for index in one if one[index] != other[index])
        raise CheckpointError(
            f"parameter {index} of the optimiser is {one[index]} in newer versions of the library,"
            f" {other[index]} in older ones, and shapes cannot tell; build it from named parameters"
        )
    return fitting[0]


def _by_rules(optimizer: OptimizerState, model: Shapes) -> dict[int, str]:
    fitting: list[tuple[str, dict[int, str]]] = []
    for rule, parts in _splits(model):
        if not _decay_fits(optimizer, parts):
            continue
        names = _zip(optimizer, parts)
        known = any(equivalent(optimizer, names, other) for _, other in fitting)
        if not known and not any(_misfits(optimizer, model, names)):
            fitting.append((rule, names))
    sizes = " and ".join(str(len(group.indices)) for group in optimizer.groups)
    if all(map(decay_of, optimizer.groups)):
        raise CheckpointError(
            f"both groups of the optimiser, of {sizes} parameters, have a weight decay, as no known rule"
            " makes them; build the optimiser from named parameters"
        )
    if not fitting:
        splits = list(_splits(model))[::2]
        tried = ", ".join(dict.fromkeys(f"{len(a)} and {len(b)}" for _, ((a, _), (b, _)) in splits))
        raise CheckpointError(
            f"the optimiser's groups have {sizes} parameters, but the known rules make groups of {tried}"
            " of this model; build the optimiser from named parameters"
        )
    if len(fitting) > 1:
        (one, first), (two, second) = fitting[:2]
        index = next(index for index in first if first[index] != second[index])
        raise CheckpointError(
            f"the optimiser's groups of {sizes} parameters fit {one} and {two}, by which parameter"
            f" {index} is {first[index]} or {second[index]}; build the optimiser from named parameters"
        )
    return fitting[0][1]


def equivalent(optimizer: OptimizerState, one: Mapping[int, str], other: Mapping[int, str]) -> bool:
    """Return whether two assignments give each parameter the same weight decay and the same moments."""

    def meaning(names: Mapping[int, str]) -> dict[str, tuple[float, int | None]]:
        return {
            names[index]: (decay_of(group), None if optimizer.shape(index) is None else index)
            for group in optimizer.groups
            for index in group.indices
        }

    return meaning(one) == meaning(other)


Part = tuple[list[str], bool]
"""Names of a group, and whether it is the group that does not decay."""


def _splits(model: Shapes) -> Iterator[tuple[str, tuple[Part, Part]]]:
    for rule in RULES:
        spared = [name for name, shape in model.items() if rule.spares(name, shape)]
        rest = [name for name in model if name not in spared]
        yield f"{rule.said} with the decayed ones last", ((spared, True), (rest, False))
        yield f"{rule.said} with the decayed ones first", ((rest, False), (spared, True))


def _decay_fits(optimizer: OptimizerState, parts: tuple[Part, Part]) -> bool:
    for group, (names, spared) in zip(optimizer.groups, parts, strict=True):
        if len(group.indices) != len(names) or (spared and group.options.get("weight_decay")):
            return False
    return True


def _zip(optimizer: OptimizerState, parts: tuple[Part, Part]) -> dict[int, str]:
    return {
        index: name
        for group, (names, _) in zip(optimizer.groups, parts, strict=True)
        for index, name in zip(group.indices, names, strict=True)
    }


def _by_names(optimizer: OptimizerState, model: Shapes) -> dict[int, str]:
    """Assign the names that the groups state, without the prefixes of wrappers."""
    names = {
        index: _known(name, model)
        for group in optimizer.groups
        for index, name in zip(group.indices, group.names or (), strict=True)
    }
    if len(set(names.values())) != len(names):
        raise CheckpointError("a parameter is in two groups of the optimiser by its name")
    return names


def _known(name: str, model: Shapes) -> str:
    short = name
    while short not in model:
        _, dot, short = short.partition(".")
        if not dot:
            raise CheckpointError(f"the optimiser names {name}, which is no parameter of the model")
    return short


def _misfits(
    optimizer: OptimizerState, model: Shapes, names: Mapping[int, str]
) -> Iterator[tuple[int, str]]:
    for index, name in names.items():
        if (shape := optimizer.shape(index)) is not None and shape != tuple(model[name]):
            yield index, name


def _check_shapes(optimizer: OptimizerState, model: Shapes, names: Mapping[int, str]) -> None:
    for index, name in _misfits(optimizer, model, names):
        raise CheckpointError(
            f"the moments of parameter {index} have shape {optimizer.shape(index)}, but {name} has"
            f" {tuple(model[name])}; it is the state of another model"
        )


def decay_of(group: Group) -> float:
    """Return the weight decay of a group."""
    return float(group.options.get("weight_decay") or 0.0)


_OUTER = (
    "embeddings.cls_token", "embeddings.position_embeddings",
    "embeddings.patch_embeddings.projection", "{blocks}", "layernorm", "pooler.dense", "classifier",
)  # fmt: skip
_ATTENTION = (
    "attention.attention.query", "attention.attention.key", "attention.attention.value",
    "attention.output.dense",
)  # fmt: skip
_NORMS, _MLP = ("layernorm_before", "layernorm_after"), ("intermediate.dense", "output.dense")
_OLD, _NEW = (*_ATTENTION, *_MLP, *_NORMS), (*_ATTENTION, *_NORMS, *_MLP)
HF_VIT = {"4": (_OLD,), "5": (_NEW, _OLD)}
"""Order of the layers in a block of transformers' ViT, by the names in files, for each major version of
the library; during version 5 the norms moved before the MLP."""


def hf_orders(dialect: str, version: str | None, names: Iterable[str]) -> list[list[str]]:
    """Return the names of a transformers file in the orders that its code may have, the newest first.

    Args:
        version: version of the library in config.json.

    Raises:
        CheckpointError: the order of this model is not known.
    """
    major, given = (version or "unstated").partition(".")[0], list(names)
    if dialect != "hf-vit" or major not in HF_VIT:
        raise CheckpointError(
            f"the optimiser counts parameters in the order of the code of {dialect} in transformers"
            f" {version or 'of no stated version'}, which safetensors do not keep and which is known for"
            " hf-vit of versions 4 and 5"
        )
    return [sorted(given, key=lambda name: _hf_place(name, inner)) for inner in HF_VIT[major]]


def _hf_place(name: str, inner: tuple[str, ...]) -> tuple[int, int, int, bool]:
    layer, _, leaf = name.rpartition(".")
    if name.startswith("encoder.layer."):
        number, _, place = name.removeprefix("encoder.layer.").partition(".")
        return (
            _OUTER.index("{blocks}"),
            int(number),
            inner.index(place.rpartition(".")[0]),
            leaf == "bias",
        )
    whole = name if name in _OUTER else layer
    return _OUTER.index(whole), 0, 0, leaf == "bias"
