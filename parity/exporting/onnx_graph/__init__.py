"""Evaluation of ONNX graphs in PyTorch, node by node, so that a graph is followed as a program is."""

from parity.exporting.onnx_graph.module import graph_module

__all__ = ["graph_module"]
