"""Images a second and core: our loader beside torchvision's, timm's and a plain loop, on the same files.

    python -m evidence.measurements.loader [IMAGES [ROUNDS]]

JPEGs of 500x375 (smooth colours under noise, quality 90) from a folder, decoded, cropped at random as
`RandomResizedCrop`, resized to 224 bilinearly and flipped at random; normalised float32 batches of 32
come out. Everything runs in this one thread and is measured by its processor time; rounds are
interleaved and the best of each is taken. "draft" is the plain loop with PIL's `Image.draft`, which lets
libjpeg decode at half the size where the crop allows it: other pixels. Then photographs of 2000x1500,
whole and with `decode_side`, and a set of 341x256. With `device_side` the devices crop and flip what
comes out, squares of 8 bits; that is not in these times. "decoding alone" is simplejpeg and nothing
else: the bound of them all.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import simplejpeg
import torch
from PIL import Image

from evidence import positional
from parity.porting.reading.libraries.peers import import_timm
from vit_config import Augment, Preprocess, Recipe
from vit_config.images import jpeg
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD
from vit_train.batches.data import open_dataset, train_batches

timm = import_timm()
import torchvision  # noqa: E402
from timm.data import create_dataset, create_loader  # noqa: E402
from torchvision import transforms  # noqa: E402

BATCH, SIDE = 32, 224
AUGMENT = Augment(crop="torchvision", crop_filter="bilinear", flip=True)
Run = Callable[[], Iterator[object]]


def write(folder: Path, count: int, size: tuple[int, int] = (375, 500)) -> None:
    """A folder of JPEGs of two classes, each of smooth and fine structure."""
    height, width = size
    rng = np.random.default_rng(0)
    for index in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((width, height), 3)
        fine = rng.normal(0, 12, (height, width, 1))
        pixels = np.clip(np.asarray(coarse) + fine, 0, 255).astype(np.uint8)
        place = folder / "train" / "ab"[index % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{index:05}.jpg", quality=90)
    for name in "ab":
        (folder / "val" / name).mkdir(parents=True)
        Image.fromarray(pixels).save(folder / "val" / name / "0.jpg")


def ours(
    folder: Path,
    augment: Augment = AUGMENT,
    decoder: Any = jpeg.simplejpeg,
    device_side: int | None = None,
) -> Run:
    dataset = open_dataset(f"folder:{folder}", folder)
    recipe = Recipe(epochs=1, batch_size=BATCH, augment=augment, device_side=device_side)
    preprocess = Preprocess(mean=IMAGENET_MEAN, std=IMAGENET_STD)
    size = (SIDE, SIDE)

    def run() -> Iterator[object]:
        with mock.patch.object(jpeg, "simplejpeg", decoder):
            yield from train_batches(dataset, recipe, preprocess, image_size=size, num_threads=0)

    return run


def crop_and_flip() -> list[object]:
    return [transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip()]


def of_torchvision(folder: Path) -> Run:
    normalise = transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)
    steps = transforms.Compose([*crop_and_flip(), transforms.ToTensor(), normalise])
    dataset = torchvision.datasets.ImageFolder(str(folder / "train"), steps)
    return lambda: iter(torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, drop_last=True))


def of_timm(folder: Path) -> Run:
    dataset: Any = create_dataset("", str(folder / "train"))
    loader = create_loader(
        dataset,
        (3, SIDE, SIDE),
        BATCH,
        is_training=True,
        num_workers=0,
        use_prefetcher=False,
        interpolation="bilinear",
        color_jitter=0.0,
        device=torch.device("cpu"),
        persistent_workers=False,
    )
    return lambda: iter(loader)


def plain(folder: Path, draft: bool) -> Run:
    files = sorted((folder / "train").rglob("*.jpg"))
    mean, std = np.array(IMAGENET_MEAN, np.float32) * 255, np.array(IMAGENET_STD, np.float32) * 255
    rng = np.random.default_rng(0)

    def one(path: Path) -> np.ndarray:
        image = Image.open(io.BytesIO(path.read_bytes()))
        width, height = image.size
        probe = torch.empty(3, height, width, device="meta")
        top, left, tall, wide = transforms.RandomResizedCrop.get_params(
            probe, [0.08, 1.0], [3 / 4, 4 / 3]
        )
        if draft:
            image.draft("RGB", (width * SIDE // wide, height * SIDE // tall))
        share_x, share_y = image.width / width, image.height / height
        box = (left * share_x, top * share_y, (left + wide) * share_x, (top + tall) * share_y)
        made = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)
        return np.asarray(made)[:, :: -1 if rng.random() < 0.5 else 1]

    def run() -> Iterator[object]:
        for start in range(0, len(files) // BATCH * BATCH, BATCH):
            batch = np.stack([one(path) for path in files[start : start + BATCH]])
            yield (batch - mean) / std

    return run


def decoding(folder: Path) -> Run:
    """What no loader that decodes whole files by libjpeg-turbo can pass."""
    files = sorted((folder / "train").rglob("*.jpg"))

    def run() -> Iterator[object]:
        for start in range(0, len(files) // BATCH * BATCH, BATCH):
            yield [
                simplejpeg.decode_jpeg(path.read_bytes(), "RGB") for path in files[start : start + BATCH]
            ]

    return run


def main(count: int, rounds: int) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, count)
        size = sum(path.stat().st_size for path in folder.rglob("*.jpg")) / (count + 2)
        loaders = {
            "decoding alone": decoding(folder),
            "vit_train": ours(folder),
            "vit_train, device_side = 512": ours(folder, device_side=512),
            "vit_train without simplejpeg": ours(folder, decoder=None),
            f"torchvision {torchvision.__version__}": of_torchvision(folder),
            f"timm {timm.__version__}": of_timm(folder),
            "a plain loop of PIL": plain(folder, draft=False),
            "a plain loop of PIL, draft": plain(folder, draft=True),
        }
        best = measured(loaders, rounds)
        print(f"{count} JPEGs of 500x375, {size / 1000:.0f} kB each; PIL {Image.__version__}")
        show(best)
        large = folder / "large"
        write(large, BATCH, (1500, 2000))
        reduced = AUGMENT.replace(decode_side=448)
        print(f"{BATCH} JPEGs of 2000x1500")
        small = folder / "small"
        write(small, count, (256, 341))
        kinds = {
            "vit_train": ours(large),
            "vit_train, decode_side = 448": ours(large, reduced),
            "the same, device_side = 512": ours(large, reduced, device_side=512),
        }
        show(measured(kinds, rounds))
        print(f"{count} JPEGs of 341x256")
        kinds = {
            "decoding alone": decoding(small),
            "vit_train": ours(small),
            "vit_train, device_side = 352": ours(small, device_side=352),
            f"timm {timm.__version__}": of_timm(small),
        }
        show(measured(kinds, rounds))


def measured(loaders: dict[str, Run], rounds: int) -> dict[str, float]:
    """The most images a second of processor time that each came to."""
    best = dict.fromkeys(loaders, 0.0)
    for _ in range(rounds):
        for label, run in loaders.items():
            since = time.process_time()
            batches = sum(1 for _ in run())
            best[label] = max(best[label], batches * BATCH / (time.process_time() - since))
    return best


def show(best: dict[str, float]) -> None:
    for label, rate in best.items():
        print(f"{label:28} {rate:7.0f} images/s a core")


if __name__ == "__main__":
    main(*positional(__doc__, images=256, rounds=3))
