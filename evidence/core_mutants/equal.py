"""Mutants that no test can kill, each with the reason."""

EQUAL: dict[tuple[str, str, str], str] = {
    (
        "parity/porting/dialects/rewrites/layers.py",
        "return np.concatenate([values[:queries], wide.reshape(-1, *values.shape[1:])])",
        "1 → 2 at 55",
    ): "numpy takes any negative length for the one that it finds",
    (
        "parity/measure/redraw.py",
        'inputs = math.prod(shape[1:]) if kind in ("linear", "conv") and len(shape) > 1 else 1',
        "len(shape) > 1 → len(shape) >= 1 at 64",
    ): "of one axis, the product of the others is 1",
    (
        "vit_train/augmentation/mixing.py",
        "cuts = rng.random(count) < mix.cutmix_share",
        "rng.random(count) < mix.cutmix_share → rng.random(count) <= mix.cutmix_share at 7",
    ): "a draw is exactly the share once in 2^53",
    (
        "vit_train/data.py",
        "NUM_THREADS = min(16, os.cpu_count() or 1)",
        "16 → 17 at 18",
    ): "no batch depends on the number of threads",
    (
        "vit_train/data.py",
        "NUM_THREADS = min(16, os.cpu_count() or 1)",
        "os.cpu_count() or 1 → os.cpu_count() and 1 at 22",
    ): "no batch depends on the number of threads",
}
"""File, line, change and its column: why the two compute the same."""
