"""The order of a library model's parameters, for files that do not keep it.

An optimiser numbers parameters in this order. ``torch.save`` keeps it; safetensors sorts names.
"""

from __future__ import annotations

from collections.abc import Iterable

from vit_config.errors import CheckpointError

_OUTER = (
    "embeddings.cls_token", "embeddings.position_embeddings",
    "embeddings.patch_embeddings.projection", "{blocks}", "layernorm", "pooler.dense", "classifier",
)  # fmt: skip
_ATTENTION = (
    "attention.attention.query", "attention.attention.key", "attention.attention.value",
    "attention.output.dense",
)  # fmt: skip
_NORMS, _MLP = ("layernorm_before", "layernorm_after"), ("intermediate.dense", "output.dense")
_OLD, _NEW = (*_ATTENTION, *_MLP, *_NORMS), (*_ATTENTION, *_NORMS, *_MLP)
HF_VIT = {"4": (_OLD,), "5": (_NEW, _OLD)}
"""Order of the layers in a block of transformers' ViT, by the names in files, for each major version of
the library; during version 5 the norms moved before the MLP."""


def hf_orders(dialect: str, version: str | None, names: Iterable[str]) -> list[list[str]]:
    """Return the names of a transformers file in the orders that its code may have, the newest first.

    Args:
        version: version of the library in config.json.

    Raises:
        CheckpointError: the order of this model is not known.
    """
    major, given = (version or "unstated").partition(".")[0], list(names)
    if dialect != "hf-vit" or major not in HF_VIT:
        raise CheckpointError(
            f"the optimiser counts parameters in the order of the code of {dialect} in transformers"
            f" {version or 'of no stated version'}, which safetensors do not keep and which is known for"
            " hf-vit of versions 4 and 5"
        )
    return [sorted(given, key=lambda name: _hf_place(name, inner)) for inner in HF_VIT[major]]


def _hf_place(name: str, inner: tuple[str, ...]) -> tuple[int, int, int, bool]:
    layer, _, leaf = name.rpartition(".")
    if name.startswith("encoder.layer."):
        number, _, place = name.removeprefix("encoder.layer.").partition(".")
        return (
            _OUTER.index("{blocks}"),
            int(number),
            inner.index(place.rpartition(".")[0]),
            leaf == "bias",
        )
    whole = name if name in _OUTER else layer
    return _OUTER.index(whole), 0, 0, leaf == "bias"
