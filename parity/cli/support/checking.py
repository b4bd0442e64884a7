"""The flags that `parity check` and `parity check-steps` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from parity.cli.support.reading import shown_as
from parity.measure.device import DEVICES, Device
from parity.measure.precision import PRECISIONS, Precision
from parity.measure.tolerance import DEFAULT_DTYPES, DType
from vit_config import ConfigError


@dataclass(frozen=True)
class Checking:
    """Flags that say how to compare, and what to write."""

    dtype: Annotated[
        tuple[DType, ...] | None, shown_as("{float64,float32,bfloat16} ...", " ".join(DEFAULT_DTYPES))
    ] = None
    """Types to compare in. float64 shows that the algebra is the same; float32 and bfloat16 that neither
    twin is less accurate than the other."""
    precision: Annotated[Precision, tyro.conf.arg(metavar="{" + ",".join(PRECISIONS) + "}")] = "highest"
    """Precision of float32 products in both twins: in full; TensorFloat-32 or the like, where the device
    has it; or as the frameworks are set. At less than full precision, float32 is compared but
    UNCERTIFIED."""
    device: Annotated[Device, tyro.conf.arg(metavar="{" + ",".join(DEVICES) + "}")] = "cpu"
    """Device that both twins compute on: the CPU, where every limit was measured, or each framework's
    first GPU."""
    fault: Annotated[str | None, shown_as("NAME[@TWIN][:BLOCK]")] = None
    """Inject a deliberate fault and watch the check fail; `parity list --faults` lists them all. NAME
    alone puts it into every block of the twin that the list names; `NAME@jax` chooses the twin,
    `NAME@torch:2` the block, too."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file."""

    def refuse(self, *, seed: int, batch_size: int | None) -> None:
        """Refuse values that cannot be used, before anything is computed.

        Raises:
            ConfigError: a value is out of range.
        """
        if seed < 0:
            raise ConfigError(f"--seed {seed}: must not be negative")
        if batch_size is not None and batch_size < 1:
            raise ConfigError(f"--batch-size {batch_size}: must be at least 1")
        if self.dtype == ():
            raise ConfigError("--dtype: name at least one of float64, float32, bfloat16")
