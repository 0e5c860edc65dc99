"""Comparison of scenarios under the same traffic and random numbers, against a baseline, by cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from pydantic import BaseModel

from planner.errors import ConservationError, Problem, ScenarioError, raise_all
from planner.finance.bridge import CAUSES, ClusterSpending, Factors, Spending, bridge, dollar_bridge
from planner.finance.ledger import ACCOUNT_CODES, NOT_COST_ACCOUNTS, Account, Dimension, View, usd
from planner.finance.present_value import ratio
from planner.plan import quantities
from planner.plan.build import build_plan
from planner.run.measure_names import AGAINST_BASELINE, DRAWS
from planner.run.measures import measures, series_of, sums_of
from planner.run.replications import Replications, draw_again
from planner.run.simulate import RunResult, counted_anew, simulate
from planner.scenario.scenario import Scenario
from planner.studies.futures import Futures, InFuture, in_futures, plans_under, stated_futures

Figures = dict[str, float | None]
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """Finished runs in the order given, and their figures against the baseline."""

    results: tuple[RunResult, ...]
    baseline: int
    """Position of the scenario that the others are held against."""
    figures: tuple[Figures, ...]
    """How each plan served, its measures, then those against the baseline (None for the baseline itself)."""
    bridges: tuple[tuple[dict[str, float], dict[str, float]] | None, ...]
    """Cost per million tokens, and per million output tokens, by cause against the baseline; None where a run served
    nothing."""
    dollars: tuple[dict[str, int] | None, ...]
    """Accrued cost less the baseline's by cause, in cents; None where a run served nothing."""
    chances: tuple[Replications, ...]
    """Each plan drawn again, all under the same chance."""
    warnings: tuple[str, ...]
    futures: tuple[InFuture, ...] = ()
    """Each plan in each future, where there are any."""

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.names)}>"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on each plan that may be intended."""
        return tuple(
            f"{result.scenario.name}: {note}"
            for result in self.results
            for note in result.plan.notes
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scenarios."""
        return tuple(result.scenario.name for result in self.results)

    def others(self, parts: Iterable[Part | None]) -> list[tuple[str, Part]]:
        """Return name and entry of each scenario other than the baseline that has an entry."""
        named = enumerate(zip(self.names, parts, strict=True))
        return [
            (name, part)
            for place, (name, part) in named
            if part is not None and place != self.baseline
        ]


def find_baseline(scenarios: Sequence[Scenario], wanted: str | None) -> int:
    """Return the index of the baseline: the first scenario, unless another is named."""
    names = [scenario.name for scenario in scenarios]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = (
            f"two scenarios are called {twice[0]!r}; their names tell them apart in every table"
        )
        raise ScenarioError(Problem(message=message, hint="give one another name"))
    if wanted is None:
        return 0
    if wanted not in names:
        raise ScenarioError(
            Problem(
                message=f"no scenario is called {wanted!r}", hint=f"there are {', '.join(names)}"
            )
        )
    return names.index(wanted)


def check_comparable(scenarios: Sequence[Scenario], baseline: int) -> tuple[str, ...]:
    """Raise an error for different horizons; return warnings on what makes the comparison unfair."""
    base = scenarios[baseline]
    problems = []
    warnings = []
    for other in scenarios:
        if (other.start, other.horizon_months) != (base.start, base.horizon_months):
            runs = f"{other.name} runs {other.horizon_months} months from {other.start}"
            against = f"{base.name} {base.horizon_months} from {base.start}"
            problems.append(
                Problem(message=f"{runs}, {against}: months cannot be held against each other")
            )
        if other.workloads != base.workloads:
            said = "costs per token are of different work"
            warnings.append(f"{other.name} serves other traffic than {base.name}: {said}")
        for names, what, consequence in (
            (
                BOOKS,
                "keeps other books",
                "accrued cost is not comparable; NPV, TCO and levelised cost are",
            ),
            (VALUATION, "is valued otherwise", "NPV, TCO and levelised cost are not comparable"),
        ):
            pairs = [
                (name, getattr(other.finance, name), getattr(base.finance, name)) for name in names
            ]
            differing = [
                f"{name} {_brief(here)} against {_brief(its)}"
                for name, here, its in pairs
                if here != its
            ]
            if differing:
                warnings.append(
                    f"{other.name} {what} than {base.name} ({', '.join(differing)}): {consequence}"
                )
        if any(
            getattr(other.finance, name) != getattr(base.finance, name) for name in PRICE_OF_CAPITAL
        ):
            warnings.append(
                f"{other.name} has another discount rate; savings are discounted at that of {base.name}"
            )
    raise_all(problems)
    return tuple(warnings)


PRICE_OF_CAPITAL = ("discount_rate_per_year", "discount_rate_basis", "inflation_per_year")
VALUATION = ("end_value", "resale_multiplier", "cash_flow_timing", "tax")
"""Choices of what is owned at the end, of tax and of timing: they move NPV, and levelised cost with it."""


def _brief(choice: object) -> str:
    """Return a setting as one line of text."""
    if isinstance(choice, BaseModel):
        return (
            "{" + ", ".join(f"{name}: {value}" for name, value in choice.model_dump().items()) + "}"
        )
    return "none" if choice is None else str(choice)


def compare(
    scenarios: Sequence[Scenario],
    baseline: int = 0,
    seed: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
    replications: int = DRAWS,
    futures: Futures | None = None,
) -> Comparison:
    """Run every scenario under one seed, ``replications`` times, compare it with the baseline, and in futures."""
    futures = stated_futures(scenarios) if futures is None else futures
    changed = plans_under(scenarios, futures)
    common = scenarios[baseline].seed if seed is None else seed
    results = []
    for scenario in scenarios:
        progress(scenario.name)
        results.append(simulate(scenario, seed=common))
    chances = [draw_again(result, replications) for result in results]
    compared = side_by_side(results, chances, baseline)
    beside = (
        in_futures([*zip(results, chances, strict=True)], futures, changed, progress)
        if futures
        else ()
    )
    return replace(compared, futures=beside)


def side_by_side(
    results: Sequence[RunResult], chances: Sequence[Replications], baseline: int = 0
) -> Comparison:
    """Return the comparison of runs under one seed; ``chances`` are the replications of each plan."""
    warnings = check_comparable([result.scenario for result in results], baseline)
    base = results[baseline]
    factors = [factors_of(result) for result in results]
    first = factors[baseline]
    nothing = dict.fromkeys(measure.name for measure in AGAINST_BASELINE)
    return Comparison(
        results=tuple(results),
        baseline=baseline,
        figures=tuple(
            chance.figures[0] | (nothing if result is base else against(result, base))
            for result, chance in zip(results, chances, strict=True)
        ),
        bridges=tuple(
            (bridge(first, theirs), bridge(first, theirs, output_only=True))
            if first and theirs
            else None
            for theirs in factors
        ),
        dollars=tuple(dollars(result, base) for result in results),
        chances=tuple(chances),
        warnings=(
            *warnings,
            *(f"{r.scenario.name}: {warning}" for r in results for warning in r.warnings),
        ),
    )


def against(result: RunResult, base: RunResult) -> Figures:
    """Return a run's savings against the baseline run."""
    rate = base.plan.money.capital.discount_rate_per_year
    months = series_of(result)
    other = series_of(base)
    economic = months.economic - other.economic
    cash = months.cash - other.cash
    return {
        "resale_flip_ratio": _flip(measures(result), measures(base)),
        "saving_npv_usd": economic.net_present_value(rate),
        "saving_irr_per_year": economic.internal_rate(),
        "saving_payback_months": cash.payback_months(),
        "saving_discounted_payback_months": cash.payback_months(rate),
    }


def _flip(figures: Mapping[str, float | None], base: Mapping[str, float | None]) -> float | None:
    """Return the factor on all resale values at which two plans cost the same per token; None where none is positive.

    Levelised cost is a straight line in it, through what it is at 0 and at 1.
    """
    names = [f"levelised_cost{which}_per_million_tokens_usd" for which in ("_without_resale", "")]
    gaps = [
        a - b
        for name in names
        if (a := figures[name]) is not None and (b := base[name]) is not None
    ]
    flip = float(ratio(gaps[0], gaps[0] - gaps[1])) if len(gaps) == len(names) else 0.0
    return flip if flip > 0.0 else None


def factors_of(result: RunResult) -> Factors | None:
    """Return a run's cost factors; None where it served nothing, so that a token has no cost."""
    sums = sums_of(result).over_run()
    working = sums.busy_h - sums.drag_h
    if min(sums.served_tokens[0, -1], sums.served_output_tokens[0, -1], working[0, -1]) <= 0:
        return None
    fleet = {
        "available_fraction": quantities.availability(sums.in_service_h, sums.on_site_h),
        "utilised_fraction": quantities.utilisation(sums.busy_h, sums.in_service_h),
        "undragged_fraction": ratio(working, sums.busy_h),
        "throughput_tokens": ratio(sums.served_tokens, working),
        "throughput_output_tokens": ratio(sums.served_output_tokens, working),
    }
    causes = {  # accrued cost by the cause that each account names; all of it, or ConservationError
        f"{cause}_usd": sum(
            result.ledger.account_cents(account) for account in Account if account.cause == cause
        )
        for cause, factors in CAUSES.items()
        if f"{cause}_usd" in factors
    }
    accrued = int(result.ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS).sum())
    if sum(causes.values()) != accrued:
        raise ConservationError(
            f"the causes of a bridge hold {sum(causes.values())} cents, the ledger {accrued}"
        )
    return Factors(
        **{
            name: float(usd(cents)) / float(sums.on_site_h[0, -1]) for name, cents in causes.items()
        },
        **{name: float(figures[0, -1]) for name, figures in fleet.items()},
    )


BOOKS = (
    "depreciation_months",
    "depreciation_method",
    "declining_balance_ratio",
    "residual_fraction",
    "residual_basis",
)
"""Choices of the books that move accrued cost and no cash."""
CLUSTER_BOOKS = ("depreciation_months", "residual_fraction", "components")
"""Those that a cluster may make for itself."""
PAID_BY_KWH = (Account.ENERGY, Account.COOLING, Account.CARBON)


def dollars(result: RunResult, base: RunResult) -> dict[str, int] | None:
    """Return a run's accrued cost less the baseline's by cause, in cents; None where one of the two served nothing."""
    scenario, other = (
        result.scenario,
        base.scenario,
    )  # the same machines, hours and cash by the other's books
    finance = scenario.finance.model_copy(
        update={name: getattr(other.finance, name) for name in BOOKS}
    )
    clusters = {}
    for name, cluster in scenario.clusters.items():
        # Where the other scenario has no such cluster, none of its own choices remains: getattr of None is None.
        books = {field: getattr(other.clusters.get(name), field, None) for field in CLUSTER_BOOKS}
        clusters[name] = cluster.model_copy(update=books)
    restated = result
    if finance != scenario.finance or clusters != scenario.clusters:
        plan = build_plan(scenario.model_copy(update={"finance": finance, "clusters": clusters}))
        restated = counted_anew(result, scenario, plan)
    spent = spending_of(result)
    same_books = spending_of(restated)
    return dollar_bridge(spending_of(base), same_books, spent.cents - same_books.cents)


def spending_of(result: RunResult) -> Spending:
    """Return a run's accrued cost as factors."""
    sums = sums_of(result).over_run()
    monthly = result.monthly
    plan = result.plan
    table = usd(result.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT, view=View.ACCRUAL))
    table[:, [ACCOUNT_CODES[account] for account in NOT_COST_ACCOUNTS]] = 0.0
    metered = table[:, [ACCOUNT_CODES[account] for account in PAID_BY_KWH]].sum(axis=1)
    most = (monthly.present_node_h / plan.months.period_hours[:, None]).max(
        axis=0
    ) * plan.accelerators_per_node
    clusters = {}
    elsewhere = float(table[-1].sum())
    for c, cluster in enumerate(plan.clusters):
        hours = float(sums.on_site_h[0, c])
        kwh = float(sums.energy_kwh[0, c])
        if hours <= 0:
            elsewhere += float(table[c].sum())
            continue
        by_kwh = float(metered[c]) if kwh > 0 else 0.0
        clusters[cluster.name] = ClusterSpending(
            machines=float(most[c]),
            hours=hours / float(most[c]),
            usd_per_h=(float(table[c].sum()) - by_kwh) / hours,
            kwh_per_h=kwh / hours,
            usd_per_kwh=by_kwh / kwh if kwh > 0 else 0.0,
        )
    tokens = float(sums.served_tokens[0, -1])
    return Spending(
        cents=int(np.round(table.sum() * 100)),
        tokens=tokens,
        missed_usd_per_token=elsewhere / tokens if tokens > 0 else 0.0,
        clusters=clusters,
    )
