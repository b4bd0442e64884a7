"""Every place that reads a file by itself, with what bounds it there: all others ask `read_text` of
`vit_config.files.foreign`, or a reader of `parity.porting.formats`."""

import ast
import os
import re
import zipfile

import pytest

from parity.measure.traces.reader import Trace
from tests.support.sources import calls_in, modules_of, name_of, resolved
from vit_config import CheckpointError, WeightsError
from vit_config.errors import DataError
from vit_config.scoring import read_labelled_images
from vit_torch.train.checkpoint import read_checkpoint
from vit_train.folder.checkpoints import DamagedError
from vit_train.folder.log import read_log

pytestmark = pytest.mark.quick

BUDGET = "the budget of a checkpoint, by `check_held` or `budget_of`; see test_readers.py"
OWN = "text or a file of this package's own, or that this process wrote"
PIXELS = "the head tells the pixels first; see tests/vit_config/test_pixels.py and test_bands.py"
INDEX = "bytes or rows are counted first; see tests/vit_train/test_hostile_sets.py"
BY_ITSELF = {
    "vit_config/files/atomic.py": OWN,
    "vit_config/files/foreign.py": "the reader of texts: `read_bytes`",
    "vit_config/files/held.py": "only asks where the holes are",
    "vit_config/files/safetensors_header.py": BUDGET,
    "vit_config/files/stored.py": BUDGET,
    "vit_config/files/weights_file.py": "16 bytes",
    "vit_config/images/bands.py": PIXELS,
    "vit_config/images/orientation.py": PIXELS,
    "vit_config/images/pixels.py": PIXELS,
    "vit_config/job.py": OWN,
    "vit_config/presets/from_timm.py": OWN,
    "vit_config/scoring.py": "arrays that this package's `eval` wrote, of the run's own size",
    "vit_train/folder/about.py": OWN,
    "vit_train/folder/manifest.py": OWN,
    "vit_train/folder/mirror.py": "the run's own copy on object storage",
    "vit_train/sources/arrow_rows.py": INDEX,
    "vit_train/sources/index_cache.py": OWN,
    "vit_train/sources/mnist5k.py": "a file of a known digest",
    "vit_train/sources/place.py": INDEX,
    "vit_train/sources/table.py": INDEX,
    "vit_train/sources/tar_shards.py": INDEX,
    "vit_train/sources/tfrecord.py": INDEX,
    "vit_config/files/lasting.py": "opens for others",
    "vit_config/files/places.py": "folders, to flush them",
    "vit_jax/train/description.py": "its bytes are counted first",
    "vit_jax/train/hosts.py": OWN,
    "vit_torch/train/checkpoint.py": "`check_unpacked`",
    "vit_train/batches/workers.py": OWN,
    "parity/cli/dispatch.py": "the null device",
    "parity/cli/support/after_training.py": OWN,
    "parity/exporting/export.py": OWN,
    "parity/exporting/formats.py": OWN,
    "parity/exporting/onnx_graph/module.py": BUDGET,
    "parity/exporting/replay.py": OWN,
    "parity/exporting/subject.py": OWN,
    "parity/measure/recording.py": OWN,
    "parity/measure/traces/recorder.py": "the program that runs",
    "parity/porting/fleet/ledger.py": OWN,
    "parity/porting/hosts/into.py": OWN,
    "parity/porting/hosts/rewriting.py": "a host that was opened, with its budget",
    "parity/porting/models/files.py": OWN,
    "parity/porting/models/trained.py": OWN,
    "parity/porting/opening/provenance.py": "piece by piece, for its digest",
    "parity/runs/compare.py": OWN,
    "parity/runs/folder_manifest.py": OWN,
    "parity/twins/check_report.py": OWN,
    "parity/twins/steps/steps_report.py": OWN,
    "parity/verifier/exported.py": OWN,
    "parity/verifier/programs/archives.py": BUDGET,
    "parity/verifier/programs/files.py": BUDGET,
    "parity/verifier/programs/remote.py": "the answers of this package's own process",
    "parity/verifier/recordings/again.py": "its bytes are counted first",
    "parity/verifier/repro/script.py": OWN,
}
"""Files that read otherwise, with the reason."""
READS = re.compile(
    r"(.+\.)(read_bytes|read_text|fromfile|memmap|imread)|open|.+\.open(_stream|_file)?|fdopen"
    r"|(json|tomllib|pickle|numpy|torch|onnx|msgpack)(\.\w+)?\.(load|loads|Unpacker|unpackb)|gzip\.\w+"
    r"|(zipfile|tarfile|tifffile|pyarrow|h5py)\.(\w+\.)?(ZipFile|open|TiffFile|ParquetFile|File|memory_map)"
)


def reads(call: ast.Call) -> bool:
    """Whether a call reads a file, or what is in one, without bounds of its own."""
    written = re.search(r"'[wax]b?\+?'", ast.unparse(call))
    return READS.fullmatch(name_of(call)) is not None and not written


def test_no_input_is_read_by_itself():
    found = {path for path, tree in modules_of() if any(map(reads, calls_in(tree)))}
    readers = {path for path in found if path.startswith("parity/porting/formats/")}  # test_readers.py
    assert found - readers == {*BY_ITSELF}


@pytest.mark.parametrize(
    "source",
    ["open(a)", "a.read_bytes()", "a.open('rb')", "from json import loads as l; l(a)", "a.read_text()",
     "import numpy as n; n.load(a)", "from tarfile import open as o; o(a)", "import h5py; h5py.File(a)",
     "import zipfile; zipfile.ZipFile(a)", "import onnx; onnx.load(a)"],
)  # fmt: skip
def test_however_it_is_read_it_is_seen(source):
    assert any(map(reads, calls_in(resolved(ast.parse(source)))))


def test_files_of_runs_and_recordings_have_bounds(tmp_path):
    """Nearly all holes, or members that unpack to gigabytes."""
    for name in ("log.jsonl", "index.json", "2.pt"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 2**36)
    with pytest.raises(CheckpointError, match="more than 268435456 bytes"):
        read_log(tmp_path)
    with pytest.raises(WeightsError, match="more than 67108864 bytes"):
        Trace(tmp_path)
    with pytest.raises(DamagedError, match="of its 68719476736 bytes"):
        read_checkpoint(tmp_path / "2.pt")
    (tmp_path / "3.pt").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "4.pt")
    for name in ("3.pt", "4.pt"):
        with pytest.raises(DamagedError, match="device, pipe or socket"):
            read_checkpoint(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "images.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", bytes(2**27))
    with pytest.raises(DataError, match="its members say 134217728 bytes, more than"):
        read_labelled_images(tmp_path / "images.npz")
    with pytest.raises(DamagedError, match="its members say"):
        read_checkpoint(tmp_path / "images.npz")
