"""One change to each field of the schema, and the module in which a check must notice it."""

from typing import Any, NamedTuple

from tests.support.tiny import TINY
from vit_config.augmentation import Augment, Mix
from vit_config.rope import Rope

# every part that some field shapes is there
BASE = TINY.replace(
    hidden_size=40,
    layer_scale=0.1,
    register_tokens=2,
    dropout_embed=0.1,
    dropout_patch=0.3,
    dropout_head=0.1,
    dropout_attention=0.1,
    dropout_attention_out=0.1,
    dropout_mlp_inner=0.1,
    dropout_mlp_outer=0.1,
    stochastic_depth=0.1,
)
REFUSED = "refused"  # the twin does not take the images that the other one takes
UNSEEN = "unseen"  # decides something other than what one evaluation at the configured size computes


class Flip(NamedTuple):
    """Another value of a field."""

    value: Any
    where: str
    """The first module in which the twins then part, empty for the model itself; or the first output."""
    companions: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """What BASE needs for both values to be valid."""


ROPE = Rope(theta=100.0, reference_grid=(5, 2), offset=1.0)
NO_REGISTERS = {"register_tokens": 0}
SOFT = {
    **NO_REGISTERS, "class_token": False, "num_classes": 0, "dropout_head": 0.0, "dropout_patch": 0.0,
    "pool": "soft", "pool_window": 3,
}  # fmt: skip
FLIPS = {
    "image_size": Flip((28, 15), REFUSED),
    "patch_size": Flip((3, 5), "patch_embed.proj"),
    "patch_remainder": Flip("crop", UNSEEN),
    "in_channels": Flip(1, REFUSED),
    "hidden_size": Flip(80, "patch_embed.proj"),
    "depth": Flip(2, "blocks.2"),
    "num_heads": Flip(4, "blocks.0.attn"),
    "num_kv_heads": Flip((1, 5, 5), "blocks.0.attn.qkv"),
    "attention_head_dim": Flip(16, "blocks.0.attn.qkv"),
    "mlp_dim": Flip(45, "blocks.0.mlp.fc1"),
    "num_classes": Flip(12, "head"),
    "patch_embed": Flip("linear_hwc", "patch_embed"),
    "patch_bias": Flip(False, "patch_embed.proj"),
    "patch_input_norm": Flip(True, "patch_embed.norm_in", {"patch_embed": "linear_hwc"}),
    "patch_norm": Flip(True, "patch_embed.norm"),
    "centre_pixels": Flip(True, "patch_embed"),
    "class_token": Flip(False, "", {"pool": "mean"}),
    "distill_token": Flip(True, ""),
    "register_tokens": Flip(1, ""),
    "pos_embed": Flip("sincos1d", ""),
    "pos_embed_prefix": Flip("none", ""),
    "pos_embed_resize": Flip("bilinear_corners", UNSEEN, {"dynamic_image_size": True}),
    "pos_embed_grid": Flip((4, 2), ""),
    "pos_embed_aspect": Flip("keep", UNSEEN, {"dynamic_image_size": True}),
    "dynamic_image_size": Flip(True, UNSEEN),
    "rope": Flip(ROPE, "rope"),
    "rel_pos_bias": Flip(True, "blocks.0.attn.rel_pos_bias", {**NO_REGISTERS, "dropout_patch": 0.0}),
    "pre_norm": Flip(True, "norm_pre"),
    "block": Flip("res_post", "blocks.0"),
    "num_parallel": Flip(2, "blocks.0.norm1"),
    "attention": Flip("differential", "blocks.0.attn"),
    "qkv_bias": Flip(False, "blocks.0.attn.qkv"),
    "k_bias": Flip(False, "blocks.0.attn.qkv"),
    "qk_norm": Flip(True, "blocks.0.attn.q_norm"),
    "v_norm": Flip(True, "blocks.0.attn.v_norm"),
    "attention_scale": Flip(1.0, "blocks.0.attn"),
    "attention_norm": Flip(True, "blocks.0.attn.norm"),
    "attention_out_proj": Flip(False, "blocks.0.attn.proj", {"attention_out_bias": False}),
    "attention_out_bias": Flip(False, "blocks.0.attn.proj"),
    "mlp": Flip("swiglu", "blocks.0.mlp.fc1"),
    "act": Flip("silu", "blocks.0.mlp.act"),
    "mlp_bias": Flip(False, "blocks.0.mlp.fc1"),
    "mlp_norm": Flip(True, "blocks.0.mlp.norm"),
    "linear_bounds": Flip(True, "blocks.0.attn.qkv"),
    "layer_scale": Flip(None, "blocks.0.ls1"),
    "layer_scale_on": Flip("attention", "blocks.0.ls2"),
    "norm": Flip("rmsnorm", "blocks.0.norm1"),
    "norm_eps": Flip(1e-2, "blocks.0.norm1"),
    "final_norm": Flip("none", "norm"),
    "final_norm_affine": Flip(False, "norm"),
    "pool": Flip("mean", "pool"),
    "pool_prefix": Flip(True, "pool", {"pool": "mean"}),
    "pool_num_heads": Flip(8, "attn_pool", {"pool": "map"}),
    "pool_mlp_dim": Flip(45, "attn_pool.mlp.fc1", {"pool": "map"}),
    "pool_window": Flip(1, "pool", SOFT),
    "pool_standardise": Flip(True, "pool", SOFT),
    "head_hidden": Flip(13, "pre_logits"),
    "head_bias": Flip(False, "head"),
    "head_activation": Flip("softmax", "logits"),
    "dropout_embed": Flip(0.5, UNSEEN),
    "dropout_patch": Flip(0.8, UNSEEN),
    "dropout_head": Flip(0.5, UNSEEN),
    "dropout_attention": Flip(0.5, UNSEEN),
    "dropout_attention_out": Flip(0.5, UNSEEN),
    "dropout_mlp_inner": Flip(0.5, UNSEEN),
    "dropout_mlp_outer": Flip(0.5, UNSEEN),
    "stochastic_depth": Flip(0.5, UNSEEN),
    "init": Flip("xavier_normal", UNSEEN),
}

# the fields of the nested schema of rotary positions, away from ROPE
ROPE_FLIPS = {
    "kind": Flip(Rope(kind="mixed", theta=100.0), "rope"),
    "theta": Flip(ROPE.replace(theta=50.0), "rope"),
    "reference_grid": Flip(ROPE.replace(reference_grid=None), "rope"),
    "offset": Flip(ROPE.replace(offset=0.5), "rope"),
    "axes": Flip(ROPE.replace(axes="wh"), "rope"),
    "pairs": Flip(ROPE.replace(pairs="half"), "blocks.0.attn"),
}


class RecipeFlip(NamedTuple):
    """Another value of a field of the recipe."""

    value: Any
    where: str
    """What of a run must then be another: ``updates``, ``gradients``, ``batches``, ``preprocess``,
    ``events`` (what is logged, evaluated and kept, and when), ``numerics``."""
    companions: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """What the recipe needs for both values to be valid."""


SGD = {"optimizer": "sgd"}
STEPWISE = {"schedule": "step", "final_learning_rate": 0.0}
SINGLE = {"dtype": "float32"}
RECIPE_FLIPS = {
    "epochs": RecipeFlip(4, "batches"),
    "batch_size": RecipeFlip(12, "batches"),
    "seed": RecipeFlip(1, "batches"),
    "optimizer": RecipeFlip("adam", "updates"),
    "learning_rate": RecipeFlip(2e-2, "updates"),
    "beta1": RecipeFlip(0.8, "updates"),
    "beta2": RecipeFlip(0.9, "updates"),
    "adam_eps": RecipeFlip(1e-3, "updates"),
    "momentum": RecipeFlip(0.5, "updates", SGD),
    "nesterov": RecipeFlip(True, "updates", SGD),
    "weight_decay": RecipeFlip(0.1, "updates"),
    "decay_times": RecipeFlip("schedule", "updates"),
    "decay": RecipeFlip("all", "updates"),
    "decayed": RecipeFlip(("norm.weight",), "updates", {"decay": "listed", "decayed": ("head.weight",)}),
    "layer_decay": RecipeFlip(0.5, "updates"),
    "layer_rule": RecipeFlip("mae", "updates", {"layer_decay": 0.5}),
    "clip_norm": RecipeFlip(2.0, "updates"),
    "clip_eps": RecipeFlip(1.0, "updates", {"clip_norm": 2.0}),
    "accumulate": RecipeFlip(2, "gradients"),
    "loss": RecipeFlip("sigmoid", "gradients"),
    "labels": RecipeFlip("several", "scores", {"loss": "sigmoid_mean"}),
    "class_weights": RecipeFlip((2.0,) * 10 + (0.5,), "gradients"),
    "sampling": RecipeFlip("balanced", "batches"),
    "label_smoothing": RecipeFlip(0.2, "gradients"),
    "label_threshold": RecipeFlip(0.5, "gradients", {"loss": "sigmoid", "label_smoothing": 0.6}),
    "distill": RecipeFlip("hard", "gradients", {"distill": "soft"}),
    "distill_weight": RecipeFlip(0.3, "gradients", {"distill": "soft"}),
    "distill_temperature": RecipeFlip(3.0, "gradients", {"distill": "soft"}),
    "ema": RecipeFlip(0.5, "updates", {"ema": 0.9}),
    "ema_warmup": RecipeFlip(True, "updates", {"ema": 0.9}),
    "schedule": RecipeFlip("linear", "updates"),
    "schedule_unit": RecipeFlip("epoch", "updates"),
    "warmup_epochs": RecipeFlip(2.0, "updates"),
    "warmup_fraction": RecipeFlip(0.5, "updates", {"warmup_epochs": 0.0}),
    "warmup_start": RecipeFlip(1e-3, "updates"),
    "warmup_overlaps": RecipeFlip(True, "updates"),
    "final_learning_rate": RecipeFlip(1e-2, "updates"),
    "reach_final": RecipeFlip(True, "updates"),
    "step_epochs": RecipeFlip(1.0, "updates", STEPWISE),
    "step_factor": RecipeFlip(0.5, "updates", {**STEPWISE, "step_epochs": 1.0}),
    "rsqrt_epochs": RecipeFlip(1.0, "updates", {"schedule": "rsqrt", "final_learning_rate": 0.0}),
    "pixels": RecipeFlip("half", "preprocess"),
    "eval_crop": RecipeFlip(0.5, "preprocess"),
    "exif": RecipeFlip("apply", "preprocess"),
    "augment": RecipeFlip(Augment(flip=True), "batches"),
    "mix": RecipeFlip(Mix(mixup=0.8), "batches"),
    "device_side": RecipeFlip(48, "batches", {"augment": Augment(crop="torchvision")}),
    "dtype": RecipeFlip("bfloat16", "gradients", SINGLE),
    "kernel": RecipeFlip("xla", "gradients", SINGLE),
    "reduce_dtype": RecipeFlip("bfloat16", "sums", SINGLE),
    "matmul_precision": RecipeFlip("highest", "numerics"),
    "validation_fraction": RecipeFlip(0.2, "events"),
    "watch_test": RecipeFlip(True, "events", {"eval_every_epochs": 1}),
    "eval_every_epochs": RecipeFlip(7, "events", {"validation_fraction": 0.2}),
    "checkpoint_every_epochs": RecipeFlip(1, "events"),
    "log_every_steps": RecipeFlip(2, "events"),
}

# the fields of the nested schema of random changes to images, away from none
AUGMENT_FLIPS = {
    "decode_side": Augment(decode_side=7),
    "shift": Augment(shift=0.2),
    "rotate": Augment(rotate=20.0),
    "scale": Augment(scale=0.2),
    "flip": Augment(flip=True),
    "crop": Augment(crop="torchvision"),
    "crop_area": Augment(crop="torchvision", crop_area=(0.5, 0.6)),
    "crop_ratio": Augment(crop="torchvision", crop_ratio=(0.5, 0.6)),
    "crop_filter": Augment(crop="torchvision", crop_filter="bilinear"),
    "crop_resize": Augment(crop="random", crop_resize=30),
    "policy": Augment(policy="timm"),
    "policy_layers": Augment(policy="timm", policy_layers=3),
    "policy_magnitude": Augment(policy="timm", policy_magnitude=4.0),
    "policy_deviation": Augment(policy="timm", policy_deviation=2.0),
    "color_jitter": Augment(color_jitter=0.3),
    "erase": Augment(erase=0.5),
    "repeats": Augment(repeats=2),
}
AUGMENT_BASES = {
    "crop_area": Augment(crop="torchvision"),
    "crop_ratio": Augment(crop="torchvision"),
    "crop_filter": Augment(crop="torchvision"),
    "crop_resize": Augment(crop="random", crop_resize=21),
    "policy_layers": Augment(policy="timm"),
    "policy_magnitude": Augment(policy="timm"),
    "policy_deviation": Augment(policy="timm"),
}
"""What a change is away from, where that is not none."""

# the fields of the nested schema of mixing, each with what it is away from
MIX_FLIPS = {
    "mixup": (Mix(cutmix=1.0), Mix(cutmix=1.0, mixup=0.8)),
    "cutmix": (Mix(mixup=0.8), Mix(mixup=0.8, cutmix=1.0)),
    "style": (Mix(mixup=0.8), Mix(mixup=0.8, style="big_vision")),
    "mode": (Mix(mixup=0.8), Mix(mixup=0.8, mode="elem")),
    "probability": (Mix(mixup=0.8), Mix(mixup=0.8, probability=0.3)),
    "cutmix_share": (Mix(mixup=0.8, cutmix=1.0), Mix(mixup=0.8, cutmix=1.0, cutmix_share=0.1)),
}
