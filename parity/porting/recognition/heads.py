"""Trained classifiers that no schema can express: several layers, or a layer outside the model read.

They are dropped only if the user allows it.
"""

from __future__ import annotations

from collections.abc import Mapping

WORDS = {
    "head", "heads", "classifier", "classification_head", "cls_head", "mlp_head", "linear_head",
    "linear_classifier", "fc", "probe", "score",
}  # fmt: skip
"""Usual names of a classifier on an encoder."""
OF_PRETRAINING = {"last_layer", "momentum_encoder", "teacher", "predictor"}
"""Keys of self-supervised training, whose heads are projectors and no classifiers."""


def classifiers(left: Mapping[str, tuple[int, ...]], branch: str, width: int) -> tuple[str, ...]:
    """Return the names of a trained classifier's tensors among those that are left out.

    Args:
        left: shapes of the tensors left out, by their names in the file.
        branch: prefix of the model in the file.
        width: width of a token.
    """
    prefix = levels(branch)
    if OF_PRETRAINING & {*prefix, *(key for name in left for key in levels(name))}:
        return ()
    groups: dict[str, list[str]] = {}
    for name in left:
        keys = levels(name)
        shared = next((i for i, key in enumerate(keys) if prefix[i : i + 1] != [key]), 0)
        if keys[shared] in WORDS:
            groups.setdefault(keys[shared], []).append(name)
    return tuple(
        name
        for names in groups.values()
        if any(len(left[n]) == 2 and {width, 2 * width} & {*left[n]} for n in names)
        for name in names
    )


def levels(name: str) -> list[str]:
    """Return the levels of a tensor's name."""
    return [key for key in name.replace("/", ".").split(".") if key]
