"""The functions of one training run on one device, as its loop calls them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from vit_config import Recipe, ViTConfig
from vit_config.lora import Lora
from vit_torch.leaves import leaves
from vit_torch.model import ViT
from vit_torch.optim import Ema, init_ema, make_optimizer
from vit_torch.step import Batch, Metrics, make_eval_step, make_gradients, make_train_step
from vit_torch.train.adapters import add_adapters
from vit_torch.train.state import StoredState, TrainState, store, unstore
from vit_torch.weights import abstract_model, to_numpy


@dataclass(frozen=True)
class CompiledRun:
    """The functions of one training run on one device."""

    device: torch.device
    initialise: Callable[[], TrainState]
    """Creates the state before the first update, on the device."""
    abstract_state: StoredState
    """Shapes and types of the state, on torch's meta device."""
    place_state: Callable[[StoredState], TrainState]
    """Copies a state from the host to the device."""
    place_batch: Callable[[Mapping[str, Any]], Batch]
    """Copies a batch of numpy arrays to the device: images (B, H, W, C) become (B, C, H, W)."""
    train_step: Callable[[TrainState, Batch], tuple[TrainState, Metrics]]
    """Training step as `vit_torch.step.make_train_step` makes it; the state passed in is used up."""
    eval_step: Callable[[Ema, Batch], Metrics]
    """Evaluation step as `vit_torch.step.make_eval_step` makes it, of any parameters by name."""
    fetch: Callable[[Any], Any]
    """Brings a state to the host, where the next step may change it; or metrics or parameters to
    numpy arrays of their own memory."""

    @property
    def store(self) -> Callable[[Any], Any]:
        """Function that brings a state to the form that checkpoints take."""
        return self.fetch

    def fence(self, _: Any) -> Callable[[], object]:
        """Return a function that waits until the last step has been computed, if on a GPU."""
        if self.device.type != "cuda":
            return lambda: None
        event = torch.cuda.Event()
        event.record()
        return event.synchronize


def make_program(
    cfg: ViTConfig,
    recipe: Recipe,
    steps_per_epoch: int,
    *,
    device: torch.device | None = None,
    frozen: Collection[str] = (),
    lora: Lora | None = None,
) -> CompiledRun:
    """Wrap the steps for `device` (default: the GPU that torch sees, else the CPU).

    Args:
        frozen: parameters that stay as they are; their gradients are not computed.
        lora: adapters beside the model's parameters.

    Raises:
        ConfigError: the recipe asks for a kernel of JAX.
    """
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.float64 if recipe.dtype == "float64" else torch.float32

    def bare() -> ViT:
        """Build the model with adapters, with shapes in place of values."""
        return add_adapters(abstract_model(cfg, kernel="reference"), lora, recipe.seed)

    shell = bare()  # given other parameters in every evaluation
    abstract = bare().to(dtype)
    make_gradients(abstract, recipe)  # refuses a kernel of JAX

    def begin(model: ViT) -> TrainState:
        freeze(model)
        return TrainState(0, model, make_optimizer(model, recipe), init_ema(recipe, model))

    def freeze(model: ViT) -> None:
        for leaf in leaves(model):
            leaf.variable.requires_grad_(leaf.name not in frozen)

    def initialise() -> TrainState:
        torch.manual_seed(recipe.seed)
        return begin(add_adapters(ViT(cfg, kernel="reference").to(device, dtype), lora, recipe.seed))

    def place_state(stored: StoredState) -> TrainState:
        state = unstore(stored, bare(), recipe, device)
        freeze(state.model)
        return state

    def place_batch(batch: Mapping[str, Any]) -> Batch:
        placed = {name: torch.as_tensor(value).to(device) for name, value in batch.items()}
        images = placed["image"].permute(0, 3, 1, 2).contiguous()  # (B, C, H, W)
        label = placed["label"]  # (B,) or (B, classes)
        label = label if label.is_floating_point() else label.long()
        return {**placed, "image": images, "label": label}

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        step = make_train_step(state.model, recipe, state.optimizer, steps_per_epoch, state.ema, lora)
        metrics = step(state.step, batch)
        return state._replace(step=state.step + 1), metrics

    def eval_step(params: Ema, batch: Batch) -> Metrics:
        shell.load_state_dict(params, strict=True, assign=True)
        return make_eval_step(shell, recipe, lora)(batch)

    def fetch(tree: Any) -> Any:
        if isinstance(tree, TrainState):
            return store(tree)
        if isinstance(tree, list):
            return [fetch(each) for each in tree]
        return {name: to_numpy(value) for name, value in tree.items()}

    return CompiledRun(
        device=device,
        initialise=initialise,
        abstract_state=store(begin(abstract)),
        place_state=place_state,
        place_batch=place_batch,
        train_step=train_step,
        eval_step=eval_step,
        fetch=fetch,
    )


@contextmanager
def numerics(recipe: Recipe) -> Iterator[None]:
    """Set the recipe's matmul precision for the duration; "default" keeps torch's present setting."""
    before = torch.get_float32_matmul_precision()
    if recipe.matmul_precision != "default":
        torch.set_float32_matmul_precision(recipe.matmul_precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
