"""An ONNX graph as a `torch.nn.Module`: each node is one line of a Python function in the graph's name.

The lines are compiled under the name of the ONNX file, so that what says where a value was computed says
``vit.onnx:12``, and shows the node.
"""

from __future__ import annotations

import functools
import keyword
import linecache
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch

from parity.exporting.onnx_graph.operands import fold_constants
from parity.exporting.onnx_graph.operators import OPERATORS, RESULTS, find_unsupported
from vit_config import ConfigError, MissingFileError, WeightsError

DOMAINS = ("", "ai.onnx")
"""Names of the standard's own operators."""
OPSET = 13
"""Oldest version of the standard whose operators are evaluated; a graph of an older one is converted."""

LITERALS = {name: getattr(np, name) for name in ("array", "inf", "nan", "float16", "float32", "int32")}
"""Names in attributes as numpy and Python print them."""


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
    try:
        model = onnx.load(path)
    except Exception as error:
        raise WeightsError(f"{path}: no ONNX file that can be read ({error})") from None
    if model.functions:
        from onnx.inliner import inline_local_functions

        model = inline_local_functions(model)
    opset = next((each.version for each in model.opset_import if each.domain in DOMAINS), OPSET)
    return OnnxGraph(model if opset >= OPSET else _newer(model, opset, path), path)


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

    def __init__(self, model: Any, path: Path) -> None:
        super().__init__()
        graph = model.graph
        self.inputs = [each for each in graph.input if each.name not in _initialised(graph)]
        """The graph's inputs, as ONNX describes them."""
        self.metadata = {each.key: each.value for each in model.metadata_props}
        """The file's entries about itself."""
        self._paths: dict[str, str] = {}
        self._held: dict[str, np.ndarray] = {}
        for name, array in _constants(graph, path):
            self._hold(name, array)
        lines = list(_lines(graph, [each.name for each in self.inputs], path))
        self._compile(lines, str(path))
        self.eval()

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

    def _compile(self, lines: list[str], file: str) -> None:
        text = [f"{line}\n" for line in lines]
        linecache.cache[file] = (sum(map(len, text)), None, text, file)
        scope: dict[str, Any] = LITERALS | {name: fold_constants(run) for name, run in OPERATORS.items()}
        scope["w"] = _Constants(self)
        exec(compile("".join(text), file, "exec"), scope)
        self.forward = MethodType(scope["graph"], self)  # type: ignore[method-assign]

    def constant(self, name: str) -> Any:
        """Return a constant: a tensor of this module's, or an array."""
        if name in self._held:
            return self._held[name]
        return functools.reduce(getattr, self._paths[name].split("."), self)


class _Constants:
    """The constants of a graph by their names, as its lines read them."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph

    def __getitem__(self, name: str) -> Any:
        return self._graph.constant(name)


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


def _lines(graph: Any, inputs: list[str], path: Path) -> Iterator[str]:
    """Yield the lines of the function ``graph(self, ...)``, a node each."""
    names = _Names()
    for name, _ in _constants(graph, path):
        names.taken[name] = f"w[{name!r}]"
    yield f"def graph(self, {', '.join(map(names.of, inputs))}):"
    used = {each.name for each in graph.output} | {each for node in graph.node for each in node.input}
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
                f"{path}: node {node.name or node.output[0]} is a {kind}, {why} evaluated here"
                " operation by operation; ONNX Runtime may run it"
            )
        given = [names.of(each) if each else "None" for each in node.input]
        given += [f"{name}={value!r}" for name, value in attributes.items()]
        targets = ", ".join(names.of(each) if each else "_" for each in results)
        targets += "," if node.op_type == "Split" and len(results) == 1 else ""
        yield f"    {targets} = {node.op_type}({', '.join(given)})"
    returned = ", ".join(f"{each.name!r}: {names.of(each.name)}" for each in graph.output)
    yield f"    return {{{returned}}}"


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
    """Python names of a graph's values."""

    def __init__(self) -> None:
        self.taken: dict[str, str] = {}
        self._used = {*OPERATORS, *LITERALS, "self", "w", "_", *keyword.kwlist}

    def of(self, name: str) -> str:
        """Return the name of a value, the same each time."""
        if name not in self.taken:
            plain = re.sub(r"\W", "_", name)
            plain = f"v{plain}" if not plain or plain[0].isdigit() else plain
            while plain in self._used:
                plain += "_"
            self._used.add(plain)
            self.taken[name] = plain
        return self.taken[name]
