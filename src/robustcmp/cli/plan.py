"""``robustcmp plan``: how large a comparison has to be."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..errors import RobustcmpError, UsageError
from .command import Parser, as_command
from .gate import read_points
from .screen import screen_width, use_color


def _parser() -> Parser:
    parser = Parser(
        "robustcmp plan",
        "Say how many trainings of each framework, images and repeats detect a difference between frameworks, and what "
        "they cost, from the variances and the costs of a finished run with several trainings. No framework is needed.",
        "  robustcmp plan --pilot runs/lenet5-mnist-guo2019 --difference 5\n"
        "  robustcmp plan --pilot runs/lenet5-mnist-guo2019 --difference 3 --power 0.9 --attack fgsm\n"
        "  robustcmp plan --pilot runs/old.onnx-and-new.onnx --margin 2",
    )
    parser.add_argument("--pilot", required=True, metavar="RUN", help="directory of the run")
    aim = parser.add_mutually_exclusive_group(required=True)
    aim.add_argument(
        "--difference",
        type=float,
        metavar="POINTS",
        help="between the largest success rate of a framework and the smallest, in points",
    )
    aim.add_argument(
        "--margin",
        type=float,
        metavar="POINTS",
        help="of a gate: say how many images show that equal models are not easier to fool, in 80 of 100 gates",
    )
    parser.add_argument("--power", type=float, default=0.8, metavar="P", help="the probability of detection")
    parser.add_argument("--attack", metavar="NAME", help="plan for one attack (default: each of the pilot's)")
    parser.add_argument(
        "--training-seconds",
        type=float,
        metavar="S",
        help="the time to train one model (default: what the weights of the pilot's models say)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects instead of a table")
    return parser


@as_command("robustcmp plan")
def main(given: Sequence[str]) -> None:
    """Plan a comparison."""
    options = _parser().parse_args(given)
    if options.margin is not None:
        _plan_gate(options.pilot, read_points("--margin", options.margin), options.json)
        return
    difference = read_points("--difference", options.difference)
    seconds = options.training_seconds
    if seconds is not None and not 0 <= seconds < math.inf:
        raise UsageError(f"--training-seconds should be 0 or more, received {seconds:g}")
    from ..evaluation import open_run
    from ..report.layout import console_for, print_table
    from ..report.tables import designs
    from ..report.words import plan_notes

    pilot = open_run(options.pilot)
    if seconds is None:
        seconds = _mean_training_seconds([model["info"] for model in pilot.manifest["models"]])
    plan = pilot.plan(difference, power=options.power, attack=options.attack, training_seconds=seconds)
    if options.json:
        print(plan.to_json(orient="records", indent=1, double_precision=15))
        return
    console = console_for(sys.stdout, screen_width(), use_color(sys.stdout))
    table = designs(plan, difference, options.power)
    console.print(table.title, style="bold")
    print_table(console, table)
    console.print()
    for sentence in plan_notes(plan, difference, options.power):
        console.print(f"• {sentence}")


def _mean_training_seconds(infos: Iterable[Mapping[str, Any]]) -> float:
    """Return how long a training took on average, by what the manifest of a run says of its models.

    NaN if none is of the zoo, or no weights are here any more.
    """
    from ..sources.from_zoo import SOURCES, FromZoo, find_weights

    seconds = []
    for info in infos:
        names = [info.get(name) for name in ("model", "dataset", "framework", "recipe", "training_seed")]
        if info.get("source") not in SOURCES or None in names:
            continue
        with suppress(RobustcmpError):
            content = find_weights(FromZoo(*names))  # type: ignore[arg-type]
            if content is not None and content.sha256 == info.get("sha256") and "seconds" in content.curves:
                seconds.append(float(content.curves["seconds"].sum()))
    return sum(seconds) / len(seconds) if seconds else math.nan


def _plan_gate(directory: str, margin: float, as_json: bool) -> None:
    """Print how many images a gate needs."""
    from ..analysis.gate import plan_gate
    from ..evaluation import open_run

    planned = plan_gate(open_run(directory).results, margin)
    if as_json:
        print(json.dumps([attack._asdict() for attack in planned], indent=1))
        return
    if not planned:
        print("No attack of this run is informative: it fools under 5 % or over 95 % of both models' images.")
    for attack in planned:
        images = "trainings decide, not images" if attack.images is None else f"{attack.images:,} images"
        print(f"{attack.model} under {attack.attack}: {images}")
