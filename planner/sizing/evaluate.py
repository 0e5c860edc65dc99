"""Cost and SLO attainment of a candidate plan in one replication, here or in worker processes.

A replication is a row of a study's design (drawn inputs and a chance), or, without a study, a chance alone. Every
choice meets the same replications, so that two of them differ by what is bought and not by luck. Over several of them a
choice is judged.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from planner.arrays import Floats
from planner.errors import ScenarioError
from planner.finance.accounting.measures import measures, present_cost_usd, running_factors
from planner.finance.accounts import CAPEX_ACCOUNTS, Account
from planner.finance.ledger import usd
from planner.plan.attainment import LEAST_SHORTFALL, Verdict, lowest_share, targeted_shares
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.plan.reuse import Reuse
from planner.records import record
from planner.run.simulate import RunResult, simulate_plan
from planner.run.slo_misses import past_capacity
from planner.sizing.choices import Choices
from planner.sizing.policy import Policy
from planner.studies.designs import MonteCarlo
from planner.studies.engines import Crew
from planner.studies.inputs import UncertainInputs, changed

Objective = Literal["net-present-cost", "levelised"]
OBJECTIVES: tuple[Objective, ...] = ("net-present-cost", "levelised")
Result = TypeVar("Result")
DRAWS = 4096
"""Draws of the uncertain inputs over which the probability is averaged: its own error is then below half a point."""
BLOCK = 2**20
"""Replications of one block: each block has numbers of its own, and its inputs a scrambling of their own."""
SEARCH = 0
"""Block of the survey and the search."""
SELECTION = 1
"""Block on which shortlisted policies are compared."""
FIRST_CONFIRMATION = 2
"""First of the blocks on each of which one policy is confirmed, once."""
_CHUNK = 64
"""Replications whose inputs are drawn together."""
Run = tuple[Policy, int]
"""A policy and a replication."""
Changes = dict[tuple[str, str], object]
"""Fields of clusters that are set, by the cluster's name and the field's."""


@record
class SizingOutcome:
    """Cost and SLO attainment of a candidate plan in one replication."""

    cost: float
    """What is minimised: dollars, or dollars per million tokens."""
    net_present_cost_usd: float
    capital_usd: float
    missed_requests: float
    """All that were late or shed, what no purchase mends included."""
    overflow_usd: float
    """Present cost of what own machines did not serve: misses, where they have a price, and what APIs charged."""
    shares: Floats
    """In time, as the SLO target counts them, shape (months, workloads or 1); of a workload with an attainment of its
    own, as far from the common one as from its own. What no purchase mends counts as served, unless the target says
    otherwise."""
    utilisation: Floats
    """Of each month's accelerator-hours in service, those at work, shape (months,)."""
    ceilings: Floats
    """Attainment that no purchase raises, by the names of :data:`~planner.plan.attainment.CEILINGS`, shape (2,)."""
    worst_as_run: float
    """The lowest SLO attainment with what no purchase mends counted as missed; NaN without requests."""

    @property
    def worst(self) -> float:
        """The lowest SLO attainment under the target; 1 where there was no demand."""
        return 1.0 if np.isnan(self.shares).all() else float(np.nanmin(self.shares))

    def meets(self, attainment: float) -> bool:
        """Return whether an SLO attainment is reached."""
        return self.worst > attainment - LEAST_SHORTFALL


@record
class Trial:
    """Everything a worker needs to evaluate candidates, sent to it once."""

    choices: Choices
    objective: Objective
    inputs: UncertainInputs
    design: MonteCarlo | None
    """None without a study: only chance differs between replications."""
    seed: int
    attainment: float
    """Share of requests that is to be in time, of workloads without an attainment of their own."""
    confidence: float
    """Share of replications in which it is to be."""

    includes_outages: bool = False
    """Whether what no purchase mends counts as missed."""

    @property
    def held_confidence(self) -> float:
        """The confidence that a policy is held to: none where misses have a price."""
        return 0.0 if self.choices.choose.miss_cost_usd is not None else self.confidence

    def drawn(self, block: int, first: int, last: int) -> Floats:
        """Return inputs as a block's own scrambling draws them, shape (replications, inputs); none without a study."""
        if self.design is None:
            return np.zeros((last - first, 0))
        # Far from the seeds that anyone states, and from those of a study's money.
        seed = self.design.points.seed + block * 2**65
        points = dataclasses.replace(self.design.points, seed=seed)
        rows, _ = dataclasses.replace(self.design, points=points).rows(first, last)
        return np.asarray(self.inputs.drawn(rows))


class Evaluator:
    """Runs candidate plans in this process, caching what their plans share."""

    def __init__(self, trial: Trial) -> None:
        """Take a trial; compile the scenario with every purchase first, so that tables are the same in all workers."""
        self.trial = trial
        self._reuse = Reuse(trial.choices.scenario)
        build_plan(trial.choices.scenario, self._reuse)
        self._plans: dict[Policy, tuple[Any, Plan]] = {}
        self._inputs: dict[tuple[int, int], Floats] = {}
        gc.freeze()

    def inputs(self, replication: int) -> Floats:
        """Return the inputs' values in one replication, shape (inputs,)."""
        block, place = divmod(replication, BLOCK)
        chunk, row = divmod(place, _CHUNK)
        if (block, chunk) not in self._inputs:
            first = chunk * _CHUNK
            self._inputs[block, chunk] = self.trial.drawn(block, first, first + _CHUNK)
        return np.asarray(self._inputs[block, chunk][row])

    def simulate(self, policy: Policy, replication: int) -> RunResult:
        """Run a policy once; without uncertain inputs its plan is the same in every replication."""
        if policy not in self._plans or len(self.trial.inputs):
            self._plans = {policy: self._compiled(policy, replication, {})}
        return simulate_plan(*self._plans[policy], self.trial.seed, replication)

    def unrouted(
        self, policy: Policy, replication: int, changes: Changes | None = None
    ) -> RunResult:
        """Run a candidate without bursts, placement and power cap, for figures that routing does not affect."""
        scenario, plan = self._compiled(policy, replication, changes or {}, is_routed=False)
        free = dataclasses.replace(plan, site=dataclasses.replace(plan.site, cap_kw=None))
        return simulate_plan(scenario, free, self.trial.seed, replication)

    def _compiled(
        self, policy: Policy, replication: int, changes: Changes, *, is_routed: bool = True
    ) -> tuple[Any, Plan]:
        """Return the scenario and the compiled plan of a candidate under a replication's inputs."""
        trial = self.trial
        gc.collect(
            1
        )  # young runs that hold themselves would fill hundreds of MB; what there was before is frozen
        base = trial.choices.stated(policy)
        clusters = dict(base.content["clusters"])
        for (name, field), value in changes.items():
            clusters[name] = {**clusters[name], field: value}
        loads = base.content["workloads"]
        if not is_routed:  # lateness by the minute takes half of a compilation
            loads = {
                name: {**load, "burst_index_of_dispersion": 1.0} for name, load in loads.items()
            }
        base = dataclasses.replace(
            base, content={**base.content, "clusters": clusters, "workloads": loads}
        )
        entries = []
        for uncertain in (
            trial.inputs.entries
        ):  # without the fields of clusters that are not bought, or that are set
            targets = tuple(
                path
                for path in (uncertain.targets[0] if uncertain.targets else ())
                if path[0] != "clusters"
                or (path[1] in clusters and (path[1], path[2]) not in changes)
            )
            entries.append(dataclasses.replace(uncertain, targets=(targets,)))
        inputs = UncertainInputs(entries=tuple(entries), mixing=None)
        scenario, factors = changed(base, 0, inputs, self.inputs(replication))
        return scenario, build_plan(scenario, self._reuse, factors, is_placed=is_routed)

    def outcome(self, policy: Policy, replication: int) -> SizingOutcome:
        """Run a candidate once and return its outcome; an infeasible one misses every SLO target."""
        try:
            result = self.simulate(policy, replication)
        except ScenarioError:  # a model that fits none of the parts bought
            worst = np.zeros((self.trial.choices.plan.months.period_count, 1))
            return SizingOutcome(
                cost=np.inf,
                net_present_cost_usd=np.inf,
                capital_usd=np.inf,
                missed_requests=np.inf,
                overflow_usd=np.inf,
                shares=worst,
                utilisation=worst[:, 0],
                ceilings=np.full(2, np.nan),
                worst_as_run=0.0,
            )
        trial = self.trial
        plan = result.plan
        cost = float(present_cost_usd(result).sum())
        capital_cents = sum(result.ledger.account_cents(account) for account in CAPEX_ACCOUNTS)
        missed = result.missed_requests()
        settled = result.settled_requests()
        miss_usd = [trial.choices.choose.miss_usd(load.name) for load in plan.workloads]
        misses_usd = float((missed @ np.array(miss_usd)) @ running_factors(plan))
        objective = cost + misses_usd
        if trial.objective == "levelised":
            objective = measures(result)["levelised_cost_per_million_tokens_usd"] or np.inf
        outages, past_capacity_requests = past_capacity(result, trial.choices.plan)
        counted = missed
        if not trial.includes_outages:
            counted = np.maximum(missed - past_capacity_requests, 0.0)
        to_common = trial.attainment - plan.slo_attainments
        ceilings = [lowest_share(plan, lost, settled) for lost in (outages, past_capacity_requests)]
        api_usd = cost - float(present_cost_usd(result, (Account.API,)).sum())
        busy = result.monthly.busy_node_h.sum(axis=1)
        in_service = result.monthly.in_service_node_h.sum(axis=1)
        utilisation = np.zeros_like(busy)
        np.divide(busy, in_service, out=utilisation, where=in_service > 0)
        return SizingOutcome(
            cost=objective,
            net_present_cost_usd=cost,
            capital_usd=float(usd(capital_cents)),
            missed_requests=float(missed.sum()),
            overflow_usd=misses_usd + api_usd,
            shares=targeted_shares(plan, counted, settled) + to_common,
            utilisation=utilisation,
            ceilings=np.array(ceilings),
            worst_as_run=lowest_share(plan, missed, settled),
        )


class Workers(Crew[Evaluator]):
    """Workers that run candidate plans, and the number of runs made."""

    def __init__(self, trial: Trial, count: int, scheduler: str | None = None) -> None:
        """Start ``count`` worker processes; with one, the work is done here."""
        super().__init__(Evaluator, trial, count, scheduler)
        self.runs = 0

    def all(
        self, work: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]
    ) -> Iterator[Result]:
        """Yield the results of a function of an evaluator for each set of arguments, in order, as they come."""
        for result in self.map(work, arguments):
            self.runs += 1
            yield result


class TimeUp(Exception):  # noqa: N818 - not an error: the best so far stands
    """Raised when the search's time limit is reached."""


@dataclass(slots=True)
class Clock:
    """The time limit of a search, and where it reports progress."""

    minutes: float = math.inf
    say: Callable[[str], None] = lambda _: None
    started_s: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """Whether the time limit is reached."""
        return time.monotonic() - self.started_s > 60.0 * self.minutes

    def check(self) -> None:
        """Raise TimeUp where the time limit is reached."""
        if self.is_over:
            raise TimeUp


@record
class Judged:
    """A candidate plan's figures over several replications."""

    policy: Policy
    verdict: Verdict
    costs: Floats
    """What is minimised, shape (replications,)."""
    net_present_cost_usd: float
    """Mean over the replications, as capital is."""
    capital_usd: float
    worst: Floats
    """The least share in time of each replication, shape (replications,)."""
    shares: Floats
    """In time, shape (replications, months, workloads or 1)."""
    utilisation: Floats
    """Mean over the replications, shape (months,)."""
    ceilings: Floats
    """Attainment that no purchase raises, shape (replications, 2)."""

    missed_requests: float
    """Mean over the replications, all that were late or shed."""
    met_as_run: int
    """Replications that meet the target with what no purchase mends counted as missed, as ``planner run`` counts."""

    @property
    def cost(self) -> float:
        """Mean over the replications."""
        return float(self.costs.mean())

    @property
    def cost_worst_tenth(self) -> float:
        """Mean of the highest costs over the worst tenth of the replications."""
        return float(np.sort(self.costs)[-max(1, self.costs.size // 10) :].mean())

    @property
    def worst_tenth(self) -> float:
        """Mean of the lowest attainments over the worst tenth of the replications: how deep misses go."""
        return float(np.sort(self.worst)[: max(1, self.worst.size // 10)].mean())


def judged(trial: Trial, policy: Policy, outcomes: Sequence[SizingOutcome]) -> Judged:
    """Return a policy's figures over its outcomes, and whether they meet the SLO target."""
    met = sum(outcome.meets(trial.attainment) for outcome in outcomes)
    least = trial.attainment - LEAST_SHORTFALL
    return Judged(
        policy=policy,
        verdict=Verdict(met, len(outcomes), trial.confidence),
        costs=np.array([outcome.cost for outcome in outcomes]),
        net_present_cost_usd=float(np.mean([outcome.net_present_cost_usd for outcome in outcomes])),
        capital_usd=float(np.mean([outcome.capital_usd for outcome in outcomes])),
        worst=np.array([outcome.worst for outcome in outcomes]),
        shares=np.stack([outcome.shares for outcome in outcomes]),
        utilisation=np.mean([outcome.utilisation for outcome in outcomes], axis=0),
        ceilings=np.stack([outcome.ceilings for outcome in outcomes]),
        missed_requests=float(np.mean([outcome.missed_requests for outcome in outcomes])),
        met_as_run=sum(not outcome.worst_as_run <= least for outcome in outcomes),
    )
