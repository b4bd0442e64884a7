"""DETR of transformers (arXiv 2005.12872): functions of one image, mapped over the batch."""

# transformers' configurations take more than they declare
# pyright: reportCallIssue=false

import jax
import jax.numpy as jnp

from evidence.families.drawn import drawn, nested, normal, weights

WIDTH, HEADS, HIDDEN, QUERIES, CLASSES, DEPTH = 24, 3, 37, 5, 7, 2
IMAGES = normal(2, 3, 37, 29)
MASK = (normal(2, 37, 29) < 9).astype("int64")
MASK[1, 31:], MASK[1, :, 20:] = 0, 0


def original():
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=7,
        hidden_sizes=[7, 11],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    config = DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, d_model=WIDTH, num_queries=QUERIES,
        encoder_layers=DEPTH, decoder_layers=DEPTH, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=HIDDEN, decoder_ffn_dim=HIDDEN,
        num_labels=CLASSES, attn_implementation="eager",
    )  # fmt: skip
    return drawn(DetrForObjectDetection(config)), {"pixel_values": IMAGES, "pixel_mask": MASK}


def port(model):
    return detect, (nested(weights(model)), IMAGES, MASK)


def conv(p, x, stride=1):
    """x: (channels, height, width)"""
    pad = p["weight"].shape[-1] // 2
    return jax.lax.conv_general_dilated(x[None], p["weight"], (stride, stride), [(pad, pad)] * 2)[0]


def frozen_norm(p, x):
    gain = p["weight"] / jnp.sqrt(p["running_var"] + 1e-5)
    return (x - p["running_mean"][:, None, None]) * gain[:, None, None] + p["bias"][:, None, None]


def conv_norm(p, x, stride=1):
    return frozen_norm(p["normalization"], conv(p["convolution"], x, stride))


def backbone(p, x):
    x = jax.nn.relu(conv_norm(p["embedder"]["embedder"], x, 2))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3), (1, 2, 2), ((0, 0), (1, 1), (1, 1)))
    for i in range(2):
        layer = p["encoder"]["stages"][str(i)]["layers"]["0"]
        y = jax.nn.relu(conv_norm(layer["layer"]["0"], x, i + 1))
        y = conv_norm(layer["layer"]["1"], y)
        if "shortcut" in layer:
            x = conv_norm(layer["shortcut"], x, i + 1)
        x = jax.nn.relu(x + y)
    return x


def shrunk(mask, height, width):
    """The mask of the pixels at the places of a feature map."""
    rows = jnp.arange(height) * mask.shape[0] // height
    columns = jnp.arange(width) * mask.shape[1] // width
    return mask[rows[:, None], columns[None, :]] > 0


def sines(mask):
    """(height * width, width): places counted inside of the mask, as sines and cosines."""
    features = WIDTH // 2
    scales = 10_000 ** (2 * (jnp.arange(features) // 2) / features)

    def of_axis(axis):
        place = jnp.cumsum(mask, axis)
        last = jnp.max(place, axis, keepdims=True)
        angles = 2 * jnp.pi * (place / (last + 1e-6))[..., None] / scales
        pairs = jnp.stack([jnp.sin(angles[..., 0::2]), jnp.cos(angles[..., 1::2])], -1)
        return pairs.reshape(*mask.shape, features)

    return jnp.concatenate([of_axis(0), of_axis(1)], -1).reshape(-1, WIDTH)


def linear(p, x):
    return x @ p["weight"].T + p["bias"]


def norm(p, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * p["weight"] + p["bias"]


def attend(p, query, key, value, mask):
    q, k, v = (
        linear(p[f"{name}_proj"], x).reshape(len(x), HEADS, -1)
        for name, x in (("q", query), ("k", key), ("v", value))
    )
    scores = jnp.einsum("qhd,khd->hqk", q, k) / jnp.sqrt(q.shape[-1])
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e30), axis=-1)
    return linear(p["o_proj"], jnp.einsum("hqk,khd->qhd", weights, v).reshape(len(q), WIDTH))


def mlp(p, x):
    return linear(p["fc2"], jax.nn.relu(linear(p["fc1"], x)))


def encoder_layer(p, x, places, mask):
    x = norm(p["self_attn_layer_norm"], x + attend(p["self_attn"], x + places, x + places, x, mask))
    return norm(p["final_layer_norm"], x + mlp(p["mlp"], x))


def decoder_layer(p, x, queries, encoded, places, mask):
    y = attend(p["self_attn"], x + queries, x + queries, x, True)
    x = norm(p["self_attn_layer_norm"], x + y)
    y = attend(p["encoder_attn"], x + queries, encoded + places, encoded, mask)
    x = norm(p["encoder_attn_layer_norm"], x + y)
    return norm(p["final_layer_norm"], x + mlp(p["mlp"], x))


def detr(p, image, mask):
    """Compute the outputs for one image (channels, height, width) and its mask."""
    model = p["model"]
    features = backbone(model["backbone"]["model"], image)
    channels, height, width = features.shape
    mask = shrunk(mask, height, width)
    places, seen = sines(mask), mask.reshape(-1)
    kernel, bias = model["input_projection"]["weight"], model["input_projection"]["bias"]
    x = features.reshape(channels, -1).T @ kernel.reshape(WIDTH, channels).T + bias
    for i in range(DEPTH):
        x = encoder_layer(model["encoder"]["layers"][str(i)], x, places, seen)
    queries = model["query_position_embeddings"]["weight"]
    y = jnp.zeros_like(queries)
    for i in range(DEPTH):
        y = decoder_layer(model["decoder"]["layers"][str(i)], y, queries, x, places, seen)
    y = norm(model["decoder"]["layernorm"], y)
    boxes = p["bbox_predictor"]["layers"]
    z = jax.nn.relu(linear(boxes["0"], y))
    z = jax.nn.relu(linear(boxes["1"], z))
    z = jax.nn.sigmoid(linear(boxes["2"], z))
    logits = linear(p["class_labels_classifier"], y)
    return {"logits": logits, "pred_boxes": z, "last_hidden_state": y, "encoder_last_hidden_state": x}


def detect(p, images, masks):
    return jax.vmap(lambda image, mask: detr(p, image, mask))(images, masks)
