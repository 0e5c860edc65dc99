"""Every command, file and program that the docs show is carried out, and prints what the docs say it prints."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from PIL import Image

from tests.docs.blocks import blocks, steps
from tests.docs.carrying_out import (
    ROOT,
    Outcome,
    carry_out,
    copy_checkout,
    courses,
    makefile_recipes,
    pages,
    shown,
)
from tests.docs.pictures import LARGEST_BYTES, drawn, look_the_same, pictures

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HTML_FETCH = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["'](?:https?:)?//[^"']*["']"""
)

REFRESH = "python -m tests.docs.refresh puts what is printed and drawn now into the pages"


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    copy_checkout(folder)
    return folder


LONG = (
    "docs/how-to/check-a-vendors-numbers.md",
    "docs/explanation/what-moves-the-answer.md",
    "docs/how-to/compare-scenarios.md",
    "docs/how-to/overlay-the-catalogue.md",
    "docs/how-to/run-a-study.md",
    "docs/how-to/size-a-fleet-by-sweep.md",
)
"""Pages of many runs, whose commands other pages show too."""

CHEAPEST_OF_THE_GALLERY = "docs/gallery/batch-at-night.md"
"""The one page of the gallery that every run of the tests carries out; each of the others is a comparison like it."""


def _is_long(page: Path) -> bool:
    name = _name(page)
    return name in LONG or (page.parent.name == "gallery" and name != CHEAPEST_OF_THE_GALLERY)


def _marks(course: list[Path]) -> list[pytest.MarkDecorator]:
    if _is_long(course[0]):
        return [pytest.mark.prove]
    return [pytest.mark.slow] if len(course) > 1 else []


def _followed() -> Iterator[object]:
    """Yield what can be carried out, and what has long steps once more with these."""
    for course in courses():
        done = [step for page in course for step in steps(_text(page))]
        name = _name(course[-1])
        if done:
            yield pytest.param(course, False, id=name, marks=_marks(course))
        if any(step.is_long for step in done):
            yield pytest.param(course, True, id=f"{name} whole", marks=pytest.mark.prove)


@pytest.mark.parametrize(("course", "is_whole"), [*_followed()])
def test_what_a_page_shows_happens(
    course: list[Path], is_whole: bool, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "planner.studies.engines.cores", lambda: 1
    )  # a study's rows are the same whoever runs them
    done: dict[str, Outcome] = {}
    for page in course:
        for outcome in carry_out(_text(page), checkout, done, is_whole=is_whole):
            place = f"{_name(page)}:{outcome.step.line}: {outcome.step.content.strip()}"
            assert outcome.exit_code == 0, "\n".join([place, *outcome.printed])
            stale = [
                f"{_name(page)}:{change.line}: {change.stated} is {change.computed} now"
                for change in outcome.corrections
            ]
            assert not stale, "\n".join([*stale, REFRESH])
            output = outcome.step.output
            if output is None:
                continue
            assert outcome.is_compared, f"{place}\nshows output that cannot be checked here"
            difference = difflib.unified_diff(
                shown(output), outcome.printed, "in the page", "printed now", lineterm=""
            )
            assert shown(output) == outcome.printed, "\n".join([place, *difference, REFRESH])
        for picture in pictures(page):
            assert (checkout / picture.source.partition("#")[0]).is_file(), (
                f"{_name(page)}: nothing draws {picture}"
            )
            if not picture.is_screenshot:
                with Image.open(picture.path) as present:
                    assert look_the_same(present, drawn(picture, checkout)), (
                        f"{picture.path}: {REFRESH}"
                    )


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_pictures_are_there_small_and_told_in_words(page: Path) -> None:
    described = list(pictures(page))
    for picture in described:
        assert picture.path.stat().st_size < LARGEST_BYTES, picture.path
        assert len(picture.words.split()) >= 4, f"{picture.path}: say what it shows"
    if (
        page.parent.name in ("tutorial", "gallery") and page.stem != "index"
    ):  # elsewhere another generator may draw
        shown_there = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", _text(page))
        assert len(shown_there) == len(described), (
            "a picture of a page that is carried out says which command draws it"
        )


def test_every_picture_is_used() -> None:
    used = {picture.path.resolve() for page in pages() for picture in pictures(page)}
    folders = (ROOT / "docs" / part / "images" for part in ("", "tutorial", "gallery"))
    assert {path.resolve() for folder in folders for path in folder.iterdir()} == used


def test_every_page_of_the_gallery_has_a_question_a_picture_and_its_scenarios() -> None:
    first, *rest = sorted(
        (ROOT / "docs" / "gallery").glob("*.md"), key=lambda page: page.stem != "index"
    )
    compared: list[str] = []
    for page in rest:
        assert _text(page).splitlines()[0].endswith("?"), page
        assert list(pictures(page)), page
        assert f"({page.name})" in _text(first), f"{page}: the index leads to it"
        commands = " ".join(step.content for step in steps(_text(page)))
        compared += sorted(set(re.findall(r"scenarios/gallery/([\w-]+\.yaml)", commands)))
    assert sorted(compared) == sorted(
        path.name for path in (ROOT / "scenarios" / "gallery").iterdir()
    )


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = "\n".join(line for line in _without_blocks(_text(page)))
    targets = [target for target in LINK.findall(prose) if not re.match(r"[a-z]+:", target)]
    missing = [
        target for target in targets if not (page.parent / target.partition("#")[0]).exists()
    ]
    assert not missing
    outside = [
        target
        for target in targets
        if page.name != "README.md" and not _is_within_docs(page, target)
    ]
    assert not outside, "a page of the site can link only to pages of the site"


def _is_within_docs(page: Path, target: str) -> bool:
    return (page.parent / target.partition("#")[0]).resolve().is_relative_to(ROOT / "docs")


def _without_blocks(text: str) -> list[str]:
    lines = text.splitlines()
    for block in blocks(text):
        lines[block.first_line : block.first_line + len(block.lines)] = [""] * len(block.lines)
    return lines


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_yaml_in_the_docs_is_yaml(page: Path) -> None:
    for block in blocks(_text(page)):
        if block.language == "yaml":
            assert yaml.safe_load("\n".join(block.lines)) is not None


def test_the_files_that_the_tutorial_shows_are_those_that_ship() -> None:
    shown = {}
    for page in (ROOT / "docs" / "tutorial").glob("*.md"):
        for block in blocks(_text(page)):
            if block.language == "yaml" and block.lines[0].startswith("# scenarios/tutorial/"):
                shown[block.lines[0].removeprefix("# ")] = "\n".join(block.lines) + "\n"
    shipped = {
        f"scenarios/tutorial/{path.name}": _text(path)
        for path in (ROOT / "scenarios" / "tutorial").iterdir()
    }
    assert shown == shipped


def test_make_targets_are_phony_so_that_a_file_of_that_name_does_not_hide_them() -> None:
    makefile = _text(ROOT / "Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == set(makefile_recipes(makefile))


def test_site_builds_strictly_and_holds_every_page(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file()


def test_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not HTML_FETCH.findall(_text(page)), page


def test_every_page_is_in_the_navigation(site: Path) -> None:
    first = _text(site / "index.html")
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() in first


def test_design_page_names_every_package() -> None:
    design = _text(ROOT / "docs" / "contributing" / "design.md")
    packages = [path.parent.name for path in (ROOT / "planner").glob("*/__init__.py")]
    assert not [name for name in packages if f"`planner.{name}`" not in design]


def test_contributing_names_files_that_are_there_and_a_test_of_each_folder() -> None:
    text = _text(ROOT / "CONTRIBUTING.md")
    named = re.findall(r"`((?:planner|tests|docs)/[\w./-]+)(?:::(\w+))?", text)
    for path, test in named:
        assert (ROOT / path).exists(), path
        assert f"def {test}" in _text(ROOT / path) if test else True, (path, test)
    folders = {path.parent.relative_to(ROOT).parts[1] for path in ROOT.glob("tests/*/test_*.py")}
    assert {path.split("/")[1] for path, test in named if test} == folders
