"""What a search is for: the best accuracy within a violation, or the other way."""

from dataclasses import dataclass

from fferm.data.validate import check_number
from fferm.errors import InvalidParameterError


@dataclass(frozen=True)
class Goal:
    """One bound; what it leaves open is made as good as can be.

    Attributes
    ----------
    max_violation
        Look for the most accurate candidate with at most this violation.
    min_accuracy
        Look for the fairest candidate with at least this accuracy.
    """

    max_violation: float | None
    min_accuracy: float | None

    def __post_init__(self) -> None:
        if (self.max_violation is None) == (self.min_accuracy is None):
            raise InvalidParameterError(
                "tune needs one of max_violation and min_accuracy, not both or none."
            )
        name = "min_accuracy" if self.max_violation is None else "max_violation"
        if check_number(name, getattr(self, name)) > 1:
            raise InvalidParameterError(
                f"{name}={getattr(self, name)} came. Expected a number between 0 and 1."
            )

    def is_kept(self, accuracy: float, violation: float) -> bool:
        """Return whether a candidate keeps the bound."""
        if self.max_violation is not None:
            return violation <= self.max_violation
        assert self.min_accuracy is not None
        return accuracy >= self.min_accuracy

    def score(self, accuracy: float, violation: float) -> float:
        """Return a number that is larger the better a candidate is.

        Above 0 where the bound is kept, and then it grows with what is asked for; at
        most 0 elsewhere, and then it says how far away the bound is.
        """
        if self.max_violation is not None:
            short, gain = violation - self.max_violation, accuracy
        else:
            assert self.min_accuracy is not None
            short, gain = self.min_accuracy - accuracy, 1 - violation
        return 1 + gain if short <= 0 else -short
