"""Docstrings say what code does not show: shapes of arrays, units of variances, and where equations come from.

That every public function has its sections, errors among them, is in `tests.test_site`.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from types import FunctionType
from typing import Any

import blue_solvers
import constraint_builders
import noise_mechanisms
from blue_solvers import Auto, nonnegative
from blue_solvers.solvers.registry import SOLVERS
from noise_mechanisms.laws.law_classes import DiscreteGaussian
from tests.helpers.places import ROOT
from tests.helpers.syntax import parsed

PACKAGES = (blue_solvers, constraint_builders, noise_mechanisms)
HEADINGS = "Parameters|Returns|Yields|Raises|Notes|References|Examples|Attributes|See Also"
ARRAY = re.compile(r"\b(ArrayLike|Float|Index|Integers|Long|Flags|Cells|NDArray|ndarray|cs[rc]_array|coo_array)\b")
SHAPE = re.compile(  # (m,), (n, K), (...), (), W (m, K), or words
    r"\([\w .*+|-]*,[\w .,*+|-]*\)|\(\.\.\.|\(\)|\w \(\w+\)|\b[0-9n]-d\b|\bscalars?\b|\bshapes?\b"
    r"|of the same|[Aa]s (for|in) `"
)
QUANTITY = re.compile(r"(?<!un)(varianc|covarianc|std_error|deviation|half_widths|detectable_error|error_bound)")
UNITS = re.compile(r"\bunits?\b|standard errors|in counts|[Ss]quared|[Rr]elative|sigma2|scale\^2")
NUMBERS = re.compile(r"\b(Float|float|Fraction|ndarray|LinearOperator)\b")
SOURCE = re.compile(
    r"References\n-|\bet al\b|\(\d{4}\b|\b(19|20)\d\d\b|SEA BLUE|\"[A-Z][^\"]+\""
    r"|docs?/algebra|[A-Z][a-z]+ and [A-Z][a-z]+"
)
CITED = re.compile(r"\b(Theorem|Algorithm|Proposition|Lemma|Corollary|Equation|Section) [0-9]|\bsection [0-9]")
OVERRIDES = {
    "apply",
    "apply_checked",
    "adjoint",
    "functional_covariance",
    "_matmat",
    "_rmatmat",
    "_rmatvec",
    "__init__",
}


def parts_of(doc: str) -> dict[str, str]:
    """The summary of a docstring, under an empty name, and its sections."""
    first, *rest = re.split(rf"^({HEADINGS})\n-+\n", doc, flags=re.MULTILINE)
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


def said_of(section: str, name: str) -> str:
    """What a section says of a name; empty if it does not name it."""
    entries = re.split(r"^(?=\S)", section, flags=re.MULTILINE)
    return next((own for own in entries if name in re.split(r"[ ,*:\n]+", own.split(" : ")[0])), "")


def public_classes() -> list[type]:
    things = [getattr(own, name) for own in PACKAGES for name in sorted(own.__all__)]
    return list(dict.fromkeys(thing for thing in things if isinstance(thing, type)))


def is_described_by_a_base(owner: type, name: str) -> bool:
    bases = [own for own in owner.__mro__[1:] if own.__module__.split(".")[0] in {own.__name__ for own in PACKAGES}]
    return any(name in vars(own) for own in bases)


def public_functions() -> Iterator[tuple[str, FunctionType]]:
    """Functions at the doors, and methods of classes there, those but for which a base has the docstring."""
    for package in PACKAGES:
        for name in package.__all__:
            own = getattr(package, name)
            if isinstance(own, FunctionType):
                yield name, own
    for owner in public_classes():
        for name, own in vars(owner).items():
            plain = own.__func__ if isinstance(own, staticmethod | classmethod) else own
            if isinstance(plain, FunctionType) and name[0] != "_" and not is_described_by_a_base(owner, name):
                yield f"{owner.__name__}.{name}", plain


def public_values() -> Iterator[tuple[str, str, str]]:
    """Properties and fields of public classes, with the types that they say and what is said of each."""
    for owner in public_classes():
        doc = parts_of(inspect.getdoc(owner) or "")
        for name, own in vars(owner).items():
            made = own.fget if isinstance(own, property) else own.func if isinstance(own, cached_property) else None
            if made is not None and name[0] != "_" and not is_described_by_a_base(owner, name):
                yield f"{owner.__name__}.{name}", str(made.__annotations__.get("return")), inspect.getdoc(made) or ""
        for name, kind in vars(owner).get("__annotations__", {}).items():
            if name[0] != "_" and "ClassVar" not in str(kind) and not is_described_by_a_base(owner, name):
                said = said_of(doc.get("Attributes", "") + "\n" + doc.get("Parameters", ""), name)
                yield f"{owner.__name__}.{name}", str(kind), said


def arrays_of(function: FunctionType) -> Iterator[tuple[str, str]]:
    """Arrays that a function takes and gives, and what is said of each."""
    doc = parts_of(inspect.getdoc(function) or "")
    given = doc.get("Returns", doc.get("Yields", doc[""]))
    for own in inspect.signature(function).parameters.values():
        kind = str(own.annotation)
        if ARRAY.search(kind) and "Callable" not in kind:
            yield own.name, said_of(doc["Parameters"], own.name) if "Parameters" in doc else doc[""]
    if ARRAY.search(str(function.__annotations__.get("return"))):
        yield "what it gives", given


def test_shapes_of_all_public_arrays_are_said() -> None:
    said = {(name, own): text for name, function in public_functions() for own, text in arrays_of(function)}
    said |= {(name, ""): text for name, kind, text in public_values() if ARRAY.search(kind) and "Callable" not in kind}
    assert len(said) > 150
    assert [place for place, text in said.items() if not SHAPE.search(text)] == []


def test_units_of_public_variances_and_errors_are_said() -> None:
    said = {
        name: inspect.getdoc(own) or ""
        for name, own in public_functions()
        if NUMBERS.search(str(own.__annotations__.get("return")))
    }
    said |= {name: text for name, kind, text in public_values() if NUMBERS.search(kind)}
    said = {name: text for name, text in said.items() if QUANTITY.search(name.rpartition(".")[2])}
    assert len(said) > 15
    assert [name for name, text in said.items() if not UNITS.search(text)] == []


def test_what_implements_a_paper_names_it() -> None:
    """Solvers and laws say where they come from; a theorem with a number is of a paper that is named."""
    methods: list[Any] = [own for own in SOLVERS.values() if own is not Auto]
    methods += [getattr(nonnegative, name) for name in ("nnls", "max_fit", "sequential_fit", "reweighted_fit")]
    methods += [nonnegative.anchored_fit, DiscreteGaussian, noise_mechanisms.GeneralizedLaplace]
    texts = {own.__name__: f"{own.__doc__}\n{inspect.getmodule(own).__doc__}" for own in methods}
    assert len(texts) > 10
    assert [name for name, text in texts.items() if not SOURCE.search(text)] == []
    lost, cited = [], 0
    for package in PACKAGES:
        for path in sorted((ROOT / package.__name__).rglob("*.py")):
            if not CITED.search(path.read_text()):
                continue
            tree = parsed(path)
            package_says = ast.get_docstring(parsed(path.parent / "__init__.py")) or ""
            whole = f"{package_says}\n{ast.get_docstring(tree)}"
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.FunctionDef | ast.ClassDef)
                    and (doc := ast.get_docstring(node))
                    and CITED.search(doc)
                ):
                    cited += 1
                    if not SOURCE.search(f"{whole}\n{doc}"):
                        lost.append(f"{path.name}: {node.name}")
    assert cited > 15
    assert lost == []


def test_private_functions_say_shapes() -> None:
    """Of the arrays that they take."""
    lost, all_of_them = [], 0
    for path in (path for package in PACKAGES for path in sorted((ROOT / package.__name__).rglob("*.py"))):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef):
                taken = [own.annotation for own in node.args.args + node.args.kwonlyargs if own.annotation is not None]
                kinds = [text for text in map(ast.unparse, taken) if "Callable" not in text]
                doc = ast.get_docstring(node) or ""
                if any(map(ARRAY.search, kinds)) and (doc or node.name not in OVERRIDES):
                    all_of_them += 1
                    lost += [] if SHAPE.search(doc) else [f"{path.name}: {node.name}"]
    assert all_of_them > 1000
    assert lost == []
