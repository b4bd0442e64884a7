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
    (
        "vit_config/numerics/resample.py",
        "return np.concatenate([prefix, patches.reshape(-1, new_size).T])",
        "1 → 2 at 48",
    ): "numpy takes any negative length for the one that it finds",
    (
        "vit_config/numerics/resample.py",
        "rows, columns = (axis_matrix(rule, old, new)"
        " for old, new in zip(old_grid, new_grid, strict=True))",
        "zip(old_grid, new_grid, strict=True) → zip(old_grid, new_grid) at 61",
    ): "both grids have two axes",
    (
        "vit_config/numerics/resample.py",
        "taps = np.arange(-2, old + 2)",
        "2 → 3 at 27",
    ): "one more pixel beyond the edge has no weight",
    (
        "parity/porting/dialects/table.py",
        "yield dict(zip(letters, values, strict=True))",
        "True → False at 39",
    ): "a product has a value for each letter",
    (
        "vit_jax/drop.py",
        "kept = jnp.argsort(scores, axis=1)[:, : max(1, int(N * self.kept))]  # (B, n)",
        "jnp.argsort(scores, axis=1) → jnp.argsort(scores) at 7",
    ): "the second axis is the last",
}
"""File, line, change and its column: why the two compute the same."""
