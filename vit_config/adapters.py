"""Low-rank adapters (LoRA, arXiv 2106.09685): a weight W is W + (alpha / rank) B A, and only A and B are
trained.

Adapters are parameters beside the model's, ``PATH.lora_a`` (rank, in) and ``PATH.lora_b`` (out,
rank) of ``PATH.weight``, in PyTorch's layout in both frameworks. The model itself does not know
them: a step merges them into the weights before it calls the model, and so does the export.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from vit_config.errors import ConfigError
from vit_config.lora import Lora
from vit_config.parameters import parameters
from vit_config.schema import ViTConfig

A, B = ".lora_a", ".lora_b"
WEIGHT = ".weight"
HEADS = ("head.", "head_dist.")
"""Prefixes of layers trained without adapters: a new task has new heads."""


def adapted_layers(lora: Lora, cfg: ViTConfig) -> dict[str, tuple[int, ...]]:
    """Return the path of each layer that has adapters, with its weight's shape (out, in).

    Raises:
        ConfigError: a pattern matches no linear layer's path.
    """
    linear = {
        name.removesuffix(WEIGHT): each.shape
        for name, each in parameters(cfg).items()
        if each.kind == "linear" and name.endswith(WEIGHT) and not name.startswith(HEADS)
    }
    matches: dict[str, Any] = {}
    for pattern in lora.targets:
        layers = {
            path: shape
            for path, shape in linear.items()
            if fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*")
        }
        if not layers:
            raise ConfigError(
                f"--lora-targets {pattern}: no linear layer has such a path; there are"
                f" {', '.join(dict.fromkeys(path.replace('.0.', '.*.', 1) for path in linear))}"
            )
        matches |= layers
    return {path: shape for path, shape in linear.items() if path in matches}


def draw_adapters(lora: Lora | None, cfg: ViTConfig, seed: int) -> dict[str, np.ndarray]:
    """Draw adapters before the first update, float64: A uniform within 1 / sqrt(in), as torch begins
    a linear layer and as Microsoft's loralib, B zero, so that nothing is changed yet; {} without
    `lora`."""
    if lora is None:
        return {}
    drawn = {}
    stream = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 0x10AA])))
    for path, (rows, columns) in adapted_layers(lora, cfg).items():
        bound = columns**-0.5
        drawn[path + A] = bound * (2.0 * stream.random((lora.rank, columns)) - 1.0)
        drawn[path + B] = np.zeros((rows, lora.rank))
    return drawn


def is_adapter(name: str) -> bool:
    """Return whether a parameter is an adapter's."""
    return name.endswith((A, B))


def untrained_names(lora: Lora | None, cfg: ViTConfig) -> frozenset[str]:
    """Return the model's parameters that are not trained beside adapters: all but its heads."""
    if lora is None:
        return frozenset()
    return frozenset(name for name in parameters(cfg) if not name.startswith(HEADS))


def merge_adapters(params: Mapping[str, Any], lora: Lora | None, *, transposed: bool) -> dict[str, Any]:
    """Merge adapters into the model's own parameters, by the operators of the given arrays or tensors.

    Args:
        params: arrays or tensors by common name, adapters among them.
        transposed: whether weights are (in, out), as JAX has them.
    """
    if lora is None:
        return dict(params)
    own = {name: value for name, value in params.items() if not is_adapter(name)}
    for name, b in params.items():
        if name.endswith(B):
            path = name.removesuffix(B)
            change = b @ params[path + A]  # (out, in)
            weight = own[path + WEIGHT]  # over a mesh perhaps (in, 3, heads, head_dim)
            change = (change.T if transposed else change).reshape(weight.shape)
            own[path + WEIGHT] = weight + lora.scale * change
    return own


def export_params(
    params: Mapping[str, np.ndarray], lora: Lora | None, *, transposed: bool
) -> dict[str, np.ndarray]:
    """Return a run's parameters without adapters, merged in float64 and rounded once."""
    if lora is None:
        return dict(params)
    exact = {name: value.astype(np.float64) for name, value in params.items()}
    whole = merge_adapters(exact, lora, transposed=transposed)
    return {name: value.astype(params[name].dtype) for name, value in whole.items()}
