from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from planner.answers.report import build_report, rebuild_report
from planner.output.folder import Contents
from planner.output.words import dollars
from tests.conftest import Planner, WriteScenario
from tests.output.test_contents import forge

ORDER = ["answer", "time", "money", "losses", "assumptions", "error", "reproduce"]


def parts(page: bytes) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', page.decode())


@pytest.fixture
def folder(kept_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept_folder, tmp_path / "copy"))


def test_the_report_answers_in_the_promised_order(contents: Contents) -> None:
    assert parts(build_report(contents)) == ORDER


def test_the_report_is_small_and_names_no_address(contents: Contents) -> None:
    page = build_report(contents).decode()
    assert len(page) < 500_000
    addresses = set(re.findall(r"https?://[^\"'\s<]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of SVG, which is never fetched
    assert not re.search(r"<(link|img|iframe|object|embed|base)\b", page)
    assert "default-src 'none'" in page.replace("&#39;", "'")


def test_the_headline_is_the_summary(contents: Contents) -> None:
    fleet = contents.summary["clusters"]["fleet"]
    page = build_report(contents).decode()
    assert dollars(fleet["cost_usd"]) in page
    assert contents.manifest["scenario_sha256"] in page
    assert "tiny.yaml --seed 3" in page


def test_money_in_the_report_is_money_in_the_ledger(contents: Contents) -> None:
    ledger = contents.table("ledger")
    assert ledger is not None
    total = sum(
        amount
        for account, amount in zip(
            ledger.texts("account"), ledger.totals("amount_usd"), strict=True
        )
        if account == "depreciation"
    )
    page = build_report(contents).decode()
    row = re.search(r'<th scope="row">depreciation</th>(.*?)</tr>', page)
    assert row
    assert f"${total:,.0f}" in row[1] or f"${total / 1e6:,.1f} million" in row[1]


@pytest.mark.parametrize("missing", ["events.csv", "losses.csv", "ledger.csv",
                                     "timeline_monthly.csv", "timeline_monthly_clusters.csv",
                                     "timeline_workloads.csv", "assumptions.csv",
                                     "model_error.csv", "datapackage.json"])  # fmt: skip
def test_a_file_that_is_not_there_takes_its_part_away_and_no_more(
    contents: Contents, missing: str
) -> None:
    tables = {name: table for name, table in contents.tables.items() if f"{name}.csv" != missing}
    fewer = Contents(manifest=contents.manifest, tables=tables, summary=contents.summary)
    found = parts(build_report(fewer))
    assert set(found) <= set(ORDER)
    assert len(found) >= len(ORDER) - 1


NASTY = ["<script>alert(1)</script>", "../../x", "=cmd|'/c calc'!A1", "a\\e[31m", "\\u202Egnp.exe"]


@pytest.mark.parametrize("nasty", NASTY)
def test_free_text_of_the_scenario_cannot_become_markup(
    planner: Planner, write: WriteScenario, tiny: str, tmp_path: Path, nasty: str
) -> None:
    text = tiny.replace(
        "    nodes: 4\n",
        f'    nodes: 4\n    accelerator_price_usd: 100\n    price_source: "{nasty}"\n',
    )
    write(text)
    outcome = planner("run", "tiny.yaml", "-n", "1", "--out", "o")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert page.count("<script>") == 1
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert all(path.parent == tmp_path for path in tmp_path.iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.yaml", "o"}
    for line in (tmp_path / "o" / "assumptions.csv").read_text().splitlines():
        assert not line.startswith(("=", "+", "@"))


@pytest.mark.parametrize(
    "name", ["<script>", "../../x", "=cmd", "a\x1bb", "a\u202eb", "/abs", "a/b", "."]
)
@pytest.mark.parametrize("where", ["name: tiny", "  chat:", "  h200:"])
def test_a_name_that_could_escape_is_refused(
    planner: Planner, write: WriteScenario, tiny: str, name: str, where: str
) -> None:
    key, _, rest = where.partition(":")
    replaced = (
        f"{key}: {json.dumps(name)}"
        if rest
        else f"{key[: len(key) - len(key.lstrip())]}{json.dumps(name)}:"
    )
    write(tiny.replace(where, replaced))
    outcome = planner("run", "tiny.yaml")
    outcome.refused()


def test_forged_names_in_a_folder_are_shown_as_text(folder: Path) -> None:
    for name in (
        "timeline_monthly_clusters.csv",
        "losses.csv",
        "ledger.csv",
        "events.csv",
    ):
        content = (folder / name).read_bytes().replace(b"mi325x", b"<img src=x onerror=alert(1)>")
        forge(folder, name, content)
    page = rebuild_report(folder).read_text()
    assert "<img" not in page
    assert "&lt;img src=x" in page


def test_the_command_line_rebuilds(planner: Planner, folder: Path) -> None:
    assert planner("report", folder).out == f"wrote {folder / 'report.html'}\n"
    told = json.loads(planner("report", folder, "--json").out)
    assert told["bytes"] == (folder / "report.html").stat().st_size
    planner("report", folder.parent / "nowhere").refused("nowhere/manifest.json: cannot be read")
