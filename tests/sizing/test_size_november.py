"""The sizing of the frozen November reference under its study: confirmed, and held against random plans."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import numpy as np
import pytest

from planner.plan.slo_target import LEAST_SHORTFALL
from planner.scenario.loading import load_scenario
from planner.sizing.choices import Counts
from planner.sizing.confirm import Effort
from planner.sizing.evaluate import Archive, Clock, Workers
from planner.sizing.size import Sized, size, trial_of

NOVEMBER = Path(__file__).parents[1] / "benchmarks" / "november"
SCENARIOS = Path(__file__).parents[2] / "scenarios"
DATES = ["2026-01-01", "2026-09-01", "2027-09-01"]
PROMISED = 0.98
"""Not the default of 0.99: outages of the site alone, one in five years and four hours in the mean, break that in one
of eleven replications, so that hardly any purchase keeps it in nine of ten."""
RANDOM_PLANS = 500
MOST_NODES = 800


def sized() -> Sized:
    open_to = {"dates": DATES, "max_nodes": MOST_NODES}
    content = {
        "name": "november",
        "extends": str(NOVEMBER / "mixed-fleet.yaml"),
        "slo_target": {"attainment": PROMISED},
        "sizing": {"clusters": dict.fromkeys(("h200", "mi325x", "b200"), open_to)},
    }
    scenario = load_scenario(content)
    trial = trial_of(scenario, (), NOVEMBER / "mixed-fleet-study.yaml", "net-present-cost", None)
    return size(scenario, trial, Effort(workers=2), Clock())


def keeps(archive: Archive, counts: Counts, replications: range) -> bool:
    """Say whether enough replications meet the SLO target; stop as soon as too many do not."""
    most = len(replications) - math.ceil(0.9 * len(replications))
    broken = 0
    for first in range(0, len(replications), 10):
        outcomes = archive.outcomes([(counts, each) for each in replications[first : first + 10]])
        broken += sum(outcome.worst <= PROMISED - LEAST_SHORTFALL for outcome in outcomes)
        if broken > most:
            return False
    return True


@pytest.mark.prove
def test_no_random_plan_that_meets_the_slo_target_is_cheaper() -> None:
    found = sized()
    confirmed = found.confirmation
    assert confirmed.kept >= 0.9 * confirmed.replications
    assert found.bound <= found.plan.cost
    fresh = range(confirmed.first, confirmed.first + confirmed.replications)
    generator = np.random.Generator(np.random.PCG64(1))
    with contextlib.closing(Workers(found.trial, 2)) as workers:
        archive = Archive(workers)
        answer = np.mean([each.cost for each in archive.outcomes([(found.plan.counts, each) for each in fresh])])
        for _ in range(RANDOM_PLANS):
            total = generator.integers(50, MOST_NODES)
            counts = tuple(int(nodes) for nodes in generator.multinomial(total, generator.dirichlet(np.full(9, 0.5))))
            # Cost hardly differs between plans' replications: a first few tell which could be cheaper at all.
            few = fresh[:10]
            own = [each.cost for each in archive.outcomes([(counts, each) for each in few])]
            same = [each.cost for each in archive.outcomes([(found.plan.counts, each) for each in few])]
            if np.mean(own) < 1.02 * np.mean(same) and keeps(archive, counts, fresh):
                assert answer <= np.mean([each.cost for each in archive.outcomes([(counts, each) for each in fresh])])


@pytest.mark.prove
def test_the_shipped_plan_is_what_is_found() -> None:
    scenario = load_scenario(SCENARIOS / "which-mix.yaml")
    trial = trial_of(scenario, (), SCENARIOS / "mixed-fleet-study.yaml", "net-present-cost", None)
    found = size(scenario, trial, Effort(replications=96, workers=2), Clock())
    bought = {
        (purchase.accelerator, purchase.date): nodes
        for purchase, nodes in zip(found.choices.purchases, found.plan.counts, strict=False)  # then the retirement
        if nodes
    }
    shipped = load_scenario(SCENARIOS / "mixed-fleet.yaml")
    stated = {
        (cluster.accelerator, cluster.online or shipped.start): cluster.nodes
        for cluster in shipped.clusters.values()
        if cluster.owned is None
    }
    assert bought == stated
    assert found.plan.counts[-1] == 1  # H200 goes on the only day on which it may
    assert scenario.sizing is not None
    assert shipped.clusters["h200"].retire == scenario.sizing.retire["h200"][0]
    assert found.confirmation.kept >= 0.9 * found.confirmation.replications
