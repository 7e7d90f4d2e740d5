r"""f-divergences: the formulas of each, in stable form, and the limits of tables.

A divergence compares two tiny tables, the joint of prediction and group, ``P``,
with the product of its marginals, ``Q``:

.. math:: D_f(P \| Q) = \sum_{jk} Q_{jk} \, f(P_{jk} / Q_{jk}).

It never sees a sample, a model or a batch. A class states four formulas, each an
ordinary method of one operand and a namespace ``xp`` (numpy, torch, or scalars),
from which it may use ``exp, log, sqrt, abs, where`` and nothing else:

========================  ================================================
``f(t, xp)``              the generator, convex, ``f(1) = f'(1) = 0``
``f_prime(t, xp)``        its slope, which is the optimal dual variable A
``conjugate(a, xp)``      ``sup_t a t - f(t)``
``conjugate_prime(a,..)`` its slope, which is the ratio t again
========================  ================================================

Everything else has a default that follows from these; our own classes replace some
defaults by exact or more stable expressions. `fferm.testing.check_divergence` holds
any class, ours or a user's, to the laws.
"""

from typing import Literal

from fferm.divergences import classical
from fferm.divergences.base import (
    RATIO_FLOOR,
    Affine,
    Divergence,
    LinearTail,
    curvature_scaled,
    strip,
    trainable,
)
from fferm.divergences.classical import *  # noqa: F403
from fferm.errors import InvalidParameterError

__all__ = [
    "RATIO_FLOOR",
    "STANDARD",
    "Affine",
    "Divergence",
    "LinearTail",
    "curvature_scaled",
    "get",
    "strip",
    "trainable",
]
__all__ += classical.__all__

# The six divergences that need no parameters, the default first.
STANDARD = (
    "kl",
    "jensen_shannon",
    "chi2",
    "squared_hellinger",
    "reverse_kl",
    "total_variation",
)
# What the paper's own normalisation adds to the canonical generator: kl is t ln t,
# reverse_kl is -ln t, squared_hellinger is 2 (1 - sqrt t). The rest are canonical.
PAPER_SLOPES = {"kl": 1.0, "reverse_kl": -1.0, "squared_hellinger": -1.0}


def get(
    spec: str | Divergence,
    *,
    normalisation: Literal["canonical", "paper"] = "canonical",
    scale: Literal["none", "curvature"] = "none",
) -> Divergence:
    """Return the divergence that a name or an instance stands for.

    Parameters
    ----------
    spec
        A registered name such as ``"kl"``, or an instance such as
        ``Alpha(power=1.5)``.
    normalisation
        ``"canonical"`` has ``f(1) = f'(1) = 0``; ``"paper"`` tilts ``kl``,
        ``reverse_kl`` and ``squared_hellinger`` as the paper does, for reproduction.
    scale
        ``"curvature"`` divides by ``f''(1) / 2``, so that near independence every
        divergence equals chi2 and fairness weights compare.

    Examples
    --------
    >>> round(get("kl").between([[0.3, 0.15], [0.25, 0.3]]), 6)
    0.022752
    """
    divergence = Divergence.resolve(spec)
    is_known = normalisation in ("canonical", "paper")
    if not is_known or scale not in ("none", "curvature"):
        raise InvalidParameterError(
            "normalisation must be 'canonical' or 'paper' and scale 'none' or "
            f"'curvature'; got {normalisation!r} and {scale!r}."
        )
    slope = PAPER_SLOPES.get(divergence.name, 0.0)
    if normalisation == "paper" and slope:
        divergence = Affine(divergence, slope=slope)
    return curvature_scaled(divergence) if scale == "curvature" else divergence
