from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.answers import study as study_folder
from planner.answers.run import PLAN_COLUMNS
from planner.answers.study import STUDY_TABLES
from planner.answers.tables import TABLES
from tests.conftest import Planner, csv_rows
from tests.studies.conftest import SMALL


@pytest.fixture
def study(tmp_path: Path, tiny: str) -> Path:
    (tmp_path / "tiny.yaml").write_text(tiny)
    (tmp_path / "study.yaml").write_text(SMALL)
    return tmp_path / "study.yaml"


def test_montecarlo_writes_what_it_promises(planner: Planner, study: Path, tmp_path: Path) -> None:
    done = planner("montecarlo", study, "-n", "16", "--workers", "1")
    assert done.code == 0, done
    assert "P(best)" in done.out
    assert "results in outputs/small" in done.out
    folder = tmp_path / "outputs" / "small"
    names = {path.name for path in folder.iterdir()}
    tables = {
        f"{table.name}.csv"
        for table in (*STUDY_TABLES.values(), TABLES["assumptions"], TABLES["model_error"])
    }
    tables |= {f"{name}.csv" for name in PLAN_COLUMNS}
    assert names == tables | {"datapackage.json", "manifest.json", "replications.parquet", "report.html",
                                       "workbook.xlsx"}  # fmt: skip
    assert len(csv_rows(folder / "samples.csv")) == 32
    bands = csv_rows(folder / "monthly_bands.csv")
    assert len(bands) == 2 * 5 * 3  # five figures of the fleet
    package = json.loads((folder / "datapackage.json").read_text())
    samples = next(one for one in package["resources"] if one["path"] == "samples.csv")["schema"][
        "fields"
    ]
    assert "Input drawn: a factor on the stated value." in {
        column["description"] for column in samples
    }
    for resource in package["resources"]:
        header = (folder / resource["path"]).read_text().splitlines()[0].split(",")
        assert [field["name"] for field in resource["schema"]["fields"]] == header
        assert (folder / resource["path"]).stat().st_size == resource["bytes"]


def test_samples_are_written_where_they_are_asked_for_or_few(
    planner: Planner, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_folder, "MAX_SAMPLES", 7)
    for asked, written in (((), False), (("--samples",), True), (("--no-samples",), False)):
        folder = tmp_path / "-".join(("o", *asked))
        done = planner(
            "montecarlo",
            study,
            "-n",
            "4",
            "--workers",
            "1",
            "-q",
            *asked,
            "--out",
            str(folder),
        )
        assert (done.code, done.out) == (0, ""), done
        assert (folder / "samples.csv").exists() == written
        package = json.loads((folder / "datapackage.json").read_text())
        assert ("samples.csv" in {resource["path"] for resource in package["resources"]}) == written
    assert planner("report", str(folder), "-q").code == 0


def test_replay_gives_the_run_behind_a_sample(
    planner: Planner, study: Path, tmp_path: Path
) -> None:
    assert planner("montecarlo", study, "-n", "4", "--workers", "1", "-q").code == 0
    done = planner("replay", study, "--replication", "3", "--scenario", "nvidia", "--json")
    assert done.code == 0, done
    (sample,) = [
        row
        for row in csv_rows(tmp_path / "outputs" / "small" / "samples.csv")
        if (row["replication"], row["scenario"]) == ("3", "nvidia")
    ]
    fleet = json.loads(done.out)["clusters"]["fleet"]
    assert fleet["cost_usd"] == pytest.approx(float(sample["cost_usd"]), abs=0.01)
    assert fleet["served_tokens"] == pytest.approx(float(sample["served_tokens"]), abs=1)
    folder = tmp_path / "outputs" / "small-nvidia-3"
    assert (folder / "timeline_monthly.csv").exists()
    price = [
        row
        for row in csv_rows(folder / "assumptions.csv")
        if row["path"] == "site.electricity_usd_per_kwh"
    ]
    assert float(price[0]["value"]) == pytest.approx(
        float(sample["site.electricity_usd_per_kwh"]), rel=1e-4
    )


def test_replay_of_an_unknown_scenario(planner: Planner, study: Path) -> None:
    planner("replay", study, "--replication", "1", "--scenario", "nvida").refused(
        "did you mean nvidia?"
    )
