"""What a sizing says: the answer, how sure it is, why it is this one and what would change it."""

from __future__ import annotations

from collections.abc import Iterator

from planner.answers.sentences import (
    assumed_api_words,
    long_prompt_advice,
    probability_words,
)
from planner.answers.summaries import SizingSentences
from planner.answers.verdicts import PlanVerdict
from planner.plan.attainment import Verdict
from planner.plan.choice import build_services
from planner.plan.reuse import Reuse
from planner.run.slo_misses import long_prompts
from planner.sizing.refusal import miss_words, worst_miss
from planner.sizing.size import Sized
from planner.units import MILLION, counted

_HELPING = {
    "site_outages": "a second site or a looser target",
    "prompts_too_long": "a longer TTFT objective or a faster layout",
}
"""What helps where no purchase does, by cause."""
OBJECTIVES = {"net-present-cost": "net present cost", "levelised": "levelised cost"}
"""Objectives of a sizing in words."""
MAX_INPUTS = 2
"""Inputs that are named as moving the cost most."""
MAX_PAIRS = 3
"""Pairs of workload and purchase that are named as never measured."""


def sizing_sentences(sized: Sized, verdict: PlanVerdict) -> SizingSentences:
    """Return what the answer is, how sure it is, why it is this one and what would change it."""
    return SizingSentences(
        answer=[*_answer(sized, verdict)],
        certainty=[*_certainty(sized, verdict)],
        alternatives=[*_other_policies(sized), *_single_accelerator_plans(sized)],
        orders=[*_orders(sized)],
        sensitivities=[*_what_would_change(sized)],
    )


def _money(sized: Sized, cost: float) -> str:
    """Return a cost as the objective counts it."""
    if sized.trial.objective == "levelised":
        return f"{cost:,.4f} USD per million tokens"
    return f"{cost / MILLION:,.2f} M USD"


def _answer(sized: Sized, verdict: PlanVerdict) -> Iterator[str]:
    """Yield what to buy where a plan is confirmed, and else that none is; what that costs, and what cut it short."""
    plan = sized.plan
    choices = sized.choices
    is_priced = choices.choose.miss_cost_usd is not None
    words = choices.words(plan.policy)
    if not choices.parts(plan.policy) and not plan.policy.rented_instances:
        words = "nothing more" if plan.policy == choices.nothing() else f"nothing more; {words}"
    low, high = (_money(sized, end) for end in sized.cost_interval)
    error = "" if low == high else f" (mean; 95% interval {low} to {high})"
    cost = f"{OBJECTIVES[sized.trial.objective]} of {_money(sized, plan.cost)}{error}"
    runs = f"{verdict.met_replications} of {verdict.replications} new replications"
    probability = f"{probability_words(verdict)} ({runs})"
    if is_priced:
        misses = _money(sized, plan.cost - plan.net_present_cost_usd)
        yield (
            f"Buy {words}: it costs least of the plans that were simulated, with a {cost}. That includes {misses} for "
            f"requests that miss their SLO, at the price stated for a miss. No confidence is required; {probability}."
        )
    elif sized.confirmation.passed:
        yield f"Buy {words}: it meets the SLO target with {probability}, at a {cost}."
        yield from _as_run(sized)
    else:
        yield (
            f"No plan is confirmed to meet the SLO target, so none is recommended. The nearest is {verdict.status}: "
            f"{words}, with {probability}, at a {cost}."
        )
        miss = worst_miss(choices.plan, sized.trial.attainment, plan.shares)
        if miss is not None:
            yield f"{miss_words(choices.plan, miss)}."
        for prompts in long_prompts(sized.as_stated()):
            yield long_prompt_advice(prompts)
        if verdict.settled_by_replications:
            yield f"To settle the verdict: --confirmations {verdict.settled_by_replications}."
    if sized.stopped:
        yield f"The search was not finished ({sized.stopped}): a cheaper plan may exist."


def _as_run(sized: Sized) -> Iterator[str]:
    """Yield how the answer stands as ``planner run`` counts, where that is no longer MET."""
    plan = sized.plan
    as_run = Verdict(plan.met_as_run, plan.worst.size, plan.verdict.confidence)
    if as_run.status == "MET" or as_run.met == plan.verdict.met:
        return
    yield (
        f"This verdict covers capacity only. If prompts that are too long and site outages are counted too, as planner "
        f"run does, the SLO verdict is {as_run.status}: {as_run.met} of {as_run.replications} replications meet the "
        "target."
    )
    for prompts in long_prompts(sized.as_stated()):
        yield long_prompt_advice(prompts)


def _certainty(sized: Sized, verdict: PlanVerdict) -> Iterator[str]:
    """Yield how deep the misses go, and what no purchase prevents."""
    plan = sized.plan
    yield f"In the worst tenth of these replications SLO attainment falls to {plan.worst_tenth:.2%}."
    if sized.unfixable > 0.0:
        counted_causes = {cause: number for cause, number in sized.causes.items() if number}
        causes = ", ".join(
            f"{cause.replace('_', ' ')} {number}" for cause, number in counted_causes.items()
        )
        remedies = ", and ".join(_HELPING[cause] for cause in counted_causes)
        treatment = (
            "they count as missed" if sized.trial.includes_outages else "they are left out above"
        )
        yield (
            f"{sized.unfixable:.1%} of replications miss the SLO target whatever is bought ({causes} of "
            f"{plan.worst.size}; {treatment}). {remedies[:1].upper()}{remedies[1:]} would help; more nodes would not."
        )
    yield from assumed_api_words(verdict)
    yield f"Mean utilisation is {plan.utilisation.mean():.0%}."


def _other_policies(sized: Sized) -> Iterator[str]:
    """Yield what the answer saves against other ways to decide, at equal service."""
    for way in sized.ways:
        if way.is_answer:
            continue
        difference = _money(sized, abs(way.saved))
        verb = "less" if way.saved >= 0.0 else "more"
        yield (
            f"{way.name[:1].upper()}{way.name[1:]} would cost {_money(sized, way.cost)} at P(SLO met) "
            f"{way.probability:.0%}; a plan like the answer costs {difference} {verb} at the same probability."
        )
    yield from _other_levels(sized)


def _other_levels(sized: Sized) -> Iterator[str]:
    """Yield the cheapest policy for each probability that none was confirmed for."""
    asked = sized.trial.held_confidence if sized.confirmation.passed else 0.0
    for point in sized.curve:
        one = point.judged
        is_answer = one.policy == sized.plan.policy
        # What is confirmed for the probability asked is confirmed for every lower one.
        levels = [level for level in point.answers if level > asked or not is_answer]
        if not levels:
            continue
        is_better = 0.0 < asked < max(levels) and one.cost < sized.plan.cost
        though = ", so it is not recommended although it costs less"
        words = " and ".join(f"{level:.0%}" for level in levels)
        which = ", the recommended one," if asked and is_answer else ""
        yield (
            f"The cheapest policy simulated for P(SLO met) {words}{which} costs {_money(sized, one.cost)}; "
            f"{one.verdict.share:.0%} of {one.worst.size} replications meet the target "
            f"({point.interval.low:.0%} to {point.interval.high:.0%}). It is not confirmed at {words}"
            f"{though if is_better and not is_answer else ''}."
        )


def _orders(sized: Sized) -> Iterator[str]:
    """Yield on what signal each cluster is ordered, and by when at the latest."""
    triggers = sized.explanation.triggers
    rules = dict(zip(sized.choices.reactive, sized.plan.policy.rules, strict=True))
    for name in dict.fromkeys(trigger.cluster for trigger in triggers):
        reviews = [trigger for trigger in triggers if trigger.cluster == name]
        earliest = reviews[0]
        rule = rules[name]
        assert rule is not None
        yield (
            f"Order {counted(rule.step_nodes, 'node')} of {name} when the {earliest.forecast_months}-month forecast of "
            f"peak load passes {earliest.load:.0%} of what is installed and on order. The forecast is reviewed "
            f"{counted(len(reviews), 'time')}, first on {earliest.date}."
        )
    last_safe = sized.explanation.last_safe
    if last_safe is not None:
        month = sized.choices.plan.months.labels[last_safe.month]
        yield (
            f"Place the first such order by {last_safe.date}: delivery takes {last_safe.wait_weeks:.0f} weeks, and "
            f"without any order too many replications miss the target from {month} on."
        )


def _single_accelerator_plans(sized: Sized) -> Iterator[str]:
    """Yield what plans of one accelerator cost."""
    cost = sized.predicted_cost
    for rival in sized.rivals:
        if rival.policy is None:
            yield f"Within the limits, no plan that buys only {rival.name} meets the SLO target."
        elif rival.policy != sized.plan.policy:
            direction = "more" if rival.cost > cost else "less"
            change = f"{abs(rival.cost / cost - 1.0):.0%} {direction}"
            cost_words = _money(sized, rival.cost)
            yield f"Estimated, not simulated: a plan that buys only {rival.name} costs {change} ({cost_words})."


def _what_would_change(sized: Sized) -> Iterator[str]:
    """Yield what looser limits, hindsight and measurements would be worth, which the search estimates."""
    explanation = sized.explanation
    for limit in explanation.limits:
        saving = _money(sized, limit.saved)
        yield f"Estimated: raising {limit.limit} from {limit.value:,.0f} by 10% would save {saving}."
    if explanation.regrets:
        middle = explanation.regrets[len(explanation.regrets) // 2]
        yield (
            f"Estimated: at median demand, {middle.needed:,.0f} of the {middle.nodes:,.0f} nodes are enough. In "
            f"{explanation.idle:.0%} of replications, at least a quarter of the nodes is never needed."
        )
    if explanation.perfect_information_saves is not None:
        saving = _money(sized, explanation.perfect_information_saves)
        yield f"Estimated: knowing future demand in advance would save at most {saving}."
    yield from _inputs(sized)


def _inputs(sized: Sized) -> Iterator[str]:
    """Yield which inputs move the cost of meeting the SLO target most, and what it would be worth to know one."""
    swings = sized.explanation.sensitivity
    for swing in swings[:MAX_INPUTS]:
        low, high = ("no plan" if cost is None else _money(sized, cost) for cost in swing.sized)
        met_low, met_high = swing.probabilities
        yield (
            f"Estimated: as {swing.name} goes from {swing.values[0]:.3g} to {swing.values[1]:.3g}, the cost of meeting "
            f"the target goes from {low} to {high}, and P(SLO met) of this policy from {met_low:.0%} to {met_high:.0%}."
        )
    dearest = max(swings, key=lambda one: one.known_saves, default=None)
    if dearest is not None and dearest.known_saves > 0.0:
        saving = _money(sized, dearest.known_saves)
        yield f"Estimated: knowing {dearest.name} in advance would save {saving} on average."
    errors = {one.name for one in sized.trial.inputs.entries if one.throughput_of}
    saved = sum(one.known_saves for one in swings if one.name in errors)
    if saved > 0.0:
        yield f"Estimated: measuring throughput is worth up to {_money(sized, saved)}.{_never_measured(sized)}"


def _never_measured(sized: Sized) -> str:
    """Say which pairs of workload and purchase were never measured, the least certain first."""
    scenario = sized.choices.scenario
    counts = zip(sized.choices.purchases, sized.plan.policy.purchases, strict=True)
    bought = {purchase.name for purchase, nodes in counts if nodes}
    half_widths: dict[str, float] = {}
    services, _ = build_services(scenario, Reuse(scenario), {})
    for (cluster, workload), service in services.items():
        error = service.evidence.uncertainty if service.evidence else None
        # What is not bought needs no measurement.
        if cluster in bought and error is not None and not error.is_validated:
            half_width = error.half_width_fraction
            half_widths[f"{workload} on {cluster} (±{half_width:.0%})"] = half_width
    widest_first = sorted(half_widths, key=lambda pair: -half_widths[pair])
    pairs = widest_first[:MAX_PAIRS]
    return f" Never measured: {', '.join(pairs)}." if pairs else ""
