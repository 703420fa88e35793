"""One self-contained page about a run: it opens offline, in any browser, and prints."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analysis.results import Results
from ..errors import printable
from ..records.attack import NORMS
from . import plots, tables, words
from .exports import to_bibtex
from .format import distance
from .layout import Table, names
from .plots.gallery import Outcome, attacks_with_images, choose_outcomes
from .plots.style import COLORS, as_picture

if TYPE_CHECKING:
    from markupsafe import Markup

TILES = 120  # pictures of outcomes in a gallery: more are slow to look through, and to load
MOST_IMAGES = 6  # under an attack


# a page and its parts --------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """A part of a section: which macro of the template writes it, and from what."""

    kind: str
    content: Any


class Section(NamedTuple):
    """A section of a page.

    Attributes
    ----------
    name : str
        Its identifier.
    heading : str
        Its heading.
    lead : str
        What it shows and how it is read.
    blocks : callable
        Returns the blocks of a run, or of what else the page is about; none where it has nothing to show.
    is_folded : bool
        Whether it opens only when it is asked for.
    """

    name: str
    heading: str
    lead: str
    blocks: Callable[[Any, Pictures | None], list[Block]]
    is_folded: bool = False


def to_html(results: Results) -> str:
    """Return a page about a run. Without Matplotlib it has the tables and no pictures."""
    return render_page(SECTIONS, results, words.title(results), words.describe_setting(results))


def to_notebook(results: Results) -> str:
    """Return the answer and the rates of a run as HTML that stands in a notebook, light or dark."""
    compares = results.compares_sources
    return _render(
        "notebook.html",
        title=words.title(results),
        setting=words.describe_setting(results),
        answer=words.answer(results) if compares else "",
        verdicts=words.state(results),
        together=words.remarks(results),
        deployed=words.answer_deployed(results) if results.has_deployments else "",
        table=tables.rates(results),
    )


def render_page(sections: Sequence[Section], source: Any, title: str, setting: str) -> str:
    """Return a page of sections about a source."""
    pictures = Pictures() if _can_draw() else None
    filled = [(section, section.blocks(source, pictures)) for section in sections]
    filled = [(section, blocks) for section, blocks in filled if blocks]
    return _render("page.html", title=title, setting=setting, sections=filled)


def _render(template: str, **values: Any) -> str:
    """Return a template of the package's resources, filled in."""
    from jinja2 import Environment, FunctionLoader

    def load(name: str) -> str:
        return (files("robustcmp.resources") / name).read_text(encoding="utf-8")

    def show(value: Any) -> Any:
        """Write out the marks that turn or hide text; pictures stay as they are."""
        return printable(value) if type(value) is str else value

    environment = Environment(
        loader=FunctionLoader(load), autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=show
    )
    return environment.get_template(template).render(**values)


def _can_draw() -> bool:
    """Return whether a page has pictures: Matplotlib is installed."""
    return find_spec("matplotlib") is not None


# pictures: Matplotlib's SVG, inline, in colours that the page's style decides ------------------------------------

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and set in the page's font
    "text.parse_math": False,  # a name with two dollars is a name
    "svg.hashsalt": "robustcmp",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titley": 1.0,  # fixed: to look for what it has to avoid, which is nothing, takes a tenth of the drawing
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
VARIABLES = {color: f"var(--data-{position})" for position, color in enumerate(COLORS)} | {
    "#000000": "currentColor",
    "#ffffff": "var(--paper)",
    "#b0b0b0": "var(--line)",
}
"""What a colour of Matplotlib becomes in the page, which has values for light and for dark."""
SMALL = 64  # pixels: the longest side of an image in the page


class _Picture(NamedTuple):
    """A picture with its text alternative."""

    svg: Markup
    width: float


class Pictures:
    """Draws the pictures of a page, no two of which have an identifier in common."""

    def __init__(self) -> None:
        self.count = 0

    def draw(self, draw: Callable[..., object], title: str, description: str) -> _Picture:
        """Return what a function draws into the figure that it is passed.

        Parameters
        ----------
        draw : callable
            Takes a Matplotlib figure.
        title, description : str
            What it shows, and what is to be seen: for those who do not see it.
        """
        from markupsafe import Markup, escape
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        self.count += 1
        name = f"picture-{self.count}"
        stream = io.StringIO()
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the browser has others
            figure = Figure()
            canvas = FigureCanvasSVG(figure)
            draw(figure=figure)
            if layout := figure.get_layout_engine():
                layout.execute(figure)  # savefig would draw everything twice for it
            figure.set_layout_engine("none")
            canvas.print_svg(stream, metadata={"Date": None})  # type: ignore[no-untyped-call]
        width, height = (72 * side for side in figure.get_size_inches())
        svg = (
            f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-title {name}-desc">'
            f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
            f"{_put_inline(stream.getvalue(), name)}</svg>"
        )
        return _Picture(Markup(printable(svg)), width)


def _put_inline(svg: str, name: str) -> str:
    """Return what stands in an SVG, with identifiers of its own and colours that the page decides."""
    inner = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    inner = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", inner, flags=re.DOTALL)
    inner = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', inner)
    inner = re.sub(r'href="#([^"]*)"', rf'href="#{name}-\1"', inner.replace("xlink:href", "href"))
    inner = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", inner)
    inner = inner.replace("'DejaVu Sans', sans-serif", "var(--font)").replace("'DejaVu Sans'", "var(--font)")
    inner = re.sub(r"\n\s*", "\n", inner)
    return re.sub("|".join(VARIABLES), lambda match: VARIABLES[match[0].lower()], inner, flags=re.IGNORECASE)


def png(image: NDArray[np.float32]) -> str:
    """Return an image (H, W, C) in [0, 1] as a data URI, scaled down where it is large."""
    from PIL import Image

    drawn = Image.fromarray(np.rint(np.clip(as_picture(image), 0, 1) * 255).astype(np.uint8))
    drawn.thumbnail((SMALL, SMALL))
    stream = io.BytesIO()
    drawn.save(stream, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


# the sections of a run -------------------------------------------------------------------------------------------


def _answer(results: Results, pictures: Pictures | None) -> list[Block]:
    blocks = []
    if results.compares_sources:
        blocks.append(Block("answer", words.answer(results)))
        if results.verdicts:
            blocks.append(Block("verdicts", words.state(results)))
        blocks += [Block("text", sentence) for sentence in words.remarks(results)]
    if results.has_deployments:
        blocks.append(Block("answer", words.answer_deployed(results)))
    blocks.append(Block("table", tables.rates(results)))
    blocks.append(Block("list", [*words.check_lines(results), *words.warnings(results)]))
    if pictures is None:
        blocks.append(Block("text", words.NO_PICTURES))
    return blocks


def _draw(
    results: Results, pictures: Pictures | None, draw: Callable[..., object], title: str, attacks: Sequence[str]
) -> list[Block]:
    """Return a picture of each attack, a panel each: they stand side by side or in a column."""
    if pictures is None or not attacks:
        return []
    drawn = [
        pictures.draw(partial(draw, results, attacks=[attack]), f"{attack}: {title}", words.IN_THE_TABLE)
        for attack in attacks
    ]
    return [Block("pictures", drawn)]


def _fold(results: Results, *sections: str) -> list[Block]:
    """Return the tables of sections, folded."""
    shown = [table for section in sections for table in tables.OF_SECTIONS[section](results)]
    return [Block("folded", shown)] if shown else []


def _plot(
    draw: Callable[..., object], title: str, choose: Callable[[Results], Sequence[str]], folded: str = ""
) -> Callable[[Results, Pictures | None], list[Block]]:
    """Return what makes the blocks of a section: a picture of each attack that is chosen, and its tables, folded."""

    def make_blocks(results: Results, pictures: Pictures | None) -> list[Block]:
        attacks = choose(results)
        if not attacks:
            return []
        drawn = _draw(results, pictures, draw, title, attacks)
        return [*drawn, *_fold(results, folded)] if folded else drawn

    return make_blocks


def _choose_transferred(results: Results) -> Sequence[str]:
    return results.attacks if results.transferred is not None and len(results.labels) > 1 else []


def _choose_conditioned(results: Results) -> Sequence[str]:
    return results.conditioned.attacks if results.conditioned and len(results.labels) > 1 else []


def _ranks(results: Results, pictures: Pictures | None) -> list[Block]:
    if not results.indicator:
        return []
    indicator, *variants = tables.OF_SECTIONS["ranks"](results)
    blocks = [Block("table", indicator), Block("folded", variants)]
    if pictures is None or not plots.indicator.has_ranks(results):
        return blocks
    picture = pictures.draw(partial(plots.indicator.draw, results), "R and its ranks", words.IN_THE_TABLE)
    return [Block("pictures", [picture]), *blocks]


def _deployments(results: Results, pictures: Pictures | None) -> list[Block]:
    if not results.has_deployments:
        return []
    drawn = []
    if len(results.deployments):
        drawn = _draw(results, pictures, plots.deployments.draw, "deployed minus source", results.attacks)
    return [*drawn, *_fold(results, "deployments"), Block("list", words.deployment_notes(results))]


def _checks(results: Results, _pictures: Pictures | None) -> list[Block]:
    checked = results.checked
    if checked is None:
        return [Block("text", words.NO_CHECKS)]
    rows = [[check.check, check.model, check.outcome, check.figure] for check in checked.checks]
    every = Table("Every check of every model", names("check", "model", "outcome", "figure"), rows)
    return [Block("list", words.check_notes(checked)), Block("folded", [every]), *_fold(results, "checks")]


def _gallery(results: Results, _pictures: Pictures | None) -> list[Block]:
    attacks = attacks_with_images(results)
    if not attacks:
        return [Block("text", words.NO_GALLERY)]
    images = max(2, min(MOST_IMAGES, TILES // (len(attacks) * len(results.models))))
    outcomes = [row for attack in attacks for row in choose_outcomes(results, attack, images)]
    chosen = [row for row in outcomes if any(outcome.is_fooled for outcome in row)]
    rows = [_gallery_row(results, row) for row in chosen]
    if not rows:
        return [Block("text", words.NOTHING_FOOLED)]
    rows.sort(key=lambda row: -sum(tile["outcome"] == "fooled" for tile in row["tiles"]))
    choices = {
        "attack": [attack for attack in attacks if any(row["attack"] == attack for row in rows)],
        "model": results.models,
        "class": [_name_class(results, label) for label in sorted({row[0].label for row in chosen})],
        "outcome": ["fooled", "held"],
    }
    return [Block("gallery", {"rows": rows, "choices": choices})]


def _gallery_row(results: Results, row: Sequence[Outcome]) -> dict[str, Any]:
    """Return an image under an attack in every model, for the template."""
    first = row[0]
    norm = NORMS[results.attack_records[first.attack].norm]
    return {
        "attack": first.attack,
        "label": _name_class(results, first.label),
        "image": int(results.arrays["image"][first.position]),
        "clean": png(first.clean),
        "tiles": [
            {
                "model": outcome.model,
                "outcome": "fooled" if outcome.is_fooled else "held",
                "taken_for": _name_class(results, outcome.taken_for),
                "distance": f"{norm} {distance(outcome.distance)}" if outcome.is_fooled else "",
                "adversarial": png(outcome.adversarial),
                "perturbation": png(outcome.perturbation) if outcome.is_fooled else None,
            }
            for outcome in row
        ],
    }


def _name_class(results: Results, label: int) -> str:
    """Return what a class is called: its number, where its name is not known."""
    class_names: list[str] = results.manifest["about"].get("classes", [])
    return class_names[label] if 0 <= label < len(class_names) else str(label)


def _settings(results: Results, _pictures: Pictures | None) -> list[Block]:
    manifest = results.manifest
    about = manifest["about"]
    environment = manifest["environment"]
    facts = {
        **{name: about[name] for name in ("model", "dataset", "recipe") if about.get(name)},
        "suite": f"{manifest['suite']['name']}: {manifest['suite']['description']}",
        "images": f"{manifest['images']['used']} of {manifest['images']['of']}",
        "repeats": str(manifest["repeats"]),
        "seed of the attacks": str(manifest["seed"]),
        "machine": f"{environment['system']}, {environment['machine']}, {environment['cpus']} processors",
    }
    attacks = [
        [attack, record.class_name, ", ".join(f"{name} = {value}" for name, value in record.settings.items())]
        for attack, record in results.attack_records.items()
    ]
    versions = [[name, version] for name, version in environment["versions"].items() if version]
    shown = [
        Table("Attacks", names("attack", "class", "settings"), attacks),
        Table("Versions", names("package", "version"), versions),
    ]
    command = [Block("code", about["command"])] if about.get("command") else []
    return [*command, Block("facts", facts), Block("folded", shown)]


SECTIONS = (
    Section("answer", "The answer", "", _answer),
    Section("deployments", "Deployed networks", words.LEADS["deployments"], _deployments),
    Section(
        "trainings",
        "Every training",
        words.LEADS["trainings"],
        _plot(plots.trainings.draw, "every training", plots.trainings.that_ran),
    ),
    Section("gallery", "Gallery", words.LEADS["gallery"], _gallery),
    Section(
        "curves",
        "Success against ε",
        words.LEADS["curves"],
        _plot(plots.curves.draw, "success against ε", plots.curves.with_grid),
        True,
    ),
    Section(
        "distances",
        "Distances",
        words.LEADS["distances"],
        _plot(plots.distances.draw, "share of images fooled within a distance", plots.distances.that_vary),
        True,
    ),
    Section("ranks", "R and its ranks", words.LEADS["ranks"], _ranks, True),
    Section(
        "variance",
        "Variance components",
        words.LEADS["variance"],
        _plot(plots.variance.draw, "the variance components", plots.variance.that_vary, "variance"),
        True,
    ),
    Section(
        "transfer",
        "Transfer",
        words.LEADS["transfer"],
        _plot(plots.transfer.draw, "transfer", _choose_transferred, "transfer"),
        True,
    ),
    Section(
        "conditioning",
        "Conditioning",
        words.LEADS["conditioning"],
        _plot(plots.conditioning.draw, "conditioning", _choose_conditioned, "conditioning"),
        True,
    ),
    Section("checks", "Health checks", words.LEADS["checks"], _checks, True),
    Section("tables", "More tables", "", lambda results, _: _fold(results, "rates", "differences", "attacks"), True),
    Section("notes", "Notes", words.LEADS["notes"], lambda results, _: [Block("list", words.notes(results))], True),
    Section("settings", "Settings", "", _settings, True),
    Section("cite", "How to cite", "", lambda results, _: [Block("code", to_bibtex(results).rstrip())], True),
)
