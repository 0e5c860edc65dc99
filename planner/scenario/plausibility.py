"""Plausibility of a scenario's numbers: what is allowed and hardly meant, with the likely slip."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pydantic import BaseModel

from planner.catalog.load import Catalog
from planner.data_files import data_rows
from planner.errors import Problem
from planner.scenario.cluster import Cluster
from planner.scenario.fields import Plausible
from planner.scenario.scenario import Scenario
from planner.units import unit_of
from planner.yaml_io import KeyPath

_SLIPS = [
    (row["unit"], row["written_in"], float(Fraction(row["times"])))
    for row in data_rows(__file__, "slips.csv")
]
"""Unit of the field, the unit in which it may be written by a slip, and what its number is then multiplied by; the
likeliest first. Of the year's hours about a quarter are worked."""
_FAR_FROM_CATALOGUE = 4.0
"""Times the catalogue's price of a part, or a fraction of it, that nobody is quoted; a node has eight accelerators."""
_LEAST_PAID = 0.1
"""Of the catalogue's price of a server: less is not what machines owned have cost, even used."""

Message = tuple[str, str | None]
"""What is wrong with a number, and the likely slip."""


Numbers = Iterator[tuple[KeyPath, float, Plausible]]
"""Numbers with their paths and plausible ranges."""


def implausible(scenario: Scenario) -> list[Problem]:
    """Return every number of a scenario outside its plausible range, with the likely mistake."""
    catalog = scenario.load_catalog()
    prices = dict(_odd_prices(scenario, catalog))
    problems = []
    for path, number, plausible in _numbers(scenario, ()):
        price = prices.get(path)
        # The catalogue's price of this very part tells more than a range for all, if it names the slip.
        names_slip = price is not None and price[1] is not None
        message = price
        if not names_slip:
            message = implausibility(path, number, plausible, catalog) or price
        if message is not None:
            problems.append(scenario.document.problem(path, *message))
    return problems


def _odd_prices(scenario: Scenario, catalog: Catalog) -> Iterator[tuple[KeyPath, Message]]:
    """Yield accelerator prices far from the catalogue's, and costs of owned machines that are implausible."""
    for name, cluster in scenario.machines.items():
        part = catalog.accelerator(cluster.accelerator)
        list_price = part.accelerator_price_usd
        if list_price is None or list_price.value <= 0.0:
            continue
        listed = list_price.value
        accelerators = int(part.accelerators_per_node.value)
        path: KeyPath = ("clusters", name)
        prices: dict[KeyPath, float | None] = {
            (*path, "accelerator_price_usd"): cluster.accelerator_price_usd
        }
        for index, quote in enumerate(cluster.quotes):
            place = (*path, "quotes", index, "accelerator_price_usd")
            prices[place] = quote.accelerator_price_usd
        for place, price in prices.items():
            if not price:
                continue
            is_near = 1 / _FAR_FROM_CATALOGUE <= price / listed <= _FAR_FROM_CATALOGUE
            if not is_near:
                yield place, _odd_price(cluster.accelerator, price, listed, accelerators)
        if message := _odd_cost(cluster, listed, accelerators):
            yield (*path, "owned", "cost_usd"), message


def _odd_price(accelerator: str, price: float, listed: float, accelerators: int) -> Message:
    """Return what is odd about the price of one accelerator, of which a node has so many."""
    message = (
        f"{_shown(price)} for one {accelerator} is implausible: the catalogue has {_shown(listed)}"
    )
    # A server costs at most so many times its accelerators at the dearest quote.
    looks_like_node = listed < price <= _FAR_FROM_CATALOGUE * listed * accelerators
    hint = f"{_shown(price / accelerators)}? {_shown(price)} looks like the price of a node"
    return message, hint if looks_like_node else None


def _odd_cost(cluster: Cluster, listed: float, accelerators: int) -> Message | None:
    """Return what is odd about what owned machines cost; None where nothing is."""
    if cluster.owned is None:
        return None
    cost = cluster.owned.cost_usd
    count = cluster.nodes * accelerators
    # Machines that were a gift, or none, have no price to compare.
    if not cost or not count:
        return None
    paid = cost / count
    if _LEAST_PAID <= paid / listed <= _FAR_FROM_CATALOGUE:
        return None
    message = (
        f"{_shown(cost)} for all {cluster.nodes:,} nodes is {_shown(paid)} an accelerator, which is implausible: "
        f"the catalogue has {_shown(listed)}"
    )
    total = cost * cluster.nodes
    # One node's cost, stated for all of them, is too little by their number.
    looks_like_node = total <= _FAR_FROM_CATALOGUE * listed * count and paid < listed
    hint = f"{_shown(total)}? {_shown(cost)} looks like the cost of one node"
    return message, hint if looks_like_node else None


def implausibility(
    path: KeyPath, number: float, plausible: Plausible, catalog: Catalog
) -> Message | None:
    """Return a message on a number outside its plausible range, with the likely mistake; None inside it."""
    # Zero switches something off: no slip of unit leads to it.
    low, high = plausible.range(catalog)
    if number == 0 or low <= number <= high:
        return None
    message = f"{_shown(number)} is implausible: {_shown(low)} to {_shown(high)} is plausible ({plausible.source})"
    # Of lengths.input.quantiles.0.5 the last key names no unit: the nearest above it that does.
    units = (unit_of(key) for key in reversed(path) if isinstance(key, str))
    unit = next(filter(None, units), "")
    for field_unit, words, factor in _SLIPS:
        meant = number * factor
        if re.fullmatch(field_unit, unit) and low <= meant <= high:
            return message, f"{_shown(meant)}? {_shown(number)} looks like {words}"
    return message, None


def _shown(number: float) -> str:
    """Return a number as a message shows it."""
    if 1000 <= abs(number) < 1e9:
        return f"{number:,.0f}"
    return f"{number:.4g}"


def plausible_range(scenario: Scenario, path: KeyPath) -> Plausible | None:
    """Return the plausible range of the field at a path."""
    content: Any = scenario
    plausible = None
    for key in path:
        if isinstance(content, BaseModel):
            # A user writes the alias; the model has the name.
            fields = [field for field in _fields(type(content)) if field[0] == str(key)]
            if not fields:
                return None
            _, name, plausible = fields[0]
            content = getattr(content, name)
        else:
            content = content[key]  # numbers by name share the range of the field that holds them
    return plausible


def _numbers(content: Any, path: KeyPath) -> Numbers:
    """Yield key path, number and plausible range of every number, stated or default."""
    if isinstance(content, BaseModel):
        for key, name, plausible in _fields(type(content)):
            value = getattr(content, name)
            yield from _numbers_of_field(value, (*path, key), plausible)
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _numbers(value, (*path, key))
    elif isinstance(content, tuple):
        # A tuple of plain numbers, such as a weekly profile, has no range of its own.
        for index, value in enumerate(content):
            yield from _numbers(value, (*path, index))


def _numbers_of_field(value: Any, path: KeyPath, plausible: Plausible | None) -> Numbers:
    """Yield the numbers of a field; numbers by name share its range."""
    if plausible is not None and isinstance(value, int | float):
        yield path, value, plausible
    elif plausible is not None and isinstance(value, dict):
        for key, part in value.items():
            yield from _numbers_of_field(part, (*path, key), plausible)
    else:
        yield from _numbers(value, path)


@functools.cache
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str, Plausible | None], ...]:
    """Return a model's fields: the key a user writes, its name in the model, and its plausible range."""
    fields = []
    for name, field in model.model_fields.items():
        metadata = (*field.metadata, *_inner_metadata(field.annotation))
        ranges = (mark for mark in metadata if isinstance(mark, Plausible))
        plausible = next(ranges, None)
        fields.append((field.alias or name, name, plausible))
    return tuple(fields)


def _inner_metadata(annotation: Any) -> Iterator[Any]:
    """Yield the metadata inside a union's members, which pydantic does not lift."""
    for part in typing.get_args(annotation):
        if typing.get_origin(part) is typing.Annotated:
            yield from typing.get_args(part)[1:]
            yield from _inner_metadata(typing.get_args(part)[0])
