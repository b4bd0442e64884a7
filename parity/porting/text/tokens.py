"""Token ids of texts, by the ``tokenizer.json`` beside a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.porting.formats.weights_folder import TOKENIZER, read_json
from parity.porting.text.cleaning import CLEANINGS, REBUILT, cleaning, rebuilt
from vit_config import InputError, TextConfig, WeightsError
from vit_config.files.foreign import parse_json, read_text
from vit_config.files.stored import guarded
from vit_config.terminal import muted

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE, SETTINGS, SPECIAL = TOKENIZER
NAMED = ("unk_token", "pad_token", "bos_token", "eos_token")
SIDES = ("right", "left")
GROWTH = {
    "NFC": 3.0, "NFD": 4.0, "NFKC": 18.0, "NFKD": 18.0, "Lowercase": 3.0, "ByteLevel": 2.0,
    "BertNormalizer": 12.0, "Precompiled": 18.0,
}  # fmt: skip
"""How many times longer normalizers of the library make a text, at most, by Unicode's own tables."""
MOST_GROWTH = 2**14
"""Most that all normalizers of a tokenizer may; those in use may 64 times."""


@dataclass(frozen=True)
class Tokens:
    """A tokenizer, and how its texts are brought to one length."""

    path: Path
    """The ``tokenizer.json``."""
    tokenizer: Tokenizer
    length: int
    """Number of tokens that every text gets: longer ones are cut before their last special token."""
    pad: int
    """Id of the tokens that fill a shorter one."""
    left: bool
    """Whether these stand before the text."""
    cleaned: str
    """What is done to a text before: a name of `CLEANINGS` or `REBUILT`."""

    def ids(self, texts: Sequence[str]) -> np.ndarray:
        """Return the ids (T, length) of texts, which the tokenizer normalises by its own rules.

        Raises:
            InputError: a text cannot be cleaned, for want of a library.
            WeightsError: the tokenizer makes no ids of them.
        """
        ids = np.full((len(texts), self.length), self.pad, np.int64)
        cleaned = [CLEANINGS.get(self.cleaned, str)(each) for each in texts]
        with guarded(self.path, "tokenizer"):
            with muted():
                encoded = self.tokenizer.encode_batch(cleaned)
            for row, each in zip(ids, encoded, strict=True):
                begin = self.length - len(each.ids) if self.left else 0
                row[begin : begin + len(each.ids)] = each.ids
        return ids


def read_tokens(path: Path, cfg: TextConfig, cleaned: str = "") -> Tokens:
    """Read the tokenizer beside a checkpoint.

    Texts are filled up to the tower's context length, or to the tokenizer's ``model_max_length`` if that
    is less.

    Args:
        path: the checkpoint's file or folder.
        cleaned: what the model's library does to a text before, see `TextDialect.cleans`.

    Raises:
        InputError: there is none, its files do not say how texts are filled up, or nobody knows here how
            they are cleaned.
        WeightsError: a file is damaged.
    """
    folder = path if path.is_dir() else path.parent
    if not (folder / FILE).is_file():
        raise InputError(
            f"{path}: no {FILE} beside it, which makes tokens of texts; put the checkpoint's own"
            " there, or give token ids (texts, tokens)"
        )
    settings, special = (_entries(folder / name) for name in (SETTINGS, SPECIAL))
    cleaned = cleaning(cleaned, settings, folder)
    if cleaned not in CLEANINGS and cleaned not in REBUILT:
        raise InputError(
            f"{path}: its library cleans texts in a way that is not known here ({cleaned}); give token"
            " ids (texts, tokens)"
        )
    named = {**special, **settings}
    tokens = {n: word for n in NAMED if isinstance(word := _content(named.get(n)), str)}
    tokenizer = _opened(folder / FILE, cleaned, tokens)
    length, longest = cfg.context_length, settings.get("model_max_length")
    if isinstance(longest, int) and 0 < longest < length:
        length = longest
    own = tokenizer.padding or {}
    side = settings.get("padding_side", own.get("direction", "right"))
    if side not in SIDES:
        raise WeightsError(
            f"{folder / SETTINGS}: padding_side = {side!r}, expected {' or '.join(SIDES)}"
        )
    pad = _pad(tokenizer, tokens.get("pad_token"), own)
    if pad is None and cfg.causal and cfg.pool in ("eos", "largest") and side == "right":
        pad = 0  # nothing behind the end of a text is seen
    if pad is None:
        raise InputError(
            f"{folder}: neither {SETTINGS} nor {FILE} says which token fills up a text, and this tower"
            " sees it; give token ids (texts, tokens)"
        )
    with guarded(folder / FILE, "tokenizer"):
        tokenizer.no_padding()
        tokenizer.enable_truncation(length)
    return Tokens(folder / FILE, tokenizer, length, pad, side == "left", cleaned)


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy the files of the tokenizer beside a checkpoint, as far as there are any.

    Raises:
        WeightsError: one is no text, or longer than any JSON file may be.
    """
    place = source if source.is_dir() else source.parent
    for path in (place / name for name in TOKENIZER):
        if path.is_file():
            with guarded(path, "JSON file"):
                (folder / path.name).write_bytes(read_text(path).encode())


def _opened(file: Path, cleaned: str, special: Mapping[str, str]) -> Tokenizer:
    from tokenizers import Tokenizer

    with guarded(file, "tokenizer"):
        text = read_text(file)
        content, made_anew = parse_json(text), cleaned in REBUILT
        if made_anew:
            content = rebuilt(content, cleaned, special)
        if (growth := _growth(content.get("normalizer"))) > MOST_GROWTH:
            raise WeightsError(
                f"its normalizers could make a text {growth:.3g} times as long; do not trust it"
            )
        with muted():
            return Tokenizer.from_str(json.dumps(content) if made_anew else text)


def _growth(normalizer: Any) -> float:
    """Return how many times longer a normalizer may make a text, at most; each in a sequence counts."""
    if not isinstance(normalizer, dict):
        return 1.0
    if normalizer.get("type") == "Sequence":
        return math.prod(map(_growth, normalizer.get("normalizers") or ()))
    pattern, content = normalizer.get("pattern"), str(normalizer.get("content", ""))
    if normalizer.get("type") == "Replace":
        letters = pattern.get("String") if isinstance(pattern, dict) else None
        of_each = len(content) / len(letters) if letters else 1 + len(content)  # before each letter, too
        return max(1.0, of_each)
    return GROWTH.get(str(normalizer.get("type")), 1.0 + len(str(normalizer.get("prepend", ""))))


def _entries(file: Path) -> Mapping[str, Any]:
    content = read_json(file) if file.is_file() else {}
    return content if isinstance(content, dict) else {}


def _pad(tokenizer: Tokenizer, token: str | None, own: Mapping[str, Any]) -> int | None:
    """Return the id that fills up texts: by the settings' token, else by the tokenizer's own padding."""
    token_id = None if token is None else tokenizer.token_to_id(token)
    return own.get("pad_id") if token_id is None else token_id


def _content(token: Any) -> Any:
    """Return the text of a special token, which older files describe further."""
    return token.get("content") if isinstance(token, dict) else token
