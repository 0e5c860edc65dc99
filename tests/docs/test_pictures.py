"""Pictures: where a page says they come from, how they are made smaller, when two of them look the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from tests.docs.pictures import (
    WIDTH_POINTS,
    Picture,
    drawn,
    look_the_same,
    pictures,
    refresh_pictures,
)

PAGE = """\
# Title

<!-- picture: outputs/plan/charts/money.png -->
![Money by month and cluster](images/money.png)

<!-- screenshot: outputs/plan/report.html#answer -->
![The answer of the report](images/answer.png)

![Not described](images/other.png)
"""


def _chart(path: Path, bar: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (1600, 800), "white")
    ImageDraw.Draw(image).rectangle((100, 100, bar, 700), fill="#0067a5")
    image.save(path)
    return path


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "docs" / "page.md"
    path.parent.mkdir()
    path.write_text(PAGE, encoding="utf-8")
    return path


def test_pictures_are_found_with_their_source_and_words(page: Path) -> None:
    money, answer = pictures(page)
    assert money == Picture(
        is_screenshot=False,
        source="outputs/plan/charts/money.png",
        words="Money by month and cluster",
        path=page.parent / "images/money.png",
    )
    assert (answer.is_screenshot, answer.source) == (True, "outputs/plan/report.html#answer")


def test_a_chart_becomes_small_and_keeps_its_shape(page: Path, tmp_path: Path) -> None:
    money, _ = pictures(page)
    _chart(tmp_path / money.source, bar=900)
    small = drawn(money, tmp_path)
    assert small.size == (WIDTH_POINTS, WIDTH_POINTS // 2)
    assert small.convert("RGB").getpixel((300, 250)) == (0x00, 0x67, 0xA5)


def test_looks_the_same_until_a_bar_moves(tmp_path: Path) -> None:
    one, same, moved = (
        Image.open(_chart(tmp_path / f"{name}.png", bar))
        for name, bar in (("a", 900), ("b", 902), ("c", 960))
    )
    assert look_the_same(one, same)
    assert not look_the_same(one, moved)
    assert not look_the_same(one, one.resize((800, 400)))


def test_refreshing_writes_what_looks_different_and_leaves_the_rest(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.docs.pictures.find_chromium", lambda: None)
    source = tmp_path / "outputs/plan/charts/money.png"
    _chart(source, bar=900)
    target = page.parent / "images/money.png"
    assert refresh_pictures(page, tmp_path) == [target], "and no screenshot without a browser"
    assert refresh_pictures(page, tmp_path) == []
    _chart(source, bar=1200)
    assert refresh_pictures(page, tmp_path) == [target]
