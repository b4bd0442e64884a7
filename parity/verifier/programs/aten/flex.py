"""FlexAttention as the operations that it is made of: torch runs it through its compiler.

Only the function of torch that computes scores, `score_mod`, mask and softmax one by one can be recorded
and differentiated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import flex_attention


def _as_operations(*args: Any, **kwargs: Any) -> Any:
    from torch._higher_order_ops.flex_attention import math_attention

    return math_attention(*args, **kwargs)


_INSTEAD = {
    "flex_attention_hop": _as_operations,
    "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,
    "_validate_device": lambda *_: None,  # refuses gradients on CPUs, which the operator lacks there
}
"""What that module calls: the operator, whether it is not to be compiled, and a check of its inputs."""


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run FlexAttention as operations while entered, and what `torch.compile` made as it is written.

    The compiler is not told where it was not imported, which takes longer than to record a small model.
    """
    with ExitStack() as stack:
        for name, value in _INSTEAD.items():
            if hasattr(flex_attention, name):
                stack.callback(setattr, flex_attention, name, getattr(flex_attention, name))
                setattr(flex_attention, name, value)
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield
