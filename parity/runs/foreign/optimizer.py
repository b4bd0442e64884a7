"""Parsing of a torch optimiser's state dict into parameter groups and state of each parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parity.porting.formats.base import Stored
from parity.runs.foreign.entries import Entries, plain
from vit_config.errors import CheckpointError


@dataclass(frozen=True)
class Group:
    """A parameter group: parameters updated with the same hyperparameters."""

    options: dict[str, Any]
    """Hyperparameters such as ``lr`` and ``weight_decay``."""
    indices: tuple[int, ...]
    """The numbers that torch gave the parameters."""
    names: tuple[str, ...] | None
    """Names of the parameters, if the optimiser was built from named ones."""


@dataclass(frozen=True)
class OptimizerState:
    """The content of ``optimizer.state_dict()``; tensors are not read."""

    groups: tuple[Group, ...]
    state: dict[int, dict[str, Any]]
    """State of each parameter by its number: tensors as `Stored`, other values as numbers."""

    @property
    def count(self) -> int:
        """Number of parameters."""
        return sum(len(group.indices) for group in self.groups)

    def shape(self, index: int) -> tuple[int, ...] | None:
        """Return the shape of a parameter by its moments; None if it has none."""
        values = self.state.get(index, {}).values()
        return next((each.shape for each in values if isinstance(each, Stored) and each.shape), None)


def read_optimizer(entries: Entries) -> OptimizerState:
    """Parse a state dict.

    Raises:
        CheckpointError: the entries are no state dict of a torch optimiser, or contradict themselves.
    """
    state: dict[int, dict[str, Any]] = {}
    options: dict[int, dict[str, Any]] = {}
    for name, value in entries.items():
        part, _, rest = name.partition(".")
        number, _, key = rest.partition(".")
        if part == "state" and rest and not number.isdigit():
            raise CheckpointError(
                f"the optimiser keeps its state under {rest!r}, not under a number; save"
                " optimizer.state_dict() of one process"
            )
        if part == "state" and key:
            entry = value if isinstance(value, Stored) and value.shape else plain(value)
            state.setdefault(int(number), {})[key] = entry
        elif part == "param_groups" and number.isdigit():
            _put(options.setdefault(int(number), {}), key, value)
    if sorted(options) != list(range(len(options))) or not options:
        raise CheckpointError("no state of a torch optimiser: it has no param_groups")
    groups = tuple(_group(options[number]) for number in sorted(options))
    numbers = [index for group in groups for index in group.indices]
    if len(set(numbers)) != len(numbers):
        raise CheckpointError("a parameter is in two groups of the optimiser; the file is damaged")
    if strange := sorted(state.keys() - set(numbers)):
        raise CheckpointError(
            f"the optimiser keeps a state of parameter {strange[0]}, which is in none of its groups"
        )
    return OptimizerState(groups, state)


def _put(options: dict[str, Any], key: str, value: Any) -> None:
    name, _, place = key.partition(".")
    if place.isdigit():
        options.setdefault(name, []).append(plain(value))
    else:
        options[name] = plain(value)


def _group(options: dict[str, Any]) -> Group:
    indices, names = options.pop("params", None), options.pop("param_names", None)
    if not isinstance(indices, list) or not all(type(each) is int for each in indices):
        raise CheckpointError("a group of the optimiser does not say which parameters are in it")
    if names is not None and len(names) != len(indices):
        raise CheckpointError(
            f"a group of the optimiser has {len(indices)} parameters and {len(names)} names of such"
        )
    return Group(options, tuple(indices), None if names is None else tuple(names))
