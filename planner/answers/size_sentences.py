"""What a sizing says: the answer, how sure it is, why it is this one and what would change it."""

from __future__ import annotations

from collections.abc import Iterator

from planner.plan.choice import build_services
from planner.plan.reuse import Reuse
from planner.sizing.size import Sized
from planner.units import MILLION

OBJECTIVES = {"net-present-cost": "net present cost", "levelised": "levelised cost"}
"""Objectives of a sizing in words."""
MAX_INPUTS = 2
"""Inputs that are named as moving the cost most."""
MAX_PAIRS = 3
"""Pairs of workload and purchase that are named as never measured."""


def sizing_sentences(sized: Sized) -> Iterator[str]:
    """Yield what the answer is, how sure it is, why it is this one and what would change it."""
    yield from _answer(sized)
    yield from _certainty(sized)
    yield from _other_policies(sized)
    yield from _orders(sized)
    yield from _single_accelerator_plans(sized)
    yield from _what_would_change(sized)
    if sized.stopped:
        yield f"The search was not finished: {sized.stopped}."


def _money(sized: Sized, cost: float) -> str:
    """Return a cost as the objective counts it."""
    if sized.trial.objective == "levelised":
        return f"{cost:,.4f} USD per million tokens"
    return f"{cost / MILLION:,.2f} M USD"


def _answer(sized: Sized) -> Iterator[str]:
    """Yield what to buy, and what that costs."""
    plan = sized.plan
    choices = sized.choices
    is_priced = choices.choose.miss_cost_usd is not None
    words = "nothing, what is there is enough"
    if plan.policy != choices.nothing():
        words = choices.words(plan.policy)
    lead = "Buy"
    if not sized.confirmation.passed:
        lead = "Cheapest policy found, not confirmed:"
    low, high = (_money(sized, end) for end in sized.cost_interval)
    cost = _money(sized, plan.cost)
    objective = OBJECTIVES[sized.trial.objective]
    error = "" if low == high else f" ({low} to {high} for the error of the mean)"
    yield f"{lead} {words}: {objective} {cost}{error}."
    if is_priced:
        misses = _money(sized, plan.cost - plan.net_present_cost_usd)
        yield (
            f"Of that, {misses} is for requests that miss their SLO, at the price stated: no probability is held."
        )


def _certainty(sized: Sized) -> Iterator[str]:
    """Yield how sure the answer is to meet the SLO target, and what no purchase mends."""
    plan = sized.plan
    verdict = plan.verdict
    interval = sized.confirmation.interval
    required = f" of {verdict.confidence:.0%} asked" if verdict.confidence else ""
    counted_alone = "" if sized.trial.includes_outages else "by its capacity, "
    yield (
        f"P(SLO met) {counted_alone}{verdict.share:.1%} ({interval.low:.1%} to {interval.high:.1%}){required}: "
        f"{verdict.met} of {verdict.replications} replications that no search has seen meet it. In the worst tenth of "
        f"them attainment falls to {plan.worst_tenth:.2%}."
    )
    if sized.unfixable > 0.0:
        counted = {cause: number for cause, number in sized.causes.items() if number}
        causes = ", ".join(
            f"{cause.replace('_', ' ')} {number}" for cause, number in counted.items()
        )
        is_counted = "they count as missed" if sized.trial.includes_outages else "left out above"
        yield (
            f"{sized.unfixable:.1%} of replications miss the SLO target whatever is bought ({causes} of "
            f"{plan.worst.size}; {is_counted}): a second site or a looser target is their remedy, not nodes."
        )
    yield f"Utilisation {plan.utilisation.mean():.0%} in the mean."


def _other_policies(sized: Sized) -> Iterator[str]:
    """Yield what the answer saves against other ways to decide, at equal service."""
    for way in sized.ways:
        if way.is_answer:
            continue
        difference = _money(sized, abs(way.saved))
        verb = "less" if way.saved >= 0.0 else "more"
        yield (
            f"Against {way.name}, {_money(sized, way.cost)} at P(SLO met) {way.probability:.0%}, the answer's way "
            f"costs {difference} {verb} at the same probability."
        )
    for point in sized.curve:
        if point.answers:
            levels = " and ".join(f"{level:.0%}" for level in point.answers)
            yield (
                f"Cheapest simulated at {levels}: {_money(sized, point.judged.cost)}, "
                f"{point.judged.verdict.share:.0%} of {point.judged.worst.size} ({point.interval.low:.0%} to "
                f"{point.interval.high:.0%})."
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
            f"Order {name} by {rule.step_nodes} nodes when the {earliest.forecast_months}-month forecast of peak load "
            f"passes {earliest.load:.0%} of what is installed and on order, at {len(reviews)} reviews from "
            f"{earliest.date}."
        )
    if sized.explanation.last_safe is not None:
        yield f"Last safe date for the first such order: {sized.explanation.last_safe}."


def _single_accelerator_plans(sized: Sized) -> Iterator[str]:
    """Yield what plans of one accelerator cost, and at what price another would enter the mix."""
    cost = sized.predicted_cost
    for rival in sized.rivals:
        if rival.policy is None:
            yield f"No plan of {rival.name} alone that may be chosen meets the SLO target."
        elif rival.policy != sized.plan.policy:
            direction = "more" if rival.cost > cost else "less"
            change = f"{abs(rival.cost / cost - 1.0):.0%} {direction}"
            yield f"A plan of {rival.name} alone costs {change} ({_money(sized, rival.cost)}), as predicted."
    for entry in sized.explanation.entries:
        if entry.price_change is None:
            yield f"No price in prospect brings {entry.accelerator} into the mix."
        else:
            yield f"{entry.accelerator} enters the mix where it costs {-entry.price_change:.0%} less, as predicted."


def _what_would_change(sized: Sized) -> Iterator[str]:
    """Yield what looser limits, hindsight and measurements would be worth."""
    explanation = sized.explanation
    for limit in explanation.limits:
        saving = _money(sized, limit.saved)
        yield f"A tenth more than {limit.value:,.0f} of {limit.limit} would save {saving}, as predicted."
    if explanation.regrets:
        middle = explanation.regrets[len(explanation.regrets) // 2]
        yield (
            f"In the middling future {middle.needed:,.0f} of {middle.nodes:,.0f} nodes would have done; in "
            f"{explanation.idle:.0%} of futures a quarter or more of them is never needed."
        )
    if explanation.perfect_information_saves is not None:
        saving = _money(sized, explanation.perfect_information_saves)
        yield (
            f"Perfect information would save {saving}, as predicted: no policy that decides beforehand saves more."
        )
    yield from _inputs(sized)


def _inputs(sized: Sized) -> Iterator[str]:
    """Yield which inputs move the cost of meeting the SLO target most, and what it would be worth to know one."""
    swings = sized.explanation.sensitivity
    for one in swings[:MAX_INPUTS]:
        low, high = ("no plan" if cost is None else _money(sized, cost) for cost in one.sized)
        met_low, met_high = one.probabilities
        yield (
            f"{one.name} between {one.values[0]:.3g} and {one.values[1]:.3g} moves what meeting the target costs from "
            f"{low} to {high}, and P(SLO met) of this policy from {met_low:.0%} to {met_high:.0%}, as predicted."
        )
    dearest = max(swings, key=lambda one: one.known_saves, default=None)
    if dearest is not None and dearest.known_saves > 0.0:
        yield f"To know {dearest.name} beforehand would save {_money(sized, dearest.known_saves)} on average."
    errors = {one.name for one in sized.trial.inputs.entries if one.throughput_of}
    saved = sum(one.known_saves for one in swings if one.name in errors)
    if saved > 0.0:
        yield f"To measure throughput is worth up to {_money(sized, saved)}.{_never_measured(sized)}"


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
