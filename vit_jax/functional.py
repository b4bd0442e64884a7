"""The model as a pure function of a flat dictionary of parameters.

``{common name: array in JAX's layout}`` is the form in which parameters, gradients and optimiser moments
live outside the module tree: a plain pytree, keyed by the names that PyTorch knows too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from flax import nnx

from vit_config import ViTConfig, ViTOutput
from vit_jax.leaves import leaves
from vit_jax.model import ViT
from vit_jax.scanned import UNROLLED, Gather, Loop, Params, make_run_all
from vit_jax.stacks import unstack
from vit_jax.weights import abstract_model


def get_params(model: nnx.Module) -> Params:
    """Return the parameters of a model by common name."""
    return {leaf.name: leaf.variable.get_value() for leaf in leaves(model)}


def make_merge(cfg: ViTConfig, abstract: ViT | None = None) -> Callable[[Params], ViT]:
    """Make a function that puts parameters into a model; it is cheap, and usable inside `jax.jit`.

    Args:
        abstract: `abstract_model(cfg)`, if it exists already.
    """
    abstract = abstract_model(cfg) if abstract is None else abstract
    graph = nnx.graphdef(abstract)
    parts = leaves(abstract)

    def merge(params: Params) -> ViT:
        state = [(leaf.path, nnx.Param(params[leaf.name])) for leaf in parts]
        return nnx.merge(graph, nnx.from_flat_state(state))

    return merge


def make_apply(
    cfg: ViTConfig, *, kernel: str = "auto", loop: Loop = UNROLLED, gather: Gather | None = None
) -> Callable[..., ViTOutput]:
    """Make the forward pass ``apply(params, images, **options)``, with the options of `ViT.__call__`.

    Args:
        loop: how the blocks are run; the parameters of a loop may be in stacks (`vit_jax.stacks`).
        gather: function applied to parameters before a layer uses them.
    """
    abstract = abstract_model(cfg, kernel=kernel)
    merge = make_merge(cfg, abstract)
    if loop == UNROLLED:
        return lambda params, images, **options: merge(gather(params) if gather else params)(
            images, **options
        )
    run_all = make_run_all(abstract.blocks, loop, gather)

    def apply(params: Params, images: jax.Array, **options: Any) -> ViTOutput:
        around = {name: x for name, x in params.items() if not name.startswith("blocks.")}
        model = merge(unstack({**params, **(gather(around) if gather else around)}))
        model.run_all = partial(run_all, params)
        return model(images, **options)

    return apply
