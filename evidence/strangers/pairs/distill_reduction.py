"""distill in torch, with softened targets."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch.nn.functional as F

from distill import ALPHA, T, inputs
from draw import to_torch


def loss(student, teacher, labels):
    target = F.softmax(teacher / T, dim=-1)
    soft = F.kl_div(F.log_softmax(student / T, dim=-1), target, reduction="mean") * T * T  # !wrong
    return ALPHA * soft + (1 - ALPHA) * F.cross_entropy(student, labels)


def side_wrong():
    return loss, inputs(to_torch)
