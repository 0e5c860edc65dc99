"""What months that happened say about uncertain inputs: a local linear model, importance weights, and new points.

Inputs are written as independent normal scores z (the study's points through the normal quantile), so their prior is
N(0, I) whatever their distributions and correlations. Over the replications the figures seen are regressed on z:

    x = a + B z + r,   r ~ N(0, S)

S is what chance, and the curvature of the model, leave: it is estimated, and months and figures that move together are
not counted twice. The months that happened are x* = a + B z* + r* + e with the stated error e ~ N(0, E), so a
replication's weight is prior · N(x*; a + B z, S + E) / density it was drawn from (a synthetic likelihood, Wood 2010).
Where the weights rest on few replications, new ones are drawn from the normal that the linear model implies, run, and
the model is fitted again around them (population Monte Carlo, Cappé and others 2004).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats

_WIDER = 1.1
"""By how much new points spread more than the normal they are drawn from: tails of weights stay short."""
_SURE = 3.0
"""Standard errors by which a slope must differ from zero to count."""
_LOCAL = 9.0
"""Replications within about three standard deviations of the estimate decide the local model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What was seen, and how sure it is."""

    figures: Floats
    """x*, shape (figures,)."""
    error_variance: Floats
    """Diagonal of E, shape (figures,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """A normal distribution of scores."""

    mean: Floats
    covariance: Floats

    def drawn(self, generator: np.random.Generator, count: int) -> Floats:
        """Return scores, shape (count, inputs), in pairs that mirror one another: their mean is the mean."""
        half = generator.standard_normal((-(-count // 2), len(self.mean)))
        return self.mean + np.concatenate([half, -half])[:count] @ self.root.T

    @property
    def root(self) -> Floats:
        """L with L Lᵀ the covariance."""
        return np.asarray(np.linalg.cholesky(self.covariance), dtype=np.float64)

    def distance(self, scores: Floats) -> Floats:
        """Return the squared Mahalanobis distance of scores, shape (rows,)."""
        return np.asarray((np.linalg.solve(self.root, (scores - self.mean).T) ** 2).sum(axis=0), dtype=np.float64)

    def log_density(self, scores: Floats) -> Floats:
        """Return the log density of scores, less the constant that all normals share."""
        return -0.5 * self.distance(scores) - float(np.log(np.diag(self.root)).sum())


def prior(inputs: int) -> Normal:
    """Return the scores' prior."""
    return Normal(mean=np.zeros(inputs), covariance=np.eye(inputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Figures as a linear function of scores, with what is left."""

    intercept: Floats
    slopes: Floats
    """Shape (figures, inputs)."""
    left: Floats
    """S, shape (figures, figures)."""

    def posterior(self, target: Target) -> Normal:
        """Return the scores' distribution given the target: (I + Bᵀ R⁻¹ B)⁻¹ and its mean, R = S + E."""
        noise = self.left + np.diag(target.error_variance)
        told = np.linalg.solve(noise, self.slopes)
        covariance = np.linalg.inv(np.eye(self.slopes.shape[1]) + self.slopes.T @ told)
        covariance = 0.5 * (covariance + covariance.T)
        return Normal(mean=covariance @ told.T @ (target.figures - self.intercept), covariance=covariance)

    def log_likelihood(self, scores: Floats, target: Target) -> Floats:
        """Return log N(x*; a + B z, S + E) of scores, shape (rows,), less a constant."""
        root = np.linalg.cholesky(self.left + np.diag(target.error_variance))
        off = target.figures - self.intercept - scores @ self.slopes.T
        return np.asarray(-0.5 * (np.linalg.solve(root, off.T) ** 2).sum(axis=0), dtype=np.float64)


def fit_linear(scores: Floats, figures: Floats, weights: Floats) -> Linear:
    """Fit figures, shape (rows, figures), to scores by weighted least squares.

    A little of the prior's variance is added to the squares of the scores (a ridge), so that an input which the rows do
    not vary gets no slope. A slope within three standard errors of zero is taken as zero: a figure far outside the plan
    would else move inputs that have nothing to do with it. The residual covariance is drawn towards its diagonal as
    there are figures per row.
    """
    share = weights / weights.sum()
    rows, count = 1.0 / float((share**2).sum()), figures.shape[1]
    middle, mean = share @ scores, share @ figures
    z, x = scores - middle, figures - mean
    squares = (z * share[:, None]).T @ z + np.eye(z.shape[1]) * 1e-3
    slopes = np.linalg.solve(squares, (z * share[:, None]).T @ x).T
    off = x - z @ slopes.T
    error = np.sqrt(np.outer(share @ off**2, np.diag(np.linalg.inv(squares))) / rows)
    slopes = np.where(np.abs(slopes) > _SURE * error, slopes, 0.0)
    off = x - z @ slopes.T
    left = (off * share[:, None]).T @ off * rows / max(rows - z.shape[1] - 1.0, 1.0)
    shrunk = count / (count + rows)
    left = (1.0 - shrunk) * left + shrunk * np.diag(np.diag(left))
    return Linear(intercept=mean - slopes @ middle, slopes=slopes, left=left)


def local_weights(scores: Floats, around: Normal) -> Floats:
    """Return how much each replication has to say about the model near an estimate, shape (rows,)."""
    distance = around.distance(scores) / _LOCAL
    return np.asarray(np.exp(-0.5 * (distance - distance.min())), dtype=np.float64)


def widened(posterior: Normal) -> Normal:
    """Return the normal that new points are drawn from."""
    return Normal(mean=posterior.mean, covariance=posterior.covariance * _WIDER**2)


def importance_weights(scores: Floats, model: Linear, target: Target, drawn_from: Normal) -> Floats:
    """Return weights that sum to one: prior · likelihood / density drawn from, shape (rows,)."""
    logs = prior(scores.shape[1]).log_density(scores) + model.log_likelihood(scores, target)
    logs -= drawn_from.log_density(scores)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def effective(weights: Floats) -> float:
    """Return the effective number of replications, 1 / Σ w² (Kong 1992)."""
    return float(1.0 / (weights**2).sum())


def weighted_quantiles(values: Floats, weights: Floats, probabilities: Floats) -> Floats:
    """Return quantiles along the first axis of values with weights, shape (probabilities, ...).

    Each replication stands at the middle of its weight; between them it is even.
    """
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    mass = weights[order] / weights.sum()
    places = np.cumsum(mass, axis=0) - 0.5 * mass
    flat, at = ordered.reshape(len(values), -1), places.reshape(len(values), -1)
    quantiles = np.empty((len(probabilities), flat.shape[1]))
    for column in range(flat.shape[1]):
        quantiles[:, column] = np.interp(probabilities, at[:, column], flat[:, column])
    return quantiles.reshape(len(probabilities), *values.shape[1:])
