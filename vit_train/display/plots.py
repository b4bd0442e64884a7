"""Figures of a training run and of a trained model, by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vit_config.files.weights_file import write_atomically

COLOURS = {"train": "#4477aa", "validation": "#ee7733", "test": "#aa3377"}
MAX_BLOCKS = 12
"""Most blocks drawn of a model, evenly spread, the first and the last among them."""
DPI = 130
GAP = 0.04
"""Empty border of each small map, as a share of its side."""


NAMED = 30
"""Most classes whose names a confusion matrix shows."""


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all; this needs no screen."""
    content = io.BytesIO()
    FigureCanvasAgg(figure).print_png(content)
    write_atomically(path, content.getvalue())


def curves(events: Sequence[dict[str, Any]]) -> Figure:
    """Plot loss, accuracy and learning rate of a run over its epochs.

    Args:
        events: events from `vit_train.folder.log.read_log`, at least one of kind ``train``.
    """
    figure = Figure(figsize=(12, 4), dpi=DPI, layout="constrained")
    loss, accuracy, rate = figure.subplots(1, 3, width_ratios=(3, 3, 2))
    train = [event for event in events if event["kind"] == "train"]
    epochs_per_step = train[-1]["epoch"] / train[-1]["step"]
    for axes, field in ((loss, "loss"), (accuracy, "accuracy")):
        for kind, colour in COLOURS.items():
            points = [event for event in events if event["kind"] == kind]
            x = [event["step"] * epochs_per_step for event in points]
            y = [event[field] for event in points]
            if len(points) > 1:
                axes.plot(x, y, color=colour, label=kind, linewidth=1.4)
            elif points:
                axes.plot(x, y, "*", color=colour, label=f"{kind}: {y[0]:.4f}", markersize=11)
        axes.set_title(field)
        axes.legend(frameon=False)
    accuracy.set_ylim(0, 1.02)
    loss.set_ylim(bottom=0)
    rate.plot([e["epoch"] for e in train], [e["learning_rate"] for e in train], color="#555555")
    rate.set_title("learning rate")
    rate.set_ylim(bottom=0)
    for axes in (loss, accuracy, rate):
        axes.set_xlabel("epoch")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def confusion(counts: np.ndarray, names: Sequence[str]) -> Figure:
    """Plot a confusion matrix, as shares of each class, with its numbers of images.

    Args:
        counts: (K, K), true classes in rows and predicted ones in columns.
        names: names of the K classes.
    """
    figure = Figure(figsize=(6, 5), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    figure.colorbar(
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1), ax=axes, label="share of the class"
    )
    if len(names) <= NAMED:
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        for row, column in zip(*np.nonzero(counts), strict=True):
            colour = "white" if shares[row, column] > 0.5 else "black"
            size = min(10, 150 / len(names))
            count = str(counts[row, column])
            axes.text(column, row, count, ha="center", va="center", color=colour, size=size)
    axes.set_title(f"{counts.trace():,} of {counts.sum():,} images are right", fontsize=10)
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    return figure


def position_tables(tables: dict[str, np.ndarray]) -> Figure:
    """Plot position tables as heat maps, one below the other.

    Args:
        tables: (rows, D) each, by title.
    """
    figure = Figure(figsize=(10, 3.6 * len(tables)), dpi=DPI, layout="constrained")
    panels = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
    for axes, (title, table) in zip(panels, tables.items(), strict=True):
        limit = float(np.abs(table).max()) or 1.0
        drawn = axes.imshow(
            table, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest"
        )
        axes.set_title(title)
        axes.set_xlabel("dimension")
        axes.set_ylabel("token")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(drawn, ax=axes, pad=0.01)
    return figure


def position_similarity(table: np.ndarray, grid: tuple[int, int], patch_size: tuple[int, int]) -> Figure:
    """Plot the cosine similarity of each patch's position with every other (arXiv 2010.11929, figure 7).

    Args:
        table: (N, D), the rows of the patches alone.
        grid: (rows, columns) of patches; N is their product.
        patch_size: (height, width), for the proportions.
    """
    rows, columns = grid
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    unit = table / np.where(lengths == 0, 1.0, lengths)
    similarity = (unit @ unit.T).reshape(rows, columns, rows, columns)
    proportion = rows * patch_size[0] / (columns * patch_size[1])  # of the image, and of each map
    wide, high = columns, rows * proportion
    inches = 8.0 / max(wide, high)
    figure = Figure(
        figsize=(max(wide * inches, 2.5) + 1.6, max(high * inches, 2.0) + 1.2),
        dpi=DPI,
        layout="constrained",
    )
    axes: Axes = figure.subplots()
    drawn: Any = None
    for row in range(rows):
        for column in range(columns):
            drawn = axes.imshow(
                similarity[row, column],
                vmin=similarity.min(),
                vmax=1,
                cmap="viridis",
                extent=(column + GAP, column + 1 - GAP, row + 1 - GAP, row + GAP),
            )
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect=proportion)
    axes.set_xticks(np.arange(columns) + 0.5, [str(i) for i in range(columns)])
    axes.set_yticks(np.arange(rows) + 0.5, [str(i) for i in range(rows)])
    axes.set(xlabel="patch column", ylabel="patch row")
    axes.set_title("cosine similarity of positions, one small map per patch", fontsize=10)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(drawn, ax=axes, fraction=0.04, pad=0.02)
    return figure


def attention_maps(
    images: np.ndarray,
    attention: Sequence[np.ndarray],
    *,
    prefix: int,
    grid: tuple[int, int],
    by_class_token: bool,
    titles: Sequence[str],
) -> Figure:
    """Plot each block's attention, the mean over its heads: one row per image, one column per block.

    Args:
        images: (B, H, W, C) uint8.
        attention: (B, h, P + N, P + N) of each block.
        prefix: tokens P before the patches.
        grid: (rows, columns) of patches.
        by_class_token: draw the class token's row; else the mean over all queries.
        titles: one per image.
    """
    depth = len(attention)
    blocks = np.unique(np.linspace(0, depth - 1, min(depth, MAX_BLOCKS)).round().astype(int))
    height, width = images.shape[1:3]
    cell_h = 1.5 * min(max(height / width, 0.4), 2.5)
    figure = Figure(
        figsize=(1.5 * (len(blocks) + 1) + 0.4, cell_h * len(images) + 0.9),
        dpi=DPI,
        layout="constrained",
    )
    panels = figure.subplots(len(images), len(blocks) + 1, squeeze=False)
    for row, (image, title) in enumerate(zip(images, titles, strict=True)):
        grey = image.shape[2] != 3
        axes = panels[row, 0]
        axes.imshow(image[..., 0] if grey else image, cmap="gray" if grey else None)
        axes.set_ylabel(title, rotation=0, ha="right", va="center")
        for column, block in enumerate(blocks, start=1):
            weights = attention[block][row].mean(axis=0)  # (P + N, P + N)
            looks = weights[0] if by_class_token else weights.mean(axis=0)
            axes = panels[row, column]
            axes.imshow(looks[prefix:].reshape(grid), cmap="magma", vmin=0, extent=(0, width, height, 0))
            if row == 0:
                axes.set_title(f"block {block}", fontsize=9)
    for axes in panels.flat:
        _bare(axes)
    who = "of the class token" if by_class_token else "averaged over all tokens"
    figure.suptitle(f"attention {who}, mean over heads, brightest = most", fontsize=10)
    return figure


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
