"""What checks the documentation site finds the faults that it is for; what is public is described."""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import blue_solvers
import constraint_builders
import noise_mechanisms
from blue_solvers.commands import listed as listed_commands
from docs.check_site import contrast, faults
from tests.helpers.places import DOCS, README, ROOT

PACKAGES = ("blue_solvers", "constraint_builders", "noise_mechanisms")
sys.path.append(str(DOCS / "_extensions"))

SOUND = """<!doctype html><html lang="en"><head><title>A page</title></head><body>
<h1 id="top">One</h1><h2>Two</h2><a href="other.html#there">there</a><a href="#top">up</a>
<img src="picture.png" alt="what it shows"></body></html>"""
OTHER = '<html lang="en"><title>Other</title><h1 id="there">There</h1></html>'
CODE = """.highlight { background: #ffffff } .highlight .k { color: #222222 } .highlight .c { color: #aaaaaa }
@media not print { body[data-theme="dark"] .highlight { background: #000000 }
body[data-theme="dark"] .highlight .k { color: #222222 } }"""


def site(folder: Path, page: str) -> list[str]:
    (folder / "picture.png").touch()
    (folder / "other.html").write_text(OTHER)
    (folder / "page.html").write_text(page)
    return faults(folder)


def test_a_sound_site_has_no_fault(tmp_path: Path) -> None:
    assert site(tmp_path, SOUND) == []


@pytest.mark.parametrize(
    ("sound", "broken", "fault"),
    [
        (' lang="en"', "", "language"),
        ("A page", " ", "no title"),
        ("<h1 ", "<p ", "0 headings of level 1"),
        ("<h2>Two</h2>", "<h1>Two</h1>", "2 headings of level 1"),
        ("<h2>Two</h2>", "<h3>Two</h3>", "level 3 follows one of level 1"),
        (' alt="what it shows"', "", "no alternative text"),
        (">there<", "><", "1 links have no text"),
        ("other.html", "nowhere.html", "leads nowhere"),
        ("#there", "#elsewhere", "no place on its page"),
        ("#top", "#bottom", "no place on its page"),
        ("picture.png", "lost.png", "leads nowhere"),
        ("other.html#there", "../out.html", "out of the site"),
        ('src="picture.png"', 'src="https://elsewhere.org/picture.png"', "is loaded from another host"),
        ("</head>", '<script src="//elsewhere.org/a.js"></script></head>', "is loaded from another host"),
        ("</head>", '<link rel="stylesheet" href="https://elsewhere.org/a.css"></head>', "loaded from another host"),
    ],
)
def test_faults_are_found(tmp_path: Path, sound: str, broken: str, fault: str) -> None:
    assert sound in SOUND
    (found,) = site(tmp_path, SOUND.replace(sound, broken))
    assert found.startswith("page.html")
    assert fault in found


def test_faint_code_is_found_in_light_and_dark(tmp_path: Path) -> None:
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "pygments.css").write_text(CODE)
    assert [found.split(" has ")[0] for found in site(tmp_path, SOUND)] == [
        "pygments.css: light code .c",
        "pygments.css: dark code .k",
    ]


def test_an_empty_folder_is_no_site(tmp_path: Path) -> None:
    assert "no page" in faults(tmp_path)[0]


def test_contrast() -> None:
    """The ratios that WCAG 2.2 gives as examples."""
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.005)


def test_every_public_module_is_listed() -> None:
    """Modules of the API are in its page's contents; their public classes and functions have docstrings."""
    pytest.importorskip("sphinx")
    api_pages = importlib.import_module("api_pages")
    listed = (DOCS / "api.md").read_text()
    for name in api_pages.MODULES:
        assert f"api/{name}\n" in listed or f"<api/{name}>" in listed, name
    for name, attribute, thing in api_pages.everything():
        assert (thing.__doc__ or "").strip(), f"{name}.{attribute}"


def public_names() -> set[str]:
    """All names that the three packages export."""
    packages = (blue_solvers, constraint_builders, noise_mechanisms)
    names = {
        name: {id(getattr(own, name)) for own in packages if name in own.__all__}
        for own in packages
        for name in own.__all__
    }
    assert all(len(things) == 1 for name, things in names.items() if name != "__version__")
    return set(names) - {"__version__"}


def test_public_names_are_few_and_each_is_in_a_guide_or_an_example() -> None:
    pages = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("start/*.md"))]
    texts = [page.read_text() for page in pages if page.name not in ("api.md", "changelog.md")]
    blocks = [re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL) for text in texts]
    inline = [
        re.findall(r"`[^`]+`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)) for text in texts
    ]
    programs = [path.read_text() for path in (ROOT / "examples").glob("*/*.py")]
    shown = "\n".join([*programs, *(code for page in [*blocks, *inline] for code in page)])
    names = public_names()
    assert len(names) <= 120
    assert not [name for name in sorted(names) if not re.search(rf"\b{name}\b", shown)]


FORMER = {  # names of earlier versions, with what is said of them
    ("blue_solvers", "problem_from"): "blue_solvers.read_tables",
    ("blue_solvers", "ProjectedWork"): "blue_solvers.components.tree.projected_work.ProjectedWork",
    ("constraint_builders", "problem_from"): "constraint_builders.read_tables",
    ("blue_solvers.nonnegative", "Fit"): "blue_solvers.NonnegativeFit",
    ("blue_solvers.verification", "fit_test"): "blue_solvers.verification.fit_of_estimate",
    ("blue_solvers.testing", "LAWS"): "blue_solvers.testing.PROPERTIES",
}


@pytest.mark.parametrize(("module", "name"), FORMER)
def test_former_names_give_what_is_there_now_with_a_warning_and_are_listed(module: str, name: str) -> None:
    now = FORMER[module, name]
    with pytest.warns(DeprecationWarning, match=re.escape(f"{module}.{name} is now {now}")) as warned:
        found = getattr(importlib.import_module(module), name)
    assert warned[0].filename == __file__
    home, _, new = now.rpartition(".")
    assert found is getattr(importlib.import_module(home), new)
    assert f"`{module}.{name}`" in (DOCS / "api.md").read_text()


def public_functions() -> Iterator[tuple[str, type | None, FunctionType]]:
    """Functions that the packages and the modules that they export have, and methods of their classes."""
    packages = (blue_solvers, constraint_builders, noise_mechanisms)
    things = [getattr(own, name) for own in packages for name in sorted(own.__all__)]
    things += [
        made for own in things if isinstance(own, ModuleType) for made in vars(own).values() if defined(made, own)
    ]
    for thing in things:
        if isinstance(thing, FunctionType):
            yield thing.__qualname__, None, thing
        elif isinstance(thing, type):
            for name, own in vars(thing).items():
                plain = own.__func__ if isinstance(own, staticmethod | classmethod) else own
                if isinstance(plain, FunctionType) and not name.startswith("_"):
                    yield plain.__qualname__, thing, plain


def defined(thing: object, module: ModuleType) -> bool:
    return isinstance(thing, FunctionType) and thing.__module__ == module.__name__ and thing.__name__[0] != "_"


def sections_missing(owner: type | None, function: FunctionType) -> set[str]:
    """Sections of numpydoc that a docstring lacks; what overrides a method of ours has its docstring there."""
    if owner is not None:
        bases = [base for base in owner.__mro__[1:] if base.__module__.split(".")[0] in PACKAGES]
        if any(function.__name__ in vars(base) for base in bases):
            return set()
    said = inspect.getdoc(function) or ""
    asked = [own for own in inspect.signature(function).parameters.values() if own.name not in ("self", "cls")]
    gives = str(function.__annotations__.get("return"))
    scalars = {own.strip() for text in [gives, *(str(one.annotation) for one in asked)] for own in text.split("|")}
    raises = bool(re.search(r"^\s*raise \w", inspect.getsource(function), re.MULTILINE))
    if owner is not None and not raises and "\n" not in said and scalars <= {"int", "str", "bool", "float", "None"}:
        return set()  # a line says all of a number or a text
    needed = {"Parameters": bool(asked), "Returns": gives != "None", "Raises": raises}
    found = re.findall(r"^(\w+)\n---", said.replace("Yields\n", "Returns\n"), re.MULTILINE)
    return {section for section, is_needed in needed.items() if is_needed} - set(found)


def test_every_public_function_says_what_it_takes_gives_and_raises() -> None:
    missing = {name: lacks for name, owner, own in public_functions() if (lacks := sections_missing(owner, own))}
    assert len(list(public_functions())) > 200
    assert missing == {}


def test_former_commands_are_listed() -> None:
    listed = (DOCS / "api.md").read_text()
    assert all(f"`blue-solvers {name}" in listed for name in listed_commands.FORMER)


def test_docstrings_are_shown_as_written() -> None:
    pytest.importorskip("sphinx")
    plain = importlib.import_module("plain_docstrings").plain
    lines = [
        "The norm |x| of ``|y|``:",
        "",
        "    x * y",
        "",
        "Parameters",
        "----------",
        "x : array",
        "",
        "    Any |x|.",
    ]
    assert plain(lines) == [
        r"The norm \|x\| of ``|y|``:",
        "",
        "::",
        "",
        "    x * y",
        "",
        *lines[4:8],
        r"    Any \|x\|.",
    ]
