"""The MLP of a block and its activation."""

import torch
from torch import nn
from torch.nn import functional as F

from vit_config import ViTConfig
from vit_torch.drop import Dropout

ACTIVATIONS = {
    "gelu": lambda x: F.gelu(x, approximate="none"),  # arXiv 1606.08415, with erf
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "relu": F.relu,
}


class Activation(nn.Module):
    """The schema's activation, a module so that its output can be watched."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.kind = cfg.act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply elementwise."""
        return ACTIVATIONS[self.kind](x)


class Mlp(nn.Module):
    """Linear, activation, linear (arXiv 2010.11929, section 3.1)."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.fc1 = nn.Linear(cfg.hidden_size, cfg.mlp_dim, bias=cfg.mlp_bias)
        self.act = Activation(cfg)
        self.drop1 = Dropout(cfg.dropout_mlp_inner)
        self.fc2 = nn.Linear(cfg.mlp_dim, cfg.hidden_size, bias=cfg.mlp_bias)
        self.drop2 = Dropout(cfg.dropout_mlp_outer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, N, D) to (B, N, D)."""
        x = self.fc1(x)  # (B, N, M)
        x = self.drop1(self.act(x))
        x = self.fc2(x)  # (B, N, D)
        return self.drop2(x)
