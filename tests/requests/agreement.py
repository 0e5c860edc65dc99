"""The hourly model beside the zoom, cell by cell: one workload on one part at one load, or two that share machines.

``python -m tests.requests.agreement``, part of ``make prove``, runs every cell, writes the tables into
docs/contributing/zoom-agreement.md and fails where they do not agree. With the word ``shared`` it runs shared machines
only.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from planner.demand.bursts import Bursts, shares_with_bursts
from planner.physics.replica import ReplicaTimes, price_replicas
from planner.physics.slo_model import late_curve, late_first
from planner.plan.build import build_plan
from planner.plan.choice import Service, build_services
from planner.plan.reuse import Reuse
from planner.plan.slo_capacity import LayoutSearch, lengths_of
from planner.requests.outcome import outcomes
from planner.requests.zoom import ZoomRequest, simulate_zoom
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from tests.shipped import shipped_calibration

MAY_BE_LATE = 0.01
"""Of requests in every cell, whose SLO percentile is the default."""
TEMPLATE = """\
name: cell
start: 2026-01-01
horizon_months: 1
router_pool: {pool}
workloads:
  work:
    {work}
    requests_per_s: {rate}
    growth: {{kind: steps, steps: [{{date: 2026-01-05, multiplier: {grown}}}]}}
    load_profile: {{peak_to_mean: 1.0, weekend_fraction: 1.0}}
    noise: {{sigma: 0}}
    burst_index_of_dispersion: {dispersion}
    admission: {overload}
clusters:
  one: {{{part}, {layout}, nodes: {nodes}}}
site: {{outages_per_year: 0}}
reliability: {{failure_multiplier: 0}}
software: {{incident_multiplier: 0, software_speedup_multiplier: 0}}
"""
# The three scenarios: what the reference asks of a node, workload by workload.
WORK = {
    "chat": """model: llama-3.1-70b
    lengths: {input: {mean: 1200, p95: 4000}, output: {mean: 300, p95: 900}}
    prefix_cache_hit_fraction: 0.3
    slo: {ttft_s: 2.0, tpot_s: 0.05}""",
    "code-completion": """model: qwen3-32b
    lengths: {input: {mean: 2500, p95: 6500}, output: {mean: 28, p95: 80}}
    prefix_cache_hit_fraction: 0.5
    slo: {ttft_s: 1.0, tpot_s: 0.04}""",
    "long-context": """model: llama-3.1-70b
    lengths: {input: {mean: 12000, p95: 40000}, output: {mean: 343, p95: 1200}}
    prefix_cache_hit_fraction: 0.37
    slo: {ttft_s: 10.0, tpot_s: 0.1}""",
}
PARTS = {
    "H200": "accelerator: H200, engine: vllm",
    "MI325X": "accelerator: MI325X, engine: vllm",
    "B200": "accelerator: B200, engine: tensorrt-llm, precision: fp4",
}
LAYOUTS = {
    "8,192 a step": "prefill_decode: colocated, chunk_tokens: 8192",
    "chosen chunk": "prefill_decode: colocated",
    "disaggregated": "prefill_decode: disaggregated",
}
WAITING = {
    "chat": """model: llama-3.1-70b
    lengths: {input: {mean: 3000, p95: 9000}, output: {mean: 200, p95: 600}}""",
    "code-completion": """model: qwen3-32b
    lengths: {input: {mean: 1000, p95: 3000}, output: {mean: 400, p95: 1200}}""",
}
"""Deferrable work of the same model, beside each: summaries of documents, and generated code."""
SHARED = """\
  waiting:
    {waiting}
    requests_per_s: {rate}
    load_profile: {{peak_to_mean: 1.0, weekend_fraction: 1.0}}
    noise: {{sigma: 0}}
    burst_index_of_dispersion: 1
    priority: deferrable
clusters:
"""
REUSED = {
    "agents": """model: llama-3.1-70b
    reuse: agentic
    lengths: {input: {mean: 50000, p95: 110000}, output: {mean: 440, p95: 1500}}
    slo: {ttft_s: 10.0, tpot_s: 0.05}""",
    "hybrid-agents": """model: qwen3.5-397b-a17b
    reuse: agentic
    lengths: {input: {mean: 50000, p95: 110000}, output: {mean: 440, p95: 1500}}
    slo: {ttft_s: 10.0, tpot_s: 0.05}""",
    "chat": """model: llama-3.1-70b
    reuse: chat
    lengths: {input: {mean: 1200, p95: 4000}, output: {mean: 300, p95: 900}}
    slo: {ttft_s: 2.0, tpot_s: 0.05}""",
    "long-context": """model: llama-3.1-70b
    reuse: long-context
    lengths: {input: {mean: 12000, p95: 40000}, output: {mean: 343, p95: 1200}}
    slo: {ttft_s: 10.0, tpot_s: 0.1}""",
}
"""Workloads whose hits follow from memory."""
MEMORY_BEGIN = "<!-- memory, written by make prove -->"
MEMORY_END = "<!-- until here: memory -->"
PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "zoom-agreement.md"
BEGIN = "<!-- written by make prove -->"
END = "<!-- until here -->"
SHARED_BEGIN = "<!-- shared machines, written by make prove -->"
SHARED_END = "<!-- until here: shared -->"
NODES = {"chat": 1, "code-completion": 1, "long-context": 6}
NOON = datetime(2026, 1, 10, 12)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison."""

    work: str
    part: str
    load: float
    """Of the hourly model's capacity."""
    layout: str = "8,192 a step"
    dispersion: float = 1.0
    overload: str = "reject"
    pool: str = "cluster"
    minutes: int = 4
    grown: float = 1.0
    """Traffic over that of day one."""


@dataclass(frozen=True, kw_only=True)
class SharedCell:
    """One comparison of an urgent and a deferrable workload on the same machines, each half of the load."""

    work: str
    part: str
    load: float
    minutes: int = 3

    @property
    def urgent(self) -> Cell:
        """The urgent workload's half."""
        return Cell(work=self.work, part=self.part, load=0.5 * self.load)


@dataclass(frozen=True, kw_only=True)
class SharedCompared:
    """What both say of shared machines."""

    cell: SharedCell
    requests: int
    zoomed: float
    hourly: float
    finished_per_s: float
    due_per_s: float
    """Of deferrable work, what the hourly model serves."""

    @property
    def agrees(self) -> bool:
        """Urgent misses within one point, the deferrable rate within 5%."""
        return (
            abs(self.hourly - self.zoomed) <= 0.01
            and abs(self.finished_per_s - self.due_per_s) <= 0.05 * self.due_per_s
        )


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What both say: requests not in time over those that came."""

    cell: Cell
    requests: int
    zoomed: float
    hourly: float
    ttft_p99_s: float
    hourly_ttft_p99_s: float
    """NaN where nothing says it: bursts, and loads beyond capacity."""

    @property
    def agrees(self) -> bool:
        """Within one point, or a quarter of the zoom's figure above 4%; beyond capacity within two."""
        return abs(self.hourly - self.zoomed) <= max(
            0.01 if self.cell.load < 1.0 else 0.02, 0.25 * self.zoomed
        )

    @property
    def first_token_ratio(self) -> float:
        """P99 of the time to the first token, the hour's over the zoom's."""
        return self.hourly_ttft_p99_s / self.ttft_p99_s


def is_held(cell: Cell) -> bool:
    """Whether both must agree: with chunks of 8,192 up to 120% load.

    Small chunks and pools apart end in a cliff, which is held by the capacity; beyond it the hour refuses more.
    """
    return cell.load <= (1.2 if cell.layout == "8,192 a step" else 0.9)


def scenario_of(cell: Cell, rate: float, waiting_per_s: float = 0.0) -> Scenario:
    """Return one cluster under one workload at a rate, to which it has grown when it is looked at.

    Deferrable work comes beside it, where its rate is stated.
    """
    text = TEMPLATE.format(
        pool=cell.pool, work=WORK[cell.work], rate=rate / cell.grown, dispersion=cell.dispersion,
        overload=cell.overload, part=PARTS[cell.part], layout=LAYOUTS[cell.layout], nodes=NODES[cell.work],
        grown=cell.grown,
    )  # fmt: skip
    if waiting_per_s:
        text = text.replace(
            "clusters:\n", SHARED.format(waiting=WAITING[cell.work], rate=waiting_per_s)
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cell.yaml"
        path.write_text(text, encoding="utf-8")
        return load_scenario(path)


@functools.cache
def service_of(work: str, part: str, layout: str, pool: str, overload: str = "reject") -> Service:
    """Return what one node sustains."""
    scenario = scenario_of(
        Cell(work=work, part=part, layout=layout, load=1.0, pool=pool, overload=overload), 1.0
    )
    return build_services(scenario, Reuse(scenario), {})[0]["one", "work"]


def compare(cell: Cell) -> Compared:
    """Run both models on a cell."""
    service = service_of(cell.work, cell.part, cell.layout, cell.pool)
    rate = cell.load * service.requests_per_s * NODES[cell.work]
    zoomed = simulate_zoom(scenario_of(cell, rate), ZoomRequest(start=NOON, minutes=cell.minutes))
    (outcome,) = outcomes(zoomed)
    has_first = cell.load <= 1.0 and cell.dispersion == 1.0 and service.prefill is None
    hourly = float(zoomed.hour.late_fraction[0] + zoomed.hour.shed_fraction[0])
    return Compared(
        cell=cell,
        requests=outcome.attainment.size,
        zoomed=1.0 - float(outcome.attainment.mean()),
        hourly=hourly,
        ttft_p99_s=float(np.nanquantile(outcome.ttft_s, 0.99)),
        hourly_ttft_p99_s=first_token_p99_s(cell) if has_first else np.nan,
    )


def shared_rates(cell: SharedCell) -> tuple[float, float]:
    """Return the rates of the urgent and the deferrable workload.

    Deferrable work is served in the layout that the urgent has, and may be slower there than in one of its own.
    """
    scenario = scenario_of(cell.urgent, 1.0, 1.0)
    services = build_services(scenario, Reuse(scenario), {})[0]
    urgent, waiting = (
        0.5 * cell.load * services["one", name].requests_per_s for name in ("work", "waiting")
    )
    placement = build_plan(scenario_of(cell.urgent, urgent, waiting)).placement
    assert placement is not None
    speeds = [
        float(speed[0])
        for deployment in placement.deployments
        if 0 in deployment.workloads
        for speed in deployment.waiting_speed.values()
    ]
    return urgent, waiting * min(speeds, default=1.0)


def compare_shared(cell: SharedCell) -> SharedCompared:
    """Run both models on shared machines."""
    scenario = scenario_of(cell.urgent, *shared_rates(cell))
    zoomed = simulate_zoom(scenario, ZoomRequest(start=NOON, minutes=cell.minutes, requests=10**6))
    urgent, waiting = outcomes(zoomed)
    return SharedCompared(
        cell=cell,
        requests=urgent.attainment.size,
        zoomed=1.0 - float(urgent.attainment.mean()),
        hourly=float(zoomed.hour.late_fraction[0] + zoomed.hour.shed_fraction[0]),
        finished_per_s=waiting.finished_s.size / (60.0 * cell.minutes),
        due_per_s=waiting.due / (60.0 * cell.minutes),
    )


def shared_cells() -> Iterator[SharedCell]:
    """Return every cell of shared machines."""
    for work, part, load in itertools.product(WAITING, PARTS, (0.4, 0.65, 0.9)):
        yield SharedCell(work=work, part=part, load=load, minutes=2 if part == "B200" else 3)


def shared_table(rows: list[SharedCompared]) -> str:
    """Return the table of shared machines as it stands in the page."""
    lines = [
        "| urgent | part | load | requests | missed, zoom | hour | deferrable/s, zoom | hour | agrees |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.cell.work} | {row.cell.part} | {row.cell.load:.0%} | {row.requests:,} | {row.zoomed:.2%} | "
        f"{row.hourly:.2%} | {row.finished_per_s:.2f} | {row.due_per_s:.2f} | {'yes' if row.agrees else 'no'} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def hourly_missed(cell: Cell) -> float:
    """Return the share late or refused by the hourly model alone, without a fleet around it.

    Beyond capacity a fleet that may choose holds the chunk with fewest misses there, so it is asked.
    """
    if cell.layout == "chosen chunk" and cell.load > 1.0:
        service = service_of(cell.work, cell.part, cell.layout, cell.pool)
        rate = cell.load * service.requests_per_s * NODES[cell.work]
        request = ZoomRequest(start=NOON, minutes=1, requests=1)
        hour = simulate_zoom(scenario_of(cell, rate), request).hour
        return float(hour.late_fraction[0] + hour.shed_fraction[0])
    service = service_of(cell.work, cell.part, cell.layout, cell.pool, cell.overload)
    bursts = Bursts(
        requests_per_s=cell.load * service.requests_per_s * NODES[cell.work],
        index_of_dispersion=cell.dispersion,
    )
    late, refused = shares_with_bursts(service.lateness, bursts, np.array([cell.load]))
    return float(late[0] + refused[0])


def first_token_p99_s(cell: Cell) -> float:
    """Return the time to the first token that the hourly model has 1% of requests exceed, by halving.

    Of those served: a router that refuses turns away what would be late, and no first token of it is ever seen.
    """
    service = service_of(cell.work, cell.part, cell.layout, cell.pool)
    workload = scenario_of(cell, 1.0).workloads["work"]
    assert service.spec is not None
    lengths = lengths_of(workload)
    replicas = price_replicas([service.spec], shipped_calibration())
    candidates = LayoutSearch(
        replicas=replicas, mean_rates=np.ones(1), router_pool=cell.pool, nodes=NODES[cell.work],
        accelerators_per_node=service.accelerators_per_node,
    )  # fmt: skip
    asked = candidates.terms(0, workload.slo)
    replica = ReplicaTimes(replicas, 0, service.speed, lengths)
    curve = late_curve(replica, asked)
    batch, _ = curve.at(cell.load * curve.capacity_requests_per_s)
    at = np.array([batch])
    rate = at / (replica.output * replica.tpot_s(at))
    step_s = replica.decode_s(at)

    def beyond(ttft_s: float) -> float:
        objective = asked if ttft_s <= asked.ttft_s else dataclasses.replace(asked, ttft_s=ttft_s)
        return float(late_first(replica, objective, rate, step_s, np.array([ttft_s]))[0, 0])

    refused = beyond(asked.ttft_s) if cell.overload == "reject" else 0.0
    low = 1e-3
    high = 100.0
    for _ in range(20):
        middle = float(np.sqrt(low * high))
        low, high = (
            (middle, high) if beyond(middle) - refused > 0.01 * (1.0 - refused) else (low, middle)
        )
    return high


@dataclass(frozen=True, kw_only=True)
class MemoryCell:
    """One comparison of workloads that state their reuse, behind routers that keep sessions on their replica."""

    works: tuple[str, ...]
    """Each with an equal part of the load."""
    kv_offload: str
    load: float
    minutes: int = 20


@dataclass(frozen=True, kw_only=True)
class MemoryCompared:
    """What both say: of the first workload, shares of requests not in time and of prompt tokens found."""

    cell: MemoryCell
    requests: int
    zoomed: float
    hourly: float
    found: float
    hourly_found: float

    @property
    def agrees(self) -> bool:
        """Hits within two points, misses within one."""
        return (
            abs(self.found - self.hourly_found) <= 0.02 and abs(self.zoomed - self.hourly) <= 0.01
        )


MEMORY_CELLS = [
    MemoryCell(works=("agents",), kv_offload="none", load=0.6),
    MemoryCell(works=("agents",), kv_offload="host", load=0.6),
    MemoryCell(works=("agents",), kv_offload="none", load=0.9),
    MemoryCell(works=("agents",), kv_offload="host", load=0.9),
    MemoryCell(works=("long-context",), kv_offload="none", load=0.6),
    MemoryCell(works=("long-context",), kv_offload="host", load=0.9),
    MemoryCell(works=("chat",), kv_offload="none", load=0.6, minutes=4),
    MemoryCell(works=("chat",), kv_offload="none", load=0.9, minutes=4),
    MemoryCell(works=("agents", "chat"), kv_offload="none", load=0.6, minutes=6),
    MemoryCell(works=("agents", "chat"), kv_offload="host", load=0.9, minutes=6),
    # Whose recurrent states take more of the cache than what is new in a prompt.
    MemoryCell(works=("hybrid-agents",), kv_offload="none", load=0.9, minutes=6),
    MemoryCell(works=("hybrid-agents",), kv_offload="host", load=0.9, minutes=6),
]
_MEMORY_NODES = 4


def memory_scenario(cell: MemoryCell, rates: tuple[float, ...]) -> Scenario:
    """Return four nodes of H200, one replica each, under workloads at some rates."""
    work = "reused: none"
    text = TEMPLATE.format(
        pool="cluster", work=work, rate=0, dispersion=1, overload="queue", grown=1.0,
        part=PARTS["H200"], nodes=_MEMORY_NODES,
        layout=f"prefill_decode: colocated, tensor_parallel: 8, kv_offload: {cell.kv_offload}",
    )  # fmt: skip
    head, _, rest = text.partition("  work:\n")
    one, clusters, tail = rest.partition("clusters:\n")
    blocks = []
    for name, rate in zip(cell.works, rates, strict=True):
        block = one.replace(work, REUSED[name]).replace(
            "requests_per_s: 0", f"requests_per_s: {rate}"
        )
        blocks.append(f"  {name}:\n{block}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cell.yaml"
        path.write_text(head + "".join(blocks) + clusters + tail, encoding="utf-8")
        return load_scenario(path)


def compare_memory(cell: MemoryCell) -> MemoryCompared:
    """Run both models on workloads that state their reuse; rates are those at which machine time is shared evenly."""
    parts = tuple(1.0 for _ in cell.works)
    rates = parts
    # What each sustains depends on what the others keep in the caches: a few rounds settle it.
    for _ in range(3):
        scenario = memory_scenario(cell, rates)
        services = build_services(scenario, Reuse(scenario), {})[0]
        rates = tuple(
            cell.load * services["one", name].requests_per_s * _MEMORY_NODES / len(cell.works)
            for name in cell.works
        )
    zoomed = simulate_zoom(
        memory_scenario(cell, rates),
        ZoomRequest(start=NOON, minutes=cell.minutes, requests=10**6),
    )
    first = outcomes(zoomed)[0]
    own = [request for request in zoomed.requests if request.workload == 0]
    found = sum(request.cached_tokens for request in own)
    prompts = sum(request.prompt_tokens for request in own)
    cache = services["one", cell.works[0]].cache
    assert cache is not None
    return MemoryCompared(
        cell=cell,
        requests=first.attainment.size,
        zoomed=1.0 - float(first.attainment.mean()),
        hourly=float(zoomed.hour.late_fraction[0] + zoomed.hour.shed_fraction[0]),
        found=found / prompts,
        hourly_found=float(cache.at(np.array([cell.load]))[0][0]),
    )


def memory_table(rows: list[MemoryCompared]) -> str:
    """Return the table of what memory finds as it stands in the page."""
    lines = [
        "| workload | host memory | load | requests | missed, zoom | hour | found, zoom | hour | agrees |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {' beside '.join(row.cell.works)} | {'yes' if row.cell.kv_offload == 'host' else 'no'} | "
        f"{row.cell.load:.0%} | {row.requests:,} | {row.zoomed:.2%} | {row.hourly:.2%} | {row.found:.1%} | "
        f"{row.hourly_found:.1%} | {'yes' if row.agrees else 'no'} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def cells() -> Iterator[Cell]:
    """Return every cell of the table."""
    for work, part in itertools.product(WORK, PARTS):
        minutes = {"chat": 4, "code-completion": 3, "long-context": 10}[work]
        longer = 1 if part == "B200" else 3
        for load in (0.3, 0.6, 0.9, 1.2):
            yield Cell(
                work=work, part=part, load=load, minutes=minutes * (longer if load < 0.5 else 1)
            )
        for load in (0.6, 0.9, 1.2):
            yield Cell(work=work, part=part, load=load, dispersion=12.0, minutes=2 * minutes)
        # Capacity is read off these, where the late share hardly moves with the load: they need ten thousand requests.
        for load in (0.7, 0.9, 1.0, 1.1, 1.3):
            yield Cell(work=work, part=part, load=load, overload="queue", minutes=longer * minutes)
        for layout in list(LAYOUTS)[1:]:
            for load in (0.6, 0.9):
                yield Cell(work=work, part=part, layout=layout, load=load, minutes=minutes)
            for load in (0.7, 0.8, 0.9, 1.0, 1.1):
                yield Cell(
                    work=work,
                    part=part,
                    layout=layout,
                    load=load,
                    overload="queue",
                    minutes=longer * minutes,
                )


def capacity_ratio(rows: list[Compared], work: str, part: str, layout: str) -> float:
    """Return the load up to which the zoom has as many in time as the SLO asks for, over the hourly model's capacity.

    Where the hourly model, at its own capacity, has more of them late than that, as many.
    """
    service = service_of(work, part, layout, "cluster")
    allowed = max(
        float(np.interp(1.0, service.lateness.loads, service.lateness.late_fractions)), MAY_BE_LATE
    )
    wanted = (work, part, layout, "queue")
    own = [r for r in rows if (r.cell.work, r.cell.part, r.cell.layout, r.cell.overload) == wanted]
    late = np.maximum.accumulate([r.zoomed for r in own])
    return float(
        np.interp(np.log(allowed), np.log(np.maximum(late, 1e-5)), [r.cell.load for r in own])
    )


def tables(rows: list[Compared]) -> str:
    """Return both tables as they stand in the page."""
    first = [r.first_token_ratio for r in rows if np.isfinite(r.hourly_ttft_p99_s)]
    near = sum(abs(ratio - 1.0) <= 0.2 for ratio in first)
    lines = [
        f"The models agree in {sum(r.agrees for r in rows)} of {len(rows)} rows. Up to capacity and without bursts, "
        "the hourly model's P99 of the time to",
        f"first token is within 20% of the zoom's in {near} of {len(first)} rows.",
        "",
        "| workload | part | layout | load | bursts | overload | requests | zoom | hour | agrees | P99 zoom, s "
        "| hour, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cell = row.cell
        said = f"{row.hourly_ttft_p99_s:.2f}" if np.isfinite(row.hourly_ttft_p99_s) else ""
        lines.append(
            f"| {cell.work} | {cell.part} | {cell.layout} | {cell.load:.0%} | "
            f"{'yes' if cell.dispersion > 1 else 'no'} | "
            f"{cell.overload} | {row.requests:,} | {row.zoomed:.2%} | {row.hourly:.2%} | "
            f"{'yes' if row.agrees else 'no'} | {row.ttft_p99_s:.2f} | {said} |"
        )
    lines += [
        "",
        "The capacity in the zoom is the rate at which 1% of requests miss the SLO, with `queue` and without bursts. "
        "If the hourly model",
        "has a larger share of misses at its own capacity, that share is used in place of 1%. The zoom's capacity is "
        "interpolated",
        "between the loads of the table above. The ratio is the hourly model's capacity divided by the zoom's:",
        "",
        "| workload | part | layout | capacity by hour, requests/s per node | by zoom | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for work, part, layout in itertools.product(WORK, PARTS, LAYOUTS):
        service = service_of(work, part, layout, "cluster")
        ratio = capacity_ratio(rows, work, part, layout)
        said = (
            layout if layout != "chosen chunk" else f"{service.spec.chunk_tokens:,} a step, chosen"
        )
        rate = service.requests_per_s
        lines.append(
            f"| {work} | {part} | {said} | {rate:.2f} | {rate * ratio:.2f} | {1.0 / ratio:.2f} |"
        )
    return "\n".join(lines) + "\n"


def written(begin: str = BEGIN, end: str = END) -> str:
    """Return the tables that stand in the page."""
    return PAGE.read_text(encoding="utf-8").split(begin)[1].split(end)[0]


def write(begin: str, table: str, end: str) -> None:
    """Write tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        f"{text.partition(begin)[0]}{begin}\n\n{table}\n{end}{text.partition(end)[2]}",
        encoding="utf-8",
    )


def main() -> None:
    """Run every cell, write the tables into the page, and fail where hour and zoom must agree and do not."""
    with ProcessPoolExecutor() as pool:
        shared = list(pool.map(compare_shared, shared_cells()))
        write(SHARED_BEGIN, shared_table(shared), SHARED_END)
        off = [str(row) for row in shared if not row.agrees]
        remembered = list(pool.map(compare_memory, MEMORY_CELLS))
        write(MEMORY_BEGIN, memory_table(remembered), MEMORY_END)
        off += [str(row) for row in remembered if not row.agrees]
        if "shared" in sys.argv[1:]:
            sys.exit("\n".join(off) or 0)
        rows = list(pool.map(compare, cells()))
    write(BEGIN, tables(rows), END)
    # Beyond, the page shows how far the hour can be trusted; up to there it is held to it.
    off += [str(row) for row in rows if not row.agrees and is_held(row.cell)]
    ratios = {
        which: 1.0 / capacity_ratio(rows, *which)
        for which in itertools.product(WORK, PARTS, LAYOUTS)
    }
    off += [
        f"capacity of {which}: {ratio:.2f} of the zoom's"
        for which, ratio in ratios.items()
        if abs(ratio - 1) > 0.1
    ]
    sys.exit("\n".join(off) or 0)


if __name__ == "__main__":
    main()
