"""The text tower of CLIP and SigLIP, of the image tower's blocks."""

import torch
from torch import nn

from vit_config import TextConfig, ViTConfig
from vit_config.output import TextOutput
from vit_torch.attention import Attention
from vit_torch.block import Block
from vit_torch.heads import set_kernel
from vit_torch.init import initialise
from vit_torch.norm import make_norm


class CausalAttention(Attention):
    """Attention in which no token sees a later one (arXiv 1706.03762, section 3.2.3)."""

    def mix(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Mix the values of each token and those before it; `bias` is not used."""
        later = q.new_full((1, q.shape[1], k.shape[1]), -torch.inf)
        return super().mix(q, k, v, bias=torch.triu(later, 1))


class CausalBlock(Block):
    """A block of causal attention."""

    def __init__(self, cfg: ViTConfig, index: int):
        super().__init__(cfg, index)
        self.attn = CausalAttention(cfg, index)


class TextPool(nn.Module):
    """Pooling to the one token that stands for the text."""

    def __init__(self, cfg: TextConfig):
        super().__init__()
        self.kind, self.eos_id = cfg.pool, cfg.eos_id

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Pool tokens (B, N, D) of the ids (B, N) to (B, D)."""
        if self.kind in ("first", "last"):
            return x[:, 0 if self.kind == "first" else -1]
        marks = ids if self.kind == "largest" else (ids == self.eos_id).to(torch.int32)
        place = marks.argmax(dim=1)  # the first of equal ones
        place = place[:, None, None].expand(-1, 1, x.shape[2])  # torch.export fixes B of take_along_dim
        return torch.gather(x, 1, place)[:, 0]


class TextTower(nn.Module):
    """The text tower of a CLIP (arXiv 2103.00020) or a SigLIP (arXiv 2303.15343).

    It computes in the type of its parameters.
    """

    def __init__(self, cfg: TextConfig, *, kernel: str = "auto"):
        """Build a tower with initial values.

        Args:
            kernel: how attention is computed, one of `vit_torch.kernels.KERNELS`.

        Raises:
            InputError: there is no such kernel.
        """
        super().__init__()
        D, E, encoder = cfg.hidden_size, cfg.projection_dim, cfg.encoder
        self.cfg = cfg
        self.token_embed = nn.Parameter(torch.zeros(cfg.vocab_size, D))
        self.pos_embed = nn.Parameter(torch.zeros(cfg.context_length, D))
        kind = CausalBlock if cfg.causal else Block
        self.blocks = nn.ModuleList([kind(encoder, i) for i in range(cfg.depth)])
        self.norm = make_norm(encoder, D)
        self.pool = TextPool(cfg)
        self.head = nn.Linear(D, E, bias=cfg.projection_bias) if E else None
        self.logit_scale = nn.Parameter(torch.zeros(())) if cfg.logit_scale else None
        self.logit_bias = nn.Parameter(torch.zeros(())) if cfg.logit_bias else None
        initialise(self, encoder)
        set_kernel(self, kernel)

    def forward(self, ids: torch.Tensor) -> TextOutput:
        """Embed texts.

        Args:
            ids: (B, N) integers below vocab_size, which `TextConfig.check_ids` checks; N is at most
                context_length.

        Raises:
            InputError: ids of another shape, or too many to a text.
        """
        self.cfg.check_shape(ids.shape)
        x = self.token_embed[ids]  # (B, N, D)
        x = x + self.pos_embed[: ids.shape[1]]
        for block in self.blocks:
            x, _ = block(x)
        x = self.norm(x)
        pooled = self.pool(x, ids)  # (B, D)
        embeddings = pooled if self.head is None else self.head(pooled)
        return TextOutput(embeddings, pooled, x)

    def compare(self, images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        """Compare embeddings of images (B, E) and texts (T, E), in at least float32.

        Returns:
            (B, T) logits: cosines, times exp(logit_scale), plus logit_bias, as far as there are any.
        """
        wide = torch.promote_types(texts.dtype, torch.float32)
        images, texts = (
            x / torch.sqrt((x * x).sum(dim=-1, keepdim=True)) for x in (images.to(wide), texts.to(wide))
        )
        logits = images @ texts.T
        if self.logit_scale is not None:
            logits = logits * torch.exp(self.logit_scale.to(wide))
        return logits if self.logit_bias is None else logits + self.logit_bias.to(wide)
