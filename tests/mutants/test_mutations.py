"""The mutants themselves: each compiles, changes its file, and the sample is the same from run to run."""

from __future__ import annotations

import pytest

from tests.mutants.mutations import (
    ROOMS,
    ROOT,
    Mutant,
    file_with,
    mutants_of,
    once_unnoticed,
    sample,
)


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    return sample(400)


def test_the_sample_is_fixed_and_of_every_room(mutants: list[Mutant]) -> None:
    assert sample(40, ("finance",)) == sample(400, ("finance",))[:40]
    assert len({(mutant.file, mutant.start, mutant.after) for mutant in mutants}) == 400
    assert {mutant.file.split("/")[1] for mutant in mutants} == set(ROOMS)


def test_a_mutant_is_a_program_that_differs(mutants: list[Mutant]) -> None:
    for mutant in [*mutants[:40], *once_unnoticed()]:
        source = (ROOT / mutant.file).read_text(encoding="utf-8")
        assert source[mutant.start :].startswith(mutant.before), mutant
        assert mutant.text != source, mutant
        compile(mutant.text, mutant.file, "exec")


def test_messages_and_types_are_left_alone() -> None:
    changed = {mutant.before for mutant in mutants_of(file_with("1.0 + change_per_year"))}
    assert "1.0 + change_per_year" in changed
    assert not any("NDArray" in text or text.startswith('"') for text in changed)
