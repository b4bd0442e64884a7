"""Running the PyTorch twin forward and backward, with every module watched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.measure.device import Device, torch_device
from parity.measure.precision import Precision, torch_at
from parity.measure.recording import HeldRecording
from parity.measure.redraw import Batch, Weights
from parity.measure.site import Site, Where, output_site
from parity.measure.traces.record_torch import watch
from parity.measure.traces.watching import is_main
from vit_config import TextConfig, ViTConfig
from vit_torch.leaves import leaves
from vit_torch.loss import contrastive, cross_entropy
from vit_torch.model import ViT
from vit_torch.patch import PatchEmbed
from vit_torch.weights import abstract_model, abstract_text, from_numpy, to_numpy


class TorchTwin:
    """The PyTorch twin of a schema, to be run in several types."""

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
        self._cfg = cfg
        self._precision: Precision = precision
        self._device = torch_device(device)
        self._modules = modules
        self._gradients = gradients

    def run(self, weights: Weights, batch: Batch, dtype: str) -> HeldRecording:
        """Run forward and backward once, in evaluation mode.

        Args:
            dtype: type of parameters, images and computation.
        """
        recording = HeldRecording()
        numpy_dtype = to_numpy(torch.zeros(1, dtype=getattr(torch, dtype))).dtype
        build: Any = abstract_text if isinstance(self._cfg, TextConfig) else abstract_model
        model = build(self._cfg, kernel="reference").eval().requires_grad_(self._gradients)
        # converted one by one: there is room for one copy of a huge model
        state = {
            leaf.name: from_numpy(
                weights(leaf.name, leaf.kind, leaf.shape).astype(numpy_dtype, copy=False)
            )
            for leaf in leaves(model)
        }
        model.load_state_dict(state, strict=True, assign=True)
        del state
        model.to(self._device)
        for leaf in leaves(model):
            recording.add(Site(0, "parameters", leaf.name), to_numpy(leaf.variable, copy=False))

        images = from_numpy(batch.images.astype(numpy_dtype))
        images = images.permute(0, 3, 1, 2) if images.ndim == 4 else images  # NHWC to NCHW
        images, labels = images.to(self._device), from_numpy(batch.labels).to(self._device)

        last: tuple[torch.Tensor, np.ndarray] | None = None

        def record(site: Site, tensor: torch.Tensor) -> None:
            nonlocal last  # one module's output is the next one's input: copied once
            if last is None or last[0] is not tensor:
                last = tensor, to_numpy(tensor)
            recording.add(site, last[1])

        with watch(model, _Tap(record)) if self._modules else nullcontext(), torch_at(self._precision):
            fields, loss = _outputs(self._cfg, model, images, labels)
            if self._gradients:
                loss.mean().backward()
        for name, value in fields.items():
            recording.add(output_site(name), to_numpy(value))
        recording.add(Site(0, "loss", "cross entropy per image"), to_numpy(loss))
        for leaf in leaves(model) if self._gradients else ():
            grad = leaf.variable.grad
            # torch leaves None where JAX gives zeros: a parameter that the loss does not reach
            grad = torch.zeros_like(leaf.variable) if grad is None else grad
            recording.add(Site(0, "gradients", leaf.name), to_numpy(grad, copy=False))
        return recording


def _outputs(
    cfg: ViTConfig | TextConfig, model: Any, images: torch.Tensor, labels: torch.Tensor
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
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
    logits = logits if logits.ndim == 2 else logits.mean(dim=1)
    return fields, cross_entropy(logits, labels)  # (B,)


class _Tap:
    """Tap that reports the first input and every unnamed output of a module.

    Images and convolution outputs are reported channels-last, as JAX has them.
    """

    def __init__(self, record: Callable[[Site, torch.Tensor], None]) -> None:
        self._record = record
        self._modules: dict[str, nn.Module] = {}

    def begin(self, path: str, module: nn.Module) -> int:
        """Return 0: the recording numbers the calls."""
        self._modules[path] = module
        return 0

    def tensor(self, where: Where, value: torch.Tensor) -> torch.Tensor:
        """Report a tensor; return it unchanged."""
        if is_main(where.port):
            kinds = (nn.Conv2d, PatchEmbed, ViT) if where.port == "in" else (nn.Conv2d,)
            x = _channels_last(value, self._modules[where.path], kinds)
            self._record(Site(0, "forward", where.path, where.port), x)
        return value

    def end(self, path: str) -> None:
        """Do nothing."""


def _channels_last(x: torch.Tensor, module: nn.Module, kinds: tuple[type, ...]) -> torch.Tensor:
    return x.permute(0, 2, 3, 1) if isinstance(module, kinds) else x
