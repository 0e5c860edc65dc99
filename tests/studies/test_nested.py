"""Money that is drawn again without simulating: what is money alone, and designs that know what rows share."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from planner.arrays import Floats
from planner.plan import repricing
from planner.plan.build import build_plan
from planner.plan.repricing import same_machines
from planner.run.simulate import run_engine
from planner.scenario.loading import load_scenario
from planner.studies import designs
from planner.studies.decision import IntervalEstimate, estimates, of_simulations, percentiles
from planner.studies.designs import MonteCarlo, PointSet
from planner.studies.prepare import Prepared, prepare
from planner.studies.replicate import Replicator, headlines
from planner.studies.runner import SIMULATION_WORK, Progress, draws_for, money_share
from tests.conftest import ROOT, WriteScenario
from tests.engine.worlds import QUIET, scenario_of
from tests.studies.conftest import SMALL
from tests.studies.processes import files
from tests.studies.test_clearing import done

MONEY = (
    "accelerator_price_usd",
    "usd_per_kwh",
    "pue_ratio",
    "usd_per_kw_month",
    "resale_multiplier",
    "discount_rate",
)
PUE = "  site.pue_ratio: {kind: uniform, low: 1.1, high: 1.5}\n"
DOLLARS = (
    SMALL.replace("scramblings", f"{PUE}scramblings")
    + "objective: cost_usd\nthroughput_error: false\n"
)
"""A study whose objective is nearly all money."""


@pytest.mark.parametrize(
    ("study", "months", "unlike"),
    [
        ("when-to-order-study", 13, ""),
        # Orders by rule go by their prices.
        pytest.param("tutorial/purchase", 13, "accelerator_price_usd", marks=pytest.mark.prove),
        pytest.param("mixed-fleet-study", 36, "", marks=pytest.mark.prove),
    ],
)
def test_counting_money_anew_gives_the_cents_of_simulating_anew(
    study: str, months: int, unlike: str
) -> None:
    prepared = prepare(ROOT / "scenarios" / f"{study}.yaml", [f"horizon_months={months}"])
    replicator = Replicator(prepared.setup(prepared.montecarlo()))
    names = prepared.inputs.names
    money = replicator.redrawn()
    expected = {name for name in names if any(part in name for part in MONEY if part != unlike)}
    assert {names[place] for place in money} == expected
    values, chance = replicator.setup.values(0, 3)
    for which in range(len(prepared.scenarios)):
        shared = replicator.simulate(which, values[0], int(chance[0]))
        other = values[0].copy()
        other[[*money]] = values[2][[*money]]
        again = replicator.simulate(which, other, int(chance[0]))
        anew = replicator.simulate(which, other, int(chance[0]), shared)
        for column in (
            "month_index",
            "cluster_index",
            "cohort_index",
            "account_code",
            "amount_cents",
        ):
            assert np.array_equal(getattr(anew.ledger, column), getattr(again.ledger, column))
        assert np.array_equal(headlines(anew), headlines(again), equal_nan=True)
        assert not np.array_equal(headlines(anew), headlines(shared), equal_nan=True)


def poisoned(part: Any) -> Any:
    """Return a part of a plan with every figure of money that no simulation may read made unusable."""
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {
            field.name: getattr(part, field.name)
            for field in dataclasses.fields(part)
            if field.init
        }
        kept = ("warnings", "notes", "overhead_ratio", "fixed_fraction")
        given = {
            name: None if name in repricing.MONEY_FIELDS and name not in kept else poisoned(held)
            for name, held in fields.items()
            if name != "money"
        }
        if "money" in fields:
            given["money"] = dataclasses.replace(
                fields["money"], capital=None, power=None, upkeep=None
            )
        return type(part)(**given)
    return tuple(map(poisoned, part)) if type(part) is tuple else part


def test_no_simulation_reads_what_is_called_money() -> None:
    reference = ROOT / "scenarios" / "mixed-fleet.yaml"
    plan, hot = (
        build_plan(load_scenario(reference, ["horizon_months=13", f"site.pue_ratio={pue}"]))
        for pue in (1.2, 1.8)
    )
    bare = poisoned(plan)
    assert bare.clusters[1].prices_usd is None
    (_, expected), (_, read) = (run_engine(one, 7) for one in (plan, bare))
    for field in dataclasses.fields(expected):
        assert np.array_equal(getattr(expected, field.name), getattr(read, field.name)), field.name
    _, read = run_engine(hot, 7)
    assert np.array_equal(expected.served_requests, read.served_requests)
    assert np.array_equal(expected.it_kwh, read.it_kwh)
    assert read.facility_kwh.sum() > 1.3 * expected.facility_kwh.sum()


RULE = {
    "when": "utilisation_above",
    "threshold_fraction": 0.5,
    "cluster": "h200",
    "nodes": 1,
    "lead_weeks": 4,
}


@pytest.mark.parametrize(
    ("stated", "change", "is_money"),
    [
        ({}, {"site": {"pue_ratio": 1.6}}, True),
        ({"site": {"facility_power_cap_kw": 500}}, {"site": {"pue_ratio": 1.6}}, False),
        ({}, {"clusters": {"h200": {"accelerator_price_usd": 50_000}}}, True),
        (
            {"expansion": {"rules": [RULE]}},
            {"clusters": {"h200": {"accelerator_price_usd": 50_000}}},
            False,
        ),
        (
            {},
            {"workloads": {"chat": {"token_price": {"output_usd_per_million_tokens": 3.0}}}},
            True,
        ),
        ({}, {"reliability": {"failure_multiplier": 2.0}}, False),
        ({}, {"slo_target": {"attainment": 0.9}}, False),
    ],
)
def test_what_decides_in_a_simulation_is_not_money_alone(
    stated: Any, change: Any, is_money: bool
) -> None:
    before = build_plan(scenario_of(QUIET, stated))
    after = build_plan(scenario_of(QUIET, stated, change))
    assert same_machines(before, before)
    assert same_machines(before, after) is is_money


@pytest.fixture
def dollars(study_file: WriteScenario) -> Prepared:
    return prepare(study_file(DOLLARS))


def test_rows_that_share_a_simulation_are_those_simulated_apart(dollars: Prepared) -> None:
    setup = dollars.setup(dollars.tornado())
    assert [dollars.inputs.names[place] for place in setup.money] == [*dollars.inputs.names[1:]]
    together, apart = (
        Replicator(one).run(0, setup.design.period)
        for one in (setup, dataclasses.replace(setup, money=()))
    )
    assert together.headlines.tobytes() == apart.headlines.tobytes()
    assert together.monthly.tobytes() == apart.monthly.tobytes()


def test_an_input_that_moves_machines_takes_those_it_is_correlated_with_along(
    study_file: WriteScenario,
) -> None:
    pair = "{between: [workloads.*.requests_per_s, site.electricity_usd_per_kwh], rank: 0.5}"
    prepared = prepare(study_file(f"{DOLLARS}correlations: [{pair}]\n"))
    setup = prepared.setup(prepared.montecarlo())
    assert Replicator(setup).redrawn() == (1, 3)
    drawn, chance = setup.nested((1, 3), 4).values(256, 320)
    for one in np.unique(chance):
        assert [len(np.unique(column)) for column in drawn[chance == one].T] == [1, 4, 1, 4]


def test_a_nested_study_is_the_same_however_it_was_run(
    dollars: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(designs, "PILOT", 16)
    whole = done(dollars, tmp_path / "whole", 40, made=False)
    assert "3 of 4 inputs change only prices" in whole.store.notes[-1]
    assert whole.simulated().size < 32
    assert {standing.verdict.replications for standing in whole.standings()} == {
        whole.simulated().size
    }

    def interrupt(progress: Progress) -> None:
        if progress.done > 16:
            raise KeyboardInterrupt

    done(dollars, tmp_path / "parts", 12, made=False)
    with pytest.raises(KeyboardInterrupt):
        done(dollars, tmp_path / "parts", 40, made=False, watch=interrupt)
    parts = done(dollars, tmp_path / "parts", 40, made=False)
    assert np.array_equal(parts.replications, whole.replications)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def draw(draws: int, seed: int, rows: int, share: float) -> Floats:
    """Return two scenarios' outputs over the rows of a design: p + m and the like, with chance, shape (rows, 2)."""
    points = PointSet(dimensions=3, scramblings=8, seed=seed)
    design = MonteCarlo(points=points, draws=draws)
    drawn, chance = design.rows(0, rows)
    noise = np.random.default_rng(seed).standard_normal((rows, 2))[chance]
    physics, (_, money, other) = ndtri(drawn[:, 0]), ndtri(design.money_points(0, rows)).T
    mine = np.sqrt(1.0 - share) * (0.8 * physics + 0.6 * noise[:, 0]) + np.sqrt(share) * money
    theirs = (
        np.sqrt(1.0 - share) * (0.8 * physics + 0.6 * noise[:, 1]) + np.sqrt(share) * other + 0.5
    )
    return np.stack([mine, theirs], axis=1)


def figures(rows: Floats) -> list[float]:
    """Return mean, P10 and P90 of the first scenario."""
    return [float(rows.mean()), *percentiles(rows, (10, 90))]


def judged(table: Floats, scramblings: int) -> list[IntervalEstimate]:
    """Return mean, P10 and P90 of the first scenario and the share of rows in which it is less, with intervals."""
    better = (table[:, 0] < table[:, 1]).astype(np.float64)
    return [
        *estimates(table[:, 0], scramblings, figures, 3),
        *estimates(better, scramblings, lambda part: [float(part.mean())]),
    ]


def agreeing(ours: list[IntervalEstimate], theirs: list[IntervalEstimate]) -> int:
    """Return how many pairs of independent estimates differ by no more than the 95% interval of their difference."""
    pairs = zip(ours, theirs, strict=True)
    return sum(
        abs(one.value - other.value) <= np.hypot(one.half_width, other.half_width)
        for one, other in pairs
    )


def test_nested_and_plain_designs_agree_within_their_intervals() -> None:
    """Mean, P10, P90 and P(best) over 20 seeds: of 0 and ∓1.2816 for a standard normal, whatever shares it."""
    share = 0.9
    count = 4096
    # The difference is normal with mean 0.5 and variance 2·0.9 + 2·0.1·0.36.
    expected = np.array([0.0, -1.2815516, 1.2815516, 0.6425136])
    made = {
        draws: [judged(draw(draws, seed, count, share), 8) for seed in range(20)]
        for draws in (1, 6)
    }
    off = {
        draws: np.array([[one.value for one in row] for row in rows]) - expected
        for draws, rows in made.items()
    }
    for draws, rows in made.items():
        score = off[draws].mean(axis=0) / (off[draws].std(axis=0, ddof=1) / np.sqrt(20.0))
        assert (np.abs(score) < 4.0).all()  # unbiased
        inside = sum(
            one.low <= exact <= one.high
            for row in rows
            for one, exact in zip(row, expected, strict=True)
        )
        assert inside >= 68  # of 80 intervals of 95%, which have 76 on average
    assert sum(map(agreeing, made[1], made[6])) >= 68
    spread = {draws: np.sqrt((errors**2).mean(axis=0)) for draws, errors in off.items()}
    # As many independent rows would have σ/√n, √(q(1 − q)/n)/φ(z) and √(p(1 − p)/n); a quarter more is allowed.
    independent = np.array([1.0, 1.7094, 1.7094, 0.47927]) / np.sqrt(count)
    assert (spread[6] < 1.25 * independent).all()
    # Rows of a Sobol set have less still, above all their mean, of which nothing is left but the simulations' chance.
    assert (spread[6] / spread[1] < [2.45 * 1.6, 2.0, 2.0, 2.0]).all()


def test_each_draw_of_a_nested_design_stays_in_its_randomisation() -> None:
    points = PointSet(dimensions=4, scramblings=6, seed=3)
    design = MonteCarlo(points=points, draws=3)
    plain = MonteCarlo(points=points)
    begin, (drawn, chance), money = design.pilot, design.rows(0, 600), design.money_points(0, 600)
    assert begin == 288  # whole batches of 16 and of six randomisations
    assert np.array_equal(drawn[:begin], plain.rows(0, begin)[0])
    assert np.array_equal(drawn[:begin], money[:begin])
    assert np.array_equal(chance % 6, np.arange(600) % 6)
    assert np.array_equal(
        np.unique(chance, return_counts=True)[1][begin : begin + 96], np.full(96, 3)
    )
    assert np.array_equal(drawn, plain.rows(0, 600)[0][chance])
    assert len(np.unique(money)) == 2400
    parts = [
        (design.rows(*ends)[0], design.money_points(*ends))
        for ends in pairwise((0, 100, 301, 302, 600))
    ]
    for made, pieces in zip((drawn, money), zip(*parts, strict=True), strict=True):
        assert np.array_equal(np.concatenate(pieces), made)


@pytest.mark.parametrize("share", [-0.1, 0.0, 0.3, 0.5, 0.7, 0.9, 0.95, 1.0])
def test_draws_per_simulation_tell_most_in_a_given_time(share: float) -> None:
    draws = draws_for(share)
    known = min(max(share, 0.0), 0.99)
    most = np.arange(1, 100)
    variance = known + (1.0 - known) * most
    work = SIMULATION_WORK / most + 1.0
    assert variance[draws - 1] <= 1.25**2
    allowed = most[variance <= 1.25**2]
    best = allowed[np.argmin((variance * work)[allowed - 1])]
    assert abs(draws - best) <= 1  # the next whole number below the best one


def test_the_share_of_money_is_that_of_its_variance() -> None:
    generator = np.random.default_rng(5)
    money = generator.standard_normal((400, 2)) * [1.0, 1e4]
    physics = generator.standard_normal((400, 2))
    first = 3.0 * money[:, 0] + physics[:, 0]
    second = (
        first + 2e-4 * money[:, 1] + 0.5 * physics[:, 1]
    )  # the difference has 4 of 4.25 from money
    assert money_share(money, first[:, None]) == pytest.approx(0.9, abs=0.02)
    assert money_share(money, np.stack([first, second], axis=1)) == pytest.approx(0.9, abs=0.02)
    assert money_share(money, physics) == pytest.approx(0.0, abs=0.02)
    broken = np.where(np.arange(400)[:, None] < 3, np.nan, first[:, None])
    assert money_share(money, broken) == pytest.approx(0.9, abs=0.02)
    assert money_share(money, np.ones((400, 1))) == 0.0


def test_a_verdict_counts_each_simulation_once() -> None:
    table = np.array([[0.0, 0.1, 0.0, 0.1, 0.0]])
    assert np.array_equal(
        of_simulations(table, np.array([4, 7, 4, 7, 9])),
        [[0.0, 0.1, np.nan, np.nan, 0.0]],
        equal_nan=True,
    )
