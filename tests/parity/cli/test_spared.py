"""Files that a command reads are never replaced, not even by --force."""

import json

import pytest

from parity.cli import main

FILES = (
    "a.safetensors",
    "b.png",
    "attention_b.png",
    "in/pixels.json",
    "in/recipe.toml",
    "in/like.pth",
    "lora/adapter_config.json",
    "lora/adapter_model.safetensors",
    "ckpt/config.json",
    "ckpt/model.safetensors",
    "ckpt/tokenizer.json",
    "host/model.safetensors",
    "run/run.json",
    "run/log.jsonl",
    "run/weights.safetensors",
    "run/checkpoints/7.pt",
    "trainer/model-00001-of-00002.safetensors",
    "trainer/optimizer.pt",
    "trainer/trainer_state.json",
    "photos/cat/1.png",
    "start/weights.safetensors",
    "list.jsonl",
    "elsewhere.json",
)
CONVERT = ["convert", "a.safetensors"]
MOVED = ["convert-run", "trainer"]


@pytest.mark.parametrize(
    "words",
    [
        [*CONVERT, "a.safetensors", "--to", "parity", "--force"],
        [*CONVERT, ".", "--to", "hf", "--force"],
        [*CONVERT, "lora", "--to", "hf", "--adapter", "lora", "--force"],
        [*CONVERT, "lora/adapter_model.safetensors", "--to", "parity", "--adapter", "lora", "--force"],
        [*CONVERT, "in", "--to", "hf", "--preprocess", "in/pixels.json", "--force"],
        [*CONVERT, "host", "--into", "host", "--force"],
        [*CONVERT, "host/model.safetensors", "--into", "host/model.safetensors", "--force"],
        ["convert", "ckpt", "ckpt/model.safetensors", "--to", "parity", "--force"],
        ["convert", "run", "run", "--to", "timm", "--force"],
        ["convert", "run", "run", "--to", "timm", "--lora", "--force"],
        ["convert", "run", ".", "--to", "timm", "--lora", "--force"],
        ["convert", "run", "run/checkpoints", "--to", "timm", "--step", "7", "--force"],
        ["convert", "run", "run/checkpoints/7.pt", "--to", "timm", "--step", "7", "--force"],
        ["export", "a.safetensors", "a.safetensors", "--to", "onnx", "--force"],
        ["export", "ckpt", "ckpt/config", "--to", "onnx", "--force"],
        ["export", "ckpt", "ckpt/tokenizer.json", "--to", "onnx", "--force"],
        ["export", "run", "run/run", "--to", "onnx", "--force"],
        ["export", "run", "run/weights.safetensors", "--to", "onnx", "--step", "7", "--force"],
        ["export", "ckpt", "in/pixels", "--to", "onnx", "--preprocess", "in/pixels.json", "--force"],
        ["export", "ckpt", "lora/adapter_config", "--to", "onnx", "--adapter", "lora", "--force"],
        ["convert-run", "run", "run", "--to", "torch", "--force"],
        ["convert-run", "run", "run/checkpoints/7.pt", "--to", "torch", "--force"],
        [*MOVED, "trainer/optimizer.pt", "--to", "jax", "--force"],
        ["plot", "a.safetensors", "--image", "b.png", "attention_b.png"],
        ["train", "--preset", "digits", "--init", "start/weights.safetensors", "--run-dir", "start"],
    ],
    ids=" ".join,
)
def test_what_is_read_is_spared(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text('{"recipe": {}}')
    before = {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")}
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"parity {words[0]}: ")
    assert "read" in err
    assert "give another" in err
    assert len(err.splitlines()) == 1
    assert {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")} == before


def test_outputs_of_a_manifest_spare_its_other_checkpoints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    for name in ("a.pth", "a/b.pth"):
        (tmp_path / name).write_text("weights")
    rows = [{"path": name, "status": "ready"} for name in ("a.pth", "a/b.pth")]
    (tmp_path / "jobs.json").write_text(json.dumps({"version": 1, "folder": ".", "checkpoints": rows}))
    assert main(["convert", "--manifest", "jobs.json", "--to", "hf", "--out", ".", "--force"]) == 2
    assert "would be a, which is or holds the checkpoint a/b.pth" in capsys.readouterr().err
    assert (tmp_path / "a/b.pth").read_text() == "weights"
