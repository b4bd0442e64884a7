"""Predicting: a model of any dialect, from images to named classes, in both twins."""

import io
import itertools
import json
import os
import re
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from PIL import Image

import parity
from parity.cli import main
from parity.cli.support.answers import Answers, names_of
from parity.porting.models.loaded import BATCH, Prediction
from tests.support.dialect_proof import redraw
from tests.support.peers import import_timm, redrawn
from tests.support.tiny import TINY, error
from vit_config import ConfigError, InputError, MissingFileError, Preprocess, WeightsError, write_weights

TWINS = ("jax", "torch")
NAMES = tuple(f"class {i}" for i in range(TINY.num_classes))
PREPROCESS = Preprocess(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), crop_fraction=0.9, class_names=NAMES)


def pictures(count=3):
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (30 + i, 40, 3), np.uint8)) for i in range(count)]


def written(path, preprocess=PREPROCESS, dtype=np.float32, **changes):
    cfg = TINY.replace(**changes)
    write_weights(path, cfg, {n: a.astype(dtype) for n, a in redrawn(cfg).items()}, preprocess)
    return path


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "it.safetensors")


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("twin", TWINS)
def test_a_prediction_is_the_models_answer(file, twin):
    loaded = parity.load(file, framework=twin)
    assert (loaded.config, loaded.preprocess, loaded.class_names) == (TINY, PREPROCESS, NAMES)
    assert loaded.origins.keys() == set(TINY.fields())
    assert loaded.notes == ()
    images = pictures()
    batch = np.stack([PREPROCESS.normalise(_fitted(image)) for image in images])
    if twin == "jax":
        expected = np.asarray(loaded.model(jax.numpy.asarray(batch)).logits)
    else:
        with torch.no_grad():
            expected = loaded.model(torch.from_numpy(batch.transpose(0, 3, 1, 2).copy())).logits.numpy()
    logits = loaded.logits(images)
    assert logits.shape == (3, 11)
    assert logits.dtype == np.float32
    assert error(logits, expected) < 1e-6
    for prediction, row in zip(loaded.predict(images, k=2), softmax(expected), strict=True):
        best = np.argsort(-row)[:2]
        assert [each.label for each in prediction] == [NAMES[i] for i in best]
        np.testing.assert_allclose([each.probability for each in prediction], row[best], rtol=1e-5)


def _fitted(image):
    """Covering 21 / 0.9 = 23 by 15 / 0.9 = 16 pixels, then the centre."""
    ratio = min(image.height / 23, image.width / 16)
    size = round(image.width / ratio), round(image.height / ratio)
    whole = np.asarray(image.resize(size, Image.Resampling.BICUBIC))
    top, left = round((size[1] - 21) / 2), round((size[0] - 15) / 2)
    return whole[top : top + 21, left : left + 15]


@pytest.mark.parametrize("twin", TWINS)
def test_one_or_many_in_every_form(tmp_path, file, twin):
    loaded = parity.load(file, framework=twin)
    image = pictures(1)[0]
    image.save(tmp_path / "it.png")
    (expected,) = loaded.predict(image)
    assert len(expected) == 5
    assert isinstance(expected[0], Prediction)
    pixels = np.asarray(image)
    for same in (pixels, tmp_path / "it.png", str(tmp_path / "it.png"), [image], (image,), pixels[None]):
        assert loaded.predict(same) == [expected]
    again = loaded.predict(iter([image, pixels]))[1]
    assert [each.label for each in again] == [each.label for each in expected]
    assert len(loaded.predict(image, k=99)[0]) == TINY.num_classes


def test_more_than_a_batch_keeps_its_order(file):
    loaded = parity.load(file, framework="torch")
    images = pictures(BATCH + 2)
    logits = loaded.logits(images)
    assert logits.shape == (BATCH + 2, 11)
    assert error(logits[-1:], loaded.logits(images[-1])) < 1e-6


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_every_type_predicts(tmp_path, twin, dtype):
    path = written(tmp_path / "it.safetensors", dtype=np.dtype(dtype))
    with jax.enable_x64(dtype == "float64"):
        loaded = parity.load(path, framework=twin)
    logits = loaded.logits(pictures())
    assert logits.dtype == (np.float64 if dtype == "float64" else np.float32)
    assert len(loaded.predict(pictures())) == 3


def test_the_twins_predict_the_same(tmp_path):
    path = written(tmp_path / "it.safetensors", dtype=np.float64)
    with jax.enable_x64(True):
        ours = parity.load(path, framework="jax").logits(pictures())
    assert error(ours, parity.load(path, framework="torch").logits(pictures())) < 1e-12


def test_classes_without_names_are_numbers(tmp_path):
    path = written(tmp_path / "it.safetensors", PREPROCESS.replace(class_names=None))
    loaded = parity.load(path, framework="torch")
    (prediction,) = loaded.predict(pictures(1), k=1)
    assert prediction[0].label == int(loaded.logits(pictures(1)).argmax())


def test_a_softmax_in_the_model_is_not_taken_twice(tmp_path):
    path = written(tmp_path / "it.safetensors", head_activation="softmax")
    loaded = parity.load(path, framework="torch")
    (prediction,) = loaded.predict(pictures(1), k=11)
    assert [each.probability for each in prediction] == sorted(
        loaded.logits(pictures(1))[0], reverse=True
    )


def test_dropout_is_off_whatever_the_mode(tmp_path):
    loaded = parity.load(written(tmp_path / "it.safetensors", dropout_embed=0.5), framework="torch")
    expected = loaded.logits(pictures())
    loaded.model.train()
    np.testing.assert_array_equal(loaded.logits(pictures()), expected)
    assert loaded.model.training


@pytest.mark.parametrize("twin", TWINS)
def test_it_is_the_model_as_it_stands_now(file, twin):
    loaded = parity.load(file, framework=twin)
    before = loaded.logits(pictures())
    bias = loaded.model.head.bias
    if twin == "jax":
        bias.set_value(bias[...] + 1)
    else:
        with torch.no_grad():
            bias += 1
    np.testing.assert_allclose(loaded.logits(pictures()), before + 1, atol=1e-5)


def test_a_size_of_the_preprocessings_own(tmp_path):
    own = PREPROCESS.replace(image_size=(28, 25))
    path = written(tmp_path / "it.safetensors", own, dynamic_image_size=True)
    assert parity.load(path, framework="torch").logits(pictures()).shape == (3, 11)
    path = written(tmp_path / "fixed.safetensors", own)
    with pytest.raises(InputError, match="the image is 28x25, the model takes image_size = 21x15"):
        parity.load(path, framework="torch").predict(pictures())


def test_what_cannot_predict_says_why(tmp_path, file):
    path = written(tmp_path / "unknown.safetensors", None)
    with pytest.raises(InputError, match="state it with load"):
        parity.load(path, framework="torch").predict(pictures())
    given = parity.load(path, framework="torch", preprocess=PREPROCESS)
    assert given.predict(pictures()) == parity.load(file, framework="torch").predict(pictures())

    headless = written(tmp_path / "headless.safetensors", PREPROCESS, num_classes=0)
    loaded = parity.load(headless, framework="torch")
    with pytest.raises(InputError, match=r"no head to predict with .* and `parity embed` give"):
        loaded.predict(pictures())
    assert loaded.logits(pictures()).shape == (3, 30)

    few = written(tmp_path / "few.safetensors", PREPROCESS.replace(class_names=("cat", "dog")))
    with pytest.raises(WeightsError, match="2 class names"):
        parity.load(few, framework="torch")

    loaded = parity.load(file, framework="torch")
    for images, said in (([], "at least one"), (7, "images are a int"), ([7], "an image is a int")):
        with pytest.raises(InputError, match=said):
            loaded.predict(images)
    with pytest.raises(InputError, match="k = 0"):
        loaded.predict(pictures(), k=0)
    with pytest.raises(MissingFileError):
        loaded.predict(tmp_path / "nowhere.png")


@pytest.mark.parametrize("twin", TWINS)
def test_a_file_of_another_library_is_loaded_and_its_notes_are_kept(tmp_path, twin):
    import_timm()
    from torchvision.models import VisionTransformer

    model = redraw(VisionTransformer(14, 7, 3, 5, 30, 44, num_classes=11)).float()
    torch.save({"state_dict": model.state_dict()}, tmp_path / "model.pth")
    with pytest.raises(ConfigError, match="num_heads"):
        parity.load(tmp_path / "model.pth", framework=twin)
    loaded = parity.load(
        tmp_path / "model.pth", framework=twin, given={"num_heads": 5}, preprocess=PREPROCESS
    )
    assert loaded.origins["num_heads"] == "given"
    assert loaded.notes == ("stripped 'state_dict' from every name",)
    with torch.no_grad():
        image = PREPROCESS.normalise(np.full((1, 14, 14, 3), 99, np.uint8)).transpose(0, 3, 1, 2)
        expected = model(torch.from_numpy(image.copy())).numpy()
    assert error(loaded.logits(np.full((14, 14, 3), 99, np.uint8)), expected) < 1e-5


def test_many_images_are_answered_in_files(tmp_path, file, capsys, monkeypatch):
    folder = tmp_path / "many"
    folder.mkdir()
    for number, picture in enumerate(pictures(3)):
        picture.save(folder / f"{number}.png")
    (folder / "bad.png").write_text("no image")
    for empty in (io.StringIO("\n"), None):
        monkeypatch.setattr("sys.stdin", empty)
        for command, flag in (("predict", "--json"), ("embed", "--out")):
            argv = [command, str(file), "-", flag, str(tmp_path / "none"), "--framework", "torch"]
            assert main(argv) == 2
            assert capsys.readouterr().err.count("standard input is empty") == 1
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{folder}/2.png\n\n{folder}/0.png\n"))
    argv = ["predict", str(file), "-", str(folder / "bad.png"), str(folder / "1.png"), "--k", "2"]
    for flag in ("json", "csv", "features"):
        argv += [f"--{flag}", str(tmp_path / f"out.{flag}")]
    assert main([*argv, "--framework", "torch"]) == 1
    said = capsys.readouterr()
    assert "bad.png" in said.err
    lines = [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    assert [Path(each["image"]).name for each in lines] == ["1.png", "2.png", "0.png"]
    loaded = parity.load(file, framework="torch")
    for each, answers in zip(lines, loaded.predict([t["image"] for t in lines], k=2), strict=True):
        assert [c["label"] for c in each["classes"]] == [a.label for a in answers]
        assert each["classes"][0]["probability"] == pytest.approx(answers[0].probability, rel=1e-5)
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert rows[0] == "image,label_1,probability_1,label_2,probability_2"
    assert rows[3].split(",")[1] == lines[2]["classes"][0]["label"]
    features = np.load(tmp_path / "out.features")
    batch = np.stack([PREPROCESS.normalise(_fitted(Image.open(t["image"]))) for t in lines])
    with torch.no_grad():
        wanted = loaded.model(torch.from_numpy(batch).permute(0, 3, 1, 2)).pooled.numpy()
    np.testing.assert_allclose(features, wanted, rtol=1e-5, atol=1e-6)
    argv = ["embed", str(file), str(folder), "--out", str(tmp_path / "f.npy"), "--framework", "torch"]
    assert main([*argv, "--names", str(tmp_path / "names.csv")]) == 1
    assert capsys.readouterr().out == ""
    names = (tmp_path / "names.csv").read_text().splitlines()[1:]
    assert [Path(each).name for each in names] == ["0.png", "1.png", "2.png"]
    np.testing.assert_allclose(np.load(tmp_path / "f.npy"), features[[2, 0, 1]], rtol=1e-5, atol=1e-6)


def test_a_pipe_is_no_file_that_is_missing(tmp_path, file):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(MissingFileError, match="is a pipe or a device, not an ordinary file"):
        parity.load(file, framework="torch").predict(tmp_path / "pipe.png")


def test_names_that_are_not_utf8_are_spelled_out(tmp_path, file, capsys, monkeypatch):
    odd = tmp_path / os.fsdecode(b"\xff.png")
    pictures(1)[0].save(odd, format="PNG")
    typed = io.TextIOWrapper(io.BytesIO(os.fsencode(odd) + b"\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", typed)
    argv = ["predict", str(file), "-", "--framework", "torch", "--csv", str(tmp_path / "out.csv")]
    assert main([*argv, "--json", str(tmp_path / "out.json")]) == 0
    assert "\\udcff.png,class" in (tmp_path / "out.csv").read_text()
    assert json.loads((tmp_path / "out.json").read_text())["image"] == str(odd)
    assert "\\udcff.png  class" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["predict", "--csv"], ["embed", "--out"]])
def test_without_a_usable_image_no_file_is_replaced(tmp_path, file, capsys, command):
    (tmp_path / "bad.png").write_text("no image")
    (tmp_path / "old").write_text("the answers of yesterday")
    name, flag = command
    bad, old = str(tmp_path / "bad.png"), tmp_path / "old"
    argv = [name, str(file), flag, str(old), "--framework", "torch"]
    assert (main([*argv, bad, bad]), old.read_text()) == (2, "the answers of yesterday")
    assert "no image of 2 could be used, see above; no file is written" in capsys.readouterr().err
    assert (main([*argv, bad]), old.read_text()) == (2, "the answers of yesterday")
    assert re.fullmatch(f"parity {name}: .*bad.png: not an image, .*\\n", capsys.readouterr().err)


@pytest.mark.parametrize("command", [["predict"], ["embed", "--out", "x.npy"]])
def test_no_image_is_a_mistake(tmp_path, file, capsys, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    status = main([command[0], str(file), *command[1:]])
    said = "no image; give files, folders of them, or - for names from standard input"
    assert (status, said in capsys.readouterr().err) == (2, True)
    assert sorted(tmp_path.iterdir()) == before


def test_names_are_taken_as_they_come():
    endless = (f"{number}.png\n" for number in itertools.count())
    assert next(names_of(["-"], endless)) == "0.png"


def test_a_model_without_a_head_gives_features_alone(tmp_path, capsys):
    file = written(tmp_path / "it.safetensors", num_classes=0)
    pictures(1)[0].save(tmp_path / "one.png")
    argv = ["predict", str(file), str(tmp_path / "one.png"), "--framework", "torch"]
    assert main(argv) == 2
    assert main([*argv, "--features", str(tmp_path / "out.npy")]) == 0
    assert np.load(tmp_path / "out.npy").shape == (1, TINY.hidden_size)


def test_how_far_it_is_is_told(capsys, monkeypatch):
    now = iter([0.0, 4.0, 20.0, 90.0])
    monkeypatch.setattr("parity.cli.support.answers.time.monotonic", lambda: next(now))
    answers = Answers("parity predict", json=None, csv=None, features=None, k=1)
    answers.tell(1, 8)
    answers.tell(2, 8)
    answers.tell(8, 8)
    assert capsys.readouterr().err == "parity predict: 2 of 8 images, 0.1 a second, 0:01:00 left\n"


@pytest.mark.parametrize("twin", TWINS)
def test_damage_is_noticed(file, twin):
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)
    with pytest.raises(WeightsError, match="damaged"):
        parity.load(file, framework=twin)


def test_convert_is_a_function_of_the_package(tmp_path, file):
    converted = parity.convert(file, to="parity", out=tmp_path / "half.safetensors", dtype="float16")
    assert converted.path == tmp_path / "half.safetensors"
    assert parity.read_checkpoint(converted.path).preprocess == PREPROCESS


def another_head(model):
    model.head = torch.nn.Linear(model.head.in_features, 7)


CHANGES = {
    "another head": (another_head, {}, r"head.weight: shape \(7, .* in the model.*reset_classifier"),
    "one half module": (lambda model: model.head.half(), {}, "head.bias: type float16, the others are"),
    "too few names": (
        lambda model: None,
        {"class_names": ("x",)},
        "1 class names, but num_classes = 11",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_load_would_refuse_is_not_saved(tmp_path, file, name):
    change, fields, said = CHANGES[name]
    model = parity.load(file, framework="torch").model
    change(model)
    before = file.read_bytes()
    with pytest.raises(WeightsError, match=said):
        parity.save(file, model, preprocess=PREPROCESS.replace(**fields))
    assert file.read_bytes() == before
    with pytest.raises(ConfigError, match="preprocess is a dict"):
        parity.save(file, model, preprocess={"mean": [0]})
    with pytest.raises(ConfigError, match=r"mesh is a int; give a jax\.sharding\.Mesh"):
        parity.load(file, framework="jax", mesh=3)


@pytest.mark.parametrize("classes", [3, 11, 13])
@pytest.mark.parametrize("twin", TWINS)
def test_names_go_with_the_head_they_belong_to(file, twin, classes):
    loaded = parity.load(file, framework=twin)
    loaded.predict(pictures(1))
    options = {"rngs": nnx.Rngs(0)} if twin == "jax" else {}
    loaded.model.reset_classifier(classes, "avg", **options)
    assert (loaded.config, loaded.preprocess) == (loaded.model.cfg, PREPROCESS.replace(class_names=None))
    (answer,) = loaded.predict(pictures(1), k=classes)
    assert sorted(each.label for each in answer) == list(range(classes))
    images = loaded.prepare(pictures(1))
    logits, pooled = loaded.seen_in_batch(images)
    again = parity.to_torch(loaded.model) if twin == "jax" else loaded.model.eval()
    with torch.no_grad():
        output = again(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    assert error(logits, output.logits.numpy()) < 1e-5
    assert error(pooled, output.pooled.numpy()) < 1e-5
