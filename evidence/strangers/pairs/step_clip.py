"""Clipping by the norm over all parameters: a Lightning-like torch loop against a Linen TrainState."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import optax
import torch
import torch.nn.functional as F
from flax.training.train_state import TrainState

from draw import to_jax, to_torch
from tiny import batches, logits, named, net, params

LR, CLIP = 0.5, 0.3


def side_torch():
    def run(xs, ys):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), LR)
        losses = []
        for x, y in zip(xs, ys):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            losses.append(loss.detach())
        return losses, named(model)

    return run, batches(to_torch)


def train(tx):
    @jax.jit
    def train_step(state, x, y):
        def loss_fn(p):
            return optax.softmax_cross_entropy_with_integer_labels(state.apply_fn(p, x), y).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads), loss

    def run(xs, ys):
        state, losses = TrainState.create(apply_fn=logits, params=params(), tx=tx), []
        for x, y in zip(xs, ys):
            state, loss = train_step(state, x, y)
            losses.append(loss)
        return losses, state.params

    return run, batches(to_jax)


def side_flax():
    return train(optax.chain(optax.clip_by_global_norm(CLIP), optax.sgd(LR)))


def side_wrong():
    return train(optax.chain(optax.adaptive_grad_clip(CLIP), optax.sgd(LR)))  # !wrong
