"""timm's training, as DeiT's and MAE's scripts put it together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch

from evidence.originals.draws import image_draws, numpy_draws
from evidence.originals.side import Arrays, Case
from parity.porting.reading.libraries.peers import import_timm
from vit_config import Recipe, ViTConfig
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD

ARCHITECTURES = {
    "deit_s": "deit_small_patch16_224",
    "deit3_s": "deit3_small_patch16_224",
    "mae_b16_finetune": "vit_base_patch16_224",
}


class Timm:
    """DeiT's main.py and engine.py on timm's functions; DeiT III's with its BCE."""

    def __init__(self, case: Case) -> None:
        self._recipe, self._done, self._per_epoch = case.recipe, 0, case.steps_per_epoch
        self._model = (
            import_timm().create_model(ARCHITECTURES[case.name], **_sizes(case.config)).double()
        )
        start = {name: torch.from_numpy(value) for name, value in case.start.items()}
        self._model.load_state_dict(start, strict=True)
        self._mixup = _mixup(case)
        options = {"max_grad_norm": case.recipe.clip_norm} if case.recipe.optimizer == "lamb" else {}
        self._optimizer = _room("optim").create_optimizer_v2(
            self._model,
            opt=case.recipe.optimizer,
            lr=case.recipe.learning_rate,
            weight_decay=case.recipe.weight_decay,
            eps=case.recipe.adam_eps,
            **options,
        )
        self._set_rate = self._scheduler()

    def _scheduler(self) -> Any:
        recipe = self._recipe
        scheduler, _ = _room("scheduler").create_scheduler_v2(
            self._optimizer,
            sched="cosine",
            num_epochs=recipe.epochs,
            warmup_epochs=int(recipe.warmup),
            warmup_lr=recipe.warmup_start or 0.0,
            min_lr=recipe.final_learning_rate,
        )
        return lambda step: scheduler.step(step // self._per_epoch)

    def step(self, images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> float:
        """See `Side`."""
        samples = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
        with numpy_draws(rng), _doubles():
            samples, targets = self._mixup(samples, torch.from_numpy(labels))
        loss_of = _room("loss").SoftTargetCrossEntropy()
        if self._recipe.loss == "sigmoid_mean":  # DeiT's --bce-loss
            targets, loss_of = targets.gt(0.0).type(targets.dtype), torch.nn.BCEWithLogitsLoss()
        self._set_rate(self._done)
        loss = loss_of(self._model(samples), targets)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._done += 1
        return float(loss.detach())

    def params(self) -> Arrays:
        """See `Side`."""
        return {name: value.detach().numpy().copy() for name, value in self._model.named_parameters()}


class Mae(Timm):
    """MAE's main_finetune.py: its groups (util/lr_decay.py), its schedule (util/lr_sched.py), torch's
    AdamW."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._optimizer = torch.optim.AdamW(
            _mae_groups(self._model, case.recipe.weight_decay, case.recipe.layer_decay),
            lr=case.recipe.learning_rate,
        )

    def _scheduler(self) -> Any:
        recipe = self._recipe

        def adjust(step: int) -> None:
            epoch, peak, low = step / self._per_epoch, recipe.learning_rate, recipe.final_learning_rate
            warmup = recipe.warmup
            if epoch < warmup:
                rate = peak * epoch / warmup
            else:
                done = (epoch - warmup) / (recipe.epochs - warmup)
                rate = low + (peak - low) * 0.5 * (1.0 + math.cos(math.pi * done))
            for group in self._optimizer.param_groups:
                group["lr"] = rate * group["lr_scale"]

        return adjust


def _mae_groups(model: Any, weight_decay: float, layer_decay: float) -> list[dict[str, Any]]:
    layers = len(model.blocks) + 1
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, value in model.named_parameters():
        if name in ("cls_token", "pos_embed") or name.startswith("patch_embed"):
            layer = 0
        else:
            layer = int(name.split(".")[1]) + 1 if name.startswith("blocks") else layers
        plain = value.ndim == 1 or name in ("pos_embed", "cls_token", "dist_token")
        group = {"lr_scale": layer_decay ** (layers - layer), "params": []}
        group["weight_decay"] = 0.0 if plain else weight_decay
        groups.setdefault((layer, plain), group)["params"].append(value)
    return list(groups.values())


def _room(name: str) -> Any:
    import_timm()
    return import_module(f"timm.{name}")


def _mixup(case: Case) -> Any:
    return _room("data").Mixup(
        mixup_alpha=case.recipe.mix.mixup,
        cutmix_alpha=case.recipe.mix.cutmix,
        prob=case.recipe.mix.probability,
        switch_prob=case.recipe.mix.cutmix_share,
        mode=case.recipe.mix.mode,
        label_smoothing=case.recipe.label_smoothing,
        num_classes=case.config.num_classes,
    )


def _sizes(cfg: ViTConfig) -> dict[str, Any]:
    sizes = {
        "img_size": cfg.image_size,
        "patch_size": cfg.patch_size,
        "embed_dim": cfg.hidden_size,
        "depth": cfg.depth,
        "num_heads": cfg.num_heads,
        "mlp_ratio": cfg.mlp_dim / cfg.hidden_size,
        "num_classes": cfg.num_classes,
    }
    return {**sizes, "global_pool": "avg", "fc_norm": True} if cfg.pool == "mean" else sizes


@contextmanager
def _doubles() -> Iterator[None]:
    """Make float64 torch's default type inside the context, as it is the type of Mixup's targets."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def changed_pixels(case: Case, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an image after timm's `create_transform`, called as DeiT and MAE call it."""
    import_timm()
    from PIL import Image

    with image_draws(rng):
        chain: Any = _transform(case.recipe, case.config.image_size)
        return chain(Image.fromarray(image)).numpy().transpose(1, 2, 0)


def _transform(recipe: Recipe, size: tuple[int, int]) -> Any:
    chain = _room("data").create_transform(
        size,
        is_training=True,
        color_jitter=0.3,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=recipe.augment.erase,
        re_mode="pixel",
        re_count=1,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    )
    if recipe.augment.erase:
        chain.transforms[-1].device = "cpu"
    return chain
