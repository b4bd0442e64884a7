"""Damage is told: never other values where there is a checksum, never another exception."""

import os
import random
import time
from pathlib import Path

import pytest

from parity.porting.formats import open_container
from parity.porting.formats.comment import pack, unpack
from tests.support.container_files import loaded, write_each
from vit_config import ConfigError, MissingFileError, WeightsError
from vit_config.files import places
from vit_config.files.atomic import atomic_file, atomic_folder, together

pytestmark = pytest.mark.quick

CHECKED = ("sealed", "torch", "torchscript", "npz", "deflated")
UNCHECKED = ("safetensors", "legacy", "msgpack", "hdf5", "equinox", "lz4", "gguf")
ROUNDS = 400


def damage(rng: random.Random, content: bytes) -> bytes:
    """One of: cut off, bits and bytes changed, bytes inserted, removed, or copied to another place."""
    damaged, place = bytearray(content), rng.randrange(len(content))
    kind = rng.random()
    if kind < 0.15:
        del damaged[place:]
    elif kind < 0.8:
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            place = rng.randrange(len(damaged))
            damaged[place] = rng.choice(
                (damaged[place] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 255)
            )
    elif kind < 0.87:
        damaged[place:place] = rng.randbytes(rng.randrange(1, 9))
    elif kind < 0.94:
        del damaged[place : place + rng.randrange(1, 9)]
    else:
        source = rng.randrange(len(content))
        damaged[place : place + 20] = damaged[source : source + 20]
    return bytes(damaged)


@pytest.mark.parametrize("kind", [*CHECKED, *UNCHECKED])
def test_random_damage(kind, tmp_path):
    path = write_each(tmp_path)[kind]
    content = path.read_bytes()
    expected = {name: array.tobytes() for name, array in loaded(open_container(path).tensors).items()}
    rng = random.Random(kind)
    refused = 0
    for _ in range(ROUNDS):
        path.write_bytes(damage(rng, content))
        start = time.monotonic()
        try:
            actual = {
                name: array.tobytes() for name, array in loaded(open_container(path).tensors).items()
            }
            assert actual == expected or kind in UNCHECKED
        except WeightsError as error:
            assert "\n" not in str(error)
            assert str(path) in str(error)
            refused += 1
        assert time.monotonic() - start < 5
    assert refused > ROUNDS / 4


@pytest.mark.parametrize("kind", [*CHECKED, *UNCHECKED])
def test_every_truncation(kind, tmp_path):
    path = write_each(tmp_path)[kind]
    content = path.read_bytes()
    for length in {*range(0, len(content), 7), len(content) - 1}:
        path.write_bytes(content[:length])
        with pytest.raises(WeightsError):
            loaded(open_container(path).tensors)


def test_random_pickles(tmp_path):
    """Opcodes in any order, as nobody would write them."""
    import pickletools

    codes = [opcode.code.encode("latin1") for opcode in pickletools.opcodes]
    arguments = [
        b"",
        b"\0",
        b"\1",
        b"\5\0\0\0",
        b"collections\nOrderedDict\n",
        b"torch._utils\n_rebuild_tensor_v2\n",
    ]
    rng = random.Random(0)
    path = tmp_path / "file"
    for _ in range(3 * ROUNDS):
        body = b"".join(rng.choice(codes) + rng.choice(arguments) for _ in range(rng.randrange(1, 40)))
        path.write_bytes(b"\x80\x02" + body + b".")
        with pytest.raises(WeightsError):
            open_container(path)


# Files and folders that appear whole or not at all


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_file_that_fails_leaves_nothing(error, tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with atomic_file(path, force=True) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert contents(tmp_path) == {"file": "old"}
    with atomic_file(path, force=True) as file:
        file.write(b"new")
        file.seek(0)
        assert file.read() == b"new"
    assert contents(tmp_path) == {"file": "new"}
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_folder_that_fails_leaves_nothing(error, tmp_path):
    path = tmp_path / "folder"

    def fail(**options):
        with atomic_folder(path, **options) as folder:
            (folder / "half").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(path) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("old")
    assert contents(tmp_path) == {"folder/inner/file": "old"}
    with pytest.raises(error):
        fail(force=True)
    assert contents(tmp_path) == {"folder/inner/file": "old"}
    with atomic_folder(path, force=True) as folder:
        (folder / "file").write_text("new")
    assert contents(tmp_path) == {"folder/file": "new"}
    assert path.stat().st_mode & 0o777 == 0o755


def test_the_old_folder_comes_back_if_the_new_cannot_take_its_place(tmp_path, monkeypatch):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "file").write_text("old")
    rename = os.rename

    def failing(source, target):
        if Path(target) == path and ".old." not in str(source):
            raise OSError("no space left")
        rename(source, target)

    def write():
        with atomic_folder(path, force=True) as folder:
            (folder / "file").write_text("new")

    monkeypatch.setattr(places, "_exchanged", lambda one, other: False)
    monkeypatch.setattr("os.rename", failing)
    with pytest.raises(OSError, match="no space"):
        write()
    assert contents(tmp_path) == {"folder/file": "old"}
    monkeypatch.setattr("os.rename", rename)
    write()
    assert contents(tmp_path) == {"folder/file": "new"}


def test_what_was_moved_aside_comes_back_with_a_word(tmp_path, capsys):
    """As after a kill between the two renames of a file system that cannot exchange names."""
    (tmp_path / ".folder.old.abcd_f12" / "folder").mkdir(parents=True)
    (tmp_path / ".folder.old.abcd_f12" / "folder" / "file").write_text("old")
    with pytest.raises(ConfigError, match="already exists"), atomic_folder(tmp_path / "folder"):
        raise AssertionError("not reached")
    assert contents(tmp_path) == {"folder/file": "old"}
    assert capsys.readouterr().err.count("what it was is back") == 1


@pytest.mark.parametrize("exchanges", [True, False])
def test_files_get_their_names_together(exchanges, tmp_path, monkeypatch):
    if not exchanges:
        monkeypatch.setattr(places, "_exchanged", lambda one, other: False)

    def write(word, meanwhile=lambda: None):
        with together():
            for name in ("a", "b", "c"):
                with atomic_file(tmp_path / name, force=True) as file:
                    file.write(word)
            assert word.decode() not in {each.read_text() for each in tmp_path.glob("[abc]")}
            meanwhile()

    write(b"old")
    assert contents(tmp_path) == dict.fromkeys("abc", "old")
    with pytest.raises(ZeroDivisionError):
        write(b"new", lambda: 1 / 0)
    assert contents(tmp_path) == dict.fromkeys("abc", "old")
    (tmp_path / "c").unlink()
    real = os.replace
    monkeypatch.setattr("os.replace", lambda *names: real(*names if names[1].name != "c" else ("", "")))
    with pytest.raises(OSError, match="c'"):  # the last cannot get its name
        write(b"new")
    monkeypatch.setattr("os.replace", real)
    assert contents(tmp_path) == dict.fromkeys("ab", "old")
    write(b"new")
    assert contents(tmp_path) == dict.fromkeys("abc", "new")


@pytest.mark.parametrize("name", ["x" * 243 + ".safetensors", "\u6a21" * 85])
def test_the_longest_names_can_be_written(name, tmp_path):
    for make in (atomic_file, atomic_folder):
        with make(tmp_path / name):
            pass
        os.rename(tmp_path / name, tmp_path / make.__name__)
    assert {each.name for each in tmp_path.iterdir()} == {"atomic_file", "atomic_folder"}


def test_nothing_is_replaced_unasked(tmp_path):
    path = tmp_path / "there"
    path.write_text("old")
    for make in (atomic_file, atomic_folder):
        with pytest.raises(ConfigError, match=r"there: already exists|there: is a file"), make(path):
            raise AssertionError("not reached")
    with pytest.raises(ConfigError, match="is a folder"), atomic_file(tmp_path, force=True):
        raise AssertionError("not reached")
    with pytest.raises(ConfigError, match="already exists"), atomic_folder(tmp_path):
        raise AssertionError("not reached")
    for make in (atomic_file, atomic_folder):
        with pytest.raises(MissingFileError, match="no such folder"), make(tmp_path / "no" / "where"):
            raise AssertionError("not reached")
    with pytest.raises(ConfigError, match="already exists"), atomic_file(tmp_path / "late"):
        (tmp_path / "late").write_text("somebody else's")
    assert contents(tmp_path) == {"there": "old", "late": "somebody else's"}


def test_a_byte_before_the_packed_header_is_damage():
    """As long as the comment says it is, it ends a byte early; it is no other program's comment."""
    packed = pack({"vit.schema": "{}", "license": "mit"})
    assert unpack(packed)["license"] == "mit"
    assert unpack(b"another program's comment") == {}
    with pytest.raises(WeightsError, match="damaged"):
        unpack(b"x" + packed[:-1])


def test_a_member_that_ends_past_the_end_is_damage_when_the_file_is_opened(tmp_path):
    content = bytearray(write_each(tmp_path)["npz"].read_bytes())
    entry = content.index(b"PK\x01\x02")  # of the first member, in the table of contents
    content[entry + 20 : entry + 28] = 2 * (len(content) + 1).to_bytes(4, "little")
    (tmp_path / "longer.npz").write_bytes(content)
    with pytest.raises(WeightsError, match=f"past the end of the file, byte {len(content)}"):
        open_container(tmp_path / "longer.npz")
