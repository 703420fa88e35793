"""``python -m robustcmp.bench``: measure how fast frameworks train a network, or predict with it, and what they use."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GroupError
from .command import Parser, as_command
from .screen import drop_log_lines, screen_width, show, use_color

if TYPE_CHECKING:
    from ..bench.benchmark import Benchmark

OF_COMMAND = ("json", "full", "quiet")  # and not of robustcmp.benchmark


def _parser() -> Parser:
    parser = Parser(
        "python -m robustcmp.bench",
        "Measure how fast frameworks train a network, or predict with it, and what they use. Each measurement is a "
        "process of its own. Rerun the same command to measure only what is missing.",
        "  python -m robustcmp.bench train --model lenet5 --dataset digits\n"
        "  python -m robustcmp.bench train --model resnet20 --framework torch jax --epochs 0.1 --repetitions 10\n"
        "  python -m robustcmp.bench predict --model lenet5 --images 1000 10000 --deploy onnxruntime litert-int8",
        usage="%(prog)s {train,predict} [options]",
    )
    parser.add_argument("what", choices=["train", "predict"], help="measure training, or prediction")
    network = parser.add_argument_group("what to measure")
    network.add_argument(
        "--model",
        default="lenet5",
        metavar="NAME",
        help="lenet1, lenet5, resnet20, vgg16, dlbench_mnist, dlbench_cifar10 or FILE.toml",
    )
    network.add_argument(
        "--framework",
        dest="frameworks",
        nargs="+",
        metavar="NAME",
        help="torch, tensorflow, … (default: those installed)",
    )
    network.add_argument(
        "--dataset",
        metavar="NAME",
        help="mnist, digits or cifar10 (default: digits for trainings, else the recipe's first)",
    )
    network.add_argument("--recipe", default="default", metavar="NAME", help="a recipe of zoo/MODEL.toml")
    network.add_argument(
        "--training-seed", type=int, default=0, metavar="N", help="the first training, or the one that predicts"
    )
    network.add_argument("--data-dir", metavar="DIR", help="directory of the dataset")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--batch-size",
        dest="batch_sizes",
        type=int,
        nargs="+",
        metavar="N",
        help="batch sizes (default: 32 64 128; predictions: 1 32 128)",
    )
    how.add_argument("--repetitions", type=int, default=5, metavar="N", help="processes for each; the tests need ten")
    how.add_argument("--threads", type=int, metavar="N", help="processors that each process may use (default: all)")
    how.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu or cuda")
    how.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of the random order")
    train = parser.add_argument_group("training")
    train.add_argument(
        "--epochs", type=float, metavar="N", help="epochs, 0.1 for a tenth of one (default: 2; 0.05 without digits)"
    )
    predict = parser.add_argument_group("prediction")
    predict.add_argument("--images", type=int, nargs="+", default=[1000], metavar="N", help="numbers of test images")
    predict.add_argument(
        "--deploy", dest="deployments", nargs="+", default=[], metavar="NAME", help="also measure conversions, see eval"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="the directory (default: runs/bench-WHAT-MODEL-DATASET)")
    output.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    output.add_argument("--full", action="store_true", help="print all tables")
    output.add_argument("--quiet", action="store_true", help="print no progress")
    return parser


@as_command("robustcmp.bench")
@drop_log_lines()
def main(arguments: Sequence[str]) -> None:
    """Measure what the arguments name."""
    options = _parser().parse_args(arguments)
    from tqdm import tqdm

    from ..bench.measure import benchmark
    from ..sources.recipes import default_dataset

    is_training = options.what == "train"
    options.dataset = options.dataset or default_dataset(options.model, options.recipe, short=is_training)
    options.out = options.out or f"runs/bench-{options.what}-{Path(options.model).stem}-{options.dataset}"
    keywords = {name: value for name, value in vars(options).items() if name not in OF_COMMAND}
    command = shlex.join(["python", "-m", "robustcmp.bench", *arguments])
    with tqdm(disable=options.quiet, unit="measurement", delay=1) as bar:  # errors before it stand without one

        def show_progress(done: int, total: int, name: str) -> None:
            bar.total = total
            bar.set_postfix_str(name)
            bar.update(done - bar.n)

        measured = benchmark(**keywords, command=command, progress=show_progress)
    _print(options, measured)
    if failed := measured.failed:
        raise GroupError(
            f"{len(failed)} measurements failed. Everything else is kept, and the same command tries only these again:"
            + "".join(f"\n  {name}: {reason}" for name, reason in failed.items())
        )


def _print(options: Namespace, benchmark: Benchmark) -> None:
    page = Path(options.out) / "report.html"
    benchmark.to_html(page)  # first: whoever reads the screen may stop
    if options.json:
        print(json.dumps(benchmark.to_json()), flush=True)
        return
    write = benchmark.to_text if options.full else benchmark.summary
    print(write(width=screen_width(), color=use_color(sys.stdout)), flush=True)
    show(f"page: {page}")
