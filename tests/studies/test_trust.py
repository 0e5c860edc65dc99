"""A study owns its inputs, its folder and its rows: what is edited, damaged or another's is found and named."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import version
from planner.catalog.calibration import SHIPPED_CALIBRATION
from planner.errors import ScenarioError
from planner.files import MANIFEST, WORK, FolderLock
from planner.studies import replicate, work
from planner.studies.analysis import open_store
from planner.studies.prepare import Prepared, prepare
from planner.studies.replicate import NOT_RUN, Replicator
from planner.studies.store import SINGLE, Store
from tests.conftest import TINY, WriteScenario, files_of
from tests.studies.conftest import SMALL
from tests.studies.test_clearing import done
from tests.studies.test_runner import finish

GROWING = TINY.replace(
    "requests_per_s: 5\n", "requests_per_s: 5\n    growth: {kind: csv, file: growth.csv}\n"
)
OVERLAY = "accelerators: {{H200: {{accelerator_price_usd: {{value: {price}, source: a quote, date: 2026-01-01, grade: C}}}}}}"  # noqa: E501


@pytest.fixture
def growing(study_file: WriteScenario, tmp_path: Path) -> Path:
    """A study with a growth table and, in its second scenario, an overlay and a calibration of its own."""
    second = "set: {catalog: {overlay: own.yaml}, calibration: mine.yaml, clusters: {mi325x: null, h200: {nodes: 6}}}"
    path = study_file(SMALL.replace("set: {clusters: {mi325x: null, h200: {nodes: 6}}}", second))
    (tmp_path / "tiny.yaml").write_text(GROWING)
    (tmp_path / "growth.csv").write_text("date,multiplier\n2026-01-01,1\n2026-03-01,1.5\n")
    (tmp_path / "own.yaml").write_text(OVERLAY.format(price=25000))
    (tmp_path / "mine.yaml").write_bytes(SHIPPED_CALIBRATION.read_bytes())
    return path


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        (
            "growth.csv",
            "date,multiplier\n2026-01-01,1\n2026-03-01,3\n",
            r"the file both: growth\.csv, the file nvidia",
        ),
        (
            "own.yaml",
            OVERLAY.format(price=26000),
            r"the catalogue, the file nvidia: own\.yaml changed",
        ),
        (
            "mine.yaml",
            SHIPPED_CALIBRATION.read_text().replace("\nrows: ", "\nrows: 1"),
            r"the file nvidia: mine\.yaml changed",
        ),
    ],
)
def test_a_file_edited_before_a_study_goes_on_is_named(
    growing: Path, tmp_path: Path, file: str, content: str, named: str
) -> None:
    done(prepare(growing), tmp_path / "o")
    done(prepare(growing), tmp_path / "o", 16)  # as it was, it may
    (tmp_path / file).write_text(content)
    with pytest.raises(ScenarioError, match=named):
        open_store(prepare(growing), tmp_path / "o", resume=True)


def test_workers_have_the_study_s_files_and_none_of_their_own(
    growing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(growing)
    setup = prepared.setup(prepared.montecarlo())
    here = Replicator(setup).run(0, 2)
    sent = pickle.dumps(setup)
    (tmp_path / "growth.csv").write_text(
        "date,multiplier\n2026-01-01,9\n"
    )  # as a worker's stale folder has it
    (tmp_path / "own.yaml").unlink()
    (tmp_path / "mine.yaml").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    there = Replicator(pickle.loads(sent)).run(0, 2)
    assert there.errors == ()
    assert np.array_equal(there.headlines, here.headlines, equal_nan=True)
    with pytest.raises(ScenarioError, match="was not read when the study began"):
        pickle.loads(sent).scenarios[0].scenario.document.file_at(("workloads",), "other.csv")


def test_other_code_is_another_study(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(study)
    done(prepared, tmp_path / "o")
    assert len(version.code_sha256()) == 64
    monkeypatch.setattr(work, "code_sha256", lambda: "0" * 64)
    with pytest.raises(ScenarioError, match="the planner's code changed"):
        open_store(prepared, tmp_path / "o", resume=True)
    monkeypatch.setattr(replicate, "code_sha256", lambda: "0" * 64)
    with pytest.raises(ScenarioError, match="a worker has another version of the planner"):
        Replicator(prepared.setup(prepared.montecarlo())).run(0, 1)


def test_the_hash_of_the_code_sees_what_computes_and_not_what_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "planner"
    (package / "output").mkdir(parents=True)
    for name in ("__init__.py", "engine.py", "facts.yaml", "output/page.py"):
        (package / name).write_text("1\n")
    monkeypatch.setattr(version, "__file__", str(package / "version.py"))

    def now() -> str:
        version.code_sha256.cache_clear()
        return version.code_sha256()

    try:
        before = now()
        (package / "output" / "page.py").write_text("2\n")
        assert now() == before
        (package / "facts.yaml").write_text("2\n")
        assert now() != before
    finally:
        version.code_sha256.cache_clear()


def failing(monkeypatch: pytest.MonkeyPatch, when: Callable[[Any, int], Exception | None]) -> None:
    """Let runs fail where the function returns an error."""
    real = Replicator.simulate

    def simulate(self: Replicator, which: int, values: Any, chance: int, shared: Any = None) -> Any:
        if which == 1 and (error := when(values, chance)) is not None:
            raise error
        return real(self, which, values, chance, shared)

    monkeypatch.setattr(Replicator, "simulate", simulate)


def test_a_run_that_failed_for_want_of_memory_is_tried_again(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(study)
    done(prepared, tmp_path / "whole", 16, made=False)
    with monkeypatch.context() as patched:
        failing(patched, lambda values, chance: MemoryError() if chance == 10 else None)
        failed = done(prepared, tmp_path / "o", 16, made=False)
    assert [failure.message for failure in failed.failures()] == [f"{NOT_RUN}MemoryError: "]
    ran: list[int] = []
    real = Replicator.run

    def noted(self: Replicator, first: int, last: int, *nested: Any) -> Any:
        ran.append(first)
        return real(self, first, last, *nested)

    monkeypatch.setattr(Replicator, "run", noted)
    done(prepared, tmp_path / "o", 16, made=False)
    assert ran == [8]
    assert files_of(tmp_path / "o") == files_of(tmp_path / "whole")


def test_dropped_replications_are_counted_and_what_they_share_is_said(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(study)
    place = prepared.inputs.names.index("site.electricity_usd_per_kwh")
    failing(
        monkeypatch,
        lambda values, _: ValueError(f"dear: {values[place]}") if values[place] > 0.11 else None,
    )
    finished = finish(prepared, tmp_path / "s", rows=24)
    dear = int((finished.input("site.electricity_usd_per_kwh") > 0.11).sum())
    assert 2 <= dear <= 12
    rows = [
        line.split(",") for line in (tmp_path / "s" / "percentiles.csv").read_text().splitlines()
    ]
    assert rows[0][-1] == "replications"
    completed = {row[0]: int(row[-1]) for row in rows[1:] if row[1:3] == ["cost_usd", "mean"]}
    assert completed == {"both": 24, "nvidia": 24 - dear}
    for name in ("monthly_bands", "decision", "sensitivity", "distribution"):
        table = (tmp_path / "s" / f"{name}.csv").read_text().splitlines()
        assert table[0].endswith((",replications", ",all_replications"))
        assert [row for row in table if row.startswith("nvidia,")][-1].endswith(f",{24 - dear}")
    said = " ".join(finished.dropped())
    assert f"{dear} of 24 replications of nvidia could not be run ({dear / 24:.1%})" in said
    assert json.loads((tmp_path / "s" / MANIFEST).read_text())["dropped"] == finished.dropped()
    assert "could not be run" in (tmp_path / "s" / "report.html").read_text()


def test_a_folder_has_one_writer(study: Path, tmp_path: Path) -> None:
    prepared = prepare(study)
    store = open_store(prepared, tmp_path / "o")
    with pytest.raises(ScenarioError, match=rf"o: is being written by process {os.getpid()} on "):
        open_store(prepared, tmp_path / "o", restart=True)
    store.close()
    open_store(prepared, tmp_path / "o").close()
    assert not list(tmp_path.glob("o")) + list(tmp_path.glob(".o.lock"))


HOLDER = "import sys, time; from planner.files import FolderLock; from pathlib import Path\n\
lock = FolderLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)\n"


def test_a_stale_lock_is_taken_over_with_a_word(study: Path, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "o")], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ScenarioError, match=f"is being written by process {holder.pid}"):
        open_store(prepare(study), tmp_path / "o")
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert (tmp_path / ".o.lock").exists()
    store = open_store(prepare(study), tmp_path / "o")
    assert f"left by process {holder.pid} on " in store.notes[0]
    store.close()
    assert not (tmp_path / ".o.lock").exists()


def test_two_names_of_one_folder_are_one_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "o").mkdir()
    monkeypatch.chdir(tmp_path / "o")
    with FolderLock(tmp_path / "o"), pytest.raises(ScenarioError, match="is being written"):
        FolderLock(Path())


def stopped(prepared: Prepared, folder: Path, rows: int = 16) -> Store:
    """Leave a study of made-up rows in shards, as a killed process does."""
    from tests.benchmarks.study_memory import made_up  # noqa: PLC0415 - beside its use

    store = open_store(prepared, folder)
    for part in made_up(
        store.setup, [(first, first + store.batch) for first in range(0, rows, store.batch)]
    ):
        store.write(part)
        store.flush()
    store.close()
    return store


def flipped(path: Path, chance: random.Random) -> None:
    """Turn one bit of a file round."""
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def test_a_bit_flipped_in_a_shard_is_found_and_its_rows_are_run_again(
    study: Path, tmp_path: Path
) -> None:
    prepared = prepare(study)
    stopped(prepared, tmp_path / "sound")
    chance = random.Random(4)
    for _ in range(12):
        shutil.rmtree(tmp_path / "o", ignore_errors=True)
        shutil.copytree(tmp_path / "sound", tmp_path / "o")
        shard = sorted((tmp_path / "o" / WORK).glob("*.parquet"))[1]
        flipped(shard, chance)
        store = open_store(prepared, tmp_path / "o", resume=True)
        assert store.finished().tolist() == [0]
        (note,) = store.notes
        assert note.startswith(f"{shard} is damaged")
        assert note.endswith("the file is set aside and its replications are run again")
        assert shard.with_name(f"{shard.name}.bad").exists()
        store.close()


def test_a_bit_flipped_in_a_finished_study_is_found(study: Path, tmp_path: Path) -> None:
    prepared = prepare(study)
    done(prepared, tmp_path / "o")
    before = (tmp_path / "o" / SINGLE).read_bytes()
    chance = random.Random(5)
    for _ in range(6):
        (tmp_path / "o" / SINGLE).write_bytes(before)
        flipped(tmp_path / "o" / SINGLE, chance)
        store = open_store(prepared, tmp_path / "o", resume=True)
        assert store.notes == [
            f"{tmp_path / 'o' / SINGLE} is damaged; its replications are run again"
        ]
        store.close()
        store = open_store(prepared, tmp_path / "o", resume=True)
        assert store.finished().tolist() == []
        assert "is damaged; its replications are run again" in store.notes[0]
        store.close()
    done(prepared, tmp_path / "o")
    assert (tmp_path / "o" / SINGLE).read_bytes() == before


def test_rows_of_another_study_and_files_of_a_stranger_are_told_apart(
    study: Path, tmp_path: Path
) -> None:
    prepared = prepare(study)
    other = prepare(study, seed=7)
    stopped(prepared, tmp_path / "o")
    stopped(other, tmp_path / "p")
    for shard in (tmp_path / "p" / WORK).glob("*.parquet"):
        shutil.copy(shard, tmp_path / "o" / WORK)
    store = open_store(prepared, tmp_path / "o", resume=True)
    assert len(store.finished()) == 2
    assert ["belongs to another study" in note for note in store.notes] == [True, True]
    store.close()
    (tmp_path / "o" / WORK / "thesis.txt").write_text("mine")
    with pytest.raises(
        ScenarioError, match=r"holds 'shards/thesis\.txt', which planner did not write"
    ):
        open_store(prepared, tmp_path / "o", resume=True)
