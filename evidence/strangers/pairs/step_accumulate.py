"""Three micro-batches, then clipping by the global norm and SGD: a torch loop, optax.MultiSteps."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import optax
import torch
import torch.nn.functional as F

from draw import to_jax, to_torch
from tiny import batches, named, net, params, train_optax

CLIP, LR = 0.4, 0.05


def side_torch():
    def run(xs, ys):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.8)
        losses = []
        for i, (x, y) in enumerate(zip(xs, ys)):
            loss = F.cross_entropy(model(x), y)
            (loss / 3).backward()
            losses.append(loss.detach())
            if i % 3 == 2:
                norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
                for p in model.parameters():
                    p.grad.mul_(torch.clamp(CLIP / norm, max=1.0))
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        return torch.stack(losses), named(model)

    return run, batches(to_torch, steps=6)


def side_optax():
    tx = optax.MultiSteps(optax.chain(optax.clip_by_global_norm(CLIP), optax.sgd(LR, 0.8)), every_k_schedule=3)
    return train_optax(tx.gradient_transformation()), (params(), *batches(to_jax, steps=6))


def side_wrong():
    inner = optax.MultiSteps(optax.sgd(LR, momentum=0.8), every_k_schedule=3)
    tx = optax.chain(optax.clip_by_global_norm(CLIP), inner.gradient_transformation())  # !wrong
    return train_optax(tx), (params(), *batches(to_jax, steps=6))
