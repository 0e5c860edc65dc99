from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from docs.generate.markdown import GENERATED, code, page, table, text


def test_table_has_a_header_a_rule_and_its_rows() -> None:
    assert table(("a", "b"), [("1", "2"), ("3", "4")]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1 | 2 |",
        "| 3 | 4 |",
    ]


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_every_line_of_a_table_has_the_same_number_of_cells(cells: list[str]) -> None:
    lines = table(["head"] * len(cells), [cells]).split("\n")
    assert len(lines) == 3
    for line in lines:
        assert line.count("|") - line.count("\\|") == len(cells) + 1


@given(st.text())
def test_text_holds_no_markup(words: str) -> None:
    harmless = text(words)
    assert "<" not in harmless
    assert not re.search(r"(?<!\\)[*_]", harmless)


def test_text_keeps_what_a_reader_reads() -> None:
    assert text("0 < x, unit_price & *") == "0 &lt; x, unit\\_price &amp; \\*"


def test_page_says_that_it_is_generated() -> None:
    whole = page("Title", "Words.", "## Part\n")
    assert whole == f"# Title\n\n{GENERATED}\n\nWords.\n\n## Part\n"


def test_code_is_a_code_span() -> None:
    assert code(80) == "`80`"
