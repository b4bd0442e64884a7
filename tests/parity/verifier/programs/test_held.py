"""Functions that hold their weights, programs that demand a type, inputs in a dataclass."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from parity.cli import run
from parity.verifier.locate import compare
from parity.verifier.programs.program import TRAINING
from tests.support.mistaken_models import Net, Nnx, W, X
from vit_config import InputError

NET, OTHER = Net(), Net()
OTHER.fc.weight.data *= 1.5


class Predictor:
    """A class of a user's own, with a model inside."""

    def __init__(self, model):
        self.parts = {"model": model}

    def __call__(self, x):
        return self.parts["model"](x)


def of_the_file(x):
    return NET(x)


def closure(model):
    return lambda x: model(x)


def by_default(x, model=NET):
    return model(x)


HOLDERS = {
    "closure": closure(NET),
    "partial": functools.partial(lambda model, x: model(x), NET),
    "file": of_the_file,
    "object": Predictor(NET),
    "default": by_default,
    "function in a function": closure(closure(NET)),
}


@pytest.mark.parametrize("function", HOLDERS.values(), ids=list(HOLDERS))
def test_a_module_that_a_function_holds_is_its_parameters(function):
    x = torch.from_numpy(X)
    comparison = compare((function, x), (lambda w, x: jnp.tanh(x @ w), (W, X)))
    assert (comparison.verdict, comparison.error < 1e-15) == ("EQUAL", True)
    assert NET.fc.weight.dtype == torch.float32
    assert NET.fc.weight.requires_grad
    assert compare((closure(OTHER), x), (function, x)).verdict == "DIFFERENT"


def test_of_several_modules_each_has_its_name():
    def both(x):
        return NET(x) + OTHER(x)

    left_out = compare((lambda x: NET(x), torch.from_numpy(X)), (both, torch.from_numpy(X)))
    assert left_out.counts.parameters == 2
    assert left_out.verdict == "DIFFERENT"


def test_nnx_that_a_function_holds_runs_in_evaluation_mode_and_is_as_it_was():
    net = Nnx(running=False)
    comparison = compare((NET.eval(), torch.from_numpy(X)), (lambda x: net(x), X))
    given = compare((NET, torch.from_numpy(X)), (net, X))
    assert (comparison.verdict, comparison.remarks) == (given.verdict, given.remarks)
    assert comparison.counts.parameters == given.counts.parameters
    assert any(TRAINING in each for each in comparison.remarks)
    assert not net.norm.use_running_average


def test_arrays_in_a_closure_of_jax():
    weight = jnp.asarray(W)
    comparison = compare((NET, torch.from_numpy(X)), (lambda x: jnp.tanh(x @ weight), X))
    assert (comparison.verdict, comparison.counts.parameters) == ("EQUAL", 1)


def demands_in_torch(x):
    if x.dtype != torch.float32:
        raise TypeError(f"expected float32, got {x.dtype}")
    return NET(x)


def demands_in_jax(w, x):
    assert x.dtype == jnp.float32, "float32 only"
    return jnp.tanh(x @ w)


DEMANDING = {
    "torch": (demands_in_torch, torch.from_numpy(X)),
    "jax": (demands_in_jax, (jnp.asarray(W), X)),
}


@pytest.mark.parametrize("side", DEMANDING.values(), ids=list(DEMANDING))
def test_a_program_that_refuses_float64_is_compared_and_says_so(side):
    comparison = compare((lambda w, x: jnp.tanh(x @ w), (W, X)), side)
    assert (comparison.verdict, comparison.error < 1e-15) == ("EQUAL", True)
    assert "refuses float64 (" in comparison.remarks[0]
    wrong = compare((lambda w, x: jnp.tanh(x @ w) * 1.001, (W, X)), side)
    assert (wrong.verdict, wrong.places[0].cause) == ("DIFFERENT", "scale left out")


def test_what_fails_in_every_type_says_why_it_failed_first():
    def broken(x):
        return x @ x

    with pytest.raises(InputError, match=r"test_held\.py:\d+"):
        compare((broken, torch.from_numpy(X)), (broken, torch.from_numpy(X)))


@dataclass(frozen=True)
class Batch:
    image: Any
    extra: dict[str, Any]
    name: str = "train"


def of_batch(batch):
    return (batch.image * batch.extra["scale"]).sum(-1)


def test_a_dataclass_is_an_input_with_its_fields():
    a = Batch(torch.from_numpy(X), {"scale": torch.from_numpy(X[:, :1])})
    b = Batch(X, {"scale": X[:, :1].copy()})
    comparison = compare((of_batch, {"batch": a}), (of_batch, {"batch": b}))
    assert (comparison.verdict, comparison.counts.inputs) == ("EQUAL", 2)
    assert a.image.dtype == torch.float32
    wrong = Batch(X, {"scale": 2 * X[:, :1]})
    assert compare((of_batch, (a,)), (of_batch, (wrong,))).verdict == "DIFFERENT"


def test_nnx_parameters_in_a_closure_are_called_as_the_module_calls_them():
    net = nnx.Linear(3, 2, use_bias=False, rngs=nnx.Rngs(0))
    comparison = compare((lambda x: net(x), X), (lambda w, x: x @ w, (W, X)))
    assert "parameter: w is not A's kernel" in comparison.to_text()


def test_a_file_imports_what_lies_beside_it_whatever_lay_beside_another(tmp_path, capsys):
    for folder, factor in (("first", 2), ("second", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own_layers.py").write_text(f"def f(x):\n    return x * {factor}\n")
        text = "import numpy as np\nfrom own_layers import f\n\ndef side():\n    return f, np.ones(3)\n"
        (tmp_path / folder / f"of_{folder}.py").write_text(text)
    first, second = (f"{tmp_path}/{each}/of_{each}.py:side" for each in ("first", "second"))
    assert run("diff", [first, first]) == 0
    assert run("diff", [first, second]) == 1
    assert "number: 3 where A has 2" in capsys.readouterr().out


def test_a_step_may_build_its_own_model_whose_first_values_are_replaced():
    """The model is drawn in float32, and its draws reach no output."""
    rng = np.random.default_rng(3)
    weight, x = (rng.normal(size=size).astype(np.float32) for size in ((4, 6), (3, 6)))

    def step(x, put=False):
        model = torch.nn.Linear(6, 4, bias=False)
        if put:
            model.weight.data = torch.from_numpy(weight)
        else:
            with torch.no_grad():
                model.weight.copy_(torch.from_numpy(weight))
        torch.tanh(model(x)).sum().backward()
        return model.weight.grad

    def port(x):
        return jax.grad(lambda w: jnp.tanh(x @ w.T).sum())(jnp.asarray(weight))

    for put in (False, True):
        one = functools.partial(step, put=put)
        comparison = compare((one, torch.from_numpy(x)), (port, x), gradients=True)
        assert comparison.verdict == "EQUAL"
        assert not any("random" in each for each in comparison.remarks)

    def noisy(x):
        return step(x) + torch.rand(4, 6)

    comparison = compare((noisy, torch.from_numpy(x)), (port, x), gradients=True)
    assert comparison.verdict == "DIFFERENT"
    assert "draws random numbers at test_held.py" in comparison.remarks[0]


def test_the_line_that_asks_for_a_comparison_is_none_of_the_program():
    x = torch.tensor([[0.3, -0.7], [1.1, 0.2]])
    (place,) = compare((torch.tanh, x), (lambda x: jnp.tanh(2 * x), x.numpy())).places
    assert (place.cause, place.a.lines) == ("one scale too many", ())
    assert place.b.lines
