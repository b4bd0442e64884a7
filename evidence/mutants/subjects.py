"""Models of other people, small: timm, transformers, plain functions of JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from parity.porting.reading.libraries.peers import import_timm


def redrawn(model: torch.nn.Module) -> torch.nn.Module:
    """The model with weights and statistics that hide nothing: no zeros, no ones."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            drawn = torch.randn(p.shape, generator=generator)
            p.copy_(drawn * (0.3 if p.ndim > 1 else 0.2) + (p.ndim == 1))
        for name, buffer in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return model.eval()


def _hf(name: str, config: str, model: str, inputs: Any, **sizes: Any) -> Callable[[], Any]:
    def make() -> Any:
        package = importlib.import_module(f"transformers.models.{name}")
        cfg = getattr(package, config)(**sizes)
        cfg._attn_implementation = "eager"
        module = f"transformers.models.{name}.modeling_{name}"
        return redrawn(getattr(package, model)(cfg)), inputs(), [module]

    return make


def _jax(name: str) -> Callable[[], Any]:
    def make() -> Any:
        module = "tests.support.jax_families"
        families = importlib.import_module(module)
        return getattr(families, name), getattr(families, f"{name}_inputs")(), [module]

    return make


def _timm(name: str, modules: list[str], **sizes: Any) -> Callable[[], Any]:
    def make() -> Any:
        timm = import_timm()
        model = getattr(timm.models, name) if name[0].isupper() else timm.models.model_entrypoint(name)
        return redrawn(model(**sizes)), {"x": torch.from_numpy(_normal(2, 3, 32, 32))}, modules

    return make


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _images(size: int = 32) -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: {"pixel_values": torch.from_numpy(_normal(2, 3, size, size))}


def _tokens(**more: Any) -> Callable[[], dict[str, Any]]:
    ids = torch.from_numpy(np.random.default_rng(2).integers(3, 90, (2, 7)))
    return lambda: {"input_ids": ids, **more}


_ENCODER = {"hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 44}
_DECODER = _ENCODER | {"vocab_size": 97, "num_key_value_heads": 5, "head_dim": 6, "pad_token_id": 0}

_ENCODED_IMAGE = _ENCODER | {"image_size": 32, "patch_size": 8}
_TIMM_VIT = ["timm.models.vision_transformer", "timm.layers.attention", "timm.layers.mlp",
             "timm.layers.patch_embed"]  # fmt: skip
_DINO = {"hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5, "mlp_ratio": 2}
_SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 4]}
_T5 = {"vocab_size": 97, "d_model": 30, "d_kv": 6, "d_ff": 44, "num_layers": 2, "num_heads": 5}
_CLIP = _ENCODER | {"vocab_size": 97, "max_position_embeddings": 16}

MODELS: dict[str, Callable[[], Any]] = {
    "timm vit": _timm("vit_tiny_patch16_224", _TIMM_VIT, img_size=32, patch_size=8, embed_dim=30,
                      depth=2, num_heads=5, num_classes=11),
    "timm convnext": _timm("convnext_atto", ["timm.models.convnext", "timm.layers.norm"],
                           depths=(1, 1, 2, 1), dims=(6, 10, 14, 22), num_classes=11),
    "timm resnet": _timm("resnet10t", ["timm.models.resnet"], channels=(6, 10, 14, 22), stem_width=6,
                         num_classes=11),
    "timm mixer": _timm("MlpMixer", ["timm.models.mlp_mixer", "timm.layers.mlp"], img_size=32,
                        patch_size=8, embed_dim=30, num_blocks=2, num_classes=11),
    "hf vit": _hf("vit", "ViTConfig", "ViTModel", _images(), **_ENCODED_IMAGE),
    "hf dinov2": _hf("dinov2", "Dinov2Config", "Dinov2Model", _images(), **_DINO, image_size=32,
                     patch_size=8),
    "hf bert": _hf("bert", "BertConfig", "BertModel", _tokens(), **_ENCODER, vocab_size=97),
    "hf gpt2": _hf("gpt2", "GPT2Config", "GPT2Model", _tokens(use_cache=False), vocab_size=97, n_embd=30,
                   n_layer=2, n_head=5, n_positions=16),
    "hf llama": _hf("llama", "LlamaConfig", "LlamaModel", _tokens(use_cache=False), **_DECODER),
    "hf gemma": _hf("gemma", "GemmaConfig", "GemmaModel", _tokens(use_cache=False), **_DECODER),
    "hf swin": _hf("swin", "SwinConfig", "SwinModel", _images(), **_SWIN, window_size=4),
    "hf t5": _hf("t5", "T5Config", "T5EncoderModel", _tokens(), **_T5),
    "hf clip": _hf("clip", "CLIPTextConfig", "CLIPTextModel", _tokens(), **_CLIP),
    "hf convnext": _hf("convnext", "ConvNextConfig", "ConvNextModel", _images(),
                       hidden_sizes=[6, 10, 14], depths=[1, 2, 1], num_stages=3),
    "jax decoder": _jax("decoder"),
    "jax convnext": _jax("convnext"),
    "jax mixer": _jax("mixer"),
}  # fmt: skip
