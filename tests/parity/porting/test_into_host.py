"""A tower goes back into its host, and nothing else of the host changes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.cli.convert import main
from parity.porting.formats import open_container
from parity.porting.hosts.into import put_into
from parity.porting.models.files import load
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.dialect_proof import images_for
from tests.support.hf_models import transformers
from tests.support.hosts import HOSTS, build
from tests.support.tiny import error
from vit_config import ConfigError, WeightsError, write_weights

MATRIX = "blocks.1.mlp.fc2.weight"
SAMPLE = ("LLaVA on SigLIP", "Video-LLaVA", "Depth Anything")
REST = pytest.mark.exhaustive
EVERY = [pytest.param(name, marks=() if name in SAMPLE else REST) for name in HOSTS]


def trained(host: Path, out: Path, *, part: str | None = None, **changes: Any) -> Path:
    """A file of the project's own with the host's tower, one matrix of it another."""
    source = read_checkpoint(host, part=part)
    arrays = {name: each.load() for name, each in source.arrays.items()}
    arrays[MATRIX] = arrays[MATRIX] + np.asarray(0.5, arrays[MATRIX].dtype)
    write_weights(out, source.config.replace(**changes), arrays)
    return out


def digests(folder: Path) -> dict[str, str]:
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in folder.iterdir()}


def differing(one: Path, other: Path) -> list[str]:
    """The tensors of two files that are not the same, bit for bit; both have the same names."""
    before, after = open_container(one).tensors, open_container(other).tensors
    assert before.keys() == after.keys()
    return [name for name in before if before[name].load().tobytes() != after[name].load().tobytes()]


@pytest.fixture(scope="module")
def pali(tmp_path_factory) -> Path:
    """A PaliGemma in shards."""
    folder = tmp_path_factory.mktemp("host") / "pali"
    build("PaliGemma").save_pretrained(folder, max_shard_size="60KB")
    return folder


@pytest.mark.filterwarnings("ignore")  # of the library
def test_out_and_back(pali, tmp_path, capsys):
    """One shard is touched, the others and the index stay, and the host computes with the new tower."""
    new, out = trained(pali, tmp_path / "new.safetensors"), tmp_path / "out"
    assert main([str(new), str(out), "--into", str(pali)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 tensors of its hf-siglip-tokens changed in model-0000" in said
    assert "vision_tower.encoder.layers.1.mlp.fc2.weight" in said
    before, after = digests(pali), digests(out)
    report = json.loads((out / "tower.json").read_text())
    assert {name for name in before if before[name] != after[name]} == {*report["files"]}
    assert after.keys() - before.keys() == {"tower.json"}
    assert len(report["files"]) == 1 < len(before) - 3
    assert report["tower"][-1]["dialect"] == "parity"
    model = transformers.PaliGemmaForConditionalGeneration.from_pretrained(out, dtype=torch.float64)
    twin = load(new, framework="torch").model
    images = torch.from_numpy(images_for(read_checkpoint(new).config))
    with torch.no_grad():
        tokens = model.model.vision_tower(images).last_hidden_state
        assert error(twin.forward_features(images).numpy(), tokens.numpy()) <= 1e-12


@pytest.mark.filterwarnings("ignore")  # of the library
@pytest.mark.parametrize("name", EVERY)
def test_every_host(name, tmp_path):
    """One tensor of the tower is another, and one of the host."""
    build(name).save_pretrained(tmp_path / "host")
    part = HOSTS[name].part
    new = trained(tmp_path / "host", tmp_path / "new.safetensors", part=part)
    done = put_into(new, tmp_path / "host", tmp_path / "out", host_part=part)
    assert [*done.changed] == differing(tmp_path / "host", tmp_path / "out")
    assert len(done.changed) == 1
    again = read_checkpoint(tmp_path / "out", part=part)
    assert again.config == read_checkpoint(tmp_path / "host", part=part).config
    np.testing.assert_array_equal(
        again.arrays[MATRIX].load(), read_checkpoint(new).arrays[MATRIX].load()
    )


def test_every_host_is_in_the_table():
    page = (Path(__file__).parents[3] / "docs/hosts.md").read_text(encoding="utf-8")
    missing = [name for name in HOSTS if f"| {name} |" not in page]
    assert not missing, "write docs/hosts.md anew by evidence/hosts_table.py"


def test_through_timm(pali, tmp_path):
    """Another dialect on the way, and half the digits in the host."""
    convert(pali, to="timm", out=tmp_path / "timm")
    done = put_into(tmp_path / "timm", pali, tmp_path / "out")
    assert (done.changed, done.files) == ({}, ())
    assert digests(pali).items() <= digests(tmp_path / "out").items()
    convert(pali, to="timm", out=tmp_path / "half.safetensors", dtype="float16")
    convert(tmp_path / "half.safetensors", to="parity", out=tmp_path / "own.safetensors",
            given={"pool": "mean", "act": "gelu_tanh", "num_heads": 5, "norm_eps": 1e-6})  # fmt: skip
    done = put_into(tmp_path / "own.safetensors", pali, tmp_path / "half")
    assert "rounded to the host's float64" in " ".join(done.notes)
    assert all(change < 1e-3 for change in done.changed.values())


def test_what_does_not_fit(pali, tmp_path):
    """Both shapes are said, or both values; nothing is written."""
    config = read_checkpoint(pali).config
    source = read_checkpoint(pali)
    arrays = {name: each.load() for name, each in source.arrays.items()}
    wide = dict(arrays)
    for block in range(config.depth):
        wide |= {
            f"blocks.{block}.mlp.fc1.{leaf}": arrays[f"blocks.{block}.mlp.fc1.{leaf}"].repeat(2, 0)
            for leaf in ("weight", "bias")
        }
        wide[f"blocks.{block}.mlp.fc2.weight"] = arrays[f"blocks.{block}.mlp.fc2.weight"].repeat(2, 1)
    write_weights(tmp_path / "wide.safetensors", config.replace(mlp_dim=88), wide)
    with pytest.raises(ConfigError, match=r"mlp.fc1.weight is \(88, 30\), in the host \(44, 30\)"):
        put_into(tmp_path / "wide.safetensors", pali, tmp_path / "out")
    write_weights(tmp_path / "other.safetensors", config.replace(act="gelu", num_heads=3), arrays)
    with pytest.raises(
        ConfigError, match="num_heads = 3, in the host 5; act = gelu, in the host gelu_tanh"
    ):
        put_into(tmp_path / "other.safetensors", pali, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"--to: not with --into, .*; leave it out"):
        main([str(pali), str(tmp_path / "out"), "--into", str(pali), "--to", "hf"])
    assert not (tmp_path / "out").exists()
    convert(pali, to="hf", out=tmp_path / "ours")
    with pytest.raises(ConfigError, match="of this project's own, sealed, and no host"):
        put_into(pali, tmp_path / "ours", tmp_path / "out")


GIVEN = {"pool": "mean", "act": "gelu_tanh", "num_heads": 5, "norm_eps": 1e-6}


def scanned(pali: Path) -> dict[str, Any]:
    """The tower as openpi's tree has it: Big Vision's names, all blocks in one array, boxed."""
    from parity.porting.writing.conversion_plan import plan

    tensors = plan(read_checkpoint(pali), "big-vision-scan").tensors
    tree = {f"PaliGemma/img/{name}/value": each.load() for name, each in tensors.items()}
    return {**tree, "PaliGemma/llm/embedder/input_embedding/value": np.arange(12.0).reshape(3, 4)}


def spoiled(host: Path, kind: str) -> None:
    odd = host / "odd"
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "holes":
        odd.touch()
        os.truncate(odd, 2**30)
    elif kind == "many holes":
        odd.mkdir()
        for number in range(100):
            (odd / str(number)).touch()
            os.truncate(odd / str(number), 2**26)
    else:
        odd.symlink_to(
            {"device": "/dev/zero", "itself": ".", "nothing": "no", "outside": __file__}[kind]
        )


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        *((each, ConfigError, "odd is a link to a folder or to nothing, a device or a pipe")
          for each in ("pipe", "device", "itself", "nothing")),
        ("outside", ConfigError, "odd is a link to a file that is not below it"),
        ("holes", WeightsError, "only 0 of its 1073741824 bytes are on the disk"),
        ("many holes", WeightsError, r"would make more than \d+ of copies"),
    ],
)  # fmt: skip
def test_what_lies_beside_a_host_is_not_copied_blindly(pali, kind, error, said, tmp_path):
    host = shutil.copytree(pali, tmp_path / "host")
    spoiled(host, kind)
    with pytest.raises(error, match=said):
        put_into(trained(pali, tmp_path / "new.safetensors"), host, tmp_path / "out")
    assert {each.name for each in tmp_path.iterdir()} == {"host", "new.safetensors"}


def test_a_host_in_the_cache_of_the_hub_is_links(pali, tmp_path):
    snapshot = tmp_path / "model/snapshots/0123"
    blobs = shutil.copytree(pali, tmp_path / "model/blobs")
    snapshot.mkdir(parents=True)
    for each in blobs.iterdir():
        (snapshot / each.name).symlink_to(each)
    put_into(trained(pali, tmp_path / "new.safetensors"), snapshot, tmp_path / "out")
    assert not any(each.is_symlink() for each in (tmp_path / "out").iterdir())


def test_an_archive_of_numpy(pali, tmp_path):
    np.savez_compressed(tmp_path / "host.npz", **scanned(pali))
    new = trained(pali, tmp_path / "new.safetensors")
    done = put_into(new, tmp_path / "host.npz", tmp_path / "out.npz")
    name = "PaliGemma/img/Transformer/encoderblock/MlpBlock_0/Dense_1/kernel/value"
    assert [*done.changed] == [name] == differing(tmp_path / "host.npz", tmp_path / "out.npz")
    assert json.loads((tmp_path / "out.npz.tower.json").read_text())["changed"].keys() == {name}


@pytest.mark.parametrize("ocdbt", [True, False])
def test_an_orbax_checkpoint(pali, ocdbt, tmp_path):
    """As openpi keeps its parameters: every other array is as it was."""
    import orbax.checkpoint as ocp
    from flax import traverse_util

    tree = traverse_util.unflatten_dict(scanned(pali), sep="/")
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)
    with ocp.Checkpointer(handler) as saver:
        saver.save((tmp_path / "host").absolute(), args=ocp.args.PyTreeSave(tree))
    new = trained(pali, tmp_path / "new.safetensors")
    done = put_into(new, tmp_path / "host", tmp_path / "out")
    assert [*done.changed] == differing(tmp_path / "host", tmp_path / "out")
    assert len(done.changed) == 1


def test_a_file_of_pytorch(pali, tmp_path):
    """lerobot's names, in a training file with much beside; what its file leaves open the tower says."""
    tensors = open_container(pali).tensors
    state = {f"paligemma.model.{name}": torch.from_numpy(each.load()) for name, each in tensors.items()}
    torch.save({"model": state, "step": 7, "names": ["a"]}, tmp_path / "host.pt")
    new = trained(pali, tmp_path / "new.safetensors")
    done = put_into(new, tmp_path / "host.pt", tmp_path / "out.pt")
    assert [*done.changed] == differing(tmp_path / "host.pt", tmp_path / "out.pt")
    assert any("the host's file does not say num_heads, norm_eps, act" in note for note in done.notes)
    content = torch.load(tmp_path / "out.pt")
    assert (content["step"], content["names"]) == (7, ["a"])
