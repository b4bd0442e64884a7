"""Lines at which optimisers were built: chains, schedules and wrappers of optax, and those of torch."""

from __future__ import annotations

from pathlib import Path

import pytest

import parity

PROGRAMS = """
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

W, X = (np.random.default_rng(seed).normal(size=shape) for seed, shape in ((0, (3, 2)), (1, (4, 3))))


def of_torch():
    def run(w, x):
        w = w.clone().requires_grad_()
        optimizer = torch.optim.AdamW([w], lr=0.1, eps=1e-3, weight_decay=0.2)
        for _ in range(2):
            optimizer.zero_grad()
            torch.tanh(x @ w).square().sum().backward()
            optimizer.step()
        return w.detach()

    return run, (torch.tensor(W), torch.tensor(X))


def of_optax():
    tx = CHAIN

    def run(w, x):
        state = tx.init(w)
        for _ in range(2):
            updates, state = tx.update(jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w), state, w)
            w = optax.apply_updates(w, updates)
        return w

    return run, (W, X)
"""
CHAINS = {
    "chain": """optax.chain(
        optax.scale_by_adam(
            eps=1e-4,  # so on several lines
        ),
        optax.add_decayed_weights(0.2),
        optax.scale(-0.1),
    )""",
    "injected": "optax.inject_hyperparams(optax.adamw)(0.1, eps=1e-4, weight_decay=0.2)",
    "accumulated": "optax.MultiSteps(optax.adamw(0.1, eps=1e-4, weight_decay=0.2), every_k_schedule=1)",
    "masked": "optax.masked(optax.adamw(0.1, eps=1e-4, weight_decay=0.2), True)",
}


def compared(folder: Path, chain: str) -> parity.Comparison:
    """Compare AdamW of torch with a transformation of optax, both in a user's file."""
    file = folder / "steps.py"
    file.write_text(PROGRAMS.replace("CHAIN", chain))
    return parity.diff(f"{file}:of_torch", f"{file}:of_optax", gradients=True)


@pytest.mark.parametrize("name", CHAINS)
def test_the_line_that_built_an_optimiser_is_shown(tmp_path: Path, name: str) -> None:
    comparison = compared(tmp_path, CHAINS[name])
    (place,) = comparison.places
    assert place.cause == "epsilon"
    lines = place.b.lines[0].text, place.a.lines[0].text
    assert "eps=1e-4" in lines[0]
    assert lines[0].startswith(("tx = ", "optax.scale_by_adam(eps"))
    assert lines[1] == "optimizer = torch.optim.AdamW([w], lr=0.1, eps=1e-3, weight_decay=0.2)"
    calls = [part.lines[1].text[:14] for part in (place.a, place.b)]
    assert calls == ["optimizer.step", "updates, state"]


def test_the_line_that_built_a_schedule_is_shown(tmp_path: Path) -> None:
    rate = "(rate := optax.linear_schedule(0.1, 0.3, 1))"
    comparison = compared(tmp_path, f"{rate} and optax.adamw(\n    rate, eps=1e-3, weight_decay=0.2)")
    assert comparison.verdict == "DIFFERENT"
    assert any("linear_schedule" in line.text for place in comparison.places for line in place.b.lines)
