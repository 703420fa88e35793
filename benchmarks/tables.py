"""Write the tables of the pages in docs/ that show measurements anew from benchmarks/results/*.json."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import pandas

import robustcmp as rc
from robustcmp.bench.benchmark import Benchmark

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
AIMS = {"fgsm": "1.25", "single_pixel": "1.25", "boundary": "2"}
COMMAND_TIMES = {"the command": "seconds", "the attacks": "attacks_seconds"}
Rows = list[dict[str, Any]]
Part = Callable[[dict[str, Any]], str]


def forward(results: dict[str, Any]) -> str:
    """The best forward rates: for each way of asking, over batch sizes."""
    rows = [row for row in results["floor"]["rows"] if "rates" in row]
    ways = list(rows[0]["rates"])
    return _table(
        ["model", "framework", *ways],
        (
            [row["model"], row["framework"], *(f"{max(row['rates'][way].values()):,.0f}" for way in ways)]
            for row in rows
        ),
    )


def floor(results: dict[str, Any]) -> str:
    """Each attack's time as a multiple of the floor: the median of the rounds, the least and the most."""
    rows = [row for row in results["floor"]["rows"] if "attack" in row]
    frameworks = list(dict.fromkeys(row["framework"] for row in rows))

    def cell(attack: str, framework: str) -> str:
        those = [row for row in rows if (row["attack"], row["framework"]) == (attack, framework)]
        ratios = sorted(row["ratio"] for row in those)
        seconds, cpu = (median(row[name] for row in those) for name in ("seconds", "cpu_seconds"))
        return f"{median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f} ({_seconds(seconds)}; {cpu:.1f})"

    return _table(
        ["attack", *frameworks, "aim"],
        ([attack, *(cell(attack, framework) for framework in frameworks), aim] for attack, aim in AIMS.items()),
    )


def large(results: dict[str, Any]) -> str:
    """Attacks on large images: queries, processor seconds, their multiple of the floor, and memory."""
    return _table(
        ["attack", "queries", "CPU seconds", "÷ floor", "peak memory"],
        (
            [
                row["attack"],
                f"{row['asked']:,}",
                f"{row['cpu_seconds']:.1f}",
                f"{row['cpu_ratio']:.2f}",
                f"{row['peak_memory_mib'] / 1024:.1f} GiB",
            ]
            for row in results["large"]["rows"]
        ),
    )


def rivals(results: dict[str, Any]) -> str:
    """Other tools, and robustcmp in the same run on as many images."""
    rows: Rows = results["rivals"]["rows"]
    return _table(
        ["tool", "attack", "images", "seconds", "robustcmp", "times", "fooled otherwise", "of these, margin above 12"],
        [_rival(row) for row in rows],
    )


def _rival(row: dict[str, Any]) -> list[str]:
    if "failed" in row:
        return [row["tool"], row["attack"], f"failed: {' '.join(row['failed'])}", *["–"] * 5]
    return [
        row["tool"],
        row["attack"],
        f"{row['images']:,}" + (" by the samples" if "from_samples" in row else ""),
        f"{row['seconds']:,.1f}",
        f"{row['ours_seconds']:.2g}",
        f"{row['times']:.2g}" if row["times"] < 10 else f"{row['times']:.0f}",
        str(row.get("fooled_otherwise", "–")),
        str(row.get("of_these_with_a_clean_margin_above_12", "–")),
    ]


def machine(results: dict[str, Any]) -> str:
    """The machine and the versions."""
    return _machines({"all tables": results["floor"]})


def asking(results: dict[str, Any]) -> str:
    """What asking deployed networks through robustcmp costs, as a multiple of asking their runtimes directly."""
    rows: Rows = results["deployments"]["rows"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    ratios = {
        (row["deployment"], row["model"]): "{1:.2f} ({0:.2f} to {2:.2f})".format(*row["cpu_ratio"]) for row in rows
    }
    return _table(
        ["deployment", *models],
        (
            [name, *(ratios.get((name, model), "–") for model in models)]
            for name in dict.fromkeys(name for name, _ in ratios)
        ),
    )


def _machines(results: dict[str, Any]) -> str:
    lines = []
    for part, content in results.items():
        versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
        lines.append(
            f"- {part}: `{content['command']}`; {content['threads']} cores of {content['processor']}; {versions}"
        )
    return "\n".join(lines)


def agreement(results: dict[str, Any]) -> str:
    """On how many images the authors' AutoAttack and robustcmp disagree, where either leaves an image robust."""
    rows: Rows = results["agreement"]["agreement"]

    def cells(row: dict[str, Any]) -> list[str]:
        theirs, own = row["float32"], row["own_seeds"]
        return [
            NETWORKS[row["network"]],
            _epsilon(row["epsilon"]),
            row["attack"],
            str(row["correct"]),
            f"{row['robust']} / {theirs['robust']}",
            str(theirs["only_first"] + theirs["only_second"]),
            str(own["only_first"] + own["only_second"]),
        ]

    head = ["network", "ε", "attack", "images", "robust, ours / theirs", "differ", "two of their seeds differ"]
    return _table(head, (cells(row) for row in rows if row["robust"] or row["float32"]["robust"]))


def agreement_counts(results: dict[str, Any]) -> str:
    """The sums of the table, in a sentence."""
    rows: Rows = results["agreement"]["agreement"]

    def count(part: str) -> str:
        those = [row[part] for row in rows if part in row]
        ours, theirs = (sum(row[name] for row in those) for name in ("only_first", "only_second"))
        return f"{ours + theirs} ({ours} + {theirs})"

    total, double = (
        sum(row["correct"] for row in those) for those in (rows, [row for row in rows if "float64" in row])
    )
    return (
        f"Of {total:,} outcomes, {count('float32')} differ; of the {double:,} of APGD, {count('float64')} differ in "
        f"float64. Two seeds of the authors' own code differ on {count('own_seeds')} of the {total:,}."
    )


def distances(results: dict[str, Any]) -> str:
    """The smallest distances of robustcmp and of Foolbox's attacks."""
    names = {"l2": "L2", "linf": "L∞"}
    return _table(
        ["norm", "attack", "median", "median excess over the best of all"],
        (
            [names[row["norm"]], name, f"{row['median'][name]:.4f}", f"{row['excess'][name]:.1%}"]
            for row in results["agreement"]["nearest"]
            for name in row["median"]
        ),
    )


NETWORKS = {"lenet1": "LeNet-1", "lenet5": "LeNet-5", "resnet20": "ResNet-20"}


def _executors(rows: Rows, measured: dict[str, str]) -> str:
    """Times of one comparison in several ways, and ratios within each turn."""
    turns = [{row["way"]: row for row in rows if row["turn"] == turn} for turn in sorted({row["turn"] for row in rows})]

    def cells(way: str, name: str) -> list[str]:
        ratios = sorted(turn[way][name] / turn["in process"][name] for turn in turns)
        spread = (
            f"{median(ratios):.2f}"
            if len(turns) == 1
            else f"{median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )
        spread = "1" if way == "in process" else spread
        return [_seconds(median(turn[way][name] for turn in turns)), spread]

    head = [column for name in measured for column in (name, "ratio")]
    lines = [[way, *(cell for name in measured.values() for cell in cells(way, name))] for way in turns[0]]
    return _table(["attacks run", *head], lines)


def measuring(results: dict[str, Any]) -> str:
    """What is found where nothing is, where a tenth is, and what looking costs."""
    null, slowed, looking = (results["measuring"][part] for part in ("null", "slowed", "sampling"))
    differing = sum(row["p"] < 0.05 for row in null["rows"])
    ratios = sorted(1 / slowed[name] for name in ("low", "high"))  # of the slowed one to the plain one
    rows = [
        [
            f"PyTorch under two names, {null['times']} times, {null['repetitions']} processes of each",
            f"a difference (p < 0.05) in {differing} of {null['times']}",
        ],
        [
            f"a network, and itself with a tenth of its time on top, {slowed['repetitions']} processes of each",
            f"{1 / slowed['ratio']:.2f} times as long ({ratios[0]:.2f} to {ratios[1]:.2f}), p = {slowed['p']:.3f}",
        ],
        [
            f"looking at {looking['processes']} processes ten times a second",
            f"{looking['share']:.1%} of their time; {looking['largest']:.1%} of the worst",
        ],
    ]
    return _table(["measured", "found"], rows)


def _trained_in_batches(run: str) -> str:
    """Each framework's row of a stored benchmark of trainings at several batch sizes, the fastest first."""
    benchmark = rc.open_benchmark(DOCS / "measurements" / run)
    frame = benchmark.summary_of_training()
    processes = benchmark.to_dataframe()
    sizes = sorted(frame.batch_size.unique())
    lines = []
    for subject in frame[frame.batch_size == sizes[0]].sort_values("epoch_seconds").subject:
        own = frame[frame.subject == subject].sort_values("batch_size").to_dict("records")
        own_busy = processes[processes.subject == subject].busy.mean()
        lines.append(
            [
                subject,
                *(f"{_with_interval(row, 'epoch_seconds')}; {_slower(benchmark, row)}" for row in own),
                _mebibytes(own[0]),
                *(_accuracy(row) for row in own),
                f"{own_busy:.0%}",
            ]
        )
    head = ["framework", *(f"an epoch at {size}; slower" for size in sizes), "memory"]
    return _table([*head, *(f"accuracy at {size}" for size in sizes), "busy"], lines)


def _accuracy(row: dict[str, Any]) -> str:
    low, high = row["validation_accuracy_low"], row["validation_accuracy_high"]
    return f"{row['validation_accuracy']:.1%} ({100 * low:.1f} to {100 * high:.1f})"


def _predicted(*runs: str) -> str:
    """Each subject's calls, by task, number of images and batch size, the fastest for one image first."""
    benchmarks = [rc.open_benchmark(DOCS / "measurements" / run) for run in runs]
    calls = pandas.concat([each.to_dataframe() for each in benchmarks], ignore_index=True)
    settings = list(calls.groupby(["task", "batch_size", "images"]).groups)
    first = (calls[["task", "batch_size", "images"]] == list(settings[0])).all(axis=1)
    words = {"forward": "predictions", "forward-backward": "gradients"}
    lines = []
    for subject in calls[first].groupby("subject").call_seconds.median().sort_values().index:
        own = calls[calls.subject == subject]
        cells = []
        for setting in settings:
            times = own[(own[["task", "batch_size", "images"]] == list(setting)).all(axis=1)].call_seconds
            low, high = (_milliseconds(end).removesuffix(" ms") for end in (times.min(), times.max()))
            cells.append("–" if times.empty else f"{_milliseconds(times.median())} ({low} to {high})")
        memory = own.groupby(["task", "batch_size", "images"]).peak_memory.median().max()
        lines.append([subject, *cells, _mebibytes({"peak_memory": memory}), f"{own.busy.mean():.0%}"])
    asked = [(task, batch) for task, batch, _ in settings]
    head = [
        f"{words[task]}, {'one' if batch == 1 else batch}" + f" of {images:,}" * (asked.count((task, batch)) > 1)
        for task, batch, images in settings
    ]
    return _table(["subject" if len(runs) > 1 else "framework", *head, "memory", "busy"], lines)


def _slower(found: Benchmark, row: dict[str, Any]) -> str:
    """How many subjects are slower than that of a row, in its setting."""
    tests = found.tests()
    here = (tests.task == row["task"]) & (tests.batch_size == row["batch_size"])
    against = tests[here & ((tests.a == row["subject"]) | (tests.b == row["subject"]))]
    return str(int(((against.p_adjusted < 0.05) & ((against.ratio > 1) == (against.b == row["subject"]))).sum()))


def _with_interval(row: dict[str, Any], name: str) -> str:
    low, high = (_milliseconds(row[f"{name}_{end}"]).removesuffix(" ms") for end in ("low", "high"))
    return f"{_milliseconds(row[name])} ({low} to {high})"


def _milliseconds(seconds: float) -> str:
    milliseconds = 1000 * seconds
    digits = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2
    return f"{milliseconds:,.{digits}f} ms"


def _mebibytes(row: dict[str, Any]) -> str:
    return f"{row['peak_memory'] / 2**20:,.0f} MiB"


PAGES: dict[str, dict[str, Part]] = {
    "clusters.md": {
        "scale_workers": lambda results: _executors(results["scale-workers"]["rows"], COMMAND_TIMES),
    },
    "training-and-prediction.md": {
        "measuring": measuring,
        "trained_lenet5": lambda _: _trained_in_batches("train-lenet5-digits-2"),
        "predicted_lenet1": lambda _: _predicted("predict-lenet1-digits"),
        "predicted_deployed": lambda _: _predicted("predict-lenet5-mnist-one", "predict-lenet5-mnist"),
    },
    "performance.md": {
        "forward": forward,
        "floor": floor,
        "large": large,
        "rivals": rivals,
        "machine": machine,
    },
    "deployments.md": {
        "asking": asking,
    },
    "attacks.md": {
        "agreement": agreement,
        "agreement_counts": agreement_counts,
        "distances": distances,
    },
}


def _epsilon(epsilon: float) -> str:
    return f"{epsilon:g}" if epsilon >= 0.1 else f"{255 * epsilon:g}/255"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def write_tables(page: str, results: dict[str, Any], parts: dict[str, Part]) -> str:
    """Return the page with each table between its marks written anew."""
    for name, part in parts.items():
        marks = re.compile(f"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", re.DOTALL)
        assert marks.search(page), f"the page should have the marks of {name}"
        table = f"\n{part(results)}\n"
        page = marks.sub(lambda found, table=table: found[1] + table + found[2], page)  # type: ignore[misc]
    return page


def read() -> dict[str, Any]:
    """Return what was measured, by part."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "results").glob("*.json"))}


if __name__ == "__main__":
    for page, parts in PAGES.items():
        path = DOCS / page
        path.write_text(write_tables(path.read_text(encoding="utf-8"), read(), parts), encoding="utf-8")
