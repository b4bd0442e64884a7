"""Loops of plain arrays, of which one does something else: it is named, from what was logged."""

import ml_dtypes
import numpy as np
import pytest

import parity
from parity.verifier.recordings import Recorded, compare_sides
from parity.verifier.recordings.diagnosis import Diagnosis, diagnose

B, D, K, STEPS = 8, 5, 3, 6
LABELS = np.random.default_rng(3).integers(0, K, (STEPS, B))
IMAGES = np.random.default_rng(4).normal(size=(STEPS, B, D))
START = {
    "scale": np.random.default_rng(5).normal(1, 0.2, D),
    "head.weight": np.random.default_rng(6).normal(0, 0.5, (K, D)),
    "head.bias": np.random.default_rng(7).normal(0, 0.5, K),
}
GROUPS = (("head.weight",), ("scale", "head.bias"))


def loss_and_gradients(p, x, y, smooth=0.0, times=1.0, penalty=0.0):
    """Softmax cross entropy of a linear classifier of scaled inputs, with its gradients."""
    hidden = x * p["scale"]
    z = hidden @ p["head.weight"].T + p["head.bias"]
    z = z - z.max(1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    target = np.eye(K)[y] * (1 - smooth) + smooth / K
    w = p["head.weight"]
    loss = times * -(target * log_p).sum(1).mean() + penalty / 2 * (w**2).sum()
    dz = times * (np.exp(log_p) - target) / len(x)
    gradients = {
        "scale": ((dz @ w) * x).sum(0),
        "head.weight": dz.T @ hidden + penalty * w,
        "head.bias": dz.sum(0),
    }
    return loss, gradients


def norm(arrays):
    return np.sqrt(sum((a**2).sum() for a in arrays))


def clip(g, most, groups, limit):
    for names in groups or (tuple(g),):
        size = norm(g[name] for name in names)
        g = g | {name: g[name] * min(limit, most / size) for name in names}
    return g


def train(
    path,
    *,
    rate=lambda t: 0.01 * (1 - t / 20),
    rates=True,
    most=0.0,
    groups=None,
    stale=False,
    skip=None,
    average=None,
    begins=None,
    old=False,
    narrow=False,
    early=False,
    power=1,
    limit=1.0,
    coupled=(),
    **loss_options,
):
    """AdamW; `average`: the decay of the average in a step; `old`: of parameters before the update;
    `early`: epsilon is added before the second moment is corrected, as in TensorFlow; `coupled`:
    parameters whose decay is in the gradient."""
    p = START
    m, v = ({n: np.zeros_like(a) for n, a in p.items()} for _ in range(2))
    mean = p if begins is None else {n: begins * a for n, a in p.items()}
    count, last = 0, None
    with parity.record(path) as trace:
        for t in range(STEPS):
            with trace.step(images=IMAGES[t], labels=LABELS[t]):
                trace.log("parameters", p)
                loss, g = loss_and_gradients(p, IMAGES[t], LABELS[t], **loss_options)
                if narrow:
                    g = {n: a.astype(ml_dtypes.bfloat16).astype(float) for n, a in g.items()}
                trace.log("loss", loss)
                trace.log("gradients", g)
                if rates:
                    trace.log("learning rate", rate(t))
                given = last if stale and last is not None else g
                last, before = g, p
                if most:
                    given = clip(given, most, groups, limit)
                given = {n: a + 0.05 * p[n] * (n in coupled) for n, a in given.items()}
                if t != skip:
                    count += 1
                    m = {n: 0.9 * m[n] + (1 - 0.9) * given[n] for n in p}
                    v = {n: 0.999 * v[n] + (1 - 0.999) * given[n] ** 2 for n in p}
                    c1, c2 = 1 - 0.9**count, 1 - 0.999**count
                    eps = 1e-8 / np.sqrt(c2) if early else 1e-8
                    update = {n: m[n] / c1 / (np.sqrt(v[n] / c2) + eps) + 0.05 * p[n] for n in p}
                    p = {n: p[n] - rate(t) ** power * update[n] for n in p}
                trace.log("moments", m, port="exp_avg")
                trace.log("moments", v, port="exp_avg_sq")
                trace.log("moments", count, port="step")
                if average is not None:
                    d, source = average(t), before if old else p
                    mean = {n: d * mean[n] + (1 - d) * source[n] for n in p}
                    trace.log("updated", mean, port="ema")
                trace.log("updated", p)
    return path


def compared(tmp_path, a=None, b=None, **both) -> Diagnosis:
    paths = [train(tmp_path / name, **both, **(each or {})) for name, each in (("a", a), ("b", b))]
    return diagnose(compare_sides(*map(Recorded, paths)))


def constant(decay):
    return lambda t: decay


CASES = {
    "ema-order": ({"average": constant(0.9)}, {"average": constant(0.9), "old": True}),
    "ema-start": ({"average": constant(0.9)}, {"average": constant(0.9), "begins": 0.0}),
    "ema-warm-up": (
        {"average": constant(0.9)},
        {"average": lambda t: min(0.9, (1 + t) / (10 + t))},
    ),
    "ema-decay": ({"average": constant(0.9)}, {"average": constant(0.99)}),
    "stale-gradients": ({"most": 0.1}, {"most": 0.1, "stale": True}),
    "clip-kind": ({"most": 0.1}, {"most": 0.1, "groups": GROUPS}),
    "skipped-update": ({}, {"skip": 2}),
    "schedule-speed": ({}, {"rate": lambda t: 0.01 * (1 - 2 * t / 20)}),
    "label-smoothing": ({}, {"smooth": 0.1}),
    "loss-reduction": ({}, {"times": float(B)}),
    "decay-in-gradient": ({}, {"penalty": 0.02}),
    "decay-mask": ({"coupled": ("head.weight",)}, {"coupled": tuple(START)}),
    "number-type": ({}, {"narrow": True}),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_what_the_other_loop_does_is_named(tmp_path, name, swapped):
    a, b = CASES[name][:: -1 if swapped else 1]
    diagnosis = compared(tmp_path, a, b)
    assert diagnosis.verdict == "DIFFERENT"
    assert [cause.name for cause in diagnosis.causes] == [name]


@pytest.mark.parametrize("a", [0.0, 0.2])
def test_which_side_smooths_more_is_said(tmp_path, a):
    """The gradients tell the difference of both smoothings."""
    (cause,) = compared(tmp_path, {"smooth": a}, {"smooth": 0.1}).causes
    more, less = "smoothing: more by 0.1", "smoothing: less by 0.1"
    assert (cause.a, cause.b) == ((more, less) if a > 0.1 else (less, more))


def test_epsilon_before_the_correction_is_said_to_be_there(tmp_path):
    diagnosis = compared(tmp_path, b={"early": True})
    assert [(each.name, each.b) for each in diagnosis.causes] == [
        ("epsilon-place", "place of epsilon: outside the root, before bias correction")
    ]


@pytest.mark.parametrize(("power", "said"), [(0, "not applied"), (2, "applied twice")])
def test_a_rate_that_is_not_applied_once(tmp_path, power, said):
    diagnosis = compared(tmp_path, b={"power": power})
    assert [(each.name, each.b) for each in diagnosis.causes] == [
        ("update-rate", f"learning rate: {said}")
    ]


def test_gradients_that_are_scaled_up_to_a_norm(tmp_path):
    diagnosis = compared(tmp_path, b={"most": 1.5, "limit": np.inf})
    assert [(each.name, each.b) for each in diagnosis.causes] == [
        ("moments-gradient", "gradient: scaled up to norm 1.5")
    ]


def test_a_schedule_that_nobody_recorded_is_told_by_the_updates(tmp_path):
    diagnosis = compared(tmp_path, b={"rate": lambda t: 0.01 * (1 - 2 * t / 20), "rates": False})
    assert [(each.name, each.b) for each in diagnosis.causes] == [
        ("schedule-speed", "speed: 2 steps for each update")
    ]


def test_a_norm_is_found_where_moment_and_gradient_are_alike(tmp_path):
    """One batch again and again: the gradient of a step is nearly a multiple of the moment before."""
    diagnosis = compared(tmp_path, a={"most": 0.1}, b={"most": 0.2})
    assert [(each.name, each.a, each.b) for each in diagnosis.causes] == [
        ("clip-norm", "max norm 0.1", "max norm 0.2")
    ]


@pytest.mark.parametrize("options", [{}, {"most": 0.1, "average": constant(0.9)}, {"skip": 2}])
def test_two_right_loops_are_equal(tmp_path, options):
    assert compared(tmp_path, **options).verdict == "EQUAL"


def test_averages_that_began_elsewhere_are_not_equal(tmp_path):
    """From the second step on both follow one rule."""
    diagnosis = compared(tmp_path, {"average": constant(0.9)}, {"average": constant(0.9), "begins": 0.5})
    assert diagnosis.verdict == "DIFFERENT"
    assert [cause.name for cause in diagnosis.causes] == ["ema-start"]


@pytest.mark.parametrize(("left", "verdict"), [(-1.4e-17, "EQUAL"), (1e-9, "DIFFERENT")])
def test_round_off_beside_nothing_is_no_gradient(tmp_path, left, verdict):
    """Adam makes a step of round-off where the other side has none: of a gradient that is zero in
    theory, one of two programs may have nothing left."""

    def run(path, gradient):
        p = {"shift": np.full(1, 0.12), "weight": np.linspace(-1, 1, 7)}
        g = {"shift": np.full(1, gradient), "weight": np.linspace(0.1, 0.3, 7)}
        with parity.record(path) as trace, trace.step(images=IMAGES[0], labels=LABELS[0]):
            trace.log("parameters", p)
            trace.log("loss", 1.0)
            trace.log("gradients", g)
            trace.log("updated", {n: a - 0.01 * g[n] / (abs(g[n]) + 1e-8) for n, a in p.items()})
        return Recorded(path)

    sides = run(tmp_path / "a.trace", 0.0), run(tmp_path / "b.trace", left)
    assert diagnose(compare_sides(*sides)).verdict == verdict
