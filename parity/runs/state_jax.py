"""Conversion of training states to and from the JAX trainer's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from parity.runs.state import Arrays, TrainingState
from vit_config import Recipe, ViTConfig
from vit_config.adapters import is_adapter
from vit_jax.functional import Params
from vit_jax.leaves import leaves
from vit_jax.optim import make_optimizer
from vit_jax.step import TrainState
from vit_jax.weights import abstract_model, from_numpy


class JaxLayout:
    """Converts a model's arrays between JAX's and PyTorch's layout; adapters are the same in both."""

    def __init__(self, cfg: ViTConfig) -> None:
        self._leaves = {leaf.name: leaf for leaf in leaves(abstract_model(cfg))}

    def to_common(self, params: Mapping[str, Any]) -> Arrays:
        """Convert parameters, or moments, to PyTorch's layout."""
        return {
            name: np.array(value) if is_adapter(name) else self._leaves[name].to_common(value)
            for name, value in params.items()
        }

    def from_common(self, arrays: Arrays) -> Params:
        """Convert parameters, or moments, to JAX's layout, as copies on the device."""
        return {
            name: from_numpy(value if is_adapter(name) else self._leaves[name].from_common(value))
            for name, value in arrays.items()
        }


def from_jax(layout: JaxLayout, state: TrainState) -> TrainingState:
    """Convert the JAX trainer's state to a training state; float64 needs JAX's 64-bit mode."""
    moments: dict[str, Arrays] = {}
    for part in jax.tree.leaves(state.opt_state, is_leaf=_is_known):
        if isinstance(part, optax.ScaleByAdamState):
            moments["exp_avg"] = layout.to_common(_params(part.mu))
            moments["exp_avg_sq"] = layout.to_common(_params(part.nu))
        elif isinstance(part, optax.TraceState):
            moments["momentum_buffer"] = layout.to_common(_params(part.trace))
    ema = None if state.ema is None else layout.to_common(state.ema)
    return TrainingState(int(state.step), layout.to_common(state.params), moments, ema)


def to_jax(layout: JaxLayout, state: TrainingState, recipe: Recipe, steps_per_epoch: int) -> TrainState:
    """Convert a training state to the JAX trainer's for a recipe, on the device."""
    params = layout.from_common(state.params)
    count = jnp.asarray(state.step, jnp.int32)

    def place(part: Any) -> Any:
        if isinstance(part, optax.ScaleByAdamState):
            mu, nu = (layout.from_common(state.moments[name]) for name in ("exp_avg", "exp_avg_sq"))
            return part._replace(count=count, mu=mu, nu=nu)
        if isinstance(part, optax.TraceState):
            return part._replace(trace=layout.from_common(state.moments["momentum_buffer"]))
        if isinstance(part, optax.ScaleByScheduleState):
            return part._replace(count=count)
        return part

    opt_state = make_optimizer(recipe, steps_per_epoch).init(params)
    opt_state = jax.tree.map(place, opt_state, is_leaf=_is_known)
    ema = None if state.ema is None else layout.from_common(state.ema)
    return TrainState(count, params, opt_state, ema)


def with_parts(state: TrainState, change: Callable[[str, Params], Params]) -> TrainState:
    """Apply `change` to each part of a state, named as in `TrainingState.parts`; works in `jax.jit`."""

    def changed(part: Any) -> Any:
        if isinstance(part, optax.ScaleByAdamState):
            mu, nu = change("exp_avg", part.mu), change("exp_avg_sq", part.nu)  # pyright: ignore
            return part._replace(mu=mu, nu=nu)
        if isinstance(part, optax.TraceState):
            return part._replace(trace=change("momentum_buffer", part.trace))  # pyright: ignore
        return part

    return state._replace(
        params=change("parameters", state.params),
        opt_state=jax.tree.map(changed, state.opt_state, is_leaf=_is_known),
        ema=None if state.ema is None else change("ema", state.ema),
    )


def _is_known(part: Any) -> bool:
    return isinstance(part, optax.ScaleByAdamState | optax.TraceState | optax.ScaleByScheduleState)


def _params(tree: Any) -> Mapping[str, Any]:
    return tree
