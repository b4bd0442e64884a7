"""A run of timm's that goes on here, by the command."""

import json

import numpy as np
import pytest
import tensorflow_datasets as tfds

from parity.cli import main
from parity.runs.folder import differing, framework_of, read_run
from parity.runs.foreign import read_foreign
from tests.support.runs_foreign import STEPS, timm_file
from tests.support.tiny_tfds import png, tiny_image, write_tiny_set

DATA = "tfds:tiny_rectangles"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """timm's file after three epochs, and a data set that makes as many updates an epoch."""
    folder = tmp_path_factory.mktemp("timm")
    write_tiny_set(
        folder / "data",
        splits={"train": 8 * STEPS + 1, "test": 3},
        features={
            "image": tfds.features.Image(shape=(12, 6, 3), encoding_format="png"),
            "label": tfds.features.ClassLabel(num_classes=7),
        },
        record=lambda split, index, rng: {
            "image": png(tiny_image(index % 3, rng, (12, 6))), "label": index % 7
        },
    )  # fmt: skip
    live, path = timm_file(folder / "theirs", batch_size=8)
    return folder, live, path


@pytest.mark.parametrize("to", ["jax", "torch"])
def test_a_run_of_timms_goes_on_here(place, to, tmp_path, capsys):
    folder, live, path = place
    argv = ["convert-run", str(path), str(tmp_path / "run"), "--to", to, "--data", DATA]
    assert main([*argv, "--data-dir", str(folder / "data")]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert f"{live.step} updates done" in said
    assert "order" in said  # the data comes in another one
    assert framework_of(tmp_path / "run") == to
    own, theirs = read_run(tmp_path / "run"), read_foreign(path)
    assert differing(own.state, theirs.state) == []
    weights = dict(live.model.named_parameters())
    np.testing.assert_array_equal(
        own.state.params["head.weight"], weights["head.weight"].detach().numpy()
    )
    train = ["train", "--framework", to, "--config", str(tmp_path / "run" / "run.json")]
    place_of = ["--run-dir", str(tmp_path / "run"), "--data-dir", str(folder / "data")]
    assert main([*train, *place_of, "--stop-after", str(live.step + STEPS)]) == 0
    assert read_run(tmp_path / "run").state.step == live.step + STEPS


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "does not say what it was trained on; give --data"),
        (["--set", 'rope={"kind": "axial"}'], "give --set rope=ROPE; rope = "),
        (
            ["--set", 'rope={"kind": "axial"}'],
            "open; rope: JSON with kind, theta, axes, pairs; it does not say",
        ),
        (["--data", "digits"], "give data like what it was trained on"),
        (["--data", DATA, "--step", "3"], "--step 3: goes with a run folder only"),
        (["--data", DATA, "--recipe", "other.json"], "beta2"),
    ],
)
def test_what_cannot_go_on(place, flags, words, tmp_path, capsys, monkeypatch):
    folder, _, path = place
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.json").write_text(json.dumps({"beta2": 0.9}))
    argv = ["convert-run", str(path), "out", "--to", "jax", "--data-dir", str(folder / "data")]
    assert main([*argv, *flags]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["other.json"]
