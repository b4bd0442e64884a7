"""Writes trained weights to a file, and scores them in PyTorch without JAX."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import vit_config
from vit_config import Preprocess, ViTConfig, WeightsError, write_weights
from vit_config.files.weights_file import write_atomically
from vit_config.scoring import Score
from vit_train.frameworks import Framework

if TYPE_CHECKING:
    from vit_train.data.records import Records

WEIGHTS, IMAGES = "weights.safetensors", "test_images.npz"
"""Names of the files written into a run's folder."""
MAX_BYTES = 512 * 2**20
"""Maximum size of the pixels in an images file."""

WITHOUT_JAX = """
import sys
sys.modules["jax"] = None  # from here on `import jax` fails
from vit_torch.evaluate import main
sys.exit(main(sys.argv[1:]))
"""


def write_trained(
    path: Path,
    cfg: ViTConfig,
    params: dict[str, np.ndarray],
    preprocess: Preprocess,
    *,
    framework: Framework = "jax",
    provenance: Sequence[Any] = (),
) -> None:
    """Write parameters in a framework's layout, such as a training run's last, to a weights file.

    Args:
        provenance: hops of the weights, oldest first; JSON values.
    """
    if framework == "torch":  # the file's own layout
        write_weights(path, cfg, params, preprocess, provenance)
        return
    import jax

    from parity.porting.models.files import save
    from vit_jax.functional import make_merge
    from vit_jax.weights import from_numpy

    with jax.enable_x64(any(value.dtype == np.float64 for value in params.values())):
        model = make_merge(cfg)({name: from_numpy(value) for name, value in params.items()})
        save(path, model, preprocess=preprocess, provenance=provenance, force=True)


def write_images(path: Path, records: Records, cfg: ViTConfig, preprocess: Preprocess) -> np.ndarray:
    """Write a split as an ``.npz`` file, its images resized and cropped for the model, not normalised.

    A split larger than `MAX_BYTES` is thinned out evenly.

    Returns:
        The images, (N, H, W, C) uint8.
    """
    from vit_train.data.images import fit_image

    size = cfg.image_size[0] * cfg.image_size[1] * cfg.in_channels
    count = min(len(records), max(MAX_BYTES // size, 1))
    spread = np.linspace(0, len(records) - 1, count).round().astype(int).tolist()
    read = {index: records[index] for index in spread}  # `records.damaged` is filled by reading
    chosen = [record for index, record in read.items() if index not in records.damaged]
    images = np.stack([fit_image(record["image"], cfg.image_size, preprocess) for record in chosen])
    content = io.BytesIO()
    labels = records.targets([record["label"] for record in chosen]).astype(np.int32)
    np.savez(content, images=images, labels=labels)
    write_atomically(path, content.getvalue())
    return images


def score_in_torch(weights: Path, images: Path) -> Score:
    """Score a weights file by the PyTorch twin, in a new process where importing JAX fails.

    Raises:
        WeightsError: the process failed; the message quotes its last line.
    """
    source = Path(vit_config.__file__).parent.parent
    search = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX, str(weights), str(images)],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        raise WeightsError(f"{weights}: PyTorch could not score it ({reason})")
    return Score(**json.loads(done.stdout))
