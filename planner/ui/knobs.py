"""Knobs: the scenario fields that can be changed on the live page, written as ``--set`` takes them."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

from planner.data_files import data_rows
from planner.errors import Problem, ScenarioError
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Future, Scenario
from planner.scenario.site import Site
from planner.scenario.workload import GrowthByYear, Workload
from planner.validation import field_docstring

MOST_TURNS = 400
_WRITTEN = r"[\w.+-]{1,64}"
"""A plain word, number or date: no turn names a file or holds further keys."""
_WEEKS_PER_MONTH = 365.25 / 12 / 7
_WIDEST = 200.0
"""Steps of a slider from end to end, so that each is a pixel or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A kind of knob: every scenario field that matches a path."""

    group: str
    """Heading it stands under."""
    label: str
    """What it is, with its unit."""
    ends: tuple[float, float] | None = None
    """Ends of its slider. Default: nothing to twice what is stated."""
    written: str = "%"
    """How its value, ``%``, is written."""


ADDED = "clusters.*"
TURNS = {
    line["path"]: Turn(
        group=line["group"],
        label=line["label"],
        ends=(float(line["low"]), float(line["high"])) if line["low"] else None,
        written=line["written"] or "%",
    )
    for line in data_rows(__file__, "knobs.csv")
}
"""Everything that can be turned, by its path; ``*`` is any cluster or workload.

Machines that are added have eight nodes, one rack row, to be turned at once (assumption)."""

FUTURE = {
    "future.traffic": ("1", "traffic ×%", "workloads.*.requests_per_s"),
    "future.slip_months": ("0", "deliveries % months late", ""),
    "future.lead_time": ("1", "lead time ×%", "clusters.*.order.lead_weeks"),
    "future.price": ("1", "price ×%", "clusters.*.accelerator_price_usd"),
}
"""What nobody decides, by its path: its value as stated, how another is called, and the fields that it multiplies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One knob with its present value."""

    path: str
    turn: Turn
    owner: str = ""
    """Cluster or workload it is of."""
    value: str
    """What is stated, as text; empty where it is left to its default."""
    default: str = ""
    """What stands where nothing is stated."""
    choices: tuple[str, ...] = ()
    """Words to choose from; empty for a number or a date."""
    is_date: bool = False
    is_optional: bool = False
    """Whether it may be left empty."""
    help: str = ""
    """The field's own description."""

    @property
    def shown(self) -> str:
        """Text of its input box; for a date without a value, the default date."""
        return self.value or self.default if self.is_date else self.value

    @property
    def placeholder(self) -> str:
        """Placeholder of an empty input box."""
        return self.default or ("none" if self.is_optional else "")

    @property
    def is_new(self) -> bool:
        """Whether it is of machines that do not exist yet."""
        return self.turn is TURNS[ADDED]

    @property
    def slider(self) -> tuple[float, float, float] | None:
        """Lowest, highest and step of its slider; None without a number to start from."""
        if self.choices or self.is_date or not (text := self.value or self.default):
            return None
        start = float(text)
        low, high = self.turn.ends or (0.0, _round_up(2.0 * start))
        low = min(low, start)
        high = max(high, start)
        if not high > low:
            return None
        step = _round_up((high - low) / _WIDEST)
        return low, high, max(1.0, step) if self.path.endswith(("nodes", "months")) else step


def knobs_of(scenario: Scenario, future: Sequence[str] = ()) -> list[Knob]:
    """Return the knobs of a scenario that have an effect, in the order of their groups, and those of its future."""
    catalog = scenario.load_catalog()
    offered = {
        "accelerator": tuple(catalog.accelerators),
        "engine": ("auto", *dict.fromkeys(stack.engine.value for stack in catalog.stacks.values())),
        "precision": tuple(catalog.precisions),
        "tariff": tuple(catalog.tariffs),
    }
    turned = dict(turn.split("=") for turn in future)
    knobs = [
        Knob(path=path, turn=TURNS[path], value=turned.get(path, stated))
        for path, (stated, *_) in FUTURE.items()
    ]
    for pattern, turn in TURNS.items():
        for (*above, field), holder in _places(scenario, pattern):
            stated = getattr(holder, field)
            words, is_optional, text = _field(type(holder), field)
            knob = Knob(
                path=".".join((*above, field)),
                turn=turn,
                owner=above[1] if "*" in pattern else "",
                value="0" if field == "growth" else _text(stated),
                default=_default(scenario, holder, field) if stated is None else "",
                choices=offered.get(field, words),
                is_date=field in ("online", "placed"),
                is_optional=is_optional,
                help=text,
            )
            knobs.append(knob)
    for part in (
        name for name, entry in catalog.accelerators.items() if entry.accelerator_price_usd
    ):
        stem = re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-")
        name = next(
            n for n in (stem, *(f"{stem}-{i}" for i in range(2, 99))) if n not in scenario.clusters
        )
        knobs.append(Knob(path=f"clusters.{name}", turn=TURNS[ADDED], value="", choices=(part,)))
    groups = list(dict.fromkeys(turn.group for turn in TURNS.values()))
    owners = [*scenario.clusters, *scenario.workloads, ""]
    return sorted(knobs, key=lambda knob: (groups.index(knob.turn.group), owners.index(knob.owner)))


def future_of(scenario: Scenario, turns: Sequence[str]) -> Future | None:
    """Return what turns of the future set in a scenario; None where nothing of it is otherwise than stated."""
    laid: dict[str, Any] = {}
    for path, text in (turn.split("=") for turn in turns):
        stated, _, pattern = FUTURE[path]
        if float(text) == float(stated):
            continue
        laid |= (
            {".".join(keys): f"×{text}" for keys, _ in _places(scenario, pattern)}
            if pattern
            else {}
        )
        months = round(float(text))
        for name, cluster in scenario.clusters.items() if not pattern else ():
            if cluster.order is not None:
                slips = cluster.order.slip_weeks.model_dump()
                later = {
                    end: round(weeks + months * _WEEKS_PER_MONTH, 2) for end, weeks in slips.items()
                }
                laid[f"clusters.{name}.order.slip_weeks"] = later
            elif (
                cluster.owned is None
                and cluster.online is not None
                and cluster.online > scenario.start
            ):
                laid[f"clusters.{name}.online"] = f"+{months} months"
    return Future(set=laid) if laid else None


def future_words(turns: Sequence[str]) -> str:
    """Return what a future is called: traffic ×1.3, 3 months late."""
    named = (turn.split("=") for turn in turns)
    return ", ".join(
        FUTURE[path][1].replace("%", text) for path, text in named if text != FUTURE[path][0]
    )


def _places(scenario: Scenario, pattern: str) -> Iterator[tuple[tuple[str, ...], BaseModel]]:
    """Yield the keys of every field that matches a pattern and has an effect, with its parent."""
    *above, field = pattern.split(".")
    places: list[tuple[tuple[str, ...], Any]] = [((), scenario)]
    for key in above:
        if key == "*":
            places = [
                ((*keys, name), part) for keys, holder in places for name, part in holder.items()
            ]
        else:
            places = [((*keys, key), getattr(holder, key, None)) for keys, holder in places]
    for keys, holder in places:
        if not isinstance(holder, BaseModel) or field not in type(holder).model_fields:
            continue
        match holder:  # an offer takes the place of a price, an order that of a date
            case Cluster() if field == "online":
                matters = holder.order is None and holder.owned is None
            case Cluster() if field in ("accelerator_price_usd", "discount_fraction"):
                matters = holder.contract is None and holder.owned is None and not holder.quotes
            case Site() if field == "electricity_usd_per_kwh":
                matters = not holder.electricity.windows
            case Workload() if field == "growth":
                matters = holder.growth.kind == "flat"
            case GrowthByYear():  # has no one rate
                matters = False
            case _:
                matters = True
        if matters:
            yield (*keys, field), holder


@functools.cache
def _field(model: type[BaseModel], field: str) -> tuple[tuple[str, ...], bool, str]:
    """Return a field's allowed words, whether it is optional, and its description without the default."""
    held = get_args(model.model_fields[field].annotation)
    text = " ".join(field_docstring(model, field).split())
    words = tuple(str(word) for word in held if isinstance(word, str))
    return words, type(None) in held, re.split(r"\s+Default\b", text)[0]


def _default(scenario: Scenario, holder: BaseModel, field: str) -> str:
    """Return the default of a field as text."""
    catalog = scenario.load_catalog()
    match holder, field:
        case Cluster(), "online":
            return _text(scenario.start)
        case Cluster(), "accelerator_price_usd":
            price = catalog.accelerator(holder.accelerator).accelerator_price_usd
            return _text(price.value) if price else ""
        case Site(), "electricity_usd_per_kwh":
            return _text(catalog.tariff(holder.tariff).energy_usd_per_kwh.value)
        case _:
            return ""


def _text(value: object) -> str:
    return "" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)


def _round_up(number: float) -> float:
    """Return the next of 1, 2, 5 times a power of ten."""
    if number <= 0.0:
        return 1.0
    power = math.floor(math.log10(number))
    return next(
        float(f"{m}e{power}")
        for m in (1, 2, 5, 10)
        if float(f"{m}e{power}") >= number * (1.0 - 1e-9)
    )


def check_turns(scenario: Scenario, turns: Sequence[str]) -> None:
    """Raise an error for changes that are not of a knob, so that a page cannot reach other keys or files."""
    if len(turns) > MOST_TURNS:
        raise ScenarioError(f"{len(turns):,} changes; the page takes {MOST_TURNS}")
    for turn in turns:
        path, _, text = turn.partition("=")
        keys = path.split(".")
        pattern = (
            ".".join([keys[0], "*", *keys[2:]]) if keys[0] in ("clusters", "workloads") else path
        )
        is_new = pattern != ADDED or keys[1] not in scenario.clusters
        is_plain = all(re.fullmatch(r"[\w-]{1,64}", key) for key in keys)
        fits = pattern in TURNS and re.fullmatch(
            re.escape(TURNS[pattern].written).replace("%", _WRITTEN), text
        )
        is_number = path not in FUTURE or re.fullmatch(r"\d{1,2}(\.\d{1,3})?", text)
        if not (is_new and is_plain and fits and is_number):
            raise ScenarioError(
                Problem(message=f"{turn[:120]!r} is no knob of this page", hint="use its controls")
            )
