"""Every output gets its name by `vit_config.files`: no code opens one by itself, and no command writes
several one after the other."""

import ast
import re

import pytest

from tests.support.sources import calls_in, modules_of, name_of, resolved

pytestmark = pytest.mark.quick

BY_ITSELF = {
    "vit_config/files/atomic.py": "the writer",
    "vit_config/files/places.py": "the writer",
    "parity/cli/dispatch.py": "the null device, where nobody reads the output",
    "parity/exporting/export.py": "into a temporary folder",
    "parity/measure/traces/writer.py": "into the folder of `atomic_folder`",
    "parity/porting/fleet/ledger.py": "a log that grows, line by line",
    "parity/porting/fleet/names.py": "removes what a killed run left",
    "parity/porting/formats/npz.py": "a member of an archive that `atomic_file` opened",
    "parity/porting/formats/torch_writer.py": "a member of an archive that `atomic_file` opened",
    "parity/porting/hosts/rewriting.py": "into a temporary folder",
    "parity/porting/models/lora.py": "into the folder of `atomic_folder`",
    "parity/porting/models/pretrained.py": "into a temporary folder",
    "parity/porting/text/tokens.py": "into the folder of `atomic_folder`",
    "parity/porting/writing/conversion.py": "into the folder of `atomic_folder`",
    "parity/verifier/exported.py": "into a temporary folder",
    "parity/verifier/repro/script.py": "into a temporary folder",
    "parity/exporting/formats.py": "to a path, or in a file, of the caller's temporary folder",
    "parity/exporting/replay.py": "into a temporary folder",
    "parity/measure/recording.py": "arrays of a comparison, in its own temporary folder",
    "parity/porting/models/trained.py": "in memory",
    "parity/twins/steps/steps_report.py": "in memory",
    "vit_torch/train/checkpoint.py": "in a file that `atomic_file` opened",
    "vit_train/sources/index_cache.py": "in a file that `atomic_file` opened",
    "vit_config/terminal.py": "the null device, while a library is muted",
    "vit_jax/train/checkpoint.py": "the folder of Orbax, which has its own protocol",
    "vit_jax/train/description.py": "into the folder of Orbax, before it is finished",
    "vit_jax/train/hosts.py": "a number for one start of several processes",
    "vit_train/data/digits.py": "a set, prepared in a temporary folder and renamed",
    "vit_train/folder/checkpoints.py": "moves aside a checkpoint that cannot be read",
    "vit_train/folder/log.py": "logs that grow, line by line",
    "vit_train/folder/mirror.py": "copies of a run's files to object storage, with their own protocol",
    "vit_train/folder/unwritten.py": "removes what a killed run left",
}
"""Files that write otherwise, with the reason."""

WRITES = re.compile(
    r"(.*\.)?(write_text|write_bytes|tofile|touch|symlink_to|hardlink_to|savefig|save_file|memmap)"
    r"|(os|shutil)\.(rename|replace|copy\w*|move|rmtree|link|symlink)|tempfile\.mkstemp"
    r"|(numpy|torch|torch\.export|onnx|safetensors\.\w+)\.save\w*|(?!dialect|match|self\._)\w+\.rename"
)


def writes(call: ast.Call) -> bool:
    """Whether a call opens a file to write it, or writes, copies, moves or removes one."""
    name = name_of(call)
    if name == "os.open":
        return bool(re.search("O_CREAT|O_WRONLY|O_RDWR", ast.unparse(call)))
    if name.rpartition(".")[2] not in ("open", "ZipFile", "File"):
        return WRITES.fullmatch(name) is not None
    given = [each.value for each in ast.walk(call) if isinstance(each, ast.Constant)]
    modes = [each for each in map(str, given) if re.fullmatch("[rwaxbt+]{1,3}", each)]
    return any({*each} & {*"wax+"} for each in modes)


@pytest.mark.parametrize(
    "source",
    ["from os import replace; replace(a, b)", "import numpy as n; n.save(a, b)", "a.write_text(b)",
     "open(a, 'w')", "a.open('ab')", "import zipfile as z; z.ZipFile(a, 'w')",
     "import os; os.symlink(a, b)", "import h5py; h5py.File(a, 'w')",
     "from shutil import copyfile as c; c(a, b)"],
)  # fmt: skip
def test_however_it_is_written_it_is_seen(source):
    assert any(map(writes, calls_in(resolved(ast.parse(source)))))


def test_no_output_is_opened_by_itself():
    found = {path for path, tree in modules_of() for call in calls_in(tree) if writes(call)}
    assert found == set(BY_ITSELF)


ATOMIC = {"atomic_file", "write_atomically"}
BY_OTHERS = {"draw", "reproduce", "draw_curves", "write_trained"}
"""Functions that write by what they call."""


def writers() -> set[str]:
    """Functions that write a file: by name, those of all packages that begin one."""
    begin = {
        function.name
        for _, tree in modules_of()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        if {name_of(each).rpartition(".")[2] for each in calls_in(function)} & ATOMIC
    }
    assert {"write_json", "save_png", "write_svg", "draw_steps", "write_images"} <= begin
    return begin | ATOMIC | BY_OTHERS


def test_a_command_that_writes_several_files_writes_them_together():
    known = writers()
    several = {
        path
        for path, tree in modules_of("parity/cli")
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        if sum(name_of(each).rpartition(".")[2] in known for each in calls_in(function)) > 1
        if "together" not in map(name_of, calls_in(function))
    }
    assert several == {
        "parity/cli/support/answers.py",  # whose files are opened together
        "parity/cli/support/after_training.py",  # into a run's folder, where the same command goes on
    }
