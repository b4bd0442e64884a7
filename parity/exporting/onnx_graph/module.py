"""An ONNX graph as a `torch.nn.Module`: each node is a call that seems to stand on a line of the file.

Nothing of a file becomes source text: each node is called by the same code, under the name of the ONNX
file and the number of the node, so that what says where a value was computed says ``vit.onnx:12``. The
line that is shown there is only ever shown.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import linecache
import re
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np
import torch

from parity.exporting.onnx_graph.operands import fold_constants
from parity.exporting.onnx_graph.operators import OPERATORS, RESULTS, find_unsupported
from parity.exporting.onnx_graph.sizes import result_bytes
from parity.porting.formats.budget import budget_of
from vit_config import ConfigError, MissingFileError, WeightsError
from vit_config.errors import USER_ERRORS, first_line, one_line
from vit_config.files.held import check_held, most_of
from vit_config.files.lasting import check_lasting, lasting
from vit_config.files.stored import guarded

DOMAINS = ("", "ai.onnx")
"""Names of the standard's own operators."""
OPSET = 13
"""Oldest version of the standard whose operators are evaluated; a graph of an older one is converted."""

_MOST_NODES = 100_000
_TIMES = 64
"""How many times the bytes of the inputs a value may take, beside what the file may."""
_FAILS = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What evaluating a node fails with where its operands do not fit it."""
_CALL = (lambda run, operands, attributes: run(*operands, **attributes)).__code__
"""The code by which each node is called."""


class _Node(NamedTuple):
    """A node that is evaluated."""

    name: str
    """Name of its operator."""
    call: Callable[..., Any]
    """Calls the operator on the node's line."""
    run: Callable[..., Any]
    """The operator."""
    operands: tuple[str, ...]
    """Names of values, empty where an operand is left out."""
    attributes: dict[str, Any]
    results: tuple[str, ...]
    """Names of values, empty where nobody asks for one."""
    is_several: bool
    """Whether the operator returns its results as a tuple."""


def graph_module(path: str | Path) -> OnnxGraph:
    """Read an ONNX file as a PyTorch module, whose `forward` takes the graph's inputs by their names.

    Floating point initialisers are its parameters, a single number is a buffer, and what the graph
    computes from shapes stays numpy's, so that a program's operations are those on its data alone.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: it is no ONNX file.
        ConfigError: a node is of an operator that is not evaluated here, or a constant of such a type.
    """
    import onnx

    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file")
    with guarded(path, "ONNX file"):
        check_held(path)
        read = lasting(path)
        model = onnx.load(read, load_external_data=False)
        if model.functions:
            from onnx.inliner import inline_local_functions

            _check_calls(model)
            model = inline_local_functions(model)
        most = _load_beside(model.graph, read)
        opset = next((each.version for each in model.opset_import if each.domain in DOMAINS), OPSET)
        return OnnxGraph(model if opset >= OPSET else _newer(model, opset, path), path, most)


def _check_calls(model: Any) -> None:
    """Refuse functions that stand for more nodes than models have. WeightsError: there are too many."""
    functions = {(each.domain, each.name): each for each in model.functions}

    @functools.cache
    def count(name: tuple[str, str]) -> int:
        return total(functions[name].node) if name in functions else 1

    def total(nodes: Any) -> int:
        return sum(count((each.domain, each.op_type)) for each in nodes)

    if total(model.graph.node) > _MOST_NODES:
        raise WeightsError(f"its functions stand for more than {_MOST_NODES} nodes; do not trust it")


def _load_beside(graph: Any, path: Path) -> int:
    """Load what lies in other files, within their budget, and return how much a value may take."""
    from onnx.external_data_helper import load_external_data_for_tensor

    inside = (attribute.t for node in graph.node for attribute in node.attribute)
    tensors = [each for each in (*graph.initializer, *inside) if each.external_data]
    named = {e.value for each in tensors for e in each.external_data if e.key == "location"}
    files = [*map(lasting, (path, *filter(Path.is_file, map(path.parent.joinpath, named))))]
    budget = budget_of(path, files)
    for each in tensors:
        load_external_data_for_tensor(each, str(path.parent))
        budget.values(len(each.raw_data))
    check_lasting(files)
    return most_of(sum(each.stat().st_size for each in files))


def _newer(model: Any, opset: int, path: Path) -> Any:
    """Return a graph by the rules of a newer version, in which some operators mean something else."""
    from onnx.version_converter import convert_version

    metadata = list(model.metadata_props)
    try:
        model = convert_version(model, OPSET)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{path}: is of opset {opset}, of which onnx makes no opset {OPSET} ({reason}); export it"
            f" again with opset_version={OPSET} or higher"
        ) from None
    model.metadata_props.extend(metadata[len(model.metadata_props) :])
    return model


class OnnxGraph(torch.nn.Module):
    """An ONNX graph, read by `graph_module`."""

    forward_only = "an ONNX graph runs forward only"
    """Why its gradients are compared with nobody's."""

    def __init__(self, model: Any, path: Path, most: int) -> None:
        super().__init__()
        graph = model.graph
        self.inputs = [each for each in graph.input if each.name not in _initialised(graph)]
        """The graph's inputs, as ONNX describes them."""
        self.metadata = {each.key: each.value for each in model.metadata_props}
        """The file's entries about itself."""
        self._path, self._most = path, most
        self._paths: dict[str, str] = {}
        self._held: dict[str, np.ndarray] = {}
        for name, array in _constants(graph, path):
            self._hold(name, array)
        names = _Names()
        self._nodes = list(_nodes(graph, path))
        self._outputs = [each.name for each in graph.output]
        self._check()
        parameters = [names.of(each.name) for each in self.inputs]
        lines = [
            f"def graph(self, {', '.join(parameters)}):",
            *(f"    {names.line(node, self._paths.keys() | self._held)}" for node in self._nodes),
            f"    return {{{', '.join(map(names.of, self._outputs))}}}",
        ]
        linecache.cache[str(path)] = (0, None, [f"{line}\n" for line in lines], str(path))
        self.forward = MethodType(_taking(["self", *parameters]), self)  # type: ignore[method-assign]
        self.eval()

    def _check(self) -> None:
        """Refuse a graph that reads a value before it is made. WeightsError: names the value."""
        made = {*(each.name for each in self.inputs), *self._paths, *self._held}
        for node in self._nodes:
            if absent := [each for each in node.operands if each and each not in made]:
                raise WeightsError(f"{node.name} reads {absent[0]!r:.80}, which is not made before it")
            made.update(node.results)
        if absent := [each for each in self._outputs if not each or each not in made]:
            raise WeightsError(f"its output {absent[0]!r:.80} is made by no node")

    def _hold(self, name: str, array: np.ndarray) -> None:
        """Keep a constant: floating point as a tensor of the module's, all else as it is."""
        if array.dtype.kind in "iub" or not array.size:
            self._held[name] = array
            return
        narrow = array.dtype.name == "bfloat16"  # numpy's is not torch's
        tensor = torch.from_numpy(np.array(array, np.float32 if narrow else array.dtype))
        tensor = tensor.bfloat16() if narrow else tensor
        *parts, last = [re.sub(r"\W", "_", part) or "_" for part in name.split(".")]
        owner: torch.nn.Module = self
        for part in parts:
            if part not in owner._modules:
                owner.add_module(part, torch.nn.Module())
            owner = owner.get_submodule(part)
        while hasattr(owner, last):
            last += "_"
        if array.size > 1:
            owner.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))
        else:
            owner.register_buffer(last, tensor, persistent=False)
        self._paths[name] = ".".join([*parts, last])

    def evaluate(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Evaluate the nodes in the file's order.

        Args:
            inputs: values of the graph's inputs, in its order.
        """
        values = dict(zip((each.name for each in self.inputs), inputs, strict=True))
        most = self._most + _TIMES * sum(getattr(each, "nbytes", 0) for each in inputs)

        def value(name: str) -> Any:
            return None if not name else values[name] if name in values else self.constant(name)

        def check(node: _Node, nbytes: int) -> None:
            if nbytes > most:
                where = f"{self._path}: {node.results[0]!r:.80}"
                raise WeightsError(f"{where} takes {nbytes} bytes, more than {most}")

        for node in self._nodes:
            operands = [*map(value, node.operands)]
            try:
                check(
                    node, result_bytes(node.name, OPERATORS[node.name], operands, node.attributes, most)
                )
                result = node.call(node.run, operands, node.attributes)
            except _FAILS as error:
                if isinstance(error, USER_ERRORS):
                    raise
                where = f"{self._path}: node {node.results[0]!r:.80} ({node.name})"
                raise WeightsError(f"{where} cannot be computed: {first_line(error)}") from error
            results = result if node.is_several else (result,)
            check(node, max(getattr(each, "nbytes", 0) for each in results))
            values.update(zip(node.results, results, strict=True))
        return {name: value(name) for name in self._outputs}

    def constant(self, name: str) -> Any:
        """Return a constant: a tensor of this module's, or an array."""
        if name in self._held:
            return self._held[name]
        return functools.reduce(getattr, self._paths[name].split("."), self)


def _taking(parameters: Sequence[str]) -> FunctionType:
    """Return a method that evaluates a graph, and takes its inputs under these names after `self`."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(each, kind) for each in parameters])

    def graph(self: OnnxGraph, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self.evaluate([*signature.bind(self, *args, **kwargs).arguments.values()][1:])

    graph.__signature__ = signature  # type: ignore[attr-defined]
    return graph


def _initialised(graph: Any) -> set[str]:
    return {each.name for each in graph.initializer}


def _constants(graph: Any, path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield initialisers and the outputs of Constant nodes."""
    from onnx import helper, numpy_helper

    def known_type(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
        if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
            raise ConfigError(f"{path}: {name} is of type {array.dtype}, which is not evaluated here")
        return name, array

    for each in graph.initializer:
        yield known_type(each.name, numpy_helper.to_array(each))
    for each in graph.sparse_initializer:
        raise ConfigError(f"{path}: {each.values.name} is sparse, which is not evaluated here")
    for node in graph.node:
        if node.op_type == "Constant":
            value = helper.get_attribute_value(node.attribute[0])
            kind = node.attribute[0].name
            if kind == "value":
                yield known_type(node.output[0], numpy_helper.to_array(value))
            elif kind.startswith(("value_float", "value_int")):
                yield node.output[0], np.asarray(value, np.float32 if "float" in kind else np.int64)
            else:
                raise ConfigError(f"{path}: {node.output[0]} is a {kind}, which is not evaluated here")


def _nodes(graph: Any, path: Path) -> Iterator[_Node]:
    """Yield the nodes of a graph, each with the code that calls it on its line."""
    used = {each.name for each in graph.output} | {each for node in graph.node for each in node.input}
    number = 1  # the line that names the inputs
    for node in graph.node:
        if node.op_type == "Constant":
            continue
        attributes = {each.name: _attribute(each) for each in node.attribute}
        results = [*node.output]
        if node.op_type not in RESULTS:  # it may have more, and nobody asks for them
            results = results[:1] + [each for each in results[1:] if each in used]
        if node.op_type == "Split" and len(node.input) < 2:
            attributes.setdefault("num_outputs", len(results))
        ours = node.op_type if node.domain in DOMAINS else ""
        if why := find_unsupported(ours, node.input, attributes, results):
            kind = f"{node.domain}.{node.op_type}".strip(".")
            raise ConfigError(
                one_line(
                    f"{path}: node {node.name or node.output[0]} is a {kind}, {why} evaluated here"
                    " operation by operation; ONNX Runtime may run it"
                )
            )
        number += 1
        code = _CALL.replace(co_filename=str(path), co_firstlineno=number, co_name="graph")
        yield _Node(
            ours, FunctionType(code, {}), fold_constants(OPERATORS[ours]), tuple(node.input), attributes,
            tuple(results), len(results) > 1 or node.op_type == "Split",
        )  # fmt: skip


def _attribute(attribute: Any) -> Any:
    """Return an attribute's value. A float is of 32 bits: the shortest decimal that rounds to it."""
    from onnx import TensorProto, helper, numpy_helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return float(str(np.float32(value)))
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return list(value) if isinstance(value, Sequence) else value


class _Names:
    """Names of a graph's values as Python would write them, and its nodes as lines, to be shown."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}
        self._used = {*OPERATORS, "self", "_", *keyword.kwlist}

    def of(self, name: str) -> str:
        """Return the name of a value, the same each time."""
        if name not in self._taken:
            plain = re.sub(r"\W", "_", name)
            plain = f"v{plain}" if not plain or plain[0].isdigit() else plain
            while plain in self._used:
                plain += "_"
            self._used.add(plain)
            self._taken[name] = plain
        return self._taken[name]

    def line(self, node: _Node, constants: Container[str]) -> str:
        """Return a node as a line: ``y = Softmax(x, axis=-1)``."""
        given = [
            "None" if not each else f"w[{each!r}]" if each in constants else self.of(each)
            for each in node.operands
        ]
        given += [f"{name}={value!r}" for name, value in node.attributes.items()]
        targets = ", ".join(self.of(each) if each else "_" for each in node.results)
        targets += "," if node.is_several and len(node.results) == 1 else ""
        return " ".join(f"{targets} = {node.name}({', '.join(given)})".split())
