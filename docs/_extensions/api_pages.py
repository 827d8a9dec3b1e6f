"""Pages of the public modules, written before Sphinx reads: every public name, each described in one place."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx

MODULES = [
    "blue_solvers",
    "constraint_builders",
    "noise_mechanisms",
    "constraint_builders.gallery",
    "blue_solvers.least_squares",
    "blue_solvers.plots",
    "blue_solvers.pictures",
    "blue_solvers.streaming.cluster",
]


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: its ``__all__``, or what it defines itself and does not begin with an underscore."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    defined = vars(module).items()
    return [name for name, thing in defined if name[0] != "_" and getattr(thing, "__module__", "") == module.__name__]


def is_described(thing: Any) -> bool:
    """Whether a public thing gets a page: classes and functions; constants and modules do not."""
    return inspect.isclass(thing) or inspect.isfunction(thing)


def homes() -> dict[int, str]:
    """The first public name of every class and function, by identity."""
    found: dict[int, str] = {}
    for name, attribute, thing in everything():
        found.setdefault(id(thing), f"{name}.{attribute}")
    return found


def everything() -> Iterator[tuple[str, str, Any]]:
    """Module, name and object of every public class and function."""
    for name in MODULES:
        module = importlib.import_module(name)
        for attribute in public_names(module):
            thing = getattr(module, attribute)
            if is_described(thing):
                yield name, attribute, thing


def page(name: str, first: dict[int, str]) -> str:
    """A module's page: what it is for, and tables of what it offers, here or elsewhere."""
    module = importlib.import_module(name)
    things = {attribute: getattr(module, attribute) for attribute in public_names(module)}
    described = {attribute: thing for attribute, thing in things.items() if is_described(thing)}
    lines = [name, "=" * len(name), "", f".. automodule:: {name}", "   :no-members:", ""]
    for title, belongs in {"Classes": inspect.isclass, "Functions": inspect.isfunction}.items():
        here = [a for a, t in described.items() if belongs(t) and first[id(t)] == f"{name}.{a}"]
        elsewhere = [first[id(t)] for a, t in described.items() if belongs(t) and first[id(t)] != f"{name}.{a}"]
        if here or elsewhere:
            lines += [title, "-" * len(title), ""]
        if here:
            lines += [".. autosummary::", "   :toctree:", "", *(f"   {a}" for a in here), ""]
        if elsewhere:
            lines += ["Also here:", "", *(f"* :obj:`{public}`" for public in elsewhere), ""]
    others = sorted(attribute for attribute, thing in things.items() if not is_described(thing))
    if others:
        lines += ["Constants and modules: " + ", ".join(f"``{attribute}``" for attribute in others) + ".", ""]
    return "\n".join(lines)


def write_pages(app: Sphinx, config: Any) -> None:
    """Write what changed."""
    folder, first = Path(app.srcdir) / "api", homes()
    folder.mkdir(exist_ok=True)
    for name in MODULES:
        path, text = folder / f"{name}.rst", page(name, first)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect, before Sphinx looks for pages."""
    app.connect("config-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
