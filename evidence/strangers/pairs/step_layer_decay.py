"""Learning rates that fall towards the input: torch parameter groups against optax.multi_transform."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch

BASE, DECAY = 0.2, 0.6
LAYER = {"pos_embed": 0, "embed": 0, "norm": 1, "qkv": 1, "proj": 1, "norm_out": 2, "head": 2}


def groups(model):
    return torch.optim.SGD([{"params": [p for n, p in model.named_parameters() if LAYER[n.split(".")[0]] == i], "lr": BASE * DECAY ** (2 - i)}
                            for i in range(3)], lr=BASE, momentum=0.9)


def side_torch():
    return train_torch(groups), batches(to_torch)


def transform(layer):
    labels = lambda tree: {k: jax.tree.map(lambda _: f"layer{layer(k)}", v) for k, v in tree.items()}
    return optax.multi_transform({f"layer{i}": optax.sgd(BASE * DECAY ** (2 - i), momentum=0.9) for i in range(3)}, labels)


def side_optax():
    return train_optax(transform(LAYER.get)), (params(), *batches(to_jax))


def side_wrong():
    def layer(name):
        if name.startswith("norm"):
            return 1  # !wrong
        return LAYER[name]

    return train_optax(transform(layer)), (params(), *batches(to_jax))
