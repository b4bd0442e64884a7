"""Scoring a weights file on labelled images: the same in both twins, and without the other framework."""

import subprocess
import sys

import numpy as np
import pytest

import vit_jax.evaluate
import vit_torch.evaluate
from parity.measure.redraw import redraw
from parity.porting.models import trained
from parity.porting.models.trained import WITHOUT_JAX, score_in_torch, write_trained
from tests.support.tiny import TINY
from vit_config import Preprocess, WeightsError, write_weights
from vit_jax.leaves import leaves
from vit_jax.weights import abstract_model

CFG = TINY.replace(depth=1)
PREPROCESS = Preprocess(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
MAINS = {"jax": vit_jax.evaluate.main, "torch": vit_torch.evaluate.main}


def weights_at(path, cfg=CFG, preprocess=PREPROCESS, dtype=np.float32):
    arrays = {
        leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0).astype(dtype)
        for leaf in leaves(abstract_model(cfg))
    }
    write_weights(path, cfg, arrays, preprocess)
    return path


def images_at(path, count=300, size=(21, 15), highest=11):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, *size, 3), np.uint8)
    np.savez(path, images=images, labels=rng.integers(0, highest, count))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_twins_score_the_same(tmp_path, dtype):
    weights = weights_at(tmp_path / "w.safetensors", dtype=dtype)
    images = images_at(tmp_path / "i.npz")
    jax_score = vit_jax.evaluate.evaluate_file(weights, images)
    torch_score = vit_torch.evaluate.evaluate_file(weights, images)
    assert jax_score[1:] == torch_score[1:]
    assert jax_score.count == 300
    assert jax_score.loss == pytest.approx(torch_score.loss, rel=1e-6 if dtype == np.float32 else 1e-13)
    if dtype == np.float32:  # as it does in float64 in this process
        elsewhere = score_in_torch(weights, images)
        assert elsewhere[1:] == torch_score[1:]
        assert elsewhere.loss == pytest.approx(torch_score.loss, rel=1e-6)  # other numbers of threads


def test_the_other_process_cannot_import_jax():
    block, separator, _ = WITHOUT_JAX.partition("from vit_torch")
    assert separator
    done = subprocess.run(
        [sys.executable, "-c", block + "import jax"],
        capture_output=True,
        text=True,
    )
    assert done.returncode
    assert "import of jax halted" in done.stderr


def test_exported_parameters_are_those_trained(tmp_path):
    from vit_config import read_weights

    parts = leaves(abstract_model(CFG))
    common = {leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 1) for leaf in parts}
    write_trained(
        tmp_path / "w.safetensors",
        CFG,
        {p.name: p.from_common(common[p.name]) for p in parts},
        PREPROCESS,
    )
    arrays = read_weights(tmp_path / "w.safetensors")
    assert (arrays.config, arrays.preprocess) == (CFG, PREPROCESS)
    for name, array in common.items():
        np.testing.assert_array_equal(arrays.arrays[name], array)


@pytest.mark.parametrize("twin", MAINS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nothing", ""),
        ("no weights", "w.safetensors: no such file"),
        ("no images", "i.npz: no such file"),
        ("not npz", "i.npz: not an .npz file with the arrays images and labels"),
        ("other arrays", "expected (N, H, W, C)"),
        ("label", "labels go from 0 to 11, the model has num_classes = 11 (0 to 10)"),
        ("several", "labels have shape (400, 1), but the model gives an image one label"),
        ("size", "the image is 15x21, the model takes image_size = 21x15"),
        ("no preprocess", "does not say how images are prepared"),
        ("no head", "num_classes = 0"),
    ],
)
def test_bad_input(tmp_path, capsys, twin, change, message):
    weights, images = tmp_path / "w.safetensors", tmp_path / "i.npz"
    if change != "no weights":
        cfg = CFG.replace(num_classes=0) if change == "no head" else CFG
        weights_at(weights, cfg, None if change == "no preprocess" else PREPROCESS)
    if change == "not npz":
        images.write_text("no archive")
    elif change == "other arrays":
        np.savez(images, images=np.zeros((3, 21, 15, 3)), labels=np.zeros(3))
    elif change != "no images":
        images_at(
            images, 400, (15, 21) if change == "size" else (21, 15), 12 if change == "label" else 11
        )
    if change == "several":
        data = dict(np.load(images))
        np.savez(images, images=data["images"], labels=data["labels"][:, None])
    status = MAINS[twin]([str(weights), str(images)])
    captured = capsys.readouterr()
    if change == "nothing":
        assert status == 0
        assert '"count": 400' in captured.out
        return
    assert status == 2
    assert captured.err.startswith(f"vit_{twin}.evaluate: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_failure_in_the_other_process_is_one_line(tmp_path, monkeypatch):
    """Its last line; what the twin says of files is in `test_bad_input`."""
    said = "import sys\nsys.exit(f'a warning\\nvit_torch.evaluate: {sys.argv[1]}: no such file')"
    monkeypatch.setattr(trained, "WITHOUT_JAX", said)
    with pytest.raises(WeightsError, match=r"score it \(vit_torch.evaluate: .*w.safetensors: no such"):
        score_in_torch(tmp_path / "w.safetensors", tmp_path / "i.npz")


@pytest.mark.parametrize("main", MAINS.values(), ids=MAINS)
def test_usage(main, capsys):
    assert main([]) == 2
    assert "usage: python -m vit_" in capsys.readouterr().err
