"""The start of a run's parameters: loaded weights, freshly drawn parameters, and frozen ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from vit_config import ConfigError, Preprocess


@dataclass(frozen=True)
class Start:
    """Weights that fit a job's model, with an account of every tensor."""

    name: str
    """The file, or the name on the Hub, as the user gave it."""
    digest: str
    """SHA-256 (hex) of its bytes."""
    part: str | None
    """Name of the model in a file of several, such as ``state_dict_ema``."""
    new_head: bool
    """Whether the user asked for a new head though the old one fits."""
    arrays: Mapping[str, np.ndarray]
    """Weights by common name in PyTorch's layout; missing ones are drawn anew."""
    preprocess: Preprocess | None
    """The preprocessing of these weights; None if unknown."""
    account: tuple[str, ...]
    """Sentences that say which tensors were used, changed, drawn anew and left out."""
    adapter: str | None = None
    """Folder of PEFT whose adapters are among the weights, as the user gave it."""
    provenance: tuple[Any, ...] = ()
    """Origin of the weights, the oldest file first, as the header of a weights file has it: JSON."""

    @property
    def identity(self) -> dict[str, Any]:
        """The facts that fix the initial parameters, as JSON values."""
        preprocess = None if self.preprocess is None else self.preprocess.to_json()
        facts = {"name": self.name, "digest": self.digest, "preprocess": preprocess}
        adapter = {} if self.adapter is None else {"adapter": self.adapter}
        return {**facts, "part": self.part, "new_head": self.new_head, **adapter}


def frozen_names(names: Iterable[str], patterns: Iterable[str]) -> frozenset[str]:
    """Return the frozen parameters' names.

    A pattern is a path with ``*`` and ``?`` as in the shell, where a star also crosses dots:
    ``blocks.*.attn``. It selects the parameter of that name, or all below that path; with a ``!``
    before it, all others. Several patterns add up.

    Raises:
        ConfigError: a pattern matches no parameter, or nothing would be left to train.
    """
    names = list(names)
    frozen: set[str] = set()
    for pattern in patterns:
        path = pattern.removeprefix("!")
        matches = {name for name in names if fnmatchcase(name, path) or fnmatchcase(name, f"{path}.*")}
        if not matches:
            there = dict.fromkeys(re.sub(r"\.\d+\..*", ".*", name) for name in names)
            raise ConfigError(
                f"--freeze {pattern}: matches no parameter; the parameters are {', '.join(there)}"
            )
        frozen |= set(names) - matches if pattern.startswith("!") else matches
    if frozen and len(frozen) == len(names):
        raise ConfigError("--freeze: nothing is left to train; leave a pattern out")
    return frozenset(frozen)
