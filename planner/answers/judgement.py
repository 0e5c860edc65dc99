"""The one judgement behind every piece of advice: first a plan's SLO verdict, then its cost.

Plans that are MET are ranked by cost; those that are INCONCLUSIVE follow, then those that are MISSED, by how far. Only
a plan that is MET is recommended. Reports and terminal tables take their order and their sentences from here, so that
no two of them can disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from planner.output.words import dollars, percent, unit_price
from planner.plan.attainment import Verdict
from planner.run.measure_names import FLEET, HIGHER_IS_BETTER
from planner.scenario.scenario import Scenario
from planner.units import counted

MOST_RESALE = 3.0
"""Times the resale values beyond which nobody expects them."""
COST = "levelised_cost_per_million_tokens_usd"
"""What tells plans that meet their SLO target apart: cash at its time. Accrued cost moves with the books, which save
nothing."""
ATTAINED = "slo_attainment_fraction"
SHED = "shed_fraction"
WORST = "slo_attainment_lowest_fraction"
SHORTFALL = "slo_shortfall_fraction"

WORSE_FRACTION = 0.01
"""How much further a plan must fall short before it serves clearly worse than another; assumption."""
MUCH_SHED_FRACTION = 0.1
"""Share of tokens shed above which a plan's figures are no longer those of its traffic, so this is said first;
assumption."""
DEAR_TIMES = 1.2
"""How many times the cost of a token must differ between clusters before it is said; assumption."""
IDLE_FRACTION = 0.5
"""Share of node-hours without demand above which a plan that meets its SLO target may be larger than its traffic;
assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A plan as advice sees it."""

    name: str
    slo_attainment_fraction: float | None
    """Share of requests served within their objective; None where there was no demand, or nobody measured it."""
    shed_fraction: float | None
    """Share of tokens refused or given up."""
    cost: float | None
    """What decides between plans that meet their SLO target, lower is better; None where no token was served."""
    worst_fraction: float | None
    """Lowest SLO attainment."""
    shortfall_fraction: float | None
    """How far it falls short of its SLO target, over its replications; 0 where it meets it."""
    verdict: Verdict | None = None
    """Of its replications; None of a point of a sweep, which is one replication and no verdict."""

    @property
    def meets_slo(self) -> bool:
        """Whether it is MET; a point of a sweep where its one replication meets the target."""
        if self.slo_attainment_fraction is None:
            return False
        return (
            self.shortfall_fraction == 0.0 if self.verdict is None else self.verdict.status == "MET"
        )

    @property
    def is_inconclusive(self) -> bool:
        """Whether its replications are too few for a verdict."""
        return self.verdict is not None and self.verdict.status == "INCONCLUSIVE"

    @property
    def service(self) -> str:
        """How it serves, in words that follow its name."""
        if self.slo_attainment_fraction is None:
            return "had no requests to serve"
        attained = self.slo_attainment_fraction
        said = (
            f"attains {percent(attained if attained > 1e-12 else 0.0, 2)}"  # not a rounding error
        )
        if round(self.shed_fraction or 0.0, 4):
            said += f", sheds {percent(self.shed_fraction, 2)} of tokens"
        if self.meets_slo or self.is_inconclusive:
            return said
        return f"{said} and misses its SLO target by {percent(self.shortfall_fraction, 2).replace('%', ' points')}"

    @property
    def standing(self) -> str:
        """Its verdict, for the cell of a table."""
        if self.slo_attainment_fraction is None:
            return ""
        if self.verdict is None:
            return "met" if self.meets_slo else f"missed by {percent(self.shortfall_fraction, 2)}"
        return f"{self.verdict.status} {self.verdict.met}/{self.verdict.replications}"


def served(
    name: str,
    figures: Mapping[str, float | None],
    record: Mapping[str, Any] | None = None,
    decided_by: str = COST,
) -> Served:
    """Return a plan from its measures, of which ``decided_by`` ranks plans that are MET.

    ``record`` is its verdict over replications, as :func:`verdict_record` makes it, where there is one.
    """
    short = figures.get(SHORTFALL) if record is None else record["shortfall_fraction"]
    cost = figures.get(decided_by)
    return Served(
        name=name,
        slo_attainment_fraction=figures.get(ATTAINED),
        shed_fraction=figures.get(SHED),
        cost=-cost if cost is not None and decided_by in HIGHER_IS_BETTER else cost,
        worst_fraction=figures.get(WORST),
        shortfall_fraction=None if short is None else round(short, 6),  # as files hold it
        verdict=None if record is None else verdict_of(record),
    )


def plans_of(
    figures: Mapping[str, Mapping[str, float | None]],
    verdicts: Mapping[str, Mapping[str, Any]],
    decided_by: str = COST,
) -> list[Served]:
    """Return the plans of a comparison or a study, each with its verdict over its replications."""
    return [served(name, row, verdicts.get(name), decided_by) for name, row in figures.items()]


def verdict_record(
    verdict: Verdict,
    scenario: Scenario,
    *,
    shortfall_fraction: float | None,
    first_missed_month: str | None,
    lowest_fraction: float | None = None,
    base_case: Mapping[str, Any] | None = None,
    past_mending: Mapping[str, int] | None = None,
    run_out_fraction: Mapping[str, float] | None = None,
    missed_months: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return a verdict as summaries hold it: the target, the replications that meet it, and where it is lowest.

    ``run_out_fraction`` is the share of replications that first miss it in a month, ``missed_months`` the number that
    miss it there at all, both by month.
    """
    low, high = verdict.interval
    return {
        "status": verdict.status,
        **scenario.slo_target.model_dump(),
        "stated": scenario.states("slo_target"),
        "met_replications": verdict.met,
        "replications": verdict.replications,
        "met_fraction": None if math.isnan(verdict.share) else round(verdict.share, 6),
        "met_low_fraction": round(low, 6),
        "met_high_fraction": round(high, 6),
        "settled_by_replications": verdict.settled_by if verdict.status == "INCONCLUSIVE" else None,
        "shortfall_fraction": shortfall_fraction,
        "first_missed_month": first_missed_month,
        "lowest_fraction": lowest_fraction,
        "base_case": base_case,
        "past_mending": past_mending,
        "run_out_fraction": run_out_fraction,
        "missed_months": missed_months,
    }


def verdict_of(record: Mapping[str, Any]) -> Verdict:
    """Return the verdict that a record holds."""
    return Verdict(record["met_replications"], record["replications"], record["confidence"])


class Choice(NamedTuple):
    """Plans in the order in which they are recommended."""

    keeping: tuple[Served, ...]
    """Those that are MET, cheapest first; of two that cost the same the one named first."""
    inconclusive: tuple[Served, ...]
    """Those whose replications are too few for a verdict, cheapest first."""
    breaking: tuple[Served, ...]
    """Those that are MISSED, the least short first; of two equally short the cheaper."""

    @property
    def best(self) -> Served | None:
        """The plan to take: the cheapest that is MET."""
        return self.keeping[0] if self.keeping else None

    @property
    def ranked(self) -> tuple[Served, ...]:
        """All of them."""
        return self.keeping + self.inconclusive + self.breaking


def much_shed(plans: Sequence[Served]) -> list[str]:
    """Say which plans shed more than a tenth of their demand: a warning before every other figure."""
    return [
        f"{plan.name} sheds {percent(plan.shed_fraction)} of the tokens asked of it: every other figure is of the rest."
        for plan in plans
        if plan.shed_fraction is not None and plan.shed_fraction > MUCH_SHED_FRACTION
    ]


def choose(plans: Sequence[Served]) -> Choice:
    """Rank plans: the verdict first, then cost; MISSED plans by how far."""
    known = [plan for plan in plans if plan.cost is not None]
    keeping = sorted((plan for plan in known if plan.meets_slo), key=_cost)
    inconclusive = sorted((plan for plan in known if plan.is_inconclusive), key=_cost)
    breaking = [plan for plan in plans if plan not in keeping and plan not in inconclusive]
    breaking.sort(
        key=lambda plan: (
            plan.slo_attainment_fraction is None,
            plan.shortfall_fraction or 0.0,
            _cost(plan),
        )
    )
    return Choice(
        keeping=tuple(keeping), inconclusive=tuple(inconclusive), breaking=tuple(breaking)
    )


def _cost(plan: Served) -> float:
    return math.inf if plan.cost is None else plan.cost


def frontier(plans: Sequence[Served]) -> list[Served]:
    """Return the plans that no other beats in both cost and lowest SLO attainment, cheapest first.

    The cheapest plan that meets its SLO target is always among them where all SLO target the same.
    """
    known = [plan for plan in plans if plan.cost is not None and plan.worst_fraction is not None]
    best: list[Served] = []
    most = -math.inf
    for plan in sorted(known, key=lambda plan: (plan.cost, -round(plan.worst_fraction or 0.0, 6))):
        # Cheapest first, so a plan is beaten exactly if one before it attains as much.
        if (share := round(plan.worst_fraction or 0.0, 6)) > most:
            best.append(plan)
            most = share
    return best


def change_words(change: float) -> str:
    """Return a relative change of cost as 31.5% less, 8.7% more or the same."""
    return (
        f"{percent(abs(change))} {'less' if change < 0 else 'more'}"
        if round(change, 3)
        else "the same"
    )


def interval_words(one: float, other: float) -> str:
    """Return an interval of relative changes, the lower end first, as 2.0% less to 3.1% more."""
    low, high = sorted((one, other))
    if change_words(low) == change_words(high):
        return change_words(low)
    if round(low, 3) * round(high, 3) > 0:  # both less, or both more: the word once
        near, far = sorted((abs(low), abs(high)))
        return f"{percent(near)} to {percent(far)} {'less' if low < 0 else 'more'}"
    return f"{change_words(low)} to {change_words(high)}"


def against(cost: float | None, reference: float | None) -> str:
    """Return a cost against another as 31.5% less, 8.7% more or the same; nothing where one is not known."""
    return change_words(cost / reference - 1.0) if cost is not None and reference else ""


def comparable(plan: Served, baseline: Served) -> bool:
    """Say whether a plan's cost may be held against the baseline's: not where it serves clearly worse."""
    if (
        plan.name == baseline.name
        or plan.slo_attainment_fraction is None
        or baseline.slo_attainment_fraction is None
    ):
        return False
    if plan.meets_slo or baseline.meets_slo:
        return plan.meets_slo
    return (plan.shortfall_fraction or 0.0) <= (baseline.shortfall_fraction or 0.0) + WORSE_FRACTION


def none_keeps(choice: Choice, what: str = "plans") -> str:
    """Say that nothing can be recommended, and what comes nearest; nothing of one plan without a verdict."""
    known = [plan for plan in choice.ranked if plan.slo_attainment_fraction is not None]
    if not known:
        return f"None of these {what} had a request to serve."
    is_choice = len(choice.ranked) > 1
    nearest = f"{known[0].name} {known[0].service}"
    if choice.inconclusive:
        return f"None of these {what} is known to meet its SLO target." if is_choice else ""
    lead = f"None of these {what} meets its SLO target. Nearest: " if is_choice else ""
    return f"{lead}{nearest}. Add capacity before looking at cost."


def recommendation(plans: Sequence[Served], baseline: str, summary: Mapping[str, Any]) -> str:
    """Say which plan of a comparison to take, and how its cost stands against the baseline.

    The comparison's summary has what each plan saves in other replications.
    """
    base = next(plan for plan in plans if plan.name == baseline)
    choice = choose([base, *(plan for plan in plans if plan is not base)])
    best = choice.best
    if best is None:
        return none_keeps(choice)
    price = f"{unit_price(best.cost)} per million tokens, levelised"
    if len(choice.keeping) == 1:
        lead = f"{best.name} is the only one of these plans that is MET, at {price}."
        return lead if best is base else f"{lead} The baseline {baseline} {base.service}."
    lead = f"{best.name} costs least of the plans that are MET: {price}"
    if best is base:
        rival = choice.keeping[1]
        return f"{lead}. It is the baseline; the next, {rival.name}, costs {against(rival.cost, best.cost)}."
    if not base.meets_slo:
        return f"{lead}. The baseline {baseline} {base.service}, so a saving against it would say nothing."
    said = f"{lead}, {against(best.cost, base.cost)} than the baseline {baseline}"
    if (saving := summary.get("saving_interval_fraction", {}).get(best.name)) is None:
        return f"{said}."
    (low, high) = saving
    words = summary["replications"][best.name]["words"]
    span = interval_words(-low, -high)
    if low <= 0 <= high:
        return f"{said}; in {words} it is {span}, so there is no clear difference."
    return f"{said} ({span} in {words})."


def sweep_advice(choice: Choice) -> str:
    """Say which combination of a sweep to confirm: each was run once, which is no verdict."""
    if choice.best is None:
        return none_keeps(choice, "combinations")
    best = choice.best
    number = len(choice.ranked)
    meet = len(choice.keeping)
    price = f"{unit_price(best.cost)} per million tokens, levelised"
    said = f"Of {number:,} combinations {meet:,} meet{'s' if meet == 1 else ''} the SLO target in the base case"
    return f"{said}; cheapest: {best.name}, {price}. One replication is no verdict: confirm it with planner run."


def warnings_of(choice: Choice) -> list[str]:
    """Say of each plan that is MISSED why its cost is no argument for it."""
    return [
        f"{plan.name} is no alternative as it stands: it {plan.service}."
        for plan in choice.breaking
        if plan.slo_attainment_fraction is not None and not plan.meets_slo
    ]


def resale_lines(figures: Mapping[str, Mapping[str, float | None]], baseline: str) -> list[str]:
    """Say at how much of the resale values each plan and the baseline would cost the same, where that may be."""
    flips = {name: row.get("resale_flip_ratio") or MOST_RESALE for name, row in figures.items()}
    said = "{} and {} would cost the same per token at {:.2f} times the resale values: there their order turns."
    return [said.format(name, baseline, flip) for name, flip in flips.items() if flip < MOST_RESALE]


def inconclusive_lines(plans: Sequence[Served]) -> list[str]:
    """Say of plans without a verdict how often they meet their target, and how many replications would settle it."""
    alike: dict[str, list[str]] = {}
    for plan in plans:
        if plan.verdict is not None and plan.is_inconclusive:
            alike.setdefault(_open(plan.verdict), []).append(plan.name)
    return [f"{', '.join(names)}: SLO {said}." for said, names in alike.items()]


def past_mending_lines(verdicts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say how many replications of which plans miss the SLO target whatever is bought, and why; nothing of none."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, record in verdicts.items():
        if past := {
            cause: number for cause, number in (record["past_mending"] or {}).items() if number
        }:
            causes = ", ".join(
                f"{cause.replace('_', ' ')} {number}" for cause, number in past.items()
            )
            number = sum(past.values())
            misses = (
                f"miss{'es' if number == 1 else ''} the SLO target whatever is bought: {causes}."
            )
            alike.setdefault(
                (f"{number} of {record['replications']} replications", misses), []
            ).append(name)
    return [
        f"{lead}{' of ' * any(names)}{', '.join(names)} {misses}"
        for (lead, misses), names in alike.items()
    ]


def _open(verdict: Verdict, option: str = "-n") -> str:
    """Return what is known of an inconclusive verdict, as INCONCLUSIVE at n = 16: P(SLO met) 94% [78, 99]."""
    low, high = verdict.interval
    number = (
        f"re-run with {option} {more}"
        if (more := verdict.settled_by)
        else "no number of replications settles it"
    )
    return (
        f"INCONCLUSIVE at n = {verdict.replications}: P(SLO met) {verdict.share:.0%} [{low * 100:.0f}, "
        f"{high * 100:.0f}] against {verdict.confidence * 100:.6g}%; {number}"
    )


def target_words(target: Mapping[str, Any]) -> str:
    """Return an SLO target, as 98% per month and workload."""
    per = target["per"] == "month"
    scope = target["scope"] == "workload"
    over = "per month" if per else "over the horizon"
    whose = "workload" if per else "per workload"
    said = f"{over} and {whose}" if scope else f"{over}, all workloads together"
    others = "".join(
        f", {name} {share * 100:.6g}%" for name, share in (target.get("workloads") or {}).items()
    )
    return f"{target['attainment'] * 100:.6g}% {said}{others}"


def verdict_line(record: Mapping[str, Any], option: str = "-n") -> str:
    """Return the verdict in a line: the first of every surface; ``option`` is what takes more replications."""
    base = record["base_case"]
    target = target_words(record)
    verdict = verdict_of(record)
    target += "" if record["stated"] else ", the default"
    if verdict.replications == 0:
        return f"SLO not tested (target {target}): there was no request to serve."
    often = f"{verdict.met}/{verdict.replications} replications"
    required = f"{verdict.confidence * 100:.6g}%"
    match verdict.status:
        case "MET":
            said = f"SLO MET in {often} (target {target}, in {required} of replications)."
        case "MISSED":
            said = f"SLO MISSED: {often} meet the target ({target}, in {required} of replications)."
        case _:
            said = f"SLO {_open(verdict, option)} (target {target})."
    if record["first_missed_month"] and verdict.status != "MET":
        said += f" First missed {record['first_missed_month']}."
    ends = []
    if record["lowest_fraction"] is not None and verdict.replications > 1:
        ends.append(f"lowest {share_words(record['lowest_fraction'])}")
    if base:  # as base case 99.39%, long-context, 2026-06
        attained = f"base case {share_words(base['slo_attainment_fraction'])}"
        ends.append(", ".join(filter(None, (attained, base["workload"], base["month"]))))
    return (
        f"{said} {ends[0].capitalize()}{''.join(f'; {end}' for end in ends[1:])}." if ends else said
    )


def target_lines(verdicts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say what SLO targets the plans of a study or a comparison have."""
    stated: dict[str, list[str]] = {}
    for name, record in verdicts.items():
        default = "" if record["stated"] else ", the default"
        said = (
            f"{target_words(record)}, in {record['confidence'] * 100:.6g}% of replications{default}"
        )
        stated.setdefault(said, []).append(name)
    if len(stated) == 1:
        return [f"SLO target: {next(iter(stated))}."]
    lines = [f"SLO target of {', '.join(names)}: {said}." for said, names in stated.items()]
    return [*lines, "The plans have different SLO targets: two that are MET need not serve alike."]


def share_words(share: float) -> str:
    """Return a share with two decimals, and more where those would round what was missed away."""
    return (
        f"{share:.{next((n for n in (2, 3, 4) if share == 1.0 or round(share, n + 2) < 1.0), 2)}%}"
    )


def sizing(summary: Mapping[str, Any]) -> str:
    """Say the one thing that a run's figures advise about the size of its fleet; nothing where they advise nothing."""
    verdict = summary["verdict"]
    idle = summary["capacity_fraction"]["idle"]
    if verdict["base_case"] is None:
        return ""
    if verdict["status"] != "MISSED":
        if (
            verdict["status"] != "MET"
            or verdict["met_replications"] < verdict["replications"]
            or idle <= IDLE_FRACTION
        ):
            return ""
        return f"{percent(idle, 0)} of node-hours idle: sized for growth risk, or too large? planner size"
    remedy = summary.get("remedy")
    best = "the cheapest plan that meets it: planner size."
    if remedy is None:
        return f"planner run --advise finds how many more nodes of one cluster meet it; {best}"
    if remedy["cluster"] is None:
        return f"No cluster meets it alone, enlarged up to {remedy['most_times']} times; {best}"
    return (
        f"{counted(remedy['nodes'], 'more node')} of {remedy['cluster']} ({remedy['accelerator']}) from "
        f"{remedy['from_month']} on meet it in {remedy['slo_met_replications']}/{remedy['replications']} "
        f"replications, for {dollars(remedy['net_present_cost_usd'])} more net present cost: "
        f"--set clusters.{remedy['cluster']}.nodes={remedy['nodes_in_all']}; {best}"
    )


def reserve_cluster(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the cluster that is reserve, much of the cost for few of the tokens, and that in words; or nothing."""
    fleet = summary["clusters"][FLEET]
    price = "cost_per_million_tokens_usd"
    rows = (
        (name, row) for name, row in summary["clusters"].items() if name != FLEET and row[price]
    )
    priced = {
        name: row for name, row in rows if row["utilisation_fraction"] is not None
    }  # an API has no machines
    if len(priced) < 2 or fleet["cost_usd"] <= 0:
        return {}
    dear = max(priced, key=lambda name: priced[name][price])
    row = priced[dear]
    if (
        row[price] < DEAR_TIMES * fleet[price]
        or row["utilisation_fraction"] > 0.5 * fleet["utilisation_fraction"]
    ):
        return {}
    cost = row["cost_usd"] / fleet["cost_usd"]
    tokens = row["served_tokens"] / fleet["served_tokens"]
    return {dear: f"reserve: {percent(cost, 0)} of cost, {percent(tokens, 0)} of tokens"}
