"""Where in a torch program something happens: the running module, the user's line, a value's path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from typing import Any

import torch

from parity.verifier.programs.aten.generated import Frame, GeneratedLines, frames_of
from parity.verifier.programs.built import construction_of
from parity.verifier.programs.callables import attributes_of, numbers_of
from parity.verifier.programs.operation import BUILT, Construction, Source
from parity.verifier.programs.sources import innermost


def named_tensors(tree: Any, prefix: str = "") -> list[tuple[str, torch.Tensor]]:
    """Return the tensors of a tuple, dictionary or dataclass, with their paths."""
    return [entry for entry in named_leaves(tree, prefix) if isinstance(entry[1], torch.Tensor)]


def named_leaves(result: Any, prefix: str = "", around: tuple[int, ...] = ()) -> list[tuple[str, Any]]:
    """Return all that a tuple, dictionary or dataclass holds except None, with paths; of another object
    the tensors and numbers among its attributes, or the object where it has none.

    Args:
        prefix: path of the result itself.
        around: identities of the objects that hold it, which it may hold in turn.
    """
    if isinstance(result, torch.Tensor):
        return [(prefix, result)]
    if id(result) in around:
        return []
    if hasattr(result, "items"):
        pairs = result.items()
    elif hasattr(result, "_asdict"):
        pairs = result._asdict().items()
    elif hasattr(result, "__dataclass_fields__"):
        pairs = ((each, getattr(result, each)) for each in result.__dataclass_fields__)
    elif isinstance(result, (tuple, list)):
        pairs = enumerate(result)
    elif result is None or numbers_of(result) is not None:
        return [] if result is None else [(prefix, result)]
    else:
        held = named_leaves(attributes_of(result), prefix, (*around, id(result)))
        return _only_numbers(held) or [(prefix, result)]
    around = (*around, id(result))
    return [
        entry
        for key, value in pairs
        for entry in named_leaves(value, f"{prefix}.{key}".strip("."), around)
    ]


def outputs_of(result: Any) -> list[tuple[str, Any]]:
    """Return the tensors and other numbers of what a program returns, with paths."""
    return _only_numbers(named_leaves(result))


def _only_numbers(leaves: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [
        (path, each)
        for path, each in leaves
        if isinstance(each, torch.Tensor) or numbers_of(each) is not None
    ]


class Context:
    """The module and the line that run now."""

    def __init__(self, modules: dict[int, str]) -> None:
        """Prepare; `modules` are the paths of modules by their `id`."""
        self._modules = modules
        self.built: dict[str, Construction] = {}
        """Where the modules that ran were built, by their paths."""
        self._stack: list[str] = []
        self._casts: list[torch.dtype | None] = []
        self._generated = GeneratedLines()

    def module_hooks(self) -> Any:
        """Return a context in which the path of the running module is known."""
        hooks = torch.nn.modules.module

        def enter(module: Any, _: Any) -> None:
            self._stack.append(self._modules.get(id(module), self._stack[-1] if self._stack else ""))
            construction = construction_of(module)
            if construction is not None:
                self.built[self._stack[-1]] = construction

        def leave(module: Any, _: Any, __: Any) -> None:
            self._stack.pop() if self._stack else None

        stack = ExitStack()
        stack.callback(hooks.register_module_forward_pre_hook(enter).remove)
        stack.callback(hooks.register_module_forward_hook(leave, always_call=True).remove)
        return stack

    @contextmanager
    def autocasts(self) -> Iterator[None]:
        """Keep track, while entered, of the type that `torch.autocast` asks for: no operator is told."""
        kind: Any = torch.amp.autocast_mode.autocast
        enter, leave = kind.__enter__, kind.__exit__

        def entered(cast: Any) -> Any:
            self._casts.append(cast.fast_dtype if cast._enabled else None)
            return enter(cast)

        def left(cast: Any, *raised: Any) -> Any:
            self._casts.pop()
            return leave(cast, *raised)

        kind.__enter__, kind.__exit__ = entered, left
        try:
            yield
        finally:
            kind.__enter__, kind.__exit__ = enter, leave

    @property
    def autocast(self) -> torch.dtype | None:
        """The type that the innermost `torch.autocast` asks for."""
        return self._casts[-1] if self._casts else None

    @property
    def module(self) -> str:
        """The path of the innermost module that runs."""
        return self._stack[-1] if self._stack else ""

    def where(self) -> Source | None:
        """Return the user's line that runs; in a backward pass, that of the forward operation, or of the
        user's own rule for it."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return _rule_line(node, sys._getframe(2)) or self._forward_line(node)
        frame = sys._getframe(2)
        return innermost(self._generated.unfold(_frames(frame, self._generated)))

    def _forward_line(self, node: Any) -> Source | None:
        """Return the line of the forward operation, given a backward one."""
        text = "".join(node.metadata.get("traceback_", ()))
        return innermost(self._generated.unfold(frames_of(text)))


def _rule_line(node: Any, frame: Any) -> Source | None:
    """Return the line of a backward rule that the user wrote; None in any other."""
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        return None
    inside = takewhile(lambda each: not each[0].endswith(_ENGINE), _frames(frame))
    return innermost(inside)


_OPTIMISERS = "/torch/optim/"
_ENGINE = "torch/autograd/graph.py"
"""The file that runs a backward pass: frames outside of it asked for the pass."""


def _frames(frame: Any, generated: GeneratedLines | None = None) -> Iterator[Frame]:
    """Yield the frames that run; after one of an optimiser of torch's, the line that built it.

    Args:
        generated: what keeps the lines behind generated ones.
    """
    while frame is not None:
        if generated is not None:
            generated.note(frame)
        if _OPTIMISERS in frame.f_code.co_filename:
            construction = construction_of(frame.f_locals.get("self"))
            if construction is not None:
                yield construction.source.file, construction.source.line, BUILT
        yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
