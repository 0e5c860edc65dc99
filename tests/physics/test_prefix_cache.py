"""What a prefix cache finds, against exact replays of two public logs, runs of others, and closed forms."""

import csv
import functools
import gzip
import json
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from planner.arrays import Floats
from planner.physics.prefix_cache import (
    GAPS_S,
    TURNS_BEFORE,
    ReuseCurve,
    WorkingSet,
    found_within,
    from_curves,
    from_points,
    from_sessions,
    with_states,
    working_set,
)

SHARED = Path(__file__).parents[3] / "shared"
AGENTIC_LOG = SHARED / "traces" / "claude_code_agentic_requests.csv.gz"
CHAT_LOG = SHARED / "traces" / "mooncake_conversation_trace.jsonl"
TIERS = SHARED / "facts" / "kv_tiers_measured.csv"
BLOCK_TOKENS = 512


def has(path: Path) -> pytest.MarkDecorator:
    """Return a mark that skips a test where a public log is not there."""
    return pytest.mark.skipif(not path.exists(), reason=f"the public log {path.name} is not here")


class Turn(NamedTuple):
    """One request of a session: when it comes if all take no time, its prompt, and what of it the one before had."""

    time_s: float
    tokens: float
    cached: float


@functools.cache
def agentic_sessions(longest: float = np.inf) -> list[list[Turn]]:
    """Return the sessions of the agentic log, each up to its first prompt that is too long."""
    rows: dict[tuple[str, ...], list[dict[str, str]]] = {}
    with gzip.open(AGENTIC_LOG, "rt") as file:
        for row in csv.DictReader(file):
            # Sub-agents have contexts of their own.
            model = row["model"] if row["depth"] == "1" else ""
            rows.setdefault((row["trace"], row["depth"], model), []).append(row)
    sessions = []
    for requests in rows.values():
        turns: list[Turn] = []
        ended_s = 0.0
        for row in requests:
            tokens = float(row["in_tok"])
            if tokens > longest:
                break
            time_s = 0.0
            cached = 0.0
            if turns:
                gap_s = max(float(row["t"]) - ended_s, 0.0)
                time_s = turns[-1].time_s + gap_s
                cached = min(float(row["cached_tok"] or 0), tokens, turns[-1].tokens)
            ended_s = float(row["t"]) + float(row["api_s"] or 0)
            turns.append(Turn(time_s, tokens, cached))
        sessions.append(turns)
    return [turns for turns in sessions if turns]


def agentic_curve(sessions: list[list[Turn]]) -> ReuseCurve:
    """Return the reuse curve of sessions: by gap, what each prompt shares with that of some turns before."""
    total = sum(turn.tokens for turns in sessions for turn in turns)
    rows = []
    for before in TURNS_BEFORE.tolist():
        gaps = []
        tokens = []
        for turns in sessions:
            for place in range(before, len(turns)):
                gaps.append(turns[place].time_s - turns[place - before].time_s)
                # What is cut off once is never the same again.
                since = turns[place - before + 1 : place + 1]
                tokens.append(min(turn.cached for turn in since))
        rows.append(_cumulated(gaps, tokens) / total)
    return from_curves(GAPS_S.tolist(), [row.tolist() for row in rows], 0.0)


def _cumulated(gaps: list[float], tokens: list[float]) -> Floats:
    """Return the tokens with at most each gap, shape (gaps,)."""
    if not gaps:
        return np.zeros_like(GAPS_S)
    order = np.argsort(gaps)
    sums = np.append(0.0, np.cumsum(np.array(tokens)[order]))
    return np.asarray(sums[np.searchsorted(np.array(gaps)[order], GAPS_S, side="right")])


def arrivals_of(
    sessions: list[list[Turn]], requests_per_s: float
) -> tuple[float, list[tuple[float, tuple[int, int], Turn]]]:
    """Return the mean prompt, and two rounds of the log in order of arrival: time, session and turn.

    Sessions begin at random, all of the log again and again, so that as many are under way at any time. The second
    round begins at 0.
    """
    random = np.random.default_rng(1)
    count = sum(map(len, sessions))
    span_s = count / requests_per_s
    mean = sum(turn.tokens for turns in sessions for turn in turns) / count
    arrivals = []
    for number, turns in enumerate(sessions):
        begins_s = random.uniform(0.0, span_s)
        for copy in range(-int(turns[-1].time_s // span_s) - 2, 1):
            for turn in turns:
                time_s = begins_s + copy * span_s + turn.time_s
                if -span_s <= time_s < span_s:
                    arrivals.append((time_s, (number, copy), turn))
    arrivals.sort(key=lambda arrival: arrival[0])
    return mean, arrivals


def replayed(
    sessions: list[list[Turn]], requests_per_s: float, contexts: float, servers: int, routing: str
) -> float:
    """Return the hit rate of an exact LRU that cuts the tails of prompts first, sessions beginning at random.

    Measured in the second round.
    """
    random = np.random.default_rng(2)
    mean, arrivals = arrivals_of(sessions, requests_per_s)
    caches = [LruCache(contexts * mean) for _ in range(servers)]
    homes: dict[tuple[int, int], int] = {}
    visited: dict[tuple[int, int], set[int]] = {}
    found = 0.0
    total = 0.0
    for time_s, session, turn in arrivals:
        server = int(random.integers(servers))
        if routing == "session":
            server = homes.setdefault(session, server)
        for other in visited.setdefault(session, set()):
            caches[other].cut(session, turn.cached)
        visited[session].add(server)
        hit = caches[server].use(session, turn.tokens)
        if time_s >= 0.0:
            found += hit
            total += turn.tokens
    return found / total


class LruCache:
    """The prompts of sessions in the order of their last use; whoever is last loses its end first."""

    def __init__(self, room: float) -> None:
        self.room = room
        self.used = 0.0
        self.prompts: OrderedDict[Hashable, float] = OrderedDict()

    def cut(self, session: Hashable, tokens: float) -> None:
        """Drop what a session no longer shares with what is held of it."""
        held = self.prompts.get(session, 0.0)
        if held > tokens:
            self.prompts[session] = tokens
            self.used -= held - tokens

    def use(self, session: Hashable, tokens: float) -> float:
        """Return the tokens found, and hold the whole prompt."""
        found = min(self.prompts.pop(session, 0.0), tokens)
        self.prompts[session] = tokens
        self.used += tokens - found
        while self.used > self.room:
            oldest, held = next(iter(self.prompts.items()))
            excess = self.used - self.room
            self.used -= min(held, excess)
            if held > excess:
                self.prompts[oldest] = held - excess
            else:
                del self.prompts[oldest]
        return found


def predicted(
    curve: ReuseCurve, tokens_per_s: float, cache_tokens: float, routing: str, servers: int
) -> float:
    """Return the hit rate by working set."""
    traffic = working_set(curve, routing, servers)
    return float(found_within(traffic, max(cache_tokens, 0.0) / tokens_per_s))


def check_agents(
    routings: Iterable[tuple[int, str]], loads: Iterable[tuple[float, float]]
) -> float:
    """Hold the formula to exact replays, servers and routings by requests per second and contexts: the median error."""
    sessions = agentic_sessions()
    curve = agentic_curve(sessions)
    count = sum(map(len, sessions))
    mean = sum(turn.tokens for turns in sessions for turn in turns) / count
    errors = []
    for servers, routing in routings:
        for requests_per_s, contexts in loads:
            exact = replayed(sessions, requests_per_s * servers, contexts, servers, routing)
            by_formula = predicted(curve, requests_per_s * mean, contexts * mean, routing, servers)
            errors.append(abs(by_formula - exact))
    assert max(errors) < 0.04
    return float(np.median(errors))


@has(AGENTIC_LOG)
def test_agents_find_what_an_exact_replay_of_their_log_finds() -> None:
    assert check_agents([(1, "session"), (4, "random")], [(0.5, 20), (1.0, 40)]) < 0.02


@pytest.mark.prove
@has(AGENTIC_LOG)
def test_agents_find_it_with_any_servers_and_routing() -> None:
    routings = [(1, "session"), (4, "session"), (4, "random"), (16, "random")]
    assert check_agents(routings, [(0.5, 20), (1.0, 40), (2.0, 400)]) < 0.01


def chat_requests() -> Iterator[tuple[float, list[int]]]:
    """Yield the time and the blocks of each request of the chat log."""
    with CHAT_LOG.open() as file:
        for line in file:
            request = json.loads(line)
            yield request["timestamp"] / 1000.0, request["hash_ids"]


def chat_curve(requests: list[tuple[float, list[int]]]) -> ReuseCurve:
    """Return the reuse curve of blocks: by gap, those that as many requests had before; the first block is common."""
    uses: dict[int, list[float]] = {}
    gaps: dict[int, list[float]] = {before: [] for before in TURNS_BEFORE.tolist()}
    total = 0
    shared = 0
    for time_s, blocks in requests:
        for block in blocks:
            earlier = uses.setdefault(block, [])
            total += 1
            if block == 0:
                shared += bool(earlier)
            else:
                for before, of_turn in gaps.items():
                    if len(earlier) >= before:
                        of_turn.append(time_s - earlier[-before])
            earlier.append(time_s)
    rows = [_cumulated(of_turn, [1.0] * len(of_turn)) / total for of_turn in gaps.values()]
    return from_curves(GAPS_S.tolist(), [row.tolist() for row in rows], shared / total)


def chat_replayed(
    requests: list[tuple[float, list[int]]], room_blocks: float, servers: int, routing: str
) -> float:
    """Return the hit rate of an exact LRU over blocks, the ends of prompts first."""
    random = np.random.default_rng(0)
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(servers)]
    homes: dict[int, int] = {}
    found = 0
    total = 0
    for _, blocks in requests:
        server = int(random.integers(servers))
        if routing == "session":
            # The block after the common one is the session's own.
            server = homes.setdefault(blocks[min(1, len(blocks) - 1)], server)
        cache = caches[server]
        found += sum(block in cache for block in blocks)
        total += len(blocks)
        for block in reversed(blocks):
            cache.pop(block, None)
            cache[block] = None
        while len(cache) > room_blocks:
            cache.popitem(last=False)
    return found / total


def check_chats(routings: Iterable[tuple[int, str]], rooms_tokens: Iterable[float]) -> None:
    """Hold the formula to exact replays of the log: servers and routings, by room for tokens."""
    requests = list(chat_requests())
    curve = chat_curve(requests)
    span_s = requests[-1][0]
    blocks_per_s = sum(len(blocks) for _, blocks in requests) / span_s
    errors = []
    for servers, routing in routings:
        for tokens in rooms_tokens:
            blocks = tokens / BLOCK_TOKENS
            exact = chat_replayed(requests, blocks, servers, routing)
            by_formula = predicted(curve, blocks_per_s / servers, blocks, routing, servers)
            errors.append(abs(by_formula - exact))
    assert np.median(errors) < 0.005
    assert max(errors) < 0.02


@has(CHAT_LOG)
def test_chats_find_what_an_exact_replay_of_their_blocks_finds() -> None:
    check_chats([(1, "session"), (16, "random")], [1e6, 10e6, 1e9])


@pytest.mark.prove
@has(CHAT_LOG)
def test_chats_find_it_with_any_servers_and_routing() -> None:
    routings = [(1, "session"), (4, "session"), (16, "session"), (4, "random"), (16, "random")]
    check_chats(routings, [0.3e6, 1e6, 3e6, 10e6, 30e6, 1e9])


class PublicRun(NamedTuple):
    """What a public run of agents counts, up to the knee: where more of them at once still bring more requests out.

    AgentX with SGLang 0.5.16 and Qwen3.5-397B on B200: github.com/andyluo7/qwen3.5-agentx-opt, data/b200_30758866378,
    as of 2026-09-01 (grade B). One server each, so that all traffic shares one cache.
    """

    accelerators: int
    sessions: int
    tier: str
    pool_tokens: float
    host_pool_tokens: float
    requests_per_s: float
    requests: float
    """Of the measured hour."""
    prompt_tokens_mean: float
    request_s_mean: float
    counted_prompt_tokens: float
    """Of the measured hour and of the warm-up before it, as the server counts them."""
    computed_tokens: float
    """Of these, prefilled."""
    device_tokens: float
    host_tokens: float
    endless_fraction: float
    """What an endless cache would find in the measured hour."""

    @property
    def hour_tokens(self) -> float:
        """Prompt tokens of the measured hour."""
        return self.requests * self.prompt_tokens_mean

    @property
    def unaccounted_tokens(self) -> float:
        """Prompt tokens that are counted neither as computed nor as found."""
        found = self.device_tokens + self.host_tokens
        return self.counted_prompt_tokens - self.computed_tokens - found

    @property
    def counts_warm_up_hits(self) -> bool:
        """Whether all that was found before the measured hour is counted too."""
        return abs(self.unaccounted_tokens) < 0.001 * self.counted_prompt_tokens

    @property
    def found_fraction(self) -> float:
        """What was found of the prompts to which the counters of hits belong."""
        counted = self.counted_prompt_tokens if self.counts_warm_up_hits else self.hour_tokens
        return (self.device_tokens + self.host_tokens) / counted

    @property
    def state_tokens(self) -> float:
        """Tokens of the cache that take as much memory as one recurrent state.

        Keys and values of 15 layers in FP8, two heads of 256 or a copy on each accelerator; states of 45 layers.
        """
        return 97_689_600.0 / (15.0 * 2.0 * 256.0 * self.accelerators)

    @property
    def memory_tokens(self) -> float:
        """Tokens for which there is memory beside weights, with that which the engine sets apart for states.

        That is nine parts in nineteen (``--mamba-full-memory-ratio`` 0.9), of which each sequence that may run takes
        five slots, and four more for its drafts as long as it may run. Twice as many may run as there are sessions,
        but no more than there are slots for.
        """
        share = 9.0 / 19.0 / (1.0 + 4.0 / 5.0)
        slots = share / (1.0 - share) * self.pool_tokens / self.state_tokens / 5.0
        # What drafts take is no part of the pool: s·(P + 4·n·t) / (1 − s) = 5·n·t for as many as fit.
        most_run = slots / (1.0 - 4.0 / 5.0 * share / (1.0 - share))
        may_run = min(2.0 * self.sessions, most_run)
        return (self.pool_tokens + 4.0 * may_run * self.state_tokens) / (1.0 - share)

    def predicted_fractions(self, curve: ReuseCurve) -> tuple[float, float]:
        """Return what the formula finds on the accelerators, and in host memory too; there states have as much again.

        A request leaves one state at the end of its prompt and one in its reply.
        """
        running = self.requests_per_s * self.request_s_mean
        held_tokens = running * (self.prompt_tokens_mean + 9.0 * self.state_tokens)
        free_tokens = max(self.memory_tokens - held_tokens, 0.0)
        traffic = with_states(working_set(curve), 2.0 * self.state_tokens / self.prompt_tokens_mean)
        rooms_tokens = free_tokens + np.array([0.0, 2.0 * self.host_pool_tokens])
        tokens_per_s = self.requests_per_s * self.prompt_tokens_mean
        near, both = found_within(traffic, rooms_tokens / tokens_per_s).tolist()
        return near, both


def public_runs() -> list[PublicRun]:
    """Return the runs that state pool and rate."""
    with (Path(__file__).parent / "agentx_counters.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = [name for name in PublicRun._fields if name != "tier"]
    return [
        PublicRun(tier=row["tier"], **{name: float(row[name]) for name in names})  # type: ignore[arg-type]
        for row in rows
    ]


def test_public_runs_count_prompts_of_the_warm_up_and_not_always_its_hits() -> None:
    """Every prompt token is either computed or found; what is neither was found in the warm-up.

    The benchmark subtracts what a counter read before the warm-up, and counters of hits do not exist before the first
    hit: they begin with the measured hour. (Servers with several tokenizers have had hits of their own by then.)
    So hits of an hour are stated over the prompts of more than that: 4 to 8 points too little.
    """
    for run in public_runs():
        warm_up_tokens = run.counted_prompt_tokens - run.hour_tokens
        # Ten further requests of each session and its beginning, of some 3,600 s.
        assert 0.05 < warm_up_tokens / run.counted_prompt_tokens < 0.11
        if not run.counts_warm_up_hits:
            assert 0.0 < run.unaccounted_tokens < warm_up_tokens
        if run.accelerators == 2:
            assert not run.counts_warm_up_hits
            assert run.found_fraction < run.endless_fraction
            stated = (run.device_tokens + run.host_tokens) / run.counted_prompt_tokens
            assert 0.04 < run.found_fraction - stated < 0.085


@has(TIERS)
def test_the_counters_give_the_shares_that_the_runs_state() -> None:
    with TIERS.open() as file:
        rows = list(csv.DictReader(file))
    for run in public_runs():
        (row,) = [
            row
            for row in rows
            if row["requests_per_s"] and float(row["requests_per_s"]) == run.requests_per_s
        ]
        assert row["tier"] == run.tier
        stated = (run.device_tokens + run.host_tokens) / run.counted_prompt_tokens
        assert stated == pytest.approx(float(row["hit_fraction"]), abs=1e-4)
        assert run.host_tokens / run.counted_prompt_tokens == pytest.approx(
            float(row["host_hit_fraction"] or 0.0), abs=1e-4
        )


@has(AGENTIC_LOG)
@pytest.mark.parametrize(
    ("tier", "runs", "median", "largest"), [("hbm", 6, 0.01, 0.03), ("host", 6, 0.01, 0.015)]
)
def test_public_runs_find_in_their_hour_what_the_formula_says(
    tier: str, runs: int, median: float, largest: float
) -> None:
    # The benchmark replays those parts of the sessions that fit into 256k tokens.
    curve = agentic_curve(agentic_sessions(longest=256e3))
    errors = []
    for run in public_runs():
        # One has hits of the warm-up among those of the accelerators and not of the host: more than ever could be.
        if run.tier == tier and run.found_fraction < run.endless_fraction:
            _, by_formula = run.predicted_fractions(curve)
            errors.append(abs(by_formula - run.found_fraction))
    assert len(errors) == runs
    assert np.median(errors) < median
    assert max(errors) < largest


@has(AGENTIC_LOG)
def test_the_page_shows_the_runs_as_the_formula_has_them(root: Path) -> None:
    curve = agentic_curve(agentic_sessions(longest=256e3))
    page = (root / "docs" / "explanation" / "memory.md").read_text(encoding="utf-8")
    shown = [line for line in page.splitlines() if line.startswith(("| 2 |", "| 4 |"))]
    rows = []
    for run in public_runs():
        if run.found_fraction < run.endless_fraction:
            near, both = run.predicted_fractions(curve)
            cells = [f"{run.accelerators:.0f}", f"{run.sessions:.0f}", "no"]
            cells += [f"{both:.3f}", f"{run.found_fraction:.3f}", "–", "–"]
            if run.tier == "host":
                cells[2] = "yes"
                cells[-2:] = [f"{both - near:.2f}", f"{run.host_tokens / run.hour_tokens:.2f}"]
            rows.append(f"| {' | '.join(cells)} |")
    assert shown == rows


@has(AGENTIC_LOG)
@pytest.mark.parametrize(("tier", "runs", "median"), [("hbm", 6, 0.01), ("host", 7, 0.015)])
def test_shares_as_runs_state_them_follow_from_the_settings_of_the_benchmark(
    tier: str, runs: int, median: float
) -> None:
    """With no counter of the run: each session begins with one request more than the ten that warm it up.

    Servers of two accelerators have one tokenizer, so that their counters of hits begin with the measured hour.
    """
    curve = agentic_curve(agentic_sessions(longest=256e3))
    errors = []
    for run in public_runs():
        if run.tier == tier:
            requests = 3600.0 * run.requests_per_s
            counted = requests + (11.0 * run.sessions if run.accelerators == 2 else 0.0)
            _, by_formula = run.predicted_fractions(curve)
            stated = (run.device_tokens + run.host_tokens) / run.counted_prompt_tokens
            errors.append(abs(by_formula * requests / counted - stated))
    assert len(errors) == runs
    assert np.median(errors) < median


@has(AGENTIC_LOG)
@has(TIERS)
def test_a_model_without_recurrent_states_finds_as_much() -> None:
    curve = agentic_curve(agentic_sessions(longest=256e3))
    with TIERS.open() as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "GLM-5.3"]
    errors = [abs(curve.most_found - float(row["hit_fraction"])) for row in rows]
    assert len(errors) == 3
    assert max(errors) < 0.014


class StatefulCache(LruCache):
    """One in which each request leaves a state, without which its prompt is of no use; who goes on leaves it there."""

    def __init__(self, room: float, state_tokens: float) -> None:
        super().__init__(room)
        self.state_tokens = state_tokens
        self.turns: dict[Hashable, int] = {}

    def use(self, session: Hashable, tokens: float) -> float:
        """Return the tokens found, and hold the whole prompt and its state."""
        turn = self.turns.get(session, 0)
        if self.prompts.get((session, turn), 0.0) < self.state_tokens:
            self.cut(session, 0.0)
        self.turns[session] = turn + 1
        # The state is the end of its prompt, which leaves first.
        super().use((session, turn + 1), self.state_tokens)
        return super().use(session, tokens)


@has(AGENTIC_LOG)
@pytest.mark.parametrize(
    ("requests_per_s", "contexts", "within"),
    [(0.5, 20, 0.014), (1, 40, 0.014), (1, 80, 0.014), (2, 80, 0.014), (1, 20, 0.05)],
)
def test_states_take_what_an_exact_replay_says(
    requests_per_s: float, contexts: float, within: float
) -> None:
    sessions = agentic_sessions()
    mean, arrivals = arrivals_of(sessions, requests_per_s)
    # As large as a ninth of a prompt, which is more than what is new in it.
    state_tokens = mean / 9.0
    cache = StatefulCache(contexts * mean, state_tokens)
    found = 0.0
    total = 0.0
    for time_s, session, turn in arrivals:
        cache.cut(session, turn.cached)
        hit = cache.use(session, turn.tokens)
        if time_s >= 0.0:
            found += hit
            total += turn.tokens
    traffic = with_states(working_set(agentic_curve(sessions)), 1.0 / 9.0)
    by_formula = float(found_within(traffic, contexts / requests_per_s))
    without = predicted(
        agentic_curve(sessions), requests_per_s * mean, contexts * mean, "session", 1
    )
    assert found / total == pytest.approx(by_formula, abs=within)
    assert by_formula < without


class SecondUseCache:
    """Two tiers, of which the second holds only what two prompts had: the rest is lost with the first."""

    def __init__(self, room: float, host_room: float) -> None:
        self.near = LruCache(room)
        self.both = LruCache(room + host_room)
        self.written: dict[tuple[int, int], float] = {}

    def use(self, session: tuple[int, int], turn: Turn) -> float:
        """Return the tokens found, and hold the whole prompt."""
        for cache in (self.near, self.both):
            cache.cut(session, turn.cached)
        near = self.near.use(session, turn.tokens)
        # In the second is what it has room for, as far as it was written.
        there = min(self.both.use(session, turn.tokens), self.written.get(session, 0.0))
        self.written[session] = min(turn.cached, turn.tokens)
        return max(near, min(there, turn.cached))


@has(AGENTIC_LOG)
@pytest.mark.parametrize(
    ("requests_per_s", "contexts", "host_contexts"), [(1, 10, 100), (2, 20, 400)]
)
def test_writing_on_second_use_costs_what_was_new_in_the_turn_before(
    requests_per_s: float, contexts: float, host_contexts: float
) -> None:
    """Of what is found in the second tier only that share is there which turns have in common with two before."""
    sessions = agentic_sessions()
    curve = agentic_curve(sessions)
    mean, arrivals = arrivals_of(sessions, requests_per_s)
    cache = SecondUseCache(contexts * mean, host_contexts * mean)
    found = 0.0
    total = 0.0
    for time_s, session, turn in arrivals:
        hit = cache.use(session, turn)
        if time_s >= 0.0:
            found += hit
            total += turn.tokens
    traffic = working_set(curve)
    near, both = found_within(
        traffic, np.array([contexts, contexts + host_contexts]) / requests_per_s
    ).tolist()
    common_to_three, common_to_two = curve.reused_fraction[[1, 0], -1].tolist()
    by_formula = near + common_to_three / common_to_two * (both - near)
    assert found / total == pytest.approx(by_formula, abs=0.003)
    # Of agents, three hundredths of the share found in host memory.
    assert both - by_formula == pytest.approx(0.034 * (both - near), abs=0.001)


def steady(gap_s: float, found: float) -> WorkingSet:
    """Return the working set of a workload whose tokens all come back after about one gap, or never."""
    return working_set(from_points({gap_s: 1e-9, gap_s * 1.0001: found}))


def test_a_cache_holds_all_traffic_of_its_residence_time() -> None:
    # Nothing new but 1 − h, and before the gap is over everything counts as new: h is found from λ·gap tokens on.
    traffic = steady(100.0, 0.8)
    for tokens, expected in ((900.0, 0.0), (1300.0, 0.8)):
        assert found_within(traffic, tokens / 10.0) == pytest.approx(expected, abs=0.01)


def test_no_room_finds_the_common_prefix_alone() -> None:
    curve = from_curves([0.0, 60.0], [[0.0, 0.5]], 0.1)
    for tokens in (0.0, -5.0):
        assert predicted(curve, 10.0, tokens, "session", 1) == pytest.approx(0.1)


def test_sessions_share_with_earlier_turns_what_arithmetic_says() -> None:
    # Prompts of 1,000, 2,000 and 3,000 tokens: 1,000 and 2,000 of 6,000 were there a turn before, 1,000 two before.
    curve = from_sessions(
        turns=3,
        median_gap_s=10.0,
        p90_gap_s=20.0,
        growth_tokens=1000.0,
        shared_tokens=0.0,
        shared_gap_s=0.0,
        mean_tokens=2000.0,
    )
    assert curve.reused_fraction[:3, -1] == pytest.approx([0.5, 1 / 6, 0.0])
    # Half of the gaps are at most the median.
    assert np.interp(10.0, GAPS_S, curve.reused_fraction[0]) == pytest.approx(0.25, abs=0.01)
    # Two replicas at random: half of the turn before, a quarter of that before it, and between two turns and four, of
    # which there are curves, an eighth of what a straight line in the logarithm says of three.
    three = (1.0 - np.log2(1.5)) / 6.0
    unbounded = predicted(curve, 1.0, 1e12, "random", 2)
    assert unbounded == pytest.approx(0.5 * 0.5 + 0.25 / 6 + 0.125 * three)


def test_prefixes_of_groups_stay_together_under_prefix_routing() -> None:
    curve = ReuseCurve(
        reused_fraction=np.zeros((TURNS_BEFORE.size, GAPS_S.size)),
        shared_fraction=0.8,
        shared_gap_s=10.0,
    )
    # Poisson: found with 1 − exp(−T / gap); over eight replicas the same group comes to each eight times less often.
    for routing, gap_s in (("prefix", 10.0), ("session", 80.0), ("random", 80.0)):
        traffic = working_set(curve, routing, 8)
        expected = 0.8 * -np.expm1(-GAPS_S / gap_s)
        assert traffic.found_fraction == pytest.approx(expected)


@pytest.mark.parametrize("replicas", [1, 2, 8, 64])
def test_affinity_never_finds_less_than_chance(replicas: int) -> None:
    curve = from_points({5.0: 0.3, 60.0: 0.7, 3600.0: 0.95})
    rooms = np.geomspace(1e3, 1e8, 40)
    by_session = working_set(curve)
    by_chance = working_set(curve, "random", replicas)
    hits = found_within(by_session, rooms / 1e3)
    chance = found_within(by_chance, rooms / 1e3)
    assert (chance <= hits + 1e-12).all()
    # More memory never finds less.
    assert (np.diff(hits) >= 0.0).all()
    assert (np.diff(chance) >= -1e-12).all()


def test_points_are_met() -> None:
    points = {5.0: 0.3, 60.0: 0.7, 3600.0: 0.95}
    traffic = working_set(from_points(points))
    for gap_s, found in points.items():
        assert np.interp(gap_s, GAPS_S, traffic.found_fraction) == pytest.approx(found, abs=0.01)
    assert traffic.found_fraction[-1] == 0.95
