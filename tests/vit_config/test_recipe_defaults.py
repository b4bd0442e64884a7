"""What other libraries do where nobody says anything, as docs/recipe.md has it."""

import inspect

import optax
import torch

from parity.porting.reading.libraries.peers import import_timm
from tests.support.recipe_sides import small
from vit_config import Recipe


def _default(function, name):
    return inspect.signature(function).parameters[name].default


def test_the_defaults_that_others_have():
    """The numbers in docs/recipe.md."""
    import_timm()
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler, StepLRScheduler, create_scheduler_v2
    from transformers import TrainingArguments

    hugging_face = TrainingArguments.__dataclass_fields__
    assert _default(torch.optim.AdamW, "weight_decay") == 1e-2
    assert _default(torch.optim.Adam, "weight_decay") == 0
    assert _default(torch.optim.SGD, "momentum") == 0
    assert _default(optax.adamw, "weight_decay") == 1e-4
    assert _default(create_optimizer_v2, "weight_decay") == 0
    assert hugging_face["weight_decay"].default == 0
    assert hugging_face["max_grad_norm"].default == 1.0
    assert hugging_face["lr_scheduler_type"].default == "linear"
    assert _default(torch.optim.lr_scheduler.LinearLR, "start_factor") == 1 / 3
    assert _default(create_scheduler_v2, "warmup_lr") == 1e-5
    assert _default(CosineLRScheduler, "warmup_prefix") is False
    assert _default(StepLRScheduler, "warmup_prefix") is True
    assert _default(create_scheduler_v2, "step_on_epochs") is True
    for name in ("beta1", "beta2", "adam_eps"):
        other = {"beta1": "b1", "beta2": "b2", "adam_eps": "eps"}[name]
        assert _default(optax.adamw, other) == getattr(Recipe(), name)
    assert _default(torch.optim.AdamW, "betas") == (Recipe().beta1, Recipe().beta2)
    assert create_optimizer_v2(small(), "sgd", lr=1.0).defaults["nesterov"]
    assert not create_optimizer_v2(small(), "momentum", lr=1.0).defaults["nesterov"]
