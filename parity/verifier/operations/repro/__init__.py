"""A place where two programs part, as a program of its own that anybody can run."""

from parity.verifier.operations.repro.script import write_repro

__all__ = ["write_repro"]
