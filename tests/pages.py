"""A page taken apart, for tests of what it holds."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """A page taken apart: its tags, that each one is closed, its attributes and its texts."""

    EMPTY = {"meta", "img", "link", "br", "hr", "input"}

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.tables: list[list[list[str]]] = []

    @classmethod
    def of(cls, text: str) -> Page:
        page = cls()
        page.feed(text)
        page.close()
        assert page.open == []
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in self.EMPTY:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        if data.strip():
            self.texts.append(data.strip())
