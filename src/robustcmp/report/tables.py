"""The tables of a run: plain values, and the format of each column."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable
from itertools import combinations, product
from typing import Any

import pandas

from ..analysis.deployments import DEPLOYED_MARGIN, SOURCE, SUCCESS
from ..analysis.figures import deviate, find_failed_starts
from ..analysis.indicator import find_published_rates, find_variants, indicator_terms, robustness_indicator
from ..analysis.outcomes import split_variance
from ..analysis.results import Results
from ..analysis.significance import ALL, OF_DISTANCES, of_distances
from ..analysis.statistics import Interval
from ..analysis.statistics.foundations import ALPHA
from ..analysis.verdicts import find_within_noise
from ..errors import UsageError
from ..records.answers import NOT_APPLICABLE
from .format import (
    EVERYTHING,
    NO_INFORMATION,
    NOTHING,
    UNBOUNDED,
    Write,
    distance,
    fixed,
    interval,
    number,
    p_value,
    percent,
    percent_2,
    plural,
    points,
    shares,
    whole,
)
from .layout import Column, Table, names
from .words import BY_SOURCE, WITHIN_NOISE, Row, write_apart, write_difference

NOT_COMPARED = "not compared"
MOST_MODELS = 8  # on a screen; other tables have them all


def tables(results: Results) -> list[Table]:
    """Return all tables of a run."""
    return [table for section in OF_SECTIONS.values() for table in section(results)]


def _rates(results: Results) -> list[Table]:
    return [_success(results), _same_weights(results)] if results.same_weights else [_success(results)]


def _of_deployments(results: Results) -> list[Table]:
    return [_networks(results), _deployments(results)] if results.has_deployments else []


def _ranks(results: Results) -> list[Table]:
    return [] if results.same_weights else [_indicator(results), *_indicator_variants(results)]


def _of_attacks(results: Results) -> list[Table]:
    """Return the tables that attacks add, and those of exact single pixel."""
    shown = [_of_attack(results, attack) for attack in results.attacks if results.attack_records[attack].table]
    if results.exact_pixel.attacks:
        shown += [_exact_rates(results), *_common_draws(results)]
    return shown


def _same_weights(results: Results) -> Table:
    """Return how many images fool one framework and not another."""
    assert results.same_weights is not None
    differ: dict[str, dict[str, int]] = results.same_weights["differ"]
    n = results.manifest["images"]["used"]
    pairs = [Column(pair.replace("|", " and "), str) for pair in next(iter(differ.values()))]
    rows = [[attack, *(f"{count} of {n}" for count in counts.values())] for attack, counts in differ.items()]
    title = "Same weights: images that fool one framework but not the other"
    return Table(title, [Column("attack"), *pairs], rows)


def _absent(results: Results, model: str, attack: str) -> str:
    """Return what stands in the place of a rate that is not there."""
    trained = [entry for entry in results.manifest["models"] if entry["name"] == model]
    return "failed" if any(attack in entry.get("failed", {}) for entry in trained) else NOT_APPLICABLE


def rates(results: Results, has_intervals: bool = True) -> Table:
    """Return one row per model: success rates with 95 % intervals, R, and clean accuracy."""
    has_ranks = len(results.models) > 1 and bool(results.indicator)
    columns = [Column("model"), *(Column(attack, str) for attack in results.attacks)]
    if has_ranks:
        columns.append(Column("R", _number_2))
    columns.append(Column("clean", percent))
    rows = []
    for model in results.models[:MOST_MODELS]:
        row: list[Any] = [model, *(_rate(results, model, attack, has_intervals) for attack in results.attacks)]
        if has_ranks:
            row.append(results.indicator[model])
        rows.append([*row, results.clean_accuracy[model]])
    title = "Images fooled"
    if has_intervals:
        title += f", 95 % intervals over {'trainings' if results.has_several_trainings else 'images'}"
    if has_ranks:
        summed = "" if results.indicator_attacks == results.attacks else f", of {', '.join(results.indicator_attacks)}"
        title += f". R{summed}: smaller is more robust"
    if len(results.models) > MOST_MODELS:
        title += f". {MOST_MODELS} of {len(results.models)} models"
    return Table(title, columns, rows)


def _rate(results: Results, model: str, attack: str, has_interval: bool) -> str:
    if not results.seeds(model, attack):
        return _absent(results, model, attack)
    rate = percent(results.rate(model, attack))
    several = len(results.seeds(model, attack)) > 1
    ends = results.trainings.interval(model, attack) if several else results.interval(model, attack)
    if not has_interval or math.isnan(ends[0]):
        return rate
    digits = 0 if ends[1] >= 0.1 else 1
    low, high = (fixed(100 * end, digits) for end in ends)
    return f"{rate} ({low}–{high})"


def _success(results: Results) -> Table:
    """Return success rates, with their intervals and standard deviations."""
    columns = [
        *names("attack", "model"),
        Column("success rate", percent),
        Column("95 % over images", interval(percent)),
        Column("sd over repeats", percent),
    ]
    if results.has_several_trainings:
        columns.append(Column("95 % over trainings", interval(percent)))
        columns.append(Column("sd over trainings", percent))
    rows = [_success_row(results, attack, model) for attack, model in product(results.attacks, results.models)]
    rounded = [results.rounded_rate(model, attack) for attack, model, *_ in rows]
    if not all(map(math.isnan, rounded)):
        columns.append(Column("in 8 bits", percent))
        for row, rate in zip(rows, rounded, strict=True):
            row.append(rate)
    if not results.same_weights:
        columns.append(Column("P", number))
        terms = indicator_terms(results.rates(results.indicator_attacks))
        within_noise = find_within_noise(results)
        for row in rows:
            term = terms[row[1]].get(row[0], math.nan)
            is_noise = row[0] in within_noise and row[1] in results.sources
            row.append(f"{number(term)} {WITHIN_NOISE}" if is_noise else term)
        if published := find_published_rates(results.manifest):
            columns.append(Column("paper", percent))
            for row in rows:
                row.append(published.get(without_version(row[1]), {}).get(row[0], math.nan))
    return Table("Success rates: the share of images on which the attack succeeds", columns, rows)


def _success_row(results: Results, attack: str, model: str) -> list[Any]:
    has_run = bool(results.seeds(model, attack))
    rate = results.rate(model, attack) if has_run else _absent(results, model, attack)
    deviation: Any = results.repeat_std(model, attack) if has_run else math.nan
    if results.attack_records[attack].deterministic:
        deviation = "deterministic"
    row = [attack, model, rate, results.interval(model, attack), deviation]
    if not results.has_several_trainings:
        return row
    if not has_run:
        return [*row, (math.nan, math.nan), math.nan]
    return [*row, results.trainings.interval(model, attack), results.trainings.std(model, attack)]


def _differences(results: Results) -> list[Table]:
    """Return the pairs of models, or of frameworks where there are several trainings, one attack after the other."""
    if results.same_weights or not (results.outcomes and results.compares_sources):
        return []
    tests = results.tests(results.level)
    pairs = tests[(tests.a != ALL) & tests.attack.isin(results.attacks)]
    if pairs.empty:
        return []
    not_compared = {outcomes.attack for outcomes in results.outcomes if outcomes.not_compared}
    pairs = pairs.assign(verdict=[_verdict(pair, not_compared) for pair in pairs.to_dict("records")])
    if results.level != "frameworks":  # here, a difference of distances is a share of images
        return [_pairs("Differences between these models, from their images, in points", pairs, points, "images")]
    far = of_distances(pairs)
    title = "Differences between frameworks, from their trainings, in points"
    shown = [_joint(tests), _pairs(title, pairs[~far], points, "trainings", results.trainings.difference_interval)]
    if far.any():
        norms = " and ".join(norm for norm, end in OF_DISTANCES.items() if pairs.test.str.endswith(end).any())
        title = f"Differences of the median {norms} between frameworks, from their trainings"
        shown.append(_pairs(title, pairs[far], distance, "trainings"))
    return shown


def _joint(tests: pandas.DataFrame) -> Table:
    """Return the tests of all frameworks together, with those that stand beside the deciding ones."""
    columns = [Column("attack"), Column("test", str), Column("statistic", number), Column("p", p_value)]
    columns += [Column("p adjusted (Holm)", p_value), Column("p adjusted (Westfall-Young)", p_value)]
    rows = [
        [row[name] for name in ("attack", "test", "statistic", "p", "p_adjusted", "p_westfall_young")]
        for row in tests[tests.a == ALL].to_dict("records")
    ]
    return Table("All frameworks together: Brown-Forsythe decides", columns, rows)


def _pairs(
    title: str, pairs: pandas.DataFrame, write: Write, over: str, over_images: Callable[..., Interval] | None = None
) -> Table:
    columns = [*names("attack", "model", "versus"), Column("test", str), Column("difference", write)]
    columns.append(Column(f"95 % over {over}, not adjusted", interval(write)))
    if over_images:
        columns.append(Column("95 % over trainings and images", interval(points)))
    columns += [Column("p adjusted", p_value), Column("verdict", str)]
    rows = []
    for pair in pairs.to_dict("records"):
        compared = [pair["attack"], pair["a"], pair["b"]]
        row = [*compared, pair["test"], pair["effect"], (pair["low"], pair["high"])]
        if over_images:
            row.append(over_images(*compared))
        rows.append([*row, pair["p_adjusted"], pair["verdict"]])
    return Table(title, columns, rows)


def _verdict(pair: dict[Hashable, Any], not_compared: Collection[str]) -> str:
    """Name the easier to fool of two that differ; a larger median distance, of frameworks, is the harder."""
    of_distances = pair["test"].endswith(tuple(OF_DISTANCES.values()))
    if of_distances and pair["attack"] in not_compared:
        return NOT_COMPARED
    if (pair["low"], pair["high"]) in (EVERYTHING, UNBOUNDED) or math.isnan(pair["p_adjusted"]):
        return NO_INFORMATION
    if pair["p_adjusted"] >= ALPHA:
        return "not significant"
    is_first = (pair["effect"] > 0) != (of_distances and pair["level"] == "frameworks")
    return f"{pair['a' if is_first else 'b']} easier to fool"


def _variance(results: Results) -> list[Table]:
    """Return the variance components of a trained model's rate, in squared points; negative estimates are kept."""
    if results.same_weights or not (results.outcomes and results.compares_sources):
        return []
    try:
        components = split_variance(results.outcomes).reset_index().to_dict("records")
    except UsageError:
        return []
    parts = {
        "framework": "between frameworks",
        "training_run": "between training runs",
        "repeat": "from repeats",
        "image": "from the choice of images",
    }
    columns = [Column("attack"), *(Column(name, _points_of_variance) for name in parts.values())]
    rows = [[row["attack"], *(row[part] for part in parts)] for row in components]
    return [Table("Variance of a trained model's rate, in squared points", columns, rows)]


def _indicator(results: Results) -> Table:
    """Return R of each model, with its range and rank shares; clean accuracy alone where no attack is for R."""
    accuracy = Column("clean accuracy", percent_2)
    if not results.indicator:
        rows = [[model, results.clean_accuracy[model]] for model in results.models]
        return Table("Accuracy on all images, without an attack", [Column("model"), accuracy], rows)
    columns = [Column("model"), Column("R", number)]
    ranges = results.indicator_ranges if len(results.models) > 1 else {}
    if ranges:
        ranks = "rank " + " / ".join(str(rank + 1) for rank in range(len(results.models)))
        columns += [Column("bootstrap range", interval(number)), Column(ranks, shares)]
    without = _without_failed_starts(results)
    columns += [*(Column(f"R without {attack}", number) for attack in without), accuracy]
    published = robustness_indicator(find_published_rates(results.manifest))
    if published:
        columns.append(Column("paper's R, with Theano", number))
    rows = []
    for model in results.models:
        row: list[Any] = [model, results.indicator[model]]
        if ranges:
            row += [ranges[model][:2], ranges[model].ranks]
        row += [*(r[model] for r in without.values()), results.clean_accuracy[model]]
        if published:
            row.append(published.get(without_version(model), math.nan))
        rows.append(row)
    return Table("Robustness indicator R: smaller is more robust", columns, rows)


def _without_failed_starts(results: Results) -> dict[str, dict[str, float]]:
    """Return R without each attack that could not begin on some images."""
    variants = find_variants(results)
    none = dict.fromkeys(results.models, 0.0)  # where no other attack is in R
    attacks = [attack for attack in find_failed_starts(results) if attack in results.indicator_attacks]
    return {attack: variants.get(f"without {attack}", none) for attack in attacks}


def _indicator_variants(results: Results) -> list[Table]:
    """Return R of each model under other rules; none where there is nothing to rank."""
    if len(results.models) < 2 or not (results.indicator_attacks and results.outcomes and results.compares_sources):
        return []
    columns = [Column("variant"), *(Column(model, number) for model in results.models)]
    rows = [
        [variant, *(r.get(model, math.nan) for model in results.models)]
        for variant, r in find_variants(results).items()
    ]
    return [Table("What R hides: R of each model", columns, rows)]


def _of_attack(results: Results, attack: str) -> Table:
    """Return the columns that an attack adds to a report, one row per model."""
    table = results.attack_records[attack].table
    assert table is not None
    columns = [
        Column("model"),
        *(Column(column.title, percent if column.percent else distance) for column in table.columns),
    ]
    rows = [
        [model, *(results.distances.column(model, attack, column) for column in table.columns)]
        for model in results.models
    ]
    return Table(f"{attack}: {table.title}", columns, rows)


def _exact_rates(results: Results) -> Table:
    """Return the expectation over all draws of positions."""
    columns = [*names("attack", "model"), Column("expected success", percent_2), Column("sd of a draw", percent_2)]
    rows = [
        [attack, model, float(p.mean(axis=1).mean()), float(deviate(p).mean())]
        for attack in results.exact_pixel.attacks
        for model, p in (results.exact_pixel.probabilities(attack) or {}).items()
    ]
    return Table("Expected success over all draws of positions (exact)", columns, rows)


def _common_draws(results: Results) -> list[Table]:
    """Return two models' expected success under the same draws, one row per pair; omitted for several trainings."""
    if results.has_several_trainings or len(results.models) < 2:
        return []
    columns = [*names("attack", "model", "versus"), Column("difference", points), Column("sd of a draw", points)]
    columns += [Column(name, percent_2) for name in ("both fooled", "only the first", "only the second")]
    rows = []
    for attack in results.exact_pixel.attacks:
        for a, b in combinations(results.models, 2):
            both = results.exact_pixel.common_draws(attack, a, b)
            rows.append([attack, a, b, both.difference, both.sd, both.both, both.only_a, both.only_b])
    title = "Expected differences over all draws of positions shared by two models (exact), in points"
    return [Table(title, columns, rows)]


def _transfer(results: Results) -> list[Table]:
    """Return transfer within and across frameworks; none where it was not measured or there is one training."""
    if results.same_weights or results.transferred is None or (blocks := results.transfer_blocks).empty:
        return []
    tested = bool(blocks.p.notnull().any())
    columns = [*names("attack", "between trainings"), Column("pairs", str)]
    columns += [Column("of all images", percent), Column("of successes", percent)]
    columns += [Column("p (within > across)", p_value)] * tested
    rows = [
        [row["attack"], row["block"], row["pairs"], row["of_all"], row["of_successes"], *[row["p"]] * tested]
        for row in blocks.to_dict("records")
    ]
    return [Table("Transfer: adversarial images of one model that also fool another", columns, rows)]


def _conditioning(results: Results) -> list[Table]:
    """Return success rates on the images that one, a few and all models classify correctly; none where not measured."""
    if results.same_weights or results.conditioned is None or len(results.labels) < 2:
        return []
    curves = results.conditioned.curve()
    sizes = sorted({1, len(results.models), len(results.labels)})
    columns = [*names("attack", "model"), *(Column(plural(size, "model"), percent) for size in sizes)]
    rates = curves.set_index(["attack", "model", "models"]).success_rate
    pairs = curves[["attack", "model"]].drop_duplicates().itertuples(index=False)
    rows = [[attack, model, *(rates[attack, model, size] for size in sizes)] for attack, model in pairs]
    return [Table("Success rates on the images that so many models classify correctly", columns, rows)]


def _lower_bound(results: Results) -> list[Table]:
    """Return PGD's success rate, which is not part of R; none where it was not measured."""
    checked = results.checked
    if checked is None or not checked.pgd or results.same_weights:
        return []
    title = f"PGD at ε = {checked.epsilon:g} on {checked.images} images, not in R: a lower bound on vulnerability"
    columns = [Column("model"), Column("success rate", percent)]
    return [Table(title, columns, [[model, math.nan if rate is None else rate] for model, rate in checked.pgd.items()])]


def _number_2(value: float) -> str:
    """Write a number with two decimals."""
    return NOTHING if math.isnan(value) else fixed(value, 2)


def _points_of_variance(value: float) -> str:
    """Write a variance of rates, in squared points of a hundred."""
    return number(1e4 * value)


def without_version(model: str) -> str:
    """Return what the paper calls a framework: torch, for torch@1.0."""
    return model.partition("@")[0]


# deployed networks beside their sources --------------------------------------------------------------------------


def _networks(results: Results) -> Table:
    """Return a row per deployment: its size and time, and how alike it answers."""
    columns = [Column("deployment"), Column("size, kB", str), Column("accuracy", percent_2)]
    columns += [Column("classes changed", percent_2), Column("logits apart", str), Column("time, 1,000", str)]
    columns += [Column("time, 10,000", str), Column("control")]
    rows: list[list[Any]] = [
        [
            row["deployment"],
            _size(row),
            row["clean_accuracy"],
            row["changed"],
            f"{row['distance']:.1e}",
            _time(row["seconds_1000"], row["time_1000"]),
            _time(row["seconds_10000"], row["time_10000"]),
            row["gate"],
        ]
        for row in results.deployed_networks.to_dict("records")
    ]
    return Table(
        "Deployed networks beside their sources (×: of the source's weights, of its time for as many images); logits "
        "apart: root mean square, in standard deviations; control: same weights, judged in float32 only",
        columns,
        rows,
    )


def _size(row: Row) -> str:
    return f"{whole(row['bytes'] / 1000)} ({fixed(row['size'], 2)} ×)"


def _deployments(results: Results) -> Table:
    """Return a row per deployment and attack: how much easier it is to fool than its source."""
    frame = results.deployments
    over = "trainings" if (frame.trainings > 1).any() else "images"
    nominally = "nominally " if over == "trainings" else ""
    columns = [Column("deployment"), Column("attack"), Column("source", str), Column("deployed", str)]
    columns += [Column("difference", str), Column("p", p_value), Column("detectable", str), Column("alone", str)]
    columns += [Column(f"within ±{points(DEPLOYED_MARGIN)}", str)]
    rows: list[list[Any]] = [
        [
            row["deployment"],
            _name_comparison(row),
            _write(row, row["source_value"]),
            _write(row, row["value"]),
            write_difference(row),
            row["p_adjusted"],
            write_apart(row, row["detectable"]),
            f"{row['only_source']:,} : {row['only_deployed']:,}",
            _within(row),
        ]
        for row in frame.to_dict("records")
    ]
    title = (
        f"Deployed minus source, rates in points, 95 % intervals over {over}; p by Holm over all rows; detectable: "
        f"{nominally}with 80 % power; alone: outcomes (trainings × repeats × images) where only the source falls, or "
        "nearer : only the deployed"
    )
    return Table(title, columns, rows)


def _name_comparison(row: Row) -> str:
    """Return an attack's name as it stands in tables of deployments: with what of it is compared, and a mark."""
    name = f"{row['attack']}{BY_SOURCE if row['gradient'] == SOURCE else ''}"
    return name if row["measure"] == SUCCESS else f"{name}, {row['measure'].removeprefix('median ')}"


def _write(row: Row, value: float) -> str:
    return percent_2(value) if row["measure"] == SUCCESS else distance(value)


def _within(row: Row) -> str:
    """Return the verdict on equivalence, which only success rates have."""
    if row["measure"] != SUCCESS:
        return NOT_COMPARED if row["not_compared"] else NOTHING
    return "shown" if row["equivalent"] else "not shown"


def _time(seconds: float, ratio: float) -> str:
    return NOTHING if math.isnan(seconds) else f"{number(seconds)} ({fixed(ratio, 2)} ×)"


# plans -----------------------------------------------------------------------------------------------------------


def designs(plan: pandas.DataFrame, difference: float, power: float) -> Table:
    """Return the designs of each attack."""
    numbers = ["trainings", "images", "repeats"]
    columns = [*names("attack", "design", "variance"), *(Column(name, whole) for name in numbers)]
    columns.append(Column("detects (points)", points))
    shown = plan[["attack", "design", "variance", *numbers, "detectable"]]
    rows = shown.astype(object).fillna(math.nan).to_numpy().tolist()
    return Table(f"To detect {points(difference)} points with {percent(power, 0)} power", columns, rows)


OF_SECTIONS: dict[str, Callable[[Results], list[Table]]] = {
    "rates": _rates,
    "deployments": _of_deployments,
    "ranks": _ranks,
    "differences": _differences,
    "variance": _variance,
    "attacks": _of_attacks,
    "transfer": _transfer,
    "conditioning": _conditioning,
    "checks": _lower_bound,
}
"""The tables of each section of a page, in the order of a report."""
