"""Train with one framework where the other cannot be imported: ``train_alone.py FRAMEWORK FOLDER``.

Two updates on the digits: stopped after one, resumed, exported. It ends in a traceback if anything tries
to import the other framework, or Grain, which loads JAX.
"""

import json
import sys
from pathlib import Path

framework, folder = sys.argv[1], Path(sys.argv[2])
other = {"torch": ("jax", "jaxlib", "flax", "optax", "orbax"), "jax": ("torch", "torchvision")}[
    framework
]
hidden = {*other, "grain"}


class Hiding:
    """A finder of modules that does not find some of them, as if they were not installed."""

    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *where):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, *where)


sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]

from parity.cli import run  # noqa: E402

command = [
    *("--framework", framework, "--data-dir", str(folder / "data"), "--run-dir", str(folder / "run")),
    *("--model.depth", "1", "--recipe.epochs", "1", "--recipe.batch-size", "448"),
    *("--recipe.warmup-epochs", "0", "--recipe.log-every-steps", "1"),
]
assert run("train", [*command, "--stop-after", "1"]) == 0
assert not (folder / "run" / "weights.safetensors").exists()
assert run("train", command) == 0
events = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
assert [(event["kind"], event["step"]) for event in events] == [
    *(("start", 0), ("train", 1), ("start", 1), ("train", 2), ("test", 2))
]

from vit_config import read_weights  # noqa: E402

weights = read_weights(folder / "run" / "weights.safetensors")
assert weights.config.depth == 1
assert weights.preprocess is not None
assert weights.preprocess.class_names == tuple("0123456789")
assert not hidden & set(sys.modules)
