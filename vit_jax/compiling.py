"""Options for XLA where its defaults are not the fastest (in digits: docs/performance.md)."""

from functools import cache

import jax

_OPTIONS = {"cpu": {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"}}
"""By platform. On a CPU, YNNPACK is left the sums, and Eigen multiplies matrices: it takes a fifth less
time for a Vision Transformer's (docs/performance.md)."""


@cache
def compiler_options(platform: str) -> dict[str, str]:
    """What `jax.jit` is given as ``compiler_options`` for a program on `platform`, such as ``cpu``.

    Empty where there is nothing to gain, or XLA does not know the option: they are not part of its
    stable interface.
    """
    options = _OPTIONS.get(platform, {})
    try:
        with jax.default_device(jax.local_devices(backend=platform)[0]):
            jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except (RuntimeError, ValueError):
        return {}
    return options
