"""LoRA carried along: PEFT's folder as the adapters that a run here trains, and back.

A run has A (rank, in) and B (out, rank) for each of the twins' linear layers, of one rank and factor.
Where a library has queries, keys and values apart, each B has rows and columns of its own in the joint
one, and zeros elsewhere; a smaller rank is filled with zeros, which have no gradient. Columns of zeros
are left out again on the way back. Both are exact: the product is that of PEFT's matrices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parity.porting.dialects import find_dialects
from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.table import Bound, bind_ours, bind_theirs
from parity.porting.dialects.transfer import write
from parity.porting.formats.base import Stored
from parity.porting.formats.weights_folder import ADAPTER, ADAPTER_WEIGHTS
from parity.porting.reading.adapters import (
    PREFIX,
    head_of,
    parts_of,
    place_of,
    read_folder,
    scaling_of,
)
from parity.porting.reading.checkpoint import Checkpoint
from vit_config import ConfigError, ViTConfig
from vit_config.adapters import HEADS, WEIGHT, A, B
from vit_config.files.atomic import atomic_file, atomic_folder
from vit_config.files.safetensors_stream import write_stream
from vit_config.lora import Lora
from vit_config.parameters import parameters

MERGE = "merge it by `parity convert BASE OUT --adapter DIR` instead"


class _Piece(NamedTuple):
    """One layer of PEFT: rows of a layer of ours."""

    begin: int
    low: np.ndarray  # A (rank, in)
    high: np.ndarray  # B (rows, rank)


def read_lora(base: Checkpoint, folder: str | Path) -> tuple[Lora, dict[str, np.ndarray]]:
    """Read PEFT's folder as adapters of the twins' layers, and the heads that it holds whole.

    Args:
        base: the checkpoint that the adapter was trained on, without it.

    Raises:
        ConfigError: the adapter is none that a run here trains.
        WeightsError: a part of it has no layer in the base, or does not fit it.
        MissingFileError: a file of it is missing.
    """
    folder = Path(folder)
    config, tensors = read_folder(folder)
    deltas, saved = parts_of(tensors, folder)
    places = _places(base)
    layers: dict[str, list[_Piece]] = {}
    scales = set()
    for module, pair in deltas.items():
        name = place_of(f"{module}{WEIGHT}", base.tensors, folder)
        low, high = pair["A"].load(), pair["B"].load()
        path, begin = _layer(places.get(name), name, base, folder)
        scales.add(scaling_of(module, pair["A"], config))
        rows = base.tensors[name].shape
        if low.ndim != 2 or high.shape != (rows[0], len(low)) or low.shape[1:] != rows[1:]:
            raise ConfigError(
                f"{folder}: {module} has A {low.shape} and B {high.shape}, the layer {rows}; {MERGE}"
            )
        layers.setdefault(path, []).append(_Piece(begin, low, high))
    if len(scales) != 1:
        raise ConfigError(f"{folder}: alpha / r is not the same for every layer; {MERGE}")
    rank = max(sum(len(piece.low) for piece in pieces) for pieces in layers.values())
    lora = _lora(scales.pop(), rank, tuple(layers), folder)
    arrays: dict[str, np.ndarray] = {}
    for path, pieces in layers.items():
        arrays[path + A], arrays[path + B] = _joined(pieces, base.arrays[path + WEIGHT].shape, rank)
    for own, stored in saved.items():
        if not (head := head_of(own, base.dialect)):
            raise ConfigError(f"{folder}: {own} is held whole, and no head; {MERGE}")
        arrays[head] = stored.load()
    return lora, arrays


def write_lora(
    cfg: ViTConfig,
    lora: Lora,
    params: Mapping[str, np.ndarray],
    to: str,
    out: str | Path,
    *,
    force: bool = False,
) -> tuple[str, ...]:
    """Write a run's adapters and heads as a folder that PEFT loads onto a library's model.

    Args:
        params: a run's parameters in PyTorch's layout, adapters among them.
        to: the dialect, or the family, of that model.

    Returns:
        The library's names of the layers with adapters.

    Raises:
        ConfigError: the library has no such model, or no single linear layer for an adapter's.
    """
    dialect = _holding(cfg, to)
    tensors: dict[str, np.ndarray] = {}
    left = [name.removesuffix(A) for name in params if name.endswith(A)]
    for one in _in_memory(dialect, cfg):
        ours = one.ours[0] or ""
        if ours.startswith(HEADS):
            tensors |= _parts(one, params[ours], cfg)
        elif ours.removesuffix(WEIGHT) in left and len(one.ours) == 1 and not one.row.layout:
            path = ours.removesuffix(WEIGHT)
            left.remove(path)
            tensors |= dict(_apart(_parts(one, params[path + B], cfg), params[path + A]))
    if left:
        raise ConfigError(f"--to {to}: {left[0]} is no linear layer of {dialect.title}; give --to timm")
    full = dialect.with_body({name: Stored.of(each) for name, each in tensors.items()})
    adapted = {n.removesuffix(".lora_A.weight"): s for n, s in full.items() if ".lora_A." in n}
    heads = sorted({n.rpartition(".")[0] for n in full if ".lora_" not in n})
    ranks = {module: stored.shape[0] for module, stored in adapted.items()}
    alphas = {module: _alpha(lora.scale, rank, str(out)) for module, rank in ranks.items()}
    config = {
        "peft_type": "LORA", "task_type": None, "base_model_name_or_path": None, "bias": "none",
        "inference_mode": True, "r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": 0.0,
        "target_modules": sorted(adapted), "rank_pattern": ranks, "alpha_pattern": alphas,
        "modules_to_save": heads or None, "use_rslora": False, "fan_in_fan_out": False,
    }  # fmt: skip
    with atomic_folder(Path(out), force=force) as folder:
        named = {f"{PREFIX}{name}": each for name, each in full.items()}
        with atomic_file(folder / ADAPTER_WEIGHTS[0]) as file:
            write_stream(file, named, {"format": "pt"}, sealed=False)
        (folder / ADAPTER).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return tuple(adapted)


def _in_memory(dialect: Dialect, cfg: ViTConfig) -> list[Bound]:
    """Match a model's parameters with the library's names of modules, which PEFT takes: of several
    tables, those of a dialect in memory are the last."""
    tried = [bind_ours(table, cfg, parameters(cfg)) for table in dialect.tables]
    return next(bound for bound, left in reversed(tried) if not left)


def _places(base: Checkpoint) -> dict[str, Bound]:
    """Return the matched row of each of the base's tensors."""
    shapes = {name: each.shape for name, each in base.tensors.items()}
    tables = (bind_theirs(table, shapes) for table in base.dialect.tables)
    bound, _ = min(tables, key=lambda result: len(result[1]))
    return {name: one for one in bound for name in one.theirs}


def _layer(one: Bound | None, name: str, base: Checkpoint, folder: Path) -> tuple[str, int]:
    """Return the path of our layer that a tensor of theirs is a part of, and its first row there."""
    ours = one.ours[0] if one else None
    if one is None or len(one.ours) != 1 or one.row.layout or not ours or ours.startswith(HEADS):
        raise ConfigError(f"{folder}: {name} is no linear layer before the head; {MERGE}")
    before = one.theirs[: one.theirs.index(name)]
    return ours.removesuffix(WEIGHT), sum(base.tensors[each].shape[0] for each in before)


def _joined(pieces: list[_Piece], shape: tuple[int, ...], rank: int) -> tuple[np.ndarray, np.ndarray]:
    dtype = np.result_type(*(each.dtype for piece in pieces for each in (piece.low, piece.high)))
    low, high, at = np.zeros((rank, shape[1]), dtype), np.zeros((shape[0], rank), dtype), 0
    for piece in pieces:
        own = len(piece.low)
        low[at : at + own] = piece.low
        high[piece.begin : piece.begin + len(piece.high), at : at + own] = piece.high
        at += own
    return low, high


def _apart(parts: Mapping[str, np.ndarray], low: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield A and B of each layer of theirs, without the columns of B that are zero there alone."""
    fresh = not any(each.any() for each in parts.values())
    for name, high in parts.items():
        used = np.full(len(low), True) if fresh else high.any(axis=0)
        if used.any():
            module = name.removesuffix(WEIGHT)
            yield f"{module}.lora_A.weight", np.ascontiguousarray(low[used])
            yield f"{module}.lora_B.weight", np.ascontiguousarray(high[:, used])


def _parts(one: Bound, array: np.ndarray, cfg: ViTConfig) -> dict[str, np.ndarray]:
    """Cut rows of ours into theirs."""
    parts = write([one], {one.ours[0] or "": Stored.of(array)}, cfg)
    return {name: stored.load() for name, stored in parts.items()}


def _holding(cfg: ViTConfig, to: str) -> Dialect:
    every = [each for each in find_dialects(to) if each.writes]
    candidates = [each for each in every if not each.problems(cfg)]
    if not candidates:
        reason = next(iter(every[0].problems(cfg).values())) if every else "it is read only"
        raise ConfigError(f"--to {to}: no model of it is this one ({reason})")
    return candidates[0]


def _lora(scale: float, rank: int, targets: tuple[str, ...], folder: Path) -> Lora:
    return Lora(rank=rank, alpha=_alpha(scale, rank, str(folder)), targets=targets)


def _alpha(scale: float, rank: int, where: str) -> float:
    """Return alpha for which alpha / rank is exactly the factor."""
    near = scale * rank
    for alpha in (near, np.nextafter(near, 0), np.nextafter(near, np.inf)):
        if alpha / rank == scale:
            return float(alpha)
    raise ConfigError(f"{where}: no alpha has alpha / {rank} = {scale!r}; {MERGE}")
