"""Record what TensorFlow and Big Vision make of an image, for tests that have neither.

``python tools/record_tensorflow.py BIG_VISION OUT.npz`` with the folder of a checkout of
github.com/google-research/big_vision, in an environment with TensorFlow and numpy (2.21
recorded tests/vit_train/recorded/tensorflow_images.npz). TensorFlow Addons is no longer published; the
one function that is used of it is TensorFlow's own ImageProjectiveTransformV3.
"""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf  # pyright: ignore

OPERATIONS = (
    "AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "Color", "Contrast",
    "Brightness", "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY", "Cutout", "SolarizeAdd",
)  # fmt: skip
MAGNITUDES = (10, 7)
SIZES = ((16, 27), (9, 7), (38, 23))
BOXES = 60
IMAGE_SIZES = ((375, 500), (31, 97), (97, 31), (8, 5))
RANGES = (((0.05, 1.0), (0.75, 1.33)), ((0.05, 1.0), (3 / 4, 4 / 3)), ((0.8, 0.9), (2.0, 3.0)))


def main(big_vision: str, out: str) -> None:
    """Write the images after each operation, the resized images and the boxes."""
    image = _image()
    arrays: dict[str, Any] = {"image": image}
    augment = _autoaugment(Path(big_vision) / "big_vision" / "pp" / "autoaugment.py")
    for name in OPERATIONS:
        for magnitude in MAGNITUDES:
            for sign in (1, -1):
                arrays[f"{name}.{magnitude}.{sign}"] = _changed(augment, name, magnitude, sign, image)
    for size in SIZES:
        for method in ("bilinear", "area"):
            resized = tf.image.resize(image, size, method=method, antialias=False)
            key = f"{method}.{size[0]}x{size[1]}"
            arrays[key] = tf.cast(tf.clip_by_value(resized, 0, 255), tf.uint8).numpy()
    for number, (area, ratio) in enumerate(RANGES):
        for height, width in IMAGE_SIZES:
            arrays[f"boxes.{number}.{height}x{width}"] = np.array(
                [_box((height, width), area, ratio, seed) for seed in range(BOXES)], np.int16
            )
    np.savez_compressed(out, **arrays)


def _image() -> np.ndarray:
    """Waves with edges: (19, 23, 3) uint8."""
    y, x = np.mgrid[:19, :23]
    planes = [127 + 120 * np.sin(x / a + y / b) * np.cos(y / a) for a, b in ((5, 9), (7, 4), (3, 11))]
    image = np.stack(planes, axis=-1).astype(np.uint8)
    image[5:8, 9:] = np.random.default_rng(0).integers(0, 256, (3, 14, 3))
    return image


def _autoaugment(path: Path) -> Any:
    addons, images = types.ModuleType("tensorflow_addons"), types.ModuleType("tensorflow_addons.image")
    images.__dict__.update(transform=_transform, rotate=_rotate, translate=_translate)
    addons.__dict__["image"] = images
    sys.modules.update({"tensorflow_addons": addons, "tensorflow_addons.image": images})
    module = types.ModuleType("autoaugment")
    sys.modules["autoaugment"] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def _changed(augment: Any, name: str, magnitude: int, sign: int, image: np.ndarray) -> np.ndarray:
    """An operation in a graph, as tf.data runs it; a hole's centre is a third along each side."""
    augment._randomly_negate_tensor = lambda level: level * sign
    drawn = augment.tf.random_uniform
    augment.tf.random_uniform = lambda shape, minval, maxval, dtype: maxval // 3

    def change(pixels: Any) -> Any:
        sizes = augment.HParams(cutout_const=40, translate_const=100)
        operation, _, args = augment._parse_policy_info(name, 0.5, float(magnitude), [128] * 3, sizes)
        return operation(pixels, *args)

    try:
        return tf.function(change, autograph=False)(tf.constant(image)).numpy()
    finally:
        augment.tf.random_uniform = drawn


def _transform(image: Any, matrix: Any) -> Any:
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None], transforms=tf.reshape(tf.cast(matrix, tf.float32), [1, 8]),
        output_shape=tf.shape(image)[:2], interpolation="NEAREST", fill_mode="CONSTANT", fill_value=0.0,
    )[0]  # fmt: skip


def _rotate(image: Any, angle: Any) -> Any:
    """The matrix of TensorFlow Addons' ``angles_to_projective_transforms``."""
    angle = tf.cast(angle, tf.float32)
    cos, sin = tf.cos(angle), tf.sin(angle)
    bottom, right = (tf.cast(tf.shape(image)[axis], tf.float32) - 1 for axis in (0, 1))
    x = (right - (cos * right - sin * bottom)) / 2.0
    y = (bottom - (sin * right + cos * bottom)) / 2.0
    return _transform(image, [cos, -sin, x, sin, cos, y, 0.0, 0.0])


def _translate(image: Any, by: Any) -> Any:
    return _transform(image, [1.0, 0.0, -by[0], 0.0, 1.0, -by[1], 0.0, 0.0])


def _box(size: Any, area: Any, ratio: Any, seed: int) -> list[int]:
    """Seeds differ between sizes: a kernel of the same seeds would go on where it stopped."""
    begin, extent, _ = tf.raw_ops.SampleDistortedBoundingBoxV2(
        image_size=[*size, 3], bounding_boxes=tf.zeros([0, 0, 4]), min_object_covered=0.0,
        seed=seed + 1000 * size[0], seed2=7, aspect_ratio_range=ratio, area_range=area, max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )  # fmt: skip
    return [*begin.numpy()[:2].tolist(), *extent.numpy()[:2].tolist()]


if __name__ == "__main__":
    main(*sys.argv[1:])
