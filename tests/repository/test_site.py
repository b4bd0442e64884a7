"""What is wrong with the site is found: a link that leads nowhere, an image that is not there."""

import look_at_site
import pytest

pytestmark = pytest.mark.quick

PAGE = '<main role="main"><h2 id="two"></h2><a href="{link}">x</a><img src="{image}"></main>'


@pytest.mark.parametrize(
    ("link", "image", "said"),
    [
        ("b.html#two", "a.png", []),
        ("https://example.org/none", "a.png", []),
        ("b.html#three", "a.png", ["leads nowhere: b.html#three"]),
        ("c.html", "a.png", ["leads nowhere: c.html"]),
        ("b.html", "b.png", ["leads nowhere: b.png"]),
    ],
)
def test_links_and_images_are_followed(tmp_path, link, image, said):
    (tmp_path / "index.html").write_text(PAGE.format(link=link, image=image))
    (tmp_path / "b.html").write_text(PAGE.format(link="index.html", image="a.png"))
    (tmp_path / "a.png").write_bytes(b"")
    assert [each.partition(": ")[2] for each in look_at_site.dead(tmp_path)] == said
