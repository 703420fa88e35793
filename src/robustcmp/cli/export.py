"""``robustcmp export``: a finished run in the formats of other programs, or a trained model in those of runtimes."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..files import write_named
from .command import Parser, run_command, say
from .log_lines import log_lines_dropped

if TYPE_CHECKING:
    from ..sources.from_files import FromFile
    from ..sources.from_zoo import FromZoo

FORMATS = ("csv", "parquet", "latex", "bibtex")


def _parser() -> Parser:
    parser = Parser(
        "robustcmp export",
        "Write a finished run as a table of rates or outcomes (CSV, Parquet), a table for a paper (LaTeX), or what to "
        "cite (BibTeX); no framework is needed. With --to, write a trained model as a file of a runtime, such as ONNX.",
        "  robustcmp export runs/lenet5-mnist-guo2019 > rates.csv\n"
        "  robustcmp export runs/lenet5-mnist-guo2019 --format parquet --per-image --out outcomes.parquet\n"
        "  robustcmp export runs/lenet5-mnist-guo2019 --format latex\n"
        "  robustcmp export lenet5 --framework torch --dataset digits --to onnxruntime --out lenet5.onnx\n"
        "  robustcmp export torch=mine.pt --architecture lenet5 --to litert-int8 --out mine.tflite",
        usage="%(prog)s RUN [options]\n       %(prog)s MODEL --to NAME --out FILE [options]",
    )
    parser.add_argument("what", metavar="RUN or MODEL", help="a run's directory; a model's name, or FRAMEWORK=FILE")
    parser.add_argument("--out", metavar="FILE", help="the file to write (default of runs: standard output)")
    runs = parser.add_argument_group("runs")
    runs.add_argument("--format", choices=FORMATS, default="csv", help=", ".join(FORMATS))
    runs.add_argument(
        "--per-image", action="store_true", help="csv, parquet: one row per repeat and image, not per rate"
    )
    models = parser.add_argument_group("models")
    models.add_argument("--to", metavar="NAME", help="onnxruntime, litert-int8, … (robustcmp deployments lists all)")
    models.add_argument("--framework", metavar="NAME", help="the framework that trained it")
    models.add_argument(
        "--dataset", metavar="NAME", help="mnist, digits or cifar10 (default: the model's); int8 is calibrated on it"
    )
    models.add_argument("--recipe", metavar="NAME", help="the recipe that it was trained with (default: default)")
    models.add_argument("--seed", type=int, metavar="N", help="its training seed (default: 0)")
    models.add_argument("--architecture", metavar="NAME", help="the network of FRAMEWORK=FILE: a name or FILE.toml")
    models.add_argument("--data-dir", metavar="DIR", help="directory of the dataset")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Export a run or a model, and return the exit status."""
    return run_command(_export, "robustcmp export", arguments)


@log_lines_dropped()
def _export(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    if options.to:
        _export_model(options)
    else:
        _export_run(options)


def _export_run(options: Namespace) -> None:
    for name in ("framework", "dataset", "recipe", "seed", "architecture", "data_dir"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} requires --to: what the model should be exported to")
    if options.per_image and options.format not in ("csv", "parquet"):
        raise UsageError("--per-image requires --format csv or parquet")
    if options.format == "parquet" and not options.out:
        raise UsageError("Parquet is a binary format: name a file with --out")
    from ..evaluation import open_run
    from ..report.exports import to_csv

    ev = open_run(options.what)
    if options.format == "parquet":
        ev.to_parquet(options.out, per_image=options.per_image)
        return
    if options.format == "csv":
        text = to_csv(ev, per_image=options.per_image)
    else:
        text = ev.to_latex() if options.format == "latex" else ev.to_bibtex()
    if options.out:
        write_named(options.out, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    else:
        print(text, end="")


def _export_model(options: Namespace) -> None:
    if options.format != "csv" or options.per_image:
        raise UsageError("--format and --per-image are for runs, and cannot be combined with --to")
    if not options.out:
        raise UsageError("--to requires --out: the file to write")
    from ..data import check_named, is_own
    from ..deployments import split
    from ..deployments.deploying import check_path
    from ..sources.deployed import FromDeployment
    from ..sources.recipes import default_dataset

    check_path(split(options.to)[0], options.out)
    recipe = options.recipe or "default"
    source: FromFile | FromZoo
    if "=" in options.what:
        source = _from_file(options)
        dataset = options.dataset or (source.design and default_dataset(source.design))
        if dataset is None:
            raise UsageError("expected --dataset: the images that the network is for")
        if not is_own(dataset):
            check_named(dataset)
    else:
        dataset = options.dataset or default_dataset(options.what, recipe)
        source = _of_the_zoo(options, dataset, recipe)
    files = FromDeployment(source, options.to, dataset, options.data_dir).write(options.out)
    say(f"{options.out}: {files.bytes:,} bytes, SHA-256 {files.sha256}")


def _of_the_zoo(options: Namespace, dataset: str, recipe: str) -> FromZoo:
    from ..sources.from_zoo import FromZoo, check_names

    if options.architecture is not None:
        raise UsageError("--architecture describes the network of FRAMEWORK=FILE, not a model of the zoo")
    if options.framework is None:
        raise UsageError("a model of the zoo requires --framework: the one that trained it")
    source = FromZoo(options.what, dataset, options.framework, recipe, options.seed or 0)
    check_names(options.what, dataset, [options.framework], [source.seed], recipe)
    source.weights()
    return source


def _from_file(options: Namespace) -> FromFile:
    from ..sources.from_files import FromFile
    from ..sources.named_files import file_origins

    if any(given is not None for given in (options.framework, options.recipe, options.seed)):
        raise UsageError("FRAMEWORK=FILE cannot be combined with --framework, --recipe or --seed")
    ((source,),) = file_origins([options.what], options.architecture).values()
    if not isinstance(source, FromFile):
        raise UsageError(f"{options.what} is deployed already: expected a trained network, such as torch=FILE.pt")
    return source
