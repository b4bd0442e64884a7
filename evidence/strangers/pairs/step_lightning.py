"""A LightningModule trained by SGD with Nesterov momentum, against Equinox and optax."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import equinox as eqx
import jax
import jax.numpy as jnp
import lightning as L
import optax
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_jax, to_torch

SIZES = (12, 17, 5)


def weights(seed=211):
    d = Draw(seed)
    return [(d.mat(o, i), d.vec(o)) for i, o in zip(SIZES, SIZES[1:])]


def data(cast):
    d = Draw(212)
    return cast(d.data(7, 3, 2, 2)), cast(d.ids(5, 7))


class LitPatchNet(L.LightningModule):
    def __init__(self, lr=0.1, momentum=0.9):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(*SIZES[:2]), nn.SiLU(), nn.Linear(*SIZES[1:]))
        for layer, (w, b) in zip((self.net[1], self.net[3]), weights()):
            layer.weight, layer.bias = nn.Parameter(torch.from_numpy(w)), nn.Parameter(torch.from_numpy(b))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), self.hparams.lr, momentum=self.hparams.momentum, nesterov=True)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)}


def side_lightning():
    def fit(x, y):
        module = LitPatchNet().train()
        config = module.configure_optimizers()
        losses = []
        for i in range(3):
            loss = module.training_step((x, y), i)
            config["optimizer"].zero_grad()
            loss.backward()
            config["optimizer"].step()
            config["lr_scheduler"].step()
            losses.append(loss.detach())
        return losses, {k: v.detach() for k, v in module.state_dict().items()}

    return fit, data(to_torch)


def model():
    mlp = eqx.nn.MLP(*SIZES[::2], SIZES[1], depth=1, activation=jax.nn.silu, key=jax.random.key(0))
    where = lambda m: [v for layer in m.layers for v in (layer.weight, layer.bias)]
    return eqx.tree_at(where, mlp, to_jax([v for pair in weights() for v in pair]))


def fit(tx):
    @eqx.filter_value_and_grad
    def loss_fn(m, x, y):
        logits = jax.vmap(m)(x.reshape(len(x), -1))
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def run(x, y):
        m = model()
        state, losses = tx.init(eqx.filter(m, eqx.is_array)), []
        for _ in range(3):
            loss, grads = loss_fn(m, x, y)
            updates, state = tx.update(grads, state)
            m = eqx.apply_updates(m, updates)
            losses.append(loss)
        return losses, {f"layers.{i}.{n}": getattr(layer, n) for i, layer in enumerate(m.layers) for n in ("weight", "bias")}

    return run


def side_eqx():
    return fit(optax.sgd(optax.exponential_decay(0.1, 1, 0.7), momentum=0.9, nesterov=True)), data(to_jax)


def side_wrong():
    schedule = optax.exponential_decay(0.1, transition_steps=1, decay_rate=0.7)
    return fit(optax.sgd(schedule, momentum=0.9)), data(to_jax)  # !wrong
