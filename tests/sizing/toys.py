"""Small sizings, solved by the search and by trying every policy."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from planner.scenario.loading import load_scenario
from planner.sizing.archive import Archive
from planner.sizing.evaluate import BLOCK, Clock, Judged, Objective, Workers, judged
from planner.sizing.policy import OrderRule, Policy
from planner.sizing.search import Search
from planner.sizing.size import Effort, size, trial_of
from planner.sizing.surrogate import surveyed

REPLICATIONS = 4
UNTOUCHED = 900  # a block that no sizing reaches
FRESH = 60
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


def written(content: dict[str, Any], folder: Path) -> Path:
    """Write a toy and its study; return the study's file."""
    text = re.sub(r"'(\d{4}-\d\d-\d\d)'", r"\1", yaml.safe_dump(content))
    (folder / "toy.yaml").write_text(text)
    (folder / "study.yaml").write_text(STUDY)
    return folder / "study.yaml"


@contextlib.contextmanager
def problem(
    content: dict[str, Any],
    overrides: Sequence[str] = (),
    parts: Sequence[str] = (),
    *,
    study: Path | None = None,
    objective: Objective = "net-present-cost",
    replications: int = REPLICATIONS,
) -> Iterator[Search]:
    """Yield a problem ready to be searched."""
    trial = trial_of(load_scenario(content, overrides), parts, study, objective, None)
    clock = Clock()
    with contextlib.closing(Workers(trial, 1)) as workers:
        archive = Archive(workers, clock)
        yield Search(surveyed(trial, archive, replications), archive, clock)


def bought(search: Search, *nodes: int, load: int = 0, step: int = 1, retired: int = 0) -> Policy:
    """Return a policy of these purchases, with a rule for the first cluster where a load is given."""
    choices = search.choices
    policy = dataclasses.replace(choices.nothing(), purchases=nodes)
    if load:
        policy = ordered_up_to(search, policy, 0, load, step)
    return policy.with_retirement(0, retired) if retired else policy


def ordered_up_to(search: Search, policy: Policy, place: int, load: int, step: int = 1) -> Policy:
    """Return the policy with a rule for one cluster, at every review."""
    reviews = len(search.choices.windows[place])
    return policy.with_rule(place, OrderRule(load_percent=load, step_nodes=step, reviews=reviews))


def whole(search: Search, policy: Policy, replications: int | None = None) -> Judged:
    """Return a policy over the replications of the search."""
    number = replications or len(search.surrogate.surveys)
    outcomes = search.archive.outcomes([(policy, r) for r in range(number)])
    return judged(search.trial, policy, outcomes)


def keeps(plan: Judged) -> bool:
    """Return whether enough replications meet the SLO target."""
    return plan.verdict.share >= plan.verdict.confidence - 1e-9


def solved(
    content: dict[str, Any],
    overrides: Sequence[str] = (),
    parts: Sequence[str] = (),
    *,
    study: Path | None = None,
    confirmations: int = 36,
) -> Judged:
    """Return the answer to a problem, confirmed."""
    scenario = load_scenario(content, overrides)
    trial = trial_of(scenario, parts, study, "net-present-cost", None)
    effort = Effort(replications=REPLICATIONS, confirmations=confirmations, rivals=False)
    return size(scenario, trial, effort, Clock()).plan


def every_policy(search: Search, most: int, loads: Sequence[int] = (0,)) -> list[Policy]:
    """Return every policy within limits: nodes of each purchase, some loads of a first rule, each day of retirement."""
    choices = search.choices
    counts = itertools.product(range(most + 1), repeat=len(choices.purchases))
    days = range(1 + sum(len(retirement.dates) for retirement in choices.retirements[:1]))
    policies = [
        bought(search, *nodes, load=load, retired=day)
        for nodes, load, day in itertools.product(counts, loads, days)
    ]
    return [policy for policy in policies if choices.within_limits(policy)]


def exhaustive(search: Search, most: int) -> Judged:
    """Return the cheapest of all policies that clearly meet the SLO target, on replications that no search has seen."""
    plans = [whole(search, policy) for policy in every_policy(search, most)]
    for plan in sorted(plans, key=lambda plan: plan.cost):
        fresh = range(UNTOUCHED * BLOCK, UNTOUCHED * BLOCK + FRESH)
        if keeps(plan):
            outcomes = search.archive.outcomes([(plan.policy, r) for r in fresh])
            seen = judged(search.trial, plan.policy, outcomes)
            if seen.verdict.status == "MET":
                return seen
    raise AssertionError("no policy meets the target")
