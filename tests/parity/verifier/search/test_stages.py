"""Several training steps in one program: what is wrong with each of them is one place, of the first."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from parity.verifier.locate import compare

RNG = np.random.default_rng(3)
SHAPES = {"0.weight": (7, 5), "0.bias": (7,), "2.weight": (3, 7), "2.bias": (3,)}
WEIGHTS = {name: RNG.normal(size=shape) / 2 for name, shape in SHAPES.items()}
IMAGES, LABELS = RNG.normal(size=(2, 6, 5)), np.array([[0, 1, 1, 2, 2, 2, 1], [1, 0, 2, 2, 0, 1, 0]])
STEPS = len(IMAGES)


def in_torch():
    """Two steps of AdamW; the first six of seven labels are those of the images."""
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(), torch.nn.Linear(7, 3)).double()
    model.load_state_dict({name: torch.tensor(value) for name, value in WEIGHTS.items()})
    many, few = ([p for p in model.parameters() if (p.ndim > 1) == more] for more in (True, False))
    groups = [{"params": many, "weight_decay": 0.1}, {"params": few, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.95))

    def train(images, labels):
        losses = []
        for i in range(STEPS):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[i]), labels[i, :-1])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, {name: p.detach().clone() for name, p in model.named_parameters()}

    return train, (torch.tensor(IMAGES), torch.tensor(LABELS))


def in_jax(fault):
    """The same, but for one thing."""

    def decayed(p):
        return jax.tree.map(lambda x: x.ndim > (0 if fault == "mask" else 1), p)

    b2 = 0.999 if fault == "b2" else 0.95
    rate = (lambda i: 0.02 / (i + 1)) if fault == "rate" else 0.02
    tx = optax.adamw(rate, b2=b2, weight_decay=0.1, mask=decayed)  # wrong

    def loss_fn(p, x, y):
        h = jax.nn.gelu(x @ p["0.weight"].T + p["0.bias"], approximate=False)
        logits = h @ p["2.weight"].T + p["2.bias"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    @jax.jit
    def step(p, state, x, y):
        loss, gradients = jax.value_and_grad(loss_fn)(p, x, y)
        updates, state = tx.update(gradients, state, p)  # wrong
        return optax.apply_updates(p, updates), state, loss

    def train(images, labels):
        p, losses = {name: jnp.asarray(value) for name, value in WEIGHTS.items()}, []
        state = tx.init(p)
        for i in range(STEPS):
            y = labels[i, 1:] if fault == "labels" else labels[i, :-1]  # wrong
            p, state, loss = step(p, state, images[i], y)
            losses.append(loss)
        return losses, p

    return train, (IMAGES, LABELS)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("mask", "one term too many"),
        ("b2", "number"),  # which is no difference in the first step, where the correction undoes it
        ("labels", "index"),
    ],
)
def test_a_mistake_of_every_step_is_one_place(fault, cause):
    with jax.enable_x64(True):
        comparison = compare(in_torch(), in_jax(fault), gradients=True)
    assert comparison.verdict == "DIFFERENT"
    (place,) = comparison.places
    assert place.cause == cause
    assert any("# wrong" in line.text for line in place.b.lines)
    assert place.times > 1
    assert "0.999 where A has 0.95" in place.message or fault != "b2"


def test_a_rate_that_is_wrong_from_the_second_step_on():
    with jax.enable_x64(True):
        (place,) = compare(in_torch(), in_jax("rate"), gradients=True).places
    assert "0.02 / 2" in place.b.formula
    assert place.times == len(SHAPES)


def test_steps_that_are_the_same():
    with jax.enable_x64(True):
        assert compare(in_torch(), in_jax(""), gradients=True).verdict == "EQUAL"
