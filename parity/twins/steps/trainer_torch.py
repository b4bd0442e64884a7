"""The PyTorch twin's trainer, step by step, built from the same functions as a training run."""

from __future__ import annotations

import numpy as np
import torch

from parity.measure.device import Device, torch_device
from parity.measure.precision import Precision, torch_at
from parity.runs.state import TrainingState
from parity.runs.state_torch import from_torch, to_torch
from parity.twins.steps.trainer import Batch, StepGradients
from vit_config import Recipe, ViTConfig
from vit_torch import optim
from vit_torch import step as steps
from vit_torch.leaves import leaves
from vit_torch.model import ViT
from vit_torch.weights import to_numpy


class TorchTrainer:
    """Trainer of the PyTorch twin, for runs of one schema and recipe."""

    def __init__(
        self,
        cfg: ViTConfig,
        recipe: Recipe,
        steps_per_epoch: int,
        *,
        precision: Precision = "highest",
        device: Device = "cpu",
    ) -> None:
        self.cfg, self.recipe, self.steps_per_epoch = cfg, recipe, steps_per_epoch
        self.precision: Precision = precision
        self.device = torch_device(device)

    def begin(self, state: TrainingState) -> TorchSession:
        """Start a run from a state."""
        return TorchSession(self, state)


class TorchSession:
    """One run of the PyTorch twin."""

    def __init__(self, trainer: TorchTrainer, state: TrainingState) -> None:
        recipe = trainer.recipe
        self._recipe = recipe
        self._precision: Precision = trainer.precision
        self._device = trainer.device
        dtype = torch.float64 if recipe.dtype == "float64" else torch.float32
        self._model = ViT(trainer.cfg, kernel=recipe.kernel).to(self._device, dtype)
        self._optimizer = optim.make_optimizer(self._model, recipe)
        self._ema = optim.init_ema(recipe, self._model)
        self._gradients = steps.make_gradients(self._model, recipe)
        self._update = steps.make_update(
            self._model, recipe, self._optimizer, trainer.steps_per_epoch, self._ema
        )
        self.load(state)

    def load(self, state: TrainingState) -> None:
        """Continue from another state."""
        self._step = state.step
        to_torch(state, self._model, self._optimizer, self._ema, self._recipe)

    def step(self, batch: Batch) -> StepGradients:
        """Do one update."""
        images = torch.from_numpy(np.array(batch["image"])).permute(0, 3, 1, 2)  # NHWC to NCHW
        labels = torch.from_numpy(np.array(batch["label"]))  # (B,), or shares (B, classes)
        labels = labels if labels.is_floating_point() else labels.long()
        images, labels = images.to(self._device), labels.to(self._device)
        with torch_at(self._precision):
            self._optimizer.zero_grad()
            metrics = self._gradients(self._step, {"image": images, "label": labels})
            grads = {
                leaf.name: to_numpy(
                    torch.zeros_like(leaf.variable) if leaf.variable.grad is None else leaf.variable.grad
                )
                for leaf in leaves(self._model)
            }
            self._update(self._step)
        self._step += 1
        return StepGradients(float(metrics["loss"]), grads)

    def state(self) -> TrainingState:
        """Return the state after the last update, in arrays of its own."""
        return from_torch(self._step, self._model, self._optimizer, self._ema, self._recipe)
