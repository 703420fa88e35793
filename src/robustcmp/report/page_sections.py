"""The sections of a page, in their order: of each run some blocks, of which the template knows how they look."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from ..analysis.deployments import SUCCESS
from ..analysis.results import Results
from ..errors import UsageError
from ..records.attack import NORMS
from ..records.checks import FAIL, Check
from . import deployments, tables
from .bibtex import to_bibtex
from .format import Write, distance, number, percent, percent_2
from .gallery import Shown, attacks_with_images, gallery
from .notes import key_notes, notes
from .page_pictures import Pictures, png
from .plots import conditioning, curves, distances, indicator, trainings, transfer, variance
from .plots import deployments as deployed_differences
from .summary import MOST_NOTES, answer, rates
from .table import Column, Table, names
from .verdict_text import is_nominal, said, said_together

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TILES = 240  # pictures of outcomes in a gallery: more are slow to look through, and to load
MOST_IMAGES = 10  # under an attack
CURVE_ROWS = 10
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
NO_PICTURES = "Pictures need Matplotlib: pip install 'robustcmp[plot]', and write the page again."


class Block(NamedTuple):
    """A part of a section: which macro of the template writes it, and from what."""

    kind: str
    content: Any


Source = TypeVar("Source")


class Section(NamedTuple, Generic[Source]):
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
    blocks: Callable[[Source, Pictures | None], list[Block]]


def _answer(results: Results, pictures: Pictures | None) -> list[Block]:
    missing = [Block("text", NO_PICTURES)] * (pictures is None)
    verdicts = [said(verdict, is_nominal(results)) for verdict in results.verdicts]
    return [
        *([Block("answer", answer(results))] if results.compares_sources else []),
        *([Block("verdicts", verdicts)] if verdicts else []),
        *(Block("text", sentence) for sentence in said_together(results)),
        *([Block("answer", deployments.answer(results))] if results.has_deployments else []),
        Block("table", rates(results)),
        Block("list", key_notes(results)[:MOST_NOTES]),
        *missing,
    ]


def _pictures(
    results: Results,
    pictures: Pictures | None,
    draw: Callable[..., object],
    title: str,
    described: Mapping[str, str],
) -> list[Block]:
    """Return a picture of each attack that is described, a panel each: they stand side by side or in a column."""
    if pictures is None or not described:
        return []
    drawn = []
    for attack, description in described.items():

        def panel(figure: Figure, attack: str = attack) -> object:
            return draw(results, attacks=[attack], figure=figure)

        drawn.append(pictures.draw(panel, f"{attack}: {title}", description))
    return [Block("pictures", drawn)]


def _row_said(table: Table, row: int) -> str:
    """Return a row of a table, a column a model, as a sentence."""
    what, *models = table.names
    first, *values = table.written[row]
    return f"{what} {first}: " + ", ".join(f"{m} {v}" for m, v in zip(models, values, strict=True)) + "."


def _trainings(results: Results, pictures: Pictures | None) -> list[Block]:
    def values(attack: str) -> Table:
        record = results.attack_records[attack]
        of_models = {model: trainings.values_of_trainings(results, model, attack) for model in results.models}
        seeds = {model: results.seeds(model, attack) for model in results.models}
        rows = [
            [
                str(seed),
                *(of_models[m][seeds[m].index(seed)] if seed in seeds[m] else math.nan for m in results.models),
            ]
            for seed in results.training_seeds
        ]
        what = f"median {NORMS[record.norm]} distance" if record.compares_distances else "success, %"
        columns = [Column("training seed"), *_of_models(results, written(attack))]
        return Table(f"{attack}: {what} of each training", columns, rows)

    def written(attack: str) -> Write:
        return distance if results.attack_records[attack].compares_distances else number

    def described(attack: str) -> str:
        write = written(attack)
        of_models = ((model, trainings.values_of_trainings(results, model, attack)) for model in results.models)
        each = (
            f"{model}: {write(v.mean())} on average, from {write(v.min())} to {write(v.max())}"
            for model, v in of_models
            if len(v)
        )
        return "; ".join(each) + "."

    drawn = _pictures(results, pictures, trainings.draw, "every training", {a: described(a) for a in results.attacks})
    return [*drawn, Block("folded", [values(attack) for attack in results.attacks])]


def _curves(results: Results, pictures: Pictures | None) -> list[Block]:
    def values(attack: str) -> Table:
        grid = results.attack_records[attack].grid
        shown = [grid[i] for i in np.unique(np.linspace(0, len(grid) - 1, CURVE_ROWS).round().astype(int))]
        mean = results.epsilon_curve.sel(attack=attack).mean("training_seed")
        rows = [[f"{e:g}", *(float(mean.sel(model=model, epsilon=e)) for model in results.models)] for e in shown]
        return Table(f"{attack}: success at ε", [Column("ε"), *_of_models(results, percent)], rows)

    each = {attack: values(attack) for attack in curves.with_grid(results)}
    described = {attack: _row_said(table, -1) for attack, table in each.items()}
    return _with_tables(_pictures(results, pictures, curves.draw, "success against ε", described), [*each.values()])


def _distances(results: Results, pictures: Pictures | None) -> list[Block]:
    def values(attack: str) -> Table:
        norm = results.attack_records[attack].norm
        rows = [
            [f"{q:.0%}", *(results.distances.quantile(model, attack, norm, q) for model in results.models)]
            for q in QUANTILES
        ]
        title = f"{attack}: {NORMS[norm]} distance within which this share of images is fooled"
        return Table(title, [Column("share of images"), *_of_models(results, distance)], rows)

    each = {attack: values(attack) for attack in distances.that_vary(results)}
    described = {attack: _row_said(table, QUANTILES.index(0.5)) for attack, table in each.items()}
    drawn = _pictures(results, pictures, distances.draw, "share of images fooled within a distance", described)
    return _with_tables(drawn, [*each.values()])


def _with_tables(drawn: list[Block], shown: Sequence[Table]) -> list[Block]:
    return [*drawn, Block("folded", shown)] if shown else []


def _of_models(results: Results, write: Write = number) -> list[Column]:
    return [Column(model, write) for model in results.models]


def _ranks(results: Results, pictures: Pictures | None) -> list[Block]:
    if results.same_weights or not results.has_indicator:
        return []
    table = tables.indicator(results)
    drawn = []
    if pictures is not None and indicator.has_ranks(results):
        described = "; ".join(f"{model}: R {number(r)}" for model, r in results.indicator.items())
        drawn = [pictures.draw(lambda figure: indicator.draw(results, figure=figure), "R and its ranks", described)]
    return [*([Block("pictures", drawn)] if drawn else []), Block("table", table)]


def _variance(results: Results, pictures: Pictures | None) -> list[Block]:
    try:
        vary = variance.that_vary(results) if results.outcomes else []
    except UsageError:  # one training of each, or different numbers of them
        return []
    shown = tables.variance(results)
    described = {}
    for attack in vary:
        row = next(i for i, row in enumerate(shown[0].rows) if row[0] == attack)
        described[attack] = f"Variances in squared points, {_row_said(shown[0], row)}"
    drawn = _pictures(results, pictures, variance.draw, "the variance components", described)
    return _with_tables(drawn, shown) if vary else []


def _transfer(results: Results, pictures: Pictures | None) -> list[Block]:
    if results.transferred is None or len(results.labels) < 2:
        return []
    shown = tables.transfer(results)
    described = dict.fromkeys(results.attacks, "")
    for row in (row for table in shown for row in table.written):
        described[row[0]] += f"{row[1]}: {row[4]} of the successes. "
    return [
        *_pictures(results, pictures, transfer.draw, "transfer", described),
        *([Block("folded", shown)] if shown else []),
    ]


def _conditioning(results: Results, pictures: Pictures | None) -> list[Block]:
    if results.conditioned is None or len(results.labels) < 2:
        return []
    table = tables.conditioning(results)
    described: dict[str, str] = {}
    for attack, model, alone, *_, beside_all in table.written:
        described[attack] = described.get(attack, "") + f"{model}: from {alone} to {beside_all}. "
    return [*_pictures(results, pictures, conditioning.draw, "conditioning", described), Block("folded", [table])]


def _checks(results: Results, pictures: Pictures | None) -> list[Block]:
    checked = results.checked
    if checked is None:
        return [Block("text", "No health checks were made; ev.run_checks() makes them.")]
    by_name: dict[str, list[Check]] = {}
    for check in checked.checks:
        by_name.setdefault(check.check, []).append(check)
    outcomes = list(dict.fromkeys(check.outcome for check in checked.checks))
    counts = [
        [name, *([check.outcome for check in checks].count(outcome) for outcome in outcomes)]
        for name, checks in by_name.items()
    ]
    counted = Table(
        f"Health checks on {checked.images} images: how many models",
        [Column("check"), *(Column(outcome, str) for outcome in outcomes)],
        counts,
    )
    advice = [
        f"{name}: {failed[0].advice}"
        for name, checks in by_name.items()
        if (failed := [check for check in checks if check.outcome == FAIL])
    ]
    every = Table(
        "Every check of every model",
        names("check", "model", "outcome", "figure"),
        [[check.check, check.model, check.outcome, check.figure] for check in checked.checks],
    )
    bound = [tables.lower_bound(checked)] if checked.pgd and not results.same_weights else []
    return [Block("table", counted), *([Block("list", advice)] if advice else []), Block("folded", [*bound, every])]


def _gallery(results: Results, pictures: Pictures | None) -> list[Block]:
    attacks = attacks_with_images(results)
    if not attacks:
        return [Block("text", "The adversarial images were not stored with this run, so there is no gallery.")]
    images = max(2, min(MOST_IMAGES, TILES // (len(attacks) * len(results.models))))
    rows = [_gallery_row(results, row) for attack in attacks for row in gallery(results, attack, images)]
    choices = {
        "attack": attacks,
        "model": results.models,
        "class": [str(label) for label in sorted({row["label"] for row in rows})],
        "outcome": ["fooled", "held"],
    }
    missing = "This run has no clean images, so the perturbations are not shown." if results.clean is None else ""
    return [Block("gallery", {"rows": rows, "choices": choices, "missing": missing})]


def _gallery_row(results: Results, row: Sequence[Shown]) -> dict[str, Any]:
    """Return an image under an attack in every model, for the template."""
    first = row[0]
    norm = NORMS[results.attack_records[first.attack].norm]
    return {
        "attack": first.attack,
        "label": first.label,
        "image": int(results.dataset.image.values[first.place]),
        "clean": None if first.clean is None else png(first.clean),
        "tiles": [
            {
                "model": shown.model,
                "outcome": "fooled" if shown.fooled else "held",
                "taken_for": shown.taken_for,
                "distance": f"{norm} {distance(shown.distance)}" if shown.fooled else "",
                "adversarial": png(shown.adversarial),
                "perturbation": None if shown.perturbation is None or not shown.fooled else png(shown.perturbation),
            }
            for shown in row
        ],
    }


def _deployments(results: Results, pictures: Pictures | None) -> list[Block]:
    if not results.has_deployments:
        return []
    found = results.deployments().to_dict("records")
    described: dict[str, str] = {}
    for row in (row for row in found if row["measure"] == SUCCESS):
        described.setdefault(row["attack"], "")
        described[row["attack"]] += f"{row['deployment']} {100 * row['difference']:+.2f} points. "
    drawn = _pictures(results, pictures, deployed_differences.draw, "deployed minus source", described)
    tables_of = [deployments.networks(results), deployments.differences(results)]
    return [
        Block("table", tables_of[0]),
        *drawn,
        Block("table", tables_of[1]),
        Block("list", deployments.notes(results)),
    ]


def _tables(results: Results, pictures: Pictures | None) -> list[Block]:
    elsewhere = {table.title for table in _shown_elsewhere(results)}
    rest = [table for table in tables.tables(results) if table.title not in elsewhere]
    return [Block("folded", rest)]


def _notes(results: Results, pictures: Pictures | None) -> list[Block]:
    return [Block("list", notes(results))]


def _shown_elsewhere(results: Results) -> list[Table]:
    """Return the tables of a report that stand beside their picture."""
    shown = [] if results.same_weights else [tables.indicator(results)]
    if results.has_deployments:
        shown += [deployments.networks(results), deployments.differences(results)]
    shown += tables.variance(results) if results.outcomes else []
    shown += tables.transfer(results)
    shown += [tables.conditioning(results)] if results.conditioned is not None and len(results.labels) > 1 else []
    checked = results.checked
    return shown + ([tables.lower_bound(checked)] if checked and checked.pgd and not results.same_weights else [])


def _settings(results: Results, pictures: Pictures | None) -> list[Block]:
    manifest = results.manifest
    about, environment = manifest["about"], manifest["environment"]
    command = about.get("command")
    facts = {
        **{name: about[name] for name in ("model", "dataset", "recipe") if about.get(name)},
        "suite": f"{manifest['suite']['name']}: {manifest['suite']['description']}",
        "images": f"{manifest['images']['used']} of {manifest['images']['of']}",
        "repeats": str(manifest["repeats"]),
        "seed of the attacks": str(manifest["seed"]),
        "machine": f"{environment['system']}, {environment['machine']}, {environment['cpus']} processors",
    }
    return [
        *([Block("code", command)] if command else []),
        Block("facts", facts),
        Block("folded", [_attacks_table(results), _models_table(results), _versions_table(results)]),
    ]


def _attacks_table(results: Results) -> Table:
    rows = [
        [attack, record.class_name, ", ".join(f"{name} = {value}" for name, value in record.settings.items())]
        for attack, record in results.attack_records.items()
    ]
    return Table("Attacks", names("attack", "class", "settings"), rows)


def _models_table(results: Results) -> Table:
    columns = [*names("model", "training seed", "framework"), Column("clean accuracy", percent_2)]
    rows = [
        [
            model["name"],
            str(model["training_seed"]),
            f"{model['framework']} {model['framework_version']}",
            model["clean_accuracy"],
        ]
        for model in results.manifest["models"]
    ]
    return Table("Models", columns, rows)


def _versions_table(results: Results) -> Table:
    versions = results.manifest["environment"]["versions"]
    return Table("Versions", names("package", "version"), [[name, made] for name, made in versions.items() if made])


def _citation(results: Results, pictures: Pictures | None) -> list[Block]:
    return [Block("code", to_bibtex(results).rstrip())]


SECTIONS: tuple[Section[Results], ...] = (
    Section("answer", "The answer", "", _answer),
    Section(
        "deployments",
        "Deployed networks",
        "Each deployed network beside the trained model that it was converted from. In the pictures, a dot right of "
        "zero is easier to fool than its source; the grey band is two points, the margin of equivalence.",
        _deployments,
    ),
    Section(
        "trainings",
        "Every training",
        "A dot is one training. The horizontal line is the mean of a model, the vertical line its 95 % interval.",
        _trainings,
    ),
    Section(
        "curves",
        "Success against ε",
        "How the success rate grows with ε, the largest change of a pixel, for images in [0, 1]. Bands are 95 % "
        "intervals at each ε.",
        _curves,
    ),
    Section(
        "distances",
        "Distances",
        "The share of images that are fooled within a distance, for images in [0, 1]. A curve further to the left is "
        "easier to fool, if the attack's search has converged.",
        _distances,
    ),
    Section(
        "ranks",
        "R and its ranks",
        "R adds up how each model compares with the others under each attack; smaller is more robust. The ranges and "
        "ranks are over resamples and show how far R can be trusted.",
        _ranks,
    ),
    Section(
        "variance",
        "Variance components",
        "The standard deviation of a trained model's success rate, in percentage points, by its source. Where the "
        "training run outweighs the framework, one training of each cannot compare frameworks.",
        _variance,
    ),
    Section(
        "transfer",
        "Transfer",
        "The share of adversarial images made for one model (row) that also fool another (column).",
        _transfer,
    ),
    Section(
        "conditioning",
        "Conditioning",
        "Success rates against the number of models that classify the images correctly. Each further model removes "
        "images, those near a decision boundary first.",
        _conditioning,
    ),
    Section(
        "checks",
        "Health checks",
        "A success rate means nothing if the attack is broken.",
        _checks,
    ),
    Section(
        "gallery",
        "Gallery",
        "The same images in every model's first training. A perturbation is stretched to the full range; grey is no "
        "change.",
        _gallery,
    ),
    Section("tables", "More tables", "", _tables),
    Section("notes", "Notes", "What the figures mean, and what they depend on.", _notes),
    Section("settings", "Settings", "", _settings),
    Section("cite", "How to cite", "", _citation),
)


def differing(runs: Mapping[str, Results]) -> Table:
    """Return the success rates of several runs side by side: a row a model and attack that is in two or more."""
    rows = []
    of_runs = [results.rates() for results in runs.values()]
    models = dict.fromkeys(model for rates_of in of_runs for model in rates_of)
    attacks = dict.fromkeys(attack for results in runs.values() for attack in results.attacks)
    for attack in attacks:
        for model in models:
            values = [of.get(model, {}).get(attack, math.nan) for of in of_runs]
            if np.isfinite(values).sum() > 1:
                rows.append([attack, model, *values])
    columns = [*names("attack", "model"), *(Column(name, percent) for name in runs)]
    return Table("Success rates of both runs", columns, rows)
