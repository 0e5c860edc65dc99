"""The sections of a study's report, and what reports of several plans show of each plan by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.answers import comparison_report, judgement, run_report, timelines
from planner.answers.sections import SectionMaker, section
from planner.answers.timelines import Calendar, by_name, colours
from planner.output.blocks import (
    Bar,
    Block,
    Cell,
    Folded,
    Grid,
    Part,
    Path,
    Section,
    Sentence,
    Series,
    Span,
    Strips,
    TimeChart,
    bar_grid,
    sentences,
)
from planner.output.folder import Contents
from planner.output.scales import colour_class
from planner.output.tables import Table
from planner.output.words import NOTHING, dollars, figure, input_words, measured, percent
from planner.run.measure_names import FLEET

STUDY = "study"
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
SHOWN_INPUTS = 15
OPEN_TORNADOES = 2
"""The first scenario's, and its difference from the next; the others are folded."""
SHARES = {
    ("morris", "mu_star"): "Morris: mean size of an input's effect, from P10 to P90",
    ("sobol", "total"): "Sobol: share of the variance that an input has a part in",
    ("information", "worth_usd"): "What measuring a pair's throughput before the choice would be worth, in dollars",
    ("information", "worth"): "What measuring a pair's throughput before the choice would be worth",
}
Figure = tuple[float | None, float | None, float | None]
NO_FIGURE: Figure = (None, None, None)
Statistics = dict[str, dict[str, Figure]]
Promises = dict[str, dict[str, Any]]
Drivers = dict[tuple[str, str, str], dict[str, dict[str, Figure]]]
"""Measures by scenario, what it is held against, and method; then by input."""
_OF = ("scenario", "against", "method", "input", "measure")
"""What a row of sensitivity.csv is about."""


def headline_of(contents: Contents) -> str:
    """Return the figure that the study is about."""
    return str(contents.manifest.get("headline") or DEFAULT_HEADLINE)


def detailed_of(contents: Contents) -> int | None:
    """Return the replications that fans and drivers are of, the first ones; None where they are of all."""
    detailed = contents.manifest.get("detailed")
    return detailed if isinstance(detailed, int) else None


def design_of(contents: Contents) -> str:
    """Return the design of a study: montecarlo, tornado, morris or sobol."""
    design = contents.manifest.get("identity", {}).get("design", {})
    return str(design.get("name", "")) if isinstance(design, dict) else ""


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


def _mean_of(statistics: Statistics, name: str) -> Figure:
    return statistics.get(name, {}).get("mean", NO_FIGURE)


def judged(contents: Contents) -> tuple[Statistics, judgement.Choice]:
    """Return the headline's statistics by scenario, and the scenarios in the order in which they are recommended."""
    percentiles, output = contents.table("percentiles"), headline_of(contents)
    if percentiles is None:
        return {}, judgement.choose([])
    means = {name: statistics_of(percentiles, name) for name in (judgement.IN_TIME, judgement.SHED, output)}
    figures = {
        scenario: {name: _mean_of(statistics, scenario)[0] for name, statistics in means.items()}
        for scenario in means[output]
    }
    return means[output], judgement.choose(judgement.plans_of(figures, promises_of(contents), output))


def promises_of(contents: Contents) -> Promises:
    """Return promise.csv by scenario."""
    promises = contents.table("promise")
    if promises is None:
        return {}
    texts = ("scenario", "each", "of", "stated", "first_broken_month")
    shares = [f"{name}_{end}" for name in ("kept", "best") for end in ("fraction", "low", "high")]
    numbers = ("in_time_fraction", "in_replications_fraction", "shortfall_fraction", *shares)
    rows = [dict(zip((*texts, *numbers), row, strict=True)) for row in promises.rows(*texts, numbers=numbers)]
    return {
        row["scenario"]: {
            **row,
            "in_time": row["in_time_fraction"] or 0.0,
            "in_replications": row["in_replications_fraction"] or 0.0,
            "stated": row["stated"] == "yes",
        }
        for row in rows
    }


def answer_section(contents: Contents) -> Section | None:
    """Return the headline of a study with its interval, and how often each scenario is the best."""
    percentiles, output = contents.table("percentiles"), headline_of(contents)
    statistics, choice = judged(contents)
    if percentiles is None or not statistics:
        return None
    promises = promises_of(contents)
    kept = {name: (promise["kept_low"], promise["kept_high"]) for name, promise in promises.items()}
    open_still = judgement.undecided(promises, kept)
    notes = [
        *(judgement.promise_lines(promises) if promises else ()),
        *(judgement.warnings_of(choice, open_still) if len(statistics) > 1 and choice.best else ()),
        *judgement.undecided_lines(open_still),
    ]
    dropped = contents.manifest.get("dropped", ())
    if isinstance(dropped, list) and dropped:
        notes.append(". ".join(map(str, dropped)) + ".")
    if said := ROWS_OF.get(design_of(contents)):
        notes.append(said)
    ranked = {plan.name: statistics[plan.name] for plan in choice.ranked}
    blocks: list[Block] = [
        *sentences([*judgement.much_shed(choice.ranked), advice(contents)], "headline"),
        *sentences(notes, "note"),
        *_promise_grid(promises, choice),
        _percentile_grid(ranked, output, colours(statistics)),
        *_decision_grids(contents, output),
        *_histogram(contents, output),
    ]
    if len(percentiles) > len(statistics):
        columns = ("scenario", "output", "statistic", "value", "low", "high")
        rows = [
            (scenario, name.replace("_", " "), statistic, *(measured(number, name) for number in numbers))
            for scenario, name, statistic, *numbers in percentiles.rows(*columns[:3], numbers=columns[3:])
        ]
        every = Grid(caption="Every headline figure", header=columns, rows=rows, numeric=(3, 4, 5))
        title = f"All {len(rows):,} statistics with their 95% intervals"
        blocks.append(Folded(title=title, blocks=[every], css="dump"))
    return section("answer", blocks)


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
    if len(names) < 2:
        return f"{chosen.name} is the only one of these plans that keeps its promise: {said}."
    lead = f"{chosen.name} does best{' of the plans that keep their promise' if choice.breaking else ''}: {said}."
    if chosen.name == baseline:
        rival, lead = names[1], f"{lead} It is the baseline, {baseline}."
    else:
        rival = baseline if baseline in names else names[1]
    whose = f"the baseline {baseline}" if rival == baseline else f"the next best, {rival}"
    return lead + _against(contents, chosen.name, rival, whose, _mean_of(statistics, rival)[0])


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


def _against(contents: Contents, best: str, rival: str, whose: str, reference: float | None) -> str:
    """Say how the best scenario stands against another, whose mean is the reference."""
    decision, output = contents.table("decision"), headline_of(contents)
    if decision is None:
        return ""
    names = ("probability_better", "mean_difference", "difference_low", "difference_high")
    for scenario, against, chance, mean, low, high in decision.rows("scenario", "against", numbers=names):
        if (scenario, against) != (best, rival) or mean is None:
            continue
        said = f" Against {whose}, it is better in {percent(chance, 0)} of replications"
        span = ""
        if low is not None and high is not None:
            if low < 0 < high:
                ends = f"{measured(low, output)} to {measured(high, output)}"
                return f"{said}; the mean difference, {ends} with 95% confidence, cannot be told from none."
            near, far = sorted((abs(low), abs(high)))
            span = f", {measured(near, output)} to {measured(far, output)} with 95% confidence"
        share = f" ({percent(abs(mean / reference))})" if reference else ""
        more = "less" if mean < 0 else "more"
        return f"{said}, and comes to {measured(abs(mean), output)}{share} {more} on average{span}."
    return ""


def _promise_grid(promises: Promises, choice: judgement.Choice) -> list[Grid]:
    """Return how often each scenario keeps its promise, in the order in which they are recommended."""

    def often(row: Mapping[str, Any], name: str) -> tuple[str, str]:
        share, low, high = (row[f"{name}_{end}"] for end in ("fraction", "low", "high"))
        return (NOTHING, NOTHING) if share is None else (percent(share), f"{percent(low)} to {percent(high)}")

    rows = []
    for plan in choice.ranked if promises else ():
        row = promises[plan.name]
        cells = (*often(row, "kept"), row["first_broken_month"] or NOTHING, percent(plan.in_time_fraction, 2))
        rows.append((plan.name, plan.standing, *cells, *often(row, "best")))
    header = ("scenario", "promise", "kept in", "95% interval", "first broken", "in time", "best in", "95% interval")
    caption = "What keeps its promise, best first, then what does not, by how far"
    return [Grid(caption=caption, header=header, rows=rows, numeric=range(2, 8))] if rows else []


def _percentile_grid(statistics: Statistics, output: str, palette: Mapping[str, int]) -> Grid:
    shown = [name for name in PERCENTILES if any(name in row for row in statistics.values())]
    tops = [row[top][0] or 0.0 for row in statistics.values() for top in ("p95", "mean") if top in row]
    highest = max(tops, default=0.0) or 1.0
    rows = []
    for scenario, row in statistics.items():
        value, low, high = row.get("mean", NO_FIGURE)
        half = "± " + measured((high - low) / 2, output) if low is not None and high is not None else NOTHING
        numbers = [measured(row.get(name, NO_FIGURE)[0], output) for name in shown]
        drawn = _spread(row, highest, palette[scenario])
        rows.append((scenario, [measured(value, output), half, *numbers], drawn))
    header = ("scenario", "mean", "95%", *(name.upper() for name in shown), "P5 to P95" if shown else "mean")
    return bar_grid(header, rows, spoken(output))


def _spread(row: Mapping[str, Figure], highest: float, colour: int) -> Cell:
    """Return P5 to P95 as a thin bar, P10 to P90 as a thick one, and the median; the mean as a bar without them."""
    ends = [end for name in PERCENTILES if (end := row.get(name, NO_FIGURE)[0]) is not None]
    if len(ends) < len(PERCENTILES):
        mean = row.get("mean", NO_FIGURE)[0] or 0.0
        return Bar(parts=[Part(name="mean", share=mean / highest, colour=colour)])
    low, lower, middle, upper, high = (max(0.0, min(end / highest, 1.0)) for end in ends)
    css = colour_class(colour)
    return Span(pieces=[(f"span {css}", low, high - low), (f"swing {css}", lower, upper - lower)], middle=middle)


def _decision_grids(contents: Contents, output: str) -> list[Block]:
    """Return how often each scenario has the better headline; against others than the baseline folded."""
    decision = contents.table("decision")
    if not decision:
        return []
    chances = ("probability_better", "probability_low", "probability_high")
    amounts = ("mean_difference", "difference_low", "difference_high", "mean_regret", "p95_regret")
    rows = []
    for scenario, against, chance, chance_low, chance_high, *others in decision.rows(
        "scenario", "against", numbers=(*chances, *amounts)
    ):
        mean, low, high, regret, p95 = (measured(number, output) for number in others)
        cells = (percent(chance), f"{percent(chance_low)} to {percent(chance_high)}", mean, f"{low} to {high}")
        rows.append((scenario, against or "all others", *cells, regret, p95))
    better = ("better in", "95% interval", "mean difference", "95% interval", "mean regret", "P95 regret")
    header, baseline = ("scenario", "against", *better), decision.texts("scenario")[0]
    first = [row for row in rows if row[1] in ("all others", baseline)]
    caption = "How often each has the better headline, its promise kept or not, and what a wrong choice costs"
    blocks: list[Block] = [Grid(caption=caption, header=header, rows=first, numeric=range(2, 8), unbroken=(1,))]
    if len(first) < len(rows):
        every = Grid(caption="Every pair", header=header, rows=rows, numeric=range(2, 8))
        blocks.append(Folded(title=f"All {len(rows)} pairs", blocks=[every], css="dump"))
    return blocks


def _histogram(contents: Contents, output: str) -> list[Strips]:
    """Return how the headline is spread, one strip of bars for each scenario on one scale."""
    bins = contents.table("distribution")
    if not bins:
        return []
    rows = list(bins.rows("scenario", numbers=("bin_low", "bin_high"), totals=["replications"]))
    scenarios = list(dict.fromkeys(row[0] for row in rows))
    palette, most = colours(scenarios), max(row[3] for row in rows) or 1.0
    strips = [
        (
            scenario,
            palette[scenario],
            [
                (number / most, f"{measured(low, output)} to {measured(high, output)}: {number:,.0f}")
                for name, low, high, number in rows
                if name == scenario
            ],
        )
        for scenario in scenarios
    ]
    first = [row for row in rows if row[0] == scenarios[0]]
    edges = [row[1] for row in first] + [first[-1][2]]
    ticks = [measured(edges[round(place * (len(edges) - 1) / 4)], output) for place in range(5)]
    said = f"How {spoken(output)} is spread over the replications, on one scale; at the left the highest bar."
    return [Strips(summary=said, strips=strips, highest=f"{most:,.0f}", ticks=ticks)]


def fan_charts(contents: Contents, widths: Sequence[tuple[str, str]], said: str) -> list[TimeChart]:
    """Return the median of each output by month and scenario, within bands from one percentile to another."""
    bands = contents.table("monthly_bands")
    if not bands:
        return []
    fleet = bands.where("cluster", FLEET)
    calendar, palette = Calendar(fleet.texts("month")), colours(fleet.texts("scenario"))
    charts = []
    for output in dict.fromkeys(fleet.texts("output")):
        if output not in BANDS:
            continue
        title, unit = BANDS[output]
        table = fleet.where("output", output)
        lines = {
            name: by_name(table, "scenario", "month", name, calendar.middle)
            for name in {"p50", *(end for width in widths for end in width)}
        }
        series = [
            Series(
                name=scenario,
                colour=palette[scenario],
                points=middle,
                bands=[(lines[low][scenario], lines[high][scenario]) for low, high in widths],
            )
            for scenario, middle in lines["p50"].items()
        ]
        charts.append(calendar.chart(f"fan-{output.replace('_', '-')}", title, said, unit, series))
    return charts


def fan_section(contents: Contents) -> Section | None:
    """Return fan charts: the median by month within its tenth and ninetieth percentile, by scenario."""
    detailed = detailed_of(contents)
    which = "all" if detailed is None else f"the first {detailed:,}"
    said = f"The median of {which} replications by month; the band holds eight in ten."
    charts = fan_charts(contents, [("p10", "p90")], said)
    return section("time", charts) if charts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way of measuring what moves the answer, as bars."""

    said: str
    """What a bar is."""
    ends: tuple[str, str]
    """What its ends are called."""


TORNADOES = {
    "tornado": Method(
        said="One input at a time at its P10 and at its P90, the others at their median", ends=("at P10", "at P90")
    ),
    "conditional-mean": Method(
        said="Lowest and highest mean answer over the ten tenths of each input, everything else drawn",
        ends=("lowest", "highest"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tornado:
    """The bars of one scenario, or of one scenario less another, by one method."""

    scenario: str
    against: str
    method: str
    bars: Sequence[tuple[str, float, float]]
    """Input and both ends, in the order of the file."""
    middle: float
    """The answer that the bars lie about."""
    noise: frozenset[str]
    """Inputs whose bar chance alone would draw as long."""

    @property
    def title(self) -> str:
        """What is explained."""
        return f"{self.scenario} less {self.against}" if self.against else self.scenario

    def longest(self, count: int) -> list[tuple[str, float, float]]:
        """Return the longest bars, longest first."""
        return sorted(self.bars, key=lambda bar: -abs(bar[2] - bar[1]))[:count]


def rows_of(contents: Contents) -> Drivers:
    """Return the measures of sensitivity.csv by scenario, what it is held against, and method; then by input."""
    drivers: Drivers = defaultdict(lambda: defaultdict(dict))
    if (table := contents.table("sensitivity")) is not None:
        for *key, name, measure, value, low, high in table.rows(*_OF, numbers=("value", "low", "high")):
            drivers[key[0], key[1], key[2]][name][measure] = (value, low, high)
    return drivers


def panels(drivers: Drivers) -> Iterator[Tornado]:
    """Yield every tornado that the measures allow."""
    for method in TORNADOES:
        for (scenario, against, by), inputs in drivers.items():
            if by != method:
                continue
            if method == "tornado":
                ends = {
                    name: (row.get("at_p10", NO_FIGURE), row.get("at_p90", NO_FIGURE)) for name, row in inputs.items()
                }
                bars = [(name, low[0], high[0]) for name, (low, high) in ends.items()]
                noise = {name for name, (low, high) in ends.items() if _overlap(low, high)}
            else:  # from the lowest to the highest conditional mean
                bars = [(name, *row["swing"][1:]) for name, row in inputs.items()]
                shares = variance_shares(drivers, scenario, against)
                noise = {name for name, (share, level) in shares.items() if share <= level}
            known = [(name, low, high) for name, low, high in bars if low is not None and high is not None]
            if known:
                centres = sorted((low + high) / 2 for _, low, high in known)
                bases = [row["base"][0] for row in inputs.values() if "base" in row]
                yield Tornado(
                    scenario=scenario,
                    against=against,
                    method=method,
                    bars=known,
                    middle=next((base for base in bases if base is not None), centres[len(centres) // 2]),
                    noise=frozenset(noise),
                )


def _overlap(one: Figure, other: Figure) -> bool:
    """Say whether two figures have intervals that overlap."""
    ends = (*one[1:], *other[1:])
    return None not in ends and max(ends[0] or 0.0, ends[2] or 0.0) <= min(ends[1] or 0.0, ends[3] or 0.0)


def variance_shares(drivers: Drivers, scenario: str, against: str = "") -> dict[str, tuple[float, float]]:
    """Return the share of the variance that each input explains, and what an input without effect would show."""
    inputs = drivers.get((scenario, against, "variance-share"), {})
    return {
        name: (row["first_order"][0] or 0.0, row.get("noise_level", NO_FIGURE)[0] or 0.0)
        for name, row in inputs.items()
        if "first_order" in row
    }


def hangs_section(contents: Contents) -> Section | None:
    """Return the tornado and the other measures of what drives the answer."""
    drivers, output, detailed = rows_of(contents), headline_of(contents), detailed_of(contents)
    table, inputs = contents.table("sensitivity"), contents.table("uncertain")
    if not table:
        return None
    plans = [scenario for scenario, against, _ in drivers if not against]
    first = next((plan.name for plan in judged(contents)[1].ranked if plan.name in plans), table.texts("scenario")[0])
    ranges = inputs.rows("input", "p10", "p90", "unit") if inputs is not None else ()
    spans = {name: f"{figure(low)} to {figure(high)} {unit}" for name, low, high, unit in ranges}
    drawn = [(one.title, _tornado_grid(one, output, spans)) for one in sorted(panels(drivers), key=_order(first))]
    drawn += _ranked(drivers, output)
    every = Grid(
        caption="All measures",
        header=(*_OF, "value", "low", "high"),
        rows=[
            (*row[:5], *("" if n is None else f"{n:.4g}" for n in row[5:]))
            for row in table.rows(*_OF, numbers=("value", "low", "high"))
        ],
        numeric=(5, 6, 7),
    )
    measured_on = f" Measured on the first {detailed:,} replications." if detailed is not None else ""
    blocks: list[Block] = [
        *sentences([said] if (said := _sentence(drivers, output, first)) else []),
        Sentence(text=f"Grey bars are no longer than chance alone would draw them.{measured_on}", tone="note"),
        *(grid for _, grid in drawn[:OPEN_TORNADOES]),
        *(Folded(title=title, blocks=[grid]) for title, grid in drawn[OPEN_TORNADOES:]),
        Folded(title=f"All {len(table):,} measures", blocks=[every], css="dump"),
    ]
    return section("hangs", blocks)


def _order(first: str) -> Callable[[Tornado], int]:
    """Return the order of tornadoes: that of the plan to take, what parts it from the others, then the others' own."""
    return lambda one: 1 if first in (one.scenario, one.against) and one.against else 0 if one.scenario == first else 2


def _sentence(drivers: Drivers, output: str, plan: str) -> str:
    """Say what moves the answer most, at which values of an input scenarios change places, and whose variance it is."""
    said = []
    for one in sorted(panels(drivers), key=_order(plan))[:1]:
        name, low, high = one.longest(1)[0]
        span = f"{measured(min(low, high), output)} to {measured(max(low, high), output)}"
        said.append(f"What moves {one.title} most is {input_words(name)}: {span}.")
    for one in panels(drivers):
        if one.against and one.method == "tornado":
            flips = [input_words(name) for name, low, high in one.bars if min(low, high) < 0 < max(low, high)]
            said.append(
                f"{one.scenario} and {one.against} change places within the range of {', '.join(flips)}."
                if flips
                else f"No single input, from P10 to P90, makes {one.scenario} and {one.against} change places."
            )
    said += [
        f"{scenario} and {against} change places where {input_words(name)} passes {value:.4g}."
        for (scenario, against, method), inputs in drivers.items()
        for name, row in inputs.items()
        for value, *_ in row.values()
        if method == "flip" and value is not None
    ]
    shares = variance_shares(drivers, plan)
    named = sorted(((share, name) for name, (share, noise) in shares.items() if share > noise), reverse=True)
    if named:
        parts = "; ".join(f"{input_words(name)} {percent(share, 0)}" for share, name in named)
        rest = " Bars of the inputs not named here may be noise." if len(named) < len(shares) else ""
        said.append(f"Share of the variance of {plan}: {parts}.{rest}")
    return " ".join(said)


def _tornado_grid(one: Tornado, output: str, spans: Mapping[str, str]) -> Grid:
    """Return one tornado, widest first."""
    method, bars, middle = TORNADOES[one.method], one.longest(SHOWN_INPUTS), one.middle
    ends = [middle, *(end for _, *both in bars for end in both)]
    left, span = min(ends), (max(ends) - min(ends)) or 1.0

    def piece(name: str, end: float, css: str) -> tuple[str, float, float]:
        style = "noise" if name in one.noise else css
        return f"swing {style}", (min(end, middle) - left) / span, abs(end - middle) / span

    rows = [
        (
            Path(text=input_words(name)),
            spans.get(name, ""),
            measured(low, output),
            Span(pieces=[piece(name, low, "c0"), piece(name, high, "c1")], middle=(middle - left) / span),
            measured(high, output),
        )
        for name, low, high in bars
    ]
    return Grid(
        caption=f"{one.title}. {method.said}",
        header=("input", "from, to", method.ends[0], "swing", method.ends[1]),
        rows=rows,
        numeric=(2, 4),
        unbroken=(1,),
        swatches={2: 0, 4: 1},
    )


def _ranked(drivers: Drivers, output: str) -> Iterator[tuple[str, Grid]]:
    """Yield the measures of a screening or of variance shares, largest first."""
    for (method, measure), said in SHARES.items():
        shown_as = "cost_usd" if measure == "worth_usd" else output
        for (scenario, against, by), inputs in drivers.items():
            figures = {name: row[measure] for name, row in inputs.items() if by == method and measure in row}
            known = [(value, name) for name, (value, *_) in figures.items() if value is not None]
            if not known:
                continue
            largest = sorted(known, key=lambda pair: -pair[0])[:SHOWN_INPUTS]
            most = max(abs(value) for value, _ in largest) or 1.0
            rows = []
            for value, name in largest:
                mean, low, high = (percent(n) if method == "sobol" else measured(n, shown_as) for n in figures[name])
                rows.append((name, [mean, f"{low} to {high}"], [Part(name=name, share=abs(value) / most, colour=0)]))
            title = f"{scenario} less {against}" if against else scenario
            yield title, bar_grid(("input", "measure", "95% interval", "compared"), rows, f"{title}. {said}")


def single(make: SectionMaker) -> SectionMaker:
    """Return a run's section for folders of one run alone; plans side by side have it folded, one for each."""
    return lambda contents: None if contents.plans else make(contents)


def _plan_by_plan(contents: Contents, make: SectionMaker, title: str) -> list[Block]:
    """Say which luck the plans had; then one run's section for each, folded but for that of the plan to take."""
    if contents.kind == STUDY:
        said = "Below, each plan as it is stated, run once: one replication of the many, to see what is inside it."
        ranked = judged(contents)[1].ranked
    else:
        said = "Below, each plan by itself, under the traffic and the luck that all of them had."
        ranked = judgement.choose(comparison_report.judged(contents)[1]).ranked
    first = ranked[0].name if ranked else ""
    blocks: list[Block] = [Sentence(text=said)]
    for plan in sorted(contents.plans, key=lambda name: name != first):
        if (made := make(contents.of_plan(plan))) is not None:
            is_open = len(blocks) == 1
            blocks.append(Folded(title=f"{title}: {plan}", blocks=made.blocks, css="plan", is_open=is_open))
    return blocks


def timeline_section(contents: Contents) -> Section | None:
    """Return every plan's own timelines by cluster and workload, with its events."""
    if not contents.plans:
        return None
    return section("time", _plan_by_plan(contents, timelines.timeline_section, "Clusters and workloads"))


def money_section(contents: Contents) -> Section | None:
    """Return accrued cost by account, plans side by side, and each plan's own below."""
    totals = {plan: run_report.account_totals(contents.of_plan(plan)) for plan in contents.plans}
    if not any(totals.values()):
        return None
    largest = {
        account: max(sums.get(account, 0.0) for sums in totals.values())
        for accounts in totals.values()
        for account in accounts
    }
    palette, longest = colours(totals), max(0.0, *largest.values()) or 1.0
    rows: list[tuple[str, Sequence[str], Cell]] = []
    for account in sorted(largest, key=lambda account: -largest[account]):
        parts = [
            Part(
                name=plan,
                share=sums.get(account, 0.0) / longest,
                colour=palette[plan],
                shown=dollars(sums.get(account)),
            )
            for plan, sums in totals.items()
        ]
        cells = [dollars(sums[account]) if account in sums else NOTHING for sums in totals.values()]
        rows.append((run_report.words_of(account), cells, Bar(parts=parts, is_group=True)))
    rows.append(("all of it", [dollars(sum(sums.values())) for sums in totals.values()], ""))
    header, legend = ("account", *totals, "side by side"), {plan: palette[plan] for plan in totals}
    grid = bar_grid(header, rows, "Accrued cost by account and scenario", legend)
    return section("money", [grid, *_plan_by_plan(contents, run_report.money_section, "Accounts and months")])


def losses_section(contents: Contents) -> Section | None:
    """Return what became of the node-hours on site, plans side by side, and each plan's own below."""
    by_plan: dict[str, dict[str, float]] = {}
    for plan in contents.plans:
        for row in (run_report.node_hours(contents.of_plan(plan)) or {}).values():
            sums = by_plan.setdefault(plan, defaultdict(float))
            for name, hours in row.items():
                sums[name] += hours
    if not by_plan:
        return None
    names = list(dict.fromkeys(name for row in by_plan.values() for name in row))
    blocks: list[Block] = [run_report.loss_grid(by_plan, names, "scenario")]
    lost = [name for name in names if name not in ("at work", run_report.IDLE)]
    shares = {plan: sum(row[name] for name in lost) / (sum(row.values()) or 1.0) for plan, row in by_plan.items()}
    least, most = min(shares, key=lambda plan: shares[plan]), max(shares, key=lambda plan: shares[plan])
    if shares[least] < shares[most]:
        said = (
            f"{least} lost least to failures, software, outages and the power cap, {percent(shares[least], 2)} of its "
            f"node-hours; {most} lost most, {percent(shares[most], 2)}."
        )
        blocks.append(Sentence(text=said))
    return section("losses", [*blocks, *_plan_by_plan(contents, run_report.losses_section, "Clusters and causes")])
