"""Whatever a command advises can be followed: its flags are those of the command at hand."""

import ast
import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from parity.cli import main
from parity.cli.dispatch import COMMANDS, flags_of_convert
from parity.cli.support import advice
from parity.porting.models.start import _said_in_training as in_training
from tests.support.tiny import TINY
from vit_config import ConfigError
from vit_config.parameters import parameters

ROOT = Path(__file__).parents[3]
PACKAGES = ("vit_config", "vit_train", "vit_jax", "vit_torch", "parity")
OTHERS = (
    "--dataset_version_dir",
    "--out_file_format",
    "--file_format",
    "--data_dir",
    "--bce-loss",
    "--xla_",
)
"""Flags of programs that are not ours."""


@pytest.fixture(scope="module")
def flags():
    """Command -> its flags, as its parsers take them."""
    result = {}
    for command in COMMANDS:
        module = importlib.import_module(f"parity.cli.{command.replace('-', '_')}")
        with advice.command_at_hand(flags_of_convert):
            with pytest.raises((ConfigError, SystemExit)):
                module.main(["--no-such-flag"], "p")
            result[command] = {"--help", *advice._at_hand.get()[0]}
    return result


def sentences():
    """Every text in the packages that is no docstring: where, and what it says."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docs = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and id(node) not in docs
                ):
                    yield path.relative_to(ROOT), node.value


def test_every_flag_that_is_named_is_one_of_some_command(flags):
    every = set().union(*flags.values()) | {"--version"}
    heads = {each.partition(".")[0] + "." for each in every if "." in each}
    lost = [
        (str(path), flag)
        for path, text in sentences()
        for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*", text)
        if flag.rstrip(".") not in (*every, "--no-")
        and flag.replace("--no-", "--") not in every
        and flag.partition(".")[0] + "." not in heads
        and not flag.startswith(OTHERS)
        and path.name != "page.py"  # it holds colours of a style sheet
    ]
    assert lost == []


def test_every_command_that_is_named_has_the_flags_beside_it(flags):
    named = 0
    for path, text in sentences():
        for command, rest in re.findall(r"\bparity ([a-z][a-z-]+)((?:[^`;.]*? --[a-z][\w-]*)*)", text):
            named += command in COMMANDS
            for flag in re.findall(r"--[a-z][\w-]*", rest):
                assert flag in flags[command], (path, text)
    assert named > 15


@pytest.fixture
def bare(tmp_path):
    """A state dict without a word on heads and epsilon, as PyTorch's libraries save it."""
    rng = np.random.default_rng(0)
    path = tmp_path / "bare.safetensors"
    state = {n: rng.standard_normal(p.shape).astype(np.float32) for n, p in parameters(TINY).items()}
    path.write_bytes(save(state, {"format": "pt"}))
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "BARE", "x.png"],
        ["eval", "BARE", "--data", "digits"],
        ["check", "BARE"],
        ["diff", "BARE", "BARE"],
        ["train", "--init", "BARE"],
        ["preflight", "--init", "BARE"],
        ["scan", "FOLDER"],
        ["inspect", "BARE"],
        ["convert", "BARE", "x.safetensors", "--to", "parity"],
    ],
    ids=lambda words: words[0],
)
def test_what_a_file_leaves_open_is_asked_for_in_flags_that_are_there(words, bare, flags, capsys):
    places = {"BARE": bare, "FOLDER": str(Path(bare).parent)}
    assert main([places.get(word, word) for word in words]) in (1, 2)
    printed = capsys.readouterr()
    said = " ".join((printed.out + printed.err).split())
    assert "num_heads" in said
    outside = re.sub(r"`parity convert [^`]*`", "", said)
    there = {each.rstrip(".") for each in re.findall(r"(?<![\w-])--[a-z][\w.-]*", outside)}
    assert {each for each in there if each != "--model.FIELD"} <= flags[words[0]]
    assert "--" in said
    assert "this command has no" not in said


def test_what_is_true_or_false_is_asked_for_in_these_words(bare, capsys):
    said = ["num_heads=5", "norm_eps=1e-6", "act=gelu", "pool=mean", "block=pre_norm"]
    command = ["inspect", bare, "--depth", "0", "--skip-values", "--set", *said]
    assert main(command) == 2
    assert "give --set pool_prefix=true|false, or" in capsys.readouterr().err
    assert main([*command, "pool_prefix=false"]) == 0


def test_a_checkpoint_to_check_is_not_to_be_described_by_a_flag_of_presets(bare, capsys):
    assert main(["check", bare]) == 2
    assert "give `parity convert --set num_heads=N norm_eps=EPS" in capsys.readouterr().err


def test_fields_that_have_no_flag_are_said_in_a_file(tmp_path, capsys):
    command = ["check-steps", "digits", "--steps", "9999"]
    config = tmp_path / "job.toml"
    config.write_text("[model]\nnum_classes = 7\n")
    assert main([*command, "--config", str(config)]) == 2
    assert capsys.readouterr().err.endswith(
        "add --model.num-classes 10; here such fields are those of --config FILE\n"
    )
    config.write_text("[model]\nnum_classes = 10\n")
    assert main([*command, "--config", str(config)]) == 2
    assert "9999 steps are more than the" in capsys.readouterr().err


def test_a_flag_that_is_not_there_comes_with_its_command():
    text = "cannot infer act; give --set act=A norm_eps=E, or --like PRESET (see parity list --dialects)"
    with advice.command_at_hand(flags_of_convert):
        assert advice.here(text) == text  # nobody said what there is
        advice.offer(["--k", "--model.depth", "--largest"], ["x", "--typed=1"])
        assert advice.here(text) == (
            "cannot infer act; give `parity convert --set act=A norm_eps=E`, or"
            " `parity convert --like PRESET` (see parity list --dialects); what it writes says so"
            " itself, and is read here"
        )
        for plain in ("no option --typed", "try --k 3", "--model.FIELD", "`tfds x --y`", "--no-largest"):
            assert advice.here(plain) == plain
        for there, told in {
            "choose by --part a.b, or wait": "choose by `parity convert --part a.b`, or wait",
            "--num-classes 0 takes it off": "`parity convert --num-classes 0` takes it off",
            "--dialect hf-vit --set x=1x2; or": "`parity convert --dialect hf-vit --set x=1x2`; or",
        }.items():
            assert advice.here(there).startswith(told)
        assert advice.here("try --processes 1") == "try --processes 1; this command has no --processes"
    assert advice.here(text) == text


def test_training_says_in_its_own_flags_what_a_file_to_start_from_leaves_open():
    assert in_training("so 3x3; --set image_size=HxW norm_eps=1e-6 says otherwise") == (
        "so 3x3; --model.image-size HxW --model.norm-eps 1e-6 says otherwise"
    )
    assert in_training("--override act=gelu for") == "`parity convert --override act=gelu` for"
    assert in_training("but 3 (--set); choose by --part a, or --like PRESET") == (
        "but 3 (--model.FIELD); choose by --init-part a, or --preset PRESET"
    )


def test_a_file_that_is_missing_is_what_a_message_speaks_of(tmp_path, capsys):
    nowhere = str(tmp_path / "nowhere")
    (tmp_path / "w.safetensors").write_bytes(save({"weight": np.zeros(1, np.float32)}))
    assert main(["eval", nowhere]) == 2
    assert capsys.readouterr().err.endswith(
        f"{nowhere}: no such file or folder; give a training run or a checkpoint\n"
    )
    argv = ["inspect", str(tmp_path / "w.safetensors"), "--adapter", nowhere]
    assert main(argv) == 2
    assert f"{nowhere}: no adapter_config.json there" in capsys.readouterr().err
    assert main(["train", "--data", "", "--framework", "torch"]) == 2
    assert capsys.readouterr().err.endswith('"tar:PATH" or "hf:PATH"\n')


def test_an_empty_name_of_a_run_folder_is_refused(capsys):
    assert main(["train", "--run-dir", "", "--framework", "torch"]) == 2
    assert "--run-dir '': give a folder" in capsys.readouterr().err
