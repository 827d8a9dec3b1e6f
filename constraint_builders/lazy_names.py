"""Names of a package that are loaded when they are first asked for (PEP 562), so that importing it costs little."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from constraint_builders.extras import missing_extra

OF_FRAMES = ("polars", "pyarrow", "msgspec")  # what the extra brings


def names_when_asked(
    package: str,
    homes: Mapping[str, Sequence[str]],
    whole: str | None = None,
    former: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package calls ``__getattr__`` and ``__dir__``.

    Parameters
    ----------
    package : str
        Its name.
    homes : mapping of str to sequence of str
        For every module the public names that are its own; none if the module itself is the name.
    whole : str, optional
        A module all of whose public names are the package's too.
    former : mapping of str to str, optional
        Names of earlier versions, as `former_names` takes them.
    """
    home = {name: module for module, names in homes.items() for name in names}
    home |= {module.rpartition(".")[2]: "" for module, names in homes.items() if not names}
    modules = {module.rpartition(".")[2]: module for module, names in homes.items() if not names}

    def public() -> list[str]:
        installed = {module for module in homes if _is_installed(module)}
        named = {name for name, module in home.items() if not module or module in installed}
        return sorted({*named, "__version__", *(import_module(whole).__all__ if whole else ())})

    def load(name: str) -> Any:
        if name == "__all__":
            return public()
        if name in home:
            module = home[name]
        elif whole and not name.startswith("_") and name in import_module(whole).__all__:
            module = whole
        else:
            return _formerly(package, former or {}, name)
        try:
            value = getattr(import_module(module), name) if module else import_module(modules[name])
        except ModuleNotFoundError as error:
            if error.name not in OF_FRAMES:
                raise
            raise missing_extra(f"{package}.{name} needs {error.name}", "frames") from error
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *public()})


def _is_installed(module: str) -> bool:
    """Whether a module is there, with what its room needs: both may be left out of an installation."""
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def former_names(package: str, former: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that gives names of earlier versions, each with a warning that says the new one.

    Parameters
    ----------
    package : str
        The module's name.
    former : mapping of str to str
        For every former name where its thing is now, such as ``{"Fit": "blue_solvers.NonnegativeFit"}``.
    """
    return lambda name: _formerly(package, former, name)


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
