"""Write the tables of the runs in this folder into the pages that have marks for them.

``python docs/results/tables.py``
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from functools import cache, partial
from itertools import combinations, groupby, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution
from scipy.stats import t as student_t

import robustcmp as rc
from robustcmp.analysis.indicator import read_published
from robustcmp.analysis.results import Results, open_results
from robustcmp.analysis.statistics.hypotheses import brown_forsythe, holm, mcnemar, paired_t, standard_error
from robustcmp.analysis.statistics.variance import interaction_variance
from robustcmp.analysis.verdicts import Verdict
from robustcmp.networks.weights import read_weights
from robustcmp.report.format import distance, p_value, percent, points
from robustcmp.report.text import summary, to_markdown
from robustcmp.report.words import answer_deployed

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from prediction import Prediction, predict  # noqa: E402
from published_rates import describe, fingerprints, probability, read_rates  # noqa: E402

ROOT = HERE.parents[1]
PAGES = {
    "README.md": False,
    "docs/results.md": True,
    "docs/is-it-the-framework.md": True,
    "docs/the-paper-again.md": True,
    "docs/why-the-pixels-differ.md": True,
    "docs/does-deploying-change-robustness.md": True,
}  # and whether they have all tables
RUNS = sorted(path.parent.relative_to(HERE).as_posix() for path in HERE.glob("**/results.h5"))
# What was compared in each run, and the heading that has its details.
COMPARED = {
    "lenet5-mnist-ten-trainings": ("LeNet-5", "is-it-the-framework.md#lenet-5"),
    "lenet1-mnist-ten-trainings": ("LeNet-1", "is-it-the-framework.md#lenet-1"),
    "lenet5-mnist-2018-five-trainings": ("LeNet-5", "the-paper-again.md#lenet-5-the-papers-fig-6-beside-ours"),
    "lenet1-mnist-2018-five-trainings": ("LeNet-1", "the-paper-again.md#lenet-1"),
    "lenet5-mnist-boundary-long": ("LeNet-5", "is-it-the-framework.md#boundary-run-to-convergence"),
    "resnet20-cifar10-boundary-long": ("ResNet-20", "is-it-the-framework.md#the-same-for-resnet-20"),
    "lenet5-digits": ("LeNet-5", "#lenet-5-on-digits"),
    "lenet5-mnist-guo2019": ("LeNet-5", "#lenet-5-on-mnist"),
    "resnet20-cifar10-guo2019": ("ResNet-20", "#resnet-20-on-cifar-10"),
}
PAPERS = (3, 6)  # models in a comparison of the paper's: of one network, and of both of a dataset
RUNTIME = "onnxruntime-int8"
ROUNDING = 1e-9
ENOUGH_TRAININGS = 10  # of each framework: from here on, power by the formula is about that of simulations
FIRST = 5  # what the comparison says, and two tables with their titles


MARKED = re.compile(r"(?P<start><!-- (?P<name>[^/].*?) -->\n)(?P<table>.*?)(?P<end><!-- /(?P=name) -->)", re.DOTALL)


def page(text: str, whole: bool) -> str:
    """Return a page with what belongs between its marks: ``<!-- NAME -->``, and ``<!-- /NAME -->`` after the table."""
    return MARKED.sub(lambda marks: f"{marks['start']}\n{make(marks['name'], whole)}\n\n{marks['end']}", text)


def make(name: str, whole: bool) -> str:
    """Return what has a name: of a run its tables, or a part of them, or a table over several runs."""
    if name in RUNS:
        return tables(name, whole)
    start, _, part = name.partition(", ")
    if start in ("answers", "fingerprints"):
        return answers(part) if start == "answers" else setups(part)
    return OF_RUN[part](start) if part else OF_ALL[name]()


@cache
def open_run(run: str) -> Results:
    """Return a run of this folder, which several tables read."""
    return open_results(HERE / run)


def screen(run: str) -> str:
    """What is printed of a run."""
    return f"```text\n{summary(open_run(run))}\n```"


def tables(run: str, whole: bool) -> str:
    """The tables of a run, or the first of them."""
    blocks = to_markdown(open_run(run)).rstrip().split("\n\n")
    return "\n\n".join(blocks if whole else blocks[:FIRST])


def deployed(run: str) -> str:
    """What a run says of deployed networks: the answer, and how they differ from their sources."""
    blocks = to_markdown(open_run(run)).rstrip().split("\n\n")
    wanted = [position for position, block in enumerate(blocks) if block.startswith("**Deploy")]
    return "\n\n".join(
        [
            f"> {answer_deployed(open_run(run))}",
            *(block for position in wanted for block in blocks[position : position + 2]),
        ]
    )


def clipping() -> str:
    """Return single pixel on networks whose quantiser clips beside those whose does not, image by image."""
    pairs = []
    for run in ("resnet20-cifar10-deployed-percentiles", "resnet20-cifar10-deployed-minmax-five-trainings"):
        success = open_run(run).dataset.success.sel(attack="single_pixel", repeat=0)
        for name, seed in product(success.model.values.tolist(), success.training_seed.values.tolist()):
            if name.startswith("onnxruntime-int8") and not name.endswith("minmax"):
                clips, widest = (success.sel(model=m, training_seed=seed).values for m in (name, f"{RUNTIME}-minmax"))
                pairs.append((name, run.endswith("-five-trainings"), seed, clips.astype(bool), widest.astype(bool)))
    adjusted = holm([mcnemar(clips, widest).p for *_, clips, widest in pairs])
    lines = [
        "| percentile | training | it falls | min-max falls | it alone : min-max alone | p, McNemar, Holm |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (name, is_of_five, seed, clips, widest), p in zip(pairs, adjusted, strict=True):
        percentile = name.partition("-p")[2] or "99.99"
        which = f"{seed + 1} of 5" if is_of_five else "the one above"
        alone = f"{(clips & ~widest).sum()} : {(widest & ~clips).sum()}"
        rates = f"{percent(clips.mean())} | {percent(widest.mean())}"
        lines.append(f"| {percentile} | {which} | {rates} | {alone} | {p_value(p)} |")
    five = [(clips, widest) for *_, is_of_five, _, clips, widest in pairs if is_of_five]
    of_clipping, of_widest = (np.array([pair[column].mean() for pair in five]) for column in (0, 1))
    alone = f"{sum((a & ~b).sum() for a, b in five)} : {sum((b & ~a).sum() for a, b in five)}"
    rates = f"{percent(of_clipping.mean())} | {percent(of_widest.mean())}"
    lines.append(f"| 99.99 | all five | {rates} | {alone} | {p_value(paired_t(of_clipping, of_widest).p)}, paired t |")
    return "\n".join(lines)


def answers(level: str) -> str:
    """The verdict on each attack, run by run, of the runs that compare on this level."""
    attacks = ("fgsm", "single_pixel", "boundary")
    rows = [
        f"| run | {' | '.join(attack.replace('_', ' ') for attack in attacks)} |",
        "| --- | --- | --- | --- |",
    ]
    for run, (network, heading) in COMPARED.items():
        ev = open_run(run)
        verdicts = {verdict.attack: verdict for verdict in ev.verdicts}
        if next(iter(verdicts.values())).level != level:
            continue
        trainings = len(ev.training_seeds)
        compared = f"{network} in {', '.join(ev.models)}; {trainings} training{'s' * (trainings > 1)} each"
        cells = [answer(verdicts[attack], _is_nominal(ev)) if attack in verdicts else "–" for attack in attacks]
        rows.append(f"| [{run}]({heading}): {compared} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _is_nominal(results: Results) -> bool:
    """Return whether trainings are too few for what is called detectable to be detected as often as is said."""
    return results.level == "frameworks" and min(map(len, results.outcomes[0].rates.values())) < ENOUGH_TRAININGS


def answer(verdict: Verdict, nominal: bool) -> str:
    """One verdict in a few words."""
    if verdict.different is None:
        return f"no information: {verdict.why}"
    what = {"success rate": "", "median L2": " in median L2", "nearness": " of nearness"}[verdict.measure]
    difference, detectable = (
        distance(value) if verdict.measure == "median L2" else f"{points(value)} points"
        for value in (verdict.difference, verdict.detectable)
    )
    difference += what
    p = f"p = {p_value(verdict.p_adjusted)}".replace("= <", "<")
    easier = f", {verdict.easier} easier to fool than {verdict.harder}" * bool(verdict.easier)
    if verdict.different:
        return f"**significant difference** (joint {p}): {difference}{easier}"
    difference += easier
    if verdict.few:
        return f"no significant difference: {difference} ({p}); {verdict.few}, too few to say more"
    power = f"{'nominally ' * nominal}with 80 % power"
    return f"no significant difference: {difference} ({p}); {detectable} would have been detected {power}"


def one_training_each(run: str) -> str:
    """What one training of each framework would have said, over all ways of picking them from a run."""
    ev = open_run(run)
    rates = ev.success_rate.mean("repeat").transpose("model", "training_seed", "attack").values
    orders: Counter[tuple[tuple[str, ...], ...]] = Counter()
    spreads = []
    for picked in product(range(rates.shape[1]), repeat=len(ev.models)):
        these = {
            model: dict(zip(ev.attacks, rates[i, seed], strict=True))
            for i, (model, seed) in enumerate(zip(ev.models, picked, strict=True))
        }
        r = rc.robustness_indicator(these)
        orders[order(r)] += 1
        spreads.append(np.ptp([its["fgsm"] for its in these.values()]))
    total = sum(orders.values())
    low, median, high = (f"{100 * value:.1f}" for value in np.quantile(spreads, (0.025, 0.5, 0.975)))
    rows = [
        f"| {' before '.join(' and '.join(place) for place in order)} | {count} | {count / total:.0%} |"
        for order, count in orders.most_common()
    ]
    first: Counter[str] = Counter()
    for (place, *_), count in orders.items():
        first.update({model: count / len(place) for model in place})
    said = ", ".join(f"{model} in {share / total:.0%}" for model, share in first.most_common())
    paper = [ev.paper[model]["fgsm"] for model in ev.paper]
    reached = sum(spread >= np.ptp(paper) for spread in spreads)
    return "\n".join(
        [
            "| order by R, the most robust first | ways of picking | of all |",
            "| --- | ---: | ---: |",
            *rows,
            "",
            f"Of {total:,} ways, the most robust is {said} (ties shared). The three FGSM rates differ by {low} to "
            f"{high} points in 95 % of them, in half of them by more than {median}, at most by "
            f"{100 * max(spreads):.1f}; the paper's three by {100 * np.ptp(paper):.1f}, which {reached} of the "
            f"{total:,} ways reach.",
        ]
    )


def order(r: dict[str, float]) -> tuple[tuple[str, ...], ...]:
    """Return the models place by place, the most robust first; those of one R share a place."""
    ranked = sorted(r, key=lambda model: r[model])
    return tuple(tuple(place) for _, place in groupby(ranked, lambda model: round(r[model], 9)))


def told_apart() -> str:
    """How many pairs of single networks are told apart, in the runs of ten trainings, within a framework and across."""
    rows = [
        "| run | test | pairs of one framework told apart | pairs of two frameworks told apart |",
        "| --- | --- | ---: | ---: |",
    ]
    for run in (run for run in RUNS if run.endswith("-ten-trainings")):
        pairs = open_run(run).tests("models").query("b != ''")
        pairs = pairs.assign(
            within=pairs.a.str.split("/").str[0] == pairs.b.str.split("/").str[0], told=pairs.p_adjusted < 0.05
        )
        for (attack, test), pairs_of_test in pairs.groupby(["attack", "test"], sort=False):
            counts = [
                f"{told.sum()} of {len(told)} ({told.mean():.0%})"
                for told in (pairs_of_test.told[pairs_of_test.within], pairs_of_test.told[~pairs_of_test.within])
            ]
            rows.append(f"| {run} | {attack}: {test} | {counts[0]} | {counts[1]} |")
    return "\n".join(rows)


def spread() -> str:
    """How much of the seed's share of the variance is what these images do to one training and not to another."""
    lines = [
        "| network | attack | the framework | the seed | of which these images |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for run in ("lenet5-mnist-ten-trainings", "lenet1-mnist-ten-trainings"):
        ev = open_run(run)
        components = ev.variance()
        for outcomes in ev.outcomes:
            attack, values = outcomes.attack, outcomes.image_means
            if not values.var():  # every image falls, or none
                continue
            of_frameworks = np.split(values, len(ev.models))  # of equally many trainings
            of_images = np.mean([interaction_variance(trainings) for trainings in of_frameworks]) / values.shape[1]
            framework, seed = components.loc[attack, ["framework", "training_run"]]
            whole = max(framework, 0) + seed
            shares = (max(framework, 0) / whole, seed / whole, min(of_images, seed) / whole)
            written = " | ".join(percent(share, 0) for share in shares)
            lines.append(f"| {COMPARED[run][0]} | {attack.replace('_', ' ')} | {written} |")
    return "\n".join(lines)


def three_and_five() -> str:
    """What three trainings of ResNet-20 in each framework showed, and five; each on the images of its run."""
    rows = []
    for run in (run for run in RUNS if run.startswith("reference/resnet20-cifar10-")):
        ev = open_run(run)
        for outcomes, verdict in zip(ev.outcomes, ev.verdicts, strict=True):
            if verdict.different is None:
                continue
            of_all = outcomes.medians if verdict.norm else outcomes.rates
            means = [distance(v.mean()) if verdict.norm else percent(v.mean()) for v in of_all.values()]
            counts = [f"{ev.dataset.sizes['image']:,}", str(len(ev.training_seeds))]
            cells = [verdict.measure, *counts, ", ".join(means), p_value(verdict.p_adjusted)]
            widest = max(np.ptp(values) for values in of_all.values())
            for value in (verdict.difference, verdict.detectable, widest):
                cells.append(distance(value) if verdict.norm else f"{points(value)} points")
            rows.append((outcomes.attack, *cells))
    lines = [
        "| attack | measure | images | trainings each | means | p | means differ by | detectable | "
        "largest range in a framework |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
        *(f"| {' | '.join(row)} |" for row in sorted(rows)),
    ]
    return "\n".join(lines)


def equal_seeds() -> str:
    """Whether trainings of one seed fare alike, and frameworks differ once that is allowed for; all p unadjusted."""
    lines = [
        "| run | of each training | frameworks, trainings independent | frameworks, seeds as blocks | seeds |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for run in RUNS:
        ev = open_run(run)
        if ev.level != "frameworks" or ev.has_deployments or ev.twins or len(ev.training_seeds) < 3:
            continue
        for outcomes in ev.outcomes:
            for measure, of_all in (("success", outcomes.rates), (f"median {outcomes.norm}", outcomes.medians)):
                values = np.array(list(of_all.values()))
                if values.size and np.ptp(values) > ROUNDING:
                    cells = " | ".join(map(p_value, (brown_forsythe(list(values)).p, *two_way(values))))
                    lines.append(f"| {run} | {outcomes.attack}, {measure} | {cells} |")
    return "\n".join(lines)


def two_way(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return p of the rows and of the columns by a two-way analysis of variance with one value in each cell."""
    of_rows, of_columns = values.mean(axis=1, keepdims=True), values.mean(axis=0, keepdims=True)
    residuals = values - of_rows - of_columns + values.mean()
    freedom = (values.shape[0] - 1) * (values.shape[1] - 1)
    p_values = []
    for means in (of_rows, of_columns):
        between = values.size * means.var() / (means.size - 1)
        f = between / ((residuals**2).sum() / freedom)
        p_values.append(float(f_distribution.sf(f, means.size - 1, freedom)))
    return p_values[0], p_values[1]


def beside_the_paper(run: str) -> str:
    """The paper's rates beside those of a run, and where one more training would be expected beside few others."""
    ev = open_run(run)
    rows = [
        "| attack | framework | paper, one training | mean of ours | smallest to largest | 95 % for the mean | "
        "mean beside two others | 95 % for one more beside two others | beside five others | the paper's |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for attack, framework in product(ev.attacks, ev.models):
        paper = ev.paper.get(framework.partition("@")[0], {}).get(attack)
        if paper is None:
            continue
        rates = ev.success_rate.sel(attack=attack, model=framework).mean("repeat").values
        row = f"| {attack} | {framework} | {paper:.1%} | {rates.mean():.1%} |"
        if np.ptp(rates) < ROUNDING:
            rows.append(f"{row} all {rates.mean():.1%} | – | – | – | – | – |")
            continue
        mean = ev.trainings.interval(framework, attack)
        two, five = (predict(ev, framework, attack, models) for models in PAPERS)
        rows.append(
            f"{row} {rates.min():.1%} to {rates.max():.1%} | {mean.low:.1%} to {mean.high:.1%} | {two.mean:.1%} | "
            f"{two.low:.1%} to {two.high:.1%} | {five.low:.1%} to {five.high:.1%} | {place(paper, two, five)} |"
        )
    return "\n".join(rows)


def differences(attack: str, decimals: int) -> str:
    """The paper's differences between frameworks under an attack, beside what one more training of each may show.

    The choice of images adds at most the binomial variance of both published rates, which are of 1,000 images each.
    """
    comparisons = []
    for network in ("LeNet-5", "LeNet-1"):
        ev = open_run(f"{network.lower().replace('-', '')}-mnist-2018-five-trainings")
        rates = ev.success_rate.sel(attack=attack).mean("repeat").transpose("model", "training_seed")
        for a, b in combinations(("theano", "tensorflow@1.15", "torch@1.0"), 2):
            of_a, of_b = rates.sel(model=a).values, rates.sel(model=b).values
            paper_a, paper_b = (ev.paper[name.partition("@")[0]][attack] for name in (a, b))
            ours, paper = of_a.mean() - of_b.mean(), paper_a - paper_b
            error, freedom = standard_error(of_a, of_b)
            of_two = error * np.sqrt(len(of_a))  # of two trainings
            error *= np.sqrt(len(of_a) + 1)  # of one more training each beside the means of so many
            within = student_t.ppf(0.975, freedom) * error
            p = 2 * student_t.sf(abs(paper - ours) / error, freedom)
            alike = 2 * student_t.sf(abs(paper) / of_two, freedom)
            of_images = sum(rate * (1 - rate) / 1000 for rate in (paper_a, paper_b))
            total = np.sqrt(error**2 + of_images)  # the degrees of freedom by Satterthwaite
            with_images = 2 * student_t.sf(abs(paper - ours) / total, freedom * (total / error) ** 4)
            ends = (ours - within, ours + within)
            of_row = (p, with_images, alike)
            comparisons.append((f"{network} | {a} minus {b}", (paper, ours, *ends), tuple(map(float, of_row))))
    rows = [
        "| network | frameworks | the paper | our means | 95 % for one more training of each | p | p, Holm "
        "| p with other images, Holm | p, frameworks alike | the same, Holm |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    adjusted = [holm(list(of_all)) for of_all in zip(*(of_row for _, _, of_row in comparisons), strict=True)]
    for (row, values, (p, _, alike)), p_holm, images_holm, alike_holm in zip(comparisons, *adjusted, strict=True):
        of_paper, of_ours, low, high = (f"{100 * value:+.{decimals}f}".replace("-", "−") for value in values)
        probabilities = " | ".join(map(p_value, (p, p_holm, images_holm, alike, alike_holm)))
        rows.append(f"| {row} | {of_paper} | {of_ours} | {low} to {high} | {probabilities} |")
    return "\n".join(rows)


def place(paper: float, two: Prediction, five: Prediction) -> str:
    """Say where a published rate lies, beside both numbers of other models."""
    within = [prediction.low <= paper <= prediction.high for prediction in (two, five)]
    return "within" if all(within) else "outside" if not any(within) else f"within beside {('two', 'five')[within[1]]}"


def one_seed(run: str) -> str:
    """How near two versions of a framework come that are trained from one seed: weights, FGSM, and what they share."""
    ev = open_run(run)
    about, shared = ev.manifest["about"], ev.transferred.of_successes.sel(attack="fgsm")
    rates = ev.success_rate.sel(attack="fgsm").mean("repeat")
    rows = [
        "| frameworks | seed | kernels correlate by | FGSM | FGSM of one that fools the other |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for old in (model for model in ev.models if "@" in model):
        pair = (old.partition("@")[0], old)
        for seed in ev.training_seeds:
            name = f"{about['model']}-{about['dataset']}-{{}}-{about['recipe']}-{seed}.h5"
            a, b = (read_weights(ROOT / "zoo" / "weights" / name.format(model)).weights for model in pair)
            alike = [np.corrcoef(a[key].ravel(), b[key].ravel())[0, 1] for key in a if key.endswith("kernel")]
            one, other = (f"{rates.sel(model=model, training_seed=seed):.1%}" for model in pair)
            to, back = (f"{shared.sel(source=f'{x}/{seed}', target=f'{y}/{seed}'):.0%}" for x, y in (pair, pair[::-1]))
            correlate = f"{min(alike):.2f} to {max(alike):.2f}"
            rows.append(f"| {' and '.join(pair)} | {seed} | {correlate} | {one} and {other} | {to} and {back} |")
    return "\n".join(rows)


def steps() -> str:
    """With how many repeats of 1,000 images the paper's rates are consistent."""
    rows = [
        "| attack | rates between 0 and 1 | consistent repeats, of 1 to 10 | chance if there were ten |",
        "| --- | ---: | --- | ---: |",
    ]
    _, granularities = read_rates()
    for attack, of_attack in granularities.items():
        chance = probability(of_attack.chance)
        rows.append(f"| {attack} | {of_attack.rates} | {', '.join(map(str, of_attack.consistent))} | {chance} |")
    return "\n".join(rows)


def setups(network: str) -> str:
    """The published rates of a network, and what every setup that was tried gives."""
    attacks = ("fgsm", "single_pixel", "boundary")
    rows = [
        "| setup | test accuracy | images | right inside | FGSM | single pixel | boundary |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    trained = read_published()["trained"][network]
    published_rows, _ = read_rates()
    for model, framework, rates in published_rows:
        if model == network:
            cells = " | ".join(percent(rates[attack]) for attack in attacks)
            accuracy = percent(trained[framework][1] / 100)
            rows.append(f"| **the paper, {framework}** | {accuracy} | 1,000 | not stated | {cells} |")
    for setup in fingerprints():
        if setup["model"] != network:
            continue
        cells = " | ".join(percent(setup["rates"][attack]) for attack in attacks)
        shares = f"{percent(setup['test_accuracy'])} | {setup['images']:,} | {percent(setup['clean_accuracy'])}"
        rows.append(f"| {describe(setup, network)} | {shares} | {cells} |")
    return "\n".join(rows)


def controls() -> str:
    """The same-weights controls in same-weights/, each what --json printed."""
    rows = [
        "| model | frameworks | images | logits differ by | predictions | attack | fall in one and not in another |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for path in sorted((HERE / "same-weights").glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        control = run["same_weights"]
        for attack, differ in control["differ"].items():
            pairs = [f"{pair.replace('|', ' and ')} {images}" for pair, images in differ.items() if images]
            none = f"none, in {len(differ)} pair{'s' * (len(differ) > 1)}"
            rows.append(
                f"| {run['model']}, {run['dataset']} | {', '.join(run['frameworks'])} | {run['images']:,} | "
                f"{control['logits']:.1e} | {control['predictions']:.2%} | {attack} | "
                f"{', '.join(pairs) or none} |"
            )
    return "\n".join(rows)


OF_RUN = {
    "screen": screen,
    "deployed": deployed,
    "one training each": one_training_each,
    "beside the paper": beside_the_paper,
    "one seed": one_seed,
}
OF_ALL = {
    "differences under fgsm": partial(differences, "fgsm", 1),
    "differences under single pixel": partial(differences, "single_pixel", 2),
    "told apart": told_apart,
    "spread": spread,
    "three and five trainings": three_and_five,
    "equal seeds": equal_seeds,
    "clipping": clipping,
    "granularity": steps,
    "same-weights": controls,
}


def main() -> None:
    """Write the pages anew."""
    for name, whole in PAGES.items():
        path = ROOT / name
        path.write_text(page(path.read_text(encoding="utf-8"), whole), encoding="utf-8")


if __name__ == "__main__":
    main()
