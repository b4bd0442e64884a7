"""Real training programs, torch.optim and optax, of which one does something else: it is named first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

from parity.measure.site import Stage
from parity.measure.traces import Trace, record
from parity.verifier.recordings.steps.explain import explain_step
from parity.verifier.recordings.steps.loss import _reductions
from parity.verifier.recordings.steps.names import PlaceVerdict
from parity.verifier.recordings.steps.segments import step_segment

BATCH, WIDTH, HIDDEN, CLASSES, STEPS = 11, 5, 7, 3, 4
RATE = 1e-2
SMALL = 1e-3
"""Of a loss, for gradients so small that an epsilon is seen in float32."""
SHAPES = {
    "norm.weight": (WIDTH,),
    "fc.weight": (HIDDEN, WIDTH),
    "fc.bias": (HIDDEN,),
    "head.weight": (CLASSES, HIDDEN),
    "head.bias": (CLASSES,),
    "shift": (1,),  # added to every logit: softmax is blind to it, its gradient is nothing but rounding
}


COMPARED: tuple[Stage, ...] = ("loss", "gradients", "clipped", "learning rate", "moments", "updated")


def draw(dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {name: rng.normal(0, 0.5, shape).astype(dtype) for name, shape in SHAPES.items()}


def batches(dtype: str) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(6)
    return [
        (rng.normal(size=(BATCH, WIDTH)).astype(dtype), rng.integers(0, CLASSES, BATCH))
        for _ in range(STEPS)
    ]


class Tiny(nn.Module):
    def __init__(self, dtype: str) -> None:
        super().__init__()
        for name, value in draw(dtype).items():
            owner, _, leaf = name.rpartition(".")
            if owner and not hasattr(self, owner):
                self.add_module(owner, nn.Module())
            (getattr(self, owner) if owner else self).register_parameter(
                leaf, nn.Parameter(torch.tensor(value))
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        p = dict(self.named_parameters())
        hidden = torch.tanh((x * p["norm.weight"]) @ p["fc.weight"].T + p["fc.bias"])
        return hidden @ p["head.weight"].T + p["head.bias"] + p["shift"]


def forward(p: dict, x):
    hidden = jnp.tanh((x * p["norm.weight"]) @ p["fc.weight"].T + p["fc.bias"])
    return hidden @ p["head.weight"].T + p["head.bias"] + p["shift"]


@jax.jit
@partial(jax.value_and_grad, has_aux=True)
def evaluate(p: dict, x, y, times: float):
    logits = forward(p, x)
    return times * optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits


def groups(model: nn.Module, decay: float, everywhere: bool = False) -> list[dict]:
    named = list(model.named_parameters())
    parts = {True: [], False: []}
    for name, p in named:
        parts[everywhere or decays(name)].append(p)
    return [{"params": ps, "weight_decay": decay if on else 0.0} for on, ps in parts.items() if ps]


def decays(name: str) -> bool:
    return name in ("fc.weight", "head.weight")


MASK = {name: decays(name) for name in SHAPES}


def adamw(
    model: nn.Module, decay: float = 0.05, everywhere: bool = False, **options
) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups(model, decay, everywhere), **{"lr": RATE, **options})


def run_torch(
    path: Path,
    dtype: str = "float64",
    make: Callable = adamw,
    *,
    clip: Callable[[list[nn.Parameter]], object] | None = None,
    rates: Iterable[float] | None = None,
    loss: Callable | None = None,
    times: float = 1.0,
    zero: bool = True,
) -> Trace:
    model = Tiny(dtype)
    optimizer = make(model)
    series = list(rates or ())
    with record(path, model, optimizer=optimizer) as trace:
        for i, (x, y) in enumerate(batches(dtype)):
            if series:
                for group in optimizer.param_groups:
                    group["lr"] = series[i]
            with trace.step(images=torch.tensor(x), labels=torch.tensor(y)):
                if zero:
                    optimizer.zero_grad()
                logits = model(torch.tensor(x))
                value = times * (loss or nn.functional.cross_entropy)(logits, torch.tensor(y))
                trace.log("loss", value)
                value.backward()
                if clip:
                    clip(list(model.parameters()))
                optimizer.step()
    return Trace(path)


def run_jax(
    path: Path,
    dtype: str,
    tx: optax.GradientTransformation,
    *,
    rates: Iterable[float] | None = (RATE,) * STEPS,
    times: float = 1.0,
) -> Trace:
    """An optax program that logs what it has: no clipped gradients, and rates only where told to."""
    params = {name: jnp.asarray(value) for name, value in draw(dtype).items()}
    state = tx.init(params)
    series = list(rates or ())

    with record(path) as trace:
        for i, (x, y) in enumerate(batches(dtype)):
            with trace.step(images=x, labels=y):
                trace.log("parameters", params)
                (value, logits), grads = evaluate(params, jnp.asarray(x), jnp.asarray(y), times)
                trace.log("forward", logits, port="out")
                trace.log("loss", value)
                trace.log("gradients", grads)
                updates, state = tx.update(grads, state, params)
                params = optax.apply_updates(params, updates)
                for kind, name in {
                    "mu": "exp_avg",
                    "nu": "exp_avg_sq",
                    "nu_max": "max_exp_avg_sq_hat",
                    "trace": "momentum_buffer",
                }.items():
                    if (moment := optax.tree.get(state, kind)) is not None:
                        trace.log("moments", moment, port=name)
                if series:
                    trace.log("learning rate", np.float64(series[i]))
                trace.log("updated", params)
    return Trace(path)


def first_difference(a: Trace, b: Trace) -> tuple[int, Stage] | None:
    """The first step and stage that differ by more than rounding."""
    for step in a.steps:
        for stage in COMPARED:
            left, right = (step_segment(t, step, stage) for t in (a, b))
            if stage == "gradients" and set(left.result) != set(right.result):
                return step, stage
            for key in left.result:
                if key not in right.result or key.startswith("shift"):
                    continue
                x, y = left.result[key], right.result[key]
                tiny = any(t.read(e).dtype == np.float32 for t in (a, b) for e in t.of(stage, step))
                scale = np.linalg.norm(x)
                if stage == "updated":
                    start = left.parameters[key]
                    scale = np.linalg.norm(x - start) + (1e-3 if tiny else 1e-6) * np.linalg.norm(start)
                if np.linalg.norm(x - y) > (1e-4 if tiny else 1e-11) * scale:
                    return step, stage
    return None


def verdict(a: Trace, b: Trace) -> PlaceVerdict:
    where = first_difference(a, b)
    assert where is not None, "the fault has no effect"
    return explain_step(step_segment(a, *where), step_segment(b, *where))


def only(a: Trace, b: Trace, name: str, stage: Stage):
    """The cause, which has to be this one and alone."""
    outcome = verdict(a, b)
    assert [(c.name, c.stage) for c in outcome.causes] == [(name, stage)], outcome
    cause = outcome.causes[0]
    assert max(cause.residual_a, cause.residual_b) <= 0.02 * cause.difference
    return cause


both = pytest.mark.parametrize("dtype", ["float64", "float32"])


def manual(rule: Callable) -> Callable:
    """A torch optimiser with another update: `rule(p, m, v, t, decay)` is what is subtracted."""

    class Manual(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if not (s := self.state[p]):
                        s |= {
                            "step": 0,
                            "exp_avg": torch.zeros_like(p),
                            "exp_avg_sq": torch.zeros_like(p),
                        }
                    s["step"] += 1
                    s["exp_avg"].lerp_(p.grad, 0.1)
                    s["exp_avg_sq"].mul_(0.999).addcmul_(p.grad, p.grad, value=1 - 0.999)
                    p -= rule(p, s["exp_avg"], s["exp_avg_sq"], s["step"], group["weight_decay"])

    return lambda model: Manual(groups(model, 0.05), {"lr": RATE})


def adam_rule(p, m, v, t, decay, *, c=(0, 0), inside=False, by=RATE):
    c1, c2 = (
        1 - beta ** (t + off) if off is not None else 1.0
        for beta, off in zip((0.9, 0.999), c, strict=True)
    )
    root = (v / c2 + 1e-8).sqrt() if inside else (v / c2).sqrt() + 1e-8
    return RATE * m / c1 / root + by * decay * p


UPDATES = {
    "decay-times-rate": {"by": 1.0},
    "epsilon-place": {"inside": True},
    "bias-correction": {"c": (None, None)},
    "bias-correction first": {"c": (0, None)},
    "bias-correction late": {"c": (1, 1)},
}


@both
@pytest.mark.parametrize("fault", UPDATES)
def test_an_update_by_another_rule(tmp_path, dtype, fault):
    rule = lambda *args: adam_rule(*args, **UPDATES[fault])  # noqa: E731
    times = SMALL if fault == "epsilon-place" else 1.0
    a = run_torch(tmp_path / "a.trace", dtype, times=times)
    b = run_torch(tmp_path / "b.trace", dtype, manual(rule), times=times)
    cause = only(a, b, fault.split()[0], "updated")
    assert cause.a != cause.b


@both
def test_the_same_rule_written_by_hand_is_the_same(tmp_path, dtype):
    a = run_torch(tmp_path / "a.trace", dtype)
    b = run_torch(tmp_path / "b.trace", dtype, manual(adam_rule))
    assert first_difference(a, b) is None
    for stage in COMPARED:
        assert explain_step(step_segment(a, 1, stage), step_segment(b, 1, stage)).causes == ()


OPTIONS = {
    "beta1": ({"betas": (0.95, 0.999)}, "moments", "beta1 0.9", "beta1 0.95"),
    "beta2": ({"betas": (0.9, 0.9989)}, "moments", "beta2 0.999", "beta2 0.9989"),
    "epsilon": ({"eps": 1e-6}, "updated", "epsilon 1e-08", "epsilon 1e-06"),
    "weight-decay": ({"decay": 0.1}, "updated", "weight decay 0.05", "weight decay 0.1"),
    "amsgrad": (
        {"amsgrad": True},
        "updated",
        "second moment: as it is",
        "second moment: largest so far",
    ),
}


@both
@pytest.mark.parametrize("name", OPTIONS)
def test_another_option_of_adamw(tmp_path, dtype, name):
    options, stage, says_a, says_b = OPTIONS[name]
    times = SMALL if name == "epsilon" else 1.0
    a = run_torch(tmp_path / "a.trace", dtype, times=times)
    b = run_torch(tmp_path / "b.trace", dtype, lambda model: adamw(model, **options), times=times)
    cause = only(a, b, name, stage)
    assert (cause.a, cause.b) == (says_a, says_b)


@both
def test_decay_on_leaves_that_are_masked(tmp_path, dtype):
    a = run_torch(tmp_path / "a.trace", dtype)
    b = run_torch(tmp_path / "b.trace", dtype, lambda model: adamw(model, everywhere=True))
    cause = only(a, b, "decay-mask", "updated")
    assert set(cause.where) - {"shift"} == {"norm.weight", "fc.bias", "head.bias"}
    assert cause.a == "decayed leaves: none of them"


@both
def test_decay_is_missing(tmp_path, dtype):
    a = run_torch(tmp_path / "a.trace", dtype)
    b = run_torch(tmp_path / "b.trace", dtype, lambda model: adamw(model, decay=0.0))
    cause = only(a, b, "weight-decay", "updated")
    assert (cause.a, cause.b) == ("weight decay 0.05", "weight decay: none")
    assert cause.where == ("fc.weight", "head.weight")


@both
def test_decay_coupled_to_the_gradient(tmp_path, dtype):
    plain = lambda model: adamw(model, decay=0.0)  # noqa: E731
    coupled = lambda model: torch.optim.Adam(groups(model, 0.05), lr=RATE)  # noqa: E731
    a = run_torch(tmp_path / "a.trace", dtype, plain)
    b = run_torch(tmp_path / "b.trace", dtype, coupled)
    cause = only(a, b, "coupled-decay", "moments")
    assert cause.b == "decay in the gradient 0.05"
    c = run_torch(tmp_path / "c.trace", dtype)  # AdamW with decay: the moments differ first
    assert only(c, b, "coupled-decay", "moments").where == ("fc.weight", "head.weight")


def sgd(**options) -> Callable:
    return lambda model: torch.optim.SGD(groups(model, 0.01), **{"lr": 0.05, "momentum": 0.9} | options)


@both
def test_sgd(tmp_path, dtype):
    a = run_torch(tmp_path / "a.trace", dtype, sgd())
    b = run_torch(tmp_path / "b.trace", dtype, sgd(dampening=0.1))
    cause = only(a, b, "dampening", "moments")
    assert (cause.a, cause.b) == ("dampening 0", "dampening 0.1")
    c = run_torch(tmp_path / "c.trace", dtype, sgd(nesterov=True))
    assert only(a, c, "nesterov", "updated").b == "momentum: Nesterov's, 0.9"
    d = run_torch(tmp_path / "d.trace", dtype, sgd(momentum=0.8))
    assert only(a, d, "momentum", "moments").b == "momentum 0.8"


def of_optax(*parts: optax.GradientTransformation, rate=RATE, decay: float = 0.05, **adam):
    return optax.chain(
        *parts,
        optax.scale_by_adam(**adam),
        optax.add_decayed_weights(decay, mask=MASK),
        optax.scale_by_learning_rate(rate),
    )


OPTAX = {
    "beta2": ({"b2": 0.9989}, "moments"),
    "weight-decay": ({"decay": 0.1}, "updated"),
    "epsilon": ({"eps": 1e-6}, "updated"),
    "epsilon-place": ({"eps": 0.0, "eps_root": 1e-8}, "updated"),
}


@both
@pytest.mark.parametrize("name", OPTAX)
def test_torch_against_optax(tmp_path, dtype, name, x64):
    options, stage = OPTAX[name]
    times = SMALL if name.startswith("epsilon") else 1.0
    a = run_torch(tmp_path / "a.trace", dtype, times=times)
    same = run_jax(tmp_path / "same.trace", dtype, of_optax(), times=times)
    assert first_difference(a, same) is None
    only(a, run_jax(tmp_path / "b.trace", dtype, of_optax(**options), times=times), name, stage)


@both
def test_a_rate_that_nobody_recorded(tmp_path, dtype, x64):
    """In float32 a rate of four digits may be one by accident, as NAdam's is."""
    times, said = (1.1, "0.011") if dtype == "float32" else (1.001, "0.01001")
    a = run_torch(tmp_path / "a.trace", dtype)
    b = run_jax(tmp_path / "b.trace", dtype, of_optax(rate=times * RATE), rates=None)
    cause = only(a, b, "update-rate", "updated")
    assert cause.b == f"learning rate {said}"
    assert cause.a == "learning rate: of this step, 0.01"


def test_outside_the_catalogue(tmp_path, x64):
    a = run_torch(tmp_path / "a.trace")
    factors = np.random.default_rng(8).uniform(0.9, 1.1, len(SHAPES))
    shuffled = dict(zip(SHAPES, factors, strict=True))
    scale = optax.stateless(lambda u, p: {name: value * shuffled[name] for name, value in u.items()})
    b = run_jax(tmp_path / "b.trace", "float64", optax.chain(of_optax(), scale))
    outcome = verdict(a, b)
    assert not outcome.causes
    assert outcome.unknown is not None
    assert "b is not what any known rule computes" in outcome.unknown
    lion = run_jax(tmp_path / "lion.trace", "float64", optax.lion(RATE))
    outcome = verdict(a, lion)
    assert not outcome.causes
    assert "not the same optimiser" in (outcome.unknown or "")
    outcome = verdict(a, run_jax(tmp_path / "sgd.trace", "float64", optax.sgd(RATE)))
    assert "no moments of b were recorded" in (outcome.unknown or "")
    assert 'trace.log("moments", opt_state)' in (outcome.unknown or "")


OTHERS = {
    "nadam": optax.nadam(RATE),
    "radam": optax.radam(RATE),
    "lamb": optax.lamb(RATE),
    "adabelief": optax.adabelief(RATE),
    "yogi": optax.yogi(RATE),
}


@both
@pytest.mark.parametrize("name", OTHERS)
def test_another_method_is_unknown_though_it_resembles_adam(tmp_path, dtype, name, x64):
    a = run_torch(tmp_path / "a.trace", dtype, lambda model: adamw(model, decay=0.0))
    outcome = verdict(a, run_jax(tmp_path / "b.trace", dtype, OTHERS[name]))
    assert not outcome.causes, outcome
    assert "none of the known causes" in (outcome.unknown or "")


@both
def test_a_schedule_off_by_one_that_nobody_recorded(tmp_path, dtype, x64):
    series = [RATE * 0.5 * (1 + np.cos(np.pi * i / 10)) for i in range(STEPS + 1)]
    a = run_torch(tmp_path / "a.trace", dtype, rates=series[:STEPS])
    late = lambda count: jnp.asarray(series)[jnp.maximum(count - 1, 0)]  # noqa: E731
    b = run_jax(tmp_path / "b.trace", dtype, of_optax(rate=late), rates=None)
    assert only(a, b, "update-rate", "updated").b == "learning rate: of the step before, 0.01"


def test_what_cannot_be_seen_is_no_difference(tmp_path):
    large = lambda model: adamw(model, decay=0.0)  # noqa: E731
    optimizers = [large, lambda model: torch.optim.AdamW(groups(zeroed(model), 0.05), lr=RATE)]
    traces = [
        run_torch(tmp_path / f"{i}.trace", "float32", lambda m, o=o: o(zeroed(m)))
        for i, o in enumerate(optimizers)
    ]
    assert first_difference(*traces) == (
        1,
        "updated",
    )  # after the first update they are not zero any more
    segments = [step_segment(each, 0, "updated") for each in traces]
    assert explain_step(*segments) == PlaceVerdict()


def zeroed(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for name, p in model.named_parameters():
            if decays(name):
                p.zero_()
    return model


def test_the_numbers_that_a_loss_may_be_divided_by():
    """Of a batch of 8: examples missing, one too many, several devices' batches, and parts of it."""
    said = {name for name, _ in _reductions(np.ones(8), 5, "softmax", ())}
    assert {int(name.split()[-1]) for name in said if name.startswith("sum divided by ")} == {
        2, 4, 6, 7, 9, 16, 24, 32, 64, 128
    }  # fmt: skip
