"""What a run rests on: every input with where it comes from, and the throughput model's measured error."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from planner.answers.tables import TABLES
from planner.catalog.calibration import CalibrationFile, shipped_file
from planner.catalog.entries import Entry, Range
from planner.catalog.load import VERSION
from planner.output.tables import Table
from planner.physics.coefficients import NORMAL_90
from planner.plan.capacity import as_first_bought, options, runner_up
from planner.plan.clusters import stack_name
from planner.plan.money import hourly_priors, rent_prior
from planner.plan.placement import services_of
from planner.plan.plan import Reuse
from planner.scenario.cluster import HourlyRental, OnDemand, Reserved, Spot
from planner.scenario.scenario import Scenario
from planner.units import unit_of
from planner.validation import field_docstring
from planner.yaml_io import KeyPath, dotted

Row = tuple[str, str, str, str, str, str]


def assumptions(scenario: Scenario) -> Table:
    """Return assumptions.csv: the scenario's inputs, then the catalogue values it used."""
    rows = []
    for path, value, text in _leaves(scenario, (), ""):
        reason = text.partition("Default")[2].strip(": ").rstrip(".")
        source = f"default: {reason}" if reason else "default"
        grade = "default"
        if (place := scenario.document.locations.get(path)) is not None:
            line = f":{place.line}" if place.line is not None else ""
            source = f"{Path(place.file).name}{line}"
            grade = "user"
        rows.append((dotted(path), _plain(value), unit_of(str(path[-1])) or "", source, "", grade))
    return TABLES["assumptions"].of_rows([*rows, *_facts(scenario), *_throughput(scenario)])


def _leaves(value: Any, path: KeyPath, text: str) -> Iterator[tuple[KeyPath, Any, str]]:
    """Yield each plain value inside a scenario: its path, the value, its documentation or that of what is around it."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            said = field_docstring(type(value), name)
            yield from _leaves(
                getattr(value, name),
                (*path, field.alias or name),
                said if "Default" in said else text,
            )
    elif isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, (*path, key), text)
    elif value is not None:
        yield path, value, text


def _throughput(scenario: Scenario) -> Iterator[Row]:
    """Yield what the throughput model says of each pair, in which layout, and how that stands to the measurements."""
    file = scenario.load_calibration()
    if scenario.calibration is not None:
        path, content = scenario.document.file_at(("calibration",), scenario.calibration)
        yield "calibration.sha256", hashlib.sha256(content).hexdigest(), "", path.name, "", "user"
    if file.own is not None:
        told = f"rows of {file.own.measurements}, sha256 {file.own.sha256}"
        yield "calibration.own.rows", str(file.own.rows), "", told, "", "user"
    for (cluster, workload), service in services_of(scenario, {}, Reuse(scenario))[0].items():
        tokens = service.requests_per_s * scenario.workloads[workload].lengths.output.mean
        part = _plain(float(f"{tokens / service.accelerators_per_node:.6g}"))
        standing = service.doubt.in_words() if service.doubt else "not cross-validated"
        said = f"throughput model, {service.layout}: {standing} at 90%"
        yield (
            f"throughput.{cluster}.{workload}.output_tokens_per_s_per_accelerator",
            part,
            "tokens/s",
            said,
            "",
            "C",
        )


def _facts(scenario: Scenario) -> Iterator[Row]:
    """Yield the catalogue values of every accelerator, model, stack and tariff that the scenario names, and resale."""
    catalog = scenario.load_catalog()
    used = dict[tuple[str, str], Entry]()
    resold = dict[str, float]()
    rents = set[str]()
    burst = scenario.finance.burst_rental
    hourly: list[tuple[HourlyRental, str, str]] = (
        [] if burst is None else [(burst, burst.accelerator, "ondemand")]
    )
    for cluster in scenario.machines.values():
        accelerator = catalog.accelerator(cluster.accelerator)
        used["accelerators", cluster.accelerator] = accelerator
        if not cluster.resale_curve:
            resold |= catalog.resale_priors(cluster.accelerator)
        used["vendors", accelerator.vendor.value] = catalog.vendor(accelerator.vendor.value)
        for option in (
            one for load in scenario.workloads.values() for one in options(cluster, load, catalog)
        ):
            stack = catalog.stack(accelerator.vendor.value, option.engine)
            used["stacks", stack_name(stack)] = stack
            used["precisions", str(option.precision)] = catalog.precisions[str(option.precision)]
        contract = cluster.contract
        if isinstance(contract, Reserved) and contract.usd_per_accelerator_h is None:
            rents.add(rent_prior(cluster))
        elif isinstance(contract, OnDemand | Spot):
            hourly.append((contract, cluster.accelerator, contract.kind.replace("-", "")))
    for stated, part, kind in hourly:
        named = hourly_priors(part, kind, catalog).items()
        rents |= {
            prior
            for key, prior in named
            if getattr(stated, key) is None and prior in catalog.priors
        }
    prices = [
        scenario.finance.api_price,
        *(load.token_price for load in scenario.workloads.values()),
    ]
    pairs = [
        (p.input_usd_per_million_tokens, p.output_usd_per_million_tokens)
        for p in prices
        if p is not None
    ]
    is_priced = any(None in pair for pair in pairs) or any(
        cluster.is_api for cluster in scenario.clusters.values()
    )
    used |= {
        ("models", load.model): catalog.model(load.model) for load in scenario.workloads.values()
    }
    used |= {("incidents", kind): entry for kind, entry in catalog.incidents.items()}
    used["tariffs", scenario.site.tariff] = catalog.tariff(scenario.site.tariff)
    facts = [
        (f"{section}.{name}.{key}", fact, unit)
        for (section, name), entry in sorted(used.items())
        for key, fact, unit in entry.facts()
        if key != "aliases"
        and (is_priced or not key.startswith("api_"))  # spellings, and prices that nobody pays
    ]
    resale = sorted(resold, key=lambda name: (name.partition("m_")[2], resold[name]))
    drawn_on = [*resale, *sorted(rents), *scenario.reliability.left_open().values()]
    facts += [
        (f"priors.{name}", catalog.prior(name), catalog.prior(name).unit) for name in drawn_on
    ]
    for path, fact, unit in facts:
        title, date = catalog.provenance(fact)
        shown = (
            f"{fact.low:g} / {fact.base:g} / {fact.high:g}"
            if isinstance(fact, Range)
            else _plain(fact.value)
        )
        yield f"catalog.{path}", shown, unit or "", title, date, fact.grade
    if any(
        price is not None and price.cached_input_usd_per_million_tokens is None for price in prices
    ):
        prior = catalog.prior("cached_input_price_ratio")
        title, date = catalog.provenance(prior)
        yield (
            "catalog.priors.cached_input_price_ratio",
            _plain(prior.base),
            prior.unit or "",
            title,
            date,
            prior.grade,
        )
    yield "catalog.version", VERSION, "", "shipped with the planner", "", ""


def _plain(value: Any) -> str:
    """Write a value the way a spreadsheet reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}" if abs(value) < 1e15 else f"{value:.0f}"
    if isinstance(value, tuple):
        return ", ".join(map(_plain, value))
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def layouts(scenario: Scenario) -> Table:
    """Return layouts.csv: how each cluster serves each workload, and what the next best would serve."""
    reuse = Reuse(scenario)
    rows = []
    for (name, load), service in services_of(scenario, {}, reuse)[0].items():
        cluster = as_first_bought(scenario, name)
        spec = service.spec
        other = runner_up(cluster, scenario.workloads[load], service, scenario, reuse)
        said = f"{other.spec.engine}, {other.spec.precision}, {other.layout}" if other else ""
        laid_out = (
            spec.accelerators,
            spec.attention_data_parallel,
            (service.prefill or service).spec.chunk_tokens,
        )
        share = service.prefill.share if service.prefill else None
        apart = ("disaggregated" if service.prefill else "colocated", share)
        rates = (service.requests_per_s, said, other.requests_per_s if other else None)
        rows.append((name, load, spec.engine, spec.precision, *laid_out, *apart, *rates))
    return TABLES["layouts"].of_rows(rows)


def model_error(calibration: CalibrationFile | None = None) -> Table:
    """Return model_error.csv: each quantity over all rows and by architecture class.

    The half-widths are those of 90% intervals where the pair was measured, and where its model was not.
    """
    file = calibration or shipped_file()
    rows: list[tuple[Any, ...]] = []
    for quantity, groups in file.fitted.items():
        for group in ("all", "dense", "mixture-of-experts"):
            if group not in groups:
                continue
            fitted = groups[group]
            held_out = file.cross_validated.get("model", {}).get(quantity, {}).get(group)
            beyond = (
                (held_out.median_fraction, held_out.mean_fraction) if held_out else (None, None)
            )
            within = (quantity, group, fitted.rows, fitted.median_fraction, fitted.mean_fraction)
            widths: list[float | None] = [None, None]
            if (spread := file.spread.get(group)) is not None:
                unseen_pair = math.hypot(spread.setting, spread.pair, spread.model)
                both = (
                    [spread.first_token] * 2
                    if quantity == "ttft_s"
                    else [spread.setting, unseen_pair]
                )
                widths = [round(math.sinh(NORMAL_90 * width), 4) for width in both]
            rows.append((*within, *beyond, *widths))
    return TABLES["model_error"].of_rows(rows)
