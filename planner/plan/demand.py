"""Traffic, compiled: growth, load profile, spikes, noise and tenants of each workload."""

from __future__ import annotations

import csv
import datetime
import io
import math
from pathlib import Path

import numpy as np

from planner.demand import plan as demands
from planner.demand import shape as shapes
from planner.demand.plan import WorkloadDemand
from planner.demand.shape import Horizon
from planner.errors import Problem, ScenarioError
from planner.plan.reuse import Reuse
from planner.scenario.scenario import Scenario
from planner.scenario.workload import (
    Compound,
    Flat,
    GrowthByYear,
    GrowthSteps,
    GrowthTable,
    LoadProfile,
    SCurve,
)
from planner.units import HOURS_PER_DAY

_SHOWN_PROBLEMS = 20
"""Faults of a growth table after which reading it stops."""


def demand_of(scenario: Scenario, name: str, horizon: Horizon, reuse: Reuse) -> WorkloadDemand:
    """Compile one workload's demand."""
    workload = scenario.workloads[name]
    profile = workload.load_profile
    begins = [day for day in (workload.model_launch, workload.begins) if day is not None]
    return WorkloadDemand(
        name=name,
        requests_per_s=workload.requests_per_s,
        growth=_growth(scenario, name, horizon, reuse),
        shape=reuse.once(("shape", profile), lambda: _shape(profile)),
        noise=demands.LognormalNoise(
            sigma=workload.noise.sigma, correlation_h=workload.noise.correlation_h
        ),
        spikes=tuple(
            demands.LaunchSpike(
                hour_h=horizon.hour_of(spike.date),
                multiple=spike.multiplier,
                decay_days=spike.decay_days,
            )
            for spike in workload.spikes
        ),
        tenants=tuple(
            demands.TenantStream(
                name=tenant.name,
                share_fraction=tenant.share_fraction,
                mean_on_h=tenant.mean_on_h,
                mean_off_h=tenant.mean_off_h,
            )
            for tenant in workload.tenants
        ),
        begins_h=max(map(horizon.hour_of, begins), default=0.0),
        ends_h=horizon.hour_of(workload.ends) if workload.ends else math.inf,
        stream=workload.follows or name,
    )


def _growth(scenario: Scenario, name: str, horizon: Horizon, reuse: Reuse) -> demands.Growth:
    """Compile one workload's growth."""
    match scenario.workloads[name].growth:
        case Compound(per_year=rate):
            return demands.CompoundGrowth(per_year=rate)
        case GrowthByYear() as by_year:
            final_hour = horizon.start_utc + datetime.timedelta(hours=horizon.hours - 1)
            years = range(horizon.start.year, final_hour.year + 1)
            # The first rate holds from the start; each other from its new year on.
            new_years = [datetime.date(year, 1, 1) for year in years[1:]]
            return demands.ChangingGrowth(
                per_year=tuple(map(by_year.rate, years)),
                begins_h=tuple(map(horizon.hour_of, new_years)),
            )
        case Flat():
            return demands.CompoundGrowth(per_year=0.0)
        case SCurve() as curve:
            return demands.SCurveGrowth(
                ceiling_multiple=curve.ceiling_multiplier,
                midpoint_years=curve.midpoint_years,
                steepness_per_year=curve.steepness_per_year,
            )
        case GrowthSteps(steps=steps):
            return demands.StepGrowth(
                steps=tuple((horizon.hour_of(step.date), step.multiplier) for step in steps)
            )
        case GrowthTable(file=file):
            path, content = scenario.document.file_at(("workloads", name, "growth", "file"), file)
            # By content, so that a file edited between two plans of one process is read again.
            key = ("growth", content, horizon)
            return reuse.once(key, lambda: read_growth_table(path, content, horizon))


def _shape(profile: LoadProfile) -> shapes.Shape:
    """Compile a workload's load profile: week, season and holidays."""
    if profile.weekly_profile is not None:
        week = shapes.normalised_profile(profile.weekly_profile)
    else:
        week = shapes.weekly_profile(
            peak_to_mean=profile.peak_to_mean,
            weekend_fraction=profile.weekend_fraction,
            trough_to_mean=profile.trough_to_mean,
        )
    season = shapes.SeasonalWave()
    if profile.season:
        season = shapes.SeasonalWave(
            amplitude_fraction=profile.season.amplitude_fraction,
            peak_day=profile.season.peak_day,
        )
    holidays = tuple((holiday.date, holiday.multiplier) for holiday in profile.holidays)
    return shapes.Shape(
        weekly_profile=week, timezone=profile.timezone, season=season, holidays=holidays
    )


def read_growth_table(path: Path, content: bytes, horizon: Horizon) -> demands.TableGrowth:
    """Read a growth table from CSV content with the columns date and multiplier; ``path`` names it in messages."""
    problems: list[Problem] = []
    hours: list[float] = []
    factors: list[float] = []
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        # A spreadsheet's export may begin with a byte-order mark, and pad its header.
        header = [cell.strip() for cell in next(rows, ())]
        if not {"date", "multiplier"} <= set(header):
            raise ScenarioError(
                Problem(file=str(path), line=1, message="needs columns date, multiplier")
            )
        date_column = header.index("date")
        factor_column = header.index("multiplier")
        start = horizon.start.toordinal()
        for row in rows:
            if len(problems) == _SHOWN_PROBLEMS:
                break
            try:
                # A table may have a million rows: no more than must be is done for each.
                day = datetime.date.fromisoformat(row[date_column].strip())
                factor = float(row[factor_column])
            except (ValueError, IndexError):
                # A fault is told from a good row by a factor that none may have.
                factor = -1.0
            if 0.0 <= factor < np.inf:
                hours.append((day.toordinal() - start) * HOURS_PER_DAY)
                factors.append(factor)
            elif row:  # an empty line is no fault
                # A row may be as long as the file: its beginning tells which it is.
                cells = ", ".join(map(repr, row))[:80]
                message = f"needs a date and a multiplier of at least 0, not {cells}"
                problems.append(Problem(file=str(path), line=rows.line_num, message=message))
    except (UnicodeDecodeError, csv.Error) as error:
        problems.append(Problem(file=str(path), message=f"cannot be read as CSV: {error}"))
    if not problems and not hours:
        problems.append(
            Problem(file=str(path), message="holds no rows; it needs columns date, multiplier")
        )
    # Interpolation between rows needs rising hours.
    if not problems and np.any(np.diff(hours) <= 0):
        problems.append(Problem(file=str(path), message="dates must rise from row to row"))
    if problems:
        raise ScenarioError(problems)
    return demands.TableGrowth(hours_h=tuple(hours), factors=tuple(factors))
