"""What libraries do to a text in Python before their tokenizer sees it: no file of a model says it."""

from __future__ import annotations

import html
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vit_config import InputError

UNFIXED = "cannot be cleaned as open_clip does without ftfy; pip install ftfy"
PLAIN = frozenset(string.printable) - set("&\r\x0b\x0c")
"""Characters of texts in which ftfy finds nothing to mend."""


def _fixed(text: str) -> str:
    """Mend the encoding of a text, and its HTML entities, which may be written twice."""
    try:
        from ftfy import fix_text
    except ImportError:
        if not PLAIN.issuperset(text):
            raise InputError(f"{text!r} {UNFIXED}") from None
        return text
    return html.unescape(html.unescape(fix_text(text)))


def _single_spaced(text: str) -> str:
    return " ".join(_fixed(text).split())


def _lower(text: str) -> str:
    return _single_spaced(text).lower()


def _canonical(text: str) -> str:
    """Take off capitals and punctuation, as Big Vision's evaluation of SigLIP does."""
    words = _fixed(text).replace("_", " ").translate(str.maketrans("", "", string.punctuation))
    return " ".join(words.lower().split())


def _siglip(text: str) -> str:
    small = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(small.split())


CLEANINGS: dict[str, Callable[[str], str]] = {
    "": str,
    "whitespace": _single_spaced,
    "lower": _lower,
    "canonicalize": _canonical,
    "SiglipTokenizer": _siglip,
}
"""What is done to a text, by open_clip's ``clean`` or the class of transformers: its function."""
CLIP_WORDS = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)
UNDERLINES = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
AT_SPACES = {
    "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False,
}  # fmt: skip
REBUILT: dict[str, dict[str, Any]] = {
    "CLIPTokenizer": {
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Lowercase"},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": CLIP_WORDS}, "behavior": "Removed", "invert": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        ]},
        "model": {"end_of_word_suffix": "</w>"},
    },
    "GemmaTokenizer": {
        "normalizer": UNDERLINES,
        "pre_tokenizer": AT_SPACES,
        "model": {"fuse_unk": True, "byte_fallback": True},
    },
    "Siglip2Tokenizer": {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, UNDERLINES]},
        "pre_tokenizer": AT_SPACES,
        "model": {"fuse_unk": True, "byte_fallback": True},
    },
}  # fmt: skip
"""The parts of ``tokenizer.json`` that a class of transformers 5 makes itself: of the file it takes the
pieces, how they are merged, and the special tokens (models/*/tokenization_*.py, `__init__`)."""
UNKNOWN = {"CLIPTokenizer": "<|endoftext|>"}
"""The token for what has no piece, where the settings name none: ``<unk>`` of the others."""
AROUND = {"CLIPTokenizer": ("<|startoftext|>", "<|endoftext|>")}
"""The tokens that a class puts around a text itself, where the settings name none."""
AS_IT_IS = ("PreTrainedTokenizer", "TokenizersBackend", "PythonBackend")
"""Classes that take ``tokenizer.json`` as it is."""
ALWAYS = ("Siglip2Tokenizer",)
"""Classes that transformers takes by a model's type, whatever class its tokenizer's settings name."""
PIECES = "spiece.model"
"""The file without which transformers has no `SiglipTokenizer`, unless the settings insist on it."""


def cleaning(name: str, settings: Mapping[str, Any], folder: Path) -> str:
    """Return what is done to texts: a name of `CLEANINGS` or `REBUILT`, or of a class of neither.

    Args:
        name: what a model's library does, see `TextDialect.cleans`.
        settings: the content of ``tokenizer_config.json``.
        folder: where the tokenizer's files lie.
    """
    if name.endswith("Tokenizer") and name not in ALWAYS:
        if settings.get("auto_map"):
            return f"auto_map = {settings['auto_map']}"
        if isinstance(stated := settings.get("tokenizer_class"), str):
            name = stated.removesuffix("Fast")
        elif name == "SiglipTokenizer" and not (folder / PIECES).is_file():
            return ""
        if name in AS_IT_IS:
            return ""
    return name


def rebuilt(content: Any, name: str, special: Mapping[str, str]) -> Any:
    """Return the content of a ``tokenizer.json`` as a class of transformers makes it anew.

    Args:
        name: the class, of `REBUILT`.
        special: the special tokens that the tokenizer's settings name, by their entries.
    """
    own, model = REBUILT[name], content.get("model")
    pieces = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(pieces, dict):
        return content
    unknown = special.get("unk_token", UNKNOWN.get(name, "<unk>"))
    merges = model.get("merges") or []
    bpe = {"type": "BPE", "vocab": pieces, "merges": merges, **own["model"], "unk_token": unknown}
    made = {**content, **own, "model": bpe}
    if name in AROUND:
        begin, end = (
            special.get(entry, token)
            for entry, token in zip(("bos_token", "eos_token"), AROUND[name], strict=True)
        )
        ids = {**pieces, **{each["content"]: each["id"] for each in content.get("added_tokens") or ()}}
        if begin in ids and end in ids:
            made["post_processor"] = {
                "type": "RobertaProcessing", "cls": [begin, ids[begin]], "sep": [end, ids[end]],
                "trim_offsets": False, "add_prefix_space": False,
            }  # fmt: skip
    return made
