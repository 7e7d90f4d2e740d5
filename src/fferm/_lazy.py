"""Names and submodules of a package that are imported when they are first used."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence


def lazy(
    package: str, homes: Mapping[str, Sequence[str]] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package
        Its name. Every submodule without a leading underscore becomes an attribute;
        one whose optional package is not installed reads as absent, and says why.
    homes
        Modules, and the names of the package that each defines.
    """
    module = sys.modules[package]
    home = {name: path for path, names in (homes or {}).items() for name in names}
    for _, name, _ in pkgutil.iter_modules(module.__path__):
        if not name.startswith("_"):
            home.setdefault(name, "")

    def get(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if path := home[name]:
            value = getattr(importlib.import_module(path), name)
            setattr(module, name, value)
            return value
        try:
            return importlib.import_module(f"{package}.{name}")
        except ImportError as error:  # hasattr and inspect expect this kind
            raise AttributeError(str(error)) from error

    return get, lambda: sorted({*vars(module), *home})
