"""A page holds all it needs, says what its parts are to those who do not see them, and is seen in light and dark."""

import base64
import hashlib
import re
from itertools import pairwise
from pathlib import Path

import pytest

from blue_solvers import examples
from blue_solvers.cli import main
from tests.helpers.html_outline import Element, outline
from tests.helpers.places import ROOT

CSS = (ROOT / "blue_solvers" / "reporting" / "page.css").read_text()
TEXT = [
    ("ink", "paper"),
    ("ink", "raised"),
    ("ink", "band"),
    ("quiet", "paper"),
    ("quiet", "raised"),
    ("link", "paper"),
]
MARKS = [("blue", "paper"), ("blue", "band"), ("orange", "paper"), ("blue", "raised"), ("orange", "raised")]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", str(examples.BERKELEY), "--out", str(out)]) == 0
    return out.read_text(encoding="utf-8")


@pytest.fixture
def root(page: str) -> Element:
    return outline(page)


def test_nothing_is_loaded(page: str, root: Element) -> None:
    assert not re.search(r"https?:|//[a-z]", page.replace("// Columns", ""))
    assert not [
        own.tag for own in root.all() if own.tag in ("link", "img", "iframe", "object", "embed", "base", "form")
    ]
    assert not [own for own in root.all() if {"src", "style", "onclick", "srcset"} & set(own.attributes)]
    links = [own.attributes["href"] for own in root.all("a")]
    assert all(link.startswith(("#", "data:text/csv;")) for link in links)


def test_browsers_are_told_to_refuse_all_else(root: Element) -> None:
    policy = next(
        own.attributes["content"] for own in root.all("meta") if "Security" in own.attributes.get("http-equiv", "")
    )
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        (own,) = root.all(tag)
        digest = base64.b64encode(hashlib.sha256(own.text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_headings_and_landmarks(root: Element) -> None:
    assert root.all("html")[0].attributes["lang"] == "en"
    assert root.all("title")[0].text == "Estimates of berkeley.csv"
    levels = [int(own.tag[1]) for own in root.all() if re.fullmatch(r"h\d", own.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for tag in ("header", "main", "nav", "footer"):
        assert len(root.all(tag)) == 1
    headings = [own.text for own in root.all("h2")]
    expected = ["The numbers", "Fit", "Certificate", "Largest adjustments", "Precision", "Estimates", "How it was made"]
    assert headings == expected
    ids = [own.attributes["id"] for own in root.all() if "id" in own.attributes]
    assert len(ids) == len(set(ids))
    inner = [own.attributes["href"][1:] for own in root.all("a") if own.attributes["href"].startswith("#")]
    referred = [one for own in root.all() for one in own.attributes.get("aria-labelledby", "").split()]
    assert set(inner + referred) <= set(ids)


def test_tables_have_captions_and_scopes(root: Element) -> None:
    tables = root.all("table")
    assert len(tables) == 5 + 8  # for auditors, and those that were asked for
    for table in tables:
        assert len(table.all("caption")) == 1
        assert table.all("caption")[0].text
        head, body = table.all("thead")[0], table.all("tbody")[0]
        assert {own.attributes["scope"] for own in head.all("th")} == {"col"}
        width = len(head.all("th"))
        assert width > 1
        for row in body.all("tr"):
            assert [own.attributes["scope"] for own in row.all("th")] == ["row"]
            assert len(row.all("th")) + len(row.all("td")) == width


def test_pictures_are_told_in_words(root: Element) -> None:
    pictures = root.all("svg")
    assert len(pictures) == 3
    for picture in pictures:
        assert picture.attributes["role"] == "img"
        title, words = (picture.all(tag)[0] for tag in ("title", "desc"))
        assert picture.attributes["aria-labelledby"] == f"{title.attributes['id']} {words.attributes['id']}"
        assert len(words.text) > 50
    scrolling = [own for own in root.all() if "wide" in own.attributes.get("class", "").split()]
    assert all(own.attributes["tabindex"] == "0" and own.attributes["aria-label"] for own in scrolling)


def luminance(colour: str) -> float:
    """Of sRGB, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast(scheme: int) -> None:
    block = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))
    for pairs, least in ((TEXT, 4.5), (MARKS, 3.0)):
        for front, back in pairs:
            high, low = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= least, (front, back)


def test_colour_is_never_all_that_tells_marks_apart(root: Element) -> None:
    for picture in (root.all("svg")[0], root.all("svg")[2]):  # of estimates, and of their precision
        marks = [own for own in picture.all() if own.attributes.get("class") in ("open", "filled")]
        assert {own.attributes["class"]: own.tag for own in marks} == {"open": "circle", "filled": "path"}


def test_the_same_result_gives_the_same_page(page: str, tmp_path: Path) -> None:
    assert main(["report", str(examples.BERKELEY), "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page
