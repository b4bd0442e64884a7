"""`parity check`: passes for every switch of the schema, fails for every fault, and says where."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import vit_torch
from evidence.faults import FAULTS, STEP_FAULTS
from parity import save
from parity.cli import main
from parity.measure.redraw import redraw
from parity.twins.check import check_config, check_weights
from parity.twins.check_report import to_dict
from tests.support.fault_subjects import BASE as SUBJECT
from tests.support.fault_subjects import NEEDED
from tests.support.tiny import TINY, VARIANTS, variant
from vit_config import InputError, WeightsError, write_weights
from vit_torch.leaves import leaves

SMALL_PRESETS = ["digits", "mnist_exercise", "mnist_conv_vit"]


QUICK = {"plain", "per_head", "registers_class_row", "mean_post_norm"}  # what `make quick` looks at


def _marks(name):
    if name in QUICK:
        return []
    # five of six are left to a share of the exhaustive cases
    return [pytest.mark.slow, *([pytest.mark.exhaustive] if [*VARIANTS].index(name) % 6 else [])]


def two_blocks(cfg):
    """A schema without its block in the middle, except where each block has a value of its own."""
    return cfg if isinstance(cfg.num_kv_heads, tuple) else cfg.replace(depth=2)


@pytest.mark.parametrize("name", [pytest.param(n, marks=_marks(n)) for n in VARIANTS])
def test_every_switch_agrees_in_float64(name):
    report = check_config(two_blocks(variant(name)), dtypes=("float64",))
    assert report.passed, to_dict(report)


REDUCED = (
    "plain", "differential", "rope_mixed", "map", "per_head", "linear_hwc", "rmsnorm", "mean_post_norm",
    "rel_pos_bias", "differential_parallel", "grouped", "swiglu", "parallel",
)  # fmt: skip


@pytest.mark.exhaustive  # every run has TINY itself, in `test_command_checks_a_file`
@pytest.mark.parametrize("name", REDUCED)
def test_agrees_in_reduced_types(name):
    report = check_config(two_blocks(variant(name)), dtypes=("float32", "bfloat16"), seed=3)
    assert report.passed, to_dict(report)


# where this command, which runs the twins side by side, sees what `parity diff` sees in the model itself
SEEN_AT = {"missing_final_norm": "norm", "ignored_distillation_head": "head_logits"}
# one of each kind; evidence/mutation_score goes through all
COMMON_FAULTS = (
    "tanh_gelu", "tanh_gelu_in_float32", "swapped_gate", "norm_epsilon", "fast_variance",
    "missing_final_norm", "swapped_q_and_k", "permuted_heads", "attention_scale", "tiled_kv_heads",
    "lambda_of_the_next_block",
    "rotated_prefix", "transposed_relative_positions", "transposed_projection", "unused_bias",
    "dropped_residual", "swapped_layer_scales", "class_token_last", "shifted_positions", "patch_order",
    "wrong_pool", "pooled_prefix", "ignored_distillation_head", "detached_positions",
)  # fmt: skip


def write_subject(path, **changes):
    """A weights file of SUBJECT, in which most faults have something to break."""
    cfg = SUBJECT.replace(**changes)
    arrays = {
        leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0)
        for leaf in leaves(vit_torch.weights.abstract_model(cfg))
    }
    write_weights(path, cfg, arrays)
    return path


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    return write_subject(tmp_path_factory.mktemp("subject") / "subject.safetensors")


QUICK_FAULTS = {"tanh_gelu_in_float32", "fast_variance", "dropped_residual", "detached_positions"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in QUICK_FAULTS else [pytest.mark.slow, pytest.mark.exhaustive])
        for n in COMMON_FAULTS
    ],
)
def test_the_command_catches_every_fault_in_its_module(name, tmp_path):
    file = write_subject(tmp_path / "subject.safetensors", **NEEDED.get(name, {}))
    what = ["digits", "--token-offset", "1000"] if name == "fast_variance" else [str(file)]
    dtypes = ["float64", "float32"] if name == "tanh_gelu_in_float32" else ["float64"]
    chosen = [] if name == "fast_variance" else ["--dtype", *dtypes]  # an offset chooses float64 itself
    out = tmp_path / "report.json"
    assert main(["check", *what, "--fault", name, *chosen, "--json", str(out)]) == 1
    report = json.loads(out.read_text())
    assert report["fault"] == name
    assert list(dict.fromkeys(level["dtype"] for level in report["levels"])) == dtypes
    assert report["first_differences"][0]["where"] == SEEN_AT.get(name, FAULTS[name].located(None))
    assert report["first_differences"][0]["dtype"] == dtypes[-1]
    if name == "tanh_gelu_in_float32":
        assert all(level["passed"] for level in report["levels"] if level["dtype"] == "float64")


def test_the_file_without_a_fault_passes(subject):
    assert main(["check", str(subject), "--dtype", "float64", "float32"]) == 0


def test_the_fast_variance_needs_its_offset_and_the_clean_pair_passes_there():
    assert check_config(SUBJECT, dtypes=("float64",), fault="fast_variance").passed
    assert check_config(SUBJECT, token_offset=1000.0).passed


def test_faults_leave_no_trace():
    cfg = TINY.replace(depth=1)
    assert not check_config(cfg, dtypes=("float64",), fault="dropped_residual").passed
    assert check_config(cfg, dtypes=("float64",)).passed


@pytest.mark.slow
def test_command_passes_a_preset_in_every_type(capsys):
    assert main(["check", SMALL_PRESETS[2]]) == 0
    assert "EQUAL" in capsys.readouterr().out


def test_command_passes_several_presets(capsys):
    assert main(["check", *SMALL_PRESETS[:2], "--dtype", "float64"]) == 0
    assert "2 of 2 equal" in capsys.readouterr().out


def test_a_field_is_changed_in_both_twins(tmp_path, capsys):
    path = tmp_path / "report.json"
    check = ["check", "digits", "--dtype", "float64"]
    assert main([*check, "--set", "depth=1", "norm=rmsnorm", "--json", str(path)]) == 0
    assert "parity check digits depth=1 norm=rmsnorm" in capsys.readouterr().out
    report = json.loads(path.read_text())
    assert (report["schema"]["depth"], report["schema"]["norm"]) == (1, "rmsnorm")
    assert main([*check, "--set", "dept=1"]) == 2
    assert "no field 'dept'; did you mean 'depth'" in capsys.readouterr().err


def test_a_wrong_field_is_caught_by_the_command(capsys):
    assert main(["check", "digits", "--dtype", "float64", "--wrong", "act=gelu_tanh"]) == 1
    out = capsys.readouterr().out
    assert "PyTorch: act = gelu_tanh" in out
    assert "blocks.0.mlp.act" in out
    assert main(["check", "digits", "--dtype", "float64", "--wrong", "norm_eps=1e-3"]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["digits", "--wrong", "act"], "FIELD=VALUE"),
        (["digits", "--wrong", "activation=relu"], "no field 'activation'"),
        (["digits", "--full-size"], "no option --full-size"),
        (["digits", "mnist_exercise", "--json", "out.json"], "--json: goes with one subject"),
        (["digits", "--fault", "tanh_gelu", "--wrong", "act=relu"], "give one"),
    ],
)
def test_flags_that_do_not_go_together(arguments, said, capsys):
    assert main(["check", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.exhaustive  # in every run of continuous integration: make demo, make steps, make smoke
@pytest.mark.parametrize("name", ["digits", "vit_base_patch16_224"])
def test_command_passes_as_users_run_it(name):
    """In a process of its own, optimised as usual: the rest of the suite compiles without effort."""
    env = {
        key: value for key, value in os.environ.items() if key not in ("XLA_FLAGS", "OMP_NUM_THREADS")
    }
    dtypes = ["float32", "bfloat16"] if name == "digits" else ["float64"]  # `make steps` has float64
    command = [sys.executable, "-m", "parity", "check", name, "--batch-size", "1", "--dtype", *dtypes]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EQUAL" in done.stdout


@pytest.mark.slow
def test_a_type_of_its_own_control_flow_is_compared_with_itself(monkeypatch):
    """Each type is traced by itself; what one trace recorded must not name another's arrays."""
    import vit_jax.mlp

    exact = vit_jax.mlp.ACTIVATIONS["gelu"]
    # in float32 only, the module returns its very input: one array fewer in that trace
    monkeypatch.setitem(
        vit_jax.mlp.ACTIVATIONS, "gelu", lambda x: x if x.dtype == "float32" else exact(x)
    )
    report = check_config(TINY, dtypes=("float32", "bfloat16"))
    assert {result.dtype for result in report.results if not result.passed} == {"float32"}


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
    assert report["first_differences"][0]["where"] == "blocks.0.mlp.act"
    assert [level["level"] for level in report["levels"]] == [
        "parameters",
        "modules",
        "output",
        "loss",
        "gradients",
    ]


@pytest.mark.slow
def test_command_checks_a_file(tmp_path, capsys):
    path = tmp_path / "w.safetensors"
    save(path, vit_torch.ViT(TINY))
    svg = tmp_path / "table.svg"
    assert main(["check", str(path), "--dtype", "float64", "--svg", str(svg)]) == 0
    assert svg.read_text().startswith("<svg")
    report = check_weights(path, dtypes=("float32", "bfloat16"))
    assert report.passed
    assert "float32" in report.weights


def test_values_that_are_not_finite_are_no_difference(tmp_path):
    path, model = tmp_path / "w.safetensors", vit_torch.ViT(TINY)
    save(path, model)
    images = np.zeros((2, *TINY.image_size, TINY.in_channels))
    images[1, 2] = np.nan
    with pytest.raises(InputError, match="images hold values that are not finite"):
        check_weights(path, images=images)
    model.head.bias.data[1] = float("inf")
    save(path, model, force=True)
    with pytest.raises(WeightsError, match=r"w\.safetensors: head\.bias: 1 of 11 values are not finite"):
        check_weights(path)


def test_list_of_faults(capsys):
    assert main(["list", "--faults"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*FAULTS, *STEP_FAULTS))
