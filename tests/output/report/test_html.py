from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.output.report.html import Html, details, element, join, table, text
from planner.output.report.page import page

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


@pytest.mark.parametrize("nasty", NASTY)
def test_text_stays_text(nasty: str) -> None:
    found = read(element("td", nasty, title=nasty, data_name=nasty))
    assert found.tags == ["td"]
    assert [name for name, _ in found.attributes] == ["title", "data-name"]
    assert all(part.isprintable() for part in found.texts)


@pytest.mark.parametrize("nasty", NASTY)
def test_text_stays_text_in_tables(nasty: str) -> None:
    found = read(table((nasty, "size"), [(nasty, nasty)], nasty))
    assert found.tags == ["div", "table", "caption", "thead", "tr", "th", "th", "tbody", "tr", "th", "td"]
    assert all(part.isprintable() for part in found.texts if part.strip())
    assert {name for name, _ in found.attributes} == {"class", "tabindex", "role", "aria-label", "scope"}


@pytest.mark.parametrize("nasty", [*NASTY, "$title ${policy} $$"])
def test_text_stays_text_in_pages(nasty: str) -> None:
    plain, found = (read(page(words, words, []).decode()) for words in ("words", nasty))
    assert found.tags == plain.tags
    assert [name for name, _ in found.attributes] == [name for name, _ in plain.attributes]
    if nasty.isprintable():
        assert found.texts.count(nasty) == 3  # title, heading and lead


@given(st.text())
def test_any_text_comes_back_as_itself_or_escaped_for_the_eye(words: str) -> None:
    found = read(element("p", words, title=words))
    assert found.tags == ["p"]
    shown = "".join(found.texts)
    assert shown.isprintable()
    if words.isprintable():
        assert shown == words
        assert found.attributes == [("title", words)]


def test_markup_of_our_own_is_not_escaped_twice() -> None:
    inner = element("b", "1 < 2")
    assert element("p", inner, " & more") == "<p><b>1 &lt; 2</b> &amp; more</p>"
    assert text(inner) is inner
    assert join([inner, "<"], "\n") == "<b>1 &lt; 2</b>\n&lt;"
    assert isinstance(join([]), Html)


def test_attributes_may_be_left_out_or_bare() -> None:
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert element("p", hidden=True, class_=None, id=False) == "<p hidden></p>"
    assert element("svg", viewBox="0 0 1 1", aria_label="x") == '<svg viewBox="0 0 1 1" aria-label="x"></svg>'


def test_a_table_names_rows_columns_and_itself() -> None:
    markup = table(("name", "size"), [("a", "1"), ("b", "2")], "Two things", numeric=(1,))
    found = read(markup)
    assert found.tags.count("tr") == 3
    assert ("scope", "row") in found.attributes
    assert ("scope", "col") in found.attributes
    assert "Two things" in found.texts
    assert ("aria-label", "Two things") in found.attributes
    assert markup.count('class="number"') == 3


def test_details_fold() -> None:
    assert details("more", Html("<p>x</p>")) == "<details><summary>more</summary><p>x</p></details>"
