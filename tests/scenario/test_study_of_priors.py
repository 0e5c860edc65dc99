"""A scenario without a study is drawn from the catalogue's priors: what it uses, and does not itself state."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.catalog.load import load_catalog
from planner.scenario.study import load_study
from planner.studies.inputs import reach, stated
from planner.studies.prepare import prepare
from planner.yaml_io import value_at


def drawn(path: Path, *overrides: str) -> dict[str, str]:
    """Return the prior of each field that a scenario's study draws."""
    study, _ = load_study(path, overrides)
    return {
        key: written.prior for key, written in study.uncertain.items() if hasattr(written, "prior")
    }


@pytest.fixture
def tiny_file(tmp_path: Path, tiny: str) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(tiny)
    return path


def test_what_is_left_open_is_drawn_and_what_is_stated_is_known(tiny_file: Path) -> None:
    assert drawn(tiny_file)["clusters.h200.accelerator_price_usd"] == "gpu_module_price_h200"
    assert "clusters.h200.accelerator_price_usd" not in drawn(
        tiny_file, "clusters.h200.accelerator_price_usd=30000"
    )


def test_a_tariff_takes_the_place_of_a_price(tiny_file: Path) -> None:
    left_open = "site.electricity_usd_per_kwh=null"
    assert drawn(tiny_file, left_open)["site.electricity_usd_per_kwh"] == "electricity_price"
    assert "site.electricity_usd_per_kwh" not in drawn(tiny_file, left_open, "site.tariff=us-ohio")


def test_what_is_not_used_is_not_drawn(tiny_file: Path) -> None:
    assert "finance.insurance_fraction_per_year" not in drawn(tiny_file)
    only_nvidia = drawn(tiny_file, "clusters.mi325x=null")
    assert not [key for key, prior in only_nvidia.items() if prior.endswith("_amd")]


def test_a_factor_moves_what_is_stated(tiny_file: Path) -> None:
    prepared = prepare(tiny_file)
    base = prepared.scenarios[0]
    level = next(
        found for found in prepared.inputs.entries if found.name.endswith("requests_per_s")
    )
    assert level.times_stated
    assert len(level.targets[0]) == len(base.scenario.workloads)  # one draw for all


def test_a_factor_on_growth_moves_every_year_of_growth_by_year(tiny_file: Path) -> None:
    by_year = "workloads.chat.growth={kind: by-year, per_year: {2026: 0.6, 2027: 0.4}}"
    prepared = prepare(tiny_file, overrides=(by_year,))
    growth = next(
        entry for entry in prepared.inputs.entries if entry.name == "workloads.chat.growth.per_year"
    )
    assert growth.targets[0] == tuple(
        ("workloads", "chat", "growth", "per_year", year) for year in ("2026", "2027")
    )


def test_names_in_braces_reach_each_of_them(tiny_file: Path) -> None:
    _, scenarios = load_study(tiny_file)
    dump = stated("tiny", next(iter(scenarios.values()))).dump
    paths = reach("clusters.{h200,mi325x}.nodes", dump)
    assert paths == [("clusters", "h200", "nodes"), ("clusters", "mi325x", "nodes")]
    assert value_at(dump, paths[0]) == dump["clusters"]["h200"]["nodes"]
    assert reach("clusters.{h200, none}.nodes", dump) == [("clusters", "h200", "nodes")]


def test_the_practice_of_upgrades_is_varied_where_it_is_not_stated(tiny_file: Path) -> None:
    levers = {
        "software.upgrade_days": "upgrade_interval_production",
        "software.canary_fraction": "canary_share",
        "software.bake_h": "canary_bake",
        "software.rollback_impossible_fraction.amd": "rollback_impossible_amd",
        "software.rollback_impossible_fraction.nvidia": "rollback_impossible_nvidia",
    }
    assert levers.items() <= drawn(tiny_file).items()
    pinned = drawn(
        tiny_file,
        "software.upgrade_policy=pinned",
        "software.canary_fraction=0.2",
        "clusters.mi325x=null",
    )
    assert levers.keys() & pinned.keys() == {
        "software.bake_h",
        "software.rollback_impossible_fraction.nvidia",
    }


def test_what_cannot_be_rolled_back_is_drawn_as_the_vendors_state_it() -> None:
    catalog = load_catalog()
    for vendor in ("amd", "nvidia"):
        stated = catalog.vendor(vendor).rollback_impossible_fraction
        prior = catalog.prior(f"rollback_impossible_{vendor}")
        assert stated is not None
        assert (stated.low, stated.base, stated.high) == (prior.low, prior.base, prior.high)
