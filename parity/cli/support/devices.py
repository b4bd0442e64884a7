"""Flags of `parity diff` for programs as they are, on two devices or under two settings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from parity.cli.support.reading import shown_as
from vit_config import ConfigError

if TYPE_CHECKING:
    from parity.verifier.devices.report import Devices
    from parity.verifier.programs.build import BuildOrder


@dataclass(frozen=True, kw_only=True)
class OnDevices:
    """Where the two sides run as they are."""

    as_is: tyro.conf.FlagCreatePairsOff[bool] = False
    """Run both in the types that they have, not in float64; then run each operation of B on the numbers
    that A's reads, and list those whose results differ by more than their type's rounding."""
    device_a: Annotated[str, shown_as("DEVICE", "its framework's")] = ""
    """Device of A, such as cpu, cuda, gpu, tpu or mps; with --as-is."""
    device_b: Annotated[str, shown_as("DEVICE", "its framework's")] = ""
    """Device of B, which is A again where it is left out; with --as-is."""
    env_b: Annotated[tuple[str, ...], shown_as("NAME=VALUE ...")] = ()
    """Environment variables of the process that runs B; with --as-is."""

    def settings(self) -> dict[str, str]:
        """Return B's environment variables. ConfigError: one has no value."""
        odd = [each for each in self.env_b if not each.partition("=")[1]]
        if odd:
            raise ConfigError(f"--env-b {odd[0]}: expected NAME=VALUE")
        return {name: value for name, _, value in (each.partition("=") for each in self.env_b)}

    def check_devices(self) -> None:
        """Refuse flags of devices without --as-is. ConfigError: names the flag."""
        flags = {"--device-a": self.device_a, "--device-b": self.device_b, "--env-b": self.env_b}
        for flag, given in flags.items():
            if given and not self.as_is:
                raise ConfigError(f"{flag} goes with --as-is: in float64 no device computes")

    def compare_devices(
        self, a: BuildOrder, b: BuildOrder, python_b: Path | None, on_stage: Callable[[str], None]
    ) -> Devices:
        """Run A here and B in a process of its own, and compare them operation by operation."""
        from parity.verifier.devices.away import AwayOnDevice
        from parity.verifier.devices.compare import compare_devices, run_as_it_is
        from parity.verifier.programs.build import build_from
        from parity.verifier.programs.sides import taken_apart

        settings = self.settings()
        other = AwayOnDevice(b, python_b or Path(sys.executable), settings)
        one = run_as_it_is(taken_apart(build_from(a), a.name), self.device_a)
        on_stage("running B")
        return compare_devices(
            one, other.run_as_it_is(self.device_b), settings=settings, on_stage=on_stage
        )
