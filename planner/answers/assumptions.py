"""What a run rests on: every input with where it comes from, and the throughput model's measured error."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from planner.answers.tables import TABLES
from planner.catalog.calibration import CalibrationFile, shipped_file
from planner.catalog.entries import Entry, Range, Sourced
from planner.catalog.load import VERSION, Catalog
from planner.finance.pricing import hourly_priors, rent_prior
from planner.output.tables import Table
from planner.physics.coefficients import NORMAL_90
from planner.plan.candidates import as_first_bought, engine_options
from planner.plan.capacity_interval import capacity_interval
from planner.plan.choice import Service, build_services, has_measured, runner_up, served_by
from planner.plan.memory_worth import gain_per_gb
from planner.plan.reuse import Reuse
from planner.plan.software import stack_name
from planner.scenario.cluster import Cluster, HourlyRental, OnDemand, Reserved, Spot, TokenPrice
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from planner.units import unit_of
from planner.validation import field_docstring
from planner.yaml_io import KeyPath, dotted

Row = tuple[str, str, str, str, str, str]


def assumptions(scenario: Scenario) -> Table:
    """Return assumptions.csv: the scenario's inputs, then the catalogue values it used."""
    rows = []
    for path, value, text in _leaves(scenario, (), ""):
        # What follows "Default" in a field's documentation is its reason.
        default_text = text.partition("Default")[2]
        reason = default_text.strip(": ").rstrip(".")
        source = f"default: {reason}" if reason else "default"
        grade = "default"
        # What a file states has a place in it; everything else is a default.
        if (place := scenario.document.locations.get(path)) is not None:
            line = ""
            if place.line is not None:
                line = f":{place.line}"
            source = f"{Path(place.file).name}{line}"
            grade = "user"
        unit = unit_of(str(path[-1])) or ""
        origin = (source, "", grade)
        rows.append((dotted(path), _plain(value), unit, *origin))
    return TABLES["assumptions"].of_rows(
        [*rows, *_catalogue_rows(scenario), *_throughput(scenario)]
    )


def _leaves(value: Any, path: KeyPath, text: str) -> Iterator[tuple[KeyPath, Any, str]]:
    """Yield each plain value inside a scenario: its path, the value, its documentation or that of what is around it."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            # Documentation is inherited: a part says no more than the whole where it has none of
            # its own.
            documentation = field_docstring(type(value), name)
            alias = field.alias or name
            # A field without a default of its own is documented by what it is part of.
            field_text = documentation if "Default" in documentation else text
            yield from _leaves(getattr(value, name), (*path, alias), field_text)
    elif isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _leaves(item, (*path, key), text)
    elif value is not None:  # what is left open is no assumption
        yield path, value, text


def _throughput(scenario: Scenario) -> Iterator[Row]:
    """Yield what the throughput model says of each pair, in which layout, and how that stands to the measurements."""
    file = scenario.load_calibration()
    if scenario.calibration is not None:
        path, content = scenario.document.file_at(("calibration",), scenario.calibration)
        digest = hashlib.sha256(content).hexdigest()
        yield "calibration.sha256", digest, "", path.name, "", "user"
    if file.own is not None:
        source = f"rows of {file.own.measurements}, sha256 {file.own.sha256}"
        yield "calibration.own.rows", str(file.own.rows), "", source, "", "user"
    services = build_services(scenario, Reuse(scenario), {})[0]
    for (cluster, workload), service in services.items():
        mean_output = scenario.workloads[workload].lengths.output.mean
        tokens = service.requests_per_s * mean_output
        # Six digits: more would change with the last bit of a machine's arithmetic.
        per_accelerator = tokens / service.accelerators_per_node
        part = _plain(float(f"{per_accelerator:.6g}"))
        standing = "not cross-validated"
        if service.evidence is not None:
            standing = service.evidence.uncertainty.in_words()
        source = f"throughput model, {service.layout}: {standing} at 90%"
        yield (
            f"throughput.{cluster}.{workload}.output_tokens_per_s_per_accelerator",
            part,
            "tokens/s",
            source,
            "",
            "C",
        )


def _catalogue_rows(scenario: Scenario) -> Iterator[Row]:
    """Yield the catalogue values of every accelerator, model, stack and tariff that the scenario names, and resale."""
    catalog = scenario.load_catalog()
    prices = [scenario.finance.api_price]
    prices += [workload.token_price for workload in scenario.workloads.values()]
    stated_prices = [price for price in prices if price is not None]
    # Sorted, so that a file does not depend on the order of clusters.
    entries = sorted(_entries(scenario, catalog).items())
    for (section, name), entry in entries:
        for key, fact, unit in entry.facts():
            # Neither other spellings of a name, nor prices that nobody pays.
            is_unpaid = key.startswith("api_") and not _pays_api_prices(scenario, stated_prices)
            if key != "aliases" and not is_unpaid:
                yield _fact_row(catalog, f"{section}.{name}.{key}", fact, unit)
    for name in _priors(scenario, catalog):
        prior = catalog.prior(name)
        yield _fact_row(catalog, f"priors.{name}", prior, prior.unit)
    has_open_price = any(
        price.cached_input_usd_per_million_tokens is None for price in stated_prices
    )
    if has_open_price:
        name = "cached_input_price_ratio"
        prior = catalog.prior(name)
        source = catalog.provenance(prior)
        # Not a range: what is cached costs the base share, whatever else is uncertain.
        yield (
            f"catalog.priors.{name}",
            _plain(prior.base),
            prior.unit or "",
            *source,
            prior.grade,
        )
    yield "catalog.version", VERSION, "", "shipped with the planner", "", ""


def _fact_row(catalog: Catalog, path: str, fact: Sourced[Any] | Range, unit: str | None) -> Row:
    """Return the row of a catalogue value; of a range its low, base and high."""
    title, date = catalog.provenance(fact)
    if isinstance(fact, Range):
        span = f"{fact.low:g} / {fact.base:g} / {fact.high:g}"
        return f"catalog.{path}", span, unit or "", title, date, fact.grade
    return f"catalog.{path}", _plain(fact.value), unit or "", title, date, fact.grade


def _entries(scenario: Scenario, catalog: Catalog) -> dict[tuple[str, str], Entry]:
    """Return the catalogue entries that a scenario uses, by section and name."""
    entries: dict[tuple[str, str], Entry] = {}
    for cluster in scenario.machines.values():
        accelerator = catalog.accelerator(cluster.accelerator)
        vendor = accelerator.vendor.value
        entries["accelerators", cluster.accelerator] = accelerator
        entries["vendors", vendor] = catalog.vendor(vendor)
        # Every engine that might be chosen was looked at, so that all their values were used.
        for workload in scenario.workloads.values():
            for option in engine_options(cluster, workload, catalog):
                stack = catalog.stack(vendor, option.engine)
                precision = str(option.precision)
                entries["stacks", stack_name(stack)] = stack
                entries["precisions", precision] = catalog.precisions[precision]
    for workload in scenario.workloads.values():
        entries["models", workload.model] = catalog.model(workload.model)
    for kind, incident in catalog.incidents.items():
        entries["incidents", kind] = incident
    tariff = scenario.site.tariff
    entries["tariffs", tariff] = catalog.tariff(tariff)
    return entries


def _pays_api_prices(scenario: Scenario, prices: Sequence[TokenPrice]) -> bool:
    """Say whether a price of the catalogue is paid: by a cluster that is an API, or for want of a stated one."""
    if any(cluster.is_api for cluster in scenario.clusters.values()):
        return True
    return any(
        None in (price.input_usd_per_million_tokens, price.output_usd_per_million_tokens)
        for price in prices
    )


def _priors(scenario: Scenario, catalog: Catalog) -> list[str]:
    """Return the priors that stand in for what a scenario leaves open: resale by age, rents, then reliability."""
    resale: dict[str, float] = {}
    rents: set[str] = set()
    rentals: list[tuple[HourlyRental, str, str]] = []
    burst = scenario.finance.burst_rental
    if burst is not None:
        rentals.append((burst, burst.accelerator, "ondemand"))
    for cluster in scenario.machines.values():
        if not cluster.resale_curve:
            resale |= catalog.resale_priors(cluster.accelerator)
        contract = cluster.contract
        if isinstance(contract, Reserved) and contract.usd_per_accelerator_h is None:
            rents.add(rent_prior(cluster))
        elif isinstance(contract, OnDemand | Spot):
            kind = contract.kind.replace("-", "")
            rentals.append((contract, cluster.accelerator, kind))
    for rental, accelerator, kind in rentals:
        for key, prior in hourly_priors(accelerator, kind, catalog).items():
            # A rental that states its price needs no prior.
            if getattr(rental, key) is None and prior in catalog.priors:
                rents.add(prior)

    # By what follows the age in a name, the accelerator, then by age.
    def accelerator_and_age(name: str) -> tuple[str, float]:
        _, _, accelerator = name.partition("m_")
        return accelerator, resale[name]

    by_age = sorted(resale, key=accelerator_and_age)
    reliability = scenario.reliability.left_open()
    return [*by_age, *sorted(rents), *reliability.values()]


def _plain(value: Any) -> str:
    """Write a value the way a spreadsheet reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # Beyond that an exponent would show digits that a float does not have.
        if abs(value) < 1e15:
            return f"{value:.12g}"
        return f"{value:.0f}"
    if isinstance(value, tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value)


def _cache_cells(service: Service) -> tuple[object, ...]:
    """Return where a service keeps prompts, what it finds of them, warm and cold, and how many a node holds."""
    cache = service.cache
    if cache is None:
        return "", None, None, None, None, None
    replicas = service.accelerators_per_node / cache.accelerators
    return (
        "host" if cache.has_host else "none",
        cache.found_fractions[-1],
        cache.host_fractions[-1],
        cache.contexts * replicas,
        cache.cold_fraction,
        cache.warm_up_s,
    )


def _measured_rate(
    cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse
) -> float | None:
    """Return what a node serves of a workload in the best layout that rows measured; None where there is none."""
    if cluster.throughput_tokens_per_s_per_accelerator is not None:
        return None
    alone = cluster.model_copy(update={"layouts": "measured", "prefill_decode": "colocated"})
    options = engine_options(alone, workload, reuse.catalog)
    if not any(has_measured(option, workload, reuse) for option in options):
        return None
    best = served_by(alone, workload, scenario, reuse, {})
    return best.requests_per_s if isinstance(best, Service) else None


def layouts(scenario: Scenario, usd_per_node_year: Mapping[str, float]) -> Table:
    """Return layouts.csv: how each cluster serves each workload, and what the next best would serve.

    The cost of a node, by cluster, is what its memory is worth in: a GB with which a node serves a share more.
    """
    reuse = Reuse(scenario)
    rows = []
    services = build_services(scenario, reuse, {})[0]
    for (name, workload), service in services.items():
        cluster = as_first_bought(scenario, name)
        spec = service.spec
        prefill = service.prefill
        next_best = runner_up(cluster, scenario.workloads[workload], service, scenario, reuse)
        next_words = ""
        next_rate = None
        if next_best is not None:
            layout = next_best.spec
            next_words = f"{layout.engine}, {layout.precision}, {next_best.layout}"
            next_rate = next_best.requests_per_s
        prompts_by = prefill or service
        worth: tuple[float | None, ...] = (None, None)
        if service.cache is not None and name in usd_per_node_year:
            gains = gain_per_gb(cluster, scenario.workloads[workload], service, scenario, reuse)
            worth = tuple(gain * usd_per_node_year[name] for gain in gains)
        evidence = service.evidence
        interval = capacity_interval(
            service, cluster, scenario.workloads[workload], scenario, reuse
        )
        rows.append(
            (
                name,
                workload,
                spec.engine,
                spec.precision,
                spec.accelerators,
                spec.attention_data_parallel,
                prompts_by.spec.chunk_tokens,
                "disaggregated" if prefill else "colocated",
                prefill.share if prefill else None,
                service.requests_per_s,
                *(interval or (None, None)),
                evidence.grade if evidence else "",
                evidence.rows if evidence else None,
                _measured_rate(cluster, scenario.workloads[workload], scenario, reuse),
                *_cache_cells(service),
                *worth,
                next_words,
                next_rate,
            )
        )
    return TABLES["layouts"].of_rows(rows)


def model_error(calibration: CalibrationFile | None = None) -> Table:
    """Return model_error.csv: each quantity over all rows and by architecture class.

    The half-widths are those of 90% intervals where the pair was measured, and where its model was not.
    """
    file = calibration or shipped_file()
    rows = []
    for quantity, groups in file.fitted.items():
        for group in ("all", "dense", "mixture-of-experts"):
            if group not in groups:
                continue
            fitted = groups[group]
            by_quantity = file.cross_validated.get("model", {})
            holdout = by_quantity.get(quantity, {}).get(group)
            rows.append(
                (
                    quantity,
                    group,
                    fitted.rows,
                    fitted.median_fraction,
                    fitted.mean_fraction,
                    None if holdout is None else holdout.median_fraction,
                    None if holdout is None else holdout.mean_fraction,
                    *_half_widths(file, quantity, group),
                )
            )
    return TABLES["model_error"].of_rows(rows)


def _half_widths(file: CalibrationFile, quantity: str, group: str) -> list[float | None]:
    """Return the half-widths of a measured pair's interval, and of that of a model never measured."""
    spread = file.spread.get(group)
    if spread is None:
        return [None, None]
    unmeasured = math.hypot(spread.setting, spread.pair, spread.model)
    deviations = [spread.setting, unmeasured]
    if quantity == "ttft_s":  # its spread is one, whoever was measured
        deviations = [spread.first_token, spread.first_token]
    # Errors are log-normal: sinh is the mean of what is above and what is below.
    return [round(math.sinh(NORMAL_90 * deviation), 4) for deviation in deviations]
