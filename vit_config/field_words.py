"""The words of other libraries for what a flag, or a field of a schema, is called otherwise here."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

WORDS = {
    "--recipe.ema": "ema-decay model-ema model-ema-decay ema-rate use-ema",
    "--recipe.learning-rate": "lr learning-rate base-lr blr lr0",
    "--recipe.final-learning-rate": "min-lr lr-min end-lr lrf final-lr",
    "--recipe.schedule": "sched scheduler lr-scheduler lr-scheduler-type lr-schedule",
    "--recipe.warmup-epochs": "warmup warmup-steps warm-up warmup-epoch",
    "--recipe.warmup-fraction": "warmup-ratio",
    "--recipe.weight-decay": "wd weight-decay l2 adamw-weight-decay",
    "--recipe.optimizer": "opt optim optimiser optimizer",
    "--recipe.batch-size": "batch bs b batch-size per-device-train-batch-size train-batch-size",
    "--recipe.epochs": "epochs num-epochs num-train-epochs max-epochs",
    "--recipe.seed": "seed random-seed",
    "--recipe.clip-norm": "clip-grad grad-clip max-grad-norm gradient-clip-val clip-grad-norm clip",
    "--recipe.accumulate": "grad-accum accumulate-grad-batches gradient-accumulation-steps accum-iter",
    "--recipe.layer-decay": "llrd layer-lr-decay layer-wise-lr-decay",
    "--recipe.label-smoothing": "smoothing label-smoothing label-smooth",
    "--recipe.mix.mixup": "mixup mixup-alpha",
    "--recipe.mix.cutmix": "cutmix cutmix-alpha",
    "--recipe.augment.policy": "aa auto-augment autoaugment randaugment rand-augment trivialaugment",
    "--recipe.augment.erase": "reprob random-erasing random-erase erasing",
    "--recipe.augment.color-jitter": "color-jitter colour-jitter jitter",
    "--recipe.augment.flip": "hflip horizontal-flip flip",
    "--recipe.augment.repeats": "aug-repeats repeated-aug repeated-augmentation",
    "--recipe.class-weights": "class-weight class-imbalance balanced imbalance pos-weight",
    "--recipe.sampling": "weighted-sampler oversample balanced-sampler",
    "--recipe.validation-fraction": "val-split validation-split val-fraction train-split",
    "--recipe.eval-every-epochs": "eval-steps evaluation-strategy eval-freq eval-interval val-interval",
    "--recipe.log-every-steps": "logging-steps log-interval print-freq log-every",
    "--recipe.kernel": "flash-attention flash attn-implementation sdpa",
    "--dtype": "fp16 bf16 half amp mixed-precision precision bfloat16 quantize quantise",
    "--model.stochastic-depth": "drop-path drop-path-rate droppath stochastic-depth",
    "--model.dropout-mlp-outer": "dropout drop drop-rate",
    "--model.dropout-attention": "attn-drop attention-dropout attn-drop-rate",
    "--model.hidden-size": "embed-dim hidden-dim dim d-model width embedding-dim",
    "--model.depth": "num-hidden-layers num-layers n-layers n-layer layers num-blocks",
    "--model.num-heads": "num-attention-heads heads n-heads n-head nhead attention-heads",
    "--model.mlp-dim": "intermediate-size dim-feedforward ffn-dim mlp-hidden-dim",
    "--model.in-channels": "in-chans num-channels channels",
    "--model.act": "hidden-act act-layer activation",
    "--model.norm-eps": "layer-norm-eps layernorm-eps",
    "--model.pool": "global-pool pooling",
    "--model.register-tokens": "reg-tokens num-register-tokens registers",
    "--model.layer-scale": "init-values layerscale-value",
    "--model.num-classes": "num-classes nb-classes num-labels n-classes classes",
    "--model.image-size": "img-size image-size input-size imgsz resolution",
    "--model.patch-size": "patch-size patch",
    "--patience": "early-stopping early-stop early-stopping-patience",
    "--best": "load-best-model-at-end save-best monitor metric-for-best-model",
    "--init": "pretrained finetune fine-tune checkpoint weights model-name-or-path initial-checkpoint",
    "--run-dir": "output output-dir out-dir save-dir log-dir logdir resume resume-from-checkpoint",
    "--workers": "num-workers dataloader-num-workers n-workers",
    "--data": "dataset data-path dataset-name train-dir data-set",
    "--mesh": "devices gpus num-gpus n-gpu nproc-per-node",
    "--freeze": "freeze-backbone linear-probe freeze-encoder",
    "--lora-rank": "lora-r lora rank",
    "--remat": "gradient-checkpointing grad-checkpointing checkpointing",
    "--compiled": "cache-dir compilation-cache",
    "--opset": "opset-version",
    "--batch": "batch-size dynamic dynamic-axes",
    "--image-size": "img-size input-size imgsz resolution size",
    "--to": "format target dialect-out to-format output-format export-format",
    "--platforms": "device devices platform",
    "--k": "topk top-k top",
    "--labels": "class-names texts prompts candidate-labels",
    "--features": "embeddings embed output-features",
    "--framework": "backend",
    "--force": "overwrite clobber exist-ok",
    "--apart-from": "ignore exclude except",
    "--out": "output o output-file out-file",
    "--damaged": "skip-damaged ignore-errors skip-corrupt",
    "--limit": "tol tolerance atol rtol threshold",
}
"""Flags, and what else they are called, without their dashes, in timm, transformers, Lightning, MAE,
Ultralytics or optimum."""
WITHOUT = {
    "tol tolerance atol rtol threshold": "no tolerance is given by hand: how far rounding alone moves"
    " each number is measured, see docs/verifying.md and docs/parity.md",
    "mlp-ratio": "mlp_dim is the width of the MLP itself, mlp_ratio times hidden_size",
    "device devices cuda gpu cpu": "JAX computes on the accelerator that it finds, with"
    " JAX_PLATFORMS=cpu on the CPU, PyTorch's twin on the CPU; from Python,"
    " loaded.model.to('cuda') moves that one",
}
"""What other libraries have a flag for, and why a command that has none needs none."""


def flag_for(words: Sequence[str], flags: Sequence[str]) -> str | None:
    """Return the flag that a word of another library stands for; None if it is of none here.

    Args:
        words: words of a command line that are no flags of it.
        flags: the flags of the command.
    """
    return next(
        (flag for word in words for flag, others in WORDS.items()
         if flag in flags and _stem(word) in others.split()),
        None,
    )  # fmt: skip


def field_for(word: str, fields: Collection[str]) -> str | None:
    """Return the field, one of `fields`, that a word of another library stands for, or None."""
    for flag, others in WORDS.items():
        name = flag.removeprefix("--").rpartition(".")[2].replace("-", "_")
        if name in fields and _stem(word) in others.split():
            return name
    return None


def meant(word: str, names: Collection[str]) -> str | None:
    """Return the name, one of `names`, that was meant by a word that is none of them, or None."""
    return field_for(word, names) or next(iter(difflib.get_close_matches(word, names, n=1)), None)


def reason_without(words: Sequence[str], flags: Sequence[str]) -> str | None:
    """Say why no flag is needed for what a word stands for elsewhere; None if that is not known, or
    there are flags that begin with it."""
    stems = {_stem(word) for word in words if not any(each.startswith(word) for each in flags)}
    return next((why for others, why in WITHOUT.items() if stems.intersection(others.split())), None)


def _stem(word: str) -> str:
    return word.partition("=")[0].lstrip("-").replace("_", "-").rpartition(".")[2].lower()
