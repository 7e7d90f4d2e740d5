"""Pages: HTML in one file that loads nothing, written whole or not at all."""

import math
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from fferm._files import replacing
from fferm.errors import InvalidParameterError, import_extra
from fferm.report.wording import TITLES

# More lines than this nobody can tell apart.
MOST_LINES = 8
# Groups of fewer rows are flagged: intervals of their rates span up to 35 points.
FEW_ROWS = 30
PACKAGES = ("fferm", "numpy", "scipy", "scikit-learn")


def write_page(
    template: str, values: Mapping[str, object], path: str | os.PathLike[str]
) -> None:
    """Write a filled template to a file, whole or not at all.

    Parameters
    ----------
    template
        The name of a file in ``templates``.
    values
        What the template speaks of, escaped; a name that is missing is an error.
    path
        Where to write; an existing file is replaced.
    """
    import_extra("jinja2", "report", "A report")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fferm.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for show in (
        number,
        percent,
        points,
        brief,
        plain,
        amount,
        signed,
        cost,
        bound,
        gap,
    ):
        environment.filters[show.__name__] = show
    versions = {name: version(name) for name in PACKAGES}
    versions["Python"] = platform.python_version()
    common = {"versions": versions, "measures": TITLES, "most_lines": MOST_LINES}
    common["few_rows"] = FEW_ROWS
    text = environment.get_template(template).render(common, **values)
    advice = "Choose a file name in a folder that exists and is writable."
    with replacing(Path(path), advice) as temporary:
        # Half of a surrogate pair, in a group's name say, has no bytes in UTF-8.
        temporary.write_bytes(text.encode("utf-8", "xmlcharrefreplace"))


def check_provenance(provenance: object) -> dict[str, str]:
    """Return what is said of where results come from as texts; raise if it is none."""
    if provenance is None:
        return {}
    if not isinstance(provenance, Mapping):
        raise InvalidParameterError(
            'provenance must be a mapping such as {"Data": "loans.csv"}; '
            f"got {provenance!r}."
        )
    return {str(name): str(value) for name, value in provenance.items()}


def number(value: float | None, form: int | str = 4) -> str:
    """Return a number in a format, or with fixed digits; undefined in words."""
    if value is None:
        return "not given"
    if not math.isfinite(value):
        return "undefined" if math.isnan(value) else "unbounded"
    return f"{value:.{form}f}" if isinstance(form, int) else f"{value:{form}}"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in percent."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{100 * value:.{digits}f}\N{NO-BREAK SPACE}%"


def gap(value: float | None, is_number: bool = False) -> str:
    """Return a violation: a share in percent, or of numbers in their own unit."""
    return plain(value) if is_number and value is not None else percent(value)


def points(value: float) -> str:
    """Return a difference of two shares in percentage points."""
    return f"{number(100 * value, 1)}\N{NO-BREAK SPACE}percentage points"


def cost(value: float, of: str) -> str:
    """Return what is lost; a gain, or what rounds to nothing, costs nothing."""
    if value < 0.0005:
        return "no measurable cost"
    return f"{number(100 * value, 1)}\N{NO-BREAK SPACE}points of {of}"


def price(value: float, of: str) -> str:
    """Return what is lost, to follow what it is lost for."""
    lost = cost(value, of)
    return f"at {lost}" if lost.startswith("no ") else f"for {lost}"


def bound(value: float | None) -> str:
    """Return what a divergence guarantees; a bound that every table keeps is none."""
    return "–" if value is not None and value >= 1 else percent(value)


def signed(value: float) -> str:
    """Return a change with its sign, a minus as long as a plus."""
    return number(value, "+.1f").replace("-", "\N{MINUS SIGN}")


def brief(value: float | None) -> str:
    """Return a number with three significant digits."""
    return number(value, ".3g")


def plain(value: float) -> str:
    """Return a quantity of any size with four significant digits or more."""
    return number(value, ",.0f" if abs(value) >= 1000 else ".4g")


def amount(value: float | None, digits: int = 4) -> str:
    """Return a measure: with fixed digits below 10, as a quantity above."""
    if value is None or abs(value) < 10:
        return number(value, digits)
    return plain(value)
