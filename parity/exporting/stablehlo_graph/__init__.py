"""A StableHLO program that JAX serialized, as a function of JAX whose operations are its own."""

from parity.exporting.stablehlo_graph.module import StablehloGraph, graph_of

__all__ = ["StablehloGraph", "graph_of"]
