"""Reads the optimiser of a recipe from torch's parameter groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.runs.foreign.groups import decay_of
from parity.runs.foreign.optimizer import Group, OptimizerState
from parity.runs.foreign.statements import GROUPS, Statements
from vit_config import Recipe
from vit_config.errors import CheckpointError
from vit_config.recipe import is_decayed

NEUTRAL = {"amsgrad": False, "maximize": False, "dampening": 0, "correct_bias": True, "lr_scale": 1.0}
"""Options that a recipe cannot express, with the values at which they have no effect."""
SILENT = ("foreach", "fused", "capturable", "differentiable")
"""Options that change how torch computes, not the result."""
READ = ("lr", "initial_lr", "weight_decay", "betas", "eps", "momentum", "nesterov")
DECOUPLED = "decoupled_weight_decay"


def say_groups(stated: Statements, optimizer: OptimizerState) -> None:
    """State what the groups contain: kind of optimiser, hyperparameters, peak learning rate, decay.

    ``decoupled_weight_decay``, which torch writes since 2.7, tells AdamW from Adam. In older files the
    two are the same without weight decay, and the kind is left open with it.

    Raises:
        CheckpointError: a recipe cannot express an option, or groups differ in more than weight decay.
    """
    options = _shared(optimizer.groups)
    for name, value in options.items():
        if name in NEUTRAL and value != NEUTRAL[name]:
            raise CheckpointError(
                f"{name} = {value} in {GROUPS}, which no recipe can express; only {NEUTRAL[name]} can"
                " be carried over"
            )
        if name not in (*NEUTRAL, *SILENT, *READ, DECOUPLED):
            raise CheckpointError(
                f"{name} = {value} in {GROUPS}: the optimiser is none of torch's AdamW, Adam and SGD"
            )
    strengths = sorted({decay_of(group) for group in optimizer.groups})
    if len(strengths) > 2 or (len(strengths) == 2 and strengths[0] != 0.0):
        raise CheckpointError(
            f"{GROUPS} have the weight decays {', '.join(map(str, strengths))}; a recipe has at most"
            " one besides zero"
        )
    stated.say(GROUPS, weight_decay=strengths[-1])
    if "initial_lr" in options:
        stated.say(GROUPS, learning_rate=float(options["initial_lr"]))
    if "betas" in options and "amsgrad" in options:
        beta1, beta2 = options["betas"]
        stated.say(GROUPS, beta1=beta1, beta2=beta2, adam_eps=options["eps"])
        if DECOUPLED in options:
            stated.say(GROUPS, optimizer="adamw" if options[DECOUPLED] else "adam")
    elif {"momentum", "dampening", "nesterov"} <= options.keys():
        stated.say(GROUPS, optimizer="sgd", momentum=float(options["momentum"]))
        stated.say(GROUPS, nesterov=bool(options["nesterov"]))
    else:
        raise CheckpointError(
            f"{GROUPS} have {', '.join(options)}: the optimiser is none of torch's AdamW, Adam and SGD"
        )


def _shared(groups: tuple[Group, ...]) -> dict[str, Any]:
    """Return the options common to all groups, without weight decay; refuse groups that differ."""
    first = {name: value for name, value in groups[0].options.items() if name != "weight_decay"}
    for group in groups[1:]:
        for name in first.keys() | (group.options.keys() - {"weight_decay"}):
            one, other = first.get(name), group.options.get(name)
            if one != other:
                raise CheckpointError(
                    f"{GROUPS} differ in {name}, {one} and {other}; a recipe has one for all parameters"
                )
    return first


def say_undecayed(stated: Statements, recipe: Recipe | None) -> None:
    """State Adam or AdamW, as the user's recipe has it, if nothing decays: then both are the same."""
    if "optimizer" not in stated and "beta1" in stated and stated.get("weight_decay") == 0.0:
        name = "adam" if recipe is not None and recipe.optimizer == "adam" else "adamw"
        stated.say(f"{GROUPS}, where nothing decays", optimizer=name)


def say_decay(
    stated: Statements,
    decays: Mapping[str, bool],
    params: Mapping[str, np.ndarray],
    recipe: Recipe | None,
) -> None:
    """State which parameters decay, by a recipe's rule that selects exactly these, or by their names.

    Args:
        decays: whether each parameter decays, by the twins' names.
        recipe: the user's recipe, whose own rule is kept.

    Raises:
        CheckpointError: the user's recipe contradicts the groups; the message names a parameter.
    """
    strength = stated.get("weight_decay")
    if not strength:
        return
    rules = [Recipe(weight_decay=strength, decay=rule) for rule in ("matrices", "not_vectors", "all")]
    if recipe is not None and recipe.model_fields_set & {"decay", "decayed"}:
        for name, value in params.items():
            if is_decayed(recipe, name, value.ndim) != decays[name]:
                raise CheckpointError(
                    f"changed recipe: {name} {_word(decays[name])} in {GROUPS}, against decay ="
                    f' "{recipe.decay}" of the recipe; leave it out or start a new run'
                )
        stated.say(GROUPS, decay=recipe.decay, decayed=recipe.decayed)
        return
    for rule in rules:
        if all(is_decayed(rule, name, params[name].ndim) == decays[name] for name in params):
            stated.say(GROUPS, decay=rule.decay)
            return
    names = tuple(name for name in params if decays[name])
    stated.say(GROUPS, decay="listed", decayed=names)


def _word(decays: bool) -> str:
    return "decays" if decays else "does not decay"
