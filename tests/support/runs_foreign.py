"""Runs of the libraries themselves, tiny and in float64, and the same next step in both worlds."""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch

from evidence.timm_sweep import peer
from parity.porting.formats import Stored
from parity.runs.foreign.moments import read_arrays, rows_of
from parity.runs.foreign.read import open_foreign
from parity.runs.run import Run
from parity.runs.state_jax import JaxLayout, from_jax, to_jax
from tests.support.dialect_proof import redraw
from vit_jax.step import make_update

timm: Any = peer.import_timm()
for module in ("optim", "scheduler", "utils"):
    importlib.import_module(f"timm.{module}")

SIZES = {
    "img_size": (12, 6), "patch_size": (4, 3), "embed_dim": 20, "depth": 2, "num_heads": 5,
    "mlp_ratio": 1.5,
}  # fmt: skip
STEPS, EPOCHS = 3, 6
"""Updates an epoch, and epochs in all."""
ARGS = {
    "model": "vit_tiny_patch16_224", "model_kwargs": SIZES, "num_classes": 7, "in_chans": 3, "gp": None,
    "drop": 0.0, "drop_path": None, "opt": "adamw", "lr": 3e-3, "weight_decay": 0.05, "opt_eps": None,
    "opt_betas": None, "momentum": 0.9, "layer_decay": None, "batch_size": 4, "world_size": 1,
    "grad_accum_steps": 1, "epochs": EPOCHS, "sched": "cosine", "sched_on_updates": False,
    "warmup_epochs": 2, "warmup_lr": 1e-4, "warmup_prefix": False, "min_lr": 1e-5, "cooldown_epochs": 0,
    "lr_cycle_limit": 1, "lr_cycle_mul": 1.0, "lr_cycle_decay": 0.5, "lr_k_decay": 1.0, "lr_noise": None,
    "decay_epochs": 30.0, "decay_rate": 0.1, "smoothing": 0.1, "bce_loss": False, "bce_sum": False,
    "clip_grad": 0.7, "clip_mode": "norm", "model_ema": True, "model_ema_decay": 0.9,
    "model_ema_warmup": False, "amp": False, "model_dtype": None, "seed": 42, "mixup": 0.0,
}  # fmt: skip
"""As timm's training script has them."""


ASKED = {
    "rope": None, "block": "pre_norm", "pool_prefix": False, "norm_eps": 1e-6, "num_heads": 5,
    "act": "gelu", "pool": "class", "image_size": (12, 6),
}  # fmt: skip
"""What a file without arguments leaves open of the model."""


def batch(step: int, size: tuple[int, int] = (12, 6)) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (4, 3, H, W) float64 and their labels (4,)."""
    random = np.random.default_rng(step)
    images = random.standard_normal((4, 3, *size))
    return torch.from_numpy(images), torch.from_numpy(random.integers(0, 7, 4))


@dataclass
class Training:
    """A training run of a library, live."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any = None
    ema: Any = None
    clip: float | None = None
    step: int = 0
    smoothing: float = 0.1

    def gradients(self) -> dict[str, np.ndarray]:
        """Those of the next batch, by the names of the model; left in the model, not clipped."""
        images, labels = batch(self.step)
        self.optimizer.zero_grad()
        output = self.model(images)
        logits = output if isinstance(output, torch.Tensor) else output.logits
        loss = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=self.smoothing)
        loss.backward()
        return {name: value.grad.numpy().copy() for name, value in self.model.named_parameters()}

    def update(self) -> None:
        """One update."""
        self.gradients()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.step += 1
        if self.ema is not None:
            self.ema.update(self.model)

    def params(self) -> dict[str, np.ndarray]:
        """Copies of the parameters."""
        return arrays(self.model)


def arrays(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Copies of a model's parameters by its names."""
    return {name: value.detach().numpy().copy() for name, value in model.named_parameters()}


def timm_run(epochs: int = 3, *, seed: int = 0, **changes: Any) -> tuple[Training, Namespace]:
    """Epochs of timm's training script, which asks the scheduler between them."""
    args = Namespace(**{**ARGS, **changes})
    model = timm.create_model(
        args.model, num_classes=args.num_classes, drop_rate=args.drop, drop_path_rate=args.drop_path,
        **args.model_kwargs,
    )  # fmt: skip
    model = redraw(model, seed).train()
    optimizer = timm.optim.create_optimizer_v2(
        model, args.opt, lr=args.lr, weight_decay=args.weight_decay, momentum=args.momentum
    )
    scheduler, _ = timm.scheduler.create_scheduler_v2(
        optimizer, **timm.scheduler.scheduler_factory.scheduler_kwargs(args), updates_per_epoch=STEPS
    )
    ema = None
    if args.model_ema:
        ema = timm.utils.ModelEmaV3(model, decay=args.model_ema_decay)
    run = Training(model, optimizer, scheduler, ema, args.clip_grad, smoothing=args.smoothing)
    for epoch in range(epochs):
        if scheduler is not None:
            scheduler.step(epoch)
        for _ in range(STEPS):
            if scheduler is not None:
                scheduler.step_update(run.step)
            run.update()
    return run, args


def save_timm(run: Training, args: Namespace | None, folder: Path) -> Path:
    """What timm's own saver writes after whole epochs."""
    folder.mkdir(exist_ok=True)
    saver = timm.utils.CheckpointSaver(
        run.model, run.optimizer, args=args, model_ema=run.ema, checkpoint_dir=str(folder)
    )
    saver.save_checkpoint(run.step // STEPS - 1)
    return folder / "last.pth.tar"


def timm_file(folder: Path, **changes: Any) -> tuple[Training, Path]:
    """A run and its file."""
    run, args = timm_run(**changes)
    return run, save_timm(run, args, folder)


def edited(path: Path, change: Any) -> Path:
    """A torch file after something was done to what is in it."""
    content = torch.load(path, weights_only=False)
    change(content)
    out = path.with_name(f"edited-{path.name}")
    torch.save(content, out)
    return out


def ours(path: Path, named: dict[str, np.ndarray], **reading: Any) -> dict[str, np.ndarray]:
    """Arrays like the parameters, by the library's names in memory, through the rows of its dialect."""
    checkpoint = open_foreign(path, **reading).checkpoint
    stored = {name: Stored.of(value) for name, value in named.items()}
    inside = replace(checkpoint, tensors=checkpoint.dialect.within_body(stored))
    return read_arrays(inside, inside.tensors, rows_of(inside))


def next_in_optax(run: Run, grads: dict[str, np.ndarray]) -> Any:
    """The state after one more update by the JAX twin's optimiser; needs `x64`."""
    layout = JaxLayout(run.config)
    state = to_jax(layout, run.state, run.recipe, run.steps_per_epoch or 1)
    update = jax.jit(make_update(run.recipe, run.steps_per_epoch or 1))
    return from_jax(layout, update(state, layout.from_common(grads)))


def error(kind: type[Exception], work: Callable[[], Any]) -> str:
    """The one line by which a mistake is refused."""
    with pytest.raises(kind) as caught:
        work()
    said = str(caught.value)
    assert caught.type is kind
    assert said
    assert "\n" not in said
    return said


def assert_near(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Equal to 1e-12 of each tensor's largest value; and the tensors are the same."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = np.abs(value).max()
        np.testing.assert_allclose(actual[name], value, rtol=0, atol=1e-12 * scale, err_msg=name)
