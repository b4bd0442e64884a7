"""Options for the compiler: known to it, and no digit dearer than its defaults."""

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from parity.cli.support.train_options import parse
from vit_jax import compiling
from vit_jax.compiling import compiler_options


def test_on_a_cpu_eigen_multiplies_and_ynnpack_adds_up():
    """If this fails after an update of jaxlib, measure anew which of them is faster."""
    stream = np.random.default_rng(0)
    a, b = (stream.standard_normal(shape, dtype=np.float32) for shape in ((61, 769), (769, 193)))
    exact = a.astype(np.float64) @ b.astype(np.float64)

    def product_and_sums(options):
        program = jax.jit(lambda a, b: (a @ b, (a * a).sum(axis=0)), compiler_options=options)
        text = program.lower(a, b).compile().as_text()
        product, _ = program(a, b)
        return text, np.linalg.norm(np.asarray(product) - exact)

    (default, its_error), (text, error) = (product_and_sums(o) for o in ({}, compiler_options("cpu")))
    assert default.count("__ynn_fusion") == 2
    assert text.count("__ynn_fusion") == 1
    assert error <= its_error


def test_options_that_the_compiler_does_not_know_are_left_out(monkeypatch):
    monkeypatch.setattr(compiling, "_OPTIONS", {"cpu": {"xla_no_such_option": "1"}})
    compiler_options.cache_clear()
    assert compiler_options("cpu") == {}
    compiler_options.cache_clear()


def test_compiled_programs_are_kept_where_a_flag_says(tmp_path):
    request = parse(["--compiled", str(tmp_path / "kept")], prog="train")
    before = jax.config.jax_compilation_cache_dir
    threshold = "jax_persistent_cache_min_compile_time_secs"
    seconds = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update(threshold, 0.0)
    try:
        with request.together() as leads:
            assert leads
            compilation_cache.reset_cache()
            jax.jit(lambda x: jax.numpy.cos(x) * 37)(np.ones(5))
        assert list((tmp_path / "kept").iterdir())
    finally:
        jax.config.update(threshold, seconds)
        compilation_cache.reset_cache()
    assert jax.config.jax_compilation_cache_dir == before


def test_other_platforms_have_the_defaults():
    assert compiler_options("tpu") == compiler_options("cuda") == {}
