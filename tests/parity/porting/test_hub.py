"""Names on the Hub, without a network: a cache made here, and a client that answers what it is told."""

import json
from typing import Any
from unittest import mock

import huggingface_hub
import jax
import numpy as np
import pytest
import torch
from huggingface_hub import constants, errors
from PIL import Image
from safetensors.numpy import save_file

import parity
from parity.cli import main
from parity.porting.formats.weights_folder import WEIGHTS
from parity.porting.opening import hub
from parity.porting.opening.provenance import from_header
from tests.support.dialect_proof import redraw
from tests.support.peers import import_timm, redrawn
from tests.support.tiny import TINY, error
from vit_config import (
    ConfigError,
    MissingFileError,
    Preprocess,
    WeightsError,
    preset,
    preset_preprocess,
    write_weights,
)
from vit_config.presets import from_timm

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TAG = "test_vit.r160_in1k"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def snapshot(cache, repository, revision="main", commit=COMMIT):
    """The folder of a repository in the cache, as the Hub's client lays it out."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / revision).write_text(commit)
    made = folder / "snapshots" / commit
    made.mkdir(parents=True)
    return made


def arrays():
    return {name: array.astype(np.float32) for name, array in redrawn(TINY).items()}


def test_a_cached_repository_is_loaded_converted_and_inspected(cache, tmp_path, capsys):
    folder = snapshot(cache, "someone/vit-tiny")
    write_weights(folder / "model.safetensors", TINY, arrays(), Preprocess())
    name = "hf-hub:someone/vit-tiny"
    assert hub.locate(name).path == folder
    for asked in (name, f"{name}@main", f"{name}@{COMMIT}"):
        assert parity.load(asked, framework="torch").config == TINY
    with jax.enable_x64(False):
        assert parity.load(name, framework="jax").preprocess == Preprocess()

    converted = parity.convert(name, to="parity", out=tmp_path / "x.safetensors", dtype="float64")
    assert converted.hops[-1].source == f"hf-hub:someone/vit-tiny@{COMMIT}"
    header = parity.read_checkpoint(converted.path).container.metadata
    assert from_header(header, "it") == converted.hops
    assert main(["inspect", name, "--depth", "0"]) == 0
    assert name in capsys.readouterr().out


def test_one_weights_file_is_enough_and_safetensors_go_first(cache, monkeypatch):
    folder = snapshot(cache, "someone/several")
    asked = []
    real = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda *args, **options: asked.append(options["allow_patterns"]) or real(*args, **options),
    )
    write_weights(folder / "pytorch_model.bin", TINY, arrays())
    assert hub.locate("hf-hub:someone/several").path == folder
    assert len(asked) == 1 + WEIGHTS.index("pytorch_model.bin")
    asked.clear()
    write_weights(folder / "model.safetensors", TINY, arrays())
    assert hub.locate("hf-hub:someone/several").path == folder
    ((*config, weights),) = asked
    assert weights == "model.safetensors"
    assert {"config.json", "preprocessor_config.json"} <= set(config)


def test_shards_come_with_their_index(cache, monkeypatch):
    folder = snapshot(cache, "someone/large")
    head = {name: array for name, array in arrays().items() if name.startswith("head")}
    body = {name: array for name, array in arrays().items() if name not in head}
    names = {"model-00001-of-00002.safetensors": body, "model-00002-of-00002.safetensors": head}
    for name, tensors in names.items():
        save_file(tensors, folder / name)
    places = {tensor: name for name, tensors in names.items() for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    patterns = []
    real = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda *args, **options: patterns.extend(options["allow_patterns"]) or real(*args, **options),
    )
    fields = {name: getattr(TINY, name) for name in TINY.fields()}
    loaded = parity.load("hf-hub:someone/large", framework="torch", dialect="timm", given=fields)
    assert loaded.config == TINY
    assert "model-*-of-*.safetensors" in patterns


@pytest.mark.parametrize("twin", ["jax", "torch"])
def test_a_name_of_timms_predicts_as_timm_does(cache, twin):
    timm = import_timm()
    from timm.data import create_transform, resolve_model_data_config
    from timm.models import save_for_hf

    model = timm.create_model(TAG, pretrained=False, num_classes=1000)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=generator)
    model.eval()
    save_for_hf(model, snapshot(cache, f"timm/{TAG}"), safe_serialization=True)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (201, 177, 3), np.uint8))
    transform: Any = create_transform(**resolve_model_data_config(model))
    with torch.no_grad():
        expected = model(transform(image)[None]).numpy()

    loaded = parity.load(f"timm:{TAG}", framework=twin)
    assert loaded.config == preset(TAG)
    assert loaded.preprocess.replace(class_names=None) == preset_preprocess(TAG)
    assert error(loaded.logits(image), expected) < 2e-6
    ((best, *_),) = loaded.predict(image)
    probabilities = torch.from_numpy(expected).softmax(dim=1)
    assert best.probability == pytest.approx(float(probabilities.max()), rel=1e-4)
    default = parity.load("timm:test_vit", framework=twin)  # the default tag is that one
    np.testing.assert_array_equal(default.logits(image), loaded.logits(image))


def test_the_tag_decides_where_a_repository_serves_several(cache):
    """timm's config.json names one architecture; another of the same tensors may be asked for."""
    names = ("vit_base_patch16_clip_quickgelu_224.openai", "vit_base_patch16_clip_224.openai")
    first, second = (hub.parse(f"timm:{name}") for name in names)
    assert first.id == second.id == "timm/vit_base_patch16_clip_224.openai"
    assert (first.preset, second.preset) == names
    assert [preset(name).act for name in names] == ["quick_gelu", "gelu"]


def test_what_was_asked_for_goes_before_what_lies_beside_the_weights(cache):
    folder, timm = snapshot(cache, f"timm/{TAG}"), import_timm()
    timm.models.save_for_hf(timm.create_model(TAG, pretrained=False), folder, safe_serialization=True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architecture": "vit_tiny_patch16_224"}))
    assert parity.load(f"timm:{TAG}", framework="torch").config == preset(TAG)
    with pytest.raises(WeightsError, match=r"but .* \(config\.json"):
        parity.load(f"hf-hub:timm/{TAG}", framework="torch")


def test_weights_of_timms_that_are_not_on_the_hub_are_refused():
    kinds = {"url": 0, None: 0}
    for name in from_timm.architectures():
        for tag, entry in from_timm.tags(name).items():
            if entry["weights"] in kinds:
                kinds[entry["weights"]] += 1
                with pytest.raises(ConfigError, match=r"not on the Hub|has no weights of the tag"):
                    hub.parse(f"timm:{name}.{tag}")
            else:
                assert hub.parse(f"timm:{name}.{tag}").id == entry["weights"]
    assert all(kinds.values())
    with pytest.raises(ConfigError, match="has no pretrained weights"):
        hub.parse("timm:vit_paper")
    with pytest.raises(ConfigError, match="did you mean 'vit_tiny_patch16_224'"):
        hub.parse("timm:vit_tinny_patch16_224")


@pytest.mark.parametrize(
    "name", ["org", "org/name/more", "org/name@", "org /name", "/name", "https://org/n"]
)
def test_a_misspelled_name_is_refused(name):
    with pytest.raises(ConfigError, match="expected hf-hub:ORG/NAME"):
        hub.locate(f"hf-hub:{name}")


def test_a_name_that_the_client_does_not_like_is_refused(cache):
    with pytest.raises(ConfigError, match=r"hf-hub:org/x{200}: "):
        hub.locate(f"hf-hub:org/{'x' * 200}")


def test_paths_win(cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "timm:it.safetensors").write_bytes(b"")
    assert str(hub.locate("timm:it.safetensors").path) == "timm:it.safetensors"
    assert not hub.is_name("timm:it.safetensors")
    assert hub.is_name("timm:it")
    assert hub.locate(tmp_path).path == tmp_path


def test_a_name_without_its_prefix_is_told_how_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("google/vit-base", "no such file or folder; on the Hub it would be hf-hub:google/vit-base")
    refused("vit_tiny_patch16_224", "timm's weights of it are timm:vit_tiny_patch16_224")
    refused("digits", "it is a preset, and it has no weights")
    (tmp_path / "google").mkdir()
    refused("google/vit-base", "no such file or folder; give the path of a checkpoint")
    for rest in ("", "/resolve/main/model.safetensors"):
        refused(
            f"https://huggingface.co/google/vit-base{rest}", "on the Hub it is hf-hub:google/vit-base"
        )
    refused("https://example.com/vit.pth", "is an address, which is not read; download it")


def test_a_name_on_the_hub_is_no_place_to_write(tmp_path):
    write_weights(tmp_path / "it.safetensors", TINY, arrays())
    with pytest.raises(ConfigError, match=r"^hf-hub:me/vit: is a name on the Hub; write a folder"):
        parity.convert(tmp_path / "it.safetensors", to="timm", out="hf-hub:me/vit")


def refused(name, *said):
    with pytest.raises(MissingFileError) as caught:
        parity.load(name, framework="torch")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{name}: ")
    for each in said:
        assert each in message


def test_offline_and_not_in_the_cache(cache):
    refused("hf-hub:someone/else", str(cache), "HF_HUB_OFFLINE is set")
    snapshot(cache, "someone/else")
    refused("hf-hub:someone/else@v2", "HF_HUB_OFFLINE is set")
    refused("hf-hub:someone/else", "has none of model.safetensors")


class TooSlowError(Exception):
    """As the clients of HTTP have them."""


def answered(error):
    return error("no\nmore", response=mock.MagicMock())


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            answered(errors.GatedRepoError),
            "is gated; ask for access at https://huggingface.co/org/it and set HF_TOKEN",
        ),
        (
            answered(errors.RepositoryNotFoundError),
            "no such repository at https://huggingface.co/org/it, or it is private: set HF_TOKEN",
        ),
        (
            answered(errors.RevisionNotFoundError),
            "has no revision 'v2'",
        ),
        (errors.LocalEntryNotFoundError("no\nmore"), "cannot be reached; try again with a network"),
        (TooSlowError("too\nslow"), "cannot be downloaded (TooSlowError: too)"),
        (OSError(28, "No space left on device"), "cannot be downloaded (OSError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_the_client_says_becomes_one_line(monkeypatch, raised, said):
    def download(*args, **options):
        raise raised

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    refused("hf-hub:org/it@v2", said)


def test_pretrained_weights_are_checked(cache, capsys):
    model = redraw(import_timm().create_model(TAG, pretrained=False)).float()
    save_file(
        {name: tensor.numpy() for name, tensor in model.state_dict().items()},
        snapshot(cache, f"timm/{TAG}") / "model.safetensors",
    )
    assert main(["check", f"timm:{TAG}", "--dtype", "float64", "--batch-size", "1"]) == 0
    assert f"timm:{TAG}" in capsys.readouterr().out
    assert main(["check", "timm:vit_base_patch16_224.augreg_in21k"]) == 2
    assert "HF_HUB_OFFLINE is set" in capsys.readouterr().err


def test_a_cache_of_ones_own_is_all_that_is_looked_at(tmp_path):
    write_weights(snapshot(tmp_path / "mine", "some/vit") / "model.safetensors", TINY, arrays())
    options = {"framework": "torch", "local_files_only": True}
    assert parity.from_pretrained("some/vit", cache_dir=tmp_path / "mine", **options).cfg == TINY
    said = r"is not \(or not whole\) in .*other, and the Hub was not asked \(local_files_only\)"
    with pytest.raises(MissingFileError, match=said):
        parity.from_pretrained("some/vit", cache_dir=tmp_path / "other", **options)
