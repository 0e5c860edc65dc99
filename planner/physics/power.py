"""Board power by activity, throughput under a power cap, and node power against load.

A board's power follows what it streams and what it multiplies, not a "utilisation": an H200 rests at 126 W, draws
500 W while it decodes a single sequence, and from a batch of about 64 sits at its 700 W limit with its clock falling
from 1,980 to about 1,500 MHz. As a fraction of the thermal design power (TDP)::

    p(m, c, f) = a m + (s + k (c / f)^g) f^e

    m   bytes moved over time × datasheet bandwidth      f   clock over its maximum
    c   operations over time × datasheet dense rate      c/f work per clock cycle
        at the precision served

The memory's share does not see the clock; the cores' share (leakage and clock tree ``s``, arithmetic ``k``) does.
Where p(m, c, 1) exceeds the limit, firmware lowers f until p equals it. What a lower cap costs is read from measured
caps (``throughput_fraction_at_cap``).

``docs.generate.power_fit`` fits the five coefficients to ``planner/catalog/power_measurements.csv``; a test
refits them. They are H200 measurements carried to other parts by fraction of TDP, which the B200 node rows
bear out to 5%.

A replica with little to do runs small batches, not fewer seconds: each of its decode steps still streams the weights.
So power rises steeply from idle and flattens, it is concave in load, and half the load costs far more than half the
power. ``NodePower`` holds that curve for one cluster and workload mix, as a table on an even grid.

Wall power of a node with boards of power b_i::

    host_idle + Σ b_i + ρ Σ (b_i − b_idle)

ρ holds fans, power supplies and the host's own work. On ten MLPerf power logs ρ is 0.11 for air-cooled nodes and 0.02
for liquid-cooled ones. A cubic law for the fans alone is not borne out: it asks twice as much of the air-cooled H200
nodes (at 71% of their boards' limit) as of the air-cooled B200 nodes (at 100%).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from planner.arrays import Floats
from planner.records import record
from planner.units import KILO


@record
class PowerCoefficients:
    """Coefficients of board power as a fraction of TDP; see the module's formula."""

    memory: float
    """a: power at full datasheet bandwidth."""
    active: float
    """s: power of cores that run at full clock and multiply nothing."""
    compute: float
    """k: power of arithmetic at one datasheet rate's worth of work per cycle."""
    compute_exponent: float
    """g: below 1, since a small batch fills whole tiles of the matrix units."""
    clock_exponent: float
    """e: near 1, since voltage is at its floor over most of the range where caps act."""


# Output of docs.generate.power_fit.fit_board_power on the shipped table.
FITTED = PowerCoefficients(
    memory=0.32029,
    active=0.39317,
    compute=1.05523,
    compute_exponent=0.47529,
    clock_exponent=1.05901,
)
CAP_FLOOR_FRACTION = 0.1915
"""Cap over TDP at which nothing is served any more: output of docs.generate.power_fit.fit_cap_curve."""
CAP_EXPONENT = 1.7228
"""n of the cap curve, of the same fit."""


@record
class BoardRating:
    """Power limit and idle power of a board."""

    tdp_w: float
    idle_w: float
    """With a model loaded and nothing running."""


def power_fraction(
    memory_fraction: ArrayLike,
    compute_fraction: ArrayLike,
    clock_fraction: ArrayLike = 1.0,
    coefficients: PowerCoefficients = FITTED,
) -> Floats:
    """Return power over TDP at a given clock, before any limit acts: p(m, c, f) of the module's formula."""
    clock = np.asarray(clock_fraction, dtype=np.float64)
    compute = np.asarray(compute_fraction, dtype=np.float64)
    memory = np.asarray(memory_fraction, dtype=np.float64)
    # At a lower clock the same work keeps the cores busy for longer.
    work = (compute / clock) ** coefficients.compute_exponent
    cores = work * coefficients.compute + coefficients.active
    cores = cores * clock**coefficients.clock_exponent
    return np.asarray(cores + coefficients.memory * memory)


def board_power_w(
    rating: BoardRating,
    memory_fraction: ArrayLike,
    compute_fraction: ArrayLike,
    busy_fraction: ArrayLike = 1.0,
) -> Floats:
    """Return mean board power when it is busy for a share of the time and idle for the rest.

    Activities are those measured while the board is busy; all arguments broadcast. What is drawn is clipped at the TDP;
    ``throughput_fraction_at_cap`` gives what a lower cap costs.
    """
    drawn_w = power_fraction(memory_fraction, compute_fraction) * rating.tdp_w
    # Firmware holds the board at its limit, and a loaded board never rests below idle.
    busy_w = np.clip(drawn_w, rating.idle_w, rating.tdp_w)
    busy = np.asarray(busy_fraction, dtype=np.float64)
    above_idle_w = (busy_w - rating.idle_w) * busy
    return np.asarray(rating.idle_w + above_idle_w)


def throughput_fraction_at_cap(
    memory_fraction: ArrayLike, compute_fraction: ArrayLike, cap_fraction: ArrayLike
) -> Floats:
    """Return throughput under a board power cap over throughput at the board's own limit.

    ``cap_fraction`` is the cap over TDP. With d what the board draws uncapped, and floor and n fitted to measurements::

        kept = 1 − (1 − (cap − floor) / (d − floor))^n

    The first watts taken cost little, since clock and voltage fall together and memory does not wait for the cores; the
    last cost most.
    """
    drawn_fraction = power_fraction(memory_fraction, compute_fraction)
    uncapped = np.minimum(drawn_fraction, 1.0)
    cap = np.asarray(cap_fraction, dtype=np.float64)
    headroom = (cap - CAP_FLOOR_FRACTION) / (uncapped - CAP_FLOOR_FRACTION)
    # Below the floor nothing is served; a cap above what is drawn costs nothing.
    headroom = np.clip(headroom, 0.0, 1.0)
    lost = (1.0 - headroom) ** CAP_EXPONENT
    return np.asarray(1.0 - lost)


HOST_SLOPE_AIR = 0.1055
"""ρ of air-cooled nodes: output of docs.generate.power_fit.fit_host_slope on those rows of the shipped table."""
HOST_IDLE_W = 1800.0
"""Idle wall power less eight idle boards: H200 node 2,412 − 8 × 77, air-cooled B200 node 2,925 − 8 × 140 W."""
PREFILL_MEMORY_FRACTION = 0.08
"""Bandwidth used in prefill of 2,048 tokens on an H200 (shipped table): all but pure arithmetic, at the limit."""
_H200_PREFILL_COMPUTE_FRACTION = 0.59
"""Dense rate that the same prefill reaches."""
_LOADS = np.linspace(0.0, 1.0, 8193)
"""Loads at which a node's power is tabulated."""
_CAP_POINTS = 65
"""Caps at which its throughput is."""
_BLOCK = 8192
"""Loads that are looked up at a time."""
_FRONTIER_STEPS = 5
"""Ends of the straight lines of a frontier: four lines are within 0.3% of a clock curve."""


@record
class NodeRating:
    """A node's ratings: its boards, and the host, fans and supplies around them."""

    board: BoardRating
    boards: int = 8
    host_idle_w: float = HOST_IDLE_W
    """Processors, memory, NICs, disks and fans at rest."""
    host_slope: float = HOST_SLOPE_AIR
    """ρ: watts of fans, supply losses and host per watt of boards above idle."""

    def wall_w(self, board_w: ArrayLike) -> Floats:
        """Return wall power for boards that each draw ``board_w``."""
        drawn_w = np.asarray(board_w, dtype=np.float64)
        around_w = (drawn_w - self.board.idle_w) * self.host_slope
        boards_w = (around_w + drawn_w) * self.boards
        return np.asarray(boards_w + self.host_idle_w)

    def board_w(self, wall_w: ArrayLike) -> Floats:
        """Return the power of each board at a given wall power: the inverse of ``wall_w``."""
        boards_w = np.asarray(wall_w, dtype=np.float64) - self.host_idle_w
        around_idle_w = self.host_slope * self.board.idle_w
        board_w = boards_w / self.boards + around_idle_w
        return np.asarray(board_w / (1.0 + self.host_slope))


@record
class ServingMix:
    """The work of each board of a replica at full load: a decode step, and the share of time in prefill.

    A step of b sequences takes T(b) = t₀ + t₁ b. Its work is stated in seconds at the datasheet's peak, so that the
    precision served is in it: M(b) = m₀ + m₁ b streaming at full bandwidth, and κ b computing at the dense rate of that
    precision.
    """

    batch: float
    """Sequences decoded together at full load."""
    stream_fixed_s: float
    """m₀: weights read in every step."""
    stream_per_sequence_s: float
    """m₁: cache of one sequence, and the experts that it alone brings in."""
    compute_per_sequence_s: float
    """κ: operations of one token over the dense rate at the precision served."""
    step_fixed_s: float
    step_per_sequence_s: float
    prefill_time_fraction: float = 0.0
    """Share of a fully loaded replica's time spent in prefill."""
    prefill_compute_fraction: float = _H200_PREFILL_COMPUTE_FRACTION
    """Operations of prefill over its time and the dense rate at the precision served: what the part reaches of it."""

    @property
    def prefill_activity(self) -> tuple[float, float]:
        """Fractions of datasheet bandwidth and dense rate that prefill uses."""
        return PREFILL_MEMORY_FRACTION, self.prefill_compute_fraction

    def step_s(self, batch: ArrayLike) -> Floats:
        """Return the time of a decode step."""
        sequences = np.asarray(batch, dtype=np.float64)
        return np.asarray(self.step_fixed_s + sequences * self.step_per_sequence_s)

    def decode_activity(self, batch: ArrayLike) -> tuple[Floats, Floats]:
        """Return the fractions of datasheet bandwidth and dense rate that a decode step of a batch uses."""
        sequences = np.asarray(batch, dtype=np.float64)
        step_s = self.step_s(sequences)
        stream_s = sequences * self.stream_per_sequence_s + self.stream_fixed_s
        memory = stream_s / step_s
        compute = sequences * self.compute_per_sequence_s / step_s
        # A step time taken from a fitted model can be a little shorter than the datasheet allows.
        return np.minimum(memory, 1.0), np.minimum(compute, 1.0)

    def hottest_batch(self) -> float:
        """Return the batch of highest board power, beyond which the formula falls; infinity where it never does.

        Where steps lengthen faster than traffic grows (m₀ t₁ > m₁ t₀), memory's share a m thins out with the batch
        while the share of arithmetic k c^g rises ever more slowly. T² dp/db = a (m₁ t₀ − m₀ t₁) + k g c^(g−1) κ t₀
        changes sign once, where c^(1−g) = k g κ t₀ / (a (m₀ t₁ − m₁ t₀)), or where c has reached 1; before that
        only m at its own limit of 1 does not thin. A board that is not empty decodes at least one sequence.
        """
        thinning = (
            self.stream_fixed_s * self.step_per_sequence_s
            - self.stream_per_sequence_s * self.step_fixed_s
        )
        if thinning <= 0.0 or self.stream_per_sequence_s >= self.step_per_sequence_s:
            return math.inf
        slack_s = self.step_per_sequence_s - self.stream_per_sequence_s
        # Up to this batch m is 1 and does not thin.
        saturated = (self.stream_fixed_s - self.step_fixed_s) / slack_s
        exponent = FITTED.compute_exponent
        arithmetic = FITTED.compute * exponent * self.compute_per_sequence_s * self.step_fixed_s
        balance = min(arithmetic / (FITTED.memory * thinning), 1.0)
        compute = balance ** (1.0 / (1.0 - exponent))
        rest = self.compute_per_sequence_s - compute * self.step_per_sequence_s
        if compute > 0.0 and rest <= 0.0:
            return math.inf
        peak = compute * self.step_fixed_s / rest if compute > 0.0 else 0.0
        return max(peak, saturated, 1.0)

    def sequences_at(self, load_fraction: ArrayLike) -> Floats:
        """Return the mean number of sequences in flight at a load.

        Little's law with a step that grows with the batch: tokens/s at load u are u (1 − φ) B / T(B), and must
        come from the share 1 − φu of time left by prefill, so b / T(b) = r and b = r t₀ / (1 − r t₁).
        """
        load = np.asarray(load_fraction, dtype=np.float64)
        share = self.prefill_time_fraction
        full_step_s = float(self.step_s(self.batch))
        full_rate = (1.0 - share) * self.batch / full_step_s
        rate = load * full_rate / (1.0 - share * load)
        decode_share = 1.0 - rate * self.step_per_sequence_s
        return np.asarray(rate * self.step_fixed_s / decode_share)


def board_power_at_load_w(rating: BoardRating, mix: ServingMix, load_fraction: ArrayLike) -> Floats:
    """Return mean board power over an hour at a load, as a fraction of the replica's full throughput.

    Prefill takes the share φu of time. Of the rest, requests in flight number b on average and come and go
    independently, so the replica is empty with probability exp(−b) and otherwise decodes b / (1 − exp(−b)) together.
    It never falls with load: b and the time not empty rise with u, and prefill, which takes time from decode, is taken
    to draw no less than it. Batches beyond the hottest draw what that one does, since what lengthens their steps is
    work that the formula does not count: no measured board draws less with a larger batch.
    """
    load = np.asarray(load_fraction, dtype=np.float64)
    sequences = mix.sequences_at(load)
    busy = np.asarray(-np.expm1(-sequences))
    # An empty replica would divide by 0, and a batch that is there has at least one sequence.
    batch = np.ones_like(sequences)
    np.divide(sequences, busy, out=batch, where=busy > 0.0)
    batch = np.minimum(batch, mix.hottest_batch())
    decode_activity = mix.decode_activity(batch)
    decode_w = board_power_w(rating, *decode_activity, busy_fraction=busy)
    prefill_w = board_power_w(rating, *mix.prefill_activity)
    prefill_w = np.maximum(prefill_w, decode_w)
    prefill = mix.prefill_time_fraction * load
    return np.asarray(prefill_w * prefill + decode_w * (1.0 - prefill))


@record
class NodePower:
    """Node power against load and throughput against cap, tabulated once for a cluster and its workload mix."""

    idle_kw: float
    full_kw: float
    load_kw: Floats
    """Wall power on an even grid of load fractions 0 to 1, fine enough to be read at the nearest point; never falls,
    so that a load can be found from a power."""
    cap_kw: Floats
    """Wall caps, rising from idle to full power."""
    cap_throughput_fraction: Floats
    """Throughput kept at each cap, over uncapped throughput."""

    def node_kw(self, load_fraction: Floats) -> Floats:
        """Return node power for loads of any shape, such as (hours,) or (hours, clusters); clipped to [0, 1].

        The nearest point of a fine table, since interpolating costs twice the time; off by at most 0.3%, near no load.
        """
        load = np.asarray(load_fraction, dtype=np.float64).ravel()
        node_kw = np.empty_like(load)
        # In blocks, so that the arrays between stay in the cache: fresh memory would cost ten times the arithmetic.
        for start in range(0, load.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            nearest = load[block] * (len(self.load_kw) - 1)
            nearest += 0.5
            cells = nearest.astype(np.intp)
            self.load_kw.take(cells, mode="clip", out=node_kw[block])
        return node_kw.reshape(np.shape(load_fraction))

    def frontier(self) -> tuple[Floats, Floats]:
        """Return the least power per node for each throughput, where nodes may be powered down or clocked down.

        A straight line from (0, 0), where all nodes are off, to the clock of most work per watt; from there on all are
        on and clocks rise. In between lies a mixture: some nodes at one clock and some at the next. Shares of full
        throughput and kW at the ends of the lines, each of shape (steps,).
        """
        work = [0.0]
        power_kw = [0.0]
        shares = self.cap_throughput_fraction.tolist()
        caps = zip(shares, self.cap_kw.tolist(), strict=True)
        for share, kw in caps:
            # The upper hull: what lies under a line between two others is served better by a mixture of them.
            while len(work) > 1:
                from_last = (share - work[-1]) * (kw - power_kw[-2])
                from_second = (share - work[-2]) * (kw - power_kw[-1])
                if from_last < from_second:
                    break
                work.pop()
                power_kw.pop()
            if share > work[-1]:
                work.append(share)
                power_kw.append(kw)
        # From the clock of most work per watt to full throughput, evenly in work.
        ends = np.linspace(work[1], 1.0, _FRONTIER_STEPS)
        return ends, np.interp(ends, work, power_kw)


def build_node_power(node: NodeRating, mix: ServingMix) -> NodePower:
    """Tabulate a node's power for one workload mix; done once per cluster, not per hour."""
    board_w = board_power_at_load_w(node.board, mix, _LOADS)
    load_kw = node.wall_w(board_w)
    load_kw /= KILO
    # At the boards' limit the curve is level but for the last digit of its sums, which must not fall either.
    load_kw = np.maximum.accumulate(load_kw)
    idle_kw = float(load_kw[0])
    full_kw = float(load_kw[-1])
    cap_kw = np.linspace(idle_kw, full_kw, _CAP_POINTS)
    cap_fraction = node.board_w(cap_kw * KILO) / node.board.tdp_w
    # What a replica keeps that spends φ of its time in prefill.
    activity = mix.decode_activity(mix.batch)
    decode = throughput_fraction_at_cap(*activity, cap_fraction)
    prefill = throughput_fraction_at_cap(*mix.prefill_activity, cap_fraction)
    share = mix.prefill_time_fraction
    # Under a cap below the floor nothing is served, and nothing may be divided by it.
    has_prefill = (prefill > 0.0) | (share == 0.0)
    works = (decode > 0.0) & has_prefill
    safe_decode = np.where(works, decode, 1.0)
    safe_prefill = np.where(prefill > 0.0, prefill, 1.0)
    time = share / safe_prefill + (1.0 - share) / safe_decode
    throughput = np.where(works, 1.0 / time, 0.0)
    # Where the board's own limit never binds, a cap at full power costs nothing; the table says exactly that.
    throughput[-1] = 1.0
    return NodePower(
        idle_kw=idle_kw,
        full_kw=full_kw,
        load_kw=load_kw,
        cap_kw=cap_kw,
        cap_throughput_fraction=np.maximum.accumulate(throughput),
    )
