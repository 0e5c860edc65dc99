"""The same rows whoever runs them, whatever is interrupted, and failures that stay single."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.answers.study import write_study
from planner.errors import ScenarioError
from planner.studies import engines, runner
from planner.studies.analysis import Finished
from planner.studies.decision import IntervalEstimate, Targeted, mean_estimate
from planner.studies.engines import Workforce
from planner.studies.prepare import Prepared, prepare
from planner.studies.replicate import Replicator, headlines, objective_names
from planner.studies.runner import Goal, Progress, Until, batch_size, run_rows
from planner.studies.store import Store, identity
from tests.conftest import WriteScenario, files_of
from tests.studies.conftest import ON_VLLM, SMALL

ROWS = 20
"""Two batches and a half."""


def store_of(prepared: Prepared, folder: Path, **options: bool) -> Store:
    setup = prepared.setup(prepared.montecarlo())
    store = Store(folder, setup, identity(prepared.study, setup, batch_size(len(setup.scenarios))))
    store.open(**{"resume": False, "restart": False, **options})
    return store


def finish(
    prepared: Prepared, folder: Path, rows: int = ROWS, force: Workforce | None = None, **more: Any
) -> Finished:
    store = store_of(
        prepared, folder, **{k: v for k, v in more.items() if k in ("resume", "restart")}
    )
    goal = Goal(
        rows=rows, objective=prepared.objective.name, scramblings=4, until=more.get("until", ())
    )
    try:
        count = run_rows(store, goal, force or Workforce(), more.get("watch"))
        finished = Finished(prepared=prepared, store=store, rows=count)
        write_study(finished)
    finally:
        store.close()
    return finished


@pytest.fixture
def prepared(study_file: WriteScenario) -> Prepared:
    return prepare(study_file())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A study by one worker at one go, whose folder no test touches."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "tiny.yaml").write_text(ON_VLLM)
    (folder / "study.yaml").write_text(SMALL)
    return finish(prepare(folder / "study.yaml"), folder / "s")


@pytest.mark.parametrize(
    "scheduler", [None, pytest.param(engines.LOCAL_DASK, marks=pytest.mark.prove)]
)
def test_two_workers_give_the_bytes_of_one(
    prepared: Prepared, tmp_path: Path, uninterrupted: Finished, scheduler: str | None
) -> None:
    if scheduler is not None:
        pytest.importorskip("distributed")
    finish(prepared, tmp_path / "s", force=Workforce(workers=2, scheduler=scheduler))
    one = files_of(uninterrupted.store.folder)
    assert set(one) >= {
        "samples.csv",
        "percentiles.csv",
        "monthly_bands.csv",
        "decision.csv",
        "sensitivity.csv",
    }
    assert files_of(tmp_path / "s") == one


def test_an_interrupted_study_is_resumed_to_the_same_bytes(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: Finished
) -> None:
    seen = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish(prepared, tmp_path / "cut" / "s", watch=stop)
    assert [progress.done for progress in seen] == [8, 16]
    with pytest.raises(ScenarioError, match=r"unfinished study \(continue it with --resume"):
        store_of(prepared, tmp_path / "cut" / "s")
    shard = sorted((tmp_path / "cut" / "s" / "shards").iterdir())[1]
    shard.write_bytes(shard.read_bytes()[:100])  # as a lost machine may leave it
    ran = []
    real = Replicator.run

    def noted(self: Replicator, first: int, last: int, *nested: Any) -> Any:
        ran.append((first, last))
        return real(self, first, last, *nested)

    monkeypatch.setattr(Replicator, "run", noted)
    finish(prepared, tmp_path / "cut" / "s", resume=True)
    assert ran == [(8, 16), (16, 24)]  # what was whole is not run again
    assert files_of(tmp_path / "cut" / "s") == files_of(uninterrupted.store.folder)


def test_a_finished_study_is_extended_to_the_same_bytes(
    prepared: Prepared, tmp_path: Path, uninterrupted: Finished
) -> None:
    finish(prepared, tmp_path / "grown" / "s", rows=12)
    finish(prepared, tmp_path / "grown" / "s", resume=True)
    assert files_of(tmp_path / "grown" / "s") == files_of(uninterrupted.store.folder)
    finish(
        prepared, tmp_path / "grown" / "s", rows=8
    )  # without --resume a finished study is replaced
    assert json.loads((tmp_path / "grown" / "s" / "manifest.json").read_text())["replications"] == 8


def test_a_finished_study_is_not_cut_short(
    prepared: Prepared, tmp_path: Path, uninterrupted: Finished
) -> None:
    shutil.copytree(uninterrupted.store.folder, tmp_path / "s")
    before = files_of(tmp_path / "s")
    with pytest.raises(
        ScenarioError, match=r"holds 20 finished replications, more than the 8 requested"
    ):
        finish(prepared, tmp_path / "s", rows=8, resume=True)
    assert files_of(tmp_path / "s") == before


def test_another_version_of_the_study_is_refused(
    prepared: Prepared, study_file: WriteScenario, tmp_path: Path
) -> None:
    finish(prepared, tmp_path / "s", rows=8)
    other = prepare(study_file(SMALL.replace("h200: {nodes: 6}", "h200: {nodes: 7}")))
    with pytest.raises(
        ScenarioError, match=r"another version of this study: scenario nvidia changed"
    ):
        store_of(other, tmp_path / "s", resume=True)
    reseeded = prepare(study_file(), seed=5)
    with pytest.raises(ScenarioError, match="the design, the seed"):
        store_of(reseeded, tmp_path / "s", resume=True)


def test_one_failing_run_is_recorded_and_takes_nothing_down(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Replicator.simulate

    def simulate_or_fail(
        self: Replicator, which: int, values: Any, chance: int, shared: Any = None
    ) -> Any:
        if (which, chance) == (1, 17):
            raise RuntimeError("a bearing\nran hot")
        return real(self, which, values, chance, shared)

    monkeypatch.setattr(Replicator, "simulate", simulate_or_fail)
    finished = finish(prepared, tmp_path / "s", rows=24)
    (failure,) = finished.failures()
    assert (failure.replication, failure.scenario, failure.message) == (
        17,
        "nvidia",
        "RuntimeError: a bearing",
    )
    lines = (tmp_path / "s" / "samples.csv").read_text().splitlines()
    assert next(line for line in lines if line.startswith("17,nvidia")).endswith(
        "RuntimeError: a bearing"
    )
    assert np.isnan(finished.output("cost_usd")[17]).tolist() == [False, True]
    assert all(np.isfinite(c.probability_better.value) for c in finished.decisions())


@pytest.mark.prove
def test_a_study_stops_when_its_interval_is_narrow_enough(
    study_file: WriteScenario, tmp_path: Path
) -> None:
    prepared = prepare(
        study_file("\n".join(line for line in SMALL.splitlines() if "nvidia:" not in line))
    )
    wide = finish(prepared, tmp_path / "a" / "s", rows=160, until=(Until(0.2),))
    assert wide.rows == 128  # the fewest: 32 rows of each of 4 randomisations
    again = finish(
        prepared, tmp_path / "b" / "s", rows=160, until=(Until(0.2),), force=Workforce(workers=2)
    )
    assert files_of(tmp_path / "b" / "s") == files_of(tmp_path / "a" / "s")
    reached = mean_estimate(again.output(prepared.objective.name)[:, 0], 4).relative
    assert reached <= 0.2


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("0.5%", [Until(0.005)]),
        ("0.005", [Until(0.005)]),
        ("mean = 2 %", [Until(0.02)]),
        ("p90=2%", [Until(0.02, "p90")]),
        ("p2.5=0.1", [Until(0.1, "p2.5")]),
        ("best=1%", [Until(0.01, "best")]),
        ("0.5%, p10=2%,slo=4%", [Until(0.005), Until(0.02, "p10"), Until(0.04, "slo")]),
    ],
)
def test_what_may_end_a_study_is_read(text: str, until: list[Until]) -> None:
    assert list(Until.read(text)) == until


@pytest.mark.parametrize(
    "text", ["half", "200%", "0", "p0=1%", "p100=1%", "worst=1%", "p90", "best=e%", "1%,", "1%,slo"]
)
def test_what_cannot_end_a_study_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="p90=2%"):
        Until.read(text)


def test_a_study_looks_at_the_figure_it_is_told() -> None:
    """Of 4 scramblings and three plans, of which the cheapest misses its SLO target: against numpy, by hand."""
    random = np.random.default_rng(3)
    objective = random.normal([[9.0, 10.0, 10.5]], 1.0, (400, 3))
    short = np.where([[True, False, False]], 0.2, np.zeros((400, 3)))
    rows = np.stack([objective, short, np.full((400, 3), 12.0)], axis=1)
    plans = tuple(Targeted(name, 0.99, 0.9) for name in ("cheap", "sound", "dear"))

    def found(until: Until) -> IntervalEstimate:
        goal = Goal(rows=400, objective="cost_usd", scramblings=4, until=(until,), targeted=plans)
        columns = list(rows[:, : len(goal.columns)].transpose(1, 2, 0))
        return goal.estimate(until, columns, np.arange(400))

    assert found(Until(0.1)).value == pytest.approx(objective[:, 0].mean())
    ninth = found(Until(0.1, "p90"))
    each = [
        np.percentile(objective[which::4, 0], 90, method="median_unbiased") for which in range(4)
    ]
    assert ninth.value == pytest.approx(
        np.percentile(objective[:, 0], 90, method="median_unbiased")
    )
    assert ninth.half_width == pytest.approx(
        3.182446 * np.std(each, ddof=1) / 2, rel=1e-6
    )  # Student's t, 3 degrees
    best = found(Until(0.1, "best"))
    assert best.value == pytest.approx((objective[:, 1] < objective[:, 2]).mean())
    assert Until(0.1, "best").width(best) == best.half_width
    assert Until(0.1, "p90").width(ninth) == ninth.half_width / ninth.value


@pytest.mark.parametrize(
    ("shares", "half_width"),
    [
        # 0.9 asked of 400 each: one plan meets it, one misses it, so no verdict is open.
        ((0.99, 0.5), 0.0),
        # At 0.9 itself nobody can say: the width is that of the open one.
        ((0.99, 0.9), 3.182446 * np.std([0.94, 0.92, 0.88, 0.86], ddof=1) / 2),
    ],
)
def test_a_verdict_that_is_given_needs_no_narrower_interval(
    shares: tuple[float, float], half_width: float
) -> None:
    by_scrambling = {0.99: [0.99] * 4, 0.5: [0.5] * 4, 0.9: [0.94, 0.92, 0.88, 0.86]}
    short = np.zeros((2, 400))
    for plan, share in enumerate(shares):
        for scrambling, met in enumerate(by_scrambling[share]):
            rows = np.arange(100)
            short[plan, scrambling::4] = np.where(rows < round(100 * met), 0.0, 0.2)
    columns = [np.ones((2, 400)), short, np.full((2, 400), 12.0)]
    plans = (Targeted("one", 0.99, 0.9), Targeted("two", 0.99, 0.9))
    rule = Until(0.04, "slo")
    goal = Goal(rows=400, objective="cost_usd", scramblings=4, until=(rule,), targeted=plans)
    (reached,) = goal.reached(columns, np.arange(400))
    assert reached.half_width == pytest.approx(half_width, rel=1e-6)
    # Rows that share a simulation count once: of a hundred met in sixteen simulations nothing is known yet.
    (shared,) = goal.reached(columns, np.arange(400) % 16)
    assert shared.half_width > 0.04


def test_a_study_ends_where_all_its_rules_are_met() -> None:
    """The figures are made up, so the end is known: at the first look after which every interval is narrow."""
    rules = (Until(0.2), Until(0.02, "p90"))
    goal = Goal(rows=1024, objective="cost_usd", scramblings=4, until=rules)
    random = np.random.default_rng(5)
    headline = random.normal(10.0, 3.0, 1024)
    ends = {}
    for until in ((rules[0],), (rules[1],), rules):
        looks = runner._Looks(replace(goal, until=until), 16)
        end = None
        for start in range(0, 1024, 16):
            part = headline[start : start + 16, np.newaxis, np.newaxis]
            looks.add(start, part, np.arange(start, start + 16))
            end = end or looks.end()
        ends[until] = end or 0
    first, second, both = ends.values()
    assert first == 128  # the fewest: 32 rows of each of 4 randomisations
    assert both == second > first
    # One that has more rows already keeps them.
    looks = runner._Looks(replace(goal, until=rules[:1]), 16, least_rows=640)
    looks.add(0, headline[:, np.newaxis, np.newaxis], np.arange(1024))
    assert looks.end() == 640
    assert looks.expected_rows() >= 640


def test_replication_17_is_the_same_run_alone(prepared: Prepared, uninterrupted: Finished) -> None:
    replicator = Replicator(prepared.setup(prepared.montecarlo()))
    values, chance = replicator.setup.values(17, 18)
    alone = headlines(replicator.simulate(1, values[0], int(chance[0])))
    stored = [uninterrupted.output(name)[17, 1] for name in objective_names()]
    assert np.array_equal(alone, stored, equal_nan=True)


def test_a_run_does_not_depend_on_what_its_worker_ran_before(study_file: WriteScenario) -> None:
    line = "uncertain:\n  workloads.chat.slo.ttft_s: {kind: uniform, low: 0.5, high: 4}\n"
    line += "  workloads.chat.lengths.input.mean: {kind: uniform, low: 300, high: 450}\n"
    prepared = prepare(study_file(SMALL.replace("uncertain:\n", line)))
    setup = prepared.setup(prepared.montecarlo())
    busy = Replicator(setup)
    fresh = Replicator(setup)
    busy.run(0, 3)
    assert np.array_equal(busy.run(20, 21).headlines, fresh.run(20, 21).headlines, equal_nan=True)


def test_scenarios_of_a_study_share_their_chance(study_file: WriteScenario, tmp_path: Path) -> None:
    text = SMALL.replace("set: {clusters: {mi325x: null, h200: {nodes: 6}}}", "set: {}")
    finished = finish(prepare(study_file(text)), tmp_path / "s", rows=16)
    table = finished.output("cost_usd")
    assert np.array_equal(table[:, 0], table[:, 1])


def test_a_scheduler_that_does_not_answer_is_one_message(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "_CONNECT_S", 1)
    with pytest.raises(ScenarioError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        finish(prepared, tmp_path / "s", force=Workforce(scheduler="tcp://127.0.0.1:9"))


def test_designs_without_correlations_leave_them_out(study_file: WriteScenario) -> None:
    text = SMALL + (
        "correlations:\n  - {between: [clusters.h200.accelerator_price_usd, site.electricity_usd_per_kwh], rank: 0.9}\n"
    )
    prepared = prepare(study_file(text))
    values, _ = prepared.setup(prepared.tornado()).values(0, 11)
    assert (
        len(np.unique(values[:, 2])) == 3
    )  # its own P10 and P90, and the median: no other input moves it


def test_a_study_without_inputs_varies_chance_alone(
    study_file: WriteScenario, tmp_path: Path
) -> None:
    text = (
        "name: s\nscenarios: {a: {extends: tiny.yaml}}\nthroughput_error: false\nscramblings: 4\n"
    )
    prepared = prepare(study_file(text))
    finished = finish(prepared, tmp_path / "s", rows=16)
    assert finished.output("cost_usd").std() > 0
    with pytest.raises(ScenarioError, match="no uncertain input to vary"):
        prepared.tornado()
