"""The definition of a deliberate fault, and the registry of all faults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from parity.faults.step_table import STEP_FAULTS
from parity.faults.twin import TWINS, TwinName
from vit_config import ConfigError, ViTConfig

Apply = Callable[..., Any]
"""``apply(here, original, *args, **kwargs)`` stands in for a module's method, `original`."""


@dataclass(frozen=True)
class Fault:
    """A deliberate mistake that can be injected into either twin."""

    name: str
    summary: str
    where: str
    """Module in which a comparison must locate the fault; ``{i}`` is the block. Empty for the model
    itself. For a fault that only a parameter's gradient shows, the name of the parameter."""
    cause: str | None
    """Slug of the cause that `parity diff` must name first, or several, ``none`` among them, joined by
    `` or ``; None if it must name none."""
    apply: Apply
    at: tuple[str, ...]
    """Modules that it replaces a method of, as far as the model has them."""
    method: str | None
    """Name of that method; None for the one in which the module computes."""
    needs: Mapping[str, Any]
    """Schema fields, each with the value, or a test of it, that a model needs to have the fault."""
    twin: TwinName
    """Twin that it is injected into by default."""
    stage: Literal["forward", "backward"]
    """First stage that it changes."""
    unseen: str | None
    """Reason why no comparison can see it; None if one can."""

    @property
    def in_block(self) -> bool:
        """Whether it can be injected into one block."""
        return "{i}" in self.at[0]

    def located(self, block: int | None, depth: int = 1) -> str:
        """Return the module in which it must be located if `block`, or every block of `depth`, has it.

        The backward pass runs through the last block first.
        """
        first = depth - 1 if self.stage == "backward" else 0
        return self.where.format(i=first if block is None else block)


FAULTS: dict[str, Fault] = {}
OTHERS = "a checkout has others in evidence/faults"
"""Where the faults are that are not shipped."""


@dataclass(frozen=True)
class Injection:
    """A fault, the twin that it is injected into, and one block or, for None, all."""

    fault: Fault
    twin: TwinName
    block: int | None


def parse(text: str) -> Injection:
    """Read ``NAME``, ``NAME@jax``, ``NAME:2`` (in block 2 alone) or ``NAME@torch:2``.

    Raises:
        ConfigError: there is no such fault, twin or block.
    """
    match = re.fullmatch(r"([^@:]*)(?:@([^@:]*))?(?::(.*))?", text)
    name, twin, block = match.groups() if match else (text, None, None)
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the faults are {', '.join(FAULTS)}; {OTHERS}"
        if name in STEP_FAULTS:
            hint = "it is one of training steps, which parity check-steps takes"
        raise ConfigError(f"unknown fault {name!r}; {hint}")
    fault = FAULTS[name]
    if twin is not None and twin not in TWINS:
        raise ConfigError(f"--fault {text}: unknown twin {twin!r}; the twins are {', '.join(TWINS)}")
    if block is not None and not fault.in_block:
        raise ConfigError(f"--fault {text}: {name!r} is not in a block; leave :{block} out")
    if block is not None and not block.isdecimal():
        raise ConfigError(
            f"--fault {text}: expected the number of a block after the colon, found {block!r}"
        )
    return Injection(fault, fault.twin if twin is None else twin, int(block) if block else None)  # type: ignore[arg-type]


def check_needs(fault: Fault, cfg: ViTConfig) -> None:
    """Refuse a schema whose models cannot have a fault.

    Raises:
        ConfigError: names the field that stands in the way.
    """
    for field, accepted in fault.needs.items():
        value = getattr(cfg, field)
        if not (accepted(value) if callable(accepted) else value == accepted):
            raise ConfigError(f"the fault {fault.name!r} has nothing to break where {field} = {value!r}")


def fault(
    summary: str,
    where: str,
    cause: str | None,
    *,
    at: str | tuple[str, ...] | None = None,
    method: str | None = None,
    twin: TwinName = "torch",
    stage: Literal["forward", "backward"] = "forward",
    unseen: str | None = None,
    **needs: Any,
) -> Callable[[Apply], Apply]:
    """Register a function as the fault of its name; arguments are fields of `Fault`.

    Args:
        at: the modules that the function stands in for; by default the module `where`.
    """

    def register(apply: Apply) -> Apply:
        name = getattr(apply, "__name__", "").removeprefix("_")
        places = (at,) if isinstance(at, str) else at or (where,)
        FAULTS[name] = Fault(
            name, summary, where, cause, apply, places, method, needs, twin, stage, unseen
        )
        return apply

    return register
