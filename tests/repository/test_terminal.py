"""Nothing is printed beside the door through which text goes to the terminal."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PACKAGES = ("vit_config", "vit_train", "vit_jax", "vit_torch", "parity")
DOORS = {"vit_config/terminal.py": "print", "vit_config/screen.py": "Screen"}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}


def beside(source):
    """What a source calls to print: `print`, a console of rich, or `write` of a standard stream."""
    result = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in ("print", "Console", "Screen"):
            result.append(function.id)
        if isinstance(function, ast.Attribute):
            stream = function.value
            is_stream = isinstance(stream, ast.Attribute) and stream.attr in STREAMS
            if function.attr in ("write", "writelines") and is_stream:
                result.append("write")
            if function.attr in ("Console", "print_exception", "print_exc"):
                result.append(function.attr)
    return result


def test_nothing_is_printed_beside_the_door():
    actual = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if calls := [call for call in beside(path.read_text()) if DOORS.get(name) != call]:
                actual[name] = calls
    assert actual == {}


@pytest.mark.parametrize(
    "source",
    ["print(1)", "Console()", "console.Console()", "sys.stderr.write(1)", "traceback.print_exc()"],
)
def test_a_door_beside_it_is_seen(source):
    assert beside(source)
