"""What is larger than the machine's memory is one line, whichever library says so."""

import pytest

from parity.cli.dispatch import in_one_line

ERRORS = (
    MemoryError(),
    RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 40000000000 bytes."),
    RuntimeError(
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
    ),
    RuntimeError("CUDA out of memory. Tried to allocate 9 GiB"),
)


@pytest.mark.parametrize("error", ERRORS)
def test_memory_that_cannot_be_had_is_one_line(error, capsys):
    def main():
        raise error

    assert in_one_line(main, "parity x") == 2
    err = capsys.readouterr().err
    assert err.startswith("parity x: there is not enough memory for it here")
    assert err.count("\n") == 1


def test_any_other_error_is_an_internal_one(capsys):
    def main():
        raise RuntimeError("no such thing")

    assert in_one_line(main, "parity x") == 70
    assert "internal error" in capsys.readouterr().err
