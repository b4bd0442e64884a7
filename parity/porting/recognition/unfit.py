"""Refusals of tensors that are not plain weights: LoRA, shards, quantised weights, models of videos.

Each message names the kind and says how to turn the file into weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from parity.porting.formats.base import Stored

Tensors = Mapping[str, Stored]

LORA = re.compile(r"(^|[./])lora_(embedding_)?[AB]([./]|$)")
SHARD = re.compile(r"(^|[./])_?flat_param(_\d+)?$")
QUANTISERS = {
    "bitsandbytes, in 8 bits": re.compile(r"\.(SCB|weight_format)$"),
    "bitsandbytes, in 4 bits": re.compile(r"\.(quant_state\.[\w.]+|absmax|nested_absmax|quant_map)$"),
    "GPTQ or AWQ": re.compile(r"\.(qweight|qzeros|g_idx)$"),
    "optimum-quanto": re.compile(r"\.weight\._(data|scale|scale_shift)$"),
}
"""Names that only quantised weights have beside them, by quantiser."""
SCALE = re.compile(r"(^|[._/])scales?(_inv)?$|scale_weight$|_scale(_inv)?$")
PATCHES = re.compile(r"patch|tubelet|conv_proj|(^|[./])conv1\.")


def unfit(tensors: Tensors) -> str:
    """Say why a model's tensors are not plain weights; empty if they are."""
    return next(filter(None, (look(tensors) for look in LOOKS)), "")


def _adapted(tensors: Tensors) -> str:
    lora = [name for name in tensors if LORA.search(name)]
    if not lora:
        return ""
    ranks = {min(tensors[name].shape) for name in lora if tensors[name].shape}
    return (
        f"holds a LoRA of PEFT that is not merged into its weights ({len(lora)} matrices of rank"
        f" {', '.join(map(str, sorted(ranks)))}, such as {lora[0]}); give its base, and its folder as"
        " --adapter, or save what model.merge_and_unload() returns"
    )


def _parametrised(tensors: Tensors) -> str:
    odd = [name for name in tensors if ".parametrizations." in name]
    if not odd:
        return ""
    return (
        f"has parameters that torch computes from others, such as {odd[0]}; remove that by"
        " torch.nn.utils.parametrize.remove_parametrizations and save the model again"
    )


def _sharded(tensors: Tensors) -> str:
    shards = [name for name in tensors if SHARD.search(name)]
    if not shards:
        return ""
    return (
        f"holds parameters that FSDP joined and cut, such as {shards[0]}; load it by the code that saved"
        " it, in as many processes, and save its full state dict (StateDictType.FULL_STATE_DICT); shards"
        " of fairscale are joined by its FullyShardedDataParallel.consolidate_shard_weights"
    )


def _emptied(tensors: Tensors) -> str:
    empty = [name for name, each in tensors.items() if tuple(each.shape) == (0,)]
    if 2 * len(empty) <= len(tensors):
        return ""
    return (
        f"{len(empty)} of its {len(tensors)} tensors are empty, such as {empty[0]}, as DeepSpeed's ZeRO"
        " 3 leaves them where parameters lie in shards; join these by the zero_to_fp32.py that lies"
        " beside them, and give what it writes"
    )


def _quantised(tensors: Tensors) -> str:
    for who, pattern in QUANTISERS.items():
        if names := [name for name in tensors if pattern.search(name)]:
            return (
                f"is quantised by {who} ({len(names)} tensors of that kind, such as {names[0]}); save"
                " what model.dequantize() returns, or take the weights it was made of"
            )
    narrow = [name for name, each in tensors.items() if len(each.shape) > 1 and _bits(each) == 8]
    if not narrow:
        return ""
    scales = [name for name in tensors if SCALE.search(name)]
    beside = f", with scales such as {scales[0]}" if scales else ""
    return (
        f"its weights are in 8 bits ({len(narrow)} of type {tensors[narrow[0]].dtype}, such as"
        f" {narrow[0]}{beside}); save them as numbers of 16 or 32 bits, scales multiplied in"
    )


def _bits(tensor: Stored) -> int:
    """Return 8 for tensors of 8-bit types that may hold quantised weights, else 0."""
    name = tensor.dtype.name
    return 8 * tensor.dtype.itemsize if name.startswith(("float8", "int8", "uint8")) else 0


def _moving(tensors: Tensors) -> str:
    for name, each in tensors.items():
        if len(each.shape) == 5 and PATCHES.search(name) and (frames := each.shape[2]) != 1:
            return (
                f"{name} has shape {tuple(each.shape)}: its patches have an axis of time, {frames}"
                " frames each: it is a model of videos, which is not converted"
            )
    return ""


LOOKS: Sequence = (_adapted, _parametrised, _sharded, _emptied, _quantised, _moving)
