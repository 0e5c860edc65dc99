"""An API as a way to have capacity: what it serves, what it costs, and what it never sees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.engine.driver import run_plan
from planner.errors import ScenarioError
from planner.finance.accounts import Account
from planner.finance.ledger import Dimension
from planner.plan.build import build_plan
from planner.run.simulate import RunResult
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario
from tests.engine.worlds import BASE, merged
from tests.ledgers import Run

PRICES = (
    "{llama-3.1-8b: {input_usd_per_million_tokens: 0.2, cached_input_usd_per_million_tokens: 0.05, "
    "output_usd_per_million_tokens: 0.6, change_per_year: -0.5}}"
)
API = f"clusters.api={{contract: {{kind: api, token_prices: {PRICES}}}}}"
BUSY = (
    "workloads.chat.requests_per_s=3300",
    "workloads.chat.prefix_cache_hit_fraction=0.25",
    "clusters.mi325x=null",
)


def api_cents(result: RunResult) -> list[int]:
    table = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    return [int(cents) for cents in table[:, list(Account).index(Account.API)]]


def test_an_api_costs_its_tokens_times_their_prices_to_the_cent(run: Run) -> None:
    """500 prompt tokens, a quarter of them cached, and 100 generated; prices halve in a year; a month pays its mean."""
    result = run(*BUSY, API)
    (window,) = result.run.windows
    requests = np.add.reduceat(window.served_requests[1, 0], result.plan.month_edges_h[:-1])
    assert requests.min() > 1e6
    request_usd = (375 * 0.2 + 125 * 0.05 + 100 * 0.6) / 1e6
    mean = (
        -np.diff(0.5 ** (np.arange(4) / 12)) * 12 / np.log(2.0)
    )  # the integral of the price over each month
    to_date = np.cumsum(requests * request_usd * mean)
    assert np.cumsum(api_cents(result)).tolist() == pytest.approx((to_date * 100).tolist(), abs=1.0)
    assert result.cost_cents()[:, 1].sum() == sum(
        api_cents(result)
    )  # no power, people, support nor capital


def test_an_api_serves_what_machines_would_shed_and_nothing_else(run: Run) -> None:
    alone = run(*BUSY)
    beside = run(*BUSY, API)
    assert alone.monthly.shed_requests.sum() > 0.05 * alone.monthly.demand_requests.sum()
    assert beside.monthly.shed_requests.sum() == 0.0
    assert beside.monthly.served_requests[:, 1] == pytest.approx(alone.monthly.shed_requests)
    assert np.array_equal(beside.monthly.served_requests[:, 0], alone.monthly.served_requests[:, 0])
    assert np.array_equal(beside.monthly.it_kwh[:, 0], alone.monthly.it_kwh[:, 0])


def test_a_plan_of_an_api_alone_has_the_catalogues_price(run: Run) -> None:
    """DeepInfra's 0.02 and 0.04 dollars a million for Llama 8B; all of it is in time, and nothing else is paid."""
    result = run(
        "clusters.h200=null",
        "clusters.mi325x=null",
        "clusters.api={contract: {kind: api, serves: all}}",
    )
    tokens = result.monthly.demand_requests.sum() * np.array([500, 100]) / 1e6
    assert sum(api_cents(result)) / 100 == pytest.approx(float(tokens @ [0.02, 0.04]), abs=0.01)
    assert result.cost_cents().sum() == sum(api_cents(result))
    assert not result.monthly.late_requests.any()
    assert not result.plan.warnings


def test_data_that_must_not_leave_is_never_sent_to_an_api(run: Run) -> None:
    lengths = "lengths: {input: {mean: 500}, output: {mean: 100}}"
    private = f"workloads.private={{model: llama-3.1-8b, requests_per_s: 900, {lengths}"
    for serves in ("overflow", "all"):
        result = run(
            *BUSY,
            API.replace("kind: api", f"kind: api, serves: {serves}"),
            f"{private}, allow_api: false}}",
        )
        sent = result.monthly.served_requests[:, 1]
        assert sent[:, 0].sum() > 0
        assert sent[:, 1].sum() == 0
        if serves == "all":  # the machines are left to it
            assert result.monthly.served_requests[:, 0, 0].sum() == 0
            assert result.monthly.shed_requests.sum() < 1e-6 * result.monthly.demand_requests.sum()


def test_beyond_its_ceiling_an_api_leaves_the_rest_shed(run: Run) -> None:
    """600 tokens a request, 60,000 a second: a hundred requests."""
    limited = API.replace("kind: api", "kind: api, max_tokens_per_s: 60000")
    alone = run(*BUSY)
    beside = run(*BUSY, limited)
    short = np.concatenate([window.shed_requests[0] for window in alone.run.windows])
    sent = np.concatenate([window.served_requests[1, 0] for window in beside.run.windows])
    assert sent.tolist() == pytest.approx(np.minimum(short, 100 * 3600).tolist())
    assert beside.monthly.shed_requests.sum() == pytest.approx(
        np.maximum(short - 360_000, 0.0).sum()
    )


def test_an_outage_of_the_site_is_served_by_an_api(run: Run) -> None:
    dark = ("site.outages_per_year=60", "site.outage_h=6", "workloads.chat.requests_per_s=50")
    assert run(*dark).monthly.shed_requests.sum() > 0
    assert run(*dark, API).monthly.shed_requests.sum() == 0.0


@settings(max_examples=15, deadline=None)
@given(
    st.floats(0.0, 4000.0), st.floats(0.0, 4000.0), st.sampled_from(["overflow", "all"]),
    st.sampled_from([None, 1e5, 2e6]), st.booleans(), st.integers(0, 3),
)  # fmt: skip
def test_what_came_is_served_shed_or_waits_in_every_hour(
    chat: float, batch: float, serves: str, most: float | None, allowed: bool, nodes: int
) -> None:
    price = {"input_usd_per_million_tokens": 1, "output_usd_per_million_tokens": 2}
    contract = {
        "kind": "api",
        "serves": serves,
        "max_tokens_per_s": most,
        "token_prices": {"llama-3.1-8b": price},
    }
    lengths = {"input": {"mean": 500}, "output": {"mean": 100}}
    load = {"model": "llama-3.1-8b", "lengths": lengths}
    world = {
        "name": "world", "start": "2026-01-01", "horizon_months": 1,
        "workloads": {
            "chat": {**load, "requests_per_s": chat, "allow_api": allowed},
            "batch": {**load, "requests_per_s": batch, "priority": "deferrable"},
        },
        "clusters": {"own": {"accelerator": "H200", "nodes": nodes}, "api": {"contract": contract}},
    }  # fmt: skip
    plan = build_plan(load_scenario(world))
    (window,) = run_plan(plan, 1).windows
    went = window.served_requests.sum(axis=0) + window.shed_requests
    assert went[0] == pytest.approx(window.demand_requests[0], rel=1e-9, abs=1e-6)
    waits = window.waiting_requests[1].sum()
    assert went[1].sum() + waits == pytest.approx(
        window.demand_requests[1].sum(), rel=1e-9, abs=1e-3
    )
    assert window.shed_requests.min() > -1e-6
    assert not window.served_requests[1, 0].any() or allowed
    if most is not None:
        assert (window.served_requests[1].sum(axis=0) * 600).max() <= most * 3600 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"contract": {"kind": "api"}, "nodes": 2}, "leave accelerator and nodes out"),
        ({"contract": {"kind": "api"}, "accelerator": "H200"}, "leave accelerator and nodes out"),
        ({"contract": {"kind": "api", "serve": "all"}}, "did you mean serves?"),
        ({"contract": {"kind": "on-demand"}}, "clusters.api.accelerator"),
    ],
)
def test_an_api_that_cannot_be_is_refused(cluster: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(merged(BASE, {"clusters": {"api": cluster}}))
    assert message in str(caught.value)


def test_a_model_without_a_price_needs_one(write: WriteScenario) -> None:
    changes = ["workloads.chat.model=llama-2-7b", "clusters.api={contract: {kind: api}}"]
    with pytest.raises(ScenarioError, match="no API price of llama-2-7b"):
        build_plan(load_scenario(write(), changes))
    build_plan(load_scenario(write(), [*changes, "workloads.chat.allow_api=false"]))
