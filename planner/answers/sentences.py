"""The sentences of every answer: verdicts, targets, recommendations and warnings, the same on every surface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.answers.ranking import RankedPlan, Ranking, rank
from planner.answers.summaries import ComparisonSummary, Measures, RunSummary
from planner.answers.verdicts import Estimate, PlanVerdict
from planner.output.words import dollars, percent, short_dollars, unit_price
from planner.run.slo_misses import LongPrompts
from planner.scenario.scenario import SloTarget
from planner.studies.remedy import NoRemedy, Remedy
from planner.units import counted

MAX_RESALE_RATIO = 3.0
"""Times the resale values beyond which nobody expects them."""
MUCH_SHED_FRACTION = 0.1
"""Share of tokens shed above which a plan's figures are no longer those of its traffic, which is said before all else;
assumption."""
DEAR_RATIO = 1.2
"""How many times the fleet's cost of a token a cluster's must be before that is said; assumption."""
LITTLE_USED_RATIO = 0.5
"""Share of the fleet's utilisation up to which a dear cluster is idle capacity, not merely dear; assumption."""
MUCH_HEADROOM_FRACTION = 0.1
"""Headroom of the tightest hour up to which idle nodes are there for the peak, and none is too many; assumption."""
BEING_DRAWN = "further replications are being drawn"
"""What is said of a verdict to come on the live page."""
IDLE_FRACTION = 0.5
"""Share of node-hours without demand above which a plan that is MET may be larger than its traffic; assumption."""


def much_shed(shed_fractions: Mapping[str, float | None]) -> list[str]:
    """Say which plans shed more than a tenth of their demand: a warning before every other figure."""
    return [
        f"{name} sheds {percent(share)} of its tokens; all other figures cover only the tokens that it serves."
        for name, share in shed_fractions.items()
        if (share or 0.0) > MUCH_SHED_FRACTION
    ]


def plans_that_shed(plans: Sequence[RankedPlan]) -> list[str]:
    """Say the same of ranked plans."""
    return much_shed({plan.name: plan.shed_fraction for plan in plans})


def change_words(change: float) -> str:
    """Return a relative change of cost as 31.5% less, 8.7% more or the same."""
    if not round(change, 3):
        return "the same"
    return f"{percent(abs(change))} {'less' if change < 0 else 'more'}"


def interval_words(ends: tuple[float, float]) -> str:
    """Return an interval of relative changes, the lower end first, as 2.0% less to 3.1% more."""
    low, high = sorted(ends)
    if change_words(low) == change_words(high):
        return change_words(low)
    if round(low, 3) * round(high, 3) > 0:  # both less, or both more: the word once
        near, far = sorted((abs(low), abs(high)))
        return f"{percent(near)} to {percent(far)} {'less' if low < 0 else 'more'}"
    return f"{change_words(low)} to {change_words(high)}"


def saving_words(saving: tuple[float, float]) -> str:
    """Return an interval of savings as one of changes of cost."""
    low, high = saving
    return interval_words((-low, -high))


def cost_change_words(cost: float | None, reference: float | None) -> str:
    """Return a cost against another as 31.5% less, 8.7% more or the same; nothing where one is not known."""
    if cost is not None and reference:
        return change_words(cost / reference - 1.0)
    return ""


def none_met(ranking: Ranking, plural: str = "plans") -> str:
    """Say that nothing can be recommended, and what comes nearest; nothing of one plan without a verdict."""
    served = [plan for plan in ranking.plans if plan.slo_attainment_fraction is not None]
    if not served:
        return f"None of these {plural} had a request to serve."
    # Of one plan "none of these" would be odd.
    is_choice = len(ranking.plans) > 1
    if ranking.inconclusive_plans:
        return f"None of these {plural} is known to meet its SLO target." if is_choice else ""
    lead = f"None of these {plural} meets its SLO target. Nearest: " if is_choice else ""
    nearest = served[0]
    remedy = "Add capacity before comparing costs."
    if nearest.verdict is not None and nearest.verdict.long_prompts:
        remedy = " ".join(map(long_prompt_advice, nearest.verdict.long_prompts))
    return f"{lead}{nearest.name} {nearest.service}. {remedy}"


def too_long_words(prompts: LongPrompts) -> str:
    """Return how many prompts are too long, as 1.6% of docs prompts take longer than their TTFT objective."""
    share = percent(prompts.missed_fraction)
    return f"{share} of {prompts.workload} prompts take longer than their TTFT objective even on an idle replica"


def objective_words(prompts: LongPrompts) -> str:
    """Return what mends prompts that are too long, as slo.ttft_s of 4.7 or more, or a faster layout."""
    objective = "a longer slo.ttft_s"
    if prompts.sufficient_ttft_s is not None:
        objective = f"slo.ttft_s of {prompts.sufficient_ttft_s:g} or more"
    if prompts.faster_cluster is not None:
        return (
            f"{objective}, a faster layout, or {prompts.faster_cluster} first in cluster_preference"
        )
    return f"{objective}, or a faster layout"


def long_prompt_advice(prompts: LongPrompts) -> str:
    """Say of a workload whose prompts alone miss the SLO target why nodes do not mend that, and what does."""
    share = percent(prompts.missed_fraction)
    return (
        f"More nodes of {prompts.cluster} do not help {prompts.workload}: {share} of its prompts take longer than its "
        f"TTFT objective ({prompts.ttft_s:g} s) even on an idle replica. {prompts.workload} needs "
        f"{objective_words(prompts)}."
    )


def _long_prompts_remedy(verdict: PlanVerdict, too_long: Sequence[LongPrompts]) -> str:
    """Say what would mend workloads whose prompts alone miss the SLO target, and when all else misses it."""
    lines = [*map(long_prompt_advice, too_long)]
    if verdict.otherwise_missed_month is not None:
        lines.append(
            f"{otherwise_words(verdict)} To see how many more nodes would then meet the target: planner run --advise."
        )
    return " ".join(lines)


def otherwise_words(verdict: PlanVerdict) -> str:
    """Say when the base case misses its SLO target, with workloads set aside whose prompts no node serves in time."""
    names = " and ".join(prompts.workload for prompts in verdict.long_prompts or ())
    lead = f"If late requests of {names} are not counted, the base case"
    month = verdict.otherwise_missed_month
    if month is None:
        return f"{lead} meets the target to the end of the horizon."
    return f"{lead} first misses the target in {month}."


def probability_words(verdict: PlanVerdict) -> str:
    """Return how often a plan meets its SLO target, as P(SLO met) 94% [78, 99] against 90% required."""
    counts = verdict.counts
    low, high = counts.interval
    return (
        f"P(SLO met) {counts.share:.0%} [{low * 100:.0f}, {high * 100:.0f}] against "
        f"{counts.confidence * 100:.6g}% required"
    )


def assumed_api_words(verdict: PlanVerdict | None) -> list[str]:
    """Say of a plan that may send requests to an API that their attainment is assumed; nothing of others."""
    if verdict is None or not verdict.assumed_apis:
        return []
    names = ", ".join(verdict.assumed_apis)
    return [
        f"Requests sent to an API ({names}) are assumed to meet their SLO; this is not simulated."
    ]


def _cheaper_undecided(ranking: Ranking, *, on_page: bool) -> list[str]:
    """Say which plans without a verdict would cost less than the one recommended."""
    best = ranking.best
    if best is None or best.cost is None:
        return []
    lines = []
    for plan in ranking.inconclusive_plans:
        if plan.verdict is None or plan.cost is None or plan.cost >= best.cost:
            continue
        number = plan.verdict.settled_by_replications
        remedy = "its verdict stays open"
        if number and not on_page:
            remedy = f"re-run with -n {number} before deciding"
        elif on_page and plan.verdict.replications == 1:
            remedy = BEING_DRAWN
        lines.append(
            f"{plan.name} costs {change_words(plan.cost / best.cost - 1.0)} but is {plan.standing}: {remedy}."
        )
    return lines


def recommendation(
    plans: Sequence[RankedPlan], summary: ComparisonSummary, *, on_page: bool = False
) -> str:
    """Say which plan of a comparison to take, and on what assumptions; or that none is known to meet its target."""
    baseline = next(plan for plan in plans if plan.name == summary.baseline)
    # The baseline first, so that of plans that cost the same it is the one to take.
    ranking = rank([baseline, *(plan for plan in plans if plan is not baseline)])
    if ranking.best is None:
        return none_met(ranking)
    lines = [_best_against_baseline(ranking, baseline, summary)]
    lines += assumed_api_words(ranking.best.verdict)
    lines += _cheaper_undecided(ranking, on_page=on_page)
    return " ".join(lines)


def _best_against_baseline(
    ranking: Ranking, baseline: RankedPlan, summary: ComparisonSummary
) -> str:
    """Say which plan costs least of those that are MET, and how its cost stands against the baseline's."""
    best = ranking.met_plans[0]
    assert best.verdict is not None  # only a point of a sweep has none
    probability = probability_words(best.verdict)
    price = f"{unit_price(best.cost)} per million tokens, levelised"
    if len(ranking.met_plans) == 1:
        lead = (
            f"{best.name} is the only one of these plans that is MET, with {probability}: {price}."
        )
        if best is baseline:
            return lead
        return f"{lead} The baseline, {baseline.name}, {baseline.service}."
    lead = f"{best.name} costs least of the plans that are MET, with {probability}: {price}"
    if best is baseline:
        rival = ranking.met_plans[1]
        change = cost_change_words(rival.cost, best.cost)
        return f"{lead}. It is the baseline; the next cheapest, {rival.name}, costs {change}."
    if not baseline.meets_slo:
        return (
            f"{lead}. The baseline, {baseline.name}, {baseline.service}; a saving against a plan that serves worse "
            "means nothing."
        )
    change = cost_change_words(best.cost, baseline.cost)
    lead = f"{lead}, {change} than the baseline {baseline.name}"
    saving = summary.saving_interval_fraction.get(best.name)
    # Where a replication served no token, savings cannot be paired.
    if saving is None:
        return f"{lead}."
    replications = summary.replications[best.name].words
    low, high = saving
    # An interval on both sides of zero is no difference.
    if low <= 0 <= high:
        return f"{lead}; in {replications} it costs {saving_words(saving)}, so there is no clear difference."
    return f"{lead} ({saving_words(saving)} in {replications})."


def sweep_advice(ranking: Ranking) -> str:
    """Say which combination of a sweep to confirm: each was run once, which is no verdict."""
    best = ranking.best
    if best is None:
        return none_met(ranking, "combinations")
    met = len(ranking.met_plans)
    return (
        f"In one replication of each, {met:,} of {len(ranking.plans):,} combinations meet{'s' if met == 1 else ''} the "
        f"SLO target. The cheapest of them is {best.name}, at a levelised {unit_price(best.cost)} per million tokens. "
        "One replication is not enough for a verdict. Confirm this plan with planner run."
    )


def no_alternatives(ranking: Ranking) -> list[str]:
    """Say of each plan that is MISSED why its cost is no argument for it; nothing where no plan is MET."""
    if ranking.best is None:
        return []
    served = [plan for plan in ranking.missed_plans if plan.slo_attainment_fraction is not None]
    return [
        f"{plan.name} is no alternative: it {plan.service}."
        for plan in served
        if not plan.meets_slo
    ]


def break_even_lines(measures: Mapping[str, Measures], baseline: str) -> list[str]:
    """Say at which resale values and which yearly change of listed token prices a plan and the baseline are alike."""
    ratios = {
        name: figures.get("resale_flip_ratio") or MAX_RESALE_RATIO
        for name, figures in measures.items()
    }
    lines = [
        f"{name} and {baseline} cost the same per token if resale values are {ratio:.2f} times those assumed."
        for name, ratio in ratios.items()
        if ratio < MAX_RESALE_RATIO
    ]
    for name, figures in measures.items():
        change = figures.get("price_change_flip_per_year")
        if change is not None:
            lines.append(
                f"{name} and {baseline} have the same NPV if listed token prices {price_change_words(change)}."
            )
    return lines


def price_change_words(change_per_year: float) -> str:
    """Return a yearly change of listed prices as fall by 23% a year."""
    direction = "fall" if change_per_year < 0 else "rise"
    return f"{direction} by {percent(abs(change_per_year), 0)} a year"


def value_line(measures: Measures, horizon_months: int) -> str:
    """Return what a plan that sells tokens is worth: NPV, return, margin, payback; nothing of one that sells none."""
    if not measures["revenue_usd"]:
        return ""
    internal_rate = measures["irr_per_year"]
    payback = measures["payback_months"]
    figures = (
        f"NPV {short_dollars(measures['npv_usd'])}",
        "no IRR" if internal_rate is None else f"IRR {percent(internal_rate, 0)}",
        f"gross margin {percent(measures['gross_margin_fraction'], 0)}",
        f"no payback in {horizon_months} months"
        if payback is None
        else f"payback {payback:.0f} months",
    )
    return "   ".join(figures)


def price_change_lines(measures: Measures) -> list[str]:
    """Say at which yearly change of listed token prices a plan's worth, or that of owning against an API, turns."""
    sentences = {
        "break_even_price_change_per_year": "NPV is zero if listed token prices",
        "break_even_api_price_change_per_year": "Owning and the API cost the same if the API's listed prices",
    }
    lines = []
    for name, lead in sentences.items():
        change = measures.get(name)
        if change is not None:
            lines.append(f"{lead} {price_change_words(change)}.")
    return lines


def gain_lines(shares: Mapping[str, Estimate]) -> list[str]:
    """Say in which share of replications each plan that sells tokens has a positive NPV; nothing of none."""
    words = []
    for name, share in shares.items():
        if share.value is not None:
            interval = ""
            if share.low is not None and share.high is not None:
                low = max(share.low, 0.0)
                high = min(share.high, 1.0)
                interval = f" [{low * 100:.0f}, {high * 100:.0f}]"
            words.append(f"{name} {share.value:.0%}{interval}")
    if not words:
        return []
    return [f"P(NPV > 0): {', '.join(words)}."]


def inconclusive_lines(ranking: Ranking, *, on_page: bool = False) -> list[str]:
    """Say of plans without a verdict how often they meet their target, and how many replications would settle it."""
    names_by_sentence: dict[str, list[str]] = {}
    for plan in ranking.plans:
        if plan.verdict is not None and plan.is_inconclusive:
            sentence = _inconclusive(plan.verdict, on_page=on_page)
            names_by_sentence.setdefault(sentence, []).append(plan.name)
    return [f"{', '.join(names)}: SLO {sentence}." for sentence, names in names_by_sentence.items()]


def past_mending_lines(verdicts: Mapping[str, PlanVerdict]) -> list[str]:
    """Say how many replications of which plans miss the SLO target whatever is bought, and why; nothing of none."""
    names_by_sentence: dict[tuple[str, str], list[str]] = {}
    for name, verdict in verdicts.items():
        by_cause = verdict.past_mending or {}
        causes = {cause: number for cause, number in by_cause.items() if number}
        if not causes:
            continue
        total = sum(causes.values())
        verb = "misses" if total == 1 else "miss"
        words = ", ".join(f"{cause.replace('_', ' ')} {number}" for cause, number in causes.items())
        key = (
            f"{total} of {verdict.replications} replications",
            f"{verb} the SLO target whatever is bought: {words}.",
        )
        names_by_sentence.setdefault(key, []).append(name)
    return [
        # A run's own verdict has no name.
        f"{replications}{' of ' * any(names)}{', '.join(names)} {misses}"
        for (replications, misses), names in names_by_sentence.items()
    ]


def _inconclusive(verdict: PlanVerdict, *, on_page: bool) -> str:
    """Return what is known of an inconclusive verdict, as INCONCLUSIVE at n = 16: P(SLO met) 94% [78, 99]."""
    counts = verdict.counts
    number = counts.settled_by
    known = f"INCONCLUSIVE at n = {counts.replications}: {probability_words(verdict)}"
    # The page draws replications unasked, and no option has it draw more.
    if on_page and counts.replications == 1:
        return f"{known}; {BEING_DRAWN}"
    if number is None:
        return f"{known}; more replications would not settle it, P is too close to what is required"
    return known if on_page else f"{known}; re-run with -n {number}"


def target_words(target: SloTarget | PlanVerdict) -> str:
    """Return an SLO target, as 98% per month and workload."""
    is_monthly = target.per == "month"
    period = "per month" if is_monthly else "over the horizon"
    if target.scope != "workload":
        terms = f"{period}, all workloads together"
    else:
        terms = f"{period} and {'workload' if is_monthly else 'per workload'}"
    own_targets = "".join(
        f", {name} {attainment * 100:.6g}%" for name, attainment in target.workloads.items()
    )
    return f"{target.attainment * 100:.6g}% {terms}{own_targets}"


def verdict_line(verdict: PlanVerdict, *, on_page: bool = False) -> str:
    """Return the verdict in a line: the first of every surface."""
    target = target_words(verdict) + ("" if verdict.stated else ", the default")
    if verdict.replications == 0:
        return f"SLO not tested (target {target}): there was no request to serve."
    replications = f"{verdict.met_replications}/{verdict.replications} replications"
    required = f"in {verdict.confidence * 100:.6g}% of replications"
    match verdict.status:
        case "MET":
            sentence = f"SLO MET in {replications} (target {target}, {required})."
        case "MISSED":
            sentence = f"SLO MISSED: {replications} meet the target ({target}, {required})."
        case _:
            sentence = f"SLO {_inconclusive(verdict, on_page=on_page)} (target {target})."
    if verdict.first_missed_month and verdict.status != "MET":
        causes = "; ".join(map(too_long_words, verdict.long_prompts or ()))
        reason = f": {causes}" if causes else ""
        sentence += f" First missed {verdict.first_missed_month}{reason}."
    lowest = []
    # Of one replication the lowest is the base case's.
    if verdict.lowest_fraction is not None and verdict.replications > 1:
        lowest.append(f"lowest of them {share_words(verdict.lowest_fraction)}")
    if verdict.base_case is not None:  # as base case 99.39% (long-context, 2026-06)
        base = verdict.base_case
        attained = f"base case {share_words(base.slo_attainment_fraction)}"
        place = ", ".join(filter(None, (base.workload, base.month)))
        lowest.append(f"{attained} ({place})" if place else attained)
    if lowest:
        sentence += f" {'; '.join([lowest[0].capitalize(), *lowest[1:]])}."
    return " ".join([sentence, *assumed_api_words(verdict)])


def target_lines(verdicts: Mapping[str, PlanVerdict]) -> list[str]:
    """Say what SLO targets the plans of a study or a comparison have."""
    names_by_target: dict[str, list[str]] = {}
    for name, verdict in verdicts.items():
        default = "" if verdict.stated else ", the default"
        required = f"in {verdict.confidence * 100:.6g}% of replications"
        target = f"{target_words(verdict)}, {required}{default}"
        names_by_target.setdefault(target, []).append(name)
    if len(names_by_target) == 1:
        return [f"SLO target: {next(iter(names_by_target))}."]
    lines = [
        f"SLO target of {', '.join(names)}: {target}." for target, names in names_by_target.items()
    ]
    return [
        *lines,
        "The plans have different SLO targets, so two that are MET may serve differently.",
    ]


def share_words(share: float) -> str:
    """Return a share with two decimals, and more where those would round what was missed away."""
    for decimals in (2, 3, 4):
        if share == 1.0 or round(share, decimals + 2) < 1.0:
            return f"{share:.{decimals}%}"
    return f"{share:.2%}"


def fleet_size_advice(summary: RunSummary) -> str:
    """Say the one thing that a run's figures advise about the size of its fleet; nothing where they advise nothing."""
    verdict = summary.verdict
    if verdict.base_case is None:
        return ""
    if verdict.status != "MISSED":
        idle = summary.capacity_fraction["idle"]
        # A plan that misses now and then is not too large, nor one whose peak hour leaves little room.
        all_met = verdict.met_replications == verdict.replications
        headroom = summary.fleet.peak_headroom_fraction
        has_room = headroom is None or headroom > MUCH_HEADROOM_FRACTION
        if verdict.status == "MET" and all_met and idle > IDLE_FRACTION and has_room:
            return (
                f"{percent(idle, 0)} of node-hours are idle. To look for a smaller plan that meets the target: "
                "planner size."
            )
        return ""
    if verdict.long_prompts:
        return _long_prompts_remedy(verdict, verdict.long_prompts)
    cheapest = "To find the cheapest plan that meets it: planner size."
    remedy = summary.remedy
    if remedy is None:
        return f"To see how many more nodes of one cluster meet the target: planner run --advise. {cheapest}"
    if isinstance(remedy, NoRemedy):
        return f"No remedy found: {remedy.reason}. {cheapest}"
    return (
        f"With {remedy_words(remedy)} the plan meets the target in {remedy.slo_met_replications}/"
        f"{remedy.replications} further replications; net present cost rises by "
        f"{dollars(remedy.net_present_cost_usd)}. To run that plan: --set "
        f"clusters.{remedy.cluster}.nodes={remedy.nodes_in_all}. {cheapest}"
    )


def remedy_words(remedy: Remedy) -> str:
    """Return the nodes of a remedy, as 10 more nodes of b200 (B200), in service from 2026-01."""
    nodes = counted(remedy.nodes, "more node")
    return (
        f"{nodes} of {remedy.cluster} ({remedy.accelerator}), in service from {remedy.from_month},"
    )


def idle_cluster(summary: RunSummary) -> tuple[str, str]:
    """Return the cluster that is mostly idle, much of the cost for few of the tokens, and that in words; or nothing."""
    fleet = summary.fleet
    prices: dict[str, float] = {}
    for name, figures in summary.clusters.items():
        # An API has no machines that could be idle, so it has no utilisation.
        if figures.cost_per_million_tokens_usd and figures.utilisation_fraction is not None:
            prices[name] = figures.cost_per_million_tokens_usd
    if len(prices) < 2 or fleet.cost_usd <= 0:
        return "", ""
    dearest = max(prices, key=lambda name: prices[name])
    figures = summary.clusters[dearest]
    is_dear = prices[dearest] >= DEAR_RATIO * (fleet.cost_per_million_tokens_usd or 0.0)
    little = LITTLE_USED_RATIO * (fleet.utilisation_fraction or 0.0)
    if not is_dear or (figures.utilisation_fraction or 0.0) > little:
        return "", ""
    cost = percent(figures.cost_usd / fleet.cost_usd, 0)
    tokens = percent(figures.served_tokens / fleet.served_tokens, 0)
    return dearest, f"{cost} of cost, {tokens} of tokens"
