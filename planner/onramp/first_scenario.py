"""A starter scenario, or one built from what one has: traffic, owned machines, vendors' quotes, an own catalogue."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import re
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Template
from pydantic import TypeAdapter, ValidationError

from planner.catalog.load import Catalog, load_catalog
from planner.errors import Problem, ScenarioError, printable, raise_all
from planner.finance.months import add_months
from planner.onramp.metrics import MAX_BYTES, fetch, is_metrics, read_metrics
from planner.onramp.traffic_fit import (
    Figure,
    Fitted,
    ObservedTraffic,
    TrafficOptions,
    fitted_workload,
    traffic_of_log,
)
from planner.onramp.traffic_log import (
    COLUMNS,
    is_hourly_series,
    parse_columns,
    read_hourly_rates,
    read_request_log,
)
from planner.scenario.fields import Name
from planner.scenario.loading import scenario_from_document
from planner.units import SECONDS_PER_HOUR
from planner.validation import nearest
from planner.yaml_io import Location, flow_text, parse_document, parse_scalar, read_bytes, replaced

FLEET_COLUMNS, QUOTE_COLUMNS = (
    {row["column"]: row["key"] for row in COLUMNS if row["file"] == file}
    for file in ("fleet", "quotes")
)
"""Columns of a list of machines owned or of quotes, and the keys of a cluster they fill. Of machines owned, what is
empty is left to its default; of quotes, the others say what may be chosen, and names."""

MOST_ROWS = 32
"""Clusters that ``choose`` can hold."""
MONTHS_BETWEEN_ORDERS = 6
_HORIZON_MONTHS = 36  # of the starter
_GROUPED = re.compile(
    r"\$?\d{1,3}(,\d{3})+(\.\d+)?$|\$[\d.]+$"
)  # 31,000 or $31000 as spreadsheets show money
USUAL_MODEL = "llama-3.1-70b"
"""What is served where no file names a model that the catalogue has."""
_USUAL_START = datetime.date(2026, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a list of machines or quotes."""

    place: Location
    cells: Mapping[str, Any]
    """What it states, by column; empty cells are not there."""
    columns: Mapping[str, str]
    """Columns of its kind of list, and the keys they fill."""

    def cluster(self) -> dict[str, Any]:
        """Return the scenario keys of the row's cluster."""
        tree: dict[str, Any] = {}
        for column, path in self.columns.items():
            if path and column in self.cells:
                tree = replaced(tree, tuple(path.split(".")), self.cells[column])
        return tree


def read_fleet(path: Path) -> tuple[Row, ...]:
    """Read a list of owned machines, equal ones in one row; raise ScenarioError with file and line."""
    return _rows(path, FLEET_COLUMNS, ("accelerator", "nodes", "bought"))


def read_quotes(path: Path) -> tuple[Row, ...]:
    """Read vendors' quotes for accelerators or whole nodes, one per row; raise ScenarioError with file and line."""
    rows = _rows(path, QUOTE_COLUMNS, ("accelerator",))
    problems = []
    for row in rows:
        of_node = "node_price_usd" in row.cells
        if of_node == ("price_usd" in row.cells) or (of_node and "host_usd_per_node" in row.cells):
            message = (
                "needs price_usd, of one accelerator, or node_price_usd, "
                "of a server with its accelerators and host"
            )
            problems.append(
                Problem(
                    file=row.place.file, line=row.place.line, message=message, hint="and not both"
                )
            )
    raise_all(problems)
    return rows


def read_traffic(source: str, stated: TrafficOptions) -> dict[str, ObservedTraffic]:
    """Return what a file or a server shows, by the workload's name; several where it has several served models.

    A source is a path or an address, with ``NAME=`` before it where its workload has another name than the file's or
    the model's. The file's own first bytes say what it is.
    """
    named = re.fullmatch(r"([^\W_][\w-]{0,63})=(.+)", source, re.DOTALL)
    name, place = named.groups() if named else ("", source)
    path = Path(place)
    usual = Path(place).name.partition(".")[0]
    seen: dict[str | None, ObservedTraffic]
    if re.match("https?://", place):
        host = urllib.parse.urlsplit(place).hostname or place
        usual = "live"
        seen = read_metrics(fetch(place), host, time.time())
    elif is_metrics(path):
        seen = read_metrics([read_bytes(path, MAX_BYTES)], path.name, path.stat().st_mtime)
        usual = ""
    elif is_hourly_series(path, stated.columns is not None):
        rates = read_hourly_rates(path, stated.rate_column, stated.requests_per_s)
        seen = {None: ObservedTraffic(source=path.name, rates=rates)}
    else:
        log = read_request_log(path, parse_columns(stated.columns), stated.time_unit)
        parts = log.by_model()
        parts = {None: log} if name and len(parts) > 1 else parts  # a name is one workload's
        seen = {model: traffic_of_log(part, path.name, model) for model, part in parts.items()}
    if name and len(seen) == 1:
        return dict.fromkeys([name], *seen.values())
    words = {model: (usual if len(seen) == 1 else "") or model or "served" for model in seen}
    slugs = {
        model: re.sub(r"[^a-z0-9]+", "-", word.rpartition("/")[2].lower())
        for model, word in words.items()
    }
    return {f"{name}-{slugs[model]}".strip("-"): shown for model, shown in seen.items()}


def fit_workloads(
    sources: Sequence[str],
    stated: TrafficOptions,
    catalog: Catalog,
    start: datetime.date | None = None,
) -> tuple[list[Fitted], datetime.date]:
    """Return the workloads that files and servers show, without any the one that is stated; and the first day.

    Files of one name show one workload. A model is the catalogue's whose name is part of the one it is served under.
    The first day is the first of the month after the last series ends, unless stated; 2026-01-01 without dates.
    """
    seen: dict[str, ObservedTraffic] = {}
    for source in sources:
        for name, traffic in read_traffic(source, stated).items():
            seen[name] = seen[name].beside(traffic) if name in seen else traffic
    if stated.requests_per_s is not None and len(seen) > 1:
        message = f"is the rate of one workload, and the files have {len(seen)}: {', '.join(seen)}"
        raise ScenarioError(
            Problem(path="--requests-per-s", message=message, hint="change it in the scenario")
        )
    silent = [
        one
        for one in seen.values()
        if stated.requests_per_s is None and not (one.level or one.rates)
    ]
    hint = "state it with --requests-per-s, or add hourly rates of the same NAME: --from NAME=FILE"
    raise_all(
        [
            Problem(file=one.source, message="shows no rate: no clock that all share", hint=hint)
            for one in silent
        ]
    )
    ends = [one.rates.end_s for one in seen.values() if one.rates and one.rates.end_s is not None]
    if start is None and ends:
        last = datetime.datetime.fromtimestamp(max(ends) - SECONDS_PER_HOUR, tz=datetime.UTC).date()
        start = last if last.day == 1 else add_months(last.replace(day=1), 1)
    fitted = list[Fitted]()
    start = start or _USUAL_START
    for name, traffic in seen.items() or [
        (stated.workload_preset or "chat", ObservedTraffic(source=""))
    ]:
        served = (traffic.model or "").rpartition("/")[2].lower()
        alike = [
            known
            for known in catalog.models
            if re.search(rf"(?<![\w.]){re.escape(known)}(?![\w.])", served)
        ]
        model, remark = (
            stated.model or USUAL_MODEL,
            "as given" if stated.model else "assumed: no file names it",
        )
        if alike and not stated.model:
            model, remark = max(alike, key=len), f"served as {printable(traffic.model or '')}"
        elif served and not stated.model:
            remark = f"assumed: the catalogue has no {printable(served)}; planner catalog add-model adds it"
        named = Figure(field="model", fitted=model, remark=remark)
        fitted.append(fitted_workload(name, traffic, stated, named, start))
    return fitted, start


def scenario_text(
    name: str,
    start: datetime.date,
    workloads: Sequence[Fitted] = (),
    machines: Sequence[Row] = (),
    overlay: Path | None = None,
) -> str:
    """Return the commented scenario of traffic, owned machines and quotes, checked; without them, the starter's.

    A list's bad values are reported with that list's line.
    """
    taken: dict[str, Row] = {}
    for row in machines:  # named as stated, or by part and what tells it apart from others
        part = (
            re.sub(r"[^a-z0-9]+", "-", str(row.cells["accelerator"]).lower()).strip("-")
            or "accelerator"
        )
        bought = row.cells.get("bought")
        words = [
            part,
            *([str(bought)[:7]] if bought else []),
            *(["quote"] if row.columns is QUOTE_COLUMNS else []),
        ]
        called = str(row.cells.get("name") or "-".join(words))
        if called in taken and "name" in row.cells:
            first = taken[called].place
            message = f"{called!r} is also the name of {first.file}:{first.line}"
            raise ScenarioError(
                Problem(file=row.place.file, line=row.place.line, path="name", message=message)
            )
        numbered = (f"{called}-{count}" for count in range(2, MOST_ROWS * 2 + 2))
        taken[next(free for free in (called, *numbered) if free not in taken)] = row
    quoted = {name: row for name, row in taken.items() if row.columns is QUOTE_COLUMNS}
    loads = "\n".join(["workloads:", *(fitted.yaml() for fitted in workloads)]) if workloads else ""
    clusters = _clusters(taken, start, load_catalog(overlay=overlay)) if taken else ""
    text = starter_text(name, start, loads, clusters) + (_choose(quoted, start) if quoted else "")
    text += f"\ncatalog: {{overlay: {flow_text(str(overlay))}}}\n" if overlay is not None else ""
    document = parse_document(text, f"{name}.yaml")
    for path in document.locations:  # a value from a list is named by that list's line
        match path:
            case ("clusters", str(cluster), *_) | ("sizing", "clusters", str(cluster), *_) if (
                cluster in taken
            ):
                document.locations[path] = taken[cluster].place
    scenario_from_document(document)
    return text


def _rows(path: Path, columns: Mapping[str, str], needed: tuple[str, ...]) -> tuple[Row, ...]:
    try:
        text = read_bytes(path, 1_000_000).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ScenarioError(
            Problem(file=str(path), message="is not UTF-8 text, so not a CSV to read")
        ) from None
    reader = csv.reader(io.StringIO(text), delimiter=";" if ";" in text.partition("\n")[0] else ",")
    header = [word.strip().lower() for word in next(reader, [])]
    problems = [
        Problem(
            line=1,
            message=f"unknown column {word!r}",
            hint=nearest(word, columns) or f"of {', '.join(columns)}",
        )
        for word in header
        if word not in columns
    ]
    twice = {word for word in header if header.count(word) > 1}
    problems += [Problem(line=1, message=f"names the column {word!r} twice") for word in twice]
    problems += [
        Problem(line=1, message=f"no column {word!r}") for word in needed if word not in header
    ]
    rows: list[Row] = []
    for cells in reader if not problems else ():
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            message = f"has {len(cells)} cells under {len(header)} columns"
            problems.append(
                Problem(
                    line=reader.line_num, message=message, hint="put text with a comma in quotes"
                )
            )
            continue
        words = {
            name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()
        }
        # A cell is read as YAML reads a plain value; money may have its sign and its commas.
        stated = {
            name: parse_scalar(re.sub("[$,]", "", word) if _GROUPED.match(word) else word)
            for name, word in words.items()
        }
        told = "is required and is not there"
        missing = [name for name in needed if name not in stated]
        problems += [Problem(line=reader.line_num, path=name, message=told) for name in missing]
        rows.append(Row(place=Location(str(path), reader.line_num), cells=stated, columns=columns))
    if not problems and not 1 <= len(rows) <= MOST_ROWS:
        problems.append(Problem(message=f"has {len(rows)} rows; it may have 1 to {MOST_ROWS}"))
    if problems:
        raise ScenarioError([dataclasses.replace(problem, file=str(path)) for problem in problems])
    return tuple(rows)


def _clusters(taken: Mapping[str, Row], start: datetime.date, catalog: Catalog) -> str:
    """Return the clusters section: owned machines, then quotes without nodes."""
    lines = ["clusters:"]
    for name, row in taken.items():
        tree = row.cluster()
        if row.columns is QUOTE_COLUMNS:
            tree = {
                "accelerator": tree.pop("accelerator"),
                "nodes": row.cells.get("min_nodes", 0),
                **tree,
            }
            if (price := row.cells.get("node_price_usd")) is not None:
                tree["accelerator_price_usd"] = (
                    price  # what is wrong is said where the cluster itself is checked
                )
                part = catalog.accelerators.get(row.cells["accelerator"])
                if part is not None and isinstance(
                    price, int | float
                ):  # all is its accelerators', nothing the host's
                    tree["accelerator_price_usd"] = round(
                        price / part.accelerators_per_node.value, 2
                    )
                    tree["host_usd_per_node"] = 0
            tree["price_source"] = (
                f"quote of {row.cells.get('vendor', 'a vendor')}, {Path(row.place.file).name}"
            )
            tree["order"] = {"placed": start, **tree.get("order", {})}
        kind = (
            "quoted: planner size chooses nodes and dates"
            if row.columns is QUOTE_COLUMNS
            else "owned"
        )
        lines += [
            f"  {flow_text(name)}:  # {kind}, line {row.place.line} of {Path(row.place.file).name}"
        ]
        lines += [f"    {key}: {flow_text(value)}" for key, value in tree.items()]
    return "\n".join(lines) + "\n"


def _choose(quoted: Mapping[str, Row], start: datetime.date) -> str:
    """Return the SLO target and sizing sections: for each quote its order dates and node limits."""
    lines = [
        "",
        "slo_target:                # what planner size must meet, at least cost",
        "  attainment: 0.99         # of each workload's requests, in every month",
        "  confidence: 0.8          # a long outage of the site breaks one in eleven, whatever is bought",
        "",
        "sizing:                    # what planner size may buy, and when it may be ordered",
        "  clusters:",
    ]
    for name, row in quoted.items():
        choice: dict[str, Any] = {"dates": order_dates(row, start)}
        choice |= {key: row.cells[key] for key in ("min_nodes", "max_nodes") if key in row.cells}
        lines.append(f"    {flow_text(name)}: {flow_text(choice)}")
    return "\n".join([*lines, "  # budget_usd: 50e6", "  # power_kw: 3000", ""])


def order_dates(row: Row, start: datetime.date) -> list[datetime.date]:
    """Return the dates on which a quote may be ordered: every half year from its earliest to its latest.

    The last is one whose machines, at the promised lead time, serve half a year before the horizon ends.
    """
    first = row.cells.get("earliest", start)
    lead = row.cells.get("lead_weeks", 0)
    if (
        not isinstance(first, datetime.date)
        or not isinstance(lead, int | float)
        or not 0 <= lead <= 520
    ):
        return []  # said where the cluster itself is checked
    end = add_months(start, _HORIZON_MONTHS - MONTHS_BETWEEN_ORDERS) - datetime.timedelta(
        weeks=float(lead)
    )
    latest = row.cells.get("latest", end)
    if not isinstance(latest, datetime.date) or latest < first:
        message = f"must be a date, YYYY-MM-DD, not before the earliest, {first}; it is {latest}"
        raise ScenarioError(
            Problem(file=row.place.file, line=row.place.line, path="latest", message=message)
        )
    dates = [
        add_months(first, months) for months in range(0, _HORIZON_MONTHS, MONTHS_BETWEEN_ORDERS)
    ]
    return [day for day in dates if day <= min(latest, end)] or [first]


def starter_text(
    name: str, start: datetime.date = _USUAL_START, workloads: str = "", clusters: str = ""
) -> str:
    """Return the starter scenario under a name, with the given sections for workloads and clusters.

    Raise ScenarioError when the name will not do.
    """
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ScenarioError(Problem(message=f"{name!r} will not do as a name: {message}")) from None
    source = Path(__file__).with_name("starter.yaml.j2").read_text(encoding="utf-8")
    # A name such as 2026 or null needs its quotes.
    text: str = Template(source, trim_blocks=True, keep_trailing_newline=True).render(
        name=name if isinstance(parse_scalar(name), str) else f'"{name}"',
        start=start,
        online=add_months(start, 2),
        later=add_months(start, 12),
        workloads=workloads,
        clusters=clusters,
    )
    return text
