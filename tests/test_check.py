"""`parity check`: passes for every switch of the schema, fails for every fault, and says where."""

import json

import pytest
from tiny import TINY, VARIANTS, variant

import vit_torch
from parity import save
from parity.check import check_config, check_weights
from parity.cli import main
from parity.faults import FAULTS
from parity.report import to_dict

SUBJECT = TINY.replace(layer_scale=0.1, register_tokens=2)
SMALL_PRESETS = ["digits", "mnist_exercise", "mnist_conv_vit"]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_switch_agrees_in_float64(name):
    report = check_config(variant(name), dtypes=("float64",))
    assert report.passed, to_dict(report)


@pytest.mark.parametrize("name", ["plain", "per_head", "linear_hwc", "rmsnorm", "mean_post_norm"])
def test_agrees_in_reduced_types(name):
    report = check_config(variant(name), dtypes=("float32", "bfloat16"), seed=3)
    assert report.passed, to_dict(report)


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_caught_in_its_module(name):
    dtypes = ("float64", "float32") if name == "tanh_gelu_in_float32" else ("float64",)
    offset = 1000.0 if name == "fast_variance" else 0.0
    report = check_config(SUBJECT, dtypes=dtypes, fault=name, token_offset=offset)
    assert not report.passed
    assert report.divergences[0].module == FAULTS[name].module
    if name == "tanh_gelu_in_float32":
        assert all(result.passed for result in report.results if result.dtype == "float64")
        assert report.divergences[0].dtype == "float32"


def test_the_fast_variance_needs_its_offset_and_the_clean_pair_passes_there():
    assert check_config(SUBJECT, dtypes=("float64",), fault="fast_variance").passed
    assert check_config(SUBJECT, dtypes=("float64",), token_offset=1000.0).passed


def test_faults_leave_no_trace():
    check_config(TINY, dtypes=("float64",), fault="dropped_residual")
    assert check_config(TINY, dtypes=("float64",)).passed


@pytest.mark.parametrize("name", SMALL_PRESETS)
def test_command_passes_small_presets(name, capsys):
    assert main(["check", name]) == 0
    assert "EQUAL" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_from_scratch"])
def test_command_passes_larger_presets(name):
    assert main(["check", name, "--dtype", "float64"]) == 0


def test_command_fails_with_a_fault_and_writes_json(tmp_path, capsys):
    path = tmp_path / "report.json"
    arguments = ["check", "digits", "--fault", "tanh_gelu", "--dtype", "float64", "--json", str(path)]
    assert main(arguments) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT" in out
    assert "blocks.0.mlp.act" in out
    report = json.loads(path.read_text())
    assert report["passed"] is False
    assert report["fault"] == "tanh_gelu"
    assert report["first_differences"][0]["module"] == "blocks.0.mlp.act"
    assert [level["level"] for level in report["levels"]] == [
        "parameters",
        "modules",
        "output",
        "loss",
        "gradients",
    ]


def test_command_checks_a_file(tmp_path, capsys):
    path = tmp_path / "w.safetensors"
    save(path, vit_torch.ViT(TINY))
    svg = tmp_path / "table.svg"
    assert main(["check", str(path), "--svg", str(svg)]) == 0
    assert svg.read_text().startswith("<svg")
    report = check_weights(path, dtypes=("float64", "float32", "bfloat16"))
    assert report.passed
    assert "float32" in report.weights


def test_list_of_faults(capsys):
    assert main(["check", "--fault", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in FAULTS)
