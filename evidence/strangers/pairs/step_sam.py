"""Sharpness-aware minimisation: a torch two-pass step against JAX."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F

from draw import to_jax, to_torch
from tiny import batches, cross_entropy, named, net, params

LR, RHO = 0.2, 0.1


def side_torch():
    def run(xs, ys):
        model, losses = net(), []
        optimizer = torch.optim.SGD(model.parameters(), LR)
        for x, y in zip(xs, ys):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            old = [p.detach().clone() for p in model.parameters()]
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(p.grad, alpha=RHO / norm.item())
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p, o in zip(model.parameters(), old):
                    p.copy_(o)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return torch.stack(losses), named(model)

    return run, batches(to_torch)


def sam(p, xs, ys, wrong=False):
    losses = []
    for x, y in zip(xs, ys):
        loss, g = jax.value_and_grad(cross_entropy)(p, x, y)
        norm = jnp.sqrt(sum(jnp.vdot(a, a) for a in jax.tree.leaves(g)))
        peak = jax.tree.map(lambda a, b: a + RHO * b / norm, p, g)
        g = jax.grad(cross_entropy)(peak, x, y)
        base = peak if wrong else p  # !wrong
        p = jax.tree.map(lambda a, b: a - LR * b, base, g)
        losses.append(loss)
    return jnp.array(losses), p


def side_jax():
    return sam, (params(), *batches(to_jax))


def side_wrong():
    return (lambda *a: sam(*a, wrong=True)), (params(), *batches(to_jax))
