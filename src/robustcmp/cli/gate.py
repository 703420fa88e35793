"""``robustcmp gate``: may a new model replace an old one?"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..files import write_named
from .command import Parser, as_command, say
from .eval import check_complete, compare, read_options, read_time
from .screen import drop_log_lines, screen_width, use_color

if TYPE_CHECKING:
    from ..analysis.gate import Gate
    from ..analysis.results import Results

STATUS = {"passed": 0, "easier": 3, "less accurate": 3, "not shown": 4}


def _parser() -> Parser:
    parser = Parser(
        "robustcmp gate",
        "Decide whether a new model is easier to fool than the one that it replaces. Exit status: 0 passed, 3 easier "
        "to fool or less accurate, 4 not shown, 1 the run failed, 2 unusable arguments.",
        "  robustcmp gate old.onnx new.onnx --dataset folder:images\n"
        "  robustcmp gate old.pt new.pt --architecture nets:make --dataset npz:test.npz --junit gate.xml",
    )
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="two files or more, or functions that return networks, module:function; the first is the baseline. As in "
        "eval, mean, std and softmax can follow a file: new.onnx,mean=0.5,std=0.5",
    )
    parser.add_argument(
        "--dataset",
        required=True,
        metavar="NAME",
        help="the images: folder:DIR, with a subfolder of images for each class, npz:FILE, mnist, digits or cifar10",
    )
    parser.add_argument("--architecture", metavar="NAME", help="the network of files that hold only weights")
    parser.add_argument(
        "--margin", type=float, default=2.0, metavar="POINTS", help="how much easier to fool a new model may be"
    )
    parser.add_argument(
        "--accuracy-margin", type=float, metavar="POINTS", help="how much less accurate it may be (default: --margin)"
    )
    parser.add_argument("--suite", default="gate", metavar="NAME", help="a suite's name or TOML file")
    parser.add_argument("--images", type=int, metavar="N", help="number of images (default: the suite's)")
    parser.add_argument(
        "--within",
        type=read_time,
        metavar="TIME",
        help="choose images and attacks that take at most this long on this machine: 90s, 10m or 1h",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the attacks' seed")
    parser.add_argument("--out", metavar="DIR", help="the run's directory (default: named after the models)")
    parser.add_argument("--junit", metavar="FILE", help="write the verdicts as JUnit XML")
    parser.add_argument("--markdown", metavar="FILE", help="append the verdicts as Markdown, for a job summary")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--quiet", action="store_true", help="print nothing but the answer")
    return parser


@as_command("robustcmp gate")
@drop_log_lines()
def main(words: Sequence[str]) -> int:
    """Gate what the arguments name and return the exit status."""
    start = time.monotonic()
    options = _read(words)
    from ..sources.named_files import describe_files

    arguments = _as_comparison(options, describe_files(options.models))
    evaluation = compare(read_options(arguments), arguments, start)
    assert evaluation is not None  # as it is for an estimate
    check_complete(evaluation)
    for model in evaluation.manifest["models"]:
        if model.get("cause"):
            raise UsageError(f"no verdict. {model['cause']}")
    gate = evaluation.gate(options.margin, options.accuracy_margin)
    _write(options, gate, evaluation.results)
    return STATUS[gate.outcome]


def _read(words: Sequence[str]) -> Namespace:
    """Return the options, once each was checked, margins as fractions."""
    options = _parser().parse_args(words)
    if len(options.models) < 2:
        raise UsageError(f"expected two models or more, the baseline first; received {options.models[0]} alone")
    options.margin = read_points("--margin", options.margin)
    if options.accuracy_margin is None:
        options.accuracy_margin = options.margin
    else:
        options.accuracy_margin = read_points("--accuracy-margin", options.accuracy_margin)
    for name in ("junit", "markdown"):
        path = getattr(options, name)
        if path and not Path(path).parent.is_dir():
            raise UsageError(f"--{name} should name a file in a directory that exists, received {path}")
    return options


def _write(options: Namespace, gate: Gate, results: Results) -> None:
    """Write the page and what else was asked for, and print the answer."""
    from ..report import gate as report
    from ..report.words import describe_inputs

    page = results.run.directory / "gate.html"
    write_named(page, report.to_html(gate, results))
    if options.junit:
        Path(options.junit).write_text(report.write_junit(gate), encoding="utf-8")
    if options.markdown:
        with open(options.markdown, "a", encoding="utf-8") as file:
            file.write(report.to_markdown(gate))
    if not options.quiet:
        for line in describe_inputs(results):
            say(line)
    if options.json:
        print(report.to_json(gate), flush=True)
        return
    print(report.to_text(gate, screen_width(), use_color(sys.stdout)), flush=True)
    if not options.quiet:
        say(f"\nReport: {page}")


def read_points(name: str, value: float) -> float:
    """Return a margin in points as a fraction."""
    if not 0.1 < value < 100:  # 0.02 is a fraction
        raise UsageError(f"{name} should be points above 0.1 and below 100, such as 2, received {value:g}")
    return value / 100


def _as_comparison(options: Namespace, descriptions: Sequence[str]) -> list[str]:
    """Return the arguments of `eval` that compare the models of a gate."""
    arguments = ["--weights", *descriptions, "--dataset", options.dataset, "--suite", options.suite]
    for name in ("architecture", "images", "seed", "out"):
        value = getattr(options, name)
        if value is not None:
            arguments += [f"--{name}", str(value)]
    if options.within is not None:
        arguments += ["--within", f"{options.within:g}s"]
    if options.quiet:
        arguments.append("--quiet")
    return arguments
