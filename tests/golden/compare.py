"""How far two results of a job are apart: exact where it counts, else relative.

Lists of numbers are compared relative to their largest one, because a coefficient
near zero has no digits of its own; a single number relative to itself.
"""

# Below this size a number is compared absolutely: it is a difference of larger ones.
SMALLEST = 1e-6
# Steps until a solver stops differ with the last bits of its steps.
STEPS = ("n_iter",)
STEP_SHARE = 0.1


def differences(expected, found, where=""):
    """Yield (place, deviation) of every number; infinity where values differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        yield from _of_dicts(expected, found, where)
    elif _is_number_list(expected) and _is_number_list(found):
        yield from _of_lists(expected, found, where)
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield where, float("inf")
            return
        for i, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{where}[{i}]")
    elif isinstance(expected, float) and _is_number(found):
        yield where, _deviation([expected], [found])
    else:
        is_same = expected == found and type(expected) is type(found)
        yield where, 0.0 if is_same else float("inf")


def largest(expected, found):
    """Return (place, deviation) of the worst number of a job."""
    return max(differences(expected, found), key=lambda pair: pair[1])


def _of_dicts(expected, found, where):
    if sorted(expected) != sorted(found):
        names = sorted(set(expected) ^ set(found))
        yield f"{where}: {names}", float("inf")
    for key in expected.keys() & found.keys():
        if key in STEPS:
            slack = max(1, STEP_SHARE * expected[key])
            is_near = abs(expected[key] - found[key]) <= slack
            yield f"{where}.{key}", 0.0 if is_near else float("inf")
        else:
            yield from differences(expected[key], found[key], f"{where}.{key}")


def _of_lists(expected, found, where):
    if len(expected) != len(found):
        yield where, float("inf")
    else:
        yield where, _deviation(expected, found)


def _deviation(expected, found):
    size = max(SMALLEST, *(abs(number) for number in (*expected, *found)))
    return max(abs(a - b) for a, b in zip(expected, found, strict=True)) / size


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_number_list(value):
    """Tell lists of numbers, some of which are fractions, from lists of counts."""
    return (
        isinstance(value, list)
        and all(_is_number(part) for part in value)
        and any(isinstance(part, float) for part in value)
    )
