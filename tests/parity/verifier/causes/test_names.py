"""What a cause may say and what it may not: only what is known of both sides."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.causes.cause import Cause
from parity.verifier.causes.examples import sides
from parity.verifier.causes.instead import computes
from parity.verifier.locate import compare
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program

RNG = np.random.default_rng(5)


def test_a_table_that_every_layer_adds_is_a_term_and_no_residual():
    w = RNG.normal(size=(2, 6, 6)) / 3
    x, at = RNG.normal(size=(5, 6)), RNG.normal(size=(5, 6))

    def function(skipped):
        def of(w, x, at):
            at = jnp.tanh(at)
            for i, each in enumerate(w):
                x = jnp.tanh(x @ each) + (0 if i == skipped else at)
            return x @ w[0]

        return lambda w, x: of(w, x, at), (w, x)

    comparison = compare(function(None), function(1))
    assert [place.cause for place in comparison.places] == ["term left out"]


@pytest.mark.parametrize("small", [1.0, 1e-5])
def test_a_branch_that_is_not_called_is_left_out_however_small_it_is(small):
    """Beside the tokens a branch under LayerScale of 1e-5 is known to few digits: not as 1e-9 of A's."""
    w, x = RNG.normal(size=(4, 6, 6)) / 3, RNG.normal(size=(5, 6))

    def function(depth):
        def run(w, x):
            for one, other in ((w[0], w[1]), (w[2], w[3]))[:depth]:
                x = x + jnp.tanh(x @ one) @ other * small
            return x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True))

        return run, (w, x)

    comparison = compare(function(2), function(1))
    assert comparison.verdict == "DIFFERENT"
    assert [place.cause.endswith("left out") for place in comparison.places] == [True]


def test_layers_that_are_numbered_have_no_name_in_common():
    """What all labels begin with is what a model is called; "0" and "2" are layers."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6)).eval()
    wrong = copy.deepcopy(model)
    wrong[2].weight = torch.nn.Parameter(model[0].get_parameter("weight").detach().clone())
    x = RNG.normal(size=(3, 6)).astype(np.float32)
    (place,) = compare((model, x), (wrong, x)).places
    assert (place.kind, place.message.split(" ", 1)[1]) == (
        "parameter",
        "holds A's 0.weight instead of 2.weight",
    )


@pytest.mark.parametrize(
    ("name", "operands", "may"),
    [
        ("add", (0, Ref(0)), False), ("mul", (Ref(0), 1.0), False), ("sub", (Ref(0), 0), False),
        ("div", (Ref(0), 1), False), ("copy", (Ref(0),), False), ("add", (Ref(0), 1), True),
        ("div", (1, Ref(0)), True), ("sub", (0, Ref(0)), True), ("pow", (1.0, Ref(0)), True),
        ("div", (Ref(0), Ref(0)), True), ("exp", (Ref(0),), True), ("mul", (Ref(0), Ref(1)), True),
        ("sub", (Ref(0), Ref(2)), False), ("mul", (Ref(0), Ref(2)), True),
        ("div", (Ref(0), Ref(3)), False), ("add", (Ref(0), Ref(4)), True),
    ],
)  # fmt: skip
def test_what_changes_nothing_whatever_it_is_given_stands_for_nothing(name, operands, may):
    """A reciprocal and a negation do change something; zeros may be broadcast, ones filled."""
    given = [
        Operation(0, "input", (), None),
        Operation(1, "zeros_like", (Ref(0),), None),
        Operation(2, "broadcast", (Ref(1),), None, is_layout=True),
        Operation(3, "full", (1.0,), None),
        Operation(4, "reshape", (), None, is_layout=True),  # patched
    ]
    assert computes(Operation(5, name, operands, None), Program("B", given)) == may


def test_how_a_given_number_was_computed_is_not_said():
    def function(p, x):
        return jax.nn.softmax(x * p["slopes"]) @ p["kernel"]

    def port(p, x):
        return jax.nn.softmax(x * 2.0 ** (-8 * jnp.arange(4) / 4)) @ p["kernel"]

    p = {"slopes": 2.0 ** (-8 * (np.arange(4) + 1) / 4), "kernel": RNG.normal(size=(4, 3))}
    x = RNG.normal(size=(5, 4))
    comparison = compare((function, (p, x)), (port, (p, x)))
    assert [place.cause for place in comparison.places] == ["factor"]


def test_of_a_factor_the_line_that_reads_it_is_shown():
    # gradients summed over two parts: the sum is right, the step should have taken their mean
    def loss(w, x, y):
        return ((jnp.tanh(x @ w) - y) ** 2).mean()

    def whole(w, x, y):
        return w - 0.1 * jax.grad(loss)(w, x, y)

    def parts(w, x, y):
        def one(total, batch):
            return total + jax.grad(loss)(w, *batch), None

        batches = x.reshape(2, 4, 6), y.reshape(2, 4, 4)
        total, _ = jax.lax.scan(one, jnp.zeros_like(w), batches)
        return w - 0.1 * total  # wrong

    given = RNG.normal(size=(6, 4)), RNG.normal(size=(8, 6)), RNG.normal(size=(8, 4))
    (place,) = compare((whole, given), (parts, given)).places
    assert place.cause == "factor"
    assert "# wrong" in place.b.lines[-1].text


def test_a_rate_is_a_factor_of_one_term_whether_it_writes_in_place_or_not():
    p, g = (torch.from_numpy(each) for each in RNG.normal(size=(2, 5, 3)))

    def in_place(p, g):
        m = (0.3 * g).lerp_(g * g, 0.1)
        return p.mul_(0.99).addcdiv_(m, g.square() + 1, value=-0.05)

    def sums(p, g):
        m = 0.9 * (0.3 * g) + 0.1 * g**2
        return p * 0.99 - 0.02 * m / (g**2 + 1)  # 0.05 in the other

    def signed(p, g):
        return p.add(g.sin(), alpha=-0.2)

    def plus(p, g):
        return p * torch.ones(3, dtype=p.dtype) + 0.2 * torch.sin(g)

    (place,) = compare((in_place, (p.clone(), g)), (sums, (p, g))).places
    assert (place.cause, "0.4 times" in place.message) == ("factor", True)
    (place,) = compare((signed, (p, g)), (plus, (p, g))).places
    assert (place.cause, place.message) == ("number", "0.2 where A has -0.2")


def test_what_is_made_of_numbers_alone_does_not_tell_where_a_value_is_read():
    # two norms are alike up to their gains: the branch between them is not one too many
    w, g, x = RNG.normal(size=(2, 6, 6)) / 2, RNG.normal(size=6), RNG.normal(size=(5, 6))

    def function(activation):
        def normed(x, g):
            centred = x - x.mean(-1, keepdims=True)
            small = jnp.full((len(x), 1), 1e-3)  # an epsilon that is an array
            return centred * (g * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + small))

        def of(w, g, x):
            return normed(x + activation(normed(x, g) @ w[0]) @ w[1], 2 * g) @ w[0]

        return of, (w, g, x)

    comparison = compare(function(jax.nn.gelu), function(lambda x: jax.nn.gelu(x, approximate=False)))
    assert [place.cause for place in comparison.places] == ["activation"]


def test_an_error_that_is_no_number_is_said_in_words():
    x = np.random.default_rng(8).normal(size=(3, 5))
    keep = np.array([True, True, True, False, False])
    masked = compare((lambda x: jax.nn.softmax(jnp.where(keep, x, -jnp.inf)), x), (jax.nn.softmax, x))
    assert masked.verdict == "DIFFERENT"
    assert "error inf" not in masked.to_text()
    assert "one of the two is zero or infinite" in masked.to_text()


def test_hidden_states_a_layer_off_are_another_value_returned():
    weights = RNG.normal(size=(4, 5, 5)) / 2

    def states(w, x):
        hidden = [x]
        for each in w:
            x = x + jnp.tanh(x @ each)
            hidden.append(x)
        return hidden

    x = RNG.normal(size=(3, 5))
    comparison = compare(
        (lambda w, x: states(w, x)[-2], (weights, x)), (lambda w, x: states(w, x)[-1], (weights, x))
    )
    assert [place.cause for place in comparison.places] == ["other value returned"]
    assert comparison.places[0].message.startswith("A computes B's value at test_names.py:")


def test_what_is_returned_in_another_order_is_no_other_value():
    """A copies what it returns, and the copy holds B's numbers, too."""
    x, gain = RNG.normal(size=(2, 5, 5, 3)), RNG.normal(size=(5, 3))

    def original(x):
        return (x * torch.from_numpy(gain)).permute(0, 3, 1, 2).contiguous()

    comparison = compare(
        (original, torch.from_numpy(x)), (lambda x: (x * gain).transpose(0, 2, 1, 3), x)
    )
    assert [place.cause for place in comparison.places] == ["transposed"]


def named(a: str, b: str) -> list[str]:
    """Return the causes that two expressions over the names of the examples are given."""
    return [place.cause for place in compare(*sides(Cause("", "", compare, a, b))).places]


def test_a_scale_that_explains_another_ratio_is_not_called_left_out():
    a = "jnp.tanh(0.4 * (x @ w)) @ v + jnp.sin(0.05 * (x @ w)) @ w"
    b = "jnp.tanh(h := 0.4 * (x @ w)) @ v + jnp.sin(h) @ w"
    assert "scale left out" not in named(a, b)


def test_numbers_that_lead_to_one_another_are_no_steps_left_out():
    a = "x @ v - (x @ w) * 0.2"
    b = "x @ v - (x @ w) * (0.3 - 0.3 * (1 - jnp.minimum(3, jnp.arange(2).sum()) / 3))"
    assert not {"one step too many", "one term too many"} & {*named(a, b)}


def test_what_changes_nothing_here_may_stand_for_what_seems_left_out():
    a = "jnp.where((n := jnp.linalg.norm(g := x @ w)) > 0.1, g / n * 0.1, g) @ v"
    assert named(a, "x @ w @ v") == ["norm left out"]
    assert named(a, "jnp.clip(x @ w, -1, 1) @ v") == [""]


@pytest.mark.parametrize("n", [4, 8])
def test_a_median_between_two_numbers_is_no_factor_of_the_lower_one(n):
    """torch takes the lower of the two in the middle, JAX their mean."""
    x = RNG.normal(size=(6, n))
    lower = (lambda x: x.median(-1).values, torch.from_numpy(x))
    mean = (lambda x: jnp.median(x, -1), x)
    for pair in ((lower, mean), (mean, lower)):
        found = compare(*pair)
        assert found.verdict == "DIFFERENT"
        assert {place.cause for place in found.places} <= {"", "left out", "operation"}
