"""What the planner chooses: never worse for a further choice or a looser objective, and the same by any name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import planner.catalog
from planner.catalog import support
from planner.plan.candidates import CHUNKS, engine_options
from planner.plan.choice import Service, served_by
from planner.plan.reuse import Reuse
from planner.scenario.cluster import Cluster
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from tests.conftest import ROOT, WriteScenario

PARTS = (
    pytest.param("H200", marks=pytest.mark.prove),
    "MI325X",
    pytest.param("B200", marks=pytest.mark.prove),
)
LOADS = ("chat", "code-completion", "long-context", "overnight-batch")
GRID = 0.0015
"""A looser objective moves the grid of batches, between which shares late are interpolated."""
ACTIVATIONS = 0.003
"""Work that can wait is taken to have 8,192 prompt tokens a step: fewer would leave a little more of its cache free."""


@functools.cache
def reference() -> tuple[Scenario, Reuse]:
    """Return the reference scenario."""
    scenario = load_scenario(ROOT / "scenarios" / "mixed-fleet.yaml")
    return scenario, Reuse(scenario)


def cluster(accelerator: str, **stated: Any) -> Cluster:
    """Return 48 nodes of a part that leave everything to the planner but what is stated."""
    plain = {"accelerator": accelerator, "nodes": 48}
    return Cluster.model_validate(plain | stated)


def served(of: Cluster, load: str, **changes: Any) -> Service | None:
    """Return how a cluster serves a workload of the reference, with changes to it; None where it cannot."""
    scenario, reuse = reference()
    service = served_by(
        of, scenario.workloads[load].model_copy(update=changes), scenario, reuse, {}
    )
    return service if isinstance(service, Service) else None


def rate(of: Cluster, load: str, **changes: Any) -> float:
    """Return requests per second of a node; none where the objective is out of reach."""
    service = served(of, load, **changes)
    return service.requests_per_s if service is not None else 0.0


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("part", PARTS)
def test_nothing_stated_serves_more_than_what_is_chosen(part: str, load: str) -> None:
    """Of what somebody is known to run: what is experimental, or in nobody's runs, may be stated and serve more."""
    chosen = rate(cluster(part), load)
    scenario, reuse = reference()
    options = engine_options(cluster(part), scenario.workloads[load], reuse.catalog)
    engines = {option.engine for option in options}
    places = {"colocated", *(option.prefill_decode for option in options)} - {"auto"}
    if any(option.prefill_decode == "auto" for option in options):
        places.add("disaggregated")
    assert chosen == max(rate(cluster(part, engine=engine), load) for engine in engines)
    most = chosen * (1.0 + (ACTIVATIONS if load == "overnight-batch" else 1e-9))
    for key, choices in (
        ("chunk_tokens", CHUNKS),
        ("tensor_parallel", (1, 2, 4, 8)),
        ("prefill_decode", tuple(sorted(places))),
    ):
        assert max(rate(cluster(part, **{key: choice}), load) for choice in choices) <= most, key


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("part", PARTS)
def test_a_further_precision_never_serves_less(part: str, load: str) -> None:
    lists: tuple[tuple[str, ...], ...] = (("bf16",), ("bf16", "fp8"), ("bf16", "fp8", "fp4"))
    rates = [rate(cluster(part), load, precisions=allowed) for allowed in lists]
    assert rates == sorted(rates)
    assert (
        rate(cluster(part), load, precisions=lists[-1][::-1]) == rates[-1]
    )  # in whatever order they stand


@pytest.mark.parametrize("objective", ["ttft_s", "tpot_s"])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("part", PARTS)
def test_a_looser_objective_never_serves_less(part: str, load: str, objective: str) -> None:
    slo = reference()[0].workloads[load].slo
    asked = [
        slo.model_copy(update={objective: getattr(slo, objective) * times})
        for times in (0.7, 0.9, 1.0, 1.2, 2.0)
    ]
    rates = [rate(cluster(part), load, slo=slo) for slo in asked]
    least = 0.0
    for served_per_s in rates:
        assert served_per_s >= least * (1.0 - (GRID if objective == "tpot_s" else 1e-6)), rates
        least = max(least, served_per_s)


STATED = [
    ("engine", "vllm"), ("precision", "bf16"), ("tensor_parallel", 4), ("tensor_parallel", 8), ("chunk_tokens", 512),
    ("chunk_tokens", 3000), ("prefill_decode", "colocated"), ("prefill_decode", "disaggregated"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), STATED)
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("part", PARTS)
def test_what_is_stated_binds(part: str, load: str, key: str, value: object) -> None:
    allowed = (
        {"precisions": ()} if key == "precision" else {}
    )  # what the reference's workloads allow, bf16 is not
    service = served(cluster(part, **{key: value}), load, **allowed)
    assert service is not None
    assert service.as_keys()[key] == value


@pytest.mark.parametrize("how", ["tensor-parallel", "data-parallel"])
def test_stated_attention_binds(how: str) -> None:
    service = served(cluster("B200", attention=how), "chat", model="deepseek-v3")
    assert service is not None
    assert service.as_keys()["attention"] == how


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("part", PARTS)
def test_what_is_chosen_is_what_a_cluster_that_states_it_has(part: str, load: str) -> None:
    chosen = served(cluster(part), load)
    assert chosen is not None
    stated = served(cluster(part, **chosen.as_keys()), load)
    assert stated is not None
    # prompts on accelerators of their own are computed in what is best for them, whatever decodes
    # By their text: a NaN that was kept apart from another is not equal to it.
    assert repr(dataclasses.replace(stated, layout="")) == repr(
        dataclasses.replace(chosen, layout="")
    )


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("part", ["B200", pytest.param("GB200", marks=pytest.mark.prove), "MI355X"])
def test_four_bits_serve_nobody_who_does_not_allow_them(part: str, load: str) -> None:
    lists: tuple[tuple[str, ...], ...] = ((), ("fp8",), ("bf16",), ("bf16", "fp8"))
    for allowed in lists:
        for stated in (None, "fp8", "fp4") if allowed else (None, "fp8"):
            service = served(cluster(part, precision=stated), load, precisions=allowed)
            assert service is not None
            used = {service.spec.precision} | (
                {service.prefill.spec.precision} if service.prefill else set()
            )
            assert used <= set(allowed or ("fp8",))
    service = served(cluster(part), load, precisions=("fp8", "fp4"))
    assert service is not None
    assert service.spec.precision == "fp4"  # where it is allowed, these parts serve more with it


def raw(name: str) -> dict[str, Any]:
    """Return a file of the catalogue as it is written."""
    text = (Path(planner.catalog.__file__).parent / f"{name}.yaml").read_bytes()
    return dict(yaml.load(text, Loader=yaml.CSafeLoader))


def bare(fact: Any) -> Any:
    """Return a fact without its source."""
    return fact["value"] if isinstance(fact, dict) else fact


def twins(part: str) -> dict[str, Any]:
    """Return a copy of a part under another name, and one that with its stacks is of another vendor."""
    entry = raw("accelerators")[part]
    vendor = bare(entry["vendor"])
    stacks = [stack for stack in raw("stacks").values() if bare(stack["vendor"]) == vendor]
    return {
        "accelerators": {"Same": entry, "Twin": entry | {"vendor": "another"}},
        "vendors": {"another": raw("vendors")[vendor]},
        "stacks": {
            f"other-{bare(stack['engine'])}": stack | {"vendor": "another"} for stack in stacks
        },
    }


@pytest.fixture
def by_name(
    write: WriteScenario, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Iterator[tuple[Service, ...]]]:
    """Return the services of a part, of one of another name, and of one of another vendor, where none is measured."""

    monkeypatch.setattr(support, "shipped_support", tuple)

    def made(part: str) -> Iterator[tuple[Service, ...]]:
        write(yaml.safe_dump(twins(part), sort_keys=False), "twins.yaml")
        text = (ROOT / "scenarios" / "mixed-fleet.yaml").read_text(encoding="utf-8")
        scenario = load_scenario(write(text + "catalog: {overlay: twins.yaml}\n"))
        reuse = Reuse(scenario)
        # What was measured of a part, or of a vendor's parts, is known by its name: here nothing is known of any.
        reuse.calibration = dataclasses.replace(
            reuse.calibration, vendor_log_deviation={}, group_log_effect={}, group_rows={}
        )
        for load in scenario.workloads.values():
            services = [
                served_by(cluster(name), load, scenario, reuse, {})
                for name in (part, "Same", "Twin")
            ]
            yield tuple(service for service in services if isinstance(service, Service))

    return made


@pytest.mark.parametrize("part", PARTS)
def test_the_same_machine_serves_the_same_by_any_name_and_of_any_vendor(
    by_name: Callable[[str], Iterator[tuple[Service, ...]]], part: str
) -> None:
    for one, same, twin in by_name(part):
        for other in (same, twin):
            assert other.requests_per_s == one.requests_per_s > 0.0
            assert (other.yearly, other.batch, other.lateness) == (
                one.yearly,
                one.batch,
                one.lateness,
            )
            assert other.as_keys() == one.as_keys()
            assert other.layout == one.layout
