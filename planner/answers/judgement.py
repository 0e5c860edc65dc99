"""The one judgement behind every piece of advice: first whether a plan meets its SLO target, then what it costs.

Plans that meet their SLO target are told apart by cost, and stand before those that do not, which are told apart by how
far they fall short; such a plan is never recommended for its cost, nor said to save anything. Reports and terminal
tables take their order and their sentences from here, so that no two of them can disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from planner.output.words import dollars, percent, unit_price
from planner.run.measure_names import FLEET, HIGHER_IS_BETTER
from planner.units import counted

COST = "levelised_cost_per_million_tokens_usd"
"""What tells plans that meet their SLO target apart: cash at its time. Accrued cost moves with the books, which save
nothing."""
IN_TIME = "slo_attainment_fraction"
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
    """Least share in time that the SLO target is about."""
    shortfall_fraction: float | None
    """How far it falls short of its SLO target, over its replications; 0 where it keeps it."""

    @property
    def meets_slo(self) -> bool:
        """Whether it meets its SLO target; a plan that nobody asked anything of keeps none."""
        return self.slo_attainment_fraction is not None and self.shortfall_fraction == 0.0

    @property
    def service(self) -> str:
        """How it serves, in words that follow its name."""
        if self.slo_attainment_fraction is None:
            return "had no requests to serve"
        in_time = self.slo_attainment_fraction
        said = f"keeps {percent(in_time if in_time > 1e-12 else 0.0, 2)} of requests in time"  # not a rounding error
        if round(self.shed_fraction or 0.0, 4):
            said += f", sheds {percent(self.shed_fraction, 2)} of tokens"
        return said if self.meets_slo else f"{said} and falls {points(self.shortfall_fraction)} short of its SLO target"

    @property
    def standing(self) -> str:
        """How it stands to its SLO target, for the cell of a table."""
        if self.slo_attainment_fraction is None:
            return ""
        return "met" if self.meets_slo else f"missed by {percent(self.shortfall_fraction, 2)}"


def points(shortfall: float | None) -> str:
    """Return a shortfall as 3.20 points of a hundred."""
    return percent(shortfall, 2).replace("%", " points")


def served(
    name: str, figures: Mapping[str, float | None], shortfall_fraction: float | None = None, decided_by: str = COST
) -> Served:
    """Return a plan from its measures, of which ``decided_by`` tells plans that meet their SLO target apart.

    ``shortfall_fraction`` is that over replications, where there are several.
    """
    short = figures.get(SHORTFALL) if shortfall_fraction is None else shortfall_fraction
    cost = figures.get(decided_by)
    return Served(
        name=name,
        slo_attainment_fraction=figures.get(IN_TIME),
        shed_fraction=figures.get(SHED),
        cost=-cost if cost is not None and decided_by in HIGHER_IS_BETTER else cost,
        worst_fraction=figures.get(WORST),
        shortfall_fraction=None if short is None else round(short, 6),  # as files hold it
    )


def plans_of(
    figures: Mapping[str, Mapping[str, float | None]],
    slo_targets: Mapping[str, Mapping[str, Any]],
    decided_by: str = COST,
) -> list[Served]:
    """Return the plans of a comparison or a study, each judged by its SLO target over its replications."""
    short = {name: slo_target["shortfall_fraction"] for name, slo_target in slo_targets.items()}
    return [served(name, row, short.get(name), decided_by) for name, row in figures.items()]


class Choice(NamedTuple):
    """Plans in the order in which they are recommended."""

    keeping: tuple[Served, ...]
    """Those that meet their SLO target, cheapest first; of two that cost the same the one named first."""
    breaking: tuple[Served, ...]
    """Those that do not, the least short first; of two equally short the cheaper."""

    @property
    def best(self) -> Served | None:
        """The plan to take: the cheapest that meets its SLO target."""
        return self.keeping[0] if self.keeping else None

    @property
    def ranked(self) -> tuple[Served, ...]:
        """All of them."""
        return self.keeping + self.breaking


def much_shed(plans: Sequence[Served]) -> list[str]:
    """Say, before anything else, which plans shed so much that their figures are those of the rest."""
    return [
        f"{plan.name} sheds {percent(plan.shed_fraction)} of the tokens asked of it: every other figure is of the rest."
        for plan in plans
        if plan.shed_fraction is not None and plan.shed_fraction > MUCH_SHED_FRACTION
    ]


def choose(plans: Sequence[Served]) -> Choice:
    """Judge plans: the SLO target first, then cost; without a SLO met, how far they fall short."""
    keeping = [plan for plan in plans if plan.meets_slo and plan.cost is not None]
    breaking = [plan for plan in plans if not plan.meets_slo or plan.cost is None]
    keeping.sort(key=_cost)
    breaking.sort(key=lambda plan: (plan.slo_attainment_fraction is None, plan.shortfall_fraction or 0.0, _cost(plan)))
    return Choice(keeping=tuple(keeping), breaking=tuple(breaking))


def _cost(plan: Served) -> float:
    return math.inf if plan.cost is None else plan.cost


def frontier(plans: Sequence[Served]) -> list[Served]:
    """Return the plans that no other beats in both cost and the worst share in time, cheapest first.

    The cheapest plan that meets its SLO target is always among them where all SLO target the same.
    """
    known = [plan for plan in plans if plan.cost is not None and plan.worst_fraction is not None]
    best: list[Served] = []
    most = -math.inf
    for plan in sorted(known, key=lambda plan: (plan.cost, -round(plan.worst_fraction or 0.0, 6))):
        # Cheapest first, so a plan is beaten exactly if one before it keeps as much in time.
        if (share := round(plan.worst_fraction or 0.0, 6)) > most:
            best.append(plan)
            most = share
    return best


def change_words(change: float) -> str:
    """Return a relative change of cost as 31.5% less, 8.7% more or the same."""
    if round(change, 3) == 0:
        return "the same"
    return f"{percent(abs(change))} {'less' if change < 0 else 'more'}"


def against(cost: float | None, reference: float | None) -> str:
    """Return a cost against another as 31.5% less, 8.7% more or the same; nothing where one is not known."""
    return change_words(cost / reference - 1.0) if cost is not None and reference else ""


def comparable(plan: Served, baseline: Served) -> bool:
    """Say whether a plan's cost may be held against the baseline's: not where it serves clearly worse."""
    if plan.name == baseline.name or plan.slo_attainment_fraction is None or baseline.slo_attainment_fraction is None:
        return False
    if plan.meets_slo or baseline.meets_slo:
        return plan.meets_slo
    return (plan.shortfall_fraction or 0.0) <= (baseline.shortfall_fraction or 0.0) + WORSE_FRACTION


def none_keeps(choice: Choice, what: str = "plans") -> str:
    """Say that nothing can be recommended, and what comes nearest."""
    known = [plan for plan in choice.breaking if plan.slo_attainment_fraction is not None]
    if not known:
        return f"None of these {what} had a request to serve."
    nearest = known[0]
    return (
        f"None of these {what} meets its SLO target: {nearest.name} comes nearest, and {nearest.service}. Add capacity "
        "before looking at cost."
    )


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
        lead = f"{best.name} is the only one of these plans that meets its SLO target, at {price}."
        return lead if best is base else f"{lead} The baseline {baseline} {base.service}."
    lead = f"{best.name} costs least of the plans that meet their SLO target: {price}"
    if best is base:
        rival = choice.keeping[1]
        return f"{lead}. It is the baseline; the next, {rival.name}, costs {against(rival.cost, best.cost)}."
    if not base.meets_slo:
        return f"{lead}. The baseline {baseline} {base.service}, so a saving against it would say nothing."
    said = f"{lead}, {against(best.cost, base.cost)} than the baseline {baseline}"
    if (saving := summary.get("saving_interval_fraction", {}).get(best.name)) is None:
        return f"{said}."
    (low, high), words = saving, summary["replications"][best.name]["words"]
    span = f"{change_words(-low)} to {change_words(-high)}"
    if low <= 0 <= high:
        return f"{said}; in {words} it is {span}, so the two cannot be told apart."
    return f"{said} ({span} in {words})."


def sweep_advice(choice: Choice) -> str:
    """Say which combination of a sweep to take."""
    if choice.best is None:
        return none_keeps(choice, "combinations")
    best, number = choice.best, len(choice.ranked)
    price = f"{unit_price(best.cost)} per million tokens, levelised"
    if len(choice.keeping) == 1:
        return f"Of {number:,} combinations one meets its SLO target: {best.name}, at {price}."
    said = f"Of {number:,} combinations {len(choice.keeping):,} meet their SLO target"
    return f"{said}; of these a token costs least with {best.name}: {price}."


def warnings_of(choice: Choice, undecided: Sequence[str] = ()) -> list[str]:
    """Say of each plan that misses its SLO target why its cost is no argument for it, but for those not decided."""
    return [
        f"{plan.name} is no alternative as it stands: it {plan.service}. What it costs is the cost of doing less."
        for plan in choice.breaking
        if plan.slo_attainment_fraction is not None and not plan.meets_slo and plan.name not in undecided
    ]


def undecided(slo_targets: Mapping[str, Mapping[str, Any]], kept: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Return the plans of a study whose SLO target lies within the 95% interval of how often they keep it."""
    asked = {name: slo_target["confidence"] for name, slo_target in slo_targets.items()}
    return [name for name, (low, high) in kept.items() if low is not None and low < asked[name] <= high]


def undecided_lines(names: Sequence[str]) -> list[str]:
    """Say that a study is too small to tell of some plans whether they meet their SLO target."""
    if not names:
        return []
    verb = "meets" if len(names) == 1 else "meet"
    return [
        f"These replications are too few to tell whether {', '.join(names)} {verb} the SLO target as often as is "
        "asked: take more (-n) before you choose by it."
    ]


def slo_target_words(slo_target: Mapping[str, Any]) -> str:
    """Return what is promised, as 99% of requests in time, in each month and of each workload."""
    over = "in each month" if slo_target["per"] == "month" else "over the whole horizon"
    whose = "of each workload" if slo_target["scope"] == "workload" else "of all workloads together"
    return f"{slo_target['attainment'] * 100:.6g}% of requests in time, {over} and {whose}"


def slo_verdict(slo_target: Mapping[str, Any]) -> str:
    """Say whether a run meets its SLO target, when it first breaks and where it is worst; its first line everywhere."""
    worst, first = slo_target["worst"], slo_target["first_missed"]
    said = f"{slo_target_words(slo_target)}{'' if slo_target['stated'] else ', the default'}"
    if worst is None:
        return f"SLO target not put to the test ({said}): there was no request to serve."
    often = ""
    if slo_target["replications"] > 1:
        asked = "" if slo_target["met"] else f" where {slo_target['confidence'] * 100:.6g}% are asked for"
        often = f", met in {slo_target['slo_met_replications']} of {slo_target['replications']} replications{asked}"
    if slo_target["met"]:
        return f"SLO met ({said}{often}); least {_moment(worst)}."
    lead = f"SLO missed, first in {slo_target['first_missed_month']} ({said}{often})"
    if first is None:
        return f"{lead}. This replication meets it, least {_moment(worst)}."
    return f"{lead}. This replication misses it first {_moment(first)}, and worst {_moment(worst)}."


def slo_target_lines(slo_targets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say what SLO targets the plans of a study or a comparison have."""
    asked: dict[str, list[str]] = {}
    for name, slo_target in slo_targets.items():
        default = "" if slo_target["stated"] else " (the default SLO target)"
        said = f"{slo_target_words(slo_target)}, in {slo_target['confidence'] * 100:.6g}% of replications{default}"
        asked.setdefault(said, []).append(name)
    if len(asked) == 1:
        return [f"SLO target: {next(iter(asked))}."]
    lines = [f"SLO target of {', '.join(names)}: {said}." for said, names in asked.items()]
    return [*lines, "The plans have different SLO targets: two that meet theirs need not serve alike."]


def _moment(moment: Mapping[str, Any]) -> str:
    """Return a month, whose requests and how many were in time.

    That share has two decimals, and more where those would round what was missed away.
    """
    share, whose = moment["slo_attainment_fraction"], f" of {moment['workload']}" if moment["workload"] else ""
    decimals = next((n for n in (2, 3, 4) if share == 1.0 or round(share, n + 2) < 1.0), 2)
    return f"in {moment['month']} with {share:.{decimals}%}{whose} in time"


def sizing(summary: Mapping[str, Any]) -> str:
    """Say the one thing that a run's figures advise about the size of its fleet; nothing where they advise nothing."""
    slo_target, idle = summary["slo_target"], summary["capacity_fraction"]["idle"]
    if slo_target["worst"] is None:
        return ""
    if slo_target["met"]:
        if slo_target["slo_met_replications"] < slo_target["replications"] or idle <= IDLE_FRACTION:
            return ""
        return (
            f"{percent(idle)} of node-hours had no demand at the traffic as stated, and the SLO target was met "
            "throughout. That is room for faster growth, or nodes too many: planner size says how many are enough."
        )
    remedy, best = summary.get("remedy"), "planner size finds the cheapest plan that meets it."
    if remedy is not None and remedy["cluster"] is None:
        said = [f"No cluster meets it alone, enlarged up to {remedy['most_times']} times: {best}"]
    elif remedy is not None:
        said = [
            f"{counted(remedy['nodes'], 'more node')} of {remedy['cluster']} ({remedy['accelerator']}) would meet it, "
            f"in {remedy['slo_met_replications']} of {remedy['replications']} replications, at "
            f"{dollars(remedy['net_present_cost_usd'])} more net present cost; {best}"
        ]
    else:
        said = [f"planner run --advise finds how many more nodes of one cluster meet it; {best}"]
    if idle > IDLE_FRACTION:
        said.append(
            f"{percent(idle)} of node-hours had no demand all the same, so look first at when it falls short and on "
            "which clusters."
        )
    return " ".join(said)


def dearest_cluster(summary: Mapping[str, Any], most_of_fleets_utilisation: float = math.inf) -> str:
    """Say whose tokens carry most cost, and that routing makes it so; nothing where they cost about the same.

    Nor where that cluster is utilised beyond a multiple of the fleet's utilisation.
    """
    fleet, price = summary["clusters"][FLEET], "cost_per_million_tokens_usd"
    priced = {name: row for name, row in summary["clusters"].items() if name != FLEET and row[price]}
    if len(priced) < 2 or fleet["cost_usd"] <= 0:
        return ""
    dear, cheap = (end(priced, key=lambda name: priced[name][price]) for end in (max, min))
    times, utilised = priced[dear][price] / priced[cheap][price], priced[dear]["utilisation_fraction"]
    if times < DEAR_TIMES or utilised > most_of_fleets_utilisation * fleet["utilisation_fraction"]:
        return ""
    return (
        f"A token served by {dear} carries {times:.1f} times the cost of one on {cheap}: {dear} takes "
        f"{percent(priced[dear]['cost_usd'] / fleet['cost_usd'], 0)} of the money and serves "
        f"{percent(priced[dear]['served_tokens'] / fleet['served_tokens'], 0)} of the tokens, at "
        f"{percent(utilised, 0)} utilisation. That is how work was routed, not what the part would cost at the "
        "other's work."
    )
