"""What a further GB of memory adds to what a node serves, where that follows from memory."""

from __future__ import annotations

import copy
from typing import NamedTuple

from planner.plan.choice import Service, served_by
from planner.plan.reuse import Reuse
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload

_MORE = 0.1
"""Memory that is added to tell what a GB is worth: less is lost in the steps of the search for a load."""


class GainPerGb(NamedTuple):
    """Requests that a node serves more of with a GB more, over those that it serves."""

    hbm: float
    """Per GB of all its accelerators together."""
    host: float
    """Per GB of the memory of its processors; 0 where none holds prompts."""


def gain_per_gb(
    cluster: Cluster, workload: Workload, service: Service, scenario: Scenario, reuse: Reuse
) -> GainPerGb:
    """Return the gains by finite differences of a tenth of the memory there is."""

    def gain(changed: Cluster, in_catalogue: Reuse) -> float:
        more = served_by(changed, workload, scenario, in_catalogue, {})
        if not isinstance(more, Service):
            return 0.0
        return max(more.requests_per_s / service.requests_per_s - 1.0, 0.0)

    entry = reuse.catalog.accelerator(cluster.accelerator)
    larger = copy.copy(reuse)
    hbm_gb = entry.hbm_gb.value
    wider = entry.model_copy(
        update={"hbm_gb": entry.hbm_gb.model_copy(update={"value": hbm_gb * (1.0 + _MORE)})}
    )
    accelerators = reuse.catalog.accelerators | {cluster.accelerator: wider}
    larger.catalog = reuse.catalog.model_copy(update={"accelerators": accelerators})
    further_hbm_gb = hbm_gb * _MORE * entry.accelerators_per_node.value
    hbm = gain(cluster, larger) / further_hbm_gb
    host = 0.0
    host_gb = cluster.host_memory_gb
    if host_gb is None and entry.host_memory_gb is not None:
        host_gb = entry.host_memory_gb.value
    if host_gb and cluster.kv_offload != "none":
        more_host = cluster.model_copy(update={"host_memory_gb": host_gb * (1.0 + _MORE)})
        host = gain(more_host, reuse) / (host_gb * _MORE)
    return GainPerGb(hbm, host)
