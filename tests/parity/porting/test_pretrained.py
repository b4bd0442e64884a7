"""Folders for the Hub: what timm and transformers open unchanged, with a card, and what is uploaded."""

import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch

import parity
from tests.support.peers import import_timm, redrawn
from vit_config import ConfigError, Preprocess, preset

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

    def upload_folder(self, *, repo_id, folder_path, commit_message):
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
