"""eqx_dino with the layer scale written into the running sum."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import equinox as eqx
import jax

from draw import to_jax
from eqx_dino import Block, patch_tokens, trunk


class ScaledSum(Block):
    def __call__(self, x):
        x = x + self.ls1 * self.attend(jax.vmap(self.norm1)(x))
        x = self.ls2 * (x + self.feed(jax.vmap(self.norm2)(x)))  # !wrong
        return x


def side_wrong():
    return eqx.filter_vmap(trunk(ScaledSum)), (to_jax(patch_tokens()),)
