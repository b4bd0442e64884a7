"""What users hand to `parity diff` that cannot be compared, or is odd: one clear line, or it works."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.cli import main
from parity.verifier.diff import process
from tests.support.sides import ServedHere

pytestmark = pytest.mark.quick

HERE = Path(__file__).parents[3] / "support/bad_models.py"


@pytest.fixture
def diff(monkeypatch, capsys):
    """`parity diff` of two functions of bad_models.py, or of other things; status, output and error."""
    monkeypatch.setattr(process.subprocess, "Popen", ServedHere)
    return lambda *arguments: _diff(capsys, *arguments)


def _diff(capsys, *arguments):
    named = [f"{HERE}:{each}" if str(each).isidentifier() else str(each) for each in arguments[:2]]
    status = main(["diff", *named, *map(str, arguments[2:])])
    said = capsys.readouterr()
    return status, " ".join(said.out.split()), said.err


REFUSED = {
    ("plain", "deeper"): "not the same model: depth 2 in {a}, 4 in {b}",
    ("plain", "wider"): "not the same model: width 5 in {a}, 11 in {b}",
    ("plain", "larger_input"): "not the same model: input (2, 7) in {a}, (2, 9) in {b}",
    ("plain", "no_tensor"): "{b}: the model returns str, which contains no tensor",
    (
        "not_finite",
        "not_finite",
    ): "both models produce values that are not finite, {a} first at fc2 in,",
    ("masked", "masked_more"): "both models produce values that are not finite, {a} first at softmax in",
    ("plain", "raises"): "{b}: RuntimeError in {file}:175: no weights here\n",
    ("plain", "raising_model"): "{b}: KeyError in {file}:84: ",
    ("plain", "alone"): "{b}: returns a model without inputs; return (model, inputs)",
    ("plain", "no_model"): "{b}: builtins.int is not a model: expected a torch.nn.Module",
    ("plain", "three_things"): "{b}: expected (model, inputs), found a tuple of 3",
    (
        "plain",
        "wrong_shape",
    ): "{b}: RuntimeError in {file}:25: mat1 and mat2 shapes cannot be multiplied (2x6 and 7x5)",
    ("plain", "nowhere"): "{b}: {file} has no function nowhere",
    ("plain", "number"): "{b}: {file} has no function number",
    (
        "plain",
        "nowhere.py:model",
    ): "nowhere.py:model: nowhere.py: no such file; expected file.py:function",
    ("plain", "no.where:model"): "no.where:model: no module is named no.where",
    ("plain", "nowhere.trace"): "nowhere.trace: no such trace; give the folder that parity.record wrote",
}


@pytest.mark.parametrize(("names", "line"), REFUSED.items(), ids=[names[1] for names in REFUSED])
def test_one_clear_line_and_status_2(names, line, diff):
    status, out, error = diff(*names)
    a, b = (f"{HERE}:{name}" for name in names)
    assert (status, out) == (2, "")
    assert line.format(a=a, b=b, file=HERE) in error
    assert error.startswith("parity diff: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("kind", ["a_tuple", "a_dict", "a_dataclass", "a_model_output"])
def test_whatever_holds_tensors_can_be_returned(kind, diff):
    status, out, _ = diff("plain", kind)
    assert (status, "EQUAL" in out) == (0, True)


@pytest.mark.parametrize("name", ["never_called", "called_twice", "tokens", "float16", "bfloat16"])
def test_odd_models_are_equal_to_themselves(name, diff):
    own = ["--dtype", "own"] if name in ("float16", "bfloat16") else []
    assert diff(name, name, *own)[0] == 0


@pytest.mark.parametrize("names", [("plain", "not_finite"), ("not_finite", "plain")])
def test_what_is_not_finite_in_one_is_located(names, diff):
    status, out, _ = diff(*names)
    assert status == 1
    assert "fc2 in differs, everything after norm out agrees; not finite" in out


@pytest.mark.parametrize(("name", "status"), [("masked", 0), ("masked_elsewhere", 1)])
def test_infinities_of_a_mask_are_equal_where_they_are_in_both(name, status, diff):
    found, out, _ = diff("masked", name)
    assert found == status
    assert status == 0 or "softmax in differs, everything after norm out agrees; not finite" in out


def test_a_module_that_is_called_twice_is_aligned_call_by_call(diff):
    status, out, _ = diff("called_twice", "wrong_in_second_call")
    assert status == 1
    assert "(model): blocks.0 in (call 2) differs, everything after blocks.0 out agrees" in out


def test_a_model_in_training_mode_is_said_to_be_put_into_evaluation_mode(diff):
    status, _, error = diff("plain", "training")
    note = f"note: {HERE}:training: was given in training mode; it is compared in evaluation mode\n"
    assert (status, error) == (0, note)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"fc1": "fc9"}', "'fc9': B called no module of that name"),
        ('{"fc9": "fc1"}', "'fc9': A called no module of that name"),
        ('{"fc1": ', "expected a JSON object of A's module names to B's"),
        ("[1]", "expected a JSON object of A's module names to B's"),
        (None, "no such file; give a JSON object of A's module names to B's"),
    ],
)
def test_maps(content, line, diff, tmp_path):
    chosen = tmp_path / "map.json"
    if content is not None:
        chosen.write_text(content)
    status, _, error = diff("plain", "plain", "--map", chosen)
    assert (status, error) == (2, f"parity diff: {chosen}: {line}\n")


def test_a_shadow_of_what_can_be_run(diff, tmp_path):
    status, _, error = diff("plain", "plain", "--shadow", tmp_path)
    assert status == 2
    assert "--shadow goes with a trace, but" in error


@pytest.fixture
def trace(tmp_path):
    stream = np.random.default_rng(0)
    path = tmp_path / "a.trace"
    with parity.record(path) as recording, recording.step(x=stream.standard_normal((2, 7))):
        recording.log("forward", {"fc": stream.standard_normal((2, 5))}, port="out")
    return path


def _truncate(path):
    file = next(path.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-3])


def _edit(path):
    index = path / "index.json"
    index.write_text(index.read_text().replace("[2,5]", "[2,500]"))


def _break(path):
    index = path / "index.json"
    index.write_text(index.read_text()[:-9])


def _leave_open(path):
    (path / "index.json").unlink()


def _empty(path):
    shutil.rmtree(path)
    with parity.record(path):
        pass


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (_truncate, "truncated"),
        (_edit, "record it again"),
        (_break, "record it again"),
        (_leave_open, "the recording was not finished; record it again"),
        (_empty, "nothing was recorded in it"),
    ],
)
def test_damaged_traces(damage, line, trace, diff, tmp_path):
    whole = shutil.copytree(trace, tmp_path / "b.trace")
    assert diff(trace, whole)[0] == 0
    damage(trace)
    status, out, error = diff(trace, whole)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert line in error
    assert str(trace) in error


def test_processes_that_fail(trace, tmp_path, capfd):
    """With processes of their own: one that dies, one that is no Python, one that is not there."""
    dying = tmp_path / "dying.py"
    dying.write_text("import os\n\ndef model():\n    os._exit(7)\n")
    for python, line in (
        (sys.executable, "dying.py:model: its process ended with status 7; what it printed is above"),
        ("/bin/true", "dying.py:model: its process ended with status 0; what it printed is above"),
        (
            tmp_path / "nowhere",
            "nowhere: No such file or directory; give the path of a Python interpreter",
        ),
    ):
        assert main(["diff", str(trace), f"{dying}:model", "--python-b", str(python)]) == 2
        error = capfd.readouterr().err
        assert line in error
        assert error.count("\n") == 1
