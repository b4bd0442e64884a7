"""parallel_block with queries and keys normalised in one call."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp

from draw import to_jax
from parallel_block import Attention, Block, convert, tokens


class StackedAttention(Attention):
    def qk(self, y):
        both = jnp.stack([self.query(y), self.key(y)])
        return self.q_norm(both)  # !wrong


def side_wrong():
    return jax.jit(Block(StackedAttention).apply), (convert(), *tokens(to_jax))
