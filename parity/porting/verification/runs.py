"""Logits of one batch in the twins and in libraries, cached by the weights' bits."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from parity.porting.formats.base import Stored
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.reading.libraries.installed import library_of
from vit_config import ConfigError, ViTConfig
from vit_config.parameters import parameters
from vit_config.waiting import Stage, nobody

NAMES = {"torch": "PyTorch", "jax": "JAX"}

SECONDS = {"torch": 0.075, "jax": 0.065, "library": 0.065}
"""Seconds of one core for 1e9 operations of a run in float64: of ViT-B/16 and ViT-L/16, two images, what
is read and hashed before it included."""


def installed_twins() -> list[str]:
    """Return the frameworks that are installed.

    Raises:
        ConfigError: none is.
    """
    twins = [name for name in NAMES if importlib.util.find_spec(name)]
    if not twins:
        raise ConfigError("--verify runs models, and neither PyTorch nor JAX is installed; install one")
    return twins


def seconds(name: str, cfg: ViTConfig) -> float:
    """Estimate how long a run of a twin or of a ``library`` takes."""
    rows, columns = cfg.grid_of(*cfg.image_size)
    numbers = sum(math.prod(each.shape) for each in parameters(cfg).values())
    return SECONDS[name] * 4e-9 * numbers * (rows * columns + cfg.num_prefix_tokens)  # of two images


def all_seconds(cfg: ViTConfig, twins: Sequence[str], libraries: int) -> float:
    """Estimate how long a verification takes: a run in each twin and in some libraries."""
    return sum(seconds(each, cfg) for each in (*twins, *["library"] * libraries))


class LogitsCache:
    """A cache of logits of images (B, H, W, C), by program and values of the weights."""

    def __init__(self, images: np.ndarray, on_stage: Stage = nobody) -> None:
        self.images = images
        self.ahead = 0.0
        """Seconds that all runs which are still to come are expected to take."""
        self._on_stage = on_stage
        self._logits: dict[tuple[str, ...], np.ndarray] = {}
        self._digests: dict[int, tuple[Stored, str]] = {}

    def twin(
        self, name: str, cfg: ViTConfig, arrays: Mapping[str, Stored], what: str, *, wide: bool = True
    ) -> np.ndarray:
        """Compute a twin's logits, in float64 or, without `wide`, in the type of the weights.

        Args:
            what: description of the weights.
        """
        key = (name, str(wide), cfg.to_json(), self._digest(arrays))
        run = f"{what}, {NAMES[name]} twin"
        return self._once(key, run, seconds(name, cfg), lambda: self._run(name, cfg, arrays, wide))

    def library(self, checkpoint: Checkpoint, what: str) -> np.ndarray:
        """Compute the logits of a checkpoint's own library, in float64.

        Raises:
            NoModelError, RefusedError: see `libraries.Library.run`.
        """
        library = library_of(checkpoint)
        contents = json.dumps(checkpoint.opened.sidecars.contents, sort_keys=True, default=str)
        schema = f"{checkpoint.dialect.name} {checkpoint.config.to_json()} {checkpoint.metadata}"
        key = (library.name, schema, contents, self._digest(checkpoint.tensors))

        def run() -> np.ndarray:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # libraries warn about themselves
                return library.run(checkpoint, self.images)

        expected = seconds("library", checkpoint.config)
        return self._once(key, f"{what}, {library.name}", expected, run)

    def _once(
        self, key: tuple[str, ...], what: str, expected: float, run: Callable[[], np.ndarray]
    ) -> np.ndarray:
        if key not in self._logits:
            self.ahead = max(self.ahead - expected, 0.0)
            self._on_stage(f"running {what}", expected, self.ahead)
            self._logits[key] = run()
        return self._logits[key]

    def _digest(self, arrays: Mapping[str, Stored]) -> str:
        """Compute a digest of names, shapes, types and bits."""
        each = (f"{name} {self._digest_of(arrays[name])}" for name in sorted(arrays))
        return hashlib.sha256("\n".join(each).encode()).hexdigest()

    def _digest_of(self, stored: Stored) -> str:
        """Compute the digest of one tensor, read once and kept alive so that its id stays unique."""
        if id(stored) not in self._digests:
            array = np.ascontiguousarray(stored.load())
            bits = hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()
            self._digests[id(stored)] = stored, f"{array.shape} {array.dtype} {bits}"
        return self._digests[id(stored)][1]

    def _run(self, name: str, cfg: ViTConfig, arrays: Mapping[str, Stored], wide: bool) -> np.ndarray:
        loaded = {name: stored.load() for name, stored in arrays.items()}
        if wide:
            loaded = {name: array.astype(np.float64) for name, array in loaded.items()}
        return {"torch": _run_torch, "jax": _run_jax}[name](cfg, loaded, self.images)


def _run_torch(cfg: ViTConfig, arrays: Mapping[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    import torch

    from vit_torch.weights import from_arrays

    with torch.no_grad():
        model = from_arrays(cfg, arrays, kernel="reference")
        batch = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
        return model(batch.to(next(model.parameters()).dtype)).logits.double().numpy()


def _run_jax(cfg: ViTConfig, arrays: Mapping[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    import jax

    from vit_jax.functional import get_params, make_apply
    from vit_jax.weights import from_arrays

    with jax.enable_x64(True):
        params = get_params(from_arrays(cfg, arrays))
        apply = make_apply(cfg, kernel="reference")
        logits = jax.jit(lambda params, images: apply(params, images).logits)
        batch = jax.numpy.asarray(images, next(iter(params.values())).dtype)
        return np.asarray(logits(params, batch), np.float64)
