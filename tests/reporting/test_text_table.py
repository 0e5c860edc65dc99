from __future__ import annotations

from planner.reporting.text_table import text_table


def test_numbers_align_right_and_words_left() -> None:
    assert text_table(("name", "USD"), [("a", "1,234.5"), ("bcdef", "7"), ("", "")]) == (
        "name       USD\n-----  -------\na      1,234.5\nbcdef        7\n"
    )


def test_a_table_without_rows_is_its_header() -> None:
    assert text_table(("a", "bb"), []) == "a  bb\n-  --"


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert text_table(("a",), [("\x1b[31mred\n\u202e",)]).splitlines()[2] == "\\x1b[31mred\\n\\u202e"
