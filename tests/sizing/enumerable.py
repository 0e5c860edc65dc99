"""Random small sizings whose policies can all be tried: what the answer is held to on replications nobody looked at.

``make prove`` holds 30 problems × 5 seeds to their bars; ``python -m tests.sizing.enumerable 0 6 2 2000`` prints the
first six with two seeds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.scenario.loading import load_scenario
from planner.sizing.archive import Archive
from planner.sizing.evaluate import BLOCK, Clock, Judged, Trial, Workers, judged
from planner.sizing.policy import OrderRule, Policy
from planner.sizing.selection import Interval, share_limits
from planner.sizing.size import Effort, size, trial_of
from tests.sizing.toys import ordered, toy, written

UNTOUCHED = 2_000
"""Replications on which an answer is judged."""
BLOCK_UNTOUCHED = 900
"""Their block, which no sizing reaches."""
_SCREENS = (4, 16, 64, 256)
"""Replications after each of which a policy is left out that can hardly meet the target."""
_HARDLY = 0.005
_CLEARLY = 2.0
"""Standard errors above the target."""


class Outcome(NamedTuple):
    """How one answer did."""

    is_feasible: bool
    is_covered: bool
    """Whether the stated interval holds the share of the untouched replications, within their own error."""
    excess: float
    """Of its cost over that of the cheapest policy that is clearly feasible; NaN where none is."""
    bound: float
    """Of the cost that perfect information leaves, over that policy's; NaN where none is."""
    seconds: float
    """Of processor."""
    is_confirmed: bool


def random_problem(number: int) -> dict[str, Any]:
    """Return one problem of fixed purchases or of orders on a signal; a limit binds in a third of them."""
    rng = np.random.default_rng(number)
    if number % 2:
        content = ordered(float(rng.uniform(0.3, 1.2)), orders="reactive")
        content["horizon_months"] = 12
        choice = content["sizing"]["clusters"]["h200"]
        choice |= {"dates": ["2025-10-01", "2026-03-01", "2026-06-01"], "max_nodes": 7}
        del choice["step_nodes"]
        content["workloads"]["chat"]["requests_per_s"] = float(rng.uniform(8.0, 16.0))
    else:
        content = toy(("2026-01-01", "2026-05-01"), 4, horizon_months=8)
        growth = {"kind": "by-year", "per_year": {"2026": 1.0}}
        requests = float(rng.uniform(18.0, 40.0))
        content["workloads"]["chat"] |= {"requests_per_s": requests, "growth": growth}
    if number % 3 == 0:
        h200 = content["sizing"]["clusters"]["h200"]
        limit = int(rng.integers(4))
        if limit == 0:
            content["sizing"]["it_power_cap_kw"] = float(rng.uniform(45.0, 75.0))
        elif limit == 1:
            content["sizing"]["budget_usd"] = float(rng.uniform(1.4e6, 2.4e6))
        elif limit == 2:
            h200["min_nodes"] = 2
        else:
            tier = {"from_accelerators": 24, "discount_fraction": 0.15}
            content["clusters"]["h200"]["volume_discounts"] = [tier]
            h200["max_nodes_per_date"] = 4
    return content


@contextlib.contextmanager
def _archive(content: dict[str, Any], seed: int) -> Iterator[tuple[Trial, Archive, Any]]:
    """Yield the trial of a problem, an archive of its runs, and its scenario."""
    with tempfile.TemporaryDirectory() as folder:
        study = written(content, Path(folder))
        scenario = load_scenario(Path(folder) / "toy.yaml")
        trial = trial_of(scenario, (), study, "net-present-cost", seed)
        with contextlib.closing(Workers(trial, 1)) as workers:
            yield trial, Archive(workers, Clock()), scenario


def every_policy(trial: Trial) -> list[Policy]:
    """Return every policy of a problem within limits, loads by five percent."""
    choices = trial.choices
    base = choices.nothing()
    most = [min(int(nodes), 5) for nodes in choices.most_at_once]
    rules: Sequence[OrderRule | None] = (None,)
    if choices.reactive:
        reviews = len(choices.windows[0])
        rules = [None]
        for load, step, number in itertools.product(
            range(60, 155, 5), (1, 2), range(1, reviews + 1)
        ):
            rules.append(OrderRule(load_percent=load, step_nodes=step, reviews=number))
        most[1:] = [1] * (len(most) - 1)
    policies = []
    for nodes in itertools.product(*(range(number + 1) for number in most)):
        for rule in rules:
            # Beside a rule, what is fixed is bought on the first day.
            if rule is not None and any(nodes[1:]):
                continue
            policy = dataclasses.replace(base, purchases=nodes)
            if choices.reactive:
                policy = policy.with_rule(0, rule)
            if choices.within_limits(policy):
                policies.append(policy)
    return policies


def _untouched(archive: Archive, trial: Trial, policy: Policy, number: int) -> Judged:
    runs = [(policy, BLOCK_UNTOUCHED * BLOCK + r) for r in range(number)]
    return judged(trial, policy, archive.outcomes(runs))


def cheapest_clearly_feasible(trial: Trial, archive: Archive, number: int) -> Judged | None:
    """Return the cheapest policy whose probability is two standard errors above the target."""
    screened = [_untouched(archive, trial, policy, _SCREENS[0]) for policy in every_policy(trial)]
    for one in sorted(screened, key=lambda one: one.cost):
        for runs in (*_SCREENS, number):
            tried = _untouched(archive, trial, one.policy, min(runs, number))
            met, replications, _ = tried.verdict
            if share_limits(met, replications, _HARDLY).high < trial.confidence:
                break
        share = tried.verdict.share
        error = np.sqrt(share * (1.0 - share) / replications)
        if replications == number and share - _CLEARLY * error >= trial.confidence:
            return tried
    return None


def outcomes(problem: int, seeds: Sequence[int], untouched: int = UNTOUCHED) -> list[Outcome]:
    """Return how the answers to one problem do, one for each seed, on the same untouched replications."""
    content = random_problem(problem)
    rows = []
    with _archive(content, 10_000 + problem) as (trial, archive, _):
        best = cheapest_clearly_feasible(trial, archive, untouched)
        for seed in seeds:
            began_s = time.process_time()
            with _archive(content, seed) as (own, _, scenario):
                sized = size(scenario, own, Effort(), Clock())
            seconds = time.process_time() - began_s
            fresh = _untouched(archive, trial, sized.plan.policy, untouched)
            share = fresh.verdict.share
            error = np.sqrt(max(share * (1.0 - share), 1e-9) / untouched)
            interval: Interval = sized.confirmation.interval
            saves = sized.explanation.perfect_information_saves or 0.0
            best_usd = np.nan if best is None else best.cost
            excess = fresh.cost / best_usd - 1.0
            rows.append(
                Outcome(
                    is_feasible=share >= trial.confidence - _CLEARLY * error,
                    is_covered=interval.low - error <= share <= interval.high + error,
                    excess=float(excess),
                    bound=float((sized.plan.cost - saves) / best_usd),
                    seconds=seconds,
                    is_confirmed=sized.confirmation.passed,
                )
            )
            print(problem, seed, f"{share:.3f}", interval, rows[-1], flush=True)
            print("   ", own.choices.words(sized.plan.policy), flush=True)
        if best is not None:
            words = trial.choices.words(best.policy)
            print("    best:", f"{best.verdict.share:.3f}", words, flush=True)
    return rows


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    first, last, seeds, number = numbers
    for each in range(first, last):
        outcomes(each, range(1, seeds + 1), number)
