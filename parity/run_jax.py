"""Running the JAX twin forward and backward, with every module watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from parity.recording import Key, Recording
from parity.redraw import Batch, Weights
from vit_config import ViTConfig
from vit_jax.functional import Params, make_merge
from vit_jax.leaves import Leaf, leaves, walk
from vit_jax.loss import cross_entropy
from vit_jax.weights import abstract_model


class JaxTwin:
    """The JAX twin of a schema, to be run in several types; compiled once for each."""

    def __init__(self, cfg: ViTConfig, *, modules: bool = True, gradients: bool = True):
        """Prepare a schema; without `modules`, their inputs and outputs are not recorded; without
        `gradients`, there is no backward pass."""
        self._abstract = abstract_model(cfg)
        self._leaves = leaves(self._abstract)
        # what was recorded, in order, and which array it is: by type, since each is traced by itself
        self._orders: dict[str, list[tuple[Key, int]]] = {}
        merge = make_merge(cfg)

        def loss_fn(params: Params, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
            order = self._orders[str(images.dtype)] = []  # filled while JAX traces this function
            model = merge(params)
            arrays: list[jax.Array] = []
            seen: dict[int, int] = {}  # one module's output is the next one's input: kept once

            def record(key: Key, array: jax.Array) -> None:
                if id(array) not in seen:
                    seen[id(array)] = len(arrays)
                    arrays.append(array)
                order.append((key, seen[id(array)]))

            with watch(model, record) if modules else nullcontext():
                output = model(images)
            loss = cross_entropy(output.logits, labels)  # (B,)
            fields = {name: value for name, value in output._asdict().items() if value is not None}
            return loss.mean(), (arrays, fields, loss)

        def forward(*args: Any) -> tuple[Any, Params]:
            return loss_fn(*args), {}

        self._step = jax.jit(jax.value_and_grad(loss_fn, has_aux=True) if gradients else forward)

    def run(self, weights: Weights, batch: Batch, dtype: str) -> Recording:
        """Run forward and backward once, at the highest matmul precision, without dropout.

        Args:
            dtype: the type that parameters, images and computation have.
        """
        recording = Recording()
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            params = self._params(weights, jnp.dtype(dtype))
            for leaf in self._leaves:
                recording.add(Key("parameters", leaf.name), leaf.to_common(params[leaf.name]))
            images = jnp.asarray(batch.images.astype(jnp.dtype(dtype)))
            labels = jnp.asarray(batch.labels.astype(np.int32))
            (_, (arrays, fields, loss)), grads = self._step(params, images, labels)
            values = [np.asarray(array) for array in arrays]
            for key, index in self._orders[dtype]:
                recording.add(key, values[index])
            for name, value in fields.items():
                recording.add(Key("output", name), np.asarray(value))
            recording.add(Key("loss", "cross entropy per image"), np.asarray(loss))
            for leaf in self._leaves if grads else ():
                recording.add(Key("gradients", leaf.name), leaf.to_common(grads[leaf.name]))
        return recording

    def _params(self, weights: Weights, dtype: np.dtype) -> Params:
        """The parameters on the device, one by one: of a huge model there is room for one copy."""

        def place(leaf: Leaf) -> jax.Array:
            array = weights(leaf.name, leaf.kind, leaf.shape).astype(dtype)
            return jnp.array(leaf.from_common(array), copy=True)

        return {leaf.name: place(leaf) for leaf in self._leaves}


@contextmanager
def watch(model: nnx.Module, record: Callable[[Key, jax.Array], Any]) -> Iterator[None]:
    """Report the first input and every output of each module below `model` as it is called.

    Flax has no hooks: while the context lasts, the ``__call__`` of each class in the tree is wrapped.
    """
    names = {id(module): ".".join(map(str, path)) for path, module in walk(model)}
    classes = {type(module) for _, module in walk(model) if callable(module)}
    kept = {kind: vars(kind).get("__call__") for kind in classes}

    def wrap(kind: type) -> Callable[..., Any]:
        original: Any = kind.__call__  # found through the bases, before any of them is wrapped

        def call(self: nnx.Module, *args: Any, **kwargs: Any) -> Any:
            name = names.get(id(self))
            if name is None:
                return original(self, *args, **kwargs)
            if args and isinstance(args[0], jax.Array):
                record(Key("modules", name, "in"), args[0])
            output = original(self, *args, **kwargs)
            for port, value in _ports(output):
                record(Key("modules", name, port), value)
            return output

        return call

    wrapped = {kind: wrap(kind) for kind in classes}
    for kind, call in wrapped.items():
        kind.__call__ = call
    try:
        yield
    finally:
        for kind, original in kept.items():
            if original is None:
                del kind.__call__
            else:
                kind.__call__ = original


def _ports(output: Any) -> Iterator[tuple[str, jax.Array]]:
    """The arrays of a module's output; the model's own named fields are a level of their own."""
    if isinstance(output, tuple):
        if not hasattr(output, "_fields"):
            yield from ((f"out[{i}]", value) for i, value in enumerate(output) if value is not None)
    else:
        yield "out", output
