"""Dropout that is on: in one recording it is the cause, in both no more can be said."""

import torch
from torch import nn

import parity

X = torch.linspace(-1, 1, 24).reshape(4, 6)


def recorded(path, rate, seed):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.Dropout(rate), nn.Linear(32, 2))
    torch.manual_seed(seed)
    with parity.record(path, model) as trace, trace.step(x=X):
        loss = model(X).square().mean()
        loss.backward()
        trace.log("loss", loss)
    return path


def test_dropout_on_one_side_is_the_cause_with_its_rate(tmp_path):
    off, on = recorded(tmp_path / "off", 0.0, 1), recorded(tmp_path / "on", 0.25, 1)
    for sides, words in (((off, on), ("dropout: none seen", "dropout 0.25, in 1")),
                         ((on, off), ("dropout 0.25, in 1", "dropout: none seen"))):  # fmt: skip
        cause, *_ = parity.diff(*sides).causes
        assert (cause.a, cause.b) == words


def test_dropout_on_both_sides_hides_what_follows(tmp_path):
    diagnosis = parity.diff(recorded(tmp_path / "a", 0.25, 1), recorded(tmp_path / "b", 0.25, 2))
    unknown = diagnosis.places[0].verdict.unknown
    assert unknown is not None
    assert "dropout is on in both, with other masks" in unknown
