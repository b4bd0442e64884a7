"""Differences between a transformers backbone's feature maps and the output of the whole encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def differences(entries: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a backbone's feature maps differ from the encoder's last tokens, a sentence each.

    Args:
        entries: the backbone's config; entries of another form are ignored.
    """
    depth, layers = entries.get("num_hidden_layers"), entries.get("out_indices")
    if isinstance(depth, int) and isinstance(layers, list) and layers:
        # the tokens before the first block count as one more
        blocks = sorted(each % (depth + 1) for each in layers if isinstance(each, int))
        if blocks and blocks[-1] < depth:
            yield (
                f"the backbone's maps end with block {blocks[-1]} of {depth} (out_indices = {layers});"
                " the whole encoder is read"
            )
    if entries.get("apply_layernorm") is False:
        yield "the backbone's maps come before the final norm (apply_layernorm = false), which is read"
