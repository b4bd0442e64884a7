"""Warm-up and cosine decay: transformers' scheduler with AdamW against optax."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import optax
import torch
from transformers import get_cosine_schedule_with_warmup

from draw import to_jax, to_torch
from tiny import batches, params, train_optax, train_torch

WARMUP, TOTAL, PEAK = 2, 7, 0.05


def side_torch():
    def run(xs, ys):
        schedulers = []

        def make(model):
            optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, weight_decay=0.1)
            schedulers.append(get_cosine_schedule_with_warmup(optimizer, WARMUP, TOTAL))
            return optimizer

        return train_torch(make, after=lambda *_: schedulers[-1].step())(xs, ys)

    return run, batches(to_torch, steps=5)


def side_optax():
    schedule = optax.warmup_cosine_decay_schedule(0.0, PEAK, WARMUP, decay_steps=TOTAL)
    return train_optax(optax.adamw(schedule, weight_decay=0.1)), (params(), *batches(to_jax, steps=5))


def side_wrong():
    schedule = optax.warmup_cosine_decay_schedule(init_value=0.0, peak_value=PEAK, warmup_steps=WARMUP,
                                                  decay_steps=TOTAL - WARMUP)  # !wrong
    return train_optax(optax.adamw(schedule, weight_decay=0.1)), (params(), *batches(to_jax, steps=5))
