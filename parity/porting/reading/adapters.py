"""LoRA adapters of PEFT, merged into the weights that they change; none is left out in silence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from parity.porting.dialects import dialects
from parity.porting.dialects.table import role
from parity.porting.formats import open_container
from parity.porting.formats.base import Container, Stored
from parity.porting.formats.weights_folder import ADAPTER, ADAPTER_WEIGHTS, read_json
from parity.porting.opening.provenance import digest_of
from parity.porting.recognition.recognise import has_marks
from vit_config import ConfigError, WeightsError
from vit_config.errors import MissingFileError

PREFIX = "base_model.model."
PART = re.compile(r"\.lora_(?P<part>[AB])(\.(?P<adapter>[^.]+))?\.weight$")
REFUSED = (
    "use_dora", "fan_in_fan_out", "lora_bias", "use_qalora", "layer_replication",
    "alora_invocation_tokens", "arrow_config",
)  # fmt: skip
"""Entries of the config that change the arithmetic; none of them is merged."""
BESIDE_THE_BASE = ("gaussian", "eva", "orthogonal")
"""Named ways to draw A and B that leave the base as it is. Others (pissa, olora, corda, loftq) change
it, and what is saved is a difference from that."""
MOST = 2**53
"""Bound of a rank and of an alpha."""
PATTERN = re.compile(r"[\w.-]+")
"""Keys of patterns that name a layer, and are no regular expressions."""


def files_of(folder: Path) -> tuple[Path, ...]:
    """Return the files of an adapter's folder."""
    return tuple(folder / name for name in (ADAPTER, *ADAPTER_WEIGHTS) if (folder / name).is_file())


def with_adapter(base: Container, adapter: str | Path | None) -> tuple[Container, tuple[str, ...]]:
    """Merge an adapter into the tensors of a checkpoint, and return a note on it.

    Args:
        adapter: the folder that PEFT's ``save_pretrained`` writes; None if there is none.

    Raises:
        ConfigError: an adapter lies beside the weights and none is named, or it is none that is merged.
        WeightsError: a part of the adapter has no layer in the checkpoint, or does not fit it.
        MissingFileError: a file of the adapter is missing.
    """
    if adapter is None:
        beside = base.path if base.path.is_dir() else base.path.parent
        itself = any(file.name in ADAPTER_WEIGHTS for file in base.files)  # refused by its tensors
        if base.files and not itself and (beside / ADAPTER).is_file():
            raise ConfigError(
                f"{base.path}: a LoRA lies beside it ({ADAPTER}) and would be left out; merge it by"
                f" --adapter {beside}, or move it away"
            )
        return base, ()
    folder = Path(adapter)
    config, tensors = read_folder(folder)
    deltas, saved = parts_of(tensors, folder)
    merged, names = dict(base.tensors), {}
    for module, pair in deltas.items():
        name = place_of(f"{module}.weight", base.tensors, folder)
        merged[name] = _merged(name, merged[name], pair, scaling_of(module, pair["A"], config))
        names[name] = module
    for own, stored in saved.items():
        name = place_of(own, base.tensors, folder)
        if merged[name].shape != stored.shape:
            raise WeightsError(f"{folder}: {own} is {stored.shape}, in {base.path} {merged[name].shape}")
        merged[name] = stored
    also = f" and {len(saved)} tensors of its own" if saved else ""
    note = f"merged the LoRA of {folder.name} (sha256 {digest_of([weights_of(folder)])[:12]}) into"
    return replace(base, tensors=merged), (f"{note} {len(names)} layers{also}",)


def read_folder(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Stored]]:
    """Read the config and open the tensors of PEFT's folder.

    Raises:
        ConfigError: it is of another kind than LoRA, or of one with another arithmetic.
        MissingFileError: a file of it is missing.
    """
    if not (folder / ADAPTER).is_file():
        raise MissingFileError(f"{folder}: no {ADAPTER} there; give the folder that PEFT wrote")
    config = read_json(folder / ADAPTER)
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else None
        raise ConfigError(f"{folder / ADAPTER}: peft_type = {kind!r}; only LORA is merged")
    if on := list(_not_merged(config)):
        raise ConfigError(
            f"{folder / ADAPTER}: {', '.join(f'{name} = {config[name]!r}' for name in on)}, which is not"
            " merged here; save what model.merge_and_unload() returns"
        )
    return config, open_container(weights_of(folder)).tensors


def _not_merged(config: Mapping[str, Any]) -> Iterator[str]:
    yield from (name for name in REFUSED if config.get(name))
    drawn = config.get("init_lora_weights")
    if isinstance(drawn, str) and drawn.lower() not in BESIDE_THE_BASE:
        yield "init_lora_weights"
    for name in ("rank_pattern", "alpha_pattern"):
        layers = config.get(name) or {}
        if not isinstance(layers, dict) or not all(map(PATTERN.fullmatch, layers)):
            yield name


def weights_of(folder: Path) -> Path:
    """Return the file of an adapter's tensors. MissingFileError: there is none."""
    for name in ADAPTER_WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise MissingFileError(f"--adapter {folder}: none of {', '.join(ADAPTER_WEIGHTS)} there")


def parts_of(
    tensors: Mapping[str, Stored], folder: Path
) -> tuple[dict[str, dict[str, Stored]], dict[str, Stored]]:
    """Return the matrices A and B by module, and the tensors that replace those of the base."""
    deltas: dict[str, dict[str, Stored]] = {}
    saved: dict[str, Stored] = {}
    for name, stored in tensors.items():
        short = name.removeprefix(PREFIX)
        if match := PART.search(short):
            deltas.setdefault(short[: match.start()], {})[match["part"]] = stored
        elif "lora_" in short:
            raise WeightsError(f"{folder}: {name} is a part of a LoRA that is not merged here")
        else:
            saved[re.sub(r"\.modules_to_save(\.[^.]+)?\.", ".", short).replace(".base_layer.", ".")] = (
                stored
            )
    if alone := [module for module, pair in deltas.items() if pair.keys() != {"A", "B"}]:
        raise WeightsError(f"{folder}: {alone[0]} has one of lora_A and lora_B, not both")
    return deltas, saved


def place_of(own: str, tensors: Mapping[str, Stored], folder: Path) -> str:
    """Return the base's name of a tensor, which may have another prefix there."""
    if own in tensors:
        return own
    names = [n for n in tensors if n.endswith(f".{own}") or own.endswith(f".{n}")]
    names = names or list(_otherwise_spelled(own, tensors))
    if len(names) != 1:
        where = f"{len(names)} layers there have its name" if names else "no layer there has its name"
        raise WeightsError(
            f"{folder}: {own} is a part of the adapter, and {where}; give the checkpoint that it was"
            " trained on, with the names of the library that trained it"
        )
    return names[0]


def _otherwise_spelled(own: str, tensors: Mapping[str, Stored]) -> Iterator[str]:
    """Yield the tensors of the same role, by the other names that a dialect has for it: transformers'
    names in memory are not those of its files."""
    for dialect in dialects():
        if not has_marks(dialect, dialect.within_body(tensors)):
            continue
        short = own.removeprefix(dialect.body)
        roles = {each for table in dialect.tables if (each := role(table, short))}
        for name in tensors:
            short = name.removeprefix(dialect.body)
            if roles & {role(table, short) for table in dialect.tables}:
                yield name
        return


def scaling_of(module: str, a: Stored, config: Mapping[str, Any]) -> float:
    """Return alpha / r of a layer, by PEFT's patterns for single layers."""
    rank = _of_layer(module, config.get("rank_pattern"), config.get("r"))
    alpha = _of_layer(module, config.get("alpha_pattern"), config.get("lora_alpha"))
    numbers = all(type(each) in (int, float) and abs(each) < MOST for each in (rank, alpha))
    if not numbers or rank != a.shape[0]:
        raise WeightsError(
            f"{ADAPTER} says r = {rank}, lora_alpha = {alpha}, and {module} has a rank of {a.shape[0]}"
        )
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _of_layer(module: str, pattern: Any, default: Any) -> Any:
    for key, value in (pattern or {}).items():
        if module == key or module.endswith(f".{key}"):
            return value
    return default


def _merged(name: str, base: Stored, pair: Mapping[str, Stored], scaling: float) -> Stored:
    a, b = pair["A"], pair["B"]
    flat = (base.shape[0], math.prod(base.shape[1:]))
    fits = len(a.shape) == len(b.shape) == len(base.shape) and b.shape[:2] == (flat[0], a.shape[0])
    if not fits or math.prod(a.shape[1:]) != flat[1] or math.prod(b.shape[2:]) != 1:
        raise WeightsError(
            f"{name} has shape {base.shape}, the adapter's lora_A {a.shape} and lora_B {b.shape}"
        )

    def load() -> np.ndarray:
        low, high = (each.load().astype(np.float64).reshape(each.shape[0], -1) for each in (a, b))
        delta = scaling * (high @ low).reshape(base.shape)
        with np.errstate(over="ignore"):  # what is not finite is refused when it is written
            return (base.load().astype(np.float64) + delta).astype(base.dtype)

    return Stored(base.shape, base.dtype, load)
