"""No output that is meant for others names a folder or a user of the machine that wrote it."""

import itertools
from pathlib import Path
from socket import gethostname

import numpy as np
import pytest
from PIL import Image

from parity.cli import main
from parity.porting.dialects import dialects
from tests.support.sources import ROOT, calls_in, modules_of, name_of
from tests.support.tiny import TINY
from vit_config import Preprocess, write_weights
from vit_config.parameters import parameters

ATOMIC = {"atomic_file", "write_atomically", "atomic_folder"}
HERE = "the test below"
NUMBERS = "numbers and names of tensors, with what its caller gives; the test below"
OF_A_RUN = "a run's own folder, which goes on on this machine"
WRITERS = {
    "vit_config/files/atomic.py": "whatever its callers give",
    "vit_config/files/weights_file.py": NUMBERS,
    "vit_train/display/plots.py": "a picture",
    "vit_train/folder/about.py": OF_A_RUN,
    "vit_train/folder/log.py": OF_A_RUN,
    "vit_train/folder/manifest.py": OF_A_RUN,
    "vit_train/sources/index_cache.py": "the user's own cache",
    "vit_torch/train/checkpoint.py": OF_A_RUN,
    "parity/cli/scan.py": HERE,
    "parity/cli/support/answers.py": "images by the names that the user gives",
    "parity/cli/support/recordings.py": "through `portable`",
    "parity/exporting/export.py": "tests/parity/exporting/test_export.py: `tells_of_nobody`",
    "parity/measure/shown.py": "through `portable`",
    "parity/measure/traces/writer.py": "a recording, which names its program for its user to run again",
    "parity/porting/hosts/into.py": "through `portable`; tests/parity/porting/test_into_host.py",
    "parity/porting/hosts/rewriting.py": NUMBERS,
    "parity/porting/models/lora.py": NUMBERS,
    "parity/porting/models/trained.py": NUMBERS,
    "parity/porting/writing/conversion.py": HERE,
    "parity/runs/folder.py": OF_A_RUN,
    "parity/twins/check_report.py": "through `portable`",
    "parity/twins/steps/steps_report.py": "a picture",
    "parity/verifier/repro/script.py": "through `portable`; tests/parity/verifier/repro/test_repro.py",
}
"""Files that write, and why what they write names nobody, or where that is tried."""


@pytest.mark.quick
def test_every_writer_has_a_reason():
    found = {
        path: {name_of(each).rpartition(".")[2] for each in calls_in(tree)}
        for path, tree in modules_of()
        if any(name_of(each).rpartition(".")[2] in ATOMIC for each in calls_in(tree))
    }
    assert found.keys() == WRITERS.keys()
    through = {path for path, why in WRITERS.items() if why.startswith("through `portable`")}
    assert all(found[path] & {"portable", "write_json", "named"} for path in through)


def test_what_commands_write_names_no_folder_and_no_user(tmp_path, monkeypatch, capsys):
    """Files are called as the user calls them; nothing adds where they lie."""
    secret = tmp_path / "folder_of_nina"
    home = secret / "home_of_nina"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "user_nina")
    rng = np.random.default_rng(0)
    cfg = TINY.replace(num_classes=3, act="gelu_tanh")
    arrays = {n: rng.normal(size=each.shape).astype("f4") for n, each in parameters(cfg).items()}
    source = secret / "source.safetensors"
    write_weights(source, cfg, arrays, Preprocess(class_names=("a", "b", "c")))
    out = secret / "out"
    out.mkdir()
    given = "source.safetensors"
    monkeypatch.chdir(secret)
    written = 0
    suffixes = itertools.cycle(("", ".safetensors", ".npz", ".pth", ".msgpack"))
    for name in sorted({each.name for each in dialects()} - {"google"}):
        argv = ["convert", given, str(out / f"{name}{next(suffixes)}"), "--to", name, "--no-open"]
        written += main(argv) == 0
    assert written > 5
    assert main(["scan", ".", "-o", "scan.json"]) in (0, 1)  # asks of some
    assert main(["inspect", given, "--json", str(out / "inspect.json")]) == 0
    assert main(["match", given, given, "--json", str(out / "match.json")]) == 0
    argv = ["diff", given, given, "--json", str(out / "d.json"), "--html", str(out / "d.html")]
    assert main(argv) == 0
    Image.new("RGB", (15, 21)).save(secret / "i.png")
    argv = ["predict", given, "i.png", "--json", "out/p.json", "--csv", "out/p.csv"]
    assert main(argv) == 0
    capsys.readouterr()
    names = ["folder_of_nina", "home_of_nina", "user_nina", str(ROOT), str(Path(np.__file__).parent)]
    names += [gethostname()] if len(gethostname()) > 3 else []
    for path in ("scan.json", *(each for each in out.rglob("*") if each.is_file())):
        content = Path(path).read_bytes()
        assert not [name for name in names if name.encode() in content], path
