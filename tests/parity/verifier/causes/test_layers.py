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


class Experts(torch.nn.Module):
    """Mixes all experts by a softmax over them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(WIDTH, 4)
        self.up, self.down = (
            torch.nn.ModuleList(torch.nn.Linear(*sizes) for _ in range(4))
            for sizes in ((WIDTH, 3), (3, WIDTH))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        each = [down(torch.tanh(up(x))) for up, down in zip(self.up, self.down, strict=True)]
        return (torch.stack(each, 1) * self.router(x).softmax(-1)[..., None]).sum(1)


@pytest.mark.parametrize("order", [[3, 0, 1, 2], [0, 1, 2, 3]])
def test_experts_whose_second_weights_are_stacked_in_another_order(order: list[int]) -> None:
    torch.manual_seed(4)
    model, x = Experts().double().eval(), torch.randn(5, WIDTH).double()
    held = {key: value.numpy() for key, value in model.state_dict().items()}

    def stacked(name: str, order: list[int]) -> tuple[Any, ...]:
        return tuple(np.stack([held[f"{name}.{i}.{key}"] for i in order]) for key in ("weight", "bias"))

    def function(params: Any, x: Any) -> Any:
        (w1, b1), (w2, b2) = params["up"], params["down"]
        each = jnp.tanh(jnp.einsum("nd,emd->nem", x, w1) + b1)
        gates = jax.nn.softmax(x @ params["router"][0].T + params["router"][1])
        return jnp.einsum("ned,ne->nd", jnp.einsum("nem,edm->ned", each, w2) + b2, gates)

    params = {"up": stacked("up", [0, 1, 2, 3]), "down": stacked("down", order)}
    params["router"] = held["router.weight"], held["router.bias"]
    comparison = compare((model, x), (function, (params, x.numpy())))
    said = [(place.cause, place.message) for place in comparison.places]
    rows = "the 4 rows of params.down.0, params.down.1 are A's 3, 0, 1, 2"
    assert said == ([] if order == sorted(order) else [("permuted", rows)])
