"""ONNX graphs in PyTorch: each operator is the standard's, and a graph is a side of a comparison."""

import copy
import inspect
import itertools
import linecache
import resource

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import parity
from parity.cli import main
from parity.exporting.onnx_graph import graph_module
from parity.exporting.onnx_graph.operators import OPERATORS
from parity.exporting.onnx_graph.sizes import result_bytes
from vit_config import ConfigError, InputError, WeightsError

DRAWN = np.random.default_rng(0)
X = DRAWN.standard_normal((2, 6, 5)).astype(np.float32)
IMAGE = DRAWN.standard_normal((2, 4, 7, 6)).astype(np.float32)
KERNEL = DRAWN.standard_normal((6, 2, 3, 2)).astype(np.float32)
ROWS = DRAWN.standard_normal((5, 3)).astype(np.float32)
GAINS = DRAWN.standard_normal(5).astype(np.float32)
BOOLS, BYTES = X > 0, DRAWN.integers(0, 255, (6, 5), dtype=np.uint8)


def i64(*numbers):
    return np.array(numbers, np.int64)


ONE = (
    "Neg", "Abs", "Exp", "Erf", "Tanh", "Sigmoid", "Relu", "Reciprocal", "Floor",
    "Ceil", "Round", "Sign", "Sin", "Cos", "IsNaN", "Softplus",
)  # fmt: skip
TWO = (
    "Add", "Sub", "Mul", "Div", "Equal", "Less", "LessOrEqual", "Greater",
    "GreaterOrEqual", "Max", "Min", "Sum",
)  # fmt: skip
REDUCTIONS = (
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL2",
)  # fmt: skip
CASES = [
    *((name, [X], {}) for name in ONE),
    *((name, [X], {}) for name in ("Identity", "Flatten", "Softmax", "LogSoftmax", "Gelu", "Shape")),
    *((name, [X, X[:1] + 0.25], {}) for name in TWO),
    *((name, [X, i64(1)], {"keepdims": 0}) for name in REDUCTIONS),
    *((name, [X], {}) for name in REDUCTIONS),
    ("Sqrt", [np.abs(X)], {}), ("Log", [np.abs(X)], {}), ("Pow", [np.abs(X), X], {}),
    ("And", [BOOLS, ~BOOLS[:1]], {}), ("Or", [BOOLS, ~BOOLS[:1]], {}), ("Not", [BOOLS], {}),
    ("Where", [BOOLS, X, 2 * X], {}), ("MatMul", [X, ROWS], {}), ("Gelu", [X], {"approximate": "tanh"}),
    ("Gemm", [X[0], ROWS, ROWS[0]], {"alpha": 0.5, "beta": 2.0}), ("Dropout", [X], {}),
    ("Gemm", [X[0].T, ROWS.T], {"transA": 1, "transB": 1}), ("Gemm", [X[0], ROWS, ROWS[0]], {}),
    ("Reshape", [X, i64(0, 3, -1)], {}), ("Transpose", [X], {"perm": [2, 0, 1]}), ("Transpose", [X], {}),
    ("Squeeze", [X[:, :1], i64(1)], {}), ("Unsqueeze", [X, i64(0, -1)], {}),
    ("Slice", [X, i64(1, -1), i64(9, 0), i64(1, 2), i64(2, -1)], {}), ("Slice", [X, i64(1), i64(2)], {}),
    ("Concat", [X, 2 * X], {"axis": 1}), ("Expand", [X[:, :1], i64(3, 1, 6, 1)], {}),
    ("Tile", [X, i64(2, 1, 3)], {}),
    ("Gather", [X, i64(3, -1).reshape(1, 2)], {"axis": 1}), ("Gather", [X, np.array(2)], {"axis": 2}),
    ("GatherElements", [X, i64(*[1, -1, 0] * 10).reshape(2, 3, 5)], {"axis": 1}),
    ("GatherND", [X, i64(1, 2, 0, -1).reshape(2, 1, 2)], {"batch_dims": 0}),
    ("Cast", [X], {"to": TensorProto.INT32}), ("Clip", [X, np.float32(-0.3), np.float32(0.4)], {}),
    ("ConstantOfShape", [i64(2, 3)], {}), ("Div", [i64(7, -7, 6), i64(2)], {}),
    *(("ConstantOfShape", [i64(2, 3)], {"value": numpy_helper.from_array(each)})
      for each in (GAINS[:1], np.float32([np.inf]), i64(7), BOOLS[0, 0, :1])),
    ("Range", [np.int64(1), np.int64(9), np.int64(3)], {}),
    ("LayerNormalization", [X, GAINS, GAINS[::-1].copy()], {"epsilon": 1e-3}),
    ("RMSNormalization", [X, GAINS], {"epsilon": 1e-3}),
    ("Conv", [IMAGE, KERNEL, KERNEL[:, 0, 0, 0].copy()],
     {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 0]}),
    ("Conv", [IMAGE, KERNEL], {"group": 2, "dilations": [2, 1], "pads": [1, 0, 0, 2]}),
    *(("Conv", [IMAGE, KERNEL], {"group": 2, "strides": [2, 1], "auto_pad": rule, "dilations": [1, 2]})
      for rule in ("SAME_UPPER", "SAME_LOWER", "VALID")),
    ("Pad", [X, i64(0, 1, 0, 2, 0, 3), np.float32(0.5)], {}),
    ("Pad", [X, i64(1, 2, 3, 1), np.float32(0.5), i64(2, 0)], {}),
    *(("Pad", [X, i64(0, 1, 4, 1, 2, 0)], {"mode": mode}) for mode in ("reflect", "edge", "wrap")),
    ("Trilu", [X, np.array(1)], {"upper": 0}),
    ("ArgMax", [X], {"axis": 1}), ("Einsum", [X, ROWS], {"equation": "bnd,de->bne"}),
    ("DequantizeLinear", [BYTES, np.abs(GAINS), BYTES[0]], {"axis": 1}),
    ("DynamicQuantizeLinear", [X], {}),
    ("MatMulInteger", [BYTES, BYTES[:5, :3], np.uint8(7), np.uint8(3)], {}),
    ("Split", [X, i64(1, 1)], {}), ("Split", [X, i64(2, 4)], {"axis": 1}),
    ("Split", [X], {"axis": 1, "num_outputs": 3}),
]  # fmt: skip
OUTPUTS = {"DynamicQuantizeLinear": 3}


def written(path, nodes, inputs, outputs, constants=(), opset=23):
    kind = helper.np_dtype_to_tensor_dtype
    given = [helper.make_tensor_value_info(n, kind(a.dtype), a.shape) for n, a in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    held = [numpy_helper.from_array(array, name) for name, array in dict(constants).items()]
    graph = helper.make_graph(nodes, "graph", given, made, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


@pytest.mark.parametrize("where", ["data", "shapes"])
def test_operators_are_the_standards(tmp_path, where):
    """Of tensors, and of arrays, as the arithmetic of shapes is."""
    assert {name for name, *_ in CASES} == {*OPERATORS}
    for name, given, attributes in CASES:
        count = attributes.get("num_outputs", OUTPUTS.get(name, 2 if name == "Split" else 1))
        names, made = [f"i.{n}" for n in range(len(given))], [f"o.{n}" for n in range(count)]
        node = helper.make_node(name, names, made, **attributes)
        graph = written(tmp_path / "one.onnx", [node], dict(zip(names, given, strict=True)), made)
        wanted = ReferenceEvaluator(str(graph)).run(None, dict(zip(names, given, strict=True)))
        module = graph_module(graph)
        if where == "data":
            given = [torch.from_numpy(np.array(each)) for each in given]
        with torch.no_grad():
            output = module(*given)
        for value, each in zip(map(np.asarray, wanted), output.values(), strict=True):
            np.testing.assert_allclose(np.asarray(each), value, rtol=2e-6, atol=2e-6, err_msg=name)


IMAGES = {"images": IMAGE}


@pytest.mark.parametrize(
    ("node", "attributes", "outputs", "opset"),
    [
        ("Softmax", {}, ["y"], 11), ("Clip", {"min": -0.5, "max": 0.5}, ["y"], 10),
        ("Pad", {"pads": [0, 0, 1, 2, 0, 0, 3, 4], "mode": "edge"}, ["y"], 10),
        ("Split", {"axis": 2, "split": [3, 4]}, ["y", "z"], 11), ("Split", {"axis": 3}, ["y", "z"], 13),
        ("Split", {"axis": 3}, ["y", "z"], 9), ("Unsqueeze", {"axes": [1]}, ["y"], 11),
        ("ReduceMean", {"axes": [2, 3]}, ["y"], 17),
    ],
)  # fmt: skip
def test_operators_of_older_versions_are_theirs(tmp_path, node, attributes, outputs, opset):
    made = helper.make_node(node, ["images"], outputs, **attributes)
    graph = written(tmp_path / "old.onnx", [made], IMAGES, outputs, opset=opset)
    session = onnxruntime.InferenceSession(graph)
    with torch.no_grad():
        output = graph_module(graph)(torch.from_numpy(IMAGE))
    for value, each in zip(map(np.asarray, session.run(None, IMAGES)), output.values(), strict=True):
        np.testing.assert_allclose(np.asarray(each), value, rtol=2e-6, atol=2e-6)


def test_a_result_that_nobody_asks_for_is_not_made(tmp_path):
    """A batch of two images is not taken for an image and a mask."""
    node = helper.make_node("Dropout", ["images"], ["y", "mask"], name="rest")
    graph = written(tmp_path / "one.onnx", [node], IMAGES, ["y"])
    assert torch.equal(graph_module(graph)(torch.from_numpy(IMAGE))["y"], torch.from_numpy(IMAGE))
    with pytest.raises(ConfigError, match="node rest is a Dropout, whose output mask is not evaluated"):
        graph_module(written(tmp_path / "two.onnx", [node], IMAGES, ["y", "mask"]))


@pytest.mark.parametrize(
    ("node", "attributes", "opset", "said"),
    [
        ("Cast", {"to": TensorProto.FLOAT8E4M3FN}, 23, "node n is a Cast, whose to = 17 is a type"),
        ("DequantizeLinear", {"block_size": 2}, 23, "node n is a DequantizeLinear, which is not as it"),
        ("Upsample", {"mode": "nearest"}, 9, "node y is a Resize, which is not evaluated here"),
        ("Nonsense", {}, 9, "is of opset 9, of which onnx makes no opset 13"),
        ("Constant", {"value_string": "text"}, 23, "y is a value_string, which is not evaluated"),
    ],
)
def test_what_is_not_evaluated_is_one_line_with_the_node(
    tmp_path, capsys, node, attributes, opset, said
):
    given = [] if node == "Constant" else ["images"] * (1 if node == "Cast" else 2)
    nodes = [helper.make_node(node, given, ["y"], name="n", **attributes)]
    graph = str(written(tmp_path / "odd.onnx", nodes, IMAGES, ["y"], opset=opset))
    assert main(["diff", graph, graph]) == 2
    printed = capsys.readouterr().err
    assert f"{graph}: {said}" in printed
    assert printed.count("\n") == 1


def layer(path, epsilon=1e-6, approximate="none"):
    """A norm, a product and a GELU of images (B, 3, 4, 5)."""
    nodes = [
        helper.make_node("LayerNormalization", ["images", "norm.weight"], ["normed"], epsilon=epsilon),
        helper.make_node("MatMul", ["normed", "fc.weight"], ["wide"]),
        helper.make_node("Gelu", ["wide"], ["logits"], approximate=approximate),
    ]
    images = {"images": np.zeros((2, 3, 4, 5), np.float32)}
    return written(path, nodes, images, ["logits"], {"norm.weight": GAINS, "fc.weight": ROWS})


@pytest.mark.parametrize(
    ("change", "cause", "line"),
    [({"epsilon": 1e-5}, "epsilon", 2), ({"approximate": "tanh"}, "activation", 4)],
)
def test_what_differs_is_named_with_its_node(tmp_path, capsys, change, cause, line):
    a, b = layer(tmp_path / "a.onnx"), layer(tmp_path / "b.onnx", **change)
    assert main(["diff", str(a), str(b)]) == 1
    said = capsys.readouterr().out
    assert f"1. {cause}: " in said
    node = linecache.getline(str(b), line).strip()
    assert f"B b.onnx:{line}" in said
    assert node in said


def test_a_graph_is_compared_with_what_it_stands_for(tmp_path):
    gains, rows = torch.from_numpy(GAINS), torch.from_numpy(ROWS)

    class Layer(torch.nn.Module):
        def forward(self, images):
            normed = torch.nn.functional.layer_norm(images, (5,), gains, None, 1e-6)
            return torch.nn.functional.gelu(normed @ rows)

    images = DRAWN.standard_normal((2, 3, 4, 5)).astype(np.float32)
    compared = parity.diff((Layer(), images), (layer(tmp_path / "a.onnx"), images))
    assert compared.equal
    assert "forward only" in compared.no_backward


def test_what_cannot_be_a_side_gets_a_sentence(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no graph")
    with pytest.raises(WeightsError, match=r"bad\.onnx: damaged or truncated ONNX file"):
        graph_module(tmp_path / "bad.onnx")
    node = helper.make_node("Hardmax", ["images"], ["logits"], name="odd")
    images = {"images": np.zeros((2, 3, 4, 5), np.float32)}
    with pytest.raises(ConfigError, match="node odd is a Hardmax"):
        graph_module(written(tmp_path / "odd.onnx", [node], images, ["logits"]))
    node = helper.make_node("Cast", ["images"], ["logits"], to=TensorProto.FLOAT)
    flat = written(tmp_path / "flat.onnx", [node], {"images": np.zeros((2, 3), np.float32)}, ["logits"])
    with pytest.raises(InputError, match="no batch of prepared images"):
        parity.diff(flat, flat)


def test_a_damaged_graph_ends_in_one_line(tmp_path, capsys):
    value = numpy_helper.from_array(np.ones(7, "f4"), "c")
    images = {"images": np.zeros((2, 3, 4, 5), np.float32)}
    nodes = {
        "reads 'nobody', which is not made before it": helper.make_node("Neg", ["nobody"], ["y"]),
        "its output 'y' is made by no node": helper.make_node("Neg", ["images"], ["x"]),
        "node 'y' (Add) cannot be computed": helper.make_node("Add", ["images", "c"], ["y"]),
        "description in vit.about": helper.make_node("Neg", ["images"], ["y"]),
    }
    for said, node in nodes.items():
        path = tmp_path / "odd.onnx"
        written(path, [node], images, ["y"])
        model = onnx.load(path)
        model.graph.initializer.extend([value] if "Add" in said else [])
        if "about" in said:
            helper.set_model_props(model, {"vit.about": '{"outputs": {"tokens": 1}, "input": []}'})
        onnx.save(model, path)
        assert main(["diff", str(path), str(path)]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


def test_a_graph_that_grows_ends_in_one_line(tmp_path, capsys):
    """A kilobyte of nodes, of functions or of holes may stand for gigabytes."""
    path, images = tmp_path / "odd.onnx", {"images": np.zeros((2, 3, 32, 32), np.float32)}

    def sizes():
        nodes = [helper.make_node("Concat", [f"x{i}"] * 2, [f"x{i + 1}"], axis=0) for i in range(40)]
        written(path, nodes, {"x0": images["images"]}, ["x40"])

    def functions():
        written(path, [helper.make_node("F39", ["images"], ["y"], domain="f")], images, ["y"])
        model, of = onnx.load(path), [helper.make_opsetid("", 23), helper.make_opsetid("f", 1)]
        for i in range(40):
            kind, domain = (f"F{i - 1}", "f") if i else ("Neg", "")
            nodes = [helper.make_node(kind, [a], [b], domain=domain) for a, b in ("xy", "yz")]
            model.functions.append(helper.make_function("f", f"F{i}", "x", "z", nodes, of))
        model.opset_import.append(of[1])
        onnx.save(model, path)

    def holes():
        written(path, [helper.make_node("Add", ["images", "w"], ["y"])], images, ["y"])
        beside = TensorProto(name="w", data_type=1, dims=[2**31], data_location=TensorProto.EXTERNAL)
        beside.external_data.add(key="location", value="beside")
        model = onnx.load(path)
        model.graph.initializer.append(beside)
        path.write_bytes(model.SerializeToString())
        with (tmp_path / "beside").open("wb") as file:
            file.truncate(2**33)

    for make, said in ((sizes, "' takes 100"), (functions, "100000 nodes"), (holes, "holes")):
        make()
        assert main(["diff", str(path), str(path)]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


LONG = i64(2**20, 2**20)
COLUMN, ROW = np.ones((2**14, 1), "f4"), np.ones((1, 2**14), "f4")
LARGE = {
    "ConstantOfShape": ([LONG], {}), "Expand": ([X[0, 0, :1], LONG], {}),
    "Tile": ([X[0, :1, :1], LONG], {}),
    "Range": ([np.int64(0), np.int64(2**40), np.int64(1)], {}),
    "Pad": ([X, i64(0, 0, 0, 2**30, 0, 2**10)], {}),
    "Conv": ([IMAGE, KERNEL], {"group": 2, "pads": [2**20] * 4}),
    "Einsum": ([COLUMN, ROW], {"equation": "ab,cd->abcd"}),
    "Gather": ([COLUMN, np.zeros((2**10, 2**10), "i8")], {"axis": 1}),
    **{kind: ([COLUMN, ROW], {}) for kind in ("Add", "MatMul", "Gemm", "Max", "Equal")},
    "Where": ([COLUMN > 0, ROW, ROW], {}),
    "ReduceSum": ([np.ones((2**30, 0), "f4"), i64(1)], {}),
}  # fmt: skip
"""One node each, whose result takes half a gibibyte and more."""


@pytest.mark.parametrize("kind", LARGE)
def test_what_one_node_would_take_is_known_before(tmp_path, kind):
    operands, attributes = LARGE[kind]
    named = {f"x{number}": each for number, each in enumerate(operands)}
    node = helper.make_node(kind, [*named], ["y"], **attributes)
    path = written(tmp_path / "a.onnx", [node], {}, ["y"], named)
    began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WeightsError, match=r"'y'.* [0-9]+ (bytes|numbers), more than [0-9]+"):
        graph_module(path)()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began < 2**18  # KiB


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda n: f"{n} {CASES[n][0]}")
def test_what_a_node_takes_is_known_of_every_operator(case):
    kind, operands, attributes = CASES[case]
    if kind in ("Shape", "Range"):  # whose results are numpy's, and few or counted
        return
    attributes = {
        k: numpy_helper.to_array(v) if kind == "ConstantOfShape" else v for k, v in attributes.items()
    }
    held = [torch.from_numpy(np.array(each)) if np.size(each) > 12 else each for each in operands]
    results = OPERATORS[kind](*held, **attributes)
    results = results if isinstance(results, tuple) else (results,)
    known = result_bytes(kind, OPERATORS[kind], held, attributes, most=0)
    assert known == max(each.nbytes for each in results)


def test_a_range_reads_its_numbers_where_there_are_some():
    """Among tensors without numbers torch warns, and what is read there is any number."""
    ran = []
    assert not result_bytes("Range", lambda *each: ran.append(each), [*i64(0, 7, 1)], {}, most=2**20)
    assert not ran


@pytest.mark.parametrize("kind", ["Identity", "Dropout", "Add"])
def test_no_text_of_a_file_is_executed(tmp_path, capsys, kind):
    code = f"a=0);open({str(tmp_path / 'ran')!r},'w').close();x=dict(a"
    node = helper.make_node(kind, ["x"] * (2 if kind == "Add" else 1), ["y"])
    node.attribute.append(helper.make_attribute(code, 1))
    path = tmp_path / "code.onnx"
    written(path, [node], {"x": np.zeros((2, 3), "f4")}, ["y"])
    assert main(["diff", str(path), str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "which is not as it stands here" in err
    assert not (tmp_path / "ran").exists()


def test_names_of_values_are_shown_and_never_read(tmp_path):
    """Names that are words of Python, hold line ends or quotes, or are written alike in Python."""
    names = ["x\nimport os", "class", "a'b", "a b", "a_b", "0", "self"]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    path = tmp_path / "names.onnx"
    written(path, nodes, {names[0]: np.zeros((2, 3), "f4")}, [names[-1]])
    module = graph_module(path)
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(module(x)[names[-1]], x)
    assert torch.equal(copy.deepcopy(module)(x)[names[-1]], x)
    assert list(inspect.signature(module.forward).parameters) == ["x_import_os"]
    lines = [linecache.getline(str(path), number).strip() for number in range(1, 9)]
    assert lines[:3] == [
        "def graph(self, x_import_os):",
        "class_ = Neg(x_import_os)",
        "a_b = Neg(class_)",
    ]
