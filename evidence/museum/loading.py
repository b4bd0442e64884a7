"""Parameters on their way from one library to another."""

import jax.numpy as jnp
import numpy as np
import torch
from flax import linen, nnx
from torch import nn

from evidence.museum.exhibits import B, D, H, M, N, drawn, exhibit, filled, tokens, weights


@exhibit(
    "Physical-Intelligence/openpi/issues/958",
    "The conversion drops the LoRA of a fine-tuned checkpoint.",
    "term left out",
    "parameter",
)
def adapters_dropped():
    p = weights(q=(D, D), lora_a=(D, 4), lora_b=(4, D), out=(D, M))

    def right(p, x):
        y = x @ p["q"] + x @ p["lora_a"] @ p["lora_b"]
        return jnp.tanh(y) @ p["out"]

    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.o_proj = nn.Linear(D, D, bias=False), nn.Linear(D, M, bias=False)

        def forward(self, x):
            y = self.q_proj(x)  # wrong
            return self.o_proj(torch.tanh(y))  # wrong

    model = Wrong().double()
    model.load_state_dict({"q_proj.weight": torch.from_numpy(p["q"].T),
                           "o_proj.weight": torch.from_numpy(p["out"].T)})  # fmt: skip
    return (right, (p, tokens())), (model, tokens())


class Rotated(nn.Module):
    """Meta's Llama: neighbours are a pair."""

    def __init__(self):
        super().__init__()
        self.wq, self.wk = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)

    def turn(self, x):
        angle = torch.arange(N)[:, None, None] * 100.0 ** -(torch.arange(3) / 3)
        x = x.view(B, N, H, 3, 2)
        a, b = x[..., 0], x[..., 1]
        return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def forward(self, x):
        q, k = self.turn(self.wq(x)).flatten(3), self.turn(self.wk(x)).flatten(3)  # wrong
        return torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)


@exhibit(
    "rasbt/LLMs-from-scratch/pull/750",
    "Rows that were permuted for rotation by halves meet a rotation of neighbours.",
    "parameter",
)
def rows_not_permuted_back():
    model, wrong = filled(Rotated()), filled(Rotated())
    with torch.no_grad():
        for linear in (wrong.wq, wrong.wk):
            linear.weight.copy_(linear.weight.view(H, 3, 2, D).transpose(1, 2).reshape(D, D))
    return (model, tokens()), (wrong, tokens())


@exhibit(
    "tinygrad/tinygrad/pull/18103",
    "Experts' weights are stored the other way round.",
    "parameter",
    "transposed",
)
def square_matrix_transposed():
    class Expert(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.LayerNorm(D, rngs=rngs)
            self.up, self.down = nnx.Linear(D, D, rngs=rngs), nnx.Linear(D, M, rngs=rngs)

        def __call__(self, x):
            x = self.up(self.norm(x))  # wrong
            return self.down(nnx.silu(x))

    right, wrong = Expert(nnx.Rngs(0)), Expert(nnx.Rngs(0))
    wrong.up.kernel[...] = right.up.kernel[...].T
    return (right, tokens()), (wrong, tokens())


@exhibit(
    "2noise/ChatTTS/issues/732",
    "A parameter with gamma in its name is renamed on loading and stays as it was made.",
    "parameter",
)
def gamma_never_loaded():
    class Block(linen.Module):
        @linen.compact
        def __call__(self, x):
            y = linen.Dense(D, name="pwconv2")(linen.gelu(linen.Dense(M, name="pwconv1")(x)))
            gamma = self.param("gamma", linen.initializers.constant(1e-6), (D,))
            return x + gamma * y  # wrong

    p = weights(pwconv1=(D, M), pwconv2=(M, D))
    params = {name: {"kernel": w, "bias": w[0]} for name, w in p.items()}

    def variables(gamma):
        return {"params": params | {"gamma": gamma}}

    return (Block(), variables(drawn(D)), tokens()), (Block(), variables(np.full(D, 1e-6)), tokens())


@exhibit(
    "ahmadchalhoub/research_implementations/issues/2",
    "The class token was made with the size of the batch: every image has its own.",
    "parameter",
)
def class_token_of_every_image():
    p = weights(class_token=(1, 1, D), head=(D, M))
    own = p["class_token"] + drawn(B, 1, D, seed=9, scale=0.1)

    def model(class_token, head, x):
        x = torch.cat([class_token.expand(B, -1, -1), x], 1)  # wrong
        return torch.tanh(x) @ head

    def side(class_token):
        return (lambda p, x: model(p["cls"], p["head"], x),
                ({"cls": torch.from_numpy(class_token), "head": torch.from_numpy(p["head"])},
                 torch.from_numpy(tokens())))  # fmt: skip

    return side(p["class_token"]), side(own)
