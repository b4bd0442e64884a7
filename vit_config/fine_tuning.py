"""The recipe of a run that starts from weights and has none of its own."""

from __future__ import annotations

from vit_config.augmentation import Augment
from vit_config.recipe import Recipe

SIZES = ((1_000, 30, 32, 3e-4), (10_000, 20, 64, 5e-4), (None, 10, 128, 7e-4))
"""Up to how many images; then epochs, images in a batch and the peak learning rate, which grows with
the root of the batch."""
BATCHES = 4
"""Fewest batches of an epoch, into which a smaller set is cut."""


def fine_tuning(images: int | None) -> Recipe:
    """Make a recipe for weights that have been trained already.

    AdamW with a learning rate that falls from layer to layer (BEiT, arXiv 2106.08254, and MAE, arXiv
    2111.06377, fine-tune so), a warm-up and half a cosine; random resized crops, flips and smoothed
    labels.

    Args:
        images: number of images in the training set; None if unknown.
    """
    _, epochs, batch, rate = next(
        size for size in SIZES if size[0] is None or (images is not None and images <= size[0])
    )
    if images is not None:
        batch = max(min(batch, images // BATCHES), 1)
    return Recipe(
        epochs=epochs,
        batch_size=batch,
        learning_rate=rate,
        weight_decay=0.05,
        layer_decay=0.75,
        clip_norm=1.0,
        label_smoothing=0.1,
        warmup_fraction=0.1,
        augment=Augment(crop="torchvision", crop_area=(0.35, 1.0), flip=True),
    )


def told(recipe: Recipe) -> str:
    """Describe a recipe for fine-tuning in one line."""
    area = "-".join(f"{share:.0%}" for share in recipe.augment.crop_area)
    crop = f"crops of {area}" if recipe.augment.crop != "none" else "no crops"
    return (
        f"{recipe.optimizer} at {recipe.learning_rate:g}, layer decay {recipe.layer_decay:g},"
        f" weight decay {recipe.weight_decay:g}, {recipe.epochs} epochs of batches of"
        f" {recipe.batch_size}, {recipe.warmup / recipe.epochs:.0%} warm-up, {recipe.schedule}, {crop},"
        f" {'flips' if recipe.augment.flip else 'no flips'}, label smoothing {recipe.label_smoothing:g}"
    )
