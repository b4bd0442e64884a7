"""Token ids of texts, by the ``tokenizer.json`` beside a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.porting.formats.weights_folder import TOKENIZER, read_json
from parity.porting.text.cleaning import CLEANINGS, REBUILT, cleaning, rebuilt
from vit_config import InputError, TextConfig, WeightsError
from vit_config.errors import first_line
from vit_config.files.foreign import read_text
from vit_config.files.stored import guarded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE, SETTINGS, SPECIAL = TOKENIZER
NAMED = ("unk_token", "pad_token", "bos_token", "eos_token")
SIDES = ("right", "left")


@dataclass(frozen=True)
class Tokens:
    """A tokenizer, and how its texts are brought to one length."""

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
        """
        ids = np.full((len(texts), self.length), self.pad, np.int64)
        cleaned = [CLEANINGS.get(self.cleaned, str)(each) for each in texts]
        for row, each in zip(ids, self.tokenizer.encode_batch(cleaned), strict=True):
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
    tokenizer.no_padding()
    tokenizer.enable_truncation(length)
    return Tokens(tokenizer, length, pad, side == "left", cleaned)


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

    with guarded(file, "JSON file"):
        text = read_text(file)
    try:
        if cleaned in REBUILT:
            text = json.dumps(rebuilt(json.loads(text), cleaned, special))
        return Tokenizer.from_str(text)
    except Exception as error:  # the library raises its base class
        why = first_line(error)
        raise WeightsError(f"{file}: no tokenizer that the library tokenizers reads ({why})") from None


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
