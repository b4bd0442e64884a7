"""The files of a trace: by another program, damaged, or refused; and the page that describes them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import parity
from parity.measure.site import STAGES
from parity.measure.traces import Site, writer
from parity.measure.traces.reader import is_trace
from vit_config import ConfigError, InputError, MissingFileError, WeightsError

PAGE = Path(__file__).parents[3] / "docs/traces.md"


def _record(path, **options):
    with parity.record(path, **options) as trace, trace.step(x=np.arange(6.0).reshape(2, 3)):
        trace.log("parameters", {"head": {"weight": np.ones((5, 3)), "bias": np.zeros(5)}})
        trace.log("loss", 0.5)
    return path


def test_plain_arrays(tmp_path):
    trace = parity.Trace(_record(tmp_path / "a.trace"))
    assert is_trace(tmp_path / "a.trace")
    assert [str(e.site) for e in trace.events] == ["x", "head.weight", "head.bias", "(model)"]
    np.testing.assert_array_equal(trace.read(Site(0, "parameters", "head.weight")), np.ones((5, 3)))
    assert trace.index.framework == ""
    with pytest.raises(ValueError, match="read-only"):
        trace.read(trace.events[0])[0] = 1


def test_a_trace_that_is_recorded_again_while_it_is_read_is_refused(tmp_path):
    trace = parity.Trace(_record(tmp_path / "a.trace"))
    _record(tmp_path / "a.trace", force=True)
    with pytest.raises(WeightsError, match="changed while it was read"):
        trace.read(trace.events[0])


def test_a_trace_of_another_program(tmp_path):
    """Made as docs/traces.md says, with nothing of this package."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    weight = np.arange(15, dtype=np.float32).reshape(5, 3)
    sample = np.ascontiguousarray(weight[::3, ::2])
    save_file({"w": weight, "sample": sample}, folder / "tensors.safetensors")
    event = {"step": 0, "file": "tensors.safetensors", "shape": [5, 3], "dtype": "float32"}
    index = {
        "format": "vit-parity trace",
        "version": 4,
        "modules": [{"path": "head", "kind": "their.Linear", "facts": {"bias": False}}],
        "events": [
            event | {"stage": "parameters", "path": "head.weight", "tensor": "w"},
            event
            | {"stage": "forward", "path": "head", "port": "out", "call": 1, "tensor": "sample"}
            | {"spacing": [3, 2]},
        ],
    }
    (folder / "index.json").write_text(json.dumps(index))
    trace = parity.Trace(folder)
    np.testing.assert_array_equal(trace.read(Site(0, "parameters", "head.weight")), weight)
    np.testing.assert_array_equal(trace.read(trace.events[1]), [[0, 2], [9, 11]])
    assert trace.events[1].shape == (5, 3)
    assert trace.modules["head"].facts == {"bias": False}


def _edit(**changes):
    def damage(folder):
        index = json.loads((folder / "index.json").read_text())
        index["events"][1] |= changes
        (folder / "index.json").write_text(json.dumps(index))

    return damage


def _truncate(name):
    def damage(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return damage


def _flip(folder):
    path = folder / "00000.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)


def _text(text):
    return lambda folder: (folder / "index.json").write_bytes(text)


def _read_all(folder):
    trace = parity.Trace(folder)
    return [trace.read(event) for event in trace.events]


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (_truncate("index.json"), WeightsError, "not valid JSON"),
        (_text(b"\xff\xfe"), WeightsError, "damaged, not text"),
        (_text(b"[" * 100_000), WeightsError, "nested too deep"),
        (_text(b'{"version": ' + b"9" * 5000 + b"}"), WeightsError, "digits"),
        (_text(b'{"format": "other", "version": 1}'), WeightsError, "TraceIndex.format = 'other'"),
        (_text(b'{"version": 1}'), WeightsError, "TraceIndex.version = 1"),
        (_text(b'{"steps": 2}'), WeightsError, "has no field 'steps'"),
        (lambda folder: (folder / "index.json").unlink(), MissingFileError, "holds no index.json"),
        (
            lambda folder: (folder / "00000.safetensors").unlink(),
            MissingFileError,
            "safetensors is missing",
        ),
        (_truncate("00000.safetensors"), WeightsError, "truncated"),
        (_flip, WeightsError, "do not match their digest"),
        (_edit(shape=[3, 50]), WeightsError, r"announces float64 of shape \(3, 50\) for head.weight"),
        (_edit(shape=[2**62, 2**62]), WeightsError, "announces"),
        (_edit(begin=10**9), WeightsError, "announces"),
        (_edit(begin=None), WeightsError, "announces"),
        (_edit(begin=-1), WeightsError, "begin"),
        (_edit(spacing=[0, 1]), WeightsError, "announces"),
        (_edit(dtype="float32"), WeightsError, "announces float32"),
        (_edit(tensor="7"), WeightsError, "it is not there"),
        (_edit(stage="middle"), WeightsError, "stage"),
        (_edit(step=-1), WeightsError, "step"),
        (_edit(stage="batch", path="x"), WeightsError, "two events of step 0 are x"),
        (_edit(path="head.bias"), WeightsError, "two events of step 0 are head.bias"),
        (_edit(file="../a.trace/00000.safetensors"), WeightsError, "file"),
        (_edit(file="/etc/passwd"), WeightsError, "file"),
        (_edit(file="x" * 5000), WeightsError, "file"),
        (_edit(file=".."), WeightsError, "file"),
    ],
)
def test_damage_is_one_line(tmp_path, damage, kind, words):
    folder = _record(tmp_path / "a.trace")
    damage(folder)
    with pytest.raises(kind, match=words) as caught:
        _read_all(folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert "\n" not in message
    assert len(message) < 1500


def test_refusals(tmp_path):
    folder = _record(tmp_path / "a.trace")
    with pytest.raises(ConfigError, match=r"a\.trace: already exists; .*--force .force=True. to"):
        parity.record(folder)
    _record(folder, force=True)
    with pytest.raises(MissingFileError, match="no such folder"):
        parity.record(tmp_path / "no" / "a.trace")
    with pytest.raises(MissingFileError, match="no such trace"):
        parity.Trace(tmp_path / "none")
    with pytest.raises(ConfigError, match="neither a torch"):
        parity.record(tmp_path / "b.trace", {"a": 1})
    recorder = parity.record(tmp_path / "b.trace")
    with pytest.raises(ConfigError, match=r"outside of `with parity\.record"), recorder.step():
        pass
    with recorder as trace:
        with pytest.raises(ConfigError, match="outside a step"):
            trace.log("loss", 1.0)
        with trace.step():
            with pytest.raises(ConfigError, match="unknown stage 'losses'"):
                trace.log("losses", 1.0)
            with pytest.raises(InputError, match="loss: expected arrays or trees of them, found str"):
                trace.log("loss", "low")
            with pytest.raises(ConfigError, match="cannot hold the type complex128"):
                trace.log("loss", 1j)
            with pytest.raises(ConfigError, match="within another step"), trace.step():
                pass
        with pytest.raises(ConfigError, match="outside a step"):
            trace.log("loss", 1.0)


def test_many_files_and_equal_tensors_once(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "SMALL", 0)
    monkeypatch.setattr(writer, "FILE_BYTES", 1000)
    monkeypatch.setattr(writer, "WAITING_FILES", 1)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((5, 13)) for _ in range(23)]
    with parity.record(tmp_path / "a.trace") as trace, trace.step():
        for i, array in enumerate([*arrays, *arrays]):
            given = array.copy()
            trace.log("forward", given, path=f"m{i}")
            given[:] = 0  # the program goes on with its own memory
    assert trace.total_bytes == 23 * arrays[0].nbytes
    trace = parity.Trace(tmp_path / "a.trace")
    assert 12 <= len(list((tmp_path / "a.trace").glob("*.safetensors"))) <= 23
    for i, array in enumerate([*arrays, *arrays]):
        np.testing.assert_array_equal(trace.read(Site(0, "forward", f"m{i}", "")), array)


def test_tensors_of_all_sizes_and_types(tmp_path, monkeypatch):
    """Alone, or in a row with others."""
    monkeypatch.setattr(writer, "SMALL", 50)
    rng = np.random.default_rng(0)
    shapes = [(), (0, 3), (1,), (3, 5), (2, 3, 2), (7, 3), (100,), (2, 3)] * 3
    types = ["float32", "float64", "int64", "bool", "float16", "uint8", "float32"]
    arrays = [(9 * rng.standard_normal(s)).astype(types[i % 7]) for i, s in enumerate(shapes)]
    with parity.record(tmp_path / "a.trace") as trace:
        for step in range(3):
            with trace.step():
                for i, array in enumerate(arrays):
                    trace.log("forward", array.T + array.dtype.type(step), path=f"m{i}")
    trace = parity.Trace(tmp_path / "a.trace")
    assert trace.steps == (0, 1, 2)
    for step in range(3):
        for i, array in enumerate(arrays):
            read = trace.read(Site(step, "forward", f"m{i}", ""))
            assert read.dtype == array.dtype
            np.testing.assert_array_equal(read, array.T + array.dtype.type(step))


def test_a_full_disk_is_noticed(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "write_stream", fail)
    monkeypatch.setattr(writer, "FILE_BYTES", 10)
    with pytest.raises(OSError, match="No space left"):
        _record(tmp_path / "a.trace")
    assert not list(tmp_path.iterdir())


def _snippets():
    text = PAGE.read_text(encoding="utf-8")
    return dict(re.findall(r"<!-- (\w+) -->\n```python\n(.*?)```", text, re.DOTALL))


def _run(name, folder, **names):
    path = folder / f"{name}.trace"
    exec(_snippets()[name], {"parity": parity, "path": path, **names})
    trace = parity.Trace(path)
    return {event.stage for event in trace.events}


def test_the_pages_snippets_run(tmp_path):
    import jax
    import optax
    import torch
    from flax import linen, nnx

    x, y = np.ones((3, 5), np.float32), np.array([0, 6, 2])
    model = torch.nn.Linear(5, 7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = [(torch.from_numpy(x), torch.from_numpy(y))]
    stages = _run("torch", tmp_path, torch=torch, model=model, optimizer=optimizer, batches=batches)
    assert stages == set(STAGES)

    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    model = nnx.Linear(5, 7, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, x, y):
        loss, gradients = nnx.value_and_grad(lambda model: cross_entropy(model(x), y).mean())(model)
        optimizer.update(model, gradients)
        return loss

    stages = _run(
        "nnx", tmp_path, model=model, optimizer=optimizer, train_step=train_step, batches=[(x, y)]
    )
    assert stages == set(STAGES) - {"clipped", "learning rate"}

    model, transform = linen.Dense(7), optax.sgd(0.1, momentum=0.9)
    params = model.init(jax.random.key(0), x)

    @jax.jit
    def update(params, opt_state, gradients):
        updates, opt_state = transform.update(gradients, opt_state)
        return optax.apply_updates(params, updates), opt_state

    names = {
        "params": params,
        "opt_state": transform.init(params),
        "loss_and_gradients": jax.jit(
            jax.value_and_grad(lambda params, x, y: cross_entropy(model.apply(params, x), y).mean())
        ),
        "update": update,
        "batches": [(x, y)],
    }
    stages = _run("linen", tmp_path, model=model, **names)
    assert stages == set(STAGES) - {"clipped", "learning rate"}
    assert _run("arrays", tmp_path, **names) == stages - {"forward"}


def test_the_page_names_every_field_and_stage():
    text = PAGE.read_text(encoding="utf-8").partition("## The format")[2]
    described = set(re.findall(r"^\| `([\w ]+)`", text, re.MULTILINE))
    formats = parity.measure.traces.format
    expected = {*formats.TraceIndex.fields(), *formats.Event.fields(), *STAGES}
    assert described == expected


@pytest.mark.parametrize("steps", ["a", "12", 3, [-1], [0.5], [None]])
def test_steps_that_are_none_are_refused(steps, tmp_path):
    with pytest.raises(ConfigError, match=r"^steps = .*: must be several numbers of steps, counted"):
        parity.record(tmp_path / "a.trace", steps=steps)


@pytest.mark.parametrize("steps", [[0, 2], range(0, 3, 2), np.array([2, 0]), {0, 2}, iter([0, 2])])
def test_steps_in_any_collection(steps, tmp_path):
    with parity.record(tmp_path / "a.trace", steps=steps) as trace:
        for step in range(4):
            with trace.step():
                trace.log("loss", step)
    assert parity.Trace(tmp_path / "a.trace").steps == (0, 2)
