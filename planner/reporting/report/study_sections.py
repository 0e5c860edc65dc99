"""The sections of a study: percentiles, fan charts, decisions, and what drives the answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from planner.reporting.report.bars import Part, bar, bar_table, spread
from planner.reporting.report.contents import Contents, Table
from planner.reporting.report.html import DUMP, Html, breakable, details, element, join, paragraph, table
from planner.reporting.report.page import Section
from planner.reporting.report.timechart import Series, TimeChart, colour_class, draw
from planner.reporting.report.timelines import Calendar, colours
from planner.reporting.report.words import NOTHING, figure, measured, percent, served_worse
from planner.studies.headlines import HEADLINES

PERCENTILES = ("p5", "p10", "p50", "p90", "p95")
OBJECTIVE = "slo_attainment_fraction"
DEFAULT_HEADLINE = "cost_per_million_tokens_usd"
BANDS = {
    "cost_per_million_tokens_usd": ("Cost per million tokens", "usd"),
    "utilisation_fraction": ("Utilisation", "percent"),
    "spend_usd": ("Spending", "usd"),
}
ANSWER = "What should we do?"
HIGHER_IS_BETTER = frozenset(output.name for output in HEADLINES if not output.lower_is_better)
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
    served = {name: row.get("mean", NO_FIGURE)[0] for name, row in _statistics(percentiles, OBJECTIVE).items()}
    body = [paragraph(_headline(found, output, contents, served), class_="headline")]
    dropped = contents.manifest.get("dropped", ())
    if isinstance(dropped, list) and dropped:
        body.append(paragraph(". ".join(map(str, dropped)) + ".", class_="note"))
    if said := ROWS_OF.get(design_of(contents)):
        body.append(paragraph(said, class_="note"))
    body += [_percentile_table(found, output), _decision_table(contents, output), _histogram(contents, output)]
    if len(percentiles) > len(found):
        body.append(_all_statistics(percentiles))
    return Section(key="answer", title=ANSWER, body=join(body))


def design_of(contents: Contents) -> str:
    """Return the design of a study: montecarlo, tornado, morris or sobol."""
    design = contents.manifest.get("identity", {}).get("design", {})
    return str(design.get("name", "")) if isinstance(design, dict) else ""


def _mean_of(found: Statistics, name: str) -> Figure:
    return found[name].get("mean", NO_FIGURE)


def _headline(found: Statistics, output: str, contents: Contents, served: Mapping[str, float | None]) -> str:
    """Say which scenario is best, with its interval, and how it stands against the baseline."""
    sign = -1.0 if output in HIGHER_IS_BETTER else 1.0
    priced = {name: value for name in found if (value := _mean_of(found, name)[0]) is not None}
    if not priced:
        return "No replication of any scenario could be run; samples.csv says why."
    best = min(priced, key=lambda name: sign * priced[name])
    value, low, high = _mean_of(found, best)
    p5, p95 = (found[best].get(name, NO_FIGURE)[0] for name in ("p5", "p95"))
    named = output.removesuffix("_usd").replace("_", " ")
    said = f"{best} does best: " if len(found) > 1 else f"{best}: "
    said += f"{named} {measured(value, output)} on average"
    if low is not None and high is not None:
        said += f" ({measured(low, output)} to {measured(high, output)} with 95% confidence)"
    if p5 is not None and p95 is not None:
        said += f"; nine futures in ten lie between {measured(p5, output)} and {measured(p95, output)}"
    if len(found) < 2:
        return f"{said}. It has no baseline: a study of two scenarios or more has."
    baseline = next(iter(found))
    rivals = sorted((name for name in priced if name != best), key=lambda name: sign * priced[name])
    rival = baseline if best != baseline else rivals[0] if rivals else ""
    whose = f"the baseline {baseline}" if best != baseline else f"the next best, {rival}"
    lead = f"{said}. It is the baseline, {baseline}." if best == baseline else f"{said}."
    who = (best, rival, whose)
    worse = served_worse(served.get(best), served.get(rival), rival)
    return lead + _against(contents, who, priced.get(rival), output) + worse


def _against(contents: Contents, who: tuple[str, str, str], reference: float | None, output: str) -> str:
    """Say how the best scenario stands against another, called ``who[2]``."""
    best, rival, whose = who
    decision, design = contents.table("decision"), design_of(contents)
    if decision is None or not rival:
        return ""
    names = ("probability_better", "mean_difference", "difference_low", "difference_high")
    numbers = zip(*(decision.numbers(name) for name in names), strict=True)
    for scenario, against, (chance, mean, low, high) in zip(
        decision.texts("scenario"), decision.texts("against"), numbers, strict=True
    ):
        if (scenario, against) != (best, rival) or mean is None:
            continue
        often = "draws of chance" if design == "tornado" else "futures"
        said = f" Against {whose}, it is better in {percent(chance, 0)} of {often}"
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
    found = contents.table("distribution")
    if found is None or not len(found):
        return Html("")
    rows = list(
        zip(found.texts("scenario"), found.numbers("bin_low"), found.numbers("bin_high"), found.totals("replications"),
            strict=True)
    )  # fmt: skip
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
        strips.append(element("div", element("b", scenario), element("div", *bars, class_="bins"), class_="strip"))
    ends = element("div", element("span", measured(rows[0][1], output)), element("span", measured(rows[-1][2], output)),
                   class_="ends")  # fmt: skip
    said = f"How {output.removesuffix('_usd').replace('_', ' ')} is spread over the futures, on one scale."
    return element("div", paragraph(said, class_="summary"), *strips, ends, class_="histogram", role="img",
                   aria_label=f"{said} The table above has the percentiles.")  # fmt: skip


def _percentile_table(found: Statistics, output: str) -> Html:
    palette = colours(found)
    shown = [name for name in PERCENTILES if any(name in row for row in found.values())]
    highest = max((row[top][0] or 0.0 for row in found.values() for top in ("p95", "mean") if top in row),
                  default=0.0) or 1.0  # fmt: skip
    rows = []
    for scenario, row in found.items():
        value, low, high = row.get("mean", NO_FIGURE)
        half = (high - low) / 2 if low is not None and high is not None else None
        numbers = [measured(value, output), "± " + measured(half, output) if half is not None else NOTHING]
        numbers += [measured(row.get(name, NO_FIGURE)[0], output) for name in shown]
        rows.append((scenario, numbers, _drawn(row, highest, palette[scenario])))
    header = ("scenario", "mean", "95%", *(name.upper() for name in shown), "P5 to P95" if shown else "mean")
    return bar_table(header, rows, output.removesuffix("_usd").replace("_", " "))


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
        cells += [measured(rest[0], output), f"{measured(rest[1], output)} to {measured(rest[2], output)}"]
        cells += [measured(rest[3], output), measured(rest[4], output)]
        rows.append((scenario, against or "all others", *cells))
    header = ("scenario", "against", "better in", "95% interval", "mean difference", "95% interval", "mean regret",
              "P95 regret")  # fmt: skip
    baseline = next(iter(decision.texts("scenario")))
    first = [row for row in rows if row[1] in ("all others", baseline)]
    caption = "How often each is better, and what a wrong choice costs"
    shown = table(header, first, caption, numeric=range(2, 8), unbroken=(1,))
    if len(first) == len(rows):
        return shown
    return join(
        [shown, details(f"All {len(rows)} pairs", table(header, rows, "Every pair", numeric=range(2, 8)), class_=DUMP)]
    )


def _all_statistics(percentiles: Table) -> Html:
    columns = ("scenario", "output", "statistic", "value", "low", "high")
    outputs = percentiles.texts("output")
    numbers = [percentiles.numbers(name) for name in columns[3:]]
    rows = [
        (scenario, output.replace("_", " "), statistic, *(measured(column[i], output) for column in numbers))
        for i, (scenario, output, statistic) in enumerate(
            zip(percentiles.texts("scenario"), outputs, percentiles.texts("statistic"), strict=True)
        )
    ]
    caption = f"All {len(rows):,} statistics with their 95% intervals"
    return details(caption, table(columns, rows, "Every headline figure", numeric=(3, 4, 5)), class_=DUMP)


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


def uncertain_section(contents: Contents) -> Section | None:
    """Return what the study draws, with percentiles, source and grade."""
    found = contents.table("uncertain")
    if found is None or not len(found):
        return None
    names = ("input", "p10", "p50", "p90", "unit", "distribution", "source", "date", "grade")
    rows = [
        (breakable(name), *map(figure, percentiles), *rest)
        for name, *percentiles, rest in zip(
            *(found.texts(name) for name in names[:4]),
            zip(*(found.texts(name) for name in names[4:]), strict=True),
            strict=True,
        )
    ]
    header = ("uncertain input", "P10", "P50", "P90", *names[4:])
    said = "What is uncertain, and where its spread comes from. Everything else is held as stated."
    body = join(
        [
            paragraph(said),
            table(header, rows, f"{len(rows)} uncertain inputs", numeric=(1, 2, 3), unbroken=(4, 5, 7, 8)),
        ]
    )
    return Section(key="assumptions", title="What it assumes", body=body)
