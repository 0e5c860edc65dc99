"""A module's name says which one it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_words_that_every_room_could_use_name_one_module() -> None:
    names = Counter(path.stem for path in (ROOT / "planner").rglob("*.py"))
    assert {word: names[word] for word in ("money", "measures", "checks", "site") if names[word] > 1} == {}
