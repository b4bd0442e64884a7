"""Pairs of names: which tensor of a file has the name of which parameter, whatever wraps either.

Names are a first guess. What a wrapper of torch, PEFT or Flax puts into them is left out; then one
prefix of the model and one of the file are sought with which most names are the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

Tokens = tuple[str, ...]

WRAPPERS = frozenset(
    ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "base_layer",
     "original_module")
)  # fmt: skip
"""Modules that DDP, torch.compile, FSDP, checkpointing and PEFT put around another."""
ONE_WORD = {"kernel": "weight", "scale": "weight", "gamma": "weight", "embedding": "weight",
            "beta": "bias", "mean": "running_mean", "var": "running_var",
            "moving_mean": "running_mean", "moving_variance": "running_var"}  # fmt: skip
"""Torch's word for the last word of a name in other libraries."""
LONGEST_PREFIX = 6
ADAPTER = re.compile(r"\.(?:lora_\w+|modules_to_save)\b")
"""What PEFT adds to a model."""


def tokens(name: str) -> Tokens:
    """Return the parts of a name, without those of wrappers."""
    parts = re.sub(r"(\.lora_\w+|\.modules_to_save)\.default\b", r"\1", name.replace("/", "."))
    parts = parts.replace("base_model.model.", "", 1).replace(".modules_to_save", "").split(".")
    while len(parts) > 1 and parts[-1] in ("value", "raw_value"):  # of NNX's variables
        parts = parts[:-1]
    while len(parts) > 1 and parts[0] in ("params", "batch_stats"):  # Linen's collections
        parts = parts[1:]
    return tuple(part for part in parts if part not in WRAPPERS) or tuple(parts)


def in_one_word(parts: Tokens) -> Tokens:
    """Return a name whose last word is torch's."""
    return (*parts[:-1], ONE_WORD.get(parts[-1], parts[-1]))


def pair_names(
    ours: Mapping[str, Iterable[str]],
    theirs: Iterable[str],
    agree: Callable[[Mapping[str, str]], float],
) -> dict[str, str]:
    """Return the tensor of the file that has the name of each parameter.

    Args:
        ours: other names of each parameter of the model, by its name.
        theirs: names in the file.
        agree: tells, of pairs, how many hold the same numbers; asked where names leave a choice.
    """
    theirs = list(theirs)
    there = set(theirs)
    pairs: dict[str, str] = {}
    for name, also in ours.items():
        same = next((each for each in (name, *also) if each in there), None)
        if same is not None:
            pairs[name] = same
    for word in (lambda each: each, in_one_word):
        rest = {
            name: [word(tokens(x)) for x in (name, *ours[name])] for name in ours if name not in pairs
        }
        taken = set(pairs.values())
        free: dict[Tokens, str] = {}
        for name in theirs:
            if name not in taken:
                free.setdefault(word(tokens(name)), name)
        pairs |= _by_prefix(rest, free, agree)
    return pairs


def _by_prefix(
    ours: Mapping[str, list[Tokens]],
    theirs: Mapping[Tokens, str],
    agree: Callable[[Mapping[str, str]], float],
) -> dict[str, str]:
    """Pair names by the prefixes of both sides that leave most names the same, then by the next."""
    fronts_a = _fronts(each[0] for each in ours.values())
    fronts_b = _fronts(theirs)
    fewer = min(len(ours), len(theirs))  # the file may be of a part of the model
    options = []
    for front_a in [each for each, count in fronts_a.items() if 2 * count >= fewer]:
        inner = {n: [x[len(front_a) :] for x in names if x[: len(front_a)] == front_a]
                 for n, names in ours.items()}  # fmt: skip
        for front_b, count in fronts_b.items():
            if 4 * count < fewer:
                continue
            found = {
                name: theirs[front_b + x]
                for name, each in inner.items()
                for x in each[::-1]
                if front_b + x in theirs
            }
            if found:
                options.append((len(found), -len(front_a) - len(front_b), found))
    options.sort(key=lambda each: each[:2], reverse=True)
    most = [each for each in options if each[0] == options[0][0]]
    if len(most) > 1:  # the model and its average have the same names
        best = max(most, key=lambda each: agree(each[2]))
        options.remove(best)
        options.insert(0, best)
    pairs: dict[str, str] = {}
    for _, _, found in options:
        taken = set(pairs.values())
        pairs |= {a: b for a, b in found.items() if a not in pairs and b not in taken}
    return pairs


def _fronts(names: Iterable[Tokens]) -> Counter[Tokens]:
    """Count the names under each prefix, the empty one included; one block of several is none."""
    return Counter(
        name[:end]
        for name in names
        for end in range(min(len(name), LONGEST_PREFIX))
        if end < 2 or not re.search(r"(^|_)\d+$", name[end - 1])
    )
