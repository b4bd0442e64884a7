"""Layers with parameters of their own, loaded in another order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.locate import compare

DEPTH, WIDTH = 12, 6


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.fc(self.norm(x)))


def original() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(3)
    return torch.nn.Sequential(*(Block() for _ in range(DEPTH))).double().eval(), torch.randn(
        4, WIDTH
    ).double()


def port(order: list[int]) -> tuple[Any, Any]:
    """Return the port, whose layers hold the parameters of A's in an order."""
    model, x = original()
    held = {key: value.numpy() for key, value in model.state_dict().items()}
    params = {
        f"block_{n}": {
            "norm": (held[f"{i}.norm.weight"], held[f"{i}.norm.bias"]),
            "dense": (held[f"{i}.fc.weight"].T, held[f"{i}.fc.bias"]),
        }
        for n, i in enumerate(order)
    }

    def function(params: Any, x: Any) -> Any:
        for n in range(DEPTH):
            (gain, bias), (w, b) = params[f"block_{n}"]["norm"], params[f"block_{n}"]["dense"]
            x = x + jnp.tanh((jax.nn.standardize(x, epsilon=1e-5) * gain + bias) @ w + b)
        return x

    return function, (params, x.numpy())


@pytest.mark.parametrize(
    ("order", "cause", "said"),
    [
        (sorted(range(DEPTH), key=str), "permuted", "A's layers 0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9"),
        (list(range(DEPTH))[::-1], "reversed", "A's layers backwards"),
        ([0, 1, 2, 8, 4, 5, 6, 7, 3, 9, 10, 11], "permuted", "layers 3 and 8 of the 12 params.block"),
    ],
)  # fmt: skip
def test_one_sentence_tells_the_order(order: list[int], cause: str, said: str) -> None:
    (place,) = compare(original(), port(order)).places
    assert (place.cause, said in place.message) == (cause, True), place.message
    assert place.b.lines


def test_layers_in_their_order_are_equal() -> None:
    assert compare(original(), port(list(range(DEPTH)))).verdict == "EQUAL"


def test_a_fault_beside_the_order_is_found_too() -> None:
    function, (params, x) = port([0, 2, 1, *range(3, DEPTH)])
    wrong = dict(
        params, block_9=dict(params["block_9"], norm=(2 * np.ones(WIDTH), params["block_9"]["norm"][1]))
    )
    first, second = compare(original(), (function, (wrong, x))).places
    assert first.cause == "permuted"
    assert second.kind == "parameter"
