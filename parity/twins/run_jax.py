"""Running the JAX twin forward and backward, with every module watched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.measure.device import Device, jax_on
from parity.measure.precision import Precision, jax_at
from parity.measure.recording import HeldRecording
from parity.measure.redraw import Batch, Weights
from parity.measure.site import Site, Where, output_site
from parity.measure.traces.watch_jax import watch_nnx
from parity.measure.traces.watching import is_main
from vit_config import TextConfig, ViTConfig
from vit_jax.functional import Params, make_merge
from vit_jax.leaves import Leaf, leaves
from vit_jax.loss import contrastive, cross_entropy
from vit_jax.weights import abstract_model, abstract_text, from_numpy


class JaxTwin:
    """The JAX twin of a schema, to be run in several types; compiled once for each."""

    def __init__(
        self,
        cfg: ViTConfig | TextConfig,
        *,
        modules: bool = True,
        gradients: bool = True,
        precision: Precision = "highest",
        device: Device = "cpu",
    ):
        """Prepare a schema; without `modules`, their inputs and outputs are not recorded; without
        `gradients`, there is no backward pass; `precision` is that of float32 products,
        computed on `device`."""
        self._precision: Precision = precision
        self._device: Device = device
        build: Any = abstract_text if isinstance(cfg, TextConfig) else abstract_model
        self._abstract = build(cfg, kernel="reference")
        self._leaves = leaves(self._abstract)
        # sites in order, each with the index of its array; by type, since JAX traces each by itself
        self._orders: dict[str, list[tuple[Site, int]]] = {}
        merge: Any = make_merge(cfg, self._abstract)  # pyright: ignore[reportArgumentType]

        def loss_fn(params: Params, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
            order = self._orders[str(images.dtype)] = []  # filled while JAX traces this function
            model = merge(params)
            arrays: list[jax.Array] = []
            seen: dict[int, int] = {}  # one module's output is the next one's input: kept once

            def record(site: Site, array: jax.Array) -> None:
                if id(array) not in seen:
                    seen[id(array)] = len(arrays)
                    arrays.append(array)
                order.append((site, seen[id(array)]))

            with watch_nnx(model, _Tap(record)) if modules else nullcontext():
                fields, loss = _outputs(cfg, model, images, labels)
            return loss.mean(), (arrays, fields, loss)

        def forward(*args: Any) -> tuple[Any, Params]:
            return loss_fn(*args), {}

        self._step = jax.jit(jax.value_and_grad(loss_fn, has_aux=True) if gradients else forward)

    def run(self, weights: Weights, batch: Batch, dtype: str) -> HeldRecording:
        """Run forward and backward once, without dropout.

        Args:
            dtype: type of parameters, images and computation.
        """
        recording = HeldRecording()
        with jax.enable_x64(dtype == "float64"), jax_at(self._precision), jax_on(self._device):
            params = self._params(weights, jnp.dtype(dtype))
            for leaf in self._leaves:
                recording.add(Site(0, "parameters", leaf.name), leaf.to_common(params[leaf.name]))
            images = jnp.asarray(batch.images.astype(jnp.dtype(dtype)))
            labels = jnp.asarray(batch.labels.astype(np.int32))
            (_, (arrays, fields, loss)), grads = self._step(params, images, labels)
            del params
            values = [np.asarray(array) for array in arrays]
            for site, index in self._orders[dtype]:
                recording.add(site, values[index])
            for name, value in fields.items():
                recording.add(output_site(name), np.asarray(value))
            recording.add(Site(0, "loss", "cross entropy per image"), np.asarray(loss))
            for leaf in self._leaves if grads else ():
                recording.add(Site(0, "gradients", leaf.name), leaf.to_common(grads.pop(leaf.name)))
        return recording

    def _params(self, weights: Weights, dtype: np.dtype) -> Params:
        """Place the parameters on the device one by one: there is room for one copy of a huge model."""

        def place(leaf: Leaf) -> jax.Array:
            array = weights(leaf.name, leaf.kind, leaf.shape).astype(dtype, copy=False)
            return from_numpy(leaf.from_common(array))

        return {leaf.name: place(leaf) for leaf in self._leaves}


def _outputs(
    cfg: ViTConfig | TextConfig, model: Any, images: jax.Array, labels: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return a model's outputs by name, and losses.

    Args:
        images: for a text tower, embeddings of images (B, E), each of which belongs to one text.
        labels: for a text tower, token ids (B, N).
    """
    if isinstance(cfg, TextConfig):
        output = model(labels)
        logits = model.compare(images, output.embeddings)  # (B, B)
        loss = contrastive(logits, kind="sigmoid" if cfg.logit_bias else "softmax")[None]
        return {**output._asdict(), "logits": logits}, loss
    output = model(images)
    fields = {name: value for name, value in output._asdict().items() if value is not None}
    logits = output.logits  # (B, classes), or (B, T, D) of several pooled tokens
    logits = logits if logits.ndim == 2 else logits.mean(axis=1)
    return fields, cross_entropy(logits, labels)  # (B,)


class _Tap:
    """Tap that reports the first input and every unnamed output of a module."""

    def __init__(self, record: Callable[[Site, jax.Array], None]) -> None:
        self._record = record

    def begin(self, path: str, module: Any) -> int:
        """Return 0: the recording numbers the calls."""
        return 0

    def tensor(self, where: Where, value: jax.Array) -> jax.Array:
        """Report a tensor; return it unchanged."""
        if is_main(where.port):
            self._record(Site(0, "forward", where.path, where.port), value)
        return value

    def end(self, path: str) -> None:
        """Do nothing."""
