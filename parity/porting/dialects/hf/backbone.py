"""What a backbone of transformers gives that the whole encoder, which is read, does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def differences(entries: Mapping[str, Any]) -> Iterator[str]:
    """How the maps of a backbone differ from the encoder's last tokens, a sentence each.

    Args:
        entries: its config; of another form they say nothing.
    """
    depth, layers = entries.get("num_hidden_layers"), entries.get("out_indices")
    if isinstance(depth, int) and isinstance(layers, list) and layers:
        # the tokens before the first block count as one more
        found = sorted(each % (depth + 1) for each in layers if isinstance(each, int))
        if found and found[-1] < depth:
            yield (
                f"the backbone's maps end with block {found[-1]} of {depth} (out_indices = {layers});"
                " the whole encoder is read"
            )
    if entries.get("apply_layernorm") is False:
        yield "the backbone's maps come before the final norm (apply_layernorm = false), which is read"
