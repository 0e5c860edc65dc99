"""Comparison of scenarios under the same traffic and random numbers, against a baseline, by cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from planner.errors import ConservationError, Problem, ScenarioError, raise_all
from planner.finance.accounting.measures import (
    measures,
    series_of,
    sums_of,
    value_at_price_change,
)
from planner.finance.accounts import NOT_COST_ACCOUNTS, Account, View
from planner.finance.bridge import CAUSES, Factors, bridge
from planner.finance.ledger import usd
from planner.finance.measure_names import AGAINST_BASELINE, DRAWS
from planner.finance.present_value import break_even_change, ratio
from planner.plan import quantities
from planner.run.replications import Replications, draw_again
from planner.run.simulate import RunResult, simulate
from planner.scenario.scenario import Scenario
from planner.studies.futures import Futures, InFuture, in_futures, plans_under, stated_futures

Figures = dict[str, float | None]
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """Finished runs in the order given, and their figures against the baseline."""

    results: tuple[RunResult, ...]
    baseline: int
    """Position of the scenario that the others are compared with."""
    figures: tuple[Figures, ...]
    """How each plan served, its measures, then those against the baseline (None for the baseline itself)."""
    bridges: tuple[dict[str, float] | None, ...]
    """Cost per million tokens by cause against the baseline; None where a run served nothing."""
    replications: tuple[Replications, ...]
    """Each plan drawn again, all under the same random numbers."""
    warnings: tuple[str, ...]
    futures: tuple[InFuture, ...] = ()
    """Each plan in each future, where there are any."""
    with_measured_layouts: tuple[Figures, ...] = ()
    """Each plan's base case with layouts alone that public runs or one's own measured, where there are any of these."""

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.names)}>"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on each plan that may be intended."""
        return _by_scenario(self.results, lambda result: result.plan.notes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scenarios."""
        return tuple(result.scenario.name for result in self.results)

    def others(self, parts: Iterable[Part | None]) -> list[tuple[str, Part]]:
        """Return name and entry of each scenario other than the baseline that has an entry."""
        by_name = dict(zip(self.names, parts, strict=True))
        # Held against itself, the baseline would be a row of zeros.
        del by_name[self.names[self.baseline]]
        entries = by_name.items()
        return [(name, part) for name, part in entries if part is not None]


def _by_scenario(
    results: Iterable[RunResult], lines: Callable[[RunResult], Iterable[str]]
) -> tuple[str, ...]:
    """Return lines on each plan, its name before each of them."""
    named: list[str] = []
    for result in results:
        named += [f"{result.scenario.name}: {line}" for line in lines(result)]
    return tuple(named)


def find_baseline(scenarios: Sequence[Scenario], wanted_name: str | None) -> int:
    """Return the index of the baseline: the first scenario, unless another is named."""
    names = [scenario.name for scenario in scenarios]
    for name in sorted(names):
        if names.count(name) > 1:
            reason = "tables identify scenarios by name"
            message = f"two scenarios are called {name!r}; {reason}"
            problem = Problem(message=message, hint="give one another name")
            raise ScenarioError(problem)
    if wanted_name is None:
        return 0
    if wanted_name not in names:
        message = f"no scenario is called {wanted_name!r}"
        hint = f"there are {', '.join(names)}"
        raise ScenarioError(Problem(message=message, hint=hint))
    return names.index(wanted_name)


def check_comparable(scenarios: Sequence[Scenario], baseline: int) -> tuple[str, ...]:
    """Raise an error for different horizons; return warnings on what makes the comparison unfair."""
    base = scenarios[baseline]
    problems = []
    warnings = []
    for scenario in scenarios:
        is_same_start = scenario.start == base.start
        if not is_same_start or scenario.horizon_months != base.horizon_months:
            period = f"{scenario.name} runs {scenario.horizon_months} months from {scenario.start}"
            base_period = f"but {base.name} runs {base.horizon_months} from {base.start}"
            reason = "their months cannot be compared"
            problems.append(Problem(message=f"{period}, {base_period}: {reason}"))
        if _traffic(scenario) != _traffic(base):
            traffic = f"{scenario.name} serves other traffic than {base.name}"
            warnings.append(f"{traffic}, so their costs per token are for different work")
        for settings, difference, consequence in _UNFAIR:
            changed = []
            for name, choice, base_choice in _choices(scenario, base, settings):
                if choice != base_choice:
                    changed.append(f"{name} {_brief(choice)} against {_brief(base_choice)}")
            if changed:
                differing = f"{scenario.name} {difference} than {base.name} ({', '.join(changed)})"
                warnings.append(f"{differing}: {consequence}")
        pairs = _choices(scenario, base, PRICE_OF_CAPITAL)
        if any(choice != base_choice for _, choice, base_choice in pairs):
            rate = f"{scenario.name} has another discount rate"
            warnings.append(f"{rate}; savings are discounted at the rate of {base.name}")
    raise_all(problems)
    return tuple(warnings)


def _traffic(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """Return what is stated of the workloads, without where their requests are sent, which a plan decides."""
    decided = {"prefix_routing", "cluster_preference"}
    return {
        name: workload.model_dump(exclude=decided) for name, workload in scenario.workloads.items()
    }


def _choices(
    scenario: Scenario, base: Scenario, settings: Sequence[str]
) -> list[tuple[str, object, object]]:
    """Return some settings of finance with what a scenario and the baseline state for them."""
    finance = scenario.finance
    base_finance = base.finance
    return [(name, getattr(finance, name), getattr(base_finance, name)) for name in settings]


BOOKS = (
    "depreciation_months",
    "depreciation_method",
    "declining_balance_ratio",
    "residual_fraction",
    "residual_basis",
)
"""Choices of the books that move accrued cost and no cash."""
PRICE_OF_CAPITAL = ("discount_rate_per_year", "discount_rate_basis", "inflation_per_year")
"""Settings of the rate at which savings are discounted."""
VALUATION = ("end_value", "resale_multiplier", "cash_flow_timing", "tax")
"""Choices of what is owned at the end, of tax and of timing: they move NPV, and levelised cost with it."""
_UNFAIR = (
    (
        BOOKS,
        "keeps other books",
        "accrued cost cannot be compared, but NPV, TCO and levelised cost can",
    ),
    (VALUATION, "is valued differently", "NPV, TCO and levelised cost cannot be compared"),
)
"""Settings that make figures of two scenarios incomparable: what differs, and which figures."""


def _brief(choice: object) -> str:
    """Return a setting as one line of text."""
    if isinstance(choice, BaseModel):
        stated = choice.model_dump().items()
        parts = [f"{name}: {value}" for name, value in stated]
        return "{" + ", ".join(parts) + "}"
    if choice is None:
        return "none"
    return str(choice)


_MEASURED_LAYOUTS = "clusters.*.layouts=measured"


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
    # Before any run: a future that reaches nothing is an error.
    plans = plans_under(scenarios, futures)
    common_seed = scenarios[baseline].seed if seed is None else seed
    results = []
    for scenario in scenarios:
        progress(scenario.name)
        results.append(simulate(scenario, seed=common_seed))
    drawn_again = [draw_again(result, replications) for result in results]
    comparison = side_by_side(results, drawn_again, baseline)
    progress("with measured layouts only")
    measured = []
    for scenario in scenarios:
        run = simulate(scenario.laid_over([_MEASURED_LAYOUTS]), seed=common_seed)
        measured.append(draw_again(run, 1).figures[0])
    comparison = replace(comparison, with_measured_layouts=tuple(measured))
    if not futures:
        return comparison
    stated = list(zip(results, drawn_again, strict=True))
    results_in_futures = in_futures(stated, futures, plans, progress)
    return replace(comparison, futures=results_in_futures)


def side_by_side(
    results: Sequence[RunResult], replications: Sequence[Replications], baseline: int = 0
) -> Comparison:
    """Return the comparison of runs under one seed, each with its replications."""
    scenarios = [result.scenario for result in results]
    warnings = check_comparable(scenarios, baseline)
    own_warnings = _by_scenario(results, lambda result: result.warnings)
    base = results[baseline]
    base_factors = factors_of(base)
    nothing: Figures = dict.fromkeys(measure.name for measure in AGAINST_BASELINE)
    figures = []
    bridges: list[dict[str, float] | None] = []
    for result, repeated in zip(results, replications, strict=True):
        savings = nothing
        if result is not base:
            savings = against(result, base)
        figures.append(repeated.figures[0] | savings)
        factors = factors_of(result)
        # Each scenario has its place here, also where there is no bridge to it.
        bridges.append(None)
        if base_factors and factors:
            bridges[-1] = bridge(base_factors, factors)
    return Comparison(
        results=tuple(results),
        baseline=baseline,
        figures=tuple(figures),
        bridges=tuple(bridges),
        replications=tuple(replications),
        warnings=(*warnings, *own_warnings),
    )


def against(result: RunResult, base: RunResult) -> Figures:
    """Return a run's savings against the baseline run."""
    rate = base.plan.money.capital.discount_rate_per_year
    months = series_of(result)
    base_months = series_of(base)
    economic = months.economic - base_months.economic
    cash = months.cash - base_months.cash
    flip = _flip(measures(result), measures(base))
    saving_npv_usd = economic.net_present_value(rate)
    # A rate at which a loss is zero is no return.
    internal_rate = economic.internal_rate() if saving_npv_usd > 0.0 else None
    values_usd = [value_at_price_change(run) for run in (result, base)]
    as_run_usd = [run.plan.money.market.price_change_per_year for run in (result, base)]

    def saving_usd(change_per_year: float) -> float:
        gains = [
            value_usd(change_per_year) - value_usd(stated)
            for value_usd, stated in zip(values_usd, as_run_usd, strict=True)
        ]
        return saving_npv_usd + gains[0] - gains[1]

    return {
        "resale_flip_ratio": flip,
        "price_change_flip_per_year": break_even_change(saving_usd),
        "saving_npv_usd": saving_npv_usd,
        "saving_irr_per_year": internal_rate,
        "saving_payback_months": cash.payback_months(),
        "saving_discounted_payback_months": cash.payback_months(rate),
    }


def _flip(figures: Mapping[str, float | None], base: Mapping[str, float | None]) -> float | None:
    """Return the factor on all resale values at which two plans cost the same per token; None where none is positive.

    Levelised cost is a straight line in it, through what it is at 0 and at 1.
    """
    gaps = []
    for suffix in ("_without_resale", ""):
        name = f"levelised_cost{suffix}_per_million_tokens_usd"
        cost = figures[name]
        base_cost = base[name]
        if cost is None or base_cost is None:
            return None
        gaps.append(cost - base_cost)
    without_resale, with_resale = gaps
    flip = float(ratio(without_resale, without_resale - with_resale))
    # Resale below zero is no market: there the order of the plans never turns.
    return flip if flip > 0.0 else None


def factors_of(result: RunResult) -> Factors | None:
    """Return a run's cost factors; None where it served nothing, so that a token has no cost."""
    sums = sums_of(result).over_run()
    # Hours lost to incidents are a cause of their own, not a lower throughput.
    working = sums.busy_h - sums.drag_h
    # In the tables of sums, row 0 is the run and the last column the fleet.
    served_tokens = sums.served_tokens[0, -1]
    if min(served_tokens, working[0, -1]) <= 0:
        return None
    fleet = {
        "available_fraction": quantities.availability(sums.in_service_h, sums.on_site_h),
        "utilised_fraction": quantities.utilisation(sums.busy_h, sums.in_service_h),
        "undragged_fraction": ratio(working, sums.busy_h),
        "throughput_tokens": ratio(sums.served_tokens, working),
    }
    causes: dict[str, int] = {}
    for cause, factors in CAUSES.items():
        if f"{cause}_usd" in factors:
            accounts = [account for account in Account if account.cause == cause]
            cents = [result.ledger.account_cents(account) for account in accounts]
            causes[f"{cause}_usd"] = sum(cents)
    # Each account names its cause: all of the accrued cost is there, or a bridge would not close.
    monthly_cents = result.ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS)
    accrued = int(monthly_cents.sum())
    if sum(causes.values()) != accrued:
        message = f"the causes of a bridge add up to {sum(causes.values())} cents"
        raise ConservationError(f"{message}, but the ledger has accrued {accrued} cents")
    on_site_h = float(sums.on_site_h[0, -1])
    fleet_figures = {}
    for name, total_cents in causes.items():
        fleet_figures[name] = float(usd(total_cents)) / on_site_h
    for name, figures in fleet.items():
        fleet_figures[name] = float(figures[0, -1])
    return Factors(**fleet_figures)
