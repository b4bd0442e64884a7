"""Two programs compared operation by operation: clean pairs meet, a fault is placed on its line."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.cli import run
from parity.verifier.locate import compare, compare_programs
from parity.verifier.programs.fingerprint import fingerprint, same
from parity.verifier.programs.program import KEEP_BYTES, Program
from parity.verifier.programs.sides import record
from parity.verifier.search.layouts import arrangements
from tests.support import operations_models as models
from vit_config import InputError

SOURCE = Path(models.__file__).read_text().splitlines()


@pytest.fixture(scope="module")
def side():
    model, weights, x = models.torch_model()
    return record((model, x), "A"), weights, x


def against(side, fault):
    program, weights, x = side
    return compare_programs(program, record((models.jax_model(fault), (weights, x)), "B"))


def texts(place):
    return [SOURCE[line.line - 1].strip() for line in place.b.lines]


FAULTS = {
    "epsilon": "variance = variance + eps",
    "exchanged": 'scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)',
    "unscaled": 'scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)',
    "scaled twice": "scores = scores * (D // H) ** -0.5  # here",
    "causal": "scores = jnp.where(mask, scores, -1e9)",
    "transposed attention": "weights = weights.swapaxes(-1, -2)",
    "untransposed weight": "x = x @ w",
    "no residual": "y = attention(y, p, fault)",
    "other norm": "return centred / jnp.sqrt(variance) * w + b",
    "tanh": 'y = jax.nn.gelu(y, approximate=fault == "tanh")',
    "divided": "x = x / 255",
    "flipped": "pos = pos[:, ::-1]",
    "no position": 'x = x.at[:, 0].add(-params["pos"][0, 0])',
    "last token": 'x = x[:, -1 if fault == "last token" else 0]',
}


CAUSES = {
    "epsilon": "epsilon: 1e-05 where A has 1e-06",
    "exchanged": "transposed: axes 2 and 3 of [2, 5, 7, 7] exchanged",
    "unscaled": "scale left out: B's value is 2.449489743 times A's",
    "scaled twice": "one scale too many: only B has mul 0.4082482905 at operations_models.py:",
    "causal": "causal mask: only B has it",
    "transposed attention": "transposed: axes 2 and 3 of [2, 5, 7, 7] exchanged",
    "untransposed weight": "transposed: axes 0 and 1 of [30, 30] exchanged",
    "no residual": "residual left out: only A adds the value of operations_models.py:",
    "other norm": "other value read: B reads ",
    "tanh": "activation: gelu, tanh where A has gelu",
    "divided": "one scale too many: only B has div 255 at operations_models.py:",
    "flipped": "reversed: axis 1 of [1, 7, 30] runs backwards",
    "no position": "one step too many: only B has operations_models.py:",
    "last token": "index: row 6 of axis 1 of [2, 7, 30] where A has row 0",
}
"""What no exchange explains has no name."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_placed_on_its_line_and_named(side, fault):
    comparison = against(side, fault)
    assert comparison.verdict == "DIFFERENT"
    assert len(comparison.places) == 1
    assert FAULTS[fault] in texts(comparison.places[0])
    # a residual is left out between two calls, of which the second leads to two lines
    assert len(comparison.places[0].b.lines) <= (4 if fault == "no residual" else 3)
    if fault in CAUSES:
        assert f"{comparison.places[0].cause}: {comparison.places[0].message}".startswith(CAUSES[fault])
    else:
        assert not comparison.places[0].cause


def test_the_formulas_of_a_tanh_gelu(side):
    (place,) = against(side, "tanh").places
    assert place.a.formula == "erf(x * 0.707106781187)"
    assert place.b.formula == "tanh(0.797884560803 * (x + 0.044715 * x ** 3))"


def test_a_plain_function_is_equal_and_says_what_was_compared(side):
    comparison = against(side, "")
    assert comparison.verdict == "EQUAL"
    assert not comparison.places
    assert comparison.counts.outputs == 1
    assert comparison.counts.elements == models.B * models.OUT
    assert comparison.counts.met > 0.7 * comparison.counts.comparable
    assert comparison.error < 1e-14


def test_an_output_that_b_lacks_is_no_equality_and_one_that_b_alone_has_is_named(side):
    program, weights, x = side
    model = models.jax_model()
    more = record((lambda p, x: (model(p, x), x[0]), (weights, x)), "B")
    comparison = compare_programs(program, more)
    assert comparison.verdict == "EQUAL"
    assert comparison.counts.outputs_left_out == ("B's 1",)
    assert "B alone returns: 1" in comparison.to_text()
    comparison = compare_programs(more, record((lambda p, x: model(p, x), (weights, x)), "B"))
    assert comparison.verdict == "INCOMPLETE"
    assert "not compared: A's 1" in comparison.to_text()


def test_linen_under_scan_and_remat_and_vmap_is_equal():
    model, weights, x = models.torch_model(depth=2)
    a = record((model, x), "A")
    linen = models.LinenModel(depth=2)
    variables = models.linen_variables(weights, 2)
    stacked = models.linen_variables(weights, 2, scan=True)
    mapped = functools.partial(
        lambda v, x: jax.vmap(lambda each: linen.apply(v, each[None])[0])(x), variables
    )
    for b in ((linen, variables, x), (models.LinenModel(2, scan=True), stacked, x), (mapped, x)):
        assert compare_programs(a, record(b, "B")).verdict == "EQUAL"


@pytest.fixture(scope="module")
def linen_pair():
    model, weights, x = models.torch_model(depth=2)
    return record((model, x), "A"), models.linen_variables(weights, 2), x


def wrong(pair, change):
    program, variables, x = pair
    changed = jax.tree.map(np.array, variables)
    change(changed["params"])
    return compare_programs(program, record((models.LinenModel(2), changed, x), "B"))


def test_a_block_with_the_weights_of_another(linen_pair):
    comparison = wrong(linen_pair, lambda p: p["block1"].update(Dense_0=p["block0"]["Dense_0"]))
    (place,) = comparison.places
    assert place.kind == "parameter"
    assert (
        "params.block1.Dense_0.kernel holds A's blocks.0.f1.weight instead of blocks.1.f1"
        in place.message
    )


def test_weights_that_were_never_carried_over_are_said_to_be_so():
    """And nothing of the sort where one parameter is A's, or all are rows of stacks."""
    torch.manual_seed(7)
    x = torch.randn(5, 3)
    a, fresh = (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)) for _ in range(2))
    said = "B: none of its 4 parameters holds numbers of A's; carry the weights over first"
    assert said in compare((a, x), (fresh, x)).remarks
    fresh[0].bias.data = a[0].bias.data
    assert said not in compare((a, x), (fresh, x)).remarks
    layers = [torch.nn.Linear(3, 3) for _ in range(3)]
    stacks = {n: np.stack([getattr(each, n).detach() for each in layers]) for n in ("weight", "bias")}
    wrong = (
        (lambda p, x: jax.lax.scan(lambda x, w: (x @ w, None), x, p["weight"])[0]),
        (stacks, x.numpy()),
    )
    comparison = compare((torch.nn.Sequential(*layers), x), wrong)
    assert comparison.verdict == "DIFFERENT"
    assert not any("carry the weights" in each for each in comparison.remarks)


def test_a_transposed_square_matrix(linen_pair):
    def change(p):
        out = p["block1"]["MultiHeadDotProductAttention_0"]["out"]
        out["kernel"] = out["kernel"].reshape(models.D, models.D).T.reshape(out["kernel"].shape)

    (place,) = wrong(linen_pair, change).places
    assert place.kind == "parameter"
    assert place.message.endswith("out.kernel holds A's blocks.1.at.out_proj.weight transposed")


def test_two_parameters_that_were_never_loaded(linen_pair):
    def change(p):
        p["block0"]["LayerNorm_1"]["scale"] = np.ones(models.D)
        p["block1"]["Dense_1"]["bias"] = np.zeros(models.D)

    first, second = wrong(linen_pair, change).places
    assert first.kind == second.kind == "parameter"
    assert "LayerNorm_1.scale is not A's blocks.0.n2.weight: all of it is 1" in first.message
    assert "Dense_1.bias is not A's blocks.1.f2.bias: all of it is 0" in second.message


def test_the_code_reads_another_parameter(side):
    (place,) = against(side, "other norm").places
    assert place.kind == "operations"
    assert "blocks.0.n1.weight where A reads blocks.0.n2.weight" in place.message


LABELS = np.array([3, 7])


def torch_gradients(model, x):
    loss = torch.nn.functional.cross_entropy(model(x), torch.from_numpy(LABELS))
    named = dict(model.named_parameters())
    return loss.detach(), dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def jax_gradients(fault=""):
    model = models.jax_model()

    def loss(params, x):
        if fault == "stopped":
            params = params | {"pos": jax.lax.stop_gradient(params["pos"])}
        log_probabilities = jax.nn.log_softmax(model(params, x))
        losses = -log_probabilities[jnp.arange(len(LABELS)), LABELS]
        return losses.sum() if fault == "sum" else losses.mean()

    return jax.value_and_grad(loss)


@pytest.fixture(scope="module")
def backward():
    model, weights, x = models.torch_model()
    return record((torch_gradients, (model, x)), "A", gradients=True), weights, x


def test_gradients_of_two_frameworks_are_equal(backward):
    program, weights, x = backward
    comparison = compare_programs(program, record((jax_gradients(), (weights, x)), "B"))
    assert comparison.verdict == "EQUAL"
    assert comparison.counts.outputs == 1 + len(weights)
    assert not comparison.counts.outputs_left_out
    lines = {op.source.text for op in program.operations if op.source is not None}
    assert "y = self.n1(x)" in lines


@pytest.mark.parametrize("fault", ["stopped", "sum"])
def test_a_fault_of_the_backward_pass(backward, fault):
    program, weights, x = backward
    comparison = compare_programs(program, record((jax_gradients(fault), (weights, x)), "B"))
    assert comparison.verdict == "DIFFERENT"
    assert all(place.kind != "open" for place in comparison.places)
    if fault == "sum":
        assert (
            comparison.places[0].b.lines[0].text
            == 'return losses.sum() if fault == "sum" else losses.mean()'
        )


def sgd_of_torch(model, x):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    torch.nn.functional.cross_entropy(model(x), torch.from_numpy(LABELS)).backward()
    optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def test_a_step_that_writes_into_its_parameters():
    model, weights, x = models.torch_model()
    a = record((sgd_of_torch, (model, x)), "A", gradients=True)

    def step(params, x):
        _, gradients = jax_gradients()(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * (g + 0.01 * p), params, gradients)

    comparison = compare_programs(a, record((step, (weights, x)), "B"))
    assert comparison.verdict == "EQUAL"
    np.testing.assert_array_equal(model.pos.detach().numpy(), weights["pos"])


def test_an_output_in_another_order_is_no_equality():
    x = np.random.default_rng(0).normal(size=(3, 5, 4))
    comparison = compare((lambda x: jnp.exp(x), x), (lambda x: jnp.exp(x)[::-1], x))
    assert comparison.verdict == "DIFFERENT"
    assert comparison.places[0].kind == "order"


def test_fingerprints_ignore_order_and_repetition_but_no_single_number():
    x = np.random.default_rng(0).normal(size=(31, 17))
    mark = fingerprint(x)
    assert same(mark, fingerprint(x.T[::-1]))
    assert same(mark, fingerprint(np.broadcast_to(x, (5, 31, 17))))
    for change in (1e-6, 1.0):
        y = x.copy()
        y[3, 4] += change
        assert not same(mark, fingerprint(y))


def test_arrangements_merge_split_and_exchange_axes():
    x = np.arange(2 * 3 * 5 * 7).reshape(2, 3, 5, 7)
    wanted = x.transpose(0, 2, 1, 3).reshape(2, 5, 21)
    assert any(np.array_equal(each, wanted) for each in arrangements(x, (2, 5, 21)))
    assert any(np.array_equal(each, x) for each in arrangements(wanted, x.shape))


def test_a_program_runs_again_from_its_leaves(side):
    program, _, _ = side
    output = program.outputs[0][1]
    again = Program("A", program.operations, program.outputs)
    again.cache = {op.index: program.cache[op.index] for op in program.operations if op.run is None}
    np.testing.assert_array_equal(again.values([output])[output], program.cache[output])
    assert program.cache_bytes < KEEP_BYTES


def slope(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(torch.tanh(x).sum(), x)


def test_a_program_differentiates_on_request_alone():
    side = slope, torch.linspace(-1, 1, 5)
    with pytest.raises(InputError, match="compared with --gradients"):
        compare(side, side)
    assert compare(side, side, gradients=True).verdict == "EQUAL"


def test_json_has_a_schema_and_the_lines(side):
    content = json.loads(against(side, "divided").to_json())
    assert next(iter(content)) == "schema"
    assert content["schema"] == "parity.operations/1"
    (line,) = content["places"][0]["b"]["lines"]
    assert line["text"] == "x = x / 255"
    assert Path(line["file"]).name == "operations_models.py"


def test_what_is_no_program():
    with pytest.raises(InputError, match="cannot be called"):
        compare((3, 4), (3, 4))
    with pytest.raises(InputError, match="found a tuple of 4"):
        compare((jnp.exp, 4, 5, 6), (jnp.exp, 4))


def test_the_command_prints_the_line_and_writes_json(tmp_path, capsys):
    root = Path(__file__).parents[3]
    sides = [f"{root}/docs/port.py:{name}" for name in ("original", "port")]
    path = tmp_path / "found.json"
    assert run("diff", [*sides, "--json", str(path)], prog="parity diff") == 1
    said = capsys.readouterr().out
    assert "activation: gelu, tanh where A has gelu" in said
    assert "B port.py:60  tanh(" in said
    assert json.loads(path.read_text())["verdict"] == "DIFFERENT"
    assert run("diff", [sides[0], f"{sides[0]}_missing"], prog="parity diff") == 2
    assert "original_missing" in capsys.readouterr().err
