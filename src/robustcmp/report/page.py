"""One self-contained page about a run, or about two side by side: it opens offline, in any browser, and prints."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ..analysis.results import Results
from ..errors import UsageError, printable
from .page_pictures import Pictures
from .page_sections import SECTIONS, Section, Source, differing
from .plots import need_matplotlib
from .summary import setting
from .text import title

LETTERS = "AB"


def to_html(*runs: Results) -> str:
    """Return a page about a run, or about two side by side.

    Without Matplotlib it has the tables and no pictures.

    Raises
    ------
    UsageError
        There is no run, or there are more than two.
    """
    if not 1 <= len(runs) <= len(LETTERS):
        raise UsageError(f"expected one run or two, received {len(runs)}")
    letters = LETTERS[: len(runs)]
    pictures: list[Pictures | None] = [Pictures(f"{letter.lower()}-") if can_draw() else None for letter in letters]
    sections = [filled(section, runs, pictures) for section in SECTIONS]
    names = dict(zip((f"run {letter}" for letter in letters), runs, strict=True))
    titles = list(dict.fromkeys(title(results) for results in runs))
    return render(
        "page.html",
        title=" and ".join(titles) or "robustcmp",
        runs=[
            {"letter": letter, "title": title(run), "setting": setting(run), "out": _directory(run)}
            for letter, run in zip(letters, runs, strict=True)
        ],
        beside=differing(names) if len(runs) > 1 else None,
        sections=[section for section in sections if any(section["sides"])],
    )


def render(template: str, **values: Any) -> str:
    """Return a template of the package's resources, filled in."""
    from jinja2 import Environment, FunctionLoader

    def load(name: str) -> str:
        return (files("robustcmp.resources") / name).read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(load), autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    return environment.get_template(template).render(**values)


def _shown(value: Any) -> Any:
    """Return a value as it is put into a template: text without marks that turn or hide it, pictures as they are."""
    return printable(value) if type(value) is str else value


def filled(section: Section[Source], runs: Sequence[Source], pictures: Sequence[Pictures | None]) -> dict[str, Any]:
    """Return a section with the blocks of each run, for the template."""
    sides = [section.blocks(results, drawn) for results, drawn in zip(runs, pictures, strict=True)]
    return {"name": section.name, "heading": section.heading, "lead": section.lead, "sides": sides}


def _directory(results: Results) -> str:
    return "" if results.run.temporary else results.run.directory.name


def can_draw() -> bool:
    """Say whether a page has pictures: Matplotlib is installed."""
    try:
        need_matplotlib()
    except UsageError:
        return False
    return True
