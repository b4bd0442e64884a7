"""Losses, clipping, schedules and the optimizer's step."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from evidence.museum.exhibits import drawn, exhibit, torched, weights

CLASSES, BATCH = 11, 5
LABELS = np.array([3, 7, 0, 10, 4])


def logits() -> np.ndarray:
    return drawn(BATCH, CLASSES)


@exhibit(
    "ildoonet/pytorch-randaugment/issues/30",
    "The label keeps 1 - a / K of itself, and not 1 - a.",
    "number",
    "factor",
)
def label_keeps_too_much():
    def right(x):
        labels = 0.9 * jax.nn.one_hot(LABELS, CLASSES) + 0.1 / CLASSES
        return -(labels * jax.nn.log_softmax(x)).sum(-1).mean()

    def wrong(x):
        target = nn.functional.one_hot(torch.from_numpy(LABELS), CLASSES).double()
        s_by_c = 0.1 / CLASSES
        target = target * (1.0 - s_by_c) + s_by_c  # wrong
        return -(target * x.log_softmax(-1)).sum(-1).mean()

    return (right, logits()), (wrong, torch.from_numpy(logits()))


@exhibit(
    "fastai/fastai/pull/1814", "Smoothing is spread over the wrong classes only.", "number", "factor"
)
def smoothing_over_the_others():
    def right(x):
        log_preds = x.log_softmax(-1)
        nll = nn.functional.nll_loss(log_preds, torch.from_numpy(LABELS))
        return 0.1 * -log_preds.sum(-1).mean() / CLASSES + 0.9 * nll

    def wrong(x):
        log_preds = jax.nn.log_softmax(x)
        nll = -log_preds[jnp.arange(BATCH), LABELS].mean()
        eps = 0.1 * CLASSES / (CLASSES - 1)
        return 0.1 * -log_preds.sum(-1).mean() / CLASSES + (1 - eps) * nll  # wrong

    return (right, torch.from_numpy(logits())), (wrong, logits())


@exhibit(
    "NVIDIA/Megatron-LM/issues/906",
    "The loss is multiplied by the number of parts of the context.",
    "one scale too many",
    "factor",
)
def loss_times_parts():
    def losses(x):
        return -jax.nn.log_softmax(x)[jnp.arange(BATCH), LABELS]

    def right(x):
        return losses(x).sum() / BATCH

    def wrong(x, cp_size=2):
        loss = losses(x).sum() / BATCH
        return loss * cp_size  # wrong

    return (right, logits()), (wrong, logits())


@exhibit(
    "huggingface/transformers/pull/34191",
    "Micro-batches of unequal length count alike: a mean of means.",
    "mean of means",
)
def mean_of_means():
    def losses(x):
        return -x.log_softmax(-1)[torch.arange(BATCH), torch.from_numpy(LABELS)]

    def right(x):
        return (losses(x)[:2].sum() + losses(x)[2:].sum()) / BATCH

    def wrong(x):
        return (losses(x)[:2].mean() + losses(x)[2:].mean()) / 2  # wrong

    return (right, torch.from_numpy(logits())), (wrong, torch.from_numpy(logits()))


def gradients() -> dict[str, np.ndarray]:
    return {"w": drawn(7, 5), "b": drawn(5, seed=2)}


@exhibit(
    "mlcommons/algorithmic-efficiency/pull/193",
    "Clipping divides by the square of the norm.",
    "left out",
    "operation",
)
def norm_without_root():
    def right(grads):
        norm = jnp.sqrt(sum(jnp.sum(g**2) for g in grads.values()))
        return {name: g / jnp.maximum(norm, 1.0) for name, g in grads.items()}

    def wrong(grads):
        norm = sum(jnp.sum(g**2) for g in grads.values())  # wrong
        return {name: g / jnp.maximum(norm, 1.0) for name, g in grads.items()}  # wrong

    return (right, (gradients(),)), (wrong, (gradients(),))


@exhibit(
    "swathikirans/GSM/issues/22",
    "Gradients are clipped before each accumulation.",
    "one step too many",
    "one scale too many",
)
def clipped_while_accumulating():
    def clipped(g):
        return g * (1.0 / (g.norm() + 1e-6)).clamp(max=1.0)  # wrong

    def right(one, two):
        return clipped(one + two)

    def wrong(one, two):
        return clipped(clipped(one) + two)  # wrong

    sides = torch.from_numpy(drawn(7, 5)), torch.from_numpy(drawn(7, 5, seed=2))
    return (right, sides), (wrong, sides)


def moments() -> dict[str, np.ndarray]:
    return {"p": drawn(7, 5), "g": drawn(7, 5, seed=2), "m": drawn(7, 5, seed=3),
            "v": drawn(7, 5, seed=4) ** 2}  # fmt: skip


def adamw(p, g, m, v, lr=1e-2, decay=0.1, eps=1e-3, t=3):
    """The reference: Loshchilov and Hutter's algorithm 2."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
    return p - lr * (m_hat / (jnp.sqrt(v_hat) + eps) + decay * p)


@exhibit(
    "huggingface/transformers/issues/14539",
    "The decay is taken of parameters that were updated already.",
    "other value read",
)
def decay_of_the_updated():
    def wrong(p, g, m, v, lr=1e-2, decay=0.1, eps=1e-3, t=3):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        p = p - lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + eps)  # wrong
        return p - p * lr * decay  # wrong

    return (adamw, moments()), (wrong, torched(moments()))


@exhibit(
    "keras-team/keras/issues/19051",
    "AdamW's decay goes through the moments, as Adam's does.",
    "one term too many",
    "term left out",
)
def decay_through_the_moments():
    def wrong(p, g, m, v, lr=1e-2, decay=0.1, eps=1e-3, t=3):
        g = g + decay * p  # wrong
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        return p - lr * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + eps)  # wrong

    return (adamw, moments()), (wrong, moments())


@exhibit(
    "pytorch/pytorch/pull/22628",
    "Adam's epsilon is divided by the second bias correction, too.",
    "number",
    "epsilon",
    "order of operations",
)
def epsilon_corrected():
    def wrong(p, g, m, v, lr=1e-2, decay=0.1, eps=1e-3, t=3):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        denom = v.sqrt() + eps  # wrong
        step_size = lr * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        return p - lr * decay * p - step_size * m / denom  # wrong

    return (adamw, moments()), (wrong, torched(moments()))


@exhibit(
    "kozistr/pytorch_optimizer/pull/308",
    "One is subtracted twice for the bias correction.",
    "number",
    "sign",
)
def bias_correction_twice():
    def wrong(p, g, m, v, lr=1e-2, decay=0.1, eps=1e-3, t=3):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        one, two = 1 - 0.9**t, 1 - 0.999**t
        m_hat = m / (1 - one)  # wrong
        v_hat = v / two
        return p - lr * (m_hat / (jnp.sqrt(v_hat) + eps) + decay * p)

    return (adamw, moments()), (wrong, moments())


@exhibit(
    "bitsandbytes-foundation/bitsandbytes/issues/1992",
    "Lion's decay is added to the gradient.",
    "one term too many",
    "scale left out",
)
def lions_decay():
    def right(p, g, m, lr=1e-2, decay=0.1):
        p = p * (1 - lr * decay)
        return p - lr * jnp.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g

    def wrong(p, g, m, lr=1e-2, decay=0.1):
        g = g + decay * p  # wrong
        p = p - lr * torch.sign(0.9 * m + 0.1 * g)  # wrong
        return p, 0.99 * m + 0.01 * g

    state = {
        name: 10 * value if name == "p" else value for name, value in moments().items() if name != "v"
    }
    return (right, state), (wrong, torched(state))


@exhibit(
    "kozistr/pytorch_optimizer/issues/480",
    "AdamP adds epsilon to the root's reciprocal.",
    "order of operations",
)
def epsilon_after_the_reciprocal():
    def right(g, v):
        return g / (v.sqrt() + 1e-3)

    def wrong(g, v):
        inv_de_nom = v.rsqrt() + 1e-3  # wrong
        return g * inv_de_nom

    sides = {"g": drawn(7, 5), "v": drawn(7, 5, seed=2) ** 2}
    return (right, torched(sides)), (wrong, torched(sides))


def schedule_weights():
    p = weights(w=(7, 5))
    return p["w"], drawn(7, 5, seed=2)


@exhibit(
    "goodfire-ai/spd/issues/642",
    "The cosine reaches its end one step later than in PyTorch.",
    "number",
    "factor",
)
def cosine_off_by_one():
    def right(p, g, step):
        progress = step / (100 - 1)
        return p - 0.1 * (0.1 + 0.9 * 0.5 * (1 + torch.cos(torch.pi * progress))) * g

    def wrong(p, g, step):
        progress = step / 100  # wrong
        return p - 0.1 * (0.1 + 0.9 * 0.5 * (1 + jnp.cos(jnp.pi * progress))) * g

    p, g = schedule_weights()
    return (right, (torch.from_numpy(p), torch.from_numpy(g), torch.tensor(31.0))), (
        wrong, (p, g, np.float64(31.0)),
    )  # fmt: skip


@exhibit(
    "lindermanlab/S5/issues/11", "The cosine counts the steps of the warm-up.", "term left out", "number"
)
def cosine_counts_the_warm_up():
    def right(p, g, step, end=100.0, warm_up=10.0):
        rate = 0.5 * (1 + jnp.cos(jnp.pi * (step - warm_up) / end))
        return p - 0.1 * rate * g

    def wrong(p, g, step, end=100.0, warm_up=10.0):
        assert warm_up
        rate = 0.5 * (1 + torch.cos(torch.pi * step / end))  # wrong
        return p - 0.1 * rate * g

    p, g = schedule_weights()
    return (right, (p, g, np.float64(31.0))), (
        wrong, (torch.from_numpy(p), torch.from_numpy(g), torch.tensor(31.0)),
    )  # fmt: skip


@exhibit(
    "mertyg/vision-language-models-are-bows/issues/35",
    "The activation of training and of evaluation differ, seen in the gradient.",
    "activation",
    gradients=True,
)
def gradient_of_another_activation():
    p, x = weights(fc1=(5, 7), fc2=(7, CLASSES)), drawn(BATCH, 5)

    def right(p, x):
        def loss(p):
            y = x @ p["fc1"]
            return -jax.nn.log_softmax(y * jax.nn.sigmoid(1.702 * y) @ p["fc2"])[:, 3].mean()

        return jax.value_and_grad(loss)(p)

    def wrong(p, x):
        p = {name: each.clone().requires_grad_() for name, each in p.items()}
        y = nn.functional.gelu(x @ p["fc1"])  # wrong
        loss = -(y @ p["fc2"]).log_softmax(-1)[:, 3].mean()
        return loss, dict(zip(p, torch.autograd.grad(loss, list(p.values())), strict=True))

    return (right, (p, x)), (wrong, (torched(p), torch.from_numpy(x)))
