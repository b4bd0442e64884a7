"""TensorFlow's random numbers, so that its samplers can be followed draw by draw."""

import numpy as np

_MULTIPLIERS, _WEYL, _MASK = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 0xFFFFFFFF


class TensorflowDraws:
    """Philox 4x32-10 (Salmon et al. 2011) as a kernel's first call with two seeds draws from it."""

    def __init__(self, seed: int, seed2: int) -> None:
        self._key = (seed & _MASK, seed >> 32)
        self._counter = [0, 0, seed2 & _MASK, seed2 >> 32]
        self._left: list[int] = []

    def _next(self) -> int:
        if not self._left:
            x, key = list(self._counter), list(self._key)
            for _ in range(10):
                one, other = (m * v for m, v in zip(_MULTIPLIERS, (x[0], x[2]), strict=True))
                x = [
                    (other >> 32) ^ x[1] ^ key[0],
                    other & _MASK,
                    (one >> 32) ^ x[3] ^ key[1],
                    one & _MASK,
                ]
                key = [(k + w) & _MASK for k, w in zip(key, _WEYL, strict=True)]
            self._left = x
            self._counter[0] += 1
        return self._left.pop(0)

    def random(self, dtype: type = np.float32) -> np.float32:
        """``SimplePhilox::RandFloat``: 23 bits."""
        return np.uint32((127 << 23) | (self._next() & 0x7FFFFF)).view(np.float32) - np.float32(1)

    def integers(self, count: int) -> int:
        """``SimplePhilox::Uniform``."""
        if not count & (count - 1):
            return self._next() & (count - 1)
        rest = (_MASK % count) + 1
        while (drawn := self._next()) >= _MASK - rest:
            pass
        return drawn % count
