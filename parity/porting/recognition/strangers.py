"""Well-known models that look like a Vision Transformer but are not supported; refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Stranger(NamedTuple):
    """A well-known model that no schema can express."""

    name: str
    marks: tuple[str, ...]
    """Suffixes of tensor names, each of which must occur; ``*`` stands for a number."""
    why: str
    """How its function differs, and what is read instead if there is such."""
    kind: str = ""
    """Beginning of its ``model_type``, where its names are those of a model that is read."""


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
    Stranger(
        "ViTPose",
        (
            "encoder.layer.*.layernorm_before.weight",
            "encoder.layer.*.attention.attention.query.weight",
            "encoder.layer.*.mlp.fc1.weight",
        ),
        "it adds a border of two pixels to an image before it cuts patches",
    ),
    Stranger(
        "MLCD",
        ("class_pos_emb", "encoder.layers.*.self_attn.q_proj.weight"),
        "it turns the class token by angles that it has learned",
    ),
    Stranger(
        "jimm's ViT or CLIP",
        ("cls_token", "ln_post/scale", "transformer/blocks/layers/*/norm1/scale"),
        "the norms of its blocks have another epsilon than those around them",
    ),
    Stranger(
        "jimm since it stacks its blocks",
        ("vision_position_ids", "encoder/layers/norm1/scale"),
        "its blocks have another epsilon or GELU than what is around them; its save_pretrained writes"
        " Hugging Face's files, which are read",
    ),
    Stranger("PaddleOCR-VL", (), "its attention turns queries and keys by positions", "paddleocr_vl"),
    Stranger("an Audio Spectrogram Transformer", (), SPECTROGRAMS, "audio-spectrogram-transformer"),
    Stranger(
        "RADIO in its authors' names",
        ("patch_generator.embedder.weight", "blocks.*.norm1.weight"),
        "it fits its positions to each image; timm's vit_base_patch16_radio and its kin are read",
    ),
    Stranger(
        "DUSt3R or CroCo",
        ("enc_blocks.*.norm1.weight", "dec_blocks.*.norm1.weight"),
        "its encoder turns queries and keys by positions of each axis, and a decoder sees two images",
    ),
    Stranger("PaSST, of spectrograms", ("freq_new_pos_embed", "time_new_pos_embed"), SPECTROGRAMS),
)


def stranger(names: Iterable[str], model_type: str = "") -> str:
    """Say which well-known unsupported model a file is of; empty if none.

    Args:
        names: the names of its tensors.
        model_type: that of transformers' config.json; empty if there is none.
    """
    names = list(names)
    for each in STRANGERS:
        of_kind = bool(each.kind) and model_type.startswith(each.kind)
        by_names = bool(each.marks) and all(any(map(_found(mark), names)) for mark in each.marks)
        if of_kind or by_names:
            return f"is of {each.name}, which is not converted: {each.why}"
    return ""


def _found(mark: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(r"(^|[./])" + re.escape(mark).replace(r"\*", r"\d+") + "$").search
