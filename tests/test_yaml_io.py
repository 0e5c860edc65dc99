from __future__ import annotations

import datetime
import math
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner import yaml_io as documents
from planner.errors import ScenarioError
from planner.yaml_io import (
    MAX_BYTES,
    MAX_DEPTH,
    Document,
    document_of_mapping,
    dotted,
    parse_document,
    parse_scalar,
    read_document,
)


def refused(text: str, *parts: str, line: int | None = None) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_document(text, "f.yaml")
    (problem,) = caught.value.problems
    assert problem.file == "f.yaml"
    for part in parts:
        assert part in str(problem)
    if line is not None:
        assert problem.line == line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("Null", None),
        ("true", True),
        ("FALSE", False),
        ("no", "no"),
        ("on", "on"),
        ("12", 12),
        ("-0012", -12),
        ("1_000_000", 1_000_000),
        ("12:30", "12:30"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1e999", math.inf),
        ("1e-99", 1e-99),
        ("-1e-320", 0.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        (".", "."),
        ("1.2.3", "1.2.3"),
        ("2026-01-31", datetime.date(2026, 1, 31)),
        ("2026-02-30", "2026-02-30"),
        ("2026-01-01T00:00", "2026-01-01T00:00"),
        ("9" * 63, int("9" * 63)),
        ("9" * 64, "9" * 64),
        ("9" * 10_000, "9" * 10_000),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    found = parse_scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_nan_is_read_and_left_to_the_field_to_refuse() -> None:
    assert math.isnan(parse_scalar(".nan"))


@given(st.text(max_size=80))
def test_any_text_is_some_scalar(text: str) -> None:
    assert isinstance(parse_scalar(text), str | int | float | bool | datetime.date | None)


def test_every_value_has_its_line() -> None:
    document = parse_document("a: 1\nb:\n  c: [1,\n    2]\n", "f.yaml")
    lines = {dotted(path): place.line for path, place in document.locations.items()}
    assert lines == {"": 1, "a": 1, "b": 2, "b.c": 3, "b.c[0]": 3, "b.c[1]": 4}
    assert {place.file for place in document.locations.values()} == {"f.yaml"}


def test_a_value_that_is_not_there_is_placed_at_its_nearest_parent() -> None:
    document = parse_document("a: 1\nb:\n  c: 2\n", "f.yaml")
    place = document.locate(("b", "d", 4))
    assert place is not None
    assert place.line == 2
    assert Document({}).locate(("x",)) is None


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# nothing but a remark\n", "---\n", "---\n...\n", "~"]
)
def test_an_empty_file_still_has_a_name(text: str) -> None:
    document = parse_document(text, "f.yaml")
    place = document.locate(())
    assert document.content is None
    assert place is not None
    assert place.file == "f.yaml"


@pytest.mark.parametrize(
    ("text", "part", "line"),
    [
        ("a: 1\na: 2\n", "duplicate key a, first on line 1", 2),
        ("x:\n  a: 1\n  'a': 2\n", "duplicate key x.a, first on line 2", 3),
        ("a: *nothing\n", "*nothing", 1),
        ("a: &x\n  b: *x\n", "refers to itself", 2),
        ("a: &x [*x]\n", "refers to itself", 1),
        ("a: 1\n---\nb: 2\n", "second document", 2),
        ("a: !!python/object/apply:os.system [ls]\n", "tag", 1),
        ("a: !secret x\n", "tag !secret", 1),
        ("!!int 1: x\n", "tag", 1),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "use extends", 3),
        ("? [a, b]\n: 1\n", "a key must be a plain word", 1),
        ("? {a: b}\n: 1\n", "a key must be a plain word", 1),
        ("a: &x k\n*x : 1\n", "a key must be a plain word", 2),
        ("a: [1, 2\nb: 3\n", "not valid YAML", 2),
        ("a: b: c\n", "not valid YAML", 1),
        ("\ta: 1\n", "not valid YAML", 1),
        ("a: '\n", "not valid YAML", None),
        ("%YAML 9.9\n---\na: 1\n", "not valid YAML", None),
        ("a: 1\nb: \x00\n", "U+0000", 2),
        ("a: 1\n\nb: \x1b[31m\n", "U+001B", 3),
        ("a: \ud800\n", "U+D800", 1),
        ('a: "\\ud800"\n', "not valid YAML", 1),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(
    text: str, part: str, line: int | None
) -> None:
    refused(text, part, line=line)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("1: a\n", ["1"]),
        ("null: a\n", ["null"]),
        ("2026-01-01: a\n", ["2026-01-01"]),
        ("? \n: a\n", [""]),
        ("1.5: a\n~: b\n", ["1.5", "~"]),
    ],
)
def test_every_key_is_text(text: str, keys: list[str]) -> None:
    assert list(parse_document(text, "f").content) == keys


def nested(depth: int, opening: str, closing: str) -> str:
    return opening * depth + closing * depth


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 5_000, 500_000])
@pytest.mark.parametrize("marks", ["[]", "{}"])
def test_deep_nesting_is_refused_quickly(depth: int, marks: str) -> None:
    opening = "[" if marks == "[]" else "{a: "
    before = time.process_time()
    refused(nested(depth, opening, marks[1]), "deep")
    assert time.process_time() - before < 2


def test_an_alias_bomb_is_refused() -> None:
    layers = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 9))
    refused(f"l0: &l0 [lol, lol]\n{layers}\n", "once aliases are expanded")


def test_repeating_a_long_text_is_an_alias_bomb_too() -> None:
    refused(
        f"a: &x {'y' * 1_000_000}\nb: [{', '.join(['*x'] * 1000)}]\n", "once aliases are expanded"
    )


def test_too_many_values_are_refused() -> None:
    refused("[" + "1," * documents.MAX_NODES + "1]", "more than")


def test_text_in_another_encoding_is_not_yaml(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: x\ntown: K\xf6ln\n")
    with pytest.raises(ScenarioError, match=r"latin\.yaml:2: is not UTF-8 text \(byte 15\)"):
        read_document(path)


def test_a_byte_order_mark_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_document(path).content == {"name": "x"}


def test_windows_line_ends_keep_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "crlf.yaml"
    path.write_bytes(b"a: 1\r\nb: 2\r\n")
    document = read_document(path)
    assert document.content == {"a": 1, "b": 2}
    assert document.locations[("b",)].line == 2


def test_a_file_of_100_mb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(100_000_000)  # sparse: takes no room, and reading it would show in the time
    with pytest.raises(ScenarioError, match=f"100,000,000 bytes; a file may have {MAX_BYTES:,}"):
        read_document(path)


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "mixed-fleet.yaml").touch()
    with pytest.raises(
        ScenarioError,
        match=r"mixed-flet\.yaml: no such file \(did you mean .*mixed-fleet\.yaml\?\)",
    ):
        read_document(tmp_path / "mixed-flet.yaml")
    with pytest.raises(ScenarioError, match=r"no such file$"):
        read_document(tmp_path / "nowhere" / "a.yaml")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "under-a-file.yaml/x"])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    (tmp_path / "under-a-file.yaml").touch()
    with pytest.raises(ScenarioError, match=r"cannot be read|no such file"):
        read_document(tmp_path / name)


def test_a_folder_and_a_circle_of_links_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is a folder"):
        read_document(tmp_path)
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(ScenarioError, match=r"loop\.yaml: cannot be read"):
        read_document(tmp_path / "loop.yaml")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        document = parse_document(text, "f")
    except ScenarioError as error:
        assert all(problem.file == "f" for problem in error.problems)
    else:
        assert document.locate(()) is not None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    try:
        read_document(path)
    except ScenarioError as error:
        assert error.problems[0].file == str(path)


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.dates()
    | st.text("abc xyz-", max_size=9)
)
NESTED = st.recursive(
    PLAIN,
    lambda part: (
        st.lists(part, max_size=4)
        | st.dictionaries(st.text("abcxyz", min_size=1), part, max_size=4)
    ),
)


@given(NESTED, st.booleans())
def test_what_another_library_writes_is_read_back(content: Any, flow: bool) -> None:
    text = yaml.safe_dump(content, default_flow_style=flow, allow_unicode=True)
    assert parse_document(text, "f").content == content


def test_a_number_too_small_to_divide_by_is_zero_in_a_mapping_too() -> None:
    content = {"slo": {"ttft_s": 1e-320}, "nodes": 3, "share": 1e-6}
    assert document_of_mapping(content).content == {
        "slo": {"ttft_s": 0.0},
        "nodes": 3,
        "share": 1e-6,
    }
