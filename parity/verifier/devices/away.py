"""A program as it is, on a device, in a process with an interpreter and an environment of its own.

python -m parity.verifier.devices.away
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from parity.verifier.devices.compare import run_as_it_is
from parity.verifier.devices.step import Run
from parity.verifier.programs.build import BuildOrder, build_from
from parity.verifier.programs.remote import Away, Server, serve
from parity.verifier.programs.sides import taken_apart


class AwayOnDevice(Away):
    """A side in a process of its own, which runs it on a device."""

    module: ClassVar = "parity.verifier.devices.away"

    def run_as_it_is(self, device: str) -> Run:
        """Run the program, as `compare.run_as_it_is` does; the numbers stay in the process."""
        ran = self.ask("run_as_it_is", self.order, device)
        for number, step in enumerate(ran.steps):
            step.run = partial(self.ask, "again", number)
        return replace(ran, nudged=partial(self.ask, "nudged"))


class DeviceServer(Server):
    """The other process, which keeps the run."""

    _ran: Run

    def run_as_it_is(self, order: BuildOrder, device: str) -> Run:
        """Run the side on a device, and return what it is made of, without its numbers."""
        self._ran = run_as_it_is(taken_apart(build_from(order), order.name), device)
        steps = [replace(each, operands=(), results=(), run=list) for each in self._ran.steps]
        return replace(self._ran, steps=steps, nudged=list)

    def again(self, number: int, operands: Sequence[Any]) -> Any:
        """Run an operation on its device again."""
        return self._ran.steps[number].run(operands)

    def nudged(self, seed: int) -> Any:
        """Return the outputs of a whole run whose leaves are moved by a rounding."""
        return self._ran.nudged(seed)


if __name__ == "__main__":
    from parity.verifier.devices import away

    serve(away.DeviceServer())
