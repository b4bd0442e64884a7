"""No import goes up a floor or across it: each package in a fresh interpreter."""

import subprocess
import sys

import pytest


def _loaded(code):
    """The top-level modules that a fresh interpreter has after running `code`."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import vit_config", {"jax", "flax", "torch", "vit_jax", "vit_torch", "parity", "tensorflow"}),
        ("import vit_jax", {"torch", "vit_torch", "parity", "tensorflow", "grain"}),
        ("import vit_torch", {"jax", "flax", "vit_jax", "parity", "tensorflow", "grain"}),
        (
            "import vit_torch.train.loop, vit_torch.train.checkpoint, vit_torch.train.program",
            {"jax", "flax", "vit_jax", "parity", "tensorflow", "grain"},
        ),
        ("import parity", {"jax", "torch", "vit_jax", "vit_torch"}),
        ("import vit_train.data", {"torch", "vit_torch", "parity", "tensorflow"}),
        ("import vit_train.conduct", {"torch", "vit_torch", "parity", "tensorflow"}),
        ("import vit_jax.train.run", {"torch", "vit_torch", "parity", "tensorflow"}),
        ("import parity.cli.support.train_options", {"jax", "torch"}),
        ("import parity.cli.dispatch", {"jax", "torch"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_import_loads_only_its_floor(code, absent):
    assert not _loaded(code) & absent
