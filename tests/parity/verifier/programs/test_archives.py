"""What an archive of torch.export would run as it is opened is named, and asked for by a flag."""

import io
import os
import re
import zipfile

import numpy as np
import pytest
import torch

from parity.cli import main
from parity.verifier.programs.archives import EXPRESSION, TARGET, find_code
from parity.verifier.programs.files import read_program
from vit_config import ConfigError, WeightsError

IMAGES = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gains = torch.nn.Parameter(torch.arange(5.0))

    def forward(self, images):
        return {"logits": torch.nn.functional.gelu(images * self.gains).flatten(1)}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "a.pt2"
    free = {"images": {0: torch.export.Dim("batch")}}
    torch.export.save(
        torch.export.export(Layer(), (torch.from_numpy(IMAGES),), dynamic_shapes=free), path
    )
    return path


def changed(archive, path, name, change):
    """The archive with another content of the member of that name, or with that member more."""
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(path, "w") as out:
        names = [each for each in source.namelist() if each.endswith(name)]
        for each in source.namelist():
            content = source.read(each)
            out.writestr(each, change(content) if each in names else content)
        if not names:
            out.writestr(name, change(b""))
    return path


def text(pattern, replacement):
    return lambda content: re.sub(pattern, replacement, content.decode(), count=1).encode()


class Calls:
    def __reduce__(self):
        return eval, ("open('RAN', 'w')",)


def pickled(_):
    written = io.BytesIO()
    torch.save(((Calls(),), {}), written)
    return written.getvalue()


MODEL, INPUTS, WEIGHTS = (
    "models/model.json",
    "sample_inputs/model.pt",
    "weights/model_weights_config.json",
)
CODE = r"__import__('os').system('touch RAN')"
ODD = {
    "expression": (MODEL, text(r'("expr_str": )"[^"]*"', rf'\1"{CODE}"')),
    "power": (MODEL, text(r'("expr_str": )"[^"]*"', r'\1"9**9**9**9"')),
    "target": (MODEL, text(r"torch\.ops\.aten\.gelu\.default", "torch.os.system")),
    "gadget": (MODEL, text(r"torch\.ops\.aten\.gelu\.default", "_operator.attrgetter")),
    "file": (MODEL, text(r"torch\.ops\.aten\.gelu\.default", "torch.ops.aten.from_file.default")),
    "name": (MODEL, lambda content: content.replace(b'"images"', f'"x={CODE}"'.encode())),
    "guards": (MODEL, text(r'"guards_code": \[\]', f'"guards_code": ["{CODE}"]')),
    "container": (MODEL, lambda content: content.replace(b"builtins.dict", b"antigravity.dict")),
    "inputs": (INPUTS, pickled),
    "weights": (WEIGHTS, text(r'"use_pickle": false', '"use_pickle": true')),
    "library": ("a/data/aotinductor/model/model.so", lambda _: b"\x7fELF"),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_would_be_run_is_asked_for(kind, archive, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = changed(archive, tmp_path / "odd.pt2", *ODD[kind])
    assert main(["diff", str(path), str(path)]) == 2
    said = capsys.readouterr().err
    assert "which torch.export may run as it opens the file" in said
    assert "--run-programs" in said
    assert said.count("\n") == 1
    with pytest.raises(ConfigError, match=r"torch\.export may run"):
        read_program(path)
    assert not (tmp_path / "RAN").exists()


def test_an_archive_without_code_is_opened(archive, tmp_path):
    assert find_code(archive) == ""
    assert torch.equal(
        read_program(archive)(torch.from_numpy(IMAGES))["logits"],
        Layer()(torch.from_numpy(IMAGES))["logits"],
    )


def test_what_is_searched_is_what_is_run(archive, tmp_path, monkeypatch):
    path = tmp_path / "a.pt2"
    path.write_bytes(archive.read_bytes())

    def replaced(searched):
        other = tmp_path / "other"
        other.write_bytes(archive.read_bytes())
        os.replace(other, path)
        return ""

    monkeypatch.setattr("parity.verifier.programs.files.find_code", replaced)
    with pytest.raises(WeightsError, match="changed while it was read"):
        read_program(path)


def test_what_is_trusted_is_opened(archive, tmp_path, capsys):
    path = changed(archive, tmp_path / "more.pt2", "a/notes", lambda _: b"any")
    assert "holds 'a/notes'" in find_code(path)
    assert main(["diff", str(archive), str(path), "--run-programs"]) == 0


PLAIN = ("Symbol('s34', positive=True, integer=True)", "Mul(Integer(3), Symbol('u0'))", "s0*3 - 1",
         "Max(1, FloorDiv(s1, 2))")  # fmt: skip
OTHER = ("lambdify", "exec('1')", "s0.name", "Symbol('s0').name", "x=1", "s0**9**9", CODE)


def test_arithmetic_alone_is_no_code():
    assert all(map(EXPRESSION.fullmatch, PLAIN))
    assert not any(map(EXPRESSION.fullmatch, OTHER))
    assert not any(map(TARGET.fullmatch, OTHER))
