"""What only shows when the parts of a scenario are held against each other and against the catalogue."""

from __future__ import annotations

import datetime
import functools
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from planner.catalog.load import Catalog
from planner.demand.shape import is_zone, zone_names
from planner.errors import Problem, ScenarioError, raise_all
from planner.finance.months import MAXIMUM_HORIZON_MONTHS, add_months
from planner.scenario.cluster import ON_SITE, Cluster, OnDemand, Spot
from planner.scenario.fields import Plausible
from planner.scenario.scenario import Scenario
from planner.scenario.site import dated_quotes, standing_price, tariff_of, window_zone
from planner.scenario.workload import GrowthTable
from planner.units import HOURS_PER_YEAR, MONTHS_PER_YEAR, unit_of
from planner.validation import choices, nearest
from planner.yaml_io import KeyPath


def check_scenario(scenario: Scenario) -> None:
    """Raise one ScenarioError listing every contradiction."""
    catalog = scenario.load_catalog()
    problems: list[Problem] = []

    def report(path: KeyPath, message: str, hint: str | None = None) -> None:
        problems.append(scenario.document.problem(path, message, hint))

    _check_size(scenario, report)
    try:
        scenario.load_calibration()
    except ScenarioError as error:
        report(("calibration",), str(error))
    _check_workloads(scenario, catalog, report)
    _check_clusters(scenario, catalog, report)
    _check_building(scenario, report)
    _check_references(scenario, report)
    engineers = scenario.software.engineers
    _check_choices(scenario, report)
    for path, stated in (
        (("reliability", "vendor_failure_multiplier"), scenario.reliability.vendor_failure_multiplier),
        (("software", "engineers_per_800"), scenario.software.engineers_per_800),
        (("software", "vendor_incident_multiplier"), scenario.software.vendor_incident_multiplier),
        (("software", "vendor_maturing_multiplier"), scenario.software.vendor_maturing_multiplier),
        (("software", "engineers"), engineers if isinstance(engineers, dict) else {}),
    ):
        for vendor in stated:
            _check_known((*path, vendor), "vendor", vendor, catalog.vendors, report)
    known = [name.removesuffix("_failure_rate") for name in catalog.priors if name.endswith("_failure_rate")]
    for (*section, key), prior in scenario.reliability.left_open().items():
        if prior not in catalog.priors:
            hint = nearest(str(section[-1]), known) or f"the catalogue has figures for {choices(known)}"
            report(("reliability", *section), f"states no {key}, and the catalogue has no figure for it", hint)
    _check_steps(scenario, catalog, report)
    if _check_known(("site", "tariff"), "tariff", scenario.site.tariff, catalog.tariffs, report):
        zone = window_zone(scenario.site, catalog.tariffs[scenario.site.tariff])
        if zone is not None and not is_zone(zone):
            key = "timezone" if scenario.site.electricity.timezone is not None else "windows"
            report(("site", "electricity", key), f"unknown time zone {zone!r}", nearest(zone, zone_names()))
    _check_prices(scenario, report)
    raise_all(problems)


Report = Callable[..., None]
MOST_OWNED_MONTHS = 240
"""Twenty years: no server of that age serves, so an older purchase is a slip of the year."""
MOST_BYTES = 2e9
"""Memory that a run may take."""


def expected_bytes(scenario: Scenario) -> float:
    """Return about how many bytes a run takes: 10⁸ and its hourly arrays.

    Fitted to the measured peaks of runs of 8 × 8 × 36 months (141 MB) and 24 × 24 × 60 months (781 MB).
    """
    return 1e8 + hourly_bytes(scenario)


def hourly_bytes(scenario: Scenario) -> int:
    """Return about how many bytes a run's hours take: 16·h·(w·c + 8·c + 3·w), h hours, w workloads, c clusters.

    Requests by workload and cluster, some of each alone, and as much again while tables are written.
    """
    hours = scenario.horizon_months / MONTHS_PER_YEAR * HOURS_PER_YEAR
    workloads, clusters = len(scenario.workloads), len(scenario.clusters)
    return round(16.0 * hours * (workloads * clusters + 8.0 * clusters + 3.0 * workloads))


def _check_size(scenario: Scenario, report: Report) -> None:
    """Refuse a scenario whose run would not fit into memory, before anything is compiled."""
    size = expected_bytes(scenario)
    if size > MOST_BYTES:
        message = (
            f"{len(scenario.workloads)} workloads on {len(scenario.clusters)} clusters over {scenario.horizon_months} "
            f"months take about {size / 1e9:.1f} GB; a run may take {MOST_BYTES / 1e9:g}"
        )
        report(("horizon_months",), message, "shorten the horizon, or join workloads and clusters that are alike")


def _check_steps(scenario: Scenario, catalog: Catalog, report: Report) -> None:
    """Refuse a step of software that names what is not there, or lies before the first day."""
    engines = {stack.engine.value: stack for stack in catalog.stacks.values()}
    for index, step in enumerate(scenario.software.steps):
        place: KeyPath = ("software", "steps", index)
        _check_known((*place, "vendor"), "vendor", step.vendor, catalog.vendors, report)
        _check_known((*place, "engine"), "engine", step.engine, engines, report)
        _check_known((*place, "model"), "model", step.model, catalog.models, report)
        if step.date < scenario.start:
            message = f"{step.date} lies before the first day, {scenario.start}: throughput has it already"
            report((*place, "date"), message)


def _check_workloads(scenario: Scenario, catalog: Catalog, report: Report) -> None:
    for name, workload in scenario.workloads.items():
        _check_known(("workloads", name, "precision"), "precision", workload.precision, catalog.precisions, report)
        if _check_known(("workloads", name, "model"), "model", workload.model, catalog.models, report):
            longest = catalog.models[workload.model].max_context_tokens.value
            sides = {"input": workload.tokens.input, "output": workload.tokens.output}
            beyond = [
                (side, share, tokens)
                for side, length in sides.items()
                for share, tokens in length.quantiles.items()
                if tokens > longest
            ]
            for side, share, tokens in beyond[:1]:
                message = f"{tokens:,.0f} tokens exceed the {longest:,} that {workload.model} accepts"
                report(("workloads", name, "tokens", side, "quantiles", share), message)
            mean = 0.0 if beyond else sum(length.within(longest).mean for length in sides.values())
            if mean > longest:
                message = f"a mean request of {mean:,.0f} tokens exceeds the {longest:,} that {workload.model} accepts"
                report(("workloads", name, "tokens"), message)
        if isinstance(workload.growth, GrowthTable):  # read here, once, so that a missing file is found with the rest
            try:
                scenario.document.file_at(("workloads", name, "growth", "file"), workload.growth.file)
            except ScenarioError as error:
                report(("workloads", name, "growth", "file"), str(error))
        zone = workload.shape.timezone
        if not is_zone(zone):
            report(("workloads", name, "shape", "timezone"), f"unknown time zone {zone!r}", nearest(zone, zone_names()))


def _check_clusters(scenario: Scenario, catalog: Catalog, report: Report) -> None:
    end = add_months(scenario.start, scenario.horizon_months)
    for name, cluster in scenario.clusters.items():
        if cluster.online is not None and not scenario.start <= cluster.online < end:
            side = "before the start" if cluster.online < scenario.start else "after the end"
            message = f"{cluster.online} is {side} of the horizon, {scenario.start} to {end}"
            hint = f"for machines owned already write owned: {{bought: {cluster.online}}}"
            report(("clusters", name, "online"), message, hint if cluster.online < scenario.start else None)
        _check_owned(scenario, name, cluster, report)
        _check_contract(scenario, name, cluster, report)
        place = ("clusters", name, "accelerator")
        if not _check_known(place, "accelerator", cluster.accelerator, catalog.accelerators, report):
            continue
        part = catalog.accelerators[cluster.accelerator]
        try:
            catalog.stack(part.vendor.value, cluster.engine)
        except ScenarioError as error:
            report(("clusters", name, "engine"), str(error))
        vendor = part.vendor.value
        if not cluster.resale_curve and not catalog.resale_priors(cluster.accelerator):
            message = f"the catalogue says nothing of what used servers of {vendor} fetch"
            hint = f"state resale_curve, or add priors such as resale_12m_{vendor} to your catalogue file"
            report(("clusters", name, "resale_curve"), message, hint)
        hosted = cluster.contract is not None and not isinstance(cluster.contract, ON_SITE)
        if cluster.unit_price_usd is None and part.unit_price_usd is None and not hosted:
            message = (
                f"the {scenario.catalog.assumptions!r} catalogue has no price for {cluster.accelerator}; "
                "state unit_price_usd and price_source"
            )
            report(("clusters", name), message)
        if _check_known(("clusters", name, "precision"), "precision", cluster.precision, catalog.precisions, report):
            falls_back_for = catalog.precisions[str(cluster.precision)].falls_back_for
            if cluster.precision not in part.dense_tflops and not (falls_back_for and falls_back_for.value == "all"):
                message = f"{cluster.accelerator} has no {cluster.precision} arithmetic"
                report(("clusters", name, "precision"), message)
        if cluster.retire is not None and cluster.retire <= (cluster.online or scenario.start):
            message = f"{cluster.retire} is not after its first day, {cluster.online or scenario.start}"
            report(("clusters", name, "retire"), message)


def _check_building(scenario: Scenario, report: Report) -> None:
    """Refuse a building that opens after the horizon, or did in another age."""
    building, end = scenario.site.building, add_months(scenario.start, scenario.horizon_months)
    if building is None:
        return
    if building.opened >= end:
        report(("site", "building", "opened"), f"{building.opened} is after the end of the horizon, {end}")
    elif building.opened < add_months(scenario.start, -MAXIMUM_HORIZON_MONTHS):
        years = MAXIMUM_HORIZON_MONTHS // MONTHS_PER_YEAR
        report(("site", "building", "opened"), f"{building.opened} is more than {years} years before the start")


def _check_owned(scenario: Scenario, name: str, cluster: Cluster, report: Report) -> None:
    """Refuse machines owned before the start that were bought after it, or in another age."""
    if cluster.owned is None:
        return
    bought, place = cluster.owned.bought, ("clusters", name, "owned", "bought")
    if bought >= scenario.start:
        message = f"{bought} is not before the start, {scenario.start}"
        report(place, message, f"for machines bought later write online: {bought}")
    elif bought < add_months(scenario.start, -MOST_OWNED_MONTHS):
        report(place, f"{bought} is more than {MOST_OWNED_MONTHS // MONTHS_PER_YEAR} years before the start")


def _check_contract(scenario: Scenario, name: str, cluster: Cluster, report: Report) -> None:
    """Refuse reviews of machines that are taken for a term."""
    if cluster.contract is None:
        return
    place = ("clusters", name, "contract")
    by_the_hour = isinstance(cluster.contract, OnDemand | Spot)
    if not by_the_hour and any(rule.cluster == name for rule in scenario.expansion.rules):
        message = "a review cannot enlarge or reduce machines taken for a term"
        report(place, message, "add another cluster for it: bought, on-demand or spot")


def _check_known(path: KeyPath, what: str, name: str | None, known: Mapping[str, object], report: Report) -> bool:
    """Say whether a name is stated and the catalogue knows it; report one that it does not know."""
    if name is not None and name not in known:
        report(path, f"unknown {what} {name!r}", nearest(name, known) or f"the catalogue has {choices(known)}")
    return name in known


def _check_prices(scenario: Scenario, report: Report) -> None:
    """Check tariffs, quotes and volume discounts, each as a whole."""
    contract = scenario.site.electricity
    if contract.windows and scenario.site.electricity_usd_per_kwh is not None:
        message = "has no effect beside electricity.windows, which price every hour"
        report(("site", "electricity_usd_per_kwh"), message)
    _report_all(lambda: tariff_of(scenario.site, 0.0), ("site", "electricity", "windows"), report)
    for name, cluster in scenario.clusters.items():
        path: KeyPath = ("clusters", name)
        _report_all(lambda stated=cluster: standing_price(stated, 0.0), (*path, "volume_discounts"), report)  # type: ignore[misc]
        _report_all(lambda stated=cluster: dated_quotes(stated), (*path, "quotes"), report)  # type: ignore[misc]


def _report_all(build: Callable[[], object], path: KeyPath, report: Report) -> None:
    """Report what the finance package finds wrong, at the place where the user wrote it."""
    try:
        build()
    except ScenarioError as error:
        for problem in error.problems:
            report(path, problem.message, problem.hint)


def _check_references(scenario: Scenario, report: Report) -> None:
    """Check every place that names a cluster."""
    known = scenario.clusters

    def named(path: KeyPath, name: str) -> None:
        if name not in known:
            report(path, f"no cluster is called {name!r}", nearest(name, known) or f"there are {choices(known)}")

    for index, name in enumerate(scenario.site.throttle_order):
        named(("site", "throttle_order", index), name)
    for workload_name, workload in scenario.workloads.items():
        for index, name in enumerate(workload.cluster_preference):
            named(("workloads", workload_name, "cluster_preference", index), name)
        if workload.cluster_preference and scenario.routing != "preference":
            message = f"has no effect under routing: {scenario.routing}"
            report(("workloads", workload_name, "cluster_preference"), message, "set routing: preference")
    for index, rule in enumerate(scenario.expansion.rules):
        named(("expansion", "rules", index, "cluster"), rule.cluster)
        if rule.watch is not None:
            named(("expansion", "rules", index, "watch"), rule.watch)
            if not rule.when.startswith("utilisation"):
                message = f"has no effect: {rule.when} is the fleet's, not one cluster's"
                report(("expansion", "rules", index, "watch"), message, "leave it out")
    for kind in ("clusters", "retire") if scenario.choose else ():
        for name in getattr(scenario.choose, kind):
            named(("choose", kind, name), name)


def _check_choices(scenario: Scenario, report: Report) -> None:
    """Check what may be chosen: of names told apart, on days within the horizon."""
    choose, end = scenario.choose, add_months(scenario.start, scenario.horizon_months)
    if choose is None:
        return
    if choose.review is not None:
        if not add_months(scenario.start, 1) <= choose.review < end:
            message = f"{choose.review} is not within the horizon, at least a month from {scenario.start} to {end}"
            report(("choose", "review"), message)
        elif not any(date >= choose.review for choice in choose.clusters.values() for date in choice.dates):
            report(("choose", "review"), "nothing can be bought from then on", "add a later day to dates of a cluster")
    for name in choose.clusters:
        if name in choose.retire:
            hint = "give what is there a name of its own; what is bought to be sold is a cluster with a day of retire"
            report(("choose", "retire", name), "is also open to be bought", hint)
        if name in scenario.clusters:  # others are reported with the references
            _check_purchase_dates(scenario, name, report)
    for name, dates in choose.retire.items():
        for index, date in enumerate(dates):
            if not scenario.start < date < end:
                message = f"{date} is not within the horizon, {scenario.start} to {end}"
                report(("choose", "retire", name, index), message)


def _check_purchase_dates(scenario: Scenario, name: str, report: Report) -> None:
    """Refuse days on which what is bought would come outside the horizon, or after its cluster retires."""
    assert scenario.choose is not None
    cluster, end = scenario.clusters[name], add_months(scenario.start, scenario.horizon_months)
    lead = datetime.timedelta(weeks=cluster.order.lead_weeks) if cluster.order else datetime.timedelta()
    for index, date in enumerate(scenario.choose.clusters[name].dates):
        path: KeyPath = ("choose", "clusters", name, "dates", index)
        if cluster.order is None and not scenario.start <= date < end:
            side = "before the start" if date < scenario.start else "after the end"
            report(path, f"{date} is {side} of the horizon, {scenario.start} to {end}")
        elif date + lead >= end:
            report(path, f"what is ordered on {date} comes after the end of the horizon, {end}")
        elif cluster.retire is not None and date + lead >= cluster.retire:
            report(path, f"what is ordered on {date} comes after the cluster retires, {cluster.retire}")


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
