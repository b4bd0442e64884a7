"""Small models of PyTorch's libraries: built, and drawn anew as if they were trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from parity.porting.reading.libraries.peers import import_timm

Build = Callable[[], nn.Module]


def built(build: Build, seed: int = 0) -> nn.Module:
    """Build a model as its library initialises it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().eval()


@torch.no_grad()
def trained(build: Build, seed: int = 1) -> nn.Module:
    """Build a model with other numbers in every parameter and in every buffer that is no index."""
    model, generator = built(build), torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.is_floating_point():
            values = 0.2 * torch.randn(tensor.shape, generator=generator)
            gain = name.endswith("weight") and tensor.ndim == 1
            tensor.copy_((1 + values).abs() if gain or name not in parameters else values)
        elif name.endswith("num_batches_tracked"):
            tensor.fill_(7)
    return model


def _timm(name: str, **options: Any) -> Build:
    return lambda: import_timm().create_model(name, num_classes=7, **options)


def _transformers(name: str, config: str, **entries: Any) -> Build:
    def build() -> nn.Module:
        import_timm()  # declares the operators that torchvision lacks on some machines
        import transformers

        return getattr(transformers, name)(getattr(transformers, config)(**entries))

    return build


def _torchvision(name: str, **options: Any) -> Build:
    def build() -> nn.Module:
        import_timm()
        from torchvision import models

        return getattr(models, name)(**options)

    return build


def _open_clip() -> nn.Module:
    import_timm()
    import open_clip

    vision: Any = {"image_size": 24, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
    text: Any = {"context_length": 9, "vocab_size": 50, "width": 24, "heads": 2, "layers": 2}
    return open_clip.CLIP(20, vision, text)


NARROW = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 40}
VIT = {"img_size": 24, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 2}

MODELS: dict[str, tuple[str, Build]] = {
    "vit": ("timm", _timm("vit_tiny_patch16_224", **VIT)),
    "resnet": ("timm", _timm("resnet10t")),
    "beit": ("timm", _timm("beit_base_patch16_224", **VIT)),
    "swin": ("timm", _timm("swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(1, 1),
                           num_heads=(2, 3))),
    "convnext": ("timm", _timm("convnext_atto", depths=(1, 1, 2, 1), dims=(8, 12, 16, 20))),
    "tv_resnet": ("torchvision", _torchvision("resnet18", num_classes=7)),
    "tv_vit": ("torchvision", _torchvision("VisionTransformer", image_size=24, patch_size=8,
                                           num_layers=3, num_heads=2, hidden_dim=24, mlp_dim=40,
                                           num_classes=7)),
    "hf_vit": ("transformers", _transformers("ViTForImageClassification", "ViTConfig", image_size=24,
                                             patch_size=8, num_labels=7, **NARROW)),
    "bert": ("transformers", _transformers("BertForMaskedLM", "BertConfig", vocab_size=50,
                                           max_position_embeddings=16, **NARROW)),
    "gpt2": ("transformers", _transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=50,
                                           n_positions=16, n_embd=24, n_layer=3, n_head=2)),
    "llama": ("transformers", _transformers("LlamaForCausalLM", "LlamaConfig", vocab_size=50,
                                            num_key_value_heads=1, **NARROW)),
    "t5": ("transformers", _transformers("T5ForConditionalGeneration", "T5Config", vocab_size=50,
                                         d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3)),
    "swinv1": ("transformers", _transformers("SwinForImageClassification", "SwinConfig", image_size=32,
                                             patch_size=4, embed_dim=16, depths=[1, 2], num_heads=[2, 4],
                                             window_size=4, num_labels=7)),
    "clip": ("open_clip", _open_clip),
}  # fmt: skip
"""Models by name: the library, and how each is built."""
