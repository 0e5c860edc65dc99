"""Consistency checks between the parts of a scenario, and against the catalogue."""

from __future__ import annotations

import datetime
import functools
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from pydantic import BaseModel

from planner.catalog.load import Catalog
from planner.data_files import data_rows
from planner.demand.shape import is_zone, zone_names
from planner.errors import Problem, ScenarioError, raise_all
from planner.finance.months import add_months
from planner.scenario.cluster import ON_SITE, OnDemand, Spot
from planner.scenario.fields import Plausible
from planner.scenario.scenario import Scenario, Sizing
from planner.scenario.site import dated_quotes, standing_price, tariff_of, window_zone
from planner.scenario.workload import GrowthTable
from planner.units import HOURS_PER_YEAR, MONTHS_PER_YEAR, unit_of
from planner.validation import choices, nearest
from planner.yaml_io import KeyPath


def check_scenario(scenario: Scenario) -> None:
    """Raise one ScenarioError that lists every contradiction."""
    catalog = scenario.load_catalog()
    site = scenario.site
    software = scenario.software
    end = add_months(scenario.start, scenario.horizon_months)
    problems: list[Problem] = []

    def report(path: KeyPath, message: str, hint: str | None = None) -> None:
        problems.append(scenario.document.problem(path, message, hint))

    size = expected_bytes(scenario)
    if size > MOST_BYTES:
        message = (
            f"{len(scenario.workloads)} workloads on {len(scenario.clusters)} clusters over {scenario.horizon_months} "
            f"months take about {size / 1e9:.1f} GB; a run may take {MOST_BYTES / 1e9:g}"
        )
        report(
            ("horizon_months",),
            message,
            "shorten the horizon, or join workloads and clusters that are alike",
        )
    _reported(scenario.load_calibration, ("calibration",), report, as_one=True)
    _check_workloads(scenario, catalog, report)
    _check_clusters(scenario, catalog, end, report)
    _check_references(scenario, report)
    for name in scenario.slo_target.workloads:
        if scenario.slo_target.scope == "fleet":
            report(
                ("slo_target", "workloads"), "is of single workloads, and the scope is the fleet"
            )
        elif name not in scenario.workloads:
            hint = nearest(name, scenario.workloads)
            report(("slo_target", "workloads", name), "no workload is called so", hint)
    if scenario.sizing is not None:
        _check_choices(scenario, scenario.sizing, end, report)
    for path, stated in (
        (
            ("reliability", "vendor_failure_multiplier"),
            scenario.reliability.vendor_failure_multiplier,
        ),
        (("software", "engineers_per_800"), software.engineers_per_800),
        (("software", "vendor_incident_multiplier"), software.vendor_incident_multiplier),
        (("software", "rollback_impossible_fraction"), software.rollback_impossible_fraction),
        (
            ("software", "vendor_software_speedup_multiplier"),
            software.vendor_software_speedup_multiplier,
        ),
        (
            ("software", "engineers"),
            software.engineers if isinstance(software.engineers, dict) else {},
        ),
    ):
        for vendor in stated:
            _check_known((*path, vendor), "vendor", vendor, catalog.vendors, report)
    known = [
        name.removesuffix("_failure_rate")
        for name in catalog.priors
        if name.endswith("_failure_rate")
    ]
    for (*section, key), prior in scenario.reliability.left_open().items():
        if prior not in catalog.priors:
            hint = (
                nearest(str(section[-1]), known)
                or f"the catalogue has figures for {choices(known)}"
            )
            report(
                ("reliability", *section),
                f"states no {key}, and the catalogue has no figure for it",
                hint,
            )
    engines = {stack.engine.value: stack for stack in catalog.stacks.values()}
    for index, step in enumerate(software.steps):
        place: KeyPath = ("software", "steps", index)
        _check_known((*place, "vendor"), "vendor", step.vendor, catalog.vendors, report)
        _check_known((*place, "engine"), "engine", step.engine, engines, report)
        _check_known((*place, "model"), "model", step.model, catalog.models, report)
        if step.date < scenario.start:
            message = f"{step.date} lies before the first day, {scenario.start}: throughput has it already"
            report((*place, "date"), message)
    if _check_known(("site", "tariff"), "tariff", site.tariff, catalog.tariffs, report):
        zone = window_zone(site, catalog.tariffs[site.tariff])
        if zone is not None and not is_zone(zone):
            key = "timezone" if site.electricity.timezone is not None else "windows"
            report(
                ("site", "electricity", key),
                f"unknown time zone {zone!r}",
                nearest(zone, zone_names()),
            )
    if site.electricity.windows and site.electricity_usd_per_kwh is not None:
        report(
            ("site", "electricity_usd_per_kwh"),
            "has no effect beside electricity.windows, which price every hour",
        )
    # What the finance package finds wrong is said at the place where the user wrote it.
    _reported(lambda: tariff_of(site, 0.0), ("site", "electricity", "windows"), report)
    for name, cluster in scenario.clusters.items():
        discounts = functools.partial(standing_price, cluster, 0.0)
        quotes = functools.partial(dated_quotes, cluster)
        _reported(discounts, ("clusters", name, "volume_discounts"), report)
        _reported(quotes, ("clusters", name, "quotes"), report)
    raise_all(problems)


Report = Callable[..., None]
MOST_OWNED_MONTHS = 240
"""Twenty years: no server of that age serves, so an older purchase is a slip of the year."""
MOST_BYTES = 2e9
"""Memory that a run may take."""


def expected_bytes(scenario: Scenario) -> float:
    """Return the approximate memory of a run in bytes: 10⁸ plus its hourly arrays.

    Fitted to the measured peaks of runs of 8 × 8 × 36 months (141 MB) and 24 × 24 × 60 months (781 MB).
    """
    return 1e8 + hourly_bytes(scenario)


def hourly_bytes(scenario: Scenario) -> int:
    """Return the approximate bytes of a run's hours: 16·h·(w·c + 8·c + 3·w) for hours, workloads and clusters.

    Requests by workload and cluster, some of each alone, and as much again while tables are written.
    """
    hours = scenario.horizon_months / MONTHS_PER_YEAR * HOURS_PER_YEAR
    workloads = len(scenario.workloads)
    clusters = len(scenario.clusters)
    return round(16.0 * hours * (workloads * clusters + 8.0 * clusters + 3.0 * workloads))


def _check_workloads(scenario: Scenario, catalog: Catalog, report: Report) -> None:
    for name, workload in scenario.workloads.items():
        path: KeyPath = ("workloads", name)
        for index, precision in enumerate(workload.precisions):
            _check_known(
                (*path, "precisions", index), "precision", precision, catalog.precisions, report
            )
        if _check_known((*path, "model"), "model", workload.model, catalog.models, report):
            longest = catalog.models[workload.model].max_context_tokens.value
            sides = {"input": workload.lengths.input, "output": workload.lengths.output}
            every = (
                (side, *one) for side, length in sides.items() for one in length.quantiles.items()
            )
            beyond = next(
                ((side, share, tokens) for side, share, tokens in every if tokens > longest), None
            )
            if beyond is not None:
                message = (
                    f"{beyond[2]:,.0f} tokens exceed the {longest:,} that {workload.model} accepts"
                )
                report((*path, "lengths", beyond[0], "quantiles", beyond[1]), message)
            elif (mean := sum(length.within(longest).mean for length in sides.values())) > longest:
                message = f"a mean request of {mean:,.0f} tokens exceeds the {longest:,} that {workload.model} accepts"
                report((*path, "lengths"), message)
        if isinstance(
            workload.growth, GrowthTable
        ):  # read here, once, so that a missing file is found with the rest
            place = (*path, "growth", "file")
            read = functools.partial(scenario.document.file_at, place, workload.growth.file)
            _reported(read, place, report, as_one=True)
        zone = workload.load_profile.timezone
        if not is_zone(zone):
            report(
                (*path, "load_profile", "timezone"),
                f"unknown time zone {zone!r}",
                nearest(zone, zone_names()),
            )


def _check_clusters(
    scenario: Scenario, catalog: Catalog, end: datetime.date, report: Report
) -> None:
    for name, cluster in scenario.clusters.items():
        path: KeyPath = ("clusters", name)
        if cluster.online is not None and not scenario.start <= cluster.online < end:
            side = "before the start" if cluster.online < scenario.start else "after the end"
            message = f"{cluster.online} is {side} of the horizon, {scenario.start} to {end}"
            hint = f"for machines owned already write owned: {{bought: {cluster.online}}}"
            report((*path, "online"), message, hint if cluster.online < scenario.start else None)
        bought = cluster.owned.bought if cluster.owned is not None else None
        if bought is not None and bought >= scenario.start:
            message = f"{bought} is not before the start, {scenario.start}"
            report(
                (*path, "owned", "bought"),
                message,
                f"for machines bought later write online: {bought}",
            )
        elif bought is not None and bought < add_months(scenario.start, -MOST_OWNED_MONTHS):
            years = MOST_OWNED_MONTHS // MONTHS_PER_YEAR
            report(
                (*path, "owned", "bought"), f"{bought} is more than {years} years before the start"
            )
        for_a_term = cluster.contract is not None and not isinstance(
            cluster.contract, OnDemand | Spot
        )
        if for_a_term and any(rule.cluster == name for rule in scenario.expansion.rules):
            message = "a review cannot enlarge or reduce machines taken for a term"
            report(
                (*path, "contract"),
                message,
                "add another cluster for it: bought, on-demand or spot",
            )
        place = (*path, "accelerator")
        if cluster.is_api or not _check_known(
            place, "accelerator", cluster.accelerator, catalog.accelerators, report
        ):
            continue
        part = catalog.accelerators[cluster.accelerator]
        vendor = part.vendor.value
        if cluster.engine != "auto":
            _reported(
                functools.partial(catalog.stack, vendor, cluster.engine),
                (*path, "engine"),
                report,
                as_one=True,
            )
        if not cluster.resale_curve and not catalog.resale_priors(cluster.accelerator):
            message = f"the catalogue says nothing of what used servers of {vendor} fetch"
            hint = f"state resale_curve, or add priors such as resale_12m_{vendor} to your catalogue file"
            report((*path, "resale_curve"), message, hint)
        hosted = cluster.contract is not None and not isinstance(cluster.contract, ON_SITE)
        if (
            cluster.accelerator_price_usd is None
            and part.accelerator_price_usd is None
            and not hosted
        ):
            message = (
                f"the {scenario.catalog.assumptions!r} catalogue has no price for {cluster.accelerator}; "
                "state accelerator_price_usd and price_source"
            )
            report(path, message)
        if _check_known(
            (*path, "precision"), "precision", cluster.precision, catalog.precisions, report
        ):
            falls_back_for = catalog.precisions[str(cluster.precision)].falls_back_for
            if cluster.precision not in part.dense_tflops and not (
                falls_back_for and falls_back_for.value == "all"
            ):
                report(
                    (*path, "precision"),
                    f"{cluster.accelerator} has no {cluster.precision} arithmetic",
                )
        first = cluster.online or scenario.start
        if cluster.retire is not None and cluster.retire <= first:
            report((*path, "retire"), f"{cluster.retire} is not after its first day, {first}")


def _check_known(
    path: KeyPath, what: str, name: str | None, known: Mapping[str, object], report: Report
) -> bool:
    """Return whether a name is stated and in the catalogue; report an unknown one."""
    if name is not None and name not in known:
        report(
            path,
            f"unknown {what} {name!r}",
            nearest(name, known) or f"the catalogue has {choices(known)}",
        )
    return name in known


def _reported(
    build: Callable[[], object], path: KeyPath, report: Report, *, as_one: bool = False
) -> None:
    """Report the problems raised by a function, one by one or as a single message."""
    try:
        build()
    except ScenarioError as error:
        for problem in [Problem(message=str(error))] if as_one else error.problems:
            report(path, problem.message, problem.hint)


_OF_FORECASTS = {"target_fraction", "max_nodes_per_order", "forecast_months", "growth_per_year"}


def _check_references(scenario: Scenario, report: Report) -> None:
    """Check every place that names a cluster."""
    known = {
        **scenario.clusters,
        **(scenario.document.content.get("clusters") or {}),
    }  # those left out as wrong too

    def named(path: KeyPath, name: str) -> None:
        if name not in known:
            report(
                path,
                f"no cluster is called {name!r}",
                nearest(name, known) or f"there are {choices(known)}",
            )

    for workload_name, workload in scenario.workloads.items():
        for index, name in enumerate(workload.cluster_preference):
            named(("workloads", workload_name, "cluster_preference", index), name)
        if workload.cluster_preference and scenario.routing != "preference":
            message = f"has no effect under routing: {scenario.routing}"
            report(
                ("workloads", workload_name, "cluster_preference"),
                message,
                "set routing: preference",
            )
    for index, rule in enumerate(scenario.expansion.rules):
        named(("expansion", "rules", index, "cluster"), rule.cluster)
        if rule.watch is not None:
            named(("expansion", "rules", index, "watch"), rule.watch)
            if not rule.when.startswith("utilisation"):
                message = f"has no effect: {rule.when} is the fleet's, not one cluster's"
                report(("expansion", "rules", index, "watch"), message, "leave it out")
        for key in () if rule.forecasts else sorted(_OF_FORECASTS & rule.model_fields_set):
            report(
                ("expansion", "rules", index, key),
                f"has no effect under when: {rule.when}",
                "leave it out",
            )
    for kind in ("clusters", "retire") if scenario.sizing else ():
        for name in getattr(scenario.sizing, kind):
            named(("sizing", kind, name), name)


def _check_choices(scenario: Scenario, choose: Sizing, end: datetime.date, report: Report) -> None:
    """Check the sizing section: distinct names, and dates within the horizon and before retirement."""
    if choose.max_rented_accelerators is not None and scenario.finance.burst_rental is None:
        hint = "state finance.burst_rental, with its price"
        report(("sizing", "max_rented_accelerators"), "has no terms of rent", hint)
    ordered = [
        name
        for name in choose.clusters
        if name in scenario.clusters and scenario.clusters[name].order
    ]
    if choose.orders == "reactive" and not ordered:
        hint = "give a cluster its order: {placed: <day>, lead_weeks: <weeks>}"
        report(
            ("sizing", "orders"), "reactive needs a cluster with an order, and so a lead time", hint
        )
    opened = [
        cluster
        for name in choose.clusters
        if (cluster := scenario.clusters.get(name)) and not choose.clusters[name].dates
    ]
    first = (
        scenario.start if any(cluster.order is None for cluster in opened) else datetime.date.min
    )
    for index, day in enumerate(choose.windows if isinstance(choose.windows, tuple) else ()):
        if not first <= day < end:
            side = "before the start" if day < first else "after the end"
            report(
                ("sizing", "windows", index),
                f"{day} is {side} of the horizon, {scenario.start} to {end}",
            )
    for name, choice in choose.clusters.items():
        if (cluster := scenario.clusters.get(name)) is None:
            continue  # reported with the references
        if cluster.owned is not None:
            hint = "give what may be bought a cluster of its own, with nodes: 0"
            report(("sizing", "clusters", name), "is owned already, so it cannot be bought", hint)
        lead = datetime.timedelta(weeks=cluster.order.lead_weeks if cluster.order else 0.0)
        for index, date in enumerate(choice.dates):
            path: KeyPath = ("sizing", "clusters", name, "dates", index)
            if cluster.order is None and not scenario.start <= date < end:
                side = "before the start" if date < scenario.start else "after the end"
                report(path, f"{date} is {side} of the horizon, {scenario.start} to {end}")
            elif date + lead >= end:
                report(path, f"what is ordered on {date} comes after the end of the horizon, {end}")
            elif cluster.retire is not None and date + lead >= cluster.retire:
                report(
                    path,
                    f"what is ordered on {date} comes after the cluster retires, {cluster.retire}",
                )
    for name, dates in choose.retire.items():
        for index, date in enumerate(dates):
            if not scenario.start < date < end:
                message = f"{date} is not within the horizon, {scenario.start} to {end}"
                report(("sizing", "retire", name, index), message)


_SLIPS = [
    (row["unit"], row["written_in"], float(Fraction(row["times"])))
    for row in data_rows(__file__, "slips.csv")
]
"""Unit of the field, the unit in which it may be written by a slip, and what its number is then multiplied by; the
likeliest first. Of the year's hours about a quarter are worked."""


def implausible(scenario: Scenario) -> list[Problem]:
    """Return every number of a scenario outside its plausible range, with the likely mistake."""
    catalog = scenario.load_catalog()
    prices = dict(_odd_prices(scenario, catalog))
    problems = []
    for path, number, mark in _numbers(scenario, ()):
        price = prices.get(path)
        said = (
            price
            if price is not None and price[1]
            else far_off(path, number, mark, catalog) or price
        )
        if said is not None:
            problems.append(scenario.document.problem(path, *said))
    return problems


_FAR_FROM_CATALOGUE = 4.0
"""Times the catalogue's price of a part, or a fraction of it, that nobody is quoted; a node has eight accelerators."""
_LEAST_PAID = 0.1  # of the catalogue's price of a server: less is not what machines owned have cost, even used


def _odd_prices(
    scenario: Scenario, catalog: Catalog
) -> Iterator[tuple[KeyPath, tuple[str, str | None]]]:
    """Yield accelerator prices far from the catalogue's, and costs of owned machines that are implausible."""
    for name, cluster in scenario.machines.items():
        part = catalog.accelerator(cluster.accelerator)
        listed = part.accelerator_price_usd
        place = ("clusters", name)
        key = "accelerator_price_usd"
        if listed is None or listed.value <= 0.0:
            continue
        per_node = int(part.accelerators_per_node.value)
        stated: list[tuple[KeyPath, float | None]] = [
            ((*place, key), cluster.accelerator_price_usd)
        ]
        stated += [
            ((*place, "quotes", n, key), q.accelerator_price_usd)
            for n, q in enumerate(cluster.quotes)
        ]
        for path, price in stated:
            if price and not 1 / _FAR_FROM_CATALOGUE <= price / listed.value <= _FAR_FROM_CATALOGUE:
                message = (
                    f"{_shown(price)} for one {cluster.accelerator} is hardly meant: the catalogue has "
                    f"{_shown(listed.value)}"
                )
                looks = listed.value < price <= _FAR_FROM_CATALOGUE * listed.value * per_node
                hint = f"{_shown(price / per_node)}? {_shown(price)} looks like the price of a node"
                yield path, (message, hint if looks else None)
        cost = cluster.owned.cost_usd if cluster.owned is not None else None
        count = cluster.nodes * per_node
        if cost and count and not _LEAST_PAID <= cost / count / listed.value <= _FAR_FROM_CATALOGUE:
            message = (
                f"{_shown(cost)} for all {cluster.nodes:,} nodes is {_shown(cost / count)} an accelerator, which is "
                f"hardly meant: the catalogue has {_shown(listed.value)}"
            )
            looks = (
                cost * cluster.nodes <= _FAR_FROM_CATALOGUE * listed.value * count
                and cost / count < listed.value
            )
            hint = f"{_shown(cost * cluster.nodes)}? {_shown(cost)} looks like the cost of one node"
            yield (*place, "owned", "cost_usd"), (message, hint if looks else None)


def far_off(
    path: KeyPath, number: float, mark: Plausible, catalog: Catalog
) -> tuple[str, str | None] | None:
    """Return a message on a number outside its plausible range, with the likely mistake; None inside it."""
    low, high = mark.range(catalog)
    if number == 0 or low <= number <= high:
        return None
    unit = next(
        (unit for key in reversed(path) if isinstance(key, str) and (unit := unit_of(key))), None
    )
    message = f"{_shown(number)} is hardly meant: {_shown(low)} to {_shown(high)} is plausible ({mark.source})"
    for of, words, factor in _SLIPS:
        if re.fullmatch(of, unit or "") and low <= number * factor <= high:
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
    """Yield key path, number and plausible range of every number, stated or default."""
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
    """Return a model's fields: the key a user writes, its name in the model, and its plausible range."""
    fields = []
    for name, field in model.model_fields.items():
        marks = (
            mark
            for mark in (*field.metadata, *_inner(field.annotation))
            if isinstance(mark, Plausible)
        )
        fields.append((field.alias or name, name, next(marks, None)))
    return tuple(fields)


def _inner(annotation: Any) -> Iterator[Any]:
    """Yield the metadata inside a union's members, which pydantic does not lift."""
    for part in typing.get_args(annotation):
        if typing.get_origin(part) is typing.Annotated:
            yield from typing.get_args(part)[1:]
            yield from _inner(typing.get_args(part)[0])
