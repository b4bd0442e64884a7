"""Well-known models that look like a Vision Transformer and are another one, and states that hold one in
pieces: so that each is refused by its right name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from parity.porting.formats.base import Stored


class Stranger(NamedTuple):
    """A model that no schema says."""

    name: str
    marks: tuple[str, ...]
    """Ends of the names of tensors that it has, one of each; ``*`` stands for a number."""
    why: str
    """What it computes otherwise."""


SPECTROGRAMS = "its images are spectrograms, in patches that overlap"
STRANGERS = (
    Stranger("CaiT", ("blocks_token_only.*.norm1.weight",), "its class token comes in after the blocks"),
    Stranger("XCiT", ("blocks.*.local_mp.conv1.weight",), "its attention is among channels"),
    Stranger("SAM", ("blocks.*.attn.rel_pos_h",), "its attention is in windows, with positions added"),
    Stranger("SAM", ("layers.*.attn.rel_pos_h",), "its attention is in windows, with positions added"),
    Stranger(
        "a ViT with relative positions from an MLP",
        ("blocks.*.attn.rel_pos.mlp.fc1.weight",),
        "its blocks compute their biases",
    ),
    Stranger("ConViT", ("blocks.*.attn.gating_param",), "its attention is gated by positions"),
    Stranger(
        "Swin",
        ("layers.*.blocks.*.attn.relative_position_bias_table",),
        "its attention is in windows",
    ),
    Stranger(
        "Swin",
        ("layers.*.blocks.*.attention.self.relative_position_bias_table",),
        "its attention is in windows",
    ),
    Stranger("Swin", ("features.*.*.attn.relative_position_bias_table",), "its attention is in windows"),
    Stranger("ConvNeXt", ("stages.*.blocks.*.conv_dw.weight",), "it has no attention"),
    Stranger("an MLP-Mixer", ("blocks.*.mlp_tokens.fc1.weight",), "it has no attention"),
    Stranger("an MLP-Mixer", ("MixerBlock_*/token_mixing/Dense_0/kernel",), "it has no attention"),
    Stranger("a ResNet", ("layer1.*.conv1.weight", "layer4.*.conv1.weight"), "it has no attention"),
    Stranger(
        "an Audio Spectrogram Transformer",
        ("audio_spectrogram_transformer.embeddings.distillation_token",),
        SPECTROGRAMS,
    ),
    Stranger(
        "an Audio Spectrogram Transformer", ("v.dist_token", "v.patch_embed.proj.weight"), SPECTROGRAMS
    ),
    Stranger("PaSST, of spectrograms", ("freq_new_pos_embed", "time_new_pos_embed"), SPECTROGRAMS),
)
LORA = re.compile(r"(^|[./])lora_(embedding_)?[AB]([./]|$)")
SHARD = re.compile(r"(^|[./])_?flat_param(_\d+)?$")


def stranger(names: Iterable[str]) -> str:
    """What well-known model has tensors of these names, in words; empty if none is known."""
    names = list(names)
    for each in STRANGERS:
        if all(any(map(_pattern(mark).search, names)) for mark in each.marks):
            return f"is of {each.name}, which is not converted: {each.why}"
    return ""


def unfit(tensors: Mapping[str, Stored]) -> str:
    """Why tensors of a model are not its weights as they stand, in words; empty if they are."""
    if lora := [name for name in tensors if LORA.search(name)]:
        ranks = {min(tensors[name].shape) for name in lora if tensors[name].shape}
        return (
            f"holds a LoRA of PEFT that is not merged into its weights ({len(lora)} matrices of rank"
            f" {', '.join(map(str, sorted(ranks)))}, such as {lora[0]}); save what"
            " model.merge_and_unload() returns"
        )
    if shards := [name for name in tensors if SHARD.search(name)]:
        return (
            f"holds parameters that FSDP joined and cut, such as {shards[0]}; save its full state dict"
            " (StateDictType.FULL_STATE_DICT)"
        )
    return ""


def _pattern(mark: str) -> re.Pattern[str]:
    return re.compile(r"(^|[./])" + re.escape(mark).replace(r"\*", r"\d+") + "$")
