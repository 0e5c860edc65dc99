"""A study's tables as a report reads them: the objective by plan, verdicts, the ranking, and what drives the answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from planner.answers.manifests import Manifest
from planner.answers.ranking import ATTAINMENT, SHED, Ranking, rank, ranked_plans
from planner.answers.verdicts import Estimate, PlanVerdict
from planner.output.folder import Contents
from planner.output.tables import Table
from planner.plan.attainment import Verdict
from planner.records import record
from planner.studies.analysis import ABOVE_ZERO

UNKNOWN = Estimate(value=None, low=None, high=None)
INTERVAL = ("value", "low", "high")
"""The columns of a figure with its interval."""


class Estimates(dict[str, Estimate]):
    """Figures by statistic or measure; of one that the file does not have, nothing is known."""

    def __missing__(self, name: str) -> Estimate:
        return UNKNOWN


Drivers = Mapping[tuple[str, str, str], Mapping[str, Estimates]]
"""Measures of sensitivity by scenario, the scenario it is less (or none), and method; then by input."""


@record
class StudyResults:
    """What a study's folder holds."""

    manifest: Manifest
    statistics: Mapping[str, Estimates]
    """The objective by scenario and statistic."""
    npv_above_zero: Mapping[str, Estimate]
    """Share of replications with a positive NPV, by scenario that sells tokens."""
    verdicts: Mapping[str, PlanVerdict]
    ranking: Ranking
    drivers: Drivers

    @property
    def objective(self) -> str:
        """The figure that the study is about."""
        return self.manifest.objective

    @classmethod
    def read(cls, contents: Contents) -> StudyResults:
        """Return the results in a study's folder."""
        manifest = Manifest.read(contents)
        percentiles = contents.tables["percentiles"]
        objective = manifest.objective
        # The objective last, so that it wins where it is itself a figure of service.
        by_output = {
            output: statistics_of(percentiles, output) for output in (ATTAINMENT, SHED, objective)
        }
        means = {
            scenario: {
                output: statistics[scenario]["mean"].value
                for output, statistics in by_output.items()
            }
            # A copy: looking up a scenario that is not there adds it.
            for scenario in list(by_output[objective])
        }
        slo_target = contents.tables["slo_target"]
        verdicts = {
            scenario: _verdict(slo_target.where("scenario", scenario))
            for scenario in slo_target.texts("scenario")
        }
        return cls(
            manifest=manifest,
            statistics=by_output[objective],
            npv_above_zero={
                scenario: statistics[ABOVE_ZERO]
                for scenario, statistics in statistics_of(percentiles, "npv_usd").items()
                if ABOVE_ZERO in statistics
            },
            verdicts=verdicts,
            ranking=rank(ranked_plans(means, verdicts, objective)),
            drivers=_drivers(contents.table("sensitivity")),
        )


def statistics_of(percentiles: Table, output: str) -> dict[str, Estimates]:
    """Return the statistics of one output by scenario."""
    statistics: dict[str, Estimates] = defaultdict(Estimates)
    of_output = percentiles.where("output", output)
    rows = of_output.rows("scenario", "statistic", numbers=INTERVAL)
    for scenario, statistic, value, low, high in rows:
        statistics[scenario][statistic] = Estimate(value=value, low=low, high=high)
    return statistics


def _verdict(row: Table) -> PlanVerdict:
    """Return the verdict in a row of slo_target.csv."""

    def number(column: str) -> float | None:
        return row.numbers(column)[0]

    def text(column: str) -> str:
        return row.texts(column)[0]

    met_fraction = number("slo_met_fraction")
    replications = int(number("replications") or 0)
    # The file has the share; the verdict follows from the count behind it.
    met = round((met_fraction or 0.0) * replications)
    counts = Verdict(met, replications, number("confidence_fraction") or 0.0)
    return PlanVerdict(
        status=counts.status,
        attainment=number("attainment_fraction") or 0.0,
        per=text("per"),
        scope=text("scope"),
        workloads={},  # the file has the common target alone
        confidence=counts.confidence,
        stated=text("stated") == "yes",
        met_replications=met,
        replications=replications,
        met_fraction=met_fraction,
        met_low_fraction=number("slo_met_low") or 0.0,
        met_high_fraction=number("slo_met_high") or 0.0,
        settled_by_replications=None,
        shortfall_fraction=number("shortfall_fraction"),
        # A day in the file, a month in sentences.
        first_missed_month=text("first_missed_month")[:7] or None,
        best_fraction=Estimate(
            value=number("best_fraction"), low=number("best_low"), high=number("best_high")
        ),
    )


def _drivers(sensitivity: Table | None) -> Drivers:
    """Return the measures of sensitivity.csv, where there is one."""
    if sensitivity is None:
        return {}
    drivers: dict[tuple[str, str, str], dict[str, Estimates]] = defaultdict(
        lambda: defaultdict(Estimates)
    )
    texts = ("scenario", "against", "method", "input", "measure")
    for scenario, against, method, name, measure, value, low, high in sensitivity.rows(
        *texts, numbers=INTERVAL
    ):
        estimate = Estimate(value=value, low=low, high=high)
        drivers[scenario, against, method][name][measure] = estimate
    return drivers
