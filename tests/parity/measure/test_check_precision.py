"""`parity check --precision`: passed to both twins, recorded; float32 at less is not certified."""

import json

import jax
import pytest
import torch

from parity.cli import main
from parity.measure.redraw import random_batch, redraw
from parity.twins import run_jax, run_torch
from parity.twins.check import check_config
from parity.twins.check_report import print_report
from tests.support.tiny import TINY

pytestmark = pytest.mark.versions

SMALL = TINY.replace(depth=1)
FLAGS = (
    'jax_default_matmul_precision = high (set "highest")',
    'torch.get_float32_matmul_precision() = "high" (set "highest")',
)


@pytest.mark.parametrize(
    ("precision", "dtypes", "uncertified"),
    [
        ("high", ("float32",), FLAGS),
        ("high", ("float64", "bfloat16"), ()),
        ("highest", ("float32",), ()),
        ("default", ("float32",), ()),  # of the processor this runs on, in full
    ],
)
def test_only_float32_at_less_is_not_certified(precision, dtypes, uncertified, monkeypatch):
    monkeypatch.setattr("parity.twins.check._runs", lambda *arguments: (each for each in ()))
    report = check_config(SMALL, dtypes=dtypes, precision=precision)
    assert report.agrees
    assert report.uncertified == uncertified
    assert report.passed == (not uncertified)
    assert report.environment["matmul precision"] == precision


def test_what_float32_differs_by_at_less_says_nothing(capsys):
    """As on a GPU, where TensorFloat-32 is a thousand times float32's rounding."""
    cases = ("float64", "tanh_gelu", "DIFFERENT"), ("float32", "tanh_gelu_in_float32", "UNCERTIFIED")
    for dtype, fault, verdict in cases:
        report = check_config(SMALL, dtypes=(dtype,), precision="high", fault=fault)
        assert not all(result.passed for result in report.results)
        assert not report.passed
        print_report(report)
        printed = capsys.readouterr().out
        assert ("DIFFERENT" in printed) == (verdict == "DIFFERENT")
        assert ("UNCERTIFIED" in printed) == (verdict == "UNCERTIFIED")


@pytest.mark.parametrize("precision", ["highest", "high", "default"])
def test_both_twins_run_at_it_and_the_flags_are_put_back(precision, monkeypatch):
    seen = []

    def spied(cross_entropy):
        def loss(*arguments):
            torch_flag = torch.get_float32_matmul_precision()
            seen.append((torch_flag, jax.config.jax_default_matmul_precision))
            return cross_entropy(*arguments)

        return loss

    for module in (run_jax, run_torch):
        monkeypatch.setattr(module, "cross_entropy", spied(module.cross_entropy))
    before = torch.get_float32_matmul_precision(), jax.config.jax_default_matmul_precision
    weights = lambda name, kind, shape: redraw(name, kind, shape, 0)  # noqa: E731
    for twin in (run_jax.JaxTwin, run_torch.TorchTwin):
        twin(SMALL, modules=False, gradients=False, precision=precision).run(
            weights, random_batch(SMALL, 1, seed=0), "float32"
        )
    in_jax, in_torch = seen
    if precision == "default":
        assert (in_jax[1], in_torch[0]) == (before[1], before[0])
    else:
        assert (in_jax[1], in_torch[0]) == (precision, precision)
    assert (torch.get_float32_matmul_precision(), jax.config.jax_default_matmul_precision) == before


def test_the_command_names_the_flags_and_exits_1(tmp_path, capsys):
    out = tmp_path / "report.json"
    arguments = ["check", "mnist_exercise", "--batch-size", "1", "--precision", "high"]
    assert main([*arguments, "--dtype", "float32", "--json", str(out)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "EQUAL" not in said
    assert all(
        f"UNCERTIFIED: float32 products ran at reduced precision - {flag}" in said for flag in FLAGS
    )
    report = json.loads(out.read_text())
    assert not report["passed"]
    assert report["uncertified"] == list(FLAGS)
    assert report["environment"]["matmul precision"] == "high"


def test_of_several_each_is_not_certified(capsys, monkeypatch):
    monkeypatch.setattr("parity.twins.check.check_config", _one_report())
    assert main(["check", "digits", "mnist_exercise", "--precision", "high", "--dtype", "float32"]) == 1
    said = capsys.readouterr().out
    assert said.count("UNCERTIFIED\n") == 2
    assert "0 of 2 equal" in said
    assert said.count("UNCERTIFIED: float32 products") == 2  # a line for each flag


def _one_report():
    report = check_config(SMALL, dtypes=("float32",), batch_size=1, precision="high")
    return lambda cfg, **options: report
