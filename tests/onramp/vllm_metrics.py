"""What vLLM's documented metrics would have counted of traffic that is known: the truth that fits are held against."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEPS = [float(step * 10**power) for power in range(6) for step in (1, 2, 5)]
BOUNDS = {
    "vllm:request_prompt_tokens": STEPS,
    "vllm:request_generation_tokens": STEPS,
    "vllm:time_to_first_token_seconds": [
        0.001,
        0.005,
        0.01,
        0.02,
        0.04,
        0.06,
        0.08,
        0.1,
        0.25,
        0.5,
        0.75,
        1,
        2.5,
        5,
    ],
    "vllm:time_per_output_token_seconds": [
        0.01,
        0.025,
        0.05,
        0.075,
        0.1,
        0.15,
        0.2,
        0.3,
        0.4,
        0.5,
        0.75,
        1.0,
        2.5,
    ],
}
"""Upper bounds of vLLM's buckets, without the infinite one."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Traffic of one model, hour by hour from a Monday on."""

    model: str = "meta-llama/Llama-3.1-70B-Instruct"
    start_s: float = 1_767_571_200.0  # Monday 2026-01-05 00:00 UTC
    weeks: int = 8
    requests_per_s: float = 12.0
    growth_per_year: float = 0.0
    input_mean: float = 900.0
    input_sigma: float = 1.1
    output_mean: float = 220.0
    output_sigma: float = 0.7
    hit_fraction: float = 0.42
    ttft_median_s: float = 0.3
    """Lognormal with a spread of 0.8."""
    silent: tuple[int, int] = (0, 0)
    """Hours of an outage, from and to."""
    max_model_len: int = 131_072
    """vLLM's buckets of lengths end below it."""
    seed: int = 5

    @property
    def week(self) -> NDArray[np.float64]:
        """Relative traffic of the 168 hours: a wave by day, weekends at 0.6."""
        day = 1.0 + 0.5 * np.cos(2 * np.pi * (np.arange(24) - 15) / 24)
        week = np.concatenate([day * level for level in (1, 1, 1, 1, 1, 0.6, 0.6)])
        return np.asarray(week / week.mean())

    def counts(self) -> NDArray[np.float64]:
        """Return requests of each hour, shape (hours,), Poisson about the pattern."""
        hours = np.arange(self.weeks * 168)
        mean = (
            3600 * self.requests_per_s * (1 + self.growth_per_year) ** ((hours - hours.size) / 8766)
        )
        counts = (
            np.random.default_rng(self.seed).poisson(mean * self.week[hours % 168]).astype(float)
        )
        counts[slice(*self.silent)] = 0.0
        return counts

    def bounds(self, metric: str) -> list[float]:
        """Return the upper bounds of a metric's buckets, without the infinite one."""
        return [bound for bound in BOUNDS[metric] if bound <= self.max_model_len]

    def shares(self, metric: str) -> NDArray[np.float64]:
        """Return the exact share of observations up to each bound, the infinite one included."""
        generator = np.random.default_rng(1)
        spread = generator.standard_normal(200_000)
        seen = {
            "vllm:request_prompt_tokens": np.log(self.input_mean)
            - self.input_sigma**2 / 2
            + self.input_sigma * spread,
            "vllm:request_generation_tokens": np.log(self.output_mean)
            - self.output_sigma**2 / 2
            + self.output_sigma * spread,
            "vllm:time_to_first_token_seconds": np.log(self.ttft_median_s) + 0.8 * spread,
            "vllm:time_per_output_token_seconds": np.log(0.04) + 0.3 * spread,
        }[metric]
        bounds = np.log([*self.bounds(metric), np.inf])
        return np.asarray(np.searchsorted(np.sort(seen), bounds, side="right") / spread.size)


def _series(truth: Truth) -> dict[tuple[tuple[str, str], ...], NDArray[np.float64]]:
    """Return every counter as it rises over the hours, shape (hours + 1,), as if no server had ever been restarted."""
    done = np.concatenate([[0.0], np.cumsum(truth.counts())])
    named = (("model_name", truth.model), ("engine", "0"))
    means = {"prompt": truth.input_mean, "generation": truth.output_mean}
    rising = {
        (("__name__", "vllm:request_success_total"), *named, ("finished_reason", "stop")): 0.8
        * done,
        (("__name__", "vllm:request_success_total"), *named, ("finished_reason", "length")): 0.2
        * done,
        (("__name__", "vllm:prefix_cache_queries_total"), *named): truth.input_mean * done,
        (("__name__", "vllm:prefix_cache_hits_total"), *named): truth.hit_fraction
        * truth.input_mean
        * done,
        (("__name__", "vllm:num_requests_running"), *named): 3.0 + 0.0 * done,
    }
    for side, mean in means.items():
        rising[("__name__", f"vllm:{side}_tokens_total"), *named] = mean * done
        rising[("__name__", f"vllm:request_{side}_tokens_sum"), *named] = mean * done
    for metric in BOUNDS:
        for bound, share in zip(
            [*map(str, truth.bounds(metric)), "+Inf"], truth.shares(metric), strict=True
        ):
            rising[("__name__", f"{metric}_bucket"), *named, ("le", bound)] = share * done
    return rising


def range_query(*truths: Truth, restart_hours: int = 100) -> str:
    """Return the answer of ``query_range`` with a step of an hour: two servers each, one restarted now and then.

    The second is a new one after every restart, as in a rolling update, so its counters begin anew under another name.
    """
    result = []
    for truth in truths:
        times = truth.start_s + 3600 * np.arange(truth.weeks * 168 + 1)
        for labels, rising in _series(truth).items():
            since = np.arange(rising.size) // restart_hours * restart_hours
            reset = 0.4 * (
                rising - np.where(since > 0, rising[np.maximum(since - 1, 0)], -1e6)
            )  # long at work already
            result.append((dict(labels) | {"instance": "a:8000"}, times, reset))
            for begin in range(0, rising.size, restart_hours):
                part = slice(begin, begin + restart_hours)
                fresh = 0.6 * (rising[part] - rising[max(begin - 1, 0)])
                result.append((dict(labels) | {"instance": f"b-{begin}:8000"}, times[part], fresh))
    result = [  # a histogram once a day: its rise over all the time is what counts
        (
            labels,
            *((times, values) if "_total" in labels["__name__"] else (times[::24], values[::24])),
        )
        for labels, times, values in result
    ]
    rows = [
        {
            "metric": labels,
            "values": [
                [t, f"{v:.3f}"] for t, v in zip(times.tolist(), values.tolist(), strict=True)
            ],
        }
        for labels, times, values in result
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}})


def exposition(truth: Truth, *, has_start: bool = True) -> str:
    """Return what ``/metrics`` shows at the end, of a server that ran all the time."""
    lines = [
        "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds."
    ]
    lines += [f"process_start_time_seconds {truth.start_s}"] if has_start else []
    for labels, rising in _series(truth).items():
        name, *rest = [value for key, value in labels if key == "__name__"] + [
            f'{key}="{value}"' for key, value in labels if key != "__name__"
        ]
        lines.append(f"{name}{{{','.join(rest)}}} {rising[-1]:.1f}")
    return "\n".join(lines) + "\n"
