"""The parts of the fleet: finding checkpoints, the manifest, names, the ledger."""

import contextlib
import json

import pytest

from parity.porting.fleet.folders import walk
from parity.porting.fleet.ledger import LEDGER, LedgerEntry, open_ledger
from parity.porting.fleet.lines import line_of, printable
from parity.porting.fleet.manifest import FleetJob, FleetManifest
from parity.porting.fleet.names import number_repeated, output_names, propose_name, suffix_of, sweep
from parity.porting.formats.suffixes import NAMED, WEIGHTS
from parity.porting.writing.conversion import SUFFIXES
from vit_config import ConfigError, MissingFileError
from vit_config.files.atomic import atomic_file, atomic_folder

pytestmark = pytest.mark.quick


def make(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def places(root):
    return [place.path.relative_to(root).as_posix() for place in walk(root).places]


def test_every_checkpoint_is_found_once(tmp_path):
    make(
        tmp_path,
        *(
            f"hf/{name}"
            for name in ("config.json", "model.safetensors", "pytorch_model.bin", "README.md")
        ),
        *(
            f"run/checkpoint-10/{name}"
            for name in ("config.json", "model.safetensors", "trainer_state.json")
        ),
        *(
            f"run/checkpoint-10/{name}"
            for name in ("optimizer.pt", "rng_state_0.pth", "training_args.bin")
        ),
        *("orbax/5/_CHECKPOINT_METADATA", "orbax/5/default/_METADATA", "orbax/5/default/x.bin"),
        *("orbax/9/_CHECKPOINT_METADATA", "orbax/9/default/_METADATA"),
        *(
            "loose/a.pth",
            "loose/b.npz",
            "loose/epoch.pth.tar",
            "loose/model.safetensors",
            "loose/notes.txt",
        ),
        *(".hidden/c.pth", "loose/.d.pth"),
    )
    (tmp_path / "sharded").mkdir()
    index = {
        "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    }
    (tmp_path / "sharded/model.safetensors.index.json").write_text(json.dumps(index))
    make(tmp_path, "sharded/model-00001-of-00002.safetensors", "sharded/other.safetensors")
    assert places(tmp_path) == [
        "hf",
        "loose/a.pth",
        "loose/b.npz",
        "loose/epoch.pth.tar",
        "loose/model.safetensors",
        "orbax/5",
        "orbax/9",
        "run/checkpoint-10",
        "sharded/model.safetensors.index.json",
        "sharded/other.safetensors",
    ]
    assert walk(tmp_path).others == 2


def test_every_kind_of_weights_file_is_found(tmp_path):
    names = [f"{number:02}{suffix}" for number, suffix in enumerate(NAMED)]
    make(tmp_path, *names, "keras/config.json", "keras/model.weights.h5", "keras/task.weights.h5")
    assert places(tmp_path) == [*names, "keras"]
    assert set(SUFFIXES) <= set(WEIGHTS)


def test_a_folder_may_be_a_checkpoint_itself(tmp_path):
    make(tmp_path, "config.json", "model.safetensors")
    assert places(tmp_path) == ["."]
    assert propose_name(".", tmp_path) == tmp_path.name.replace(".", "_")


def test_a_damaged_index_keeps_its_shards(tmp_path):
    make(tmp_path, *(f"m-0000{i}-of-00002.safetensors" for i in (1, 2)), "m.safetensors.index.json")
    assert places(tmp_path) == ["m.safetensors.index.json"]


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    make(tmp_path, "outside/secret.pth", "outside/model.safetensors", "in/a.pth", "in/.blobs/1234")
    inside = tmp_path / "in"
    (inside / "hf").mkdir()
    make(inside, "hf/config.json")
    (inside / "out.pth").symlink_to(tmp_path / "outside/secret.pth")
    (inside / "folder").symlink_to(tmp_path / "outside")
    (inside / "again.pth").symlink_to(inside / "a.pth")
    (inside / "blob.pth").symlink_to(inside / ".blobs/1234")
    (inside / "hf/model.safetensors").symlink_to(tmp_path / "outside/model.safetensors")
    walked = walk(inside)
    assert places(inside) == ["a.pth", "blob.pth", "hf"]
    assert walked.links == 3
    assert walked.places[2].problem == "model.safetensors is a link out of the folder"


def test_what_was_converted_is_not_found_again(tmp_path):
    make(tmp_path, "a.pth", f"out/{LEDGER}", "out/a.safetensors")
    assert places(tmp_path) == ["a.pth"]
    assert walk(tmp_path).outputs == 1


def manifest(*jobs, **fields):
    jobs = [{"path": "a", "status": "ready"} | job for job in jobs]
    return json.dumps({"version": 1, "folder": ".", "checkpoints": jobs, **fields})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            manifest({"skp": True}),
            "FleetJob has no field 'skp'; did you mean 'skip'?",
        ),
        (
            manifest({"set": {"num_head": 3}}),
            "did you mean 'num_heads'?",
        ),
        (manifest({"path": "../a"}), "expected a path below the manifest's folder"),
        (manifest({"path": "/a"}), "expected a path below the manifest's folder"),
        (
            manifest({}, {}),
            "a: listed more than",
        ),
        (manifest({"out": "a/b"}), "out = 'a/b': expected a plain name"),
        (manifest({"out": ".a"}), "out = '.a': expected a plain name"),
        (manifest({"status": "fine"}), "status"),
        (manifest({"preprocess": {"mean": 1}}), "preprocess"),
        (manifest(version=2), "version"),
        (manifest(jobs=1), "FleetManifest has no field 'jobs'"),
        (manifest(checkpoints=[1] * 100_001), "100001 checkpoints, more than 100000"),
        (manifest(checkpoints=[{"path": "x"}] * 30), "; and 10 more"),
        ("[]", "expected a JSON object"),
        ("{", "not valid JSON at line 1"),
    ],
)
def test_a_wrong_manifest_is_one_line(tmp_path, text, said):
    path = tmp_path / "jobs.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        FleetManifest.load(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_manifest_is_what_was_written(tmp_path):
    job = FleetJob(
        path="a", status="ask", said="?", set={"num_heads": None, "norm_eps": 1e-6}, image_size=(8, 9)
    )
    written = FleetManifest(folder="x", checkpoints=(job,))
    assert FleetManifest.from_json(written.to_json()) == written
    assert job.reading["given"] == {"norm_eps": 1e-6}
    with pytest.raises(MissingFileError, match="no such folder"):
        written.root(tmp_path / "jobs.json")


def test_proposed_names_are_of_the_path(tmp_path):
    names = {
        "a/b.pth": "a--b",
        "c/model.safetensors.index.json": "c--model",
        "x.v2.pth.tar": "x_v2",
        "e" * 200 + "/b.pth": "e" * 97 + "--b",
    }
    assert {path: propose_name(path, tmp_path) for path in names} == names
    assert number_repeated(["a", "b", "A", "a", "a-2"]) == ["a", "b", "A-2", "a-3", "a-2-2"]


def test_two_rows_with_one_name_are_refused(tmp_path):
    """Rows without a name of their own, of an older manifest, and rows with a name."""
    jobs = [FleetJob(path=path, status="ready") for path in ("a/b.pth", "a/B.npz", "c.npz")]
    with pytest.raises(ConfigError, match=r'a/b.pth, a/B.npz: .* a--b.npz; .* another "out"'):
        output_names(jobs, tmp_path, ".npz")
    jobs[1] = jobs[1].replace(out="other")
    assert list(output_names(jobs, tmp_path, ".npz").values()) == ["a--b.npz", "other.npz", "c.npz"]
    jobs[1] = jobs[1].replace(out="c")
    with pytest.raises(ConfigError, match=r"a/B.npz, c.npz: would be written to one name, c;"):
        output_names(jobs, tmp_path, "")


def test_the_target_decides_between_files_and_folders():
    assert suffix_of("parity") == ".safetensors"
    assert suffix_of("torchvision") == ".pth"
    with pytest.raises(ConfigError, match="unknown dialect"):
        suffix_of("nonsense")


def test_half_written_outputs_are_swept_up(tmp_path):
    names = {"a": "a.pth", "b": "b"}
    make(tmp_path, "a.pth", ".a.pth", ".c.pth.abcdefgh", ".a.pth.verification.json.abcd_f12", "b/x")
    (tmp_path / ".b.old.abcdefgh").mkdir()
    with contextlib.ExitStack() as writing:  # of which neither ends before they are swept away
        writing.enter_context(contextlib.suppress(FileNotFoundError))
        writing.enter_context(atomic_file(tmp_path / "a.pth", force=True))
        writing.enter_context(atomic_folder(tmp_path / "b", force=True))
        assert len(list(tmp_path.iterdir())) == 8
        assert sweep(tmp_path, names) == 4
        assert {path.name for path in tmp_path.iterdir()} == {"a.pth", ".a.pth", ".c.pth.abcdefgh", "b"}


ENTRY = LedgerEntry(
    row="a", target="parity", options="0", status="done", output="a.safetensors", digest="1"
)


def test_the_ledger_tells_what_was_done(tmp_path):
    with open_ledger(tmp_path) as ledger:
        ledger.add(ENTRY.replace(status="started", digest=None))
        assert ledger.done("a", "parity") is None
        ledger.add(ENTRY)
        ledger.add(ENTRY.replace(row="b\n\u2028", status="failed", error="no"))
    assert len((tmp_path / LEDGER).read_bytes().splitlines()) == 3
    with open_ledger(tmp_path) as ledger:
        assert ledger.done("a", "parity") == ENTRY
        assert ledger.done("a", "timm") is ledger.done("b\n\u2028", "parity") is None
        assert ledger.wrote("b\n\u2028", "parity", "a.safetensors")
        assert not ledger.wrote("a", "parity", "b.safetensors")
        assert not ledger.torn


@pytest.mark.parametrize("tail", [b'{"row": "a', b"\0\0\0", b"\xff"])
def test_a_torn_last_line_is_taken_away(tmp_path, tail):
    with open_ledger(tmp_path) as ledger:
        ledger.add(ENTRY)
    whole = (tmp_path / LEDGER).read_bytes()
    (tmp_path / LEDGER).write_bytes(whole + tail)
    with open_ledger(tmp_path) as ledger:
        assert ledger.torn
        assert ledger.entries == [ENTRY]
        ledger.add(ENTRY)
    assert (tmp_path / LEDGER).read_bytes() == whole * 2


@pytest.mark.parametrize("line", [b"{}\n", b"\xff\n", b"[1]\n"])
def test_another_damaged_line_is_named(tmp_path, line):
    (tmp_path / LEDGER).write_bytes(line)
    with pytest.raises(ConfigError, match=r"line 1 is damaged.*another --out"), open_ledger(tmp_path):
        pass


def test_two_runs_do_not_write_to_one_folder(tmp_path):
    with open_ledger(tmp_path), pytest.raises(ConfigError, match="another run"), open_ledger(tmp_path):
        pass


def test_errors_are_one_printable_line():
    assert line_of(ConfigError("a\nb")) == "a\\nb"
    assert line_of(FileNotFoundError(2, "No such file", "x")) == "x: No such file"
    assert line_of(KeyError("x")).startswith("KeyError: 'x' (internal error")
    assert line_of(MemoryError()) == "there is not enough memory for it"
    assert printable("é\udcff\x1b[31m") == "é\\udcff\\x1b[31m"
