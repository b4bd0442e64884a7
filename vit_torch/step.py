"""One training step and one evaluation step, made from a model and a recipe."""

from collections.abc import Callable

import torch
from torch.func import functional_call

from vit_config import ConfigError, Recipe, ViTOutput
from vit_config.adapters import merge_adapters
from vit_config.lora import Lora
from vit_config.recipe import check_distillation, check_parts
from vit_config.schedule import learning_rate, step_seed
from vit_torch.loss import correct, cross_entropy, distillation
from vit_torch.model import ViT
from vit_torch.optim import Ema, clip_by_global_norm, update_ema

Batch = dict[str, torch.Tensor]
"""``image`` (B, C, H, W), ``label`` (B,), or (B, classes) for mixed images or several labels; for
distillation the teacher's logits ``teacher`` (B, classes); for evaluation also ``mask`` (B,), 0 for
padding."""
Metrics = dict[str, torch.Tensor]


def make_train_step(
    model: ViT,
    recipe: Recipe,
    optimizer: torch.optim.Optimizer,
    steps_per_epoch: int,
    ema: Ema | None = None,
    lora: Lora | None = None,
) -> Callable[[int, Batch], Metrics]:
    """Make the function of one update of `model`, `optimizer` and `ema` in place.

    Dropout draws from torch's default generator, which every step seeds anew from the recipe's seed
    and the step's number.

    Raises:
        ConfigError: see `make_gradients`.

    Returns:
        ``(step, batch) -> metrics`` with `step` counted from 0; metrics are the mean loss, the
        accuracy, the global norm of the gradient and the learning rate, all scalars, of the batch
        before the update.
    """
    gradients = make_gradients(model, recipe, lora)
    update = make_update(model, recipe, optimizer, steps_per_epoch, ema)

    def train_step(step: int, batch: Batch) -> Metrics:
        optimizer.zero_grad()
        return {**gradients(step, batch), **update(step)}

    return train_step


def make_gradients(
    model: ViT, recipe: Recipe, lora: Lora | None = None
) -> Callable[[int, Batch], Metrics]:
    """Make the first half of an update: ``(step, batch) -> metrics``, which adds to `model`'s gradients.

    Gradients are those of the mean loss over the batch, not clipped yet; metrics are the mean loss
    and the accuracy. A batch computed in n parts is averaged over the parts: part i has the images
    i, i + n, i + 2 n and so on.

    Args:
        lora: adapters among the parameters, merged into the weights before the model is called.

    Raises:
        ConfigError: the model's type is not that of the recipe's parameters, or the recipe asks for a
            kernel of JAX, or distills, and the model has no head for it.
    """
    check_distillation(recipe, model.cfg)
    held = str(next(model.parameters()).dtype).removeprefix("torch.")
    wanted = "float64" if recipe.dtype == "float64" else "float32"
    if held != wanted or recipe.kernel != "reference":
        raise ConfigError(
            f'the recipe has dtype = "{recipe.dtype}", of {wanted} parameters, and kernel ='
            f' "{recipe.kernel}"; the model has {held} parameters and the reference kernel; convert the'
            " model, or change the recipe"
        )
    dtype = getattr(torch, recipe.dtype)

    def apply(images: torch.Tensor) -> ViTOutput:
        whole = merge_adapters(dict(model.named_parameters()), lora, transposed=False)
        computed = {name: value.to(dtype) for name, value in whole.items()}
        return functional_call(model, computed, (images.to(dtype),), {"return_tokens": False})

    def gradients(step: int, batch: Batch) -> Metrics:
        check_parts(recipe, len(batch["image"]))
        model.train()
        torch.manual_seed(step_seed(recipe, step))
        count, total = recipe.accumulate, []
        for part in range(count):
            piece = {name: value[part::count] for name, value in batch.items()}
            output = apply(piece["image"])
            loss = image_loss(recipe, output, piece)
            (loss.mean() / count).backward()
            right = correct(output.logits, piece["label"], several=recipe.several)
            total.append((loss.detach().mean(), right.to(loss.dtype).mean()))
        losses, accuracies = zip(*total, strict=True)
        return {"loss": torch.stack(losses).mean(), "accuracy": torch.stack(accuracies).mean()}

    return gradients


def image_loss(recipe: Recipe, output: ViTOutput, batch: Batch) -> torch.Tensor:
    """Compute the loss of each image, (B,)."""
    if recipe.distill == "none":
        return cross_entropy(output.logits, batch["label"], **recipe.loss_options)
    assert output.head_logits is not None
    by_class, by_token = output.head_logits  # (B, classes) each
    labels = cross_entropy(by_class, batch["label"], **recipe.loss_options)
    kind, temperature = recipe.distill, recipe.distill_temperature
    teacher = distillation(by_token, batch["teacher"], kind=kind, temperature=temperature)
    return (1.0 - recipe.distill_weight) * labels + recipe.distill_weight * teacher


def make_update(
    model: ViT,
    recipe: Recipe,
    optimizer: torch.optim.Optimizer,
    steps_per_epoch: int,
    ema: Ema | None = None,
) -> Callable[[int], Metrics]:
    """Make the second half of an update, in place: ``step -> metrics``, the gradient's norm and the
    learning rate."""

    def update(step: int) -> Metrics:
        rate = float(learning_rate(recipe, step, steps_per_epoch))
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        norm = clip_by_global_norm(model.parameters(), recipe.clip_norm, recipe.clip_eps)
        optimizer.step()
        update_ema(recipe, ema, model, step + 1)
        return {"grad_norm": norm, "learning_rate": torch.tensor(rate, dtype=torch.float64)}

    return update


def make_eval_step(model: ViT, recipe: Recipe, lora: Lora | None = None) -> Callable[[Batch], Metrics]:
    """Make the function that sums loss, right answers and images over one padded batch."""

    dtype = getattr(torch, recipe.dtype)

    @torch.no_grad()
    def eval_step(batch: Batch) -> Metrics:
        model.eval()
        whole = merge_adapters(dict(model.named_parameters()), lora, transposed=False)
        computed = {name: value.to(dtype) for name, value in whole.items()}
        logits = functional_call(
            model, computed, (batch["image"].to(dtype),), {"return_tokens": False}
        ).logits
        mask = batch["mask"]
        return {
            "loss": (cross_entropy(logits, batch["label"], kind=recipe.loss) * mask).sum(),
            "correct": (correct(logits, batch["label"], several=recipe.several) * mask).sum(),
            "count": mask.sum(),
        }

    return eval_step
