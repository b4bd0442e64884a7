"""A 12-block timm checkpoint into a scan; the layers are found by pattern in the state dict."""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax

from scan_vit import classify, convert
from draw import to_jax
from timm_vit import checkpoint, images


def renumber(sd):
    """Numbers the blocks anew, 0 upward, whatever numbers the file has."""
    found = {m.group(1) for m in map(re.compile(r"blocks\.(\d+)\.").match, sd) if m}
    order = sorted(found)  # !wrong
    new = {old: str(i) for i, old in enumerate(order)}
    return {re.sub(r"^blocks\.(\d+)", lambda m: "blocks." + new[m.group(1)], k): v for k, v in sd.items()}


def side_wrong():
    params = convert(renumber(checkpoint(12)), depth=12)
    return jax.jit(jax.vmap(classify, in_axes=(None, 0))), (params, to_jax(images()))
