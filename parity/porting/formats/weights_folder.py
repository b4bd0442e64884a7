"""Checkpoint folders: search for the weights' file, shards, and the JSON files beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from parity.measure.shown import first_few
from parity.porting.formats import suffixes
from parity.porting.formats.base import Container
from parity.porting.formats.budget import Budget, budget_of
from vit_config.errors import MissingFileError, WeightsError
from vit_config.files.foreign import MOST_ENTRIES, parse_json, read_text
from vit_config.files.stored import guarded

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_pytorch_model.bin",
    "flax_model.msgpack",
    "model.weights.h5",
    "weights.eqx",
)
"""Names of weights files in a folder, the preferred first. They are looked for in this order, in a
folder and on the Hub; then, in a folder, the weights that a run ended with; then the only file or index
that can be weights, such as those of a variant (fp16). Several of these are refused, and named."""

OTHERS = (suffixes.PROGRAMS["onnx"], ".npy")
"""Suffixes of files that cannot be read; one is opened, for its precise error, if there is no other."""

PROGRAM = "saved_model.pb"
"""File of TensorFlow that holds a program with its weights."""

SHARD = ".distcp"
"""Suffix of a shard of torch.distributed.checkpoint."""

DEEPSPEED = ("zero_to_fp32.py", "mp_rank_*_model_states.pt", "zero_pp_rank_*_states.pt")
"""Patterns of files in a folder of DeepSpeed's; the first joins the pieces of ZeRO."""

OF_A_RUN = ("run.json", "weights.safetensors")
"""The files that a training run writes first and last."""

SIDECARS = (
    "config.json",
    "preprocessor_config.json",
    "open_clip_config.json",
    "trainer_state.json",
    "task.json",
)
"""JSON files that describe the weights."""

TASK = "task.weights.h5"
"""File of KerasHub that holds the layers around a backbone, such as its classifier."""

ADAPTER = "adapter_config.json"
"""File that PEFT writes beside the weights of an adapter."""
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
"""JSON files that turn texts into tokens; read when texts are given."""


def find_weights(folder: Path) -> Path:
    """Find the file in a folder that holds the weights, or the index of their shards.

    Raises:
        MissingFileError: the folder has none of the known names, no single file that looks like weights,
            and no file of a known kind that cannot be read.
        WeightsError: it holds shards of torch.distributed.checkpoint or DeepSpeed, or a SavedModel.
    """
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    manifest, exported = (folder / name for name in OF_A_RUN)
    if manifest.is_file() and exported.is_file():
        return exported
    if any(folder.glob(f"*{SHARD}")):
        raise WeightsError(in_shards(folder))
    if any(any(folder.glob(pattern)) for pattern in DEEPSPEED):
        raise WeightsError(
            f"{folder}: is a checkpoint of DeepSpeed; where {DEEPSPEED[0]} lies, `python {DEEPSPEED[0]}"
            " . OUT` joins it: give OUT; without ZeRO 3 give mp_rank_00_model_states.pt, which is whole"
        )
    alone = _models_in(folder)
    if len(alone) == 1 or (alone and all(suffixes.SHARD.fullmatch(each.name) for each in alone)):
        return alone[0]  # of files of a model without their index, one, for its precise error
    others = sorted(each for each in folder.iterdir() if each.suffix in OTHERS and each.is_file())
    if others and not alone and not manifest.is_file():
        return others[0]
    if manifest.is_file():
        raise MissingFileError(
            f"{folder}: is a training run without {exported.name} yet; let it end, or take its newest"
            f" checkpoint by `parity convert {folder} OUT.safetensors --to parity`"
        )
    if (folder / PROGRAM).is_file():
        raise WeightsError(
            f"{folder}: is a SavedModel of TensorFlow, a program; give the weights that it was made of"
        )
    if len(alone) > 1:
        raise MissingFileError(
            f"{folder}: none of {', '.join(WEIGHTS)}, and {len(alone)} files can be the weights:"
            f" {first_few([each.name for each in alone], 5)}; give the path of the file itself"
        )
    inside = _folders_with_weights(folder)
    hint = (
        f"give one of the folders in it, as {inside[-1]}"
        if inside
        else "give the path of the file itself"
    )
    raise MissingFileError(
        f"{folder}: none of {', '.join(WEIGHTS)} and no Orbax checkpoint in this folder; {hint}"
    )


def _folders_with_weights(folder: Path) -> list[str]:
    """List the folders below that have weights, by name, numbers in names as numbers.

    A Trainer, a pipeline and the Hub's cache have such folders.
    """
    below = (each for level in ("*", "snapshots/*") for each in folder.glob(level) if each.is_dir())
    found = (
        str(each.relative_to(folder))
        for each in below
        if each.name.startswith("checkpoint-") or any((each / name).is_file() for name in WEIGHTS)
    )
    return sorted(found, key=lambda name: [part.zfill(12) for part in re.split(r"(\d+)", name)])


def index_of(path: Path) -> Path | None:
    """Find the index of a model's files, given one of several by its name; None for any other file.

    Raises:
        MissingFileError: there is no index beside it.
    """
    named = suffixes.SHARD.fullmatch(path.name)
    if named is None or int(named[3]) < 2:
        return None
    index = path.with_name(f"{named[1]}{named[4]}.index.json")
    if index.is_file():
        return index
    beside = [each for each in _indices(path.parent) if path.name in _shards_of(each)]
    if len(beside) == 1:
        return beside[0]
    if beside:
        names = ", ".join(each.name for each in beside)
        raise WeightsError(f"{path}: is a file of several models; give the index of one: {names}")
    raise MissingFileError(
        f"{path}: is {int(named[2])} of {int(named[3])} files of a model, and no {index.name} is beside"
        " it, to say what is in which; put that and all the files into one folder"
    )


def _indices(folder: Path) -> list[Path]:
    return sorted(each for each in folder.glob("*.index*.json") if suffixes.INDEX.fullmatch(each.name))


def _shards_of(index: Path) -> set[Any]:
    """Return the files that an index names; none if it is damaged, which `read_shards` tells."""
    try:
        content = read_json(index)
        return set(content["weight_map"].values())
    except (WeightsError, TypeError, KeyError, AttributeError):
        return set()


def _models_in(folder: Path) -> list[Path]:
    """Return the files and indices in a folder that can be weights, each model once, in order."""
    indices = _indices(folder)
    pieces = {name for each in indices for name in _shards_of(each)}
    files = (each for each in sorted(folder.iterdir()) if each.name.endswith(suffixes.WEIGHTS))
    return [*indices, *(each for each in files if each.name not in pieces and each.is_file())]


def with_task(folder: Path, backbone: Container, read: Callable[[Path, Budget], Container]) -> Container:
    """Add the layers that KerasHub keeps in a file of their own, if there is one.

    Args:
        read: a function that reads one file within a budget.
    """
    path = folder / TASK
    if not path.is_file() or path in backbone.files:
        return backbone
    head = read(path, budget_of(path, [path]))
    layers = {name: each for name, each in head.tensors.items() if name.startswith("layers/")}
    return replace(backbone, files=(*backbone.files, path), tensors={**layers, **backbone.tensors})


def in_shards(folder: Path) -> str:
    """Say that a folder is of torch.distributed.checkpoint, and how to join it to one file."""
    return (
        f"{folder}: is a checkpoint of torch.distributed.checkpoint, in shards; give the folder, with"
        " the file .metadata, which says what is in which shard"
    )


def read_sidecars(folder: Path) -> dict[str, Any]:
    """Read the JSON files of a folder that describe its weights, by file name.

    Raises:
        WeightsError: a file is not JSON; the message names the line.
    """
    contents, left = {}, MOST_ENTRIES
    for path in (folder / name for name in SIDECARS if (folder / name).is_file()):
        with guarded(path, "JSON file"):
            text = read_text(path)
            contents[path.name] = _parsed(path, text, left)
        left -= text.count(",")
    return contents


def read_json(path: Path) -> Any:
    """Read a JSON file. WeightsError: it is not JSON; the message names the line."""
    with guarded(path, "JSON file"):
        return _parsed(path, read_text(path), MOST_ENTRIES)


def _parsed(path: Path, text: str, entries: int) -> Any:
    try:
        return parse_json(text, entries=entries)
    except json.JSONDecodeError as error:
        raise WeightsError(f"{path}: not valid JSON at line {error.lineno}: {error.msg}") from None


def read_shards(index: Path, read: Callable[[Path, Budget], Container]) -> Container:
    """Read a model in several files, with an index that says which tensor is in which file.

    Args:
        read: a function that reads one file within a budget.

    Raises:
        MissingFileError: a file that the index names is missing.
        WeightsError: the index is malformed, names a file outside of its folder, or files and index do
            not hold the same tensors.
    """
    content = read_json(index)
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise WeightsError(f"{index}: no weight_map that says which tensor is in which file")
    paths = {name: _shard(index, name) for name in sorted(set(places.values()))}
    if not paths:
        raise WeightsError(f"{index}: names no file at all")
    budget = budget_of(index, paths.values())
    shards = {name: read(path, budget) for name, path in paths.items()}
    _check_index(index, places, shards)
    tensors = {name: shards[file].tensors[name] for name, file in places.items()}
    objects = {key: value for shard in shards.values() for key, value in shard.objects.items()}
    metadata = {key: value for shard in shards.values() for key, value in shard.metadata.items()}
    kind = f"{next(iter(shards.values())).kind} ({len(shards)} shards)"
    files = tuple(shard.path for shard in shards.values())
    return Container(index, files, kind, tensors, objects, metadata)


def _shard(index: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\\" in name or "\0" in name:
        raise WeightsError(
            f"{index}: names the file {name}, which is not in its folder; do not trust it"
        )
    path = index.parent.joinpath(*parts)
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file, but {index.name} names it; download it too")
    return path


def _check_index(index: Path, places: dict[str, str], shards: dict[str, Container]) -> None:
    problems = [
        f"{name} is not in {file}" for name, file in places.items() if name not in shards[file].tensors
    ]
    problems += [
        f"{name} in {file} is not in the index"
        for file, shard in shards.items()
        for name in shard.tensors
        if places.get(name) != file
    ]
    if problems:
        raise WeightsError(
            f"{index}: {len(problems)} tensors where index and files disagree:"
            f" {'; '.join(problems[:8])}; download index and files again"
        )
