"""Numbers that a field allows but that nobody means: each is named with its place, its usual range and the likely slip.

The ranges stand with the fields (:class:`planner.scenario.fields.Plausible`); here is the one place that holds a
scenario against them.
"""

import functools
import re
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from planner.catalog.load import Catalog
from planner.errors import Problem
from planner.scenario.fields import Plausible
from planner.scenario.scenario import Scenario
from planner.units import HOURS_PER_YEAR, MONTHS_PER_YEAR, unit_of
from planner.yaml_io import KeyPath

# Unit of the field, what a number written in the other unit is multiplied by, and how to say so; likeliest first.
_SLIPS: tuple[tuple[str, float, str], ...] = (
    (r"fraction|1/year|ratio", 0.01, "a percentage"),
    (r"USD/kWh", 0.01, "cents"),
    (r"USD/kWh", 0.001, "USD per MWh"),
    (r"USD/million tokens", 1e6, "USD per token"),
    (r"USD/million tokens", 1e3, "USD per thousand tokens"),
    (r"USD/\(accelerator·h\)", 1.0 / HOURS_PER_YEAR, "USD a year"),
    (r"USD/\(accelerator·h\)", MONTHS_PER_YEAR / HOURS_PER_YEAR, "USD a month"),
    (r"USD/year", HOURS_PER_YEAR / 4.0, "USD an hour"),  # of the year's hours about a quarter are worked
    (r"USD/(year|\(accelerator·year\))", MONTHS_PER_YEAR, "USD a month"),
    (r"USD/\(accelerator·year\)", HOURS_PER_YEAR, "USD an hour"),
    (r"USD/\(kW·month\)", 1.0 / MONTHS_PER_YEAR, "USD a year"),
    (r"USD.*", 1e3, "thousands"),
    (r"USD.*", 1e6, "millions"),
    (r"USD.*", 1e-2, "cents"),
    (r"requests/s", 1.0 / 60.0, "requests a minute"),
    (r"requests/s", 1.0 / 3600.0, "requests an hour"),
    (r"requests/s", 1.0 / 86400.0, "requests a day"),
    (r"kW", 1e3, "MW"),
    (r"kW", 1e-3, "W"),
    (r"g/kWh", 1e3, "kg"),
    (r"kg/node", 1e3, "tonnes"),
    (r"s", 1e-3, "milliseconds"),
    (r"h|h/node", 1.0 / 60.0, "minutes"),
    (r"h|h/node", 24.0, "days"),
    (r"h|h/node", 1.0 / 3600.0, "seconds"),
    (r"weeks", 1.0 / 7.0, "days"),
    (r"months", float(MONTHS_PER_YEAR), "years"),
    (r"months", 12.0 / 365.25, "days"),
    (r"years", 1.0 / MONTHS_PER_YEAR, "months"),
    (r"days", 1.0 / 24.0, "hours"),
    (r"tokens", 1e3, "thousands"),
)


def implausible(scenario: Scenario) -> list[Problem]:
    """Return every number of a scenario that lies outside its plausible range, with the likely slip."""
    catalog = scenario.load_catalog()
    prices = dict(_odd_prices(scenario, catalog))
    problems = []
    for path, number, mark in _numbers(scenario, ()):
        price = prices.get(path)
        said = price if price is not None and price[1] else far_off(path, number, mark, catalog) or price
        if said is not None:
            problems.append(scenario.document.problem(path, *said))
    return problems


_FAR_FROM_CATALOGUE = 4.0
"""Times the catalogue's price of a part, or a fraction of it, that nobody is quoted; a node has eight accelerators."""
_LEAST_PAID = 0.1  # of the catalogue's price of a server: less is not what machines owned have cost, even used


def _odd_prices(scenario: Scenario, catalog: Catalog) -> Iterator[tuple[KeyPath, tuple[str, str | None]]]:
    """Yield prices of an accelerator that are none of that part, and costs of machines owned that are none of all."""
    for name, cluster in scenario.clusters.items():
        part = catalog.accelerator(cluster.accelerator)
        listed, place = part.unit_price_usd, ("clusters", name)
        if listed is None or listed.value <= 0.0:
            continue
        per_node = int(part.accelerators_per_node.value)
        stated: list[tuple[KeyPath, float | None]] = [((*place, "unit_price_usd"), cluster.unit_price_usd)]
        stated += [((*place, "quotes", n, "unit_price_usd"), q.unit_price_usd) for n, q in enumerate(cluster.quotes)]
        for path, price in stated:
            if price and not 1 / _FAR_FROM_CATALOGUE <= price / listed.value <= _FAR_FROM_CATALOGUE:
                message = (
                    f"{_shown(price)} for one {cluster.accelerator} is hardly meant: the catalogue has "
                    f"{_shown(listed.value)}"
                )
                looks = listed.value < price <= _FAR_FROM_CATALOGUE * listed.value * per_node
                hint = f"{_shown(price / per_node)}? {_shown(price)} looks like the price of a node"
                yield path, (message, hint if looks else None)
        cost, count = cluster.owned.cost_usd if cluster.owned is not None else None, cluster.nodes * per_node
        if cost and count and not _LEAST_PAID <= cost / count / listed.value <= _FAR_FROM_CATALOGUE:
            message = (
                f"{_shown(cost)} for all {cluster.nodes:,} nodes is {_shown(cost / count)} an accelerator, which is "
                f"hardly meant: the catalogue has {_shown(listed.value)}"
            )
            looks = cost * cluster.nodes <= _FAR_FROM_CATALOGUE * listed.value * count and cost / count < listed.value
            hint = f"{_shown(cost * cluster.nodes)}? {_shown(cost)} looks like the cost of one node"
            yield (*place, "owned", "cost_usd"), (message, hint if looks else None)


def far_off(path: KeyPath, number: float, mark: Plausible, catalog: Catalog) -> tuple[str, str | None] | None:
    """Return what to say of a number outside its plausible range, and which slip it looks like; None inside it."""
    low, high = mark.range(catalog)
    if number == 0 or low <= number <= high:
        return None
    unit = next((unit for key in reversed(path) if isinstance(key, str) and (unit := unit_of(key))), None)
    message = f"{_shown(number)} is hardly meant: {_shown(low)} to {_shown(high)} is plausible ({mark.source})"
    for pattern, factor, words in _SLIPS:
        if unit is not None and re.fullmatch(pattern, unit) and low <= number * factor <= high:
            return message, f"{_shown(number * factor)}? {_shown(number)} looks like {words}"
    return message, None


def _shown(number: float) -> str:
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e9 else f"{number:.4g}"


def mark_at(scenario: Scenario, path: KeyPath) -> Plausible | None:
    """Return the plausible range of the field at a path."""
    content: Any = scenario
    mark = None
    for key in path:
        if isinstance(content, BaseModel):
            named = {alias: (name, field) for alias, name, field in _fields(type(content))}
            if str(key) not in named:
                return None
            name, mark = named[str(key)]
            content = getattr(content, name)
        else:
            content = content[key]  # numbers by name share the range of the field that holds them
    return mark


def _numbers(content: Any, path: KeyPath) -> Iterator[tuple[KeyPath, float, Plausible]]:
    """Yield the place, number and plausible range of every number stated or left at its default."""
    if isinstance(content, BaseModel):
        for key, name, mark in _fields(type(content)):
            value = getattr(content, name)
            if mark is not None and isinstance(value, int | float):
                yield (*path, key), value, mark
            elif mark is not None and isinstance(value, dict):
                for inner, number in value.items():
                    if isinstance(number, int | float):
                        yield (*path, key, inner), number, mark
                    else:
                        yield from _numbers(number, (*path, key, inner))
            elif isinstance(value, BaseModel | dict | tuple):
                yield from _numbers(value, (*path, key))
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _numbers(value, (*path, key))
    elif isinstance(content, tuple) and content and isinstance(content[0], BaseModel):
        for index, value in enumerate(content):
            yield from _numbers(value, (*path, index))


@functools.cache
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str, Plausible | None], ...]:
    """Return what a user writes, what the model calls it and its plausible range, for each field of a model."""
    return tuple(
        (
            field.alias or name,
            name,
            next((mark for mark in (*field.metadata, *_inner(field.annotation)) if isinstance(mark, Plausible)), None),
        )
        for name, field in model.model_fields.items()
    )


def _inner(annotation: Any) -> Iterator[Any]:
    """Yield what is written into the parts of a union, where pydantic leaves it."""
    for part in typing.get_args(annotation):
        if typing.get_origin(part) is typing.Annotated:
            yield from typing.get_args(part)[1:]
            yield from _inner(typing.get_args(part)[0])
