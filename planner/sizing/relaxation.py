"""The sizing as a linear program: a lower bound on cost, a start for the search, and reasons for infeasibility.

Variables are nodes N of each purchase, one of several days z for each retirement, and mean nodes x at work by group of
clusters, workload, month and bin of hours. For one replication, with H hours, D requests and rate r:

* a group has no more at work than are there: Σ_w x ≤ Σ present·N;
* nobody serves more than is asked: Σ_g r·H·x ≤ D, bin by bin, or over the month what can wait;
* the SLO target q: Σ r·H·x ≥ q·(D − what may still wait), by month and workload or all together;
* in the share y of a bin's hours in which a workload is served, all that goes before it has had what it takes at its
  objective, since only what is short is overloaded: with d and D the least and most of an hour, and served
  the workload w and ahead of it v, Σ served_w ≤ D_w − (1 − y)·H·d_w and Σ r₀·H·x_v ≥ D_v − (1 − y)·H·D_v;
* nodes, budget, nameplate power and power blocks hold.

Hours are summed into bins, no node ever fails, and a node serves as many as are in time at any load, so every plan that
meets the SLO target in the simulation is allowed here, at no lower cost: the least cost is a bound. A plan that keeps
its SLO target in a share p of R replications keeps it in all but ⌊(1 − p)·R⌋ of any set of them, so the least costs for
each of a set bound it by their order statistic (Luedtke and Ahmed 2008). Where hours at work are rented, so does the
mean of the lowest, with as much of each one's rent as it has in the mean.

Programs are laid out row by row and solved by HiGHS: one, or several that share what is bought.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from planner.arrays import Floats
from planner.plan.plan import Plan
from planner.plan.slo_target import LEAST_SHORTFALL
from planner.run.measures import running_factors
from planner.sizing.choices import Counts
from planner.sizing.evaluate import Trial
from planner.sizing.lp_data import BINS, Prices, Survey

Places = NDArray[np.int64]
_MOST_SOLVING_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintRows:
    """Constraint rows in sparse form: least ≤ Σ value·variable ≤ most."""

    row: Places
    column: Places
    value: Floats
    least: Floats
    """Shape (rows,)."""
    most: Floats


def rows_of(
    row: Places, column: Places, value: Floats, *, least: Floats | float = -np.inf, most: Floats | float = np.inf
) -> ConstraintRows:
    """Return rows bounded on one side, or on both; a single number bounds them all."""
    low, high = np.broadcast_arrays(np.atleast_1d(least), most)
    return ConstraintRows(row=row, column=column, value=value, least=low, most=high)


def minimised(
    cost: Floats, rows: Sequence[ConstraintRows], integral: Places, upper: Floats
) -> tuple[Floats, float] | None:
    """Return the variables ≥ 0 of least cost, and a lower bound on it; None where infeasible."""
    starts = np.cumsum([0, *(block.least.size for block in rows)])
    places = np.concatenate([block.row + start for block, start in zip(rows, starts[:-1], strict=True)])
    columns, values = np.concatenate([block.column for block in rows]), np.concatenate([block.value for block in rows])
    matrix = coo_array((values, (places, columns)), shape=(int(starts[-1]), cost.size)).tocsr()
    least, most = np.concatenate([block.least for block in rows]), np.concatenate([block.most for block in rows])
    scale = float(np.abs(cost).max()) or 1.0
    bounds, limits = Bounds(0.0, upper), LinearConstraint(matrix, least, most)
    # HiGHS now and then writes to standard output whatever it is told, and --json writes there.
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        solution = milp(
            cost / scale, integrality=integral, bounds=bounds, constraints=limits,
            options={"time_limit": _MOST_SOLVING_S, "mip_rel_gap": 1e-3},
        )  # fmt: skip
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
    if solution.x is None:
        return None
    dual = solution.mip_dual_bound if integral.any() and solution.mip_dual_bound is not None else solution.fun
    return np.asarray(solution.x), float(dual) * scale


_NO_REQUESTS = 1e-6  # stands for none, of which none are served either
_MARGIN_STEP = 1.02  # on demand: margins nearer to each other than this are not told apart
_RAISED = 1.12  # what is added to a margin that was short where none is known to be enough


class Relaxation:
    """The linear program of one replication, with its surveys by retirement date, none first."""

    def __init__(
        self, trial: Trial, surveys: Sequence[Survey], prices: Prices, margin: Floats | float = 1.0, *,
        working: bool = False,
    ) -> None:  # fmt: skip
        """Build the program; ``margin``, of each month or of all, multiplies demand.

        ``working`` counts failures and incidents, so that what comes of it is no bound.
        """
        self.working = working
        self.trial, self.choices, self.prices = trial, trial.choices, prices
        self.survey, self.variants = surveys[0], surveys
        self.margin = np.broadcast_to(np.asarray(margin, dtype=np.float64), len(surveys[0].hours))[:, None]
        choices = self.choices
        self.offsets = np.cumsum([0, *(1 + len(retirement.dates) for retirement in choices.retirements)])
        self.columns = len(choices.purchases) + int(self.offsets[-1])
        owner = {purchase.name: purchase.cluster for purchase in choices.purchases}
        groups: dict[str, list[int]] = {}
        for place, cluster in enumerate(choices.plan.clusters):
            groups.setdefault(owner.get(cluster.name, f"={cluster.name}"), []).append(place)
        self.groups = list(groups.values())
        """Clusters that serve alike, by their places: those of one open cluster, and each other alone."""
        # The variables of work: one for each group, workload, month and bin that can work.
        plan, survey = self.choices.plan, self.survey
        first = [members[0] for members in self.groups]
        rates = survey.working[first] if self.working else np.repeat(survey.rates[first][..., None], BINS, axis=3)
        burst = plan.money.market.burst
        if burst is not None:  # rented accelerators are one more group, which is always there
            rented = np.divide(1.0, burst.accelerator_h_per_request, where=burst.accelerator_h_per_request > 0,
                               out=np.zeros_like(burst.accelerator_h_per_request))  # fmt: skip
            rented = np.where(np.isfinite(rented), rented, 0.0)
            rates = np.concatenate([rates, np.broadcast_to(rented[..., None], rates.shape[1:])[None]])
        able = (rates > 0.0) & (survey.hours[None, None] > 0)
        self.suppliers = len(rates)
        """Groups of clusters, and the rented one."""
        self.ahead = [] if self.working or burst is not None else _ahead(plan, rates)
        at_objective = np.zeros_like(able)  # work of those ahead that is served at the objective and not overloaded
        at_objective[:, sorted({first for first, _ in self.ahead})] = True
        at_objective &= able
        self.group, self.load, self.month, self.bin = np.hstack((np.nonzero(able), np.nonzero(at_objective)))
        self.hours: Floats = survey.hours[self.month, self.bin]
        self.served = rates[self.group, self.load, self.month, self.bin] * self.hours
        self.plain = np.arange(self.served.size) >= int(able.sum())
        """Whether a variable of work is at the objective."""
        self.served[self.plain] /= survey.slo_capacity[first][self.group[self.plain], self.load[self.plain]]
        self.last = sorted({last for _, last in self.ahead})
        """Workloads that others go before; each has a variable for the share of a bin's hours in which it is served."""
        self.variables = self.columns + self.served.size + len(self.last) * survey.hours.size

    def constraints(self, limits: frozenset[str] = frozenset({"nodes", "budget", "power"})) -> list[ConstraintRows]:
        """Return all constraint rows, without those of limits that are not named."""
        served = [*self._demand(), *self._slo_target(), *self._in_turn()]
        return [self._machines(), self._power_blocks(), *served, *self._chosen(limits)]

    def _in_turn(self) -> list[ConstraintRows]:
        """Return the rows of priority: higher priorities are served before lower ones on each cluster.

        A cluster on which whole replicas count may be short of one of them, so as much is taken off.
        """
        survey, cells, hours = self.survey, self.survey.hours.size, self.survey.hours[:, :, None]
        replica_nodes = np.zeros(survey.slo_capacity.shape)  # of one replica, by cluster and workload
        if (placement := self.choices.plan.placement) is not None:
            for pair, deployment in placement.deployment_of.items():
                replica_nodes[pair] = placement.deployments[deployment].nodes_per_replica
        flat = self.month * BINS + self.bin
        requests = (survey.lit_demand, survey.least_demand * hours, survey.most_demand * hours)
        asked, least, most = (np.moveaxis(figures, 2, 0).reshape(-1, cells) for figures in requests)
        made = []
        for w in self.last:
            share = self.columns + self.served.size + self.last.index(w) * cells + np.arange(cells)
            for v, sign in [(w, 1.0), *((v, -1.0) for v, last in self.ahead if last == w)]:
                # served − H·d·y ≤ D − H·d for the workload itself, and −served + H·D·y ≤ H·D − D for those ahead of it
                work = np.flatnonzero((self.load == v) & (self.plain if sign < 0 else True))
                unit = np.maximum(asked[v], _NO_REQUESTS)
                hourly = (least if sign > 0 else most)[v]
                at_objective = survey.rates[:, v] / survey.slo_capacity[:, v, None]
                lost = 0.0 if sign > 0 else ((replica_nodes[:, v] @ at_objective)[:, None] * survey.hours).ravel()
                rows = np.concatenate([flat[work], np.arange(cells)])
                columns = np.concatenate([self.columns + work, share])
                values = np.concatenate([sign * self.served[work] / unit[flat[work]], -sign * hourly / unit])
                made.append(rows_of(rows, columns, values, most=(sign * (asked[v] - hourly) + lost) / unit))
        return made

    def _machines(self) -> ConstraintRows:
        """Return the rows that limit work to the nodes in service."""
        choices, shape, groups = self.choices, self.survey.hours.shape, self.suppliers
        # The nodes there of each column's unit, shape (groups, months, bins, columns), and what always is.
        there, always = np.zeros((len(self.groups), *shape, self.columns)), np.zeros((len(self.groups), *shape))
        bought = {choices.place(purchase.name): column for column, purchase in enumerate(choices.purchases)}
        leaving = {choices.place(retirement.cluster): which for which, retirement in enumerate(choices.retirements)}
        for group, member in ((group, member) for group, members in enumerate(self.groups) for member in members):
            share, nodes = self.survey.present[member], choices.plan.clusters[member].nodes
            if member in bought:
                there[group, :, :, bought[member]] += share
            elif member in leaving:
                start = len(choices.purchases) + self.offsets[leaving[member]]
                for day in range(1 + len(choices.retirements[leaving[member]].dates)):
                    there[group, :, :, start + day] += nodes * self.variants[day].present[member]
            else:
                always[group] += nodes * share
        if groups > len(self.groups):
            burst = self.choices.plan.money.market.burst
            assert burst is not None
            there = np.concatenate([there, np.zeros((1, *shape, self.columns))])
            always = np.concatenate([always, np.full((1, *shape), burst.most_accelerators)])
        row = (self.group * shape[0] + self.month) * shape[1] + self.bin
        held = there.reshape(always.size, self.columns)
        at, column = np.nonzero(held)
        columns = np.concatenate([self.columns + np.arange(row.size), column])
        values = np.concatenate([np.ones(row.size), -held[at, column]])
        return rows_of(np.concatenate([row, at]), columns, values, most=always.ravel())

    def _power_blocks(self) -> ConstraintRows:
        """Return the rows that limit busy nodes to the power of energised blocks."""
        site, edges = self.choices.plan.site, self.choices.plan.month_edges_h
        in_group = np.flatnonzero(self.group < len(self.groups))
        first = np.array([members[0] for members in self.groups])
        kw = np.array([cluster.nameplate_kw for cluster in self.choices.plan.clusters]) * self.choices.plan.on_site
        limit = np.full(self.survey.hours.shape, np.inf)
        if site.block_h.size:
            energised = np.array([site.block_kw[site.block_h < end].max(initial=0.0) for end in edges[1:]])
            limit = np.repeat(energised[:, None], BINS, axis=1)
        row = self.month[in_group] * BINS + self.bin[in_group]
        return rows_of(row, self.columns + in_group, kw[first[self.group[in_group]]], most=limit.ravel())

    def _demand(self) -> list[ConstraintRows]:
        """Return the rows that limit service to demand."""
        loads, survey = self.choices.plan.workloads, self.survey
        waits = np.array([load.deadline_h > 0 for load in loads])[self.load]
        count = len(loads)
        now, later = np.flatnonzero(~waits), np.flatnonzero(waits)
        asked = survey.lit_demand * self.margin[:, :, None]
        carried = asked.sum(axis=1)
        carried[1:] += self.margin[1:] * survey.tail[:-1]
        at_once = (self.month[now] * BINS + self.bin[now]) * count + self.load[now]
        in_month = self.month[later] * count + self.load[later]
        return [
            rows_of(*self._shares(place, work, requests.ravel()), most=np.ones(requests.size))
            for place, work, requests in ((at_once, now, asked), (in_month, later, carried))
        ]

    def _shares(self, row: Places, work: Places, requests: Floats) -> tuple[Places, Places, Floats]:
        """Return the matrix entries of served work as a share of the given requests."""
        return row, self.columns + work, self.served[work] / np.maximum(requests, _NO_REQUESTS)[row]

    def _slo_target(self) -> list[ConstraintRows]:
        """Return the rows of the SLO target, by month and workload or over all."""
        slo_target, survey = self.trial.slo_target, self.survey
        owed = (survey.demand.sum(axis=1) - survey.tail) * (slo_target.attainment - 2.0 * LEAST_SHORTFALL)
        owed *= self.margin
        months, count = owed.shape
        by_month, by_load = count * slo_target.is_per_month, int(slo_target.is_per_workload)
        row, rows = self.month * by_month + self.load * by_load, np.zeros(months * count)
        np.add.at(rows, np.arange(months)[:, None] * by_month + np.arange(count) * by_load, owed)
        least = np.where(rows > _NO_REQUESTS, 1.0, -np.inf)
        return [rows_of(*self._shares(row, np.arange(row.size), rows), least=least)]

    def _chosen(self, limits: frozenset[str]) -> list[ConstraintRows]:
        """Return the rows of limits on nodes, retirement dates, budget and power."""
        choices, made = self.choices, list[ConstraintRows]()
        bought = len(choices.purchases)
        for which, start in enumerate(self.offsets[:-1]):
            columns = bought + np.arange(start, self.offsets[which + 1])
            made.append(rows_of(0 * columns, columns, np.ones(columns.size), least=1.0, most=1.0))
        places, all_columns = np.arange(bought), np.arange(self.columns)
        if bought:
            least, most = choices.nodes_allowed()
            most = most if "nodes" in limits else np.full(most.shape, np.inf)
            made.append(rows_of(choices.group_of, places, np.ones(bought), least=least, most=most))
        if choices.choose.budget_usd is not None and "budget" in limits and bought:
            made.append(rows_of(0 * places, places, self.capital(), most=choices.choose.budget_usd))
        if choices.choose.it_power_cap_kw is not None and "power" in limits:
            for kw, existing in self.power_rows():
                made.append(rows_of(0 * all_columns, all_columns, kw, most=choices.choose.it_power_cap_kw - existing))
        return made

    def capital(self) -> Floats:
        """Return the least price of a node of each purchase, shape (purchases,)."""
        _, most = self.choices.nodes_allowed()
        prices = self.choices.node_prices_usd
        return np.array([sum(prices(place, int(most[group]))) for place, group in enumerate(self.choices.group_of)])

    def power_rows(self) -> list[tuple[Floats, float]]:
        """Return the kilowatts on site by column, and those always on site, at each delivery."""
        choices = self.choices
        names = [purchase.name for purchase in choices.purchases]
        leaving = [retirement.cluster for retirement in choices.retirements]
        unit, rows = (1,) * len(names), []
        for at_h in choices.moments_h():
            there = choices.kw_at((*unit, *(0,) * len(leaving)), at_h)
            kw = [there.get(name, 0.0) for name in names]
            for which, retirement in enumerate(choices.retirements):
                for day in range(1 + len(retirement.dates)):
                    leave = (0,) * which + (day,) + (0,) * (len(leaving) - which - 1)
                    kw.append(choices.kw_at((*unit, *leave), at_h).get(retirement.cluster, 0.0))
            fixed = sum((here for name, here in there.items() if name not in (*names, *leaving)), 0.0)
            rows.append((np.array(kw), fixed))
        return rows

    def cost(self) -> Floats:
        """Return the objective's coefficients, shape (variables,)."""
        first = np.array([members[0] for members in self.groups])
        in_group = self.group < len(self.groups)
        work = np.zeros(self.served.size)
        work[in_group] = self.prices.work[first[self.group[in_group]], self.month[in_group]]
        burst = self.choices.plan.money.market.burst
        if burst is not None:
            running = running_factors(self.choices.plan)
            work[~in_group] = self.prices.rents * burst.usd_per_accelerator_h * running[self.month[~in_group]]
        shares = np.zeros(self.variables - self.columns - self.served.size)
        return np.concatenate([self.prices.column, work * self.hours, shares])

    def upper(self, allowed: Sequence[bool] | None = None) -> Floats:
        """Return the upper bound of each variable; the lower bound is 0."""
        upper = np.full(self.variables, np.inf)
        upper[len(self.choices.purchases) : self.columns] = 1.0
        upper[self.columns + self.served.size :] = 1.0
        if allowed is not None:
            upper[: len(allowed)] = np.where(allowed, np.inf, 0.0)
        return upper


def _ahead(plan: Plan, rates: Floats) -> list[tuple[int, int]]:
    """Return pairs of urgent workloads of which the first has priority wherever the second is served.

    ``rates`` has shape (groups, workloads, months, bins).
    """
    urgent = [w for w, load in enumerate(plan.workloads) if not load.deadline_h]
    return [
        (v, w)
        for v, w in itertools.permutations(urgent, 2)
        if plan.workloads[v].priority < plan.workloads[w].priority
        and not ((rates[:, w] > 0) & (rates[:, v] <= 0)).any()
    ]


def margins_between(margin: Floats, short_at: Floats, enough_at: Floats) -> Floats:
    """Return the next demand margins to try, between those too small and those large enough."""
    known = (short_at > 0) & np.isfinite(enough_at)
    middle = np.sqrt(short_at * np.where(known, enough_at, 1.0))
    apart = enough_at > _MARGIN_STEP * short_at
    tried = np.where(known, np.where(apart, middle, enough_at), margin)
    tried = np.where((short_at > 0) & ~known, short_at * _RAISED, tried)
    return np.where((short_at == 0) & np.isfinite(enough_at), enough_at / _RAISED, tried)


_ROUNDING = 1e-7  # of a solver's bound


class Relaxed(NamedTuple):
    """The optimum of a relaxation."""

    cost: float
    """As the objective counts it."""
    nodes: Floats
    """Of each purchase, shape (purchases,)."""
    retired: tuple[int, ...]
    """Place of each retirement's day."""

    def counts(self) -> Counts:
        """Return the optimum as a candidate, with nodes rounded up."""
        return (*(math.ceil(nodes - 1e-6) for nodes in self.nodes), *self.retired)


class Shared(NamedTuple):
    """The columns that several programs share."""

    places: Sequence[Places]
    """Of each program: which of them its own columns are, shape (its columns,)."""
    cost: Floats
    """Shape (columns,)."""
    upper: Floats
    purchases: int
    """How many of them are purchases; days of retirements follow."""


def solve_together(
    programs: Sequence[Relaxation],
    *,
    integral: bool,
    allowed: Sequence[bool] | None = None,
    shared: Shared | None = None,
) -> Relaxed | None:
    """Return the cheapest candidate that meets the SLO target in each of some replications, or None.

    All share the nodes, or those that ``shared`` says; each has its own work, whose cost is the mean over them.
    """
    first = programs[0]
    if shared is None:
        count = first.columns
        alike, most = [np.arange(count)] * len(programs), first.upper(allowed)[:count]
        shared = Shared(alike, cost=first.prices.column, upper=most, purchases=len(first.choices.purchases))
    rows, costs, upper = list[ConstraintRows](), [shared.cost], [shared.upper]
    size = shared.cost.size
    for program, places in zip(programs, shared.places, strict=True):
        count = program.columns
        for block in program.constraints():
            purchase = places[np.minimum(block.column, count - 1)]
            rows.append(replace(block, column=np.where(block.column < count, purchase, block.column - count + size)))
        costs.append(program.cost()[count:] / len(programs))
        upper.append(program.upper()[count:])
        size += program.variables - count
    marks = np.zeros(size, dtype=np.int64)
    marks[: shared.cost.size] = int(integral)
    solved = minimised(np.concatenate(costs), rows, marks, np.concatenate(upper))
    if solved is None:
        return None
    values, cost = solved
    least = cost + first.prices.fixed
    days = values[shared.places[0]][len(first.choices.purchases) :]
    retired = tuple(int(np.argmax(days[start:end])) for start, end in itertools.pairwise(first.offsets))
    return Relaxed(cost=least - _ROUNDING * abs(least), nodes=values[: shared.purchases], retired=retired)
