"""Comparing a recipe with its original: twenty steps in float64, and images from the same draws."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from evidence.originals.big_vision import BigVision
from evidence.originals.ours import JaxSide, TorchSide
from evidence.originals.side import Arrays, Case, Original, Side
from evidence.originals.timm import Mae, Timm, changed_pixels
from parity.measure.error import relative_error
from vit_config import ConfigError, Preprocess
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD
from vit_config.job import Job
from vit_torch import ViT
from vit_torch.weights import to_arrays
from vit_train.augmentation.erase import erase
from vit_train.augmentation.views import Views

STEPS, EPOCHS, BATCH = 20, 5, 6
LARGEST = 1e-11
"""Largest relative error allowed in a loss or a tensor after so many steps."""
IMAGES = 40

_BIG_VISION = "Big Vision's chain of optax transformations and step (optax.py, train.py, utils.py)"
ORIGINALS = {
    "vit_s16_i1k": Original(_BIG_VISION, BigVision, None),
    "augreg_b32_i1k": Original(_BIG_VISION, BigVision, None),
    "augreg_b16_cifar10": Original(_BIG_VISION, BigVision, None),
    "deit_s": Original(
        "timm's create_optimizer_v2, create_scheduler_v2, Mixup, create_transform, as DeiT's main.py",
        Timm,
        changed_pixels,
    ),
    "deit3_s": Original(
        "timm's Lamb, create_scheduler_v2, Mixup and BCE, as DeiT's main.py --bce-loss", Timm, None
    ),
    "mae_b16_finetune": Original(
        "MAE's util/lr_decay.py and lr_sched.py, torch's AdamW, timm's Mixup and create_transform",
        Mae,
        changed_pixels,
    ),
}


class CheckedTwin(NamedTuple):
    """One twin compared with the original."""

    recipe: str
    twin: str
    source: str
    loss: float
    """Largest relative error of a loss."""
    params: float
    """Largest relative error of a parameter after the last step; `where` is its name."""
    where: str
    moved: float
    """Distance that the original's parameters moved, over their initial norm."""
    pixels: str
    """The comparison of images, in words."""

    @property
    def passed(self) -> bool:
        """Whether the twin agrees with the original."""
        return max(self.loss, self.params) <= LARGEST and "differ" not in self.pixels


def check_recipe(name: str, job: Job, seed: int = 0) -> list[CheckedTwin]:
    """Run a recipe in both twins and as its original, and compare them.

    Args:
        name: one of `ORIGINALS`.

    Raises:
        ConfigError: no original of this recipe is known.
    """
    if name not in ORIGINALS:
        raise ConfigError(f"recipe {name}: no original is known; there are {', '.join(ORIGINALS)}")
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        case, original = shrink(name, job, seed), ORIGINALS[name]
        losses, params = _run(case, original.make(case), seed)
        pixels = _pixels(case, original, seed)
        moved = relative_error(_joined(params), _joined(case.start))
        rows = []
        for twin, make in (("JAX", JaxSide), ("PyTorch", TorchSide)):
            ours, after = _run(case, make(case), seed)
            errors = {
                each: relative_error(after[each], value, beside=_beside(each, params))
                for each, value in params.items()
            }
            worst = max(errors, key=lambda each: errors[each])
            wrong = max(abs(a - b) / abs(b) for a, b in zip(ours, losses, strict=True))
            rows.append(
                CheckedTwin(name, twin, original.source, wrong, errors[worst], worst, moved, pixels)
            )
        return rows


def shrink(name: str, job: Job, seed: int) -> Case:
    """Make the case of a recipe: a tiny model, its schedule over twenty steps, nothing dropped."""
    cfg = job.model.replace(
        image_size=(21, 15),
        patch_size=(7, 5),
        hidden_size=40,
        depth=2,
        num_heads=5,
        mlp_dim=44,
        num_classes=11,
        head_hidden=job.model.head_hidden and 17,
        stochastic_depth=0.0,
    )
    recipe = job.recipe.replace(
        dtype="float64", epochs=EPOCHS, batch_size=BATCH, warmup_epochs=1.0, seed=seed
    )
    stream = np.random.default_rng([seed, 1])
    start = {
        each: (value.ndim == 1 and each.endswith("weight")) + 0.2 * stream.standard_normal(value.shape)
        for each, value in to_arrays(ViT(cfg)).items()
    }
    return Case(name, cfg, recipe, STEPS // EPOCHS, STEPS, start)


def _run(case: Case, side: Side, seed: int) -> tuple[list[float], Arrays]:
    losses = []
    for step in range(case.steps):
        stream = np.random.default_rng([seed, 2, step])
        images = stream.standard_normal((BATCH, *case.config.image_size, 3))
        labels = stream.integers(0, case.config.num_classes, BATCH)
        losses.append(side.step(images, labels, np.random.default_rng([seed, 3, step])))
    return losses, side.params()


def _pixels(case: Case, original: Original, seed: int) -> str:
    if original.pixels is None:
        return "by the tests"
    preprocess = Preprocess(mean=IMAGENET_MEAN, std=IMAGENET_STD)
    views, equal = Views(case.recipe.augment, case.config.image_size, preprocess), 0
    for number in range(IMAGES):
        stream = np.random.default_rng([seed, 4, number])
        image = stream.integers(0, 256, (37, 53, 3), np.uint8)
        theirs = original.pixels(case, image, np.random.default_rng([seed, 5, number]))
        rng = np.random.default_rng([seed, 5, number])
        ours = preprocess.normalise(views.changed(image, rng))
        if case.recipe.augment.erase:
            erase(ours, case.recipe.augment.erase, rng)
        equal += np.array_equal(ours, theirs)
    return f"{IMAGES} images equal" if equal == IMAGES else f"{IMAGES - equal} of {IMAGES} images differ"


def _beside(name: str, params: Arrays) -> np.ndarray | None:
    """Return the weight on whose scale a bias of queries, keys and values is judged, too: softmax
    ignores the bias of the keys, so Adam makes its steps of round-off."""
    module, _, leaf = name.rpartition(".")
    return params[f"{module}.weight"] if leaf == "bias" and module.endswith("attn.qkv") else None


def _joined(arrays: Arrays) -> np.ndarray:
    return np.concatenate([arrays[name].reshape(-1) for name in sorted(arrays)])
