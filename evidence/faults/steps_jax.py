"""Injection of a fault into the training step of the JAX twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import optax

from evidence.faults.adam import AdamRule, adam
from evidence.faults.steps import Clip, UpdateFault
from parity.faults.step_table import StepFault
from vit_jax import optim


@contextmanager
def patched(fault: UpdateFault) -> Iterator[None]:
    """Make the twin's trainer commit this mistake inside the context."""
    with StepFault.patched(fault, "jax"), ExitStack() as stack:

        def replace(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, value))

        if fault.clip:
            replace(optim, "clip_by_global_norm", _clipping(fault.clip))
        if fault.adam:
            replace(optim, "scale_by_adam", _scale_by(fault.adam))
        if not fault.decay_times_rate:
            _decay_after_the_rate(replace)
        yield


def _clipping(clip: Clip) -> Callable[..., optax.GradientTransformation]:
    def clip_by_global_norm(max_norm: float | None, eps: float = 0.0) -> optax.GradientTransformation:
        if max_norm is None:
            return optax.identity()

        def apply(updates: Any, params: Any) -> Any:
            leaves, tree = jax.tree.flatten(updates)
            return jax.tree.unflatten(tree, clip(leaves, max_norm))

        return optax.stateless(apply)

    return clip_by_global_norm


def _scale_by(rule: AdamRule) -> Callable[[float, float, float], optax.GradientTransformation]:
    def scale_by_adam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
        def init(params: Any) -> optax.ScaleByAdamState:
            zeros = jax.tree.map(jnp.zeros_like, params)
            return optax.ScaleByAdamState(jnp.zeros([], jnp.int32), zeros, zeros)

        def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, optax.ScaleByAdamState]:
            t = state.count + 1
            wide = t.astype(jax.tree.leaves(updates)[0].dtype)
            leaves, tree = jax.tree.flatten(updates)
            triples = [
                adam(rule, g, m, v, wide, (b1, b2), eps)
                for g, m, v in zip(
                    leaves, jax.tree.leaves(state.mu), jax.tree.leaves(state.nu), strict=True
                )
            ]
            m, v, direction = (jax.tree.unflatten(tree, part) for part in zip(*triples, strict=True))
            return direction, optax.ScaleByAdamState(t, m, v)

        return optax.GradientTransformation(init, update)

    return scale_by_adam


def _decay_after_the_rate(replace: Callable[[Any, str, Any], None]) -> None:
    decay, scale = optax.add_decayed_weights, optax.scale_by_learning_rate
    settings: dict[str, Any] = {}

    def remember(strength: float, mask: Any) -> optax.GradientTransformation:
        settings.update(strength=strength, mask=mask)
        return optax.identity()

    def scale_and_decay(rate: Any) -> optax.GradientTransformationExtraArgs:
        return optax.chain(scale(rate), decay(-settings["strength"], settings["mask"]))

    replace(optax, "add_decayed_weights", remember)
    replace(optax, "scale_by_learning_rate", scale_and_decay)
