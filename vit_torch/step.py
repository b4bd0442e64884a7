"""One training step and one evaluation step, made from a model and a recipe."""

from collections.abc import Callable

import torch

from vit_config import ConfigError, Recipe
from vit_config.recipe import learning_rate
from vit_torch.loss import correct, cross_entropy
from vit_torch.model import ViT
from vit_torch.optim import clip_by_global_norm

Batch = dict[str, torch.Tensor]
"""``image`` (B, C, H, W), ``label`` (B,); for evaluation also ``mask`` (B,), 0 for padding."""
Metrics = dict[str, torch.Tensor]


def make_train_step(
    model: ViT, recipe: Recipe, optimizer: torch.optim.Optimizer, steps_per_epoch: int
) -> Callable[[int, Batch], Metrics]:
    """The function of one update of `model` in place.

    Dropout draws from torch's default generator; seed it with the recipe's seed to repeat a run.

    Raises:
        ConfigError: the recipe asks for a type or kernel that this model does not compute in.

    Returns:
        ``(step, batch) -> metrics`` with `step` counted from 0; metrics are the mean loss, the
        accuracy, the global norm of the gradient and the learning rate, all scalars, of the batch
        before the update.
    """
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    if recipe.dtype != dtype or recipe.kernel != "reference":
        raise ConfigError(
            f'the recipe has dtype = "{recipe.dtype}" and kernel = "{recipe.kernel}", the model computes'
            f" in {dtype} with the reference kernel; convert the model, or change the recipe"
        )

    def train_step(step: int, batch: Batch) -> Metrics:
        model.train()
        rate = float(learning_rate(recipe, step, steps_per_epoch))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        logits = model(batch["image"]).logits
        loss = cross_entropy(logits, batch["label"], smoothing=recipe.label_smoothing).mean()
        loss.backward()
        norm = clip_by_global_norm(model.parameters(), recipe.clip_norm)
        optimizer.step()
        return {
            "loss": loss.detach(),
            "accuracy": correct(logits, batch["label"]).to(loss.dtype).mean(),
            "grad_norm": norm,
            "learning_rate": torch.tensor(rate, dtype=torch.float64),
        }

    return train_step


def make_eval_step(model: ViT) -> Callable[[Batch], Metrics]:
    """The function that sums loss, right answers and images over one padded batch."""

    @torch.no_grad()
    def eval_step(batch: Batch) -> Metrics:
        model.eval()
        logits, mask = model(batch["image"]).logits, batch["mask"]
        return {
            "loss": (cross_entropy(logits, batch["label"]) * mask).sum(),
            "correct": (correct(logits, batch["label"]) * mask).sum(),
            "count": mask.sum(),
        }

    return eval_step
