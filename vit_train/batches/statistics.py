"""Mean and deviation of the channels of a data set's training images."""

from __future__ import annotations

import numpy as np

from vit_config.images.preprocess import WHITE
from vit_config.waiting import Waiting
from vit_train.data.dataset import ImageDataset
from vit_train.data.records import Records
from vit_train.sources.index_cache import recall_index

STATISTICS_IMAGES = 10_000


def statistics_of(dataset: ImageDataset) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of the training images, computed when they are first asked for, and
    remembered as long as the set stays the same."""
    train = dataset.train
    if not dataset.fingerprint:
        return channel_statistics(train)
    held_out = getattr(train.raw, "indices", ())
    about = f"statistics 1 {dataset.fingerprint} {train.image_shape} {len(train)} {held_out}"
    index = recall_index(
        about,
        (),
        lambda: {"values": np.array(channel_statistics(train))},
        lasts=lambda _: not train.damaged,
    )
    mean, std = index["values"].tolist()
    return tuple(mean), tuple(std)


def channel_statistics(source: Records) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Compute mean and standard deviation of each channel, on pixels scaled to [0, 1] by their type.

    They are those of all pixels of the split, or of 10 000 images spread evenly if it has more;
    images of several sizes count by their pixels. Sums of integers are exact; those of float32 are in
    float64, of the distance from the first image's mean.

    Returns:
        (mean, std), each of C floats.
    """
    channels, white = source.image_shape[2], WHITE[source.pixel_type]
    floats = source.pixel_type == "float32"
    count, total, squares, middle = 0, [0] * channels, [0] * channels, None
    sampled = min(len(source), STATISTICS_IMAGES)
    what = f"{source.where}: mean and deviation of {sampled:,} images are computed"
    chosen = np.linspace(0, len(source) - 1, sampled).astype(int).tolist()
    with Waiting(what, sampled) as waiting:
        for index in waiting.over(chosen, sampled):
            pixels = source[index]["image"].reshape(-1, channels)  # (H W, C)
            pixels = pixels.astype(np.float64 if floats else np.uint64)
            if floats:
                middle = pixels.mean(axis=0) if middle is None else middle
                pixels = pixels - middle
            count += len(pixels)
            # Python's integers: uint64 would overflow over many images of 16 bits
            sums, of_squares = pixels.sum(axis=0).tolist(), (pixels * pixels).sum(axis=0).tolist()
            total = [t + p for t, p in zip(total, sums, strict=True)]
            squares = [s + p for s, p in zip(squares, of_squares, strict=True)]
    mean = [t / count for t in total]
    # an integer difference: E[x^2] - E[x]^2 in floats loses the digits of a dark, even channel
    variance = [(count * s - t**2) / count**2 for s, t in zip(squares, total, strict=True)]
    if middle is not None:
        mean = [m + far for m, far in zip(mean, middle.tolist(), strict=True)]
        variance = [max(v, 0.0) for v in variance]
    return tuple(m / white for m in mean), tuple(v**0.5 / white for v in variance)
