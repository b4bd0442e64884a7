"""From a library's own file through a fine-tuning back into the library: it loads, and says the same."""

import json

import numpy as np
import torch

import parity
from parity.cli import run
from parity.cli.support import after_training
from parity.porting.opening.provenance import digest_of, from_header
from tests.support import timm_models
from tests.support.tiny import TINY, error
from vit_config import Preprocess, write_weights
from vit_config.files.safetensors_header import read_file_header
from vit_config.parameters import parameters

PIXELS = Preprocess(mean=(0.2, 0.3, 0.4), std=(0.5, 0.6, 0.7))


def fine_tuned(init, data_dir, run_dir, monkeypatch):
    """Two steps on three classes in float64: the exported file."""
    monkeypatch.setattr(after_training, "score_and_compare", lambda *_: 0)  # is tested elsewhere
    command = [
        *("--framework", "torch", "--init", str(init), "--data", "tfds:tiny_rectangles"),
        *("--data-dir", str(data_dir), "--run-dir", str(run_dir), "--model.num-classes", "3"),
        *("--recipe.epochs", "1", "--recipe.batch-size", "16", "--dtype", "float64"),
    ]
    assert run("train", command) == 0
    return run_dir / "weights.safetensors"


def hops(path):
    return from_header(read_file_header(path).metadata, str(path))


def check(init, dialect, weights, home, reload):
    """The file at home, its logits, and every file that it came through."""
    parity.convert(weights, to=dialect, out=home)
    loaded = parity.load(weights, framework="torch")
    images = np.random.default_rng(0).standard_normal((2, 3, *loaded.config.image_size))
    with torch.no_grad():
        ours = loaded.model.eval()(torch.from_numpy(images)).logits.numpy()
    assert error(reload(home)(images), ours) < 1e-12
    started = parity.load(init, framework="torch").model.state_dict()["blocks.0.mlp.fc1.weight"]
    assert error(loaded.model.state_dict()["blocks.0.mlp.fc1.weight"], started) > 1e-5  # it was trained
    *_, hop = hops(weights)
    assert hop.source == init.name
    assert hop.dialect.startswith(dialect)
    assert hop.done[-1] == "start point of a training run"


def test_a_model_of_timm(data_dir, tmp_path, monkeypatch):
    model = timm_models.small("vit_tiny_patch16_224", img_size=(21, 15), patch_size=(7, 5))
    folder = tmp_path / "source"
    folder.mkdir()
    init = timm_models.saved(folder, model)
    weights = fine_tuned(init, data_dir, tmp_path / "run", monkeypatch)
    check(init, "timm", weights, tmp_path / "home", timm_models.reload)


def test_a_model_of_transformers(data_dir, tmp_path, monkeypatch):
    from tests.support import hf_models

    sizes = {**hf_models.SIZES, **hf_models.MLP, **hf_models.CLASSES, "num_hidden_layers": 2}
    model = hf_models.build("ViTForImageClassification", "ViTConfig", **sizes)
    processor = hf_models.transformers.ViTImageProcessor(size={"height": 21, "width": 10})
    init = hf_models.save(model, tmp_path / "source", processor)
    weights = fine_tuned(init, data_dir, tmp_path / "run", monkeypatch)
    check(init, "hf-vit", weights, tmp_path / "home", hf_models.reload())


def test_a_file_of_big_vision(data_dir, tmp_path, monkeypatch):
    """Which is in no package: its names and shapes come back, and the logits through them."""
    cfg = TINY.replace(depth=2, act="gelu_tanh")
    rng = np.random.default_rng(0)
    drawn = {n: 0.2 * rng.standard_normal(x.shape) for n, x in parameters(cfg).items()}
    write_weights(tmp_path / "made.safetensors", cfg, drawn, PIXELS.replace(license="mit"))
    init = tmp_path / "source.npz"
    parity.convert(tmp_path / "made.safetensors", to="big-vision", out=init)
    weights = fine_tuned(init, data_dir, tmp_path / "run", monkeypatch)
    home = tmp_path / "home.npz"

    def reload(path):
        model = parity.load(path, framework="torch").model.eval()
        return lambda images: model(torch.from_numpy(images)).logits.detach().numpy()

    check(init, "big-vision", weights, home, reload)
    with np.load(init) as before, np.load(home) as after:
        names = [name for name in before.files if name.startswith("params") or "/" in name]
        assert names
        for name in names:
            if "head" not in name:
                assert before[name].shape == after[name].shape, name
    first, hop = hops(weights)
    assert (first.source, hop.digest) == ("made.safetensors", digest_of([init]))
    assert any(line.startswith("drawn anew: head.weight (3, ") for line in hop.done)
    assert json.loads(read_file_header(weights).metadata["vit.preprocess"])["mean"] == [0.2, 0.3, 0.4]
