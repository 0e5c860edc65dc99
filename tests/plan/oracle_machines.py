"""What machines sustain, cost and are asked for, by hand: the first half of :mod:`tests.plan.oracle`.

Nothing of ``planner.scenario`` or ``planner.plan.build`` is asked what a field is; the formulas are written here again,
as plainly as they go. Taken as given, since tests of their own hold them, are the arrays of ``planner.physics`` (the
price of a replica, its curve of late requests, the power of a node under a mix) and the operating point of a service.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import yaml
from scipy.stats import gamma

import planner.catalog
from planner.catalog.load import load_catalog, part_of, shape_of
from planner.physics.coefficients import Calibration, roofline_calibration
from planner.physics.power import BoardRating, NodeRating, ServingMix, build_node_power
from planner.physics.replica import (
    ReplicaSpec,
    ReplicaTimes,
    ServiceTerms,
    at_objective,
    price_replicas,
)
from planner.physics.slo_model import late_curve
from planner.plan.candidates import traffic_of
from planner.plan.choice import Service
from planner.plan.slo_capacity import lengths_of
from planner.scenario.scenario import Scenario
from tests.shipped import shipped_calibration

YEAR_H = 8766.0
ELSEWHERE = object()
"""Stands for a field that tests of its own hold whole."""
Doc = dict[str, Any]
Services = Mapping[tuple[str, str], Service]


@functools.cache
def facts(name: str) -> Doc:
    """Return a file of the catalogue as it is written, figures without their sources."""

    def bare(node: Any) -> Any:
        if isinstance(node, dict):
            return (
                node["value"]
                if "value" in node
                else {key: bare(part) for key, part in node.items()}
            )
        return node

    folder = Path(planner.catalog.__file__).parent
    return dict(bare(yaml.load((folder / f"{name}.yaml").read_bytes(), Loader=yaml.CSafeLoader)))


def of(doc: Doc, path: str, default: Any = None) -> Any:
    """Return what a document states at a dotted path, or what the language says it is otherwise."""
    node: Any = doc
    for key in path.split("."):
        if not isinstance(node, dict) or node.get(key) is None:
            return default
        node = node[key]
    return node


def three(fact: Doc, factor: float = 1.0) -> Doc:
    return {key: fact[key] * factor for key in ("low", "base", "high")}


def goes_back(cluster: Doc) -> bool:
    return bool(cluster.get("contract", {}).get("at_end") == "return")


_NO_MATTER_TO_ROUTING = (
    "nodes",
    "online",
    "order",
    "retire",
    "owned",
    "discount_fraction",
    "contract",
)
"""What two clusters may differ in and still be one pool to a router."""


class Machines:
    """One scenario's plan, by hand; ``scenario`` is only handed on to physics."""

    def __init__(self, doc: Doc, scenario: Scenario, services: Services) -> None:
        self.doc = doc
        self.scenario = scenario
        self.services = services
        self.start: date = doc["start"]
        self.parts, self.vendors = facts("accelerators"), facts("vendors")
        self.stacks, self.models, self.priors = facts("stacks"), facts("models"), facts("priors")
        self.clusters = doc["clusters"]
        self.workloads = doc["workloads"]
        self.names, self.loads = list(self.clusters), list(self.workloads)
        self.edges = self._edges()
        self.edge_h = np.array([self.hour(day) for day in self.edges])
        self.hours = self.edge_h[-1]
        self.middle = (self.edge_h[:-1] + self.edge_h[1:]) / 2 / YEAR_H
        self.rates = self._rates()
        self.powers = {name: self._power(name) for name in self.names}

    def hour(self, day: date) -> int:
        return (day - self.start).days * 24

    def _edges(self) -> list[date]:
        months = self.start.year * 12 + self.start.month - 1 + of(self.doc, "horizon_months", 36)
        end = date(months // 12, months % 12 + 1, self.start.day)
        days = [self.start + timedelta(days=n) for n in range((end - self.start).days)]
        return [day for n, day in enumerate(days) if n == 0 or day.day == 1] + [end]

    # What a node sustains

    def vendor(self, cluster: str) -> str:
        return str(self.parts[self.clusters[cluster]["accelerator"]]["vendor"])

    def stack(self, cluster: str) -> tuple[str, Doc]:
        engine = self.clusters[cluster][
            "engine"
        ]  # the oracle chooses no layout: every scenario of it states one
        return next(
            (name, entry)
            for name, entry in self.stacks.items()
            if (entry["vendor"], entry["engine"]) == (self.vendor(cluster), engine)
        )

    def precision(self, cluster: str, load: str) -> str:
        stated = of(self.clusters[cluster], "precision")
        allowed = of(self.workloads[load], "precisions", [])
        if not allowed or stated in allowed:
            return stated or "fp8"
        (only,) = allowed
        return str(only)

    def spec(self, cluster: str, load: str, precision: str = "") -> ReplicaSpec:
        stated = self.clusters[cluster]
        return ReplicaSpec(
            part=part_of(stated["accelerator"], load_catalog()),
            shape=shape_of(self.workloads[load]["model"], load_catalog()),
            precision=precision or self.precision(cluster, load),
            accelerators=stated["tensor_parallel"],
            engine=stated["engine"],
            chunk_tokens=stated["chunk_tokens"],
        )

    def mean_rate(
        self,
        spec: ReplicaSpec,
        load: str,
        calibration: Calibration | None = None,
        growth: float = 1.0,
    ) -> float:
        """Requests a second and accelerator by mean times."""
        slo = of(self.workloads[load], "slo", {})
        workload = self.scenario.workloads[load]
        replicas = price_replicas([spec], calibration or shipped_calibration())
        point = at_objective(
            replicas,
            np.zeros(1, dtype=int),
            traffic_of(workload, growth),
            slo.get("ttft_s", 2.0),
            slo.get("tpot_s", 0.1),
        )
        return float(np.nan_to_num(point.requests_per_s[0], posinf=0.0)) / spec.accelerators

    def slo_rate(
        self,
        cluster: str,
        load: str,
        speed: float,
        replicas: float,
        growth: float = 1.0,
        lengths: Any = None,
    ) -> float:
        """The same with the stated share of requests in time, by a router of so many replicas at most."""
        spec = self.spec(cluster, load)
        slo = of(self.workloads[load], "slo", {})
        replicas_of_a_node = 8 / spec.accelerators
        nodes = max(
            step
            for step in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
            if step <= self.clusters[cluster]["nodes"]
        )
        pool = {"cluster": nodes * replicas_of_a_node, "node": replicas_of_a_node, "replica": 1.0}
        percentile = slo.get("percentile", of(self.doc, "slo_target.attainment", 0.99))
        asked = ServiceTerms(
            ttft_s=slo.get("ttft_s", 2.0),
            tpot_s=slo.get("tpot_s", 0.1),
            percentile=percentile,
            pooled_replicas=min(64.0, replicas, pool[of(self.doc, "router_pool", "cluster")]),
        )
        cells = lengths or lengths_of(self.scenario.workloads[load], growth)
        curve = late_curve(
            ReplicaTimes(price_replicas([spec], shipped_calibration()), 0, speed, cells), asked
        )
        return curve.capacity_requests_per_s / spec.accelerators

    def maturity(self, cluster: str, load: str) -> tuple[float, float]:
        """The stack's speed on a kind of model, and the logarithm of what its image's date makes of it."""
        _, stack = self.stack(cluster)
        kind = self.models[self.workloads[load]["model"]]["architecture_class"]
        dated = 0.0
        image = of(self.clusters[cluster], "engine_date")
        if image and not of(self.clusters[cluster], "throughput_tokens_per_s_per_accelerator"):
            course = stack["maturity"][kind]
            age_h = (
                image - date(2026, 2, 22)
            ).days * 24  # when the shipped calibration was measured
            gap = math.log(1 + course["ceiling_gain_fraction"]["base"])
            dated = gap * (1 - math.exp(-age_h / (course["closing_months"]["base"] * YEAR_H / 12)))
        return float(stack[kind.replace("-", "_") + "_multiplier"]), max(dated, math.log(0.3))

    def claim(self, cluster: str, load: str, replicas: float) -> float | None:
        """The throughput stated over the formula's, at the lengths it was measured at."""
        stated = of(self.clusters[cluster], "throughput_tokens_per_s_per_accelerator")
        if stated is None:
            return None
        at = self.clusters[cluster]["throughput_measured_at"]
        tokens = self.workloads[load]["lengths"]
        cells = lengths_of(self.scenario.workloads[load])
        there = type(cells)(
            prompt_tokens=cells.prompt_tokens * at["input_tokens"] / tokens["input"]["mean"],
            output_tokens=cells.output_tokens * at["output_tokens"] / tokens["output"]["mean"],
            prompt_weights=cells.prompt_weights,
            output_weights=cells.output_weights,
            cached_fraction=cells.cached_fraction,
        )
        return float(
            stated
            / at["output_tokens"]
            / self.slo_rate(cluster, load, 1.0, replicas, lengths=there)
        )

    def _rates(self) -> dict[tuple[str, str], tuple[float, Any, float]]:
        """By cluster and workload: requests a second and node on day one, an hour by month, and speed."""
        rates = {}
        for cluster, load in self.services:
            speed, dated = self.maturity(cluster, load)
            replicas = math.inf  # the whole cluster's: smaller pools are deployments
            claim = self.claim(cluster, load, replicas)
            spec = self.spec(cluster, load)
            steps, times = (1.0, claim) if claim else (speed, 1.0)
            growth = 1 + of(self.workloads[load], "lengths.growth_per_year", 0.0)
            roof = self.mean_rate(spec, load, roofline_calibration()) / self.mean_rate(spec, load)
            more = of(self.clusters[cluster], "throughput_multiplier", 1.0) * min(
                math.exp(dated), max(roof / (claim or speed), 1.0)
            )
            years = range(1 if growth == 1 else of(self.doc, "horizon_months", 36) // 12 + 2)
            deferred = of(self.workloads[load], "priority") == "deferrable"
            by_year = [
                8
                * more
                * (
                    self.mean_rate(spec, load, growth=growth**year) * (claim or speed)
                    if deferred
                    else self.slo_rate(cluster, load, steps, replicas, growth**year) * times
                )
                for year in years
            ]
            monthly = 3600 * np.exp(np.interp(self.middle, list(years), np.log(by_year)))
            rates[cluster, load] = (by_year[0], monthly, (claim or speed) * more)
        return rates

    def table(self) -> Any:
        grows = any(of(load, "lengths.growth_per_year") for load in self.workloads.values())
        empty = np.zeros(len(self.middle))
        table = np.array(
            [[self.rates.get((c, w), (0, empty))[1] for w in self.loads] for c in self.names]
        )
        return table if grows else table[:, :, :1]

    def by_load(self) -> Doc:
        """Shares late and refused by load, under bursts of 500 kinds of minute and without; the most load."""
        ends = [
            service.lateness.loads for service in self.services.values() if service.lateness.refuses
        ]
        reach = 2 * math.ceil(max([2.0, *(loads[-1] for loads in ends)]) / 2)
        loads = np.linspace(0, reach, 128 * reach + 1)
        shape = (len(self.names), len(self.loads), loads.size)
        burst = np.zeros((2, *shape))
        calm = np.zeros((2, *shape))
        most = np.ones(shape[:2])
        alone = np.full(shape[:2], np.nan)
        by_rate = {}
        time = np.zeros((*shape[:2], 3))
        for (cluster, load), service in self.services.items():
            stated = self.workloads[load]
            place = (self.names.index(cluster), self.loads.index(load))
            time[place] = service.token_time
            if of(stated, "priority") == "deferrable":
                continue
            most[place] = service.lateness.loads[-1] if service.lateness.refuses else 2.0
            upto = np.minimum(loads, 2 * math.ceil(max(most[place], 2.0) / 2))
            lowest = 6.0
            if "burst_index_of_dispersion" in stated:
                lowest = min(lowest, stated["requests_per_s"])
            burst[(slice(2), *place)] = self.under_bursts(
                service, stated, max(stated["requests_per_s"], lowest), upto
            )
            calm[(slice(2), *place)] = service.lateness.at(upto)
            alone[place] = service.lateness.alone_s
            hourly = self.demand()["expected_requests_per_s"][place[1]]
            hourly = hourly[hourly > 0]
            # Nothing later than day one decides whether tables by rate are worth it.
            slack = max(stated["requests_per_s"] / 4, lowest)
            added = sum(self.under_bursts(service, stated, slack, upto) - calm[(slice(2), *place)])
            filled = (
                128 if of(self.doc, "routing") == "proportional" else 109
            )  # of capacity, or 85% of it
            if (
                of(stated, "burst_scaling", "pooled") == "pooled"
                and added[: filled + 1].max() >= 1e-4
            ):
                powers = range(
                    math.floor(math.log2(max(hourly.min(), lowest))),
                    math.ceil(math.log2(max(hourly.max(), lowest))) + 1,
                )
                tables = np.stack(
                    [self.under_bursts(service, stated, 2.0**power, upto) for power in powers],
                    axis=1,
                )
                by_rate[place] = {
                    "first_requests": 3600 * 2.0 ** powers[0],
                    "least_requests": 3600 * lowest,
                    "added": tables - calm[(slice(2), *place)][:, None],
                    "calm_cells": ELSEWHERE,  # test_load_tables
                    "even_cells": ELSEWHERE,
                    "_steps": ELSEWHERE,  # test_burst_tables
                }
        return {
            "late_tables": burst[0],
            "refused_tables": burst[1],
            "no_burst_tables": calm,
            "burst_tables": by_rate,
            "most_loads": most,
            "alone_s": alone,
            "caches": {},
            "token_time": time,
        }

    def under_bursts(self, service: Service, stated: Doc, rate: float, loads: Any) -> Any:
        """Shares late and refused under 500 kinds of minute, whose counts vary as stated at a rate."""
        variance = (of(stated, "burst_index_of_dispersion", 12.0) - 1) / (60 * rate)
        minutes = gamma.ppf((np.arange(500) + 0.5) / 500, 1 / variance, scale=variance)
        return np.array(
            [
                (share * minutes).mean(axis=1)
                for share in service.lateness.at(loads[:, None] * minutes)
            ]
        )

    # Clusters

    def _power(self, cluster: str) -> Any:
        """A node's power under the mean mix of its workloads, each by the node-hours it takes."""
        part = self.parts[self.clusters[cluster]["accelerator"]]
        own = [
            (self.workloads[w]["requests_per_s"] / self.rates[c, w][0], self.services[c, w])
            for c, w in self.services
            if c == cluster
        ]

        def mean(name: str) -> float:
            return float(
                sum(need * getattr(service, name) for need, service in own)
                / sum(need for need, _ in own)
            )

        batch = max(mean("batch"), 1.0)
        prefill = mean("prefill_fraction")
        single = mean("single_tpot_s")
        full = mean("tpot_s") * (1 - prefill)
        further = max(batch - 1, 1.0)
        slope = max(full - single, 0.0) / further
        stream = max(mean("stream_s") - mean("single_stream_s"), 0.0) / further
        mix = ServingMix(
            batch=batch,
            stream_fixed_s=max(mean("single_stream_s") - stream, 0.0),
            stream_per_sequence_s=stream,
            compute_per_sequence_s=mean("compute_s_per_token"),
            step_per_sequence_s=slope,
            step_fixed_s=max(min(single, full) - slope, 1e-6),
            prefill_time_fraction=prefill,
            prefill_compute_fraction=mean("prefill_compute_fraction"),
        )
        board = BoardRating(tdp_w=part["tdp_w"], idle_w=part["idle_w"])
        return build_node_power(NodeRating(board=board, boards=8, host_idle_w=1800.0), mix)

    def quote(self, name: str, price: float, offer: Doc) -> Doc:
        tiers = [
            {
                "minimum_units": tier["from_accelerators"],
                "discount_fraction": tier["discount_fraction"],
            }
            for tier in offer.get("volume_discounts", [])
        ]
        return {
            "name": name,
            "list_price_usd": price,
            "tiers": tiers,
            "valid_from": offer.get("valid_from"),
            "valid_until": offer.get("valid_until"),
            "tier_rule": offer.get("volume_rule", "whole-order"),
        }

    def prices(self, cluster: str) -> tuple[list[float], Doc]:
        """What a node costs in the first order, and the book of later ones."""
        stated = self.clusters[cluster]
        part = self.parts[self.clusters[cluster]["accelerator"]]
        each = of(stated, "accelerator_price_usd", part.get("accelerator_price_usd")) * (
            1 - of(stated, "discount_fraction", 0.0)
        )
        book: Doc = {
            "start": self.start,
            "list_price": self.quote(
                "list price", each, {k: v for k, v in stated.items() if k == "volume_discounts"}
            ),
            "quotes": [
                self.quote(q["name"], q["accelerator_price_usd"], q)
                for q in stated.get("quotes", [])
            ],
        }
        ordered = (
            of(stated, "order.placed")
            or of(stated, "owned.bought")
            or of(stated, "online", self.start)
        )
        holding = [
            q
            for q in book["quotes"]
            if (q["valid_from"] or ordered) <= ordered <= (q["valid_until"] or ordered)
        ]
        offer = (holding or [book["list_price"]])[-1]
        units = stated["nodes"] * 8
        price = offer["list_price_usd"]
        for tier in offer["tiers"]:
            if units >= tier["minimum_units"]:
                price = offer["list_price_usd"] * (1 - tier["discount_fraction"])
        around = [
            8 * part[f"{what}_usd_per_accelerator"] for what in ("host", "network", "storage")
        ]
        around[0] = of(stated, "host_usd_per_node", around[0])
        return [round(price * units, 2) / units * 8, *around], book

    def cluster(self, name: str) -> Doc:
        stated = self.clusters[name]
        vendor = self.vendor(name)
        part = self.parts[stated["accelerator"]]
        maker = self.vendors[vendor]
        contract, order, owned = (stated.get(key) for key in ("contract", "order", "owned"))
        new, book = self.prices(name)
        leased = contract and contract["kind"].endswith("lease")
        prices = new if not contract or contract["kind"] == "finance-lease" else [0.0] * 4
        online = of(stated, "online", self.start)
        retire = stated.get("retire")
        if goes_back(
            stated
        ):  # owed is what the payments are worth: all but the value the lessor counts on
            paid = (
                1
                - contract["buy_out_fraction"]
                / (1 + contract["rate_per_year"] / 12) ** contract["term_months"]
            )
            prices = [price * paid for price in new]
            month = online.month - 1 + contract["term_months"]
            retire = online.replace(year=online.year + month // 12, month=month % 12 + 1)
        return {
            "name": name,
            "accelerator": stated["accelerator"],
            "vendor": vendor,
            "nodes": stated["nodes"],
            "accelerators_per_node": 8,
            "group_accelerators": 8
            if maker["lost_with_accelerator"] == "node"
            else stated["tensor_parallel"],
            "online_h": None if order else self.hour(online),
            "order": order
            and {
                "placed_h": self.hour(order["placed"]),
                "lead_h": order["lead_weeks"] * 168,
                "slip_h": {k: order["slip_weeks"][k] * 168 for k in ("low", "base", "high")},
                "deliveries": order["deliveries"],
                "interval_h": order["delivery_interval_weeks"] * 168,
                "acceptance_failure_fraction": order["acceptance_failure_fraction"],
                "payments": [
                    {
                        "fraction": p["fraction"],
                        "from_order": p["when"] == "order",
                        "after_h": p["weeks"] * 168,
                    }
                    for p in order.get("payments", [])
                ],
            },
            "retire_h": self.hour(retire) if retire else math.inf,
            "failure_multiplier": of(
                self.doc,
                f"reliability.vendor_failure_multiplier.{vendor}",
                maker["failure_multiplier"],
            ),
            "node_power": self.powers[name],
            "nameplate_kw": part["node_max_kw"],
            "prices_usd": prices,
            "owned": owned
            and {
                "bought_h": self.hour(owned["bought"]),
                "prices_usd": [
                    price / sum(prices) * owned["cost_usd"] / stated["nodes"] for price in prices
                ],
                "book_value_usd": owned["book_value_usd"] / stated["nodes"],
                "remaining_months": owned["remaining_months"],
            },
            "api": None,
            "rent": None,  # what is rented: oracle_money
            "lease": (contract and contract["kind"] == "finance-lease" and self.lease(name))
            or None,
            "leased_prices_usd": new if leased else None,
            "price_book": book if any(prices) else None,
        }

    def lease(self, name: str) -> Doc:
        terms = self.clusters[name]["contract"]
        kept = {
            key: terms[key]
            for key in ("rate_per_year", "term_months", "buy_out_fraction", "exit_fee_fraction")
        }
        return kept | {"is_bought": terms["at_end"] == "buy"}

    # Workloads and demand

    def order_of(self, load: str) -> list[int]:
        able = [c for c in self.names if (c, load) in self.services]

        def rent(c: str) -> float:
            contract = self.clusters[c].get("contract") or {}
            by_the_hour = contract.get("kind") in ("on-demand", "spot")
            return (
                contract["usd_per_accelerator_h"] / self.rates[c, load][0] if by_the_hour else 0.0
            )

        able.sort(key=lambda c: (rent(c), self.powers[c].full_kw / self.rates[c, load][0], c))
        if of(self.doc, "routing", "cheapest-marginal") == "preference":
            wanted = self.workloads[load].get("cluster_preference", [])
            able.sort(key=lambda c: wanted.index(c) if c in wanted else len(wanted))
        return [self.names.index(c) for c in able]

    def tiers_of(self, load: str) -> list[list[int]]:
        tiers: dict[str, list[int]] = {}
        for index in self.order_of(load):
            name = self.names[index]
            kind = {
                key: stated
                for key, stated in self.clusters[name].items()
                if key not in _NO_MATTER_TO_ROUTING
            }
            contract = self.clusters[name].get("contract") or {}
            if contract.get("kind") in ("on-demand", "spot"):
                kind["rent"] = contract["usd_per_accelerator_h"]
            asked = self.workloads[load].get("cluster_preference", [])
            if self.doc.get("routing") == "preference" and name in asked:
                kind["rank"] = asked.index(name)
            tiers.setdefault(repr(sorted(kind.items())), []).append(index)
        return list(tiers.values())

    def is_held_back(self, index: int, load: str) -> bool:
        cluster = self.names[index]
        is_ranked = cluster in self.workloads[load].get("cluster_preference", [])
        is_rented = of(self.clusters[cluster], "contract.kind", "") in ("on-demand", "spot")
        return bool(is_rented and not (is_ranked and self.doc.get("routing") == "preference"))

    def workload(self, name: str) -> Doc:
        stated = self.workloads[name]
        growth = (1 + of(stated, "lengths.growth_per_year", 0.0)) ** self.middle
        priority = of(stated, "priority", "interactive")
        return {
            "name": name,
            "model": stated["model"],
            "input_tokens": stated["lengths"]["input"]["mean"] * growth,
            "output_tokens": stated["lengths"]["output"]["mean"] * growth,
            "priority": ["interactive", "standard", "deferrable"].index(priority),
            "deadline_h": of(stated, "completion_window_h", 24) if priority == "deferrable" else 0,
            "cluster_tiers": self.tiers_of(name),
            "rented_tiers": sum(self.is_held_back(tier[0], name) for tier in self.tiers_of(name)),
            "launch_h": self.hour(stated["model_launch"]) if stated.get("model_launch") else None,
            "cached_input_fraction": of(stated, "prefix_cache_hit_fraction", 0.0),
            "overdue_share": None,
            "begins_h": self.hour(stated["begins"]) if "begins" in stated else 0.0,
            "ends_h": self.hour(stated["ends"]) if "ends" in stated else math.inf,
            "is_wanted": stated["requests_per_s"] > 0,
        }

    def by_priority(self) -> list[int]:
        plans = [self.workload(name) for name in self.loads]

        def key(w: int) -> tuple[float, ...]:
            return (
                plans[w]["priority"],
                plans[w]["deadline_h"],
                sum(map(len, plans[w]["cluster_tiers"])),
                plans[w]["input_tokens"][0] + plans[w]["output_tokens"][0],
            )

        return sorted(range(len(plans)), key=key)

    def demand(self) -> Doc:
        expected = []
        for stated in self.workloads.values():
            profile = np.array(stated["load_profile"]["weekly_profile"])
            shape = stated["load_profile"]
            clock = [
                datetime.combine(self.start, datetime.min.time(), UTC) + timedelta(hours=h)
                for h in range(self.hours)
            ]
            local = [moment.astimezone(ZoneInfo(shape.get("timezone", "UTC"))) for moment in clock]
            mean = (
                stated["requests_per_s"]
                * profile[[at.weekday() * 24 + at.hour for at in local]]
                / profile.mean()
            )
            middle = np.arange(self.hours) + 0.5
            mean = mean * (1 + of(stated, "growth.per_year", 0.0)) ** (middle / YEAR_H)
            if season := shape.get("season"):
                days = np.array(
                    [(at.date() - date(self.start.year, 1, 1)).days + 1 for at in local]
                )
                wave = np.cos(2 * np.pi * (days - season["peak_day"]) / 365.25)
                mean = mean * (1 + season["amplitude_fraction"] * wave)
            for holiday in shape.get("holidays", []):
                mean = mean * [
                    holiday["multiplier"] if at.date() == holiday["date"] else 1.0 for at in local
                ]
            for spike in stated.get("spikes", []):
                decay_h = spike["decay_days"] * 24
                since = np.arange(self.hours) - self.hour(spike["date"])
                over_the_hour = decay_h * (
                    np.exp(-since / decay_h) - np.exp(-(since + 1) / decay_h)
                )
                mean = mean * np.where(
                    since >= 0, 1 + (spike["multiplier"] - 1) * over_the_hour, 1.0
                )
            mean[: self.hour(stated.get("model_launch") or self.start)] = 0.0
            expected.append(mean)
        noise = [
            {"sigma": of(w, "noise.sigma", 0.1), "correlation_h": of(w, "noise.correlation_h", 6.0)}
            for w in self.workloads.values()
        ]
        medians = np.exp([-0.5 * each["sigma"] ** 2 for each in noise])
        return {
            "names": self.loads,
            "streams": self.loads,
            "expected_requests_per_s": np.array(expected),
            "noise_base_requests_per_s": np.array(expected) * medians[:, None],
            "noises": noise,
            "tenants": [w.get("tenants", []) for w in self.workloads.values()],
        }
