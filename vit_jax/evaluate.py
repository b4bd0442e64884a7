"""Score a weights file on labelled images; the same numbers as the other twin.

``python -m vit_jax.evaluate WEIGHTS.safetensors IMAGES.npz`` prints a JSON object.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from vit_config import WeightsError, read_weights
from vit_config.errors import USER_ERRORS
from vit_config.scoring import Score, check_labelled_images, read_labelled_images
from vit_config.terminal import complain, say
from vit_jax.compiling import compiler_options
from vit_jax.functional import Params, get_params, make_apply
from vit_jax.loss import correct, cross_entropy
from vit_jax.weights import from_arrays

BATCH_SIZE = 256


def evaluate_file(weights_path: str | Path, images_path: str | Path) -> Score:
    """Score the model of a weights file, in the type of its parameters, on an ``.npz`` file.

    Raises:
        MissingFileError: one of the files is not there.
        WeightsError, DataError: one of them is damaged or of another kind.
        InputError: the images do not fit the model.
    """
    weights, data = read_weights(weights_path), read_labelled_images(images_path)
    preprocess = check_labelled_images(weights.config, weights.preprocess, data)
    dtype = next(iter(weights.arrays.values())).dtype
    with jax.enable_x64(dtype == np.float64), jax.default_matmul_precision("highest"):
        try:
            params = get_params(from_arrays(weights.config, weights.arrays))
        except WeightsError as error:
            raise WeightsError(f"{weights_path}: {error}") from None
        options = compiler_options(jax.default_backend())
        apply = make_apply(weights.config)
        several = preprocess.several_labels
        kind = "sigmoid_mean" if several else "softmax"

        def judge(params: Params, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
            logits = apply(params, images, return_tokens=False).logits
            loss = cross_entropy(logits, labels, kind=kind)
            return loss.sum(), correct(logits, labels, several=several).sum()

        judge = jax.jit(judge, compiler_options=options)
        loss, right = 0.0, 0
        for start in range(0, len(data.labels), BATCH_SIZE):
            images = preprocess.normalise(data.images[start : start + BATCH_SIZE])  # (B, H, W, C)
            images = jnp.asarray(images, dtype)
            labels = jnp.asarray(data.labels[start : start + BATCH_SIZE])
            batch_loss, batch_right = judge(params, images, labels)
            loss += batch_loss.item()
            right += int(batch_right)
    return Score(loss / len(data.labels), right, len(data.labels))


def main(argv: Sequence[str]) -> int:
    """Print the score of ``WEIGHTS IMAGES`` as JSON.

    Returns:
        The exit status: 0, or 2 for bad input.
    """
    if len(argv) != 2:
        complain("usage: python -m vit_jax.evaluate WEIGHTS.safetensors IMAGES.npz")
        return 2
    try:
        say(json.dumps(evaluate_file(*argv)._asdict()))
    except USER_ERRORS as error:
        complain(f"vit_jax.evaluate: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
