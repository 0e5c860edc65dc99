"""What the answer hangs on: tornadoes, and every other measure of what drives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from planner.output.report.contents import Contents
from planner.output.report.html import DUMP, Html, Part, Swing, bar_table, details, join, paragraph, table, tornado
from planner.output.report.page import Section
from planner.output.report.study_sections import headline_of, judged
from planner.output.report.words import figure, input_words, measured, percent

SHOWN_INPUTS = 15
OPEN_TORNADOES = 2
"""The first scenario's, and its difference from the next; the others are folded."""


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
SHARES = {
    ("morris", "mu_star"): "Morris: mean size of an input's effect, from P10 to P90",
    ("sobol", "total"): "Sobol: share of the variance that an input has a part in",
    ("information", "worth_usd"): "What measuring a pair's throughput before the choice would be worth, in dollars",
    ("information", "worth"): "What measuring a pair's throughput before the choice would be worth",
}
Row = tuple[str, str, str, str, str, float | None, float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The bars of one scenario, or of one scenario less another, by one method."""

    scenario: str
    against: str
    method: str
    bars: list[tuple[str, float, float]]
    """Input and both ends, in the order of the file."""
    middle: float
    """The answer that the bars lie about."""
    noise: frozenset[str] = frozenset()
    """Inputs whose bar chance alone would draw as long."""

    @property
    def title(self) -> str:
        """What is explained."""
        return f"{self.scenario} less {self.against}" if self.against else self.scenario

    def longest(self, count: int) -> list[tuple[str, float, float]]:
        """Return the longest bars, longest first."""
        return sorted(self.bars, key=lambda bar: -abs(bar[2] - bar[1]))[:count]


def rows_of(contents: Contents) -> list[Row]:
    """Return sensitivity.csv row by row."""
    table = contents.table("sensitivity")
    if table is None:
        return []
    return list(table.rows("scenario", "against", "method", "input", "measure", numbers=("value", "low", "high")))


def panels(rows: list[Row]) -> Iterator[Panel]:
    """Yield every tornado that the rows allow."""
    for method in TORNADOES:
        for scenario, against in dict.fromkeys((row[0], row[1]) for row in rows if row[2] == method):
            panel = [row for row in rows if row[:3] == (scenario, against, method)]
            bars, middle = _designed(panel) if method == "tornado" else _conditional(panel)
            if bars:
                noise = _overlapping(panel) if method == "tornado" else _no_more_than_noise(rows, scenario, against)
                yield Panel(
                    scenario=scenario, against=against, method=method, bars=bars, middle=middle, noise=frozenset(noise)
                )


def _overlapping(panel: list[Row]) -> set[str]:
    """Return the inputs whose answers at P10 and P90 have intervals that overlap."""
    ends = {(row[3], row[4]): (row[6], row[7]) for row in panel if row[6] is not None and row[7] is not None}
    return {
        name
        for name, measure in ends
        if measure == "at_p10"
        and (name, "at_p90") in ends
        and max(ends[name, "at_p10"][0] or 0.0, ends[name, "at_p90"][0] or 0.0)
        <= min(ends[name, "at_p10"][1] or 0.0, ends[name, "at_p90"][1] or 0.0)
    }


def _no_more_than_noise(rows: list[Row], scenario: str, against: str) -> set[str]:
    """Return the inputs whose share of the variance is no more than an input without effect would show."""
    shares = [row for row in rows if row[:3] == (scenario, against, "variance-share")]
    level = {row[3]: row[5] or 0.0 for row in shares if row[4] == "noise_level"}
    return {row[3] for row in shares if row[4] == "first_order" and (row[5] or 0.0) <= level.get(row[3], 0.0)}


def _designed(panel: list[Row]) -> tuple[list[tuple[str, float, float]], float]:
    """Return bars from the answer at P10 and at P90, about the answer with every input at its median."""
    values = {(row[3], row[4]): row[5] for row in panel if row[5] is not None}
    bars = [
        (name, values[name, "at_p10"], values[name, "at_p90"])
        for name in dict.fromkeys(row[3] for row in panel)
        if (name, "at_p10") in values and (name, "at_p90") in values
    ]
    bases = [value for (_, measure), value in values.items() if measure == "base"]
    return bars, bases[0] if bases else _centre(bars)


def _conditional(panel: list[Row]) -> tuple[list[tuple[str, float, float]], float]:
    """Return bars from the lowest to the highest conditional mean, about the middle of them all."""
    bars = [(row[3], row[6], row[7]) for row in panel if row[6] is not None and row[7] is not None]
    return bars, _centre(bars)


def _centre(bars: list[tuple[str, float, float]]) -> float:
    centres = sorted((low + high) / 2 for _, low, high in bars)
    return centres[len(centres) // 2] if centres else 0.0


def hangs_section(contents: Contents) -> Section | None:
    """Return the tornado and the other measures of what drives the answer."""
    rows = rows_of(contents)
    if not rows:
        return None
    output = headline_of(contents)
    plans, spans = {row[0] for row in rows if not row[1]}, _spans(contents)
    first = next((plan.name for plan in judged(contents)[1].ranked if plan.name in plans), rows[0][0])
    parts: list[Html] = [_sentence(rows, output, first)]
    drawn = [(panel.title, _tornado(panel, output, spans)) for panel in sorted(panels(rows), key=_order(first))]
    measured_on = f" Measured on the first {contents.detailed:,} replications." if contents.detailed is not None else ""
    parts.append(paragraph(f"Grey bars are no longer than chance alone would draw them.{measured_on}", class_="note"))
    drawn += [(title, shown) for title, shown in _ranked(rows, output)]
    for place, (title, shown) in enumerate(drawn):
        parts.append(shown if place < OPEN_TORNADOES else details(title, shown))
    cells = [(*row[:5], *("" if n is None else f"{n:.4g}" for n in row[5:])) for row in rows]
    header = ("scenario", "against", "method", "input", "measure", "value", "low", "high")
    full = table(header, cells, "All measures", numeric=(5, 6, 7))
    parts.append(details(f"All {len(rows):,} measures", full, class_=DUMP))
    return Section(key="hangs", body=join(parts))


def _order(first: str) -> Callable[[Panel], int]:
    """Return the order of tornadoes: that of the plan to take, what parts it from the others, then the others' own."""
    return lambda panel: (
        1 if first in (panel.scenario, panel.against) and panel.against else 0 if panel.scenario == first else 2
    )


def _spans(contents: Contents) -> dict[str, str]:
    """Return from where to where each input goes, P10 to P90, with its unit."""
    inputs = contents.table("uncertain")
    if inputs is None:
        return {}
    rows = inputs.rows("input", "p10", "p90", "unit")
    return {name: f"{figure(low)} to {figure(high)} {unit}" for name, low, high, unit in rows}


def _variance(rows: list[Row], plan: str) -> str:
    """Say which inputs a plan's variance comes from; what is not named is no more than noise."""
    variance = [row for row in rows if row[0] == plan and not row[1] and row[2] == "variance-share"]
    noise = {row[3]: row[5] or 0.0 for row in variance if row[4] == "noise_level"}
    shares = {row[3]: row[5] or 0.0 for row in variance if row[4] == "first_order"}
    named = sorted(((share, name) for name, share in shares.items() if share > noise.get(name, 0.0)), reverse=True)
    if not named:
        return ""
    parts = "; ".join(f"{input_words(name)} {percent(share, 0)}" for share, name in named)
    rest = " Bars of the inputs not named here may be noise." if len(named) < len(shares) else ""
    return f"Share of the variance of {plan}: {parts}.{rest}"


def _sentence(rows: list[Row], output: str, plan: str) -> Html:
    """Say what moves the answer most, and at which values of an input the scenarios change places."""
    said = []
    first = min(panels(rows), key=_order(plan), default=None)
    if first is not None:
        name, low, high = first.longest(1)[0]
        span = f"{measured(min(low, high), output)} to {measured(max(low, high), output)}"
        said.append(f"What moves {first.title} most is {input_words(name)}: {span}.")
        turned = [panel for panel in panels(rows) if panel.against and panel.method == "tornado"]
        for panel in turned:
            flips = [input_words(bar[0]) for bar in panel.bars if min(bar[1], bar[2]) < 0 < max(bar[1], bar[2])]
            said.append(
                f"{panel.scenario} and {panel.against} change places within the range of {', '.join(flips)}."
                if flips
                else f"No single input, from P10 to P90, makes {panel.scenario} and {panel.against} change places."
            )
    said += [
        f"{row[0]} and {row[1]} change places where {input_words(row[3])} passes {row[5]:.4g}."
        for row in rows
        if row[2] == "flip" and row[5] is not None
    ]
    if shares := _variance(rows, plan):
        said.append(shares)
    return paragraph(" ".join(said)) if said else Html("")


def _tornado(panel: Panel, output: str, spans: dict[str, str]) -> Html:
    """Return one tornado, widest first."""
    method = TORNADOES[panel.method]
    swings = [
        Swing(name=input_words(name), low=low, high=high, shown=(measured(low, output), measured(high, output)),
              span=spans.get(name, ""), is_noise=name in panel.noise)
        for name, low, high in panel.longest(SHOWN_INPUTS)
    ]  # fmt: skip
    return tornado(swings, panel.middle, f"{panel.title}. {method.said}", method.ends)


def _ranked(rows: list[Row], output: str) -> Iterator[tuple[str, Html]]:
    """Yield the measures of a screening or of variance shares, largest first."""
    for (method, measure), said in SHARES.items():
        shown_as = "cost_usd" if measure == "worth_usd" else output
        for scenario, against in dict.fromkeys((row[0], row[1]) for row in rows if row[2] == method):
            ranked = [row for row in rows if row[:3] == (scenario, against, method) and row[4] == measure]
            ranked = sorted((row for row in ranked if row[5] is not None), key=lambda row: -(row[5] or 0.0))[
                :SHOWN_INPUTS
            ]
            title = f"{scenario} less {against}" if against else scenario
            ends = max((abs(row[5] or 0.0) for row in ranked), default=0.0) or 1.0
            shares = [
                (
                    row[3],
                    [_figure(row[5], method, shown_as), f"{_figure(row[6], method, shown_as)} to "
                     f"{_figure(row[7], method, shown_as)}"],
                    [Part(name=row[3], share=abs(row[5] or 0.0) / ends, colour=0, shown="")],
                )
                for row in ranked
            ]  # fmt: skip
            if shares:
                yield title, bar_table(("input", "measure", "95% interval", "compared"), shares, f"{title}. {said}")


def _figure(value: float | None, method: str, output: str) -> str:
    return percent(value) if method == "sobol" else measured(value, output)
