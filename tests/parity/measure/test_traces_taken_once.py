"""What a recording of PyTorch takes once, or together, is what it would be if each were taken alone."""

import contextlib
import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.measure.traces import Site
from vit_config import ConfigError

pytestmark = pytest.mark.quick

X = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32))


def read(path, stage, name, port="", call=0):
    return parity.Trace(path).read(Site(0, stage, name, port, call))


def test_two_updates_in_one_step(tmp_path):
    """What the first took is not overwritten before it is written; parameters are those at the end."""
    net, path = nn.Linear(5, 2), tmp_path / "a.trace"
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    seen = []
    with parity.record(path, net, optimizer=optimizer) as trace, trace.step():
        for _ in range(2):
            optimizer.zero_grad()
            net(X).square().sum().backward()
            gradient = net.weight.grad.clone()
            optimizer.step()
            seen.append(gradient)
        net.weight.data.clamp_(-0.1, 0.1)
    for call, gradient in enumerate(seen):
        np.testing.assert_array_equal(read(path, "clipped", "weight", call=call), gradient)
        np.testing.assert_array_equal(read(path, "gradients", "weight", call=call), gradient)
    assert not np.array_equal(*seen)
    np.testing.assert_array_equal(read(path, "updated", "weight"), net.weight.detach())
    assert Site(0, "updated", "weight", call=1) not in parity.Trace(path)


def test_an_optimizer_that_calls_the_model_itself(tmp_path):
    net, path = nn.Linear(5, 2), tmp_path / "a.trace"
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)

    def loss():
        optimizer.zero_grad()
        value = net(X).square().sum()
        value.backward()
        return value

    with parity.record(path, net, optimizer=optimizer) as trace, trace.step():
        optimizer.step(loss)
        gradient = net.weight.grad.clone()
    np.testing.assert_array_equal(read(path, "gradients", "weight"), gradient)
    np.testing.assert_array_equal(read(path, "updated", "weight"), net.weight.detach())


def test_what_a_closure_clips_is_recorded(tmp_path):
    """Lightning computes gradients, and clips them, within the step of any optimiser."""
    net, path = nn.Linear(5, 2), tmp_path / "a.trace"
    optimizer, whole = torch.optim.SGD(net.parameters(), lr=0.1), []

    def closure():
        optimizer.zero_grad()
        net(X).square().sum().backward()
        whole.append(net.weight.grad.clone())
        nn.utils.clip_grad_norm_(net.parameters(), 1e-2)

    with parity.record(path, net, optimizer=optimizer) as trace, trace.step():
        optimizer.step(closure)
    np.testing.assert_array_equal(read(path, "gradients", "weight"), whole[0])
    np.testing.assert_array_equal(read(path, "clipped", "weight"), net.weight.grad)
    assert Site(0, "gradients", "weight", call=1) not in parity.Trace(path)


def test_one_optimizer(tmp_path):
    net = nn.Linear(5, 2)
    both = [torch.optim.SGD([each], lr=0.1) for each in net.parameters()]
    with pytest.raises(ConfigError, match=r"optimizer = builtins.list: expected one torch.optim.Opt"):
        parity.record(tmp_path / "a.trace", net, optimizer=both)
    assert not list(tmp_path.iterdir())


def test_gradients_that_accumulate_are_the_whole_sum(tmp_path):
    net, path = nn.Linear(5, 2), tmp_path / "a.trace"
    with parity.record(path, net, keep=4) as trace, trace.step():
        for part in X.split(2):
            net(part).sum().backward()
        whole = net.weight.grad.numpy()
    event = parity.Trace(path)[Site(0, "gradients", "weight")]
    np.testing.assert_allclose(
        read(path, "gradients", "weight"), whole[tuple(slice(None, None, s) for s in event.spacing)]
    )


def test_gradients_of_a_backward_pass_that_failed(tmp_path):
    first, second = nn.Linear(5, 4), nn.Linear(4, 2)
    net, path = nn.Sequential(first, second), tmp_path / "a.trace"

    def fail(_):
        raise ValueError("out of memory")

    with contextlib.suppress(ValueError), parity.record(path, net) as trace, trace.step():
        hidden = first(X)
        hidden.register_hook(fail)
        second(hidden).sum().backward()
    np.testing.assert_array_equal(read(path, "gradients", "1.bias"), [6, 6])
    assert Site(0, "gradients", "0.weight") not in parity.Trace(path)


def test_a_recording_that_is_over_holds_nothing(tmp_path):
    """Nor its memory, nor a graph: a loop that makes many recordings would grow by each."""
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
    recorder = parity.record(tmp_path / "a.trace", net)
    with recorder:
        for _ in range(2):
            with recorder.step():
                net(X).sum().backward()
    gone = weakref.ref(recorder)
    del recorder
    gc.collect()
    assert gone() is None
