"""Tables of a run's results, for the terminal, for Markdown, and as a page."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.control import FAILED, LARGEST_LOGITS, LARGEST_OUTCOMES, LARGEST_PREDICTIONS, PASSED
from ..analysis.indicator import common_attacks, indicator_terms, reversed_pairs, robustness_indicator
from ..analysis.outcomes import Outcomes
from ..analysis.paper import published
from ..analysis.results import Results
from ..analysis.significance import ALL, ALPHA
from ..analysis.statistics.foundations import ONE_TRAINING
from ..analysis.statistics.hypotheses import f_test
from ..errors import UsageError
from ..records.checks import FAIL, NOT_APPLICABLE, PASS, Check, Checked

L2_BUDGETS = (1, 2, 3, 5)
SHOWN_IMAGES = 6
NAMED = 3  # models of which a failed check gives its figure
WITHIN_NOISE = "(within noise)"


@dataclass(frozen=True)
class Table:
    """A heading, the names of the columns, and rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(results: Results) -> list[Table]:
    """Return the tables of a run: success rates, the indicator, and one for each boundary attack."""
    walks = [_boundary(results, attack) for attack in results.attacks if results.has_start(attack)]
    expected = [_expected(results), *_common_draws(results)] if results.exact else []
    if results.same_weights:
        return [_success(results), _same_weights(results), *walks, *expected]
    more = [_transfer(results)] if results.transferred is not None and len(results.labels) > 1 else []
    more += [_lower_bound(results.checked)] if results.checked else []
    hidden = [_hidden(results)] if len(results.models) > 1 else []
    real = [*hidden, *_differences(results), *_variance(results)]
    return [_success(results), _indicator(results), *real, *walks, *expected, *more]


def _same_weights(results: Results) -> Table:
    """How many images fall in one framework and not in another."""
    assert results.same_weights is not None
    differ: dict[str, dict[str, int]] = results.same_weights["differ"]
    n = results.manifest["images"]["used"]
    rows = [[attack, *(f"{count} of {n}" for count in pairs.values())] for attack, pairs in differ.items()]
    pairs = [pair.replace("|", " and ") for pair in next(iter(differ.values()))]
    return Table("The same weights: images that fall in one framework and not in the other", ["attack", *pairs], rows)


def _success(results: Results) -> Table:
    several = results.has_several_trainings
    rates, terms = results.rates(), indicator_terms(results.rates())
    columns = ["attack", "model", "success rate", "95 % over images", "sd over repeats"]
    columns += ["95 % over trainings", "sd over trainings"] if several else []
    beside = not results.same_weights  # each other, and the paper
    paper = results.paper if beside else {}
    columns += ["P"] * beside + ["paper"] * bool(paper)
    rows = []
    for attack in results.attacks:
        for model in results.models:
            row = [attack, model, _percent(rates[model][attack]), _range(results.interval(model, attack))]
            deterministic = results.deterministic(attack)
            row.append("deterministic" if deterministic else _percent(results.repeat_std(model, attack)))
            if several:
                row += [_range(results.training_interval(model, attack)), _percent(results.seed_std(model, attack))]
            noise = f" {WITHIN_NOISE}" if attack in results.within_noise else ""
            row += [_number(terms[model].get(attack, math.nan)) + noise] * beside
            row += [_percent(paper.get(_without_version(model), {}).get(attack, math.nan))] * bool(paper)
            rows.append(row)
    return Table("Success rates: the share of images that fall", columns, rows)


def _differences(results: Results) -> list[Table]:
    """The pairs of models, or of frameworks where there are several trainings, one attack after the other."""
    try:
        tests = results.tests(results.level)
    except UsageError:  # statsmodels is not installed; the notes say so
        return []
    pairs = tests[(tests.a != ALL) & tests.attack.isin(results.attacks)]
    if pairs.empty:
        return []
    of_frameworks = results.level == "frameworks"
    over = "trainings" if of_frameworks else "images"
    columns = ["attack", "model", "beside", "test", "difference", f"95 % over {over}, not adjusted"]
    columns += ["95 % over trainings and images"] * of_frameworks + ["p adjusted", "verdict"]
    rows = []
    for pair in pairs.to_dict("records"):
        attack, a, b = pair["attack"], pair["a"], pair["b"]
        row = [attack, a, b, pair["test"], _points(pair["effect"]), _range((pair["low"], pair["high"]), _points)]
        if of_frameworks:
            row.append(_range(results.wider_interval(attack, a, b), _points))
        rows.append([*row, _p(pair["p_adjusted"]), "differ" if pair["p_adjusted"] < ALPHA else "not told apart"])
    what = "Frameworks, from their trainings" if of_frameworks else "Models, on images like these"
    return [Table(f"{what}: differences in points", columns, rows)]


def headline(results: Results) -> list[str]:
    """Return what the comparison says of the frameworks, a sentence an attack: is it the framework, or the seed?"""
    if results.same_weights or len(results.models) < 2:
        return []
    if results.level != "frameworks":
        ones = (
            [name for name, seeds in results.outcomes[0].seeds.items() if len(seeds) == 1] if results.outcomes else []
        )
        if len(ones) < len(results.models):
            return [
                f"One training of {', '.join(ones)}: nothing can be said of frameworks. Name several --training-seeds."
            ]
        return [f"{ONE_TRAINING} Name several --training-seeds to ask about frameworks."]
    sentences, shares = [], {}
    try:
        shares = results.variance().to_dict("index")
    except UsageError as error:
        sentences.append(f"No shares of variance: {error}")
    for its in results.outcomes:
        means = [float(rates.mean()) for rates in its.rates.values()]
        within = math.sqrt(np.mean([rates.var(ddof=1) for rates in its.rates.values()]))
        sentence = (
            f"{its.attack}: the framework means differ by at most {_points(max(means) - min(means))} points "
            f"({_joint_p(results, its)}); two trainings of one framework differ by {_points(within)} points (standard "
            "deviation)."
        )
        if shares:
            share, low, high = (_percent(shares[its.attack][end], 0) for end in ("share", "low", "high"))
            sentence += (
                f" The share of the variance between trained models that lies between frameworks is estimated as "
                f"{share} ({low} to {high}; for frameworks in general, estimated from {len(means)} of them; wide by "
                "nature)."
            )
            if shares[its.attack]["high"] == 0:
                sentence += (
                    " Not even 0 % fits: the means are nearer to each other than chance has them in 39 of 40 cases."
                )
        sentences.append(sentence)
    return sentences


def _joint_p(results: Results, its: Outcomes) -> str:
    """Say the p value of the joint test of frameworks, adjusted for the attacks where statsmodels is installed."""
    p, adjusted = f_test(list(its.rates.values())).p, "not adjusted"
    with suppress(UsageError):
        tests = results.tests("frameworks")
        joint = tests[tests.a == ALL]
        [p] = joint.p_adjusted[joint.attack == its.attack]
        adjusted = f"adjusted for {len(joint)} attack{'s' * (len(joint) != 1)}"
    said = _p(float(p))
    return f"p {said if said.startswith('<') else f'= {said}'}, joint test, {adjusted}"


def _variance(results: Results) -> list[Table]:
    """Where the variance of a trained model's rate lies, in squared points; negative estimates as they are."""
    try:
        rows = results.variance().reset_index().to_dict("records")
    except UsageError:
        return []
    parts = ("framework", "training_run", "repeat", "image")
    drawn = [[row["attack"], *(_number(1e4 * row[part]) for part in parts)] for row in rows]
    columns = ["attack", "between frameworks", "between training runs", "from repeats", "from the choice of images"]
    return [Table("Variance of a trained model's rate, in squared points", columns, drawn)]


def _indicator(results: Results) -> Table:
    rates, failed = results.rates(), results.failed_starts
    ranges = results.indicator_ranges if len(results.models) > 1 else {}
    ranks = "rank " + " / ".join(str(rank + 1) for rank in range(len(results.models)))
    columns = ["model", "R", *(["bootstrap range", ranks] if ranges else [])]
    columns += [*(f"R without {attack}" for attack in failed), "clean accuracy"]
    paper = robustness_indicator(results.paper) if results.paper else {}
    columns += ["paper's R, beside Theano"] if paper else []
    without = [
        robustness_indicator({m: {a: r for a, r in its.items() if a != attack} for m, its in rates.items()})
        for attack in failed
    ]
    rows = [
        [
            model,
            _number(results.indicator[model]),
            *([_range(ranges[model][:2], _number), _shares(ranges[model].ranks)] if ranges else []),
            *(_number(other[model]) for other in without),
            _percent(results.clean_accuracy[model], 2),
            *([_number(paper.get(_without_version(model), math.nan))] if paper else []),
        ]
        for model in results.models
    ]
    return Table("Robustness indicator R: smaller is more robust", columns, rows)


def _hidden(results: Results) -> Table:
    rows = [
        [variant, *(_number(r.get(model, math.nan)) for model in results.models)]
        for variant, r in results.indicator_variants.items()
    ]
    return Table("What R hides: R of each model", ["variant", *results.models], rows)


def _order_notes(results: Results) -> list[str]:
    """Say under which variants of R models change places."""
    whole = results.indicator_variants["all"]
    changed = {
        variant: ", ".join(f"{b} before {a}" for a, b in pairs)
        for variant, r in results.indicator_variants.items()
        if (pairs := reversed_pairs(whole, r))
    }
    if not changed:
        return []
    each = "; ".join(f"{variant}: {pairs}" for variant, pairs in changed.items())
    return [f"The order of the models by R changes, the more robust named first: {each}."]


def _boundary(results: Results, attack: str) -> Table:
    columns = ["model", "with a start", *(f"L2 ≤ {budget}" for budget in L2_BUDGETS), "median L2"]
    rows = [
        [
            model,
            _percent(results.start_share(model, attack)),
            *(_percent(results.success_within(model, attack, budget)) for budget in L2_BUDGETS),
            _number(results.distance_quantile(model, attack)),
        ]
        for model in results.models
    ]
    return Table(f"{attack}: starts, success within an L2 distance, and the median distance", columns, rows)


def _expected(results: Results) -> Table:
    rate = results.expected_success_rate.mean("training_seed")
    sd = results.expected_success_sd.mean("training_seed")
    rows = [
        [attack, model, *(_percent(float(of.sel(model=model, attack=attack)), 2) for of in (rate, sd))]
        for attack in results.exact
        for model in results.models
    ]
    return Table("Exact, over all draws of positions", ["attack", "model", "expected success", "sd of a draw"], rows)


def _common_draws(results: Results) -> list[Table]:
    """What two models' success under the same draws comes to, a row a pair; of several trainings there are too many."""
    if results.has_several_trainings or len(results.models) < 2:
        return []
    rows = []
    for attack in results.exact:
        for a, b in combinations(results.models, 2):
            found = results.common_draws(attack, a, b)
            shares = (_percent(share, 2) for share in (found.both, found.only_a, found.only_b))
            rows.append([attack, a, b, _points(found.difference), _points(found.sd), *shares])
    columns = [
        "attack",
        "model",
        "beside",
        "difference",
        "sd of a draw",
        "both fall",
        "only the first",
        "only the other",
    ]
    return [Table("Exact, over all draws of positions that two models share: differences in points", columns, rows)]


def _transfer(results: Results) -> Table:
    found = results.transfer_blocks
    columns = ["attack", "between trainings", "pairs", "of all images", "of those that fell"]
    tested = bool(found.p.notnull().any())
    columns += ["p, more than across"] * tested
    rows = []
    for row in found.to_dict("records"):
        cells = [row["attack"], row["block"], str(row["pairs"]), _percent(row["of_all"]), _percent(row["of_successes"])]
        rows.append([*cells, *["–" if math.isnan(row["p"]) else _p(row["p"])] * tested])
    return Table("Transfer: adversarial images of one model that also fool another", columns, rows)


def _lower_bound(checked: Checked) -> Table:
    title = f"PGD at ε = {checked.epsilon:g}, on {checked.images} images and not in R: a lower bound on vulnerability"
    return Table(title, ["model", "success rate"], [[model, _percent(rate)] for model, rate in checked.pgd.items()])


def _without_version(model: str) -> str:
    """Return what the paper calls a framework: torch, for torch@1.0."""
    return model.partition("@")[0]


def _check_notes(checked: Checked) -> list[str]:
    """Return how many checks passed, and of those that did not the figure and what to do."""
    counts = {
        outcome: [its.outcome for its in checked.checks].count(outcome) for outcome in (PASS, FAIL, NOT_APPLICABLE)
    }
    total = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    failed: dict[str, list[Check]] = {}
    for its in checked.checks:
        if its.outcome == FAIL:
            failed.setdefault(its.check, []).append(its)
    text = [f"Health checks on {checked.images} images: {total}."]
    for check, models in failed.items():
        named = [f"{one.model}: {one.figure}" for one in models[:NAMED]]
        if len(models) > NAMED:
            named.append(f"and {len(models) - NAMED} more, see `ev.checks`")
        text.append(f"Failed: {check}: {'; '.join(named)}. {models[0].advice}")
    return text


def notes(results: Results) -> list[str]:
    """Return the sentences that belong under the tables: what the figures are conditional on, and what R is not."""
    images, manifest = results.manifest["images"], results.manifest
    count = len(manifest["models"])
    classify = f"all {count} models classify" if count > 1 else "the model classifies"
    repeats = f"{manifest['repeats']} repeat{'s' * (manifest['repeats'] != 1)}"
    repeats += "".join(f" ({attack} {count})" for attack, count in results.own_repeats.items())
    settings = f"{images['used']} images, {repeats}, suite {manifest['suite']['name']}, seed {manifest['seed']}."
    conditional = (
        f"Conditional on images that {classify} correctly ({_percent(results.correct_by_all)} of the test set)"
    )
    if results.same_weights:
        return [*_control_notes(results), f"{conditional}.", settings]
    text = [
        f"{conditional}; adding or removing a model changes the subset, every rate and R.",
        f"{settings} R compares only the models beside each other: 0 and 1 in P are the least and the most easily "
        "fooled of them, however near they are.",
    ]
    if images["used"] < images["asked"]:
        text.append(f"Only {images['used']} of the {images['asked']} images that were asked for could be had.")
    best = max(results.clean_accuracy.values())
    for model, accuracy in results.clean_accuracy.items():
        if accuracy < best / 2:
            text.append(
                f"{model} classifies only {_percent(accuracy)} of the test set correctly: before its rates are read, "
                "look at its bounds, its preprocessing, and what it was trained on."
            )
    if len(results.labels) == 1:
        text.append("One model alone: there is nothing to compare, and P and R are 0.")
    elif len(results.models) == 1:
        text.append("One framework alone: P and R are 0, and the pairs are its own trainings.")
    left_out = [attack for attack in results.attacks if attack not in common_attacks(results.rates())]
    if left_out:
        text.append(f"Not in R, as not every model ran it: {', '.join(left_out)}.")
    for attack in results.failed_starts:
        text.append(
            f"{attack}: start failed, not robustness. Where an image has no start, the attack could not begin; R is "
            "also given without it."
        )
    for attack in results.attacks:
        if results.has_start(attack) and manifest["suite"]["attacks"][attack]["settings"]["iterations"] <= 100:
            text.append(
                f"{attack}: with as few iterations as the paper's 100 success means that a start was found; the "
                "distances say more, and the suite boundary-long runs it long enough to."
            )
    foolbox = [a for a, spec in manifest["suite"]["attacks"].items() if spec["class"] == "FoolboxAttack"]
    if foolbox:
        text.append(
            f"{', '.join(foolbox)}: Foolbox's own, at the largest epsilon; its draws depend on the batch size and the "
            "framework."
        )
    trained = [model for model in manifest["models"] if "differences" in model["info"]]
    differences = {model["framework"]: model["info"]["differences"] for model in trained}
    for kind in dict.fromkeys(kind for its in differences.values() for kind in its):
        each = "; ".join(f"{framework}: {its[kind]}" for framework, its in differences.items() if kind in its)
        text.append(f"The frameworks' own {kind} stays: {each}. The rest of the training is the same in all of them.")
    text += _order_notes(results) if len(results.models) > 1 else []
    text += _significance_notes(results)
    text += (
        _check_notes(results.checked) if results.checked else ["Health checks: not made; `ev.run_checks()` makes them."]
    )
    if results.paper:
        text.append("paper: Guo et al., Fig. 6, on their own trainings and their own subset.")
    return text


def _significance_notes(results: Results) -> list[str]:
    if len(results.labels) < 2:
        return []
    over = "images and trainings" if results.has_several_trainings else "images"
    held = [name for name, seeds in results.outcomes[0].seeds.items() if len(seeds) == 1] if results.outcomes else []
    if results.has_several_trainings and held:
        over += f" (the one training of {', '.join(held)} stays)"
    text = [
        f"Bootstrap range: what R lies between in 95 % of the resamples of {over}; no confidence interval, as the "
        "smallest and the largest rate make R irregular. Rank: the shares of resamples in which a model has the "
        "smallest R, the second smallest, and so on."
    ]
    try:
        results.tests(results.level)
    except UsageError as error:
        return [*text, f"No tests: {error}."]
    if results.within_noise:
        text.append(
            f"{WITHIN_NOISE}: a joint test of all {results.level} finds nothing for {', '.join(results.within_noise)}, "
            "so P ranks what may be chance."
        )
    if results.has_several_trainings and held:
        text.append("P compares means over trainings with one training alone; no test is about that.")
    unit = "the training run is the unit" if results.level == "frameworks" else "the image is the unit"
    return [
        *text,
        f"Differences: {unit}; for L2 it is the share of images fooled nearer in the one less that in the other. "
        '"differ" and "not told apart" follow the p values that Holm adjusts for all pairs and attacks; an interval is '
        "one pair's, before adjustment, and the two may disagree.",
        *(
            f"{attack}: tests, differences and variances are about the expectation over all draws of positions, the "
            f"success rates, P and R about the {results.repeats(attack)} that were made."
            for attack in results.exact
        ),
    ]


def _control_notes(results: Results) -> list[str]:
    control = results.same_weights
    assert control is not None
    infos = [model["info"] for model in results.manifest["models"]]
    trained = next(info["same_weights"] for info in infos if "same_weights" in info)
    return [
        PASSED if control["passed"] else FAILED,
        f"The weights of {trained} in every framework. The largest difference of logits is {control['logits']:.1e} of "
        f"their standard deviation (at most {LARGEST_LOGITS:g} passes); {_percent(control['predictions'], 2)} of the "
        f"predictions on the whole test set differ (at most {_percent(LARGEST_PREDICTIONS)}).",
        f"Under FGSM and single pixel at most {_percent(LARGEST_OUTCOMES)} of the images may differ; the boundary "
        "attack parts at the first near tie, and its success is about starts. No R: there is nothing to rank.",
    ]


def title(results: Results) -> str:
    """Return the heading of a run."""
    about = results.manifest["about"]
    what = " on ".join(about[key] for key in ("model", "dataset") if key in about)
    return " — ".join(part for part in (what, results.manifest["suite"]["name"]) if part)


def to_text(results: Results, width: int | None = None, color: bool = False) -> str:
    """Return the tables and notes for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    stream = io.StringIO()
    console = Console(
        file=stream, width=width or 140, force_terminal=color, markup=False, highlight=False, force_jupyter=False
    )
    console.print(title(results), style="bold underline")
    for sentence in headline(results):
        console.print(sentence)
    for table in tables(results):
        console.print(f"\n{table.title}", style="bold")
        drawn = RichTable(box=SIMPLE_HEAD, show_edge=False)
        for i, column in enumerate(table.columns):
            drawn.add_column(column, justify="left" if _is_name(table, i) else "right")
        for row in table.rows:
            drawn.add_row(*row)
        console.print(drawn)
    console.print()
    for note in notes(results):
        console.print(f"• {note}")
    return stream.getvalue()


def to_markdown(results: Results) -> str:
    """Return the tables and notes as Markdown."""
    parts = [f"{sentence}" for sentence in headline(results)]
    for table in tables(results):
        rule = ["---" if _is_name(table, i) else "---:" for i in range(len(table.columns))]
        rows = ([cell.replace("|", "\\|") for cell in row] for row in (table.columns, rule, *table.rows))
        lines = [" | ".join(row) for row in rows]
        parts.append(f"**{table.title}**\n\n" + "\n".join(f"| {line} |" for line in lines))
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes(results))]) + "\n"


def to_html(results: Results) -> str:
    """Return one self-contained page: the tables, the notes, and a few adversarial images."""
    from jinja2 import Environment

    template = (files("robustcmp.resources") / "report.html").read_text(encoding="utf-8")
    return (
        Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        .from_string(template)
        .render(
            title=title(results),
            headline=headline(results),
            tables=tables(results),
            notes=notes(results),
            is_name=_is_name,
            galleries=[gallery for attack in results.attacks for gallery in _gallery(results, attack)],
            environment=results.manifest["environment"],
            models=results.manifest["models"],
            paper=published()["settings"] if results.paper else None,
        )
    )


def _is_name(table: Table, column: int) -> bool:
    return table.columns[column] in ("attack", "model", "beside", "test", "verdict", "between trainings", "variant")


def _gallery(results: Results, attack: str) -> list[dict[str, Any]]:
    """Return, for each model, its first adversarial images with what they are taken for."""
    galleries = []
    for model in results.models:
        if not results.has_adversarials(model, attack):
            continue
        outcome = results.dataset.sel(model=model, attack=attack, training_seed=results.first_seed(model)).isel(
            repeat=0
        )
        images = results.adversarials(model, attack)
        shown = [
            {
                "source": _png(images[i]),
                "caption": f"{int(outcome.label[i])} taken for {int(outcome.adversarial_class[i])}, "
                f"L2 {float(outcome.l2[i]):.2f}",
            }
            for i in np.flatnonzero(outcome.success.values)[:SHOWN_IMAGES]
        ]
        if shown:
            galleries.append({"attack": attack, "model": model, "images": shown})
    return galleries


def _png(image: NDArray[np.float32]) -> str:
    """Return an image (H, W, C) in [0, 1] as a data URI."""
    from PIL import Image

    pixels = np.rint(image * 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(stream, format="PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _fixed(value: float, digits: int) -> str:
    """A number with so many decimals; the order of a sum does not decide whether 2.45 becomes 2.4 or 2.5."""
    return f"{round(value, 9):.{digits}f}"


def _percent(value: float, digits: int = 1) -> str:
    return "–" if math.isnan(value) else f"{_fixed(100 * value, digits)} %"


def _shares(values: Sequence[float]) -> str:
    return " / ".join(f"{100 * value:.0f}" for value in values) + " %"


def _points(value: float) -> str:
    """A difference of rates in points of a hundred, with two decimals below one point."""
    return "–" if math.isnan(value) else _fixed(100 * value, 1 if abs(value) >= 0.01 or value == 0 else 2)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _range(ends: Sequence[float], write: Callable[[float], str] = _percent) -> str:
    return "–" if any(map(math.isnan, ends)) else " to ".join(write(end) for end in ends)


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else _fixed(value, 3)
