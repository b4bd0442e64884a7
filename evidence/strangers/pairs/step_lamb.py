"""LAMB with its trust ratios: a torch optimizer, an optax chain."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import optax
import torch

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch

LR, DECAY = 0.05, 0.5


class Lamb(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            s = self.state[p]
            if not s:
                s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
            s["t"] += 1
            s["m"].lerp_(p.grad, 0.1)
            s["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            m_hat, v_hat = s["m"] / (1 - 0.9 ** s["t"]), s["v"] / (1 - 0.999 ** s["t"])
            update = m_hat / (v_hat.sqrt() + 1e-6) + DECAY * p
            p.add_(update, alpha=-LR * (p.norm() / update.norm()).item())


def side_torch():
    return train_torch(lambda m: Lamb(m.parameters())), batches(to_torch)


def side_optax():
    return train_optax(optax.lamb(LR, weight_decay=DECAY)), (params(), *batches(to_jax))


def side_wrong():
    tx = optax.chain(optax.scale_by_adam(eps=1e-6), optax.scale_by_trust_ratio(), optax.add_decayed_weights(DECAY),  # !wrong
                     optax.scale_by_learning_rate(LR))
    return train_optax(tx), (params(), *batches(to_jax))
