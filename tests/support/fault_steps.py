"""Three steps of both trainers from the same weights, as recordings or as the values they end with."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import parity
import vit_jax.optim
import vit_jax.step
import vit_torch.optim
import vit_torch.step
from parity.measure.redraw import redraw
from tests.support.tiny import TINY
from vit_config import Recipe
from vit_jax.functional import get_params, make_apply, make_merge
from vit_jax.leaves import leaves as jax_leaves
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model

CFG = TINY.replace(depth=1)
STEPS_PER_EPOCH = 2
RECIPE = Recipe(
    epochs=4,
    warmup_epochs=1.0,
    learning_rate=3e-3,
    final_learning_rate=1e-5,
    weight_decay=0.05,
    clip_norm=1.0,
    label_smoothing=0.1,
    dtype="float64",
)


def weights() -> dict[str, np.ndarray]:
    """The values that both start from."""
    parts = leaves(abstract_model(CFG))
    return {leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0) for leaf in parts}


def batches(dtype: str, count: int = 3) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images (B, H, W, C) and labels."""
    stream = np.random.default_rng(1)
    for _ in range(count):
        images = stream.standard_normal((4, *CFG.image_size, CFG.in_channels))
        yield images.astype(dtype), stream.integers(0, CFG.num_classes, 4)


def train_torch(recipe: Recipe, path: Path | None = None) -> dict[str, np.ndarray]:
    """Train the PyTorch twin, record it at `path`, and return the parameters it ends with."""
    dtype = recipe.dtype
    model = vit_torch.from_arrays(CFG, {name: x.astype(dtype) for name, x in weights().items()})
    optimizer = vit_torch.optim.make_optimizer(model, recipe)
    step = vit_torch.step.make_train_step(model, recipe, optimizer, STEPS_PER_EPOCH)
    with _recording(path, model, optimizer) as trace:
        for number, (images, labels) in enumerate(batches(dtype)):
            image, label = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)
            with trace.step(image=images, label=labels):
                metrics = step(number, {"image": image, "label": label})
                trace.log("loss", metrics["loss"])
    return vit_torch.to_arrays(model)


def train_jax(recipe: Recipe, path: Path | None = None) -> dict[str, np.ndarray]:
    """The same with the JAX twin; recorded, it is not compiled, so that what the optimiser is given can
    be logged."""
    dtype = recipe.dtype
    with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
        model = vit_jax.from_arrays(CFG, {name: x.astype(dtype) for name, x in weights().items()})
        common = {leaf.name: leaf.to_common for leaf in jax_leaves(model)}
        apply = make_apply(CFG)

        def named(params):
            return {name: common[name](value) for name, value in params.items()}

        with _recording(path) as trace, _watched_clipping(trace, named) if path else nullcontext():
            state = vit_jax.step.init_state(CFG, recipe, STEPS_PER_EPOCH)
            state = state._replace(params=get_params(model))
            step = vit_jax.step.make_train_step(CFG, recipe, STEPS_PER_EPOCH)
            step = step if path else jax.jit(step)
            for images, labels in batches(dtype):
                batch = {"image": jnp.asarray(images), "label": jnp.asarray(labels)}
                with trace.step(image=images, label=labels):
                    trace.log("parameters", named(state.params))
                    if path is not None:
                        trace.log(
                            "forward", apply(state.params, batch["image"]).logits, port="out.logits"
                        )
                    state, metrics = step(state, batch)
                    trace.log("loss", metrics["loss"])
                    trace.log("learning rate", metrics["learning_rate"])
                    for part in jax.tree.leaves(state.opt_state, is_leaf=_is_adam):
                        if _is_adam(part):
                            trace.log("moments", named(part.mu), port="exp_avg")
                            trace.log("moments", named(part.nu), port="exp_avg_sq")
                            trace.log("moments", part.count, port="step")
                    trace.log("updated", named(state.params))
        return vit_jax.to_arrays(make_merge(CFG)(state.params))


def _is_adam(state):
    return isinstance(state, optax.ScaleByAdamState)


class _Unrecorded:
    @contextmanager
    def step(self, **batch):
        yield

    def log(self, *args, **kwargs):
        pass


@contextmanager
def _recording(path, model=None, optimizer=None):
    if path is None:
        yield _Unrecorded()
    else:
        with parity.record(path, model, optimizer=optimizer) as trace:
            yield trace


@contextmanager
def _watched_clipping(trace, named):
    """Log what the optimiser's first part, the clipping, is given and makes of it."""
    clip = vit_jax.optim.clip_by_global_norm

    def tap(stage):
        def log(updates, params):
            trace.log(stage, named(updates))
            return updates

        return optax.stateless(log)

    def watched(max_norm, eps):
        return optax.chain(tap("gradients"), clip(max_norm, eps), tap("clipped"))

    with mock.patch.object(vit_jax.optim, "clip_by_global_norm", watched):
        yield
