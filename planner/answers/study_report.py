"""The sections of a study's report: its answer, its distribution, and fans by month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.answers.sections import section
from planner.answers.sensitivity_report import tornado_picture
from planner.answers.sentences import (
    gain_lines,
    inconclusive_lines,
    no_alternatives,
    none_met,
    plans_that_shed,
    probability_words,
    target_lines,
)
from planner.answers.study_results import Estimates, StudyResults
from planner.answers.timelines import Calendar, colours, points_by_name
from planner.answers.verdicts import Estimate
from planner.output import blocks
from planner.output.blocks import Grid, Section, sentences
from planner.output.folder import Contents
from planner.output.scales import Scale
from planner.output.svg import even_axis
from planner.output.tables import Table
from planner.output.words import NOTHING, measured, percent, spoken

PERCENTILES = ("p5", "p10", "p50", "p90", "p95")
MARKED_PERCENTILES = ("p10", "p50", "p90")
"""Those that a histogram marks."""
FAN_OUTPUTS = {
    "cost_per_million_tokens_usd": ("Cost per million tokens, accrued", "usd"),
    "utilisation_fraction": ("Utilisation", "percent"),
    "spend_usd": ("Spending", "usd"),
    "revenue_usd": ("Revenue", "usd"),
}
"""Title and unit of each fan chart, by output."""
DESIGN_NOTES = {
    "tornado": "Here every input is at its median and only chance varies. Below: how far each input moves the answer.",
}
"""What the rows behind a designed study's headline are."""
MARK_ROOM = 1.3
"""Height of a histogram over its highest bar: room for the names of the marks."""


def answer_section(contents: Contents, study: StudyResults) -> Section:
    """Return the headline of a study with its interval, and how often each scenario is the best."""
    # Targets before verdicts: a verdict means nothing without what was asked.
    notes = [*gain_lines(study.npv_above_zero), *target_lines(study.verdicts)]
    # One plan has no alternatives.
    if len(study.statistics) > 1:
        notes += no_alternatives(study.ranking)
    notes += inconclusive_lines(study.ranking)
    if study.manifest.dropped:
        notes.append(f"{'. '.join(study.manifest.dropped)}.")
    design = study.manifest.identity.design.name
    if design in DESIGN_NOTES:
        notes.append(DESIGN_NOTES[design])
    headlines = [*plans_that_shed(study.ranking.plans), advice(contents, study)]
    return section(
        "answer",
        [
            *sentences(headlines, "headline"),
            *sentences(notes, "note"),
            spread_picture(contents, study),
            _verdict_grid(study),
            _percentile_grid(study),
            _decision_grid(contents.table("decision"), study.objective),
        ],
    )


def advice(contents: Contents, study: StudyResults) -> str:
    """Say which scenario of a study to take, with its interval, and how it stands against the baseline."""
    means = [statistics["mean"].value for statistics in study.statistics.values()]
    if all(mean is None for mean in means):
        return "No replication of any scenario could be run; replications.parquet has the reasons."
    ranking = study.ranking
    is_choice = len(study.statistics) > 1
    if ranking.best is None and is_choice:
        return none_met(ranking)
    chosen = ranking.best or ranking.plans[0]
    figures = _headline(study.statistics[chosen.name], study.objective)
    if not is_choice:
        standing = f" It is {chosen.standing}." if chosen.standing else ""
        return f"{chosen.name}: {figures}.{standing}"
    # A best among one is no choice, and is said otherwise.
    met = [plan.name for plan in ranking.met_plans]
    assert chosen.verdict is not None  # every plan of a study has one
    probability = probability_words(chosen.verdict)
    if len(met) < 2:
        return f"{chosen.name} is the only one of these plans that is MET, with {probability}: {figures}."
    among = ""
    if len(ranking.plans) > len(met):
        among = " of the plans that are MET"
    lead = f"{chosen.name} does best{among}, with {probability}: {figures}."
    baseline = next(iter(study.statistics))
    rival = baseline
    rival_words = f"the baseline, {baseline},"
    # Not against itself, nor against a baseline that fails its users.
    if chosen.name == baseline or baseline not in met:
        rival = met[1]
        rival_words = f"the next best, {rival},"
    if chosen.name == baseline:
        lead += f" It is the baseline, {baseline}."
    decision = contents.table("decision")
    return lead + _against(decision, chosen.name, rival, rival_words, study)


def _headline(statistics: Estimates, objective: str) -> str:
    """Return the objective's mean with its interval, and where nine replications in ten lie."""
    mean = statistics["mean"]
    words = f"{spoken(objective)} {measured(mean.value, objective)} on average"
    if mean.low is not None and mean.high is not None:
        low = measured(mean.low, objective)
        high = measured(mean.high, objective)
        words += f" ({low} to {high} with 95% confidence)"
    p5 = statistics["p5"].value
    p95 = statistics["p95"].value
    if p5 is not None and p95 is not None:
        span = f"{measured(p5, objective)} and {measured(p95, objective)}"
        words += f"; nine replications in ten lie between {span}"
    return words


def _against(
    decision: Table | None, best: str, rival: str, rival_words: str, study: StudyResults
) -> str:
    """Say how the best scenario stands against another, whose mean is the reference."""
    if not decision:
        return ""
    # Against the rival's own row: differences are paired by replication.
    pair = decision.where("scenario", best).where("against", rival)
    mean = None
    if pair:
        mean = pair.numbers("mean_difference")[0]
    if mean is None:
        return ""

    def words(amount: float) -> str:
        return measured(amount, study.objective)

    better = percent(pair.numbers("probability_better")[0], 0)
    lead = f" It is better than {rival_words} in {better} of replications"
    low = pair.numbers("difference_low")[0]
    high = pair.numbers("difference_high")[0]
    interval = ""
    if low is not None and high is not None:
        # An interval on both sides of zero is no difference.
        if low < 0 < high:
            ends = f"{words(low)} to {words(high)}"
            return f"{lead}; the mean difference, {ends} with 95% confidence, is not clearly different from zero."
        near, far = sorted((abs(low), abs(high)))
        interval = f", {words(near)} to {words(far)} with 95% confidence"
    reference = study.statistics[rival]["mean"].value
    # Without a mean there is nothing to be a share of.
    share = f" ({percent(abs(mean / reference))})" if reference else ""
    direction = "less" if mean < 0 else "more"
    return f"{lead}, and its mean is {words(abs(mean))}{share} {direction}{interval}."


def _verdict_grid(study: StudyResults) -> Grid:
    """Return how often each scenario meets its SLO target, in the order in which they are recommended."""
    rows = []
    for plan in study.ranking.plans:
        verdict = study.verdicts[plan.name]
        met = Estimate(
            value=verdict.met_fraction,
            low=verdict.met_low_fraction,
            high=verdict.met_high_fraction,
        )
        rows.append(
            (
                plan.name,
                plan.standing,
                *_share_cells(met),
                verdict.first_missed_month or NOTHING,
                percent(plan.slo_attainment_fraction, 2),
                *_share_cells(verdict.best_fraction),
            )
        )
    return Grid(
        caption="Verdicts: MET (best first), INCONCLUSIVE, MISSED (smallest shortfall first)",
        header=(
            "scenario",
            "SLO",
            "met in",
            "each end 95% sure",
            "first missed",
            "attained",
            "best in",
            "95% interval",
        ),
        rows=rows,
        numeric=range(2, 8),
    )


def _share_cells(share: Estimate | None) -> tuple[str, str]:
    """Return a share of replications and its interval."""
    if share is None or share.value is None:
        return NOTHING, NOTHING
    interval = f"{percent(share.low)} to {percent(share.high)}"
    return percent(share.value), interval


def _percentile_grid(study: StudyResults) -> Grid:
    """Return the objective's mean and percentiles."""
    objective = study.objective
    by_plan = {plan.name: study.statistics[plan.name] for plan in study.ranking.plans}
    names = [
        name for name in PERCENTILES if any(name in statistics for statistics in by_plan.values())
    ]
    rows = []
    for plan, statistics in by_plan.items():
        mean = statistics["mean"]
        half_width = NOTHING
        if mean.low is not None and mean.high is not None:
            half = (mean.high - mean.low) / 2
            half_width = "± " + measured(half, objective)
        percentiles = (measured(statistics[name].value, objective) for name in names)
        mean_words = measured(mean.value, objective)
        rows.append((plan, mean_words, half_width, *percentiles))
    percentile_names = (name.upper() for name in names)
    header = ("scenario", "mean", "95%", *percentile_names)
    numeric = range(1, len(header))
    return Grid(caption=spoken(objective), header=header, rows=rows, numeric=numeric)


def _decision_grid(decision: Table | None, objective: str) -> Grid | None:
    """Return how often each scenario has the better headline than the baseline, and than all others."""
    if not decision:
        return None
    shares = ("probability_better", "probability_low", "probability_high")
    amounts = ("mean_difference", "difference_low", "difference_high", "mean_regret", "p95_regret")
    # The first scenario of a study is its baseline.
    baseline = decision.texts("scenario")[0]
    rows = []
    pairs = decision.rows("scenario", "against", numbers=(*shares, *amounts))
    for scenario, against, *numbers in pairs:
        # Of all pairs those with the baseline, and with all others together.
        if against not in ("", baseline):
            continue
        better, better_low, better_high = map(percent, numbers[:3])
        mean, low, high, regret, p95_regret = (
            measured(amount, objective) for amount in numbers[3:]
        )
        rows.append(
            (
                scenario,
                against or "all others",
                better,
                f"{better_low} to {better_high}",
                mean,
                f"{low} to {high}",
                regret,
                p95_regret,
            )
        )
    return Grid(
        caption="How often each plan has the better objective, whether or not it meets its SLO target, and what a "
        "wrong choice costs",
        header=(
            "scenario",
            "against",
            "better in",
            "95% interval",
            "mean difference",
            "95% interval",
            "mean regret",
            "P95 regret",
        ),
        rows=rows,
        numeric=range(2, 8),
        unbroken=(1,),
    )


def histogram(contents: Contents, study: StudyResults) -> blocks.Picture | None:
    """Draw the headline's distribution for each scenario on one scale, with P10, P50 and P90."""
    distribution = contents.table("distribution")
    if not distribution:
        return None
    objective = study.objective
    edges = [*distribution.totals("bin_low"), *distribution.totals("bin_high")]
    label = objective.replace("_", " ").replace("usd", "USD")
    x = even_axis(min(edges), max(edges), label)
    # Strips stand on one another: only the lowest has its axis labelled.
    blank_ticks = [(tick, "") for tick, _ in x.ticks]
    unlabelled = replace(x, label="", ticks=blank_ticks)
    highest = max(distribution.totals("replications"))
    # A study without a replication has no bar, and an axis still needs a height.
    top = MARK_ROOM * highest or 1.0
    y = blocks.Axis(scale=Scale(low=0.0, high=top))
    palette = colours(distribution.texts("scenario"))
    strips = []
    scenarios = dict.fromkeys(distribution.texts("scenario"))
    for scenario in scenarios:
        own_bins = distribution.where("scenario", scenario)
        bins = own_bins.rows(totals=("bin_low", "bin_high", "replications"))
        marks: list[blocks.Mark] = [
            blocks.Box((low, high), (0.0, number), palette[scenario]) for low, high, number in bins
        ]
        for name in MARKED_PERCENTILES:
            value = study.statistics[scenario][name].value
            if value is not None:
                mark = f"{name.upper()} {measured(value, objective)}"
                marks.append(blocks.VerticalRule(value, mark))
        strip = blocks.Panel(x=unlabelled, y=y, marks=marks, title=scenario, height=130.0)
        strips.append(strip)
    strips[-1] = replace(strips[-1], x=x)
    return blocks.Picture(title="How the replications are spread", panels=strips)


def spread_picture(contents: Contents, study: StudyResults) -> blocks.Picture | None:
    """Draw how the replications are spread or, of a designed study, what moves its answer."""
    # A designed study moves inputs on purpose: its rows are no distribution.
    return histogram(contents, study) or tornado_picture(study)


def fan_charts(
    contents: Contents, widths: Sequence[tuple[str, str]], summary: str
) -> list[blocks.TimeChart]:
    """Return the median of each output by month and scenario, within bands from one percentile to another."""
    bands = contents.table("monthly_bands")
    if not bands:
        return []
    calendar = Calendar(bands.texts("month"))
    palette = colours(bands.texts("scenario"))
    charts = []
    outputs = dict.fromkeys(bands.texts("output"))
    for output in outputs:
        # The file has outputs that only a spreadsheet needs.
        if output not in FAN_OUTPUTS:
            continue
        title, unit = FAN_OUTPUTS[output]
        output_bands = bands.where("output", output)
        series = _fan_series(output_bands, calendar, widths, palette)
        key = f"fan-{output.replace('_', '-')}"
        charts.append(calendar.chart(key, title, summary, unit, series))
    return charts


def _fan_series(
    bands: Table,
    calendar: Calendar,
    widths: Sequence[tuple[str, str]],
    palette: Mapping[str, int],
) -> list[blocks.Series]:
    """Return the medians of an output by scenario, each within its bands."""

    def lines(percentile: str) -> dict[str, list[tuple[float, float | None]]]:
        return points_by_name(bands, "scenario", "month", percentile, calendar.middle)

    # The outermost band first, so that narrower ones are drawn over it.
    edges = [(lines(low), lines(high)) for low, high in widths]
    return [
        blocks.Series(
            scenario,
            median,
            palette[scenario],
            bands=[(low[scenario], high[scenario]) for low, high in edges],
        )
        for scenario, median in lines("p50").items()
    ]


def fan_section(contents: Contents, study: StudyResults) -> Section | None:
    """Return fan charts: the median by month within its tenth and ninetieth percentile, by scenario."""
    detailed = study.manifest.detailed
    which = "all" if detailed is None else f"the first {detailed:,}"
    summary = f"The median of {which} replications by month; the band holds eight in ten."
    charts = fan_charts(contents, [("p10", "p90")], summary)
    if charts:
        return section("time", charts)
    return None
