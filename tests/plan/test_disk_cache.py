"""Plans are the same with what earlier commands kept, without it, and with whatever else lies in its folder."""

import copyreg
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import disk_cache
from planner.disk_cache import DiskCache
from planner.errors import CapacityError
from planner.plan import reuse
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.scenario.loading import load_scenario
from tests.conftest import ROOT
from tests.plan.test_reuse import differences

TWO_WRITERS = """
import sys
from planner.disk_cache import DiskCache
from planner.errors import CapacityError
cache = DiskCache()
for turn in range(300):
    cache.write(f"key {turn % 10}", [turn % 10] * 5000)
    for (figure,) in [cache.read(f"key {turn % 10}")]:
        assert figure == [turn % 10] * 5000
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of this test's own; returns where its entries are."""
    monkeypatch.delenv(disk_cache.NO_CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    disk_cache._folder.cache_clear()
    reuse.keep_on(DiskCache())
    yield tmp_path / "cache" / "datacenter-planner" / "plans"
    reuse.keep_on()
    disk_cache._folder.cache_clear()


Compile = Callable[..., Plan]


@pytest.fixture
def compiled(write: Any) -> Compile:
    """Compile the tiny scenario with overrides, as a process that knows nothing yet."""

    def compiled(*overrides: str) -> Plan:
        reuse._place.cache_clear()
        return build_plan(load_scenario(write(), overrides))

    return compiled


def files(home: Path) -> list[Path]:
    return sorted(home.iterdir())


def test_a_plan_is_the_same_computed_and_read(home: Path, compiled: Compile) -> None:
    reuse.keep_on()
    without = compiled()
    reuse.keep_on(DiskCache())
    assert not differences(compiled(), without)
    kept = {path: path.stat().st_mtime_ns for path in files(home)}
    assert len(kept) > 10
    assert not differences(compiled(), without)
    # All was found: nothing is written anew.
    assert {path: path.stat().st_mtime_ns for path in files(home)} == kept


def test_what_was_kept_is_what_is_read(home: Path, compiled: Compile) -> None:
    compiled()
    DiskCache().write("figure", np.arange(6.0))
    ((found),) = DiskCache().read("figure")
    assert found.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert DiskCache().read("another figure") == ()


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "foreign", "swapped", "folder"])
def test_what_is_damaged_is_computed(home: Path, compiled: Compile, damage: str) -> None:
    without = compiled()
    entries = files(home)
    for path, other in zip(entries, [*entries[1:], entries[0]], strict=True):
        content = path.read_bytes()
        if damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "flipped":
            path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
        elif damage == "foreign":
            path.write_bytes(pickle.dumps("something else"))
        elif damage == "swapped":
            other.write_bytes(content)
        else:
            path.unlink()
            path.mkdir()
    assert not differences(compiled(), without)


def test_an_entry_runs_no_code(home: Path, tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(tmp_path / "run"),)

    DiskCache().write("key", Code())
    assert DiskCache().read("key") == ()
    assert not (tmp_path / "run").exists()
    # A name that a module of ours imports is none of its own.
    DiskCache().write("key", subprocess.Popen)
    assert DiskCache().read("key") == ()


def test_an_error_is_read_whatever_else_pickles_errors(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(copyreg.dispatch_table, CapacityError, lambda _: (os.getpid, ()))
    DiskCache().write("key", CapacityError("does not fit"))
    ((error),) = DiskCache().read("key")
    assert isinstance(error, CapacityError)
    assert str(error) == "does not fit"


def test_another_version_finds_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DiskCache().write("key", 1)
    assert DiskCache().read("key") == (1,)
    monkeypatch.setattr(disk_cache, "code_sha256", lambda: "other code")
    assert DiskCache().read("key") == ()


def test_only_what_decides_a_figure_makes_another(home: Path, compiled: Compile) -> None:
    compiled()
    kept = len(files(home))
    compiled("clusters.h200.accelerator_price_usd=20000", "finance.discount_rate_per_year=0.2")
    assert len(files(home)) == kept
    compiled("workloads.chat.slo.ttft_s=3")
    assert len(files(home)) > kept


def test_an_overlay_of_the_catalogue_makes_others(
    home: Path, compiled: Compile, tmp_path: Path
) -> None:
    compiled()
    kept = len(files(home))
    overlay = tmp_path / "own.yaml"
    overlay.write_text(
        "accelerators: {H200: {hbm_tb_per_s: {value: 4.0, source: own measurement, grade: C}}}\n"
    )
    change = f"catalog.overlay={overlay}"
    reuse.keep_on()
    without = compiled(change)
    reuse.keep_on(DiskCache())
    assert not differences(compiled(change), without)
    assert len(files(home)) > kept


def test_two_writers_leave_whole_entries(home: Path) -> None:
    words = [sys.executable, "-c", TWO_WRITERS]
    writers = [subprocess.Popen(words, cwd=ROOT) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(files(home)) == 10


def test_the_folder_is_bounded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "MOST_BYTES", 100_000)
    monkeypatch.setattr(disk_cache, "_WRITES_PER_LOOK", 5)
    cache = DiskCache()
    for number in range(100):
        cache.write(f"key {number}", bytes(10_000))
    assert sum(path.stat().st_size for path in files(home)) < 100_000 + 5 * 11_000
    # The oldest are gone.
    assert cache.read("key 99")
    assert not cache.read("key 0")


def test_it_may_be_deleted_at_any_time(home: Path) -> None:
    cache = DiskCache()
    cache.write("key", 1)
    for path in files(home):
        path.unlink()
    home.rmdir()
    assert cache.read("key") == ()
    cache.write("key", 1)


def test_a_folder_that_others_may_enter_is_not_used(home: Path) -> None:
    DiskCache().write("key", 1)
    assert home.stat().st_mode & 0o077 == 0
    home.chmod(0o755)
    disk_cache._folder.cache_clear()
    assert DiskCache().read("key") == ()


def test_without_a_home_everything_works(
    home: Path,
    compiled: Compile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    disk_cache._folder.cache_clear()
    compiled()
    assert capsys.readouterr() == ("", "")


def test_an_environment_variable_leaves_it_alone(
    home: Path, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(disk_cache.NO_CACHE, "1")
    disk_cache._folder.cache_clear()
    compiled()
    assert not home.exists()
