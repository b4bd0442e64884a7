"""Schemas for every recipe of initial values, and timm's models that draw by it."""

from tests.support.peers import import_timm
from tests.support.tiny import TINY
from vit_config.rope import Rope

timm = import_timm()
ViT, Distilled = timm.models.VisionTransformer, timm.models.VisionTransformerDistilled
Eva, Beit = timm.models.Eva, timm.models.Beit
Layers, Blocks = timm.layers, timm.models.vision_transformer

# wide enough for statistics; every width is another number
WIDE = TINY.replace(hidden_size=96, depth=2, num_heads=4, mlp_dim=144, num_classes=70)
SHARED = {
    "img_size": (21, 15), "patch_size": (7, 5), "embed_dim": 96, "depth": 2, "num_heads": 4,
    "mlp_ratio": 1.5, "num_classes": 70,
}  # fmt: skip

SCALED = {"init_values": 0.3}
POOLED = {"global_pool": "map", "class_token": False, "reg_tokens": 2, **SCALED}
OUR_POOLED = {"pool": "map", "class_token": False, "register_tokens": 2, "layer_scale": 0.3}
PARALLEL = {"block_fn": Blocks.ParallelScalingBlock, "qkv_bias": False, **SCALED}
OUR_PARALLEL = {"block": "parallel", "qkv_bias": False, "layer_scale": 0.3}
DIFFERENTIAL = {**PARALLEL, "block_fn": Blocks.DiffParallelScalingBlock, "qkv_bias": True}
OUR_DIFFERENTIAL = {**OUR_PARALLEL, "attention": "differential", "qkv_bias": True}
RES_POST = {"block_fn": Blocks.ResPostBlock, "mlp_layer": Layers.SwiGLU, **SCALED}
OUR_RES_POST = {"block": "res_post", "mlp": "swiglu", "layer_scale": 0.3}
PACKED = {"mlp_layer": Layers.SwiGLUPacked, "mlp_ratio": 3.0}
EVA = {"init": "eva", "k_bias": False}
MIXED = {"use_rot_pos_emb": True, "rope_type": "mixed", "rope_temperature": 7.0}

# timm's class, its arguments beside those of SHARED, and our fields beside those of WIDE
TIMM = {
    "plain": (ViT, {"reg_tokens": 2}, {"register_tokens": 2}),
    "no biases": (
        ViT,
        {"qkv_bias": False, "proj_bias": False, "mlp_layer": Layers.SwiGLU},
        {"qkv_bias": False, "attention_out_bias": False, "mlp_bias": False, "mlp": "swiglu"},
    ),
    "swiglu": (ViT, {"mlp_layer": Layers.SwiGLU}, {"mlp": "swiglu"}),
    "swiglu packed": (ViT, PACKED, {"mlp": "swiglu_packed"}),
    "packed, map pool": (
        ViT,
        {**PACKED, **POOLED},
        {"mlp": "swiglu_packed", "pool_mlp_dim": 288, **OUR_POOLED},
    ),
    "norms of branches": (
        ViT,
        {"scale_attn_norm": True, "scale_mlp_norm": True, "qk_norm": True, "pre_norm": True},
        {
            "attention_norm": True, "mlp_norm": True, "qk_norm": True, "pre_norm": True,
            "patch_bias": False,
        },
    ),
    "distilled": (Distilled, SCALED, {"distill_token": True, "layer_scale": 0.3}),
    "res_post": (ViT, RES_POST, OUR_RES_POST),
    "parallel": (ViT, PARALLEL, OUR_PARALLEL),
    "branches": (
        ViT,
        {"block_fn": Blocks.ParallelThingsBlock, **SCALED},
        {"num_parallel": 2, "layer_scale": 0.3},
    ),
    "differential": (ViT, {"attn_layer": "diff"}, {"attention": "differential"}),
    "differential parallel": (ViT, DIFFERENTIAL, OUR_DIFFERENTIAL),
    **{
        f"jax, {name}": (kind, {"weight_init": "jax", **theirs}, {"init": "jax", **ours})
        for name, kind, theirs, ours in (
            ("map pool", ViT, POOLED, OUR_POOLED),
            ("parallel", ViT, PARALLEL, OUR_PARALLEL),
            ("res_post, swiglu", ViT, RES_POST, OUR_RES_POST),
            ("packed", ViT, PACKED, {"mlp": "swiglu_packed"}),
            ("distilled", Distilled, {}, {"distill_token": True}),
            ("differential", ViT, {"attn_layer": "diff"}, {"attention": "differential"}),
        )
    },
    "eva": (
        Eva,
        {"num_reg_tokens": 2, **SCALED},
        {"register_tokens": 2, "pool": "mean", "final_norm": "post_pool", "layer_scale": 0.3, **EVA},
    ),
    "eva, packed, q and k and v apart": (
        Eva,
        {"global_pool": "token", "swiglu_mlp": True, "qkv_fused": False, **MIXED},
        {"mlp": "swiglu_packed", "rope": Rope(kind="mixed", theta=7.0), **EVA},
    ),
    "eva, swiglu, res_post, map pool": (
        Eva,
        {"global_pool": "map", "swiglu_mlp": True, "scale_mlp": True, "use_post_norm": True, **SCALED},
        {
            "pool": "map", "pool_prefix": True, "mlp": "swiglu", "mlp_norm": True,
            "block": "res_post", **EVA,
        },
    ),
    "beit": (
        Beit,
        {"use_rel_pos_bias": True, "swiglu_mlp": True, **SCALED},
        {
            "rel_pos_bias": True, "pool": "mean", "final_norm": "post_pool", "mlp": "swiglu",
            "layer_scale": 0.3, **EVA,
        },
    ),
}  # fmt: skip

PER_HEAD = {"attention": "per_head"}
OWN = {
    **{
        recipe: {"init": recipe, "register_tokens": 2, "layer_scale": 0.3}
        for recipe in (
            "timm_by_depth",
            "timm_truncated",
            "torch",
            "torch_mha",
            "torch_uniform_tokens",
            "xavier_normal",
        )
    },
    **{
        f"{recipe}, per head": {"init": recipe, **PER_HEAD}
        for recipe in ("jax", "torch", "torch_mha", "xavier_normal")
    },
    "timm, linear patches": {"init": "timm", "patch_embed": "linear_hwc", "patch_norm": True},
    "jax, grouped": {"init": "jax", "num_kv_heads": 2, "k_bias": False},
    **{
        f"{recipe}, tanh before the head": {"init": recipe, "head_hidden": 60, "head_bias": False}
        for recipe in ("timm", "jax", "eva", "torch")
    },
    "jax, wide heads": {"init": "jax", "num_heads": 5, "attention_head_dim": 28},
    "eva, parallel": {"init": "eva", "block": "parallel"},
    "timm_truncated, mixed": {"init": "timm_truncated", "rope": Rope(kind="mixed"), "mlp": "swiglu"},
}
SCHEMAS = {name: WIDE.replace(**ours) for name, ours in OWN.items()}
SCHEMAS |= {name: WIDE.replace(**ours) for name, (_, _, ours) in TIMM.items()}
SEEDS = range(3)
