"""The sections of a study: percentiles, fan charts, decisions, and what drives the answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.output import judgement
from planner.output.report.contents import Contents, Table
from planner.output.report.html import (
    DUMP,
    Html,
    Part,
    bar,
    bar_table,
    details,
    element,
    join,
    paragraph,
    spread,
    table,
)
from planner.output.report.page import Section
from planner.output.report.timechart import Series, TimeChart, draw
from planner.output.report.timelines import Calendar, by_name, colours
from planner.output.report.words import NOTHING, measured, percent
from planner.output.scales import colour_class
from planner.run.measure_names import FLEET, HIGHER_IS_BETTER

PERCENTILES = ("p5", "p10", "p50", "p90", "p95")
DEFAULT_HEADLINE = "cost_per_million_tokens_usd"
BANDS = {
    "cost_per_million_tokens_usd": ("Cost per million tokens", "usd"),
    "utilisation_fraction": ("Utilisation", "percent"),
    "spend_usd": ("Spending", "usd"),
    "revenue_usd": ("Revenue", "usd"),
}
ROWS_OF = {
    "tornado": "Every input at its median; only chance varies. How far the answer moves with its inputs is below.",
    "morris": "Inputs drawn from four levels between P10 and P90: a screening, not a forecast.",
    "sobol": "Inputs drawn independently of each other, as Sobol's indices ask for.",
}
"""What the rows behind a designed study's headline are."""
Figure = tuple[float | None, float | None, float | None]
NO_FIGURE: Figure = (None, None, None)
Statistics = dict[str, dict[str, Figure]]


def headline_of(contents: Contents) -> str:
    """Return the figure that the study is about."""
    stated = contents.json("summary.json").get("headline") or contents.manifest.get("headline")
    return str(stated or DEFAULT_HEADLINE)


def statistics_of(percentiles: Table, output: str) -> Statistics:
    """Return (value, low, high) by scenario and statistic for one output."""
    statistics: Statistics = defaultdict(dict)
    rows = percentiles.where("output", output).rows("scenario", "statistic", numbers=("value", "low", "high"))
    for scenario, statistic, value, low, high in rows:
        statistics[scenario][statistic] = (value, low, high)
    return statistics


def spoken(output: str) -> str:
    """Return an output's name as words."""
    return output.removesuffix("_usd").removesuffix("_fraction").replace("_", " ")


def judged(contents: Contents) -> tuple[Statistics, judgement.Choice]:
    """Return the headline's statistics by scenario, and the scenarios in the order in which they are recommended."""
    percentiles, output = contents.table("percentiles"), headline_of(contents)
    statistics = statistics_of(percentiles, output) if percentiles is not None and len(percentiles) else {}
    if percentiles is None or not statistics:
        return {}, judgement.Choice(keeping=(), breaking=())
    return statistics, _choice(statistics, output, percentiles, promises_of(contents))


def answer_section(contents: Contents) -> Section | None:
    """Return the headline of a study with its interval, and how often each scenario is the best."""
    percentiles, output = contents.table("percentiles"), headline_of(contents)
    statistics, choice = judged(contents)
    if percentiles is None or not statistics:
        return None
    promises = promises_of(contents)
    body = [paragraph(line, class_="headline") for line in judgement.much_shed(choice.ranked)]
    body.append(paragraph(advice(contents), class_="headline"))
    body += [paragraph(line, class_="note") for line in (judgement.promise_lines(promises) if promises else ())]
    kept = {name: (promise["kept_low"], promise["kept_high"]) for name, promise in promises.items()}
    open_still = judgement.undecided(promises, kept)
    notes = judgement.warnings_of(choice, open_still) if len(statistics) > 1 and choice.best else []
    body += [paragraph(line, class_="note") for line in [*notes, *judgement.undecided_lines(open_still)]]
    dropped = contents.manifest.get("dropped", ())
    if isinstance(dropped, list) and dropped:
        body.append(paragraph(". ".join(map(str, dropped)) + ".", class_="note"))
    if said := ROWS_OF.get(design_of(contents)):
        body.append(paragraph(said, class_="note"))
    ranked = {plan.name: statistics[plan.name] for plan in choice.ranked}
    body += [
        _promise_table(promises, choice),
        _percentile_table(ranked, output, colours(statistics)),
        _decision_table(contents, output),
    ]
    body.append(_histogram(contents, output))
    if len(percentiles) > len(statistics):
        body.append(_all_statistics(percentiles))
    return Section(key="answer", body=join(body))


def design_of(contents: Contents) -> str:
    """Return the design of a study: montecarlo, tornado, morris or sobol."""
    design = contents.manifest.get("identity", {}).get("design", {})
    return str(design.get("name", "")) if isinstance(design, dict) else ""


def _mean_of(statistics: Statistics, name: str) -> Figure:
    return statistics.get(name, {}).get("mean", NO_FIGURE)


def _choice(statistics: Statistics, output: str, percentiles: Table, promises: Promises) -> judgement.Choice:
    """Judge the scenarios by their promises, then by their means; without service the headline alone orders them."""
    sign = -1.0 if output in HIGHER_IS_BETTER else 1.0
    service = {name: statistics_of(percentiles, name) for name in (judgement.IN_TIME, judgement.SHED)}
    plans = []
    for name in statistics:
        value = _mean_of(statistics, name)[0]
        figures = {measure: _mean_of(means, name)[0] for measure, means in service.items()}
        plan = judgement.served(name, figures, promises.get(name, {}).get("shortfall_fraction"))
        plans.append(replace(plan, cost=None if value is None else sign * value))
    if any(plan.in_time_fraction is not None for plan in plans):
        return judgement.choose(plans)
    known = sorted((plan for plan in plans if plan.cost is not None), key=lambda plan: plan.cost or 0.0)
    return judgement.Choice(keeping=tuple(known), breaking=())


Promises = dict[str, dict[str, Any]]


def promises_of(contents: Contents) -> Promises:
    """Return promise.csv by scenario, as a summary has it; nothing for a folder written before there was one."""
    promises = contents.table("promise")
    if promises is None:
        return {}
    texts = {name: promises.texts(name) for name in ("scenario", "each", "of", "stated", "first_broken_month")}
    shares = ("in_time_fraction", "in_replications_fraction", "kept_fraction", "kept_low", "kept_high",
              "shortfall_fraction", "best_fraction", "best_low", "best_high")  # fmt: skip
    numbers = {name: promises.numbers(name) for name in shares}
    return {
        name: {
            **{key: column[i] for key, column in (texts | numbers).items()},
            "in_time": numbers["in_time_fraction"][i] or 0.0,
            "in_replications": numbers["in_replications_fraction"][i] or 0.0,
            "stated": texts["stated"][i] == "yes",
        }
        for i, name in enumerate(texts["scenario"])
    }


def _promise_table(promises: Promises, choice: judgement.Choice) -> Html:
    """Return how often each scenario keeps its promise, in the order in which they are recommended."""
    rows = []
    for plan in choice.ranked if promises else ():
        row = promises[plan.name]
        kept, best = (
            [percent(row[f"{name}_fraction"]), f"{percent(row[f'{name}_low'])} to {percent(row[f'{name}_high'])}"]
            if row[f"{name}_fraction"] is not None
            else [NOTHING, NOTHING]
            for name in ("kept", "best")
        )
        cells = (plan.standing, *kept, row["first_broken_month"] or NOTHING, percent(plan.in_time_fraction, 2), *best)
        rows.append((plan.name, *cells))
    header = ("scenario", "promise", "kept in", "95% interval", "first broken", "in time", "best in", "95% interval")
    caption = "What keeps its promise, best first, then what does not, by how far"
    return table(header, rows, caption, numeric=range(2, 8)) if rows else Html("")


def advice(contents: Contents) -> str:
    """Say which scenario of a study to take, with its interval, and how it stands against the baseline."""
    output, (statistics, choice) = headline_of(contents), judged(contents)
    if all(_mean_of(statistics, name)[0] is None for name in statistics):
        return "No replication of any scenario could be run; replications.parquet says why."
    if choice.best is None and len(statistics) > 1:
        return judgement.none_keeps(choice)
    chosen = choice.best or choice.ranked[0]
    said = _figures(statistics, output, chosen.name)
    if len(statistics) < 2:
        short = "" if choice.best else f" But it {chosen.service}."
        return f"{chosen.name}: {said}.{short} It has no baseline: a study of two scenarios or more has."
    baseline = next(iter(statistics))
    names = [plan.name for plan in choice.keeping]
    lead = f"{chosen.name} does best{' of the plans that keep their promise' if choice.breaking else ''}: {said}."
    if len(names) < 2:
        return f"{chosen.name} is the only one of these plans that keeps its promise: {said}."
    if chosen.name == baseline:
        rival, lead = names[1], f"{lead} It is the baseline, {baseline}."
    else:
        rival = baseline if baseline in names else names[1]
    whose = f"the baseline {baseline}" if rival == baseline else f"the next best, {rival}"
    return lead + _against(contents, (chosen.name, rival, whose), _mean_of(statistics, rival)[0], output)


def _figures(statistics: Statistics, output: str, name: str) -> str:
    """Return a scenario's headline in words: its mean, how sure that is, and how far replications lie apart."""
    value, low, high = _mean_of(statistics, name)
    p5, p95 = (statistics[name].get(end, NO_FIGURE)[0] for end in ("p5", "p95"))
    said = f"{spoken(output)} {measured(value, output)} on average"
    if low is not None and high is not None:
        said += f" ({measured(low, output)} to {measured(high, output)} with 95% confidence)"
    if p5 is not None and p95 is not None:
        said += f"; nine replications in ten lie between {measured(p5, output)} and {measured(p95, output)}"
    return said


def _against(contents: Contents, who: tuple[str, str, str], reference: float | None, output: str) -> str:
    """Say how the best scenario stands against another, called ``who[2]``."""
    best, rival, whose = who
    decision = contents.table("decision")
    if decision is None or not rival:
        return ""
    names = ("probability_better", "mean_difference", "difference_low", "difference_high")
    for scenario, against, chance, mean, low, high in decision.rows("scenario", "against", numbers=names):
        if (scenario, against) != (best, rival) or mean is None:
            continue
        said = f" Against {whose}, it is better in {percent(chance, 0)} of replications"
        if low is not None and high is not None and low < 0 < high:
            ends = f"{measured(low, output)} to {measured(high, output)}"
            return f"{said}; the mean difference, {ends} with 95% confidence, cannot be told from none."
        share = f" ({percent(abs(mean / reference))})" if reference else ""
        near, far = sorted((abs(low), abs(high))) if low is not None and high is not None else (None, None)
        span = f", {measured(near, output)} to {measured(far, output)} with 95% confidence" if near is not None else ""
        more = "less" if mean < 0 else "more"
        return f"{said}, and comes to {measured(abs(mean), output)}{share} {more} on average{span}."
    return ""


def _histogram(contents: Contents, output: str) -> Html:
    """Return how the headline is spread, one strip of bars for each scenario on one scale."""
    bins = contents.table("distribution")
    if not bins:
        return Html("")
    rows = list(bins.rows("scenario", numbers=("bin_low", "bin_high"), totals=["replications"]))
    scenarios = list(dict.fromkeys(row[0] for row in rows))
    palette = colours(scenarios)
    most = max(row[3] for row in rows) or 1.0
    strips = []
    for scenario in scenarios:
        bars = [
            element("span", class_=colour_class(palette[scenario]), style=f"height:{number / most * 100:.2f}%",
                    title=f"{measured(low, output)} to {measured(high, output)}: {number:,.0f}")
            for name, low, high, number in rows if name == scenario
        ]  # fmt: skip
        top = element("span", f"{most:,.0f}", class_="most")
        strips.append(element("div", element("b", scenario), top, element("div", *bars, class_="bins"), class_="strip"))
    first = [row for row in rows if row[0] == scenarios[0]]
    edges = [row[1] for row in first] + [first[-1][2]]
    ticks = [edges[round(place * (len(edges) - 1) / 4)] for place in range(5)]
    ends = element("div", *(element("span", measured(tick, output)) for tick in ticks), class_="ends")
    said = f"How {spoken(output)} is spread over the replications, on one scale; at the left the highest bar."
    return element("div", paragraph(said, class_="summary"), *strips, ends, class_="histogram", role="img",
                   aria_label=f"{said} The table above has the percentiles.")  # fmt: skip


def _percentile_table(statistics: Statistics, output: str, palette: dict[str, int]) -> Html:
    shown = [name for name in PERCENTILES if any(name in row for row in statistics.values())]
    highest = max((row[top][0] or 0.0 for row in statistics.values() for top in ("p95", "mean") if top in row),
                  default=0.0) or 1.0  # fmt: skip
    rows = []
    for scenario, row in statistics.items():
        value, low, high = row.get("mean", NO_FIGURE)
        half = (high - low) / 2 if low is not None and high is not None else None
        numbers = [measured(value, output), "± " + measured(half, output) if half is not None else NOTHING]
        numbers += [measured(row.get(name, NO_FIGURE)[0], output) for name in shown]
        rows.append((scenario, numbers, _drawn(row, highest, palette[scenario])))
    header = ("scenario", "mean", "95%", *(name.upper() for name in shown), "P5 to P95" if shown else "mean")
    return bar_table(header, rows, spoken(output))


def _drawn(row: dict[str, Figure], highest: float, colour: int) -> Html:
    """Return the percentiles as a bar with its median, or the mean as a bar where there are none."""
    ends = tuple(row.get(name, NO_FIGURE)[0] for name in PERCENTILES)
    if any(end is None for end in ends):
        mean = row.get("mean", NO_FIGURE)[0] or 0.0
        return bar([Part(name="mean", share=mean / highest, colour=colour, shown="")])
    low, lower, middle, upper, high = (end or 0.0 for end in ends)
    return spread((low, lower, middle, upper, high), highest, colour)


def _decision_table(contents: Contents, output: str) -> Html:
    decision = contents.table("decision")
    if not decision:
        return Html("")
    columns = ("probability_better", "probability_low", "probability_high", "mean_difference", "difference_low",
               "difference_high", "mean_regret", "p95_regret")  # fmt: skip
    if any(name not in decision for name in columns):
        return Html("")
    rows = []
    for scenario, against, *figures in decision.rows("scenario", "against", numbers=columns):
        chance, chance_low, chance_high, *rest = figures
        cells = [percent(chance), f"{percent(chance_low)} to {percent(chance_high)}"]
        cells += [measured(rest[0], output), f"{measured(rest[1], output)} to {measured(rest[2], output)}"]
        cells += [measured(rest[3], output), measured(rest[4], output)]
        rows.append((scenario, against or "all others", *cells))
    header = ("scenario", "against", "better in", "95% interval", "mean difference", "95% interval", "mean regret",
              "P95 regret")  # fmt: skip
    baseline = next(iter(decision.texts("scenario")))
    first = [row for row in rows if row[1] in ("all others", baseline)]
    caption = "How often each has the better headline, its promise kept or not, and what a wrong choice costs"
    shown = table(header, first, caption, numeric=range(2, 8), unbroken=(1,))
    if len(first) == len(rows):
        return shown
    return join(
        [shown, details(f"All {len(rows)} pairs", table(header, rows, "Every pair", numeric=range(2, 8)), class_=DUMP)]
    )


def _all_statistics(percentiles: Table) -> Html:
    columns = ("scenario", "output", "statistic", "value", "low", "high")
    rows = [
        (scenario, output.replace("_", " "), statistic, *(measured(number, output) for number in numbers))
        for scenario, output, statistic, *numbers in percentiles.rows(*columns[:3], numbers=columns[3:])
    ]
    caption = f"All {len(rows):,} statistics with their 95% intervals"
    return details(caption, table(columns, rows, "Every headline figure", numeric=(3, 4, 5)), class_=DUMP)


def fan_charts(contents: Contents, widths: Sequence[tuple[str, str]], said: str) -> list[TimeChart]:
    """Return the median of each output by month and scenario, within bands from one percentile to another."""
    bands = contents.table("monthly_bands")
    if not bands:
        return []
    if "cluster" in bands:
        bands = bands.where("cluster", FLEET)
    calendar = Calendar(bands.texts("month"))
    palette = colours(bands.texts("scenario"))
    charts = []
    for output in dict.fromkeys(bands.texts("output")):
        if output not in BANDS:
            continue
        title, unit = BANDS[output]
        table = bands.where("output", output)
        lines = {
            name: by_name(table, "scenario", "month", name, calendar.middle)
            for name in {"p50", *(end for width in widths for end in width)}
        }
        series = [
            Series(name=scenario, colour=palette[scenario], points=middle,
                   bands=[(lines[low][scenario], lines[high][scenario]) for low, high in widths])
            for scenario, middle in lines["p50"].items()
        ]  # fmt: skip
        charts.append(calendar.chart((f"fan-{output.replace('_', '-')}", title, said, unit), series))
    return charts


def fan_section(contents: Contents) -> Section | None:
    """Return fan charts: the median by month within its tenth and ninetieth percentile, by scenario."""
    which = "all" if contents.detailed is None else f"the first {contents.detailed:,}"
    said = f"The median of {which} replications by month; the band holds eight in ten."
    charts = fan_charts(contents, [("p10", "p90")], said)
    body = join(map(draw, charts), "\n")
    return Section(key="time", body=body) if charts else None
