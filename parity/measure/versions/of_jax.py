"""Facts that depend on the version of JAX: compiler flags, parameters of its primitives, private names.

This module imports JAX only when given an object of JAX's: flags must be set before that import.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from parity.measure.versions.seen import Seen
from vit_config.errors import InputError

JAX = Seen("jax", "0.10.0", "0.12.0.1")
JAXLIB = Seen("jaxlib", "0.10.0", "0.12.0.1")
"""Versions of the compiler; each JAX works with several."""


@dataclass(frozen=True)
class _Flag:
    name: str
    quick: Any
    usual: Any
    """XLA's own default."""
    last: str = JAXLIB.newest
    """The last jaxlib that knows the flag: an unknown flag in `XLA_FLAGS` ends the interpreter."""


_FLAGS = (
    _Flag("xla_backend_optimization_level", 0, 3),
    _Flag("xla_llvm_disable_expensive_passes", True, False),
    _Flag("xla_cpu_use_fusion_emitters", False, True, last="0.11.0"),
    _Flag("xla_cpu_parallel_codegen_split_count", 1, 32),
)


def quick_flags() -> dict[str, Any]:
    """Return XLA flags that compile quickly to slow code; none for an unknown version."""
    known = JAXLIB.say_if_unknown("programs are compiled with XLA's own flags, which takes longer")
    return {each.name: each.quick for each in _FLAGS if known and JAXLIB.upto(each.last)}


def usual_options() -> dict[str, Any]:
    """Return the same flags as compiler options at XLA's own defaults, whatever the process's flags."""
    return {each.name: each.usual for each in _FLAGS if each.name in quick_flags()}


def say_how_programs_are_read() -> None:
    """Warn once, for an unknown version, that its jaxprs are read like those of known ones."""
    JAX.say_if_unknown("its programs are read as those of these; an operation that changed is an error")


@dataclass(frozen=True)
class ScanEquation:
    """A `scan` in a jaxpr: its operands are constants, then the carry, then the arrays it runs over."""

    body: Any
    """A jaxpr, closed or open."""
    constants: int
    carried: int
    length: int
    is_reverse: bool


def read_scan(params: Mapping[str, Any]) -> ScanEquation:
    """Read the parameters of a `scan`: counts until jax 0.10, a tree of the operands since 0.11.

    Raises:
        InputError: the parameters are neither.
    """
    if "num_consts" in params:
        constants, carried = params["num_consts"], params["num_carry"]
    elif hasattr(params.get("ft_in"), "unpack"):
        constants, carried, _ = (len(part) for part in params["ft_in"].unpack())
    else:
        raise InputError(
            f"a scan of jax {JAX.version} has the parameters {', '.join(params)}, in which what it"
            f" carries is not to be found; this reads those of {JAX}: install one of these"
        )
    return ScanEquation(params["jaxpr"], constants, carried, params["length"], params["reverse"])


def purposes(value: Any) -> Iterator[str]:
    """Yield the purpose of each trace around a traced value, innermost first, such as "jit"; none
    for an array.

    JAX has no public API for this. If the private one changed, no purpose would be found.
    """
    trace: Any = getattr(value, "_trace", None)
    while trace is not None:
        about = getattr(getattr(trace, "frame", None), "debug_info", None)
        yield str(getattr(about, "traced_for", ""))
        trace = getattr(trace, "parent_trace", None)


SEALED = ("jax._src.stages", "jax._src.export")
"""Modules that define the classes of programs exported or compiled ahead of time."""
EXPORT_FOLDER = "/jax/_src/export/"
BACKWARD_RULE = "custom_lin"
"""The primitive of a `jax.custom_vjp`'s tangent, whose transposition runs the user's rule."""


def transpositions() -> Iterator[dict[Any, Any]]:
    """Yield JAX's tables of functions that transpose a primitive: the public one, and a private one,
    whose functions (of 0.12.0.1) add gradients up in place."""
    from jax._src.interpreters import ad

    yield ad.primitive_transposes
    yield getattr(ad, "fancy_transposes", {})


def stopping() -> tuple[Any, str]:
    """Return the module, and the name in it, of the private function that stops the gradient of one
    array: whoever calls `jax.lax.stop_gradient`, by whatever name, runs it."""
    from jax._src.lax import lax

    return lax, "_stop_gradient"


def is_stop(file: str, function: str) -> bool:
    """Return whether a function runs between that one and whoever asks for the gradient to stop."""
    return "stop_gradient" in function or file.endswith(("/jax/_src/tree_util.py", "/jax/_src/tree.py"))


@contextmanager
def traced_anew(name: str) -> Iterator[None]:
    """Trace functions anew while entered, once for each name: what `jax.jit` has traced elsewhere is not
    used. Metadata of the compiler's are a part of what it finds that by."""
    try:
        from jax.experimental.xla_metadata import set_xla_metadata
    except ImportError:
        yield
        return
    with set_xla_metadata(parity=name):
        yield


def is_of_jax(file: str) -> bool:
    """Return whether a function in that file is JAX's own or Optax's, which is treated alike."""
    return "/jax/" in file or "/optax/" in file


def file_of(program: Any) -> str:
    """Return the file of the function behind a jaxpr or a wrapped function; empty if unknown.

    JAX keeps it as "backward at model.py:12".
    """
    where = str(getattr(getattr(program, "debug_info", None), "func_src_info", "") or "")
    return where.partition(" at ")[2].rpartition(":")[0]
