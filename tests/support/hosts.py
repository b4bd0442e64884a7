"""Larger models of transformers with an image tower in them, built tiny from their own classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tests.support.dialect_proof import redraw
from tests.support.hf_models import MLP, SQUARE, transformers

TOWER: dict[str, Any] = {**SQUARE, **MLP}
CLIP: dict[str, Any] = {**TOWER, "model_type": "clip_vision_model"}
SIGLIP: dict[str, Any] = {**TOWER, "model_type": "siglip_vision_model"}
TOKENS: dict[str, Any] = {**SIGLIP, "vision_use_head": False}
FLAT = {**{k: v for k, v in TOKENS.items() if k != "image_size"}, "num_patches": 9,
        "model_type": "siglip2_vision_model"}  # fmt: skip
DINOV2: dict[str, Any] = {
    **SQUARE, "model_type": "dinov2", "mlp_ratio": 2, "out_indices": [0, 1, 2, 3],
    "reshape_hidden_states": False,
}  # fmt: skip
WORDS: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20,
    "vocab_size": 30, "pad_token_id": 0,
}  # fmt: skip
LLAMA: dict[str, Any] = {**WORDS, "model_type": "llama", "num_key_value_heads": 1, "head_dim": 8}
GEMMA = {**LLAMA, "model_type": "gemma"}
GEMMA3 = {**LLAMA, "model_type": "gemma3_text", "layer_types": ["full_attention"]}
NECK = {"neck_hidden_sizes": [8] * 4, "fusion_hidden_size": 8}
RESAMPLER = {"hidden_size": 16, "resampler_n_latents": 2, "resampler_depth": 1, "resampler_n_heads": 2,
             "resampler_head_dim": 8, "num_key_value_heads": 1}  # fmt: skip
TOKENISER = {"embed_dim": 8, "num_embeddings": 16, "base_channels": 32, "channel_multiplier": [1, 1],
             "num_patches": 9, "projection_dim": 16, "image_token_embed_dim": 16}  # fmt: skip


def _of(name: str, config: str, /, **entries: Any) -> Callable[[], Any]:
    """A model by the names of its class and config."""
    return lambda: getattr(transformers, name)(getattr(transformers, config)(**entries))


def _pali(vision: dict[str, Any]) -> dict[str, Any]:
    return {"vision_config": {**vision, "projection_dim": 16}, "text_config": GEMMA,
            "image_token_index": 20, "projection_dim": 16}  # fmt: skip


def _smol(name: str, config: str, **more: Any) -> Callable[[], Any]:
    return _of(name, config, vision_config=TOWER, text_config=LLAMA, image_token_id=20, **more)


def _llava(name: str, vision: dict[str, Any], **more: Any) -> Callable[[], Any]:
    return _of(f"{name}ForConditionalGeneration", f"{name}Config", vision_config=vision,
               text_config=LLAMA, **more)  # fmt: skip


def _detector(name: str) -> Callable[[], Any]:
    return _of(f"{name}ForObjectDetection", f"{name}Config", vision_config=TOWER, text_config=WORDS,
               projection_dim=16)  # fmt: skip


def _colpali() -> Any:
    vlm = transformers.PaliGemmaConfig(**_pali(TOKENS))
    return transformers.ColPaliForRetrieval(transformers.ColPaliConfig(vlm_config=vlm, embedding_dim=8))


def _pi0() -> Any:
    vlm = transformers.PaliGemmaConfig(**_pali(TOKENS))
    expert = {**GEMMA, "hidden_size": 16}
    config = transformers.PI0Config(vlm_config=vlm, dit_config=expert, chunk_size=2, max_state_dim=3,
                                    max_action_dim=3)  # fmt: skip
    return transformers.PI0ForConditionalGeneration(config)


def _gemma4() -> Any:
    """With a window of 2, for its own pooling returns nothing where there is nothing to pool."""
    words = {**LLAMA, "model_type": "gemma4_text", "layer_types": ["full_attention"],
             "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 30}  # fmt: skip
    tower = {"hidden_size": 24, "intermediate_size": 44, "num_hidden_layers": 3, "head_dim": 8,
             "num_attention_heads": 3, "num_key_value_heads": 3, "patch_size": 2,
             "pooling_kernel_size": 2, "position_embedding_size": 37, "use_clipped_linears": True,
             "standardize": True}  # fmt: skip
    config = transformers.Gemma4Config(
        vision_config=tower, text_config=words, audio_config=None, image_token_id=20
    )
    return transformers.Gemma4ForConditionalGeneration(config)


def _captions() -> Any:
    decoder = transformers.TrOCRConfig(
        vocab_size=30, d_model=16, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=20,
        max_position_embeddings=8,
    )  # fmt: skip
    kind = transformers.VisionEncoderDecoderConfig
    config = kind.from_encoder_decoder_configs(transformers.ViTConfig(**TOWER), decoder)
    return transformers.VisionEncoderDecoderModel(config)


def _pair() -> Any:
    kind = transformers.VisionTextDualEncoderConfig
    words = transformers.BertConfig(**WORDS)
    config = kind.from_vision_text_configs(transformers.ViTConfig(**TOWER), words)
    return transformers.VisionTextDualEncoderModel(config)


class Host(NamedTuple):
    """A larger model."""

    make: Callable[[], Any]
    dialect: str
    """Of its tower."""
    part: str | None = None
    """What tells the tower from others, where there are several."""


HOSTS = {
    "LLaVA on CLIP": Host(_llava("Llava", CLIP, image_token_index=20), "hf-clip-vision"),
    "LLaVA on SigLIP": Host(_llava("Llava", SIGLIP, image_token_index=20), "hf-siglip-vision"),
    "LLaVA-NeXT": Host(
        _llava("LlavaNext", CLIP, image_token_index=20, image_grid_pinpoints=[[15, 15]]),
        "hf-clip-vision",
    ),
    "Video-LLaVA": Host(
        _llava("VideoLlava", CLIP, image_token_index=20, video_token_index=21),
        "hf-clip-vision",
        "image_tower",
    ),
    "LLaVA-OneVision": Host(
        _llava("LlavaOnevision", TOKENS, image_token_index=20, video_token_index=21),
        "hf-siglip-tokens",
    ),
    "PaliGemma": Host(
        _of("PaliGemmaForConditionalGeneration", "PaliGemmaConfig", **_pali(TOKENS)), "hf-siglip-tokens"
    ),
    "ColPali": Host(_colpali, "hf-siglip-tokens"),
    "pi0": Host(_pi0, "hf-siglip-tokens"),
    "Gemma 3": Host(
        _of("Gemma3ForConditionalGeneration", "Gemma3Config", vision_config=TOKENS, text_config=GEMMA3,
            mm_tokens_per_image=9, image_token_index=20),
        "hf-siglip-tokens",
    ),
    "ShieldGemma 2": Host(
        _of("ShieldGemma2ForImageClassification", "ShieldGemma2Config", vision_config=TOKENS,
            text_config=GEMMA3, mm_tokens_per_image=9, image_token_index=20),
        "hf-siglip-tokens",
    ),
    "Gemma 4": Host(_gemma4, "hf-gemma4-vision"),
    "LFM2-VL": Host(
        _of("Lfm2VlForConditionalGeneration", "Lfm2VlConfig", vision_config=FLAT, image_token_id=20,
            text_config={**WORDS, "model_type": "lfm2", "num_key_value_heads": 1,
                         "layer_types": ["full_attention"]}),
        "hf-siglip2-tokens",
    ),
    "SmolVLM": Host(
        _smol("SmolVLMForConditionalGeneration", "SmolVLMConfig", scale_factor=1), "hf-siglip-tokens"
    ),
    "Idefics 3": Host(
        _smol("Idefics3ForConditionalGeneration", "Idefics3Config", scale_factor=1), "hf-siglip-tokens"
    ),
    "Idefics 2": Host(
        _of("Idefics2ForConditionalGeneration", "Idefics2Config", vision_config=TOWER,
            perceiver_config=RESAMPLER, text_config={**LLAMA, "model_type": "mistral"},
            image_token_id=20),
        "hf-siglip-tokens",
    ),
    "Aria": Host(
        _of("AriaForConditionalGeneration", "AriaConfig",
            vision_config={**TOWER, "model_type": "idefics3_vision"}, image_token_index=20,
            text_config={**LLAMA, "model_type": "aria_text", "moe_num_experts": 2, "moe_topk": 1,
                         "moe_num_shared_experts": 1},
            projector_patch_to_query_dict={9: 4}),
        "hf-siglip-tokens",
    ),
    "Janus": Host(
        _of("JanusForConditionalGeneration", "JanusConfig", text_config=LLAMA, vq_config=TOKENISER,
            vision_config={**SQUARE, "mlp_ratio": 1.5, "projection_dim": 16}),
        "hf-janus-vision",
    ),
    "InternVL": Host(
        _of("InternVLForConditionalGeneration", "InternVLConfig",
            vision_config={**TOWER, "model_type": "internvl_vision", "image_size": [15, 15],
                           "patch_size": [5, 5]},
            text_config={**LLAMA, "model_type": "qwen2"}, image_token_id=20, downsample_ratio=1.0),
        "hf-internvl-vision",
    ),
    "BLIP-2": Host(
        _of("Blip2ForConditionalGeneration", "Blip2Config",
            vision_config={**TOWER, "model_type": "blip_2_vision_model"}, num_query_tokens=2,
            qformer_config={**WORDS, "model_type": "blip_2_qformer", "encoder_hidden_size": 30},
            text_config={**WORDS, "model_type": "opt", "ffn_dim": 20, "word_embed_proj_dim": 16,
                         "max_position_embeddings": 8}, image_token_index=20),
        "hf-blip2-vision",
    ),
    "BLIP": Host(
        _of("BlipForConditionalGeneration", "BlipConfig",
            vision_config={**TOWER, "model_type": "blip_vision_model"},
            text_config={**WORDS, "encoder_hidden_size": 30, "bos_token_id": 1, "sep_token_id": 2}),
        "hf-blip-vision",
    ),
    "OWL-ViT": Host(_detector("OwlViT"), "hf-owlvit-vision"),
    "OWLv2": Host(_detector("Owlv2"), "hf-owlvit-vision"),
    "CLIPSeg": Host(
        _of("CLIPSegForImageSegmentation", "CLIPSegConfig", vision_config=TOWER, text_config=WORDS,
            projection_dim=16, extract_layers=[0, 2], reduce_dim=8, decoder_num_attention_heads=2,
            decoder_intermediate_size=8),
        "hf-clip-vision",
    ),
    "TrOCR": Host(_captions, "hf-vit"),
    "VisionTextDualEncoder": Host(_pair, "hf-vit"),
    "Depth Anything": Host(
        _of("DepthAnythingForDepthEstimation", "DepthAnythingConfig", backbone_config=DINOV2,
            patch_size=5, reassemble_hidden_size=30, head_hidden_size=8, **NECK),
        "hf-dinov2",
    ),
    "BeitForSemanticSegmentation": Host(
        _of("BeitForSemanticSegmentation", "BeitConfig", **TOWER, out_indices=[0, 1, 2, 3],
            pool_scales=[1], use_auxiliary_head=False),
        "hf-beit-trunk",
        "beit",
    ),
}  # fmt: skip
"""By what people call them."""


def build(name: str) -> Any:
    """A host, drawn anew in float64; SigLIP 2 rounds its table to float32 before it fits it."""
    torch.manual_seed(0)
    model = redraw(HOSTS[name].make())
    for key, parameter in model.named_parameters():
        if key.endswith("position_embedding.weight"):
            parameter.data = parameter.data.float().double()
    return model
