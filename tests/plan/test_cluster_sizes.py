"""Sizes to which rules bring a cluster: which are worked out."""

from __future__ import annotations

from typing import Any

from tests.engine.worlds import merged, plan_of
from tests.plan.test_placement import models_on_a_node

REDUCES = {"when": "utilisation_below", "threshold_fraction": 0.2, "cluster": "h200", "nodes": 1}


def with_rules(nodes: int, *rules: dict[str, Any]) -> dict[str, Any]:
    return merged({"clusters": {"h200": {"nodes": nodes}}}, {"expansion": {"rules": list(rules)}})


def test_a_cluster_that_is_reduced_has_the_figures_of_its_smaller_sizes() -> None:
    """It begins as large as any: what it begins with is worked out all the same, or the smaller would stand alone."""
    pair = ("qwen3-32b", "llama-3.1-405b")
    slo = {"ttft_s": 2.0, "tpot_s": 0.05}
    asked = models_on_a_node(pair, nodes=2, slo=slo, requests_per_s=20.0)
    one, two = plan_of(merged(asked, {"expansion": {"rules": [REDUCES]}})).sizes[0]
    assert (one.nodes, two.nodes) == (1, 2)
    assert (one.speed < 0.95).any()
    assert (two.speed == 1.0).all()
    alike = plan_of(with_rules(2, REDUCES)).sizes[
        0
    ]  # a node does as well alone, but its pool is another
    assert [size.nodes for size in alike] == [1, 2]
