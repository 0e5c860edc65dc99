from __future__ import annotations

import copy
import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ScenarioError
from planner.scenario.loading import (
    MAX_EXTENDS,
    layer_of,
    load_scenario,
    merge,
    plan_in_future,
)
from planner.scenario.scenario import Future
from planner.scenario.schema import scenario_schema
from planner.validation import NOT_MODELLED
from planner.yaml_io import Document, parse_document
from tests.conftest import TINY, WriteScenario


def merged(*layers: Any) -> Any:
    base = Document(copy.deepcopy(layers[0]))
    for layer in layers[1:]:
        merge(base, Document(copy.deepcopy(layer)))
    return base.content


def problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, overrides)
    return str(caught.value).splitlines()


def test_a_scenario_is_read_with_mappings_by_name(write: WriteScenario) -> None:
    scenario = load_scenario(write())
    assert list(scenario.workloads) == ["chat"]
    assert list(scenario.clusters) == ["h200", "mi325x"]
    assert scenario.clusters["mi325x"].online == datetime.date(2026, 2, 1)
    assert scenario.workloads["chat"].lengths.input.mean == 500


def test_precedence_is_defaults_then_chain_then_set_in_order(write: WriteScenario) -> None:
    write()
    write(
        "extends: tiny.yaml\nname: middle\nseed: 2\nclusters: {h200: {nodes: 5}}\n", "middle.yaml"
    )
    top = write("extends: middle.yaml\nname: top\nseed: 3\n", "top.yaml")
    scenario = load_scenario(top)
    assert scenario.horizon_months == 3  # the end of the chain
    assert scenario.clusters["h200"].nodes == 5  # the middle over the end
    assert (scenario.name, scenario.seed) == ("top", 3)  # the named file over the middle
    assert scenario.clusters["h200"].engine == "auto"  # the default, which nobody changed
    assert scenario.clusters["mi325x"].nodes == 3
    scenario = load_scenario(top, ["seed=4", "clusters.h200.nodes=6", "seed=5"])
    assert (scenario.seed, scenario.clusters["h200"].nodes) == (
        5,
        6,
    )  # --set over all files, the last wins


def test_several_files_are_laid_one_over_the_other(write: WriteScenario) -> None:
    write()
    write("clusters: {h200: {nodes: 7}, mi325x: {nodes: 3}}\n", "machines.yaml")
    write("clusters: {h200: {nodes: 9}}\n", "more.yaml")
    top = write(
        "extends: [tiny.yaml, machines.yaml, more.yaml]\nname: top\nclusters: {mi325x: {nodes: 5}}\n",
        "top.yaml",
    )
    assert {name: cluster.nodes for name, cluster in load_scenario(top).clusters.items()} == {
        "h200": 9,
        "mi325x": 5,
    }


@pytest.mark.parametrize(
    "override", ["clusters.mi325x=null", "clusters.mi325x=~", "clusters.mi325x="]
)
def test_null_drops_a_cluster_by_set(write: WriteScenario, override: str) -> None:
    assert list(load_scenario(write(), [override]).clusters) == ["h200"]


def test_null_restores_a_default_and_its_place_is_forgotten(write: WriteScenario) -> None:
    base = write(
        "extends: tiny.yaml\nname: base\nsite: {pue_ratio: 1.5, tariff: us-ohio}\n", "base.yaml"
    )
    write()
    default = load_scenario(write()).site.pue_ratio
    top = write("extends: base.yaml\nname: top\nsite:\n  pue_ratio: null\n", "top.yaml")
    scenario = load_scenario(top)
    assert load_scenario(base).site.pue_ratio == 1.5 != default
    assert scenario.site.pue_ratio == default
    assert ("site", "pue_ratio") not in scenario.document.locations
    assert scenario.document.locations[("site", "tariff")].file == str(base)
    whole = load_scenario(base, ["site=null"])
    assert not [path for path in whole.document.locations if path[:1] == ("site",)]


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("start=2026-02-01", ("start",), datetime.date(2026, 2, 1)),
        (
            "clusters.h200.online=2026-03-31",
            ("clusters", "h200", "online"),
            datetime.date(2026, 3, 31),
        ),
        ("description='a, b: c'", ("description",), "a, b: c"),
        ("description='2026'", ("description",), "2026"),
        ("description=x=y", ("description",), "x=y"),
        ("seed= 7 ", ("seed",), 7),
        ("horizon_months=1_2", ("horizon_months",), 12),
        ("workloads.chat.requests_per_s=1e1", ("workloads", "chat", "requests_per_s"), 10.0),
        (
            "workloads.chat.lengths.input={mean: 7, p95: 9}",
            ("workloads", "chat", "lengths", "input", "p95"),
            9.0,
        ),
        ("workloads.chat.growth={kind: flat}", ("workloads", "chat", "growth", "kind"), "flat"),
    ],
)
def test_set_takes_yaml(
    write: WriteScenario, override: str, path: tuple[str, ...], value: Any
) -> None:
    found: Any = load_scenario(write(), [override])
    for part in path:
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    assert found == value


def test_a_star_sets_every_name_that_matches(write: WriteScenario) -> None:
    """Also those that an earlier --set adds; a later one still wins."""
    wide = [
        "clusters.b200={accelerator: B200, nodes: 1}",
        "clusters.*.engine=vllm",
        "clusters.h*.nodes=9",
    ]
    scenario = load_scenario(write(), [*wide, "clusters.h200.engine=sglang"])
    assert {name: cluster.engine for name, cluster in scenario.clusters.items()} == {
        name: "sglang" if name == "h200" else "vllm"
        for name in (*load_scenario(write()).clusters, "b200")
    }
    assert (scenario.clusters["h200"].nodes, scenario.clusters["b200"].nodes) == (9, 1)
    said = layer_of(load_scenario(write(), ["clusters.*.engine=vllm"]).document)
    assert said == {
        "clusters": {name: {"engine": "vllm"} for name in load_scenario(write()).clusters}
    }


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("", "is not of the form dotted.path=value"),
        ("nodes", "is not of the form dotted.path=value"),
        ("=3", "is not of the form dotted.path=value"),
        ("clusters.h200.nodes.x=3", "clusters.h200.nodes.x: clusters.h200.nodes holds no keys"),
        (
            "clusters.h200.nodes=-1",
            "clusters.h200.nodes: must be greater than or equal to 0, not -1",
        ),
        ("clusters.h200.nodes=[1", "not valid YAML"),
        ("clusters.h200.nodes={a: 1, a: 2}", "duplicate key a"),
        ("clusters.h200.nodes=*x", "*x"),
        ("clusters.h200.nodes=\x1b[31m", "U+001B"),
        ("clusters.h2OO.nodes=1", "clusters.h2OO.accelerator: is required"),
        ("\x1b]0;x\x07=1", "\\x1b]0;x\\x07: unknown key"),
        ("extends=other.yaml", "extends: cannot be set"),
        ("clusters=3", "clusters: must be a mapping"),
        ("clusters.q*.nodes=3", "clusters.q*.nodes: matches nothing in the scenario"),
        ("clusters.h200.nodes.*=3", "clusters.h200.nodes.*: matches nothing in the scenario"),
        ("clusters.*.nodes=-1", "clusters.h200.nodes: must be greater than or equal to 0, not -1"),
    ],
)
def test_set_garbage_is_refused_by_number(write: WriteScenario, override: str, part: str) -> None:
    found = problems(write(), "seed=1", override)
    assert any(part in line for line in found), found
    assert all(line.startswith("--set #2") and line.isprintable() for line in found)


def test_a_value_replaced_by_set_leaves_the_rest_in_their_places(
    write: WriteScenario, tmp_path: Path
) -> None:
    (found,) = problems(write(), "clusters.h200.nodes=2", "clusters.h200.nodess=2")
    assert found.startswith("--set #2: clusters.h200.nodess: unknown key (did you mean nodes?)")
    locations = load_scenario(write(), ["clusters.h200.nodes=2"]).document.locations
    assert locations[("clusters", "h200", "nodes")].file == "--set #1"
    assert locations[("clusters", "h200", "accelerator")].file == str(tmp_path / "tiny.yaml")
    assert locations[("clusters",)].line == 9


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("clusters.h200.cpu_offload_gb=64", "state kv_offload and host_memory_gb of the cluster"),
        ("clusters.h200.kv-cache-offloading=cpu", "a KV cache on disks is not modelled"),
        ("clusters.h200.kv_aware_router=true", "state prefix_routing of the workload"),
        ("routing=prefix-aware", "state prefix_routing of the workload"),
        (
            "workloads.chat.length_pools=[2000]",
            "pools by prompt length are not modelled: no measurement",
        ),
        ("clusters.h200.length_aware_routing=true", "as two workloads"),
    ],
)
def test_a_lever_without_a_measured_source_is_refused_by_name(
    written: str, said: str, write: WriteScenario
) -> None:
    (problem,) = problems(write(), written)
    assert problem.startswith(f"--set #1: {written.partition('=')[0]}: ")
    assert said in problem


def test_no_key_that_there_is_reads_as_a_lever_that_is_refused() -> None:
    def keys(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from schema.get("properties", {})
        for part in (
            schema.values()
            if isinstance(schema, dict)
            else schema
            if isinstance(schema, list)
            else ()
        ):
            yield from keys(part)

    known = {*keys(scenario_schema())}
    assert {"prefix_cache_hit_fraction", "chunk_tokens"} <= known
    assert [key for key in known for pattern in NOT_MODELLED if re.search(pattern, key)] == []


def test_a_problem_names_the_file_of_the_chain_it_is_in(write: WriteScenario, tiny: str) -> None:
    base = write(tiny.replace("nodes: 4", "nodes: four"))
    top = write("extends: tiny.yaml\nname: top\nseeed: 3\n", "top.yaml")
    found = problems(top)
    assert f"{base}:12: clusters.h200.nodes: must be a whole number, not 'four'" in found
    assert f"{top}:3: seeed: unknown key (did you mean seed?)" in found


def test_a_circle_of_extends_is_drawn(write: WriteScenario) -> None:
    write("extends: c.yaml\n", "b.yaml")
    write("extends: b.yaml\n", "c.yaml")
    (found,) = problems(write("name: a\nextends: b.yaml\n", "a.yaml"))
    assert found.endswith("c.yaml:1: extends: extends itself: a.yaml -> b.yaml -> c.yaml -> b.yaml")
    (found,) = problems(write("name: a\nextends: a.yaml\n", "a.yaml"))
    assert found.endswith("a.yaml:2: extends: extends itself: a.yaml -> a.yaml")


def test_a_circle_through_a_link_is_seen(write: WriteScenario, tmp_path: Path) -> None:
    path = write("extends: link.yaml\n", "a.yaml")
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    (found,) = problems(path)
    assert "extends itself" in found


def test_a_chain_has_an_end(write: WriteScenario) -> None:
    for number in range(MAX_EXTENDS + 2):
        write(f"extends: f{number + 1}.yaml\n", f"f{number}.yaml")
    write(name=f"f{MAX_EXTENDS + 2}.yaml")
    assert f"more than {MAX_EXTENDS} deep" in problems(write("extends: f1.yaml\n", "f0.yaml"))[0]


@pytest.mark.parametrize(
    ("extends", "part"),
    [
        ("nowhere.yaml", "extends: no such file"),
        ("[a, b]", "no such file"),
        ("[a, 3]", "extends: must be a file name, or a list"),
        ("[]", "extends: must be a file name, or a list"),
        ("3", "extends: must be a file name"),
        ("''", "is a folder"),
        ('"a\\0b"', "no such file"),
        ("x" * 5000, "no such file"),
        ("loop.yaml", "no such file"),
        ("list.yaml", "list.yaml:1: expected a mapping"),
        ("empty.yaml", "empty.yaml:1: expected a mapping"),
        ("binary.yaml", "binary.yaml:1: is not UTF-8"),
    ],
)
def test_a_base_that_cannot_be_used(
    write: WriteScenario, tmp_path: Path, extends: str, part: str
) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    write("- a\n", "list.yaml")
    write("", "empty.yaml")
    write(b"\xff\xfe\x00", "binary.yaml")
    found = problems(write(f"name: top\nextends: {extends}\n", "top.yaml"))
    assert len(found) == 1
    assert part in found[0]


def test_wrong_values_and_contradictions_come_in_one_message(
    write: WriteScenario, tiny: str
) -> None:
    text = tiny.replace("nodes: 4", "nodes: 4\n    nodess: 1").replace("MI325X", "MI325Y")
    found = problems(write(text + "site: {tariff: us-ohoi, pue_ratio: 0.5}\n"))
    assert [line.split(": ")[1] for line in found] == [
        "clusters.h200.nodess", "site.pue_ratio", "clusters.mi325x.accelerator", "site.tariff",
    ]  # fmt: skip


LEAVES = st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2)


def documents(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generate documents in which a path is always a mapping or never."""
    inner = st.dictionaries(st.sampled_from("pqr"), values, max_size=3)
    return st.fixed_dictionaries({}, optional={"a": values, "b": values, "m": inner, "n": inner})


@given(documents(LEAVES), documents(LEAVES), documents(LEAVES))
def test_merging_is_associative_without_nulls(a: Any, b: Any, c: Any) -> None:
    assert merged(merged(a, b), c) == merged(a, merged(b, c))


@given(documents(LEAVES), documents(st.none() | LEAVES))
def test_merging_has_an_identity_and_repeats_harmlessly(a: Any, b: Any) -> None:
    assert merged({}, a) == a == merged(a, {})
    assert merged(a, b, b) == merged(a, b)


@given(documents(LEAVES), documents(st.none() | LEAVES))
def test_every_value_comes_from_one_of_the_two_and_nulls_are_gone(a: Any, b: Any) -> None:
    result = merged(a, b)
    for key in {*a, *b}:
        if key in b and b[key] is None:
            assert key not in result
        elif key in b and not isinstance(b[key], dict):
            assert result[key] == b[key]
        elif key not in b:
            assert result[key] == a[key]
        else:
            kept = {k: v for k, v in a.get(key, {}).items() if k not in b[key]}
            assert result[key] == kept | {k: v for k, v in b[key].items() if v is not None}


@given(documents(st.none() | LEAVES), documents(st.none() | LEAVES))
def test_merging_changes_neither_part_and_places_follow_values(a: Any, b: Any) -> None:
    base = parse_document(str(a).replace("None", "null"), "a")
    layer = parse_document(str(b).replace("None", "null"), "b")
    before = copy.deepcopy((base.content, layer.content))
    result = Document(base.content, dict(base.locations))
    merge(result, layer)
    assert (base.content, layer.content) == before
    for key, value in result.content.items():
        own = layer.content.get(key)
        if not isinstance(value, dict):
            assert result.locations[(key,)].file == ("b" if own is not None else "a")
    for key in set(layer.content) - set(result.content):
        assert (key,) not in result.locations


def test_a_multiple_of_a_rate_written_as_a_whole_number_is_not_rounded_and_one_of_nodes_is(
    tmp_path: Path,
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    laid = load_scenario(
        tmp_path / "tiny.yaml", ["workloads.*.requests_per_s=×1.3", "clusters.*.nodes=×1.3"]
    )
    assert laid.workloads["chat"].requests_per_s == pytest.approx(6.5)
    assert [cluster.nodes for cluster in laid.clusters.values()] == [5, 4]


QUOTED = """
extends: {base}
clusters:
  b200-quote: {{accelerator: B200, nodes: 2}}
sizing:
  clusters:
    b200-quote: {{dates: [2026-01-15, 2026-02-01]}}
workloads:
  code:
    model: llama-3.1-8b
    requests_per_s: 3
    lengths: {{input: {{quantiles: {{0.5: 100, 0.95: 900}}}}, output: {{mean: 90, p95: 200}}}}
"""


def test_an_override_reaches_items_of_lists_and_names_with_dots(
    write: WriteScenario,
) -> None:
    path = write(QUOTED.format(base=write(TINY, "base.yaml").name), "own.yaml")
    loaded = load_scenario(
        path,
        [
            "sizing.clusters.b200-quote.dates[1]=+1 month",
            "workloads.code.requests_per_s=7",
            "workloads.code.lengths.input.quantiles.0.95=800",
        ],
    )
    assert loaded.sizing is not None
    assert [str(day) for day in loaded.sizing.clusters["b200-quote"].dates] == [
        "2026-01-15",
        "2026-03-01",
    ]
    workload = loaded.workloads["code"]
    assert workload.requests_per_s == 7
    assert workload.lengths.input.quantiles["0.95"] == 800
    with pytest.raises(ScenarioError, match="dates: has 2 items, counted from 0"):
        load_scenario(path, ["sizing.clusters.b200-quote.dates.2=2026-03-01"])


def test_an_override_of_a_name_that_is_not_there_says_the_nearest(write: WriteScenario) -> None:
    path = write(QUOTED.format(base=write(TINY, "base.yaml").name), "own.yaml")
    for name in ("b200", "b20-quote"):
        with pytest.raises(ScenarioError, match=rf"no clusters.{name} .did you mean b200-quote"):
            load_scenario(path, [f"clusters.{name}.nodes=4"])


DELIVERED = """
extends: tiny.yaml
name: delivered
clusters:
  ordered: {accelerator: B200, nodes: 1, order: {placed: 2025-10-01, lead_weeks: 20}}
  later: {accelerator: B200, nodes: 1, online: 2026-02-01}
  owned: {accelerator: H200, nodes: 1, owned: {bought: 2025-01-01}}
"""


def test_one_word_makes_a_delivery_late(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    path = tmp_path / "delivered.yaml"
    path.write_text(DELIVERED)
    stated = load_scenario(path).clusters
    late = load_scenario(path, ["clusters.ordered.delivered=+6 months"]).clusters
    assert late["later"].online == stated["later"].online
    # Half a year is 26.09 weeks, at every end of the slip.
    before, after = (clusters["ordered"].order for clusters in (stated, late))
    assert before is not None
    assert after is not None
    assert after.lead_weeks == before.lead_weeks
    for end, weeks in before.slip_weeks.model_dump().items():
        assert getattr(after.slip_weeks, end) == pytest.approx(weeks + 365.25 / 14, abs=0.01)
    # Of all, what is still to come is late, and what is there is not.
    every = load_scenario(path, ["clusters.*.delivered=+3 weeks"])
    assert every.clusters["later"].online == datetime.date(2026, 2, 22)
    assert every.clusters["ordered"].order != before
    assert every.clusters["owned"] == stated["owned"]
    assert every.clusters["h200"].online == stated["h200"].online
    # A future says the same in the same word.
    future = Future(set={"clusters.*.delivered": "+3 weeks"})
    in_future, reached = plan_in_future(load_scenario(path), future)
    assert in_future is not None
    assert in_future.clusters == every.clusters
    assert reached == ["clusters.*.delivered"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("clusters.owned.delivered=+6 months", "is owned: it was delivered"),
        ("clusters.orderd.delivered=+6 months", "matches nothing .*did you mean ordered"),
        ("clusters.ordered.delivered=26", r"takes a delay, not '26' \(\+6 months"),
        ("clusters.ordered.delivered=×2", "takes a delay"),
    ],
)
def test_a_delay_that_means_nothing_is_refused(tmp_path: Path, override: str, message: str) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "delivered.yaml").write_text(DELIVERED)
    with pytest.raises(ScenarioError, match=message):
        load_scenario(tmp_path / "delivered.yaml", [override])


SIZED = """\
name: sized
start: 2026-01-01
horizon_months: 1
workloads: {chat: {model: llama-3.1-8b, requests_per_s: 1, lengths: {input: {mean: 500}, output: {mean: 100}}}}
clusters: {h200: {accelerator: H200, nodes: 2}, b200: {accelerator: B200, nodes: 1}}
sizing: {clusters: {h200: {max_nodes: 9}, b200: {max_nodes: 9}}, retire: {h200: [2026-01-20]}}
"""


def test_what_sizing_may_buy_of_a_removed_cluster_goes_with_it(write: WriteScenario) -> None:
    """A rival without some cluster, or without any machine, need not take back what the first plan may buy."""
    write(SIZED, "sized.yaml")
    one = write("name: one\nextends: sized.yaml\nclusters: {h200: null}\n", "one.yaml")
    left = load_scenario(one).sizing
    assert left is not None
    assert [*left.clusters] == ["b200"]
    assert left.retire == {}
    api = "{contract: {kind: api, serves: all}}"
    none = f"name: none\nextends: sized.yaml\nclusters: {{h200: null, b200: null, api: {api}}}\n"
    assert load_scenario(write(none, "none.yaml")).sizing is None
    by_option = load_scenario(write(SIZED, "sized.yaml"), ["clusters.h200=null"]).sizing
    assert by_option == left
    own = "name: own\nextends: sized.yaml\nclusters: {h200: null}\nsizing: {clusters: {h200: {max_nodes: 3}}}\n"
    with pytest.raises(ScenarioError, match="no cluster is called 'h200'"):
        load_scenario(write(own, "own.yaml"))
