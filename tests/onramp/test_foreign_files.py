"""Files that other tools write, each made here by its documented layout from a truth that the fit is held against."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xlsxwriter  # type: ignore[import-untyped]

from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from tests.conftest import Planner, WriteScenario

START_S = 1_767_571_200  # Monday 2026-01-05 00:00 UTC
DAYS = 42
OWN_MODELS = ("--model", "gpt-oss-120b")


def _requests(mean: float, seed: int) -> list[int]:
    """Return the requests of each day."""
    generator = np.random.default_rng(seed)
    return generator.poisson(mean, DAYS).tolist()  # type: ignore[no-any-return]


def _openai_pages() -> list[dict[str, Any]]:
    """Return pages of GET /v1/organization/usage/completions, grouped by model, in daily buckets."""
    chat = _requests(40_000, 1)
    code = _requests(9_000, 2)
    buckets = []
    for day in range(DAYS):
        results = [
            {
                "object": "organization.usage.completions.result",
                "input_tokens": number * prompt,
                "output_tokens": number * reply,
                "input_cached_tokens": number * prompt // 4,
                "num_model_requests": number,
                "project_id": None,
                "model": model,
                "batch": None,
            }
            for model, number, prompt, reply in (
                ("gpt-5-mini", chat[day], 800, 200),
                ("gpt-5", code[day], 2400, 60),
            )
        ]
        start = START_S + 86_400 * day
        end = start + 86_400
        buckets.append(
            {"object": "bucket", "start_time": start, "end_time": end, "results": results}
        )
    return [
        {"object": "page", "data": part, "has_more": part is not buckets, "next_page": None}
        for part in (buckets[:31], buckets[31:])
    ]


def _litellm_days() -> dict[str, Any]:
    """Return the answer of GET /user/daily/activity."""
    days = []
    for day, number in enumerate(_requests(5_000, 3)):
        metrics = {
            "spend": 1.5,
            "prompt_tokens": number * 1500,
            "completion_tokens": number * 300,
            "cache_read_input_tokens": number * 500,
            "total_tokens": number * 1800,
            "successful_requests": number,
            "failed_requests": 12,
            "api_requests": number + 12,
        }
        date = datetime.date(2026, 1, 5) + datetime.timedelta(days=day)
        models = {"openai/gpt-oss-120b": {"metrics": metrics, "metadata": {}}}
        breakdown = {"models": models, "providers": {}, "api_keys": {}}
        days.append({"date": str(date), "metrics": metrics, "breakdown": breakdown})
    return {"results": days, "metadata": {"total_pages": 1, "has_more": False}}


def _litellm_logs() -> list[dict[str, Any]]:
    """Return an export of LiteLLM's table of spend logs, a request each."""
    generator = np.random.default_rng(4)
    moments = np.sort(generator.uniform(START_S, START_S + 7200, 3000))
    lengths = np.exp(6.0 + 0.8 * generator.standard_normal(3000)).round()
    return [
        {
            "request_id": f"chatcmpl-{number}",
            "call_type": "acompletion",
            "spend": 0.001,
            "startTime": datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(),
            "prompt_tokens": int(length),
            "completion_tokens": 120,
            "model": "openai/gpt-oss-120b",
            "user": "web",
        }
        for number, (moment, length) in enumerate(zip(moments, lengths, strict=True))
    ]


def _loaded(planner: Planner, folder: Path, *options: str) -> Scenario:
    told = planner("init", "fleet", *options)
    assert told.code == 0, told.err
    return load_scenario(folder / "fleet.yaml")


def test_pages_of_the_openai_usage_api(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write(json.dumps(_openai_pages()), "usage.json")
    loads = _loaded(planner, tmp_path, "--from", "usage.json", *OWN_MODELS).workloads
    assert set(loads) == {"gpt-5-mini", "gpt-5"}
    chat = loads["gpt-5-mini"]
    assert chat.requests_per_s == pytest.approx(40_000 / 86_400, rel=0.01)
    assert chat.lengths.input.distribution.mean_tokens == pytest.approx(800, rel=0.01)
    assert chat.lengths.output.distribution.mean_tokens == pytest.approx(200, rel=0.01)
    assert chat.prefix_cache_hit_fraction == pytest.approx(0.25, rel=1e-3)
    assert loads["gpt-5"].requests_per_s == pytest.approx(9_000 / 86_400, rel=0.01)
    text = (tmp_path / "fleet.yaml").read_text()
    assert "daily counts do not show hours" in text


def test_days_of_litellm(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    write(json.dumps(_litellm_days()), "activity.json")
    ((name, load),) = _loaded(planner, tmp_path, "--from", "activity.json").workloads.items()
    assert (name, load.model) == ("gpt-oss-120b", "gpt-oss-120b")
    assert load.requests_per_s == pytest.approx(5_000 / 86_400, rel=0.02)
    assert load.lengths.input.distribution.mean_tokens == pytest.approx(1500, rel=0.01)
    assert load.prefix_cache_hit_fraction == pytest.approx(1 / 3, rel=1e-3)


def test_spend_logs_of_litellm(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    write(json.dumps(_litellm_logs(), indent=1), "spend.json")
    (load,) = _loaded(planner, tmp_path, "--from", "spend.json").workloads.values()
    assert load.model == "gpt-oss-120b"
    assert load.requests_per_s == pytest.approx(3000 / 7200, rel=0.01)
    assert load.lengths.input.distribution.quantile(0.5) == pytest.approx(np.exp(6.0), rel=0.05)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('{"object": "page", "data": [{"object": "bucket", "start_time": 1,\n "res', ["f.json:2"]),
        (
            '{"data": [{"object": "bucket", "start_time": 1767571200, "results": [{}]}]}',
            ["f.json: data[0].results[0].num_model_requests: must be a number"],
        ),
        ('{"data": [{"object": "bucket", "start_time": 1767571200}]}', ["data[0].results: must"]),
        ('{"results": [{"date": 5, "metrics": {}}]}', ["results[0].date: must be a date"]),
        ('{"results": [{"date": "x", "metrics": []}]}', ["results[0]"]),
        ('[{"startTime": "x"}, 5]', ["f.json", "not a JSON object"]),
    ],
)
def test_what_does_not_fit_is_named(
    planner: Planner, write: WriteScenario, text: str, parts: list[str], tmp_path: Path
) -> None:
    write(text, "f.json")
    planner("init", "x", "--from", "f.json").refused(*parts)
    assert not (tmp_path / "x.yaml").exists()


def _book(path: Path, rows: list[list[Any]]) -> None:
    with xlsxwriter.Workbook(str(path)) as book:
        book.add_worksheet("empty")
        sheet = book.add_worksheet("list")
        date_format = book.add_format({"num_format": "yyyy-mm-dd"})
        for line, row in enumerate(rows):
            for column, cell in enumerate(row):
                if isinstance(cell, datetime.date):
                    sheet.write_datetime(line, column, cell, date_format)
                else:
                    sheet.write(line, column, cell)


def test_an_inventory_of_single_machines_and_quotes_as_workbooks(
    planner: Planner, tmp_path: Path
) -> None:
    bought = datetime.datetime(2025, 3, 1)
    machines = [[f"gpu-{number:02d}", "H200", bought] for number in range(10)]
    _book(tmp_path / "owned.xlsx", [["Hostname", "Accelerator", "Bought"], *machines])
    header = ["Accelerator", "Price USD", "Lead weeks", "Vendor"]
    _book(tmp_path / "quotes.xlsx", [header, ["B200", 39_500.0, 20, "Acme"], ["H200", 31_000, 12]])
    lists = ("--fleet", "owned.xlsx", "--quotes", "quotes.xlsx")
    clusters = _loaded(planner, tmp_path, "--requests-per-s", "9", *lists).clusters
    owned = clusters["h200-2025-03"]
    assert owned.nodes == 10
    assert owned.owned is not None
    assert owned.owned.bought == datetime.date(2025, 3, 1)
    quote = clusters["b200-quote"]
    assert quote.order is not None
    assert (quote.accelerator_price_usd, quote.order.lead_weeks) == (39_500, 20)


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_every_bad_row_of_a_list_is_named_at_once(
    planner: Planner, tmp_path: Path, suffix: str
) -> None:
    quotes: list[list[Any]] = [
        ["accelerator", "price_usd", "min_nodes", "earliest", "latest"],
        ["B200", "", "", "", "2026-02-31"],
        ["B20", 39_500, -2, "", ""],
        ["H200", 31_000, "", "2026-02-30", ""],
        ["", 31_000, "", "", ""],
    ]
    owned: list[list[Any]] = [
        ["accelerator", "nodes", "bought", "name"],
        ["H200", "", "2025-03-01", "a"],
        ["H20", 6, "2025-03-01", "a"],
        ["H100", -2, "2025-03-01", ""],
        ["H100", 2, "2025-02-30", ""],
        ["H100", 2, "", ""],
    ]
    for name, rows in (("quotes", quotes), ("owned", owned)):
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "xlsx":
            _book(path, rows)
        else:
            path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    lists = ("--fleet", f"owned.{suffix}", "--quotes", f"quotes.{suffix}")
    told = planner("init", "x", *lists)
    places = [
        "owned.2: nodes: is required",
        "owned.3: name: 'a' is also the name of",
        "owned.3: clusters.a-2.accelerator: unknown accelerator 'H20' (did you mean H200?)",
        "owned.4: clusters.h100-2025-03.nodes: must be greater than or equal to 0, not -2",
        "owned.5: clusters.h100-2025-02.owned.bought: must be a date, YYYY-MM-DD, not '2025-02-30'",
        "owned.6: bought: is required",
        "quotes.2: needs price_usd",
        "quotes.2: latest: must be a date",
        "quotes.3: clusters.b20-quote.nodes: must be greater than or equal to 0, not -2",
        "quotes.3: sizing.clusters.b20-quote.min_nodes: must be greater than or equal to 0, not -2",
        "quotes.3: clusters.b20-quote.accelerator: unknown accelerator 'B20' (did you mean B200?)",
        "quotes.4: clusters.h200-quote.order.placed: must be a date, YYYY-MM-DD, not '2026-02-30'",
        "quotes.5: accelerator: is required",
    ]
    expected = [place.replace(".", f".{suffix}:", 1) for place in places]
    told.refused(*expected)
    # In the order of the lines, and nothing that follows from another problem.
    lines = told.err.replace("error: ", "").splitlines()
    assert all(line.startswith(part) for line, part in zip(lines, expected, strict=True)), told.err
    assert {path.name for path in tmp_path.iterdir()} == {f"owned.{suffix}", f"quotes.{suffix}"}


def test_a_broken_workbook_is_refused(planner: Planner, tmp_path: Path) -> None:
    _book(tmp_path / "quotes.xlsx", [["Accelerator", "Price USD"], ["B200", "cheap"]])
    planner("init", "x", "--quotes", "quotes.xlsx").refused("quotes.xlsx:2")
    whole = (tmp_path / "quotes.xlsx").read_bytes()
    (tmp_path / "quotes.xlsx").write_bytes(whole[: len(whole) // 2])
    planner("init", "x", "--quotes", "quotes.xlsx").refused("quotes.xlsx: is not a workbook")


def test_a_password_of_an_address_is_not_printed(planner: Planner) -> None:
    told = planner("init", "x", "--from", "http://me:secret@127.0.0.1:9/metrics")
    assert told.code == 2
    assert "secret" not in told.err
