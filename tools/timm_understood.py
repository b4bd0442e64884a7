"""Classes and arguments of timm's models that `timm_schema` understands, and the error of all others."""

from __future__ import annotations

from typing import Any

from torch import nn

Timms = Any
"""A module of timm's, whose attributes have no types."""
Fields = dict[str, Any]
"""Some fields of the schema."""

LAYERS, _MODELS, TORCH = "timm.layers.", "timm.models.", "torch.nn.modules."
_VIT = {"weight_init_mode": "", "fix_init": False}
_HEAD_INIT = {"head_init_scale": 0.001}

UNDERSTOOD: dict[str, dict[str, Any]] = {
    _MODELS + "vision_transformer.VisionTransformer": _VIT,
    _MODELS + "deit.VisionTransformerDistilled": _VIT,
    _MODELS + "eva.Eva": _HEAD_INIT,
    _MODELS + "beit.Beit": _HEAD_INIT,
    _MODELS + "naflexvit.NaFlexVit": {"weight_init_mode": "", "fix_init": True},
    _MODELS + "naflexvit.NaFlexEmbeds": {
        "dynamic_img_pad": False,
        "channels_last": True,
        "enable_patch_interpolator": False,
        "pos_embed_use_grid_sample": False,
        "norm_input": None,
    },
    _MODELS + "vision_transformer.Block": {},
    _MODELS + "vision_transformer.ResPostBlock": {},
    _MODELS + "vision_transformer.ParallelScalingBlock": {},
    _MODELS + "vision_transformer.DiffParallelScalingBlock": {"dual_lambda": False},
    _MODELS + "vision_transformer.ParallelThingsBlock": {},
    _MODELS + "eva.EvaBlock": {},
    _MODELS + "eva.EvaBlockPostNorm": {},
    _MODELS + "eva.EvaAttention": {"gate": None},
    _MODELS + "gemma4_vit.Gemma4VitClassifier": {"weight_init_mode": "", "encoder_pool": ""},
    _MODELS + "gemma4_vit.Gemma4VitEncoder": {"weight_init_mode": ""},
    _MODELS + "gemma4_vit.Gemma4PatchEmbed": {},
    _MODELS + "gemma4_vit.Gemma4RotaryEmbedding2D": {},
    _MODELS + "gemma4_vit.Gemma4Block": {},
    _MODELS + "gemma4_vit.Gemma4Attention": {},
    _MODELS + "gemma4_vit.Gemma4GatedMlp": {},
    _MODELS + "gemma4_vit.Gemma4ClippableLinear": {},
    _MODELS + "gemma4_vit.Gemma4VisionPooler": {},
    _MODELS + "beit.Block": {},
    _MODELS + "beit.Attention": {},
    LAYERS + "attention.Attention": {"gate": None},
    LAYERS + "attention.AttentionRope": {"gate": None},
    LAYERS + "attention_pool.AttentionPoolLatent": {"pool": "token", "latent_len": 1},
    LAYERS + "diff_attention.DiffAttention": {"dual_lambda": False},
    LAYERS + "layer_scale.LayerScale": {},
    LAYERS + "mlp.Mlp": {},
    LAYERS + "mlp.GluMlp": {"gate_last": False},
    LAYERS + "mlp.SwiGLU": {},
    LAYERS + "norm.LayerNorm": {"elementwise_affine": True},
    LAYERS + "norm.RmsNorm": {"elementwise_affine": True},
    LAYERS + "patch_embed.PatchEmbed": {"dynamic_img_pad": False},
    LAYERS + "pos_embed_sincos.RotaryEmbeddingCat": {
        "grid_type": "index",
        "in_pixels": False,
        "linear_bands": False,
    },
    LAYERS + "pos_embed_sincos.RotaryEmbeddingDinoV3": {
        "normalize_coords": "separate",
        "min_period": None,
        "max_period": None,
    },
    LAYERS + "pos_embed_sincos.RotaryEmbeddingMixed": {},
    LAYERS + "activations.GELU": {},
    LAYERS + "activations.GELUTanh": {},
    LAYERS + "activations.QuickGELU": {},
    TORCH + "activation.GELU": {"approximate": "none"},
    TORCH + "activation.ReLU": {},
    TORCH + "activation.SiLU": {},
    TORCH + "container.ModuleList": {},
    TORCH + "container.Sequential": {},
    TORCH + "conv.Conv2d": {"padding": (0, 0), "dilation": (1, 1), "groups": 1},
    TORCH + "dropout.Dropout": {"p": 0.0},
    TORCH + "linear.Identity": {},
    TORCH + "linear.Linear": {},
}
"""Every class a model may be made of, each with attributes that the schema takes for granted."""

_ARGUMENTS = """
    act_layer attn_layer attn_only_layer_scale attn_pool_mlp_ratio attn_pool_num_heads attn_type
    block_fn cfg class_token depth dynamic_img_size embed_dim embed_norm_layer fc_norm final_norm
    head_dim intermediate_size standardize use_clipped_linears
    global_pool img_size in_chans init_values mlp_layer mlp_ratio no_embed_class norm_layer
    num_classes num_heads num_kv_heads num_reg_tokens patch_size pool_include_prefix pre_norm
    proj_bias qk_norm qkv_bias qkv_fused ref_feat_shape reg_tokens rope_grid_indexing
    rope_grid_offset rope_rotate_half rope_temperature rope_type scale_attn_inner scale_attn_norm
    scale_mlp scale_mlp_norm swiglu_align_to swiglu_mlp use_abs_pos_emb use_fc_norm use_post_norm
    use_post_transformer_norm use_pre_transformer_norm use_rel_pos_bias use_rot_pos_emb
"""
ARGUMENTS = frozenset(_ARGUMENTS.split())
"""Arguments of a model whose effect is seen in the model and read from there."""

TRAINING_ONLY = frozenset({"rope_shift_coords", "rope_jitter_coords", "rope_rescale_coords"})
"""Arguments that change nothing but training, for which the schema has no word."""


class NotUnderstoodError(ValueError):
    """Something in a model that the reader does not know."""


def kind_of(module: Timms) -> str:
    """Return the path of a module's class."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def is_there(module: Timms | None) -> bool:
    """Return whether a module does anything."""
    return module is not None and not isinstance(module, nn.Identity)
