from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from planner.errors import ScenarioError
from planner.scenario.fields import EntryName, Name
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario

names: TypeAdapter[str] = TypeAdapter(Name)
entry_names: TypeAdapter[str] = TypeAdapter(EntryName)

NASTY = [
    "", "..", ".", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", ".hidden", "-rf", "=cmd", "+1", "@x",
    "=cmd|' /C calc'!A0", "<script>alert(1)</script>", "a b", "a\tb", "a\nb", "a\0b", "\x1b[31m", "a\u202eb",
    "\u200fa", "a\u200bb", "\ufeffa", "'a'", '"a"', "a,b", "a;b", "$(ls)", "`ls`", "a*", "a?", "_a",
    "a..b", "x" * 65, "~", "a\n", "\u2028",
]  # fmt: skip


@pytest.mark.parametrize("name", NASTY)
def test_a_name_that_could_harm_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="a name is 1 to 64 letters"):
        names.validate_python(name)
    with pytest.raises(ValidationError):
        entry_names.validate_python(name)


@pytest.mark.parametrize("name", ["a.b", "fleet", "site"])
def test_an_entry_has_no_dot_and_is_neither_fleet_nor_site(name: str) -> None:
    assert names.validate_python(name) == name
    with pytest.raises(ValidationError):
        entry_names.validate_python(name)


@given(st.text(max_size=70))
def test_what_is_accepted_is_safe_as_a_file_a_cell_and_a_key(name: str) -> None:
    try:
        names.validate_python(name)
    except ValidationError:
        return
    assert Path(name).name == name
    assert name.isprintable()
    assert name[0] not in "=+-@.\t"
    assert not set(name) & set("/\\:*?\"<>|,;'\n $`")
    assert all(
        unicodedata.bidirectional(mark) not in ("RLE", "LRE", "RLO", "LRO", "PDF", "RLI")
        for mark in name
    )


@pytest.mark.parametrize(
    "name", ["../x", "=cmd", "<script>", "a\x1b[31mb", "a\u202eb", "a.b", "fleet", ""]
)
@pytest.mark.parametrize("section", ["workloads", "clusters"])
def test_a_nasty_entry_name_is_refused_with_its_line(
    write: WriteScenario, tiny: str, section: str, name: str
) -> None:
    old = "chat" if section == "workloads" else "h200"
    quoted = '"' + name.encode("unicode_escape").decode() + '"'
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(tiny.replace(f"  {old}:\n", f"  {quoted}:\n")))
    (problem,) = caught.value.problems
    assert problem.line == (5 if section == "workloads" else 10)
    assert section in str(problem)
    assert str(problem).isprintable()
