"""Nothing in a file of PyTorch is executed, and none of it fills the memory."""

import io
import os
import pickle
import struct
import zipfile

import pytest
import torch

from parity.porting.formats import open_container
from vit_config import WeightsError

pytestmark = pytest.mark.quick


class Call:
    def __init__(self, function, *args):
        self.pair = function, args

    def __reduce__(self):
        return self.pair


def stack_global(module: str, name: str, argument: str) -> bytes:
    """A call as protocol 4 writes it."""
    texts = b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name))
    return (
        b"\x80\x04" + texts + b"\x93" + b"\x8c" + bytes([len(argument)]) + argument.encode() + b"\x85R."
    )


def canaries(trace: str) -> dict[str, bytes]:
    """Pickles that make the folder `trace` when they are executed."""
    code = f"import os; os.mkdir({trace!r})"
    return {
        "mkdir": pickle.dumps(Call(os.mkdir, trace), 2),
        "system": pickle.dumps(Call(os.system, f"mkdir {trace}"), 2),
        "exec": pickle.dumps(Call(exec, code), 2),
        "eval": pickle.dumps(Call(eval, f"__import__('os').mkdir({trace!r})"), 4),
        "nested": pickle.dumps({"model": [{"w": {"x": (Call(exec, code),)}}]}, 2),
        "key": pickle.dumps({Call(os.mkdir, trace): 1}, 2),
        "stack global": stack_global("os", "mkdir", trace),
        "inst": b"(S'" + trace.encode() + b"'\nios\nmkdir\n.",
        "obj": b"\x80\x02(cos\nmkdir\nX" + struct.pack("<I", len(trace)) + trace.encode() + b"o.",
        "dotted": stack_global("posixpath", "os.mkdir", trace),
        "getattr": stack_global("builtins", "getattr", trace),
        "runner": stack_global("torch.serialization", "os.mkdir", trace),
        "partial": b"\x80\x02cfunctools\npartial\ncos\nmkdir\n\x85R.",
        "subprocess": stack_global("subprocess", "getoutput", f"mkdir {trace}"),
        "numpy": stack_global("numpy.testing._private.utils", "runstring", code[:200]),
        "build": b"\x80\x02cargparse\nNamespace\n)\x81}X\x01\x00\x00\x00aNsbcos\nmkdir\n.",
    }


def as_zip(content: bytes, extra: dict[str, bytes] | None = None) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, each in {"data.pkl": content, "version": b"3\n", **(extra or {})}.items():
            archive.writestr(f"archive/{name}", each)
    return file.getvalue()


def as_legacy(content: bytes) -> bytes:
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    first = b"".join(pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, system))
    return first + content + pickle.dumps([], 2)


WRAPPINGS = {
    "zip": as_zip,
    "torchscript": lambda content: as_zip(content, {"constants.pkl": b"", "code/a.py": b""}),
    "legacy": as_legacy,
    "first of all": lambda content: content if content[:1] == b"\x80" else b"\x80\x02" + content,
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("form", canaries(""))
def test_a_canary_is_never_executed(form, wrapping, tmp_path):
    path, trace = tmp_path / "file.pt", tmp_path / "t"
    content = canaries(str(trace))[form]
    path.write_bytes(WRAPPINGS[wrapping](content))
    try:
        container = open_container(path)
    except WeightsError as error:
        assert "\n" not in str(error)
        assert str(path) in str(error)
        if form in ("mkdir", "system", "exec", "nested", "stack global"):
            assert "nothing was executed" in str(error)
            assert any(name in str(error) for name in ("mkdir", "system", "exec"))
    else:  # the name of a class that no one looks up is harmless text
        assert form == "runner"
        assert container.tensors == {}
    assert not trace.exists()


def test_the_canaries_sing_when_they_are_executed(tmp_path):
    """Else the test above would show nothing."""
    for form in ("mkdir", "exec", "eval", "nested", "stack global", "inst", "obj"):
        trace = tmp_path / form.replace(" ", "")
        pickle.loads(canaries(str(trace))[form])
        assert trace.exists()


def test_a_class_of_ones_own_is_refused_with_its_name(tmp_path):
    torch.save({"model": Call(Call, 1, 2)}, tmp_path / "file")
    with pytest.raises(WeightsError, match=r"test_containers_pickles\.Call.*state_dict"):
        open_container(tmp_path / "file")


def repeated(start: bytes, step: bytes, count: int, end: bytes) -> bytes:
    return b"\x80\x02" + start + step * count + end + b"."


BOMBS = {
    "deep list": repeated(b"]", b"]" + b"\x86", 100_000, b""),
    "deeper list": repeated(b"N", b"\x85", 100_000, b""),
    "deep key": b"\x80\x02}N" + b"\x85" * 100_000 + b"Ns.",
    "deep set": b"\x80\x04\x8f(N" + b"\x85" * 100_000 + b"\x90.",
    "laughs": b"\x80\x02N" + b"".join(b"2\x86" for _ in range(90)) + b".",
    "laughing key": b"\x80\x02}N" + b"2\x86" * 60 + b"Ns.",
    "itself": b"\x80\x02]2a.",
    "bytes": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x3fabc.",
    "array of bytes": b"\x80\x05\x96" + b"\xff" * 7 + b"\x3fabc.",
    "bytearray": b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
    "copies": b"\x80\x02]q\x00(" + b"N" * 5000 + b"e0" + b"cbuiltins\nlist\nh\x00\x85R" * 20_000 + b".",
    "long number": b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",
    "decimal": b"\x80\x02I" + b"9" * 60_000 + b"\n.",
    "no stop": b"\x80\x02]",
    "only marks": b"\x80\x02" + b"(" * 1000 + b".",
    "nothing": b"\x80\x02.",
    "globals": b"\x80\x02ccollections\nOrderedDict\n}X\x01\x00\x00\x00aNsb.",
}


HARMLESS = {
    "laughing device": b"\x80\x02ctorch\ndevice\nN" + b"2\x86" * 60 + b"\x85R.",
    "memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "deep but dropped": repeated(b"N", b"\x85", 100_000, b"0N"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("wrapping", ["zip", "legacy"])
@pytest.mark.parametrize("bomb", HARMLESS)
def test_a_bomb_for_others_is_harmless(bomb, wrapping, tmp_path):
    (tmp_path / "file").write_bytes(WRAPPINGS[wrapping](HARMLESS[bomb]))
    assert open_container(tmp_path / "file").tensors == {}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("wrapping", ["zip", "legacy"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused(bomb, wrapping, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(WRAPPINGS[wrapping](BOMBS[bomb]))
    with pytest.raises(WeightsError) as caught:
        open_container(path)
    assert str(path) in str(caught.value)


def test_a_tensor_cannot_reach_outside_its_storage(tmp_path):
    content = io.BytesIO()
    torch.save({"w": torch.ones(6).reshape(2, 3)}, content)
    good = zipfile.ZipFile(content).read("archive/data.pkl")
    for before, after in ((b"K\x02K\x03\x86", b"K\x02K\x09\x86"), (b"K\x03K\x01\x86", b"K\x7fK\x01\x86"),
                          (b"QK\x00", b"QK\x05")):  # fmt: skip
        assert good.count(before) == 1
        (tmp_path / "file").write_bytes(as_zip(good.replace(before, after), {"data/0": bytes(24)}))
        with pytest.raises(WeightsError, match=r"ends at byte .* of a storage of 24"):
            open_container(tmp_path / "file")
    expanded = good.replace(b"K\x02K\x03\x86", b"J\xff\xff\xff\x7fK\x03\x86").replace(
        b"K\x03K\x01\x86", b"K\x00K\x01\x86"
    )
    (tmp_path / "file").write_bytes(as_zip(expanded, {"data/0": bytes(24)}))
    with pytest.raises(WeightsError, match="expanded from a storage of 24"):
        open_container(tmp_path / "file")


def test_what_one_process_of_torch_had_is_refused_by_name(tmp_path):
    """A pickle that names the class with which FSDP's local and sharded state dicts wrap a tensor."""
    kind = b"\x80\x02ctorch.distributed._shard.sharded_tensor.api\nShardedTensor\n."
    (tmp_path / "rank_0.pt").write_bytes(as_zip(kind, {}))
    with pytest.raises(WeightsError, match=r"one process had \(ShardedTensor\).*FULL_STATE_DICT"):
        open_container(tmp_path / "rank_0.pt")
