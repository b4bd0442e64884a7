"""Patch embedding: a convolution whose stride is its size, or patches flattened for a linear layer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.linear import PRODUCTS
from parity.verifier.diagnose.catalogue.pixels import CHANNELS, affines
from parity.verifier.diagnose.catalogue.tensors import BIAS, sources, vector
from parity.verifier.diagnose.segment import Segment

_ORDERS = tuple(
    "".join(order) for order in permutations("cyx")
)  # cyx first: PyTorch's layout of kernels
_FITTED_ON = 20_000  # numbers


def computations(segment: Segment) -> Iterator[Computation]:
    """A patch embedding by the one kernel (O, C, h, w), or the flattened patches themselves."""
    images = [x for _, x in sources(segment) if x.ndim == 4]
    kernels = [w for w in segment.parameters.values() if w.ndim == 4]
    if not images:
        return
    if len(kernels) == 1 and kernels[0].shape[1] == images[0].shape[-1]:
        patches = _Patches(segment, images[0], kernels[0].shape[2:])
        if patches.fits(kernels[0].shape[0]):
            yield _embedding(segment, patches, kernels[0])
    elif not segment.parameters and segment.result.ndim == 3:
        yield from _flattened(segment, images[0])


class _Patches:
    """Images (B, H, W, C) cut into patches of one size."""

    def __init__(self, segment: Segment, images: np.ndarray, size: tuple[int, ...]) -> None:
        self.images, self.size, self.shape = images, size, segment.result.shape
        sides = images.shape[1:3]
        self.whole = all(side % part == 0 for side, part in zip(sides, size, strict=True))

    def fits(self, channels: int) -> bool:
        """Whether a result has one vector of so many channels per patch, partial ones counted or not."""
        counts = [
            int(
                np.prod(
                    [
                        -(-s // p) if up else s // p
                        for s, p in zip(self.images.shape[1:3], self.size, strict=True)
                    ]
                )
            )
            for up in (False, True)
        ]
        tokens = int(np.prod(self.shape[1:-1]))
        return self.shape[-1] == channels and tokens in counts

    def paddings(self) -> tuple[Option, ...]:
        """What happens to pixels beyond the last whole patch."""
        cropped = Option(
            "pixels beyond the last patch ignored", "crop", torch="padding=0", jax='padding="VALID"'
        )
        if self.whole:
            return (cropped,)
        return (
            cropped,
            Option("padded with zeros on both sides", "both", jax='padding="SAME"'),
            Option("padded with zeros at the end", "end"),
            Option("pixels before the first whole patch ignored", "late"),
        )

    def cut(self, padding: str, channels: int = 1) -> np.ndarray:
        """(B, gh, gw, h, w, C)."""
        x = self.images[..., ::channels]
        pads, starts = [(0, 0)], []
        for side, part in zip(x.shape[1:3], self.size, strict=True):
            missing = -side % part if padding in ("both", "end") else 0
            before = missing // 2 if padding == "both" else 0
            pads.append((before, missing - before))
            starts.append(side % part if padding == "late" else 0)
        x = np.pad(x[:, starts[0] :, starts[1] :], [*pads, (0, 0)])
        (h, w), (B, H, W, C) = self.size, x.shape
        x = x[:, : H // h * h, : W // w * w].reshape(B, H // h, h, W // w, w, C)
        return x.transpose(0, 1, 3, 2, 4, 5)

    def arranged(self, y: np.ndarray, order: str) -> np.ndarray | None:
        """(B, gh, gw, O) in the result's shape."""
        y = y if order == "rows" else y.swapaxes(1, 2)
        if y.size != np.prod(self.shape):
            return None
        return y.reshape(self.shape) if len(self.shape) == 3 or y.shape == self.shape else None


def _tokens() -> Aspect:
    options = (Option("patches row by row", "rows"), Option("patches column by column", "columns"))
    return Aspect("tokens", "patch-order", options)


def _embedding(segment: Segment, patches: _Patches, kernel: np.ndarray) -> Computation:
    O, C = kernel.shape[:2]  # noqa: E741
    bias = vector(segment, O, BIAS)
    added = (
        Option("bias added", 1, torch="nn.Conv2d(..., bias=True)", jax="nnx.Conv(..., use_bias=True)"),
        Option("bias not added", 0),
        Option("bias added twice", 2),
    )
    aspects = (
        PRODUCTS,
        Aspect("pixels", "input-normalisation", affines(C, _fitted(segment, patches, kernel, bias))),
        Aspect("channels", "channel-order", CHANNELS if C > 1 else CHANNELS[:1]),
        Aspect("kernel", "patch-value-order", tuple(_kernels(kernel))),
        Aspect("padding", "patch-padding", patches.paddings()),
        Aspect("bias", "patch-bias", added if bias is not None else added[1:2]),
        _tokens(),
    )

    def compute(v: Values) -> np.ndarray | None:
        factor, shift = v["pixels"]
        x = patches.cut(v["padding"], v["channels"]) * factor + shift
        y = v["product"](x.reshape(*x.shape[:3], -1)) @ v["product"](v["kernel"]).T
        return patches.arranged(y if bias is None else y + v["bias"] * bias, v["tokens"])

    return Computation("patch embedding", aspects, compute)


def _kernels(kernel: np.ndarray) -> Iterator[Option]:
    """The kernel as a matrix (O, h w C) for patches in the order y, x, c."""
    O, C, h, w = kernel.shape  # noqa: E741
    moved = kernel.transpose(0, 2, 3, 1)  # (O, h, w, C)
    yield Option("kernel as it is", moved.reshape(O, -1))
    yield Option("kernel upside down", moved[:, ::-1].reshape(O, -1))
    yield Option("kernel mirrored", moved[:, :, ::-1].reshape(O, -1))
    yield Option("kernel turned by 180 degrees", moved[:, ::-1, ::-1].reshape(O, -1))
    if h == w:
        yield Option("kernel with height and width swapped", moved.swapaxes(1, 2).reshape(O, -1))
    sizes = {"c": C, "y": h, "x": w}
    for order in _ORDERS[1:]:  # the same numbers, read as if their axes came in another order
        read = kernel.reshape(O, *(sizes[axis] for axis in order))
        matrix = read.transpose(0, *(1 + order.index(axis) for axis in "yxc")).reshape(O, -1)
        yield Option(f"kernel read as ({', '.join(order)}) in place of (c, y, x)", matrix)


def _fitted(
    segment: Segment, patches: _Patches, kernel: np.ndarray, bias: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """The factor and shift of each channel that explain the result best, by least squares."""
    O, C, h, w = kernel.shape  # noqa: E741
    if C > 4:
        return None
    x = patches.cut("crop").reshape(-1, h * w, C)
    result = segment.result.reshape(-1, O) - (0.0 if bias is None else bias)
    if len(x) != len(result):
        return None
    rows = max(1, min(len(x), _FITTED_ON // O))
    flat = kernel.reshape(O, C, -1)
    scaled = np.einsum("npc,ocp->noc", x[:rows], flat)  # (n, O, C)
    shifted = np.broadcast_to(flat.sum(-1), scaled.shape)
    columns = np.concatenate([scaled, shifted], -1).reshape(-1, 2 * C)
    if len(columns) < 4 * C:
        return None
    found = np.linalg.lstsq(columns, result[:rows].reshape(-1))[0]
    return found[:C], found[C:]


def _flattened(segment: Segment, images: np.ndarray) -> Iterator[Computation]:
    """Patches (B, N, h w C), flattened in some order."""
    _, N, width = segment.result.shape
    H, W, C = images.shape[1:]
    for h in range(1, H + 1):
        w = width // (h * C)
        if w and h * w * C == width and h <= H and w <= W and (H // h) * (W // w) == N:
            break
    else:
        return
    patches = _Patches(segment, images, (h, w))
    said = str(segment.fact("order"))
    orders = [
        Option(f"values in the order {', '.join(o)}", o)
        for o in sorted(_ORDERS, key=lambda o: _rank(o, said))
    ]
    aspects = (
        Aspect("values", "patch-value-order", tuple(orders)),
        Aspect("channels", "channel-order", CHANNELS),
        Aspect("padding", "patch-padding", patches.paddings()),
        _tokens(),
    )

    def compute(v: Values) -> np.ndarray | None:
        x = patches.cut(v["padding"], v["channels"])
        x = x.transpose(0, 1, 2, *(3 + "yxc".index(axis) for axis in v["values"]))
        return patches.arranged(x.reshape(*x.shape[:3], -1), v["tokens"])

    yield Computation("patches", aspects, compute)


def _rank(order: str, said: str) -> int:
    usual = {"hwc": ["yxc", "cyx"], "chw": ["cyx", "yxc"]}.get(said, ["yxc", "cyx"])
    return usual.index(order) if order in usual else 2
