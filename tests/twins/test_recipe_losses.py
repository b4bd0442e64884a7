"""Each loss of a recipe is that of torch, optax and timm, in both twins, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch.nn import functional as F

from parity.porting.reading.libraries.peers import import_timm
from tests.support.tiny import error
from vit_jax.loss import contrastive, correct, cross_entropy
from vit_torch.loss import contrastive as torch_contrastive
from vit_torch.loss import correct as torch_correct
from vit_torch.loss import cross_entropy as torch_cross_entropy

pytestmark = pytest.mark.quick

STREAM = np.random.default_rng(0)
LOGITS, LABELS = 4 * STREAM.standard_normal((5, 7)), STREAM.integers(0, 7, 5)
IN_TORCH = torch.from_numpy(LOGITS), torch.from_numpy(LABELS)


def _both(kind, smoothing, logits=LOGITS, **more):
    """By both twins: the loss of each image, and the gradient of their mean by the logits."""

    def loss(x):
        return cross_entropy(x, jnp.asarray(LABELS), kind=kind, smoothing=smoothing, **more)

    x = torch.from_numpy(logits.copy()).requires_grad_()
    theirs = torch_cross_entropy(x, IN_TORCH[1], kind=kind, smoothing=smoothing, **more)
    theirs.mean().backward()
    assert x.grad is not None
    gradient = jax.grad(lambda x: loss(x).mean())(jnp.asarray(logits))
    return (loss(jnp.asarray(logits)), gradient), (theirs.detach(), x.grad)


def _assert_is(kind, smoothing, peer, **more):
    """`peer` is given logits that want a gradient, and gives (B,)."""
    x = IN_TORCH[0].clone().requires_grad_()
    expected = peer(x)
    expected.mean().backward()
    for loss, gradient in _both(kind, smoothing, **more):
        assert error(loss, expected.detach()) < 1e-13
        assert error(gradient, x.grad) < 1e-13


def _targets(smoothing):
    """Smoothed one-hot targets, (5, 7)."""
    return np.eye(7)[LABELS] * (1.0 - smoothing) + smoothing / 7


WEIGHTS = (0.5, 2.0, 1.0, 0.1, 3.0, 1.5, 0.7)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_weights_of_classes_are_torchs(smoothing, x64):
    weight = torch.tensor(WEIGHTS, dtype=torch.float64)
    how = {"reduction": "none", "label_smoothing": smoothing, "weight": weight}
    _assert_is("softmax", smoothing, lambda x: F.cross_entropy(x, IN_TORCH[1], **how), weights=WEIGHTS)
    targets, how = torch.from_numpy(_targets(smoothing)), {"reduction": "none", "weight": weight}
    by_class = lambda x: F.binary_cross_entropy_with_logits(x, targets, **how)  # noqa: E731
    _assert_is("sigmoid", smoothing, lambda x: by_class(x).sum(1), weights=WEIGHTS)
    _assert_is("sigmoid_mean", smoothing, lambda x: by_class(x).mean(1), weights=WEIGHTS)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_softmax_is_torchs_and_optaxs(smoothing, x64):
    _assert_is(
        "softmax",
        smoothing,
        lambda x: F.cross_entropy(x, IN_TORCH[1], reduction="none", label_smoothing=smoothing),
    )
    expected = optax.softmax_cross_entropy(LOGITS, _targets(smoothing))
    smoothed = optax.smooth_labels(jnp.eye(7)[LABELS], smoothing)
    assert error(smoothed, _targets(smoothing)) < 1e-15
    for loss, _ in _both("softmax", smoothing):
        assert error(loss, expected) < 1e-13


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_sigmoid_is_torchs_and_optaxs_summed_over_classes(smoothing, x64):
    targets = torch.from_numpy(_targets(smoothing))
    _assert_is(
        "sigmoid",
        smoothing,
        lambda x: F.binary_cross_entropy_with_logits(x, targets, reduction="none").sum(-1),
    )
    expected = optax.sigmoid_binary_cross_entropy(LOGITS, _targets(smoothing)).sum(-1)
    for loss, _ in _both("sigmoid", smoothing):
        assert error(loss, expected) < 1e-13


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_sigmoid_mean_is_torchs_and_timms(smoothing, x64):
    import_timm()
    from timm.loss import BinaryCrossEntropy

    targets = torch.from_numpy(_targets(smoothing))
    _assert_is(
        "sigmoid_mean",
        smoothing,
        lambda x: F.binary_cross_entropy_with_logits(x, targets, reduction="none").mean(-1),
    )
    # the means over the batch are those of the libraries' defaults
    for summed, kind in [(False, "sigmoid_mean"), (True, "sigmoid")]:
        expected = BinaryCrossEntropy(smoothing=smoothing, sum_classes=summed)(*IN_TORCH)
        for loss, _ in _both(kind, smoothing):
            assert float(loss.mean()) == pytest.approx(float(expected), rel=1e-13)
    expected = F.binary_cross_entropy_with_logits(IN_TORCH[0], targets)
    for loss, _ in _both("sigmoid_mean", smoothing):
        assert float(loss.mean()) == pytest.approx(float(expected), rel=1e-13)


def _of_shares(kind, shares, **options):
    """By both twins: the loss of each image and the gradient, of labels that are shares of classes."""
    x = IN_TORCH[0].clone().requires_grad_()
    theirs = torch_cross_entropy(x, torch.from_numpy(shares), kind=kind, **options)
    theirs.mean().backward()

    def loss(x):
        return cross_entropy(x, jnp.asarray(shares), kind=kind, **options)

    gradient = jax.grad(lambda x: loss(x).mean())(jnp.asarray(LOGITS))
    return (loss(jnp.asarray(LOGITS)), gradient), (theirs.detach(), x.grad)


def _mixed():
    """Two classes of each image, the second one with a share of 0.3."""
    return 0.7 * np.eye(7)[LABELS] + 0.3 * np.eye(7)[LABELS[::-1]]


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_mixed_labels_are_timms_and_optaxs(smoothing, x64):
    """timm smooths before it mixes, which is the same."""
    import_timm()
    from timm.data.mixup import mixup_target
    from timm.loss import BinaryCrossEntropy, SoftTargetCrossEntropy

    target = mixup_target(IN_TORCH[1], 7, 0.7, smoothing).double()
    ours = _mixed() * (1 - smoothing) + smoothing / 7
    assert error(target, ours) < 1e-7  # timm's are float32
    for kind, summed in [("softmax", None), ("sigmoid_mean", False), ("sigmoid", True)]:
        peer = SoftTargetCrossEntropy() if summed is None else BinaryCrossEntropy(sum_classes=summed)
        x = IN_TORCH[0].clone().requires_grad_()
        expected = peer(x, torch.from_numpy(ours))
        expected.backward()
        for loss, gradient in _of_shares(kind, _mixed(), smoothing=smoothing):
            assert float(loss.mean()) == pytest.approx(float(expected.detach()), rel=1e-13)
            assert error(gradient, x.grad) < 1e-13
    expected = optax.softmax_cross_entropy(LOGITS, ours)
    for loss, _ in _of_shares("softmax", _mixed(), smoothing=smoothing):
        assert error(loss, expected) < 1e-13


@pytest.mark.parametrize(("smoothing", "threshold"), [(0.0, 0.0), (0.1, 0.2), (0.1, 0.0)])
def test_a_threshold_is_timms_and_deit_threes(smoothing, threshold, x64):
    """DeiT III's `targets.gt(0.0)` is a threshold of 0, which smoothing would make all ones."""
    import_timm()
    from timm.loss import BinaryCrossEntropy

    target = torch.from_numpy(_mixed() * (1 - smoothing) + smoothing / 7)
    expected = BinaryCrossEntropy(target_threshold=threshold)(IN_TORCH[0], target)
    actual = _of_shares("sigmoid_mean", _mixed(), smoothing=smoothing, threshold=threshold)
    for loss, _ in actual:
        assert float(loss.mean()) == pytest.approx(float(expected), rel=1e-13)
    assert (target > threshold).all() == (smoothing > 0 and threshold == 0)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "sigmoid_mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_whole_shares_are_labels(kind, smoothing, x64):
    plain, mixed = _both(kind, smoothing), _of_shares(kind, np.eye(7)[LABELS], smoothing=smoothing)
    for (loss, gradient), (same, slope) in zip(plain, mixed, strict=True):
        assert error(loss, same) < 1e-14
        assert error(gradient, slope) < 1e-14


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "sigmoid_mean"])
def test_a_sure_answer_keeps_its_digits_in_float32(kind):
    """Where a right answer is nearly certain the loss is tiny, not the rest of a difference."""
    logits = np.full((5, 7), -20.0)
    logits[np.arange(5), LABELS] = 20.0
    expected = {
        "softmax": 6 * np.exp(-40.0),
        "sigmoid": 7 * np.exp(-20.0),
        "sigmoid_mean": np.exp(-20.0),
    }
    for loss, _ in _both(kind, 0.0, logits.astype(np.float32)):
        if kind == "softmax":  # torch's and jax's log_softmax both end at float32's grain, one
            assert np.all(np.abs(np.asarray(loss)) < np.finfo(np.float32).eps)
        else:
            assert error(loss, np.full(5, expected[kind])) < 1e-6


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "sigmoid_mean"])
def test_reduced_logits_are_widened(kind):
    logits = LOGITS.astype(np.float32)
    ours = cross_entropy(jnp.asarray(logits, jnp.bfloat16), jnp.asarray(LABELS), kind=kind)
    theirs = torch_cross_entropy(torch.from_numpy(logits).bfloat16(), IN_TORCH[1], kind=kind)
    assert ours.dtype == jnp.float32
    assert theirs.dtype == torch.float32
    assert error(ours, theirs) < 1e-6


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_pairs_of_images_and_texts_are_classes_of_each_other(kind, x64):
    logits, pairs = IN_TORCH[0][:, :5], torch.arange(5)
    if kind == "softmax":
        expected = (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.T, pairs)) / 2
    else:
        each = F.binary_cross_entropy_with_logits(logits, torch.eye(5).double(), reduction="none")
        expected = each.sum(dim=1).mean()
    ours, theirs = (
        contrastive(jnp.asarray(LOGITS[:, :5]), kind=kind),
        torch_contrastive(logits, kind=kind),
    )
    assert float(ours) == pytest.approx(float(expected), rel=1e-13)
    assert float(theirs) == pytest.approx(float(expected), rel=1e-13)


def test_what_a_right_answer_is():
    logits = np.array([[1.0, 3.0, -2.0], [2.0, -1.0, 0.5], [-1.0, -3.0, -2.0]])
    several = np.array([[0.6, 0.9, 0.4], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    for labels, whole, right in (
        (np.array([1, 2, 0]), False, [True, False, True]),
        (several, False, [True, True, True]),
        (several, True, [True, False, True]),
    ):
        ours = correct(jnp.asarray(logits), jnp.asarray(labels), several=whole)
        theirs = torch_correct(torch.from_numpy(logits), torch.from_numpy(labels), several=whole)
        assert ours.tolist() == theirs.tolist() == right
