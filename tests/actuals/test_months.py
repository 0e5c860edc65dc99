"""Reading months that happened: what is right, and one message for what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.actuals.months import Actuals, read_actuals
from planner.errors import ScenarioError
from planner.finance.accounts import Account
from planner.finance.measure_names import FLEET, SeriesKey
from planner.scenario.loading import load_scenario
from tests.conftest import TINY

FINANCE = "files:\n  books.csv:\n    kind: finance\n    columns: {Konto: account, Periode: month, Betrag: usd}\n"
FINANCE += "    accounts: {'6310': energy, '6311': energy, '8000': revenue, '9': leave_out}\n"
BOOKS = (
    "Konto,Periode,Betrag\n6310,2026-01,100\n6311,2026-01-31,20.5\n9,2026-02,7\n6310,2026-02,110\n"
)


def _read(folder: Path, mapping: str, **files: str) -> Actuals:
    (folder / "mapping.yaml").write_text(mapping)
    for name, content in files.items():
        (folder / f"{name}.csv").write_text(content)
    (folder / "tiny.yaml").write_text(TINY)
    return read_actuals(folder, load_scenario(folder / "tiny.yaml"))


def _refused(folder: Path, mapping: str, *parts: str, **files: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        _read(folder, mapping, **files)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_accounts_are_mapped_and_summed(tmp_path: Path) -> None:
    found = _read(tmp_path, FINANCE, books=BOOKS)
    assert found.months == ("2026-01", "2026-02")
    assert found.series[SeriesKey("account", FLEET, Account.ENERGY)].tolist() == [120.5, 110.0]


def test_income_is_turned_where_the_books_have_it_positive(tmp_path: Path) -> None:
    books = BOOKS + "8000,2026-01,500\n8000,2026-02,600\n"
    _refused(tmp_path, FINANCE, "income: positive", books=books)
    found = _read(tmp_path, FINANCE + "    income: positive\n", books=books)
    assert found.series[SeriesKey("account", FLEET, Account.REVENUE)].tolist() == [-500.0, -600.0]


def test_all_that_is_wrong_is_said(tmp_path: Path) -> None:
    more = "6310,2026-02,1\n6310,2026-04,1\n7777,2026-01,1\n6310,March,1\n6311,2026-02,much\n"
    said = ("books.csv:6", "6310 of 2026-02 is there twice, first on line 5", "2026-04 lies outside the plan",
            "unknown account '7777'", "'March' is not a month", "'much' is not a number")  # fmt: skip
    _refused(tmp_path, FINANCE, *said, books=BOOKS + more)
    _refused(
        tmp_path,
        FINANCE,
        "2026-02 missing",
        books="Konto,Periode,Betrag\n6310,2026-01,1\n6310,2026-03,1\n",
    )
    _refused(tmp_path, FINANCE, "no column 'Konto'", books="Kto,Periode,Betrag\n6310,2026-01,1\n")
    _refused(tmp_path, "files: {books.csv: {kind: finance}}", "no column 'account'", books=BOOKS)
    _refused(
        tmp_path,
        FINANCE + "errors: {enery: 0.1}\n",
        "no figure or account is named 'enery'",
        books=BOOKS,
    )


def test_every_file_has_the_same_months(tmp_path: Path) -> None:
    mapping = FINANCE + "  own.csv: {kind: figures}\n"
    _refused(
        tmp_path,
        mapping,
        "own.csv: 2026-02 missing",
        books=BOOKS,
        own="month,demand_tokens\n2026-01,5\n",
    )


def test_figures_of_clusters_workloads_and_the_fleet(tmp_path: Path) -> None:
    mapping = (
        "files:\n  own.csv: {kind: figures, decimal_comma: true}\n  load.csv: {kind: figures}\n"
    )
    own = "month;cluster;utilisation_fraction;demand_tokens;other\n2026-01;h200;0,25;;x\n2026-01;fleet;;1.000,5;y\n"
    found = _read(tmp_path, mapping, own=own, load="month,workload,served_tokens\n2026-01,chat,7\n")
    assert {seen: values.tolist() for seen, values in found.series.items()} == {
        SeriesKey("cluster", "h200", "utilisation_fraction"): [0.25],
        SeriesKey("cluster", "fleet", "demand_tokens"): [1000.5],
        SeriesKey("workload", "chat", "served_tokens"): [7.0],
    }
    assert found.notes == ("own.csv: not compared with the plan: other",)
    _refused(
        tmp_path,
        mapping,
        "unknown cluster 'h100'",
        own=own.replace("h200", "h100"),
        load="month\n2026-01\n",
    )


def _metrics(rows: list[tuple[str, str, float, str]]) -> str:
    return "time,metric,value,model_name,instance,le\n" + "".join(
        f"{time},vllm:{metric},{value},llama,a,{le}\n" for time, metric, value, le in rows
    )


VLLM = "files: {metrics.csv: {kind: vllm, workloads: {llama: chat}}}\n"
COUNTERS = [
    ("2026-01-01T00:00:00", "prompt_tokens_total", 1000.0, ""),
    ("2026-01-20T00:00:00", "prompt_tokens_total", 5000.0, ""),
    ("2026-01-31T23:00:00+00:00", "prompt_tokens_total", 500.0, ""),  # started anew: 500 since
    ("1769904000", "prompt_tokens_total", 600.0, ""),  # 2026-02-01
    ("2026-01-01", "generation_tokens_total", 0.0, ""),
    ("2026-02-01", "generation_tokens_total", 700.0, ""),
    *(
        ("2026-01-01", "time_to_first_token_seconds_bucket", 0.0, le)
        for le in ("1.0", "5.0", "+Inf")
    ),
    ("2026-02-01", "time_to_first_token_seconds_bucket", 60.0, "1.0"),
    ("2026-02-01", "time_to_first_token_seconds_bucket", 90.0, "5.0"),
    ("2026-02-01", "time_to_first_token_seconds_bucket", 100.0, "+Inf"),
]


def test_counters_of_vllm_by_hand(tmp_path: Path) -> None:
    """4,000 + 500 after a restart + 100 prompt tokens, 700 generated; in time within 2 s: 60 + ¼ of 30, of 100."""
    found = _read(tmp_path, VLLM, metrics=_metrics(COUNTERS))
    assert found.months == ("2026-01",)
    chat = {
        seen.figure: values[0] for seen, values in found.series.items() if seen.entity == "chat"
    }
    assert chat["served_tokens"] == 4_000 + 500 + 100 + 700
    assert chat["served_output_tokens"] == 700
    assert chat["slo_attainment_fraction"] == pytest.approx(0.675)
    assert np.isfinite(list(chat.values())).all()


def test_months_covered_in_part_are_refused(tmp_path: Path) -> None:
    part = [*COUNTERS, ("2026-02-14", "generation_tokens_total", 900.0, "")]
    _refused(tmp_path, VLLM, "2026-02 is incomplete", metrics=_metrics(part))
    late = [row for row in COUNTERS if row[0] != "2026-01-01"]
    _refused(tmp_path, VLLM, "the plan begins on 2026-01-01", metrics=_metrics(late))
    _refused(
        tmp_path,
        VLLM.replace("llama", "other"),
        "model_name llama has no workload",
        metrics=_metrics(COUNTERS),
    )
    odd = [*COUNTERS, ("yesterday", "prompt_tokens_total", 1.0, "")]
    _refused(tmp_path, VLLM, "metrics.csv:14", "'yesterday'", metrics=_metrics(odd))
