"""Running the PyTorch twin forward and backward, with every module watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.recording import Key, Recording
from parity.redraw import Batch, Weights
from vit_config import ViTConfig
from vit_torch.leaves import leaves, walk
from vit_torch.loss import cross_entropy
from vit_torch.model import ViT
from vit_torch.patch import PatchEmbed
from vit_torch.weights import abstract_model, from_numpy, to_numpy


class TorchTwin:
    """The PyTorch twin of a schema, to be run in several types."""

    def __init__(self, cfg: ViTConfig, *, modules: bool = True, gradients: bool = True):
        """Prepare a schema; without `modules`, their inputs and outputs are not recorded; without
        `gradients`, there is no backward pass."""
        self._cfg = cfg
        self._modules = modules
        self._gradients = gradients

    def run(self, weights: Weights, batch: Batch, dtype: str) -> Recording:
        """Run forward and backward once, at the highest matmul precision, in evaluation mode.

        Args:
            dtype: the type that parameters, images and computation have.
        """
        recording = Recording()
        numpy_dtype = to_numpy(torch.zeros(1, dtype=getattr(torch, dtype))).dtype
        model = abstract_model(self._cfg).eval().requires_grad_(self._gradients)
        # converted one by one: of a huge model there is room for one copy
        state = {
            leaf.name: from_numpy(weights(leaf.name, leaf.kind, leaf.shape).astype(numpy_dtype))
            for leaf in leaves(model)
        }
        model.load_state_dict(state, strict=True, assign=True)
        del state
        for leaf in leaves(model):
            recording.add(Key("parameters", leaf.name), to_numpy(leaf.variable))

        images = from_numpy(batch.images.astype(numpy_dtype)).permute(0, 3, 1, 2)  # NHWC to NCHW
        labels = from_numpy(batch.labels)

        last: tuple[torch.Tensor, np.ndarray] | None = None

        def record(key: Key, tensor: torch.Tensor) -> None:
            nonlocal last  # one module's output is the next one's input: copied once
            if last is None or last[0] is not tensor:
                last = tensor, to_numpy(tensor)
            recording.add(key, last[1])

        with watch(model, record) if self._modules else nullcontext(), highest_precision():
            output = model(images)
            loss = cross_entropy(output.logits, labels)  # (B,)
            if self._gradients:
                loss.mean().backward()
        for name, value in output._asdict().items():
            if value is not None:
                recording.add(Key("output", name), to_numpy(value))
        recording.add(Key("loss", "cross entropy per image"), to_numpy(loss))
        for leaf in leaves(model) if self._gradients else ():
            grad = leaf.variable.grad
            # torch leaves None where JAX gives zeros: a parameter that the loss does not reach
            grad = torch.zeros_like(leaf.variable) if grad is None else grad
            recording.add(Key("gradients", leaf.name), to_numpy(grad))
        return recording


@contextmanager
def highest_precision() -> Iterator[None]:
    """Float32 products in float32, nothing less."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def watch(model: nn.Module, record: Callable[[Key, torch.Tensor], Any]) -> Iterator[None]:
    """Report the first input and every output of each module below `model` as it is called.

    Images and convolution outputs are reported channels-last, as JAX has them.
    """
    handles = []
    for name, module in walk(model):

        def before(module: nn.Module, args: Any, *, name: str = name) -> None:
            if args and isinstance(args[0], torch.Tensor):
                x = _channels_last(args[0], module, (nn.Conv2d, PatchEmbed, ViT))
                record(Key("modules", name, "in"), x)

        def after(module: nn.Module, args: Any, output: Any, *, name: str = name) -> None:
            for port, value in _ports(output):
                record(Key("modules", name, port), _channels_last(value, module, (nn.Conv2d,)))

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _channels_last(x: torch.Tensor, module: nn.Module, kinds: tuple[type, ...]) -> torch.Tensor:
    return x.permute(0, 2, 3, 1) if isinstance(module, kinds) else x


def _ports(output: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a module's output; the model's own named fields are a level of their own."""
    if isinstance(output, tuple):
        if not hasattr(output, "_fields"):
            yield from ((f"out[{i}]", value) for i, value in enumerate(output) if value is not None)
    else:
        yield "out", output
