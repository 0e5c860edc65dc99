"""The money of a compiled plan, worked out by hand: books, energy, upkeep, prices of tokens, and rent."""

from __future__ import annotations

import calendar
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from tests.plan.oracle_machines import YEAR_H, Doc, Machines, facts, goes_back, of

RESALE_AGES = (12, 24, 36, 48, 60)
PARTS = ("accelerators", "hosts", "network", "storage")
WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SUPPORT_USD = {"none": 0.0, "standard": 300.0, "premium": 900.0}


def coordinate(day: date) -> float:
    """Return a day in months: whole months, and the share of its own that is over."""
    _, days = calendar.monthrange(day.year, day.month)
    return day.year * 12 + day.month + (day.day - 1) / days


def months_later(day: date, months: int) -> date:
    """Return the same day of a later month."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return day.replace(year=year, month=month + 1)


class Money(Machines):
    """One scenario's prices, rates and contracts."""

    def finance(self, key: str, default: Any) -> Any:
        return of(self.doc, f"finance.{key}", default)

    def month_offsets(self) -> Any:
        """Return the edges of the months, in months from the start."""
        return np.array([coordinate(day) - coordinate(self.start) for day in self.edges])

    def yearly(self, change: float) -> Any:
        """Return the factor of a price that moves evenly, at the first of each month."""
        return (1 + change) ** (self.month_offsets()[:-1] / 12)

    def mean_price(self, change: float) -> Any:
        """Return the mean over each month of a price that moves evenly, by Simpson's rule."""
        edges = self.month_offsets()
        middles = (edges[:-1] + edges[1:]) / 2
        first, middle, last = ((1 + change) ** (t / 12) for t in (edges[:-1], middles, edges[1:]))
        return (first + 4 * middle + last) / 6

    def stepped(self, change: float) -> Any:
        """Return the factor of a price that moves on the anniversary."""
        return (1 + change) ** np.floor(self.month_offsets()[:-1] / 12 + 1e-9)

    def money(self) -> Doc:
        return {
            "capital": self.capital(),
            "power": self.energy(),
            "upkeep": self.upkeep(),
            "market": self.market(),
        }

    # Machines in the books

    def capital(self) -> Doc:
        loan = self.finance("loan", None)
        rate = self.finance("discount_rate_per_year", 0.1)
        is_real = self.finance("discount_rate_basis", "") == "real"
        inflation = self.finance("inflation_per_year", 0.0) if is_real else 0.0
        is_declining = self.finance("depreciation_method", "") == "declining-balance"
        lives = [self.book_life(cluster) for cluster in self.clusters.values()]
        return {
            "depreciation_months": [months for months, _ in lives],
            "declining_factor": self.finance("declining_balance_ratio", 2.0) * is_declining,
            "residual_fraction": [residual for _, residual in lives],
            "components": {
                index: self.components(cluster)
                for index, cluster in enumerate(self.clusters.values())
                if "components" in cluster
            },
            "resale": [self.resale(name) for name in self.names],
            "end_value": self.finance("end_value", "market"),
            "discount_rate_per_year": (1 + rate) * (1 + inflation) - 1,
            "timing": self.finance("cash_flow_timing", "mid_month"),
            "fiscal_year_start_month": self.finance("fiscal_year_start_month", 1),
            "opening_cash_usd": self.finance("opening_cash_usd", 0.0),
            "books": self.finance("books", "us-gaap"),
            "borrowing_rate_per_year": self.finance(
                "borrowing_rate_per_year", loan["rate_per_year"] if loan else rate
            ),
            "receivable_days": self.finance("receivable_days", 0.0),
            "payable_days": self.finance("payable_days", 0.0),
            "property_tax_fraction_per_year": self.finance("property_tax_fraction_per_year", 0.0),
            "loan": loan
            and {
                "share_fraction": loan["share_of_purchases_fraction"],
                "rate_per_year": loan["rate_per_year"],
                "term_months": loan["term_months"],
                "grace_months": loan["grace_months"],
                "amortisation": loan["amortisation"],
                "fee_fraction": loan["fee_fraction"],
                "least_cover_ratio": loan["least_cover_ratio"],
                "balloon_fraction": loan.get("balloon_fraction", 0.0),
                "ltv_cap_fraction": loan.get("ltv_cap_fraction"),
                "auction_fraction": loan.get("auction_fraction", 0.65),
                "undrawn_fee_per_year": loan.get("undrawn_fee_per_year", 0.0),
            },
        }

    def book_life(self, cluster: Doc) -> tuple[int, float | None]:
        """Return the months of a cluster's book life, and the residual; what goes back has none."""
        if goes_back(cluster):
            return cluster["contract"]["term_months"], 0.0
        months = self.finance("depreciation_months", 36)
        residual = self.finance("residual_fraction", 0.2)
        if self.finance("residual_basis", "stated") == "vendor-prior":
            residual = None  # what the resale curve gives
        return (
            cluster.get("depreciation_months", months),
            cluster.get("residual_fraction", residual),
        )

    def components(self, cluster: Doc) -> list[tuple[int, float | None]]:
        months, residual = self.book_life(cluster)
        parts = [cluster["components"].get(part, {}) for part in PARTS]
        return [
            (part.get("depreciation_months", months), part.get("residual_fraction", residual))
            for part in parts
        ]

    def resale(self, name: str) -> Doc:
        cluster = self.clusters[name]
        curve = {age: self.priors[f"resale_{age}m_{self.vendor(name)}"] for age in RESALE_AGES}
        points = cluster.get("resale_curve") or [
            {"age_months": age, "fraction_of_new": prior["base"]} for age, prior in curve.items()
        ]
        multiplier = self.finance("resale_multiplier", 1.0) * cluster.get("resale_multiplier", 1.0)
        multiplier *= 1 - self.finance("selling_cost_fraction", 0.0)
        return {
            "age_months": [point["age_months"] for point in points],
            "fractions": [point["fraction_of_new"] for point in points],
            "multiplier": 0.0 if goes_back(cluster) else multiplier,
        }

    # What runs

    def upkeep(self) -> Doc:
        def software(key: str, default: Any) -> Any:
            return of(self.doc, f"software.{key}", default)

        support_usd = SUPPORT_USD[software("support_contract", "standard")]
        kinds = [of(cluster, "contract.kind", "lease") for cluster in self.clusters.values()]
        # Whoever rents machines pays for no parts of them.
        accelerator_usd = np.array(
            [
                self.prices(name)[0][0] / 8 if kind.endswith("lease") else 0.0
                for name, kind in zip(self.names, kinds, strict=True)
            ]
        )
        inflation = self.finance("inflation_per_year", 0.0)
        return {
            "yearly_usd": {
                "maintenance": self.finance("operations_fraction_per_year", 0.05),
                "insurance": self.finance("insurance_fraction_per_year", 0.0),
                "software_engineers": software("engineer_usd_per_year", 280_000.0),
                "operations_staff": self.finance("operations_staff_usd_per_year", 150_000.0),
                "support_contracts": software("support_usd_per_accelerator_year", support_usd),
                "licences": self.finance("licence_usd_per_accelerator_year", 0.0),
            },
            "staff_per_accelerator": self.finance("operations_staff_per_1000_accelerators", 1.0)
            / 1000,
            "crew_usd_per_year": self.finance("repair_crew_usd_per_year", 0.0),
            "escalator_per_year": self.finance("people_escalator_per_year", inflation),
            "part_usd": accelerator_usd * self.finance("spare_part_price_fraction", 0.0),
            "rma_usd": self.finance("rma_usd_per_repair", 0.0),
            "replacement_usd": accelerator_usd * self.finance("replacement_price_fraction", 0.0),
            "warranty_h": self.finance("warranty_months", 36) * YEAR_H / 12,
        }

    def energy(self) -> Doc:
        site = of(self.doc, "site", {})
        tariff = facts("tariffs")[site.get("tariff", "us-average")]
        supply = site.get("electricity", {})
        inflation = self.finance("inflation_per_year", 0.0)
        rise = supply.get("escalator_per_year", inflation)
        flat_usd = site.get("electricity_usd_per_kwh", tariff["energy_usd_per_kwh"])
        stated = supply.get("windows", [])
        windows = [
            {
                "name": window["name"],
                "price_usd_per_kwh": window["usd_per_kwh"],
                "months": set(window.get("months", range(1, 13))),
                "weekdays": {WEEK.index(day) for day in window.get("weekdays", WEEK)},
                "start_hour": window.get("start_hour", 0),
                "end_hour": window.get("end_hour", 24),
            }
            for window in stated or [{"name": "flat", "usd_per_kwh": flat_usd}]
        ]
        zone = ZoneInfo(supply.get("timezone") or tariff.get("timezone") or "UTC")
        carbon_usd = self.finance("carbon_usd_per_tonne", 0.0)
        carbon_rise = self.finance("carbon_change_per_year", inflation)
        embodied_kg = [
            cluster.get(
                "embodied_kg_per_node",
                self.parts[cluster["accelerator"]].get("embodied_kg_per_node", math.nan),
            )
            for cluster in self.clusters.values()
        ]
        return {
            "tariff": {
                "windows": windows,
                "escalator_per_year": rise,
                "demand_charge_usd_per_kw_month": supply.get("demand_charge_usd_per_kw_month", 0.0),
                "demand_ratchet_fraction": supply.get("demand_ratchet_fraction", 0.0),
                "least_billed_kw": supply.get("contracted_kw", 0.0)
                * supply.get("minimum_take_fraction", 0.85),
            },
            "monthly_usd_per_kwh": flat_usd * self.stepped(rise),
            "hourly_usd_per_kwh": self.hourly_usd(windows, rise, zone) if stated else None,
            "colocation_usd_per_kw_month": site.get("colocation_usd_per_kw_month", 180.0),
            "colocation_term_months": site.get("colocation_term_months", 1),
            "colocation_escalator_per_year": site.get("colocation_escalator_per_year", inflation),
            "grid_carbon_g_per_kwh": site.get(
                "grid_carbon_g_per_kwh", tariff["grid_carbon_g_per_kwh"]
            ),
            "carbon_usd_per_tonne": carbon_usd * self.stepped(carbon_rise),
            "embodied_kg": np.array(embodied_kg),
            "service_life_months": self.finance("service_life_months", 60),
        }

    def hourly_usd(self, windows: list[Doc], rise: float, zone: ZoneInfo) -> Any:
        """Return the price of each hour: of the window in which its local time lies, in its year."""
        midnight = datetime.combine(self.start, datetime.min.time(), UTC)
        month_of_hour = np.searchsorted(self.edge_h, np.arange(self.hours), side="right") - 1
        factors = self.stepped(rise)[month_of_hour]
        prices = np.zeros(self.hours)
        for hour in range(self.hours):
            local = (midnight + timedelta(hours=hour)).astimezone(zone)
            for window in windows:
                begin = window["start_hour"]
                # From the window's first hour; a window past midnight is as long as it wraps.
                length = (window["end_hour"] - begin - 1) % 24 + 1
                is_hour = (local.hour - begin) % 24 < length
                is_day = local.month in window["months"] and local.weekday() in window["weekdays"]
                if is_hour and is_day:
                    prices[hour] = window["price_usd_per_kwh"] * factors[hour]
        return prices

    # What is sold and what is rented

    def market(self) -> Doc:
        tax = self.finance("tax", None)
        token_prices = [load.get("token_price") for load in self.workloads.values()]
        api_prices = [self.finance("api_price", None)] * len(self.loads)
        return {
            "token_price": self.token_prices(token_prices),
            "is_listed": np.array([self.is_listed(price) for price in token_prices]),
            "is_api_listed": self.is_listed(api_prices[0]),
            "price_change_per_year": self.finance("token_price_change_per_year", 0.0),
            "api_price": self.token_prices(api_prices),
            "burst": self.burst(self.finance("burst_rental", None)),
            "sla_objective_fraction": self.finance("sla_objective_fraction", 0.99),
            "sla_credit_usd_per_million_tokens": self.finance(
                "sla_credit_usd_per_million_tokens", 0.0
            ),
            "tax": tax
            and {
                "rate_fraction": tax["rate_fraction"],
                "bonus_fraction": tax["bonus_fraction"],
                "losses": tax["losses"].replace("-", "_"),
                "future_profit": tax.get("future_profit", "uncertain"),
            },
        }

    @staticmethod
    def is_listed(price: Any) -> bool:
        return price == "api" or (price is not None and "change_per_year" not in price)

    def token_prices(self, prices: list[Any]) -> Any:
        """Return prices by month, workload and kind of token; what is not stated is the model's list price."""
        if not any(prices):
            return None
        table = np.zeros((len(self.edges) - 1, len(prices), 3))
        for w, price in enumerate(prices):
            if price is None:
                continue
            load = self.workloads[self.loads[w]]
            model = self.models[load["model"]]
            waits = (
                load.get("priority") == "deferrable" and load.get("completion_window_h", 24) >= 24
            )
            batch = 0.5 if waits else 1.0
            stated = {} if price == "api" else price
            prompt_usd, output_usd = (
                stated.get(key, batch * model.get(f"api_{key}", np.nan))
                for key in ("input_usd_per_million_tokens", "output_usd_per_million_tokens")
            )
            cached_usd = stated.get("cached_input_usd_per_million_tokens", 0.2 * prompt_usd)
            factors = self.mean_price(
                stated.get("change_per_year", self.finance("token_price_change_per_year", 0.0))
            )
            table[:, w] = np.outer(factors, [prompt_usd, cached_usd, output_usd])
        return table

    def burst(self, rental: Doc | None) -> Doc | None:
        if rental is None:
            return None
        with np.errstate(divide="ignore"):
            request_h = 1 / (self.table() / 8).max(axis=0)
        return {
            "most_accelerators": rental["most_accelerators"],
            "accelerators_per_instance": rental["accelerators_per_instance"],
            "hourly": {
                "accelerator": "H200",
                "usd_per_accelerator_h": rental["usd_per_accelerator_h"] * self.yearly(0.0),
                "startup_h": rental["startup_h"],
                "hold_h": max(rental.get("hold_h", 24), rental["minimum_h"]),
                "available_fraction": 0.21,
                "gap_days": rental["gap_days"],
            },
            "accelerator_h_per_request": request_h,
        }

    def cluster(self, name: str) -> Doc:
        contract = self.clusters[name].get("contract")
        is_rented = contract is not None and contract["kind"] != "finance-lease"
        return super().cluster(name) | {"rent": self.rent(name) if is_rented else None}

    def rent(self, name: str) -> Doc:
        contract = self.clusters[name]["contract"]
        kind = contract["kind"]
        terms = {
            "is_hosted": kind != "operating-lease",
            "is_lease": kind == "operating-lease" or contract.get("identified_machines", False),
            "interruptions_per_h": contract.get("interruptions_per_year", 0.0) / YEAR_H,
            "interruption_h": contract.get("interruption_h", 0.0),
            "together_fraction": 0.92 if kind == "spot" else 0.0,
        }
        if kind in ("spot", "on-demand"):
            return terms | self.rent_by_the_hour(name)
        return terms | self.rent_for_a_term(name)

    def rent_by_the_hour(self, name: str) -> Doc:
        contract = self.clusters[name]["contract"]
        part = self.clusters[name]["accelerator"]
        available_fraction = {"H100": 0.7, "H200": 0.21}.get(part)
        gap_days = {"H100": 1.5, "H200": 6.5}.get(part)
        usd = contract["usd_per_accelerator_h"] * self.mean_price(contract["change_per_year"])
        return {
            "usd_per_accelerator_h": usd,
            "hourly": {
                "accelerator": part,
                "usd_per_accelerator_h": usd,
                "startup_h": 1.0 if part.startswith("MI") else 0.5,
                "hold_h": contract.get("hold_h", 24),
                "available_fraction": contract.get("available_fraction", available_fraction),
                "gap_days": contract.get("gap_days", gap_days),
            },
            "warm_nodes": contract.get("warm_nodes", 0.0),
            "exit_usd_per_accelerator": 0.0,
            "bound_usd_per_accelerator": 0.0,
            "term_edge_h": [],
            "term_usd_per_h": [],
        }

    def rent_for_a_term(self, name: str) -> Doc:
        """Return rent at the price of the day on which the term that runs was signed."""
        cluster = self.clusters[name]
        contract = cluster["contract"]
        signed = of(cluster, "online", self.start)
        days = [months_later(signed, n * contract["term_months"]) for n in range(40)]
        edge_h = np.array([self.hour(day) for day in days])
        usd = contract["usd_per_accelerator_h"] * (1 + contract["change_per_year"]) ** (
            edge_h / YEAR_H
        )
        term = np.searchsorted(edge_h, np.arange(self.hours), side="right") - 1
        hourly_usd = usd[np.maximum(term, 0)]
        months = [
            hourly_usd[begin:end][term[begin:end] >= 0]
            for begin, end in zip(self.edge_h[:-1], self.edge_h[1:], strict=True)
        ]
        # Owed for the term that runs on the day the machines leave, or on the last day.
        is_retired = bool(cluster.get("retire"))
        leaves_h = self.hour(cluster["retire"]) if is_retired else self.hours
        running = int(np.searchsorted(edge_h, leaves_h, side="right"))
        owed_usd = (edge_h[running] - leaves_h) * usd[running - 1]
        exit_fee_fraction = contract.get("exit_fee_fraction", 1.0)
        last = int(np.searchsorted(edge_h, max(leaves_h, self.hours), side="right"))
        return {
            "usd_per_accelerator_h": np.array(
                [month.mean() if month.size else 0.0 for month in months]
            ),
            "hourly": None,
            "warm_nodes": 0.0,
            "exit_usd_per_accelerator": owed_usd * exit_fee_fraction * is_retired,
            "bound_usd_per_accelerator": 0.0 if is_retired else owed_usd,
            "term_edge_h": edge_h[: last + 1],
            "term_usd_per_h": usd[:last],
        }
