"""What a command loads to explain itself: help waits for nothing that only the work needs."""

import json
import subprocess
import sys
from pathlib import Path

from parity.cli.dispatch import COMMANDS
from parity.cli.support.flag_rules import docstring_of
from vit_config import Recipe, ViTConfig

ROOT = Path(__file__).parents[2]
TRAINING = ("train", "preflight")
"""Their flags are the fields of schema and recipe, which pydantic has."""
WORK = {"jax", "torch", "numpy", "ml_dtypes", "safetensors", "rich", "PIL", "matplotlib", "flax", "timm"}
ASK = """
import contextlib, io, json, sys
from parity.cli import main
found = {}
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main([command, "--help"])
    assert said.getvalue().startswith("usage: parity " + command), command
    found[command] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(found))
"""


class Narrower(ViTConfig, frozen=True):
    """A schema with fields of its own."""

    width: int = 1
    """Words in
    two lines."""
    silent: int = 2


def _loaded(*argv):
    done = subprocess.run([sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, check=True)
    return done


def test_help_loads_only_what_reads_the_command_line():
    commands = [*(name for name in COMMANDS if name not in TRAINING), *TRAINING]
    content = json.loads(_loaded("-c", ASK, *commands).stdout)
    loaded = {command: set(modules) for command, modules in content.items()}
    assert set(loaded) == set(COMMANDS)
    for command, modules in loaded.items():
        assert not modules & WORK, command
        assert "pydantic" not in modules or command in TRAINING, command


def test_every_field_of_schema_and_recipe_is_explained():
    for kind in (ViTConfig, Recipe):
        words = {name: docstring_of(name, kind) for name in kind.model_fields}
        assert [name for name, said in words.items() if not said] == []
    assert docstring_of("patch_size", Narrower) == docstring_of("patch_size", ViTConfig)
    assert docstring_of("width", Narrower) == "Words in two lines."
    assert docstring_of("silent", Narrower) is None


def test_help_of_the_script_loads_no_more():
    for argv in (["--help"], ["eval", "--help"]):
        lines = _loaded("-X", "importtime", "train.py", *argv).stderr.splitlines()
        modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
        assert "tyro" in modules
        assert not modules & WORK
        assert ("pydantic" in modules) == (argv == ["--help"])


def test_the_list_of_commands_needs_no_parser():
    lines = _loaded("-X", "importtime", "-m", "parity", "--help").stderr.splitlines()
    modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "parity" in modules
    assert not modules & {*WORK - {"rich"}, "tyro", "pydantic"}
