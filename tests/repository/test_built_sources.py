"""Every place that builds source text, runs another program or unpickles, with the reason why nothing
of a stranger's file is executed there."""

import ast
import re

import pytest

from tests.support.sources import calls_in, modules_of, name_of, resolved

pytestmark = pytest.mark.quick

CALLS = re.compile(
    r"compile|exec|eval|__import__|(.*\.)?(import_module|exec_module|FunctionType|sympify)|subprocess\.\w+"
    r"|os\.(system|popen|exec\w*|spawn\w*|startfile)|(pickle|marshal)\.loads?|(.*\.)?Unpickler"
    r"|torch(\.export)?\.load|.*shlex\.\w+|(ctypes|runpy|pty|code)\.\w+"
)

NAMES = "the names are of a list in this package"
REASONS = {
    "vit_config/__init__.py": NAMES,
    "vit_config/files/places.py": "the C library of this process",
    "vit_jax/host_memory.py": "the C library of this process",
    "parity/verifier/programs/shared.py": "the C library of this process",
    "vit_config/pretrained.py": NAMES,
    "vit_train/batches/workers.py": "what this process's own worker sends through its pipe",
    "vit_torch/train/checkpoint.py": "weights_only=True, which torch keeps from calling anything",
    "parity/__init__.py": NAMES,
    "parity/cli/convert_run.py": "a line that is shown; its words are quoted by shlex",
    "parity/cli/dispatch.py": NAMES,
    "parity/cli/support/after_training.py": "a line that is shown; its words are quoted by shlex",
    "parity/exporting/onnx_graph/module.py": "one code object calls each node; its line is only shown",
    "parity/exporting/replay.py": "the source is this package's; paths and pictures are arguments",
    "parity/porting/dialects/__init__.py": NAMES,
    "parity/porting/hosts/rewriting.py": "weights_only=True, which torch keeps from calling anything",
    "parity/porting/models/trained.py": "the source is this package's; paths are arguments",
    "parity/porting/reading/libraries/installed.py": NAMES,
    "parity/runs/folder.py": NAMES,
    "parity/verifier/causes/examples.py": "the expressions are this package's",
    "parity/verifier/programs/archives.py": "weights_only=True, after this package's machine",
    "parity/verifier/programs/build.py": "FILE.py:FUNCTION is what the user asks to run",
    "parity/verifier/programs/files.py": "what `find_code` finds is asked for by --run-programs",
    "parity/verifier/programs/remote.py": "the interpreter that the user names; this package's module",
    "parity/verifier/programs/transformations.py": "the code of a function that runs already",
    "parity/verifier/repro/script.py": "operations and numbers by repr; a title without quotes",
}


def builds(call: ast.Call) -> bool:
    """Whether a call is of this kind; a method called `eval` or `compile` is none."""
    name = name_of(call)
    return CALLS.fullmatch(name) is not None and ("." in name or isinstance(call.func, ast.Name))


@pytest.mark.parametrize(
    "source",
    ["import subprocess as s; s.run(1)", "from subprocess import run; run(1)", "exec('1')", "eval('1')",
     "from pickle import loads as read; read(b'')", "import torch; torch.load('a')",
     "from importlib import import_module; import_module('a')", "import os; os.execv('a', [])"],
)  # fmt: skip
def test_however_it_is_imported_it_is_seen(source):
    assert any(map(builds, calls_in(resolved(ast.parse(source)))))


def test_every_place_has_its_reason():
    assert {path for path, tree in modules_of() for each in calls_in(tree) if builds(each)} == {*REASONS}


def test_one_file_writes_html_and_escapes_each_text():
    makers = {path for path, tree in modules_of() if "</html>" in ast.unparse(tree)}
    assert makers == {"parity/verifier/report/page.py"}
