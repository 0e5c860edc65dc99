"""Request lengths: distributions by stated quantiles, with the lognormal as simplest case; and request logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from itertools import pairwise
from math import erfc, exp, inf, log, pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.errors import ScenarioError
from planner.records import record

_NORMAL = NormalDist()
Z_P95 = _NORMAL.inv_cdf(0.95)
MAX_P95_TO_MEAN = exp(Z_P95**2 / 2.0)
"""No lognormal has its 95th percentile further above its mean than this, 3.87 times."""
MOST_TOKENS = 1e9
"""Longest length that anything may have."""
_Piece = tuple[float, float, float, float]


@record
class LengthDistribution:
    """Tokens per request, L: ln L is piecewise linear in the normal score Z between the stated quantiles.

    Two quantiles are a lognormal. Beyond the first and last the lines go on as they were, up to the shortest and
    longest length, where what would lie beyond piles up. With ln L = m + s·Z from score a to b,

        E[L^k; a < Z < b] = exp(k m + k² s²/2) · (Φ(b − k s) − Φ(a − k s)),

    and a moment is the sum over the pieces.
    """

    scores: tuple[float, ...]
    """Standard normal scores of the stated quantiles, rising."""
    log_tokens: tuple[float, ...]
    """Natural logarithms of their lengths, which never fall."""
    shortest_tokens: float = 0.0
    longest_tokens: float = inf

    @classmethod
    def from_quantiles(cls, tokens: Mapping[float, float]) -> LengthDistribution:
        """Return the distribution with these quantiles (share: length); 0 and 1 are the bounds."""
        shares = sorted(tokens)
        lengths = [tokens[share] for share in shares]
        outside = [share for share in shares if not 0.0 <= share <= 1.0]
        if outside:
            raise ScenarioError(
                f"the key of a quantile must be a share of requests between 0 and 1, not {outside[0]:g}"
            )
        bad = [length for length in lengths if not 0.0 < length <= MOST_TOKENS]
        if bad:
            raise ScenarioError(
                f"a quantile must be above 0 and at most {MOST_TOKENS:g} tokens, not {bad[0]:g}"
            )
        for share, next_share in pairwise(shares):
            low = tokens[share]
            high = tokens[next_share]
            if high < low:
                fall = f"{high:g} tokens at {next_share:g} after {low:g} at {share:g}"
                raise ScenarioError(f"quantiles must not fall as their share rises: {fall}")
        inner = [share for share in shares if 0.0 < share < 1.0]
        if len(inner) < 2:
            raise ScenarioError(
                f"a distribution needs at least two quantiles between 0 and 1, not {len(inner)}"
            )
        return cls(
            scores=tuple(_NORMAL.inv_cdf(share) for share in inner),
            log_tokens=tuple(log(tokens[share]) for share in inner),
            shortest_tokens=tokens.get(0.0, 0.0),
            longest_tokens=tokens.get(1.0, MOST_TOKENS),
        )

    @classmethod
    def from_mean_p95(cls, mean_tokens: float, p95_tokens: float) -> LengthDistribution:
        """Return the lognormal with this mean and 95th percentile.

        ln(p95 / mean) = zσ − σ²/2 with z = 1.645; of its two roots the smaller, σ = z − √(z² − 2 ln(p95 / mean)), is
        taken: the other has σ > 1.645 and is better named by its median.
        """
        if not 0.0 < mean_tokens <= p95_tokens <= MAX_P95_TO_MEAN * mean_tokens:
            raise ScenarioError(
                f"no lognormal has mean {mean_tokens:g} and p95 {p95_tokens:g}: p95 must lie between the mean and "
                f"{MAX_P95_TO_MEAN:.3g} times it, here {mean_tokens:g}..{MAX_P95_TO_MEAN * mean_tokens:.6g}"
            )
        # A p95 at the very limit may leave a rounding below zero under the root.
        square = Z_P95**2 - 2.0 * log(p95_tokens / mean_tokens)
        sigma = Z_P95 - sqrt(max(square, 0.0))
        mu = log(mean_tokens) - sigma**2 / 2.0
        return cls(scores=(0.0, 1.0), log_tokens=(mu, mu + sigma))

    @property
    def mean_tokens(self) -> float:
        """Return E[L]."""
        return self.moment(1)

    @property
    def coefficient_of_variation(self) -> float:
        """Return the standard deviation ÷ mean, √(E[L²] / E[L]² − 1)."""
        # One length alone has no variance, but for rounding below zero.
        square_ratio = self.moment(2) / self.moment(1) ** 2
        variance = square_ratio - 1.0
        return sqrt(max(variance, 0.0))

    def moment(self, order: int) -> float:
        """Return E[L^order]."""
        return sum(_piece_moment(piece, order) for piece in _pieces(self))

    def at_scores(self, scores: Floats) -> Floats:
        """Return the lengths at standard normal scores, in the shape of the scores."""
        slopes = np.diff(self.log_tokens) / np.diff(self.scores)
        knots = np.array(self.scores)
        # The outermost lines go on beyond the first and last quantile.
        piece = np.searchsorted(knots[1:-1], scores)
        offsets = scores - knots[piece]
        knot_logs = np.array(self.log_tokens)[piece]
        logs = knot_logs + slopes[piece] * offsets
        # Cut before the exponential, which would overflow far out.
        logs = np.minimum(logs, log(MOST_TOKENS))
        tokens = np.exp(logs)
        return np.asarray(np.clip(tokens, self.shortest_tokens, self.longest_tokens))

    def quantile(self, probability: float) -> float:
        """Return the length that this share of requests does not exceed."""
        score = np.array(_NORMAL.inv_cdf(probability))
        return float(self.at_scores(score))

    def cells(self, edges: tuple[float, ...], points: int) -> Floats:
        """Return the mean length in each probability cell, from evenly spaced points, scaled to the overall mean."""
        scores = _scores_within(edges, points)
        tokens = self.at_scores(scores).mean(axis=1)
        mean_tokens = float(np.diff(edges) @ tokens)
        return np.asarray(tokens * (self.mean_tokens / mean_tokens))


@lru_cache(maxsize=8)
def _scores_within(edges: tuple[float, ...], points: int) -> Floats:
    """Return the normal scores of evenly spaced points within probability cells, shape (cells, points).

    Kept, since every length has the same cells and a score takes a microsecond.
    """
    low = np.array(edges[:-1])
    weights = np.diff(edges)
    # The middle of each point's share of its cell.
    middles = np.arange(points) + 0.5
    widths = weights[:, None] * middles / points
    shares = low[:, None] + widths
    all_shares = shares.ravel().tolist()
    scores = np.array([_NORMAL.inv_cdf(share) for share in all_shares])
    scores = scores.reshape(shares.shape)
    scores.flags.writeable = False
    return scores


@lru_cache(maxsize=256)
def _pieces(lengths: LengthDistribution) -> tuple[_Piece, ...]:
    """Return the scores from and to, m and s of every line, the level ones at the bounds included."""
    slopes = np.diff(lengths.log_tokens) / np.diff(lengths.scores)
    # One line fewer than quantiles: the last quantile begins none.
    lines = []
    for place, slope in enumerate(slopes.tolist()):
        score = lengths.scores[place]
        level = lengths.log_tokens[place] - slope * score
        lines.append((level, slope))
    edges = [-inf, *lengths.scores[1:-1], inf]
    shortest = lengths.shortest_tokens
    longest = lengths.longest_tokens
    # Scores at which the outermost lines reach the bounds; a level line never does.
    low = -inf
    high = inf
    level, slope = lines[0]
    if shortest > 0.0 and slope > 0.0:
        low = (log(shortest) - level) / slope
    level, slope = lines[-1]
    if longest < inf and slope > 0.0:
        high = (log(longest) - level) / slope
    pieces = [
        (max(begin, low), min(end, high), *line)
        for (begin, end), line in zip(pairwise(edges), lines, strict=True)
    ]
    # What would lie beyond a bound piles up at it.
    if low > -inf:
        pieces.append((-inf, low, log(shortest), 0.0))
    if high < inf:
        pieces.append((high, inf, log(longest), 0.0))
    return tuple(pieces)


def _piece_moment(piece: _Piece, order: int) -> float:
    """Return E[L^order; a < Z < b] on one line.

    Where b lies below k·s, exp(k m + k² s²/2) may overflow while Φ vanishes: their product is then taken as one, by
    exp(k m + k² s²/2)·Φ(x − k s) = exp(k (m + s x))·φ(x)·M(k s − x) with Mills' ratio M = (1 − Φ) / φ.
    """
    low, high, level, slope = piece
    shift = order * slope

    def below(score: float) -> float:
        if score == -inf:
            return 0.0
        far = shift - score  # above 0, where Mills' ratio far out is its asymptotic series
        mills = (1.0 - far**-2 + 3.0 * far**-4) / far
        if far < 25.0:
            tail = erfc(far / sqrt(2.0)) * sqrt(pi / 2.0)
            mills = tail * exp(0.5 * far**2)
        log_tokens = level + slope * score
        log_density = order * log_tokens - 0.5 * score**2
        return exp(log_density) / sqrt(2.0 * pi) * mills

    if high < shift:
        return below(high) - below(low)
    # 1 − Φ at both ends: differences of tails keep their digits far out.
    low_tail = 0.5 * erfc((low - shift) / sqrt(2.0))
    high_tail = 0.5 * erfc((high - shift) / sqrt(2.0))
    scale = exp(order * level + 0.5 * shift**2)
    return scale * (low_tail - high_tail)


REUSE_GAPS_S = (1.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 100.0, 150.0, 200.0, 300.0, 500.0, 800.0,
                1500.0, 3600.0, 7200.0, 21_600.0, 86_400.0, 172_800.0)  # fmt: skip
"""Seconds since tokens were last used, by which a log's reuse is summed."""


@record
class RequestLog:
    """A request log as arrays of shape (requests,), in order of time."""

    times_s: Floats
    """Arrival, in seconds since the epoch or since any other moment."""
    input_tokens: Floats
    """Prompt lengths."""
    output_tokens: Floats
    """Generated lengths."""
    has_date: bool = False
    """Whether times count from 1970-01-01 UTC, so that the hour of the week is known."""
    one_clock: bool = True
    """False where every client's times start at its own zero: then rates and bursts cannot be seen."""
    cached_tokens: Floats | None = None
    """Input tokens found in the prefix cache, where the log shows them."""
    reused_tokens: Floats | None = None
    """Input tokens last used at most each of :data:`REUSE_GAPS_S` before, where the log has sessions or block hashes;
    shape (requests, gaps)."""
    clients: NDArray[np.int64] | None = None
    """Client numbers from 0, where the log names clients."""
    models: NDArray[np.object_] | None = None
    """Names of the served models, where the log has them."""

    def by_model(self) -> dict[str | None, RequestLog]:
        """Return the log of each served model by its name; all of it under None where no model is named."""
        if self.models is None:
            return {None: self}
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        logs: dict[str | None, RequestLog] = {}
        # dict.fromkeys has each model once, in the order of its first request.
        for model in dict.fromkeys(self.models.tolist()):
            rows = self.models == model
            requests = {
                name: column[rows]
                for name, column in columns.items()
                if isinstance(column, np.ndarray)
            }
            logs[str(model)] = replace(self, **requests)
        return logs

    @property
    def reuse(self) -> dict[float, float] | None:
        """Share of input tokens by the seconds since they were last used; None where the log does not show it."""
        total = float(self.input_tokens.sum())
        if self.reused_tokens is None or total == 0.0:
            return None
        shares = self.reused_tokens.sum(axis=0) / total
        # Beyond the last gap that occurs nothing more is found.
        last = int(np.searchsorted(shares, shares[-1]))
        # What comes back always stays below all.
        points = {
            gap_s: min(float(share), 0.999)
            for gap_s, share in zip(REUSE_GAPS_S[: last + 1], shares.tolist(), strict=False)
        }
        return points if shares[-1] > 0.0 else None

    @property
    def prefix_cache_hit_fraction(self) -> float | None:
        """Cached ÷ all input tokens, where the log shows it."""
        total = float(self.input_tokens.sum())
        if self.cached_tokens is None or total == 0.0:
            return None
        return float(self.cached_tokens.sum()) / total
