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
        "parity/porting/dialects/table.py",
        "yield dict(zip(letters, values, strict=True))",
        "True → False at 39",
    ): "a product has a value for each letter",
    (
        "vit_jax/drop.py",
        "kept_patches = jnp.argsort(scores, axis=1)[:, : max(1, int(N * self.keep_prob))]  # (B, n)",
        "jnp.argsort(scores, axis=1) → jnp.argsort(scores) at 15",
    ): "the second axis is the last",
    (
        "vit_config/numerics/tables.py",
        "@lru_cache(maxsize=32)",
        "32 → 33 at 19",
    ): "no table depends on how many are kept",
    (
        "parity/porting/dialects/rewrites/layers.py",
        "weight = weight.reshape(-1, C, ph, pw)",
        "1 → 2 at 25",
    ): "numpy takes any negative length for the one that it finds",
    (
        "parity/porting/formats/stack.py",
        "target.update(zip(map(key_of, values[::2]), values[1::2], strict=True))",
        "zip(map(key_of, values[::2]), values[1::2], strict=True)"
        " → zip(map(key_of, values[::2]), values[1::2]) at 14",
    ): "an even number of values has as many keys",
    (
        "vit_config/terminal.py",
        'return f"\\\\x{code:02x}" if code < 256 else f"\\\\u{code:04x}"',
        "256 → 257 at 34",
    ): "no character from U+0100 to U+061B acts on a terminal",
    (
        "vit_jax/patch.py",
        "x = self.project_patches(jnp.where(images.valid[:, :, None], pixels, 0))",
        "0 → 1 at 69",
    ): "any number does where no token is valid",
    (
        "vit_torch/heads.py",
        "if self.q_norm is None or self.k_norm is None:",
        "self.q_norm is None or self.k_norm is None → self.q_norm is None and self.k_norm is None at 3",
    ): "both norms are there, or neither",
    (
        "vit_torch/heads.py",
        "if weights1 is None or weights2 is None:",
        "weights1 is None or weights2 is None → weights1 is None and weights2 is None at 3",
    ): "both weights are there, or neither",
    (
        "vit_torch/mlp.py",
        '"gelu": lambda x: F.gelu(x, approximate="none"),  # arXiv 1606.08415, with erf',
        "F.gelu(x, approximate='none') → F.gelu(x) at 18",
    ): "PyTorch's own default",
    (
        "vit_torch/pooling.py",
        "return (x.sum(dim=1) / (count + (count == 0))).to(dtype)",
        "count + (count == 0) → count - (count == 0) at 24",
    ): "no token's sum is 0, whatever divides it",
    (
        "vit_jax/step.py",
        "one = jax.tree.map(lambda x: x[0], parts)",
        "0 → 1 at 31",
    ): "all parts have one shape",
    (
        "vit_jax/init.py",
        "drawn = [sample(share, each, shape, dtype) for share, each in zip(shares, keys, strict=True)]",
        "zip(shares, keys, strict=True) → zip(shares, keys) at 62",
    ): "a split has as many keys as it is asked for",
    (
        "vit_jax/stacks.py",
        "if not isinstance(named, dict) or not any(members(name)[0] in named for name in names):",
        "0 → 1 at 56",
    ): "a stack has two blocks or more, and a state all of them or none",
    (
        "vit_jax/weights.py",
        'return jax.device_put(np.array(array, order="C"), may_alias=False)',
        "jax.device_put(np.array(array, order='C'), may_alias=False)"
        " → jax.device_put(np.array(array, order='C')) at 7",
    ): "the array is a copy that nobody else holds",
    (
        "vit_jax/weights.py",
        'return jax.device_put(np.array(array, order="C"), may_alias=False)',
        "np.array(array, order='C') → np.array(array) at 22",
    ): "JAX has one order of its own",
    (
        "vit_torch/init.py",
        "for share, tensor in zip(shares, tensors, strict=True):",
        "True → False at 49",
    ): "a tensor of equal shares has as many chunks",
    (
        "vit_torch/weights.py",
        'array = np.array(array, order="C", copy=True)',
        "np.array(array, order='C', copy=True) → np.array(array, order='C') at 8",
    ): "numpy copies unless it is told otherwise",
    (
        "vit_torch/weights.py",
        "model.load_state_dict(to_state(model, arrays), strict=True, assign=True)",
        "model.load_state_dict(to_state(model, arrays), str ... , assign=True)"
        " → model.load_state_dict(to_state(model, arrays), assign=True) at 0",
    ): "PyTorch is strict unless it is told otherwise",
    (
        "parity/porting/dialects/rewrites/positions.py",
        'what = "folded into" if after < before else "written as zeros for"',
        "after < before → after <= before at 24",
    ): "no rule of as many rows is rewritten",
    (
        "vit_torch/norm.py",
        "self.gamma = nn.Parameter(torch.full((cfg.hidden_size,), cfg.layer_scale or 0.0))",
        "cfg.layer_scale or 0.0 → cfg.layer_scale and 0.0 at 57",
    ): "every parameter is drawn anew",
    (
        "vit_config/numerics/resample.py",
        "@lru_cache(maxsize=128)",
        "lru_cache(maxsize=128) → lru_cache() at 1, after 2 like it",
    ): "128 is functools' own default",
    (
        "vit_config/numerics/tables.py",
        "@lru_cache(maxsize=32)",
        "lru_cache(maxsize=32) → lru_cache() at 1",
    ): "no table depends on how many are kept",
    (
        "vit_config/numerics/rope.py",
        "sides = [np.arange(side, dtype=np.float64) for side in grid]",
        "np.arange(side, dtype=np.float64) → np.arange(side) at 9",
    ): "the offset that is added to them is float64",
    (
        "parity/measure/nearness.py",
        "*(min(max(FACTOR * each, low), high)"
        " for each, low, high in zip(moved, LEAST, MOST, strict=True))",
        "zip(moved, LEAST, MOST, strict=True) → zip(moved, LEAST, MOST) at 60",
    ): "all are three limits",
    (
        "parity/measure/recording.py",
        "self._recent: deque[tuple[np.ndarray, _Entry]] = deque(maxlen=4)",
        "4 → 5 at 62",
    ): "what is read does not depend on how many arrays are held once",
    (
        "parity/measure/redraw.py",
        'inputs = math.prod(shape[1:]) if kind in ("linear", "conv") and len(shape) > 1 else 1',
        "1 → 2 at 84",
    ): "up to 64 inputs the spread is the same",
    (
        "vit_jax/model.py",
        "logits = jax.nn.softmax(logits.astype(wide), axis=-1).astype(logits.dtype)",
        "jax.nn.softmax(logits.astype(wide), axis=-1) → jax.nn.softmax(logits.astype(wide)) at 9",
    ): "JAX's own default",
    (
        "vit_jax/patch.py",
        "kinds = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True))",
        "True → False at 76",
    ): "a mesh has a type for each axis",
    (
        "vit_torch/drop.py",
        "kept_patches = torch.argsort(scores, dim=1)[:, : max(1, int(N * self.keep_prob))]  # (B, n)",
        "torch.argsort(scores, dim=1) → torch.argsort(scores) at 15",
    ): "the second axis is the last",
    (
        "vit_config/layer_decay.py",
        "depth = max((int(block[1]) + 1 for block in map(_BLOCK.match, names) if block), default=0)",
        "0 → 1 at 88",
    ): "every model has blocks",
    (
        "vit_config/schedule.py",
        "return int(np.random.SeedSequence([recipe.seed, step]).generate_state(1, np.uint64)[0])",
        "1 → 2 at 70",
    ): "the first number is the same however many are drawn",
    (
        "parity/porting/formats/archive.py",
        "file.seek(max(0, size - _LONGEST_END))",
        "0 → 1 at 14",
    ): "where the end record is at byte 0, its count is read at byte 10 either way",
    (
        "parity/porting/dialects/rewrites/rewrite.py",
        "@dataclass(frozen=True)",
        "True → False at 18",
    ): "no state is changed once it is made",
    (
        "vit_jax/optim.py",
        "if recipe.layer_decay == 1.0:",
        "1.0 → 2.0 at 25",
    ): "no recipe has a decay above 1, and scales of 1 change nothing",
    (
        "vit_jax/step.py",
        "output = apply(computed, images, return_tokens=False, rngs=nnx.Rngs(dropout=key))",
        "False → True at 47",
    ): "the tokens that nobody reads are computed, too",
    (
        "vit_torch/step.py",
        'model, computed, (batch["image"].to(dtype),), {"return_tokens": False}',
        "False → True at 64",
    ): "the tokens that nobody reads are computed, too",
}
"""File, line, change and its column: why the two compute the same."""
