r"""Offsets for a new place: by group without labels, intercepts with some.

Rates of small domains are mostly noise, and offsets that follow noise are worse than
none. So every estimate of a domain is shrunk towards what all domains have in common,
as far as it is noise (empirical Bayes): with the estimate ``x`` of a deviation, its
variance ``v`` and the variance ``tau^2`` of true deviations between domains, what is
left is ``x tau^2 / (tau^2 + v)``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.rows import check_aligned
from fferm.deploy.base import (
    CorrectedClassifier,
    classes_of,
    known_labels,
    logits_of,
    read_domain,
    read_prob,
    take_domain,
)
from fferm.errors import InvalidInputError
from fferm.registry import last_step

# The least variance of a decision: rates near 0 and 1 are not as sure as they look.
LEAST_VARIANCE = 0.05
# Beyond the last score, where an offset leaves nobody.
BEYOND = 1.0
# Passes over the classes in which offsets settle, and steps of Newton's method.
MOST_PASSES = 100
MOST_STEPS = 50
# Intercepts are found to this.
PRECISE = 1e-8
# A prior that keeps intercepts finite where a class is missing.
WEAK = 1e-2
# Below every variance that counts.
TINY = 1e-12


@dataclass(kw_only=True, eq=False, repr=False)
class OffsetClassifier(CorrectedClassifier):
    """A frozen scorer whose logits are lowered by offsets of domain and group.

    `adapt` and `recalibrate` return it.

    Attributes
    ----------
    offsets_ : ndarray of shape (n_domains + 1, n_groups + 1, n_classes)
        What is taken from the logits. The last domain is that of rows of any other
        domain, the last group that of rows without a value.
    """

    def _correct(
        self, prob: FloatArray, X: Table, group: IntArray, domain: IntArray
    ) -> FloatArray:
        logits = logits_of(prob) - self.offsets_[domain, group]
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)

    def _from_saved(self, learned: dict[str, Any]) -> None:
        super()._from_saved(learned)
        cells = len(self.domains_) + 1, len(self.groups_) + 1, len(self.classes_)
        self._check_numbers("offsets_", cells)


def adapt(
    model: Any, X: Table, *, sensitive_features: Table, domain: Table = None
) -> OffsetClassifier:
    """Return a model that satisfies demographic parity on the rows of a new place.

    No labels are needed. The frozen model's logits get one offset per group and class,
    so that every group's rates are those of the model in its domain, and per domain
    another, shrunk towards the former, so that small domains borrow from all. On the
    rows that are passed the rates are level up to what is noise; on further rows of the
    same places they are as level as these rows can tell.

    **Said plainly.** This decides by group, which is lawful in some places and uses and
    not in others. Who adapts again moves the thresholds, so that equal people may meet
    different ones on different days. Rates are equalized whether or not the labels are
    just.

    Parameters
    ----------
    model
        A fitted classifier with ``predict_proba``, of any library, a pipeline, a
        booster, a function of X that returns probabilities, another correction, or None
        if X holds the probabilities.
    X
        (n_samples, n_features) unlabelled rows.
    sensitive_features
        The group of each row, as in `fit`. Rows without a value have no part in it and
        get no offset.
    domain
        The place of each row, such as a state, or the name of the column of X that
        holds it. None: all are of one place.

    Returns
    -------
    OffsetClassifier

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fferm.datasets import make_biased
    >>> from fferm.metrics import violation
    >>> data = make_biased(random_state=0)
    >>> model = LogisticRegression().fit(data.X, data.y)
    >>> adapted = adapt(model, data.X, sensitive_features=data.sensitive_features)
    >>> groups = {"sensitive_features": data.sensitive_features}
    >>> violation(data.y, adapted.predict(data.X, **groups), **groups) < 0.01
    True
    """
    made, logits, place = _start(model, X, sensitive_features, domain)
    made.notion = "demographic_parity"
    group = made._learn_groups(sensitive_features, len(logits))
    if len(made.groups_) < 2:
        raise InvalidInputError(
            f"sensitive_features must have two groups; got {len(made.groups_)}."
        )
    known = group >= 0
    offsets = _level(logits[known], group[known], place[known], made)
    made.offsets_ = np.pad(offsets, ((0, 0), (0, 1), (0, 0)))
    return made


def recalibrate(
    model: Any,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table = None,
    domain: Table = None,
) -> OffsetClassifier:
    """Return a model whose intercepts are those of the rows of a new place.

    One number per class, and per domain another, shrunk towards the former: those at
    which the log loss of the labelled rows is least. Of the parts of a model that a
    shift spoils this is often the largest and the cheapest to mend. Call it before
    `adapt`, which then keeps the new rates: ``adapt(recalibrate(model, X_5, y_5), X,
    sensitive_features=s)``.

    Parameters
    ----------
    model, X, domain
        As in `adapt`.
    y
        (n_samples,) labels of these rows.
    sensitive_features
        For a model that needs groups to predict.

    Returns
    -------
    OffsetClassifier

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fferm.datasets import make_biased
    >>> data = make_biased(random_state=0)
    >>> model = LogisticRegression().fit(data.X, data.y)
    >>> mended = recalibrate(model, data.X_test, data.y_test)
    >>> drift = mended.predict_proba(data.X_test)[:, 1].mean() - data.y_test.mean()
    >>> bool(abs(drift) < 1e-4)
    True
    """
    check_aligned(X=X, y=y)
    made, logits, place = _start(model, X, sensitive_features, domain)
    made.target_name_ = str(getattr(y, "name", None) or made.target_name_)
    labels = known_labels(y, len(logits), made.classes_)
    truth = np.eye(len(made.classes_))[labels.y]
    made.offsets_ = -_intercepts(logits, truth, place, len(made.domains_))[:, None]
    return made


def _start(
    model: Any, X: Table, sensitive_features: Table, domain: Table
) -> tuple[OffsetClassifier, FloatArray, IntArray]:
    # The model to make, the logits of the rows, and the domain of each.
    check_aligned(X=X, sensitive_features=sensitive_features, domain=domain)
    made, last = OffsetClassifier(model=model), last_step(model)
    for name in ("notion", "target_name_", "sensitive_names_"):
        setattr(made, name, getattr(last, name, getattr(made, name)))
    column, seen = domain, X
    if isinstance(domain, str):
        column, seen = take_domain(X, domain, model)
        made.domain_name_ = domain
    prob = read_prob(model, seen, sensitive_features, column)
    made.classes_ = classes_of(model, prob.shape[1])
    place = np.full(len(prob), -1)
    if column is not None:
        made.domains_, place = read_domain(column, len(prob))
    return made, logits_of(prob), place


def _level(
    logits: FloatArray, group: IntArray, place: IntArray, made: OffsetClassifier
) -> FloatArray:
    # (n_domains + 1, n_groups, n_classes) offsets, the last those of all domains.
    n_domains, n_groups, n_classes = (
        len(made.domains_),
        len(made.groups_),
        len(logits.T),
    )
    shape = n_domains + 1, n_groups, n_classes
    cell = place % shape[0] * n_groups + group  # rows without a domain come last
    n_rows = np.bincount(cell, minlength=shape[0] * n_groups).reshape(shape[:2])
    in_domain = n_rows.sum(axis=1)[:, None]

    def rates(offsets: FloatArray) -> tuple[FloatArray, FloatArray]:
        # Of domains and groups, and of domains.
        decided = (logits - offsets[group]).argmax(axis=1)
        counts = np.bincount(cell * n_classes + decided, minlength=np.prod(shape))
        table = counts.reshape(shape)
        whole = table.sum(axis=1) / np.maximum(in_domain, 1)
        return table / np.maximum(n_rows, 1)[:, :, None], whole

    pooled = np.zeros(shape[1:])
    plain = rates(pooled)[1]
    members = [logits[group == k] for k in range(n_groups)]
    target = np.einsum("ck,cj->kj", n_rows / n_rows.sum(axis=0), plain)
    for k, rows in enumerate(members):
        pooled[k] = _settle(rows, target[[k]])[0]
    rate, whole = rates(pooled)
    spread = np.maximum(whole * (1 - whole), LEAST_VARIANCE)[:, None]
    few = 1 / np.maximum(n_rows, 1) - 1 / np.maximum(in_domain, 1)
    variance = np.where(n_rows > 0, few, np.inf)[:, :, None] * spread
    deviation = np.where(n_rows[:, :, None] > 0, rate - whole[:, None], 0.0)
    between = _between(deviation, variance)
    kept = (deviation * between / np.maximum(between + variance, TINY))[:-1]
    offsets = np.repeat(pooled[None], shape[0], axis=0)
    for k, rows in enumerate(members):
        wanted = np.clip(target[k] - kept[:, k], 0.0, 1.0)
        offsets[:-1, k] = _settle(rows, wanted / wanted.sum(axis=1, keepdims=True))
    return offsets


def _between(estimates: FloatArray, variance: FloatArray) -> FloatArray:
    # The variance of true values about 0, by moments along the first axis, weighted by
    # how well each is known. Where the variance is 0 or infinite nothing is.
    is_known = np.isfinite(variance) & (variance > 0)
    noise = np.where(is_known, variance, 1.0)
    between = np.mean(np.where(is_known, estimates**2, 0.0), axis=0)
    for _ in range(MOST_PASSES):
        weight = is_known / (noise + between) ** 2
        excess = np.sum(weight * (estimates**2 - noise), axis=0)
        between = np.maximum(excess, 0.0) / np.maximum(weight.sum(axis=0), TINY)
    return np.asarray(between)


def _settle(logits: FloatArray, targets: FloatArray) -> FloatArray:
    # (n_targets, n_classes) offsets at which the decisions have the target rates.
    # Each class in turn gets the offset that is right beside the others; of two classes
    # that is the answer, of more it settles.
    n_rows, n_classes = logits.shape
    offsets = np.zeros((len(targets), n_classes))
    if n_classes == 2:
        offsets[:, 1] = _cut(logits[:, 1] - logits[:, 0], targets[:, 1])
        return offsets
    start = np.zeros(n_classes)
    for offset, target in zip(offsets, targets, strict=True):
        offset[:] = start  # targets are alike
        for _ in range(MOST_PASSES):
            for j in range(1, n_classes):
                others = np.delete(logits - offset, j, axis=1).max(axis=1)
                offset[j] = _cut(logits[:, j] - others, target[[j]])[0]
            decided = (logits - offset).argmax(axis=1)
            rates = np.bincount(decided, minlength=n_classes) / n_rows
            if np.abs(rates - target).max() <= 1 / n_rows:
                break
        start = offset
    return offsets


def _cut(margin: FloatArray, rates: FloatArray) -> FloatArray:
    # The thresholds that these shares of the margins exceed, between two margins.
    ordered, n_rows = np.sort(margin), len(margin)
    above = np.rint(rates * n_rows).astype(np.int64)
    ends = np.concatenate([ordered[:1] - BEYOND, ordered, ordered[-1:] + BEYOND])
    return np.asarray((ends[n_rows - above] + ends[n_rows - above + 1]) / 2)


def _intercepts(
    logits: FloatArray, truth: FloatArray, place: IntArray, n_domains: int
) -> FloatArray:
    # (n_domains + 1, n_classes) what to add to the logits, the last for all domains.
    added = np.zeros((n_domains + 1, truth.shape[1]))
    whole = _newton(logits, truth, np.full(truth.shape[1] - 1, WEAK))
    added[:, 1:] = whole
    members = [place == c for c in range(n_domains)]
    steps = [_slopes(logits[rows] + added[-1], truth[rows]) for rows in members]
    if not steps:
        return added
    ridge = np.diag(np.full(len(whole), WEAK))
    inverse = np.linalg.inv(np.stack([bend for _, bend in steps]) + ridge)
    estimates = -np.einsum("cij,cj->ci", inverse, np.stack([g for g, _ in steps]))
    noise = np.einsum("cii->ci", inverse)
    spread = _between(estimates, noise)
    for c, rows in enumerate(members):
        precision = 1 / np.maximum(spread, TINY)
        added[c, 1:] += _newton(logits[rows] + added[-1], truth[rows], precision)
    return added


def _newton(logits: FloatArray, truth: FloatArray, precision: FloatArray) -> FloatArray:
    # The numbers to add to all logits but the first at which the log loss and a normal
    # prior about 0 are least.
    added = np.zeros(truth.shape[1])
    for _ in range(MOST_STEPS):
        slope, bend = _slopes(logits + added, truth)
        step = np.linalg.solve(bend + np.diag(precision), slope + precision * added[1:])
        added[1:] -= np.clip(step, -BEYOND, BEYOND)
        if np.abs(step).max() < PRECISE:
            break
    return added[1:]


def _slopes(logits: FloatArray, truth: FloatArray) -> tuple[FloatArray, FloatArray]:
    # First and second derivatives of the log loss by the numbers added.
    prob = softmax(logits, axis=1)[:, 1:]
    bend = np.diag(prob.sum(axis=0)) - prob.T @ prob
    return (prob - truth[:, 1:]).sum(axis=0), bend
