"""What a linear classifier has learned, and the scores that it gives."""

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from scipy.sparse import issparse

from fferm._types import FloatArray, Table
from fferm.data import FairRows
from fferm.estimators.base import FairClassifier
from fferm.estimators.pieces import Pieces
from fferm.estimators.validation import TrainingData
from fferm.objective import Problem
from fferm.solvers import Solution
from fferm.solvers.linear import penalized_logits, predicted_codes

# Models predict together, as long as their logits take no more than 64 MB.
LOGITS_TOGETHER = 2**23


class LinearClassifier(FairClassifier):
    """A classifier whose logits are linear in the features."""

    # What partial_fit goes on from, None after fit.
    _pieces: Pieces | None = None

    def decision_function(self, X: Table) -> FloatArray:
        """Return the logits: (n_samples,) for two classes, else (n_samples, m).

        Parameters
        ----------
        X
            (n_samples, n_features).
        """
        X = self._check_fitted_features(X)
        scores = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @classmethod
    def scores_of(cls, models: Sequence[Self], X: Table) -> Iterator[FloatArray]:
        """Yield the logits of several models, which read X together."""
        if not models:
            return
        X = models[0]._check_fitted_features(X)
        count = max(1, LOGITS_TOGETHER // X.shape[0])
        for begin in range(0, len(models), count):
            part = models[begin : begin + count]
            coef = np.concatenate([model.coef_ for model in part])
            scores = np.asarray((X @ coef.T).T if issparse(X) else coef @ X.T)
            for model, own in zip(part, np.split(scores, len(part)), strict=True):
                found = own.T + model.intercept_
                yield found[:, 0] if found.shape[1] == 1 else found

    def _parameters(self) -> FloatArray:
        return np.column_stack([self.coef_, self.intercept_])

    def _store(
        self, solution: Solution, data: TrainingData, rows: FairRows | None
    ) -> Self:
        self.classes_ = data.classes
        self.coef_ = solution.value[:, :-1].copy()
        self.intercept_ = solution.value[:, -1].copy()
        self._learn_groups(rows)
        self.dual_ = (
            np.concatenate(solution.dual, axis=2)
            if solution.dual
            else np.zeros((0, 0, 0))
        )
        self.n_iter_ = int(solution.stats["n_iter"])
        self.history_ = solution.history
        self.result_ = solution.result
        self.divergence_ = self._objective().divergence
        self._pieces = None
        self._warn_of_result(solution.result)
        return self

    def _warn_of_model(self, problem: Problem, solution: Solution) -> None:
        if problem.objective.uncertainty is not None:
            self._warn_of_reach(problem, penalized_logits(problem, solution.value))
        codes = predicted_codes(problem.X, solution.value)
        self._warn_of_collapse(codes)
