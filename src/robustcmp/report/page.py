"""One self-contained page about a run, or about two side by side: it opens offline, in any browser, and prints."""

from __future__ import annotations

import base64
import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analysis.deployments import SUCCESS
from ..analysis.results import Results
from ..errors import UsageError, printable
from ..records.attack import NORMS
from . import plots, tables, words
from .exports import to_bibtex
from .format import Write, distance, number, percent, percent_2
from .layout import Column, Table, names
from .plots.gallery import Outcome, attacks_with_images, choose_outcomes
from .plots.style import COLORS, as_picture
from .text import MOST_NOTES

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

LETTERS = "AB"
TILES = 240  # pictures of outcomes in a gallery: more are slow to look through, and to load
MOST_IMAGES = 10  # under an attack
CURVE_ROWS = 10
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


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
    """

    name: str
    heading: str
    lead: str
    blocks: Callable[[Any, Pictures | None], list[Block]]


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
    titles = [words.title(results) for results in runs]
    settings = [words.setting(results) for results in runs]
    directories = ["" if results.run.temporary else results.run.directory.name for results in runs]
    return render_page(SECTIONS, runs, titles, settings, directories, compare(*runs) if len(runs) > 1 else None)


def to_notebook(results: Results) -> str:
    """Return the answer and the rates of a run as HTML that stands in a notebook, light or dark."""
    answers = words.answers(results)
    return render(
        "notebook.html",
        title=words.title(results),
        setting=words.setting(results),
        answer=answers.sources,
        verdicts=answers.statements,
        together=answers.together,
        deployed=answers.deployed,
        table=tables.rates(results),
    )


def render_page(
    sections: Sequence[Section],
    sources: Sequence[Any],
    titles: Sequence[str],
    settings: Sequence[str],
    directories: Sequence[str],
    comparison: Table | None = None,
) -> str:
    """Return a page of sections about what each source holds, side by side."""
    letters = LETTERS[: len(sources)]
    pictures = [Pictures(f"{letter.lower()}-") if can_draw() else None for letter in letters]
    filled = []
    for section in sections:
        sides = [section.blocks(source, drawn) for source, drawn in zip(sources, pictures, strict=True)]
        if any(sides):
            filled.append({"name": section.name, "heading": section.heading, "lead": section.lead, "sides": sides})
    return render(
        "page.html",
        title=" and ".join(dict.fromkeys(titles)) or "robustcmp",
        runs=[
            {"letter": letter, "setting": setting, "out": directory}
            for letter, setting, directory in zip(letters, settings, directories, strict=True)
        ],
        beside=comparison,
        sections=filled,
    )


def render(template: str, **values: Any) -> str:
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


def can_draw() -> bool:
    """Return whether a page has pictures: Matplotlib is installed."""
    try:
        plots.need_matplotlib()
    except UsageError:
        return False
    return True


# pictures: Matplotlib's SVG, inline, in colours that the page's style decides ------------------------------------

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and set in the page's font
    "text.parse_math": False,  # a name with two dollars is a name
    "svg.hashsalt": "robustcmp",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
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


class Picture(NamedTuple):
    """A picture with its text alternative."""

    svg: Markup
    width: float


class Pictures:
    """Draws the pictures of one run.

    Parameters
    ----------
    prefix : str
        What the identifiers of its pictures begin with, so that no two in a page are alike.
    """

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.count = 0

    def draw(self, draw: Callable[[Figure], object], title: str, description: str) -> Picture:
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
        name = f"{self.prefix}{self.count}"
        stream = io.StringIO()
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the browser has others
            figure = Figure()
            canvas = FigureCanvasSVG(figure)
            draw(figure)
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
        return Picture(Markup(printable(svg)), width)


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
    answers = words.answers(results)
    blocks = []
    if answers.sources:
        blocks.append(Block("answer", answers.sources))
    if answers.statements:
        blocks.append(Block("verdicts", answers.statements))
    blocks += [Block("text", sentence) for sentence in answers.together]
    if answers.deployed:
        blocks.append(Block("answer", answers.deployed))
    blocks += [Block("table", tables.rates(results)), Block("list", words.key_notes(results)[:MOST_NOTES])]
    if pictures is None:
        blocks.append(Block("text", words.NO_PICTURES))
    return blocks


def _draw(
    results: Results,
    pictures: Pictures | None,
    draw: Callable[..., object],
    title: str,
    descriptions: Mapping[str, str],
) -> list[Block]:
    """Return a picture of each attack that is described, a panel each: they stand side by side or in a column."""
    if pictures is None or not descriptions:
        return []
    drawn = []
    for attack, description in descriptions.items():

        def panel(figure: Figure, attack: str = attack) -> object:
            return draw(results, attacks=[attack], figure=figure)

        drawn.append(pictures.draw(panel, f"{attack}: {title}", description))
    return [Block("pictures", drawn)]


def _fold(shown: Sequence[Table]) -> list[Block]:
    return [Block("folded", shown)] if shown else []


def _describe_row(table: Table, row: int) -> str:
    """Return a row of a table, a column a model, as a sentence."""
    heading, *models = table.names
    first, *values = table.written[row]
    return f"{heading} {first}: " + ", ".join(f"{m} {v}" for m, v in zip(models, values, strict=True)) + "."


def _by_model(results: Results, title: str, heading: str, write: Write, rows: Sequence[Sequence[Any]]) -> Table:
    """Return a table with a column for each model."""
    return Table(title, [Column(heading), *(Column(model, write) for model in results.models)], rows)


def _trainings(results: Results, pictures: Pictures | None) -> list[Block]:
    shown = []
    descriptions = {}
    for attack in results.attacks:
        record = results.attack_records[attack]
        write = distance if record.compares_distances else number
        values = {m: plots.trainings.values_of_trainings(results, m, attack) for m in results.models}
        by_seed = {m: dict(zip(results.seeds(m, attack), values[m], strict=True)) for m in results.models}
        rows = [
            [str(seed), *(by_seed[model].get(seed, math.nan) for model in results.models)]
            for seed in results.training_seeds
        ]
        measure = f"median {NORMS[record.norm]} distance" if record.compares_distances else "success, %"
        shown.append(_by_model(results, f"{attack}: {measure} of each training", "training seed", write, rows))
        each = (
            f"{model}: {write(v.mean())} on average, from {write(v.min())} to {write(v.max())}"
            for model, v in values.items()
            if len(v)
        )
        descriptions[attack] = "; ".join(each) + "."
    return [*_draw(results, pictures, plots.trainings.draw, "every training", descriptions), Block("folded", shown)]


def _curves(results: Results, pictures: Pictures | None) -> list[Block]:
    shown = []
    descriptions = {}
    for attack in plots.curves.with_grid(results):
        grid = results.attack_records[attack].grid
        chosen = [grid[i] for i in np.unique(np.linspace(0, len(grid) - 1, CURVE_ROWS).round().astype(int))]
        mean = results.epsilon_curve.sel(attack=attack).mean("training_seed")
        rows = [[f"{e:g}", *(float(mean.sel(model=model, epsilon=e)) for model in results.models)] for e in chosen]
        shown.append(_by_model(results, f"{attack}: success at ε", "ε", percent, rows))
        descriptions[attack] = _describe_row(shown[-1], -1)
    return [*_draw(results, pictures, plots.curves.draw, "success against ε", descriptions), *_fold(shown)]


def _distances(results: Results, pictures: Pictures | None) -> list[Block]:
    shown = []
    descriptions = {}
    for attack in plots.distances.that_vary(results):
        norm = results.attack_records[attack].norm
        rows = [
            [f"{q:.0%}", *(results.distances.quantile(model, attack, norm, q) for model in results.models)]
            for q in QUANTILES
        ]
        title = f"{attack}: {NORMS[norm]} distance within which this share of images is fooled"
        shown.append(_by_model(results, title, "share of images", distance, rows))
        descriptions[attack] = _describe_row(shown[-1], QUANTILES.index(0.5))
    title = "share of images fooled within a distance"
    return [*_draw(results, pictures, plots.distances.draw, title, descriptions), *_fold(shown)]


def _ranks(results: Results, pictures: Pictures | None) -> list[Block]:
    if results.same_weights or not results.has_indicator:
        return []
    blocks = []
    if pictures is not None and plots.indicator.has_ranks(results):
        description = "; ".join(f"{model}: R {number(r)}" for model, r in results.indicator.items())
        picture = pictures.draw(
            lambda figure: plots.indicator.draw(results, figure=figure), "R and its ranks", description
        )
        blocks.append(Block("pictures", [picture]))
    return [*blocks, Block("table", tables.indicator(results))]


def _variance(results: Results, pictures: Pictures | None) -> list[Block]:
    try:
        vary = plots.variance.that_vary(results) if results.outcomes else []
    except UsageError:  # one training of each, or different numbers of them
        return []
    if not vary:
        return []
    [table] = tables.variance(results)
    rows = {row[0]: position for position, row in enumerate(table.rows)}
    descriptions = {attack: f"Variances in squared points, {_describe_row(table, rows[attack])}" for attack in vary}
    return [*_draw(results, pictures, plots.variance.draw, "the variance components", descriptions), *_fold([table])]


def _transfer(results: Results, pictures: Pictures | None) -> list[Block]:
    if results.transferred is None or len(results.labels) < 2:
        return []
    shown = tables.transfer(results)
    descriptions = dict.fromkeys(results.attacks, "")
    for table in shown:
        for attack, between, _, _, of_successes, *_ in table.written:
            descriptions[attack] += f"{between}: {of_successes} of the successes. "
    return [*_draw(results, pictures, plots.transfer.draw, "transfer", descriptions), *_fold(shown)]


def _conditioning(results: Results, pictures: Pictures | None) -> list[Block]:
    shown = tables.conditioning(results)
    descriptions: dict[str, str] = {}
    for table in shown:
        for attack, model, alone, *_, beside_all in table.written:
            descriptions[attack] = descriptions.get(attack, "") + f"{model}: from {alone} to {beside_all}. "
    return [*_draw(results, pictures, plots.conditioning.draw, "conditioning", descriptions), *_fold(shown)]


def _checks(results: Results, _pictures: Pictures | None) -> list[Block]:
    checked = results.checked
    if checked is None:
        return [Block("text", words.NO_CHECKS)]
    by_name = words.group((check.check, check.outcome) for check in checked.checks)
    outcomes = list(dict.fromkeys(check.outcome for check in checked.checks))
    counts = Table(
        f"Health checks on {checked.images} images: how many models",
        [Column("check"), *(Column(outcome, str) for outcome in outcomes)],
        [[name, *(each.count(outcome) for outcome in outcomes)] for name, each in by_name.items()],
    )
    every = Table(
        "Every check of every model",
        names("check", "model", "outcome", "figure"),
        [[check.check, check.model, check.outcome, check.figure] for check in checked.checks],
    )
    blocks = [Block("table", counts)]
    if failed := words.find_failed(checked):
        blocks.append(Block("list", [f"{name}: {checks[0].advice}" for name, checks in failed.items()]))
    return [*blocks, Block("folded", [*tables.lower_bound(results), every])]


def _gallery(results: Results, _pictures: Pictures | None) -> list[Block]:
    attacks = attacks_with_images(results)
    if not attacks:
        return [Block("text", words.NO_GALLERY)]
    images = max(2, min(MOST_IMAGES, TILES // (len(attacks) * len(results.models))))
    rows = [_gallery_row(results, row) for attack in attacks for row in choose_outcomes(results, attack, images)]
    choices = {
        "attack": attacks,
        "model": results.models,
        "class": [str(label) for label in sorted({row["label"] for row in rows})],
        "outcome": ["fooled", "held"],
    }
    missing = words.NO_PERTURBATIONS if results.clean is None else ""
    return [Block("gallery", {"rows": rows, "choices": choices, "missing": missing})]


def _gallery_row(results: Results, row: Sequence[Outcome]) -> dict[str, Any]:
    """Return an image under an attack in every model, for the template."""
    first = row[0]
    norm = NORMS[results.attack_records[first.attack].norm]
    return {
        "attack": first.attack,
        "label": first.label,
        "image": int(results.dataset.image.values[first.position]),
        "clean": None if first.clean is None else png(first.clean),
        "tiles": [
            {
                "model": outcome.model,
                "outcome": "fooled" if outcome.fooled else "held",
                "taken_for": outcome.taken_for,
                "distance": f"{norm} {distance(outcome.distance)}" if outcome.fooled else "",
                "adversarial": png(outcome.adversarial),
                "perturbation": png(outcome.perturbation)
                if outcome.perturbation is not None and outcome.fooled
                else None,
            }
            for outcome in row
        ],
    }


def _deployments(results: Results, pictures: Pictures | None) -> list[Block]:
    if not results.has_deployments:
        return []
    differences = words.group(
        (row["attack"], f"{row['deployment']} {100 * row['difference']:+.2f} points. ")
        for row in results.deployments().to_dict("records")
        if row["measure"] == SUCCESS
    )
    descriptions = {attack: "".join(each) for attack, each in differences.items()}
    return [
        Block("table", tables.networks(results)),
        *_draw(results, pictures, plots.deployments.draw, "deployed minus source", descriptions),
        Block("table", tables.deployments(results)),
        Block("list", words.deployment_notes(results)),
    ]


def _tables(results: Results, _pictures: Pictures | None) -> list[Block]:
    """Return the tables that do not stand beside a picture."""
    shown = [*tables.transfer(results), *tables.conditioning(results), *tables.lower_bound(results)]
    if not results.same_weights:
        shown.append(tables.indicator(results))
    if results.has_deployments:
        shown += [tables.networks(results), tables.deployments(results)]
    if results.outcomes:
        shown += tables.variance(results)
    elsewhere = {table.title for table in shown}
    return [Block("folded", [table for table in tables.tables(results) if table.title not in elsewhere])]


def _notes(results: Results, _pictures: Pictures | None) -> list[Block]:
    return [Block("list", words.notes(results))]


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
    models = [
        [
            model["name"],
            str(model["training_seed"]),
            f"{model['framework']} {model['framework_version']}",
            model["clean_accuracy"],
        ]
        for model in manifest["models"]
    ]
    columns = [*names("model", "training seed", "framework"), Column("clean accuracy", percent_2)]
    versions = [[name, version] for name, version in environment["versions"].items() if version]
    shown = [
        Table("Attacks", names("attack", "class", "settings"), attacks),
        Table("Models", columns, models),
        Table("Versions", names("package", "version"), versions),
    ]
    command = [Block("code", about["command"])] if about.get("command") else []
    return [*command, Block("facts", facts), Block("folded", shown)]


def _citation(results: Results, _pictures: Pictures | None) -> list[Block]:
    return [Block("code", to_bibtex(results).rstrip())]


SECTIONS = tuple(
    Section(name, heading, words.LEADS[name], blocks)
    for name, heading, blocks in (
        ("answer", "The answer", _answer),
        ("deployments", "Deployed networks", _deployments),
        ("trainings", "Every training", _trainings),
        ("curves", "Success against ε", _curves),
        ("distances", "Distances", _distances),
        ("ranks", "R and its ranks", _ranks),
        ("variance", "Variance components", _variance),
        ("transfer", "Transfer", _transfer),
        ("conditioning", "Conditioning", _conditioning),
        ("checks", "Health checks", _checks),
        ("gallery", "Gallery", _gallery),
        ("tables", "More tables", _tables),
        ("notes", "Notes", _notes),
        ("settings", "Settings", _settings),
        ("cite", "How to cite", _citation),
    )
)


def compare(*runs: Results) -> Table:
    """Return the success rates of runs side by side: a row a model and attack that is in two or more."""
    rates = [results.rates() for results in runs]
    models = dict.fromkeys(model for of_run in rates for model in of_run)
    attacks = dict.fromkeys(attack for results in runs for attack in results.attacks)
    rows = []
    for attack in attacks:
        for model in models:
            values = [of_run.get(model, {}).get(attack, math.nan) for of_run in rates]
            if np.isfinite(values).sum() > 1:
                rows.append([attack, model, *values])
    columns = [*names("attack", "model"), *(Column(f"run {letter}", percent) for letter in LETTERS[: len(runs)])]
    return Table("Success rates of both runs", columns, rows)
