"""What libraries do to texts in Python is done here too, or refused: their tokens, on odd texts."""

import json
from importlib import import_module
from string import punctuation

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import parity
from parity.porting.text import cleaning, hf, open_clip
from parity.porting.text.tokens import read_tokens
from tests.support.dialect_proof import redraw
from tests.support.hf_models import transformers
from tests.support.peers import import_timm
from vit_config import InputError, Preprocess, TextConfig

WORDS = ["a photo of a cat", "The small Red dog, with a cat!", "don't stop: café 12 34", "A B C dog"]
TEXTS = [
    "A Photo of a Cat", "don't STOP", "café  déjà\tvu", "", "<bos> a <eos>", "日本 猫", "  leading",
    "a" * 40, "İstanbul ΣΑΣ", "a_cat\u2019s &amp; dog &amp;lt;3",
]  # fmt: skip
LENGTH = 13
CFG = TextConfig(context_length=LENGTH, vocab_size=500, causal=False, pool="last")
SPECIAL = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}


def save(folder, model, kind, normalizer=None, **settings):
    """A tokenizer of another kind than that of the class that will read its pieces."""
    made = Tokenizer(model(unk_token="<unk>"))
    trainer = {models.BPE: trainers.BpeTrainer, models.WordLevel: trainers.WordLevelTrainer}[model]
    made.normalizer, made.pre_tokenizer = normalizer, pre_tokenizers.Whitespace()
    made.train_from_iterator(
        WORDS, trainer(vocab_size=90, special_tokens=sorted(SPECIAL.values()), show_progress=False)
    )
    end = made.token_to_id("<eos>")
    made.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", end)]
    )
    made.save(str(folder / "tokenizer.json"))
    settings = {**SPECIAL, "padding_side": "left", "model_max_length": LENGTH, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))


def ours(folder, kind):
    (dialect,) = (each for each in hf.DIALECTS if each.name == f"hf-{kind}-text")
    return read_tokens(folder, CFG, dialect.cleans({})).ids(TEXTS)


@pytest.mark.parametrize("model", [models.BPE, models.WordLevel])
@pytest.mark.parametrize(
    ("kind", "stated"),
    [
        ("siglip2", "GemmaTokenizer"),
        ("siglip2", "PreTrainedTokenizerFast"),
        ("siglip2", None),
        ("siglip", "GemmaTokenizerFast"),
        ("siglip", "PreTrainedTokenizerFast"),
        ("clip", "CLIPTokenizerFast"),
        ("clip", "PreTrainedTokenizerFast"),
        ("clip", "Siglip2Tokenizer"),
        ("clip", None),
    ],
)
def test_tokens_are_those_of_the_class_that_transformers_takes(kind, stated, model, tmp_path):
    normalizer = normalizers.Lowercase() if model is models.WordLevel and stated else None
    save(tmp_path, model, kind, normalizer, **({"tokenizer_class": stated} if stated else {}))
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    settings = {"padding": "max_length", "max_length": LENGTH, "truncation": True}
    expected = peer(TEXTS, return_tensors="np", **settings).input_ids
    np.testing.assert_array_equal(ours(tmp_path, kind), expected)


@pytest.mark.parametrize(
    "settings", [{"tokenizer_class": "BertTokenizer"}, {"auto_map": {"AutoTokenizer": "own.Own"}}]
)
def test_a_class_that_nobody_looked_at_is_refused(settings, tmp_path):
    save(tmp_path, models.BPE, "siglip", **settings)
    with pytest.raises(
        InputError, match=r"cleans texts in a way .*(BertTokenizer|own\.Own).* token ids"
    ):
        ours(tmp_path, "siglip")


@pytest.mark.parametrize("settings", [{}, {"tokenizer_class": "SiglipTokenizer"}])
def test_siglips_own_class_takes_off_punctuation(settings, tmp_path):
    """It needs a file of pieces, unless it is named."""
    save(tmp_path, models.WordLevel, "siglip", **settings)
    kept = ours(tmp_path, "siglip")
    (tmp_path / cleaning.PIECES).touch()
    plain = read_tokens(tmp_path, CFG, "")
    own = [
        " ".join(each.lower().translate(str.maketrans("", "", punctuation)).split()) for each in TEXTS
    ]
    np.testing.assert_array_equal(ours(tmp_path, "siglip"), plain.ids(own))
    assert np.array_equal(kept, ours(tmp_path, "siglip")) == bool(settings)


@pytest.mark.parametrize("clean", ["lower", "whitespace", "canonicalize"])
def test_open_clip(clean):
    import_timm()  # declares the operators without which torchvision does not load on some machines
    theirs = import_module("open_clip.tokenizer")
    expected = [theirs.get_clean_fn(clean)(each) for each in TEXTS]
    assert [cleaning.CLEANINGS[clean](each) for each in TEXTS] == expected


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ({}, "lower"),
        ({"hf_tokenizer_name": "timm/x"}, "whitespace"),
        ({"hf_tokenizer_name": "x", "tokenizer_kwargs": {"clean": "canonicalize"}}, "canonicalize"),
        ({"tokenizer_kwargs": {"strip_sep_token": True}}, "clean = lower, strip_sep_token = True"),
    ],
)
def test_what_open_clips_config_says(text, cleaned):
    sidecars = {"open_clip_config.json": {"model_cfg": {"text_cfg": text}}}
    (dialect,) = (each for each in open_clip.DIALECTS if each.name == "open-clip-text")
    assert dialect.cleans(sidecars) == cleaned


def test_without_ftfy_only_plain_texts_are_cleaned(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ftfy", None)
    assert cleaning.CLEANINGS["lower"]("A  Cat, of: 3") == "a cat, of: 3"
    for text in ("cat\u2019s", "&amp;"):
        with pytest.raises(InputError, match="pip install ftfy"):
            cleaning.CLEANINGS["lower"](text)


def test_capitals_of_siglip2_in_a_whole_model(tmp_path):
    sizes = {
        "hidden_size": 24,
        "intermediate_size": 37,
        "num_hidden_layers": 1,
        "num_attention_heads": 3,
    }
    text = {**sizes, "vocab_size": 90, "max_position_embeddings": LENGTH, "projection_size": 24}
    config = transformers.Siglip2Config(
        text_config=text, vision_config={**sizes, "num_patches": 9, "patch_size": 5}
    )
    redraw(transformers.Siglip2Model(config)).save_pretrained(tmp_path)
    files = (tmp_path / "config.json").read_text()
    save(tmp_path, models.BPE, "siglip2", tokenizer_class="GemmaTokenizer")
    (tmp_path / "config.json").write_text(files)
    pixels = Preprocess(image_size=(15, 15), mean=(0.5,) * 3, std=(0.5,) * 3)
    texts = parity.load(tmp_path, framework="torch", preprocess=pixels).texts
    np.testing.assert_array_equal(texts.embed(["A Photo"]), texts.embed(["a photo"]))
    assert np.abs(texts.embed(["a cat"]) - texts.embed(["a photo"])).max() > 1e-3
