"""A Trainer-like step over token labels with -100 for ignored ones and two uneven micro-batches."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F
from torch import nn

from draw import Draw, to_torch

D, CLASSES = 11, 4


def inputs():
    d = Draw(221)
    labels = d.ids(CLASSES, 2, 3, 5)
    labels[0, :, 1:] = -100
    labels[1, 0, 3:] = -100
    return to_torch(d.data(2, 3, 5, D)), to_torch(labels)


class PatchTagger(nn.Module):
    def __init__(self):
        super().__init__()
        d = Draw(222)
        self.norm, self.classifier = nn.LayerNorm(D), nn.Linear(D, CLASSES)
        self.load_state_dict(to_torch({"norm.weight": d.gain(D), "norm.bias": d.vec(D),
                                       "classifier.weight": d.mat(CLASSES, D), "classifier.bias": d.vec(CLASSES)}))

    def forward(self, pixel_tokens, labels, num_items_in_batch=None):
        logits = self.classifier(self.norm(pixel_tokens))
        reduction = "mean" if num_items_in_batch is None else "sum"
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction=reduction)
        return {"loss": loss if num_items_in_batch is None else loss / num_items_in_batch, "logits": logits}


class MiniTrainer:
    """What Trainer does for one update with gradient_accumulation_steps=2."""

    def __init__(self, model, lr=0.2):
        self.model, self.optimizer = model, torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)

    def compute_loss(self, batch, num_items):
        return self.model(*batch, num_items_in_batch=num_items)["loss"]

    def update(self, micro):
        num_items = sum((labels != -100).sum() for _, labels in micro)
        total = 0.0
        for batch in micro:
            loss = self.compute_loss(batch, num_items)
            loss.backward()
            total = total + loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


class OldTrainer(MiniTrainer):
    def compute_loss(self, batch, num_items):
        return self.model(*batch)["loss"] / 2  # !wrong


def side(trainer):
    def step(tokens, labels):
        model = PatchTagger()
        loss = trainer(model).update(list(zip(tokens, labels)))
        return loss, {n: p.detach() for n, p in model.named_parameters()}

    return step, inputs()


def side_trainer():
    return side(MiniTrainer)


def side_wrong():
    return side(OldTrainer)
