"""Reading a backbone out of an ONNX graph, whose products have no names of their own."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = pytest.mark.quick


def held(name, array):
    return SimpleNamespace(name=name, array=array)


def node(kind, name, *inputs):
    return SimpleNamespace(op_type=kind, name=name, input=inputs)


def test_products_are_named_by_the_nodes_that_read_them(monkeypatch):
    helper = SimpleNamespace(to_array=lambda each: each.array)
    monkeypatch.setitem(sys.modules, "onnx.numpy_helper", helper)
    from evidence.real_weights import tensors_of

    matrix, table = np.arange(6.0).reshape(2, 3), np.ones((1, 1369, 384))
    first, other = np.full((1, 1, 384), 2.0), np.full((1, 1, 384), 3.0)
    graph = SimpleNamespace(
        initializer=[
            held("backbone.encoder.layer.0.norm1.weight", np.ones(3)),
            held("onnx::MatMul_7", matrix),
            held("head.weight", matrix),
            held("/backbone/embeddings/Concat_2_output_0", first),
            held("backbone.embeddings.cls_token", other),
            held("/backbone/embeddings/Reshape_output_0", table),
        ],
        node=[
            node("MatMul", "/backbone/encoder/layer.0/mlp/fc1/MatMul", "x", "onnx::MatMul_7"),
            node("MatMul", "/backbone/encoder/layer.0/attention/MatMul", "q", "k"),
            node("MatMul", "/head/MatMul", "x", "head.weight"),
        ],
    )
    actual = tensors_of(graph)
    assert {*actual} == {
        "encoder.layer.0.norm1.weight", "encoder.layer.0.mlp.fc1.weight",
        "embeddings.cls_token", "embeddings.position_embeddings",
    }  # fmt: skip
    np.testing.assert_array_equal(actual["encoder.layer.0.mlp.fc1.weight"], matrix.T)
    np.testing.assert_array_equal(actual["embeddings.position_embeddings"][0, :2, 0], [2.0, 1.0])
    assert actual["embeddings.position_embeddings"].shape == (1, 1370, 384)
