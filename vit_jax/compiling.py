"""Options for XLA where its defaults are not the fastest (measured in docs/performance.md)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import jax

_OPTIONS = {
    "cpu": {
        "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE",
        "xla_disable_hlo_passes": "cse_barrier_expander",
    }
}
"""Options by platform. On a CPU, YNNPACK keeps only the sums, and Eigen multiplies matrices: that
takes a fifth less time for a Vision Transformer's. The pass that is left out would remove the barriers
of `vit_jax.rules`; a step would keep half as much again (docs/performance.md)."""


@cache
def compiler_options(platform: str) -> dict[str, str]:
    """Return the ``compiler_options`` of `jax.jit` for a program on `platform`, such as ``cpu``.

    Empty if there is nothing to gain, or if XLA does not know the option: these options are not part
    of its stable interface.
    """
    options = _OPTIONS.get(platform, {})
    try:
        with jax.default_device(jax.local_devices(backend=platform)[0]):
            jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except (RuntimeError, ValueError):
        return {}
    return options


def least_effort() -> dict[str, Any]:
    """Return options that make the compiler quick, however slow its programs then are; for a TPU.

    Run with jax 0.10.2, which takes the effort, and with 0.12.0.1, which knows only the level.
    """
    if hasattr(jax.config, "jax_exec_time_optimization_effort"):
        return {"exec_time_optimization_effort": -1.0}
    return {"optimization_level": "O0"}


@contextmanager
def compilation_cache(folder: Path | None) -> Iterator[None]:
    """Cache programs that take more than a second to compile in a folder, within this context; None
    leaves the cache as it is (`JAX_COMPILATION_CACHE_DIR`)."""
    if folder is None:
        yield
        return
    name, config = "jax_compilation_cache_dir", cast(Any, jax.config)
    before = config.jax_compilation_cache_dir
    jax.config.update(name, str(folder.expanduser().absolute()))
    try:
        yield
    finally:
        jax.config.update(name, before)
