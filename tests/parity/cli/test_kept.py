"""A report replaces neither what the command reads nor a model's or a run's file."""

import pytest

from parity.cli import main
from tests.support.fleet_folder import own_file

CONTENT = "files that somebody has"
READ = "is what is read"
KEPT = "a model's or a run's file"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A folder with somebody's files; returns a function that reads all of them."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.safetensors", "b.safetensors", "a.png", "a.py", "b.py", "list.csv", "b.npz"):
        (tmp_path / name).write_text(CONTENT)
    for name in ("config.json", "run.json", "vit.onnx.json", "tokenizer.json", "recipe.toml"):
        (tmp_path / name).write_text('{"model_type": "vit"}')
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "b.PNG").write_text(CONTENT)
    (tmp_path / "link.safetensors").symlink_to("a.safetensors")
    (tmp_path / "itself").symlink_to("itself")
    return lambda: {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["predict", "a.safetensors", "a.png", "--json", "a.safetensors"], READ),
        (["predict", "a.safetensors", "a.png", "--csv", "./a.png"], READ),
        (["predict", "a.safetensors", "photos", "--features", "photos/b.PNG"], READ),
        (["predict", "a.safetensors", "a.png", "--json", "config.json"], KEPT),
        (["embed", "a.safetensors", "a.png", "--out", "a.png"], READ),
        (["embed", "a.safetensors", "a.png", "--out", "x.npy", "--names", "tokenizer.json"], KEPT),
        (["embed", "a.safetensors", "a.png", "--out", "x.npy", "--names", "x.npy"], "both"),
        (["inspect", "a.safetensors", "--json", "link.safetensors"], READ),
        (["inspect", "digits", "--json", "b.safetensors"], KEPT),
        (["inspect", "a\0b", "--json", "x.json"], "unknown preset"),
        (["check", "a.safetensors", "--json", "a.safetensors"], READ),
        (["check", "digits", "--svg", "vit.onnx.json"], KEPT),
        (["check-steps", "digits", "--config", "recipe.toml", "--json", "recipe.toml"], READ),
        (["match", "a.safetensors", "b.safetensors", "--json", "b.safetensors"], READ),
        (["diff", "a.py:f", "b.py:g", "--repro", "b.py"], READ),
        (["diff", "a.py:f", "a.py:g", "--repro", "b.py"], "b.npz: already exists"),
        (["diff", "a.py:f", "b.py:g", "--html", "a.py"], READ),
        (["diff", "a.py:f", "b.py:g", "--json", "x", "--html", "./x"], "both"),
        (["diff", "a.safetensors", "b.safetensors", "--html", "b.safetensors"], READ),
        (["list", "--json", "config.json"], KEPT),
        (["compare-runs", "a", "b", "--json", "run.json"], KEPT),
        (["eval", "a.safetensors", "--data", "table:list.csv", "--json", "list.csv"], READ),
        (["eval", "a.safetensors", "--data", "digits", "--plot", "recipe.toml"], KEPT),
        (["scan", ".", "-o", "a.safetensors"], KEPT),
        (["scan", ".", "-o", "config.json"], KEPT),
        (["scan", ".", "-o", "list.csv"], "lists no checkpoints"),
    ],
    ids=str,
)
def test_what_is_read_or_of_a_model_is_kept(words, why, files, capsys):
    before = files()
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"parity {words[0]}: ")
    assert why in err
    assert len(err.splitlines()) == 1
    assert files() == before


@pytest.mark.parametrize("flag", ["--json", "--plot"])
def test_a_report_that_cannot_be_written_is_refused_at_once(flag, capsys):
    assert main(["eval", "a.safetensors", "--data", "digits", flag, "none/x.png"]) == 2
    assert "none: no such folder to write x.png in" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["report.json", "itself"])
def test_a_report_of_before_is_replaced(name, tmp_path, capsys):
    for _ in range(2):
        assert main(["list", "digits", "--json", name]) == 0
    assert '"presets"' in (tmp_path / name).read_text()


def test_a_list_replaces_a_list(tmp_path, capsys):
    assert main(["scan", "photos", "-o", "jobs.json"]) == 0
    own_file(tmp_path / "photos" / "own.safetensors", 0)
    capsys.readouterr()
    assert main(["scan", "photos", "-o", "jobs.json"]) == 0
    assert "parity   safetensors   ready            1 " in capsys.readouterr().out
