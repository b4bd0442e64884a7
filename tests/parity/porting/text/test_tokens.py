"""Texts become the tokens that transformers makes of them, and classes in words are predicted."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import parity
from parity.cli import main
from parity.porting.text.tokens import read_tokens
from tests.support import text_models, tokenizers_tiny
from tests.support.hf_models import transformers
from vit_config import InputError, Preprocess, TextConfig, WeightsError

LONG = "a small red dog with the cat of a photo of the dog and more"
TEXTS = ["A photo of a cat", "the DOG", LONG, ""]
CAUSAL = TextConfig(context_length=text_models.LENGTH, pool="eos", eos_id=text_models.END)
LAST = CAUSAL.replace(causal=False, pool="last", eos_id=None)
SAVED = {"clip": tokenizers_tiny.save_clip, "siglip": tokenizers_tiny.save_words}


@pytest.mark.parametrize("kind", SAVED)
def test_tokens_are_transformers(kind, tmp_path):
    peer = SAVED[kind](tmp_path)
    tokens = read_tokens(tmp_path, CAUSAL if kind == "clip" else LAST)
    expected = peer(TEXTS, padding="max_length", truncation=True, return_tensors="np").input_ids
    np.testing.assert_array_equal(tokens.ids(TEXTS), expected)
    assert expected.shape == (4, text_models.LENGTH - (0 if kind == "clip" else 4))


def test_the_side_that_is_filled_up_is_the_files(tmp_path):
    peer = tokenizers_tiny.save_words(tmp_path, padding_side="left")
    expected = peer(TEXTS, padding="max_length", truncation=True, return_tensors="np").input_ids
    np.testing.assert_array_equal(read_tokens(tmp_path, LAST).ids(TEXTS), expected)
    assert (expected[1, :3] == 1).all()


def edited(path, **changes):
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(content))


def test_what_fills_up_is_asked_for_only_where_it_is_seen(tmp_path):
    tokenizers_tiny.save_words(tmp_path)
    edited(tmp_path / "tokenizer_config.json", pad_token=None, model_max_length=10**30)
    assert read_tokens(tmp_path, CAUSAL).ids(["the dog"]).tolist() == [[5, 7, 1] + [0] * 10]
    with pytest.raises(InputError, match="which token fills up a text"):
        read_tokens(tmp_path, LAST)
    padding = {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 4}
    padding |= {"pad_type_id": 0, "pad_token": "of"}
    edited(tmp_path / "tokenizer.json", padding=padding)
    assert read_tokens(tmp_path, LAST).ids(["the dog"]).tolist() == [[4] * 10 + [5, 7, 1]]


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": False}
SPOILED = {
    "3.28e+04 times as long": {"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 15}},
    "1.05e+05 times": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}] * 4}},
    "2e+04 times": {"normalizer": REPLACE | {"pattern": {"Regex": "a*"}, "content": "b" * 20_000}},
    "PanicException": {"pre_tokenizer": SPLIT},
    "Exception": {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}},
}


@pytest.mark.parametrize("said", SPOILED)
def test_a_tokenizer_of_a_stranger_ends_in_one_line(said, tmp_path, capfd):
    tokenizers_tiny.save_clip(tmp_path)
    edited(tmp_path / "tokenizer.json", **SPOILED[said])
    with pytest.raises(WeightsError, match=rf"tokenizer\.json: .*{re.escape(said)}"):
        read_tokens(tmp_path, CAUSAL).ids(["a" * 40 + "!", "b"])
    assert capfd.readouterr() == ("", "")


def test_a_damaged_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(WeightsError, match=r"tokenizer\.json: damaged or truncated tokenizer"):
        read_tokens(tmp_path, CAUSAL)
    tokenizers_tiny.save_words(tmp_path)
    edited(tmp_path / "tokenizer_config.json", padding_side="middle")
    with pytest.raises(WeightsError, match="padding_side = 'middle'"):
        read_tokens(tmp_path, CAUSAL)


@pytest.fixture(scope="module", params=("clip", "siglip"))
def checkpoint(request, tmp_path_factory):
    """A folder with model, tokenizer and processor, and what transformers makes of it."""
    folder = tmp_path_factory.mktemp(request.param)
    model = text_models.build(request.param).float()
    model.save_pretrained(folder)
    names = {"clip": "CLIPImageProcessor", "siglip": "SiglipImageProcessor"}
    size = {"height": 15, "width": 15}
    processor = getattr(transformers, names[request.param])(size=size, do_center_crop=False)
    processor.save_pretrained(folder)
    tokenizer = SAVED[request.param](folder)
    return folder, model, tokenizer, processor


IMAGE = Image.fromarray(np.random.default_rng(7).integers(0, 256, (15, 15, 3), np.uint8))


def peers(checkpoint, texts):
    """The probabilities of transformers, by its own tokenizer and its own pixels."""
    _, model, tokenizer, processor = checkpoint
    ids = tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt").input_ids
    pixels = processor(IMAGE, return_tensors="pt").pixel_values
    with torch.no_grad():
        logits = model(input_ids=ids, pixel_values=pixels).logits_per_image
    return (logits.sigmoid() if hasattr(model, "logit_bias") else logits.softmax(1)).numpy()


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_picture_and_words_give_what_transformers_gives(checkpoint, framework):
    loaded = parity.load(checkpoint[0], framework=framework)
    probabilities = loaded.zero_shot(IMAGE, TEXTS[:3]).probabilities
    assert np.abs(probabilities - peers(checkpoint, TEXTS[:3])).max() <= 1e-6
    one = loaded.zero_shot(IMAGE, TEXTS[0]).logits
    assert np.abs(one - loaded.zero_shot(IMAGE, TEXTS[:1]).logits).max() <= 1e-6


def test_the_command_names_classes_in_words(checkpoint, tmp_path, capsys):
    IMAGE.save(tmp_path / "it.png")
    texts = ["a photo of cat", "a photo of dog", "a photo of small dog"]
    command = ["predict", str(checkpoint[0]), str(tmp_path / "it.png"), "--framework", "torch"]
    command += ["--labels", "cat, dog,small dog", "--template", "a photo of {}"]
    assert main([*command, "--csv", str(tmp_path / "it.csv")]) == 0
    _, row = csv.reader((tmp_path / "it.csv").read_text().splitlines())
    likely = dict(zip(["cat", "dog", "small dog"], peers(checkpoint, texts)[0], strict=True))
    assert row[1::2] == sorted(likely, key=lambda name: -likely[name])
    assert [float(each) for each in row[2::2]] == pytest.approx(sorted(likely.values())[::-1], abs=1e-5)
    assert f"  {row[1]} 0." in capsys.readouterr().out
    assert main([*command, "--set", "text.act=relu"]) == 2  # what the file leaves open, and no more
    assert "text.act = relu (given), but" in capsys.readouterr().err
    assert main([*command, "--k", "1"]) == 0
    assert capsys.readouterr().out.split("  ")[1].startswith(f"{row[1]} 0.")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--labels", "cat,,dog"], "one is empty or given twice"),
        (["--labels", "cat,cat"], "one is empty or given twice"),
        (["--labels", "cat", "--template", "a photo"], "has no {}"),
        (["--template", "a photo of {}"], "is of --labels"),
        (["--labels", "cat", "--k", "0"], "k = 0"),
        ([], "no classes of its own; name them: --labels"),
    ],
)
def test_a_mistake_is_one_line(flags, said, checkpoint, capsys):
    assert main(["predict", str(checkpoint[0]), "x.png", "--framework", "torch", *flags]) == 2
    line = capsys.readouterr().err
    assert said in line
    assert line.count("\n") == 1


def test_without_a_tokenizer_ids_are_taken(checkpoint, tmp_path):
    model = checkpoint[1]
    model.save_pretrained(tmp_path)
    pixels = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3)
    loaded = parity.load(tmp_path, framework="torch", preprocess=pixels)
    with pytest.raises(InputError, match=r"no tokenizer\.json beside it.*or give token ids"):
        loaded.zero_shot(IMAGE, ["a cat"])
    assert loaded.zero_shot(IMAGE, text_models.texts(2)).logits.shape == (1, 2)
    assert loaded.zero_shot(IMAGE, text_models.texts(2).tolist()).logits.shape == (1, 2)
    with pytest.raises(InputError, match="different numbers of tokens"):
        loaded.zero_shot(IMAGE, [[1, 2], [3]])
    with pytest.raises(InputError, match="at least one"):
        loaded.zero_shot(IMAGE, [])


def test_the_library_of_tokens_is_imported_for_texts_alone():
    code = "import parity.porting.models.files, sys; print('tokenizers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
