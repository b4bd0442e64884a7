"""Clipping each example's gradient: a torch loop over examples against torch.func.vmap."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad_and_value, vmap

from draw import to_torch
from tiny import batches, named, net

LR, CLIP = 0.5, 0.6


def side_loop():
    def run(xs, ys):
        model, losses = net(), []
        optimizer = torch.optim.SGD(model.parameters(), LR)
        for x, y in zip(xs, ys):
            summed, total = [torch.zeros_like(p) for p in model.parameters()], 0.0
            for one, label in zip(x, y):
                model.zero_grad()
                loss = F.cross_entropy(model(one[None]), label[None])
                loss.backward()
                norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
                for s, p in zip(summed, model.parameters()):
                    s += p.grad * min(1.0, CLIP / norm.item())
                total += loss.detach() / len(x)
            for s, p in zip(summed, model.parameters()):
                p.grad = s / len(x)
            optimizer.step()
            losses.append(total)
        return losses, named(model)

    return run, batches(to_torch)


def train(xs, ys, wrong=False):
    model, losses = net(), []
    p = named(model)
    loss_fn = lambda p, x, y: F.cross_entropy(functional_call(model, p, (x[None],)), y[None])
    for x, y in zip(xs, ys):
        g, each = vmap(grad_and_value(loss_fn), in_dims=(None, 0, 0))(p, x, y)
        norms = sum(v.flatten(1).square().sum(1) for v in g.values()).sqrt()
        if wrong:
            mean = {k: v.mean(0) for k, v in g.items()}
            factor = (CLIP / norms.mean()).clamp(max=1.0)  # !wrong
            g = {k: v * factor for k, v in mean.items()}
        else:
            factor = (CLIP / norms).clamp(max=1.0)
            g = {k: torch.einsum("b,b...->...", factor, v) / len(x) for k, v in g.items()}
        p = {k: v - LR * g[k] for k, v in p.items()}
        losses.append(each.mean())
    return losses, p


def side_vmap():
    return train, batches(to_torch)


def side_wrong():
    return (lambda xs, ys: train(xs, ys, wrong=True)), batches(to_torch)
