"""What a style computes in float64, without the product: its output, and its gradients by timm's names.

The frameworks differentiate. Of a module of torch, the gradients of its own parameters are
pulled back through the map that filled them; in JAX the whole, map and program, is one function.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from evidence.clean_pairs.sizes import Size
from evidence.clean_pairs.style import RIGHT, Style, Wrong
from evidence.clean_pairs.styles import styles
from evidence.clean_pairs.weights import Weights

CLOSE = 1e-11
"""Largest distance of two right outcomes, relative to the largest number of each array."""
NARROW = 1e-4
"""The same where the library of one computes a step in float32 whatever it is given."""
VISIBLE = 1e-9
"""Smallest distance of a mistake that counts."""
ZERO_IN_THEORY = re.compile(r"attn\.k_norm\.bias$")
"""Gradients that are nothing but rounding: a bias of the keys moves every score of a query alike."""


class Outcome(NamedTuple):
    """Of one program and one set of weights."""

    output: np.ndarray
    by_images: np.ndarray
    """(B, C, H, W)"""
    by_weights: dict[str, np.ndarray]

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by names."""
        return {"output": self.output, "images": self.by_images, **self.by_weights}


def cotangent(size: Size) -> np.ndarray:
    """The weights of the outputs in the sum that is differentiated."""
    return np.random.default_rng(9).normal(size=(size.batch, size.classes))


def outcome(style: Style, size: Size, w: Weights, wrong: Wrong = RIGHT) -> Outcome:
    """Run it in float64, forward and backward."""
    if style.torch:
        return _of_torch(style, size, w, wrong)
    with jax.enable_x64(True):
        return _of_jax(style, size, w, wrong)


def _of_torch(style: Style, size: Size, w: Weights, wrong: Wrong) -> Outcome:
    leaves = {name: torch.from_numpy(each).double().requires_grad_() for name, each in w.items()}
    side = style.side(leaves, size, wrong)
    x = torch.from_numpy(size.images()).double().requires_grad_()
    if isinstance(side.program, torch.nn.Module):
        run, own = loaded(side, torch.float64)
        run = side.finish(run, x.detach()) if side.finish else run
        own = {name: p for name, p in named(run).items() if name in side.given}
        output = _logits(run(**{side.spread: x}) if side.spread else run(x))
        (output * torch.from_numpy(cotangent(size))).sum().backward()
        reached = [name for name in own if own[name].grad is not None and side.given[name].requires_grad]
        torch.autograd.backward([side.given[n] for n in reached], [own[n].grad for n in reached])
    else:
        output = side.program(side.given, x)
        (output * torch.from_numpy(cotangent(size))).sum().backward()
    none = torch.zeros(())
    return Outcome(
        output.detach().numpy(),
        (none.expand(x.shape) if x.grad is None else x.grad).numpy(),
        {n: (none.expand(p.shape) if p.grad is None else p.grad).numpy() for n, p in leaves.items()},
    )


def _logits(output: Any) -> torch.Tensor:
    return getattr(output, "logits", output)


def named(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters by the names that they have without a wrapper."""
    return {name.removeprefix("_orig_mod."): p for name, p in module.named_parameters()}


def loaded(side: Any, dtype: torch.dtype) -> tuple[torch.nn.Module, dict[str, torch.nn.Parameter]]:
    """The module of a side with its state, in a type, in evaluation mode; and its parameters."""
    state = {name: each.detach().clone().to(dtype) for name, each in side.given.items()}
    module = side.program.to(dtype).eval()
    module.load_state_dict(state)
    return module, named(module)


def _of_jax(style: Style, size: Size, w: Weights, wrong: Wrong) -> Outcome:
    images = jnp.asarray(size.images(style.channels_last), jnp.float64)
    held = {name: jnp.asarray(each, jnp.float64) for name, each in w.items()}
    (by_weights, by_images), output = _compiled(style.name, size, wrong)(held, images)
    by_images = np.asarray(by_images)
    return Outcome(
        np.asarray(output),
        by_images.transpose(0, 3, 1, 2) if style.channels_last else by_images,
        {name: np.asarray(each) for name, each in by_weights.items()},
    )


@lru_cache(maxsize=64)
def _compiled(name: str, size: Size, wrong: Wrong) -> Any:
    style, weighted = styles()[name], jnp.asarray(cotangent(size))

    def total(w: Any, x: Any) -> Any:
        output = call(style.side(w, size, wrong), x)
        return (output * weighted).sum(), output

    return jax.jit(jax.grad(total, (0, 1), has_aux=True))


def call(side: Any, x: Any) -> Any:
    """Run a side of JAX."""
    if hasattr(side.program, "apply"):
        return side.program.apply(side.given, x)
    return side.program(x) if side.given is None else side.program(side.given, x)


def distance(a: Outcome, b: Outcome) -> tuple[float, str]:
    """The largest distance of two arrays, relative to the largest number in them, and which it is.

    A gradient that is zero in theory is measured by the largest of its attention.
    """
    of_a, of_b = a.arrays(), b.arrays()
    assert of_a.keys() == of_b.keys(), of_a.keys() ^ of_b.keys()
    worst = (0.0, "")
    for name, each in of_a.items():
        scale = np.abs(each).max(initial=0)
        if ZERO_IN_THEORY.search(name):
            inside = name.rpartition("k_norm")[0]
            scale = max(np.abs(g).max() for n, g in of_a.items() if n.startswith(inside))
        apart = np.abs(each - of_b[name]).max(initial=0)
        if not np.isfinite(apart):
            return np.inf, name
        if apart and (apart := apart / max(scale, np.abs(of_b[name]).max() * 1e-3, 1e-290)) > worst[0]:
            worst = (float(apart), name)
    return worst
