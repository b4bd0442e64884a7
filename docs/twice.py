"""One Vision Transformer, twice, and the proof that the two are one function: the whole idea on a page.

    python docs/twice.py

Read it in pairs: beside each class of Flax NNX stands the same class of PyTorch, with the same
attributes. Then the weights are carried from PyTorch to JAX, and both compute the same logits, loss and
gradients: in float64, where no mistake can hide behind rounding.
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from optax import softmax_cross_entropy_with_integer_labels as cross_entropy
from torch import nn

jax.config.update("jax_enable_x64", True)
WIDTH, HEADS, DEPTH, CLASSES, PATCH, PATCHES = 12, 3, 2, 5, 4, 6  # images of 8 x 12 pixels


class JaxAttention(nnx.Module):  # multi-head self-attention: arXiv 1706.03762, section 3.2
    def __init__(self, rngs: nnx.Rngs):
        self.qkv = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs)
        self.proj = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):  # (B, N, D) to (B, N, D)
        qkv = self.qkv(x).reshape(*x.shape[:2], 3, HEADS, -1)
        q, k, v = jnp.moveaxis(qkv, (2, 3), (0, 2))  # each (B, h, N, D / h)
        weights = jax.nn.softmax(q @ k.mT / jnp.sqrt(WIDTH / HEADS))
        return self.proj((weights @ v).swapaxes(1, 2).reshape(x.shape))


class TorchAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):  # (B, N, D) to (B, N, D)
        qkv = self.qkv(x).reshape(*x.shape[:2], 3, HEADS, -1)
        q, k, v = qkv.movedim((2, 3), (0, 2))  # each (B, h, N, D / h)
        weights = (q @ k.mT / (WIDTH / HEADS) ** 0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(x.shape))


class JaxBlock(nnx.Module):  # attention and perceptron on residual branches: arXiv 2010.11929, eq. 2, 3
    def __init__(self, rngs: nnx.Rngs):
        self.norm1 = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.attn = JaxAttention(rngs)
        self.norm2 = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.fc1 = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.fc2 = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(jax.nn.gelu(self.fc1(self.norm2(x)), approximate=False))  # JAX's is tanh


class TorchBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)  # PyTorch's is 1e-5
        self.attn = TorchAttention()
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class JaxViT(nnx.Module):  # patches, class token, positions, blocks, head: eq. 1 and 4
    def __init__(self, rngs: nnx.Rngs):
        self.patch_embed = nnx.Conv(3, WIDTH, (PATCH, PATCH), (PATCH, PATCH), rngs=rngs)
        self.cls_token = nnx.Param(jnp.zeros((1, 1, WIDTH)))
        self.pos_embed = nnx.Param(jnp.zeros((1, 1 + PATCHES, WIDTH)))
        self.blocks = nnx.List(JaxBlock(rngs) for _ in range(DEPTH))
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, images):  # (B, H, W, C), channels last, to (B, classes)
        x = self.patch_embed(images).reshape(len(images), -1, WIDTH)  # row by row
        cls = jnp.broadcast_to(self.cls_token[...], (len(x), 1, WIDTH))
        x = jnp.concatenate([cls, x], 1) + self.pos_embed[...]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class TorchViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + PATCHES, WIDTH))
        self.blocks = nn.ModuleList(TorchBlock() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images):  # (B, C, H, W), channels first, to (B, classes)
        x = self.patch_embed(images).flatten(2).transpose(1, 2)  # row by row
        x = torch.cat([self.cls_token.expand(len(x), 1, WIDTH), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def walk(state: nnx.State):
    """Each parameter of the JAX model: its name in PyTorch, itself, and the order of PyTorch's axes."""
    names = {"kernel": "weight", "scale": "weight"}
    orders = {("kernel", 2): (1, 0), ("kernel", 4): (2, 3, 1, 0)}  # out-in, and out-in-H-W
    for (*owner, leaf), parameter in nnx.to_flat_state(state):
        name = ".".join(map(str, [*owner, names.get(leaf, leaf)]))
        yield name, parameter, orders.get((leaf, parameter.ndim), range(parameter.ndim))


rng = np.random.default_rng(0)
images, labels = rng.normal(size=(2, 8, 12, 3)), np.array([1, 4])

torch.manual_seed(0)
torch_model = TorchViT().double()
jax_model = nnx.eval_shape(lambda: JaxViT(nnx.Rngs(0)))  # names and shapes; no number is drawn
state, tensors = nnx.state(jax_model), torch_model.state_dict()
for name, parameter, order in walk(state):
    parameter.set_value(jnp.asarray(tensors.pop(name).numpy().transpose(order)))
assert not tensors, f"without a place in JAX: {[*tensors]}"
nnx.update(jax_model, state)

logits = nnx.jit(JaxViT.__call__)(jax_model, images)
loss_of = nnx.value_and_grad(lambda model: cross_entropy(model(images), labels).mean())
loss, gradients = nnx.jit(loss_of)(jax_model)
torch_logits = torch_model(torch.from_numpy(images).permute(0, 3, 1, 2))
torch_loss = nn.functional.cross_entropy(torch_logits, torch.from_numpy(labels))
torch_loss.backward()


def compare(what, in_jax, in_torch):
    error = np.abs(in_jax - in_torch).max() / np.abs(in_jax).max()
    print(f"{what:38} {error:.1e}")
    assert error < 1e-12, f"not the same: {what}"


compare("logits", logits, torch_logits.detach().numpy())
compare("loss", loss, torch_loss.detach().numpy())
for name, gradient, order in walk(gradients):
    in_torch = torch_model.get_parameter(name).grad.numpy().transpose(order)
    compare(f"gradient of {name}", gradient[...], in_torch)
print("EQUAL: one function, written twice")
