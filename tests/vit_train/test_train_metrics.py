"""What is said of a classifier, against scikit-learn; and the commands that say it."""

import json

import numpy as np
import pytest
from PIL import Image
from sklearn import metrics

from parity.cli import run
from tests.support.tiny import TINY
from tests.support.tiny_tfds import CLASS_NAMES, tiny_image, write_tiny_set
from vit_config import Preprocess, write_weights
from vit_config.parameters import parameters
from vit_train.display.metrics import Evaluation, SeveralEvaluation

CFG = TINY.replace(depth=1, num_classes=3)


@pytest.fixture(scope="module")
def evaluation():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 211)
    logits = rng.standard_normal((211, 7)).astype(np.float32)  # nothing is of the last class
    logits[np.arange(211), labels] += 1.5
    return Evaluation.of_logits(logits, labels)


def test_numbers_are_those_of_scikit_learn(evaluation):
    labels, predicted = evaluation.labels, evaluation.predicted
    options = {"labels": range(7), "average": None}
    assert evaluation.accuracy == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert evaluation.loss == pytest.approx(
        metrics.log_loss(labels, evaluation.probabilities, labels=range(7))
    )
    top = metrics.top_k_accuracy_score(labels, evaluation.probabilities, k=3, labels=range(7))
    assert evaluation.top(3) == pytest.approx(top)
    np.testing.assert_array_equal(
        evaluation.confusion, metrics.confusion_matrix(labels, predicted, labels=range(7))
    )
    recall = metrics.recall_score(labels, predicted, zero_division=np.nan, **options)
    precision = metrics.precision_score(labels, predicted, zero_division=np.nan, **options)
    np.testing.assert_allclose(evaluation.recall, recall)
    np.testing.assert_allclose(evaluation.precision, precision)
    assert evaluation.to_dict()["recall"][6] is None


def test_calibration_is_the_gap_between_confidence_and_accuracy():
    probabilities = np.array([[0.9, 0.1]] * 10 + [[0.6, 0.4]] * 10)
    labels = np.array([0] * 9 + [1] + [0] * 3 + [1] * 7)
    assert Evaluation(probabilities, labels).calibration_error == pytest.approx((0 + 0.3) / 2)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    write_tiny_set(folder / "data")
    rng = np.random.default_rng(3)
    arrays = {n: rng.standard_normal(x.shape).astype(np.float32) for n, x in parameters(CFG).items()}
    preprocess = Preprocess(mean=(0.3,) * 3, std=(0.3,) * 3, class_names=CLASS_NAMES)
    write_weights(folder / "w.safetensors", CFG, arrays, preprocess)
    write_weights(
        folder / "other.safetensors", CFG, arrays, preprocess.replace(class_names=("a", "b", "c"))
    )
    return folder


def test_both_twins_score_alike(capsys, place, tmp_path):
    data = ["--data", "tfds:tiny_rectangles", "--data-dir", str(place / "data")]
    actual = {}
    for framework in ("jax", "torch"):
        out = tmp_path / f"{framework}.json"
        flags = ["--framework", framework, "--batch-size", "7", "--json", str(out)]
        plot = ["--plot", str(tmp_path / "confusion.png")]
        assert run("eval", [str(place / "w.safetensors"), *data, *flags, *plot]) == 0
        actual[framework] = json.loads(out.read_text())
        printed = capsys.readouterr().out
        assert f"19 images: accuracy {actual[framework]['accuracy']:.4f}, loss " in printed
    assert actual["jax"]["confusion"] == actual["torch"]["confusion"]
    assert actual["jax"]["loss"] == pytest.approx(actual["torch"]["loss"], rel=1e-5)
    assert actual["jax"]["classes"] == list(CLASS_NAMES)
    assert (tmp_path / "confusion.png").read_bytes()[:4] == b"\x89PNG"
    assert run("eval", [str(place / "other.safetensors"), *data]) == 2
    said = capsys.readouterr().err
    assert "class 0 is 'a' in the model and 'red' in tfds:tiny_rectangles" in said
    assert run("eval", [str(place / "w.safetensors")]) == 2
    assert "does not say what it was trained on; give --data" in capsys.readouterr().err


def test_predict_names_the_classes(capsys, place, tmp_path):
    image = tmp_path / "one.png"
    Image.fromarray(tiny_image(1, np.random.default_rng(0))).save(image)
    said = {}
    for framework in ("jax", "torch"):
        flags = ["--framework", framework, "--k", "2"]
        assert run("predict", [str(place / "w.safetensors"), str(image), *flags]) == 0
        said[framework] = capsys.readouterr().out
    assert said["jax"] == said["torch"]
    assert said["jax"].startswith(f"{image}  ")
    assert said["jax"].count(", ") == 1


def test_predict_passes_over_what_is_no_image(capsys, place, tmp_path):
    rng = np.random.default_rng(0)
    names = ("a.gif", "b.JPG", "deep/c.png", "deep/bad.png")
    (folder := tmp_path / "some" / "deep").mkdir(parents=True)
    paths = [tmp_path / "some" / name for name in names]
    for path in paths[:3]:
        Image.fromarray(tiny_image(1, rng)).save(path)
    paths[3].write_bytes(paths[2].read_bytes()[:60])
    (folder / "._c.png").write_bytes(b"\0\5\x16\7")
    (folder / "notes.txt").write_text("no image")
    source = [str(place / "w.safetensors"), "--framework", "torch"]
    assert run("predict", [*source, str(paths[0]), *map(str, paths[1:3])]) == 0
    right = capsys.readouterr().out.splitlines()
    given = [paths[3], paths[0], tmp_path / "not\nthere.png", paths[1], tmp_path / "some"]
    assert run("predict", [*source, *map(str, given)]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [right[0], right[1], *right]
    assert [line.split(": ")[0] for line in printed.err.splitlines()] == ["parity predict"] * 4
    assert [line.split(": ")[2] for line in printed.err.splitlines()[:3]] == [
        "not an image, or damaged (image file is truncated)",
        "no such file; give the path of an image",
        "not an image, or damaged (image file is truncated)",
    ]
    assert printed.err.endswith("3 images were passed over, 5 answered\n")
    (tmp_path / "empty").mkdir()
    assert run("predict", [*source, str(paths[3]), str(tmp_path / "empty")]) == 2
    assert "no image in this folder; they end in .jpg" in capsys.readouterr().err


def test_the_f1_score_counts_both_kinds_of_mistakes():
    """Three labels are right, two are missed, one is not there: 2 * 3 / (4 + 5)."""
    labels = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]])
    logits = np.array([[1, 1, -1], [-1, -1, 1], [-1, 1, -1]], np.float32)
    assert SeveralEvaluation.of_logits(logits, labels).f1 == pytest.approx(6 / 9)
