"""Checkpoint folders against orbax."""

import re
import sys
import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from parity.porting.formats import (
    open_container,
)
from tests.support.container_files import (
    assert_same_bits,
    loaded,
    refused,
    values,
)
from vit_config import MissingFileError

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def orbax_folder(tmp_path_factory):
    """Checkpoints as orbax's own classes write them."""
    folder = tmp_path_factory.mktemp("orbax")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "standard", orbax_tree())
    ocp.PyTreeCheckpointer().save(folder / "tree", {**orbax_tree(), "name": "vit", "none": None})
    with ocp.CheckpointManager(folder / "manager") as manager:
        for step in (1, 2, 10):
            manager.save(step, args=ocp.args.StandardSave({"w": np.full(3, step)}))
    with ocp.CheckpointManager(folder / "items") as manager:
        parts = {
            "params": ocp.args.StandardSave({"w": np.ones(3)}),
            "extra": ocp.args.JsonSave({"a": 1}),
        }
        manager.save(5, args=ocp.args.Composite(**parts))
    return folder


def orbax_tree() -> dict:
    weights = {
        name: values(name) for name in ("float32", "float64", "float16", "bfloat16", "int64", "uint8")
    }
    return {"params": {"block": weights, "odd.na/me": np.ones(2)}, "list": [np.zeros(3), np.ones(1)],
            "jax": jnp.arange(6.0).reshape(2, 3).T, "step": 3}  # fmt: skip


@pytest.mark.parametrize("name", ["standard", "tree"])
def test_orbax_is_read(name, orbax_folder):
    container = open_container(orbax_folder / name)
    assert container.kind == "orbax"
    assert container.files == (orbax_folder / name,)
    expected = {f"params/block/{key}": array for key, array in orbax_tree()["params"]["block"].items()}
    expected |= {"params/odd.na/me": np.ones(2), "list/0": np.zeros(3), "list/1": np.ones(1)}
    expected["jax"] = np.arange(6.0, dtype=np.float32).reshape(2, 3).T
    assert_same_bits(loaded(container.tensors), expected)
    assert container.objects == {"step": 3, **({"name": "vit", "none": None} if name == "tree" else {})}


def test_the_extra_that_is_named_has_orbax(orbax_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)  # importing it fails
    with pytest.raises(MissingFileError) as caught:
        open_container(orbax_folder / "standard")
    extra = re.search(r"pip install 'vit-parity\[(\w+)\]'", str(caught.value))
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert any(each.startswith("orbax-checkpoint") for each in extras[extra[1]])


@pytest.mark.parametrize(
    ("inside", "item", "kind", "value"),
    [
        ("manager", "manager/10/default", "orbax (step 10, the newest of 3)", 10),
        ("manager/2", "manager/2/default", "orbax", 2),
        ("manager/2/default", "manager/2/default", "orbax", 2),
        ("items", "items/5/params", "orbax (step 5, the newest of 1)", 1),
        ("items/5", "items/5/params", "orbax", 1),
    ],
)
def test_orbax_steps_and_items(inside, item, kind, value, orbax_folder):
    container = open_container(orbax_folder / inside)
    assert container.kind == kind
    assert container.path == orbax_folder / inside
    assert container.files == (orbax_folder / item,)
    assert loaded(container.tensors)["w"].tolist() == [value] * 3


def test_orbax_with_several_items(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        parts = {name: ocp.args.StandardSave({"w": np.ones(3)}) for name in ("student", "teacher")}
        manager.save(1, args=ocp.args.Composite(**parts))
    with pytest.raises(MissingFileError, match="student, teacher; give the folder of one of them"):
        open_container(tmp_path / "run")
    assert list(open_container(tmp_path / "run" / "1" / "teacher").tensors) == ["w"]


def test_damaged_orbax(tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "run", {"w": np.arange(1000.0)})
    (tmp_path / "run" / "_METADATA").write_text("{")
    refused(tmp_path / "run")


def test_a_damaged_array_of_orbax(tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "run", {"w": np.random.default_rng(0).random(1000)})
    for path in (tmp_path / "run").rglob("d/*"):
        path.write_bytes(path.read_bytes()[:-30])
    refused(tmp_path / "run")


def test_orbax_has_the_budget_of_its_folder(tmp_path, monkeypatch):
    ocp.PyTreeCheckpointer().save(tmp_path / "zeros", {"w": np.zeros((300, 1000), np.float32)})
    assert_same_bits(
        loaded(open_container(tmp_path / "zeros").tensors), {"w": np.zeros((300, 1000), np.float32)}
    )
    monkeypatch.setattr("vit_config.files.held.FLOOR", 1000)
    refused(tmp_path / "zeros", "would make more than", "of tensors")
    (tmp_path / "zeros" / "_METADATA").write_text("[" * 100_000)
    refused(tmp_path / "zeros", "too deep")
