"""Lines of the user's code behind those that FX generates for a graph, as torch.export keeps them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch

Frame = tuple[str, int, str]
"""File, line and function."""
_TRACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_CODE = "<eval_with_key>"
"""How the name of a generated file begins."""


def frames_of(text: str) -> list[Frame]:
    """Return the frames of a stack trace in Python's words, the innermost first."""
    return [(file, int(line), function) for file, line, function in reversed(_TRACE.findall(text))]


class GeneratedLines:
    """What stands behind the generated lines that ran."""

    def __init__(self) -> None:
        self._behind: dict[tuple[str, int], list[Frame]] = {}

    def unfold(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Yield frames, with the user's own in place of those of a generated line that ran."""
        for frame in frames:
            yield from self._behind.get(frame[:2], [frame])

    def note(self, frame: Any) -> None:
        """Keep what stands behind the line that a frame runs, if it is a generated one."""
        file, line = frame.f_code.co_filename, frame.f_lineno
        if not file.startswith(_CODE) or (file, line) in self._behind:
            return
        graph = frame.f_locals.get("self")
        if isinstance(graph, torch.fx.GraphModule):
            self._behind[file, line] = frames_of(_trace(graph, line))


def _trace(module: torch.fx.GraphModule, line: int) -> str:
    """Return the stack trace of the node that a line of a graph's code was generated for."""
    numbers = getattr(module, "_lineno_map", None) or {}
    index = numbers.get(line - getattr(module, "_prologue_start", 0))
    nodes = list(module.graph.nodes)
    if index is None or index >= len(nodes):
        return ""
    return nodes[index].meta.get("stack_trace") or ""


def name_lines_inside(archive: str, module: torch.nn.Module) -> None:
    """Let the stack traces of an archive's graphs name files in it, so that none is taken for a file of
    this machine."""
    for each in module.modules():
        for node in each.graph.nodes if isinstance(each, torch.fx.GraphModule) else ():
            trace = node.meta.get("stack_trace")
            if trace:
                node.meta["stack_trace"] = _TRACE.sub(
                    lambda found: (
                        f'File "{archive}/{found[1].lstrip("/")}", line {found[2]}, in {found[3]}'
                    ),
                    trace,
                )
