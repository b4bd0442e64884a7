"""The JAX twin's trainer, step by step, built from the same functions as a training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import jax
import jax.numpy as jnp

from parity.measure.device import Device, jax_on
from parity.measure.precision import Precision, jax_at
from parity.runs.state import TrainingState, moments_of
from parity.runs.state_jax import JaxLayout, from_jax, to_jax, with_parts
from parity.twins.steps.trainer import Batch, StepGradients
from vit_config import Recipe, ViTConfig
from vit_jax import step as steps
from vit_jax.functional import Params
from vit_jax.step import TrainState


class JaxTrainer:
    """Trainer of the JAX twin, compiled once for any number of concurrent runs."""

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
        self._precision: Precision = precision
        self._device: Device = device
        self.layout = JaxLayout(cfg)
        gradients = steps.make_gradients(cfg, recipe)
        update = steps.make_update(recipe, steps_per_epoch)

        def step(state: TrainState, batch: steps.Batch) -> tuple[TrainState, Params, jax.Array]:
            grads, metrics = gradients(state.params, batch, state.step)
            return update(state, grads), grads, metrics["loss"]

        self.compiled = jax.jit(step)
        self.nudge = jax.jit(_nudge)

    @contextmanager
    def numerics(self) -> Iterator[None]:
        """Set the types, the precision and the device of this trainer inside the context."""
        x64 = jax.enable_x64(self.recipe.dtype == "float64")
        with x64, jax_at(self._precision), jax_on(self._device):
            yield

    def initial(self) -> TrainingState:
        """Return the state before the first update."""
        with self.numerics():
            make = jax.jit(lambda: steps.init_state(self.cfg, self.recipe, self.steps_per_epoch))
            return from_jax(self.layout, make())

    def begin(self, state: TrainingState) -> JaxSession:
        """Start a run from a state."""
        return JaxSession(self, state)


class JaxSession:
    """One run of the JAX twin."""

    def __init__(self, trainer: JaxTrainer, state: TrainingState) -> None:
        self._trainer = trainer
        self.load(state)

    def load(self, state: TrainingState) -> None:
        """Continue from another state."""
        own = self._trainer
        with own.numerics():
            self._state = to_jax(own.layout, state, own.recipe, own.steps_per_epoch)

    def step(self, batch: Batch) -> StepGradients:
        """Do one update."""
        own = self._trainer
        with own.numerics():
            arrays = {name: jnp.asarray(value) for name, value in batch.items()}
            self._state, grads, loss = own.compiled(self._state, arrays)
            return StepGradients(float(loss), own.layout.to_common(grads))

    def state(self) -> TrainingState:
        """Return the state after the last update, in arrays of its own."""
        return from_jax(self._trainer.layout, self._state)

    def nudge(self, sizes: Mapping[str, float], seed: int) -> None:
        """Move every number of the state by a random share of itself.

        Args:
            sizes: relative size of the moves by part of `TrainingState.parts`; other parts stay.
        """
        own = self._trainer
        with own.numerics():
            parts = ("parameters", *moments_of(own.recipe), "ema")
            scales = {part: jnp.asarray(sizes.get(part, 0.0)) for part in parts}
            self._state = own.nudge(self._state, scales, jax.random.key(seed))


def _nudge(state: TrainState, sizes: Mapping[str, jax.Array], key: jax.Array) -> TrainState:
    """Multiply each number by 1 + size n, n from N(0, 1), so that no second moment becomes negative."""

    def moved(part: str, arrays: Params) -> Params:
        dtype = next(iter(arrays.values())).dtype
        stream = jax.random.fold_in(key, list(sizes).index(part))
        # drawn at once: XLA takes long to compile a generator for each
        noise = jax.random.normal(stream, (sum(value.size for value in arrays.values()),), dtype)
        factors, start = 1.0 + sizes[part].astype(dtype) * noise, 0
        nudged = {}
        for name, value in arrays.items():
            nudged[name] = value * factors[start : start + value.size].reshape(value.shape)
            start += value.size
        return nudged

    return with_parts(state, moved)
