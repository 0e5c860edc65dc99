"""A plan with clusters of other sizes."""

from __future__ import annotations

import numpy as np
import pytest

from planner.plan.load_tables import LOAD_CELLS
from planner.plan.plan import ClusterSize
from planner.plan.sizes import at_sizes
from tests.engine.plans import cluster_plan, make_plan
from tests.engine.worlds import merged, plan_of
from tests.plan.test_placement import models_on_a_node


def size(cells: int, late: float) -> ClusterSize:
    """Twice as fast a node, whose tables by load have some cells."""
    table = np.full((1, cells + 1), late)
    return ClusterSize(
        nodes=4,
        speed=np.full(1, 2.0),
        late_table=table,
        refused_table=table / 2,
        no_burst_tables=np.stack([table, table]),
        most_loads=np.full(1, 1.5),
    )


@pytest.mark.parametrize("cells", [LOAD_CELLS - 5, LOAD_CELLS, LOAD_CELLS + 5])
@pytest.mark.parametrize("is_calm", [True, False])
def test_a_resized_cluster_has_the_figures_of_its_size_and_the_others_their_own(
    cells: int, is_calm: bool
) -> None:
    calm = np.zeros((2, 2, 1, LOAD_CELLS + 1)) if is_calm else None
    clusters = [cluster_plan("a"), cluster_plan("b")]
    plan = make_plan(clusters, no_burst_tables=calm, sizes={1: (size(cells, 0.3),)})
    resized = at_sizes(plan, (-1, 0))
    most = max(cells, LOAD_CELLS) + 1
    assert resized.requests_per_node_h[:, 0, 0].tolist() == [3600.0, 7200.0]
    assert resized.late_tables.shape == (2, 1, most)
    assert resized.late_tables[:, 0, -1].tolist() == [0.0, 0.3]
    assert resized.refused_tables[:, 0, 0].tolist() == [0.0, 0.15]
    assert resized.most_loads[:, 0].tolist() == [1.0, 1.5]
    assert (resized.no_burst_tables is not None) == is_calm
    if resized.no_burst_tables is not None:
        assert resized.no_burst_tables[:, 1, 0, -1].tolist() == [0.3, 0.3]
    assert at_sizes(plan, (-1, -1)) is plan


def test_the_pools_of_a_resized_cluster_have_the_figures_of_its_size() -> None:
    """A small and a large model, which have pools of their own."""
    rule = {
        "when": "utilisation_above",
        "threshold_fraction": 0.8,
        "cluster": "h200",
        "nodes": 2,
        "max_nodes": 16,
    }
    pair = ("qwen3-32b", "llama-3.1-405b")
    slo = {"ttft_s": 2.0, "tpot_s": 0.05}
    asked = models_on_a_node(pair, nodes=2, slo=slo, requests_per_s=20.0)
    plan = plan_of(merged(asked, {"expansion": {"rules": [rule]}}))
    last = len(plan.sizes[0]) - 1
    resized = at_sizes(plan, (last,))
    speed = plan.sizes[0][last].speed
    assert plan.placement is not None
    assert resized.placement is not None
    faster = plan.placement.pools.requests_per_node_h * speed[:, None]
    assert resized.placement.pools.requests_per_node_h == pytest.approx(faster)
    assert speed.max() > 1.0
