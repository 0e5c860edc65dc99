from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.output.blocks import Block, Folded, Grid, Section, Sentence
from planner.output.html import blocks_html, page, section_html

NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>",
    "' onmouseover='x",
    "=cmd|'/c calc'!A1",
    "../../x",
    "a\x1b[31mred\x07",
    "left\u202ethgir",
    "nul\x00",
    "\ud800",
    "&amp;",
]


class Reader(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


def html(*blocks: Block) -> str:
    return str(blocks_html(blocks))


@pytest.mark.parametrize("nasty", NASTY)
def test_text_stays_text_wherever_it_stands(nasty: str) -> None:
    grid = Grid(caption=nasty, header=(nasty, "size"), rows=[(nasty, nasty)])
    blocks: list[Block] = [Sentence(text=nasty), grid, Folded(title=nasty, blocks=[])]
    plain, found = (read(html(*made)) for made in ([Sentence(text="x"), grid, blocks[2]], blocks))
    assert found.tags == plain.tags
    assert "script" not in found.tags
    assert "img" not in found.tags
    assert all(text.isprintable() for text in found.texts if text.strip())


@pytest.mark.parametrize("nasty", [*NASTY, "{{ title }} {% x %}"])
def test_text_stays_text_in_pages(nasty: str) -> None:
    plain, found = (read(page(words, words, []).decode()) for words in ("words", nasty))
    assert found.tags == plain.tags
    assert [name for name, _ in found.attributes] == [name for name, _ in plain.attributes]
    if nasty.isprintable():
        assert found.texts.count(nasty) == 3  # title, heading and lead


@given(st.text().filter(lambda words: "`" not in words))
def test_any_text_comes_back_as_itself_or_escaped_for_the_eye(words: str) -> None:
    found = read(html(Sentence(text=words)).removesuffix("\n"))
    assert found.tags == ["p"]
    shown = "".join(found.texts)
    assert shown.isprintable()
    if words.isprintable():
        assert shown == words


def test_what_is_to_be_typed_is_code() -> None:
    assert "say <code>planner run</code> again" in html(Sentence(text="say `planner run` again"))


def test_a_grid_names_rows_columns_and_itself() -> None:
    rows = [("a", "1"), ("b", "2")]
    markup = html(Grid(caption="Two things", header=("name", "size"), rows=rows, numeric=(1,)))
    found = read(markup)
    assert found.tags.count("tr") == 3
    assert ("scope", "row") in found.attributes
    assert ("scope", "col") in found.attributes
    assert "Two things" in found.texts
    assert ("aria-label", "Two things") in found.attributes
    assert markup.count('class="number"') == 3


def test_a_verdict_is_on_a_badge_that_says_it_by_word_and_colour_and_a_column_may_be_drawn() -> (
    None
):
    badge = '<span class="badge met">SLO MET</span> in 3/3'
    assert badge in html(Sentence(text="SLO MET in 3/3"))
    assert '<span class="badge missed">MISSED</span> 1/3' in html(
        Sentence(text="METHOD: MISSED 1/3")
    )
    assert "METHOD: <" in html(Sentence(text="METHOD: MISSED 1/3"))
    markup = html(
        Grid(
            caption="C", header=("a", "b"), rows=[("x", "INCONCLUSIVE 2/3")], numeric=(1,), drawn=1
        )
    )
    assert (
        '<td class="number"><span class="badge inconclusive">INCONCLUSIVE</span> 2/3</td>' in markup
    )
    assert '<table data-drawn="1">' in markup


def test_a_section_stands_under_its_question_and_folds_what_is_folded() -> None:
    made = Section(
        key="k", title="Why?", blocks=[Folded(title="more", blocks=[Sentence(text="x")])]
    )
    markup = section_html(made)
    assert '<section id="k" aria-labelledby="k-title"><h2 id="k-title">Why?</h2>' in markup
    assert "<details><summary>more</summary><p>x</p>" in markup
