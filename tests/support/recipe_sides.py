"""Updates on given gradients: by both twins' second halves, and by the optimisers of torch and optax."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch import nn

import vit_jax.optim
import vit_jax.step
import vit_torch.optim
import vit_torch.step
from tests.support.tiny import error
from vit_config import Recipe
from vit_config.schedule import learning_rate

Arrays = dict[str, np.ndarray]
STEPS, PER_EPOCH = 12, 4
BASE = Recipe(
    epochs=3,
    learning_rate=3e-2,
    final_learning_rate=1e-4,
    warmup_epochs=1.0,
    weight_decay=0.3,
    dtype="float64",
)
MATRICES = {"head.weight", "attn.qkv_weight"}
NOT_VECTORS = {*MATRICES, "pos_embed"}


class Small(nn.Module):
    """Every kind of parameter that a rule of decay could take for another."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.norm, self.attn = nn.Linear(5, 3), nn.LayerNorm(5), nn.Module()
        self.pos_embed = nn.Parameter(torch.zeros(1, 4, 5))
        self.attn.qkv_weight = nn.Parameter(torch.zeros(3, 2, 5, 7))
        self.attn.qkv_bias = nn.Parameter(torch.zeros(3, 2, 7))


def small() -> nn.Module:
    """The model with the same drawn values every time, in float64."""
    model, stream = Small().double(), np.random.default_rng(0)
    for _, parameter in sorted(model.named_parameters()):
        parameter.data = torch.from_numpy(stream.standard_normal(parameter.shape))
    return model


def values(model: nn.Module) -> Arrays:
    """Its parameters."""
    return {name: value.detach().numpy().copy() for name, value in model.named_parameters()}


def gradients(count: int = STEPS) -> list[Arrays]:
    """A gradient for each step, of norms about 3 to 50; the fourth is zero."""
    stream, start = np.random.default_rng(1), values(small())
    sizes = [0.0 if step == 3 else stream.uniform(0.2, 3.0) for step in range(count)]
    return [{n: size * stream.standard_normal(v.shape) for n, v in start.items()} for size in sizes]


def rates(recipe: Recipe) -> np.ndarray:
    """The learning rate of every step."""
    return learning_rate(recipe, np.arange(STEPS), PER_EPOCH)


def by_jax(recipe: Recipe, grads: Sequence[Arrays]) -> tuple[Arrays, Arrays | None]:
    """What the JAX twin makes of the parameters and of their average."""
    params = {name: jnp.asarray(value) for name, value in values(small()).items()}
    opt_state = vit_jax.optim.make_optimizer(recipe, PER_EPOCH).init(params)
    ema = vit_jax.optim.init_ema(recipe, params)
    state = vit_jax.step.TrainState(jnp.int32(0), params, opt_state, ema)
    update = jax.jit(vit_jax.step.make_update(recipe, PER_EPOCH))
    for grad in grads:
        state = update(state, {name: jnp.asarray(value) for name, value in grad.items()})
    return jax.device_get(state.params), jax.device_get(state.ema)


def by_torch(recipe: Recipe, grads: Sequence[Arrays]) -> tuple[Arrays, Arrays | None]:
    """What the PyTorch twin makes of them."""
    model: Any = small()
    ema = vit_torch.optim.init_ema(recipe, model)
    optimizer = vit_torch.optim.make_optimizer(model, recipe)
    update = vit_torch.step.make_update(model, recipe, optimizer, PER_EPOCH, ema)
    for step, grad in enumerate(grads):
        set_gradients(model, grad)
        update(step)
    return values(model), None if ema is None else {name: value.numpy() for name, value in ema.items()}


def set_gradients(model: nn.Module, grad: Arrays) -> None:
    """Give every parameter its gradient."""
    for name, parameter in model.named_parameters():
        parameter.grad = torch.from_numpy(grad[name].copy())


def by_torch_optim(
    recipe: Recipe,
    make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
    decayed: set[str],
    before: Callable[[nn.Module, float], None] = lambda model, rate: None,
) -> Arrays:
    """What an optimiser of torch makes of the parameters.

    Args:
        make: given the groups of what decays and of what does not.
        before: done before each step, given the model and the learning rate.
    """
    model = small()
    named = dict(model.named_parameters())
    groups = [
        {"params": [p for n, p in named.items() if n in decayed]},
        {"params": [p for n, p in named.items() if n not in decayed], "weight_decay": 0.0},
    ]
    optimizer = make([group for group in groups if group["params"]])
    for rate, grad in zip(rates(recipe), gradients(), strict=True):
        set_gradients(model, grad)
        before(model, float(rate))
        for group in optimizer.param_groups:
            group["lr"] = float(rate)
        optimizer.step()
    return values(model)


def by_optax(recipe: Recipe, make: Callable[[optax.Schedule], optax.GradientTransformation]) -> Arrays:
    """What a transformation of optax, made of the schedule, makes of the parameters."""
    table = jnp.asarray(rates(recipe))
    optimizer = make(lambda count: table[count])
    params: Any = {name: jnp.asarray(value) for name, value in values(small()).items()}
    state = optimizer.init(params)

    @jax.jit
    def update(params: Any, state: Any, grad: Any) -> Any:
        updates, state = optimizer.update(grad, state, params)
        return optax.apply_updates(params, updates), state

    for grad in gradients():
        params, state = update(params, state, {name: jnp.asarray(value) for name, value in grad.items()})
    return jax.device_get(params)


def mask(decayed: set[str]) -> dict[str, bool]:
    """What optax takes for what decays."""
    return {name: name in decayed for name in values(small())}


def assert_equal(actual: Arrays, expected: Arrays, largest: float = 1e-13) -> None:
    """Every tensor, in relative error."""
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
        assert error(value, expected[name]) <= largest, name


def differ(one: Arrays, other: Arrays) -> bool:
    """Whether some tensor is clearly another one."""
    return max(error(value, other[name]) for name, value in one.items()) > 1e-6
