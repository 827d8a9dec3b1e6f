"""Links to names: ours to where they are described, numpy's and scipy's to their pages.

The addresses of the latter follow from their names, so that nothing is fetched and a build without a network is the
same as any other. A name that is not in the installed package fails the build.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from api_pages import everything, homes
from docutils import nodes
from numpydoc.xref import DEFAULT_LINKS
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

OURS = ("constraint_builders", "noise_mechanisms", "blue_solvers")
OUTSIDE = {
    "numpy": "https://numpy.org/doc/stable/reference/generated/{}.html",
    "scipy": "https://docs.scipy.org/doc/scipy/reference/generated/{}.html",
    "matplotlib": "https://matplotlib.org/stable/api/_as_gen/{}.html",
    "pandas": "https://pandas.pydata.org/docs/reference/api/{}.html",
    "polars": "https://docs.pola.rs/api/python/stable/reference/dataframe/index.html",
    "fractions": "https://docs.python.org/3/library/fractions.html#{}",
    "distributed": "https://distributed.dask.org/en/stable/api.html#{}",
}
ELSEWHERE = {
    "numpy.random.Generator": "https://numpy.org/doc/stable/reference/random/generator.html",
    "numpy.random.SeedSequence": "https://numpy.org/doc/stable/reference/random/bit_generators/generated/{}.html",
    "numpy.typing.ArrayLike": "https://numpy.org/doc/stable/reference/typing.html#{}",
    "matplotlib.axes.Axes": "https://matplotlib.org/stable/api/_as_gen/{}.html",
}
SHORT = {
    "ndarray": "numpy.ndarray",
    "array_like": "numpy.typing.ArrayLike",
    "Generator": "numpy.random.Generator",
    "SeedSequence": "numpy.random.SeedSequence",
    "LinearOperator": "scipy.sparse.linalg.LinearOperator",
    "csr_array": "scipy.sparse.csr_array",
    "csc_array": "scipy.sparse.csc_array",
    "coo_array": "scipy.sparse.coo_array",
    "Axes": "matplotlib.axes.Axes",
}


def address(name: str) -> str | None:
    """Where a name of somebody else's is described, or None if it is nobody's that is known here."""
    module, _, attribute = name.rpartition(".")
    top = name.split(".")[0]
    if top not in OUTSIDE or not module:
        return None
    getattr(importlib.import_module(module), attribute)
    return ELSEWHERE.get(name, OUTSIDE[top]).format(name)


def exists(name: str, module: str | None) -> bool:
    """Whether a name is something without a page: a constant, or a room of the house that is not public."""
    for full in (name, f"{module}.{name}"):
        parts = full.split(".")
        if parts[0] in OURS:
            thing, depth = importlib.import_module(parts[0]), 1
            while depth < len(parts):
                with suppress(ImportError):
                    importlib.import_module(".".join(parts[: depth + 1]))
                thing, depth = getattr(thing, parts[depth], None), depth + 1
            if thing is not None:
                return True
    return False


def aliases() -> dict[str, str]:
    """Public names by which types are called in docstrings: ours, and those of `SHORT`."""
    first = homes()
    ours: dict[str, str] = {}
    for _, attribute, thing in everything():
        ours.setdefault(attribute, first[id(thing)])
    return {name: home for name, home in ours.items() if name[0].isupper()} | SHORT


def described_at() -> dict[str, str]:
    """Public names by where things are defined and by every public module that has them, qualified and not."""
    first = homes()
    found: dict[str, str] = {}
    for module, attribute, thing in everything():
        home = first[id(thing)]
        found[f"{module}.{attribute}"] = home
        found[f"{thing.__module__}.{thing.__qualname__}"] = home
    for _, attribute, thing in everything():
        found.setdefault(attribute, first[id(thing)])
    return found


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """What Sphinx did not find: one of ours under another name, or one of somebody else's."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    home = app.described_at.get(target)  # type: ignore[attr-defined]
    if home is not None:
        domain = env.get_domain("py")
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", home, node, content)
    outside = address(SHORT.get(target, target))
    if outside is None:
        return content if exists(target, node.get("py:module")) else None
    return nodes.reference("", "", content, internal=False, refuri=outside)


def prepare(app: Sphinx, config: Any) -> None:
    """Tell numpydoc which words of a type are links: not those of Python itself, which everybody knows."""
    DEFAULT_LINKS.clear()
    config.numpydoc_xref_aliases = aliases()
    app.described_at = described_at()  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect."""
    app.connect("config-inited", prepare, priority=100)  # before numpydoc reads them
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
