"""The `parity` command as a user runs it, on files of drawn weights."""

import numpy as np

from parity.cli import main
from parity.measure.redraw import redraw
from vit_config.parameters import parameters


def arrays_of(cfg, dtype=np.float32):
    return {
        name: redraw(name, each.kind, each.shape, seed=0).astype(dtype)
        for name, each in parameters(cfg).items()
    }


def run(capsys, *argv):
    status = main([str(each) for each in argv])
    said = capsys.readouterr()
    return status, said.out, said.err


def refused(capsys, folder, expected, *argv):
    """One line on the error stream, status 2, and nothing new in the folder."""
    before = sorted(folder.iterdir())
    status, out, err = run(capsys, *argv)
    assert status == 2, err
    assert out == ""
    assert err.count("\n") == 1
    for text in expected:
        assert text in err
    assert sorted(folder.iterdir()) == before
