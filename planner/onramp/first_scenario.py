"""A starter scenario, or one built from what one has: traffic, owned machines, vendors' quotes, an own catalogue."""

from __future__ import annotations

import datetime
import itertools
import math
import re
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Template
from pydantic import TypeAdapter, ValidationError

from planner.catalog.load import Catalog, load_catalog
from planner.errors import Problem, ScenarioError, printable, raise_all
from planner.finance.months import add_months
from planner.onramp.hourly import check_single_requests, is_hourly_series, read_hourly
from planner.onramp.metrics import MAX_BYTES, fetch, is_metrics, read_metrics
from planner.onramp.sheets import is_book, sheet_rows
from planner.onramp.stated_values import written
from planner.onramp.traffic_fit import (
    Figure,
    Fitted,
    ObservedTraffic,
    ServedModel,
    TrafficOptions,
    fitted_workload,
    traffic_of_counts,
    traffic_of_log,
)
from planner.onramp.traffic_log import (
    COLUMNS,
    parse_columns,
    read_request_log,
)
from planner.onramp.usage_exports import is_usage_export, read_usage
from planner.records import record
from planner.scenario.cluster import Order
from planner.scenario.fields import Name
from planner.scenario.loading import layer_of, scenario_from_document
from planner.studies.futures import plans_under
from planner.units import SECONDS_PER_HOUR
from planner.validation import choices, nearest
from planner.yaml_io import (
    Document,
    Location,
    flow_text,
    parse_document,
    parse_scalar,
    read_bytes,
    value_at,
    with_value,
)


def _keys_by_column(file: str) -> dict[str, str]:
    """Return the columns of a kind of list, and the keys of a cluster they fill."""
    return {row["column"]: row["key"] for row in COLUMNS if row["file"] == file}


FLEET_COLUMNS = _keys_by_column("fleet")
"""Columns of a list of machines owned; what is empty is left to its default."""
QUOTE_COLUMNS = _keys_by_column("quotes")
"""Columns of a list of quotes; those without a key state what may be chosen, and names."""
HOSTS = ("host", "hostname", "server", "node", "node_name", "serial")
"""Columns of an inventory with one machine a row, in place of the number of them."""
_HEAD_BYTES = 65_536
_NAMES_OF_LOGS = {"name", "engine", "precision", "vendor"}
"""Columns of lists that logs and exports may have too."""
_TIMES = {row["column"] for row in COLUMNS if row["key"] == "timestamp"}
MAX_ROWS = 32
"""Clusters that ``sizing`` can hold."""
MONTHS_BETWEEN_ORDERS = 6
_HORIZON_MONTHS = 36
"""Of the starter."""
_MONEY = re.compile(r"\$?\d{1,3}(,\d{3})+(\.\d+)?$|\$[\d.]+$")
"""31,000 or $31000 as spreadsheets show money."""
USUAL_MODEL = "llama-3.1-70b"
"""What is served where no file names a model that the catalogue has."""
_USUAL_START = datetime.date(2026, 1, 1)


@record
class Row:
    """One row of a list of machines or quotes."""

    place: Location
    cells: Mapping[str, Any]
    """What it states, by column; empty cells are not there."""
    columns: Mapping[str, str]
    """Columns of its kind of list, and the keys they fill."""
    problems: tuple[Problem, ...] = ()
    """What its reader found wrong; it is raised with all that the check of the scenario finds in the other rows."""

    def cluster(self) -> dict[str, Any]:
        """Return the scenario keys of the row's cluster."""
        tree: dict[str, Any] = {}
        for column, path in self.columns.items():
            if path and column in self.cells:
                keys = tuple(path.split("."))
                tree = with_value(tree, keys, self.cells[column])
        return tree

    def problem(self, message: str, path: str | None = None, hint: str | None = None) -> Problem:
        """Return a problem of this row."""
        return Problem(
            file=self.place.file, line=self.place.line, path=path, message=message, hint=hint
        )

    def wrong(self, message: str, path: str | None = None, hint: str | None = None) -> Row:
        """Return the row with one more problem."""
        return replace(self, problems=(*self.problems, self.problem(message, path, hint)))


def read_fleet(path: Path) -> tuple[Row, ...]:
    """Read a list of owned machines, equal ones in one row, each with what is wrong in it."""
    return _rows(path, FLEET_COLUMNS, ("accelerator", "nodes", "bought"))


def read_quotes(path: Path) -> tuple[Row, ...]:
    """Read vendors' quotes for accelerators or whole nodes, one per row, each with what is wrong in it."""
    listed = _rows(path, QUOTE_COLUMNS, ("accelerator",))
    message = (
        "needs price_usd, of one accelerator, or node_price_usd, "
        "of a server with its accelerators and host"
    )
    rows = []
    for row in listed:
        has_node_price = "node_price_usd" in row.cells
        has_price = "price_usd" in row.cells
        # The price of a server includes its host.
        has_both = has_node_price and "host_usd_per_node" in row.cells
        # One price and one alone, so that no reader has to guess which counts.
        is_wrong = has_node_price == has_price or has_both
        if row.cells and is_wrong:
            rows.append(row.wrong(message, hint="state one of them, and not both"))
        else:
            rows.append(row)
    return tuple(rows)


def read_traffic(source: str, stated: TrafficOptions) -> dict[str, ObservedTraffic]:
    """Return what a file or a server shows, by the workload's name; several where it has several served models.

    A source is a path or an address, with ``NAME=`` before it where its workload has another name than the file's or
    the model's. The file's own first bytes say what it is.
    """
    match = re.fullmatch(r"([^\W_][\w-]{0,63})=(.+)", source, re.DOTALL)
    name, place = match.groups() if match else ("", source)
    path = Path(place)
    usual_name = path.name.partition(".")[0]
    observed: dict[str | None, ObservedTraffic]
    if re.match("https?://", place):
        host = urllib.parse.urlsplit(place).hostname or place
        usual_name = "live"
        observed = read_metrics(fetch(place), host, time.time())
    elif is_metrics(path):
        usual_name = ""  # the served model's, where a file has several
        content = read_bytes(path, MAX_BYTES)
        scraped_s = path.stat().st_mtime
        observed = read_metrics([content], path.name, scraped_s)
    elif is_usage_export(path):
        counts = read_usage(path)
        usual_name = ""
        observed = {
            model: traffic_of_counts(part, path.name, model) for model, part in counts.items()
        }
    elif is_hourly_series(path, stated.columns is not None, stated.rate_column):
        rate = stated.of(stated.requests_per_s, name or usual_name)
        counts = read_hourly(path, stated.rate_column, rate)
        observed = {
            model: traffic_of_counts(part, path.name, model) for model, part in counts.items()
        }
    else:
        columns = parse_columns(stated.columns)
        log = read_request_log(path, columns, stated.time_unit)
        check_single_requests(path, log.times_s)
        by_model = log.by_model()
        if name and len(by_model) > 1:
            by_model = {None: log}  # a name is one workload's
        try:
            observed = {
                model: traffic_of_log(part, path.name, model) for model, part in by_model.items()
            }
        except ScenarioError as error:
            # The fit knows numbers alone: whose they are is known here.
            named = [replace(problem, file=str(path)) for problem in error.problems]
            raise ScenarioError(named) from None
    if len(observed) > 1:
        usual_name = ""
    workloads = {}
    for model, traffic in observed.items():
        word = usual_name or model or "served"
        # The publisher before the slash is no part of a model's name.
        short_name = word.rpartition("/")[2].lower()
        slug = re.sub(r"[^a-z0-9]+", "-", short_name)
        has_own_name = name and len(observed) == 1
        own_name = name if has_own_name else f"{name}-{slug}".strip("-")
        workloads[own_name] = traffic
    return workloads


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
    observed: dict[str, ObservedTraffic] = {}
    rate_columns: list[str] = []
    problems: list[Problem] = []
    for source in sources:
        try:
            shown = read_traffic(source, stated)
        except ScenarioError as error:
            # Of several files each says what is wrong with it.
            problems += error.problems
            continue
        for name, traffic in shown.items():
            if traffic.rates is not None:
                rate_columns.append(traffic.rates.column.lower())
            # A log has lengths, a series has the year: together they are one workload.
            # merge keeps what the first file shows, so the order of the sources counts.
            if name in observed:
                observed[name] = observed[name].merge(traffic)
            else:
                observed[name] = traffic
    raise_all(problems)
    rate_column = stated.rate_column
    if rate_column is not None and rate_column.strip().lower() not in rate_columns:
        message = f"no file has a column {rate_column!r}"
        raise ScenarioError(Problem(path="--rate", message=message))
    _check_rates(observed, stated)
    start = start or _first_day(observed)
    if not observed:
        named = [name for words in _by_option(stated).values() for name in words]
        names = [name for name in dict.fromkeys(named) if name]
        names = names or [stated.presets.get("", "chat")]
        observed = {name: ObservedTraffic(source="") for name in names}
    _check_names(observed, stated)
    workloads = []
    for name, traffic in observed.items():
        model = _find_model(traffic.model or "", stated.of(stated.models, name), catalog)
        workloads.append(fitted_workload(name, traffic, stated, model, start))
    return workloads, start


def by_workload(option: str, words: Sequence[str]) -> dict[str, str]:
    """Return what ``[NAME=]WORD`` options state by workload, of all others under the empty name."""
    stated: dict[str, str] = {}
    for text in words:
        name, _, word = text.rpartition("=")
        if name in stated:
            message = f"states {name or 'all workloads'} twice"
            raise ScenarioError(Problem(path=option, message=message))
        stated[name] = word
    return stated


def numbers_by_workload(option: str, words: Sequence[str], above: float) -> dict[str, float]:
    """Return what ``[NAME=]NUMBER`` options state by workload, of all others under the empty name.

    Raise an error for what is no number, or not above the one given.
    """
    numbers = {}
    for name, word in by_workload(option, words).items():
        number = parse_scalar(word.strip())
        if isinstance(number, bool) or not isinstance(number, int | float):
            message = f"takes a number, or NAME=NUMBER; it is {word!r}"
            raise ScenarioError(Problem(path=option, message=message))
        if not above < number < math.inf:
            message = f"must be above {above:g}, not {word}"
            raise ScenarioError(Problem(path=option, message=message))
        numbers[name] = float(number)
    return numbers


def _by_option(stated: TrafficOptions) -> dict[str, Mapping[str, object]]:
    """Return what is stated by workload, by the option that states it."""
    return {
        "--model": stated.models,
        "--preset": stated.presets,
        "--requests-per-s": stated.requests_per_s,
        "--growth": stated.growth_per_year,
    }


def _check_names(observed: Mapping[str, ObservedTraffic], stated: TrafficOptions) -> None:
    """Raise an error where something is stated of a workload that no file has."""
    problems = []
    for option, words in _by_option(stated).items():
        for name in words:
            if name and name not in observed:
                message = f"no workload {name!r}"
                hint = nearest(name, observed) or f"the files have {', '.join(observed)}"
                problems.append(Problem(path=option, message=message, hint=hint))
    raise_all(problems)


def _check_rates(observed: Mapping[str, ObservedTraffic], stated: TrafficOptions) -> None:
    """Raise an error where a workload has no rate, or one rate is stated for several."""
    if "" in stated.requests_per_s and len(observed) > 1:
        names = ", ".join(observed)
        message = f"is the rate of one workload, and the files have {len(observed)}: {names}"
        hint = "state NAME=RATE for each"
        raise ScenarioError(Problem(path="--requests-per-s", message=message, hint=hint))
    rates = observed if "" in stated.requests_per_s else stated.requests_per_s
    message = "shows no rate: no clock that all share"
    hint = "state it with --requests-per-s, or add hourly rates of the same NAME: --from NAME=FILE"
    raise_all(
        [
            Problem(file=traffic.source, message=message, hint=hint)
            for name, traffic in observed.items()
            if not (traffic.level or traffic.rates or name in rates)
        ]
    )


def _first_day(observed: Mapping[str, ObservedTraffic]) -> datetime.date:
    """Return the first day of a month after all series end; the usual day where none has dates."""
    series = [traffic.rates for traffic in observed.values() if traffic.rates is not None]
    ends_s = [rates.end_s for rates in series if rates.end_s is not None]
    if not ends_s:
        return _USUAL_START
    # The day of the last hour: a series that ends at midnight does not reach into the next day.
    final_hour_s = max(ends_s) - SECONDS_PER_HOUR
    final_hour = datetime.datetime.fromtimestamp(final_hour_s, tz=datetime.UTC)
    day = final_hour.date()
    if day.day == 1:
        return day
    return add_months(day.replace(day=1), 1)


def _find_model(served_name: str, stated: str | None, catalog: Catalog) -> ServedModel:
    """Return the model of a workload: the one stated, or the catalogue's whose name is part of the served one."""
    name = served_name.rpartition("/")[2].lower()
    # Neither letter, digit nor dot beside it: 3.1-8b is no part of 13.1-8b.
    matches = [
        model
        for model in catalog.models
        if re.search(rf"(?<![\w.]){re.escape(model)}(?![\w.])", name)
    ]
    # The longest is the most precise: llama-3.1-8b-instruct before llama-3.1-8b.
    found = stated or max(matches, key=len, default=USUAL_MODEL)
    if stated:
        remark = "as given"
    elif matches:
        remark = f"served as {printable(served_name)}"
    elif name:
        lacking = f"the catalogue has no {printable(name)}"
        remark = f"assumed: {lacking}; planner catalog add-model adds it"
    else:
        remark = "assumed: no file names it"
    longest_tokens = math.inf  # an unknown model is reported where the scenario is checked
    if found in catalog.models:
        longest_tokens = catalog.models[found].max_context_tokens.value
    figure = Figure(field="model", fitted=found, remark=remark)
    return ServedModel(figure=figure, longest_tokens=longest_tokens)


def scenario_text(
    name: str,
    start: datetime.date,
    workloads: Sequence[Fitted] = (),
    machines: Sequence[Row] = (),
    overrides: Sequence[str] = (),
    catalog: Catalog | None = None,
) -> str:
    """Return the commented scenario of traffic, owned machines and quotes, checked; without them, the starter's.

    ``overrides`` are written into it as given. A list's bad values are reported with that list's line, all at once.
    """
    catalog = catalog or load_catalog()
    rows = _name_clusters([row for row in machines if row.cells])
    problems = [problem for row in machines if not row.cells for problem in row.problems]
    problems += [problem for row in rows.values() for problem in row.problems]
    quotes = {name: row for name, row in rows.items() if row.columns is QUOTE_COLUMNS}
    workload_section = ""
    if workloads:
        sections = (fitted.yaml() for fitted in workloads)
        workload_section = "\n".join(["workloads:", *sections])
    cluster_section = ""
    if rows:
        cluster_section = _clusters(rows, start, catalog)
    text = starter_text(name, start, workload_section, cluster_section)
    if quotes:
        dates: dict[str, list[datetime.date]] = {}
        for quote, row in quotes.items():
            try:
                dates[quote] = order_dates(row, start)
            except ScenarioError as error:
                problems += error.problems
                dates[quote] = []
        text += _sizing(quotes, dates)
    # Checked before it is written: what is wrong is named by the user's own list.
    document = parse_document(text, f"{name}.yaml")
    for path in document.locations:  # a value from a list is named by that list's line
        match path:
            case ("clusters", str(cluster), *_) | ("sizing", "clusters", str(cluster), *_) if (
                cluster in rows
            ):
                document.locations[path] = rows[cluster].place
    try:
        scenario = scenario_from_document(document, overrides)
        plans_under([scenario], scenario.futures)  # each future is to change something
    except ScenarioError as error:
        # A cell that is not there is named by its column already.
        lacking = {
            f"clusters.{cluster}.{row.columns[problem.path]}"
            for cluster, row in rows.items()
            for problem in row.problems
            if problem.path
        }
        problems += [problem for problem in error.problems if problem.path not in lacking]
        problems += _unknown_accelerators(rows, document, catalog)
    # Line by line; an accelerator may have been checked twice.
    ordered = sorted(problems, key=lambda problem: (problem.file or "", problem.line or 0))
    raise_all(list(dict.fromkeys(ordered)))
    return written(text, layer_of(document))


def _unknown_accelerators(
    clusters: Iterable[str], document: Document, catalog: Catalog
) -> list[Problem]:
    """Return the accelerators that the catalogue lacks: another bad cell of a row hides its own from the check."""
    known = catalog.accelerators
    problems = []
    for name in clusters:
        path = ("clusters", name, "accelerator")
        part = value_at(document.content, path)
        if isinstance(part, str) and part not in known:
            hint = nearest(part, known) or f"the catalogue has {choices(known)}"
            problems.append(document.problem(path, f"unknown accelerator {part!r}", hint))
    return problems


def _name_clusters(machines: Sequence[Row]) -> dict[str, Row]:
    """Return rows by their clusters' names: as stated, or accelerator and month, numbered where that is taken."""
    rows: dict[str, Row] = {}
    for row in machines:
        part = str(row.cells.get("accelerator", "")).lower()
        slug = re.sub(r"[^a-z0-9]+", "-", part).strip("-")
        words = [slug or "accelerator"]
        if row.cells.get("bought"):
            # Year and month alone: machines of one month are named alike.
            words.append(str(row.cells["bought"])[:7])
        if row.columns is QUOTE_COLUMNS:
            words.append("quote")
        stem = name = str(row.cells.get("name") or "-".join(words))
        named = row
        if name in rows and "name" in row.cells:
            namesake = rows[name].place
            message = f"{name!r} is also the name of {namesake.file}:{namesake.line}"
            named = row.wrong(message, path="name")
        # Ends with the first number that is free; there are 32 rows at most.
        numbers = itertools.count(2)
        while name in rows:
            name = f"{stem}-{next(numbers)}"
        rows[name] = named
    return rows


def columns_of_list(path: Path) -> Mapping[str, str] | None:
    """Return the columns of the kind of list of machines that a file is, by its own header; None of any other file.

    A header with a mistake in it is still told by its other columns, so that the list's own reader says what is wrong.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return None  # whoever reads it says why it cannot be read
    if is_book(head):
        (_, header), *_ = sheet_rows(path) or [(1, [])]
    else:
        first_line = head.decode("utf-8-sig", errors="replace").lstrip().partition("\n")[0]
        header = re.split("[,;]", first_line)
    names = {_column_name(cell.strip(' "\r')) for cell in header}
    own_names = names & (set(FLEET_COLUMNS) | set(QUOTE_COLUMNS)) - _NAMES_OF_LOGS
    is_list = is_book(head) or "accelerator" in names or len(own_names) > 1
    if not is_list or names & _TIMES:
        return None
    is_quotes = own_names & (set(QUOTE_COLUMNS) - set(FLEET_COLUMNS))
    return QUOTE_COLUMNS if is_quotes else FLEET_COLUMNS


def read_machines(path: Path, columns: Mapping[str, str]) -> tuple[Row, ...]:
    """Read a list of machines of a kind."""
    return read_quotes(path) if columns is QUOTE_COLUMNS else read_fleet(path)


def _column_name(cell: str) -> str:
    """Return the name of a column as lists of machines have it."""
    return re.sub(r"\s+", "_", cell.lower())


def _rows(path: Path, columns: Mapping[str, str], required: tuple[str, ...]) -> tuple[Row, ...]:
    (_, first_row), *content = sheet_rows(path) or [(1, [])]
    header = [_column_name(cell) for cell in first_row]
    hosts = [name for name in header if name in HOSTS]
    if hosts and "nodes" not in header:
        header, content = _one_row_a_kind(header, content, hosts[0])
    while header and not header[-1]:
        header = header[:-1]
    _check_header(path, header, columns, required)
    rows: list[Row] = []
    for line, cells in content:
        texts = cells
        # A workbook's rows are as wide as its widest.
        while len(texts) > len(header) and not texts[-1]:
            texts = texts[:-1]
        # A row that is too short or too long would fill the wrong columns.
        if len(texts) != len(header):
            message = f"has {len(texts)} cells under {len(header)} columns"
            hint = "put text with a comma in quotes"
            # Nothing else is known of it.
            unread = Row(place=Location(str(path), line), cells={}, columns=columns)
            rows.append(unread.wrong(message, hint=hint))
            continue
        cells_by_name = zip(header, texts, strict=True)
        stated = {name: _parse_cell(text) for name, text in cells_by_name if text}
        place = Location(str(path), line)
        row = Row(place=place, cells=stated, columns=columns)
        for name in required:
            if name not in stated:
                row = row.wrong("is required and is not there", path=name)
        rows.append(row)
    if not 1 <= len(rows) <= MAX_ROWS:
        message = f"has {len(rows)} rows; it may have 1 to {MAX_ROWS}"
        problems = [problem for row in rows for problem in row.problems]
        raise ScenarioError([*problems, Problem(file=str(path), message=message)])
    return tuple(rows)


def _one_row_a_kind(
    header: list[str], content: list[tuple[int, list[str]]], host: str
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return an inventory of single machines as one of kinds: rows alike but for the machine's name are counted."""
    place = header.index(host)
    counts: dict[tuple[str, ...], int] = {}
    lines: dict[tuple[str, ...], int] = {}
    for line, cells in content:
        kind = (*cells[:place], *cells[place + 1 :])
        counts[kind] = counts.get(kind, 0) + 1
        lines.setdefault(kind, line)
    rows = [(lines[kind], [str(count), *kind]) for kind, count in counts.items()]
    return ["nodes", *header[:place], *header[place + 1 :]], rows


def _parse_cell(text: str) -> Any:
    """Return a cell as YAML reads a plain value; money may have its sign and its commas."""
    plain = text
    if _MONEY.match(text):
        plain = re.sub("[$,]", "", text)
    return parse_scalar(plain)


def _check_header(
    path: Path, header: Sequence[str], columns: Mapping[str, str], required: Sequence[str]
) -> None:
    """Raise an error with every column that is unknown, there twice, or missing."""
    problems = []
    for name in header:
        if name not in columns:
            hint = nearest(name, columns) or f"of {', '.join(columns)}"
            message = f"unknown column {name!r}"
            problems.append(Problem(file=str(path), line=1, message=message, hint=hint))
    distinct = dict.fromkeys(header)
    messages = [f"names the column {name!r} twice" for name in distinct if header.count(name) > 1]
    messages += [f"no column {name!r}" for name in required if name not in header]
    problems += [Problem(file=str(path), line=1, message=message) for message in messages]
    raise_all(problems)


def _clusters(rows: Mapping[str, Row], start: datetime.date, catalog: Catalog) -> str:
    """Return the clusters section: owned machines, then quotes without nodes."""
    lines = ["clusters:"]
    for name, row in rows.items():
        kind = "owned"
        cluster = row.cluster()
        if row.columns is QUOTE_COLUMNS:
            kind = "quoted: planner size chooses nodes and dates"
            cluster = _quoted_cluster(row, cluster, start, catalog)
        file = Path(row.place.file).name
        lines.append(f"  {flow_text(name)}:  # {kind}, line {row.place.line} of {file}")
        for key, value in cluster.items():
            remark = _delivery_remark(value) if kind != "owned" and key == "order" else ""
            lines.append(f"    {key}: {flow_text(value)}{remark}")
    return "\n".join(lines) + "\n"


def _quoted_cluster(
    row: Row, stated: dict[str, Any], start: datetime.date, catalog: Catalog
) -> dict[str, Any]:
    """Return the scenario keys of a quote: its price, where it is from, and an order for the first day."""
    nodes = row.cells.get("min_nodes", 0)
    cluster = {"accelerator": stated.pop("accelerator", None), "nodes": nodes, **stated}
    price = row.cells.get("node_price_usd")
    if price is not None:
        # What is wrong with a price or an accelerator is reported where the cluster is checked.
        cluster["accelerator_price_usd"] = price
        accelerator = catalog.accelerators.get(cluster["accelerator"])
        if accelerator is not None and isinstance(price, int | float):
            # All of it is the accelerators', nothing the host's.
            per_accelerator = price / accelerator.accelerators_per_node.value
            cluster["accelerator_price_usd"] = round(per_accelerator, 2)
            cluster["host_usd_per_node"] = 0
    vendor = row.cells.get("vendor", "a vendor")
    file = Path(row.place.file).name
    cluster["price_source"] = f"quote of {vendor}, {file}"
    # The stated lead time stays; the first day is where nothing else is said.
    order = {"placed": start, **cluster.get("order", {})}
    slip = Order.model_fields["slip_weeks"].default.model_dump()
    # Whole weeks, as somebody would write them.
    slip_weeks = {end: round(weeks) for end, weeks in slip.items()}
    cluster["order"] = {**order, "slip_weeks": slip_weeks}
    return cluster


def _delivery_remark(order: Mapping[str, Any]) -> str:
    """Return the day of delivery of a quoted order as a comment, beside the day of the order."""
    slip = "the slip is assumed"
    lead_weeks = order.get("lead_weeks")
    if lead_weeks is None:
        lead_weeks = Order.model_fields["lead_weeks"].default
        slip = f"{lead_weeks:g} weeks of lead time and the slip are assumed"
    try:
        delivered = order["placed"] + datetime.timedelta(weeks=lead_weeks)
    except (TypeError, OverflowError):
        return ""  # what is wrong with it is reported where the cluster is checked
    return f"  # ordered {order['placed']}, delivered {delivered} or later; {slip}"


def _sizing(quotes: Mapping[str, Row], dates: Mapping[str, Sequence[datetime.date]]) -> str:
    """Return the SLO target and sizing sections: for each quote its order dates and node limits."""
    lines = [
        "",
        "slo_target:                # what planner size must meet, at least cost",
        "  attainment: 0.99         # of each workload's requests, in every month",
        "  confidence: 0.8          # a long outage of the site makes one in eleven miss, whatever is bought",
        "",
        "sizing:                    # what planner size may buy, and when it may be ordered",
        "  clusters:",
    ]
    for name, row in quotes.items():
        choice: dict[str, Any] = {"dates": dates[name]}
        limits = {key: row.cells[key] for key in ("min_nodes", "max_nodes") if key in row.cells}
        choice |= limits
        lines.append(f"    {flow_text(name)}: {flow_text(choice)}")
    return "\n".join([*lines, "  # budget_usd: 50e6", "  # it_power_cap_kw: 3000", ""])


def order_dates(row: Row, start: datetime.date) -> list[datetime.date]:
    """Return the dates on which a quote may be ordered: every half year from its earliest to its latest.

    The last is one whose machines, at the promised lead time, serve half a year before the horizon ends.
    """
    earliest = row.cells.get("earliest", start)
    lead_weeks = row.cells.get("lead_weeks", 0)
    is_number = isinstance(lead_weeks, int | float)
    is_usable = isinstance(earliest, datetime.date) and is_number
    latest = row.cells.get("latest")
    if not isinstance(latest, datetime.date | None):
        message = f"must be a date, YYYY-MM-DD, not {latest!r}"
        raise ScenarioError(row.problem(message, path="latest"))
    if not is_usable or not 0 <= lead_weeks <= 520:
        return []  # reported where the cluster itself is checked
    useful_until = add_months(start, _HORIZON_MONTHS - MONTHS_BETWEEN_ORDERS)
    lead = datetime.timedelta(weeks=float(lead_weeks))
    end = useful_until - lead
    latest = latest or end
    if latest < earliest:
        message = f"must not be before the earliest, {earliest}; it is {latest}"
        raise ScenarioError(row.problem(message, path="latest"))
    offsets = range(0, _HORIZON_MONTHS, MONTHS_BETWEEN_ORDERS)
    dates = [add_months(earliest, months) for months in offsets]
    latest_useful = min(latest, end)
    return [day for day in dates if day <= latest_useful] or [earliest]


def starter_text(
    name: str, start: datetime.date = _USUAL_START, workloads: str = "", clusters: str = ""
) -> str:
    """Return the starter scenario under a name, with the given sections for workloads and clusters.

    Raise ScenarioError when the name will not do.
    """
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        # One problem of the name is enough to choose another.
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ScenarioError(
            Problem(path="name", message=f"{name!r} will not do as a name: {message}")
        ) from None
    template = Path(__file__).with_name("starter.yaml.j2")
    source = template.read_text(encoding="utf-8")
    # A name such as 2026 or null needs its quotes.
    is_text = isinstance(parse_scalar(name), str)
    text: str = Template(source, trim_blocks=True, keep_trailing_newline=True).render(
        name=name if is_text else f'"{name}"',
        start=start,
        later=add_months(start, 12),
        workloads=workloads,
        clusters=clusters,
    )
    return text
