from __future__ import annotations

from planner.output.terminal import text_table


def test_numbers_align_right_and_words_left() -> None:
    assert text_table(("name", "USD"), [("a", "1,234.5"), ("bcdef", "7"), ("", "")]) == (
        "name       USD\n-----  -------\na      1,234.5\nbcdef        7\n"
    )


def test_a_table_without_rows_is_its_header() -> None:
    assert text_table(("a", "bb"), []) == "a  bb\n-  --"


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert (
        text_table(("a",), [("\x1b[31mred\n\u202e",)]).splitlines()[2] == "\\x1b[31mred\\n\\u202e"
    )


def test_a_wide_table_fits_a_terminal_of_eighty_columns() -> None:
    remark = "the level of those hours, not of a week, with its standard error and all that there is to say of it"
    shown = text_table(
        ("figure", "fitted", "error or origin"),
        [("requests_per_s", "5.068", remark), ("b", "1", "short")],
    )
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].split()[:2] == ["requests_per_s", "5.068"]
    assert (
        " ".join(" ".join(line[lines[1].rindex(" ") :].split()) for line in lines[2:-1]) == remark
    )
    assert lines[-1].startswith("b ")


def test_a_table_of_numbers_that_is_too_wide_goes_on_below_with_its_names_again() -> None:
    numbers = text_table(
        ["name", *"abcdefg"], [["a-rather-long-name", *["1234567.8"] * 7], ["b", *["-1"] * 7]]
    )
    first, second = numbers.split("\n\n")
    assert max(map(len, numbers.splitlines())) <= 80
    assert first.splitlines()[0].split() == [
        "name",
        *"abcdef",
    ]  # 18 and six times 10; a seventh would not fit
    assert second.splitlines()[0].split() == ["name", "g"]
    assert [line.split() for line in second.splitlines()[2:]] == [
        ["a-rather-long-name", "1234567.8"],
        ["b", "-1"],
    ]
    assert (
        len(text_table(["name", *"abc"], [["x" * 70, *["1234567.8"] * 3]]).split("\n\n")) == 3
    )  # a name and a number at least
