"""Metrics of a classifier on labelled images: accuracy, classes, confusion, calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BINS = 15
"""Bins of confidence in the calibration error, of equal width, as in Guo et al. (arXiv 1706.04599)."""


@dataclass(frozen=True)
class Evaluation:
    """Predictions for N images and their labels, of K classes."""

    probabilities: np.ndarray
    """(N, K) float64."""
    labels: np.ndarray
    """(N,) integers."""

    @classmethod
    def of_logits(cls, logits: np.ndarray, labels: np.ndarray, *, softmax: bool = True) -> Evaluation:
        """Build from logits (N, K), or from probabilities if the model's head returns those."""
        scores = logits.astype(np.float64)
        if softmax:
            exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores = exponentials / exponentials.sum(axis=1, keepdims=True)
        return cls(scores, labels)

    @property
    def predicted(self) -> np.ndarray:
        """(N,): the most probable class; the first of equal ones."""
        return self.probabilities.argmax(axis=1)

    @property
    def accuracy(self) -> float:
        """Share of images whose most probable class is the right one."""
        return float((self.predicted == self.labels).mean())

    def top(self, k: int) -> float:
        """Return the share of images whose class is among the k most probable."""
        best = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :k]
        return float((best == self.labels[:, None]).any(axis=1).mean())

    @property
    def loss(self) -> float:
        """Mean cross entropy, in nats."""
        own = self.probabilities[np.arange(len(self.labels)), self.labels]
        return float(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean())

    @property
    def confusion(self) -> np.ndarray:
        """(K, K): number of images of each class (row) that were taken for each class (column)."""
        classes = self.probabilities.shape[1]
        cells = self.labels.astype(np.int64) * classes + self.predicted
        return np.bincount(cells, minlength=classes**2).reshape(classes, classes)

    @property
    def recall(self) -> np.ndarray:
        """(K,): share of each class's images that were recognised; nan for a class without images."""
        return _shares(self.confusion.diagonal(), self.confusion.sum(axis=1))

    @property
    def precision(self) -> np.ndarray:
        """(K,): share of the images taken for each class that belong to it; 0 if there are none."""
        return _shares(self.confusion.diagonal(), self.confusion.sum(axis=0), none=0.0)

    @property
    def never(self) -> np.ndarray:
        """Classes, by number, that no image was taken for, though some are of them."""
        return np.flatnonzero((self.confusion.sum(axis=0) == 0) & (self.confusion.sum(axis=1) > 0))

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: the mean over images of the gap between accuracy and mean
        confidence in their bin of confidence."""
        confidence = self.probabilities.max(axis=1)
        bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
        right = self.predicted == self.labels
        gaps = [
            abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).sum()
            for b in np.unique(bins)
        ]
        return float(sum(gaps) / len(self.labels))

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics as JSON values; a metric that is undefined for a class is null."""
        values = {name: getattr(self, name) for name in ("recall", "precision")}
        per_class = {name: [None if np.isnan(x) else float(x) for x in v] for name, v in values.items()}
        return {
            "images": len(self.labels),
            "accuracy": self.accuracy,
            "top5": self.top(5),
            "loss": self.loss,
            "calibration_error": self.calibration_error,
            **per_class,
            "confusion": self.confusion.tolist(),
        }


@dataclass(frozen=True)
class SeveralEvaluation:
    """Predictions for N images that may have any number of K classes."""

    probabilities: np.ndarray
    """(N, K) float64, of each class by itself."""
    labels: np.ndarray
    """(N, K), 1 for each class of an image."""

    @classmethod
    def of_logits(cls, logits: np.ndarray, labels: np.ndarray) -> SeveralEvaluation:
        """Build from logits (N, K)."""
        return cls(1.0 / (1.0 + np.exp(-logits.astype(np.float64))), labels.astype(int))

    @property
    def predicted(self) -> np.ndarray:
        """(N, K): whether each class is more probable than not."""
        return self.probabilities > 0.5

    @property
    def accuracy(self) -> float:
        """Share of images for which every class is predicted correctly."""
        return float((self.predicted == self.labels).all(axis=1).mean())

    @property
    def loss(self) -> float:
        """Mean binary cross entropy, in nats."""
        right = np.where(self.labels == 1, self.probabilities, 1 - self.probabilities)
        return float(-np.log(np.maximum(right, np.finfo(np.float64).tiny)).mean())

    @property
    def average_precision(self) -> np.ndarray:
        """(K,): average precision of each class; nan for a class without images."""
        from sklearn.metrics import average_precision_score

        pairs = zip(self.labels.T, self.probabilities.T, strict=True)
        return np.array([average_precision_score(*pair) if pair[0].any() else np.nan for pair in pairs])

    @property
    def recall(self) -> np.ndarray:
        """(K,): share of each class's images that were recognised; nan for a class without images."""
        return _shares((self.predicted & (self.labels == 1)).sum(axis=0), self.labels.sum(axis=0))

    @property
    def precision(self) -> np.ndarray:
        """(K,): share of the images taken for each class that have it; 0 if there are none."""
        right = (self.predicted & (self.labels == 1)).sum(axis=0)
        return _shares(right, self.predicted.sum(axis=0), none=0.0)

    @property
    def never(self) -> np.ndarray:
        """Classes, by number, that no image was taken for, though some have them."""
        return np.flatnonzero(~self.predicted.any(axis=0) & (self.labels == 1).any(axis=0))

    @property
    def f1(self) -> float:
        """F1 score over all labels of all images (micro average)."""
        true_positives = (self.predicted & (self.labels == 1)).sum()
        return float(2 * true_positives / max(self.predicted.sum() + self.labels.sum(), 1))

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics as JSON values; a metric that is undefined for a class is null."""
        names = ("average_precision", "recall", "precision")
        values = {name: getattr(self, name) for name in names}
        per_class = {name: [None if np.isnan(x) else float(x) for x in v] for name, v in values.items()}
        mean = float(np.nanmean(values["average_precision"]))
        scores = {"accuracy": self.accuracy, "mean_average_precision": mean, "f1": self.f1}
        return {"images": len(self.labels), **scores, "loss": self.loss, **per_class}


def _shares(part: np.ndarray, whole: np.ndarray, none: float = np.nan) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(whole), none), where=whole > 0)
