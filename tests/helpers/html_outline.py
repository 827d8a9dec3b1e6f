"""A page of HTML as a browser would take it apart: elements in order, their attributes and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}


@dataclass
class Element:
    """An element of a page."""

    tag: str
    attributes: dict[str, str]
    parent: Element | None
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text within."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str = "") -> list[Element]:
        """The elements within, or those of one tag, in order."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                found += [child] if tag in ("", child.tag) else []
                found += child.all(tag)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.open = Element("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, self.open)
        self.open.children.append(element)
        if tag not in VOID:
            self.open = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.tag == tag, f"</{tag}> closes <{self.open.tag}>"
        assert self.open.parent is not None
        self.open = self.open.parent

    def handle_data(self, data: str) -> None:
        self.open.children.append(data)


def outline(text: str) -> Element:
    """The root of a page, whose every element is closed where it should be."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open is reader.root, f"<{reader.open.tag}> is not closed"
    return reader.root
