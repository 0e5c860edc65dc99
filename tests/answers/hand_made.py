"""Folders whose tables are written by hand, and verdicts and summaries that no run made."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from planner.answers.ranking import SHORTFALL
from planner.answers.run_summary import key_figures
from planner.answers.summaries import ComparisonSummary, Measures, ReplicationsSummary, RunSummary
from planner.answers.verdicts import BaseCase, PlanVerdict
from planner.output.folder import Contents
from planner.output.tables import SCHEMA_VERSION, read_csv
from planner.plan.attainment import Verdict
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY


def contents_of(manifest: Mapping[str, Any], files: Mapping[str, str]) -> Contents:
    """Return what a folder holds whose tables are these texts, by name."""
    tables = {name: read_csv(name, text.encode()) for name, text in files.items()}
    return Contents(manifest=manifest, tables=tables)


def without_badges(page: str) -> str:
    """Return a page with its verdicts as plain words."""
    return re.sub(r'<span class="badge \w+">(.*?)</span>', r"\1", page)


def verdict_of(
    met: int, replications: int = 19, lowest: float = 0.999, shortfall: float = 0.0
) -> PlanVerdict:
    """Return the verdict of a plan that meets the default SLO target in some of its replications."""
    verdict = PlanVerdict.of(
        Verdict(met, replications, 0.9),
        load_scenario(yaml.safe_load(TINY)),
        shortfall_fraction=shortfall,
        first_missed_month="2027-02" if met < 0.9 * replications else None,
    )
    base_case = BaseCase(month="2027-03", workload="chat", slo_attainment_fraction=lowest)
    return replace(verdict, lowest_fraction=lowest, base_case=base_case)


@functools.cache
def _tiny_run() -> RunSummary:
    return key_figures(simulate(load_scenario(yaml.safe_load(TINY))))


def run_of(verdict: PlanVerdict, idle: float) -> RunSummary:
    """Return a run of the smallest plan with another verdict and share of idle node-hours."""
    return replace(_tiny_run(), verdict=verdict, capacity_fraction={"idle": idle})


def comparison_of(
    plans: Mapping[str, Measures], savings: Mapping[str, tuple[float, float]] | None = None
) -> ComparisonSummary:
    """Return a comparison of plans with the first, each MET where it has no shortfall."""
    verdicts = {}
    for name, measures in plans.items():
        shortfall = measures.get(SHORTFALL) or 0.0
        verdicts[name] = verdict_of(0 if shortfall else 19, shortfall=shortfall)
    replications = ReplicationsSummary(
        number=19, coverage_fraction=0.9, words="nine of ten replications", intervals={}
    )
    return ComparisonSummary(
        schema_version=SCHEMA_VERSION,
        baseline=next(iter(plans)),
        seed=1,
        scenarios=plans,
        bridge_per_million_tokens_usd={},
        verdicts=verdicts,
        replications=dict.fromkeys(plans, replications),
        saving_interval_fraction=savings or {},
        warnings=[],
        notes=[],
    )
