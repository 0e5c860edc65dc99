"""Small sizings, solved by the search and by trying every policy."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from planner.scenario.loading import load_scenario
from planner.sizing.choices import Counts
from planner.sizing.evaluate import Archive, Clock, Judged, Objective, Workers, judged
from planner.sizing.search import Search
from planner.sizing.size import surveyed, trial_of

REPLICATIONS = 4
CALM = {
    "site": {"outages_per_year": 0},
    "reliability": {"failure_multiplier": 0},
    "software": {"incident_multiplier": 0, "software_speedup_multiplier": 0},
}
"""No outage, failure, incident or release."""
LAYOUT = {"engine": "vllm", "prefill_decode": "colocated", "chunk_tokens": 8192}
"""How every part serves, so that counts of nodes stay what they are however the planner would lay them out."""


def toy(
    dates: Sequence[str] = ("2026-01-01", "2026-02-01"), most: int = 3, **changes: Any
) -> dict[str, Any]:
    """Return a problem of two parts and some dates."""
    open_to = {"dates": list(dates), "max_nodes": most}
    return {
        "name": "toy",
        "start": "2026-01-01",
        "horizon_months": 2,
        "workloads": {
            "chat": {
                "model": "llama-3.1-70b",
                "requests_per_s": 40,
                "growth": {"kind": "compound", "per_year": 6.0},
                "lengths": {
                    "input": {"mean": 1200, "p95": 4000},
                    "output": {"mean": 300, "p95": 900},
                },
                "slo": {"ttft_s": 2.0, "tpot_s": 0.05, "percentile": 0.99},
            }
        },
        "clusters": {
            "h200": {**LAYOUT, "accelerator": "H200", "nodes": 2},
            "mi325x": {**LAYOUT, "accelerator": "MI325X", "nodes": 0},
        },
        "sizing": {"clusters": {"h200": open_to, "mi325x": open_to}},
        **CALM,
        **changes,
    }


def ordered(growth: float = 0.9, **sizing: Any) -> dict[str, Any]:
    """Return a problem of one part that is ordered each quarter, ten weeks ahead, fixed or on a signal."""
    content = toy(horizon_months=15)
    chat = content["workloads"]["chat"]
    chat |= {
        "requests_per_s": 12,
        "growth": {"kind": "by-year", "per_year": {"2026": growth, "2027": growth}},
    }
    order = {
        "placed": "2025-10-01",
        "lead_weeks": 6,
        "slip_weeks": {"low": 0, "base": 0, "high": 1},
    }
    content["clusters"] = {"h200": {**LAYOUT, "accelerator": "H200", "nodes": 1, "order": order}}
    dates = ["2025-10-01", "2026-04-01", "2026-07-01", "2026-10-01"]
    content["sizing"] = {
        "clusters": {"h200": {"dates": dates, "max_nodes": 9, "step_nodes": 1}},
        **sizing,
    }
    return content


STUDY = """
name: growth
scenarios: {toy: {extends: toy.yaml}}
uncertain:
  workloads.chat.growth.per_year.2026: {kind: uniform, low: 0.0, high: 3.0}
"""


@contextlib.contextmanager
def problem(
    content: dict[str, Any], overrides: Sequence[str] = (), parts: Sequence[str] = (), *, study: Path | None = None,
    objective: Objective = "net-present-cost", replications: int = REPLICATIONS,
) -> Iterator[Search]:  # fmt: skip
    """Yield a problem ready to be searched."""
    trial = trial_of(load_scenario(content, overrides), parts, study, objective, None)
    with contextlib.closing(Workers(trial, 1)) as workers:
        yield Search(surveyed(trial, workers, replications), Archive(workers), Clock())


def whole(search: Search, counts: Counts) -> Judged:
    """Return a policy over the replications of the search."""
    return judged(search.trial, counts, search.outcomes(counts, range(search.replications)))


def keeps(search: Search, plan: Judged) -> bool:
    """Return whether enough replications of the search meet the SLO target."""
    return plan.verdict.share >= plan.verdict.confidence - 1e-9


def solved(
    content: dict[str, Any], overrides: Sequence[str] = (), parts: Sequence[str] = ()
) -> Judged:
    """Return what the search finds."""
    with problem(content, overrides, parts) as search:
        found = search.solve(
            [True] * len(search.choices.purchases), reacts=bool(search.choices.reactive)
        )
        assert found is not None
        return whole(search, found)


def every_policy(search: Search, most: int, loads: Sequence[int] = (0,)) -> list[Counts]:
    """Return every policy within limits: nodes of each purchase, some loads, each day of retirement."""
    choices = search.choices
    counts = [range(most + 1)] * len(choices.purchases) + [loads] * len(choices.reactive)
    days = [range(1 + len(retirement.dates)) for retirement in choices.retirements]
    return [made for made in itertools.product(*counts, *days) if choices.within_limits(made)]


def exhaustive(search: Search, most: int, loads: Sequence[int] = (0,)) -> Judged:
    """Return the cheapest of all policies that meet the SLO target."""
    kept = [
        plan
        for counts in every_policy(search, most, loads)
        if keeps(search, plan := whole(search, counts))
    ]
    return min(kept, key=lambda plan: plan.cost)
