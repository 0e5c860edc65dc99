"""What first tokens of benchmark clients show beyond a prediction, by group of measurements.

When a client's first token comes is its recipe's doing as much as the replica's: TensorRT-LLM's recipes hold short
prompts back until they fill a step (20 steps for prompts of 1,024 tokens, none for 8,192), SGLang's look for requests
every tenth or thirtieth step, and both are set by length of prompt and tuned campaign by campaign. So

    ln(measured / predicted) = Σ effects of a row's groups + noise,

the groups being its engine, its engine at prompts of about its length, model and part under that engine, its campaign,
and its campaign at prompts of about its length. Effects are pulled to zero by priors, rows count by campaign (ten at
most) and rows far off count less. They scale the time to first token and nothing else, and they hold for clients
alone: a recipe for a benchmark says nothing of requests that arrive on their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from planner.arrays import Bools, Floats
from planner.physics.uncertainty import Groups

Labels = tuple[str, ...]
"""A row's groups, one for each level; empty where its first token follows no recipe."""

FORMULA, REQUESTS = "formula", "requests"
"""What first tokens are held against: the formula's mean, or the clients' simulation request by request."""
CAMPAIGN_ROWS = 10.0
"""Rows that a campaign counts for at most, in all fits."""
_LEVEL_SIGMA = (0.5, 0.3, 0.3, 0.15, 0.2, 0.3)
"""Prior spread of the effect of each level, in natural logarithms, the levels as ``labels_of`` has them."""
_CAMPAIGN_LEVEL = 4
_NOISE = 0.2
"""Log error from which a row counts less."""
_ROUNDS = 30  # of reweighting: effects stand to four digits after some ten


def labels_of(groups: Groups, engine: str, input_tokens: float) -> Labels:
    """Return the groups that a first token belongs to; prompts are of one length within a factor of √2."""
    about = f"prompts of about {2.0 ** round(np.log2(input_tokens)):g}"
    return (
        engine,
        f"{engine} / {about}",
        groups.model,
        groups.part,
        groups.campaign,
        f"{groups.campaign} / {about}",
    )


def fit_effects(labels: Sequence[Labels], log_ratio: Floats) -> dict[str, float]:
    """Return the effect of every group on ln(measured/predicted), shape (rows,), NaN where a row is not to be used.

    Minimises Σ w·ρ(miss/0.2) + Σ effect²/σ², ρ(z) = 2·(√(1 + z²) − 1), by ridge regressions in which a row of miss m
    weighs w/√(1 + (m/0.2)²).
    """
    used = [row for row in np.flatnonzero(np.isfinite(log_ratio)).tolist() if labels[row]]
    sigma: dict[str, float] = {}
    for row in used:
        sigma.update(zip(labels[row], _LEVEL_SIGMA, strict=True))
    place = {label: number for number, label in enumerate(sigma)}
    inside = np.zeros((len(used), len(place)))
    for number, row in enumerate(used):
        inside[number, [place[label] for label in labels[row]]] = 1.0
    size = Counter(labels[row][_CAMPAIGN_LEVEL] for row in used)
    weight = np.array([min(1.0, CAMPAIGN_ROWS / size[labels[row][_CAMPAIGN_LEVEL]]) for row in used])
    shown = log_ratio[used]
    effects: Floats = np.zeros(len(place))
    prior = np.diag(np.array(list(sigma.values())) ** -2.0)
    for _ in range(_ROUNDS):
        miss = (shown - inside @ effects) / _NOISE
        scaled = inside * (weight / np.sqrt(1.0 + miss**2) / _NOISE**2)[:, None]
        effects = np.asarray(np.linalg.solve(prior + scaled.T @ inside, scaled.T @ shown), dtype=np.float64)
    return {label: round(float(effect), 4) for label, effect in zip(place, effects, strict=True)}


def factors(labels: Sequence[Labels], effects: Mapping[str, float]) -> Floats:
    """Return what to multiply each row's predicted time to first token by, shape (rows,); 1 where nothing is known."""
    return np.exp([sum(effects.get(label, 0.0) for label in row) for row in labels])


def corrected(labels: Sequence[Labels], predicted: Floats, measured: Floats, keep: Bools) -> Floats:
    """Return predicted times to first token times what the rows that ``keep`` selects say of their groups."""
    return predicted * factors(labels, fit_effects(labels, np.where(keep, np.log(measured / predicted), np.nan)))
