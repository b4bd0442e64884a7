"""Tiny tokenizers as transformers saves them: CLIP's own, and one of words with SigLIP's conventions."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from tests.support.hf_models import transformers
from tests.support.text_models import END, LENGTH


def save_clip(folder: Path, **options: Any) -> Any:
    """CLIP's: pairs of bytes, lower case, a start and an end; letters are its only pieces."""
    letters = [letter + end for end in ("", "</w>") for letter in string.ascii_lowercase]
    vocab = {"<|startoftext|>": 0, "<|endoftext|>": END}
    vocab |= {letter: 2 + number for number, letter in enumerate(letters)}
    made = transformers.CLIPTokenizer(vocab=vocab, merges=[], model_max_length=LENGTH, **options)
    made.save_pretrained(folder)
    return made


def save_words(folder: Path, **options: Any) -> Any:
    """Words in lower case, an end, filled up with that end to a length that the settings state."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = ["a", "photo", "of", "the", "cat", "dog", "red", "small", "with"]
    vocab = {"<unk>": 0, "</s>": 1, **{word: 2 + number for number, word in enumerate(words)}}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    names = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "</s>"}
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{**names, "model_max_length": LENGTH - 4, **options}
    )
    made.save_pretrained(folder)
    return made
