"""The replications of a search: their figures, their lower bounds on cost, and the decisive ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from planner.arrays import Bools, Floats
from planner.engine.dispatch import allowed_loads
from planner.plan.plan import load_grid
from planner.run.measures import running_factors
from planner.scenario.scenario import SloTarget
from planner.sizing import lp_data
from planner.sizing.choices import Choices, Counts, Policies
from planner.sizing.evaluate import Evaluator, Run, SizingOutcome, Trial, Workers
from planner.sizing.lp_data import Prices, Survey, prices_of, weights_of
from planner.sizing.relaxation import Relaxation, Relaxed, solve_together
from planner.units import SECONDS_PER_HOUR

_AMPLE = 1.5  # times what the relaxation needs: nodes of the run that figures are read off, so that nothing waits
_DESIGNED = 5  # replications that the start is to serve: the hardest of those that must meet the SLO target
_ROUNDED = 1.01  # what rounding parts of nodes up may cost
_RENT_READ = 8  # replications from which the rent of hours at work is taken
_HARD = 8  # replications beyond those whose bound may decide whose busiest hours are looked at


def allowed_misses(replications: int, share: float) -> int:
    """Return how many of n replications may miss the SLO target: ⌊(1 − p)·n⌋."""
    return replications - math.ceil(share * replications - 1e-9)


class Surveyed:
    """The figures of every replication, and the lower bound on its cost."""

    def __init__(self, trial: Trial, workers: Workers, replications: int) -> None:
        """Survey the replications, with enough nodes that no hour is short of capacity."""
        choices = trial.choices
        self.trial, self.workers = trial, workers
        variants = 1 + max((len(retirement.dates) for retirement in choices.retirements), default=0)
        few = [lp_data.survey(workers.subject, choices.reference(day), 0) for day in range(variants)]
        ample = Relaxation(trial, few, prices_of(trial, [few], bound=True), margin=_AMPLE)
        one = solve_together([ample], integral=False)
        reference = choices.reference()
        if one is not None:
            reference = tuple(max(a, b) for a, b in zip(reference, one.counts(), strict=True))
        bought = reference[: len(choices.purchases)]
        days = [(*bought, *choices.reference(day)[len(bought) :]) for day in range(variants)]
        made = workers.all(lp_data.survey, [(day, replication) for replication in range(replications) for day in days])
        self.surveys: list[list[Survey]] = [made[place : place + variants] for place in range(0, len(made), variants)]
        self.bound_prices: Prices = prices_of(trial, self.surveys, bound=True)
        self.prices: Prices = prices_of(trial, self.surveys, bound=False)
        self._by_the_hour = np.array([cluster.is_paid_by_the_hour for cluster in choices.plan.clusters])
        burst = choices.plan.money.market.burst is not None
        self.rents = trial.objective != "capital" and (burst or bool(self._by_the_hour.any()))
        """Whether hours at work cost rent."""
        self._rent: dict[tuple[float, ...], float] = {}
        self._priced: dict[int, Prices] = {}
        self._tiers: dict[int, tuple[float, float]] = {}
        """By purchase with volume discounts, what is paid for a node's accelerators, and a dollar's cost: the price is
        that of the choice from which figures of a node are taken, the cost is as the objective has it."""
        if tiered := [place for place in range(len(choices.purchases)) if choices.tiers(place)]:
            of_a_dollar = workers.all(lp_data.cost_of_a_dollar, [(reference,)])[0]
            if trial.objective == "capital":
                of_a_dollar = np.array([0.0 if cluster.lease else 1.0 for cluster in choices.plan.clusters])
            of_a_dollar = of_a_dollar * np.mean(weights_of(trial, self.surveys))
            for place in tiered:
                costs = float(of_a_dollar[choices.place(choices.purchases[place].name)])
                self._tiers[place] = (choices.accelerators_usd(place, reference[place]), costs)
        self._lumped: dict[tuple[float, ...], float] = {}
        self._waits = np.array([workload.deadline_h > 0 for workload in choices.plan.workloads])
        mean_requests = choices.plan.demand.expected_requests_per_s.mean(axis=1, keepdims=True) * SECONDS_PER_HOUR
        self._allowed = allowed_loads(choices.plan, mean_requests)[:, 0]

    @property
    def choices(self) -> Choices | Policies:
        """The allowed purchases and retirements."""
        return self.trial.choices

    def run_of(self, counts: Counts, replication: int) -> Run:
        """Return the run that gives a candidate's outcome in a replication."""
        return counts, replication

    def designed(self, hardest: Sequence[int], sparing: int) -> list[int]:
        """Return the replications that a start is designed for: the hardest that must meet the SLO target."""
        return list(hardest[sparing : sparing + _DESIGNED])

    def relaxed(self, design: Sequence[int], margin: Floats, allowed: Sequence[bool]) -> Relaxed | None:
        """Return the cheapest candidate for some replications with margins on monthly demand, or None.

        Whole nodes take several times the time of parts of them, and matter where there are few.
        """
        programs = self.programs(design, margin)
        parts = solve_together(programs, integral=False, allowed=allowed)
        if parts is None:
            return None
        made = parts.counts()
        if self.choices.within_limits(made) and self.predicted(made) <= _ROUNDED * self.predicted(
            [*parts.nodes, *parts.retired]
        ):
            return parts
        return solve_together(programs, integral=True, allowed=allowed)

    def programs(self, design: Sequence[int], margin: Floats) -> list[Relaxation]:
        """Return the linear programs of some replications, with failures and incidents."""
        return [Relaxation(self.trial, self.surveys[at], self.prices, margin, working=True) for at in design]

    def worth(self, purchase: int, replication: int) -> float:
        """Return a node's worth: the inverse of the node-hours that the last month's demand takes on such nodes."""
        first = self.surveys[replication][0]
        place = self.choices.place(self.choices.purchases[purchase].name)
        asked, rates = first.demand[-1].sum(axis=0), first.rates[place, :, -1]
        with np.errstate(divide="ignore"):
            needed = np.where(asked > 0, asked / rates, 0.0).sum()
        return 0.0 if not np.isfinite(needed) or needed <= 0 else float(1.0 / needed)

    def least_costs(self, allowed: Sequence[bool], *, working: bool = False) -> Floats:
        """Return each replication's lower bound on cost with some purchases, infinity where infeasible.

        A bound is that of each month's mean load, and, where that is high, of its busiest hours as well: what decides
        is the order statistic of a few hard ones, so the others need not be known as well.
        """
        slo_target, count = self.trial.slo_target, len(self.surveys)
        if working or not (slo_target.is_per_month and slo_target.is_per_workload):
            return self._least(self.surveys, allowed, working=working)
        share = slo_target.attainment
        means = [[lp_data.averaged(variant, share) for variant in variants] for variants in self.surveys]
        least = self._least(means, allowed)
        hard = np.argsort(-least, kind="stable")[: 2 * allowed_misses(count, slo_target.confidence) + _HARD]
        least[hard] = np.maximum(least[hard], self._least([self.surveys[replication] for replication in hard], allowed))
        return least

    def _least(self, surveys: Sequence[list[Survey]], allowed: Sequence[bool], *, working: bool = False) -> Floats:
        return self._solved([(variants, self.bound_prices) for variants in surveys], allowed, working=working)

    def _solved(
        self, programs: Sequence[tuple[list[Survey], Prices]], allowed: Sequence[bool], *, working: bool = False
    ) -> Floats:
        """Return the least cost of each of some replications at its own prices."""
        calls = [(variants, prices, self.trial.slo_target, tuple(allowed), working) for variants, prices in programs]
        return np.array(self.workers.all(least_cost, calls, runs=False))

    def least_with_rent(self, allowed: Sequence[bool]) -> float:
        """Return a lower bound on the mean cost with rent of busy hours; 0 where nothing is rented.

        With c the cost of a choice but for work and v that of its work in a replication, the mean of c + v·k/n over k
        or more of n replications in which it meets the SLO target is no more than what it costs in the mean over all;
        and each of these is no less than its replication's least. So neither is the mean of the k lowest.
        """
        trial, count = self.trial, len(self.surveys)
        if not self.rents:
            return 0.0
        kept = count - allowed_misses(count, trial.slo_target.confidence)
        prices, share = self.bound_prices, kept / count
        priced = [(variants, lp_data.with_work(trial, prices, variants[0], share)) for variants in self.surveys]
        return float(np.sort(self._solved(priced, allowed))[:kept].mean())

    def predicted(self, counts: Sequence[float]) -> float:
        """Return a candidate's predicted cost: nodes as in the relaxation, rent, discounts and staff.

        Rent is that of busy hours; discounts are those not reached; staff come in whole people.
        """
        return self.standing(counts) + self.lumps(tuple(counts)) + (self._hourly(tuple(counts)) if self.rents else 0.0)

    def predicted_in(self, counts: Counts, replication: int) -> float:
        """Return a candidate's predicted cost in one replication, at its own prices."""
        variants = self.surveys[replication]
        if replication not in self._priced:
            self._priced[replication] = prices_of(self.trial, [variants], bound=False)
        prices = self._priced[replication]
        cost = self._nodes_and_days(counts, prices.fixed, prices.column) + Surveyed.lumps(self, counts)
        if self.rents:
            cost += weights_of(self.trial, [variants])[0] * self._rent_usd(variants[0], self._there(variants, counts))
        return cost

    def dearer_by(self, one: Counts, other: Counts, known: Mapping[Run, SizingOutcome]) -> float:
        """Return how much more a candidate costs than another: predicted, corrected by their runs.

        The correction covers energy by load, carbon, whole staff and credits, from the replications in which both
        are known. What is left of a run's cost over its own prediction hardly differs between replications, where
        costs do by the prices that each draws.
        """
        dearer = self.predicted(one) - self.predicted(other)
        runs = ([self.run_of(counts, at) for counts in (one, other)] for at in range(len(self.surveys)))
        shared = [both for both in runs if all(run in known for run in both)]
        beyond = [[known[run].cost - self.predicted_in(*run) for run in both] for both in shared]
        return dearer + (float(np.mean([of_one - of_other for of_one, of_other in beyond])) if beyond else 0.0)

    def lumps(self, counts: tuple[float, ...]) -> float:
        """Return a candidate's costs that are not per node: discounts not reached, and whole staff."""
        if counts not in self._lumped:
            usd, weight = self.trial.choices.accelerators_usd, float(np.mean(weights_of(self.trial, self.surveys)))
            undiscounted = sum(
                counts[place] * of_a_dollar * (usd(place, math.ceil(counts[place])) - paid)
                for place, (paid, of_a_dollar) in self._tiers.items()
            )
            people = 0.0
            if self.trial.objective != "capital":
                there = self._there(self.surveys[0], counts).sum(axis=2) / self.surveys[0][0].hours.sum(axis=1)
                people = weight * lp_data.staffed_usd(self.trial.choices.plan, there)
            self._lumped[counts] = undiscounted + people
        return self._lumped[counts]

    def _hourly(self, counts: tuple[float, ...]) -> float:
        """Return the rent of busy hours: of the load beyond machines that are paid anyway.

        Those are filled as far as their waits allow; the mean over some replications is taken, as the objective has it.
        """
        if counts not in self._rent:
            read = self.surveys[:_RENT_READ]
            whatever = cast(Counts, counts)  # parts of nodes are bought whatever is seen
            chosen = [self.run_of(whatever, replication)[0] for replication in range(len(read))]
            rents = [self._rent_usd(of[0], self._there(of, nodes)) for of, nodes in zip(read, chosen, strict=True)]
            self._rent[counts] = float(np.mean(np.array(weights_of(self.trial, read)) * rents))
        return self._rent[counts]

    def _there(self, variants: Sequence[Survey], counts: tuple[float, ...]) -> Floats:
        """Return each cluster's node-hours in a candidate until it retires, shape (clusters, months, bins)."""
        choices = self.trial.choices
        present = variants[0].present.copy()
        nodes = np.array([cluster.nodes for cluster in choices.plan.clusters], dtype=np.float64)
        for purchase, count in zip(choices.purchases, counts, strict=False):
            nodes[choices.place(purchase.name)] = count
        for retirement, day in zip(choices.retirements, counts[len(choices.purchases) :], strict=True):
            left = choices.place(retirement.cluster)
            present[left] = variants[int(day)].present[left]
        return np.asarray(nodes[:, None, None] * present * variants[0].hours)

    def _rent_usd(self, of: Survey, there: Floats) -> float:
        """Return the rent in one replication with given node-hours, shape (clusters, months, bins).

        What can wait goes to any hour of its month that the rest leaves idle, and rents for what is then left over.
        """
        rented = there * self._by_the_hour[:, None, None]
        paid = there - rented
        urgent, room = _taken(of, paid, ~self._waits), np.einsum("c,cmb->mb", self._allowed, paid)
        idle = np.maximum(paid.sum(axis=0) - np.minimum(urgent, room), 0.0).sum(axis=1, keepdims=True)
        later = _taken(of, paid, self._waits).sum(axis=1, keepdims=True)
        most, worked = rented.sum(axis=0), np.zeros_like(room)
        for needed, has, which in ((urgent, room, ~self._waits), (later, idle, self._waits)):
            left = np.where(needed > has, 1.0 - has / np.maximum(needed, 1e-12), 0.0)  # all of it where none serves it
            taken = _taken(of, rented, which)
            worked += left * np.where(np.isfinite(taken), taken, 0.0)
        share = np.divide(np.minimum(worked, most), most, out=np.zeros_like(worked), where=most > 0)
        rent_usd, plan = float((rented * share * of.busy_usd[:, :, None]).sum()), self.trial.choices.plan
        if (burst := plan.money.market.burst) is None:
            return rent_usd
        # Burst rental of what clusters refuse at each bin's load, as far as there are accelerators; what is refused is
        # a mean over clusters and workloads.
        tables = plan.refused_tables.mean(axis=(0, 1))
        load = _taken(of, there, np.ones_like(self._waits)) / np.maximum(there.sum(axis=0), 1e-12)
        left = np.where(np.isfinite(load), np.interp(load, load_grid(tables.size - 1), tables), 1.0)
        months, _, loads = of.lit_demand.shape
        per_request = np.broadcast_to(burst.accelerator_h_per_request, (loads, months))
        per_request = np.where(np.isfinite(per_request), per_request, 0.0)
        wanted_h = left * np.einsum("mbw,wm->mb", of.lit_demand, per_request)
        used_h = np.minimum(wanted_h, burst.most_accelerators * of.hours).sum(axis=1)
        return rent_usd + float((used_h * burst.usd_per_accelerator_h * running_factors(plan)).sum())

    def standing(self, counts: Sequence[float]) -> float:
        """Return the cost of a candidate's nodes as in the relaxation, busy or idle."""
        return self._nodes_and_days(counts, self.prices.fixed, self.prices.column)

    def _nodes_and_days(self, counts: Sequence[float], cost: float, column: Floats) -> float:
        """Return a cost plus that of nodes and of retirement dates, which are the last columns."""
        retirements = self.trial.choices.retirements
        place = bought = column.size - sum(1 + len(retirement.dates) for retirement in retirements)
        cost += float(np.dot(counts[:bought], column[:bought]))
        for retirement, day in zip(retirements, counts[bought:], strict=True):
            cost += float(column[place + int(day)])
            place += 1 + len(retirement.dates)
        return cost


def _taken(of: Survey, there: Floats, which: Bools) -> Floats:
    """Return the node-hours that workloads' demand takes of the given nodes together, shape (months, bins).

    Infinity where a workload finds none that serves it.
    """
    rate = np.einsum("cmb,cwmb->mbw", there / np.maximum(there.sum(axis=0), 1e-12), of.working[:, which])
    asked = of.lit_demand[:, :, which]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(asked > 0, asked / rate, 0.0).sum(axis=2))


def least_cost(
    evaluator: Evaluator,
    surveys: Sequence[Survey],
    prices: Prices,
    slo: SloTarget,
    allowed: Sequence[bool],
    working: bool,
) -> float:
    """Return the lower bound on one replication's cost with some purchases, infinity where infeasible."""
    trial = dataclasses.replace(evaluator.trial, slo_target=slo)
    solved = solve_together([Relaxation(trial, surveys, prices, working=working)], integral=False, allowed=allowed)
    return math.inf if solved is None else solved.cost
