"""One index, by which several tables are read, that B has in another order."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.verifier.locate import compare

H, D = 4, 5
RNG = np.random.default_rng(0)
X, SCORES = RNG.standard_normal((6, H, H, D)), RNG.standard_normal((6, H * H, H * H))
TABLES = {
    "h": RNG.standard_normal((2 * H - 1, D)),
    "w": RNG.standard_normal((2 * H - 1, D)),
    "v": RNG.standard_normal((H * H, 3)),
}


def attended(p, x, scores, index, along=(slice(None), None)):
    rows, columns = p["h"][index], p["w"][index]
    of_rows = jnp.einsum("bhwc,hkc->bhwk", x, rows)
    of_columns = jnp.einsum("bhwc,wkc->bhwk", x, columns)
    bias = of_rows[(..., *along)] + of_columns[(..., *along[::-1])]
    return jax.nn.softmax(scores + bias.reshape(scores.shape), -1) @ p["v"]


def right(p, x, scores):
    i = jnp.arange(H)
    return attended(p, x, scores, i[:, None] - i[None, :] + H - 1)


def transposed(p, x, scores):
    i = jnp.arange(H)
    return attended(p, x, scores, i[None, :] - i[:, None] + H - 1)


def transposed_and_spread(p, x, scores):
    i = jnp.arange(H)
    return attended(p, x, scores, i[None, :] - i[:, None] + H - 1, (None, slice(None)))


def in_torch(p, x, scores):
    i = torch.arange(H)
    index = (i[:, None] * 1.0 - i[None, :] + H - 1).long()
    of_rows = torch.einsum("bhwc,hkc->bhwk", x, p["h"][index])
    of_columns = torch.einsum("bhwc,wkc->bhwk", x, p["w"][index])
    bias = of_rows[..., :, None] + of_columns[..., None, :]
    return torch.softmax(scores + bias.reshape(scores.shape), -1) @ p["v"]


def side(function, **tables):
    return partial(function, TABLES | tables), (X, SCORES)


def torch_side():
    tables = {name: torch.from_numpy(value) for name, value in TABLES.items()}
    return partial(in_torch, tables), (torch.from_numpy(X), torch.from_numpy(SCORES))


def line_of(place):
    return place.b.lines[0].text


def test_the_index_is_exchanged_for_all_that_read_it():
    for original in (side(right), torch_side()):
        (place,) = compare(original, side(transposed)).places
        assert (place.kind, place.cause) == ("order", "transposed")
        assert "return attended(p, x, scores, i[None, :] - i[:, None]" in line_of(place)
        assert "of an index by which rows of" in place.message


def test_what_is_wrong_besides_is_a_place_of_its_own():
    places = compare(side(right), side(transposed_and_spread)).places
    assert [place.cause for place in places] == ["transposed", "axis split the other way round"]
    assert "i[None, :] - i[:, None]" in line_of(places[0])


def transposed_and_scaled(p, x, scores):
    return transposed(p, 0.5 * x, scores)


def test_beside_another_mistake_the_tables_are_said_to_be_turned():
    place = compare(torch_side(), side(transposed_and_scaled)).places[0]
    relations = [each.relation for each in place.b.operands]
    assert relations.count("axes exchanged (0 and 1)") == 2


def stored(p, x, scores):
    return attended(p, x, scores, p["index"])


def made_by_numpy(p, x, scores, turned=False):
    i = np.arange(H)
    index = i[:, None] - i[None, :] + H - 1
    return attended(p, x, scores, index.T if turned else index)


def test_an_index_without_a_line_shows_the_line_that_reads_it():
    (place,) = compare(side(made_by_numpy), side(partial(made_by_numpy, turned=True))).places
    assert (place.kind, place.cause) == ("order", "transposed")
    assert 'p["h"][index], p["w"][index]' in line_of(place)


def test_an_index_that_is_stored():
    i = np.arange(H)
    index = i[:, None] - i[None, :] + H - 1
    (place,) = compare(side(stored, index=index), side(stored, index=index.T.copy())).places
    assert place.kind == "parameter"
    assert "index" in place.message


def test_an_index_in_another_order_that_is_right_is_left_alone():
    """Tokens in an order of B's own, back in A's at the end, and a mistake elsewhere."""
    order = np.array([2, 0, 3, 1, 5, 4])

    def a(x):
        tokens = jnp.asarray(order)
        return jnp.tanh(x[tokens])[jnp.argsort(tokens)] * 2

    def b(x):
        tokens = jnp.asarray(order[::-1].copy())
        return jnp.tanh(x[tokens])[jnp.argsort(tokens)] * 3

    places = compare((a, X[:, 0, 0]), (b, X[:, 0, 0])).places
    assert [place.cause for place in places] == ["number"]
