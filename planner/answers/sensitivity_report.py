"""What drives a study's answer: tornadoes, shares of the variance, and where plans change places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from planner.answers.sections import section
from planner.answers.study_results import Drivers, Estimates, StudyResults
from planner.output import blocks
from planner.output.blocks import Folded, Grid, Section, Sentence, sentences
from planner.output.folder import Contents
from planner.output.svg import swings
from planner.output.words import figure, input_words, measured, percent, spoken
from planner.records import record

MAX_INPUTS = 15
"""Inputs that a table of a tornado has."""
MAX_BARS = 12
"""Bars of a tornado in a picture."""
MAX_PANELS = 4
"""Tornadoes in one picture: the first scenario's, and its difference from the next ones."""
OPEN_TABLES = 2
"""The first scenario's, and its difference from the next; the others are folded."""
TORNADO_ENDS = {
    "tornado": (
        "One input at a time at its P10 and at its P90, the others at their median",
        "at P10",
        "at P90",
    ),
    "conditional-mean": (
        "Lowest and highest mean over the deciles of each input, all other inputs drawn",
        "lowest",
        "highest",
    ),
}
"""What a bar is, and what its ends are called, by the method that measures what moves the answer."""


@record
class Bar:
    """How far the answer moves with an input."""

    input: str
    low: float
    """The answer at the lower end of the input, or the lowest answer."""
    high: float

    @property
    def length(self) -> float:
        """How far its ends are from one another."""
        return abs(self.high - self.low)

    def span_words(self, objective: str) -> str:
        """Return both ends, the smaller first."""
        smaller, larger = sorted((self.low, self.high))
        return f"{measured(smaller, objective)} to {measured(larger, objective)}"


@record
class Tornado:
    """The bars of one scenario, or of one scenario less another, by one method."""

    scenario: str
    against: str
    """The scenario that is subtracted; empty where none is."""
    method: str
    bars: Sequence[Bar]
    """In the order of the file."""
    middle: float
    """The answer that the bars lie about."""
    noise: frozenset[str]
    """Inputs whose bar sampling noise alone would draw as long."""

    @property
    def title(self) -> str:
        """What is explained."""
        return difference_title(self.scenario, self.against)

    def longest(self, number: int) -> list[Bar]:
        """Return the longest bars, longest first."""
        by_length = sorted(self.bars, key=lambda bar: -bar.length)
        return by_length[:number]


def difference_title(scenario: str, against: str) -> str:
    """Return the name of a scenario, or of what it is less another."""
    return f"{scenario} less {against}" if against else scenario


def tornadoes(drivers: Drivers) -> Iterator[Tornado]:
    """Yield every tornado that the measures allow."""
    for method in TORNADO_ENDS:
        # One method after another: their bars mean different things.
        for (scenario, against, measured_by), inputs in drivers.items():
            if measured_by != method:
                continue
            if method == "tornado":
                bars = _stated_bars(inputs)
                noise = {name for name, measures in inputs.items() if _ends_overlap(measures)}
            else:
                bars = _conditional_bars(inputs)
                shares = variance_shares(drivers, scenario, against)
                noise = {name for name, (share, level) in shares.items() if share <= level}
            if not bars:  # every end of every bar is unknown
                continue
            bases = [measures["base"].value for measures in inputs.values()]
            stated = [base for base in bases if base is not None]
            # The median, since one long bar would pull a mean to its side.
            centres = sorted((bar.low + bar.high) / 2 for bar in bars)
            yield Tornado(
                scenario=scenario,
                against=against,
                method=method,
                bars=bars,
                # Drawn inputs have no base case: there the middle is the median bar's.
                middle=stated[0] if stated else centres[len(centres) // 2],
                noise=frozenset(noise),
            )


def _stated_bars(inputs: Mapping[str, Estimates]) -> list[Bar]:
    """Return the answer at the P10 and at the P90 of each input."""
    bars = []
    for name, measures in inputs.items():
        low = measures["at_p10"].value
        high = measures["at_p90"].value
        if low is not None and high is not None:
            bars.append(Bar(input=name, low=low, high=high))
    return bars


def _conditional_bars(inputs: Mapping[str, Estimates]) -> list[Bar]:
    """Return the lowest and the highest conditional mean of each input."""
    bars = []
    for name, measures in inputs.items():
        swing = measures["swing"]
        if swing.low is not None and swing.high is not None:
            bar = Bar(input=name, low=swing.low, high=swing.high)
            bars.append(bar)
    return bars


def _ends_overlap(measures: Estimates) -> bool:
    """Say whether the intervals of a bar's two ends overlap: sampling noise may be all there is between them."""
    p10 = measures["at_p10"]
    p90 = measures["at_p90"]
    # An end without an interval was measured once: nothing says that it is noise.
    if p10.low is None or p10.high is None or p90.low is None or p90.high is None:
        return False
    highest_low = max(p10.low, p90.low)
    return highest_low <= min(p10.high, p90.high)


def variance_shares(
    drivers: Drivers, scenario: str, against: str = ""
) -> dict[str, tuple[float, float]]:
    """Return the share of the variance that each input explains, and what an input without effect would show."""
    inputs = drivers.get((scenario, against, "variance-share"), {})
    return {
        name: (measures["first_order"].value or 0.0, measures["noise_level"].value or 0.0)
        for name, measures in inputs.items()
        if "first_order" in measures
    }


def tornado_picture(study: StudyResults) -> blocks.Picture | None:
    """Draw the sensitivities of the first scenario's objective, and of its difference from the others."""
    panels = list(tornadoes(study.drivers))
    if not panels:
        return None
    # One method and one scenario in a picture: bars of two methods cannot be compared.
    lead = panels[0]
    kind = (lead.scenario, lead.method)
    comparable = [tornado for tornado in panels if (tornado.scenario, tornado.method) == kind]
    description, *ends = TORNADO_ENDS[lead.method]
    # More panels than fit on a page would be too small to read.
    keys = dict(zip(ends, (0, 1), strict=True))
    return blocks.Picture(
        title=f"Sensitivities of {spoken(study.objective)}",
        panels=[_panel(tornado) for tornado in comparable[:MAX_PANELS]],
        keys=keys,
        shape="square",
        note=f"{description}.",
    )


def _panel(tornado: Tornado) -> blocks.Panel:
    """Draw the longest bars that are not noise; the longest of all where every bar is."""
    # Bars within the noise would suggest an order that is none.
    longest = tornado.longest(MAX_BARS)
    clear = [bar for bar in longest if bar.input not in tornado.noise]
    rows = [
        (input_words(bar.input), [(bar.low, 0), (bar.high, 1)])
        for bar in clear or tornado.longest(1)
    ]
    panel = swings(rows, tornado.middle, tornado.title)
    if not tornado.against:
        return panel
    # Where a bar crosses zero, the two plans change places.
    zero = blocks.VerticalRule(x=0.0, is_dashed=True)
    return replace(panel, marks=[*panel.marks, zero])


def sensitivities_section(contents: Contents, study: StudyResults) -> Section | None:
    """Return the tornado and the other measures of what drives the answer."""
    drivers = study.drivers
    if not drivers:
        return None
    # Pairs are of two plans: what drives one plan alone comes first.
    plans = [scenario for scenario, against, _ in drivers if not against]
    ranked = [plan.name for plan in study.ranking.plans if plan.name in plans]
    scenario, *_ = next(iter(drivers))
    if ranked:
        scenario = ranked[0]
    spans = _input_spans(contents)
    by_importance = sorted(tornadoes(drivers), key=_importance(scenario))
    tables = [
        (tornado.title, _tornado_grid(tornado, study.objective, spans)) for tornado in by_importance
    ]
    detailed = study.manifest.detailed
    rows = "" if detailed is None else f" Measured on the first {detailed:,} replications."
    note = f"Bars that are not longer than sampling noise are left out.{rows}"
    lead = _driver_words(study, scenario)
    # Without a distribution the tornado is the picture of the answer, and is not drawn twice.
    picture = None
    if contents.table("distribution"):
        picture = tornado_picture(study)
    # The first tables are open, the others folded: most readers want one.
    return section(
        "sensitivities",
        [
            *sentences([lead] if lead else []),
            Sentence(text=note, tone="note"),
            picture,
            *(grid for _, grid in tables[:OPEN_TABLES]),
            *(Folded(title=title, blocks=[grid]) for title, grid in tables[OPEN_TABLES:]),
        ],
    )


def _input_spans(contents: Contents) -> dict[str, str]:
    """Return the P10 and P90 of each uncertain input in words."""
    uncertain = contents.table("uncertain")
    if uncertain is None:
        return {}
    return {
        name: f"{figure(p10)} to {figure(p90)} {unit}"
        for name, p10, p90, unit in uncertain.rows("input", "p10", "p90", "unit")
    }


def _importance(scenario: str) -> Callable[[Tornado], int]:
    """Return the order of tornadoes: the scenario's own, its difference from the others, then the others' own."""

    def place(tornado: Tornado) -> int:
        if tornado.against:
            if scenario in (tornado.scenario, tornado.against):
                return 1
            return 2
        if tornado.scenario == scenario:
            return 0
        return 2

    return place


def _driver_words(study: StudyResults, scenario: str) -> str:
    """Say what moves the answer most, at which values of an input scenarios change places, and whose variance it is."""
    return " ".join(
        [
            *_largest_driver(study, scenario),
            *_changes_within_range(study.drivers),
            *_flips(study.drivers),
            *_variance_words(study.drivers, scenario),
        ]
    )


def _largest_driver(study: StudyResults, scenario: str) -> Iterator[str]:
    by_importance = sorted(tornadoes(study.drivers), key=_importance(scenario))
    for tornado in by_importance[:1]:
        (bar,) = tornado.longest(1)
        span = bar.span_words(study.objective)
        yield f"The input that moves {tornado.title} most is {input_words(bar.input)}: {span}."


def _changes_within_range(drivers: Drivers) -> Iterator[str]:
    """Say within the range of which inputs two scenarios change places, where inputs moved one at a time."""
    for tornado in tornadoes(drivers):
        # Drawn inputs move together: of them flips say where plans change places.
        if not tornado.against or tornado.method != "tornado":
            continue
        # Zero within the bar: the difference changes its sign.
        crossing = [
            input_words(bar.input)
            for bar in tornado.bars
            if min(bar.low, bar.high) < 0 < max(bar.low, bar.high)
        ]
        if crossing:
            yield (
                f"Which of {tornado.scenario} and {tornado.against} is better changes within the range of "
                f"{', '.join(crossing)}."
            )
        else:
            yield (
                f"No single input, moved from P10 to P90, changes which of {tornado.scenario} and {tornado.against} is "
                "better."
            )


def _flips(drivers: Drivers) -> Iterator[str]:
    for (scenario, against, method), inputs in drivers.items():
        if method != "flip":
            continue
        for name, measures in inputs.items():
            # A pair may change places more than once along an input.
            thresholds = [estimate.value for estimate in measures.values()]
            for threshold in thresholds:
                if threshold is not None:
                    yield (
                        f"{scenario} and {against} are equal where {input_words(name)} is {threshold:.4g}; beyond it "
                        "the other one is better."
                    )


def _variance_words(drivers: Drivers, scenario: str) -> Iterator[str]:
    """Say which inputs explain a scenario's variance, beyond what sampling noise shows."""
    shares = variance_shares(drivers, scenario)
    beyond_noise = ((share, name) for name, (share, noise) in shares.items() if share > noise)
    clear = sorted(beyond_noise, reverse=True)
    if not clear:
        return
    words = "; ".join(f"{input_words(name)} {percent(share, 0)}" for share, name in clear)
    rest = ""
    if len(clear) < len(shares):
        rest = " The bars of other inputs may be noise."
    yield f"Inputs explain these shares of the variance of {scenario}: {words}.{rest}"


def _tornado_grid(tornado: Tornado, objective: str, spans: Mapping[str, str]) -> Grid:
    """Return the ends of one tornado's bars, the longest first."""
    description, low_end, high_end = TORNADO_ENDS[tornado.method]
    rows = [
        (
            input_words(bar.input),
            spans.get(bar.input, ""),
            measured(bar.low, objective),
            measured(bar.high, objective),
        )
        for bar in tornado.longest(MAX_INPUTS)
    ]
    return Grid(
        caption=f"{tornado.title}. {description}",
        header=("input", "from, to", low_end, high_end),
        rows=rows,
        numeric=(2, 3),
        unbroken=(1,),
    )
