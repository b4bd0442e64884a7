"""Trained classifiers that no schema holds: several layers, or a layer outside of the model taken.

They are not dropped without the user's word.
"""

from __future__ import annotations

from collections.abc import Mapping

WORDS = {
    "head", "heads", "classifier", "classification_head", "cls_head", "mlp_head", "linear_head",
    "linear_classifier", "fc", "probe", "score",
}  # fmt: skip
"""What people call the classifier that stands on an encoder."""
OF_PRETRAINING = {"last_layer", "momentum_encoder", "teacher", "predictor"}
"""Keys of self-supervised training, whose projectors are called heads too and classify nothing."""


def classifiers(left: Mapping[str, tuple[int, ...]], branch: str, width: int) -> tuple[str, ...]:
    """The names of a trained classifier's tensors among those that are not taken along.

    Args:
        left: shapes, by their names in the file.
        branch: where the model lies in the file.
        width: the values of a token.
    """
    prefix = _keys(branch)
    if OF_PRETRAINING & {*prefix, *(key for name in left for key in _keys(name))}:
        return ()
    groups: dict[str, list[str]] = {}
    for name in left:
        keys = _keys(name)
        shared = next((i for i, key in enumerate(keys) if prefix[i : i + 1] != [key]), 0)
        if keys[shared] in WORDS:
            groups.setdefault(keys[shared], []).append(name)
    return tuple(
        name
        for names in groups.values()
        if any(len(left[n]) == 2 and {width, 2 * width} & {*left[n]} for n in names)
        for name in names
    )


def _keys(name: str) -> list[str]:
    return [key for key in name.replace("/", ".").split(".") if key]
