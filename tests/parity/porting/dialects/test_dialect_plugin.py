"""A dialect from another package, exactly as docs/dialects.md shows it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parity.measure.redraw import redraw
from tests.support.tiny import TINY
from vit_config import write_weights
from vit_config.parameters import parameters

pytestmark = pytest.mark.quick

REPOSITORY = Path(__file__).parents[4]
CONFIG = TINY.replace(
    image_size=(24, 24),
    patch_size=(8, 8),
    hidden_size=128,
    num_heads=2,
    patch_embed="linear_hwc",
    norm_eps=1e-5,
)
THERE_AND_BACK = """
import sys
from parity.porting.formats import open_container
from parity.porting.writing.conversion import convert
convert("own.safetensors", to="mylab", out="theirs.pt")
convert("theirs.pt", to="parity", out="back.safetensors")
print(*open_container("theirs.pt").tensors)
"""


@pytest.fixture(scope="module")
def blocks():
    text = (REPOSITORY / "docs/dialects.md").read_text()
    return dict(re.findall(r"```(python|toml)\n(.*?)```", text, flags=re.DOTALL))


@pytest.fixture(scope="module")
def installed(blocks, tmp_path_factory):
    """A folder in which the package of the page is installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "mylab_dialect.py").write_text(blocks["python"])
    info = folder / "mylab_dialect-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylab-dialect\nVersion: 1.0\n")
    entry = re.search(r'mylab = "(.*)"', blocks["toml"])[1]
    (info / "entry_points.txt").write_text(f"[parity.dialects]\nmylab = {entry}\n")
    return folder


def test_it_is_short(blocks):
    assert len(blocks["python"].splitlines()) < 80


def test_there_and_back(installed, tmp_path):
    arrays = {
        name: redraw(name, each.kind, each.shape, seed=0) for name, each in parameters(CONFIG).items()
    }
    write_weights(tmp_path / "own.safetensors", CONFIG, arrays)
    done = subprocess.run(
        [sys.executable, "-c", THERE_AND_BACK],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{REPOSITORY}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "layer2.before_mlp.bias" in done.stdout.split()
    back = read(tmp_path / "back.safetensors")
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def read(path):
    from vit_config import read_weights

    return read_weights(path).arrays
