"""A predictor against an adversary who chooses labels: what both play, row by row."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from fferm._typing import FloatArray, IntArray
from fferm.errors import ConvergenceWarning

# Newton's method needs a dozen steps, down to a gradient far below that of a row in a
# million.
MAX_ITER, LARGEST_SLOPE = 200, 1e-7
# Newton's steps on one row, which halve the bracket where they would leave it.
MAX_STEPS, ROUNDING = 60, 1e-12


@dataclass(frozen=True)
class Saddle:
    """What both play on each row, and the value of the game there.

    The value is convex in the score: its derivative is ``label``, whose own is
    ``bend``.
    """

    chance: FloatArray
    label: FloatArray
    value: FloatArray
    bend: FloatArray


def play(score: FloatArray, pull: FloatArray) -> Saddle:
    """Return the saddle point of -q log p - (1 - q) log(1 - p) + pull p + score q.

    Parameters
    ----------
    score, pull
        (n_samples,) each. Beyond a pull of 1 in either direction the adversary may be
        certain, and p stays where that begins.
    """
    with np.errstate(divide="ignore"):
        end = np.log(np.maximum(np.abs(pull) - 1, 0))
    logit = np.clip(score, np.where(pull < 0, end, -np.inf), _highest_logit(pull))
    p = np.asarray(expit(logit))
    q = p + pull * p * (1 - p)
    value = np.logaddexp(0, logit) + q * (score - logit) + pull * p
    bend = (logit == score) * p * (1 - p) * (1 + pull * (1 - 2 * p))
    return Saddle(p, q, value, bend)


def play_on_labels(score: FloatArray, pull: FloatArray) -> Saddle:
    """Return the saddle point of -q log p - (1 - q) log(1 - p) + pull p q + score q.

    Parameters
    ----------
    score, pull
        (n_samples,) each.
    """
    end = _highest_logit(pull)
    is_certain = score + 1 >= end  # there pull times p is 1
    low = np.where(is_certain, end, score + np.minimum(pull, 0))
    high = np.minimum(end, np.maximum(low, score + np.maximum(pull, 0)))
    logit = np.clip(score, low, high)
    for _ in range(MAX_STEPS):
        p = expit(logit)
        rest = logit - pull * p - score
        low, high = np.where(rest < 0, logit, low), np.where(rest > 0, logit, high)
        step = rest / (1 - pull * p * (1 - p))
        is_done = (np.abs(step) < ROUNDING) | (low >= high)
        is_inside = (low < logit - step) & (logit - step < high)
        halved = np.where(is_done, logit, (low + high) / 2)
        logit = np.where(is_inside, logit - step, halved)
        if np.all(is_done):
            break
    p = np.asarray(expit(logit))
    curve = 1 - pull * p * (1 - p)
    q = p / curve
    value = np.logaddexp(0, logit) + q * (score + pull * p - logit)
    bend = ~is_certain * p * (1 - p) * (1 - pull * p**2) / curve**3
    return Saddle(p, q, value, bend)


def _highest_logit(pull: FloatArray) -> FloatArray:
    """Return the logit of 1 / pull, at which the adversary is certain, or infinity."""
    with np.errstate(divide="ignore"):
        end = -np.log(np.maximum(pull - 1, 0))
    return np.asarray(end)


@dataclass(frozen=True)
class Side:
    """Rows of one sample as the game sees them: scores are ``A @ theta``.

    Attributes
    ----------
    A
        Features and a 1, times the density ratio, and, where shares of positive labels
        are matched, an indicator of each group.
    group
        The group of each row.
    """

    A: FloatArray
    group: IntArray


@dataclass(frozen=True)
class Game:
    """The convex problem that is left when a multiplier is given.

    Attributes
    ----------
    play
        From scores and pulls to the saddle point.
    source, target
        Rows to train on, and to be fair on.
    weight
        What each row to train on counts in a mean over the target.
    known
        The mean over training rows of label times features and, where they are
        matched, the shares of positive labels.
    ridge
        The strength of the ridge on each parameter.
    pull
        What a multiplier of 1 pulls in each group.
    is_of_labels
        Whether the violation looks at the adversary's labels.
    """

    play: Callable[[FloatArray, FloatArray], Saddle]
    source: Side
    target: Side
    weight: FloatArray
    known: FloatArray
    ridge: FloatArray
    pull: FloatArray
    is_of_labels: bool

    def saddle(self, side: Side, multiplier: float, theta: FloatArray) -> Saddle:
        """Return what is played on the rows of one side."""
        return self.play(side.A @ theta, multiplier * self.pull[side.group])

    def solve(self, multiplier: float, start: FloatArray) -> FloatArray:
        """Return the parameters at a multiplier."""

        def evaluate(theta: FloatArray) -> tuple[float, FloatArray]:
            return self.evaluate(multiplier, theta)

        def bend(theta: FloatArray) -> FloatArray:
            return self.bend(multiplier, theta)

        found = minimize(
            evaluate,
            start,
            jac=True,
            hess=bend,
            method="trust-exact",
            tol=LARGEST_SLOPE,
            options={"maxiter": MAX_ITER},
        )
        if found.nit >= MAX_ITER:
            warnings.warn(
                f"RobustCovariateShift stopped after {MAX_ITER} iterations, before the "
                "optimum. Scale the features.",
                ConvergenceWarning,
                stacklevel=7,
            )
        return np.asarray(found.x)

    def evaluate(
        self, multiplier: float, theta: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the value of the game, less what is known of labels, and gradient."""
        saddle, ridge = self.saddle(self.source, multiplier, theta), self.ridge * theta
        value = self.weight @ saddle.value - self.known @ theta + ridge @ theta / 2
        gradient = (self.weight * saddle.label) @ self.source.A - self.known + ridge
        return float(value), np.asarray(gradient)

    def bend(self, multiplier: float, theta: FloatArray) -> FloatArray:
        """Return the second derivative of the value of the game."""
        saddle, A = self.saddle(self.source, multiplier, theta), self.source.A
        weight = self.weight * saddle.bend
        return np.asarray((A * weight[:, None]).T @ A + np.diag(self.ridge))

    def violation(self, multiplier: float, theta: FloatArray) -> float:
        """Return how far the second group is ahead of the first on target rows."""
        saddle = self.saddle(self.target, multiplier, theta)
        is_counted = saddle.label if self.is_of_labels else 1.0
        return float(np.mean(self.pull[self.target.group] * saddle.chance * is_counted))
