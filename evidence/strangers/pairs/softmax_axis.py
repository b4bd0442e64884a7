"""cross_attention with weights laid out (latent, token, head)."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
from einops import einsum, rearrange

from cross_attention import D, H, inputs, project, weights
from draw import to_jax


def read(p, latents, tokens):
    q, k, v = project(p, latents, tokens)
    scores = einsum(q, k, "b l h c, b n h c -> b l n h") / (D // H) ** 0.5
    weights = jax.nn.softmax(scores)  # !wrong
    y = einsum(weights, v, "b l n h, b n h c -> b l h c")
    return latents + rearrange(y, "b l h c -> b l (h c)") @ p["out_proj.weight"].T + p["out_proj.bias"]


def side_wrong():
    return jax.jit(read), (to_jax(weights()), *inputs(to_jax))
