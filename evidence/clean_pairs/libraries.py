"""The model as libraries build it: timm, transformers, and the twins of this project."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

from __future__ import annotations

import numpy as np
import torch
from flax import nnx

import vit_jax
import vit_torch
from evidence.clean_pairs import weights as W
from evidence.clean_pairs.in_torch import loaded, renamed
from parity.porting.verification.peers import import_timm
from vit_config import ViTConfig


def timm_model(w):
    """timm's vision_transformer."""
    model = import_timm().create_model(
        "vit_tiny_patch16_224", img_size=(W.HEIGHT, W.WIDTH), patch_size=W.PATCH, embed_dim=W.D,
        depth=W.DEPTH, num_heads=W.HEADS, mlp_ratio=W.HIDDEN / W.D, num_classes=W.CLASSES,
    )  # fmt: skip
    return loaded(model, w), W.images()


def transformers_model(w, attention="eager"):
    """transformers' ViTForImageClassification."""
    import_timm()  # before transformers looks for torchvision
    import transformers

    cfg = transformers.ViTConfig(
        hidden_size=W.D, num_hidden_layers=W.DEPTH, num_attention_heads=W.HEADS,
        intermediate_size=W.HIDDEN, image_size=(W.HEIGHT, W.WIDTH), patch_size=W.PATCH,
        num_labels=W.CLASSES, layer_norm_eps=W.EPSILON, attn_implementation=attention,
    )  # fmt: skip
    at = "vit.layers.{}."
    state = renamed(w, {"norm1": at + "layernorm_before", "norm2": at + "layernorm_after",
                        "attn.proj": at + "attention.o_proj", "mlp.fc1": at + "mlp.fc1",
                        "mlp.fc2": at + "mlp.fc2"})  # fmt: skip
    for i in range(W.DEPTH):
        for leaf in ("weight", "bias"):
            thirds = np.split(w[f"blocks.{i}.attn.qkv.{leaf}"], 3)
            for name, third in zip("qkv", thirds, strict=True):
                state[f"{at.format(i)}attention.{name}_proj.{leaf}"] = third
    for new, old in {
        "vit.embeddings.cls_token": "cls_token",
        "vit.embeddings.position_embeddings": "pos_embed",
        "vit.embeddings.patch_embeddings.projection": "patch_embed.proj",
        "vit.layernorm": "norm",
        "classifier": "head",
    }.items():
        leaves = [""] if old in w else [".weight", ".bias"]
        state |= {new + leaf: w[old + leaf] for leaf in leaves}
    model = transformers.ViTForImageClassification(cfg)
    return loaded(model, state), {"pixel_values": W.images()}


def transformers_fused(w):
    """The same with fused attention."""
    return transformers_model(w, "sdpa")


CONFIG = ViTConfig(
    image_size=(W.HEIGHT, W.WIDTH), patch_size=(W.PATCH, W.PATCH), hidden_size=W.D, depth=W.DEPTH,
    num_heads=W.HEADS, mlp_dim=W.HIDDEN, num_classes=W.CLASSES, norm_eps=W.EPSILON,
)  # fmt: skip


class Logits(torch.nn.Module):
    """The part of a twin's outputs that the others return too."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).logits


def torch_twin(w):
    """Our model in PyTorch."""
    return Logits(vit_torch.from_arrays(CONFIG, w)), W.images()


def jax_twin(w):
    """Our model in NNX."""
    model = vit_jax.from_arrays(CONFIG, w)

    def logits(state, x):
        return nnx.merge(graph, state)(x).logits

    graph, state = nnx.split(model)
    return logits, (state, W.images(channels_last=True))


STYLES = {
    "timm": timm_model,
    "transformers, eager": transformers_model,
    "transformers, sdpa": transformers_fused,
    "our torch twin": torch_twin,
    "our JAX twin": jax_twin,
}
