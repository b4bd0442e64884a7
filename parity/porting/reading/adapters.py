"""LoRA adapters of PEFT, merged into the weights that they change; none is left out in silence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from parity.porting.dialects import dialects
from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.table import role
from parity.porting.formats import open_container
from parity.porting.formats.base import Stored
from parity.porting.formats.weights_folder import ADAPTER, ADAPTER_WEIGHTS, read_json
from parity.porting.opening.opened import Opened
from parity.porting.opening.provenance import digest_of
from parity.porting.recognition.recognise import Model, has_marks
from vit_config import ConfigError, WeightsError
from vit_config.adapters import HEADS
from vit_config.errors import MissingFileError

PREFIX = "base_model.model."
PART = re.compile(r"\.lora_(?P<part>[AB])(\.(?P<adapter>[^.]+))?\.weight$")
WHOLE = re.compile(r"\.modules_to_save(\.(?P<adapter>[^.]+))?(?=\.(weight|bias)$)")
TWICE = ".base_layer.out_proj.lora_"
"""Part of the names of what peft/tuners/lora/layer.py, MultiheadAttention.merge, adds once more."""
KNOWN = frozenset(
    (
        "peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
        "inference_mode", "r", "lora_alpha", "lora_dropout", "use_rslora", "rank_pattern",
        "alpha_pattern", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
        "modules_to_save", "bias", "init_lora_weights", "loftq_config", "eva_config", "corda_config",
        "lora_ga_config", "megatron_config", "megatron_core", "qalora_group_size", "runtime_config",
        "ensure_weight_tying",
    )
)  # fmt: skip
"""Entries of the config that leave the arithmetic as it is, or that are read; any other one that is set
is refused by its name: DoRA, several experts, biases of A and B."""
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


def with_adapter(
    opened: Opened, adapter: str | Path | None, find: Callable[[], Model]
) -> tuple[Opened, tuple[str, ...]]:
    """Merge an adapter into the tensors of a checkpoint, and return notes on it.

    A head that the adapter holds whole takes the place of the checkpoint's, or is put on where there is
    none, whatever its number of classes.

    Args:
        adapter: the folder that PEFT's ``save_pretrained`` writes; None if there is none.
        find: finds the model in the checkpoint; called if a head does not fit.

    Raises:
        ConfigError: an adapter lies beside the weights and none is named, or it is none that is merged.
        WeightsError: a part of the adapter has no layer in the checkpoint, or does not fit it.
        MissingFileError: a file of the adapter is missing.
    """
    base = opened.container
    if adapter is None:
        beside = base.path if base.path.is_dir() else base.path.parent
        itself = any(file.name in ADAPTER_WEIGHTS for file in base.files)  # refused by its tensors
        if base.files and not itself and (beside / ADAPTER).is_file():
            raise ConfigError(
                f"{base.path}: a LoRA lies beside it ({ADAPTER}) and would be left out; merge it by"
                f" --adapter {beside}, or move it away"
            )
        return opened, ()
    folder = Path(adapter)
    config, tensors = read_folder(folder)
    deltas, saved = parts_of(tensors, folder)
    merged, names = dict(base.tensors), {}
    for module, pair in deltas.items():
        name = place_of(f"{module}.weight", base.tensors, folder)
        merged[name] = _merged(name, merged[name], pair, scaling_of(module, pair["A"], config))
        names[name] = module
    classes = None
    for own, stored in saved.items():
        places = _places(own, base.tensors)
        if len(places) == 1 and merged[places[0]].shape == stored.shape:
            merged[places[0]] = stored
            continue
        model = find()
        if not (head := head_of(own, model.dialect)):
            name = place_of(own, base.tensors, folder)
            raise WeightsError(f"{folder}: {own} is {stored.shape}, in {base.path} {merged[name].shape}")
        short = own.removeprefix(model.dialect.body)
        merged[f"{model.branch}.{short}" if model.branch else short] = stored
        classes = stored.shape[0] if head.endswith(".weight") else classes
    also = f" and {len(saved)} tensors of its own" if saved else ""
    also += f", a head of {classes} classes" if classes else ""
    note = f"merged the LoRA of {folder.name} (sha256 {digest_of([weights_of(folder)])[:12]}) into"
    opened = replace(opened, container=replace(base, tensors=merged), classes=classes)
    return opened, (f"{note} {len(names)} layers{also}", *_note_others(folder))


def head_of(own: str, dialect: Dialect) -> str:
    """Return the twins' name of a head's tensor by its name in a dialect; empty of any other tensor."""
    roles = (role(table, own.removeprefix(dialect.body)) for table in dialect.tables)
    names = (each[0][0] or "" for each in roles if each and len(each[0]) == 1)
    leaf = own.rpartition(".")[2]  # a projection without one is transposed
    return next((name for name in names if name.startswith(HEADS) and name.endswith(f".{leaf}")), "")


def _others(folder: Path) -> list[str]:
    """Return the folders of further adapters, which PEFT writes into that of the first."""
    return sorted(each.parent.name for each in folder.glob(f"*/{ADAPTER}"))


def _note_others(folder: Path) -> tuple[str, ...]:
    others = _others(folder)
    return (f"left out the other adapters in {folder.name}: {', '.join(others)}",) if others else ()


def read_folder(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Stored]]:
    """Read the config and open the tensors of PEFT's folder.

    Raises:
        ConfigError: it is of another kind than LoRA, or of one with another arithmetic.
        MissingFileError: a file of it is missing.
    """
    if not (folder / ADAPTER).is_file():
        others = _others(folder)
        advice = f"one of those in it: {', '.join(others)}" if others else "the folder that PEFT wrote"
        raise MissingFileError(f"{folder}: no {ADAPTER} there; give {advice}")
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
    yield from (name for name, value in config.items() if value and name not in KNOWN)
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
    """Return the matrices A and B by module, and the tensors that replace those of the base.

    Raises:
        WeightsError: there are several adapters, or parts of another kind.
    """
    deltas: dict[str, dict[str, Stored]] = {}
    saved: dict[str, Stored] = {}
    adapters = set()
    for name, stored in tensors.items():
        if ".original_module." in name:  # what modules_to_save took the place of
            continue
        short = name.removeprefix(PREFIX).replace(".base_layer.", ".")
        if (match := PART.search(short)) and TWICE not in name:
            deltas.setdefault(short[: match.start()], {})[match["part"]] = stored
        elif TWICE in name:
            raise WeightsError(
                f"{folder}: {name} is of a LoRA on torch's MultiheadAttention, whose out_proj PEFT adds"
                " twice; it is not merged here, save what model.merge_and_unload() returns"
            )
        elif "lora_" in short:
            raise WeightsError(f"{folder}: {name} is a part of a LoRA that is not merged here")
        else:
            match = WHOLE.search(short)
            saved[WHOLE.sub("", short)] = stored
        adapters |= {match["adapter"]} if match else set()
    if len(adapters) > 1:
        names = ", ".join(sorted(each or "one without a name" for each in adapters))
        raise WeightsError(
            f"{folder}: holds several adapters, {names}; save the one that counts by"
            " model.save_pretrained(DIR, selected_adapters=[NAME])"
        )
    if alone := [module for module, pair in deltas.items() if pair.keys() != {"A", "B"}]:
        raise WeightsError(f"{folder}: {alone[0]} has one of lora_A and lora_B, not both")
    return deltas, saved


def place_of(own: str, tensors: Mapping[str, Stored], folder: Path) -> str:
    """Return the base's name of a tensor, which may have another prefix there."""
    names = _places(own, tensors)
    if len(names) != 1:
        where = f"{len(names)} layers there have its name" if names else "no layer there has its name"
        raise WeightsError(
            f"{folder}: {own} is a part of the adapter, and {where}; give the checkpoint that it was"
            " trained on, with the names of the library that trained it"
        )
    return names[0]


def _places(own: str, tensors: Mapping[str, Stored]) -> list[str]:
    if own in tensors:
        return [own]
    names = [n for n in tensors if n.endswith(f".{own}") or own.endswith(f".{n}")]
    return names or list(_otherwise_spelled(own, tensors))


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
