"""Check a built site without a network: links, headings, alternative texts, contrast of what the style sheets say.

    python -m docs.check_site build/docs

Prints one line for each fault and exits 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LEAST_CONTRAST = 4.5  # of text with its ground: WCAG 2.2, 1.4.3 (AA)
NOT_OURS = {"genindex.html", "search.html", "py-modindex.html"}
LOADED = {"stylesheet", "preload", "icon", "shortcut icon"}  # of links: others name addresses
GROUND = re.compile(r"background(?:-color)?: *(#\w+)")
COLOUR = re.compile(r"(?<!-)color: *(#[0-9a-fA-F]{3,6})")


@dataclass
class Page(HTMLParser):
    """What a page has that can be checked."""

    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    headings: list[int] = field(default_factory=list)
    silent_pictures: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    nameless_links: int = 0
    language: str = ""
    title: str = ""
    _within: list[str] = field(default_factory=list)
    _link_text: str | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what begins."""
        own = {name: value or "" for name, value in attributes}
        self.anchors.update(own[name] for name in ("id", "name") if name in own and (name == "id" or tag == "a"))
        if tag == "html":
            self.language = own.get("lang", "")
        if tag == "a" and "href" in own:
            self.links.append(own["href"])
            self._link_text = own.get("aria-label", "") + own.get("title", "")
        if tag == "img":
            self.links.append(own.get("src", ""))
            if "alt" not in own:
                self.silent_pictures.append(own.get("src", "?"))
            if self._link_text is not None:
                self._link_text += own.get("alt", "")
        fetched = own.get("href", "") if tag == "link" and own.get("rel") in LOADED else own.get("src", "")
        if urlsplit(fetched).netloc:
            self.loaded.append(fetched)
        if tag in ("script", "link") and (address := own.get("src") or own.get("href")):
            self.links.append(address)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "title":
            self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note what ends."""
        if tag == "a" and self._link_text is not None:
            self.nameless_links += not self._link_text.strip()
            self._link_text = None
        if tag == "title" and self._within:
            self._within.pop()

    def handle_data(self, data: str) -> None:
        """Gather the names of links and of the page."""
        if self._link_text is not None:
            self._link_text += data
        if self._within:
            self.title += data


def read(path: Path) -> Page:
    """A page, parsed."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def faults_of_page(page: Page) -> Iterator[str]:
    """What a page lacks by itself."""
    if not page.language:
        yield "the page does not say its language"
    if not page.title.strip():
        yield "the page has no title"
    if page.headings.count(1) != 1:
        yield f"the page has {page.headings.count(1)} headings of level 1, not one"
    for above, below in zip(page.headings, page.headings[1:], strict=False):
        if below > above + 1:
            yield f"a heading of level {below} follows one of level {above}"
    for picture in page.silent_pictures:
        yield f"picture {picture} has no alternative text"
    for address in page.loaded:
        yield f"{address} is loaded from another host"
    if page.nameless_links:
        yield f"{page.nameless_links} links have no text"


def faults_of_links(folder: Path, path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Links within the site that lead nowhere."""
    for link in pages[path].links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target /= "index.html"
        if not target.is_relative_to(folder):
            yield f"link {link} leads out of the site"
        elif not target.exists():
            yield f"link {link} leads nowhere"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
            yield f"link {link} leads to no place on its page"


def luminance(colour: str) -> float:
    """Relative luminance of #rgb or #rrggbb (WCAG 2.2)."""
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits[:6]
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Ratio of contrast of two colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def faults_of_code(sheet: str) -> Iterator[str]:
    """Colours of code, light and dark, that are too near to the ground that the sheet gives them."""
    for theme in ("light", "dark"):
        rules = [
            (selector.strip(), body)
            for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", sheet)
            if ("data-theme" in selector) == (theme == "dark")  # dark rules ask for dark, or for not light
        ]
        grounds = [
            found[1] for selector, body in rules if selector.endswith(".highlight") and (found := GROUND.search(body))
        ]
        for selector, body in rules:
            own, colour = GROUND.search(body), COLOUR.search(body)
            if grounds and colour and not selector.endswith((".hll", ".linenos", ".special")):
                ratio = contrast(colour[1], own[1] if own else grounds[-1])
                if ratio < LEAST_CONTRAST:
                    yield f"{theme} code {selector.split()[-1]} has contrast {ratio:.1f}, less than {LEAST_CONTRAST}"


def faults(folder: Path) -> list[str]:
    """Every fault of a site, with its page."""
    folder = folder.resolve()
    paths = [
        path for path in sorted(folder.rglob("*.html")) if not path.relative_to(folder).parts[0].startswith("_static")
    ]
    pages = {path: read(path) for path in paths}
    if not pages:
        return [f"{folder} has no page: build the site first, by scripts/docs"]
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        own = [] if name.name in NOT_OURS or name.parts[0] == "_modules" else faults_of_page(page)
        found += [f"{name}: {fault}" for fault in [*own, *faults_of_links(folder, path, pages)]]
    for sheet in folder.glob("_static/pygments*.css"):
        found += [f"{sheet.name}: {fault}" for fault in faults_of_code(sheet.read_text())]
    return found


def main(arguments: list[str]) -> int:
    """Print every fault of a folder."""
    found = faults(Path(arguments[0]))
    print("\n".join(found) if found else "links, headings, alternative texts and colours of code: no fault")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
