"""Sizing against exhaustive search, closed forms and its own promises."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import planner
from planner.errors import CapacityError, ScenarioError
from planner.output.tables import SCHEMA_VERSION
from planner.run.measures import measures, ownership, present_cost_usd
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.sizing import confirm
from planner.sizing.choices import MIXED, Counts, choices_of
from planner.sizing.confirm import Confirmation, Effort, _settled
from planner.sizing.evaluate import Archive, Clock, Evaluator, Judged, Objective, SizingOutcome, Trial, Workers, judged
from planner.sizing.explain import explain, what_to_relax
from planner.sizing.relaxation import Relaxation, solve_together
from planner.sizing.replications import Surveyed
from planner.sizing.search import Search, cheaper_as_run, fullest
from planner.sizing.size import Sized, price_change, size, trial_of
from planner.studies import engines
from tests.output.office import sheets_of

REPLICATIONS = 3
CALM = {
    "site": {"outages_per_year": 0},
    "reliability": {"failure_multiplier": 0},
    "software": {"incident_multiplier": 0, "software_speedup_multiplier": 0},
}
"""No outage, failure, incident or release."""
LAYOUT = {"engine": "vllm", "prefill_decode": "colocated", "chunk_tokens": 8192}
"""How every part serves, so that counts of nodes stay what they are however the planner would lay them out."""


def toy(dates: Sequence[str] = ("2026-01-01", "2026-02-01"), most: int = 3, **changes: Any) -> dict[str, Any]:
    """Return a problem of two parts and some dates."""
    open_to = {"dates": list(dates), "max_nodes": most}
    return {
        "name": "toy",
        "start": "2026-01-01",
        "horizon_months": 2,
        "workloads": {
            "chat": {
                "model": "llama-3.1-70b",
                "requests_per_s": 40,
                "growth": {"kind": "compound", "per_year": 6.0},
                "lengths": {"input": {"mean": 1200, "p95": 4000}, "output": {"mean": 300, "p95": 900}},
                "slo": {"ttft_s": 2.0, "tpot_s": 0.05, "percentile": 0.99},
            }
        },
        "clusters": {
            "h200": {**LAYOUT, "accelerator": "H200", "nodes": 2},
            "mi325x": {**LAYOUT, "accelerator": "MI325X", "nodes": 0},
        },
        "sizing": {"clusters": {"h200": open_to, "mi325x": open_to}},
        **CALM,
        **changes,
    }


def problem(content: dict[str, Any], overrides: Sequence[str] = (), parts: Sequence[str] = ()) -> tuple[Trial, Search]:
    """Return a problem ready to be searched."""
    trial = trial_of(load_scenario(content, overrides), parts, None, "net-present-cost", None)
    workers = Workers(trial, 1)
    surveyed = Surveyed(trial, workers, REPLICATIONS)
    return trial, Search(surveyed, Archive(workers), Clock(), [True] * len(trial.choices.purchases))


def whole(search: Search, counts: Counts) -> Judged:
    return judged(counts, search.outcomes(counts, range(REPLICATIONS)))


def keeps(search: Search, plan: Judged) -> bool:
    slo_target = search.trial.slo_target
    return bool(plan.kept(slo_target.attainment).mean() >= slo_target.confidence)


def solved(content: dict[str, Any], overrides: Sequence[str] = (), parts: Sequence[str] = ()) -> Judged:
    _, search = problem(content, overrides, parts)
    found = search.run()
    assert found is not None
    return whole(search, found)


def exhaustive(search: Search, most: int) -> Judged:
    """Return the cheapest of all plans that meet the SLO target."""
    choices = search.trial.choices
    plans = itertools.product(range(most + 1), repeat=len(choices.purchases))
    allowed = [counts for counts in plans if choices.within_limits(counts)]
    kept = [plan for counts in allowed if keeps(search, plan := whole(search, counts))]
    return min(kept, key=lambda plan: plan.cost)


def check_against_exhaustive(content: dict[str, Any], most: int) -> None:
    _, search = problem(content)
    found = search.run()
    assert found is not None
    answer, best = whole(search, found), exhaustive(search, most)
    assert keeps(search, answer)
    assert search.trial.choices.within_limits(found)
    assert answer.cost <= 1.01 * best.cost, (answer.counts, best.counts)
    assert search.bound <= best.cost


def test_it_finds_what_exhaustive_search_finds() -> None:
    check_against_exhaustive(toy(("2026-01-01",), 4), 4)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("calm", [True, False])
def test_on_three_dates_it_finds_what_exhaustive_search_finds(seed: int, calm: bool) -> None:
    """Two parts, three dates, up to three nodes of each: 400 plans."""
    content = toy(("2026-01-01", "2026-02-01", "2026-03-01"), 3, horizon_months=4, seed=seed)
    content["workloads"]["chat"]["requests_per_s"] = 20
    if not calm:
        for key in CALM:
            del content[key]
    check_against_exhaustive(content, 3)


def test_a_bound_that_knows_who_goes_first_is_tighter_and_never_above_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that goes after other work is served only where that has what it takes at its objective."""
    content = toy(("2026-01-01",), 5)
    chat = content["workloads"]["chat"]
    content["workloads"]["summaries"] = chat | {"requests_per_s": 10, "priority": "standard"}
    _, search = problem(content)
    best = exhaustive(search, 5)
    assert search.bound <= best.cost
    monkeypatch.setattr("planner.sizing.relaxation._ahead", lambda *_: [])
    _, blind = problem(content)
    assert blind.bound < 0.95 * search.bound


def flat(requests_per_s: float) -> dict[str, Any]:
    """Return traffic that never changes, of requests that may wait a minute for their first token."""
    content = toy(("2026-01-01",), 30)
    load = content["workloads"]["chat"] | {
        "requests_per_s": requests_per_s,
        "growth": {"kind": "compound", "per_year": 0.0},
        "load_profile": {"peak_to_mean": 1.0, "weekend_fraction": 1.0},
        "noise": {"sigma": 0.0},
        "slo": {"ttft_s": 60.0, "tpot_s": 0.05},
    }
    return content | {"workloads": {"chat": load}}


def test_flat_traffic_without_luck_takes_the_nodes_that_division_gives() -> None:
    """N = ⌈q·λ / rate⌉ of the part that serves a request for less, or one more where bursts need room."""
    _, search = problem(flat(450.0))
    choices = search.trial.choices
    largest = (*(int(most) for most in choices.nodes_allowed()[1][choices.group_of]),)
    _, plan = search.archive.workers.subject._compiled(largest, 0, {})  # routers before more nodes keep more in time
    rates = [plan.requests_per_node_h[choices.place(each.name), 0, 0] for each in choices.purchases]
    needed = [0.99 * 450.0 * 3600.0 / rate for rate in rates]
    usd = search.surveyed.bound_prices.column
    cheapest = min(range(2), key=lambda place: needed[place] * usd[place])
    energy = search.surveyed.bound_prices.fixed
    by_hand = needed[cheapest] * usd[cheapest] + energy
    assert 0.93 * by_hand < search.bound <= by_hand  # below it by what loads of unequal hours might gain
    found = search.run()
    assert found is not None
    alone = tuple(math.ceil(needed[cheapest]) + 1 if place == cheapest else 0 for place in range(2))
    assert (
        search.bound <= search.surveyed.predicted(found) <= search.surveyed.predicted(alone)
    )  # a mix may round better


def test_a_looser_slo_target_or_a_further_part_never_makes_it_dearer() -> None:
    content = toy(("2026-01-01",), 8)
    usual = solved(content)
    assert usual.cost <= solved(content, parts=["H200"]).cost * (1 + 1e-9)
    assert solved(content, ["slo_target.attainment=0.9"]).cost <= usual.cost


@pytest.mark.prove
def test_more_of_anything_allowed_never_makes_it_dearer() -> None:
    content = toy(most=8)
    usual = solved(content)
    power_kw = 8 * 10.2
    assert usual.cost <= solved(content, parts=["H200"]).cost * (1 + 1e-9)
    assert solved(content, ["slo_target.attainment=0.9"]).cost <= usual.cost
    assert usual.cost <= solved(content, ["slo_target.attainment=0.999"]).cost
    assert usual.cost <= solved(content, [f"sizing.it_power_cap_kw={power_kw}"]).cost * (1 + 1e-9)
    assert usual.cost <= solved(content, [f"sizing.budget_usd={usual.capital_usd * 1.05}"]).cost * (1 + 1e-9)


def test_neither_names_nor_order_matter() -> None:
    content = toy(("2026-01-01",))
    names = {"h200": "zebra", "mi325x": "aardvark"}
    other = content | {
        "clusters": {names[name]: content["clusters"][name] for name in ("mi325x", "h200")},
        "sizing": {"clusters": {names[name]: content["sizing"]["clusters"][name] for name in ("mi325x", "h200")}},
    }
    assert solved(content).counts == solved(other).counts


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sizing.budget_usd=100000", "a budget of at least"),
        ("sizing.it_power_cap_kw=11", "kW of power in place of 11"),
        ("sizing.clusters={h200: {max_nodes: 1}, mi325x: {max_nodes: 1}}", "max_nodes"),
        ("site={outages_per_year: 12, outage_h: 100}", "site.outages_per_year"),
        (
            "sizing.clusters={h200: {dates: [2026-02-01]}, mi325x: {dates: [2026-02-01]}}",
            "nothing can be there in 2026-01",
        ),
        (
            "clusters.old={accelerator: H200, nodes: 1, engine: vllm, prefill_decode: colocated, chunk_tokens: 8192}",
            "until 2026-02 nothing that is bought can be there",
        ),
    ],
)
def test_what_cannot_be_kept_says_what_to_relax(override: str, said: str) -> None:
    dates = ("2026-02-01",) if "old" in override else ("2026-01-01", "2026-02-01")
    _, search = problem(toy(dates), [override])
    assert math.isinf(search.bound)
    told = what_to_relax(search.trial, search.surveyed.surveys[search.decisive], search.surveyed.bound_prices)
    assert said in told


@pytest.mark.prove
def test_the_budget_that_is_named_is_enough_for_the_relaxation_and_no_less_is() -> None:
    trial, search = problem(toy(), ["sizing.budget_usd=100000"])
    told = what_to_relax(trial, search.surveyed.surveys[search.decisive], search.surveyed.bound_prices)
    least = float(told.split("at least ")[1].split(" USD")[0].replace(",", ""))
    for factor, is_enough in ((1.001, True), (0.999, False)):
        other, again = problem(toy(), [f"sizing.budget_usd={least * factor}"])
        program = Relaxation(other, again.surveyed.surveys[search.decisive], again.surveyed.bound_prices)
        assert (solve_together([program], integral=False) is not None) == is_enough


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sizing": None}, "says nothing of what may be bought"),
        ({"sizing": {}}, "names nothing to choose"),
        ({"sizing": {"clusters": {"h300": {}}}}, "no cluster is called 'h300'"),
        ({"sizing": {"clusters": {"h200": {"dates": ["2025-12-31"]}}}}, "before the start"),
        ({"sizing": {"clusters": {"h200": {"dates": ["2026-03-01"]}}}}, "after the end"),
        ({"sizing": {"clusters": {"h200": {"min_nodes": 5, "max_nodes": 4}}}}, "min_nodes, 5, is more than"),
        ({"sizing": {"retire": {"h200": ["2026-09-01"]}}}, "not within the horizon"),
        ({"slo_target": {"attainment": 1.5}}, "less than or equal to 1"),
        ({"expansion": {"rules": [{"when": "shed_above", "threshold_fraction": 0.1, "cluster": "h200", "nodes": 1}]}},
         "buy by themselves"),
    ],
)  # fmt: skip
def test_what_cannot_be_chosen_is_refused_in_one_message(change: dict[str, Any], said: str) -> None:
    content = {key: part for key, part in (toy() | change).items() if part is not None}
    with pytest.raises(ScenarioError, match=said) as refused:
        choices_of(load_scenario(content))
    assert len(refused.value.problems) == 1


def test_net_present_cost_is_what_ownership_says() -> None:
    result = simulate(load_scenario(toy()))
    assert present_cost_usd(result).sum() == pytest.approx(ownership(result).cost_pv_usd[-1, -1], rel=1e-12)
    assert present_cost_usd(result).sum() == pytest.approx(-float(measures(result)["npv_usd"] or 0.0), rel=1e-12)


def test_at_the_price_that_is_named_the_rival_costs_as_much() -> None:
    _, search = problem(toy(most=4))
    alone = [whole(search, counts) for counts in ((3, 0, 0, 0), (0, 0, 3, 0))]
    change = price_change(search, alone[0], alone[1], "H200")
    assert change is not None
    stated = toy(most=4)
    price = load_scenario(stated).load_catalog().accelerator("H200").accelerator_price_usd
    assert price is not None
    stated["clusters"]["h200"]["accelerator_price_usd"] = price.value * (1 + change)
    _, other = problem(stated)
    costs = [whole(other, counts).cost for counts in ((3, 0, 0, 0), (0, 0, 3, 0))]
    assert costs[0] == pytest.approx(costs[1], rel=1e-4)


def test_a_plan_runs_as_it_is_and_gives_the_same_figures(tmp_path: Path) -> None:
    content = toy(("2026-01-01",))
    answer = planner.size(content, tmp_path / "out", replications=REPLICATIONS, confirmations=4, workers=1)
    result = simulate(load_scenario(answer.folder / "plan.yaml"), seed=1, replication=0)
    _, search = problem(content)
    own = search.outcomes(answer.result.plan.counts, [0])[0]
    assert present_cost_usd(result).sum() == pytest.approx(own.net_present_cost_usd, rel=1e-12)
    assert result.slo_result().shortfall_fraction == pytest.approx(max(0.0, 0.99 - own.worst), abs=1e-12)
    summary = answer.summary()
    assert summary["schema_version"] == SCHEMA_VERSION
    assert summary["bound"] <= summary["objective_usd"]
    verdict = summary["verdict"]
    assert 0.0 <= verdict["met_low_fraction"] <= verdict["met_fraction"] <= verdict["met_high_fraction"] <= 1.0
    assert (verdict["status"], verdict["settled_by_replications"]) == ("INCONCLUSIVE", 19)  # four say little
    assert "not confirmed" in summary["sentences"][0]
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {
        "plan.yaml",
        "frontier.csv",
        "single_accelerator_plans.csv",
        "months.csv",
        "slo_target_curve.csv",
        "report.html",
    } <= files
    sheets = sheets_of((tmp_path / "out" / "workbook.xlsx").read_bytes())
    assert {"Percentiles by month", "Size purchases", "Size frontier"} <= set(sheets)
    assert sheets["Percentiles by month"][1][5:8] == ["P10", "P50", "P90"]
    assert (
        answer.result.as_stated().cost_cents().sum()
        == simulate(load_scenario(answer.folder / "plan.yaml")).cost_cents().sum()
    )
    check_families(answer.result)
    frontier = answer.table()
    assert frontier.is_answer.sum() == 1
    assert (np.diff(frontier.objective_usd) > 0).all()


def check_families(sized: Sized) -> None:
    """A mixed plan stands beside an answer of one part, meets the SLO target and costs no less."""
    families = {family.name: family for family in sized.families}
    assert set(families) | {sized.family} == {"all-H200", "all-MI325X", "mixed"}
    assert sized.family == "mixed" or families["mixed"].plan is not None
    for name, family in families.items():
        if family.plan is None:
            continue
        assert sized.choices.family(family.plan.counts) == name
        assert family.plan.kept(0.99).mean() >= 0.9
        assert family.plan.cost >= sized.plan.cost * (1 - 1e-9)
        assert family.bound <= family.plan.cost


def test_nothing_is_written_where_nothing_meets_the_slo_target(tmp_path: Path) -> None:
    with pytest.raises(CapacityError, match="budget of at least"):
        planner.size(toy(), tmp_path / "out", budget=1e5, replications=2, confirmations=2, workers=1)
    assert not (tmp_path / "out").exists()


def test_a_cluster_that_is_not_needed_is_retired() -> None:
    """Twelve nodes where two do: they leave in favour of a few, or stay where that costs less."""
    content = toy(("2026-01-01",))
    content["clusters"]["old"] = {**LAYOUT, "accelerator": "H200", "nodes": 12}
    content["sizing"]["retire"] = {"old": ["2026-01-15"]}
    _, search = problem(content)
    found = search.run()
    assert found is not None
    stays = whole(search, (0, 0, 0))
    assert whole(search, found).cost <= stays.cost
    assert keeps(search, whole(search, found))


def test_where_nothing_is_bought_no_part_is_a_rival(tmp_path: Path) -> None:
    """Buying nothing is the best plan of every part alone, and no price would let that win against itself."""
    content = toy(("2026-01-01",))
    content["clusters"]["old"] = {**LAYOUT, "accelerator": "H200", "nodes": 12}
    answer = planner.size(content, tmp_path / "out", replications=2, confirmations=19, workers=1)
    said = answer.summary()["sentences"]
    assert said[0].startswith("Buy nothing")
    assert not any(line.startswith(("The best plan of all-", "No plan of all-")) for line in said)


def test_a_study_reaches_every_purchase_and_the_vendors_whatever_its_scenarios_are_called(tmp_path: Path) -> None:
    content = toy(("2026-01-01", "2026-02-01"))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(content).replace("'", ""))
    reached = {
        "clusters.mi325x*.accelerator_price_usd": [20e3, 30e3],
        "reliability.vendor_failure_multiplier.amd": [1.0, 2.0],
    }
    study = {
        "name": "prices",
        "scenarios": {"toy": {"extends": "toy.yaml"}},
        "uncertain": {name: {"kind": "uniform", "low": low, "high": high} for name, (low, high) in reached.items()},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    trial = trial_of(load_scenario(content), (), tmp_path / "study.yaml", "net-present-cost", None)
    assert [[path[1:] for path in found.targets[0]] for found in trial.inputs.entries[:2]] == [
        [("mi325x-2026-01-01", "accelerator_price_usd"), ("mi325x-2026-02-01", "accelerator_price_usd")],
        [("vendor_failure_multiplier", "amd")],
    ]
    outcome = Workers(trial, 1).subject.outcome((0, 0, 3, 0), 0)
    assert np.isfinite(outcome.cost)


@pytest.mark.parametrize("is_drawn", [True, False])
def test_a_sizing_says_what_the_error_of_throughput_costs(tmp_path: Path, is_drawn: bool) -> None:
    """The plan withstands throughput below what is predicted; were that known, fewer nodes would do."""
    content = toy(("2026-01-01",), 60)
    del content["clusters"]["mi325x"], content["sizing"]["clusters"]["mi325x"]
    content["workloads"]["chat"]["requests_per_s"] = 400
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(content).replace("'", ""))
    study = {
        "name": "errors",
        "scenarios": {"toy": {"extends": "toy.yaml"}},
        "uncertain": {"site.pue_ratio": {"kind": "uniform", "low": 1.2, "high": 1.3}},
        "throughput_error": is_drawn,
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    options: dict[str, Any] = {"replications": 8, "confirmations": 10, "workers": 1}
    answer = planner.size(tmp_path / "toy.yaml", tmp_path / "out", study=tmp_path / "study.yaml", **options)
    predicted = answer.result.explanation.predicted
    said = [line for line in answer.summary()["sentences"] if line.startswith("With throughput as predicted")]
    if not is_drawn:
        assert predicted is None
        assert not said
        return
    assert predicted is not None
    assert 0.5 <= predicted.nodes_fraction < 1.0
    assert said == [
        f"With throughput as predicted {predicted.nodes_fraction:.0%} of these nodes would do: the error of the "
        f"throughput model costs {predicted.saved / 1e6:,.2f} M USD."
    ]
    # As predicted every replication has the same capacity, so the smaller plan meets the target in all or in none.
    trial = answer.result.trial
    evaluator = Workers(trial, 1).subject
    fewer = tuple(round(nodes * predicted.nodes_fraction) for nodes in answer.result.plan.counts)
    worst = {round(evaluator.outcome(fewer, replication, None, True).worst, 3) for replication in range(4)}
    assert min(worst) >= trial.slo_target.attainment
    assert min(evaluator.outcome(fewer, replication).worst for replication in range(8)) < trial.slo_target.attainment


def test_a_sizing_that_was_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in its confirmation, it leaves its runs; resumed, it runs only the others, to the same bytes."""
    content, options = toy(("2026-01-01",)), {"replications": 2, "confirmations": 2, "workers": 1}
    planner.size(content, tmp_path / "whole", **options)  # type: ignore[arg-type]
    runs: list[int] = []
    outcome = Evaluator.outcome

    def counted(evaluator: Evaluator, counts: Counts, replication: int, *changes: Any) -> SizingOutcome:
        runs.append(replication)
        if replication >= 2 and "stop" in flags:
            raise RuntimeError
        return outcome(evaluator, counts, replication, *changes)

    flags = {"stop"}
    monkeypatch.setattr(Evaluator, "outcome", counted)
    with pytest.raises(RuntimeError):
        planner.size(content, tmp_path / "stopped", **options)  # type: ignore[arg-type]
    with pytest.raises(ScenarioError, match="holds an unfinished sizing"):
        planner.size(content, tmp_path / "stopped", **options)  # type: ignore[arg-type]
    before, flags = len(runs), set[str]()
    planner.size(content, tmp_path / "stopped", resume=True, **options)  # type: ignore[arg-type]
    assert not {0, 1} & set(runs[before : before + 2])  # what was searched is not run again
    for name in ("plan.yaml", "frontier.csv", "single_accelerator_plans.csv", "summary.json"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_sizing_that_could_not_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_CONNECT_S", 1)
    with pytest.raises(ScenarioError, match="no Dask scheduler answers"):
        planner.size(toy(("2026-01-01",)), tmp_path / "o", replications=2, scheduler="tcp://127.0.0.1:1")
    assert not (tmp_path / "o").exists()


def ways(**contracts: str) -> dict[str, Any]:
    """Return a problem in which one part may be bought, or had by contracts."""
    clusters = {"bought": {**LAYOUT, "accelerator": "H200", "nodes": 1}}
    for name, contract in contracts.items():
        clusters[name] = {**LAYOUT, "accelerator": "H200", "nodes": 1, "contract": yaml.safe_load(contract)}
    return toy(clusters=clusters, sizing={"clusters": {name: {"max_nodes": 8} for name in clusters}})


def node_usd(content: dict[str, Any], name: str) -> float:
    """Return the present cost of one node alone but for energy, which a provider pays."""
    alone = {**content, "clusters": {name: content["clusters"][name]}, "sizing": None}
    return float(present_cost_usd(simulate(load_scenario(alone), seed=1)).sum())


@pytest.mark.prove
def test_it_chooses_among_ways_to_have_a_part() -> None:
    """A rent a little below what owning costs is taken, one above is not; a lease is, below the price of capital."""
    owned = node_usd(ways(), "bought")
    one, two = (node_usd(ways(rented=f"{{kind: reserved, usd_per_accelerator_h: {usd}}}"), "rented") for usd in (1, 2))
    even = (owned - (2 * one - two)) / (two - one)  # what a rent of nothing leaves, and what a dollar adds
    for factor, lease, chosen in ((0.9, 0.3, "rented"), (1.1, 0.3, "bought"), (1.1, 0.02, "leased")):
        content = ways(
            rented=f"{{kind: reserved, usd_per_accelerator_h: {factor * even}}}",
            leased=f"{{kind: finance-lease, rate_per_year: {lease}}}",
        )
        trial, search = problem(content)
        found = search.run()
        assert found is not None
        taken = {purchase.cluster for purchase, nodes in zip(trial.choices.purchases, found, strict=True) if nodes}
        assert taken == {chosen}
        assert (trial.choices.capital_usd(found) > 0) == (chosen == "bought")
        assert search.bound <= whole(search, found).cost


def test_a_limit_of_power_is_the_sites_alone() -> None:
    trial, _ = problem(ways(rented="{kind: reserved}"))
    by_name = {purchase.name: place for place, purchase in enumerate(trial.choices.purchases)}
    one = [tuple(int(place == by_name[name]) for place in range(2)) for name in ("bought", "rented")]
    assert trial.choices.power_kw(one[0]).max() > 0
    assert trial.choices.power_kw(one[1]).max() == 0


def test_a_provider_pays_the_energy_of_its_machines_and_rent_by_the_hour_is_no_figure_of_a_node() -> None:
    """A node at 4 dollars an hour costs nothing until it works; then 8 accelerators' rent and support, discounted."""
    content = ways(rented="{kind: reserved, usd_per_accelerator_h: 2}")
    content["clusters"]["hourly"] = {
        **LAYOUT, "accelerator": "H200", "nodes": 2, "contract": {"kind": "on-demand", "usd_per_accelerator_h": 4}
    }  # fmt: skip
    trial, search = problem(content)
    found, place = search.surveyed.surveys[0][0], trial.choices.place
    assert found.idle_usd[place("bought")] > 0
    assert found.idle_usd[place("rented")] == found.idle_usd[place("hourly")] == 0
    assert found.busy_usd[place("rented")].tolist() == [0, 0]
    middles = np.array([0.5, 1.5]) / 12
    month_usd, hours = 8 * 300 / 12, np.array([744, 672])
    hour_usd = (32 + month_usd / hours) * 1.1**-middles
    assert found.busy_usd[place("hourly")].tolist() == pytest.approx(hour_usd.tolist())
    assert found.owned_usd[place("hourly")] == 0
    assert found.owned_usd[place("rented")] == pytest.approx(((16 * hours + month_usd) * 1.1**-middles).sum())


def test_machines_paid_by_the_hour_take_the_peaks_of_what_one_owns() -> None:
    """At a dear rent most nodes are bought and some rented for the peaks; the best of all plans is found."""
    content = ways(hourly="{kind: on-demand, usd_per_accelerator_h: 20}")
    content["sizing"] = {"clusters": {name: {"max_nodes": 5} for name in content["clusters"]}}
    _, search = problem(content)
    found = search.run()
    assert found is not None
    plans = [whole(search, counts) for counts in ((5, 0), (4, 1), (3, 2), (2, 3), (1, 4), (0, 5))]
    best = min((plan for plan in plans if keeps(search, plan)), key=lambda plan: plan.cost)
    assert found == best.counts == (3, 2)
    assert 0.5 * best.cost < search.bound <= best.cost  # rent of hours at work is counted: without, a hundredth
    for plan in plans:
        assert search.surveyed.predicted(plan.counts) == pytest.approx(plan.cost, rel=0.05)


@pytest.mark.parametrize("objective", ["net-present-cost", "levelised"])
def test_rent_is_predicted_as_the_objective_counts_it_and_burst_rental_with_it(objective: Objective) -> None:
    """A search goes by predictions: in dollars by the million tokens where these are to be cheap, bursts included."""
    content = ways(hourly="{kind: on-demand, usd_per_accelerator_h: 2}")
    content["sizing"] = {"clusters": {name: {"max_nodes": 5} for name in content["clusters"]}}
    content["finance"] = {"burst_rental": {"usd_per_accelerator_h": 50, "most_accelerators": 16}}
    content["clusters"]["old"] = {**LAYOUT, "accelerator": "H200", "nodes": 1, "owned": {"bought": "2024-06-01"}}
    content["sizing"]["retire"] = {"old": ["2026-02-01"]}
    trial = trial_of(load_scenario(content), (), None, objective, None)
    workers = Workers(trial, 1)
    search = Search(Surveyed(trial, workers, REPLICATIONS), Archive(workers), Clock(), [True, True])
    for counts in ((0, 3, 0), (0, 5, 0), (2, 0, 0), (3, 2, 0), (2, 0, 1)):
        plan = whole(search, counts)
        assert search.surveyed.predicted(counts) == pytest.approx(plan.cost, rel=0.08), counts
        assert search.bound <= plan.cost or not keeps(search, plan)


def test_of_work_that_can_wait_rent_is_predicted_for_what_idle_hours_leave() -> None:
    """As it is run: by four nodes of one's own such work rents half of what it would if it could not wait."""
    content = ways(hourly="{kind: on-demand, usd_per_accelerator_h: 20}")
    content["sizing"] = {"clusters": {name: {"max_nodes": 6} for name in content["clusters"]}}
    rents = {}
    for priority in ("standard", "deferrable"):
        content["workloads"]["batch"] = {**content["workloads"]["chat"], "requests_per_s": 15, "priority": priority}
        _, search = problem(content)
        plan = whole(search, (4, 2))
        predicted = search.surveyed.predicted(plan.counts)
        assert predicted == pytest.approx(plan.cost, rel=0.06)
        rents[priority] = predicted - search.surveyed.standing(plan.counts)
    assert rents["deferrable"] < 0.5 * rents["standard"]


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["on-demand", "spot"])
@pytest.mark.parametrize("usd", [0.5, 3, 8, 12, 20])
def test_with_machines_paid_by_the_hour_it_finds_what_exhaustive_search_finds(kind: str, usd: float) -> None:
    often = ", interruptions_per_year: 50" if kind == "spot" else ""
    content = ways(hourly=f"{{kind: {kind}, usd_per_accelerator_h: {usd}{often}}}")
    content["sizing"] = {"clusters": {name: {"max_nodes": 6, "min_nodes": 0} for name in content["clusters"]}}
    _, search = problem(content)
    found = search.run()
    assert found is not None
    plans = [whole(search, counts) for counts in itertools.product(range(7), repeat=2) if any(counts)]
    best = min((plan for plan in plans if keeps(search, plan)), key=lambda plan: plan.cost)
    assert keeps(search, answer := whole(search, cheaper_as_run(search, found)))
    assert answer.cost <= 1.01 * best.cost, (found, best.counts)


def test_where_limits_leave_no_plan_that_meets_the_slo_target_the_nearest_is_named() -> None:
    """The relaxation allows one, since there no request is late by chance; the simulation does not."""
    scenario = load_scenario(toy(("2026-01-01",), 6, slo_target={"attainment": 0.9995}))
    trial = trial_of(scenario, (), None, "net-present-cost", None)
    with pytest.raises(CapacityError, match=r"6 × H200 .* 6 × MI325X .* comes nearest, with 99\.7\d% attained"):
        size(scenario, trial, Effort(replications=2, confirmations=2), Clock())


def test_where_the_relaxation_leaves_no_margin_the_most_that_limits_allow_is_tried() -> None:
    """With failures counted five nodes are too few for the relaxation, so it made no start and nothing was tried."""
    content = toy(clusters={"h200": {**LAYOUT, "accelerator": "H200", "nodes": 1}})
    content["sizing"] = {"clusters": {"h200": {"dates": ["2026-01-01", "2026-02-01"], "max_nodes": 5}}}
    content["site"] = {"facility_power_cap_kw": 20}
    content["slo_target"] = {"scope": "fleet"}
    del content["reliability"], content["software"]
    scenario = load_scenario(content)
    trial = trial_of(scenario, (), None, "net-present-cost", None)
    assert set(fullest(trial.choices, [True, True])) == {(5, 0), (0, 5), (3, 2), (2, 3), (1, 4), (4, 1)}
    with pytest.raises(
        CapacityError, match=r"5 × H200 .* nearest, with .*, least in 2026-0\d, and limits allow no node more"
    ):
        size(scenario, trial, Effort(replications=2, confirmations=2), Clock())


def test_where_fewer_nodes_by_the_hour_are_cheaper_they_are_found() -> None:
    """B200 on demand at 12 dollars beside bursts at 5: of four nodes the last saves nothing, and one is the best."""
    content = ways(hourly="{kind: on-demand, usd_per_accelerator_h: 12}")
    content["clusters"]["hourly"]["accelerator"] = "B200"
    content["sizing"] = {"clusters": {name: {"max_nodes": 4} for name in content["clusters"]}}
    content["workloads"]["chat"] |= {"requests_per_s": 50, "growth": {"kind": "compound", "per_year": 0.5}}
    content["finance"] = {"burst_rental": {"usd_per_accelerator_h": 5, "most_accelerators": 8}}
    content["slo_target"] = {"attainment": 0.95, "scope": "fleet"}
    check_against_exhaustive(content, 4)


def test_a_plan_of_one_part_may_rent_any_by_the_hour() -> None:
    """B200 bought and H200 by the hour are no mix: held against it, B200 alone would go without what all may rent."""
    content = toy(("2026-01-01",), 3)
    content["clusters"]["b200"] = {**LAYOUT, "accelerator": "B200", "nodes": 0}
    hourly = {"nodes": 0, "contract": {"kind": "on-demand", "usd_per_accelerator_h": 4}}
    content["clusters"] |= {
        "hours": {**LAYOUT, "accelerator": "H200", **hourly},
        "more": {**LAYOUT, "accelerator": "MI300X", **hourly},
    }
    content["sizing"]["clusters"] |= {name: {"max_nodes": 2} for name in ("b200", "hours", "more")}
    choices = choices_of(load_scenario(content))

    def family(**bought: int) -> str:
        return choices.family(tuple(bought.get(purchase.cluster, 0) for purchase in choices.purchases))

    def may_take(part: str) -> set[str]:
        return {purchase.cluster for purchase, may in zip(choices.purchases, choices.of_part(part), strict=True) if may}

    assert family(b200=2, hours=1, more=1) == "all-B200"
    assert family(hours=2) == "all-H200"
    assert family(b200=1, h200=1) == family(hours=1, more=1) == MIXED
    assert may_take("B200") == {"b200", "hours", "more"}
    assert may_take("H200") == {"h200", "hours", "more"}
    assert may_take("MI300X") == {"more"}


@pytest.mark.parametrize("sold_out", ["h200", "mi325x"])
def test_where_one_part_is_sold_out_a_short_stretch_is_mended_by_the_other(sold_out: str) -> None:
    _, search = problem(toy())
    purchases = search.choices.purchases
    first = min(each.date for each in purchases)
    counts = tuple((3 if each.cluster == sold_out else 1) if each.date == first else 0 for each in purchases)
    wider = search._widened(counts, np.array([True, False]), 0.01)
    (more,) = (each for each, before, now in zip(purchases, counts, wider, strict=True) if now > before)
    assert (more.cluster == sold_out, more.date) == (False, first)


@pytest.mark.prove
def test_it_leaps_from_a_part_that_stays_to_one_that_is_sold_and_another_that_comes_then() -> None:
    """From MI325X that stay no small step is cheaper; with B200 in the second year they may go, which is."""
    first, later = ({"dates": [day], "max_nodes": 400} for day in ("2026-01-01", "2027-01-01"))
    chat = {**toy()["workloads"]["chat"], "requests_per_s": 1500, "growth": {"kind": "compound", "per_year": 0.6}}
    kept = {**LAYOUT, "accelerator": "MI325X", "nodes": 0}
    b200 = {**LAYOUT, "accelerator": "B200", "nodes": 0, "engine": "tensorrt-llm", "precision": "fp4"}
    content = toy(
        horizon_months=24,
        workloads={"chat": chat},
        clusters={"kept": kept, "sold": {**kept, "retire": "2027-01-01"}, "b200": b200},
        sizing={"clusters": {"kept": first, "sold": first, "b200": later}},
    )
    trial, search = problem(content)
    start = search._start()
    assert start is not None
    by_name = dict(zip((purchase.name for purchase in trial.choices.purchases), start, strict=True))
    assert by_name["sold"] > 10 * by_name["kept"]
    stays = {"kept": by_name["kept"] + by_name["sold"], "sold": 0, "b200": by_name["b200"] // 3}
    search.best = search.mend(tuple(stays[purchase.name] for purchase in trial.choices.purchases))
    assert search.best is not None
    stuck = search.descend(search.best)
    leapt = search.leap(stuck)
    assert search.holds(leapt, fully=True)
    assert whole(search, leapt).cost < 0.95 * whole(search, stuck).cost


def test_a_plan_that_was_mended_is_run_in_all_replications(monkeypatch: pytest.MonkeyPatch) -> None:
    """A descent that took a node too many, as it may where other replications are hard than were, is mended again."""
    _, search = problem(toy())
    best = search.run()
    assert best is not None
    place = next(index for index, nodes in enumerate(best) if nodes)
    short = tuple(nodes - (index == place) for index, nodes in enumerate(best))
    descend, descents = search.descend, list[Counts]()

    def careless(counts: Counts) -> Counts:
        descents.append(counts)
        return short if len(descents) == 1 else descend(counts)

    monkeypatch.setattr(search, "descend", careless)
    assert not search.holds(short, fully=True)
    assert search.holds(_settled(search, best), fully=True)
    assert len(descents) == 2


def mended(monkeypatch: pytest.MonkeyPatch) -> tuple[Search, Counts, Counts]:
    """Return a search whose answer was mended by a node too many, that answer, and what is cheaper and holds."""
    content = toy(("2026-01-01",), 4)
    content["workloads"]["chat"]["requests_per_s"] = 39
    _, search = problem(content)
    cheaper = search.run()
    assert cheaper is not None
    dearer = (cheaper[0] + 1, *cheaper[1:])
    every, fresh = range(REPLICATIONS), range(REPLICATIONS, REPLICATIONS + 4)
    for counts in (cheaper, dearer):
        search.outcomes(counts, every)

    def mend(search: Search, _: Effort) -> Confirmation:
        search.extend(fresh, cheaper)
        search.best = dearer
        return confirm._confirm(search, dearer, range(7, 11))

    monkeypatch.setattr(confirm, "confirmed", mend)
    return search, dearer, cheaper


def test_what_is_cheaper_than_a_mended_answer_and_holds_as_much_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rival that was mended alike cost less than the answer, and was told as one that wins at twice its price."""
    search, _, cheaper = mended(monkeypatch)
    told: list[str] = []
    search.clock.say = told.append
    confirmation = confirm.answered(search, {}, Effort(replications=REPLICATIONS, confirmations=4))
    assert search.best == confirmation.outcome.counts == cheaper
    assert confirmation.first == 7  # the set that the dearer one was confirmed on
    assert told[-1] == "a cheaper plan holds as much: confirming it"


def test_what_only_seems_cheaper_is_neither_taken_nor_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the search's replications it keeps enough, of those that the answer is held to as well it does not."""
    search, dearer, cheaper = mended(monkeypatch)
    monkeypatch.setattr(search, "holds", lambda counts, fully=False: counts == dearer)
    confirm.answered(search, {}, Effort(replications=REPLICATIONS, confirmations=4))
    assert search.best == dearer
    explained = explain(search, whole(search, dearer), REPLICATIONS)
    assert [fewer.refuted for fewer in explained.fewer if fewer.purchase == 0] == [True]
    shown = [plan.counts for plan in explained.frontier]
    assert dearer in shown
    assert cheaper not in shown
