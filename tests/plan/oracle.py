"""The compiled plan worked out a second time: from the raw YAML of a scenario and of the catalogue, by hand.

The formulas are written here again, as plainly as they go, and every default as a number. Taken as given, since tests
of their own hold them, are the arrays of ``planner.physics`` and the operating point of a service.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np

from planner.physics.coefficients import roofline_calibration
from planner.physics.model_on_part import memory_fit
from tests.plan.oracle_machines import ELSEWHERE, YEAR_H, Doc, facts, of, three
from tests.plan.oracle_money import Money


class Oracle(Money):
    """One scenario's plan: the site, people and software around its machines and their money."""

    # Site, reliability, software, expansion

    def site(self) -> Doc:
        pue = of(self.doc, "site.pue_ratio", 1.3)
        swing = of(self.doc, "site.pue_season_fraction", 0.1)
        day = self.start.timetuple().tm_yday + np.arange(self.hours) / 24
        elsewhere = {
            c
            for c in self.names
            if of(self.clusters[c], "contract.kind", "") in ("reserved", "on-demand", "spot")
        }
        drawn = np.zeros(self.hours)
        for c in (self.cluster(name) for name in self.names if name not in elsewhere):
            order = c["order"]
            last = min(c["retire_h"], self.hours)
            first = (
                order["placed_h"] + order["lead_h"] + order["slip_h"]["low"]
                if order
                else c["online_h"]
            )
            drawn[max(0, math.ceil(first)) : math.ceil(last)] += (
                c["nodes"] * c["node_power"].full_kw
            )
        full_kw = np.maximum.accumulate(drawn)
        limit = of(self.doc, "site.facility_power_cap_kw", math.inf)
        cap = np.full(self.hours, limit)
        base = np.full(self.hours, limit) if limit < math.inf else full_kw * pue
        for cut in of(self.doc, "site.curtailments", []):
            first = self.hour(cut["date"])
            length = round(cut.get("length_days", 1) * 24)
            for hour in range(first, first + length):
                if (hour - 16) % 24 < cut.get("hours_per_day", 24):
                    cap[hour] = min(cap[hour], base[hour] * (1 - cut["cut_fraction"]))
        blocks = sorted(
            (self.hour(b["date"]), b["it_kw"]) for b in of(self.doc, "site.power_blocks", [])
        )
        most = limit / (1 + (pue - 1) * (1 + swing))
        return {
            "cap_kw": cap if np.isfinite(cap).any() else None,
            "overhead_ratio": (pue - 1) * (1 + swing * np.cos(2 * np.pi * (day - 200) / 365.25)),
            "fixed_fraction": of(self.doc, "site.pue_fixed_fraction", 0.3),
            "most_it_kw": most,
            "rated_kw": np.minimum(full_kw, most),
            "block_h": np.array([max(0, hour) for hour, _ in blocks]),
            "block_kw": np.cumsum([kw for _, kw in blocks]),
            "outages_per_year": of(self.doc, "site.outages_per_year", 0.2),
            "outage_h": of(self.doc, "site.outage_h", 4.0),
            "commissioning_crews": of(self.doc, "site.commissioning_crews", 4),
            "commissioning_h": of(self.doc, "site.commissioning_h_per_node", 6.0),
        }

    def planned(self) -> Doc:
        """Work out failure domains, planned work and its reserve: a prior's base for what is left open."""
        priors = facts("priors")

        def figure(path: str, prior: str) -> float:
            found = of(self.doc, f"reliability.{path}", None)
            return float(priors[prior]["base"] if found is None else found)

        domains = of(self.doc, "reliability.failure_domains", {})
        upkeep, firmware = (
            of(self.doc, f"reliability.{key}", None) for key in ("maintenance", "firmware")
        )
        weeks = of(self.doc, "reliability.maintenance.every_weeks", 1.0)
        a_day = figure("maintenance.per_1000_node_days", "planned_interruption_rate") / 1000
        nodes = of(self.doc, "reliability.reserve_nodes", None)
        kept = (upkeep is not None or firmware is not None) and nodes is None
        return {
            "domains": [
                {
                    "name": name.replace("_", " "),
                    "nodes": int(figure(f"failure_domains.{name}.nodes", f"{name}_nodes")),
                    "per_year": figure(
                        f"failure_domains.{name}.failures_per_year", f"{name}_failure_rate"
                    ),
                    "repair_h": figure(f"failure_domains.{name}.repair_h", f"{name}_repair"),
                }
                for name in domains
            ],
            "maintenance": None
            if upkeep is None
            else {
                "every_h": weeks * 168,
                "length_h": figure("maintenance.length_h", "planned_interruption_length"),
                "nodes_fraction": a_day * weeks * 7,
            },
            "firmware": None
            if firmware is None
            else {
                "every_h": YEAR_H / figure("firmware.rollouts_per_year", "firmware_rollouts"),
                "length_h": figure("firmware.length_h", "firmware_update_length"),
                "nodes_fraction": 1.0,
            },
            "reserve_nodes": nodes or 1,
            "reserve_fraction": figure("reserve_fraction", "spare_pool")
            if kept
            else of(self.doc, "reliability.reserve_fraction", 0.0),
        }

    def reliability(self) -> Doc:
        def stated(key: str, default: Any) -> Any:
            return of(self.doc, f"reliability.{key}", default)

        causes = [
            {
                "name": name,
                "per_node_h": cause["per_1000_node_days"]
                / 24_000
                * stated("failure_multiplier", 1.0),
                "whole_node": cause["scope"] == "node",
                "soft_fraction": cause["soft_fraction"],
                "medium_fraction": cause["medium_fraction"],
            }
            for name, cause in facts("failures").items()
        ]
        if any(of(c, "contract.kind") == "spot" for c in self.clusters.values()):
            causes.append(
                {
                    "name": "spot interruption",
                    "per_node_h": 0.0,
                    "whole_node": True,
                    "soft_fraction": 1.0,
                    "medium_fraction": 0.0,
                }
            )
        spares = (
            heads(0, per_node=stated("spare_fraction", 0.0), minimum=1)
            if stated("spare_fraction", None)
            else heads(stated("spares", {"per_1000_accelerators": 6.25}), minimum=1)
        )
        return {
            "causes": causes,
            "lemon_fraction": stated("lemon_fraction", 0.012),
            "lemon_multiplier": stated("lemon_multiplier", 8.0),
            "early_life_multiplier": stated("early_life_multiplier", 2.0),
            "early_life_h": stated("early_life_months", 2.0) * YEAR_H / 12,
            "repair_h": [
                stated(f"{kind}_repair_h", hours)
                for kind, hours in (("soft", 2.2), ("medium", 12.0), ("hard", 60.0))
            ],
            "repair_cv": stated("repair_cv_ratio", 0.6),
            "rma_h": stated("rma_weeks", 4.0) * 168,
            "crews": heads(stated("repair_crews", {"per_1000_accelerators": 2.0}), minimum=1),
            "spares": spares,
            **self.planned(),
        }

    def software(self) -> Doc:
        def stated(key: str, default: Any) -> Any:
            return of(self.doc, f"software.{key}", default)

        vendors = sorted({self.vendor(c) for c in self.names})
        engineers = stated("engineers", {})
        if isinstance(engineers, dict):
            usual = {
                v: stated(f"engineers_per_800.{v}", self.vendors[v]["engineers_per_800"]) / 0.8
                for v in vendors
            }
            teams = [
                {
                    "name": v,
                    "clusters": [n for n, c in enumerate(self.names) if self.vendor(c) == v],
                    "engineers": heads(
                        engineers.get(v, {"per_1000_accelerators": usual[v], "rounding": "up"})
                    ),
                }
                for v in vendors
            ]
        else:
            teams = [
                {
                    "name": "all",
                    "clusters": list(range(len(self.names))),
                    "engineers": heads(engineers),
                }
            ]
        shape = (len(self.names), len(self.loads))
        wide = np.full(shape, np.nan)
        dated = np.zeros(shape)
        roof = np.zeros(shape)
        stacks = [["" for _ in self.loads] for _ in self.names]
        for c, cluster in enumerate(self.names):
            for w, load in enumerate(self.loads):
                if (cluster, load) not in self.services:
                    continue
                dated[c, w], stacks[c][w] = self.maturity(cluster, load)[1], self.stack(cluster)[0]
                spec = self.spec(cluster, load)
                rate = self.mean_rate(spec, load)
                wider = {"fp4": "fp8", "fp8": "bf16", "bf16": "bf16"}[spec.precision]
                held = memory_fit(
                    spec.part, spec.shape, wider, spec.accelerators, chunk_tokens=spec.chunk_tokens
                ).fits
                wide[c, w] = (
                    min(1.0, self.mean_rate(self.spec(cluster, load, wider), load) / rate)
                    if held
                    else 0.0
                )
                best = self.mean_rate(spec, load, roofline_calibration()) / rate
                roof[c, w] = max(0.0, math.log(best / self.rates[cluster, load][2]))
        measured = date(2026, 2, 22)
        return {
            "stacks": [
                self.stack_plan(name, teams)
                for name in sorted({self.stack(c)[0] for c in self.names})
            ],
            "teams": teams,
            "engineer_h": stated("fix_engineer_h", 40.0),
            "canary_fraction": stated("canary_fraction", 0.1),
            "bake_h": 0.0 if stated("canary_fraction", 0.1) == 1.0 else stated("bake_h", 2.0),
            "rollback_h": {"low": 0.5, "base": 3.0, "high": 12.0},
            "fix_time_multiplier": {"none": 1.5, "standard": 1.0, "premium": 0.6}[
                stated("support_contract", "standard")
            ],
            "architectures": [
                self.models[w["model"]]["architecture_class"] for w in self.workloads.values()
            ],
            "clock_h": [
                (self.start - measured).days * 24 if c.get("engine_date") else 0
                for c in self.clusters.values()
            ],
            "stack_of": stacks,
            "dated_log_gain": dated,
            "roofline_log_gain": roof,
            "wide_precision_factor": wide
            if stated("accuracy_regression_response", "roll-back") == "higher_precision"
            else wide * np.nan,
        }

    def stack_plan(self, name: str, teams: Sequence[Doc]) -> Doc:
        def stated(key: str, default: Any) -> Any:
            return of(self.doc, f"software.{key}", default)

        stack = self.stacks[name]
        kinds = facts("incidents")
        usual_days = {"latest": 30.0, "staged": 75.0, "pinned": 200.0}[
            stated("upgrade_policy", "staged")
        ]
        vendor = stack["vendor"]
        often = stated("incident_multiplier", 1.0) * stated(
            f"vendor_incident_multiplier.{vendor}", 1.0
        )
        gain = stated("software_speedup_multiplier", 1.0) * stated(
            f"vendor_software_speedup_multiplier.{vendor}", 1.0
        )
        hang = stated("hang_loss_fraction", 0.05)
        incidents = []
        for kind, told in kinds.items():
            own = stack["incidents"].get(kind, {})
            per_year, per_upgrade, loss, most = (
                own.get(key) or told.get(key)
                for key in ("per_year", "per_upgrade", "loss_fraction", "most_loss_fraction")
            )
            if not per_year and not per_upgrade:
                continue
            fix = own.get("fix_days") or told.get("fix_days") or stack["fix_days"]
            flat = hang if told["effect"] == "resets" else 0.0
            noticed = told.get("detection_h", {"low": 0.0, "base": 0.0, "high": 0.0})
            incidents.append(
                {
                    "kind": kind,
                    "per_year": per_year["base"] * often if per_year else 0.0,
                    "per_upgrade": per_upgrade["base"] * often if per_upgrade else 0.0,
                    "loss": three(loss) if loss else {"low": flat, "base": flat, "high": flat},
                    "most_loss": most or 0.0,
                    "detection_h": three(noticed),
                    "subtle_detection_h": three(told.get("subtle_detection_h", noticed)),
                    "subtle_fraction": told.get("subtle_fraction", 0.0),
                    "subtle_below": told.get("subtle_below_loss_fraction", 0.0),
                    "fix_days": three(fix),
                    "falsifies": told["effect"] == "falsifies",
                }
            )
        steps = [
            step
            for step in sorted(stated("steps", []), key=lambda step: step["date"])
            if step.get("vendor", vendor) == vendor
            and step.get("engine", stack["engine"]) == stack["engine"]
        ]
        cluster = next(n for n, c in enumerate(self.names) if self.stack(c)[0] == name)
        return {
            "name": name,
            "releases_per_year": stack["releases_per_year"]["base"],
            "upgrade_h": stated("upgrade_days", usual_days) * 24.0,
            "rollback_impossible_fraction": stated(
                f"rollback_impossible_fraction.{vendor}", {"amd": 0.2, "nvidia": 0.08}[vendor]
            ),
            "release_sigma": stack.get("release_spread_fraction", 0.0) * min(gain, 1.0),
            "maturity": {
                kind: {
                    "gain": three(course["ceiling_gain_fraction"], gain),
                    "months": three(course["closing_months"]),
                }
                for kind, course in stack["maturity"].items()
            },
            "steps": [
                {
                    "time_h": self.hour(s["date"]),
                    "model": s.get("model", ""),
                    "log_gain": math.log(1 + s["gain_fraction"]),
                }
                for s in steps
            ],
            "incidents": incidents,
            "bring_up_weeks": three(stack["bring_up_weeks"]),
            "bring_up_fraction": three(stack["bring_up_throughput_fraction"]),
            "new_model_incident_multiplier": stack.get("new_model_incident_multiplier", 1.0),
            "team": next(n for n, team in enumerate(teams) if cluster in team["clusters"]),
        }

    def expansion(self) -> Doc:
        stated = of(self.doc, "expansion", {})
        return {
            "rules": [
                {
                    "when": rule["when"],
                    "threshold": rule["threshold_fraction"],
                    "target": rule.get("target_fraction", rule["threshold_fraction"]),
                    "months": rule.get("months", 1),
                    "watched": self.names.index(rule.get("watch", rule["cluster"])),
                    "cluster": self.names.index(rule["cluster"]),
                    "nodes": rule["nodes"],
                    "max_nodes": rule.get("max_nodes", math.inf),
                    "max_nodes_per_order": rule.get("max_nodes_per_order", math.inf),
                    "windows": {"monthly": [*range(1, 16)], "quarterly": [3, 6, 9, 12, 15]}.get(
                        str(rule.get("windows", "monthly")), [1, 6, 7]
                    ),
                    "lead_h": rule["lead_weeks"] * 168,
                    "slip_h": {
                        key: weeks * 168 for key, weeks in of(rule, "slip_weeks", {}).items()
                    }
                    or None,
                    "forecast_months": rule.get(
                        "forecast_months", math.ceil(rule["lead_weeks"] * 168 / 730.5) + 3
                    ),
                    "growth_per_year": rule.get("growth_per_year", 0.0),
                    "cooldown_months": rule.get("cooldown_months", 0),
                }
                for rule in stated.get("rules", [])
            ],
            "budget_usd": stated.get("budget_usd", math.inf),
            "it_power_cap_kw": stated.get("it_power_cap_kw", math.inf),
            "price_change_per_year": stated.get("price_change_per_year", 0.0),
        }

    def plan(self) -> Doc:
        slo_target = of(self.doc, "slo_target", {})
        return {
            "seed": self.doc.get("seed", 1),
            "start": self.start,
            "hours": self.hours,
            "months": {"start": self.start, "horizon_months": self.doc["horizon_months"]},
            "month_edges_h": self.edge_h,
            "workloads": [self.workload(name) for name in self.loads],
            "clusters": [self.cluster(name) for name in self.names],
            "demand": self.demand(),
            "requests_per_node_h": self.table(),
            **self.by_load(),
            "by_priority": self.by_priority(),
            "preferred_utilisation": 0.0 if of(self.doc, "routing") == "proportional" else 0.85,
            "reliability": self.reliability(),
            "software": self.software(),
            "site": self.site(),
            "expansion": self.expansion(),
            "throughput_factors": {},  # a study's alone
            "money": self.money(),
            "slo_target": {
                "attainment": slo_target.get("attainment", 0.99),
                "per": slo_target.get("per", "month"),
                "scope": slo_target.get("scope", "workload"),
                "workloads": slo_target.get("workloads", {}),
                "confidence": slo_target.get("confidence", 0.9),
                "include": slo_target.get("include"),
            },
            "warnings": ELSEWHERE,
            "notes": ELSEWHERE,  # sentences: test_contradictions
            "processes": (),
            "placement": ELSEWHERE,  # a second plan, of pools: test_placement
        }


def heads(stated: Any, minimum: int = 0, per_node: float = 0.0) -> Doc:
    """People or parts: a number, or a rate per thousand accelerators."""
    rate = isinstance(stated, dict)
    return {
        "fixed": 0 if rate else int(stated + 0.5),
        "per_node": per_node,
        "minimum": minimum if rate or per_node else 0,
        "per_accelerator": stated["per_1000_accelerators"] / 1000 if rate else 0.0,
        "rounding": stated.get("rounding", "nearest") if rate else "nearest",
    }
