"""A report never replaces what the command reads, nor a scan's list what is no list."""

import pytest

from parity.cli import main

READ = "files that somebody has"


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "a.safetensors", "a.png", "--json", "a.safetensors"],
        ["predict", "a.safetensors", "a.png", "--csv", "./a.png"],
        ["embed", "a.safetensors", "a.png", "--out", "a.png"],
        ["inspect", "a.safetensors", "--json", "link.safetensors"],
        ["check", "a.safetensors", "--json", "a.safetensors"],
        ["match", "a.safetensors", "b.safetensors", "--json", "b.safetensors"],
        ["diff", "a.py:f", "b.py:g", "--repro", "b.py"],
        ["diff", "a.py:f", "b.py:g", "--html", "a.py"],
        ["diff", "a.safetensors", "b.safetensors", "--sarif", "b.safetensors"],
        ["scan", ".", "-o", "a.safetensors"],
        ["scan", ".", "-o", "config.json"],
    ],
    ids=" ".join,
)
def test_what_is_read_is_kept(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.safetensors", "b.safetensors", "a.png", "a.py", "b.py"):
        (tmp_path / name).write_text(READ)
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "link.safetensors").symlink_to("a.safetensors")
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"parity {words[0]}: ")
    assert "give another path" in err
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_a_list_replaces_a_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["scan", ".", "-o", "jobs.json"]) == 0
    assert main(["scan", ".", "-o", "jobs.json"]) == 0
