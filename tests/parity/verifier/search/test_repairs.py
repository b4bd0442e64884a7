"""Which of A's values repairs B where several would."""

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.verifier.locate import compare, compare_programs
from parity.verifier.programs.sides import record
from parity.verifier.search.meeting import Index
from parity.verifier.search.places import MOST

ROWS, COLUMNS = np.arange(1.0, 8.0) / 7, np.arange(3.0, 10.0) ** 2 / 50
RNG = np.random.default_rng(3)
WEIGHTS = {
    "scales": RNG.uniform(1, 2, 3),
    "gains": RNG.normal(size=3),
    "kernel": RNG.normal(size=(6, 5)),
}


def sines(scale, *, columns_first=False):
    def function(p, rows, columns):
        def of(places):
            return jnp.tanh(jnp.sin(scale(places)[:, None] / p["scales"]) * p["gains"])

        outputs = {}
        for name in ("columns", "rows") if columns_first else ("rows", "columns"):
            outputs[name] = of(rows if name == "rows" else columns)
        return jnp.concatenate([outputs["rows"], outputs["columns"]], -1) @ p["kernel"]

    return function, (WEIGHTS, ROWS, COLUMNS)


def test_of_two_branches_that_part_alike_each_is_repaired_with_its_own_value():
    # the columns' sines in the place of the rows' would leave "halves exchanged" behind
    a = sines(lambda places: places * 6.25, columns_first=True)
    comparison = compare(a, sines(lambda places: 6.25 / places))
    assert {place.cause for place in comparison.places} == {"operation"}, comparison.to_text()


def test_the_mean_of_squares_rules_out_no_value_that_meets():
    def function(x):
        y = jnp.where(x > 0, x, -jnp.inf)
        return y * 2, jax.nn.softmax(y), x.astype(int) + jnp.arange(len(x)), x * 1e200

    program = record((function, ROWS - 0.5), "A")
    index = Index(program)
    values = program.values(range(len(program)))
    marked = [op for op in program.operations if op.mark is not None and op.size]
    assert len(marked) > 8
    assert all(index.may_have(values[op.index]) for op in marked)
    assert not index.may_have(ROWS + 0.25)
    assert compare_programs(program, record((function, ROWS - 0.5), "B")).verdict == "EQUAL"


def buckets(exact):
    def function(p, distance):
        large = exact(jnp.log(distance / 3)).astype(int)  # of no distance, the least integer
        return p["table"][jnp.where(distance < 2, distance.astype(int), jnp.minimum(large, 5))] * 1.5

    return function, ({"table": RNG.normal(size=(6, 5))}, np.arange(7.0) * 3)


def test_the_least_integer_hides_no_others():
    a, b = buckets(lambda x: 2.5 + x), buckets(lambda x: 1 + x)
    b = (b[0], a[1])
    comparison = compare(a, b)
    (place,) = comparison.places
    assert {line.text for line in place.b.lines} >= {
        "a, b = buckets(lambda x: 2.5 + x), buckets(lambda x: 1 + x)"
    }
    assert place.error < 10, comparison.to_text()


def powers(factor):
    def function(p, x):
        power = jnp.arange(1.0, 6.0)
        for _ in range(35):
            power = power * factor + 0.125
        return jnp.tanh(x * power * p["gains"]) @ p["kernel"]

    return function, ({"gains": RNG.normal(size=5), "kernel": RNG.normal(size=(5, 3))}, ROWS[:, None])


def test_a_constant_may_have_many_operations_before_it():
    a, b = powers(1.0625), powers(1.03125)
    comparison = compare(a, (b[0], a[1]))
    assert comparison.verdict == "DIFFERENT"
    assert [place.kind for place in comparison.places] == ["operations"], comparison.to_text()
    assert comparison.places[0].b.lines[-1].text == "power = power * factor + 0.125"


def test_a_mean_over_other_rows_is_not_passed_over():
    """A's mean, repeated for every token, is the same after B's mean."""
    rng = np.random.default_rng(3)
    weight, x = rng.normal(size=(6, 6)), rng.normal(size=(4, 7, 6))
    original = lambda w, x: torch.tanh(x @ w)[:, 1:].mean(1)  # noqa: E731
    (place,) = compare(
        (original, tuple(map(torch.from_numpy, (weight, x)))),
        (lambda w, x: jnp.tanh(x @ w)[:, 3:].mean(1), (weight, x)),
    ).places
    assert place.a.formula == "mean(slice(x, dim=1, start=1), dim=[1])"
    assert place.b.formula == "sum(slice(x, start=(0,3,0), limit=(4,7,6)), axis=1) / 4"
    assert place.cause == "reduction"
    assert place.message.startswith("the mean of rows 3 to 6 of axis 1 of [4, 7, 6] where A has")


def test_what_is_wrong_with_the_update_of_every_parameter_is_repaired_at_once():
    parameters = {f"p{i}": torch.from_numpy(RNG.normal(size=5 + i % 3)) for i in range(MOST + 2)}

    def step(epsilon):
        def of(parameters):
            squares = {name: p * p + 1e-6 for name, p in parameters.items()}
            return {n: p - 0.1 * p.sin() / (squares[n].sqrt() + epsilon) for n, p in parameters.items()}

        return of, (parameters,)

    (place,) = compare(step(1e-4), step(1e-3)).places
    assert (place.cause, place.times) == ("epsilon", MOST + 2)


def test_a_layer_of_a_stack_is_no_suspect_where_what_it_multiplies_is_wrong_already(monkeypatch):
    """The weights of one layer, out of a stack, were tried in the place of every other layer's, until
    the search was at its limit."""
    monkeypatch.setattr("parity.verifier.search.places.WORK", 1000)
    rng, layers, width = np.random.default_rng(5), 12, 8
    names = [f"w{k}" for k in range(4)]
    stacks = {name: rng.normal(size=(layers, width, width)) for name in names}
    x = rng.normal(size=(3, 5, width))

    def block(p, x, epsilon):
        y = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon)
        for name in names:
            y = jnp.tanh(y @ p[name])
        return x + 0.1 * y

    def looped(p, x):
        for i in range(layers):
            x = block({name: p[name][i] for name in names}, x, 1e-6)
        return x

    def scanned(p, x):
        return jax.lax.scan(lambda x, p: (block(p, x, 1e-4), None), x, p)[0]

    (place,) = compare((looped, (stacks, x)), (scanned, (stacks, x))).places
    assert place.cause == "epsilon"
