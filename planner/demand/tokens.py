"""Request lengths: distributions by stated quantiles, with the lognormal as simplest case; and request logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import erfc, exp, inf, log, pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.errors import ScenarioError

_NORMAL = NormalDist()
Z_P95 = _NORMAL.inv_cdf(0.95)
MAX_P95_TO_MEAN = exp(Z_P95**2 / 2.0)
"""No lognormal has its 95th percentile further above its mean than this, 3.87 times."""
MOST_TOKENS = 1e9
"""Longest length that anything may have."""
_Piece = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
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
        lengths = [tokens[share] for share in sorted(tokens)]
        if outside := [share for share in shares if not 0.0 <= share <= 1.0]:
            raise ScenarioError(
                f"a quantile is that of a share of requests between 0 and 1, not {outside[0]:g}"
            )
        if bad := [length for length in lengths if not 0.0 < length <= MOST_TOKENS]:
            raise ScenarioError(
                f"a quantile must be above 0 and at most {MOST_TOKENS:g} tokens, not {bad[0]:g}"
            )
        for place, (low, high) in enumerate(pairwise(lengths)):
            if high < low:
                where = (
                    f"{high:g} tokens at {shares[place + 1]:g} after {low:g} at {shares[place]:g}"
                )
                raise ScenarioError(f"quantiles must not fall as their share rises: {where}")
        inner = [share for share in shares if 0.0 < share < 1.0]
        if len(inner) < 2:
            raise ScenarioError(
                f"at least two quantiles between 0 and 1 make a distribution, not {len(inner)}"
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
        sigma = Z_P95 - sqrt(max(Z_P95**2 - 2.0 * log(p95_tokens / mean_tokens), 0.0))
        mu = log(mean_tokens) - sigma**2 / 2.0
        return cls(scores=(0.0, 1.0), log_tokens=(mu, mu + sigma))

    @property
    def mean_tokens(self) -> float:
        """Return E[L]."""
        return self.moment(1)

    @property
    def coefficient_of_variation(self) -> float:
        """Return the standard deviation ÷ mean, √(E[L²] / E[L]² − 1)."""
        return sqrt(max(self.moment(2) / self.moment(1) ** 2 - 1.0, 0.0))

    def moment(self, order: int) -> float:
        """Return E[L^order]."""
        return sum(_piece_moment(piece, order) for piece in _pieces(self))

    def at_scores(self, scores: Floats) -> Floats:
        """Return the lengths at standard normal scores, in the shape of the scores."""
        slopes = np.diff(self.log_tokens) / np.diff(self.scores)
        knots = np.array(self.scores)
        piece = np.searchsorted(knots[1:-1], scores)
        logs = np.array(self.log_tokens)[piece] + slopes[piece] * (scores - knots[piece])
        tokens = np.exp(np.minimum(logs, log(MOST_TOKENS)))
        return np.asarray(np.clip(tokens, self.shortest_tokens, self.longest_tokens))

    def quantile(self, probability: float) -> float:
        """Return the length that this share of requests does not exceed."""
        return float(self.at_scores(np.array(_NORMAL.inv_cdf(probability))))

    def cells(self, edges: tuple[float, ...], points: int) -> Floats:
        """Return the mean length in each probability cell, from evenly spaced points, scaled to the overall mean."""
        tokens = self.at_scores(_scores_within(edges, points)).mean(axis=1)
        return np.asarray(tokens * (self.mean_tokens / float(np.diff(edges) @ tokens)))


@lru_cache(maxsize=8)
def _scores_within(edges: tuple[float, ...], points: int) -> Floats:
    """Return the normal scores of evenly spaced points within probability cells, shape (cells, points).

    Kept, since every length has the same cells and a score takes a microsecond.
    """
    low = np.array(edges[:-1])
    weights = np.diff(edges)
    within = low[:, None] + weights[:, None] * (np.arange(points) + 0.5) / points
    scores = np.array([_NORMAL.inv_cdf(share) for share in within.ravel().tolist()]).reshape(
        within.shape
    )
    scores.flags.writeable = False
    return scores


@lru_cache(maxsize=256)
def _pieces(lengths: LengthDistribution) -> tuple[_Piece, ...]:
    """Return the scores from and to, m and s of every line, the level ones at the bounds included."""
    slopes = (np.diff(lengths.log_tokens) / np.diff(lengths.scores)).tolist()  # one less than ends
    starts = zip(lengths.scores, lengths.log_tokens, slopes, strict=False)
    lines = [(level - slope * score, slope) for score, level, slope in starts]
    edges = [-inf, *lengths.scores[1:-1], inf]
    (first, rise) = lines[0]
    (last, end) = lines[-1]
    shortest = lengths.shortest_tokens
    longest = lengths.longest_tokens
    low = (log(shortest) - first) / rise if shortest > 0.0 and rise > 0.0 else -inf
    high = (log(longest) - last) / end if longest < inf and end > 0.0 else inf
    spans = zip(pairwise(edges), lines, strict=True)
    pieces = [(max(begin, low), min(end, high), *line) for (begin, end), line in spans]
    pieces += [(-inf, low, log(shortest), 0.0)] if low > -inf else []
    return (*pieces, (high, inf, log(longest), 0.0)) if high < inf else tuple(pieces)


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
            mills = erfc(far / sqrt(2.0)) * sqrt(pi / 2.0) * exp(0.5 * far**2)
        return exp(order * (level + slope * score) - 0.5 * score**2) / sqrt(2.0 * pi) * mills

    if high < shift:
        return below(high) - below(low)
    tails = [0.5 * erfc((score - shift) / sqrt(2.0)) for score in (low, high)]  # 1 − Φ
    return exp(order * level + 0.5 * shift**2) * (tails[0] - tails[1])


@dataclass(frozen=True, slots=True, kw_only=True)
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
    clients: NDArray[np.int64] | None = None
    """Client numbers from 0, where the log names clients."""
    models: NDArray[np.object_] | None = None
    """Names of the served models, where the log has them."""

    def by_model(self) -> dict[str | None, RequestLog]:
        """Return the log of each served model by its name; all of it under None where no model is named."""
        if self.models is None:
            return {None: self}
        arrays = {
            name: shown
            for name in self.__slots__
            if isinstance(shown := getattr(self, name), np.ndarray)
        }
        which = {str(model): self.models == model for model in dict.fromkeys(self.models.tolist())}
        return {
            m: replace(self, **{name: shown[mask] for name, shown in arrays.items()})
            for m, mask in which.items()
        }

    @property
    def prefix_cache_hit_fraction(self) -> float | None:
        """Cached ÷ all input tokens, where the log shows it."""
        total = float(self.input_tokens.sum())
        return (
            None
            if self.cached_tokens is None or total == 0.0
            else float(self.cached_tokens.sum()) / total
        )
