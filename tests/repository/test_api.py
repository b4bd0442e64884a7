"""The public face: what the README sells is importable, lazy, and does what it says."""

import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import jax
import ml_dtypes
import numpy as np
import pytest
import torch

import parity
from tests.support.peers import redrawn
from tests.support.tiny import TINY
from vit_config import PRESETS, ConfigError, Preprocess, pretrained, write_weights
from vit_train import frameworks

NAME = "vit_tiny_patch16_224"
ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there_and_nothing_is_imported_early():
    code = "import parity, sys; print({'jax', 'torch', 'numpy', 'pydantic'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    for name in parity.__all__:
        assert callable(getattr(parity, name))
        assert getattr(parity, name).__doc__
    assert parity.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="no attribute 'wrong'"):
        parity.wrong  # noqa: B018


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (parity.read_checkpoint, pretrained.Reading),
        (parity.from_pretrained, pretrained.Fetching),
        (parity.save_pretrained, pretrained.Placing),
        (parity.push_to_hub, pretrained.Pushing),
    ],
)
def test_arguments_that_are_handed_on_complete_in_an_editor(function, options):
    taken = inspect.signature(function, eval_str=True).parameters.values()
    named = {each.name: each.annotation for each in taken if each.kind is each.KEYWORD_ONLY}
    for each in taken:
        if each.kind is each.VAR_KEYWORD:
            (further,) = get_args(each.annotation)
            named |= get_type_hints(further)
    named.pop("framework", None)  # which a twin's own method knows
    assert named == get_type_hints(options)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_model_is_loaded_in_the_type_that_is_asked_for(framework, tmp_path):
    path = tmp_path / "model.safetensors"
    write_weights(path, TINY, {n: each.astype(np.float32) for n, each in redrawn(TINY).items()})
    loaded = parity.load(path, framework=framework, dtype="bfloat16")
    assert "float32 rounded to bfloat16" in loaded.notes
    assert "bfloat16" in loaded.model.about.provenance
    images = np.zeros((2, *TINY.image_size, 3), np.float32)
    assert loaded.of_batch(images).shape == (2, 11)
    model, given = loaded.model, images.astype(ml_dtypes.bfloat16)
    if framework == "torch":
        given = torch.from_numpy(images).permute(0, 3, 1, 2).bfloat16()
    assert str(model.logits(given).dtype).endswith("bfloat16")
    with pytest.raises(ConfigError, match="expected one of"):
        parity.load(path, framework=framework, dtype="int8")


@pytest.mark.exhaustive  # a checker of types reads all of numpy and pydantic first
def test_a_users_file_is_checked_by_its_types(tmp_path):
    """Its four mistakes are reported, and nothing else."""
    (tmp_path / "user.py").write_text(
        "import parity\n"
        "import vit_torch\n"
        "from vit_config import Preprocess\n"
        'loaded = parity.load("a", framework="jax", dtype="bfloat16", preprocess=Preprocess())\n'
        'best: str | int = loaded.predict("cat.jpg")[0][0].label\n'
        'done = parity.export("a", "b", to="onnx", like="vit_tiny_patch16_224")\n'
        "bytes_written: int = done.path.stat().st_size\n"
        'parity.convert("a", to="hf", out="b", license="mit")\n'
        'model = vit_torch.ViT.from_pretrained("a", like="vit_tiny_patch16_224", dtype="float16")\n'
        'model.save_pretrained("b", to="hf", verify=True)\n'
        'parity.check("a", dtypes=("float64",)).passed\n'
        'parity.load("a", framework="keras")\n'
        'parity.load("a", framework="jax", likes="vit_tiny_patch16_224")\n'
        'parity.convert("a", to="hf", out="b", licence="mit")\n'
        'model.save_pretrained("b", into="hf")\n'
    )
    command = [str(Path(sys.executable).with_name("pyright")), "--outputjson", "user.py"]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    content = json.loads(done.stdout)["generalDiagnostics"]
    assert [each["range"]["start"]["line"] for each in content] == [11, 12, 13, 14], content
    for package in ("parity", "vit_config", "vit_jax", "vit_torch", "vit_train"):
        assert (ROOT / package / "py.typed").is_file()


def test_models_by_name_are_of_timms_shape():
    ours = parity.create_model(NAME, framework="torch", depth=1, num_classes=7)
    theirs = parity.create_model(NAME, framework="jax", depth=1, num_classes=7)
    assert ours.head.weight.shape == (7, 192)
    assert theirs.head.kernel.shape == (192, 7)
    again = parity.create_model(NAME, framework="torch", depth=1, num_classes=7)
    assert torch.equal(ours.head.weight, again.head.weight)
    other = parity.create_model(NAME, framework="torch", depth=1, num_classes=7, seed=1)
    assert not torch.equal(ours.head.weight, other.head.weight)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_pretrained_models_take_another_head_and_size(framework, tmp_path):
    path = tmp_path / "model.safetensors"
    arrays = {name: array.astype(np.float32) for name, array in redrawn(TINY).items()}
    write_weights(path, TINY, arrays)
    options = {"framework": framework, "pretrained": True}
    with jax.enable_x64(False):
        same = parity.create_model(str(path), **options)
        assert same.cfg == TINY
        height, width = TINY.image_size
        size = (2 * height, 3 * width)
        changed = parity.create_model(str(path), **options, num_classes=4, image_size=size)
        assert (changed.cfg.num_classes, changed.cfg.image_size) == (4, size)
        package = sys.modules[f"vit_{framework}"]
        actual = package.to_arrays(changed)
        assert actual["head.weight"].shape[0] == 4
        name = "blocks.0.attn.qkv.weight"
        np.testing.assert_array_equal(actual[name], arrays[name])
    with pytest.raises(ConfigError, match="keeps the weights' configuration, but depth would change it"):
        parity.create_model(str(path), **options, depth=2)


def test_check_takes_a_checkpoint_or_a_preset(tmp_path, monkeypatch):
    seen = []
    for name in ("check_config", "check_weights"):
        monkeypatch.setattr(f"parity.twins.check.{name}", lambda given, **how: seen.append((given, how)))
    path, images = tmp_path / "own.safetensors", np.zeros((1, *TINY.image_size, 3))
    for given in (path, str(path)):
        parity.check(given, images=images, seed=3)
        assert seen[-1][0] == given
        assert seen[-1][1]["images"] is images
    parity.check("digits", seed=3)
    assert (seen[-1][0], seen[-1][1]["subject"]) == (PRESETS["digits"], "digits")
    assert [how["seed"] for _, how in seen] == [3, 3, 3]


def test_check_diff_and_match_take_objects(tmp_path):
    report = parity.check(TINY, dtypes=("float64",))
    assert report.passed
    with pytest.raises(ConfigError, match="images go with a checkpoint"):
        parity.check(TINY, images=np.zeros((1, *TINY.image_size, 3)))
    a = parity.create_model(NAME, framework="torch", depth=1, image_size=(32, 48), num_classes=5)
    b = parity.create_model(NAME, framework="torch", depth=1, image_size=(32, 48), num_classes=5)
    images = torch.randn(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    assert parity.diff((a, images), (b, images)).equal
    with torch.no_grad():
        b.blocks[0].norm1.eps = 1e-2
    compared = parity.diff((a, images), (b, images))
    assert not compared.equal
    assert compared.causes[:1] == ("number",)
    arrays = {name: value.detach().numpy() for name, value in a.state_dict().items()}
    matched = parity.match(arrays, {name.upper(): value for name, value in arrays.items()})
    links = {link.a: link.b for link in matched.links}
    assert links["blocks.0.attn.qkv.weight"] == "BLOCKS.0.ATTN.QKV.WEIGHT"


def test_what_was_meant_is_said_of_wrong_arguments(tmp_path):
    model, path = parity.create_model("digits", framework="torch"), tmp_path / "digits.safetensors"
    parity.save(path, model, preprocess=Preprocess(mean=(0.5,), std=(0.5,)))
    loaded, image = parity.load(path, framework="torch"), np.zeros((8, 8, 1), np.uint8)
    for call, said in (
        (lambda: parity.create_model(None, framework="jax"), "got a NoneType"),  # type: ignore[arg-type]
        (lambda: parity.check(model), "got a ViT"),
        (lambda: parity.check("digits", dtypes="float64"), "give a list of float64, float32, bfloat16"),
        (lambda: parity.save_pretrained(tmp_path / "o", model), "the model stands first"),
        (lambda: parity.record(model, tmp_path / "a.trace").__enter__(), "a path stands first"),
        (lambda: loaded.predict(image, k="3"), "k = '3'"),
        (lambda: parity.assert_loaded(model, path, apart_from="b.*"), "b.*"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            call()
    sized = parity.convert(path, to="parity", out=tmp_path / "sized.safetensors", image_size=16)
    assert parity.load(sized.path, framework="torch").config.image_size == (16, 16)


def test_another_framework_is_bad_input():
    with pytest.raises(ConfigError, match=r"framework = .tf.; expected"):
        parity.create_model(NAME, framework="tf")  # type: ignore[arg-type]


@pytest.mark.parametrize("package", ["parity", "vit_config", "vit_jax", "vit_torch", "vit_train"])
def test_every_public_name_is_in_the_reference_and_nothing_else(package):
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text().splitlines()
    said = [line.removeprefix(f"::: {package}.") for line in page if line.startswith(f"::: {package}.")]
    public = getattr(importlib.import_module(package), "__all__", [])
    assert sorted(said) == sorted(public)


def test_a_reader_can_learn_the_public_names_in_an_hour():
    packages = ["parity", "vit_config", "vit_jax"]  # and vit_torch, which mirrors it
    public = [name for package in packages for name in importlib.import_module(package).__all__]
    assert len(public) <= 34
    assert importlib.import_module("vit_torch").__all__ == importlib.import_module("vit_jax").__all__


@pytest.mark.parametrize(("framework", "other"), [("torch", "jax"), ("jax", "torch")])
def test_a_model_is_created_where_the_other_framework_is_not_installed(framework, other):
    code = (
        f"import sys; sys.modules[{other!r}] = None\n"
        f"import parity; model = parity.create_model('vit_tiny_patch16_224', framework={framework!r},"
        " depth=1)\n"
        "print(type(model).__module__, model.cfg.hidden_size)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == [f"vit_{framework}.model", "192"], done.stderr


def test_the_framework_is_the_only_one_that_is_installed(tmp_path, monkeypatch):
    cfg = TINY.replace(depth=1)
    arrays = {name: each.astype("float32") for name, each in redrawn(cfg).items()}
    write_weights(tmp_path / "own.safetensors", cfg, arrays)
    for name in ("load", "create_model", "from_pretrained"):
        with pytest.raises(ConfigError, match="both installed; give framework"):
            getattr(parity, name)(NAME if name == "create_model" else tmp_path / "own.safetensors")
    for kept in ("jax", "torch"):
        monkeypatch.setattr(frameworks, "find_spec", lambda name, kept=kept: name == kept or None)
        assert parity.load(tmp_path / "own.safetensors").framework == kept
