"""step_ema with averaging inside a jitted step."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp
import optax

from draw import to_jax
from step_ema import DECAY, LR
from tiny import batches, cross_entropy, params


def run(p, xs, ys):
    tx = optax.sgd(LR)

    @jax.jit
    def step(carry, x, y):
        p, ema, state = carry
        loss, grads = jax.value_and_grad(cross_entropy)(p, x, y)
        updates, state = tx.update(grads, state)
        new = optax.apply_updates(p, updates)
        ema = jax.tree.map(lambda e, q: DECAY * e + (1 - DECAY) * q, ema, p)  # !wrong
        return (new, ema, state), loss

    carry, losses = (p, p, tx.init(p)), []
    for x, y in zip(xs, ys):
        carry, loss = step(carry, x, y)
        losses.append(loss)
    return jnp.stack(losses), carry[1]


def side_wrong():
    return run, (params(), *batches(to_jax))
