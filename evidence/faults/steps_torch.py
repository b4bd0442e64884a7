"""Injection of a fault into the training step of the PyTorch twin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

from evidence.faults.adam import AdamRule, adam
from evidence.faults.steps import UpdateFault
from parity.faults.step_table import StepFault
from vit_torch import step


@contextmanager
def patched(fault: UpdateFault) -> Iterator[None]:
    """Make the twin's trainer commit this mistake inside the context."""
    with StepFault.patched(fault, "torch"), ExitStack() as stack:

        def replace(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, value))

        if fault.clip:
            replace(step, "clip_by_global_norm", _clipping(fault.clip))
        if fault.adam or not fault.decay_times_rate or not fault.zeroed:
            for name in ("Adam", "AdamW"):
                replace(torch.optim, name, _optimizer(getattr(torch.optim, name), fault))
        yield


def _clipping(clip: Callable[..., list[torch.Tensor]]) -> Callable[..., torch.Tensor]:
    @torch.no_grad()
    def clip_by_global_norm(
        params: Iterable[nn.Parameter], max_norm: float | None, eps: float = 0.0
    ) -> torch.Tensor:
        moving = [p for p in params if p.grad is not None]
        grads = [p.grad for p in moving if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        if max_norm is not None:
            for parameter, grad in zip(moving, clip(grads, max_norm), strict=True):
                parameter.grad = grad
        return norm

    return clip_by_global_norm


def _optimizer(kind: type, fault: UpdateFault) -> type:
    """Make an optimiser class of the same name with a wrong update."""
    rule = fault.adam or AdamRule()
    coupled = kind.__name__ == "Adam"

    def zero_grad(self: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        if fault.zeroed:
            kind.zero_grad(self, set_to_none)

    @torch.no_grad()
    def update(self: torch.optim.Optimizer) -> None:
        for group in self.param_groups:
            rate, decay = group["lr"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(
                        step=torch.tensor(0.0),
                        exp_avg=torch.zeros_like(p),
                        exp_avg_sq=torch.zeros_like(p),
                    )
                state["step"] += 1
                g = p.grad + decay * p if coupled else p.grad
                if not coupled:
                    p.mul_(1 - (rate if fault.decay_times_rate else 1.0) * decay)
                state["exp_avg"], state["exp_avg_sq"], direction = adam(
                    rule, g, state["exp_avg"], state["exp_avg_sq"], int(state["step"]), group["betas"],
                    group["eps"],
                )  # fmt: skip
                p.sub_(rate * direction)

    own = {"step": update, "zero_grad": zero_grad, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), own)
