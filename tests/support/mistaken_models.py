"""What users may hand to `parity diff`: small programs, each with one thing that is wrong."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen, nnx

X = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
W = np.random.default_rng(1).standard_normal((3, 2)).astype("float32")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2, bias=False)
        self.fc.weight.data = torch.tensor(W.T.copy())

    def forward(self, x):
        return torch.tanh(self.fc(x))

    def twice(self, x):
        return 2 * self(x)


def plain():
    return Net().eval(), torch.from_numpy(X)


def port():
    return (lambda w, x: jnp.tanh(x @ w)), (W, X)


def trains():
    def step(w, x):
        (torch.tanh(x @ w) ** 2).mean().backward()
        return w.grad

    return step, (torch.from_numpy(W).requires_grad_(), torch.from_numpy(X))


def raises():
    raise KeyError("blocks.0.weight")


def branches():
    return (lambda w, x: x @ w if x.sum() > 0 else x), (W, X)


def of_numpy():
    return (lambda w, x: np.maximum(x @ w, 0)), (W, X)


def on_two_lines():
    class Raising(Net):
        def forward(self, x):
            raise ValueError("my forward\nfails on two lines")

    return Raising().eval(), torch.from_numpy(X)


def traced():
    return torch.jit.trace(Net().eval(), torch.from_numpy(X)), torch.from_numpy(X)


def exported_by_torch():
    return torch.export.export(Net().eval(), (torch.from_numpy(X),)), torch.from_numpy(X)


def exits():
    sys.exit("bye")


def needs_arg(n):
    return plain()


def only_model():
    return Net()


def forgets():
    plain()


def other_name():
    return Net().eval(), {"pixels": torch.from_numpy(X)}


def linen_drops(**inputs):
    class Drops(linen.Module):
        @linen.compact
        def __call__(self, x, train=True):
            return jnp.tanh(linen.Dropout(0.5, deterministic=not train)(x) @ W)

    return Drops(), {}, {"x": X, **inputs}


def linen_drops_nothing():
    return linen_drops(train=False)


def exported():
    function, given = port()
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in given]
    return jax.export.export(jax.jit(function))(*shapes).call, given


def exported_itself():
    return exported()[0].__self__, exported()[1]


def compiled():
    function, given = port()
    return jax.jit(function).lower(*given).compile(), given


def in_a_framework():
    return jnp.add, (X, W)


class Nnx(nnx.Module):
    def __init__(self, running=True):
        self.w = nnx.Param(jnp.asarray(W))
        self.norm = nnx.BatchNorm(2, use_running_average=running, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.norm(jnp.tanh(x @ self.w))

    def without_norm(self, x):
        return jnp.tanh(x @ self.w)

    def twice(self, x):
        return 2 * self.without_norm(x)


def torch_forward():
    return Net().eval().forward, torch.from_numpy(X)


def torch_twice():
    return Net().eval().twice, torch.from_numpy(X)


def nnx_call():
    return Nnx().__call__, X


def nnx_whole():
    return Nnx(), X


def nnx_without_norm():
    return Nnx().without_norm, X


def nnx_twice():
    return Nnx().twice, X


def training():
    return Net().train(), torch.from_numpy(X)


def nnx_training():
    return Nnx(running=False), X


def fewer():
    return Net().eval(), torch.from_numpy(X[:1])


def none_at_all():
    return (lambda w, x: jnp.tanh(x @ w)), (W, X[:0])


def drops():
    return (lambda w, x: torch.nn.functional.dropout(x @ w, 0.5)), (torch.tensor(W), torch.tensor(X))


def drops_in_jax():
    def dropped(w, x):
        y = x @ w
        return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, y.shape), 2 * y, 0)

    return dropped, (W, X)


def nothing_but_nan():
    return (lambda w, x: x @ w * torch.nan), (torch.tensor(W), torch.tensor(X))


def nothing_but_nan_in_jax():
    return (lambda w, x: {"y": x @ w / 0 * 0, "x": x}), (W, X)


def one_nan():
    return (lambda x: torch.where(x == x.max(), torch.nan, x)), torch.tensor(X)


def one_nan_in_jax():
    return (lambda x: jnp.where(x == x.max(), jnp.nan, x)), X


def autocast():
    def cast(w, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w  # cast
            with torch.autocast("cpu", enabled=False):
                return torch.tanh(y) @ torch.eye(2, dtype=y.dtype)

    return cast, (torch.tensor(W), torch.tensor(X))


def linen_alone():
    return linen.Dense(2, use_bias=False), X


def linen_whole():
    return linen.Dense(2, use_bias=False), {"params": {"kernel": W}}, X


def linen_bound():
    module, variables, images = linen_whole()
    return module.bind(variables), images
