"""A place where two programs part, as a program of its own that anybody can run."""

from parity.verifier.repro.script import check_repro, write_repro

__all__ = ["check_repro", "write_repro"]
