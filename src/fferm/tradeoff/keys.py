"""What belongs to a model of a curve, by curve, fairness weight and seed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Key(NamedTuple):
    """Which model of a sweep is meant."""

    curve: str
    fairness_weight: float
    seed: int


class ByKey(Mapping[Key, T], Generic[T]):
    """Values by key, each made when it is first asked for.

    Where there is one curve, ``(fairness_weight, seed)`` is enough of a key.

    Parameters
    ----------
    makers
        What returns the value of each key.
    """

    def __init__(self, makers: Mapping[Key, Callable[[], T]]) -> None:
        self._makers = dict(makers)
        self._made: dict[Key, T] = {}

    def __getitem__(self, key: tuple[object, ...]) -> T:
        """Return the value of a key, the same one every time."""
        whole = self._whole(key)
        if whole not in self._made:
            self._made[whole] = self._makers[whole]()
        return self._made[whole]

    def __contains__(self, key: object) -> bool:
        """Return whether there is a value, without making it."""
        return isinstance(key, tuple) and self._whole(key) in self._makers

    def __iter__(self) -> Iterator[Key]:
        """Return the keys, in the order of the sweep."""
        return iter(self._makers)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._makers)

    def _whole(self, key: tuple[object, ...]) -> Key:
        if len(key) == 2:
            curves = {known.curve for known in self._makers}
            key = (*curves, *key) if len(curves) == 1 else key
        return Key(*key) if len(key) == 3 else key  # type: ignore[arg-type,return-value]


class Made(Generic[T]):
    """A maker of what is there already; unlike a lambda it can be pickled."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __call__(self) -> T:
        """Return it."""
        return self.value
