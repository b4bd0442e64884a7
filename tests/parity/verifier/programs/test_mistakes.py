"""What users hand to `parity diff` that cannot be compared: one clear line and status 2."""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.cli import run
from parity.verifier.locate import compare
from parity.verifier.programs.mistakes import mistake

pytestmark = pytest.mark.quick

HERE = Path(__file__).parents[3] / "support/mistaken_models.py"


@pytest.fixture
def locate(capfd):
    """`parity diff` of functions of mistaken_models.py, or of other things; status, output, error."""

    def call(*arguments):
        named = [f"{HERE}:{each}" if str(each).isidentifier() else str(each) for each in arguments]
        status = run("diff", named)
        return status, *capfd.readouterr()

    return call


def line_of(text):
    return next(i for i, line in enumerate(HERE.read_text().splitlines(), 1) if text in line)


REFUSED = {
    "raises": "{name}: KeyError in {file}:{raises}: 'blocks.0.weight'",
    "needs_arg": "{name}: needs_arg was given no inputs: missing a required argument: 'n'; name a"
    " function of no arguments that returns (callable, inputs)",
    "needs_ar": "{name}: {file} has no function needs_ar; did you mean needs_arg?",
    "forgets": "NoneType cannot be called; a side is (callable, inputs), or names a function",
    "other_name": "Net.forward was given 1 input (pixels): missing a required argument: 'x'",
    "linen_drops": 'needs PRNG for "dropout" (https://flax.readthedocs.io/en/latest/api_reference/flax.errors'
    ".html#flax.errors.InvalidRngError); inputs may be a dictionary, whose True or False turns",
    "json:dumps": "json:dumps: dumps was given no inputs: missing a required argument: 'obj'; name a",
    "only_model": "Net.forward was given no inputs: missing a required argument: 'x'; give"
    " them beside it",
    "linen_alone": "Linen without variables; give (module, variables, inputs)",
    "exported": "is a program that JAX exported or compiled, which holds no operations",
    "exported_itself": "is a program that JAX exported or compiled, which holds no operations",
    "compiled": "is a program that JAX exported or compiled, which holds no operations",
    "exits": "{name}: sys.exit('bye') in {file}:{exits}: a program that is compared must not end"
    " the process",
    "branches": "TracerBoolConversionError in {file}:{branches}: Attempted boolean conversion of traced"
    " array with shape bool[]; a JAX program must run under jax.jit\n",
    "of_numpy": "TracerArrayConversionError in {file}:{of_numpy}: The numpy.ndarray conversion method",
    "on_two_lines": "ValueError in {file}:{on_two_lines}: my forward\n",
    "in_a_framework": "TypeError: add got incompatible shapes for broadcasting: (2, 3), (3, 2)",
    "trains": "does not require grad and does not have a grad_fn; a program that differentiates is"
    " compared with --gradients",
}


PLACES = {
    "raises": line_of('raise KeyError("blocks'),
    "branches": line_of("if x.sum() > 0"),
    "of_numpy": line_of("np.maximum(x @ w, 0)"),
    "on_two_lines": line_of("raise ValueError("),
    "exits": line_of('sys.exit("bye")'),
}


@pytest.mark.parametrize("flags", [["plain"], ["--bisect-precision=bfloat16", "--bound=0.1"]])
@pytest.mark.parametrize(("given", "line"), REFUSED.items(), ids=list(REFUSED))
def test_one_clear_line_and_status_2(given, line, flags, locate):
    status, out, error = locate(given, *flags)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert line.format(name=f"{HERE}:{given}", file=HERE, **PLACES) in error
    assert error.startswith("parity diff: ")


@pytest.mark.parametrize(
    ("program", "kind", "said"),
    [
        (jax.jit(bool), jax.errors.ConcretizationTypeError, "; a JAX program must run under jax.jit"),
        (lambda _: {}["mine"], KeyError, ": 'mine'"),
    ],
)
def test_what_jax_alone_cannot_trace_is_to_run_under_jit(program, kind, said):
    with pytest.raises(kind) as caught:
        program(1.0)
    assert (mistake(caught.value) or "").endswith(said)


SHAPES = {
    "fewer": "not the same inputs: x [2, 3] in A, x [1, 3] in B; give both sides the same ones",
    "none_at_all": "not the same inputs: x [2, 3] in A, x [0, 3] in B; give both sides the same ones",
}


@pytest.mark.parametrize(("given", "line"), SHAPES.items(), ids=list(SHAPES))
def test_inputs_of_other_shapes(given, line, locate):
    assert locate("plain", given) == (2, "", f"parity diff: {line}\n")


IMAGES = np.random.default_rng(2).standard_normal((2, 3, 4, 5))
PAD = np.array([[False, False, True], [False, True, True]])
SCORES = np.random.default_rng(3).standard_normal((2, 4, 3))
BIAS = np.where(PAD, -np.inf, 0.0)[:, None].repeat(4, 1)
SAME = {
    "channels last": (
        (lambda x: torch.tanh(x), IMAGES),
        (lambda x: jnp.tanh(x), IMAGES.transpose(0, 2, 3, 1)),
    ),
    "one image at a time": (
        (lambda x: torch.tanh(x), torch.tensor(IMAGES[:1])),
        (lambda x: jnp.tanh(x), IMAGES[0]),
    ),
    "a mask as it is added": (
        (
            lambda x, pad: torch.softmax(x.masked_fill(pad[:, None], -torch.inf), -1),
            (SCORES, torch.tensor(PAD)),
        ),
        (lambda x, bias: jax.nn.softmax(x + bias, -1), (SCORES, BIAS)),
    ),
    "a table in two halves": (
        (lambda x: torch.tanh(x), torch.tensor(IMAGES)),
        (lambda x, y: jnp.tanh(jnp.concatenate([x, y])), (IMAGES[:1], IMAGES[1:])),
    ),
}


@pytest.mark.parametrize("pair", SAME.values(), ids=list(SAME))
def test_the_same_inputs_in_other_layouts(pair):
    assert compare(*pair).verdict == "EQUAL"


def test_a_file_that_is_no_python(locate, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ndef f(:\n")
    status, _, error = locate("plain", f"{path}:f")
    assert (status, error) == (
        2,
        f"parity diff: {path}:f: SyntaxError in {path}:2: invalid syntax\n",
    )


def test_a_package_that_the_user_s_own_file_imports(locate, tmp_path):
    path = tmp_path / "lacking.py"
    path.write_text("import numpy\nimport nowhere_to_be_found\n")
    line = f"{path}:f: {path}:2 imports nowhere_to_be_found, which {sys.executable} lacks; install it"
    assert locate("plain", f"{path}:f")[::2] == (2, f"parity diff: {line}\n")


METHODS = [
    ("plain", "torch_forward"),
    ("plain", "nnx_without_norm"),
    ("nnx_whole", "nnx_call"),
    ("torch_twice", "nnx_twice"),
    ("linen_whole", "linen_bound"),
]


@pytest.mark.parametrize(("a", "b"), METHODS)
def test_a_method_of_a_module_is_understood_as_the_module(a, b):
    comparison = compare(f"{HERE}:{a}", f"{HERE}:{b}")
    assert comparison.verdict == "EQUAL"
    assert comparison.counts.parameters


def test_inputs_by_name_turn_a_layer_off(locate):
    """As the message of a layer that needs random numbers says."""
    status, out, _ = locate("plain", "linen_drops_nothing", "--forward")
    assert (status, out[:5]) == (0, "EQUAL")


BATCH_NORM = f"norm (BatchNorm, {HERE.name}:{line_of('nnx.BatchNorm(2')})"
ON = f"; as it was given, these are on: {BATCH_NORM}"


@pytest.mark.parametrize(
    ("a", "b", "noted"),
    [("plain", "training", [""]), ("nnx_whole", "nnx_training", [ON]), ("plain", "port", [])],
)
def test_a_model_in_training_mode_is_said_to_be_put_into_evaluation_mode(a, b, noted, locate, tmp_path):
    path = tmp_path / "found.json"
    status, _, error = locate(a, b, f"--json={path}")
    notes = [f"was given in training mode; it is compared in evaluation mode{each}" for each in noted]
    assert (status, json.loads(path.read_text())["remarks"]) == (0, [f"B: {note}" for note in notes])
    assert error == "".join(f"note: {HERE}:{b}: {note}\n" for note in notes)


def test_training_mode_in_a_bisection(locate):
    _, _, error = locate("training", "--bisect-precision=bfloat16", "--bound=0.1")
    assert "training: was given in training mode; it is compared in evaluation mode\n" in error


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")  # which is the user's
@pytest.mark.parametrize("name", ["traced", "exported_by_torch"])
def test_a_program_of_torch_that_no_longer_is_python_says_nothing_by_itself(name, locate, tmp_path):
    assert locate("plain", name)[::2] == (0, "")


DRAWN = "draws random numbers at mistaken_models.py:{}; give what it draws as an input"
REMARKS = {
    ("drops", "drops_in_jax"): (
        "DIFFERENT",
        [
            "A: " + DRAWN.format(line_of("nn.functional.dropout(x @ w")),
            "B: " + DRAWN.format(line_of("jax.random.bernoulli(jax.random.key(0)")),
        ],
    ),
    ("nothing_but_nan", "nothing_but_nan_in_jax"): (
        "INCOMPLETE",
        ["A: its output has 4 NaN among 4 numbers", "B: y has 4 NaN among 4 numbers"],
    ),
    ("one_nan", "one_nan_in_jax"): (
        "EQUAL",
        ["A: its output has 1 NaN among 6 numbers", "B: its output has 1 NaN among 6 numbers"],
    ),
}


@pytest.mark.parametrize(("pair", "expected"), REMARKS.items(), ids=[pair[0] for pair in REMARKS])
def test_what_chance_decides_and_what_is_nan_is_noted(pair, expected):
    torch.manual_seed(0)  # of the masks of four numbers one in sixteen is JAX's
    comparison = compare(*(f"{HERE}:{each}" for each in pair))
    verdict, remarks = expected
    assert comparison.verdict == verdict
    for remark, begin in zip(comparison.remarks, remarks, strict=True):
        assert remark.startswith(begin)
    if verdict == "INCOMPLETE":
        left_out = comparison.counts.outputs_left_out
        assert left_out == ("B's x", "A's and B's output, which are all NaN")


def test_autocast_is_noted_as_casts_are():
    comparison = compare(f"{HERE}:autocast", f"{HERE}:port")
    assert comparison.verdict == "EQUAL"
    assert comparison.types == (
        f"A asks for bfloat16 at mistaken_models.py:{line_of('y = x @ w  # cast')}",
    )


def test_why_a_library_could_not_import_lazily_is_said(locate, tmp_path):
    path = tmp_path / "lazy.py"
    path.write_text(
        "def f():\n"
        "    try:\n"
        "        raise RuntimeError('operator nms does not exist')\n"
        "    except RuntimeError as error:\n"
        "        raise ModuleNotFoundError('Could not import module X. See the log') from error\n"
    )
    status, _, error = locate("plain", f"{path}:f")
    assert status == 2
    assert error.endswith("; at first RuntimeError: operator nms does not exist\n")
