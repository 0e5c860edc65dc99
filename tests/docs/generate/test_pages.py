from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate import pages
from docs.generate.pages import PAGES, commands, reference_page, table, text, write_reference
from docs.generate.validation_page import CHART
from planner import errors
from planner.catalog.load import load_catalog
from planner.finance.accounts import Account
from planner.units import unit_of, unit_suffixes
from tests.conftest import Planner

ROOT = Path(__file__).parents[3]
COMMITTED = sorted(
    path.name
    for path in (ROOT / "docs" / "reference").glob("*.md")
    if path.name not in ("glossary.md", "headings.md")
)


@cache
def made() -> dict[str, str]:
    """Return the pages as the code writes them; not while this file is read, which every worker does."""
    return {name: reference_page(name) for name in PAGES}


def _section(page: str, title: str) -> str:
    """Return the part of a page below a second-level heading."""
    _, _, rest = made()[page].partition(f"\n## {title}\n")
    assert rest, title
    return re.split(r"\n## ", rest)[0]


def test_every_page_is_committed() -> None:
    assert sorted(made()) == COMMITTED


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_reference_is_what_the_code_says(name: str) -> None:
    committed = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert committed == made()[name], "make reference writes the pages anew"


@pytest.mark.parametrize("name", COMMITTED)
def test_every_table_is_rectangular(name: str) -> None:
    width = None
    for line in made()[name].splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert width is None or cells is None or cells == width, line
        width = cells


@pytest.fixture
def made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whoever writes the pages have them as they were made for the other tests: what is tested is the writing."""
    monkeypatch.setattr(pages, "reference_page", lambda name: made()[name])


@pytest.mark.usefixtures("made_once")
def test_writing_touches_only_what_changed(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "reference"
    assert {path.name for path in write_reference(folder)} == {*made(), CHART}
    (folder / "by-hand.md").write_text("mine", encoding="utf-8")
    (folder / "cli.md").write_text("stale", encoding="utf-8")
    assert [path.name for path in write_reference(folder)] == ["cli.md"]
    assert (folder / "by-hand.md").read_text(encoding="utf-8") == "mine"
    assert write_reference(folder) == []


@pytest.mark.parametrize("words", [words for words, _ in commands()])
def test_every_option_that_help_lists_is_on_the_page(words: str, planner: Planner) -> None:
    helped = planner(*words.split()[1:], "--help")
    assert helped.code == 0
    listed = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", helped.out, re.MULTILINE)) - {"--help"}
    shown = set(re.findall(r"`[^`]*?(--[a-z-]+)", _section("cli.md", f"`{words}`")))
    assert listed <= shown


def test_catalogue_page_names_every_entry_and_source() -> None:
    catalog = load_catalog()
    for section in ("accelerators", "models", "stacks", "tariffs", "priors", "sources"):
        below = _section("catalog.md", section.capitalize())
        for name in getattr(catalog, section):
            assert f"| `{name}` |" in below, name


def test_assumption_sets_list_each_changed_value_and_no_other() -> None:
    measured = load_catalog()
    articles = load_catalog("articles-2024")
    changed = set()
    for section in ("accelerators", "models", "stacks", "tariffs"):
        for name, entry in getattr(articles, section).items():
            before = {
                key: (fact.model_dump(exclude={"source", "date", "note"}))
                for key, fact, _ in getattr(measured, section)[name].facts()
            }
            after = {
                key: (fact.model_dump(exclude={"source", "date", "note"}))
                for key, fact, _ in entry.facts()
            }
            changed |= {
                (name, key)
                for key in before.keys() | after.keys()
                if before.get(key) != after.get(key)
            }
    listed = re.findall(
        r"^\| `([^`]+)` \| `([^`]+)` \|", _section("catalog.md", "Assumption sets"), re.MULTILINE
    )
    assert set(listed) == changed
    assert ("MI325X", "accelerator_price_usd") in changed


def test_errors_page_has_every_exception_with_its_exit_code() -> None:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.PlannerError):
            assert f"| `{name}` | {kind.exit_code} |" in made()["errors.md"]
            assert f"| {kind.exit_code} |" in made()["errors.md"]


def test_outputs_page_has_every_account() -> None:
    accounts = _section("outputs.md", "Accounts")
    assert re.findall(r"^\| `(\w+)` \|", accounts, re.MULTILINE) == [
        str(account) for account in Account
    ]
    assert "| `depreciation` | Book depreciation of the month. |  | yes |  |" in accounts


def test_nomenclature_gives_each_name_once_with_the_unit_of_its_suffix() -> None:
    names = re.findall(
        r"^\| `(\w+)` \| ([^|]*) \|", _section("nomenclature.md", "Quantities"), re.MULTILINE
    )
    assert [name for name, _ in names] == sorted({name for name, _ in names})
    for name, unit in names:
        assert unit_of(name) == unit
    assert {"cost_usd", "hbm_gb", "ttft_s"} <= {name for name, _ in names}


def test_nomenclature_lists_every_suffix() -> None:
    listed = re.findall(
        r"^\| `(\w+)` \| (.+) \|$", _section("nomenclature.md", "Units in names"), re.MULTILINE
    )
    assert dict(listed) == unit_suffixes()


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


@pytest.mark.parametrize("name", COMMITTED)
def test_every_page_says_that_it_is_generated(name: str) -> None:
    assert re.search(
        r"Written by `make reference`|Generated by `python -m docs.generate", made()[name]
    )
