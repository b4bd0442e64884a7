"""Parameters as a loader gets them wrong: rounded, those of another layer, exchanged, other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from parity.verifier.causes.row_order import row_order
from parity.verifier.locate import compare
from parity.verifier.report.comparison import Comparison

DEPTH, WIDTH, HIDDEN = 3, 6, 9
NAMES = ("norm.weight", "norm.bias", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
Layers = list[dict[str, np.ndarray]]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.fc1, self.fc2 = torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(torch.tanh(self.fc1(self.norm(x))))


def original(depth: int = DEPTH) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(3)
    model = torch.nn.ModuleDict({"blocks": torch.nn.Sequential(*(Block() for _ in range(depth)))})
    for each in model.parameters():
        torch.nn.init.normal_(each, std=0.3)
    return model["blocks"].eval(), torch.randn(4, WIDTH)


def port(p: Any, x: Any) -> Any:
    for b in p["blocks"]:
        y = jax.nn.standardize(x, epsilon=1e-5) * b["norm.weight"] + b["norm.bias"]
        x = x + jnp.tanh(y @ b["fc1.weight"].T + b["fc1.bias"]) @ b["fc2.weight"].T + b["fc2.bias"]
    return x


def of_others(p: Any, x: Any) -> Any:
    blocks = [dict(zip(NAMES, each, strict=True)) for each in p]
    return port({"blocks": blocks}, x)


def compared(
    mistake: Callable[[Layers], object], depth: int = DEPTH, *, other_names: bool = False
) -> Comparison:
    """Compare a model with its port, into whose layers a mistake was loaded."""
    model, x = original(depth)
    held = {key: each.numpy() for key, each in model.state_dict().items()}
    layers = [{name: held[f"{i}.{name}"] for name in NAMES} for i in range(depth)]
    mistake(layers)
    if other_names:
        return compare((model, x), (of_others, ([tuple(each.values()) for each in layers], x.numpy())))
    return compare((model, x), (port, ({"blocks": layers}, x.numpy())))


def said(comparison: Comparison) -> list[tuple[str, str]]:
    return [(place.kind, place.message) for place in comparison.places]


def rounded(layers: Layers, dtype: Any, names: tuple[str, ...] = NAMES) -> None:
    for layer in layers:
        layer |= {name: layer[name].astype(dtype).astype(np.float32) for name in names}


@pytest.mark.parametrize(("dtype", "name"), [(ml_dtypes.bfloat16, "bfloat16"), (np.float16, "float16")])
def test_weights_that_went_through_a_smaller_type_are_one_place(dtype: Any, name: str) -> None:
    comparison = compared(lambda layers: rounded(layers, dtype))
    assert comparison.verdict == "DIFFERENT"
    assert said(comparison) == [("parameter", f"all of B's parameters are A's rounded to {name}")]
    assert comparison.error > 1e-5


def test_a_few_rounded_weights_are_named_and_what_else_is_wrong_is_found() -> None:
    def mistake(layers: Layers) -> None:
        rounded(layers, ml_dtypes.bfloat16, ("fc1.weight",))
        layers[1]["norm.weight"] = 2 * layers[1]["norm.weight"]

    assert said(compared(mistake)) == [
        ("parameter", "B's p.blocks.{0-2}.fc1.weight are A's rounded to bfloat16"),
        ("parameter", "p.blocks.1.norm.weight is not A's 1.norm.weight: it is 2 times that"),
    ]


def test_a_packed_weight_that_was_rounded_before_it_was_split() -> None:
    rng = np.random.default_rng(2)
    weight, x = (rng.normal(size=shape).astype(np.float32) for shape in ((3 * WIDTH, WIDTH), (5, WIDTH)))
    model = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
    model.weight.data = torch.from_numpy(weight)

    def function(p: Any, x: Any) -> Any:
        return jnp.concatenate([x @ p[name].T for name in "qkv"], -1)

    p = dict(zip("qkv", np.split(weight.astype(np.float16).astype(np.float32), 3), strict=True))
    comparison = compare((model, torch.from_numpy(x)), (function, (p, x)))
    assert said(comparison) == [("parameter", "all of B's parameters are A's rounded to float16")]
    same = dict(zip("qkv", np.split(weight, 3), strict=True))
    assert compare((model, torch.from_numpy(x)), (function, (same, x))).verdict == "EQUAL"


@pytest.mark.parametrize("style", ["numbers", "other names"])
def test_a_layer_with_the_weights_of_another_is_one_place(style: str) -> None:
    def mistake(layers: Layers) -> None:
        layers[2] |= layers[1]

    own, (place,) = "p.blocks.2.*", compared(mistake, other_names=style != "numbers").places
    own = "p.2.*" if style != "numbers" else own
    assert (place.kind, place.message) == ("parameter", f"{own} holds A's 1.* instead of 2.*")


def test_one_mistake_in_every_layer_is_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistake(layers: Layers) -> None:
        for each in layers:
            each["norm.bias"], each["fc2.bias"] = each["fc2.bias"], each["norm.bias"]

    monkeypatch.setattr("parity.verifier.search.places.MOST", 2)  # each is repaired once for all
    assert {place.message for place in compared(mistake, depth=5, other_names=True).places} == {
        "p.{0-4}.1 holds A's {0-4}.fc2.bias instead of {0-4}.norm.bias",
        "p.{0-4}.5 holds A's {0-4}.norm.bias instead of {0-4}.fc2.bias",
    }
    (place,) = compared(mistake, depth=5).places
    said = "p.blocks.{0-4}.%s holds A's {0-4}.%s instead of {0-4}.%s"
    assert {*place.message.split("; ")} == {
        said % ("norm.bias", "fc2.bias", "norm.bias"), said % ("fc2.bias", "norm.bias", "fc2.bias")
    }  # fmt: skip


def test_layers_that_hold_what_belongs_there_are_no_mistake() -> None:
    for other_names in (False, True):
        assert compared(lambda _: None, other_names=other_names).verdict == "EQUAL"


def test_weights_that_nobody_has_are_one_place_for_all_layers() -> None:
    def mistake(layers: Layers) -> None:
        for k, each in enumerate(layers):
            each["fc1.weight"] = np.random.default_rng(k).normal(size=(HIDDEN, WIDTH))

    said_of_all = "p.blocks.{0-2}.fc1.weight is not A's {0-2}.fc1.weight: none of A's parameters has its"
    comparison = compared(mistake)
    assert said(comparison) == [("parameter", f"{said_of_all} numbers")]
    assert comparison.places[0].times == DEPTH


def test_a_search_that_ends_at_its_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistake(layers: Layers) -> None:
        for name in ("fc1.weight", "fc2.weight"):
            layers[1][name] = np.random.default_rng(1).normal(size=layers[1][name].shape)

    assert "INCOMPLETE" not in compared(mistake).to_text()
    monkeypatch.setattr("parity.verifier.search.places.MOST", 1)
    comparison = compared(mistake)
    assert "the places are INCOMPLETE: 1 repairs, more remain" in comparison.to_text()
    assert comparison.verdict == "DIFFERENT"


def test_layers_of_two_lists_that_are_exchanged_are_one_place() -> None:
    rng = np.random.default_rng(4)
    w, v = (list(rng.normal(size=(3, WIDTH, WIDTH)) / 2) for _ in range(2))
    x = rng.normal(size=(4, WIDTH))

    def function(p: Any, x: Any) -> Any:
        for a, b in zip(p["a"], p["b"], strict=True):
            x = x + jnp.tanh(x @ a) @ b
        return x

    other = {"a": [w[1], w[0], w[2]], "b": [v[1], v[0], v[2]]}
    (place,) = compare((function, ({"a": w, "b": v}, x)), (function, (other, x))).places
    assert place.message == "layers 0 and 1 of the 3 p.a and p.b have each other's parameters"


QKV = np.arange(3 * 4 * 12).reshape(3, 4, 12)  # which, head, number
EXCHANGED = np.concatenate([QKV[:1], QKV[2:], QKV[1:2]])


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (EXCHANGED, "rows 48:96 and 96:144 exchanged"),
        (QKV.swapaxes(0, 1), "rows split as [3, 4, 12] and its first two axes exchanged"),
        (np.roll(QKV, 48), "rows 0:48 from 96:144, 48:144 from 0:96"),
        (np.random.default_rng(0).permutation(144), ""),
    ],
)
def test_rows_in_another_order_are_told(order: np.ndarray, said: str) -> None:
    weight = np.random.default_rng(1).normal(size=(144, 5))
    held = weight[order.ravel()]
    assert row_order(weight, held) == (f"with {said}" if said else "")
    assert row_order(weight.T, held.T) == (f"with {said}".replace("rows", "columns") if said else "")


def test_keys_and_values_that_are_exchanged_in_a_packed_weight() -> None:
    rng = np.random.default_rng(5)
    w, bias, x = rng.normal(size=(9, WIDTH)), rng.normal(size=9), rng.normal(size=(5, WIDTH))

    def attention(p: Any, x: Any) -> Any:
        q, k, v = jnp.split(x @ p["qkv"].T + p["bias"], 3, -1)
        return jax.nn.softmax(q @ k.T) @ v

    wrong = {"qkv": np.concatenate([w[:3], w[6:], w[3:6]]), "bias": bias}
    (place,) = compare((attention, ({"qkv": w, "bias": bias}, x)), (attention, (wrong, x))).places
    assert place.message == "p.qkv holds A's p.qkv with rows 3:6 and 6:9 exchanged"


@pytest.mark.parametrize(("wrong", "named"), [("qkv", "{v,k,q}"), ("qk", "{k,q}"), ("v", "v")])
@pytest.mark.parametrize("packed", [True, False])
def test_transposed_weights_of_queries_keys_and_values_are_one_place(wrong, named, packed):
    """Square matrices, so that nothing but the numbers tells; A may hold the three in one."""
    rng = np.random.default_rng(4)
    w = {name: rng.normal(size=(6, 6)) for name in "qkv"}
    x = rng.normal(size=(2, 5, 6))

    def attend(xp, q, k, v):
        scores = q @ xp.swapaxes(k, -1, -2)
        return (torch.softmax if xp is torch else jax.nn.softmax)(scores, -1) @ v

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rows = {"qkv": np.concatenate([*w.values()])} if packed else w
            self.of = torch.nn.ModuleDict()
            for name, value in rows.items():
                self.of[name] = torch.nn.Linear(6, len(value), bias=False)
                self.of[name].weight = torch.nn.Parameter(torch.from_numpy(value))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if packed:
                return attend(torch, *self.of["qkv"](x).chunk(3, -1))
            return attend(torch, *(self.of[name](x) for name in "qkv"))

    def port(p: Any, x: Any) -> Any:
        return attend(jnp, *(x @ p[name]["kernel"] for name in "qkv"))

    p = {name: {"kernel": value if name in wrong else value.T} for name, value in w.items()}
    found = compare((Attention(), torch.from_numpy(x)), (port, (p, x)))
    (place,) = found.places
    assert place.kind == "parameter"
    assert place.times == len(wrong)
    rows = "[12:18]" if wrong == "v" else ""
    theirs = f"of.qkv.weight{rows}" if packed else f"of.{named}.weight"
    assert place.message == f"p.{named}.kernel holds A's {theirs} transposed"


@pytest.mark.parametrize("looped", ["scan", "fori_loop"])
def test_parameters_of_one_shape_exchanged_in_every_layer_of_a_stack(looped: str) -> None:
    """In a loop each layer's are rows, by `slice` or by `dynamic_slice`, of arrays that A has not."""
    rng = np.random.default_rng(6)
    p = {name: rng.normal(size=(3, WIDTH)) for name in ("q", "q0", "k", "k0")}
    p |= {name: rng.normal(size=(3, WIDTH, WIDTH)) / 3 for name in ("w", "v")}
    x = rng.normal(size=(4, WIDTH))

    def block(p: Any, x: Any) -> Any:
        y, z = jnp.tanh(x @ p["w"]), jnp.sin(x @ p["v"])
        return x + jax.nn.softmax((y * p["q"] + p["q0"]) @ (z * p["k"] + p["k0"]).T) @ y

    def unrolled(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = block(layer, x)
        return x

    def stacked(p: Any, x: Any) -> Any:
        p = p | {"q": p["k"], "q0": p["k0"], "k": p["q"], "k0": p["q0"]}
        if looped == "fori_loop":
            return jax.lax.fori_loop(0, 3, lambda i, x: block({n: v[i] for n, v in p.items()}, x), x)
        return jax.lax.scan(lambda x, p: (block(p, x), None), x, p)[0]

    layers = [{name: value[i] for name, value in p.items()} for i in range(3)]
    (place,) = compare((unrolled, (layers, x)), (stacked, (p, x))).places
    assert (place.cause, place.times) == ("operands exchanged", 3)
    assert set(place.message.split()) >= {"p.k", "p.q", "p.k0", "p.q0"}, place.message
