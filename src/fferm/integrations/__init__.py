"""Models at home in other systems: each module translates, and computes nothing."""

from fferm._lazy import lazy

__getattr__, __dir__ = lazy(__name__)
