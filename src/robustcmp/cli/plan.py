"""``robustcmp plan``: how large a comparison has to be."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from .command import Parser, as_command
from .gate import read_points
from .screen import screen_width, use_color


def _parser() -> Parser:
    parser = Parser(
        "robustcmp plan",
        "Say how many trainings of each framework detect a difference between frameworks, from the variances of a "
        "finished run with several trainings. No framework is needed.",
        "  robustcmp plan --pilot runs/lenet5-mnist-guo2019 --difference 5\n"
        "  robustcmp plan --pilot runs/lenet5-mnist-guo2019 --difference 3 --power 0.9 --attack fgsm\n"
        "  robustcmp plan --pilot runs/own-folder-images-gate-weights-old.onnx-new.onnx --margin 2",
    )
    parser.add_argument("--pilot", required=True, metavar="RUN", help="directory of the run")
    aim = parser.add_mutually_exclusive_group(required=True)
    aim.add_argument(
        "--difference",
        type=float,
        metavar="POINTS",
        help="the difference to detect between the largest and the smallest success rate of a framework, in points",
    )
    aim.add_argument(
        "--margin",
        type=float,
        metavar="POINTS",
        help="the margin of a gate: say how many images let equal models pass in 80 of 100 gates",
    )
    parser.add_argument("--power", type=float, default=0.8, metavar="P", help="the probability of detection")
    parser.add_argument("--attack", metavar="NAME", help="plan for one attack (default: each of the pilot's)")
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
    from ..evaluation import open_run
    from ..report.layout import console_for, print_table
    from ..report.tables import designs
    from ..report.words import plan_notes

    plan = open_run(options.pilot).plan(difference, power=options.power, attack=options.attack)
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


def _plan_gate(directory: str, margin: float, as_json: bool) -> None:
    """Print how many images a gate needs."""
    from ..analysis.gate import plan_gate
    from ..evaluation import open_run

    planned = plan_gate(open_run(directory).results, margin)
    if as_json:
        print(json.dumps(planned, indent=1))
        return
    if not planned:
        print("No attack of this run is informative: it fools under 5 % or over 95 % of both models' images.")
    for attack in planned:
        images = attack["images"]
        needed = "trainings decide, not images" if images is None else f"{images:,} images"
        print(f"{attack['model']} under {attack['attack']}: {needed}")
