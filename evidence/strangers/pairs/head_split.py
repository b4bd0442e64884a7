"""cross_attention with heads split by einops, torch against torch."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch.nn.functional as F
from einops import rearrange

from cross_attention import H, inputs, weights
from draw import to_torch


def read(latents, tokens):
    p = to_torch(weights())
    bq, bk, bv = p["in_proj_bias"].chunk(3)
    q, k, v = (F.linear(a, p[n + "_proj_weight"], b) for a, n, b in ((latents, "q", bq), (tokens, "k", bk), (tokens, "v", bv)))
    q, k, v = (rearrange(t, "b n (c h) -> b h n c", h=H) for t in (q, k, v))  # !wrong
    y = rearrange(F.scaled_dot_product_attention(q, k, v), "b h n c -> b n (h c)")
    return latents + F.linear(y, p["out_proj.weight"], p["out_proj.bias"])


def side_wrong():
    return read, inputs(to_torch)
