"""No import goes up a floor or across it: packages in fresh interpreters, and the text of every file."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = (("vit_config",), ("vit_train",), ("vit_jax", "vit_torch"), ("parity",))
"""Packages from the ground up; those of one floor do not import each other."""
PACKAGES = ("measure", "porting", "exporting", "runs", "faults", "twins", "verifier", "cli")
"""Those of `parity` from the ground up: each may import those before it. Its root may import all."""
ROOMS = (
    ("choices", "match"),
    ("programs",),
    ("search",),
    ("causes",),
    ("report",),
    ("devices", "loaded", "precision", "recordings", "repro"),
)
"""Those of `parity.verifier` from the ground up; those of one floor do not import each other."""

PORTING = (
    ("formats",), ("dialects",), ("opening",), ("recognition",), ("reading",), ("text",), ("writing",),
    ("hosts", "verification"), ("fleet", "models"),
)  # fmt: skip
"""Those of `parity.porting` from the ground up; those of one floor do not import each other."""
TRAINING = (
    ("data", "display", "distilling", "frameworks", "hosts", "stopping"), ("sources", "augmentation"),
    ("batches", "folder"), ("task", "trainer"), ("loop", "dry_run"), ("conduct",),
)  # fmt: skip
"""Those of `vit_train` from the ground up; those of one floor do not import each other."""
INNER = {"parity.verifier": ROOMS, "parity.porting": PORTING, "vit_train": TRAINING}
STORIES = [(package, n) for package, floors in INNER.items() for n in range(len(floors))]


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module or name that a file imports anywhere, functions included, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: imports are absolute here"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _upward(package: str, below: set[str], depth: int) -> list[str]:
    """The imports of a package's files that are neither its own nor of what lies below it.

    Args:
        depth: how many parts of a dotted name say whose it is.
    """
    inner = {f"parity.{each}" for each in PACKAGES}
    ours = {part for floor in FLOORS for part in floor} if depth == 1 else inner
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted((ROOT / package.replace(".", "/")).rglob("*.py"))
        for line, name in _imports(path)
        if ".".join(name.split(".")[:depth]) in ours - below - {package}
    ]


def test_one_door_leads_up_and_is_opened_by_a_call():
    """A dotted name of a package above, in a string that may be imported."""
    above = re.compile(r"(parity|vit_jax|vit_torch|vit_train)(\.[a-z_]+)+")
    text = [
        (path.relative_to(ROOT).as_posix(), node.value)
        for package in ("vit_config", "vit_train", "vit_jax", "vit_torch")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and above.fullmatch(node.value)
        if not node.value.startswith(f"{package}.")
    ]
    assert text == [("vit_config/pretrained.py", "parity.porting.models.pretrained")]


def test_every_package_has_a_floor():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "evidence"}
    assert packages == {name for floor in FLOORS for name in floor}
    inner = {path.parent.name for path in (ROOT / "parity").glob("*/__init__.py")}
    assert inner == set(PACKAGES)


@pytest.mark.parametrize("floor", range(len(FLOORS)), ids=lambda floor: "+".join(FLOORS[floor]))
def test_no_arrow_goes_up_between_packages(floor):
    below = {name for each in FLOORS[:floor] for name in each}
    for package in FLOORS[floor]:
        assert not _upward(package, below, 1)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_arrow_goes_up_inside_parity(package):
    below = {f"parity.{each}" for each in PACKAGES[: PACKAGES.index(package)]}
    assert not _upward(f"parity.{package}", below, 2)
    outside = [
        f"{path.name}:{line} imports {name}"
        for path in (ROOT / "parity" / package).rglob("*.py")
        for line, name in _imports(path)
        if name == "parity" or (name.startswith("parity.") and name.split(".")[1] not in PACKAGES)
    ]
    assert not outside, "a package imports the public face above it"


@pytest.mark.parametrize(("package", "floor"), STORIES)
def test_no_arrow_goes_up_inside_a_package(package, floor):
    floors = INNER[package]
    below = {f"{package}.{room}" for each in floors[:floor] for room in each}
    depth = package.count(".") + 2
    for room in floors[floor]:
        allowed = below | {f"{package}.{room}"}
        path = ROOT / package.replace(".", "/") / room
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        upward = [
            f"{file.relative_to(ROOT)}:{line} imports {name}"
            for file in files
            for line, name in _imports(file)
            if name.startswith(f"{package}.") and ".".join(name.split(".")[:depth]) not in allowed
        ]
        assert files
        assert not upward


@pytest.mark.parametrize("package", INNER)
def test_every_room_has_a_floor(package):
    folder = ROOT / package.replace(".", "/")
    rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
    listed = {room for floor in INNER[package] for room in floor}
    loose = {each for each in listed if (folder / f"{each}.py").is_file()}
    assert rooms | loose == listed


def _loaded(code):
    """The top-level modules that a fresh interpreter has after running `code`."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import vit_config", {"jax", "flax", "torch", "vit_jax", "vit_torch", "parity", "tensorflow"}),
        (
            "import vit_train.batches.data, vit_train.conduct",
            {"jax", "flax", "torch", "vit_jax", "vit_torch", "parity", "tensorflow"},
        ),
        ("import vit_jax, vit_jax.train.run", {"torch", "vit_torch", "parity", "tensorflow"}),
        (
            "import vit_torch, vit_torch.train.run, vit_torch.train.checkpoint",
            {"jax", "flax", "vit_jax", "parity", "tensorflow"},
        ),
        (
            "import parity, parity.cli.dispatch, parity.cli.support.train_options",
            {"jax", "torch", "vit_jax", "vit_torch"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_import_loads_only_its_floor(code, absent):
    assert not _loaded(code) & absent


@pytest.mark.exhaustive  # `make environments` runs it where the other is not even installed
@pytest.mark.parametrize(("framework", "other"), [("torch", "JAX"), ("jax", "PyTorch")])
def test_either_framework_trains_resumes_and_exports_without_the_other(framework, other, tmp_path):
    command = [
        sys.executable,
        str(ROOT / "tests" / "support" / "train_alone.py"),
        framework,
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "continuing from step 1" in done.stdout
    assert f"{other} is not installed: score" in done.stdout
