"""What is no checkpoint as it stands is called what it is, with what makes one of it."""

import json
import shutil

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from parity.porting.formats import open_container
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.verification.verified import convert_verified
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of, refused
from tests.support.tiny import TINY
from vit_config import Preprocess, WeightsError, write_weights
from vit_config.errors import UnstatedError


@pytest.fixture(scope="module")
def state():
    return {name: torch.from_numpy(each) for name, each in arrays_of(TINY).items()}


def narrow(state, dtype, **beside):
    """A state whose matrices are in eight bits, with tensors beside each of them."""
    tensors = {n: each.to(dtype) if each.ndim == 2 else each for n, each in state.items()}
    for ending, value in beside.items():
        stems = [name.removesuffix("weight") for name, each in state.items() if each.ndim == 2]
        tensors |= {f"{stem}{ending}": value for stem in stems}
    return tensors


UNFIT = {
    "ZeRO 3": (lambda s: {n: torch.empty(0) for n in s}, "44 of its 44 .* empty.*zero_to_fp32.py"),
    "ZeRO 3 under module": (lambda s: {"module": {n: torch.empty(0) for n in s}}, "zero_to_fp32.py"),
    "fairscale": (
        lambda s: {"model": {"flat_param_0": torch.ones(9)}, "shard_metadata": {"param_metadata": [{}]}},
        "FSDP joined and cut, such as .*flat_param_0; .*consolidate_shard_weights",
    ),
    "bitsandbytes": (lambda s: narrow(s, torch.int8, SCB=torch.ones(3)), "its scale of .3,., expected"),
    "four bits": (lambda s: {**s, "head.weight.absmax": torch.ones(3)}, "by bitsandbytes, in 4 bits"),
    "GPTQ": (lambda s: {**s, "blocks.0.mlp.fc1.qweight": torch.ones(3)}, "by GPTQ or AWQ"),
    "int8": (lambda s: narrow(s, torch.int8), "in 8 bits .*int8.*16 or 32 bits"),
    "float8": (lambda s: narrow(s, torch.float8_e4m3fn), "in 8 bits .*float8_e4m3fn"),
    "float8 with other scales": (
        lambda s: narrow(s, torch.float8_e5m2, own_scale=torch.ones(1)),
        "with scales such as .*own_scale",
    ),
    "frames": (
        lambda s: {**s, "patch_embed.proj.weight": torch.ones(30, 3, 2, 7, 5)},
        "axis of time, 2 frames each",
    ),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_tensors_that_are_no_weights_as_they_stand(kind, state, tmp_path):
    make, said = UNFIT[kind]
    torch.save(make(state), tmp_path / "model.pth")
    with pytest.raises(WeightsError, match=said):
        read_checkpoint(tmp_path / "model.pth")


def test_files_of_other_programs_are_named(tmp_path):
    arrays = (np.ones((3, 4), np.float32), np.zeros(5))
    np.save(tmp_path / "alone.npy", arrays[0])
    for name, before in (("leaves.eqx", b""), ("told.eqx", json.dumps({"depth": 3}).encode() + b"\n")):
        with (tmp_path / name).open("wb") as file:
            file.write(before)
            for array in arrays:
                np.save(file, array)
    (tmp_path / "graph.onnx").write_bytes(b"\x08\x08\x12\x07pytorch" + bytes(40))
    (tmp_path / "bare.onnx").write_bytes(b"\x08\x0a\x3a\x20" + bytes(40))
    expected = {"alone.npy": "one array of numpy", "leaves.eqx": "Equinox", "told.eqx": "Equinox",
                "graph.onnx": "ONNX", "bare.onnx": "ONNX"}  # fmt: skip
    for name, said in expected.items():
        alone = tmp_path / name.replace(".", "-")
        alone.mkdir()
        shutil.copy(tmp_path / name, alone)
        (alone / "config.json").write_text("{}")
        for path in (tmp_path / name, alone):
            with pytest.raises(WeightsError, match=said):
                open_container(path)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_shard_of_torch_alone_is_refused_and_its_folder_is_read(state, tmp_path):
    dcp.save({"model": state}, checkpoint_id=tmp_path / "shards", no_dist=True)
    with pytest.raises(WeightsError, match=r"shards: .* give the folder, with the file \.metadata"):
        open_container(next((tmp_path / "shards").glob("*.distcp")))
    with pytest.raises(UnstatedError, match="num_heads"):  # a model
        read_checkpoint(tmp_path / "shards")


def test_a_part_that_is_not_there_is_refused_and_one_that_is_shows_its_names(state, tmp_path, capsys):
    torch.save({"ema": state, "head": {"scale": torch.ones(2)}}, tmp_path / "two.pth")
    torch.save({"a": {"x": torch.ones(2)}, "b": {"y": torch.ones(2)}}, tmp_path / "none.pth")
    own, out = tmp_path / "own.safetensors", tmp_path / "out.safetensors"
    write_weights(own, TINY, arrays_of(TINY))
    convert(own, to="timm", out=tmp_path / "timm.pth")
    cases = {
        ("two.pth", "em"): ["nothing in it begins with 'em'; there is ema (timm-vit)"],
        ("two.pth", "head"): ["under 'head', whose tensors are head.scale ...; there is ema"],
        ("none.pth", "b"): ["under 'b'; its tensors are b.y ..."],
        ("none.pth", "c"): ["nothing in it begins with 'c'; there is a, b"],
        ("own.safetensors", "ema"): ["--part ema: by its header", "leave --part out"],
        ("timm.pth", "blocks"): ["--part blocks: by its header", "leave --part out"],
    }
    for (name, part), said in cases.items():
        refused(
            capsys, tmp_path, said, "convert", tmp_path / name, out, "--to", "parity", "--part", part
        )


def test_what_a_dialect_cannot_be_is_a_sentence(tmp_path):
    cfg = TINY.replace(class_token=False, pool="mean", act="gelu_tanh",
                       image_size=(15, 15), patch_size=(5, 5))  # fmt: skip
    write_weights(tmp_path / "own.safetensors", cfg, arrays_of(cfg))
    convert(tmp_path / "own.safetensors", to="hf-siglip-classifier", out=tmp_path / "hf")
    tensors = open_container(tmp_path / "hf").tensors
    bare = {n: torch.from_numpy(t.load()) for n, t in tensors.items() if "classifier" not in n}
    torch.save(bare, tmp_path / "bare.pth")
    given = {"num_heads": 5, "norm_eps": 1e-6, "act": "gelu_tanh"}
    said = "is no model of transformers' SigLIP with a classifier: it always has a classifier"
    with pytest.raises(WeightsError, match=said):
        read_checkpoint(tmp_path / "bare.pth", dialect="hf-siglip-classifier", given=given)


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("mode", ["center", "squash"])
def test_pixels_that_transformers_crops_elsewhere_are_said(mode, tmp_path):
    cfg = TINY.replace(image_size=(15, 15), patch_size=(5, 5), depth=1)
    pixels = Preprocess(crop_mode=mode, crop_fraction=15 / 17 if mode == "squash" else 1.0)
    write_weights(tmp_path / "own.safetensors", cfg, arrays_of(cfg), pixels)
    for to, expected in (("hf", mode == "center"), ("timm", False)):
        done = convert_verified(read_checkpoint(tmp_path / "own.safetensors"), to=to, out=tmp_path / to)
        said = [each for each in done.verification.not_run if each.startswith("pixels: ")]
        assert [("a pixel before" in each) for each in said] == [True] * expected
