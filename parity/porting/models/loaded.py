"""A loaded model: its schema and metadata, and its predictions for images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parity.porting.formats.metadata import Metadata
from vit_config import InputError, Preprocess, ViTConfig
from vit_config.images.patches import Patches, collate
from vit_config.images.pixels import Picture, prepare
from vit_config.images.preprocess import Exif
from vit_config.inputs import check_grid
from vit_train.frameworks import Framework

if TYPE_CHECKING:
    from parity.porting.text.texts import Texts, ZeroShot

NO_IMAGES = "no images given; give at least one"
BATCH = 32
"""Images in one batch."""
Run = Callable[[np.ndarray | Patches], tuple[np.ndarray, np.ndarray]]
"""Function from images (B, H, W, C) float32, or patches, to logits and pooled features."""


class Prediction(NamedTuple):
    """One class that a model predicts for an image, and its probability."""

    label: str | int
    """The class's name, or its number if the names are unknown."""
    probability: float


@dataclass(frozen=True)
class Loaded:
    """A model read from a file, ready for images."""

    metadata: Metadata
    """Preprocessing, class names and licence, as the file has them."""
    origins: dict[str, str]
    """Source of each field of the file's schema, in words."""
    notes: tuple[str, ...]
    """Everything that reading stripped, left out or widened, a sentence each."""
    framework: Framework
    model: Any
    """`vit_jax.ViT`, or `vit_torch.ViT` in evaluation mode."""
    read_texts: Callable[[], Texts] | None = field(default=None, repr=False)
    """Reads the text tower beside the model."""
    has_texts: bool = False
    """Whether there is one, of a known dialect."""
    _head: Any = field(init=False, repr=False)
    """The head that the file's class names belong to."""

    def __repr__(self) -> str:
        cfg, size = self.config, "x".join(map(str, (*self.config.image_size, self.config.in_channels)))
        return (
            f"<Loaded {self.framework} ViT: {cfg.depth} blocks of {cfg.hidden_size}, images of {size},"
            f" {cfg.num_classes} classes>"
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "_head", self.model.head)

    @property
    def config(self) -> ViTConfig:
        """The model's schema."""
        return self.model.cfg

    @property
    def preprocess(self) -> Preprocess | None:
        """The metadata as one `Preprocess`; None if preprocessing is unknown, and only `model` can be
        used."""
        preprocess = self.metadata.preprocess
        return preprocess and preprocess.replace(class_names=self.class_names)

    def seeing(self, exif: Exif | None) -> Loaded:
        """Return the same model for photos that are turned as their camera noted, or not; None keeps
        what the file says."""
        pixels = self.metadata.pixels
        if exif is None or pixels is None:
            return self
        made = replace(self, metadata=self.metadata.replace(pixels=pixels.replace(exif=exif)))
        object.__setattr__(made, "_head", self._head)
        return made

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Name of each class, in the order of the logits; None if unknown, as for a head that replaced
        the file's."""
        return None if self._has_new_head else self.metadata.class_names

    @property
    def _has_new_head(self) -> bool:
        """Whether the head is another than the file's, as after `reset_classifier`."""
        return self.model.head is not self._head

    def predict(self, images: Picture | Iterable[Picture], *, k: int = 5) -> list[list[Prediction]]:
        """Return the `k` most probable classes of each image, the most probable first.

        Args:
            images: one or many: paths, PIL images, or (H, W) or (H, W, C) uint8 arrays; also one array
                (B, H, W, C).
            k: number of classes to return.

        Raises:
            InputError: preprocessing is unknown, the model has no head, the number of class names is not
                the number of classes, or an image cannot be used.
            MissingFileError: there is no such file.
        """
        self.check_predicts(k)
        return self.most_probable(self.logits(images), k)

    @cached_property
    def texts(self) -> Texts:
        """The text tower beside the model, of a CLIP or a SigLIP; read when it is first used.

        Raises:
            InputError: the file has no text tower of a known dialect.
            WeightsError, ConfigError: it cannot be read, see `parity.porting.text.read.read_text`.
        """
        if self.read_texts is None:
            raise InputError("this model was not read from a file with a text tower")
        return self.read_texts()

    def zero_shot(
        self, images: Picture | Iterable[Picture], texts: Sequence[str] | np.ndarray
    ) -> ZeroShot:
        """Compare images with texts, as CLIP and SigLIP classify images without training.

        Args:
            images: as `predict` takes them; at least one.
            texts: T strings, such as "a photo of a cat", of which the checkpoint's own tokenizer.json
                makes tokens; or token ids (T, tokens).

        Returns:
            Logits and probabilities (B, T).

        Raises:
            InputError: the file has no text tower, or no tokenizer for strings, or ids do not fit the
                tower; and see `predict`.
            MissingFileError: see `predict`.
            WeightsError, ConfigError: see `texts`.
        """
        embedded = self.texts.embed(texts)
        return self.texts.compare(self.logits(images), embedded)

    @property
    def has_classes(self) -> bool:
        """Whether the head's outputs are classes, and not an embedding to be compared with texts."""
        embeds = self.has_texts and self.metadata.class_names is None and not self._has_new_head
        return bool(self.config.num_classes) and not embeds

    def check_predicts(self, k: int = 1) -> None:
        """Refuse a model that cannot predict classes, or a `k` below 1.

        Raises:
            InputError: see `predict`.
        """
        self.check_k(k)
        if not self.has_classes and self.has_texts:
            raise InputError("the model embeds images beside texts and has no classes of its own; name"
                             " them: --labels, or zero_shot(images, texts)")  # fmt: skip
        classes, names = self.config.num_classes, self.class_names
        if not classes:
            raise InputError("the model has no head to predict with (num_classes = 0); logits(images)"
                             " and `parity embed` give what a head would see")  # fmt: skip
        if names is not None and len(names) != classes:
            raise InputError(
                f"there are {len(names)} class names for {classes} classes; give the right ones with"
                " load(..., preprocess=Preprocess(class_names=...))"
            )

    @staticmethod
    def check_k(k: int) -> None:
        """Refuse to name fewer classes than one. InputError: with the reason."""
        if not isinstance(k, int) or k < 1:
            raise InputError(f"k = {k!r}: must be a whole number, at least 1")

    def most_probable(self, logits: np.ndarray, k: int) -> list[list[Prediction]]:
        """Return the `k` most probable classes of each image, given the logits (B, classes)."""
        probabilities = logits.astype(np.float64)
        if self.preprocess is not None and self.preprocess.several_labels:
            probabilities = 1.0 / (1.0 + np.exp(-probabilities))
        elif self.config.head_activation != "softmax":
            exponentials = np.exp(probabilities - probabilities.max(axis=1, keepdims=True))
            probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
        return rank_classes(probabilities, self.class_names, k)

    def logits(self, images: Picture | Iterable[Picture]) -> np.ndarray:
        """Compute the logits of each image; a model without a head gives its pooled features.

        Args:
            images: as `predict` takes them; at least one.

        Returns:
            (B, classes), float32, or float64 of a float64 model.

        Raises:
            InputError, MissingFileError: see `predict`.
        """
        waiting = iter(_each(images))
        batches = []
        while batch := list(islice(waiting, BATCH)):
            batches.append(self.of_batch(self.prepare(batch)))
        if not batches:
            raise InputError(NO_IMAGES)
        return np.concatenate(batches)

    def prepare(self, images: Picture | Iterable[Picture]) -> np.ndarray | Patches:
        """Bring images to the model's size and channels, and normalise them, as the file says.

        Args:
            images: as `predict` takes them; at least one.

        Returns:
            (B, H, W, C) float32, as `of_batch` and the JAX model take them; or patches, where the
            preprocessing has `max_patches`, padded to that length.

        Raises:
            InputError, MissingFileError: see `predict`.
        """
        return self.batched([self.fitted(image) for image in _each(images)])

    def fitted(self, image: Picture) -> np.ndarray:
        """Bring one image to the model's size and channels: (H, W, C) uint8.

        Raises:
            InputError, MissingFileError: see `predict`.
        """
        return prepare(image, self.config.image_size, self._stated, self.config.patch_size)

    def batched(self, images: Sequence[np.ndarray]) -> np.ndarray | Patches:
        """Normalise images that are `fitted`, and make them one batch, as `prepare` does.

        Raises:
            InputError: there is no image, or preprocessing is unknown.
        """
        if not images:
            raise InputError(NO_IMAGES)
        stated = self._stated
        if stated.max_patches is None:
            return stated.normalise(np.stack(images))
        for image in images:
            check_grid(self.config, *self.config.grid_of(*image.shape[:2]), "within max_patches it")
        parts = [stated.normalise(image) for image in images]
        return collate(parts, self.config.patch_size, stated.max_patches)

    @property
    def _stated(self) -> Preprocess:
        """The preprocessing. InputError: it is unknown."""
        if self.preprocess is None:
            raise InputError(
                "how images are prepared for this model is unknown; state it with"
                " load(..., preprocess=Preprocess(mean=..., std=..., ...))"
            )
        return self.preprocess

    def of_batch(self, images: np.ndarray | Patches) -> np.ndarray:
        """Compute the logits of images that are prepared already.

        Args:
            images: (B, H, W, C) float32, normalised, or patches.

        Returns:
            (B, classes), float32, or float64 of a float64 model.
        """
        return self.seen_in_batch(images)[0]

    def seen_in_batch(self, images: np.ndarray | Patches) -> tuple[np.ndarray, np.ndarray]:
        """Compute the logits, as `of_batch` does, and the features (B, D) that the head sees."""
        return self._run_of(self.config)(images)

    @cached_property
    def _run_of(self) -> Callable[[ViTConfig], Run]:
        """The function that returns a schema's `Run`, made once as long as the schema stays the same."""
        make = {"jax": _run_jax, "torch": _run_torch}[self.framework]
        return lru_cache(1)(lambda cfg: make(self.model))


def rank_classes(
    probabilities: np.ndarray, names: Sequence[str] | None, k: int
) -> list[list[Prediction]]:
    """Return the `k` most probable classes of each image, given probabilities (B, classes)."""
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
    return [
        [Prediction(names[int(i)] if names else int(i), float(row[i])) for i in chosen]
        for row, chosen in zip(probabilities, best, strict=True)
    ]


def _each(images: Picture | Iterable[Picture]) -> Iterator[Picture]:
    """Yield each image of one or many."""
    one = isinstance(images, str | Path) or hasattr(images, "convert")  # PIL's images have `convert`
    if one or (isinstance(images, np.ndarray) and images.ndim < 4):
        yield images  # type: ignore[misc]
    else:
        try:
            yield from images  # type: ignore[misc]
        except TypeError:
            raise InputError(
                f"images are a {type(images).__name__}; give paths, PIL images or uint8 arrays"
            ) from None


def _run_jax(model: Any) -> Run:
    import jax

    from vit_jax.functional import get_params, make_apply

    apply = make_apply(model.cfg)
    compiled = jax.jit(lambda params, images: apply(params, images, return_tokens=False)[:2])

    def run(images: np.ndarray | Patches) -> tuple[np.ndarray, np.ndarray]:
        params = get_params(model)
        dtype = next(iter(params.values())).dtype
        with jax.enable_x64(dtype == np.float64):
            if isinstance(images, Patches):
                places = map(jax.numpy.asarray, images[1:])
                batch = Patches(jax.numpy.asarray(images.pixels, dtype), *places)
            else:
                batch = jax.numpy.asarray(images, dtype)
            logits, pooled = compiled(params, batch)
        wide = np.float64 if dtype == np.float64 else np.float32
        return np.asarray(logits).astype(wide), np.asarray(pooled).astype(wide)

    return run


def _run_torch(model: Any) -> Run:
    import torch

    def run(images: np.ndarray | Patches) -> tuple[np.ndarray, np.ndarray]:
        parameter = next(model.parameters())

        def moved(array: np.ndarray, dtype: torch.dtype | None = None) -> torch.Tensor:
            return torch.from_numpy(array.copy()).to(parameter.device, dtype)

        if isinstance(images, Patches):
            places = map(moved, images[1:])
            batch = Patches(moved(images.pixels, parameter.dtype), *places)
        else:
            batch = moved(images.transpose(0, 3, 1, 2), parameter.dtype)
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                logits, pooled, *_ = model(batch, return_tokens=False)
        finally:
            model.train(training)
        wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
        return logits.to(wide).cpu().numpy(), pooled.to(wide).cpu().numpy()

    return run
