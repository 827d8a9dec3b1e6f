"""Names of a package that are loaded when they are first asked for (PEP 562), so that importing it costs little."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

from constraint_builders.extras import missing_extra

OF_FRAMES = ("polars", "pyarrow", "msgspec")  # what the extra brings
ONE_NAME = re.compile(r"^from (\S+) import (?:\(\s+)?(\w+) as \2\b", re.MULTILINE)
ALL_NAMES = re.compile(r"^from (\S+) import \*", re.MULTILINE)


def names_when_asked(
    package: str, former: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package calls ``__getattr__`` and ``__dir__``: its names are those that its ``__init__.pyi`` imports.

    Parameters
    ----------
    package : str
        Its name. A line ``from module import name as name`` beside it gives a name, of a module's own or a module;
        a line ``from module import *`` all of a module's public names.
    former : mapping of str to str, optional
        For every name of earlier versions, given with a warning that says the new one, where its thing is now, such as
        ``{"Fit": "blue_solvers.NonnegativeFit"}``.
    """
    said = Path(cast(str, sys.modules[package].__file__)).with_suffix(".pyi").read_text(encoding="utf-8")
    home = {name: module for module, name in ONE_NAME.findall(said)}
    wholes = ALL_NAMES.findall(said)

    def public() -> list[str]:
        installed = {module for module in {*home.values()} if _is_installed(module)}
        named = {name for name, module in home.items() if module in installed}
        return sorted(named.union(*(import_module(whole).__all__ for whole in wholes)))

    def load(name: str) -> Any:
        if name == "__all__":
            return public()
        among = [] if name in home or name.startswith("_") else [w for w in wholes if name in import_module(w).__all__]
        if name not in home and not among:
            if not name.startswith("_") and find_spec(f"{package}.{name}"):  # a module, as if it had been imported
                return import_module(f"{package}.{name}")
            return _formerly(package, former or {}, name)
        try:
            value = _imported(home.get(name) or among[0], name, package)
        except ModuleNotFoundError as error:
            if error.name not in OF_FRAMES:
                raise
            raise missing_extra(f"{package}.{name} needs {error.name}", "frames") from error
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *public()})


def _imported(module: str, name: str, package: str) -> Any:
    """What ``from module import name`` gives the package, which may be the module itself."""
    found = None if module == package else getattr(import_module(module), name, None)
    return import_module(f"{module}.{name}") if found is None else found


def _is_installed(module: str) -> bool:
    """Whether a module is there, with what its room needs: both may be left out of an installation."""
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _formerly(package: str, former: Mapping[str, str], name: str) -> Any:
    if name not in former:
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
    warnings.warn(f"{package}.{name} is now {former[name]}", DeprecationWarning, stacklevel=3)
    home, _, new = former[name].rpartition(".")
    return getattr(import_module(home), new)


Method = TypeVar("Method", bound=Callable[..., Any])


def former_method(name: str, method: Method) -> Method:
    """The same method under a former name, with a warning that says the new one."""

    @wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        home, now = type(self).__name__, method.__name__
        warnings.warn(f"{home}.{name}() is now {home}.{now}()", DeprecationWarning, stacklevel=2)
        return method(self, *args, **kwargs)

    return cast(Method, called)
