"""The sections of a study's report, and what reports of several plans show of each plan by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from planner.answers import comparison_report, judgement, run_report, timelines
from planner.answers.sections import SectionMaker, section
from planner.answers.timelines import Calendar, by_name, colours
from planner.output import blocks
from planner.output.blocks import Block, Folded, Grid, Section, Sentence, sentences
from planner.output.folder import Contents
from planner.output.scales import Scale
from planner.output.svg import even_axis, swings
from planner.output.tables import Table
from planner.output.words import NOTHING, dollars, figure, input_words, measured, percent, spoken

PERCENTILES = ("p5", "p10", "p50", "p90", "p95")
BANDS = {
    "cost_per_million_tokens_usd": ("Cost per million tokens", "usd"),
    "utilisation_fraction": ("Utilisation", "percent"),
    "spend_usd": ("Spending", "usd"),
    "revenue_usd": ("Revenue", "usd"),
}
ROWS_OF = {
    "tornado": "Every input at its median; only chance varies. How far the answer moves with its inputs is below.",
    "sobol": "Inputs drawn independently of each other, as Sobol's indices ask for.",
}
"""What the rows behind a designed study's headline are."""
SHOWN_INPUTS = 15
_BARS = 12
_PANELS = 4
"""Tornadoes in one picture: the first scenario's, and its difference from the next ones."""
OPEN_TORNADOES = 2
"""The first scenario's, and its difference from the next; the others are folded."""
SHARES = {
    ("sobol", "total"): "Sobol: share of the variance that an input has a part in",
    (
        "information",
        "worth_usd",
    ): "What measuring a pair's throughput before the choice would be worth, in dollars",
    ("information", "worth"): "What measuring a pair's throughput before the choice would be worth",
}
Figure = tuple[float | None, float | None, float | None]


class Figures(dict[str, Figure]):
    """Value and 95% interval by statistic or measure; of one that is not there, nothing is known."""

    def __missing__(self, name: str) -> Figure:
        return None, None, None


Drivers = dict[tuple[str, str, str], dict[str, Figures]]
"""Measures by scenario, what it is held against, and method; then by input."""
_OF = ("scenario", "against", "method", "input", "measure")
_ENDS = ("value", "low", "high")
"""What a row of sensitivity.csv is about, and the columns of a figure with its interval."""


def objective_of(contents: Contents) -> str:
    """Return the figure that the study is about."""
    return str(contents.manifest.get("objective") or "cost_per_million_tokens_usd")


def design_of(contents: Contents) -> str:
    """Return the design of a study: montecarlo, tornado or sobol."""
    return str(contents.manifest.get("identity", {}).get("design", {}).get("name", ""))


def statistics_of(percentiles: Table, output: str) -> dict[str, Figures]:
    """Return (value, low, high) by scenario and statistic for one output."""
    statistics: dict[str, Figures] = defaultdict(Figures)
    rows = percentiles.where("output", output).rows("scenario", "statistic", numbers=_ENDS)
    for scenario, statistic, *numbers in rows:
        statistics[scenario][statistic] = tuple(numbers)
    return statistics


def judged(contents: Contents) -> tuple[dict[str, Figures], judgement.Choice]:
    """Return the headline's statistics by scenario, and the scenarios in the order in which they are recommended."""
    percentiles = contents.table("percentiles")
    output = objective_of(contents)
    if percentiles is None:
        return {}, judgement.choose([])
    means = {
        name: statistics_of(percentiles, name)
        for name in (judgement.ATTAINED, judgement.SHED, output)
    }
    figures = {
        scenario: {name: statistics[scenario]["mean"][0] for name, statistics in means.items()}
        for scenario in list(means[output])
    }
    return means[output], judgement.choose(
        judgement.plans_of(figures, verdicts_of(contents), output)
    )


def verdicts_of(contents: Contents) -> dict[str, dict[str, Any]]:
    """Return the verdicts of slo_target.csv by scenario, as a summary holds them."""
    if (table := contents.table("slo_target")) is None:
        return {}
    texts = ("scenario", "per", "scope", "stated", "verdict", "first_missed_month")
    shares = [
        f"{name}_{end}" for name in ("slo_met", "best") for end in ("fraction", "low", "high")
    ]
    numbers = (
        "attainment_fraction",
        "confidence_fraction",
        "shortfall_fraction",
        "replications",
        *shares,
    )
    rows = [
        dict(zip((*texts, *numbers), row, strict=True))
        for row in table.rows(*texts, numbers=numbers)
    ]
    for row in rows:
        number = int(row["replications"] or 0)
        row |= {name: row[f"{name}_fraction"] or 0.0 for name in ("attainment", "confidence")}
        row |= {
            "replications": number,
            "met_replications": round((row["slo_met_fraction"] or 0.0) * number),
        }
        row |= {
            "stated": row["stated"] == "yes",
            "status": row["verdict"],
            "lowest_fraction": None,
            "base_case": None,
        }
        row["first_missed_month"] = row["first_missed_month"][:7]
    return {row["scenario"]: row for row in rows}


def answer_section(contents: Contents) -> Section | None:
    """Return the headline of a study with its interval, and how often each scenario is the best."""
    percentiles = contents.table("percentiles")
    output = objective_of(contents)
    statistics, choice = judged(contents)
    if percentiles is None or not statistics:
        return None
    verdicts = verdicts_of(contents)
    dropped = ". ".join(map(str, contents.manifest.get("dropped", ())))
    notes = [
        *(judgement.target_lines(verdicts) if verdicts else ()),
        *(judgement.warnings_of(choice) if len(statistics) > 1 and choice.best else ()),
        *judgement.inconclusive_lines(choice.ranked),
        *([f"{dropped}."] if dropped else ()),
        *([said] if (said := ROWS_OF.get(design_of(contents))) else ()),
    ]
    shown: list[Block] = [
        *sentences([*judgement.much_shed(choice.ranked), advice(contents)], "headline"),
        *sentences(notes, "note"),
        *([spread] if (spread := spread_picture(contents)) else ()),
        *_slo_grid(verdicts, choice),
        _percentile_grid({plan.name: statistics[plan.name] for plan in choice.ranked}, output),
        *_decision_grid(contents, output),
        *timelines.run_out_chart(contents),
    ]
    return section("answer", shown)


def advice(contents: Contents) -> str:
    """Say which scenario of a study to take, with its interval, and how it stands against the baseline."""
    output, (statistics, choice) = objective_of(contents), judged(contents)
    if all(row["mean"][0] is None for row in statistics.values()):
        return "No replication of any scenario could be run; replications.parquet says why."
    if choice.best is None and len(statistics) > 1:
        return judgement.none_keeps(choice)
    chosen = choice.best or choice.ranked[0]
    row = statistics[chosen.name]
    value, low, high = (measured(number, output) for number in row["mean"])
    p5, p95 = (measured(row[end][0], output) for end in ("p5", "p95"))
    said = f"{spoken(output)} {value} on average"
    if NOTHING not in (low, high):
        said += f" ({low} to {high} with 95% confidence)"
    if NOTHING not in (p5, p95):
        said += f"; nine replications in ten lie between {p5} and {p95}"
    if len(statistics) < 2:
        short = f" It is {chosen.standing}." if chosen.standing else ""
        return f"{chosen.name}: {said}.{short}"
    baseline = next(iter(statistics))
    names = [plan.name for plan in choice.keeping]
    if len(names) < 2:
        return f"{chosen.name} is the only one of these plans that is MET: {said}."
    lead = f"{chosen.name} does best{' of the plans that are MET' if len(choice.ranked) > len(names) else ''}: {said}."
    if chosen.name == baseline:
        lead += f" It is the baseline, {baseline}."
    rival = baseline if chosen.name != baseline and baseline in names else names[1]
    whose = f"the baseline {baseline}" if rival == baseline else f"the next best, {rival}"
    return lead + _against(contents, chosen.name, rival, whose, statistics[rival]["mean"][0])


def _against(contents: Contents, best: str, rival: str, whose: str, reference: float | None) -> str:
    """Say how the best scenario stands against another, whose mean is the reference."""
    decision = contents.table("decision")
    output = objective_of(contents)
    names = ("probability_better", "mean_difference", "difference_low", "difference_high")
    rows = decision.rows("scenario", "against", numbers=names) if decision else ()
    for scenario, against, chance, mean, low, high in rows:
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


def _slo_grid(verdicts: Mapping[str, Mapping[str, Any]], choice: judgement.Choice) -> list[Grid]:
    """Return how often each scenario meets its SLO target, in the order in which they are recommended."""

    def often(row: Mapping[str, Any], name: str) -> tuple[str, str]:
        share, low, high = (row[f"{name}_{end}"] for end in ("fraction", "low", "high"))
        return (
            (NOTHING, NOTHING)
            if share is None
            else (percent(share), f"{percent(low)} to {percent(high)}")
        )

    rows = []
    for plan in choice.ranked if verdicts else ():
        row = verdicts[plan.name]
        cells = (
            *often(row, "slo_met"),
            row["first_missed_month"] or NOTHING,
            percent(plan.slo_attainment_fraction, 2),
        )
        rows.append((plan.name, plan.standing, *cells, *often(row, "best")))
    header = (
        "scenario",
        "SLO",
        "met in",
        "each end 95% sure",
        "first missed",
        "attained",
        "best in",
        "95% interval",
    )
    caption = "Verdicts: MET, best first; INCONCLUSIVE; MISSED, by how far"
    return [Grid(caption=caption, header=header, rows=rows, numeric=range(2, 8))] if rows else []


def _percentile_grid(statistics: Mapping[str, Figures], output: str) -> Grid:
    """Return the headline's mean and percentiles."""
    names = [name for name in PERCENTILES if any(name in row for row in statistics.values())]
    rows = []
    for scenario, row in statistics.items():
        value, low, high = row["mean"]
        half = (
            "± " + measured((high - low) / 2, output)
            if low is not None and high is not None
            else NOTHING
        )
        rows.append(
            (
                scenario,
                measured(value, output),
                half,
                *(measured(row[name][0], output) for name in names),
            )
        )
    header = ("scenario", "mean", "95%", *(name.upper() for name in names))
    return Grid(caption=spoken(output), header=header, rows=rows, numeric=range(1, len(header)))


def _decision_grid(contents: Contents, output: str) -> list[Block]:
    """Return how often each scenario has the better headline than the baseline, and than all others."""
    if not (decision := contents.table("decision")):
        return []
    chances = ("probability_better", "probability_low", "probability_high")
    amounts = ("mean_difference", "difference_low", "difference_high", "mean_regret", "p95_regret")
    rows = []
    for scenario, against, *numbers in decision.rows(
        "scenario", "against", numbers=(*chances, *amounts)
    ):
        chance, lowest, highest = map(percent, numbers[:3])
        mean, low, high, regret, p95 = (measured(number, output) for number in numbers[3:])
        cells = (chance, f"{lowest} to {highest}", mean, f"{low} to {high}", regret, p95)
        rows.append((scenario, against or "all others", *cells))
    better = (
        "better in",
        "95% interval",
        "mean difference",
        "95% interval",
        "mean regret",
        "P95 regret",
    )
    header = ("scenario", "against", *better)
    baseline = decision.texts("scenario")[0]
    first = [row for row in rows if row[1] in ("all others", baseline)]
    caption = (
        "How often each has the better headline, its SLO met or not, and what a wrong choice costs"
    )
    return [Grid(caption=caption, header=header, rows=first, numeric=range(2, 8), unbroken=(1,))]


def histogram(contents: Contents) -> blocks.Picture | None:
    """Draw the headline's distribution for each scenario on one scale, with P10, P50 and P90."""
    distribution = contents.table("distribution")
    percentiles = contents.table("percentiles")
    if not distribution:
        return None
    output = objective_of(contents)
    edges = [*distribution.totals("bin_low"), *distribution.totals("bin_high")]
    x = even_axis(min(edges), max(edges), output.replace("_", " ").replace("usd", "USD"))
    unlabelled = replace(x, label="", ticks=[(tick, "") for tick, _ in x.ticks])
    top = 1.3 * max(distribution.totals("replications")) or 1.0  # room for the marks' names
    y = blocks.Axis(scale=Scale(low=0.0, high=top))
    palette = colours(distribution.texts("scenario"))
    strips = []
    for scenario in dict.fromkeys(distribution.texts("scenario")):
        bins = distribution.where("scenario", scenario).rows(
            totals=("bin_low", "bin_high", "replications")
        )
        marks: list[blocks.Mark] = [
            blocks.Box((low, high), (0.0, number), palette[scenario]) for low, high, number in bins
        ]
        known = (
            percentiles.where("output", output).where("scenario", scenario)
            if percentiles is not None
            else None
        )
        values = dict(known.rows("statistic", numbers=["value"])) if known is not None else {}
        ends = {
            name: value for name in ("p10", "p50", "p90") if (value := values.get(name)) is not None
        }
        marks += [
            blocks.VerticalRule(end, f"{name.upper()} {measured(end, output)}")
            for name, end in ends.items()
        ]
        strips.append(blocks.Panel(x=unlabelled, y=y, marks=marks, title=scenario, height=130.0))
    strips[-1] = replace(strips[-1], x=x)
    return blocks.Picture(title="How the replications are spread", panels=strips)


def spread_picture(contents: Contents) -> blocks.Picture | None:
    """Draw how the replications are spread or, of a designed study, what moves its answer."""
    return histogram(contents) or tornado_picture(contents)


def fan_charts(
    contents: Contents, widths: Sequence[tuple[str, str]], said: str
) -> list[blocks.TimeChart]:
    """Return the median of each output by month and scenario, within bands from one percentile to another."""
    if not (fleet := contents.table("monthly_bands")):
        return []
    calendar = Calendar(fleet.texts("month"))
    palette = colours(fleet.texts("scenario"))
    charts = []
    for output in (output for output in dict.fromkeys(fleet.texts("output")) if output in BANDS):
        table = fleet.where("output", output)
        ends = {"p50", *(end for width in widths for end in width)}
        lines = {name: by_name(table, "scenario", "month", name, calendar.middle) for name in ends}
        series = []
        for name, middle in lines["p50"].items():
            edges = [(lines[low][name], lines[high][name]) for low, high in widths]
            series.append(blocks.Series(name, middle, palette[name], bands=edges))
        title, unit = BANDS[output]
        charts.append(calendar.chart(f"fan-{output.replace('_', '-')}", title, said, unit, series))
    return charts


def fan_section(contents: Contents) -> Section | None:
    """Return fan charts: the median by month within its tenth and ninetieth percentile, by scenario."""
    detailed = contents.manifest.get("detailed")
    which = "all" if detailed is None else f"the first {detailed:,}"
    said = f"The median of {which} replications by month; the band holds eight in ten."
    charts = fan_charts(contents, [("p10", "p90")], said)
    return section("time", charts) if charts else None


TORNADOES = {
    "tornado": (
        "One input at a time at its P10 and at its P90, the others at their median",
        "at P10",
        "at P90",
    ),
    "conditional-mean": (
        "Lowest and highest mean answer over the ten tenths of each input, everything else drawn",
        "lowest",
        "highest",
    ),
}
"""What a bar is, and what its ends are called, by the way of measuring what moves the answer."""


class Tornado(NamedTuple):
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
        return _title(self.scenario, self.against)

    def longest(self, count: int) -> list[tuple[str, float, float]]:
        """Return the longest bars, longest first."""
        return sorted(self.bars, key=lambda bar: -abs(bar[2] - bar[1]))[:count]


def _title(scenario: str, against: str) -> str:
    return f"{scenario} less {against}" if against else scenario


def rows_of(contents: Contents) -> Drivers:
    """Return the measures of sensitivity.csv by scenario, what it is held against, and method; then by input."""
    drivers: Drivers = defaultdict(lambda: defaultdict(Figures))
    if (table := contents.table("sensitivity")) is not None:
        for scenario, against, method, name, measure, *numbers in table.rows(*_OF, numbers=_ENDS):
            drivers[scenario, against, method][name][measure] = tuple(numbers)
    return drivers


def panels(drivers: Drivers) -> Iterator[Tornado]:
    """Yield every tornado that the measures allow."""
    for method in TORNADOES:
        for (scenario, against, by), inputs in drivers.items():
            if by != method:
                continue
            if method == "tornado":
                bars = [(name, row["at_p10"][0], row["at_p90"][0]) for name, row in inputs.items()]
                noise = set()
                for name, row in inputs.items():  # intervals of the two ends that overlap
                    ends = [
                        end for end in (*row["at_p10"][1:], *row["at_p90"][1:]) if end is not None
                    ]
                    if len(ends) == 4 and max(ends[::2]) <= min(ends[1::2]):
                        noise.add(name)
            else:  # from the lowest to the highest conditional mean
                bars = [(name, *row["swing"][1:]) for name, row in inputs.items()]
                shares = variance_shares(drivers, scenario, against)
                noise = {name for name, (share, level) in shares.items() if share <= level}
            known = [
                (name, low, high)
                for name, low, high in bars
                if low is not None and high is not None
            ]
            if known:
                centres = sorted((low + high) / 2 for _, low, high in known)
                bases = [base for row in inputs.values() if (base := row["base"][0]) is not None]
                middle = bases[0] if bases else centres[len(centres) // 2]
                yield Tornado(scenario, against, method, known, middle, frozenset(noise))


def tornado_picture(contents: Contents) -> blocks.Picture | None:
    """Draw the sensitivities of the first scenario's objective, and of its difference from the others."""
    if not (ranked := list(panels(rows_of(contents)))):
        return None
    shown = [
        panel
        for panel in ranked
        if panel.scenario == ranked[0].scenario and panel.method == ranked[0].method
    ]
    (said, *ends) = TORNADOES[ranked[0].method]
    drawn = []
    for panel in shown[:_PANELS]:
        bars = [bar for bar in panel.longest(_BARS) if bar[0] not in panel.noise] or panel.longest(
            1
        )
        rows = [(input_words(name), [(low, 0), (high, 1)]) for name, low, high in bars]
        one = swings(rows, panel.middle, panel.title)
        rule = blocks.VerticalRule(x=0.0, is_dashed=True)
        drawn.append(replace(one, marks=[*one.marks, rule]) if panel.against else one)
    title = f"Sensitivities of {spoken(objective_of(contents))}"
    keys = dict(zip(ends, (0, 1), strict=True))
    return blocks.Picture(title=title, panels=drawn, keys=keys, shape="square", note=f"{said}.")


def variance_shares(
    drivers: Drivers, scenario: str, against: str = ""
) -> dict[str, tuple[float, float]]:
    """Return the share of the variance that each input explains, and what an input without effect would show."""
    return {
        name: (row["first_order"][0] or 0.0, row["noise_level"][0] or 0.0)
        for name, row in drivers.get((scenario, against, "variance-share"), {}).items()
        if "first_order" in row
    }


def hangs_section(contents: Contents) -> Section | None:
    """Return the tornado and the other measures of what drives the answer."""
    drivers = rows_of(contents)
    output = objective_of(contents)
    detailed = contents.manifest.get("detailed")
    table, inputs = contents.table("sensitivity"), contents.table("uncertain")
    if not table:
        return None
    plans = [scenario for scenario, against, _ in drivers if not against]
    first = next(
        (plan.name for plan in judged(contents)[1].ranked if plan.name in plans),
        table.texts("scenario")[0],
    )
    ranges = inputs.rows("input", "p10", "p90", "unit") if inputs is not None else ()
    spans = {name: f"{figure(low)} to {figure(high)} {unit}" for name, low, high, unit in ranges}
    drawn = [
        (one.title, _tornado_grid(one, output, spans))
        for one in sorted(panels(drivers), key=_order(first))
    ]
    drawn += _ranked(drivers, output)
    measured_on = (
        f" Measured on the first {detailed:,} replications." if detailed is not None else ""
    )
    shown: list[Block] = [
        *sentences([said] if (said := _sentence(drivers, output, first)) else []),
        Sentence(
            text=f"Bars no longer than chance alone would draw them are left out.{measured_on}",
            tone="note",
        ),
        *(
            [picture]
            if (picture := tornado_picture(contents)) and contents.table("distribution")
            else ()
        ),
        *(grid for _, grid in drawn[:OPEN_TORNADOES]),
        *(Folded(title=title, blocks=[grid]) for title, grid in drawn[OPEN_TORNADOES:]),
    ]
    return section("sensitivities", shown)


def _order(first: str) -> Callable[[Tornado], int]:
    """Return the order of tornadoes: that of the plan to take, what parts it from the others, then the others' own."""
    return lambda one: (
        1
        if first in (one.scenario, one.against) and one.against
        else 0
        if one.scenario == first
        else 2
    )


def _sentence(drivers: Drivers, output: str, plan: str) -> str:
    """Say what moves the answer most, at which values of an input scenarios change places, and whose variance it is."""
    said = []
    for one in sorted(panels(drivers), key=_order(plan))[:1]:
        name, low, high = one.longest(1)[0]
        span = f"{measured(min(low, high), output)} to {measured(max(low, high), output)}"
        said.append(f"What moves {one.title} most is {input_words(name)}: {span}.")
    for one in panels(drivers):
        if one.against and one.method == "tornado":
            flips = [
                input_words(name)
                for name, low, high in one.bars
                if min(low, high) < 0 < max(low, high)
            ]
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
    named = sorted(
        ((share, name) for name, (share, noise) in shares.items() if share > noise), reverse=True
    )
    if named:
        parts = "; ".join(f"{input_words(name)} {percent(share, 0)}" for share, name in named)
        rest = (
            " Bars of the inputs not named here may be noise." if len(named) < len(shares) else ""
        )
        said.append(f"Share of the variance of {plan}: {parts}.{rest}")
    return " ".join(said)


def _tornado_grid(one: Tornado, output: str, spans: Mapping[str, str]) -> Grid:
    """Return the ends of one tornado's bars, the longest first."""
    (said, lower, upper) = TORNADOES[one.method]
    rows = []
    for name, low, high in one.longest(SHOWN_INPUTS):
        rows.append(
            (input_words(name), spans.get(name, ""), measured(low, output), measured(high, output))
        )
    header = ("input", "from, to", lower, upper)
    caption = f"{one.title}. {said}"
    return Grid(caption=caption, header=header, rows=rows, numeric=(2, 3), unbroken=(1,))


def _ranked(drivers: Drivers, output: str) -> Iterator[tuple[str, Grid]]:
    """Yield the measures of variance shares, largest first."""
    for (method, measure), said in SHARES.items():
        shown_as = "cost_usd" if measure == "worth_usd" else output
        for (scenario, against, by), inputs in drivers.items():
            named = {
                name: row
                for name, row in inputs.items()
                if by == method and row[measure][0] is not None
            }
            if not named:
                continue
            largest = sorted(named, key=lambda name: -(named[name][measure][0] or 0.0))[
                :SHOWN_INPUTS
            ]
            rows = []
            for name in largest:
                row = named[name][measure]
                value, low, high = (
                    percent(n) if method == "sobol" else measured(n, shown_as) for n in row
                )
                rows.append((input_words(name), value, f"{low} to {high}"))
            title = _title(scenario, against)
            header = ("input", "measure", "95% interval")
            yield title, Grid(caption=f"{title}. {said}", header=header, rows=rows, numeric=(1, 2))


def _plan_by_plan(contents: Contents, make: SectionMaker, title: str) -> list[Block]:
    """Return one run's section for each plan, folded but for that of the plan to take."""
    of_study = contents.kind == "study"
    ranked = (
        judged(contents)[1] if of_study else judgement.choose(comparison_report.judged(contents)[1])
    ).ranked
    said = "Below, each plan as it is stated, run once under the same random numbers."
    first = ranked[0].name if ranked else ""
    shown: list[Block] = [Sentence(text=said)]
    for plan in sorted(contents.plans, key=lambda name: name != first):
        if (made := make(contents.of_plan(plan))) is not None:
            shown.append(
                Folded(f"{title}: {plan}", made.blocks, is_open=len(shown) == 1, css="plan")
            )
    return shown


def timeline_section(contents: Contents) -> Section | None:
    """Return a run's timelines by cluster and workload, with its events; every plan's own of several."""
    if not contents.plans:
        return timelines.timeline_section(contents)
    return section(
        "time", _plan_by_plan(contents, timelines.timeline_section, "Clusters and workloads")
    )


def money_section(contents: Contents) -> Section | None:
    """Return a run's accrued cost by account; of several plans side by side, and each plan's own below."""
    if not contents.plans:
        return run_report.money_section(contents)
    totals = {plan: run_report.account_totals(contents.of_plan(plan)) for plan in contents.plans}
    if not any(totals.values()):
        return None
    rows = [
        (account.replace("_", " "), *(dollars(sums.get(account)) for sums in totals.values()))
        for account in run_report.largest_first(run_report.account_sums(contents))
    ]
    rows.append(("all of it", *(dollars(sum(sums.values())) for sums in totals.values())))
    caption = "Accrued cost by account and scenario"
    header = ("account", *totals)
    grid = Grid(caption=caption, header=header, rows=rows, numeric=range(1, len(header)))
    return section(
        "money", [grid, *_plan_by_plan(contents, run_report.money_section, "Accounts and months")]
    )


def losses_section(contents: Contents) -> Section | None:
    """Return what became of a run's node-hours; of several plans side by side, and each plan's own below."""
    if not contents.plans:
        return run_report.losses_section(contents)
    by_plan: dict[str, dict[str, float]] = {}
    for plan in contents.plans:
        for row in (run_report.node_hours(contents.of_plan(plan)) or {}).values():
            sums = by_plan.setdefault(plan, defaultdict(float))
            for name, hours in row.items():
                sums[name] += hours
    if not by_plan:
        return None
    names = list(dict.fromkeys(name for row in by_plan.values() for name in row))
    parts = _plan_by_plan(contents, run_report.losses_section, "Clusters and causes")
    return section("losses", [run_report.loss_grid(by_plan, names, "scenario"), *parts])
