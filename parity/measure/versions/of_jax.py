"""What depends on the version of JAX: flags of its compiler, parameters of its programs, private names.

Nothing here imports JAX before it is asked for something that JAX made: flags are set before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from parity.measure.versions.seen import Seen
from vit_config.errors import InputError

JAX = Seen("jax", "0.10.0", "0.12.0.1")
JAXLIB = Seen("jaxlib", "0.10.0", "0.12.0.1")
"""The compiler: each JAX goes with several."""


@dataclass(frozen=True)
class _Flag:
    name: str
    quick: Any
    usual: Any
    """XLA's own default."""
    last: str = JAXLIB.newest
    """The last version that knows it: an unknown one in `XLA_FLAGS` ends the interpreter."""


_FLAGS = (
    _Flag("xla_backend_optimization_level", 0, 3),
    _Flag("xla_llvm_disable_expensive_passes", True, False),
    _Flag("xla_cpu_use_fusion_emitters", False, True, last="0.11.0"),
    _Flag("xla_cpu_parallel_codegen_split_count", 1, 32),
)


def quick_flags() -> dict[str, Any]:
    """Flags of XLA with which it compiles quickly code that is slow; of an unknown version none."""
    known = JAXLIB.say_if_unknown("programs are compiled with XLA's own flags, which takes longer")
    return {each.name: each.quick for each in _FLAGS if known and JAXLIB.upto(each.last)}


def usual_options() -> dict[str, Any]:
    """The same as compiler options with XLA's own values, whatever the flags of the process."""
    return {each.name: each.usual for each in _FLAGS if each.name in quick_flags()}


def say_how_programs_are_read() -> None:
    """Say once of an unknown version that its jaxprs are taken for those of the known ones."""
    JAX.say_if_unknown("its programs are read as those of these; an operation that changed is an error")


@dataclass(frozen=True)
class Scan:
    """What a `scan` of a jaxpr does: its operands are constants, what it carries, what it runs over."""

    body: Any
    """A jaxpr, closed or open."""
    constants: int
    carried: int
    length: int
    is_reverse: bool


def read_scan(params: Mapping[str, Any]) -> Scan:
    """The parameters of a `scan`: counts until jax 0.10, a tree of the operands since 0.11.

    Raises:
        InputError: they are neither.
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
    return Scan(params["jaxpr"], constants, carried, params["length"], params["reverse"])


def purposes(value: Any) -> Iterator[str]:
    """What each trace around a traced value is made for, the innermost first, such as "jit"; of an
    array nothing.

    JAX has no public word on this. Were the private one to change, nothing would be told.
    """
    trace: Any = getattr(value, "_trace", None)
    while trace is not None:
        about = getattr(getattr(trace, "frame", None), "debug_info", None)
        yield str(getattr(about, "traced_for", ""))
        trace = getattr(trace, "parent_trace", None)


REPLAY = "checkpoint"
"""Part of what a trace is made for that computes the forward pass again, in the backward pass."""

SEALED = ("jax._src.stages", "jax._src.export")
"""Where the classes of programs that are exported, or compiled ahead of time, are defined."""
EXPORT_FOLDER = "/jax/_src/export/"
BACKWARD_RULE = "custom_lin"
"""The primitive of the tangent of a `jax.custom_vjp`, whose transposition runs the user's rule."""


def transpositions() -> Iterator[dict[Any, Any]]:
    """The tables of functions that transpose a primitive: JAX's public one, and the private one, which
    since 0.11 has those that add gradients up in place."""
    from jax._src.interpreters import ad

    yield ad.primitive_transposes
    yield getattr(ad, "fancy_transposes", {})


def is_of_jax(file: str) -> bool:
    """Whether a function in that file is JAX's own, or of Optax, which is called like it."""
    return "/jax/" in file or "/optax/" in file


def file_of(program: Any) -> str:
    """The file of the function that a jaxpr, or a wrapped function, was made from; empty if unknown.

    JAX keeps it as "backward at model.py:12".
    """
    where = str(getattr(getattr(program, "debug_info", None), "func_src_info", "") or "")
    return where.partition(" at ")[2].rpartition(":")[0]
