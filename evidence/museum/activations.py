"""Activations that look alike."""

import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx
from torch import nn

from evidence.museum.exhibits import D, M, exhibit, filled, tokens, weights


class QuickGELU(nn.Module):
    """OpenAI's."""

    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Mlp(nn.Module):
    """A perceptron with an activation to order."""

    def __init__(self, act):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(D, M), act, nn.Linear(M, D)

    def forward(self, x):
        x = self.fc1(x)
        x = self.act(x)  # wrong
        return self.fc2(x)


@exhibit(
    "huggingface/pytorch-image-models/issues/1754",
    "OpenAI's CLIP in timm with GELU, where its weights want QuickGELU.",
    "activation",
)
def quick_gelu_in_timm():
    return (filled(Mlp(QuickGELU())), tokens()), (filled(Mlp(nn.GELU())), tokens())


@exhibit(
    "mlfoundations/open_clip/issues/771",
    "A model that was fine-tuned with QuickGELU is evaluated with GELU.",
    "activation",
)
def quick_gelu_after_fine_tuning():
    model = filled(Mlp(QuickGELU()))
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}

    def wrong(p, x):
        x = x @ p["fc1.weight"].T + p["fc1.bias"]
        x = jax.nn.gelu(x, approximate=False)  # wrong
        return x @ p["fc2.weight"].T + p["fc2.bias"]

    return (model, tokens()), (wrong, (p, tokens()))


@exhibit(
    "huggingface/pytorch-image-models/pull/2533",
    "MobileNet v5 came from JAX, whose GELU is the one with tanh.",
    "activation",
)
def tanh_gelu_of_jax():
    class Head(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.Dense(M, name="expand")(x)
            return linen.Dense(D, name="project")(linen.gelu(x))

    p = weights(expand=(D, M), project=(M, D))
    variables = {"params": {name: {"kernel": w, "bias": w[0]} for name, w in p.items()}}

    def wrong(expand, project, x):
        x = nn.functional.gelu(x @ expand + expand[0])  # wrong
        return x @ project + project[0]

    return (Head(), variables, tokens()), (wrong, {**p, "x": tokens()})


@exhibit(
    "huggingface/transformers/pull/29402",
    "Gemma's gate has the exact GELU, the original the other one.",
    "activation",
)
def exact_gelu_of_gemma():
    p = weights(gate=(D, M), up=(D, M), down=(M, D))

    def right(gate, up, down, x):
        return (nn.functional.gelu(x @ gate, approximate="tanh") * (x @ up)) @ down

    def wrong(gate, up, down, x):
        return (nn.functional.gelu(x @ gate) * (x @ up)) @ down  # wrong

    sides = {name: torch.from_numpy(value) for name, value in (p | {"x": tokens()}).items()}
    return (right, sides), (wrong, sides)


@exhibit("ml-explore/mlx-examples/issues/1057", "The same in MLX's port.", "activation")
def exact_gelu_of_mlx():
    class GeGLU(nnx.Module):
        def __init__(self, *, approximate, rngs):
            self.gate, self.up = nnx.Linear(D, M, rngs=rngs), nnx.Linear(D, M, rngs=rngs)
            self.approximate = approximate

        def __call__(self, x):
            return nnx.gelu(self.gate(x), approximate=self.approximate) * self.up(x)  # wrong

    return (GeGLU(approximate=True, rngs=nnx.Rngs(0)), tokens()), (
        GeGLU(approximate=False, rngs=nnx.Rngs(0)), tokens(),
    )  # fmt: skip


@exhibit(
    "keras-team/keras-cv/pull/1014",
    "The port of ViT has no activation in its perceptron.",
    "activation",
    "left out",
)
def no_activation():
    model = filled(Mlp(nn.GELU()))
    p = {name: value.detach().numpy() for name, value in model.named_parameters()}

    def wrong(p, x):
        y = jnp.einsum("bnd,md->bnm", x, p["fc1.weight"]) + p["fc1.bias"]
        return jnp.einsum("bnm,dm->bnd", y, p["fc2.weight"]) + p["fc2.bias"]  # wrong

    return (model, tokens()), (wrong, (p, tokens()))
