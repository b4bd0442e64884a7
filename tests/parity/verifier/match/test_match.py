"""Which leaf is which, by value and by place: every dialect under scrambled names, and what is hard."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest

import parity
from evidence.dialect_table import sample
from parity.porting.dialects import dialects
from parity.porting.dialects.table import bind_ours
from parity.porting.dialects.transfer import write
from parity.porting.formats import Stored
from parity.verifier.match import Matched, match
from vit_config import ConfigError
from vit_config.parameters import parameters

pytestmark = pytest.mark.quick

WRITTEN = [each for each in dialects() if each.writes]
H, D, W = 5, 6, 14
"""Heads, their width, the width of a token."""


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def sample_of(dialect):
    """A schema without bounds, as no single number has a partner by its value."""
    return sample(dialect).replace(linear_bounds=False)


def forms(dialect, cfg):
    """A random model by our names, and in a dialect, with the rows that join them."""
    stream = np.random.default_rng(3)
    ours = {
        name: Stored.of(stream.standard_normal(each.shape).astype(np.float32))
        for name, each in parameters(cfg).items()
    }
    bound, left = min((bind_ours(t, cfg, ours) for t in dialect.tables), key=lambda bound: len(bound[1]))
    assert not left
    return ours, {name: each.load() for name, each in write(bound, ours, cfg).items()}, bound


def rebuilt(matched: Matched, name: str, theirs: dict[str, np.ndarray]) -> np.ndarray:
    """A leaf of A from B's, by what the links say alone."""
    made = np.full(matched.a[name], np.nan, np.float32)
    for link in matched.of(name):
        array = theirs[link.b].reshape(matched.b[link.b])
        array = link.arrangement.apply(link.part_b.take(array) if link.part_b else array)
        if link.part_a is None:
            made = array
        else:
            part = link.part_a
            places = part.take(np.arange(made.size).reshape(made.shape))
            made.reshape(-1)[places] = array
    return made


def relations(matched: Matched) -> dict[str, list[str]]:
    return {name: [link.b for link in matched.of(name)] for name in matched.a}


@pytest.mark.parametrize("dialect", WRITTEN, ids=lambda each: each.name)
def test_every_dialect_is_found_under_scrambled_names(dialect):
    ours, theirs, bound = forms(dialect, sample_of(dialect))
    secret = {name: f"{random.Random(name).getrandbits(48):012x}" for name in theirs}
    scrambled = {secret[name]: theirs[name] for name in sorted(theirs, key=secret.__getitem__)}

    matched = match(ours, scrambled)

    assert matched.complete
    expected: dict[str, list[str]] = {}
    for one in bound:
        for name in one.ours:
            if name is not None:
                expected.setdefault(name, []).extend(secret[each] for each in one.theirs)
    assert relations(matched) == expected
    assert {link.grade for link in matched.links} == {"by value"}
    for name, each in ours.items():
        np.testing.assert_array_equal(rebuilt(matched, name, scrambled), each.load(), err_msg=name)


def one(ours: np.ndarray, theirs: np.ndarray, name: str = "x"):
    (link,) = match({name: ours}, {"y": theirs}).links
    shapes = (ours.shape, theirs.shape)
    return link, link.arrangement.words(*shapes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x, "equal"),
        (lambda x: x.T, "transposed"),
        (lambda x: x.reshape(H, D, W), "reshaped"),
        (lambda x: x.T.reshape(W, H, D), "axes permuted, p o i -> (o i) p"),
        (
            lambda x: x.reshape(H, D, W)[[1, 2, 0, 4, 3]].reshape(-1, W),
            "5 heads of 6 in the order 2, 0, 1, 4, 3",
        ),
        (
            lambda x: x.reshape(H, 2, D // 2, W).swapaxes(1, 2).reshape(-1, W),
            "rotary pairs to halves: (5, 3, 2) read as (5, 2, 3)",
        ),
        (
            lambda x: x.reshape(H, D // 2, 2, W).swapaxes(1, 2).reshape(-1, W),
            "rotary halves to pairs: (5, 2, 3) read as (5, 3, 2)",
        ),
        (lambda x: np.random.default_rng(1).permutation(x), "slices in another order"),
    ],
)  # fmt: skip
def test_an_arrangement_is_named_and_can_be_undone(change, words):
    ours = draw(H * D, W)
    theirs = np.ascontiguousarray(change(ours))
    link, said = one(ours, theirs)
    assert said == words
    np.testing.assert_array_equal(link.arrangement.apply(theirs), ours)


def test_queries_keys_and_values_interleaved_by_head():
    fused = draw(3 * H * D, W)
    theirs = np.ascontiguousarray(fused.reshape(3, H, D, W).swapaxes(0, 1).reshape(-1, W))
    link, said = one(fused, theirs)
    assert said == "queries, keys and values interleaved by head: (5, 3, 6) read as (3, 5, 6)"
    np.testing.assert_array_equal(link.arrangement.apply(theirs), fused)

    apart = {name: fused[i * H * D : (i + 1) * H * D] for i, name in enumerate("qkv")}
    matched = match(apart, {"y": theirs})
    assert matched.complete
    for i, name in enumerate("qkv"):
        (link,) = matched.of(name)
        assert link.part_b == (0, i * D, (i + 1) * D, 3 * D)
        np.testing.assert_array_equal(rebuilt(matched, name, {"y": theirs}), apart[name])


def test_a_fused_leaf_whose_values_alone_are_as_they_were():
    fused = draw(3 * H * D, W)
    turned = fused[: 2 * H * D].reshape(2, H, D // 2, 2, W).swapaxes(2, 3).reshape(-1, W)
    _, said = one(fused, np.concatenate([turned, fused[2 * H * D :]]))
    assert said.startswith("queries: rotary halves to pairs")
    assert "keys: rotary halves to pairs" in said
    assert "values" not in said


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_leaves_of_another_type_are_the_same_after_a_cast(dtype):
    ours = draw(H, W)
    link, said = one(ours, ours.T.astype(dtype))
    assert said == "transposed"
    assert link.kind == (np.float32 if dtype == np.float64 else dtype)
    assert not match({"x": ours}, {"y": (ours * 1.01).astype(dtype)}).links


def test_stacked_blocks_of_one_side_and_fused_ones_of_the_other():
    blocks = {f"blocks.{i}.qkv": draw(3 * H * D, W, seed=i) for i in range(4)}
    stacks = {
        name: np.stack(
            [each[k * H * D : (k + 1) * H * D].T.reshape(W, H, D) for each in blocks.values()]
        )
        for k, name in enumerate(("query", "key", "value"))
    }
    for ours, theirs in ((blocks, stacks), (stacks, blocks)):
        matched = match(ours, theirs)
        assert matched.complete
        assert len(matched.links) == 12
        for name, each in ours.items():
            np.testing.assert_array_equal(rebuilt(matched, name, theirs), each)


# by place


def fresh(names: dict[str, str]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Two blocks of a new model: drawn matrices, zeros and ones beside; and under other names."""
    ours = {}
    for i in range(2):
        ours |= {
            f"blocks.{i}.norm1.weight": np.ones(W, np.float32),
            f"blocks.{i}.attn.qkv.weight": draw(3 * H * D, W, seed=i),
            f"blocks.{i}.attn.qkv.bias": np.zeros(3 * H * D, np.float32),
            f"blocks.{i}.norm2.weight": np.ones(W, np.float32),
            f"blocks.{i}.mlp.fc1.weight": draw(23, W, seed=i),
            f"blocks.{i}.mlp.fc1.bias": np.zeros(23, np.float32),
        }
    ours["norm.weight"] = np.ones(W, np.float32)
    theirs = {}
    for name, each in ours.items():
        for old, new in names.items():
            name = name.replace(old, new)
        if ".qkv." in name:
            for k, part in enumerate(np.split(each, 3)):
                theirs[name.replace("qkv", "qkv"[k])] = part
        else:
            theirs[name] = each
    return ours, theirs


SPELLED = {"blocks.": "layer.", "norm1": "before", "norm2": "after", "mlp.fc1": "up", "norm.": "last."}


def test_constants_are_told_by_their_neighbours_or_not_at_all():
    ours, theirs = fresh(SPELLED)
    matched = match(ours, theirs)

    grades = {name: {link.grade for link in matched.of(name)} for name in ours}
    assert relations(matched)["blocks.1.attn.qkv.bias"] == [f"layer.1.attn.{x}.bias" for x in "qkv"]
    assert relations(matched)["blocks.0.mlp.fc1.bias"] == ["layer.0.up.bias"]
    assert relations(matched)["norm.weight"] == ["last.weight"]
    assert grades["blocks.1.attn.qkv.bias"] == grades["norm.weight"] == {"by place"}
    assert grades["blocks.1.attn.qkv.weight"] == {"by value"}
    # cannot infer which norm of a block is which
    assert matched.ambiguous["blocks.1.norm1.weight"] == (
        "layer.1.before.weight",
        "layer.1.after.weight",
    )
    assert set(matched.ambiguous) == {n for n in ours if "norm1" in n or "norm2" in n}
    assert not matched.complete
    assert matched.rest("a") == matched.rest("b") == ()


def test_constants_among_names_that_say_nothing_stay_ambiguous():
    ours, theirs = fresh(SPELLED)
    matched = match(ours, {f"{i:03}": each for i, each in enumerate(theirs.values())})
    assert {link.grade for link in matched.links} == {"by value"}
    assert len(matched.ambiguous["norm.weight"]) == 5
    assert matched.rest("a") == ("blocks.0.attn.qkv.bias", "blocks.1.attn.qkv.bias")


def test_a_stretch_of_zeros_that_the_other_side_lacks_is_said():
    q, v = draw(H * D), draw(H * D, seed=1)
    bias = np.concatenate([q, np.zeros_like(q), v])
    matched = match({"q": q, "v": v}, {"y": bias})
    assert matched.complete
    assert matched.filled_b == {"y": (((0, 30, 60, 90), 0.0),)}
    # with the weights beside them the zeros have a partner
    weights = [draw(H * D, W, seed=s) for s in range(3)]
    matched = match(
        {f"{n}.bias": b for n, b in zip("qkv", np.split(bias, 3), strict=True)}
        | {f"{n}.weight": w for n, w in zip("qkv", weights, strict=True)},
        {"all.bias": bias, "all.weight": np.concatenate(weights)},
    )
    assert matched.complete
    (link,) = matched.of("k.bias")
    assert link.grade == "by place"
    assert link.part_b == (0, 30, 60, 90)


def test_a_class_token_with_its_position_added():
    ours = {"cls_token": draw(1, 1, W), "pos_embed": draw(1, 8, W)}
    rows = ours["pos_embed"][0]
    theirs = {"cls": ours["cls_token"][0, 0] + rows[0], "pos": rows[1:]}
    for dtype in (np.float32, ml_dtypes.bfloat16):
        there = {name: each.astype(dtype) for name, each in theirs.items()}
        matched = match(ours, there)
        assert matched.sums == (("b", "cls", "cls_token", "pos_embed", 0),)
        assert matched.complete
        assert match(there, ours).sums == (("a", "cls", "cls_token", "pos_embed", 0),)
        assert match(there, ours).complete
    theirs["cls"] = theirs["cls"] * np.float32(1.01)
    assert match(ours, theirs).rest("a") == ("cls_token", "pos_embed")


def test_a_leaf_that_is_there_twice_is_ambiguous():
    leaf = draw(H, W)
    matched = match({"x": leaf}, {"y": leaf, "z": leaf.T})
    assert matched.ambiguous == {"x": ("y", "z")}
    assert matched.ambiguous_b == {"y": ("x",), "z": ("x",)}


# what is odd


def test_leaves_that_are_not_numbers_empty_or_whole_numbers():
    nan = np.full((H, W), np.nan, np.float32)
    some = draw(H, D)
    some[2, 3] = np.nan
    ours = {
        "nan": nan,
        "some": some,
        "none": np.zeros((0, W), np.float32),
        "ids": np.arange(W),
        "scale": np.float32(0.5),
        "complex": np.ones(3, np.complex64),
    }
    matched = match(ours, {f"their {name}": np.asarray(each).T for name, each in ours.items()})
    assert relations(matched) == {name: [f"their {name}"] for name in ours}
    assert matched.complete
    assert matched.of("ids")[0].kind == np.int64
    assert not match({"ids": np.arange(W)}, {"y": np.arange(W, dtype=np.float32)}).links


def test_another_depth_leaves_what_is_too_much():
    ours = {f"blocks.{i}.w": draw(H, W, seed=i) for i in range(4)}
    matched = match(ours, {"stack": np.stack([each.T for each in list(ours.values())[:3]])})
    assert matched.rest("a") == ("blocks.3.w",)
    assert matched.rest("b") == ()
    assert not match({}, ours).links


def test_few_numbers_or_counts_are_no_stretch_of_others():
    ours = {"pair": draw(9)[3:5], "ids": np.arange(5), "four": draw(9)[2:6]}
    matched = match(ours, {"y": draw(9), "z": np.arange(W)})
    assert relations(matched) == {"pair": [], "ids": [], "four": ["y"]}


def test_a_name_in_common_tells_constants_apart():
    ours, _ = fresh({})
    matched = match(ours, {f"module.{name}": each for name, each in ours.items()})
    assert matched.complete
    assert relations(matched) == {name: [f"module.{name}"] for name in ours}
    assert matched.of("blocks.1.norm2.weight")[0].grade == "by place"


def test_complex_leaves_are_matched_with_complex_ones():
    weight, bias = (draw(*shape) + 1j * draw(*shape, seed=1) for shape in ((4, 6), (6,)))
    ours = {"weight": weight, "bias": bias, "few": np.array([1 + 2j, 3, 4])}
    theirs = {"c": ours["few"], "b": bias.astype(np.complex128), "w": np.ascontiguousarray(weight.T)}
    matched = match(ours, theirs)
    assert {link.a: link.b for link in matched.links} == {"weight": "w", "bias": "b", "few": "c"}
    assert {link.a: link.arrangement.layout for link in matched.links}["weight"] == "i o -> o i"


def test_complex_leaves_of_another_imaginary_part_are_not_matched():
    weight, ones = draw(4, 6) + 1j * draw(4, 6, seed=1), np.ones(3, np.complex128)
    ours = {"weight": weight, "real": draw(4, 6), "same": weight[:1] * 2, "ones": ones * 1j}
    theirs = {"w": np.conj(weight), "r": draw(4, 6) + 0j, "same": weight[:1] * 2, "ones": ones}
    matched = match(ours, theirs)
    assert {link.a: link.b for link in matched.links} == {"same": "same"}


def test_parts_of_complex_leaves_are_matched():
    weight = draw(4, 6) + 1j * draw(4, 6, seed=1)
    ours, theirs = {"all": np.concatenate([weight, np.zeros((2, 6), weight.dtype)])}, {"part": weight}
    matched = match(ours, theirs)
    assert [(link.a, link.part_a.stop, link.b) for link in matched.links] == [("all", 4, "part")]


@pytest.mark.parametrize("side", [3, None, [np.ones(2)]])
def test_what_has_no_parameters_is_refused(side):
    said = r"^b is of class \w+; give a path, or arrays by name; parity\.assert_loaded compares a model"
    with pytest.raises(ConfigError, match=said):
        parity.match({"w": np.ones(2)}, side)
