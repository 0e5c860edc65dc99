"""What a plan risks and rests on, by simulation: stresses and assumed values, each changed alone.

Every change meets the same replications as the plan as stated, and these are not those of the folder that the memo is
about: whatever was chosen there was not chosen by them.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from planner.answers.assumptions import assumptions
from planner.answers.identity import planned_from, scenario_sha256
from planner.answers.manifests import Manifest
from planner.errors import CapacityError, ScenarioError
from planner.finance.accounting.measures import measures
from planner.finance.measure_names import DRAWS
from planner.output.folder import Contents
from planner.parallel import shared
from planner.plan.build import build_plan
from planner.plan.choice import build_services
from planner.plan.reuse import Reuse
from planner.records import record
from planner.run.simulate import simulate_plan
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario

POLICY = "policy.yaml"
"""The answer of a sizing as a scenario, in its folder."""
STRESS_REPLICATIONS = 4
"""Replications in which a stress is run: enough to tell a plan that fails from one that seldom does; assumption."""
ASSUMED_SHARE = 0.2
"""By which an assumed value without a range is raised; assumption."""
_PLACE = "assumed-value.yaml"
"""Name under which a changed catalogue value is laid over the plan."""


@record
class Exposure:
    """What one change does to a plan."""

    name: str
    """What is changed, in words."""
    change: str
    """From which value to which; empty of a stress, whose name says it."""
    added_usd: float
    """What it adds to net present cost, in the mean."""
    met_replications: int
    """Replications that meet the SLO target with it."""
    met_as_stated: int
    """Those that meet it without."""
    replications: int


@record
class Exposures:
    """The stresses and the assumed values of a plan, the largest first."""

    stresses: Sequence[Exposure]
    assumed: Sequence[Exposure]


class _Assumed(NamedTuple):
    """An assumed value of the catalogue, and what it is moved to."""

    keys: Sequence[str]
    value: str
    content: Mapping[str, object]
    end: float


@record
class _Outcome:
    """Net present cost and verdict of a plan in one replication."""

    net_present_cost_usd: float
    is_met: bool


def exposures_of(contents: Contents, folder: Path, plan: str) -> Exposures | None:
    """Return the exposures of the plan that a folder is about; None where its scenario is not there as it was run."""
    try:
        scenario, seed = _planned(contents, folder, plan)
    except ScenarioError:
        return None
    manifest = Manifest.read(contents)
    first = manifest.replications or DRAWS
    return measured_exposures(scenario, seed, first)


def _planned(contents: Contents, folder: Path, plan: str) -> tuple[Scenario, int]:
    """Return the plan and its seed; raise ScenarioError where it is no longer there."""
    manifest = Manifest.read(contents)
    if contents.kind == "run":
        file, overrides, seed = planned_from(folder)
        return load_scenario(file, overrides), seed or 0
    if contents.kind == "size":
        return load_scenario(folder / POLICY), manifest.seed or 0
    # Of a comparison the command names the files, and the manifest has the hash of each plan.
    for word in manifest.command[2:]:
        if contents.kind == "comparison" and word.endswith((".yaml", ".yml")):
            scenario = load_scenario(Path(word), manifest.overrides)
            if scenario_sha256(scenario) == manifest.scenarios.get(plan):
                return scenario, manifest.seed or 0
    raise ScenarioError(f"the scenario of {plan} is missing or has changed since the run")


def measured_exposures(scenario: Scenario, seed: int, first: int) -> Exposures:
    """Return what stresses and assumed values do to a plan, in replications from ``first`` on."""
    replications = range(first, first + STRESS_REPLICATIONS)

    def outcomes(stressed: Scenario, numbers: Sequence[int]) -> list[_Outcome] | None:
        try:
            plan = build_plan(stressed)
            results = [simulate_plan(stressed, plan, seed, number) for number in numbers]
        # A price that no rule of the catalogue allows, or a delivery beyond the horizon, is no case of the plan.
        except (ScenarioError, CapacityError):
            return None
        return [
            _Outcome(
                net_present_cost_usd=-(measures(result)["npv_usd"] or 0.0),
                is_met=result.slo_result().is_met,
            )
            for result in results
        ]

    stresses = dict(_stresses(scenario))
    assumed = dict(_assumed_values(scenario))
    work: list[Callable[[], list[_Outcome] | None]] = [
        functools.partial(outcomes, scenario, replications)
    ]
    work += [functools.partial(outcomes, changed, replications) for changed in stresses.values()]
    # One replication is enough to rank what is assumed: what is paired differs by the value alone.
    work += [functools.partial(outcomes, changed, replications[:1]) for changed in assumed.values()]
    base, *found = shared(work)
    if base is None:
        raise ScenarioError(f"{scenario.name} cannot be run as it is stated")
    stress_outcomes = dict(zip(stresses, found[: len(stresses)], strict=True))
    assumed_outcomes = dict(zip(assumed, found[len(stresses) :], strict=True))
    return Exposures(
        stresses=sorted(
            _exposures({(words, ""): result for words, result in stress_outcomes.items()}, base),
            key=lambda one: (one.met_replications, -one.added_usd),
        ),
        assumed=sorted(_exposures(assumed_outcomes, base), key=lambda one: -abs(one.added_usd)),
    )


def _exposures(
    found: Mapping[tuple[str, str], Sequence[_Outcome] | None], base: Sequence[_Outcome]
) -> Iterator[Exposure]:
    """Yield what each change does, paired with the plan as stated."""
    for (name, change), outcomes in found.items():
        if outcomes is None:
            continue
        stated = base[: len(outcomes)]
        pairs = zip(outcomes, stated, strict=True)
        added = [one.net_present_cost_usd - other.net_present_cost_usd for one, other in pairs]
        yield Exposure(
            name=name,
            change=change,
            added_usd=sum(added) / len(added),
            met_replications=sum(one.is_met for one in outcomes),
            met_as_stated=sum(one.is_met for one in stated),
            replications=len(outcomes),
        )


def _stresses(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """Yield each stress of a plan, in words, and the plan under it."""
    bought = {
        name: cluster
        for name, cluster in scenario.machines.items()
        if cluster.owned is None and cluster.nodes
    }
    incidents = 3.0 * scenario.software.incident_multiplier
    price_change = max(scenario.finance.token_price_change_per_year - 0.2, -0.98)
    dearer = []
    for name, cluster in bought.items():
        if cluster.contract is None:
            dearer.append(f"clusters.{name}.accelerator_price_usd=×1.2")
        elif getattr(cluster.contract, "usd_per_accelerator_h", None) is not None:
            dearer.append(f"clusters.{name}.contract.usd_per_accelerator_h=×1.2")
    cases = {
        "every delivery 13 weeks late": [f"clusters.{name}.delivered=+13 weeks" for name in bought],
        "traffic a fifth above the forecast": ["workloads.*.requests_per_s=×1.2"],
        "three times as many software incidents": [f"software.incident_multiplier={incidents:g}"],
        "accelerators a fifth more expensive": dearer,
    }
    # Token prices matter to a plan that sells tokens; of others nothing would change.
    if any(workload.token_price is not None for workload in scenario.workloads.values()):
        words = "token prices falling 20 points a year faster"
        cases[words] = [f"finance.token_price_change_per_year={price_change:g}"]
    for words, overrides in cases.items():
        if not overrides:
            continue
        # A value that cannot be moved so, such as a price without a number, is no case of the plan.
        with contextlib.suppress(ScenarioError):
            yield words, scenario.laid_over(overrides)


def _assumed_values(scenario: Scenario) -> Iterator[tuple[tuple[str, str], Scenario]]:
    """Yield each group of assumed values that concerns the plan, from what to what, and the plan with all of it."""
    # An overlay of the user's own takes the place that a changed value would have.
    if scenario.catalog.overlay is not None:
        return
    for name, values in _assumed_groups(scenario).items():
        overlay: dict[str, Any] = {}
        changes = []
        for keys, value, content, end in values:
            inner = overlay
            for key in keys[:-1]:
                inner = inner.setdefault(key, {})
            inner[keys[-1]] = content
            changes.append(f"{value} → {end:g}")
        file = f"{_PLACE}:{name}"
        scenario.document.files[file] = json.dumps(overlay).encode()
        try:
            changed = scenario.with_({"catalog.overlay": file})
        except ScenarioError:  # beyond what a field allows
            continue
        change = changes[0]
        if len(changes) > 1:
            change = f"{len(changes)} values, each to the end of its range that is further off"
        yield (name, change), changed


def _assumed_groups(scenario: Scenario) -> dict[str, list[_Assumed]]:
    """Return the assumed values of the catalogue that concern a plan, in groups that are known or unknown together."""
    services, _ = build_services(scenario, Reuse(scenario), {})
    engines = {str(service.spec.engine) for service in services.values()}
    groups = defaultdict[str, list[_Assumed]](list)
    for path, value, grade in assumptions(scenario).rows("path", "value", "grade"):
        root, _, entry = path.partition(".")
        section, *keys = entry.split(".")
        moved = _moved(value)
        if root != "catalog" or grade != "D" or not keys or moved is None:
            continue
        group = entry
        if section == "stacks":
            # Stacks of engines that no layout uses change nothing of the plan.
            if keys[0].partition("-")[2] not in engines:
                continue
            group = f"stacks.{keys[0]}"
        elif section == "incidents":
            group = section
        elif keys[0].startswith("resale_"):  # one curve, by age
            group = f"priors.resale_{keys[0].rpartition('m_')[2]}"
        end, content = moved
        groups[group].append(_Assumed((section, *keys), value, content, end))
    return groups


def _moved(value: str) -> tuple[float, dict[str, object]] | None:
    """Return the further end of an assumed value, or a fifth more of it, and its entry; None of what is no number."""
    try:
        numbers = [float(number) for number in value.split(" / ")]
    except ValueError:
        return None
    provenance = {"source": "moved to its end", "grade": "D"}
    if len(numbers) == 1:
        raised = numbers[0] * (1.0 + ASSUMED_SHARE)
        return raised, {"value": raised, **provenance}
    low, base, high = numbers
    end = high if high - base >= base - low else low
    return end, {"low": min(low, end), "base": end, "high": max(high, end), **provenance}
