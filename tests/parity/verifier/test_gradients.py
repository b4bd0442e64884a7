"""Gradients by everything that two programs hold or are given, whatever they call it."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from parity.measure.nearness import LEAST
from parity.verifier.compare import compare
from parity.verifier.programs.backward import record_gradients
from parity.verifier.programs.sides import taken_apart
from parity.verifier.search import packed
from parity.verifier.search.nearness import measure
from parity.verifier.search.weights import pair_gradients

WIDTH = 6
X = np.random.default_rng(0).normal(size=(2, 5, WIDTH)).astype(np.float32)
GIVEN = torch.from_numpy(X)


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.q, self.k, self.head = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 3), nn.Linear(3, 7)

    def forward(self, x):
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1)
        return self.head(torch.tanh(self.q(x)) * torch.tanh(self.k(x)))


class Port(nn.Module):
    """Another name for the class token, and one projection for two."""

    def __init__(self, *, detached):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.qk, self.head, self.detached = nn.Linear(WIDTH, 6), nn.Linear(3, 7), detached

    def forward(self, x):
        token = self.class_token.detach() if self.detached else self.class_token
        x = torch.cat([token.expand(len(x), -1, -1), x], 1)
        q, k = self.qk(x).chunk(2, -1)
        return self.head(torch.tanh(q) * torch.tanh(k))


def pair(*, detached):
    a, b = Reference(), Port(detached=detached)
    torch.manual_seed(0)
    for parameter in a.parameters():
        nn.init.normal_(parameter)
    with torch.no_grad():
        b.class_token.copy_(a.cls)
        b.qk.weight.copy_(torch.cat([a.q.weight, a.k.weight]))
        b.qk.bias.copy_(torch.cat([a.q.bias, a.k.bias]))
        b.head.load_state_dict(a.head.state_dict())
    return (a, X), (b, X)


def test_other_names_and_packed_projections_are_found_by_their_numbers():
    comparison = compare(*pair(detached=False))
    assert comparison.equal
    assert not comparison.backward.counts.outputs_left_out
    assert comparison.backward.counts.outputs == 6  # the input, cls, two of qk, two of the head


def test_a_gradient_that_stops_is_a_difference_with_its_line():
    comparison = compare(*pair(detached=True))
    assert (comparison.verdict, comparison.causes) == ("DIFFERENT", ("detached",))
    (line,) = comparison.places[0].b.lines
    assert "self.class_token.detach()" in line.text


def test_gradients_of_what_one_side_folds_are_left_out_and_that_is_said_first():
    torch.manual_seed(0)
    narrow, wide = nn.Linear(6, 4), nn.Linear(4, 3)
    a, b = nn.Sequential(narrow, wide).double(), nn.Linear(6, 3).double()
    with torch.no_grad():
        b.weight.copy_(wide.weight @ narrow.weight)
        b.bias.copy_(wide(narrow.bias))
    comparison = compare((a, X), (b, X))
    assert comparison.verdict == "INCOMPLETE"
    assert "gradients of 0 of 4 parameters and 1 of 1 input (" in comparison.to_text().splitlines()[0]
    assert "without a gradient in B: 0.weight, 0.bias, 1.weight and 1 more" in comparison.to_text()


def scalar(model, x):
    return (model(x) ** 2).mean()


def test_scalars_and_several_outputs_are_differentiated_whatever_they_are_called():
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, 3)
    comparison = compare((scalar, (model, GIVEN)), (lambda x: (model(x) ** 2).mean(), GIVEN))
    assert (comparison.verdict, comparison.forward.counts.elements) == ("EQUAL", 1)

    def first(x):
        return {"last_hidden_state": model(x), "pooled": model(x).mean(1)}

    def second(x):
        return model(x).mean(1), model(x)

    comparison = compare((first, GIVEN), (second, GIVEN))
    assert (comparison.verdict, comparison.forward.counts.outputs) == ("EQUAL", 2)
    assert comparison.backward.counts.outputs == 3

    def wrong(x):
        return model(x).mean(1).detach(), model(x)

    assert compare((first, GIVEN), (wrong, GIVEN)).verdict == "DIFFERENT"


def test_video_in_either_layout():
    frames = np.random.default_rng(1).normal(size=(2, 3, 4, 5, 6))  # (B, T, C, H, W)
    here = (lambda x: torch.tanh(x) * x.mean(2, keepdim=True), torch.from_numpy(frames))
    there = (lambda x: jnp.tanh(x) * x.mean(-1, keepdims=True), frames.transpose(0, 1, 3, 4, 2))
    comparison = compare(here, there)
    assert comparison.no_backward == ""
    assert (comparison.verdict, comparison.backward.counts.outputs) == ("EQUAL", 1)


def test_a_training_step_is_not_differentiated_again():
    def step(params, x):
        of = jax.grad(lambda p: (jnp.tanh(x @ p["w"] + p["b"]) @ p["v"]).sum())(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, of)

    draw = np.random.default_rng(2).normal
    params = {"w": draw(size=(WIDTH, 4)), "b": draw(size=4), "v": draw(size=4)}
    comparison = compare((step, (params, X)), (step, (params, X)))
    assert (comparison.verdict, comparison.backward, comparison.no_backward) == ("EQUAL", None, "")


def test_what_has_no_gradient_says_so_and_is_compared_forward():
    comparison = compare((lambda x: torch.argsort(x), GIVEN), (lambda x: jnp.argsort(x), X))
    assert comparison.equal
    assert "gradients were not compared: no output of floating point" in comparison.to_text()


def test_a_gradient_in_another_layout_has_a_measured_limit():
    """A weight that the other program holds transposed: its gradients are transposed alike."""
    rng = np.random.default_rng(7)
    weight, x = rng.normal(size=(5, 4)), rng.normal(size=(3, 5)) * 1e3 + 1e6
    a, b = (
        taken_apart((lambda w, x: jnp.sin((x - x.mean()) @ w), (weight, x)), "A"),
        taken_apart(
            (lambda w, x: jnp.sin((x - x.mean()) @ w.T), (np.ascontiguousarray(weight.T), x)), "B"
        ),
    )
    ones = [(0, np.ones((3, 4)))]
    first, second = record_gradients(a, ones, "A"), record_gradients(b, ones, "B")
    measure(first)
    measure(second)
    pairs = pair_gradients(first, second).pairs
    limits = [first.operations[x].near.norm for x, _ in pairs]
    assert len(limits) == 2
    assert min(limits) > 10 * LEAST.norm


def test_gradients_of_layers_are_the_rows_of_their_stack():
    """Where no row is another's, as no stack of ones is: that one is sorted."""
    made = [nn.Linear(5, 5, dtype=torch.float64) for _ in range(3)]
    for layer in made:
        nn.init.ones_(layer.bias)
    layers, kernels = nn.Sequential(*made), np.stack([each.weight.detach().numpy().T for each in made])
    x = np.linspace(-1, 1, 10).reshape(2, 5)

    def port(held, x):
        return jax.lax.scan(lambda x, layer: (x @ layer["w"] + layer["b"], None), x, held)[0]

    given = {"w": kernels, "b": np.ones((3, 5))}
    ones = [(0, np.ones((2, 5)))]
    a = record_gradients(taken_apart((layers, torch.from_numpy(x)), "A"), ones, "A")
    b = record_gradients(taken_apart((port, (given, x)), "B"), ones, "B")
    assert not pair_gradients(a, b).left_out
    assert {op.name: op.shape for op in a.operations[-2:]} == {"stack": (3, 5, 5), "gather": (15,)}


def test_numbers_that_are_in_both_by_chance_tell_nothing():
    """A fifth of them, as two millions of float32 numbers lie close; a third more are shared."""
    rng = np.random.default_rng(0)
    large, other = (rng.uniform(1, 2, 2_000_000).astype(np.float32).astype(float) for _ in range(2))
    large, sample = np.sort(large), rng.choice(other, 512)
    assert np.isin(sample, large).mean() > packed.SHARED
    assert not packed._found(sample, large, 0.0)
    sample[::3] = rng.choice(large, len(sample[::3]))
    assert packed._found(sample, large, 0.0)


def test_square_weights_of_zeros_lie_as_their_gradients_do():
    layer = nn.Sequential(nn.Linear(4, 4, dtype=torch.float64), nn.Tanh())
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    x = np.random.default_rng(1).normal(size=(3, 4))
    given = {"k": np.zeros((4, 4)), "b": np.zeros(4)}
    port = (lambda p, x: jnp.tanh(x @ p["k"] + p["b"])), (given, x)
    assert compare((layer, torch.from_numpy(x)), port).verdict == "EQUAL"
