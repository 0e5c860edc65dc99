"""A short run of the fuzzer, and a look at whether its guards bite."""

from __future__ import annotations

import itertools
import os
import random
import warnings
from pathlib import Path

import pytest

from planner.errors import ConservationError, ScenarioError
from tests.fuzz import guards
from tests.fuzz.__main__ import fuzz
from tests.fuzz.guards import FaultError, Watch, guarded, verdict
from tests.fuzz.mutations import mutate, scale_numbers

INPUTS = 200


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


def test_spoiled_files_are_read_or_refused(watch: Watch, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        endings, faults, slowest = fuzz(
            INPUTS, seed=int(os.environ.get("PLANNER_FUZZ_SEED", "2")), watch=watch, folder=tmp_path
        )
    assert faults == []
    assert slowest < 6 * guards.TIME_LIMIT_S
    refused = sum(number for name, number in endings.items() if name.endswith("refused"))
    assert INPUTS * 0.3 < refused < INPUTS  # most are spoiled for good, and some are not


def test_a_hang_is_found(watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "TIME_LIMIT_S", 1)
    with pytest.raises(FaultError, match="took more than 1 s"), guarded(watch, tmp_path):
        sum(1 for _ in itertools.count())


def test_a_gigabyte_is_found(watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MEMORY_LIMIT_BYTES", 1 << 20)
    with pytest.raises(FaultError, match="MiB"), guarded(watch, tmp_path):
        pass


@pytest.mark.parametrize("deed", ["write", "mkdir", "rename"])
def test_a_file_in_the_wrong_place_is_found(watch: Watch, tmp_path: Path, deed: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("")
    stray = tmp_path / "stray"
    deeds = {
        "write": lambda: stray.write_text("x"),
        "mkdir": stray.mkdir,
        "rename": lambda: (tmp_path / "in" / "a").rename(stray),
    }
    with pytest.raises(FaultError, match="wrote outside"), guarded(watch, tmp_path / "in"):
        deeds[deed]()  # type: ignore[operator]


def test_a_file_in_its_place_is_not(watch: Watch, tmp_path: Path) -> None:
    with guarded(watch, tmp_path):
        (tmp_path / "fine").write_text("x")


def _raise(error: Exception) -> None:
    raise error


def test_only_refusals_meant_for_the_user_count_as_such() -> None:
    assert verdict(lambda: _raise(ScenarioError("no"))) == "refused"
    assert verdict(lambda: None) == "accepted"
    for error in (ConservationError("ours"), KeyError("x"), RecursionError()):
        with pytest.raises(type(error)):
            verdict(lambda error=error: _raise(error))  # type: ignore[misc]


def test_mutations_differ_and_can_be_had_again(tiny: str) -> None:
    made = [mutate(tiny.encode(), random.Random(i), is_yaml=True) for i in range(100)]
    assert made == [mutate(tiny.encode(), random.Random(i), is_yaml=True) for i in range(100)]
    assert len(set(made)) > 80
    assert scale_numbers(tiny.encode(), random.Random(1)) != tiny.encode()
