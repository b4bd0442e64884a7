"""A program of `torch.export` in a small type: run as the type computes it, and written with casts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from parity.exporting.narrow.graph import EXACT, Graph, Step, numbered

aten = torch.ops.aten
_ASSERTS = (aten._assert_tensor_metadata.default,)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in .*\n *(.*)')


class TorchGraph(Graph):
    """An exported program of the PyTorch twin."""

    def __init__(
        self, program: Any, dtype: str, images: np.ndarray, *, rounds_numbers: bool = False
    ) -> None:
        """Read a program.

        Args:
            rounds_numbers: whether numbers written in it are of the small type where an operation
                computes in it, as in ONNX; else they are not rounded.
        """
        self._rounds_numbers = rounds_numbers
        self._dtype = getattr(torch, dtype)
        nodes = [each for each in program.graph.nodes if _is_step(each)]
        self._nodes = nodes
        index = {each: i for i, each in enumerate(nodes)}
        self._index = index
        self._held = _held(program, torch.from_numpy(images), self._dtype)
        steps = []
        for node in nodes:
            reads = node.all_input_nodes
            line, text = _line(node)
            module = _module(node)
            steps.append(
                Step(
                    name=f"{module or line}.{operation(node)}",
                    line=line,
                    text=text,
                    inputs=tuple(index[each] for each in reads if each in index),
                    weights=sum(
                        self._held[each.name].numel()
                        for each in reads
                        if each.op == "placeholder"
                        and each.name not in program.graph_signature.user_inputs
                    ),
                    shape=tuple(getattr(node.meta.get("val"), "shape", ())),
                    small=is_small(node, self._dtype),
                    exact=operation(node) in EXACT,
                )
            )
        names = numbered(each.name for each in steps)
        self.steps = [Step(**{**vars(s), "name": n}) for s, n in zip(steps, names, strict=True)]
        (last,) = (each for each in program.graph.nodes if each.op == "output")
        self.outputs = tuple(index[each] for each in last.args[0])
        self.prepare(dtype, len(images))

    def called(self, index: int) -> str:
        """Return the name of what is called."""
        return operation(self._nodes[index])

    def _compute(self, index: int, known: dict[int, Any], *, narrow: bool) -> Any:
        node = self._nodes[index]
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: self._value(each, known))
        if narrow and self._rounds_numbers:
            args = tuple(
                float(torch.tensor(each, dtype=self._dtype)) if isinstance(each, float) else each
                for each in args
            )
        with torch.no_grad():
            return node.target(*tree_map(self._wide, args), **tree_map(self._wide, kwargs))

    def _value(self, each: Any, known: dict[int, Any]) -> Any:
        if not isinstance(each, torch.fx.Node):
            return each
        return known[self._index[each]] if each in self._index else self._held[each.name]

    def _wide(self, each: Any) -> Any:
        return torch.float32 if each is self._dtype else each

    def _rounded(self, value: Any) -> Any:
        return tree_map(lambda each: each.to(self._dtype).to(torch.float32), value)

    def _arrays(self, value: Any) -> list[np.ndarray]:
        return [each.numpy() for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


def as_onnx(program: Any) -> Any:
    """Return a program of the operations that ONNX has: a linear layer is a product and a sum, attention
    two products and a softmax."""

    def linear(x: Any, weight: Any, bias: Any = None) -> Any:
        product = torch.matmul(x, weight.t())
        return product if bias is None else product + bias

    def attention(
        q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        factor = q.shape[-1] ** -0.5 if scale is None else scale
        logits = torch.matmul(q * factor, k.transpose(-2, -1))
        logits = logits if attn_mask is None else logits + attn_mask
        return torch.matmul(torch.softmax(logits, -1), v)

    return program.run_decompositions(
        {aten.scaled_dot_product_attention.default: attention, aten.linear.default: linear}
    )


def keep(program: Any, wide: Mapping[int, str], dtype: str) -> Any:
    """Put casts into a program.

    Args:
        wide: see `parity.exporting.narrow.search.Kept`.
    """
    small = getattr(torch, dtype)
    nodes = [each for each in program.graph.nodes if _is_step(each) and is_small(each, small)]
    of_float32 = {nodes[i] for i in wide}
    assert [operation(nodes[i]) for i in wide] == [*wide.values()]  # the program that was searched
    for node in list(program.graph.nodes):
        reads_wide = any(each in of_float32 for each in node.all_input_nodes)
        if node.target in _ASSERTS and reads_wide:
            program.graph.erase_node(node)
        if not _is_step(node) or not is_small(node, small) or not (node in of_float32 or reads_wide):
            continue
        with program.graph.inserting_before(node):

            def cast(each: Any, before: Any = node) -> Any:
                if each in of_float32 or not is_small(each, small):
                    return each
                return _cast(program.graph, each, torch.float32, before)

            args, kwargs = map_arg((node.args, node.kwargs), cast)
        node.args, node.kwargs = tree_map(
            lambda each: torch.float32 if each is small else each, (args, kwargs)
        )
        node.meta["val"] = tree_map(lambda each: each.to(torch.float32), node.meta["val"])
        if node not in of_float32:
            with program.graph.inserting_after(node):
                users = list(node.users)
                narrow = _cast(program.graph, node, small, node)
            for user in users:
                user.replace_input_with(node, narrow)
    program.graph.lint()
    program.graph_module.recompile()
    return program


def _cast(graph: Any, node: Any, dtype: torch.dtype, like: Any) -> Any:
    made = graph.call_function(aten.to.dtype, (node, dtype))
    made.meta = {**like.meta, "val": node.meta["val"].to(dtype)}
    return made


def _is_step(node: Any) -> bool:
    return node.op == "call_function" and node.target not in _ASSERTS


def is_small(node: Any, dtype: torch.dtype) -> bool:
    """Return whether a node's result is of a type."""
    values = tree_leaves(node.meta.get("val"))
    return any(isinstance(each, torch.Tensor) and each.dtype is dtype for each in values)


def _held(program: Any, images: torch.Tensor, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return the values of a program's inputs by their nodes' names, those of the small type widened."""
    signature, values = program.graph_signature, {}
    places = {
        **signature.inputs_to_parameters, **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }  # fmt: skip
    for node in program.graph.nodes:
        if node.op == "placeholder":
            name = places.get(node.name)
            held = images if name is None else program.state_dict.get(name, program.constants.get(name))
            values[node.name] = held.to(torch.float32) if held.dtype is dtype else held
    return values


def operation(node: Any) -> str:
    """Return what a node calls, without the overload."""
    return getattr(node.target, "__name__", str(node.target)).partition(".")[0]


def _module(node: Any) -> str:
    stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return stack[-1].removeprefix("model").strip(".") if stack else ""


def _line(node: Any) -> tuple[str, str]:
    """Return the innermost line of the twin behind a node, and its text."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    ours = [each for each in frames if Path(each[0]).parent.name == "vit_torch"] or frames
    if not ours:
        return "", ""
    path, line, text = ours[-1]
    return f"{Path(path).name}:{line}", text
