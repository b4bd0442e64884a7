"""`parity diff` on two training loops as users write them: AdamW of PyTorch, and optax under NNX."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

import parity
import vit_jax
import vit_torch
from parity.cli import main
from parity.measure.redraw import redraw
from parity.verifier.recordings import Recorded, compare_sides
from parity.verifier.recordings.diagnosis import diagnose
from tests.support.tiny import TINY
from vit_config.parameters import parameters

CFG = TINY.replace(depth=1)
RATE, DECAY = 3e-3, 0.05


def weights(dtype):
    arrays = {n: redraw(n, spec.kind, spec.shape, 0) for n, spec in parameters(CFG).items()}
    return {name: value.astype(dtype) for name, value in arrays.items()}


def batches(dtype):
    stream = np.random.default_rng(1)
    for _ in range(3):
        images = stream.standard_normal((4, *CFG.image_size, CFG.in_channels))
        yield images.astype(dtype), stream.integers(0, CFG.num_classes, 4)


def train_torch(path, dtype="float64"):
    model = vit_torch.from_arrays(CFG, weights(dtype)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    with parity.record(path, model, optimizer=optimizer) as trace:
        for images, labels in batches(dtype):
            x, y = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)
            with trace.step(images=x, labels=y):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x).logits, y)
                trace.log("loss", loss)
                loss.backward()
                optimizer.step()
    return path


def train_jax(path, dtype="float64", *, b2=0.999, coupled=True):
    """`coupled`: the decay is multiplied by the learning rate, as PyTorch does."""
    with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
        model = vit_jax.from_arrays(CFG, weights(dtype))
        decay = optax.add_decayed_weights(DECAY if coupled else -DECAY)
        rate = optax.scale(-RATE)
        order = (decay, rate) if coupled else (rate, decay)
        optimizer = nnx.Optimizer(model, optax.chain(optax.scale_by_adam(b2=b2), *order), wrt=nnx.Param)

        @nnx.jit
        def train_step(model, optimizer, x, y):
            def loss_fn(model):
                return optax.softmax_cross_entropy_with_integer_labels(model(x).logits, y).mean()

            loss, gradients = nnx.value_and_grad(loss_fn)(model)
            optimizer.update(model, gradients)
            return loss

        with parity.record(path, model, optimizer=optimizer) as trace:
            for images, labels in batches(dtype):
                x, y = jnp.asarray(images), jnp.asarray(labels)
                with trace.step(images=x, labels=y):
                    trace.log("loss", train_step(model, optimizer, x, y))
    return path


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return train_torch(tmp_path_factory.mktemp("reference") / "torch.trace")


def test_equal_loops_are_equal(reference, tmp_path, capsys):
    other = train_jax(tmp_path / "jax.trace")
    assert main(["diff", str(reference), str(other)]) == 0
    assert "EQUAL" in capsys.readouterr().out
    difference = compare_sides(Recorded(reference), Recorded(other))
    stages = {each.stage for each in difference.comparisons if each.step == 2 and each.judged}
    assert stages == {"batch", "forward", "loss", "gradients", "moments", "updated"}


def test_equal_loops_are_equal_in_float32(tmp_path):
    a, b = train_torch(tmp_path / "torch.trace", "float32"), train_jax(tmp_path / "jax.trace", "float32")
    assert main(["diff", str(a), str(b)]) == 0


@pytest.mark.parametrize(
    ("change", "stage", "cause"),
    [
        ({"b2": 0.9989}, "moments", "beta2"),
        ({"coupled": False}, "updated", "decay-times-rate"),
    ],
)
def test_a_wrong_optimiser_is_placed_and_named(change, stage, cause, reference, tmp_path):
    difference = compare_sides(
        Recorded(reference), Recorded(train_jax(tmp_path / "jax.trace", **change))
    )
    first = difference.first
    assert (first.stage, first.judged.site.step) == (stage, 0)
    assert diagnose(difference).causes[0].name == cause
