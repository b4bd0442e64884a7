"""Pictures show what they say: the numbers behind them are the right ones, the right way round."""

import numpy as np
import pytest

from parity.cli.plot import one_of_each
from vit_config.numerics.tables import sincos2d
from vit_train.display import plots

pytestmark = pytest.mark.quick


def images_of(figure):
    return [image.get_array().data for axes in figure.axes for image in axes.get_images()]


def test_png_is_written_whole(tmp_path):
    figure = plots.position_tables({"a": np.eye(7, 5)})
    plots.save_png(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_curves_follow_the_log():
    train = [
        {
            "kind": "train",
            "step": s,
            "epoch": s / 4,
            "loss": 3 / s,
            "accuracy": s / 9,
            "learning_rate": 0.1,
        }
        for s in (1, 3, 8)
    ]
    validation = [{"kind": "validation", "step": s, "loss": 1.0, "accuracy": 0.5} for s in (4, 8)]
    test = [{"kind": "test", "step": 8, "loss": 0.7, "accuracy": 0.875}]
    figure = plots.curves([{"kind": "start", "step": 0}, *train, *validation, *test])
    loss, accuracy, rate = figure.axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in accuracy.get_lines()}
    assert drawn == {
        "train": [[0.25, 1 / 9], [0.75, 3 / 9], [2.0, 8 / 9]],
        "validation": [[1.0, 0.5], [2.0, 0.5]],
        "test: 0.8750": [[2.0, 0.875]],
    }
    assert loss.get_lines()[0].get_ydata().tolist() == [3.0, 1.0, 0.375]
    assert len(rate.get_lines()) == 1


def test_the_images_shown_are_one_of_each_class_wrong_ones_first():
    labels, predicted = np.array([0, 1, 0, 2, 1, 2]), np.array([0, 1, 0, 1, 0, 2])
    assert one_of_each(labels, predicted) == [3, 4, 0]


def test_a_confusion_matrix_has_its_numbers():
    figure = plots.confusion(np.array([[7, 0, 1], [0, 9, 0], [2, 0, 3]]), "abc")
    written = [(*each.get_position(), each.get_text()) for each in figure.axes[0].texts]
    assert written == [(0, 0, "7"), (2, 0, "1"), (1, 1, "9"), (0, 2, "2"), (2, 2, "3")]
    assert figure.axes[0].get_title() == "19 of 22 images are right"


def test_a_position_table_is_drawn_row_by_row():
    table = np.random.default_rng(0).standard_normal((7, 5))
    figure = plots.position_tables({"ours": table, "zero": np.zeros((7, 5))})
    np.testing.assert_array_equal(images_of(figure)[0], table)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["ours", "zero"]


def test_similarity_has_one_map_per_patch():
    grid = (3, 5)
    figure = plots.position_similarity(sincos2d(grid, 8), grid, (7, 5))
    maps = images_of(figure)[:15]
    for patch, similarity in enumerate(maps):
        assert similarity.shape == grid
        assert np.unravel_index(similarity.argmax(), grid) == divmod(patch, 5)
        assert similarity.max() == pytest.approx(1)
    assert np.isfinite(plots_of_zero(grid)).all()


def plots_of_zero(grid):
    return np.stack(images_of(plots.position_similarity(np.zeros((15, 4)), grid, (7, 5)))[:15])


@pytest.mark.parametrize("by_class_token", [True, False])
def test_attention_maps(by_class_token):
    rng = np.random.default_rng(0)
    grid, prefix, depth = (3, 5), 2, 14
    attention = [rng.random((2, 4, 17, 17)) for _ in range(depth)]
    images = rng.integers(0, 256, (2, 21, 15, 1), np.uint8)
    figure = plots.attention_maps(
        images, attention, prefix=prefix, grid=grid, by_class_token=by_class_token, titles=["a", "b"]
    )
    panels = images_of(figure)
    assert len(panels) == 2 * (plots.MAX_BLOCKS + 1)
    np.testing.assert_array_equal(panels[0], images[0, ..., 0])
    last = attention[-1][1].mean(axis=0)  # of the second image
    looks = last[0] if by_class_token else last.mean(axis=0)
    np.testing.assert_allclose(np.asarray(panels[-1]), looks[prefix:].reshape(grid))
    titles = [axes.get_title() for axes in figure.axes[1 : plots.MAX_BLOCKS + 1]]
    assert (titles[0], titles[-1]) == ("block 0", "block 13")
