"""The MLP of a block and its activation."""

import torch
from torch import nn
from torch.nn import functional as F

from vit_config import ViTConfig
from vit_torch.bounded import make_linear
from vit_torch.drop import Dropout
from vit_torch.norm import make_norm

ACTIVATIONS = {
    "gelu": lambda x: F.gelu(x, approximate="none"),  # arXiv 1606.08415, with erf
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "relu": F.relu,
}


class Activation(nn.Module):
    """The schema's activation, as a module so that its output can be recorded."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.kind = cfg.act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the activation elementwise."""
        return ACTIVATIONS[self.kind](x)


class Mlp(nn.Module):
    """An MLP: linear, activation, linear (arXiv 2010.11929, section 3.1)."""

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        self.add_hidden(cfg)
        self.act = Activation(cfg)
        self.drop1 = Dropout(cfg.dropout_mlp_inner)
        self.norm = make_norm(cfg, cfg.mlp_dim) if cfg.mlp_norm else None
        self.fc2 = make_linear(cfg, cfg.mlp_dim, cfg.hidden_size, bias=cfg.mlp_bias)
        self.drop2 = Dropout(cfg.dropout_mlp_outer)

    def add_hidden(self, cfg: ViTConfig) -> None:
        """Create the projection to the hidden layer."""
        self.fc1 = make_linear(cfg, cfg.hidden_size, cfg.mlp_dim, bias=cfg.mlp_bias)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, N, D) to the hidden layer (B, N, M)."""
        return self.act(self.fc1(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, N, D) to (B, N, D)."""
        x = self.drop1(self.hidden(x))  # (B, N, M)
        x = self.fc2(x if self.norm is None else self.norm(x))  # (B, N, D)
        return self.drop2(x)


class SwiGLU(Mlp):
    """An MLP with a gated hidden layer: act(W_g x) * W_x x (arXiv 2002.05202, equation 5)."""

    def add_hidden(self, cfg: ViTConfig) -> None:
        """Create the gate and the value."""
        self.fc1_g = make_linear(cfg, cfg.hidden_size, cfg.mlp_dim, bias=cfg.mlp_bias)
        self.fc1_x = make_linear(cfg, cfg.hidden_size, cfg.mlp_dim, bias=cfg.mlp_bias)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, N, D) to the hidden layer (B, N, M)."""
        return self.act(self.fc1_g(x)) * self.fc1_x(x)


class PackedSwiGLU(Mlp):
    """`SwiGLU` with gate and value in one projection, the gate first."""

    def add_hidden(self, cfg: ViTConfig) -> None:
        """Create the joint projection."""
        self.fc1 = make_linear(cfg, cfg.hidden_size, 2 * cfg.mlp_dim, bias=cfg.mlp_bias)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, N, D) to the hidden layer (B, N, M)."""
        gate, value = torch.chunk(self.fc1(x), 2, dim=-1)  # (B, N, M) each
        return self.act(gate) * value


def make_mlp(cfg: ViTConfig) -> Mlp:
    """Build the schema's MLP."""
    kinds = {"mlp": Mlp, "swiglu": SwiGLU, "swiglu_packed": PackedSwiGLU}
    return kinds[cfg.mlp](cfg)
