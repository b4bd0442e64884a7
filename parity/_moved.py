"""Modules that public documentation named elsewhere once: importing one says what to write today."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MOVED = {
    "parity.containers": "parity.porting.formats",
    "parity.dialects": "parity.porting.dialects",
    "parity.fleet": "parity.porting.fleet",
    "parity.diagnose": "parity.verifier.diagnose",
    "parity.diff": "parity.verifier.diff",
    "parity.match": "parity.verifier.match",
    "parity.precision": "parity.measure.precision",
    "parity.tolerance": "parity.measure.tolerance",
    "parity.traces": "parity.measure.traces",
    "parity.pairing": "parity.twins.pairing",
}


class Moved:
    """A finder of `sys.meta_path`, asked last, when no module of that name was found."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Never finds anything.

        Raises:
            ModuleNotFoundError: the module has moved; the message is what to import instead.
        """
        if fullname in MOVED:
            raise ModuleNotFoundError(
                f"{fullname} is now {MOVED[fullname]}; import it from there", name=fullname
            )
        return None
