"""What may come of a changed checkpoint, and the changes that no reader could notice."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evidence.checkpoint_mutations.changes import Mutation
from evidence.checkpoint_mutations.samples import Model, Sample, outcome
from parity.porting.dialects.dialect import NEUTRAL
from vit_config import Preprocess, ViTConfig
from vit_config.errors import USER_ERRORS

LONGEST = 10.0
"""Seconds that one reading may take."""


class Indistinct(NamedTuple):
    """A change that makes the complete statement of another model."""

    kind: str
    """Regular expression of the kinds, as those below."""
    what: str
    """Searched for in ``sample: what was changed``."""
    differences: str
    """Regular expression of each possible difference."""
    why: str


PIXELS = "the config file states another preprocessing, and nothing else does"
FUNCTION = "the config file states another function, and the tensors fit both"
NAMES = "the config file names the classes otherwise, or not"
REGISTERS = "nothing else says how many registers there were, and there are models with any number"
PATCH = "nothing but its kernel says how large a patch is and how many channels it has"
CLASS = "no file says that there was a class token, and the same model is published without"
BARE = "nothing but its tensors says what a file without the project's header is"
TYPE = "a type is stated by the file, and the comment of a .pth or .npz has no digests"
VALUES = "without a checksum one number is as good as another"
ENTRY = "(drop )?entry"

STATED = (Indistinct("retype (one|all)", "", "type|values", TYPE),)
"""Changes of files that say their schema; of a sealed one the seal tells."""
UNSTATED = (
    *STATED,
    Indistinct("bytes", "", "values", VALUES),
    Indistinct("drop block", "", "config.depth|tensors", "no config file says how many there were"),
    Indistinct(
        "drop|resize",
        "(storage|register|reg)_tokens?$",
        "config.(register_tokens|pos_embed_prefix)|tensors|shapes",
        REGISTERS,
    ),
    Indistinct("drop|resize", "big-vision.*: cls$", "config.(class_token|pool|pos_.*)|tensors", CLASS),
    Indistinct(
        "resize",
        "(patch_embed.proj.weight|embedding/kernel)",
        "config.(in_channels|image_size|patch_size)|shapes|preprocess",
        PATCH,
    ),
    Indistinct("drop", "parity, resaved: patch_embed.proj.bias", "config.patch_bias|tensors", BARE),
    Indistinct(f"{ENTRY}|list file", "preprocessor_config.json", r"preprocess\.(?!class).*", PIXELS),
    Indistinct(ENTRY, "open_clip_config.json: preprocess_cfg", r"preprocess\.(?!class).*", PIXELS),
    Indistinct(ENTRY, " config.json: pretrained_cfg", r"preprocess\..*", PIXELS),
    Indistinct(ENTRY, " config.json: (id2label|label_names)", "preprocess.class_names", NAMES),
    Indistinct(ENTRY, r"config.json: (vision_config\.)?hidden_act", "config.act", FUNCTION),
    Indistinct(
        ENTRY, r"config.json: (vision_config\.)?(layer_norm|rms_norm)_eps", "config.norm_eps", FUNCTION
    ),
    Indistinct(ENTRY, "config.json: .*num_attention_heads", "config.num_heads", FUNCTION),
    Indistinct(ENTRY, " config.json: (architecture|model_args)", r"config\..*", FUNCTION),
    Indistinct(ENTRY, r"config.json: .*\bimage_size", ".*image_size", FUNCTION),
    Indistinct(ENTRY, r"open_clip_config.json: .*\.head_width", "config.num_heads", FUNCTION),
    Indistinct("entry", "open_clip_config.json: model_cfg.vision_cfg =", r"config\..*", FUNCTION),
    Indistinct(ENTRY, "open_clip_config.json: .*quick_gelu", "config.act", FUNCTION),
)
"""Changes of others' files, in which nothing contradicts them."""

SAID = {
    r"retype one: (type|values|type, values)": "widened",
    r".*: preprocess": "give --preprocess FILE",
}
"""Changes that the result tells in these words: kind and differences, a regular expression."""


class Verdict(NamedTuple):
    """The outcome for one changed checkpoint."""

    outcome: str
    """"refused", "same", "said", "indistinct" or "WRONG"."""
    why: str


def judge(sample: Sample, expected: Model, folder: Path, mutation: Mutation) -> Verdict:
    """Read a changed copy of a sample and look whether one of the allowed things happens.

    Args:
        expected: what came of the sample itself.
        folder: of the copy; one beside it is written to.
    """
    out = folder.parent / "out" / "own.safetensors"
    out.parent.mkdir(exist_ok=True)
    try:
        with _hurried():
            model = outcome(folder / sample.entry, out, sample.reading)
    except USER_ERRORS as error:
        return _judge_error(str(error), folder, out.parent)
    except Exception:
        return Verdict("WRONG", traceback.format_exc())
    finally:
        for path in out.parent.iterdir():
            path.unlink()
    if not (different := sorted(differences(model, expected))):
        return Verdict("same", "")
    new, changed = model.said - expected.said, f"{mutation.kind}: {', '.join(different)}"
    for pattern, words in SAID.items():
        if re.fullmatch(pattern, changed) and any(words in each for each in new):
            return Verdict("said", words)
    about = f"{sample.name}: {mutation.what}"
    for each in STATED if sample.signed else UNSTATED:
        fits = re.fullmatch(each.kind, mutation.kind) and re.search(each.what, about)
        if fits and all(re.fullmatch(each.differences, one) for one in different):
            return Verdict("indistinct", each.why)
    return Verdict("WRONG", f"differs in {', '.join(different)}; says {sorted(new) or 'nothing'}")


def differences(model: Model, expected: Model) -> Iterator[str]:
    """Yield the fields and parts in which two models differ."""
    for name in ViTConfig.model_fields:
        same = getattr(model.config, name) == getattr(expected.config, name)
        if not same and name not in (*NEUTRAL, "layer_scale"):  # no matter for the function
            yield f"config.{name}"
    if (model.preprocess is None) != (expected.preprocess is None):
        yield "preprocess"
    elif model.preprocess is not None:
        for name in Preprocess.model_fields:
            if getattr(model.preprocess, name) != getattr(expected.preprocess, name):
                yield f"preprocess.{name}"
    if model.arrays.keys() != expected.arrays.keys():
        yield "tensors"
    else:
        yield from {each for n, a in model.arrays.items() if (each := _different(a, expected.arrays[n]))}


def _different(actual: np.ndarray, expected: np.ndarray) -> str:
    if actual.shape != expected.shape:
        return "shapes"
    wide = np.result_type(actual, expected)
    if actual.astype(wide).tobytes() != expected.astype(wide).tobytes():
        return "values"
    return "type" if actual.dtype != expected.dtype else ""


def _judge_error(message: str, folder: Path, out: Path) -> Verdict:
    if "\n" in message or len(message) > 5000:
        return Verdict("WRONG", f"not one line: {message!r}")
    if str(folder) not in message:
        return Verdict("WRONG", f"does not name the file: {message}")
    if left := [path.name for path in out.iterdir()]:
        return Verdict("WRONG", f"left {left}: {message}")
    return Verdict("refused", message)


@contextmanager
def _hurried() -> Iterator[None]:
    """A TimeoutError where something takes longer than LONGEST."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"took more than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
