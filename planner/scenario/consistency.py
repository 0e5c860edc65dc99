"""Consistency checks between the parts of a scenario, and against the catalogue."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping

from planner.catalog.entries import Accelerator
from planner.demand.shape import is_zone, zone_names
from planner.errors import Problem, ScenarioError, raise_all
from planner.finance.months import add_months
from planner.scenario.cluster import ON_SITE, Cluster, OnDemand, Spot
from planner.scenario.scenario import Rule, Scenario, Sizing
from planner.scenario.site import dated_quotes, standing_price, tariff_of, window_zone
from planner.scenario.workload import GrowthTable, Workload
from planner.units import HOURS_PER_YEAR, MONTHS_PER_YEAR
from planner.validation import choices, nearest
from planner.yaml_io import KeyPath

MOST_OWNED_MONTHS = 240
"""Twenty years: no server of that age serves, so an older purchase is a slip of the year."""
MOST_BYTES = 2e9
"""Memory that a run may take."""
_BY_VENDOR = (
    ("reliability", "vendor_failure_multiplier"),
    ("software", "engineers_per_800"),
    ("software", "vendor_incident_multiplier"),
    ("software", "rollback_impossible_fraction"),
    ("software", "vendor_software_speedup_multiplier"),
    ("software", "engineers"),
)
"""Fields that may be keyed by vendor."""
_OF_FORECASTS = {"target_fraction", "max_nodes_per_order", "forecast_months", "growth_per_year"}
"""Fields of an expansion rule that count only where it orders up to a forecast."""


def check_scenario(scenario: Scenario) -> None:
    """Raise one ScenarioError that lists every contradiction."""
    checks = _Checks(scenario)
    # First what would exhaust the machine, then section by section as a file states them.
    checks.memory()
    checks.attempt(("calibration",), scenario.load_calibration, as_one=True)
    for name, workload in scenario.workloads.items():
        checks.workload(("workloads", name), workload)
    for name, cluster in scenario.clusters.items():
        checks.cluster(name, cluster)
    checks.cluster_names()
    checks.slo_target()
    if scenario.sizing is not None:
        checks.sizing(scenario.sizing)
    checks.vendors()
    checks.reliability()
    checks.software_steps()
    checks.electricity()
    for name, cluster in scenario.clusters.items():
        discounts = functools.partial(standing_price, cluster, 0.0)
        quotes = functools.partial(dated_quotes, cluster)
        checks.attempt(("clusters", name, "volume_discounts"), discounts)
        checks.attempt(("clusters", name, "quotes"), quotes)
    # One error with all of them: a user corrects a file once.
    raise_all(checks.problems)


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
    figures = workloads * clusters + 8.0 * clusters + 3.0 * workloads
    return round(16.0 * hours * figures)


class _Checks:
    """Collects the contradictions of a scenario, section by section."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.catalog = scenario.load_catalog()
        self.end = add_months(scenario.start, scenario.horizon_months)
        self.problems: list[Problem] = []

    def report(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        """Add a problem with the value at a path."""
        problem = self.scenario.document.problem(path, message, hint)
        self.problems.append(problem)

    def is_known(
        self, path: KeyPath, kind: str, name: str | None, entries: Mapping[str, object]
    ) -> bool:
        """Return whether a name is stated and in the catalogue; report an unknown one."""
        if name is not None and name not in entries:
            hint = nearest(name, entries) or f"the catalogue has {choices(entries)}"
            self.report(path, f"unknown {kind} {name!r}", hint)
        return name in entries

    def attempt(self, path: KeyPath, build: Callable[[], object], *, as_one: bool = False) -> None:
        """Report at a path the problems that a function raises, one by one or as a single message."""
        try:
            build()
        except ScenarioError as error:
            problems = error.problems
            # A file has its own places: as one message they stay in its text.
            if as_one:
                problems = [Problem(message=str(error))]
            for problem in problems:
                self.report(path, problem.message, problem.hint)

    def time_zone(self, path: KeyPath, zone: str) -> None:
        """Report a time zone that nobody knows."""
        if not is_zone(zone):
            hint = nearest(zone, zone_names())
            self.report(path, f"unknown time zone {zone!r}", hint)

    def outside_horizon(self, day: datetime.date, earliest: datetime.date) -> str | None:
        """Return on which side of the horizon a day lies; None within it."""
        if earliest <= day < self.end:
            return None
        side = "before the start" if day < earliest else "after the end"
        return f"{day} is {side} of the horizon, {self.scenario.start} to {self.end}"

    def memory(self) -> None:
        """Check that a run fits into memory."""
        scenario = self.scenario
        size = expected_bytes(scenario)
        if size > MOST_BYTES:
            message = (
                f"{len(scenario.workloads)} workloads on {len(scenario.clusters)} clusters over "
                f"{scenario.horizon_months} months take about {size / 1e9:.1f} GB; "
                f"a run may take {MOST_BYTES / 1e9:g}"
            )
            hint = "shorten the horizon, or merge similar workloads and clusters"
            self.report(("horizon_months",), message, hint)

    def workload(self, path: KeyPath, workload: Workload) -> None:
        """Check a workload's precisions, model, lengths, growth table and time zone."""
        precisions = self.catalog.precisions
        for index, precision in enumerate(workload.precisions):
            place = (*path, "precisions", index)
            self.is_known(place, "precision", precision, precisions)
        models = self.catalog.models
        # The context of an unknown model is unknown too.
        if self.is_known((*path, "model"), "model", workload.model, models):
            self.lengths((*path, "lengths"), workload)
        self.model_changes(path, workload)
        if isinstance(workload.growth, GrowthTable):
            # Read here, once, so that a missing file is found with the rest.
            place = (*path, "growth", "file")
            read_file = self.scenario.document.file_at
            read_table = functools.partial(read_file, place, workload.growth.file)
            self.attempt(place, read_table, as_one=True)
        self.reuse(path, workload)
        zone = workload.load_profile.timezone
        self.time_zone((*path, "load_profile", "timezone"), zone)

    def model_changes(self, path: KeyPath, workload: Workload) -> None:
        """Check that a workload's models are known, in order, after its start, and hold its requests."""
        previous = max(
            self.scenario.start,
            workload.begins or self.scenario.start,
            workload.model_launch or self.scenario.start,
        )
        for index, change in enumerate(workload.models):
            place = (*path, "models", index)
            if change.begins <= previous:
                message = f"{change.begins} is not after {previous}, the day from which the previous model is served"
                hint = "list models by date; the workload's own model is served from the start"
                self.report((*place, "from"), message, hint)
            previous = change.begins
            name = f"{path[-1]}-{change.begins}"
            if name in self.scenario.workloads:
                message = f"would be planned as {name}, but another workload has that name"
                self.report((*place, "from"), message, "rename the other workload")
            if self.is_known((*place, "model"), "model", change.model, self.catalog.models):
                changed = workload.model_copy(update={"model": change.model})
                self.lengths((*place, "model"), changed)

    def reuse(self, path: KeyPath, workload: Workload) -> None:
        """Check that a workload states its reuse or its share in the cache, and that its sessions can be."""
        if workload.reuse is None:
            return
        if workload.prefix_cache_hit_fraction > 0.0:
            message = "the share in the cache is calculated from reuse: state only one of the two"
            hint = "leave out prefix_cache_hit_fraction; or leave out reuse, if the share was measured at this load"
            self.report((*path, "prefix_cache_hit_fraction"), message, hint)
        sessions = workload.reuse.sessions
        if sessions is None:
            return
        # The mean prompt is that of the middle turn.
        mean = workload.lengths.input.mean
        first = mean - sessions.growth_tokens * (sessions.turns - 1) / 2.0
        if first < max(sessions.shared_tokens, 1.0):
            message = (
                f"{sessions.turns} turns that grow by {sessions.growth_tokens:g} tokens around a mean prompt of "
                f"{mean:,.0f} begin with {first:,.0f} tokens, fewer than the {sessions.shared_tokens:,.0f} that "
                "sessions have in common"
            )
            hint = "state fewer turns, smaller growth_tokens, or a longer lengths.input.mean"
            self.report((*path, "reuse", "sessions"), message, hint)

    def lengths(self, path: KeyPath, workload: Workload) -> None:
        """Check that a workload's requests fit into its model's context."""
        model = self.catalog.models[workload.model]
        longest = model.max_context_tokens.value
        limit = f"the {longest:,} that {workload.model} accepts"
        sides = {"input": workload.lengths.input, "output": workload.lengths.output}
        for side, length in sides.items():
            for share, tokens in length.quantiles.items():
                if tokens > longest:
                    message = f"{tokens:,.0f} tokens exceed {limit}"
                    place = (*path, side, "quantiles", share)
                    self.report(place, message)
                    # Longer quantiles and the mean exceed it too, for the same reason.
                    return
        # Prompt and reply share the context, so that it is their sum that must fit.
        means = [length.within(longest).mean for length in sides.values()]
        mean = sum(means)
        if mean > longest:
            self.report(path, f"a mean request of {mean:,.0f} tokens exceeds {limit}")

    def cluster(self, name: str, cluster: Cluster) -> None:
        """Check a cluster's dates, its contract and its machines."""
        path: KeyPath = ("clusters", name)
        start = self.scenario.start
        outside = self.outside_horizon(cluster.online or start, start)
        if cluster.online is not None and outside:
            hint = None
            if cluster.online < start:
                hint = (
                    f"for machines that you already own, write owned: {{bought: {cluster.online}}}"
                )
            self.report((*path, "online"), outside, hint)
        if cluster.owned is not None:
            self.purchase_date((*path, "owned", "bought"), cluster.owned.bought)
        is_by_the_hour = isinstance(cluster.contract, OnDemand | Spot)
        is_for_a_term = cluster.contract is not None and not is_by_the_hour
        # The review would buy or return nodes whose number a contract fixes.
        is_reviewed = any(rule.cluster == name for rule in self.scenario.expansion.rules)
        if is_for_a_term and is_reviewed:
            message = "a review cannot change the number of machines under a term contract"
            hint = "let the review change another cluster: bought, on-demand or spot"
            self.report((*path, "contract"), message, hint)
        # An API has no machines to check.
        if cluster.is_api:
            return
        accelerators = self.catalog.accelerators
        place = (*path, "accelerator")
        if self.is_known(place, "accelerator", cluster.accelerator, accelerators):
            self.machines(path, cluster, accelerators[cluster.accelerator])

    def purchase_date(self, path: KeyPath, bought: datetime.date) -> None:
        """Check that owned machines were bought before the start, and not too long before."""
        start = self.scenario.start
        if bought >= start:
            hint = f"for machines bought later, write online: {bought}"
            self.report(path, f"{bought} is not before the start, {start}", hint)
        elif bought < add_months(start, -MOST_OWNED_MONTHS):
            years = MOST_OWNED_MONTHS // MONTHS_PER_YEAR
            self.report(path, f"{bought} is more than {years} years before the start")

    def machines(self, path: KeyPath, cluster: Cluster, part: Accelerator) -> None:
        """Check that a cluster's machines have an engine, a price, a resale value and its precision."""
        catalog = self.catalog
        vendor = part.vendor.value
        if cluster.engine != "auto":
            stack = functools.partial(catalog.stack, vendor, cluster.engine)
            self.attempt((*path, "engine"), stack, as_one=True)
            self.engine(path, cluster)
        has_resale = cluster.resale_curve or catalog.resale_priors(cluster.accelerator)
        if not has_resale:
            message = f"the catalogue has no resale values for servers of {vendor}"
            hint = (
                f"state resale_curve, or add priors such as resale_12m_{vendor} "
                "to your catalogue file"
            )
            self.report((*path, "resale_curve"), message, hint)
        # A provider's machines are rented: their price is nobody's here.
        is_on_site = isinstance(cluster.contract, ON_SITE)
        is_hosted = cluster.contract is not None and not is_on_site
        prices = (cluster.accelerator_price_usd, part.accelerator_price_usd)
        if prices == (None, None) and not is_hosted:
            message = (
                f"the {self.scenario.catalog.assumptions!r} catalogue has no price for {cluster.accelerator}; "
                "state accelerator_price_usd and price_source"
            )
            self.report(path, message)
        place = (*path, "precision")
        if self.is_known(place, "precision", cluster.precision, catalog.precisions):
            fallback = catalog.precisions[str(cluster.precision)].falls_back_for
            runs_anywhere = fallback is not None and fallback.value == "all"
            if cluster.precision not in part.dense_tflops and not runs_anywhere:
                message = f"{cluster.accelerator} has no {cluster.precision} arithmetic"
                self.report(place, message)
        # Of an order only the day it is placed is known here, not when it comes.
        first_day = cluster.online or self.scenario.start
        if cluster.retire is not None and cluster.retire <= first_day:
            message = f"{cluster.retire} is not after its first day, {first_day}"
            self.report((*path, "retire"), message)

    def engine(self, path: KeyPath, cluster: Cluster) -> None:
        """Report a stated engine that serves none of the workloads' models on a cluster's accelerator.

        One that serves some of them serves those; why others are refused is said where they are.
        """
        reasons = []
        for workload in self.scenario.workloads.values():
            if workload.model not in self.catalog.models:
                continue
            precisions: tuple[str, ...] = workload.precisions
            if cluster.precision in precisions or not precisions:
                precisions = (cluster.precision or self.catalog.precision_with("default"),)
            for precision in precisions:
                reason = self.catalog.support.refusal(
                    cluster.engine,
                    workload.model,
                    cluster.accelerator,
                    precision,
                    image_date=cluster.engine_date,
                )
                if reason is None:
                    return
                reasons.append(reason)
        if reasons:
            hint = "state another engine, leave it out, or add what you know to your catalogue file"
            self.report((*path, "engine"), "; ".join(dict.fromkeys(reasons)), hint)

    def cluster_names(self) -> None:
        """Check every place that names a cluster."""
        scenario = self.scenario
        for name, workload in scenario.workloads.items():
            path = ("workloads", name, "cluster_preference")
            for index, cluster in enumerate(workload.cluster_preference):
                self.cluster_name((*path, index), cluster)
            if workload.cluster_preference and scenario.routing != "preference":
                message = f"has no effect under routing: {scenario.routing}"
                self.report(path, message, "set routing: preference")
        for index, rule in enumerate(scenario.expansion.rules):
            self.rule(("expansion", "rules", index), rule)
        if scenario.sizing is not None:
            for cluster in scenario.sizing.clusters:
                self.cluster_name(("sizing", "clusters", cluster), cluster)
            for cluster in scenario.sizing.retire:
                self.cluster_name(("sizing", "retire", cluster), cluster)

    def cluster_name(self, path: KeyPath, name: str) -> None:
        """Report a name that no cluster has."""
        # A cluster that was left out because its own values are wrong is named all the same.
        content = self.scenario.document.content
        stated_clusters = content.get("clusters") or {}
        clusters = {**self.scenario.clusters, **stated_clusters}
        if name not in clusters:
            hint = nearest(name, clusters) or f"there are {choices(clusters)}"
            self.report(path, f"no cluster is called {name!r}", hint)

    def rule(self, path: KeyPath, rule: Rule) -> None:
        """Check the clusters of an expansion rule, and that its fields have an effect."""
        self.cluster_name((*path, "cluster"), rule.cluster)
        if rule.watch is not None:
            self.cluster_name((*path, "watch"), rule.watch)
            if not rule.when.startswith("utilisation"):
                message = (
                    f"has no effect: {rule.when} is measured for the fleet, not for one cluster"
                )
                self.report((*path, "watch"), message, "leave it out")
        if rule.forecasts:
            return
        # Only what the user wrote: defaults of these fields are there in every rule.
        stated_keys = _OF_FORECASTS & rule.model_fields_set
        for key in sorted(stated_keys):
            message = f"has no effect under when: {rule.when}"
            self.report((*path, key), message, "leave it out")

    def slo_target(self) -> None:
        """Check the workloads that have an SLO target of their own."""
        target = self.scenario.slo_target
        for name in target.workloads:
            path = ("slo_target", "workloads")
            if target.scope == "fleet":
                self.report(path, "has targets of single workloads, but the scope is the fleet")
            elif name not in self.scenario.workloads:
                hint = nearest(name, self.scenario.workloads)
                self.report((*path, name), "no workload has this name", hint)

    def sizing(self, sizing: Sizing) -> None:
        """Check that what may be sized has terms, and dates within the horizon and before retirement."""
        clusters = self.scenario.clusters
        may_rent = sizing.max_rented_accelerators is not None
        if may_rent and self.scenario.finance.burst_rental is None:
            hint = "state finance.burst_rental, with its price"
            self.report(("sizing", "max_rented_accelerators"), "needs terms for renting", hint)
        if isinstance(sizing.miss_cost_usd, dict):
            for name in sizing.miss_cost_usd:
                if name not in self.scenario.workloads:
                    path = ("sizing", "miss_cost_usd", name)
                    nearest_name = nearest(name, self.scenario.workloads)
                    self.report(path, "no workload has this name", nearest_name)
        # A name that no cluster has is reported with the other names.
        open_clusters = {name: clusters[name] for name in sizing.clusters if name in clusters}
        has_order = any(cluster.order for cluster in open_clusters.values())
        if sizing.orders == "reactive" and not has_order:
            hint = "give a cluster its order: {placed: <day>, lead_weeks: <weeks>}"
            message = "reactive needs a cluster with an order, which states its lead time"
            self.report(("sizing", "orders"), message, hint)
        self.sizing_windows(sizing, open_clusters)
        for name, cluster in open_clusters.items():
            path = ("sizing", "clusters", name)
            self.sizing_dates(path, cluster, sizing.clusters[name].dates)
        start = self.scenario.start
        for name, dates in sizing.retire.items():
            for index, date in enumerate(dates):
                # On the first day it would never have been there, on the last never be gone.
                if not start < date < self.end:
                    message = f"{date} is not within the horizon, {start} to {self.end}"
                    self.report(("sizing", "retire", name, index), message)

    def sizing_windows(self, sizing: Sizing, open_clusters: Mapping[str, Cluster]) -> None:
        """Check the days on which clusters without dates of their own may be bought or ordered."""
        are_bought = False
        for name, cluster in open_clusters.items():
            is_dated = bool(sizing.clusters[name].dates)
            if not is_dated and cluster.order is None:
                are_bought = True
        # An order may be placed before the start; what is bought comes online on the day.
        earliest = self.scenario.start if are_bought else datetime.date.min
        # Otherwise windows are a word, such as monthly, whose days lie in the horizon.
        days = sizing.windows if isinstance(sizing.windows, tuple) else ()
        for index, day in enumerate(days):
            if outside := self.outside_horizon(day, earliest):
                self.report(("sizing", "windows", index), outside)

    def sizing_dates(
        self, path: KeyPath, cluster: Cluster, dates: tuple[datetime.date, ...]
    ) -> None:
        """Check that what is bought or ordered on each date of a cluster comes in time to serve."""
        if cluster.owned is not None:
            hint = "add a cluster with nodes: 0 for machines that may be bought"
            self.report(path, "is already owned, so it cannot be bought", hint)
        # Without an order nodes come online on the date itself.
        lead_weeks = cluster.order.lead_weeks if cluster.order else 0.0
        lead = datetime.timedelta(weeks=lead_weeks)
        for index, date in enumerate(dates):
            place: KeyPath = (*path, "dates", index)
            outside = self.outside_horizon(date, self.scenario.start)
            late = f"an order placed on {date} arrives after the"
            arrival = date + lead
            if cluster.order is None and outside:
                self.report(place, outside)
            elif arrival >= self.end:
                self.report(place, f"{late} end of the horizon, {self.end}")
            elif cluster.retire is not None and arrival >= cluster.retire:
                self.report(place, f"{late} cluster retires, {cluster.retire}")

    def vendors(self) -> None:
        """Check the vendors for which a figure of failures or software is stated."""
        for section, key in _BY_VENDOR:
            figures = getattr(getattr(self.scenario, section), key)
            # One team for every stack is a number, not a mapping.
            if not isinstance(figures, dict):
                continue
            for vendor in figures:
                path = (section, key, vendor)
                self.is_known(path, "vendor", vendor, self.catalog.vendors)

    def reliability(self) -> None:
        """Check that the catalogue has the figures of failure domains and planned work that are left open."""
        priors = self.catalog.priors
        # A domain is known to the catalogue by its rate; the hint lists them.
        suffix = "_failure_rate"
        rates = [name for name in priors if name.endswith(suffix)]
        domains = [name.removesuffix(suffix) for name in rates]
        left_open = self.scenario.reliability.left_open()
        for (*section, key), prior in left_open.items():
            if prior not in priors:
                domain = str(section[-1])
                known_domains = f"the catalogue has figures for {choices(domains)}"
                hint = nearest(domain, domains) or known_domains
                message = f"states no {key}, and the catalogue has no figure for it"
                self.report(("reliability", *section), message, hint)

    def software_steps(self) -> None:
        """Check the scope and the date of each software step."""
        catalog = self.catalog
        start = self.scenario.start
        engines = {stack.engine.value: stack for stack in catalog.stacks.values()}
        for index, step in enumerate(self.scenario.software.steps):
            path: KeyPath = ("software", "steps", index)
            self.is_known((*path, "vendor"), "vendor", step.vendor, catalog.vendors)
            self.is_known((*path, "engine"), "engine", step.engine, engines)
            self.is_known((*path, "model"), "model", step.model, catalog.models)
            # The calibration has measured what was released before: it would count twice.
            if step.date < start:
                early = f"{step.date} lies before the first day, {start}"
                self.report((*path, "date"), f"{early}: the throughput already includes it")

    def electricity(self) -> None:
        """Check the site's tariff, its time zone and its price windows."""
        site = self.scenario.site
        tariffs = self.catalog.tariffs
        path = ("site", "electricity")
        if self.is_known(("site", "tariff"), "tariff", site.tariff, tariffs):
            zone = window_zone(site, tariffs[site.tariff])
            key = "timezone" if site.electricity.timezone is not None else "windows"
            if zone is not None:
                self.time_zone((*path, key), zone)
        if site.electricity.windows and site.electricity_usd_per_kwh is not None:
            message = "has no effect: electricity.windows price every hour"
            self.report(("site", "electricity_usd_per_kwh"), message)
        # What the finance package finds wrong is said at the place where the user wrote it.
        self.attempt((*path, "windows"), lambda: tariff_of(site, 0.0))
