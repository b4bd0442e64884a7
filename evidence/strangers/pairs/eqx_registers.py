"""eqx_dino run block by block."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import equinox as eqx
import jax
import jax.numpy as jnp

from draw import to_jax
from eqx_dino import REG, Trunk, patch_tokens, trunk


class RegisterTrunk(Trunk):
    def __call__(self, x):
        x = jnp.concatenate([self.cls, x]) + self.pos
        x = jnp.concatenate([x[:1], self.registers, x[1:]])
        arrays, static = eqx.partition(self.blocks, eqx.is_array)
        for i in range(len(self.blocks.ls1)):
            x = eqx.combine(jax.tree.map(lambda a: a[i], arrays), static)(x)
        x = jax.vmap(self.norm)(x)
        return x[0], x[1:-REG]  # !wrong


def side_wrong():
    t = trunk()
    model = RegisterTrunk(t.cls, t.registers, t.pos, t.blocks, t.norm)
    return jax.vmap(model), (to_jax(patch_tokens()),)
