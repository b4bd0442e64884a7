"""The training command: what it understands, what it refuses in one line, and the whole way once."""

import io
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import parity
import vit_torch.evaluate
from parity.cli import run
from parity.cli.support.after_training import _without_stop
from parity.porting.models import trained
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from tests.support.stopping import stopping_after
from tests.support.tiny_tfds import write_tiny_set
from vit_config.scoring import read_labelled_images

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Where digits are prepared once, by the first command that needs them."""
    return tmp_path_factory.mktemp("digits")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--model.num-head 2", "--model.num-heads"),
        ("--model.num-heads two", "--model.num-heads: expected a whole number, got 'two'"),
        ("--recipe.learning-rate fast", "--recipe.learning-rate: expected a number, got 'fast'"),
        ("--recipe.class-weights even", "class-weights: expected balanced or numbers, got 'even'"),
        ("--recipe.class-weights 1 2 --dry-run", "class_weights has 2 numbers, but the model has"),
        ("--model.num-heads 5", "num_heads = 5 does not divide hidden_size = 64"),
        ("--model.patch-size 3", "image_size = (8, 8) is not divisible by patch_size = (3, 3)"),
        ("--model.patch-size 2 2 2", "takes one or two whole numbers, not 2 2 2"),
        ("--model.pool max", "invalid choice 'max'"),
        ("--model.no-class-token", 'pool = "class" needs class_token = true'),
        ("--recipe.augment.shift 9", "Augment.shift = 9.0: input should be less than or equal to 0.5"),
        ("--recipe.seed 4294967296", "Recipe.seed = 4294967296: input should be less than 4294967296"),
        ("--dtype bfloat16 --recipe.dtype float32", "--dtype bfloat16 and --recipe.dtype float32 set"),
        ("--dtype float64 --recipe.kernel xla", 'kernel = "xla" computes in float32 even where dtype'),
        (
            "--model.dropout-attention 0.1 --recipe.kernel xla",
            "kernel = 'xla' cannot drop attention weights, but dropout_attention = 0.1",
        ),
        ("--recipe.kernel cudnn", "does not run on cpu in float32 (cuDNN is not detected)"),
        ("--recipe.epochs 0", "Recipe.epochs = 0: input should be greater than 0"),
        ("--preset nothing", "unknown preset 'nothing'"),
        ("--config nowhere.json", "nowhere.json: no such file"),
        ("stray", "stray"),
        ("--data-dir", "--data-dir"),
        ("--data faces", '"folder:PATH", "table:FILE", "tar:PATH" or "hf:PATH"'),
        ("--data tfds:faces", "not prepared in"),
        ("--preset vit_paper", "has 1 channel and 10 classes"),
        ("--recipe.batch-size 12", "batch_size = 12 cannot be split evenly over 8 devices; use 8 or 16"),
        ("--recipe.batch-size 1024", "batch_size = 1024 is more than the 898 training examples"),
        ("--parallel pmap --mesh fsdp=-1", "jax.pmap has none; leave one out"),
        ("--framework torch --parallel pmap", "--parallel pmap goes with --framework jax, not"),
        ("--framework torch --recipe.kernel xla", 'kernel = "xla", which only JAX has; add --recipe'),
        (
            "--framework torch --recipe.device-side 96 --recipe.augment.crop torchvision"
            " --recipe.augment.shift 0 --recipe.augment.rotate 0 --recipe.augment.scale 0",
            "device_side = 96, which only JAX has; add --recipe.device-side None",
        ),
        ("--framework torch --recipe.reduce-dtype float32", "add --recipe.reduce-dtype auto"),
        ("--recipe.reduce-dtype float64", 'with dtype = "float32": float64 goes with float64 alone'),
        ("--framework tensorflow", "invalid choice 'tensorflow'"),
        ("--stop-after -1", "--stop-after -1: give a number of steps, 0 or more"),
        ("--stop-after soon", "--stop-after"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, digits, argv, message):
    words = ["--run-dir", str(tmp_path / "run"), *argv.split()]
    if "--data-dir" not in words:
        words += ["--data-dir", str(digits)]
    assert run("train", words) == 2
    assert_one_line(capsys, message)
    assert not (tmp_path / "run").exists()


def assert_one_line(capsys, message):
    """A command has said this and nothing else."""
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1), captured
    assert captured.err.startswith("parity train: ")
    assert message in captured.err


def small_run(folder, *changes):
    """The command line of a run on the set in `folder`."""
    return [
        *("--preset", "vit_tiny_patch16_224", "--data", "tfds:tiny_rectangles"),
        *("--data-dir", str(folder / "data"), "--run-dir", str(folder / "run[" / "x]")),
        *("--model.image-size", "21", "15", "--model.patch-size", "7", "5", "--model.num-classes", "3"),
        *("--model.hidden-size", "30", "--model.num-heads", "5", "--model.mlp-dim", "44"),
        *("--model.depth", "1", "--recipe.batch-size", "16", "--recipe.epochs", "12"),
        *("--recipe.learning-rate", "0.003", *changes),
    ]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run on a rectangular three-channel set: folder, command line, exit status, exported files, and
    what it said."""
    folder = tmp_path_factory.mktemp("command")
    write_tiny_set(folder / "data")
    argv = small_run(folder)

    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        stopping_after(5, patch)
        first = run("train", argv, prog="python train.py")
    run_dir = Path(argv[argv.index("--run-dir") + 1])
    return run_dir, argv, first, list(run_dir.glob("*.safetensors")), said.getvalue()


def test_an_interrupted_run_says_how_to_go_on(interrupted):
    _, argv, status, exported, said = interrupted
    assert (status, exported) == (130, [])
    assert f"to continue: python train.py {shlex.join(argv)}" in said
    assert f"run folder {argv[argv.index('--run-dir') + 1]}\n" in said  # brackets and all


@pytest.fixture(scope="module")
def stopped_in_torch(tmp_path_factory):
    """A run of PyTorch that was told to end after five steps: folder, command line and what it said."""
    folder = tmp_path_factory.mktemp("torch")
    write_tiny_set(folder / "data")
    argv = small_run(folder, "--framework", "torch", "--recipe.ema", "0.8")
    said = io.StringIO()
    with redirect_stdout(said):
        assert run("train", [*argv[:6], "--stop-after", "5", *argv[6:]]) == 0
    return folder / "run[" / "x]", argv, said.getvalue()


def test_a_run_that_was_told_to_end_says_how_to_go_on(stopped_in_torch):
    run_dir, argv, said = stopped_in_torch
    assert f"stopped after step 5, as asked; to continue: parity train {shlex.join(argv)}\n" in said
    assert [path.name for path in (run_dir / "checkpoints").iterdir()] == ["5.pt"]
    assert not list(run_dir.glob("*.safetensors"))
    assert _without_stop(["--stop-after=5", "--a", "--stop_after", "5", "b"]) == ["--a", "b"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--framework", "jax"], "holds a run of PyTorch, which JAX cannot continue as it is"),
        (["--recipe.seed", "1"], "holds another run: recipe.seed = 0 there, 1 here"),
    ],
)
def test_a_folder_of_another_run_is_refused_before_anything_is_said(
    capsys, stopped_in_torch, words, message
):
    _, argv, _ = stopped_in_torch
    assert run("train", [*argv, *words]) == 2
    assert_one_line(capsys, message)


def test_a_rehearsal_that_cannot_be_is_one_line(capsys):
    assert run("train", ["--dry-run", "--recipe.batch-size", "12"]) == 2
    assert_one_line(capsys, "batch_size = 12 cannot be split evenly over 8 devices")


def test_a_run_of_pytorch_ends_with_equal_twins(capsys, monkeypatch, stopped_in_torch):
    """Scored in this process; a process without JAX scores the run of JAX below."""
    run_dir, argv, _ = stopped_in_torch
    monkeypatch.setattr(trained, "score_in_torch", vit_torch.evaluate.evaluate_file)
    assert run("train", argv) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "continuing from step 5" in out
    assert "PyTorch, at the end of training, float32" in out
    assert "JAX, from the weights file" in out
    assert "in a process without JAX" in out
    assert "EQUAL" in out
    rows = [line for line in out.split("│") if "/19" in line]
    assert len(rows) == 3
    assert len({row.strip() for row in rows}) == 1
    assert run("plot", [str(run_dir), "--framework", "torch"]) == 0
    assert len(capsys.readouterr().out.split()) == 5


def test_jax_ends_where_it_is_told_to(capsys, interrupted):
    run_dir, argv, *_ = interrupted
    assert run("train", [*argv, "--stop-after", "6"]) == 0
    said = capsys.readouterr().out
    assert f"stopped after step 6, as asked; to continue: parity train {shlex.join(argv)}\n" in said
    assert (run_dir / "checkpoints" / "6").is_dir()
    assert run("train", [*argv, "--framework", "torch"]) == 2
    assert "holds a run of JAX" in capsys.readouterr().err


@pytest.mark.slow
def test_training_ends_with_equal_twins(capsys, interrupted):
    run_dir, argv, *_ = interrupted
    assert run("train", argv) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "continuing from step 6" in out
    assert "in a process without JAX" in out
    assert "EQUAL" in out
    data = read_labelled_images(run_dir / "test_images.npz")
    assert data.images.shape == (19, 21, 15, 3)
    for framework in ("jax", "torch"):
        loaded = parity.load(run_dir / "weights.safetensors", framework=framework)
        assert loaded.config.hidden_size == 30
        assert loaded.preprocess.class_names == ("red", "green", "blue")
        assert len(loaded.preprocess.mean) == 3
    rows = [line for line in out.split("│") if "/19" in line]
    assert len(rows) == 3
    assert len({row.strip() for row in rows}) == 1


def test_without_pytorch_jax_scores_and_says_where_to_go_on(capsys, monkeypatch, interrupted):
    run_dir, argv, *_ = interrupted
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(trained, "MAX_BYTES", 10 * 21 * 15 * 3)
    (run_dir / "curves.png").unlink(missing_ok=True)
    assert run("train", argv) == 0
    out = capsys.readouterr().out
    assert "has 10 of the 19 test images" in out
    assert "JAX, from the weights file" in out
    assert f"PyTorch is not installed: score {run_dir}/weights.safetensors elsewhere with `python" in out
    assert (run_dir / "curves.png").is_file()


def test_a_missing_package_is_one_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "vit_jax.train.run", None)
    assert run("train", []) == 70  # one of ours is a defect, not something to install
    assert "internal error" in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "vit_jax.train.run")
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    monkeypatch.delitem(sys.modules, "vit_jax.train.checkpoint")
    assert run("train", []) == 2
    said = capsys.readouterr().err
    assert said == "parity train: needs the package orbax; pip install 'vit-parity[all]'\n"


def test_an_error_of_the_system_is_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("parity.cli.plot.draw_curves", lambda run_dir: run_dir.read_text())
    (tmp_path / "log.jsonl").touch()
    assert run("plot", [str(tmp_path)], prog="python train.py plot") == 2
    assert capsys.readouterr().err == f"python train.py plot: {tmp_path}: Is a directory\n"


def test_the_script_is_called_by_its_own_name():
    done = subprocess.run(
        [sys.executable, "train.py", "plot", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.startswith("usage: python train.py plot [-h] RUN ")


def test_plot_draws_the_run(capsys, interrupted):
    run_dir, *_ = interrupted
    assert run("plot", [str(run_dir)]) == 0
    names = ["curves", "positions", "position_similarity", "confusion", "attention"]
    assert capsys.readouterr().out.split() == [str(run_dir / f"{name}.png") for name in names]
    for name in names:
        assert (run_dir / f"{name}.png").read_bytes()[:4] == PNG


def test_plot_draws_a_photo_of_ones_own(capsys, interrupted, tmp_path, monkeypatch):
    run_dir, *_ = interrupted
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.arange(30 * 20, dtype=np.uint8).reshape(30, 20)).save("mine.png")
    assert run("plot", [str(run_dir.absolute()), "--image", "mine.png"]) == 0
    assert capsys.readouterr().out == "attention_mine.png\n"
    assert Path("attention_mine.png").read_bytes()[:4] == PNG
    assert run("plot", [str(run_dir.absolute()), "--image"]) == 2
    assert run("plot", [str(run_dir.absolute()), "--image", "mine.png", "other/mine.jpg"]) == 2
    assert "attention_mine.png: two images would be drawn as this file" in capsys.readouterr().err


def test_plot_refuses_what_is_no_run(capsys, tmp_path):
    for argv, message in (
        ([], "RUN must be given"),
        ([str(tmp_path / "no")], "no: not the folder of a training run; there is nothing"),
        ([str(tmp_path)], "not the folder of a training run; a checkpoint is drawn with --image FILE"),
    ):
        assert run("plot", argv) == 2
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert message in captured.err
    (tmp_path / "log.jsonl").write_text('{"kind": "start", "step": 0}\n')
    assert run("plot", [str(tmp_path)]) == 2
    assert "no training step yet" in capsys.readouterr().err
