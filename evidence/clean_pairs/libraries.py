"""The model as libraries build it: timm, transformers, and the twins of this project."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import torch
from flax import nnx

import vit_jax.leaves
import vit_jax.weights
import vit_torch
from evidence.clean_pairs import torch_parts as P
from evidence.clean_pairs.in_torch import renamed, thirds
from evidence.clean_pairs.style import RIGHT, Side, Style
from parity.porting.reading.libraries.peers import import_timm
from vit_config import ViTConfig


def timm_model(w, size, wrong=RIGHT, *, fused=True, **more):
    """timm's VisionTransformer; `more` are further arguments of it."""
    import_timm()
    from timm.models.vision_transformer import VisionTransformer

    given = {
        "img_size": size.image, "patch_size": size.patch, "embed_dim": size.width, "depth": size.depth,
        "num_heads": size.heads, "mlp_ratio": (size.hidden + 0.5) / size.width,
        "num_classes": size.classes, "init_values": size.gamma, "reg_tokens": size.registers,
        "no_embed_class": bool(size.registers), "qk_norm": size.qk_norm, "fc_norm": False,
        "global_pool": "avg" if size.mean else "token", "class_token": size.class_token,
        "act_layer": "relu" if size.relu else None,
    }  # fmt: skip
    model: Any = VisionTransformer(**given | more)
    for block in model.blocks:
        block.attn.fused_attn = fused
    return Side(model, w)


OUTER = {"cls_token": "cls_token", "pos_embed": "position_embeddings",
         "patch_embed.proj": "patch_embeddings.projection"}  # fmt: skip


def _transformers_state(w, size, wrong, prefix, layers, names, norm, attention):
    state = renamed(w, size, {old: f"{layers}{new}" for old, new in names.items()}, wrong)
    state |= thirds(w, size, f"{layers}{attention}" + ".{}_proj", wrong)
    pairs = {f"{prefix}embeddings.{new}": old for old, new in OUTER.items()}
    for new, old in (pairs | {norm: "norm"}).items():
        leaves = [""] if old in w else [".weight", ".bias"]
        state |= {new + leaf: w[old + leaf] for leaf in leaves}
    return state


def transformers_vit(w, size, wrong=RIGHT, attention="eager"):
    """ViTForImageClassification."""
    import_timm()  # before transformers looks for torchvision
    import transformers

    cfg = transformers.ViTConfig(
        hidden_size=size.width, num_hidden_layers=size.depth, num_attention_heads=size.heads,
        intermediate_size=size.hidden, image_size=size.image, patch_size=size.patch,
        num_labels=size.classes, attn_implementation=attention,
        layer_norm_eps=size.epsilon, hidden_act="relu" if size.relu else "gelu",
    )  # fmt: skip
    names = {"norm1": "layernorm_before", "norm2": "layernorm_after", "attn.proj": "attention.o_proj",
             "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}  # fmt: skip
    state = _transformers_state(
        w, size, wrong, "vit.", "vit.layers.{}.", names, "vit.layernorm", "attention"
    )
    state |= {f"classifier.{leaf}": w[f"head.{leaf}"] for leaf in ("weight", "bias")}
    return Side(transformers.ViTForImageClassification(cfg), state, spread="pixel_values")


class Dinov2(torch.nn.Module):
    """Its backbone and a classifier of the class token or of the mean."""

    def __init__(self, backbone, size):
        super().__init__()
        self.size, self.backbone, self.head = size, backbone, torch.nn.Linear(size.width, size.classes)

    def forward(self, x):
        return self.head(P.pool(self.backbone(x).last_hidden_state, self.size))


def dinov2(w, size, wrong=RIGHT):
    """Dinov2Model, which knows square images alone."""
    import_timm()
    import transformers

    cfg = transformers.Dinov2Config(
        hidden_size=size.width, num_hidden_layers=size.depth, num_attention_heads=size.heads,
        mlp_ratio=size.hidden // size.width, image_size=size.image, patch_size=size.patch,
        layer_norm_eps=size.epsilon, layerscale_value=size.gamma, hidden_act="gelu",
    )  # fmt: skip
    names = {"norm1": "norm1", "norm2": "norm2", "attn.proj": "attention.o_proj", "mlp.fc1": "mlp.fc1",
             "mlp.fc2": "mlp.fc2"}  # fmt: skip
    state = _transformers_state(
        w,
        size,
        wrong,
        "backbone.",
        "backbone.encoder.layer.{}.",
        names,
        "backbone.layernorm",
        "attention",
    )
    for i, which in enumerate(P.order(size, wrong)):
        for n in (1, 2):
            name = f"backbone.encoder.layer.{i}.layer_scale{n}.lambda1"
            state[name] = w[f"blocks.{which}.ls{n}.gamma"]
    state |= {f"head.{leaf}": w[f"head.{leaf}"] for leaf in ("weight", "bias")}
    state["backbone.embeddings.mask_token"] = torch.zeros_like(w["cls_token"][0])
    return Side(Dinov2(transformers.Dinov2Model(cfg), size), state)


def config(size):
    """The schema of the twins."""
    return ViTConfig(
        image_size=size.image, patch_size=(size.patch, size.patch), hidden_size=size.width,
        depth=size.depth, num_heads=size.heads, mlp_dim=size.hidden, num_classes=size.classes,
        norm_eps=size.epsilon, class_token=size.class_token, register_tokens=size.registers,
        qk_norm=size.qk_norm, layer_scale=size.gamma, pool="mean" if size.mean else "class",
        act="relu" if size.relu else "gelu", pos_embed_prefix="none" if size.registers else "auto",
    )  # fmt: skip


class Logits(torch.nn.Module):
    """The part of a twin's outputs that the others return too."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).logits


def torch_twin(w, size, wrong=RIGHT):
    """Our model in PyTorch."""
    return Side(Logits(vit_torch.ViT(config(size))), {f"model.{name}": each for name, each in w.items()})


def jax_twin(w, size, wrong=RIGHT):
    """Our model in NNX, as a function of its state."""
    model = vit_jax.weights.abstract_model(config(size))
    state = nnx.from_flat_state(
        [(leaf.path, nnx.Param(leaf.from_common(w[leaf.name]))) for leaf in vit_jax.leaves.leaves(model)]
    )
    graph = nnx.graphdef(model)
    return Side(lambda state, x: nnx.merge(graph, state)(x).logits, state)


def _scaled(size):
    """Dinov2 always has a layer scale, a whole number of widths in the MLP, and square images."""
    gamma = 1.0 if size.gamma is None else size.gamma
    square = (size.grid[0], size.grid[0])
    return replace(size, gamma=gamma, hidden=2 * size.width, grid=square)


partial = functools.partial
ORDERS = frozenset({"layers reversed", "layers as strings"})
STYLES = [
    Style("timm", "torch, libraries", timm_model),
    Style("timm, attention not fused", "torch, libraries", partial(timm_model, fused=False)),
    Style("transformers, eager", "torch, libraries", transformers_vit, frozenset({"relu"}),
          ORDERS, narrow=True),
    Style("transformers, sdpa", "torch, libraries", partial(transformers_vit, attention="sdpa"),
          frozenset({"relu"}), ORDERS),
    Style("transformers, Dinov2", "torch, libraries", dinov2, frozenset({"layer scale", "mean"}), ORDERS,
          adapt=_scaled),
    Style("our torch twin", "torch, libraries", torch_twin),
    Style("our JAX twin", "JAX, NNX", jax_twin),
]  # fmt: skip
