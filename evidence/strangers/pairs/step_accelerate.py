"""Gradient accumulation by accelerate's Accelerator, against a loop by hand."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader

from draw import to_torch
from tiny import batches, named, net


def side_hand():
    def run(xs, ys):
        model, losses = net(), []
        optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
        for i, (x, y) in enumerate(zip(xs, ys)):
            loss = F.cross_entropy(model(x), y)
            (loss / 2).backward()
            if (i + 1) % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        return torch.stack(losses), named(model)

    return run, batches(to_torch, steps=4)


def run(xs, ys, wrong=False):
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    model, losses = net(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
    loader = DataLoader(list(zip(xs, ys)), batch_size=None)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            losses.append(loss.detach())
            if wrong:
                loss = loss / accelerator.gradient_accumulation_steps  # !wrong
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return torch.stack(losses), named(accelerator.unwrap_model(model))


def side_accelerate():
    return run, batches(to_torch, steps=4)


def side_wrong():
    return (lambda xs, ys: run(xs, ys, wrong=True)), batches(to_torch, steps=4)
