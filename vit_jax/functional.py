"""The model as a pure function of a flat dictionary of parameters.

``{common name: array in JAX's layout}`` is the form in which parameters, gradients and optimiser moments
live outside the module tree: a plain pytree, keyed by the names that PyTorch knows too.
"""

from collections.abc import Callable

import jax
from flax import nnx

from vit_config import ViTConfig, ViTOutput
from vit_jax.leaves import leaves
from vit_jax.weights import abstract_model

Params = dict[str, jax.Array]
"""Parameters by common name, each in JAX's layout."""


def get_params(model: nnx.Module) -> Params:
    """The parameters of a model."""
    return {leaf.name: leaf.variable.get_value() for leaf in leaves(model)}


def make_merge(cfg: ViTConfig, abstract: nnx.Module | None = None) -> Callable[[Params], nnx.Module]:
    """A function that puts parameters into a model; cheap, and usable inside `jax.jit`.

    Args:
        abstract: `abstract_model(cfg)`, if it is there already.
    """
    abstract = abstract_model(cfg) if abstract is None else abstract
    graph = nnx.graphdef(abstract)
    parts = leaves(abstract)

    def merge(params: Params) -> nnx.Module:
        state = [(leaf.path, nnx.Param(params[leaf.name])) for leaf in parts]
        return nnx.merge(graph, nnx.from_flat_state(state))

    return merge


def make_apply(cfg: ViTConfig, *, kernel: str = "auto") -> Callable[..., ViTOutput]:
    """The forward pass as ``apply(params, images, **options)``; options as `ViT.__call__` takes."""
    merge = make_merge(cfg, abstract_model(cfg, kernel=kernel))
    return lambda params, images, **options: merge(params)(images, **options)
