"""Where a token stands: tables, their order and their size; embeddings and their scale."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from evidence.museum.exhibits import B, D, M, N, drawn, exhibit, tokens, torched, weights


@exhibit(
    "labmlai/annotated_deep_learning_paper_implementations/issues/133",
    "One row of the table is added to all patches.",
    "index",
    "slice",
)
def one_row_for_all():
    p = weights(positional_encodings=(3 * N, 1, D), proj=(D, M))

    def right(positional_encodings, proj, x):
        return (x + positional_encodings[: x.shape[0]]) @ proj

    def wrong(positional_encodings, proj, x):
        pe = positional_encodings[x.shape[0]]  # wrong
        return (x + pe) @ proj  # wrong

    x = torch.from_numpy(tokens(N, B, D))
    return (right, {**torched(p), "x": x}), (wrong, {**torched(p), "x": x})


@exhibit(
    "labmlai/annotated_deep_learning_paper_implementations/pull/221",
    "The class token is put in front after the positions were added.",
    "term left out of a part",
)
def class_token_without_position():
    p = weights(cls=(1, 1, D), pos=(1, N + 1, D), head=(D, M))

    def right(cls, pos, head, x):
        x = torch.cat([cls.expand(B, -1, -1), x], dim=1) + pos
        return x.tanh() @ head

    def wrong(p, x):
        x = x + p["pos"][:, 1:]
        x = jnp.concatenate([jnp.tile(p["cls"], (B, 1, 1)), x], axis=1)  # wrong
        return jnp.tanh(x) @ p["head"]

    return (right, {**torched(p), "x": torch.from_numpy(tokens())}), (wrong, (p, tokens()))


@exhibit(
    "huggingface/candle/issues/2286",
    "The short cut of the interpolation returns the tokens.",
    "other value read",
    "index",
)
def short_cut_returns_tokens():
    p = weights(pos_embed=(1, N, D), head=(D, M))

    def interpolated(pos_embed, x):
        return pos_embed if x.shape[1] == pos_embed.shape[1] else None

    def right(p, x):
        return jnp.tanh(x + interpolated(p["pos_embed"], x)) @ p["head"]

    def wrong(p, x):
        return jnp.tanh(x + x) @ p["head"]  # wrong

    return (right, (p, tokens())), (wrong, (p, tokens()))


def sines(positions, width):
    omega = 1.0 / 10000 ** (jnp.arange(width // 2) / (width / 2))
    out = positions.reshape(-1)[:, None] * omega
    return jnp.concatenate([jnp.sin(out), jnp.cos(out)], axis=1)


@exhibit(
    "facebookresearch/mae/issues/67",
    "Columns go first in the grid of the table, and it is square.",
    "transposed",
    "halves exchanged",
)
def columns_first():
    rows, columns = 3, 4
    x, p = tokens(B, rows * columns, 24), weights(head=(24, M))

    def right(p, x):
        h, w = jnp.meshgrid(jnp.arange(1.0, rows + 1), jnp.arange(1.0, columns + 1), indexing="ij")
        return (x + jnp.concatenate([sines(h, 12), sines(w, 12)], axis=1)) @ p["head"]

    def wrong(p, x):
        w, h = jnp.meshgrid(jnp.arange(1.0, columns + 1), jnp.arange(1.0, rows + 1))
        return (x + jnp.concatenate([sines(w, 12), sines(h, 12)], axis=1)) @ p["head"]  # wrong

    return (right, (p, x)), (wrong, (p, x))


@exhibit(
    "nicklashansen/dreamer4/pull/4",
    "Positions are scaled by the root of the width.",
    "one scale too many",
    "factor",
    "number",
)
def scaled_positions():
    p = weights(pos=(1, N, D), head=(D, M))

    def right(pos, head, x):
        return torch.tanh(x + pos) @ head

    def wrong(p, x):
        pos = p["pos"] * D**-0.5  # wrong
        return jnp.tanh(x + pos) @ p["head"]

    return (right, {**p, "x": torch.from_numpy(tokens())}), (wrong, (p, tokens()))


def resized(pos, **how):
    grid = pos.reshape(1, 4, 4, D).permute(0, 3, 1, 2)
    grid = nn.functional.interpolate(grid, mode="bicubic", **how)  # wrong
    return grid.permute(0, 2, 3, 1).reshape(1, -1, D)


@exhibit(
    "facebookresearch/dinov2/pull/378",
    "The table is resized by a factor with an offset of 0.1.",
    "arguments",
)
def offset_of_the_interpolation():
    pos, x = drawn(1, 16, D), drawn(B, 35, D)

    def right(pos, x):
        return torch.tanh(x + resized(pos, size=(5, 7)))

    def wrong(pos, x):
        return torch.tanh(x + resized(pos, scale_factor=(5.1 / 4, 7.1 / 4)))  # wrong

    sides = torch.from_numpy(pos), torch.from_numpy(x)
    return (right, sides), (wrong, sides)


@exhibit("cloneofsimo/minDinoV2/pull/2", "The table is made smaller without antialiasing.", "operation")
def no_antialiasing():
    pos, x = drawn(1, 16, D), drawn(B, 9, D)

    def right(pos, x):
        return torch.tanh(x + resized(pos, size=(3, 3), antialias=True))

    def wrong(pos, x):
        return torch.tanh(x + resized(pos, size=(3, 3)))  # wrong

    sides = torch.from_numpy(pos), torch.from_numpy(x)
    return (right, sides), (wrong, sides)


@exhibit(
    "google-research/l2p/issues/21",
    "The prompts' tokens are read from the class token on.",
    "slice",
    "shifted",
    "index",
)
def prompts_begin_too_early():
    p = weights(head=(D, M))

    def right(p, x):
        return x[:, 1:4].mean(1) @ p["head"]

    def wrong(head, x):
        x = x[:, 0:3]  # wrong
        return x.mean(1) @ head

    return (right, (p, tokens())), (wrong, {**torched(p), "x": torch.from_numpy(tokens())})


@exhibit(
    "TensorAuto/OpenTau/pull/179",
    "Gemma 3's embedding scales already, and the policy does again.",
    "one scale too many",
    "factor",
)
def embedding_scaled_twice():
    p, ids = weights(table=(19, D), head=(D, M)), np.random.default_rng(0).integers(0, 19, (B, N))

    def right(table, head, ids):
        return torch.tanh(0.1 * nn.functional.embedding(ids, table) * D**0.5) @ head

    def wrong(p, ids):
        lang_emb = p["table"][ids] * D**0.5  # wrong
        lang_emb = lang_emb * D**0.5  # wrong
        return jnp.tanh(0.1 * lang_emb) @ p["head"]

    return (right, {**torched(p), "ids": torch.from_numpy(ids)}), (wrong, (p, ids))


@exhibit(
    "vllm-project/vllm/issues/52667",
    "Images are divided by the root of the width, although nothing multiplies by it any more.",
    "one scale too many",
    "factor",
)
def images_still_divided():
    p, image = weights(projector=(D, D), table=(N, D), head=(D, M)), drawn(B, 3, D, seed=4)

    def right(p, image):
        text = jnp.tile(p["table"] * D**0.5, (B, 1, 1))
        return jnp.tanh(jnp.concatenate([image @ p["projector"], text], 1)) @ p["head"]

    def wrong(p, image):
        text = jnp.tile(p["table"] * D**0.5, (B, 1, 1))
        image = image @ p["projector"] * D**-0.5  # wrong
        return jnp.tanh(jnp.concatenate([image, text], 1)) @ p["head"]

    return (right, (p, image)), (wrong, (p, image))


@exhibit(
    "NVIDIA/Megatron-LM/pull/6260",
    "Positions are added before the class token is put in front, and shifted by its length.",
    "term left out of a part",
)
def positions_before_the_class_token():
    p = weights(cls=(1, 1, D), pos=(N + 1, D), head=(D, M))

    def right(p, x):
        x = jnp.concatenate([jnp.tile(p["cls"], (B, 1, 1)), x], axis=1)
        return jax.nn.sigmoid(x + p["pos"][jnp.arange(N + 1)]) @ p["head"]

    def wrong(p, x):
        x = x + p["pos"][jnp.arange(N) + 1]
        x = jnp.concatenate([jnp.tile(p["cls"], (B, 1, 1)), x], axis=1)  # wrong
        return jax.nn.sigmoid(x) @ p["head"]

    return (right, (p, tokens())), (wrong, (p, tokens()))
