"""Sizing of purchases against exhaustive search, closed forms, and what it says of itself."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import planner
from planner import api
from planner.answers.answer import Answer
from planner.answers.size_sentences import _other_levels
from planner.errors import CapacityError, ScenarioError
from planner.finance.accounting.measures import present_cost_usd
from planner.output.tables import SCHEMA_VERSION
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.sizing import archive
from planner.sizing import size as sizing
from planner.sizing.choices import choices_of
from planner.sizing.evaluate import BLOCK, Evaluator, SizingOutcome, Workers
from planner.sizing.policy import Policy
from planner.sizing.refusal import nothing, nothing_mends, under
from planner.sizing.selection import Arena, Interval
from planner.sizing.size import CurvePoint, Sized, trial_of
from planner.sizing.survey import Survey, survey
from planner.studies import engines
from tests.output.office import sheets_of
from tests.sizing.toys import (
    LAYOUT,
    bought,
    exhaustive,
    keeps,
    ordered,
    problem,
    solved,
    toy,
    whole,
)

OPTIONS: dict[str, Any] = {"replications": 2, "confirmations": 3}
OLD = {**LAYOUT, "accelerator": "H200", "nodes": 2, "owned": {"bought": "2025-01-01"}}


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Answer[Sized]:
    """The toy sized at one go by one worker, whose folder no test touches."""
    return planner.size(
        toy(("2026-01-01",)), tmp_path_factory.mktemp("sized") / "out", workers=1, **OPTIONS
    )


def check_against_exhaustive(content: dict[str, Any], most: int) -> None:
    # Of fewer replications none may miss: they would confirm what has room to spare alone.
    answer = solved(content, confirmations=80)
    with problem(content) as search:
        best = exhaustive(search, most)
        assert search.choices.within_limits(answer.policy)
        assert answer.cost <= 1.01 * best.cost, (answer.policy, best.policy)


def test_it_finds_what_exhaustive_search_finds() -> None:
    check_against_exhaustive(toy(("2026-01-01",), 4), 4)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(4))
def test_on_three_dates_it_finds_what_exhaustive_search_finds(seed: int) -> None:
    """Two parts, three dates, up to three nodes of each: 400 plans."""
    content = toy(("2026-01-01", "2026-02-01", "2026-03-01"), 3, horizon_months=4, seed=seed)
    content["workloads"]["chat"]["requests_per_s"] = 20
    check_against_exhaustive(content, 3)


def test_flat_traffic_without_chance_takes_the_nodes_that_division_gives() -> None:
    """Constant traffic over one node's capacity, rounded up, whatever share of a node is left over."""
    content = toy(("2026-01-01",), 12, horizon_months=1)
    chat = content["workloads"]["chat"]
    chat |= {
        "growth": {"kind": "flat"},
        "noise": {"sigma": 0},
        "load_profile": {"peak_to_mean": 1.0, "weekend_fraction": 1.0},
    }
    chat |= {"burst_index_of_dispersion": 1.0}
    content["clusters"], content["sizing"]["clusters"] = (
        {"h200": content["clusters"]["h200"]}, {"h200": content["sizing"]["clusters"]["h200"]}
    )  # fmt: skip
    capacity = _capacity_per_s(content)
    for nodes in (2, 5):
        chat["requests_per_s"] = (nodes - 0.4) * capacity
        assert sum(solved(content).policy.purchases) == nodes


def _capacity_per_s(content: dict[str, Any]) -> float:
    plan = simulate(load_scenario({**content, "sizing": None})).plan
    return float(plan.requests_per_node_h[0, 0, 0]) / 3600.0


def test_a_looser_slo_target_never_costs_more() -> None:
    strict, loose = (
        solved(toy(("2026-01-01",), 4), [f"slo_target.attainment={share}"])
        for share in (0.995, 0.9)
    )
    assert loose.cost <= strict.cost


@pytest.mark.prove
def test_a_further_part_never_costs_more() -> None:
    alone = solved(toy(("2026-01-01",), 6), parts=["H200"])
    both = solved(toy(("2026-01-01",), 6))
    assert both.cost <= alone.cost


def test_neither_names_nor_order_matter() -> None:
    content = toy(("2026-01-01",), 4)
    names = {"h200": "zebra", "mi325x": "ant"}
    other = content | {
        "clusters": {names[name]: content["clusters"][name] for name in ("mi325x", "h200")},
        "sizing": {
            "clusters": {
                names[name]: content["sizing"]["clusters"][name] for name in ("mi325x", "h200")
            }
        },
    }
    found = solved(content).policy.purchases
    assert found == solved(other).policy.purchases
    assert len(set(found)) == 2  # or it could not be seen


@pytest.mark.parametrize(
    ("override", "where", "would_do"),
    [
        (
            "sizing.budget_usd=100000",
            "allow no machine",
            "sizing.budget_usd {} instead of 100,000",
        ),
        pytest.param(
            "sizing.it_power_cap_kw=11",
            "chat misses the target most in 2026-02, in 4 replications: 51",
            "sizing.it_power_cap_kw {} instead of 11",
            marks=pytest.mark.prove,
        ),
        (
            "sizing.clusters={h200: {max_nodes: 1}, mi325x: {max_nodes: 1}}",
            "against 99.00% required. The main cause is lack of capacity",
            "sizing.clusters.h200.max_nodes {} instead of 1",
        ),
        pytest.param(
            "sizing.clusters={h200: {max_nodes: 9, max_nodes_per_date: 1}, mi325x: {max_nodes: 1}}",
            "2026-01",
            "sizing.clusters.h200.max_nodes_per_date {} instead of 1",
            marks=pytest.mark.prove,
        ),
    ],
)
def test_the_limit_that_is_named_is_enough(override: str, where: str, would_do: str) -> None:
    """Who misses, when, by how much and why; and with what is named a sizing finds a plan."""
    content = toy(("2026-01-01",), 6)
    before, after = would_do.split("{}")
    with problem(content, [override]) as search:
        assert search.solve(search.levers()) is None
        refusal = nothing(search, Arena(search.trial, search.archive, 36))
    assert where in refusal
    assert "(4 of 4 replications)" in refusal
    value = refusal.split(before)[1].split(after)[0].replace(",", "").strip()
    assert keeps(solved(content, [override, f"{before.strip()}={value}"]))


def test_limits_that_prevent_it_together_are_named_together() -> None:
    with problem(toy(("2026-01-01",), 1), ["sizing.budget_usd=100000"]) as search:
        refusal = nothing(search, Arena(search.trial, search.archive, 36))
    assert (
        "Loosening one limit is not enough. Loosening these together is (simulated): sizing.budget_usd"
        in refusal
    )
    assert "max_nodes 6 instead of 1 (4 of 4 replications)" in refusal


@pytest.mark.parametrize("content", [toy(("2026-02-01",), 6), ordered()])
def test_a_delivery_that_comes_too_late_says_by_how_much(content: dict[str, Any]) -> None:
    late = []
    if "order" in content["clusters"]["h200"]:
        late = ["sizing.clusters.h200.dates=[2026-04-01]"]
    with problem(content, late) as search:
        refusal = nothing(search, Arena(search.trial, search.archive, 36))
        first = search.choices.purchases[0].date
    assert (
        f"Nothing that may be bought is in service at the start of 2026-01: the first date allowed is {first}"
        in refusal
    )
    assert f"instead of {first} (4 of 4 replications)" in refusal


def test_a_budget_too_small_is_refused_in_one_message_and_leaves_nothing(tmp_path: Path) -> None:
    content = toy(("2026-01-01",), 6)
    with pytest.raises(CapacityError, match="This change would be enough, as simulated: sizing"):
        planner.size(
            content, tmp_path / "out", budget=1e5, replications=2, confirmations=2, workers=1
        )
    assert not (tmp_path / "out").exists()


def test_outages_that_no_purchase_mends_stand_first() -> None:
    outages = ["site={outages_per_year: 12, outage_h: 100}", "slo_target.include=site-outages"]
    with problem(toy(most=6), outages) as search:
        assert search.surrogate.fixable < 0.5
        refusal = nothing_mends(search, Arena(search.trial, search.archive, 36))
    assert "whatever is bought (site outages 4 of 4 surveyed), but only 10% may miss it" in refusal
    assert "chat misses the target most in 2026-" in refusal
    assert "The main cause is outages" in refusal
    assert (
        "Without slo_target.include the same plan meets the target in 4 of 4 replications"
        in refusal
    )


def test_what_serves_by_rent_alone_is_not_refused() -> None:
    content = toy(("2026-01-01",), 1)
    content["finance"] = {"burst_rental": {"usd_per_accelerator_h": 4.0, "available_fraction": 1.0}}
    content["sizing"]["max_rented_accelerators"] = 256
    with problem(content) as search:
        best = search.solve(search.levers(rent=True))
        assert best is not None
        assert best.rented_instances


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sizing": None}, "does not say what may be bought"),
        ({"sizing": {}}, "names nothing to choose"),
        ({"sizing": {"clusters": {"h300": {}}}}, "no cluster is called 'h300'"),
        ({"sizing": {"clusters": {"h200": {"dates": ["2025-12-31"]}}}}, "before the start"),
        ({"sizing": {"clusters": {"h200": {"dates": ["2026-03-01"]}}}}, "after the end"),
        ({"sizing": {"clusters": {"h200": {}}, "windows": ["2025-12-31"]}}, "before the start"),
        ({"sizing": {"clusters": {"h200": {}}, "windows": ["2031-01-01"]}}, "after the end"),
        ({"sizing": {"clusters": {"h200": {"min_nodes": 5, "max_nodes": 4}}}}, "min_nodes, 5, is more than"),
        ({"sizing": {"retire": {"h200": ["2026-09-01"]}}}, "not within the horizon"),
        ({"sizing": {"clusters": {"h200": {}}, "orders": "reactive"}}, "needs a cluster with an order"),
        ({"sizing": {"clusters": {"old": {}}}, "clusters": {"old": OLD}}, "is already owned"),
        ({"sizing": {"clusters": {"h200": {}}, "max_rented_accelerators": 64}}, "needs terms for renting"),
        ({"slo_target": {"attainment": 1.5}}, "less than or equal to 1"),
        ({"expansion": {"rules": [{"when": "shed_above", "threshold_fraction": 0.1, "cluster": "h200", "nodes": 1}]}},
         "rules buy what the sizing should choose"),
    ],
)  # fmt: skip
def test_what_cannot_be_chosen_is_refused_in_one_message(change: dict[str, Any], said: str) -> None:
    content = {key: part for key, part in (toy() | change).items() if part is not None}
    with pytest.raises(ScenarioError, match=said) as refused:
        choices_of(load_scenario(content))
    assert len(refused.value.problems) == 1


def test_a_policy_runs_as_it_is_and_gives_the_same_figures(sized: Answer[Sized]) -> None:
    content = toy(("2026-01-01",))
    answer = sized
    result = simulate(load_scenario(answer.folder / "policy.yaml"), seed=1, replication=0)
    with problem(content) as search:
        own = search.archive.outcomes([(answer.result.plan.policy, 0)])[0]
    assert present_cost_usd(result).sum() == pytest.approx(own.net_present_cost_usd, rel=1e-12)
    assert result.slo_result().shortfall_fraction == pytest.approx(
        max(0.0, 0.99 - own.worst), abs=1e-12
    )
    summary = answer.summary()
    assert summary["schema_version"] == SCHEMA_VERSION
    assert summary["objective_low_usd"] <= summary["objective_usd"] <= summary["objective_high_usd"]
    assert 0.0 <= summary["probability_fraction"] <= 1.0
    files = {path.name for path in answer.folder.iterdir()}
    assert {"policy.yaml", "policies.csv", "frontier.csv", "months.csv", "report.html"} <= files
    sheets = sheets_of((answer.folder / "workbook.xlsx").read_bytes())
    assert {"Percentiles by month", "Size purchases", "Size policies"} <= set(sheets)
    stated = simulate(load_scenario(answer.folder / "policy.yaml"))
    assert answer.result.as_stated().cost_cents().sum() == stated.cost_cents().sum()
    policies = answer.table()
    assert policies.ways.tolist() == ["fixed purchases"]
    assert policies.objective_usd.item() == pytest.approx(summary["objective_usd"], rel=0.02)
    for rival in answer.result.rivals:
        assert rival.policy is None or answer.result.choices.parts(rival.policy) == {rival.name}


def test_a_cheaper_plan_for_more_says_that_it_was_not_confirmed(sized: Answer[Sized]) -> None:
    """The level that is asked is the recommendation; what was only simulated says so, and why it is not bought."""
    answer = sized.result
    own = answer.plan
    cheaper = dataclasses.replace(own, policy=answer.choices.nothing(), costs=own.costs - 1.0)
    points = [
        CurvePoint(
            judged=judged,
            interval=Interval(0.86, 0.99),
            answers=levels,
            is_knee=False,
            is_cliff=False,
        )
        for judged, levels in ((cheaper, (0.95,)), (own, (0.85, 0.9)))
    ]
    for passed in (True, False):
        confirmation = dataclasses.replace(answer.confirmation, passed=passed)
        result = dataclasses.replace(answer, confirmation=confirmation, curve=(*points,))
        said = [*_other_levels(result)]
        assert len(said) == (1 if passed else 2)
        reason = "It is not confirmed at 95%, so it is not recommended although it costs less."
        assert said[0].endswith(reason) == passed
        assert "simulated for P(SLO met) 95% costs" in said[0]
        assert all("It is not confirmed at" in line for line in said)


def test_a_cluster_that_is_not_needed_is_retired() -> None:
    content = toy(("2026-01-01",))
    content["clusters"]["old"] = {
        **LAYOUT,
        "accelerator": "H200",
        "nodes": 12,
        "contract": {"kind": "on-demand"},
    }
    content["clusters"]["spare"] = {**LAYOUT, "accelerator": "H200", "nodes": 6}
    content["sizing"]["retire"] = {"spare": ["2026-01-15"]}
    with problem(content) as search:
        found = search.solve(search.levers())
        assert found is not None
        kept = whole(search, found.with_retirement(0, 0))
        gone = whole(search, found.with_retirement(0, 1))
        assert found.retirements == (int(keeps(gone) and gone.cost < kept.cost),)


def test_where_nothing_is_bought_it_says_so(tmp_path: Path) -> None:
    content = toy(("2026-01-01",))
    content["clusters"]["old"] = {**LAYOUT, "accelerator": "H200", "nodes": 12}
    answer = planner.size(content, tmp_path / "out", replications=2, confirmations=75, workers=1)
    assert answer.summary()["sentences"]["answer"][0].startswith("Buy nothing more: it meets")


def test_a_study_reaches_every_purchase_and_the_vendors_whatever_its_scenarios_are_called(
    tmp_path: Path,
) -> None:
    content = toy(("2026-01-01", "2026-02-01"))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(content).replace("'", ""))
    reached = {
        "clusters.mi325x*.accelerator_price_usd": [20e3, 30e3],
        "reliability.vendor_failure_multiplier.amd": [1.0, 2.0],
    }
    study = {
        "name": "prices",
        "scenarios": {"toy": {"extends": "toy.yaml"}},
        "uncertain": {
            name: {"kind": "uniform", "low": low, "high": high}
            for name, (low, high) in reached.items()
        },
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    trial = trial_of(load_scenario(content), (), tmp_path / "study.yaml", "net-present-cost", None)
    assert [[path[1:] for path in found.targets[0]] for found in trial.inputs.entries[:2]] == [
        [
            ("mi325x-2026-01-01", "accelerator_price_usd"),
            ("mi325x-2026-02-01", "accelerator_price_usd"),
        ],
        [("vendor_failure_multiplier", "amd")],
    ]
    nodes = Policy(purchases=(0, 0, 3, 0))
    outcome = Workers(trial, 1).subject.outcome(nodes, 0)
    assert np.isfinite(outcome.cost)


def test_a_sizing_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sized: Answer[Sized]
) -> None:
    """Killed in its confirmation, it leaves its runs; resumed, it runs only the others, to the same bytes."""
    content = toy(("2026-01-01",))
    options = {**OPTIONS, "workers": 1}
    runs: list[int] = []
    outcome = Evaluator.outcome

    def counted(evaluator: Evaluator, policy: Policy, replication: int) -> SizingOutcome:
        runs.append(replication)
        if replication >= BLOCK and "stop" in flags:
            raise RuntimeError
        return outcome(evaluator, policy, replication)

    flags = {"stop"}
    monkeypatch.setattr(Evaluator, "outcome", counted)
    with pytest.raises(RuntimeError):
        planner.size(content, tmp_path / "stopped", **options)
    with pytest.raises(ScenarioError, match="holds an unfinished sizing"):
        planner.size(content, tmp_path / "stopped", **options)
    before = len(runs)
    flags = set[str]()
    planner.size(content, tmp_path / "stopped", resume=True, **options)
    assert not {0, 1} & set(runs[before : before + 2])  # what was searched is not run again
    for name in ("policy.yaml", "policies.csv", "summary.json"):
        assert (tmp_path / "stopped" / name).read_bytes() == (sized.folder / name).read_bytes()


def test_the_answer_can_be_read_before_the_search_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped while rivals are worked out, a confirmed policy is written, and says that the search was not finished."""
    seen: list[str] = []

    def stopped(*_: object) -> object:
        seen.extend(path.read_text() for path in tmp_path.rglob("policy.yaml"))
        raise KeyboardInterrupt

    monkeypatch.setattr(sizing, "explain", stopped)
    answer = planner.size(
        toy(("2026-01-01",)), tmp_path / "out", replications=2, confirmations=2, workers=1
    )
    assert len(seen) == 1
    assert "toy-sized" in seen[0]
    assert answer.summary()["stopped"] == "it was interrupted"
    cut_short = "The search was not finished (it was interrupted): a cheaper plan may exist."
    assert cut_short in answer.summary()["sentences"]["answer"]


def test_a_stop_before_the_first_plan_keeps_what_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sized: Answer[Sized]
) -> None:
    """By its time or by Ctrl-C: it says how far it came, and goes on from there to the same bytes."""
    content = toy(("2026-01-01",))
    options: dict[str, Any] = {**OPTIONS, "workers": 1}
    folder = tmp_path / "out"
    surveys: list[int] = []

    def counted(evaluator: Evaluator, policy: Policy, replication: int) -> Survey:
        surveys.append(replication)
        return survey(evaluator, policy, replication)

    monkeypatch.setattr(archive, "survey", counted)
    with pytest.raises(api.Stopped, match="confirmed before the time was over") as late:
        planner.size(content, folder, minutes=1e-9, **options)
    assert "The last step was: surveying 2 replications. 1 surveys and runs are stored" in str(
        late.value
    )
    with pytest.raises(ScenarioError, match="holds an unfinished sizing"):
        planner.size(content, folder, **options)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "outcome", interrupted)
        with pytest.raises(api.Stopped, match="before it was interrupted"):
            planner.size(content, folder, resume=True, **options)
    assert surveys == [0, 1]
    planner.size(content, folder, resume=True, **options)
    assert surveys == [0, 1]
    for name in ("policy.yaml", "policies.csv", "summary.json"):
        assert (folder / name).read_bytes() == (sized.folder / name).read_bytes()


def test_a_sizing_that_begins_anew_says_why(tmp_path: Path) -> None:
    content = toy(("2026-01-01",))
    lines: list[str] = []

    def resumed(**changes: Any) -> None:
        options = {**OPTIONS, "workers": 1, "rivals": False, **changes}
        planner.size(content, tmp_path / "out", resume=True, progress=lines.append, **options)

    resumed()
    assert "has nothing to resume: it holds nothing of a sizing, so it starts again" in lines[0]
    lines.clear()
    resumed()
    assert "has nothing to resume: its sizing is finished, so it starts again" in lines[0]
    with pytest.raises(api.Stopped):
        resumed(minutes=1e-9)
    with pytest.raises(ScenarioError, match=r"the seed changed \(start again with --restart\)"):
        resumed(seed=7)


def test_progress_says_what_is_tried_and_how_long_it_takes(tmp_path: Path) -> None:
    lines: list[str] = []
    options: dict[str, Any] = {"replications": 4, "confirmations": 36, "workers": 1}
    planner.size(toy(("2026-01-01",), 6), tmp_path / "out", progress=lines.append, **options)
    confirmed = [line for line in lines if line.startswith("confirming in 36 new replications")]
    assert re.search(r", at most \d+ (s|min): \d × ", confirmed[0])


def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path, sized: Answer[Sized]) -> None:
    planner.size(toy(("2026-01-01",)), tmp_path / "two", workers=2, **OPTIONS)
    for name in ("policy.yaml", "policies.csv", "summary.json"):
        assert (tmp_path / "two" / name).read_bytes() == (sized.folder / name).read_bytes()


def test_a_sizing_that_could_not_begin_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_CONNECT_S", 1)
    with pytest.raises(ScenarioError, match="no Dask scheduler answers"):
        planner.size(
            toy(("2026-01-01",)), tmp_path / "o", replications=2, scheduler="tcp://127.0.0.1:1"
        )
    assert not (tmp_path / "o").exists()


@pytest.mark.prove
def test_it_chooses_among_ways_to_have_a_part() -> None:
    """A cheap contract is taken, and one that costs more than owning is not."""
    for usd, is_rented in ((0.2, True), (30.0, False)):
        contract = {"kind": "reserved", "term_months": 12, "usd_per_accelerator_h": usd}
        clusters = {
            "bought": {**LAYOUT, "accelerator": "H200", "nodes": 1},
            "reserved": {**LAYOUT, "accelerator": "H200", "nodes": 1, "contract": contract},
        }
        content = toy(
            clusters=clusters, sizing={"clusters": {name: {"max_nodes": 8} for name in clusters}}
        )
        with problem(content) as search:
            found = search.solve(search.levers())
            assert found is not None
            nodes = zip(search.choices.purchases, found.purchases, strict=True)
            names = [purchase.cluster for purchase, number in nodes if number]
            assert names == (["reserved"] if is_rented else ["bought"])


def test_a_discount_counts_from_where_it_holds() -> None:
    """Half off from six nodes on is worth two nodes more than are needed."""
    content = toy(("2026-01-01",), 9)
    del content["clusters"]["mi325x"], content["sizing"]["clusters"]["mi325x"]
    few = sum(solved(content).policy.purchases)
    tier = {"from_accelerators": 8 * (few + 1), "discount_fraction": 0.6}
    content["clusters"]["h200"]["volume_discounts"] = [tier]
    assert sum(solved(content).policy.purchases) == few + 1


def test_people_are_predicted_as_the_ledger_has_them() -> None:
    """Two engineers for every node are paid in whole people: predicted cost and simulated cost agree on them."""
    content = toy(("2026-01-01",), 6)
    content["software"] = {
        **content["software"],
        "engineers_per_800": {"nvidia": 60.0, "amd": 60.0},
    }
    with problem(content) as search:
        policies = [bought(search, *nodes) for nodes in ((2, 0), (6, 0), (0, 5))]
        costs = [(search.cost(policy), whole(search, policy).cost) for policy in policies]
    predicted, simulated = np.array(costs).T
    assert predicted == pytest.approx(simulated, rel=0.03)


def test_a_limit_that_binds_has_a_price_and_one_more_of_it_never_costs_more(tmp_path: Path) -> None:
    content = toy(("2026-01-01",), 6)
    content["sizing"]["clusters"]["h200"] = {"dates": ["2026-01-01"], "max_nodes": 2}
    answer = planner.size(content, tmp_path / "out", replications=2, confirmations=2, workers=1)
    limits = answer.result.explanation.limits
    assert all(limit.saved >= 0.0 for limit in limits)
    with problem(content) as search:
        wider = search.choices.choose.model_copy(deep=True)
        other = under(search, wider)
        policy = bought(search, 2, 3)
        assert other.value(policy) == search.value(policy)
