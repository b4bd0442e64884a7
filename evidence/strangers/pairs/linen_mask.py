"""The encoder of linen_encoder as a torch module of its own, with additive masks."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.nn.functional as F
from torch import nn

from draw import to_torch
from linen_encoder import D, H, LENGTHS, N, tokens, weights


class Layer(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.p = nn.ParameterDict({k.replace(".", "_"): nn.Parameter(v) for k, v in w.items()})

    def forward(self, x, mask):
        p, b = self.p, x.shape[0]
        qkv = F.linear(x, p["self_attn_in_proj_weight"], p["self_attn_in_proj_bias"])
        q, k, v = (t.unflatten(-1, (H, -1)).transpose(1, 2) for t in qkv.chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None]).transpose(1, 2).reshape(b, N, D)
        x = F.layer_norm(x + F.linear(a, p["self_attn_out_proj_weight"], p["self_attn_out_proj_bias"]), (D,),
                         p["norm1_weight"], p["norm1_bias"])
        h = F.linear(F.gelu(F.linear(x, p["linear1_weight"], p["linear1_bias"])), p["linear2_weight"], p["linear2_bias"])
        return F.layer_norm(x + h, (D,), p["norm2_weight"], p["norm2_bias"])


class MaskedEncoder(nn.Module):
    def __init__(self, ws, wrong=False):
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, ws))
        self.wrong = wrong

    def forward(self, x):
        valid = torch.arange(N) < torch.from_numpy(LENGTHS)[:, None]
        mask = valid[:, None, :].expand(-1, N, -1)
        if self.wrong:
            mask = mask.to(x.dtype)  # !wrong
        for layer in self.layers:
            x = layer(x, mask)
        return x * valid[..., None]


def side_wrong():
    return MaskedEncoder(to_torch(weights()), wrong=True).eval(), (to_torch(tokens()),)


def side_right():
    return MaskedEncoder(to_torch(weights())).eval(), (to_torch(tokens()),)
