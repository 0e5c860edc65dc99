from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from planner.errors import ConservationError
from planner.run import simulate as simulating
from tests.conftest import Planner, WriteScenario, files_of


def test_json_on_stdout_is_the_summary_file(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    outcome = planner("run", "tiny.yaml", "-n", "2", "--json", "--out", "o", "--quiet")
    assert json.loads(outcome.out) == json.loads((tmp_path / "o" / "summary.json").read_text())
    assert outcome.err == ""


def test_a_run_repeats_byte_for_byte_and_seeds_differ(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    for out, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        assert planner("run", "tiny.yaml", "-n", "3", "--out", out, "--seed", seed, "-q").code == 0
    assert planner("run", "tiny.yaml", "-n", "3", "--out", "a", "--seed", "5", "-q").code == 0
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b") != files_of(tmp_path / "c")


@pytest.mark.parametrize("name", ["first", "2026"])
def test_init_writes_a_scenario_that_runs(planner: Planner, tmp_path: Path, name: str) -> None:
    assert planner("init", name).out.startswith(f"wrote {name}.yaml")
    assert planner("run", f"{name}.yaml", "-n", "1", "-q").code == 0
    assert (tmp_path / "outputs" / name / "manifest.json").exists()
    planner("init", name).refused(f"{name}.yaml: exists and will not be overwritten")


def test_catalog_lists_and_shows(planner: Planner) -> None:
    listed = planner("catalog").out
    for word in ("MI325X", "H200", "B200", "llama-3.1-70b", "rocm-vllm", "us-ohio"):
        assert word in listed
    shown = planner("catalog", "show", "h200").out
    assert shown.startswith("H200 (accelerators)")
    assert "hbm_gb" in shown
    planner("catalog", "show", "H20O").refused("the catalogue has no 'H20O' (did you mean H200?)")
    planner("catalog", "--assumptions", "guessed").refused("unknown assumption set 'guessed'")
    planner("catalog", "--overlay", "nowhere.yaml").refused("nowhere.yaml: no such file")


def test_options_of_the_catalogue_may_stand_before_its_command(
    planner: Planner, write: WriteScenario
) -> None:
    price = "{value: 12345, source: a quote, grade: A, date: 2026-11-01}"
    overlay = write(f"accelerators: {{H200: {{accelerator_price_usd: {price}}}}}\n", "ours.yaml")
    before = ("--overlay", overlay, "show", "H200")
    after = ("show", "H200", "--overlay", overlay)
    shown = [planner("catalog", *words).out for words in (before, after)]
    assert shown[0] == shown[1]
    assert "12345" in shown[0]
    assert "12345" not in planner("catalog", "show", "H200").out


def test_a_price_that_nobody_states_is_a_warning(planner: Planner, write: WriteScenario) -> None:
    write("accelerators: {H200: {network_usd_per_accelerator: null}}\n", "ours.yaml")
    write("extends: tiny.yaml\nname: bare\ncatalog: {overlay: ours.yaml}\n", "bare.yaml")
    write()
    outcome = planner("validate", "bare.yaml")
    assert outcome.code == 0, outcome.err
    assert (
        "clusters.h200: no network price is stated for H200, so the plan pays 0 USD for it"
        in outcome.err
    )
    planner("run", "bare.yaml", "--strict", "--out", "o").refused(
        "no network price is stated for H200"
    )
    assert "network price" not in planner("validate", "tiny.yaml").err


def test_a_wrong_cluster_gives_one_error_though_others_name_it(
    planner: Planner, root: Path
) -> None:
    outcome = planner(
        "size", root / "scenarios" / "which-mix.yaml", "--set", "clusters.h200.nodes=-3"
    )
    assert (
        outcome.refused(
            "clusters.h200.nodes: must be greater than or equal to 0, not -3"
        ).err.count("error:")
        == 1
    )


def test_a_strange_overlay_is_shown_not_obeyed(planner: Planner, write: WriteScenario) -> None:
    values = "energy_usd_per_kwh: 1, grid_carbon_g_per_kwh: 2"
    entry = f'{{source: "our \\a\\e[2J quote", grade: A, date: 2026-01-01, {values}}}'
    overlay = write(f'tariffs: {{"x\\a\\e[31m": {entry}}}\n', "o.yaml")
    for arguments in (["catalog"], ["catalog", "show", "x\a\x1b[31m"], ["catalog", "--json"]):
        outcome = planner(*arguments, "--overlay", overlay)
        assert outcome.code == 0
        assert "\x07" not in outcome.out
        assert "\x1b" not in outcome.out


def test_our_own_bug_is_one_line_and_exit_code_1(
    planner: Planner, write: WriteScenario, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ConservationError("tokens do not add up")

    monkeypatch.setattr(simulating, "simulate_plan", broken)
    write()
    outcome = planner("run", "tiny.yaml", "-n", "2", "-q")
    assert (outcome.code, outcome.err) == (1, "error: tokens do not add up\n")
    assert not (tmp_path / "outputs").exists()


def test_an_interrupt_is_one_word(
    planner: Planner, write: WriteScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulating, "simulate_plan", interrupted)
    write()
    outcome = planner("run", "tiny.yaml", "-n", "2", "-q")
    assert outcome.code == 128 + signal.SIGINT
    assert "Traceback" not in outcome.err


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m planner.cli.app catalog --json | head -c 10"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout == '{\n  "accel'
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">/dev/full"])
def test_a_command_ends_with_a_word_where_nobody_hears_it(tmp_path: Path, closed: str) -> None:
    command = f"{sys.executable} -m planner.cli.app --version {closed}"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr


STUDY = "name: s\nscenarios: {a: {extends: tiny.yaml}, b: {extends: tiny.yaml, set: {site: {facility_power_cap_kw: 90}}}}\n"  # noqa: E501


def test_validate_knows_a_study_when_it_sees_one(planner: Planner, write: WriteScenario) -> None:
    write()
    write(STUDY, "s.yaml")
    outcome = planner("validate", "s.yaml", "tiny.yaml")
    assert (outcome.code, outcome.out) == (0, "s.yaml: ok, a study\ntiny.yaml: ok, a scenario\n")
    kinds = [
        one["kind"]
        for one in json.loads(planner("validate", "s.yaml", "tiny.yaml", "--json").out)["files"]
    ]
    assert kinds == ["study", "scenario"]
    write(STUDY.replace("facility_power_cap_kw", "power_cap"), "s.yaml")
    told = planner("validate", "s.yaml").refused("s.yaml:2", "power_cap")
    assert told.err.count("error:") == 1


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_study_where_a_scenario_is_wanted_is_called_one(
    planner: Planner, write: WriteScenario, command: str
) -> None:
    write()
    write(STUDY, "s.yaml")
    vary = ["--vary", "seed=1,2"] if command == "sweep" else []
    told = planner(command, "s.yaml", *vary).refused(
        "is a study, not a scenario", "planner montecarlo s.yaml"
    )
    assert told.err.count("error:") == 1


def test_a_scenario_is_studied_under_the_catalogues_priors(
    planner: Planner, write: WriteScenario
) -> None:
    write()
    told = planner("montecarlo", "tiny.yaml", "-n", "8", "-v")
    assert told.code == 0, told.err
    assert (
        "reliability.failure_multiplier is drawn: 0.616 to 2.21 times what is stated"
        in " ".join(told.err.split())
    )
    assert "outputs/tiny-priors" in told.out


def test_init_leaves_a_schema_that_is_not_ours(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write("{}", "scenario.schema.json")
    planner("init", "plan").refused("scenario.schema.json: is not a schema that planner wrote")
    assert not (tmp_path / "plan.yaml").exists()
    (tmp_path / "scenario.schema.json").unlink()
    assert planner("init", "plan").code == 0
    assert planner("init", "other").code == 0  # the schema that the first wrote is written anew
    assert (tmp_path / "scenario.schema.json").read_text() == planner("schema").out
