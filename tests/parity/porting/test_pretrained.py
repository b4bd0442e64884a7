"""Folders for the Hub: what timm and transformers open unchanged, with a card, and what is uploaded."""

import json
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import torch
from flax import nnx

import parity
from tests.support.peers import import_timm, redrawn
from tests.support.tiny import TINY
from vit_config import ConfigError, Preprocess, WeightsError, preset

CFG = preset("vit_tiny_patch16_224").replace(depth=2, num_classes=5)
PIXELS = Preprocess(class_names=("ant", "bee", "cat", "dog", "elk"), license="apache-2.0")


def model(framework="torch"):
    import vit_jax
    import vit_torch

    twin = {"jax": vit_jax, "torch": vit_torch}[framework]
    arrays = {name: array.astype(np.float32) for name, array in redrawn(CFG).items()}
    with jax.enable_x64(False):
        return twin.from_arrays(CFG, arrays)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_timm_opens_the_folder_unchanged(framework, tmp_path):
    folder = tmp_path / "vit"
    parity.save_pretrained(model(framework), folder, preprocess=PIXELS)
    theirs = import_timm().create_model(f"local-dir:{folder}", pretrained=True).eval()
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    ours = parity.from_pretrained(folder, framework="torch").eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(images), ours(images).logits, rtol=2e-4, atol=2e-4)
    card = (folder / "README.md").read_text()
    assert card.startswith(
        "---\nlibrary_name: timm\npipeline_tag: image-classification\nlicense: apache-2.0"
    )
    assert "| mean | (0.5, 0.5, 0.5) |" in card
    assert f"`vit_{framework}.safetensors` (parity, safetensors, SHA-256" in card


def test_transformers_opens_the_folder_unchanged(tmp_path):
    import_timm()
    from transformers import AutoModelForImageClassification

    folder = tmp_path / "vit"
    parity.save_pretrained(model(), folder, to="hf", preprocess=PIXELS)
    theirs = AutoModelForImageClassification.from_pretrained(folder).eval()
    assert theirs.config.id2label[2] == "cat"
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = model().eval()(images).logits
        torch.testing.assert_close(theirs(images).logits, ours, rtol=2e-4, atol=2e-4)


class Hub:
    """Stands in for the Hub: keeps what is uploaded."""

    def __init__(self):
        self.files = {}

    def __call__(self, token=None):
        self.token = token
        return self

    def create_repo(self, name, *, private, exist_ok):
        if name == "nobody/allowed":
            raise PermissionError("403 Forbidden: you may not\nand more")
        self.repository, self.private = name, private

    def upload_folder(self, *, repo_id, folder_path, commit_message, revision, create_pr):
        assert repo_id == self.repository
        self.files = {path.name: path.read_bytes() for path in folder_path.iterdir()}
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")


def test_what_is_pushed_is_what_is_saved(tmp_path, monkeypatch):
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    url = parity.push_to_hub(model(), "someone/vit", token="t", private=True, preprocess=PIXELS)
    assert url == "https://hub/someone/vit/commit/1"
    assert (hub.token, hub.private) == ("t", True)
    assert {"README.md", "config.json", "model.safetensors"} <= set(hub.files)
    assert json.loads(hub.files["config.json"])["architecture"] == "vit_tiny_patch16_224"
    assert 'timm.create_model("hf-hub:someone/vit", pretrained=True)' in hub.files["README.md"].decode()
    with pytest.raises(ConfigError, match=r"allowed: the Hub refused \(403 Forbidden: you may not\)"):
        parity.push_to_hub(model(), "nobody/allowed", preprocess=PIXELS)


def test_a_loaded_model_keeps_its_card_and_a_folder_is_not_overwritten(tmp_path):
    folder = tmp_path / "first"
    parity.save_pretrained(model(), folder, to="parity", preprocess=PIXELS)
    loaded = parity.load(folder, framework="torch")
    parity.save_pretrained(loaded, tmp_path / "second", to="parity")
    assert parity.load(tmp_path / "second", framework="torch").class_names == PIXELS.class_names
    with pytest.raises(ConfigError, match="already exists"):
        parity.save_pretrained(loaded, folder, to="parity")


def test_a_suffix_of_another_format_is_refused(tmp_path):
    """torch.load of such a file would fail in the middle of a pickle."""
    with pytest.raises(
        ConfigError, match=r"a\.pth: written is safetensors alone; of a \.safetensors file"
    ):
        parity.save(tmp_path / "a.pth", model())
    parity.save(tmp_path / "a.safetensors", model())
    parity.convert(tmp_path / "a.safetensors", to="parity", out=tmp_path / "a.pth")
    assert set(torch.load(tmp_path / "a.pth", weights_only=True)) >= {"head.weight"}
    parity.save(tmp_path / "of-no-format", model())
    with pytest.raises(ConfigError, match=r"a\.onnx: written is .* parity\.export makes \.onnx"):
        parity.save(tmp_path / "a.onnx", model())


WRONG = [
    ("load", {"framwork": "jax"}, "parity.load has no argument 'framwork'; did you mean 'framework'"),
    ("load", {"device": "cuda"}, "no argument 'device'; JAX computes on the accelerator"),
    ("export", {"out": "x", "to": "onnx", "data_type": "float16"}, "parity.export has no .*'dtype'"),
    ("convert", {"to": "hf", "output": "x"}, "parity.convert has no .*'output'.* 'out'"),
    ("from_pretrained", {"revison": "x"}, "parity.from_pretrained has no .* 'revision'"),
    (
        "push_to_hub",
        {"repo_id": "me/it", "force": 1},
        "'force'; its arguments are model, repo_id",
    ),
    ("load", {"given": "num_heads=3"}, "given is a str; give given={FIELD: VALUE}"),
    ("load", {"given": {"embed_dim": 3}}, "no field 'embed_dim'; did you mean 'hidden_size'"),
    ("load", {"override": {"text.dept": 3}}, "TextConfig has no field 'dept'; did you mean 'depth'"),
    ("load", {"preprocess": {"mean": 0}}, "preprocess is a dict; give vit_config.Preprocess"),
]


@pytest.mark.parametrize(("name", "arguments", "line"), WRONG)
def test_a_wrong_argument_is_named_as_the_caller_wrote_it(name, arguments, line, tmp_path):
    parity.save(tmp_path / "a.safetensors", model())
    with pytest.raises(ConfigError, match=line):
        getattr(parity, name)(tmp_path / "a.safetensors", **arguments)
    of_model: Any = model()
    with pytest.raises(ConfigError, match=r"path is a ViT; .* parity\.save\(path, model\)"):
        parity.save(of_model, tmp_path / "a.safetensors")


def test_the_preprocessing_may_be_a_file_as_the_commands_take_it(tmp_path):
    parity.save(tmp_path / "a.safetensors", model())
    (tmp_path / "pixels.json").write_text(PIXELS.to_json())
    loaded = parity.load(
        tmp_path / "a.safetensors", framework="torch", preprocess=tmp_path / "pixels.json"
    )
    assert loaded.preprocess == PIXELS


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_models_have_the_methods_and_remember_what_they_are(framework, tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    twin = type(model(framework))
    model(framework).save_pretrained(first, preprocess=PIXELS)
    with jax.enable_x64(False):
        reloaded = twin.from_pretrained(first, kernel="reference")
        assert isinstance(reloaded, twin)
        assert reloaded.blocks[0].attn.kernel == "reference"
        reloaded.save_pretrained(second, to="parity")
        again = parity.load(second, framework=framework)
        assert again.preprocess == PIXELS
        card = (second / "README.md").read_text()
        assert "license: apache-2.0" in card
        assert "ant, bee, cat, dog, elk" in card
        assert "- `first` (timm" in card
        reset = {"rngs": nnx.Rngs(0)} if framework == "jax" else {}
        reloaded.reset_classifier(3, **reset)
        assert reloaded.about.preprocess == PIXELS.replace(class_names=None)
        assert "first" in reloaded.about.provenance
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    assert reloaded.push_to_hub("someone/vit").endswith("/commit/1")
    assert json.loads(hub.files["config.json"])["num_classes"] == 3


def test_what_is_known_of_weights_goes_from_twin_to_twin(tmp_path):
    folder = tmp_path / "vit"
    parity.save_pretrained(model(), folder, to="parity", preprocess=PIXELS)
    here = parity.from_pretrained(folder, framework="torch")
    with jax.enable_x64(False):
        there = parity.to_jax(here)
        assert there.about == here.about
        assert parity.to_torch(there).about == here.about
    smaller = {"pretrained": True, "framework": "torch", "num_classes": 2}
    other = parity.create_model(str(folder), **smaller)
    assert other.about.preprocess == PIXELS.replace(class_names=None)
    parity.save(tmp_path / "x.safetensors", other)
    assert parity.load(tmp_path / "x.safetensors", framework="torch").class_names is None


def test_a_verified_folder_shows_the_table(tmp_path):
    folder = tmp_path / "vit"
    parity.save_pretrained(small(), folder, to="parity", preprocess=PIXELS, verify=True)
    card = (folder / "README.md").read_text()
    assert "| weights | run in | relative error | limit |" in card
    assert "| written | PyTorch twin | 0.0e+00 | 1e-12 |" in card
    assert "| written | JAX twin |" in card
    assert json.loads((folder / "verification.json").read_text())["passed"]


def test_a_folder_that_is_not_equal_is_not_written(tmp_path, monkeypatch):
    from parity.porting.verification import verify

    monkeypatch.setattr(verify, "relative_error", lambda a, b: 0.5)
    with pytest.raises(WeightsError, match=r"not written, since it is not equal: written run in"):
        parity.save_pretrained(small(), tmp_path / "vit", to="parity", verify=True)
    assert not list(tmp_path.iterdir())


def small():
    import vit_torch

    cfg = TINY.replace(num_classes=5)
    return vit_torch.from_arrays(cfg, redrawn(cfg))


def test_a_name_of_the_hub_has_a_revision_and_a_file_has_none(tmp_path, monkeypatch):
    folder = tmp_path / "vit"
    parity.save_pretrained(small(), folder, to="parity")
    asked = []

    def download(repository, revision, allow_patterns, **options):
        asked.append((repository, revision, options))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    options = {"token": "t", "cache_dir": "c", "force_download": True, "local_files_only": False}
    model = parity.from_pretrained("someone/vit", framework="torch", revision="v2", **options)
    assert asked == [("someone/vit", "v2", options)]
    assert "hf-hub:someone/vit@vit" in model.about.provenance
    with pytest.raises(ConfigError, match=r"revision = 'v2' is of a repository; this is none"):
        parity.from_pretrained(folder, framework="torch", revision="v2")
    monkeypatch.chdir(tmp_path.parent)
    parity.from_pretrained(f"{tmp_path.name}/vit", framework="torch")  # a folder that looks like one
    assert len(asked) == 1


def test_weights_of_a_tag_come_through_the_hub(tmp_path, monkeypatch):
    """timm's own folder of a tag, as the Hub would answer."""
    timm = import_timm()
    theirs = timm.create_model("test_vit").eval()
    timm.models._hub.save_for_hf(theirs, tmp_path / "hub", safe_serialization=True)
    asked = []

    def download(repository, revision, allow_patterns):
        asked.append(repository)
        return str(tmp_path / "hub")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    ours = parity.create_model("test_vit.r160_in1k", framework="torch", pretrained=True)
    assert asked == ["timm/test_vit.r160_in1k"]
    images = torch.randn(1, 3, 160, 160, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours(images).logits, theirs(images), rtol=1e-4, atol=1e-5)
