from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from planner.output.blocks import Area, Axis, Box, Line, Mark, Panel, Picture, VerticalRule
from planner.output.scales import COLOURS, Scale
from planner.output.svg import (
    PNG_WIDTH,
    bars,
    even_axis,
    names_axis,
    png_of,
    svg_of,
)

SPACE = "{http://www.w3.org/2000/svg}"


def picture(*marks: Mark, **changes: object) -> Picture:
    panel = Panel(x=even_axis(0.0, 10.0, "x, h"), y=even_axis(0.0, 4.0, "y, USD"), marks=marks)
    arguments: dict[str, object] = {"title": "T", "panels": [panel], **changes}
    return Picture(**arguments)  # type: ignore[arg-type]


def drawn(shown: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(svg_of(shown))


def texts(shown: Picture) -> list[str]:
    return [element.text or "" for element in drawn(shown).iter(f"{SPACE}text")]


def plot(root: ElementTree.Element) -> tuple[float, float, float, float]:
    room = next(root.iter(f"{SPACE}clipPath"))[0]
    left, top, width, height = (
        float(room.get(name) or 0) for name in ("x", "y", "width", "height")
    )
    return left, top, width, height


def test_a_line_lies_where_its_values_are_and_lifts_the_pen_at_a_gap() -> None:
    root = drawn(picture(Line(points=[(0.0, 0.0), (5.0, 2.0), (6.0, None), (10.0, 4.0)], colour=1)))
    left, top, width, height = plot(root)
    (path,) = (element.get("d") or "" for element in root.iter(f"{SPACE}path"))
    assert re.findall("[ML]", path) == ["M", "L", "M"]
    places = [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+),([-\d.]+)", path)]
    expected = [(left, top + height), (left + width / 2, top + height / 2), (left + width, top)]
    assert np.array(places) == pytest.approx(np.array(expected), abs=0.01)


def test_a_box_and_a_rule_lie_where_their_values_are() -> None:
    root = drawn(
        picture(Box(x=(4.0, 2.0), y=(0.0, 1.0), colour=0), VerticalRule(x=5.0, note="P50"))
    )
    left, top, width, height = plot(root)
    box = next(
        element for element in root.iter(f"{SPACE}rect") if element.get("fill") == COLOURS[0]
    )
    assert float(box.get("x") or 0) == pytest.approx(left + 0.2 * width, abs=0.01)
    assert float(box.get("width") or 0) == pytest.approx(0.2 * width, abs=0.01)
    assert float(box.get("height") or 0) == pytest.approx(height / 4, abs=0.01)
    assert float(box.get("y") or 0) == pytest.approx(top + 0.75 * height, abs=0.01)
    rule = next(
        element for element in root.iter(f"{SPACE}line") if element.get("stroke-width") == "1.4"
    )
    assert float(rule.get("x1") or 0) == pytest.approx(left + width / 2, abs=0.01)
    assert "P50" in texts(picture(VerticalRule(x=5.0, note="P50")))


def test_what_has_no_place_on_a_logarithmic_axis_is_left_out() -> None:
    axis = Axis(scale=Scale(low=0.0, high=2.0, logarithmic=True))
    assert axis.scale.share(0.0) is None
    assert axis.scale.share(10.0) == pytest.approx(0.5)
    panel = Panel(
        x=even_axis(0.0, 2.0),
        y=axis,
        marks=[Line(points=[(0.0, 0.0), (1.0, 10.0)], colour=0, radius=2.0)],
    )
    assert len(list(drawn(Picture(title="T", panels=[panel])).iter(f"{SPACE}circle"))) == 1


def test_an_area_is_closed_and_bars_follow_one_another() -> None:
    root = drawn(
        picture(Area(upper=[(0.0, 3.0), (1.0, 2.0)], lower=[(0.0, 1.0), (1.0, 1.0)], colour=0))
    )
    (path,) = (element.get("d") or "" for element in root.iter(f"{SPACE}path"))
    assert path.endswith("Z")
    panel = bars(["a", "b"], {"one": [1.0, 2.0], "two": [3.0, 0.0]}, "million USD")
    assert [mark.x for mark in panel.marks if isinstance(mark, Box)] == [
        (0.0, 1.0),
        (0.0, 2.0),
        (1.0, 4.0),
    ]


def test_names_stand_from_the_top_down_and_long_ones_are_cut() -> None:
    axis = names_axis(["first", "x" * 80])
    assert axis.ticks[0][0] > axis.ticks[1][0]
    shown = texts(Picture(title="T", panels=[Panel(x=even_axis(0.0, 1.0), y=axis, marks=[])]))
    assert "first" in shown
    assert "x" * 47 + "…" in shown


def test_axes_have_labels_and_units_and_the_title_is_cut_to_the_picture() -> None:
    shown = texts(picture(title="long " * 60))
    assert "x, h" in shown
    assert "y, USD" in shown
    assert shown[0].endswith("…")


def test_names_cannot_break_out() -> None:
    name = "<script>alert(1)</script>&\u202e"
    shown = picture(VerticalRule(x=1.0, note=name), title=name, keys={name: 0})
    assert "<script" not in svg_of(shown)
    assert png_of(svg_of(shown)).startswith(b"\x89PNG")


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
def test_neighbouring_ticks_have_different_labels(low: float, span: float) -> None:
    if span < 1e-9 * abs(low):
        return
    labels = [label for _, label in even_axis(low, low + span).ticks]
    assert len(set(labels)) == len(labels)


def test_a_png_has_text_without_the_fonts_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FONTCONFIG_FILE", "/nowhere")
    monkeypatch.setenv("HOME", "/nowhere")
    with_text, without = (png_of(svg_of(picture(title=title))) for title in ("Wollaston", " "))
    pixels = [
        np.asarray(Image.open(io.BytesIO(png)).convert("L"), dtype=float)
        for png in (with_text, without)
    ]
    assert pixels[0].shape == pixels[1].shape
    assert pixels[0].shape[1] == PNG_WIDTH
    assert (np.abs(pixels[0] - pixels[1]) > 128).sum() > 300
