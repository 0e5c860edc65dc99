"""One version, told alike by the command, the package and the changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import planner as library
from tests.conftest import Planner


def test_the_version_has_one_place(root: Path, planner: Planner) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {
        "attr": "planner.version.__version__"
    }
    assert planner("--version").out == f"planner {library.__version__}\n"


def test_the_changelog_is_cut_into_versions(root: Path) -> None:
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *released = re.findall(
        r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", changelog, re.MULTILINE
    )
    assert first == ("Unreleased", "")
    assert all(date for _, date in released)
    numbers = [tuple(map(int, number.split("."))) for number, _ in released]
    assert numbers == sorted(set(numbers), reverse=True)
    unreleased = changelog.partition("## [Unreleased]")[2].partition("\n## [")[0].strip()
    version, _, suffix = library.__version__.partition(".dev")
    number = tuple(map(int, version.split(".")))
    if (
        unreleased
    ):  # what is not released yet carries the number it will have, and says that it is not released
        assert suffix
        assert number > numbers[0]
    else:
        assert not suffix
        assert number == numbers[0]


def test_the_changelog_is_short(root: Path) -> None:
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- .*(?:\n  .*)*", changelog, re.MULTILINE)
    assert not [entry for entry in entries if len(entry.splitlines()) > 2]
    newest = re.split(r"^## \[(?!Unreleased)", changelog, flags=re.MULTILINE)[1]
    assert len(re.findall(r"\S*\w\S*", newest)) <= 900
