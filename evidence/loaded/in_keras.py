"""Models of Keras and KerasHub, whose files call every weight by a number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from evidence.loaded.case import Case, Situation


def cases() -> Iterator[Case]:
    """Yield the cases; those of KerasHub, and of Keras, only where they are installed."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    try:
        import keras  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        return
    models = {"keras": _functional}
    try:
        import keras_hub  # noqa: F401 # pyright: ignore[reportMissingImports]

        models["keras-hub"] = _vit
    except ModuleNotFoundError:
        pass
    for library, make in models.items():
        for saved in (".weights.h5", ".keras"):
            yield Case(library, f"{saved}, drawn", True, _case(make, saved, _nothing))
            yield Case(library, f"{saved}, untrained", True, _case(make, saved, _nothing, drawn=False))
        for name, lose in MISTAKES.items():
            yield Case(library, name, False, _case(make, ".weights.h5", lose))


def _functional() -> Any:
    import keras  # pyright: ignore[reportMissingImports]

    layers = keras.layers
    x = given = keras.Input((12, 8, 3))
    for width in (6, 8, 10):
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = layers.BatchNormalization()(x)
    x = layers.Dense(10, name="query")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(given, layers.Dense(7, name="head")(x))


def _vit() -> Any:
    from keras_hub.models import (  # pyright: ignore[reportMissingImports]
        ViTBackbone,
        ViTImageClassifier,
    )

    backbone = ViTBackbone(image_shape=(12, 8, 3), patch_size=(4, 4), num_layers=3, num_heads=5,
                           hidden_dim=20, mlp_dim=24)  # fmt: skip
    return ViTImageClassifier(backbone, num_classes=3)


def _draw(model: Any, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if "float" in str(weight.dtype):
            gain = weight.path.endswith(("gamma", "variance"))
            values = rng.normal(1 if gain else 0, 0.2, weight.shape)
            weight.assign(np.abs(values) if gain else values)


def _nothing(model: Any, fresh: Any) -> None:
    return


def _lose(*words: str) -> Callable[[Any, Any], None]:
    """Put back what a model had when it was built, where one of these words is in the name."""

    def lose(model: Any, fresh: Any) -> None:
        chosen = [n for n, each in enumerate(model.weights) if any(word in each.path for word in words)]
        assert chosen, words
        for number in chosen:
            model.weights[number].assign(fresh.weights[number].numpy())

    return lose


def _round(model: Any, fresh: Any) -> None:
    for weight in model.weights:
        if "float" in str(weight.dtype):
            weight.assign(np.asarray(weight.numpy()).astype(np.float16).astype(np.float32))


def _last(model: Any, fresh: Any) -> None:
    model.weights[-1].assign(fresh.weights[-1].numpy() + 0.5)


def _middle(model: Any, fresh: Any) -> None:
    """One layer in the middle stays as it was built, by its place in the list of weights."""
    half = len(model.weights) // 2
    biggest = max(range(half, half + 6), key=lambda n: np.prod(model.weights[n].shape))
    model.weights[biggest].assign(fresh.weights[biggest].numpy())


MISTAKES: dict[str, Callable[[Any, Any], None]] = {
    "nothing loaded": _lose(""),
    "a layer not loaded": _middle,
    "the norms not loaded": _lose("normalization", "layer_norm", "ln_"),
    "the last bias": _last,
    "rounded to float16": _round,
}


def _case(
    make: Callable[[], Any], saved: str, lose: Callable[[Any, Any], None], drawn: bool = True
) -> Callable[[Path], Situation]:
    def build(folder: Path) -> Situation:
        import keras  # pyright: ignore[reportMissingImports]

        keras.utils.set_random_seed(0)
        keras.backend.clear_session()
        model, fresh = make(), make()
        if drawn:
            _draw(model)
        path = folder / f"model{saved}"
        (model.save_weights if saved == ".weights.h5" else model.save)(str(path))
        lose(model, fresh)
        return Situation(model, path)

    return build
