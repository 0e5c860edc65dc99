from __future__ import annotations

import re

from planner.output.report.html import Part, Swing, bar, bar_table, group, legend, spread, tornado


def part(share: float, name: str = "a") -> Part:
    return Part(name=name, share=share, colour=0, shown="x")


def test_a_bar_is_as_wide_as_its_share() -> None:
    assert "width:25.000%" in bar([part(0.25)])
    assert bar([part(0.0)]) == '<span class="bar" aria-hidden="true"></span>'
    assert "width:100.000%" in bar([part(7.0)])


def test_a_row_has_its_numbers_beside_the_bar() -> None:
    markup = bar_table(("what", "size", ""), [("one", ["12"], [part(0.5)])], "C")
    assert '<th scope="row">one</th><td class="number">12</td>' in markup


def test_the_legend_names_colours() -> None:
    assert legend([("a", 1)]).count("<li>") == 1
    assert "c1" in legend([("a", 1)])


SWINGS = [
    Swing(name="price", low=8.0, high=14.0, shown=("8", "14")),
    Swing(name="<i>", low=9.0, high=11.0, shown=("9", "11")),
]


def test_a_tornado_swings_about_its_middle() -> None:
    markup = tornado(SWINGS, 10.0, "T", ("at P10", "at P90"))
    left, width = zip(*re.findall(r"left:([\d.]+)%;width:([\d.]+)%", markup), strict=True)
    assert [float(x) for x in left] == [0.0, 33.333, 16.667, 33.333]
    assert [float(x) for x in width] == [33.333, 66.667, 16.667, 16.667]
    assert "<i>" not in markup


def test_a_tornado_of_nothing_is_empty() -> None:
    assert "<tbody></tbody>" in tornado([], 1.0, "T", ("lowest", "highest"))


def test_what_is_compared_lies_below_one_another() -> None:
    parts = [
        Part(name=name, share=share, colour=i, shown="") for i, (name, share) in enumerate((("a", 1.0), ("b", 0.5)))
    ]
    markup = group(parts)
    assert markup.count('class="bar"') == 2
    assert "width:50.000%" in markup


def test_a_spread_is_drawn_from_zero_and_stays_within_its_cell() -> None:
    markup = spread((1.0, 2.0, 5.0, 8.0, 20.0), 10.0, 3)
    assert re.findall(r"left:([\d.]+)%;width:([\d.]+)%", markup) == [("10.000", "90.000"), ("20.000", "60.000")]
    assert 'class="middle" style="left:50.000%"' in markup
