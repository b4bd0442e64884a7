"""Training by torch.func.grad_and_value and functional_call, against the module's own backward."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad_and_value, vmap

from draw import to_torch
from tiny import batches, net, train_torch

LR, MU = 0.1, 0.9


def side_torch():
    return train_torch(lambda m: torch.optim.SGD(m.parameters(), LR, momentum=MU)), batches(to_torch, steps=3)


def per_example(xs, ys):
    """The batch gradient as the mean of per-example gradients."""
    skeleton = net()
    p = {k: v.detach() for k, v in skeleton.named_parameters()}

    def loss_fn(p, x, y):
        return F.cross_entropy(functional_call(skeleton, p, (x[None],)), y[None])

    velocity, losses = dict.fromkeys(p, 0.0), []
    for x, y in zip(xs, ys):
        g, each = vmap(grad_and_value(loss_fn), in_dims=(None, 0, 0))(p, x, y)
        velocity = {k: MU * velocity[k] + v.mean(0) for k, v in g.items()}
        p = {k: v - LR * velocity[k] for k, v in p.items()}
        losses.append(each.mean())
    return torch.stack(losses), p


def side_per_example():
    return per_example, batches(to_torch, steps=3)
