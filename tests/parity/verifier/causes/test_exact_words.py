"""Names that are nearly right are wrong: each pair here once had one."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from parity.verifier.locate import compare

RNG = np.random.default_rng(7)
X = RNG.normal(size=(4, 7, 6))
W = {name: RNG.normal(size=(6, 6)) / 2 for name in ("gate", "up")}
G = 1 + RNG.normal(size=6) / 4
K = RNG.normal(size=(3, 3, 2, 2))
IMAGES = RNG.normal(size=(2, 6, 8, 2))


def swiglu(p, x, *, gate="gate", up="up"):
    return jax.nn.silu(x @ p[gate]) * (x @ p[up])


def spectrum(x, *, norm):
    return jnp.fft.rfft(x, norm=norm).real


def masked(x, *, fill=-1e9, diagonal=0):
    scores = x @ x.mT
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool), diagonal)
    return jax.nn.softmax(jnp.where(mask, scores, fill)) @ x


def limited(x, *, limit):
    return jnp.exp(jnp.minimum(x, limit)) @ x.mT


def convolved(k, x, *, flip):
    k = k[::-1, ::-1] if flip else k
    return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def rolled(x, *, by):
    return jnp.cumsum(jnp.roll(jnp.tanh(x), by, (1, 2)), 1)


def layers(p, x, *, count):
    for _ in range(count):
        x = x + jnp.tanh(x @ p["up"])
        x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return x


def rms(g, x, *, inside):
    mean = (x * x).mean(-1, keepdims=True)
    return g * x / (jnp.sqrt(mean + 1e-5) if inside else jnp.sqrt(mean) + 1e-5)


@pytest.mark.parametrize(
    ("function", "arguments", "right", "wrong", "cause", "message"),
    [
        (
            swiglu,
            (W, X),
            {},
            {"gate": "up", "up": "gate"},
            "other value read",
            "B reads argument 0.up where A reads argument 0.gate",
        ),
        (spectrum, (X,), {"norm": "ortho"}, {"norm": None}, "scale left out", "only A has mul"),
        (masked, (X,), {}, {"fill": -1.0}, "number", "-1 where A has -1000000000"),
        (masked, (X,), {}, {"diagonal": 1}, "causal mask", "diagonal 1 where A's ends at 0"),
        (limited, (X,), {"limit": 1.5}, {"limit": 100.0}, "number", "100 where A has 1.5"),
        (convolved, (K, IMAGES), {"flip": False}, {"flip": True}, "reversed", "axes 0 and 1"),
        (rolled, (IMAGES,), {"by": (2, 3)}, {"by": (1, 1)}, "shifted", "axis 1 by 1 and axis 2 by 2"),
        (rms, (G, X), {"inside": True}, {"inside": False}, "epsilon outside the root", "A under it"),
        (rms, (G, X), {"inside": False}, {"inside": True}, "epsilon inside the root", "A to it"),
        (layers, (W, X), {"count": 3}, {"count": 2}, "left out", "only A has"),
    ],
)
def test_a_mistake_is_called_what_it_is(function, arguments, right, wrong, cause, message):
    def program(options):
        return lambda *given: function(*given, **options)

    assert compare((program(right), arguments), (program(right), arguments)).verdict == "EQUAL"
    (place,) = compare((program(right), arguments), (program(wrong), arguments)).places
    assert place.cause == cause
    assert message in place.message


def test_a_parameter_that_a_step_does_not_reach():
    """Its gradient is stopped: it is returned as it was given."""
    optimizer = optax.adam(1e-2)
    p = {"w": RNG.normal(size=(6, 3)), "pos": RNG.normal(size=(7, 6))}

    def program(stop):
        def loss(p, x):
            pos = jax.lax.stop_gradient(p["pos"]) if stop else p["pos"]
            return (jnp.tanh((x + pos) @ p["w"]) ** 2).mean()

        def step(p, x):
            updates, _ = optimizer.update(jax.grad(loss)(p, x), optimizer.init(p), p)
            return optax.apply_updates(p, updates)

        return step, (p, X)

    assert compare(program(False), program(False)).verdict == "EQUAL"
    (place,) = compare(program(False), program(True)).places
    assert (place.cause, place.message) == ("not updated", "p.pos stays as it is given")


def test_a_wrong_weight_that_is_an_argument_of_its_own():
    def program(scale):
        return lambda w, x: jnp.tanh(x @ w), (scale * W["up"], X)

    weights = lambda p, x: jnp.tanh(x @ p["up"])  # noqa: E731
    assert compare((weights, (W, X)), program(1.0)).verdict == "EQUAL"
    (place,) = compare((weights, (W, X)), program(1.5)).places
    assert (place.kind, place.message) == ("parameter", "w is not A's p.up: it is 1.5 times that")


def test_the_root_of_a_number_is_no_norm():
    """As of a width, beside a sum with a small number."""
    a = (lambda x: jnp.exp(jnp.tanh(x)) @ W["up"], (X,))
    b = (lambda x: jnp.exp(jnp.sin(x) / jnp.sqrt(7.0) + 1e-3) @ W["up"], (X,))
    (place,) = compare(a, b).places
    assert "root" not in place.cause


def shut(x, *, mask):
    """Scores of 5 queries and 8 keys, of which the first 3 are of earlier tokens."""
    rows, columns = jnp.arange(5)[:, None], jnp.arange(8)[None]
    scores = x[:, :5] @ jnp.concatenate([x, x], 1)[:, :8].mT
    return jax.nn.softmax(jnp.where(mask(rows, columns), scores, -1e9)) @ jnp.tanh(
        x[0, 0, 0] * jnp.eye(8)
    )


def add_shut(x):
    scores = x[:, :5] @ jnp.concatenate([x, x], 1)[:, :8].mT
    mask = jnp.triu(jnp.full((5, 8), -1e9), 4)
    return jax.nn.softmax(scores + mask) @ jnp.tanh(x[0, 0, 0] * jnp.eye(8))


@pytest.mark.parametrize(
    ("mask", "cause", "message"),
    [
        (lambda i, j: j <= i + 4, "causal mask", "it ends at diagonal 4 where A's ends at 3"),
        (lambda i, j: j < i + 3, "causal mask", "it ends at diagonal 2 where A's ends at 3"),
        (lambda i, j: j > i + 3, "mask", "it shuts what A keeps, and keeps what A shuts"),
    ],
)
def test_a_mask_that_shuts_other_elements(mask, cause, message):
    """Neither a sum that is left out, nor rows of one."""
    clean = lambda x: shut(x, mask=lambda i, j: j <= i + 3)  # noqa: E731
    assert compare((add_shut, (X,)), (clean, (X,))).verdict == "EQUAL"
    (place,) = compare((add_shut, (X,)), (lambda x: shut(x, mask=mask), (X,))).places
    assert (place.cause, place.message) == (cause, message)


def test_a_mask_of_0_and_minus_infinity_is_the_place():
    """Such a constant is not one number; what adds it is right."""

    def added(last):
        mask = np.where(np.tri(5, k=last, dtype=bool), 0, -np.inf)
        return lambda x: jax.nn.softmax(x @ x.mT + mask) @ x

    (place,) = compare((added(0), (X[:, :5],)), (added(1), (X[:, :5],))).places
    ends = [region.program.operations[region.end] for region in (place.gap.a, place.gap.b)]
    assert (place.cause, [end.kind for end in ends]) == ("causal mask", ["constant", "constant"])


def test_formulas_read_as_the_code_does():
    """JAX's `where` takes what is false first; what torch computes in place is computed once."""
    a = (lambda x: jnp.where(x > 0, x, -3.0) @ W["up"], (X,))
    b = (lambda x: jnp.where(x > 0, -3.0, x) @ W["up"], (X,))
    (place,) = compare(a, b).places
    assert (place.a.formula, place.b.formula) == ("where(x, y, -3)", "where(x, -3, y)")
    a = (lambda x: torch.exp(x.clone().tanh_()) @ torch.from_numpy(W["up"]), (X,))
    b = (lambda x: jnp.exp(jnp.sin(x)) @ W["up"], (X,))
    (place,) = compare(a, b).places
    assert place.a.formula == "tanh(x)"
    a, b = (lambda x, y: x - (y - x * y), (X, X + 1)), (lambda x, y: x / (y / jnp.tan(x)), (X, X + 1))
    (place,) = compare(a, b).places
    assert (place.a.formula, place.b.formula) == ("x - (y - x * y)", "x / (y / tan(x))")


def test_a_mean_of_the_last_two_rows():
    (place,) = compare(
        (lambda x: jnp.tanh(x).mean(1), (X,)), (lambda x: jnp.tanh(x)[:, 5:].mean(1), (X,))
    ).places
    assert (place.cause, place.message) == (
        "reduction",
        "the mean of rows 5 to 6 of axis 1 of [4, 7, 6] where A has the mean of all rows",
    )


def test_one_number_for_each_element_is_no_number():
    """As small arrays that are constants: a mean of weights, of which two numbers changed places."""
    table = jnp.asarray(RNG.normal(size=(7, 6)))

    a = (lambda x: jnp.exp(table * 0.95 + jnp.tanh(x[0]) * 0.05) @ W["up"], (X,))
    b = (lambda x: jnp.exp(0.05 * table + 0.95 * jnp.tanh(x[0])) @ W["up"], (X,))
    (place,) = compare(a, b).places
    assert place.cause in ("number", "numbers")
    assert "[" not in place.message


def test_a_count_is_no_variance():
    """6 / 5 is n / (n - 1), but 6 labels are counted, and 5 is the number of classes."""
    a = (lambda x: jnp.exp(jnp.tanh(x) / (x[0, :6, 0] > -100).sum()) @ W["up"], (X,))
    b = (lambda x: jnp.exp(jnp.tanh(x) / 5.0) @ W["up"], (X,))
    (place,) = compare(a, b).places
    assert place.cause not in ("n - 1 for n", "n for n - 1")


def test_a_scale_that_is_another_one_is_not_left_out():
    """Under a root, and on the other side of the product."""
    a = (lambda x: jax.nn.softmax((x * 0.5) @ (x.mT * 0.5)) @ x, (X,))
    clean = (lambda x: jax.nn.softmax(x @ x.mT / jnp.sqrt(16.0)) @ x, (X,))
    wrong = (lambda x: jax.nn.softmax(x @ x.mT / jnp.sqrt(49.0)) @ x, (X,))
    assert compare(a, clean).verdict == "EQUAL"
    (place,) = compare(a, wrong).places
    assert place.cause in ("factor", "number")


def scaled(x, by):
    return by * (jnp.tanh(x) * 0.1)


def test_a_line_that_scales_otherwise_is_not_read_elsewhere():
    """It computes A's value, too, on the way to another one."""
    a, b = ((lambda x, by=by: jnp.exp(scaled(x, by)) @ W["gate"], (X,)) for by in (1.0, 10.0))
    (place,) = compare(a, b).places
    assert place.cause != "other value read"
