"""The sections of a study: percentiles, fan charts, decisions, and what drives the answer."""

from __future__ import annotations

from collections import defaultdict

from planner.reporting.report.bars import Part, bar_table, tornado
from planner.reporting.report.compare_sections import shown
from planner.reporting.report.contents import Contents, Table
from planner.reporting.report.html import Html, details, join, paragraph, table
from planner.reporting.report.page import Section
from planner.reporting.report.timechart import Series, TimeChart, draw
from planner.reporting.report.timelines import Calendar, colours
from planner.reporting.report.words import NOTHING, percent

PERCENTILES = ("p5", "p10", "p50", "p90", "p95")
DEFAULT_HEADLINE = "cost_per_million_tokens_usd"
BANDS = {
    "cost_per_million_tokens_usd": ("Cost per million tokens", "usd"),
    "utilisation_fraction": ("Utilisation", "percent"),
    "spend_usd": ("Spending", "usd"),
}
SHOWN_INPUTS = 15
OPEN_TORNADOES = 2
"""The first scenario's; the others are folded."""
TORNADOES = {
    "tornado": "One input at a time, from its P10 to its P90, the others as stated",
    "conditional-mean": "Mean answer in the lowest and highest tenth of each input, everything else drawn",
}
Statistics = dict[str, dict[str, tuple[float | None, float | None, float | None]]]


def headline_of(contents: Contents) -> str:
    """Return the figure that the study is about."""
    stated = contents.json("summary.json").get("headline") or contents.manifest.get("headline")
    return str(stated or DEFAULT_HEADLINE)


def _statistics(percentiles: Table, output: str) -> Statistics:
    """Return (value, low, high) by scenario and statistic for one output."""
    found: Statistics = defaultdict(dict)
    rows = zip(
        percentiles.texts("scenario"), percentiles.texts("output"), percentiles.texts("statistic"),
        percentiles.numbers("value"), percentiles.numbers("low"), percentiles.numbers("high"), strict=True,
    )  # fmt: skip
    for scenario, name, statistic, value, low, high in rows:
        if name == output:
            found[scenario][statistic] = (value, low, high)
    return found


def answer_section(contents: Contents) -> Section | None:
    """Return the headline of a study with its interval, and how often each scenario is the best."""
    percentiles = contents.table("percentiles")
    if percentiles is None or not len(percentiles):
        return None
    output = headline_of(contents)
    found = _statistics(percentiles, output)
    if not found:
        return None
    body = [paragraph(_headline(found, output, contents), class_="headline"), _percentile_table(found, output)]
    body += [_decision_table(contents, output), _all_statistics(percentiles)]
    return Section(key="answer", title="What should we do?", body=join(body))


def _headline(found: Statistics, output: str, contents: Contents) -> str:
    """Say which scenario is best, with its interval, and how it stands against the baseline."""

    def mean(name: str) -> float:
        value = found[name].get("mean", (None, None, None))[0]
        return float("inf") if value is None else value

    best = min(found, key=mean)
    value, low, high = found[best].get("mean", (None, None, None))
    p5, p95 = (found[best].get(name, (None, None, None))[0] for name in ("p5", "p95"))
    said = f"{best} does best: {output.removesuffix('_usd').replace('_', ' ')} {shown(value, output)} on average"
    if low is not None and high is not None:
        said += f" ({shown(low, output)} to {shown(high, output)} with 95% confidence)"
    said += f"; nine futures in ten lie between {shown(p5, output)} and {shown(p95, output)}."
    return said + _against_baseline(best, next(iter(found)), contents.table("decision"), output)


def _against_baseline(best: str, baseline: str, decision: Table | None, output: str) -> str:
    """Say how the best scenario stands against the first one, which is the baseline."""
    if decision is None or best == baseline:
        return f" It is the baseline, {baseline}." if decision is not None and len(decision) else ""
    names = ("probability_better", "mean_difference", "difference_low", "difference_high")
    numbers = zip(*(decision.numbers(name) for name in names), strict=True)
    for scenario, against, (chance, mean, low, high) in zip(
        decision.texts("scenario"), decision.texts("against"), numbers, strict=True
    ):
        if (scenario, against) == (best, baseline):
            spread = f" ({shown(low, output)} to {shown(high, output)})" if low is not None and high is not None else ""
            return (
                f" Against the baseline {baseline} it is better in {percent(chance, 0)} of futures, by "
                f"{shown(mean, output)}{spread} on average."
            )
    return ""


def _percentile_table(found: Statistics, output: str) -> Html:
    palette = colours(found)
    highest = max((row["p95"][0] or 0.0 for row in found.values() if "p95" in row), default=0.0) or 1.0
    rows = []
    for scenario, row in found.items():
        value, low, high = row.get("mean", (None, None, None))
        half = (high - low) / 2 if low is not None and high is not None else None
        numbers = [shown(value, output), "± " + shown(half, output) if half is not None else NOTHING]
        numbers += [shown(row.get(name, (None, None, None))[0], output) for name in PERCENTILES]
        middle = row.get("p50", (None, None, None))[0] or 0.0
        parts = [Part(name=scenario, share=middle / highest, colour=palette[scenario], shown=shown(middle, output))]
        rows.append((scenario, numbers, parts))
    header = ("scenario", "mean", "95%", *(name.upper() for name in PERCENTILES), "median")
    return bar_table(header, rows, output.replace("_", " "))


def _decision_table(contents: Contents, output: str) -> Html:
    decision = contents.table("decision")
    if decision is None or not len(decision):
        return Html("")
    columns = ("probability_better", "probability_low", "probability_high", "mean_difference", "difference_low",
               "difference_high", "mean_regret", "p95_regret")  # fmt: skip
    if any(name not in decision for name in columns):
        return Html("")
    rows = []
    numbers = zip(*(decision.numbers(name) for name in columns), strict=True)
    for scenario, against, found in zip(decision.texts("scenario"), decision.texts("against"), numbers, strict=True):
        chance, chance_low, chance_high, *rest = found
        cells = [percent(chance), f"{percent(chance_low)} to {percent(chance_high)}"]
        cells += [shown(rest[0], output), f"{shown(rest[1], output)} to {shown(rest[2], output)}"]
        cells += [shown(rest[3], output), shown(rest[4], output)]
        rows.append((scenario, against or "all others", *cells))
    header = ("scenario", "against", "better in", "95% interval", "mean difference", "95% interval", "mean regret",
              "P95 regret")  # fmt: skip
    return table(header, rows, "How often each is better, and what a wrong choice costs", numeric=range(2, 8))


def _all_statistics(percentiles: Table) -> Html:
    columns = ("scenario", "output", "statistic", "value", "low", "high")
    outputs = percentiles.texts("output")
    numbers = [percentiles.numbers(name) for name in columns[3:]]
    rows = [
        (scenario, output.replace("_", " "), statistic, *(shown(column[i], output) for column in numbers))
        for i, (scenario, output, statistic) in enumerate(
            zip(percentiles.texts("scenario"), outputs, percentiles.texts("statistic"), strict=True)
        )
    ]
    caption = f"All {len(rows):,} statistics with their 95% intervals"
    return details(caption, table(columns, rows, "Every headline figure", numeric=(3, 4, 5)))


def fan_section(contents: Contents) -> Section | None:
    """Return fan charts: the median by month within its tenth and ninetieth percentile, by scenario."""
    bands = contents.table("monthly_bands")
    if bands is None or not len(bands):
        return None
    calendar = Calendar(bands.texts("month"))
    scenarios = list(dict.fromkeys(bands.texts("scenario")))
    palette = colours(scenarios)
    where = list(zip(bands.texts("output"), bands.texts("scenario"), bands.texts("month"), strict=True))
    low, middle, high = (bands.numbers(name) for name in ("p10", "p50", "p90"))
    charts = []
    for output in dict.fromkeys(bands.texts("output")):
        title, unit = BANDS.get(output, (output.replace("_", " "), "usd" if output.endswith("_usd") else "number"))
        series = []
        for scenario in scenarios:
            own = [(i, calendar.middle(month)) for i, (o, s, month) in enumerate(where) if (o, s) == (output, scenario)]
            series.append(
                Series(
                    name=scenario, colour=palette[scenario], points=[(x, middle[i]) for i, x in own],
                    lower=[(x, low[i]) for i, x in own], upper=[(x, high[i]) for i, x in own],
                )
            )  # fmt: skip
        said = "The median of all futures by month; the band holds eight futures in ten."
        charts.append(
            draw(
                TimeChart(
                    key=f"fan-{output.replace('_', '-')}", title=title, summary=said, unit=unit, start=calendar.start,
                    days=calendar.days, series=series,
                )
            )
        )  # fmt: skip
    return Section(key="time", title="How it goes over time", body=join(charts, "\n"))


def hangs_section(contents: Contents) -> Section | None:
    """Return the tornado and the other measures of what drives the answer."""
    sensitivity = contents.table("sensitivity")
    if sensitivity is None or not len(sensitivity):
        return None
    output = headline_of(contents)
    names = ("scenario", "against", "method", "input", "measure")
    keys = list(zip(*(sensitivity.texts(name) for name in names), strict=True))
    value, low, high = (sensitivity.numbers(name) for name in ("value", "low", "high"))
    parts: list[str] = []
    for method, said in TORNADOES.items():
        for scenario, against in dict.fromkeys((key[0], key[1]) for key in keys if key[2] == method):
            bars = [
                (key[3], low[i] or 0.0, high[i] or 0.0)
                for i, key in enumerate(keys)
                if key[:3] == (scenario, against, method) and low[i] is not None and high[i] is not None
            ]
            title = f"{scenario} less {against}" if against else scenario
            drawn = _tornado(bars, title, said, output)
            parts.append(drawn if len(parts) < OPEN_TORNADOES else details(title, drawn))
    rows = [
        (*(key[i] for i in (0, 1, 2, 3, 4)), *("" if n is None else f"{n:.4g}" for n in (value[i], low[i], high[i])))
        for i, key in enumerate(keys)
    ]
    whole = table((*names, "value", "low", "high"), rows, "All measures", numeric=(5, 6, 7))
    body = join([*parts, details(f"All {len(rows):,} measures", whole)])
    return Section(key="hangs", title="What the answer hangs on", body=body)


def _tornado(bars: list[tuple[str, float, float]], title: str, said: str, output: str) -> Html:
    """Return one tornado, widest first, about the middle of its bars."""
    if not bars:
        return Html("")
    ordered = sorted(bars, key=lambda bar: -abs(bar[2] - bar[1]))[:SHOWN_INPUTS]
    centres = sorted((low + high) / 2 for _, low, high in bars)
    middle = centres[len(centres) // 2]
    rows = [(name, low, high, shown(low, output), shown(high, output)) for name, low, high in ordered]
    return tornado(rows, middle, f"{title}. {said}")
