"""`parity diff --as-is`: two processes, their settings, JAX's programs, and what is refused."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from parity.cli import main
from parity.verifier.devices.compare import compare_devices, run_as_it_is
from parity.verifier.programs.sides import taken_apart

PROGRAMS = "evidence.devices.programs"


def test_a_kernel_of_another_process_is_found(tmp_path, capsys):
    out = tmp_path / "report.json"
    argv = ["diff", f"{PROGRAMS}:tiny", f"{PROGRAMS}:flushed", "--as-is", "--env-b", "OMP_NUM_THREADS=1"]
    assert main([*argv, "--json", str(out)]) == 1
    text = capsys.readouterr().out
    assert text.startswith("DIFFERENT  2 of 30 operations of B, run on A's numbers, differ by more")
    assert "numbers below the smallest normal one are flushed to zero" in text
    assert _alike(text.replace(", OMP_NUM_THREADS=1", "")).startswith(_alike(_transcript()))
    report = json.loads(out.read_text())
    assert report["settings"] == {"OMP_NUM_THREADS": "1"}
    assert [each["name"] for each in report["apart"]] == ["conv", "layer_norm"]
    assert report["apart"][0]["source"]["text"].startswith("x = self.patches(images)")


def _transcript():
    """What the page shows of the command."""
    page = (Path(__file__).parents[4] / "docs" / "devices.md").read_text()
    return page.partition(":flushed --as-is\n")[2].partition("```")[0]


def _alike(text):
    """The text without what depends on the processor and on versions."""
    return re.sub(r"[0-9][0-9.,e+-]*|\(AVX.*?\)|\(DEFAULT\)|\+cpu", "#", text).strip()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([f"{PROGRAMS}:plain", "--as-is", "--device-a", "cuda"], "device cuda: "),
        (
            [f"{PROGRAMS}:plain", f"{PROGRAMS}:tiny", "--device-b", "mps"],
            "--device-b goes with --as",
        ),
        ([f"{PROGRAMS}:plain", "--as-is", "--env-b", "THREADS"], "--env-b THREADS: expected NAME=VALUE"),
        ([f"{PROGRAMS}:plain", "--as-is", "--dtype", "float16"], "--dtype does not go with --as-is"),
        ([f"{PROGRAMS}:plain", "--as-is", "--python-b", "/no/python"], "/no/python: No such file"),
    ],
)
def test_what_cannot_be_is_one_line(argv, said, capsys):
    assert main(["diff", *argv]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def run(function, *inputs):
    return run_as_it_is(taken_apart((function, inputs), "A"), "")


def test_outputs_of_zeros_certify_nothing():
    for scale, verdict in ((0.0, "UNCERTIFIED"), (2.0, "EQUAL")):

        def function(x, scale=scale):
            return jnp.sin(x) * scale

        result = compare_devices(run(function, X), run(function, X), settings={})
        assert result.verdict == verdict
        assert ("all outputs are zero" in result.to_text()) == (scale == 0)


X = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(4, 8, 8)).astype(np.float32)


def scanned(x, weights):
    def step(x, w):
        return jax.lax.cond(x.sum() > 1e9, lambda x: x, lambda x: jnp.tanh(x @ w), x), x.sum()

    return jax.lax.scan(step, x, weights, reverse=True)


def test_scans_and_branches_are_opened():
    result = compare_devices(run(scanned, X, W), run(scanned, X, W), settings={})
    assert result.verdict == "EQUAL"
    assert result.judged == 4 * 4  # a sum for the branch, a product, its tanh, a sum
    assert len(result.outputs) == 2


def test_operation_by_operation_is_what_ran():
    program = run(scanned, X, W)
    final = [each for each in program.steps if each.signature.name == "tanh"][-1]
    np.testing.assert_allclose(final.results[0], program.outputs[0][1], rtol=1e-6)
    np.testing.assert_array_equal(final.run(final.operands)[0], final.results[0])


def test_an_nnx_model_with_keys_among_its_state_and_many_outputs():
    class Noisy(nnx.Module):
        def __init__(self):
            self.drop, self.lin = nnx.Dropout(0.5, rngs=nnx.Rngs(0)), nnx.Linear(8, 8, rngs=nnx.Rngs(1))

        def __call__(self, x):
            x = self.lin(self.drop(x))
            return {f"{i:02d}": x * i for i in range(12)}

    result = compare_devices(run(Noisy(), X), run(Noisy(), X), settings={})
    assert result.verdict == "EQUAL"
    assert result.to_text().count("whole runs: ") == 9
    assert "4 more outputs are nearer" in result.to_text()


def test_programs_of_two_frameworks_are_refused(capsys):
    argv = ["diff", f"{PROGRAMS}:plain", "evidence.devices.program_of_jax:plain", "--as-is"]
    assert main(argv) == 2
    assert "A is a program of torch, B of jax" in capsys.readouterr().err
