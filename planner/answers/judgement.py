"""The one judgement behind every piece of advice: first whether a plan keeps its promise, then what it costs.

Plans that keep their promise are told apart by cost, and stand before those that do not, which are told apart by how
far they fall short; such a plan is never recommended for its cost, nor said to save anything. Reports and terminal
tables take their order and their sentences from here, so that no two of them can disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.output.words import percent, unit_price
from planner.run.measure_names import FLEET, HIGHER_IS_BETTER
from planner.units import counted

COST = "levelised_cost_per_million_tokens_usd"
"""What tells plans that keep their promise apart: cash at its time. Accrued cost moves with the books, which save
nothing."""
IN_TIME = "slo_attainment_fraction"
SHED = "shed_fraction"
WORST = "worst_in_time_fraction"
SHORTFALL = "promise_shortfall_fraction"

WORSE_FRACTION = 0.01
"""How much further a plan must fall short before it serves clearly worse than another; assumption."""
MUCH_SHED_FRACTION = 0.1
"""Share of tokens shed above which a plan's figures are no longer those of its traffic, so this is said first;
assumption."""
DEAR_TIMES = 1.2
"""How many times the cost of a token must differ between clusters before it is said; assumption."""
IDLE_FRACTION = 0.5
"""Share of node-hours without demand above which a plan that keeps its promise may be larger than its traffic;
assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A plan as advice sees it."""

    name: str
    in_time_fraction: float | None
    """Share of requests served within their objective; None where there was no demand, or nobody measured it."""
    shed_fraction: float | None
    """Share of tokens refused or given up."""
    cost: float | None
    """What decides between plans that keep their promise, lower is better; None where no token was served."""
    worst_fraction: float | None
    """Least share in time that the promise is about."""
    shortfall_fraction: float | None
    """How far it falls short of its promise, over its replications; 0 where it keeps it."""

    @property
    def keeps_promise(self) -> bool:
        """Whether it keeps its promise; a plan that nobody asked anything of keeps none."""
        return self.in_time_fraction is not None and self.shortfall_fraction == 0.0

    @property
    def service(self) -> str:
        """How it serves, in words that follow its name."""
        if self.in_time_fraction is None:
            return "had no requests to serve"
        kept = self.in_time_fraction if self.in_time_fraction > 1e-12 else 0.0  # a rounding error is nothing
        said = f"keeps {percent(kept, 2)} of requests in time"
        if round(self.shed_fraction or 0.0, 4):
            said += f", sheds {percent(self.shed_fraction, 2)} of tokens"
        return (
            said if self.keeps_promise else f"{said} and falls {points(self.shortfall_fraction)} short of its promise"
        )

    @property
    def standing(self) -> str:
        """How it stands to its promise, for the cell of a table."""
        if self.in_time_fraction is None:
            return ""
        return "kept" if self.keeps_promise else f"short {percent(self.shortfall_fraction, 2)}"


def points(shortfall: float | None) -> str:
    """Return a shortfall as 3.20 points of a hundred."""
    return percent(shortfall, 2).replace("%", " points")


def served(
    name: str, figures: Mapping[str, float | None], shortfall_fraction: float | None = None, decided_by: str = COST
) -> Served:
    """Return a plan from its measures, of which ``decided_by`` tells plans that keep their promise apart.

    ``shortfall_fraction`` is that over replications, where there are several.
    """
    short = figures.get(SHORTFALL) if shortfall_fraction is None else shortfall_fraction
    cost = figures.get(decided_by)
    return Served(
        name=name,
        in_time_fraction=figures.get(IN_TIME),
        shed_fraction=figures.get(SHED),
        cost=-cost if cost is not None and decided_by in HIGHER_IS_BETTER else cost,
        worst_fraction=figures.get(WORST),
        shortfall_fraction=None if short is None else round(short, 6),  # as files hold it
    )


def plans_of(
    figures: Mapping[str, Mapping[str, float | None]], promises: Mapping[str, Mapping[str, Any]], decided_by: str = COST
) -> list[Served]:
    """Return the plans of a comparison or a study, each judged by its promise over its replications."""
    short = {name: promise["shortfall_fraction"] for name, promise in promises.items()}
    return [served(name, row, short.get(name), decided_by) for name, row in figures.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Plans in the order in which they are recommended."""

    keeping: tuple[Served, ...]
    """Those that keep their promise, cheapest first; of two that cost the same the one named first."""
    breaking: tuple[Served, ...]
    """Those that do not, the least short first; of two equally short the cheaper."""

    @property
    def best(self) -> Served | None:
        """The plan to take: the cheapest that keeps its promise."""
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
    """Judge plans: the promise first, then cost; without a promise kept, how far they fall short."""

    def how_far(plan: Served) -> tuple[bool, float, float]:
        cost = math.inf if plan.cost is None else plan.cost
        return plan.in_time_fraction is None, plan.shortfall_fraction or 0.0, cost

    keeping = [plan for plan in plans if plan.keeps_promise and plan.cost is not None]
    breaking = [plan for plan in plans if not plan.keeps_promise or plan.cost is None]
    return Choice(
        keeping=tuple(sorted(keeping, key=lambda plan: plan.cost or 0.0)),
        breaking=tuple(sorted(breaking, key=how_far)),
    )


def frontier(plans: Sequence[Served]) -> list[Served]:
    """Return the plans that no other beats in both cost and the worst share in time, cheapest first.

    The cheapest plan that keeps its promise is always among them where all promise the same.
    """
    known = [
        (plan.cost, -round(plan.worst_fraction, 6), place)
        for place, plan in enumerate(plans)
        if plan.cost is not None and plan.worst_fraction is not None
    ]
    best: list[Served] = []
    most = -math.inf
    for _, missing, place in sorted(known):
        # Cheapest first, so a plan is beaten exactly if one before it keeps as much in time.
        if -missing > most:
            best.append(plans[place])
            most = -missing
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
    if plan.name == baseline.name or plan.in_time_fraction is None or baseline.in_time_fraction is None:
        return False
    if plan.keeps_promise or baseline.keeps_promise:
        return plan.keeps_promise
    return (plan.shortfall_fraction or 0.0) <= (baseline.shortfall_fraction or 0.0) + WORSE_FRACTION


def none_keeps(choice: Choice, what: str = "plans") -> str:
    """Say that nothing can be recommended, and what comes nearest."""
    known = [plan for plan in choice.breaking if plan.in_time_fraction is not None]
    if not known:
        return f"None of these {what} had a request to serve."
    nearest = known[0]
    return (
        f"None of these {what} keeps its promise: {nearest.name} comes nearest, and {nearest.service}. Add capacity "
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
        lead = f"{best.name} is the only one of these plans that keeps its promise, at {price}."
        return lead if best is base else f"{lead} The baseline {baseline} {base.service}."
    lead = f"{best.name} costs least of the plans that keep their promise: {price}"
    if best is base:
        rival = choice.keeping[1]
        return f"{lead}. It is the baseline; the next, {rival.name}, costs {against(rival.cost, best.cost)}."
    if not base.keeps_promise:
        return f"{lead}. The baseline {baseline} {base.service}, so a saving against it would say nothing."
    return f"{lead}, {against(best.cost, base.cost)} than the baseline {baseline}{_under_chance(best, summary)}."


def _under_chance(plan: Served, summary: Mapping[str, Any]) -> str:
    """Say where a saving lies in other replications."""
    if (saving := summary.get("saving_interval_fraction", {}).get(plan.name)) is None:
        return ""
    low, high = saving
    span = f"{change_words(-low)} to {change_words(-high)}"
    words = summary["chance"][plan.name]["words"]
    return (
        f"; in {words} it is {span}, so the two cannot be told apart" if low <= 0 <= high else f" ({span} in {words})"
    )


def sweep_advice(choice: Choice) -> str:
    """Say which combination of a sweep to take."""
    if choice.best is None:
        return none_keeps(choice, "combinations")
    best, number = choice.best, len(choice.ranked)
    price = f"{unit_price(best.cost)} per million tokens, levelised"
    if len(choice.keeping) == 1:
        return f"Of {number:,} combinations one keeps its promise: {best.name}, at {price}."
    said = f"Of {number:,} combinations {len(choice.keeping):,} keep their promise"
    return f"{said}; of these a token costs least with {best.name}: {price}."


def warnings_of(choice: Choice, undecided: Sequence[str] = ()) -> list[str]:
    """Say of each plan that breaks its promise why its cost is no argument for it, but for those not decided."""
    return [
        f"{plan.name} is no alternative as it stands: it {plan.service}. What it costs is the cost of doing less."
        for plan in choice.breaking
        if plan.in_time_fraction is not None and not plan.keeps_promise and plan.name not in undecided
    ]


def undecided(promises: Mapping[str, Mapping[str, Any]], kept: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Return the plans of a study whose promise lies within the 95% interval of how often they keep it."""
    asked = {name: promise["in_replications"] for name, promise in promises.items()}
    return [name for name, (low, high) in kept.items() if low is not None and low < asked[name] <= high]


def undecided_lines(names: Sequence[str]) -> list[str]:
    """Say that a study is too small to tell of some plans whether they keep their promise."""
    if not names:
        return []
    verb = "keeps" if len(names) == 1 else "keep"
    return [
        f"These replications are too few to tell whether {', '.join(names)} {verb} the promise as often as is asked: "
        "take more (-n) before you choose by it."
    ]


def promise_words(promise: Mapping[str, Any]) -> str:
    """Return what is promised, as 99% of requests in time, in each month and of each workload."""
    over = "in each month" if promise["each"] == "month" else "over the whole horizon"
    whose = "of each workload" if promise["of"] == "workload" else "of all workloads together"
    return f"{promise['in_time'] * 100:.6g}% of requests in time, {over} and {whose}"


def promise_verdict(promise: Mapping[str, Any]) -> str:
    """Say whether a run keeps its promise, when it first breaks and where it is worst; its first line everywhere."""
    worst, first, default = promise["worst"], promise["first_broken"], "" if promise["stated"] else ", the default"
    said = f"{promise_words(promise)}{default}"
    if worst is None:
        return f"Promise not put to the test ({said}): there was no request to serve."
    often = ""
    if promise["replications"] > 1:
        asked = "" if promise["kept"] else f" where {promise['in_replications'] * 100:.6g}% are promised"
        often = f", kept in {promise['kept_replications']} of {promise['replications']} replications{asked}"
    if promise["kept"]:
        return f"Promise kept ({said}{often}); least {_moment(worst)}."
    lead = f"Promise broken, first in {promise['first_broken_month']} ({said}{often})"
    if first is None:
        return f"{lead}. This replication keeps it, least {_moment(worst)}."
    return f"{lead}. This replication breaks it first {_moment(first)}, and worst {_moment(worst)}."


def promise_lines(promises: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say what the plans of a study or a comparison promise."""
    asked: dict[str, list[str]] = {}
    for name, promise in promises.items():
        default = "" if promise["stated"] else " (the default promise)"
        said = f"{promise_words(promise)}, in {promise['in_replications'] * 100:.6g}% of replications{default}"
        asked.setdefault(said, []).append(name)
    if len(asked) == 1:
        return [f"Promise: {next(iter(asked))}."]
    lines = [f"Promise of {', '.join(names)}: {said}." for said, names in asked.items()]
    return [*lines, "The plans promise different things: two that keep their promise need not serve alike."]


def _moment(moment: Mapping[str, Any]) -> str:
    """Return a month, whose requests and how many were in time.

    That share has two decimals, and more where those would round what was missed away.
    """
    share, whose = moment["in_time_fraction"], f" of {moment['workload']}" if moment["workload"] else ""
    decimals = next((n for n in (2, 3, 4) if share == 1.0 or round(share, n + 2) < 1.0), 2)
    return f"in {moment['month']} with {share:.{decimals}%}{whose} in time"


def _nodes(counts: Mapping[str, int]) -> list[str]:
    return [f"{counted(nodes, 'node')} of {cluster}" for cluster, nodes in counts.items()]


def mending(promise: Mapping[str, Any]) -> str:
    """Say what a broken promise would take, from what was computed: the work missed, and machines that come later."""
    lacking = promise["lacking"]
    if lacking is None:
        return ""
    said = "No one cluster can take all that it misses."
    if parts := " or ".join(_nodes(lacking["nodes"])):
        said = (
            f"What its worst month misses beyond the promise is the work of {parts} at full load all month: add that, "
            "and more for the peaks."
        )
    if later := " and ".join(_nodes(lacking["later_nodes"])):
        said += f" {later} enter service only after {promise['first_broken']['month']}: bring them forward."
    return said


def sizing(summary: Mapping[str, Any]) -> str:
    """Say the one thing that a run's figures advise about the size of its fleet; nothing where they advise nothing."""
    promise, idle = summary["promise"], summary["capacity_fraction"]["without_demand"]
    if promise["worst"] is None:
        return ""
    if not promise["kept"]:
        spare = (
            f"{percent(idle)} of node-hours had no demand all the same, so look first at when it falls short and on "
            "which clusters."
        )
        return " ".join(line for line in (mending(promise), spare if idle > IDLE_FRACTION else "") if line)
    if promise["kept_replications"] == promise["replications"] and idle > IDLE_FRACTION:
        return (
            f"{percent(idle)} of node-hours had no demand at the traffic as stated, and the promise was kept "
            "throughout. That is room for faster growth, or nodes too many: planner size says how many are enough."
        )
    return ""


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
