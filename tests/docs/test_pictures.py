"""Pictures: where a page says they come from, how they are made smaller, when two of them look the same."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

from tests.docs.pictures import (
    look_the_same,
)


def _chart(path: Path, bar: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (1600, 800), "white")
    ImageDraw.Draw(image).rectangle((100, 100, bar, 700), fill="#0067a5")
    image.save(path)
    return path


def test_looks_the_same_until_a_bar_moves(tmp_path: Path) -> None:
    one, same, moved = (
        Image.open(_chart(tmp_path / f"{name}.png", bar))
        for name, bar in (("a", 900), ("b", 902), ("c", 960))
    )
    assert look_the_same(one, same)
    assert not look_the_same(one, moved)
    assert not look_the_same(one, one.resize((800, 400)))
