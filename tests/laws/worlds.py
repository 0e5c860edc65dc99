"""Random scenarios under default settings in which nothing fails, for the laws of placement."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

START = datetime.date(2026, 1, 1)
PEAK_TO_MEAN = 1.67
"""Of the default load profile: what cannot wait needs its highest hour."""
LEAST_LOAD = 0.25
MOST_LOAD = 1.1
MOST_NODES = 24
PARTS = {"H200": 1.0, "B200": 2.0, "MI325X": 1.0, "MI300X": 0.95, "MI355X": 1.7}
"""Accelerators, each with about its speed over an H200's."""
TTFT_S = {"short": 2.0, "chat": 3.0, "long": 8.0}
"""Objectives by kind of request that every model keeps on every part."""
TPOT_S = {"short": 0.05, "chat": 0.06, "long": 0.08}
TOKENS = {"short": (300, 200), "chat": (1200, 300), "long": (12000, 400)}
"""Mean prompt and reply by kind of request."""
QUIET: dict[str, object] = {
    "reliability": {"failure_multiplier": 0},
    "software": {"incident_multiplier": 0, "software_speedup_multiplier": 0},
    "site": {"outages_per_year": 0},
}
"""Nothing fails, and no release is faster than the one before."""
RATES = {
    "llama-3.1-8b": {"short": 820.0, "chat": 320.0, "long": 30.0},
    "llama-3.1-70b": {"short": 130.0, "chat": 50.0, "long": 3.0},
    "qwen3-32b": {"short": 230.0, "chat": 92.0, "long": 7.6},
    "gpt-oss-120b": {"short": 600.0, "chat": 270.0, "long": 34.0},
    "deepseek-v3": {"short": 66.0, "chat": 28.0, "long": 2.0},
    "llama-3.1-405b": {"short": 10.0, "chat": 4.2, "long": 0.1},
}
"""Requests per second that about a node of H200 serves. Only the scale of the load rests on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A workload."""

    name: str
    model: str
    requests_per_s: float
    input_tokens: float
    output_tokens: float
    ttft_s: float
    tpot_s: float
    priority: str = "interactive"
    window_h: float | None = None
    cached_fraction: float = 0.0
    growth_per_year: float = 0.0
    step: tuple[datetime.date, float] | None = None
    """In place of that, a day from which traffic is a multiple of day one's."""
    launch: datetime.date | None = None
    """In place of that, the day of the first request."""
    preference: tuple[str, ...] = ()
    """Clusters in the order in which they are to be offered it; none for that of the router."""

    def document(self) -> dict[str, object]:
        """Return it as a scenario states it."""
        stated: dict[str, object] = {
            "model": self.model,
            "requests_per_s": self.requests_per_s,
            "priority": self.priority,
            "lengths": {
                "input": {"mean": self.input_tokens},
                "output": {"mean": self.output_tokens},
            },
            "slo": {"ttft_s": self.ttft_s, "tpot_s": self.tpot_s},
        }
        if self.window_h is not None:
            stated["completion_window_h"] = self.window_h
        if self.cached_fraction:
            stated["prefix_cache_hit_fraction"] = self.cached_fraction
        if self.growth_per_year:
            stated["growth"] = {"kind": "compound", "per_year": self.growth_per_year}
        if self.step is not None:
            date, multiplier = self.step
            stated["growth"] = {
                "kind": "steps",
                "steps": [{"date": date, "multiplier": multiplier}],
            }
        if self.launch is not None:
            days = [(START, 0.0), (self.launch, 1.0)]
            steps = [{"date": date, "multiplier": multiplier} for date, multiplier in days]
            stated["growth"] = {"kind": "steps", "steps": steps}
        return stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """A cluster."""

    name: str
    accelerator: str
    count: int
    speed: float = 1.0
    online: datetime.date | None = None
    engine: str | None = None
    """Which it is to have; None for the one that is best for all its workloads."""

    def document(self) -> dict[str, object]:
        """Return it as a scenario states it."""
        stated: dict[str, object] = {"accelerator": self.accelerator, "nodes": self.count}
        if self.speed != 1.0:
            stated["throughput_multiplier"] = self.speed
        if self.online is not None:
            stated["online"] = self.online
        if self.engine is not None:
            stated["engine"] = self.engine
        return stated


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A scenario that states no layout."""

    number: int
    """Which of the random ones it is; laws draw what they change from it."""
    months: int
    workloads: tuple[Stream, ...]
    clusters: tuple[Nodes, ...]
    is_quiet: bool = True
    """Whether nothing fails and no hour is noisy; otherwise that is as a scenario has it by default."""

    @property
    def models(self) -> tuple[str, ...]:
        """Its models, in alphabetical order."""
        return tuple(sorted({workload.model for workload in self.workloads}))

    @property
    def nodes(self) -> int:
        """Its nodes, over all clusters."""
        return sum(cluster.count for cluster in self.clusters)

    def document(self) -> dict[str, object]:
        """Return the scenario as a file would state it."""
        stated: dict[str, object] = {
            "name": f"world-{self.number}",
            "start": START,
            "horizon_months": self.months,
            "workloads": {
                load.name: load.document() | self._routing(load) | self._noise()
                for load in self.workloads
            },
            "clusters": {cluster.name: cluster.document() for cluster in self.clusters},
        }
        if any(load.preference for load in self.workloads):
            stated["routing"] = "preference"
        return stated | QUIET if self.is_quiet else stated

    def _routing(self, load: Stream) -> dict[str, object]:
        """Return what a workload states of its routing: clusters that are there."""
        names = {cluster.name for cluster in self.clusters}
        there = [name for name in load.preference if name in names]
        return {"cluster_preference": there} if there else {}

    def _noise(self) -> dict[str, object]:
        """Return what each workload states of its noise."""
        return {"noise": {"sigma": 0}} if self.is_quiet else {}

    def with_workload(self, workload: Stream) -> World:
        """Return the world with the workload of the same name replaced."""
        workloads = [workload if old.name == workload.name else old for old in self.workloads]
        return replace(self, workloads=tuple(workloads))

    def with_cluster(self, cluster: Nodes) -> World:
        """Return the world with the cluster of the same name replaced."""
        clusters = [cluster if old.name == cluster.name else old for old in self.clusters]
        return replace(self, clusters=tuple(clusters))

    def with_engines(self, engines: Mapping[str, str]) -> World:
        """Return the world with the engine stated that clusters of a part are to have."""
        clusters = [
            replace(cluster, engine=engines.get(cluster.accelerator)) for cluster in self.clusters
        ]
        return replace(self, clusters=tuple(clusters))

    def with_routing(self, routing: Mapping[str, tuple[str, ...]]) -> World:
        """Return the world with the clusters stated in the order in which workloads are to be offered them."""
        workloads = [
            replace(load, preference=routing.get(load.name, ())) for load in self.workloads
        ]
        return replace(self, workloads=tuple(workloads))

    def with_nodes(self, counts: Sequence[int]) -> World:
        """Return the world with other numbers of nodes; a cluster without any is left out."""
        clusters = []
        for cluster, count in zip(self.clusters, counts, strict=True):
            if count > 0:
                clusters.append(replace(cluster, count=count))
        return replace(self, clusters=tuple(clusters))


def random_world(seed: int, number: int) -> World:
    """Return the random scenario of a number: its load is 0.25 to 1.1 of what its nodes serve."""
    random = np.random.default_rng([seed, number])
    clusters = _clusters(random)
    total_nodes = sum(cluster.count for cluster in clusters)
    workload_count = int(random.choice([1, 2, 3, 4], p=[0.1, 0.3, 0.3, 0.3]))
    # Each model needs a node to be on. Several models are where placement has a choice.
    most_models = min(3, workload_count, total_nodes)
    model_count = min(int(random.choice([1, 2, 3], p=[0.2, 0.4, 0.4])), most_models)
    models = random.choice(list(RATES), size=model_count, replace=False)
    load = random.uniform(LEAST_LOAD, MOST_LOAD)
    # Uneven, so that some workloads are next to nothing beside others.
    load_shares = random.dirichlet(np.full(workload_count, 0.8))
    workloads = []
    for index, load_share in enumerate(load_shares):
        # The first ones have each a model of its own, so that every model is asked for.
        model = models[index] if index < model_count else random.choice(models)
        workload_load = max(float(load * load_share), 0.001)
        workloads.append(_workload(random, f"w{index}", str(model), workload_load, clusters))
    months = int(random.integers(1, 3))
    return World(number=number, months=months, workloads=tuple(workloads), clusters=tuple(clusters))


def _clusters(random: np.random.Generator) -> list[Nodes]:
    """Return one to three clusters of different parts, of 1 to 24 nodes each."""
    cluster_count = random.choice([1, 2, 3], p=[0.5, 0.3, 0.2])
    parts = random.choice(list(PARTS), size=cluster_count, replace=False)
    clusters = []
    for index, part in enumerate(parts):
        # As many small as large ones: small ones are where whole replicas tell.
        nodes = math.floor(math.exp(random.uniform(0.0, math.log(MOST_NODES + 1))))
        clusters.append(Nodes(name=f"c{index}", accelerator=str(part), count=nodes))
    return clusters


def _workload(
    random: np.random.Generator, name: str, model: str, load: float, clusters: Sequence[Nodes]
) -> Stream:
    """Return a workload that needs about a share of all nodes."""
    kind = str(random.choice(list(TOKENS)))
    priority = str(random.choice(["interactive", "standard", "deferrable"], p=[0.5, 0.3, 0.2]))
    can_wait = priority == "deferrable"
    node_rate = RATES[model][kind]
    capacity = node_rate * sum(PARTS[cluster.accelerator] * cluster.count for cluster in clusters)
    mean_rate = load * capacity / (1.0 if can_wait else PEAK_TO_MEAN)
    input_tokens, output_tokens = TOKENS[kind]
    return Stream(
        name=name,
        model=model,
        requests_per_s=float(f"{mean_rate:.3g}"),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        ttft_s=60.0 if can_wait else TTFT_S[kind] * float(random.choice([1.0, 2.0])),
        tpot_s=0.2 if can_wait else round(TPOT_S[kind] * float(random.choice([1.0, 1.5])), 4),
        priority=priority,
        window_h=float(random.choice([6, 24, 48])) if can_wait else None,
        cached_fraction=float(random.choice([0.0, 0.0, 0.3])),
    )
