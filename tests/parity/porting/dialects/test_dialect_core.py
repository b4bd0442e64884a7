"""The converter's core: tables of rows, tensors through them - in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.shapes import fields_of
from parity.porting.dialects.table import (
    REST,
    Row,
    bind_ours,
    bind_theirs,
    flax_attention,
    only_when,
    respell_names,
    row,
    split_attention,
)
from parity.porting.dialects.transfer import letters, read, sizes_of, write
from parity.porting.formats.base import Stored
from parity.porting.recognition.matching import bind, match, some
from parity.porting.recognition.recognise import Model
from tests.support.table_arrays import DTYPES, assert_same, back, draw, into, stored
from tests.support.tiny import TINY, VARIANTS, variant
from vit_config import ConfigError, WeightsError
from vit_config.parameters import parameters

pytestmark = pytest.mark.quick

# rows


def test_one_tensor_makes_several_by_parts():
    table = row(("blocks.{i}.a", "blocks.{i}.b"), "{i}/joined", parts=(1, 3))
    theirs = {f"{i}/joined": draw(8, 2, seed=i) for i in range(3)}

    ours = into(table, theirs)

    np.testing.assert_array_equal(ours["blocks.1.a"], theirs["1/joined"][:2])
    np.testing.assert_array_equal(ours["blocks.1.b"], theirs["1/joined"][2:])
    assert_same(back(table, ours), theirs)
    with pytest.raises(WeightsError, match=r"0/joined: \(7, 2\) does not divide into 4 parts"):
        into(table, {"0/joined": draw(7, 2)})


def test_a_stretch_of_zeros_is_not_ours_and_is_written_again():
    table = row(("blocks.{i}.attn.q_bias", None, "blocks.{i}.attn.v_bias"), "{i}.qkv.bias")
    theirs = {f"{i}.qkv.bias": draw(12, seed=i) for i in range(3)}
    for array in theirs.values():
        array[4:8] = 0

    ours = into(table, theirs)

    assert list(ours)[:2] == ["blocks.0.attn.q_bias", "blocks.0.attn.v_bias"]
    np.testing.assert_array_equal(ours["blocks.2.attn.v_bias"], theirs["2.qkv.bias"][8:])
    assert_same(back(table, ours), theirs)


@pytest.mark.parametrize("heads", [(6, 2, 3), (6, 6, 6), (1, 1, 1)])
def test_queries_keys_and_values_apart_with_grouped_heads(heads):
    cfg = TINY.replace(num_heads=6, num_kv_heads=heads)
    table = split_attention("blocks.{i}.attn", "layer.{i}.{}", ("q", "k", "v"))
    theirs = {}
    for i, kv in enumerate(heads):
        for name, length in (("q", 30), ("k", 5 * kv), ("v", 5 * kv)):
            theirs[f"layer.{i}.{name}.weight"] = draw(length, 30, seed=i)
            theirs[f"layer.{i}.{name}.bias"] = draw(length, seed=i)

    ours = into(table, theirs)

    assert {n: a.shape for n, a in ours.items()} == {
        n: p.shape for n, p in parameters(cfg).items() if ".attn.qkv" in n
    }
    np.testing.assert_array_equal(ours["blocks.1.attn.qkv.weight"][:30], theirs["layer.1.q.weight"])
    assert_same(back(table, ours, cfg), theirs)


def test_keys_without_a_bias():
    table = split_attention("blocks.{i}.attn", "{i}.{}", ("q", "k", "v"))
    theirs = {"0.q.bias": draw(30), "0.v.bias": draw(30, seed=1)}
    theirs |= {f"0.{name}.weight": draw(30, 30, seed=ord(name)) for name in "qkv"}

    ours = into(table, theirs)

    assert ours.keys() == {f"blocks.0.attn.{n}" for n in ("qkv.weight", "q_bias", "v_bias")}
    assert_same(back(table, ours), theirs)


def test_tensors_that_cannot_be_joined_are_refused():
    table = row("a", ("q", "k"))
    with pytest.raises(WeightsError, match=r"shapes that cannot be joined: q \(2, 3\), k \(2, 4\)"):
        into(table, {"q": draw(2, 3), "k": draw(2, 4)})


def test_a_stack_holds_all_blocks():
    table = flax_attention("blocks.{i}.attn", "enc", stack="L ")
    h, d, D = 5, 6, 30
    theirs = {f"enc/{n}/kernel": draw(3, D, h, d, seed=ord(n[0])) for n in ("query", "key", "value")}
    theirs |= {f"enc/{n}/bias": draw(3, h, d, seed=ord(n[0])) for n in ("query", "key", "value")}
    theirs |= {"enc/out/kernel": draw(3, h, d, D), "enc/out/bias": draw(3, D)}

    ours = into(table, theirs)

    assert {n: a.shape for n, a in ours.items()} == {
        n: p.shape for n, p in parameters(TINY).items() if ".attn." in n
    }
    key = theirs["enc/key/kernel"][2]
    np.testing.assert_array_equal(ours["blocks.2.attn.qkv.weight"][D : 2 * D], key.reshape(D, D).T)
    bound, _ = bind_theirs(table, {name: array.shape for name, array in theirs.items()})
    assert letters(bound, stored(theirs)) == {"h": 5, "d": 6}
    assert_same(back(table, ours), theirs)

    theirs["enc/value/kernel"] = theirs["enc/value/kernel"][:2]
    with pytest.raises(WeightsError, match="enc/value/kernel: has 2 blocks where enc/query"):
        into(table, theirs)


@pytest.mark.parametrize("shape", [(10**12, 0), (0, 4), ()])
def test_a_stack_of_no_depth_is_none(shape):
    """A header can claim any number of blocks for no bytes at all."""
    bound, left = bind_theirs(row("blocks.{i}.b", "enc/b", "L o -> o"), {"enc/b": shape})

    assert (bound, left) == ([], ["enc/b"])


def test_a_tensor_of_all_blocks_is_none_where_no_block_is():
    bound, left = bind_theirs(row("blocks.{i}.b", "shared"), {"shared": (3,), "head": (3,)})
    assert [one.ours for one in bound] == [()]
    assert left == ["head"]


def test_what_no_row_took_is_the_rest():
    table = (*row("blocks.{i}.a", "b.{i}.a"), REST)
    theirs = {"b.0.a": draw(2), "b.00.a": draw(3), "b.x.a": draw(4), "c": draw(5)}

    ours = into(table, theirs)

    assert ours.keys() == {"blocks.0.a", "b.00.a", "b.x.a", "c"}
    assert_same(back(table, ours), theirs)


def test_an_incomplete_row_takes_nothing():
    bound, left = bind_theirs(row("a", ("q", "k")), {"q": (1,)})
    assert (bound, left) == ([], ["q"])

    bound, left = bind_ours(row(("a", "b"), "ab"), TINY, ["a"])
    assert (bound, left) == ([], ["a"])


def test_the_same_tensor_twice_is_refused():
    table = (*row("a", "x"), *row("a", "y"))

    with pytest.raises(WeightsError, match="y: a appears twice"):
        into(table, {"x": draw(2), "y": draw(2)})


def test_a_row_for_one_value_of_a_field():
    table = (
        *only_when("pool", "mean", row("norm.weight", "fc")),
        *only_when("pool", "class", row("norm.weight", "ln")),
    )
    ours = {"norm.weight": draw(3)}

    assert back(table, ours).keys() == {"ln"}
    assert back(table, ours, TINY.replace(pool="mean")).keys() == {"fc"}


def test_no_rows_before_the_patches_are_auto_and_none():
    dialects = {each: Dialect("d", "D", "d", ((),), (), can={"pos_embed_prefix": (each,)})
                for each in ("auto", "none", "all")}  # fmt: skip
    bare = TINY.replace(class_token=False, pool="mean", register_tokens=0)
    for each, dialect in dialects.items():
        for value in dialects:
            assert "pos_embed_prefix" not in dialect.problems(bare.replace(pos_embed_prefix=value))
            differs = "pos_embed_prefix" in dialect.problems(TINY.replace(pos_embed_prefix=value))
            assert differs == (value != each)


def test_a_model_names_six_parameters_without_a_place():
    with pytest.raises(ConfigError, match=r"has no place for a, b, c, d, e, f$"):
        bind(Dialect("d", "D", "d", ((),), ()), TINY, "abcdefg")


def test_ignored_tensors_are_not_the_models():
    dialect = Dialect("d", "D", "d", (row("a", "a"),), (), ignored=("b.*",))
    matched = match(Model(dialect, "", stored({"a": draw(2), "b.c": draw(3)}), ""))
    assert (*matched.tensors, matched.ignored) == ("a", ("b.c",))
    with pytest.raises(WeightsError, match="1 tensors are unknown to d: e"):
        match(Model(dialect, "", stored({"a": draw(2), "e": draw(3)}), ""))


def test_six_names_stand_for_more():
    assert some("abcdef") == "a, b, c, d, e, f"
    assert some("abcdefg") == "a, b, c, d, e, f, ..."


def test_what_is_written_is_in_order_in_memory():
    (array,) = back(row("a", "a", "i o -> o i"), {"a": draw(3, 5)}).values()
    assert array.flags.c_contiguous


def test_a_body_is_taken_off_unless_two_names_become_one():
    dialect = Dialect("d", "D", "d", ((),), (), body="vit.")
    assert dialect.within_body({"vit.a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert dialect.within_body({"vit.a": 1, "a": 2}) == {"vit.a": 1, "a": 2}


def test_a_body_is_put_on_only_beside_a_head():
    dialect = Dialect("d", "D", "d", ((),), (), body="vit.", beside=("head.",))
    assert dialect.with_body({"a": 1, "head.b": 2}) == {"vit.a": 1, "head.b": 2}
    assert dialect.with_body({"a": 1}) == {"a": 1}


def test_respelling():
    (one,) = respell_names(row("a", ("x.mlp.0", "y.mlp.3")), {".mlp.0": ".fc1", ".mlp.3": ".fc2"})

    assert one.theirs == ("x.fc1", "y.fc2")


def test_the_letters_of_a_file_must_agree():
    table = flax_attention("blocks.{i}.attn", "{i}")
    arrays = {"0/out/kernel": draw(5, 6, 30), "1/out/kernel": draw(6, 5, 30)}
    bound, _ = bind_theirs(table, {name: array.shape for name, array in arrays.items()})

    with pytest.raises(WeightsError, match="1/out/kernel: 6 where 0/out/kernel has 5; the file"):
        letters(bound, stored(arrays))


@pytest.mark.parametrize("letter", ["h", "d", "g"])
def test_a_size_that_two_tensors_have_is_one(letter):
    layout = f"{letter} o -> ({letter} o)"
    table = row("a", "a", layout) + row("b", "b", layout)
    arrays = {"a": draw(3, 7), "b": draw(2, 7)}
    bound, _ = bind_theirs(table, {name: array.shape for name, array in arrays.items()})

    with pytest.raises(WeightsError, match="b: 2 where a has 3; the file is inconsistent"):
        letters(bound, stored(arrays))
    assert letters(bound, stored(arrays | {"b": draw(3, 5)})) == {letter: 3}


def test_sizes_that_a_file_does_not_say_are_the_schemas():
    cfg = TINY.replace(num_heads=4, attention_head_dim=7, pool="map", pool_num_heads=3)

    assert sizes_of(cfg) == {"h": 4, "d": 7, "g": 3, "y": 3, "x": 3}


# laziness


def test_nothing_is_read_before_it_is_asked_for_and_then_once():
    counts: dict[str, int] = {}

    def counting(name, array):
        def load():
            counts[name] = counts.get(name, 0) + 1
            return array

        return Stored(array.shape, array.dtype, load)

    table = (*row("qkv", ("q", "k", "v")), *row(("a", "b"), "ab"), *row("w", "w", "i o -> o i"))
    theirs = {name: counting(name, draw(4, 2)) for name in ("q", "k", "v", "ab", "w")}
    bound, _ = bind_theirs(table, {name: each.shape for name, each in theirs.items()})

    ours = read(bound, theirs)
    again, _ = bind_ours(table, TINY, ours)
    files = write(again, ours, TINY)
    assert counts == {}

    for each in files.values():
        each.load()
    assert counts == dict.fromkeys(theirs, 1)


# any table


@st.composite
def tables(draw_from):
    """A table of random rows, and the tensors of a file that fills it."""
    table: list[Row] = []
    theirs: dict[str, np.ndarray] = {}
    dtype = draw_from(st.sampled_from(DTYPES))
    for number in range(draw_from(st.integers(1, 5))):
        kind = draw_from(st.sampled_from(("same", "moved", "joined", "cut", "holes", "stack")))
        per_block = draw_from(st.booleans())
        at = f"{number}.{{i}}" if per_block else f"{number}"
        n, m = draw_from(st.integers(1, 4)), draw_from(st.integers(1, 4))
        shapes = {f"{at}.x": (n, m)}
        if kind == "same":
            table += row(f"ours.{at}", f"{at}.x")
        elif kind == "moved":
            table += row(f"ours.{at}", f"{at}.x", "n m -> 1 (m n)")
        elif kind == "joined":
            shapes[f"{at}.y"] = (n, m)
            table += row(f"ours.{at}", (f"{at}.x", f"{at}.y"), "n m -> n m")
        elif kind == "cut":
            parts = tuple(draw_from(st.lists(st.integers(1, 3), min_size=2, max_size=4)))
            names = tuple(f"ours.{at}.{k}" for k in range(len(parts)))
            shapes = {f"{at}.x": (n * sum(parts), m)}
            table += row(names, f"{at}.x", parts=parts)
        elif kind == "holes":
            shapes = {f"{at}.x": (3 * n, m)}
            table += row((f"ours.{at}.0", None, f"ours.{at}.2"), f"{at}.x")
        else:
            at = f"{number}"
            shapes = {f"{at}.x": (TINY.depth, n, m), f"{at}.y": (TINY.depth, n, m)}
            table += row(f"ours.{at}.{{i}}", tuple(shapes), "L n m -> m n")
        for i in range(TINY.depth if "{i}" in at else 1):
            for name, shape in shapes.items():
                array = draw(*shape, dtype=dtype, seed=number * 10 + i)
                if kind == "holes":
                    array[n : 2 * n] = 0
                theirs[name.replace("{i}", str(i))] = array
    return tuple(table), theirs


@settings(max_examples=100, deadline=None)
@given(tables())
def test_any_table_is_its_own_way_back(case):
    table, theirs = case

    shuffled = dict(reversed(theirs.items()))
    ours = into(table, shuffled)

    # "n m -> 1 (m n)" cannot be undone without a size, as a layout that says "h" or "d" can
    if any(each.layout.endswith("(m n)") for each in table):
        with pytest.raises(WeightsError, match="nothing known"):
            back(table, ours)
    else:
        assert_same(back(table, ours), theirs)


# shapes


def test_blocks_are_numbered_without_gaps():
    shapes = {name: each.shape for name, each in parameters(TINY).items()}
    incomplete = {name: shape for name, shape in shapes.items() if not name.startswith("blocks.1.")}

    with pytest.raises(WeightsError, match="block 1 is missing: the last is 2"):
        fields_of(incomplete)
    with pytest.raises(WeightsError, match="block 3 is missing: the last is 999999"):
        fields_of({**shapes, "blocks.999999.norm1.weight": (30,)})


@pytest.mark.parametrize("name", VARIANTS)
def test_what_shapes_say_of_a_schema_is_true(name):
    cfg = variant(name)
    actual = fields_of({key: each.shape for key, each in parameters(cfg).items()})

    for field, value in actual.items():
        expected = getattr(cfg, field)
        if field == "norm" and cfg.block == "res_post":
            continue
        if field == "final_norm" and not cfg.final_norm_affine:  # it has no tensors
            continue
        if field == "pool_mlp_dim" and expected == cfg.mlp_dim:
            expected = None
        assert value == expected, field
