"""``python -m robustcmp.eval``: compare trained models of one network design."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..errors import ControlError, GroupError, ModelError, UsageError
from .command import Parser, as_command, say
from .screen import drop_log_lines, screen_width, show, use_color

if TYPE_CHECKING:
    from ..attacks.suite import Suite
    from ..data.dataset import Dataset
    from ..evaluation import Evaluation
    from ..records.manifest import SuiteFile
    from ..records.store import Run
    from ..runs.plan import Plan
    from ..sources.deployed import AnyOrigin

Say = Callable[[str], None]
TIMED_OF_BUDGET = 0.05  # attacks are timed for so long
USED_OF_BUDGET = 0.9  # the rest is for the page, and for what was measured badly
SHOWN = 20  # names of classes
IMAGES = {"digits": 100}  # attacked at the most, unless --images says otherwise: the first command is to end soon


def _parser() -> Parser:
    parser = Parser(
        "python -m robustcmp.eval",
        "Attack the images that all models classify correctly, and print success rates and the robustness "
        "indicator R. Rerun the same command to do only what is missing.",
        "  python -m robustcmp.eval --model lenet5\n"
        "  python -m robustcmp.eval --model lenet1 --framework torch jax --training-seeds 0 1 2 --repeats 2\n"
        "  python -m robustcmp.eval --weights torch=mine.pt tensorflow=yours.keras --architecture lenet5\n"
        "  python -m robustcmp.eval --weights small:torch=nets:small large:torch=nets:large --dataset mnist\n"
        "  python -m robustcmp.eval --model lenet5 --same-weights torch --suite control",
        usage="%(prog)s (--model NAME | --weights [NAME:]FRAMEWORK=FILE ...) [options]",
    )
    _add_models(parser)
    _add_attacks(parser)
    _add_machine(parser)
    _add_output(parser)
    return parser


def _add_models(parser: Parser) -> None:
    group = parser.add_argument_group("what to compare")
    models = group.add_mutually_exclusive_group(required=True)
    models.add_argument("--model", metavar="NAME", help="lenet1, lenet5, resnet20, vgg16 or FILE.toml")
    models.add_argument(
        "--weights",
        nargs="+",
        action="extend",
        metavar="[NAME:]FRAMEWORK=FILE",
        help="networks trained elsewhere: files, or module:function, a function without arguments that returns the "
        "network, or robustcmp.wrap(network, ...) with its bounds and preprocessing. Networks of one name are "
        "trainings of one model; without names, those of one framework are. After the file of a network that expects "
        "(images - mean) / std, add mean and std: torch=mine.pt,mean=0.1307,std=0.3081. After that of one that ends in "
        "a softmax, add softmax, which cuts it",
    )
    group.add_argument(
        "--architecture", metavar="NAME", help="the network of --weights: a name, FILE.toml or module:function"
    )
    group.add_argument(
        "--framework",
        nargs="+",
        metavar="NAME",
        help="torch, tensorflow, jax, theano, … (default: those installed)",
    )
    group.add_argument(
        "--dataset",
        metavar="NAME",
        help="mnist, digits or cifar10 (default: the model's dataset); for --weights also npz:FILE, an archive with "
        "images and labels, or folder:DIR, with a subfolder of images for each class",
    )
    group.add_argument(
        "--recipe", default="default", metavar="NAME", help="the recipe that the models were trained with"
    )
    group.add_argument(
        "--training-seeds",
        type=int,
        nargs="+",
        metavar="N",
        help="trainings of each framework (default: all that every framework has); 0 is the paper's single training",
    )
    group.add_argument(
        "--same-weights",
        metavar="FRAMEWORK",
        help="run this framework's weights in every framework: the same-weights control",
    )
    group.add_argument(
        "--deploy",
        nargs="+",
        metavar="NAME",
        help="also compare each model with conversions of it: onnxruntime, onnxruntime-int8, … "
        "(robustcmp list deployments)",
    )
    group.add_argument("--data-dir", metavar="DIR", help="directory of the dataset")


def _add_attacks(parser: Parser) -> None:
    group = parser.add_argument_group("attacks")
    group.add_argument(
        "--suite",
        nargs="+",
        default=["guo2019"],
        metavar=("NAME", "NAME=CODE"),
        help="a suite's name or TOML file, and attacks of your own beside it: mine=module:function, a function without "
        "arguments that returns an attack, such as robustcmp.attacks.FunctionAttack",
    )
    group.add_argument("--images", type=int, metavar="N", help="number of images (default: the suite's; digits: 100)")
    group.add_argument(
        "--within",
        type=read_time,
        metavar="TIME",
        help="choose images and attacks that take at most this long on this machine: 90s, 10m or 1h",
    )
    group.add_argument(
        "--repeats",
        nargs="+",
        metavar=("N", "ATTACK=N"),
        help="repeats on each training, for all attacks or for one (10 boundary=2); by default the suite's number is "
        "spread over the trainings of a framework",
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="the attacks' seed")
    group.add_argument(
        "--also",
        nargs="+",
        default=[],
        choices=("transfer", "conditioning"),
        metavar="WHAT",
        help="test each model on the others' adversarial images (transfer); attack images that some models misclassify "
        "(conditioning)",
    )


def _add_machine(parser: Parser) -> None:
    group = parser.add_argument_group("machine")
    group.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu or cuda")
    group.add_argument("--batch-size", type=int, metavar="N", help="images per forward pass (default: measured)")
    group.add_argument(
        "--executor",
        default="auto",
        metavar="WHERE",
        help="where attacks run: in this process (in-process); in a process for each framework, so that a crash ends "
        "one attack on one model (isolated); in workers on this machine (dask:4) or of a scheduler of Dask "
        "(tcp://HOST:8786). auto is isolated if attacks take over three minutes. Limits of one attack on one "
        "model can follow, memory in GiB: isolated,seconds=3600,memory=8",
    )
    group.add_argument("--dry-run", action="store_true", help="print what would be done and how long it would take")


def _add_output(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out",
        metavar="DIR",
        help="the run's directory (default: runs/MODEL-DATASET-SUITE; with --weights their names are added)",
    )
    group.add_argument("--no-images", action="store_true", help="do not store adversarial images")
    group.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    group.add_argument("--full", action="store_true", help="print all tables, not one screen")
    group.add_argument("--quiet", action="store_true", help="print nothing but the results")


@as_command("robustcmp.eval")
@drop_log_lines()
def main(words: Sequence[str]) -> None:
    """Compare what the arguments name."""
    start = time.monotonic()
    options = read_options(words)
    evaluation = compare(options, words, start)
    if evaluation is not None:
        _print(options, evaluation)
        check_complete(evaluation)


def read_options(arguments: Sequence[str]) -> Namespace:
    """Return the options of a comparison."""
    return _parser().parse_args(arguments)


def compare(options: Namespace, words: Sequence[str], start: float) -> Evaluation | None:
    """Compare what the options name; None if only an estimate was asked for.

    `words` are the arguments of the command, for the manifest, and `start` is when it began by the monotonic clock.
    """
    # Only now: a mistyped option should not wait for imports.
    from ..frameworks import check_device
    from ..records.manifest import read_suite_file

    suite_file = read_suite_file(options.suite[0])
    check_device(options.device)
    if options.within is not None and options.images is not None:
        raise UsageError("--within chooses the number of images: leave out --images")
    if "transfer" in options.also and options.no_images:
        raise UsageError("--also transfer needs the adversarial images, so it cannot be combined with --no-images")
    where = _read_executor(options.executor)
    comparison = _add_deployments(
        options, _from_files(options) if options.weights else _of_the_zoo(options, _tell(options))
    )
    if options.images is None:
        options.images = suite_file.images
        if options.model:
            options.images = min(suite_file.images, IMAGES.get(comparison.data.name, suite_file.images))
    about = comparison.about | _describe_question(options, suite_file, comparison, words)
    comparison = comparison._replace(about=about)
    options.out = options.out or _name_directory(options, comparison)
    if options.within is None and not options.dry_run:
        finished = _find_finished(options, about)
        if finished is not None:
            return finished
    return _compare_anew(options, words, start, comparison, where)


def _compare_anew(
    options: Namespace, words: Sequence[str], start: float, comparison: _Comparison, where: dict[str, Any]
) -> Evaluation | None:
    """Load attacks and models, which a finished run does not need, and compare; None for an estimate."""
    from ..attacks.suite import load_suite
    from ..compare import evaluate
    from ..processes import Limits
    from ..runs.executors import choose_executor
    from ..runs.followups import check_conditional

    suite = load_suite(options.suite[0])
    if options.suite[1:]:
        suite = _add_own(suite, options.suite[1:])
    repeats = suite.count_repeats(_repeats(options.repeats or [], suite))
    choose_executor(where["executor"], Limits(where["group_seconds"], where["group_memory"]))
    if "conditioning" in options.also:
        check_conditional(suite)
    tell = _tell(options)
    about = comparison.about
    arguments = _arguments(options, suite, repeats, about)
    evaluation = None
    if options.within is not None:
        suite, options.images = _fit(comparison, suite, arguments, options.within, start, tell)
        repeats = {name: repeats[name] for name in suite.attacks}
        chosen = {"seconds": options.within, "images": options.images, "attacks": list(suite.attacks)}
        command = _format_command([*_drop_within(words), "--images", str(options.images)])
        question = about["question"] | {"images": options.images}
        about = about | {"within": chosen, "command": command, "question": question}
        arguments = _arguments(options, suite, repeats, about)
        evaluation = _find_finished(options, about)
    introduction = "\n".join(_introduce(comparison, suite, options, repeats))
    if options.dry_run:
        tell(introduction)
        _estimate(comparison, suite, arguments)
        return None
    if evaluation is None:
        tell(introduction)
        evaluation = evaluate(comparison.origins, comparison.data.images, comparison.data.labels, **where, **arguments)
    for measure in _list_missing(options, evaluation):
        measure(progress=not options.quiet)
    return evaluation


def _tell(options: Namespace) -> Say:
    """Return what prints lines for the person at the terminal, nothing if they want to be left alone."""
    return (lambda text: None) if options.quiet else say


def check_complete(evaluation: Evaluation) -> None:
    """Raise an error if the same-weights control did not pass, or attacks failed."""
    if evaluation.results.same_weights and not evaluation.results.same_weights["passed"]:
        raise ControlError("the control did not pass: these frameworks give different results for the same weights")
    if evaluation.failed:
        failed = evaluation.failed
        each = [f"{attack} on {label}: {why}" for label, reasons in failed.items() for attack, why in reasons.items()]
        raise GroupError(
            f"{len(each)} attacks failed on a model. Everything else is finished, and the same command tries only "
            "these again:\n  " + "\n  ".join(each)
        )


def _read_executor(text: str) -> dict[str, Any]:
    """Read where attacks run and what limits them, such as ``isolated,seconds=3600,memory=8``, as for `evaluate`."""
    words = text.split(",")
    executor = "auto" if "=" in words[0] else words.pop(0)
    where: dict[str, Any] = {"executor": executor, "group_seconds": None, "group_memory": None}
    for word in words:
        match = re.fullmatch(r"(seconds|memory)=([-\d.]+)", word)
        if not match:
            raise UsageError(f"--executor: expected seconds=S or memory=GIB as its limits, received {word!r}")
        unit = {"seconds": 1, "memory": 2**30}[match[1]]
        where[f"group_{match[1]}"] = float(match[2]) * unit
    return where


def read_time(text: str) -> float:
    """Return seconds from a time such as 10m."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", text)
    if not match or float(match[1]) == 0:
        raise ArgumentTypeError(f"expected a time such as 90s, 10m or 1h, received {text}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def _drop_within(words: Sequence[str]) -> list[str]:
    """Return the arguments of a command without its time."""
    return [word for before, word in pairwise(["", *words]) if before != "--within" and not word.startswith("--within")]


def _add_own(suite: Suite, words: Sequence[str]) -> Suite:
    """Return a suite with attacks of the user's, ``NAME=module:function``, beside its own."""
    from ..attacks.suite import check_attack
    from ..sources.from_code import call_function, is_function

    added: dict[str, Any] = {}
    for text in words:
        name, _, source = text.partition("=")
        if not is_function(source):
            raise UsageError(f"--suite: expected NAME=module:function, received {text!r}")
        if name in suite.attacks or name in added:
            raise UsageError(f"--suite: {name} is the name of another attack of the suite {suite.name}")
        try:
            added[name] = call_function(source)
        except ModelError as error:
            raise UsageError(
                f"--suite: {error}. Name a function without arguments that returns an attack, such as "
                "robustcmp.attacks.FunctionAttack(function, epsilon=0.1)"
            ) from error
        check_attack(name, added[name])
    return replace(suite, name="-".join([suite.name, *added]), attacks=suite.attacks | added)


def _describe_question(
    options: Namespace, suite_file: SuiteFile, comparison: _Comparison, words: Sequence[str]
) -> dict[str, Any]:
    """Return what the outcome depends on beside the images, and the command, for the manifest.

    Models are not told apart where the code of a user has a part in one of them.
    """
    from ..files import json_digest
    from ..provenance import made_with

    prints = {label: [origin.fingerprint for origin in each] for label, each in comparison.origins.items()}
    question = {
        "suite": json_digest(msgspec.to_builtins(suite_file)),
        "images": options.images,
        "repeats": options.repeats,
        "seed": options.seed,
        "batch_size": options.batch_size,
        "device": options.device,
        "keep_images": not options.no_images,
        "training_seeds": options.training_seeds,
        "same_weights": options.same_weights,
        "environment": made_with(),
        "models": None if any(None in each for each in prints.values()) else prints,
    }
    return {"question": question, "command": _format_command(words)}


def _format_command(words: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "robustcmp.eval", *words])


def _name_directory(options: Namespace, comparison: _Comparison) -> str:
    """Return the usual directory of a run."""
    suite, *others = options.suite
    names = [Path(suite).stem, *(text.partition("=")[0] for text in others)]
    dataset = comparison.data.name.replace(":", "-")  # some systems take no colon in a path
    return f"runs/{comparison.about['model']}-{dataset}-{'-'.join(names)}{comparison.suffix}"


def _arguments(options: Namespace, suite: Suite, repeats: dict[str, int], about: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `evaluate` after the models and the images."""
    return {
        "suite": suite,
        "n": options.images,
        "repeats": repeats,
        "spread_repeats": not options.repeats,
        "seed": options.seed,
        "data_format": "channels_last",
        "out": options.out,
        "batch_size": options.batch_size,
        "keep_images": not options.no_images,
        "about": about,
        "device": options.device,
        "progress": not options.quiet,
    }


def _find_finished(options: Namespace, about: dict[str, Any]) -> Evaluation | None:
    """Return the finished run of just this question, where there is one and no code of a user has a part in it."""
    from ..evaluation import find_finished

    is_known = about["question"]["models"] and not options.suite[1:]
    finished = find_finished(options.out, about) if is_known else None
    return None if finished is None or _list_missing(options, finished) else finished


def _fit(
    comparison: _Comparison, suite: Suite, arguments: dict[str, Any], budget: float, start: float, tell: Say
) -> tuple[Suite, int]:
    """Choose the attacks and the number of images for a time, from measured speed; as in the run if it has chosen."""
    from ..analysis.gate import fit_within, smallest_margin
    from ..records.store import Run
    from ..report.format import duration

    before = Run(arguments["out"]).manifest().get("about", {})
    chosen = before.get("within", {})
    is_same = chosen.get("seconds") == budget and suite.attacks.keys() >= {*chosen["attacks"]}
    models_and_data = _models_and_data(arguments["about"])
    if is_same and all(models_and_data) and _models_and_data(before) == models_and_data:
        attacks: list[str] = chosen["attacks"]
        images: int = chosen["images"]
    else:
        looked_up = time.monotonic()
        store = Run.create(None)
        plan = _plan(comparison, arguments, store)
        loading = time.monotonic() - looked_up  # which is done once more, for the attacks
        seconds = plan.time_attacks(store, TIMED_OF_BUDGET * budget)
        used = plan.check_seconds() + loading + time.monotonic() - start
        attacks, images = fit_within(seconds, len(plan.images), USED_OF_BUDGET * budget - used)
        if not images:
            raise UsageError(
                f"--within {duration(budget)} leaves no time for an image: loading and checking the models "
                f"takes about {duration(used)} on this machine. Allow more time"
            )
    left_out = [name for name in suite.attacks if name not in attacks]
    without = f" without {', '.join(left_out)}" if left_out else ""
    margin = 100 * smallest_margin(images)
    tell(
        f"{images} images{without} fit into {duration(budget)}. They show a difference of {margin:.1f} points "
        f"if the models disagree on 5 % of images. To repeat it anywhere: --images {images}"
    )
    return replace(suite, attacks={name: suite.attacks[name] for name in attacks}), images


def _models_and_data(about: dict[str, Any]) -> tuple[Any, str]:
    """Return what a manifest says of the files of models, None where code has a part, and the digest of its data."""
    return about["question"]["models"], about["data"]


def _plan(comparison: _Comparison, arguments: dict[str, Any], store: Run) -> Plan:
    """Load and check the models; no attack is run."""
    from ..compare import prepare, progress_of
    from ..runs.question import validate

    of_question = ("suite", "n", "repeats", "spread_repeats", "seed", "batch_size", "data_format")
    question = validate(comparison.data.images, comparison.data.labels, *(arguments[name] for name in of_question))
    with progress_of(arguments["progress"]) as progress:
        plan, _ = prepare(comparison.origins, question, store, {}, arguments["device"], progress)
    return plan


def _estimate(comparison: _Comparison, suite: Suite, arguments: dict[str, Any]) -> None:
    """Print what would be done and about how long it takes; no attack is run, and nothing is written."""
    from ..records.store import Run
    from ..report.format import duration

    directory = arguments["out"]
    store = Run.create(directory if Path(directory).exists() else None)
    plan = _plan(comparison, arguments, store)
    seconds = plan.seconds(store)
    cells = Counter(cell.attack for cell in plan.cells)
    missing = Counter(cell.attack for cell, queries in plan.queries(store).items() if queries)
    which = "of the test set" if suite.subset == "all" else "that all of them classify correctly"
    show(f"{len(plan.models)} models, {len(plan.images)} images {which}, suite {suite.name}")
    for attack in suite.attacks:
        to_do = f"{missing[attack]} of {cells[attack]} cells to do, about {duration(seconds[attack])}"
        show(f"{attack}: {to_do if cells[attack] else 'not applicable'}")
    show(f"health checks: about {duration(plan.check_seconds())}")
    show(f"about {duration(sum(seconds.values()))} for all attacks on this machine; the run is {directory}")


def _list_missing(options: Namespace, evaluation: Evaluation) -> list[Callable[..., object]]:
    """Return how to measure what was asked for beside the attacks and is not there, health checks first."""
    measures: list[Callable[..., object]] = []
    results = evaluation.results
    if not results.same_weights and results.checked is None:
        measures.append(evaluation.run_checks)
    if "transfer" in options.also and results.transferred is None:
        measures.append(evaluation.run_transfer)
    if "conditioning" in options.also and results.conditioned is None:
        measures.append(evaluation.run_conditioning)
    return measures


def _print(options: Namespace, evaluation: Evaluation) -> None:
    dataset = evaluation.manifest["about"]["dataset"]
    for trained in sorted(
        {model["info"].get("dataset", dataset) for model in evaluation.manifest["models"]} - {dataset}
    ):
        _tell(options)(f"some of these networks were trained on {trained} but are compared on {dataset}")
    from ..files import remove_left_over
    from ..report.text import summary, to_text

    remove_left_over(evaluation.results.run.directory, "report")  # by a command that was killed while it wrote its page
    page = evaluation.results.run.directory / "report.html"
    evaluation.to_html(page)  # first: whoever reads the screen may stop
    if options.json:
        print(json.dumps(evaluation.to_json()), flush=True)
        return
    write = to_text if options.full else summary
    print(write(evaluation.results, screen_width(), use_color(sys.stdout)), flush=True)
    show(f"\nReport: {page}" + ("" if options.full else "   All tables: --full"))


def _repeats(words: Sequence[str], suite: Suite) -> dict[str, int]:
    """Read numbers of repeats, of all attacks of a suite (``10``) or of one (``boundary=2``)."""
    repeats: dict[str, int] = {}
    for text in words:
        attack, _, number = text.rpartition("=")
        try:
            repeats |= {attack: int(number)} if attack else dict.fromkeys(suite.attacks, int(number))
        except ValueError:
            raise UsageError(f"--repeats: expected numbers like 10 or boundary=2, received {text!r}") from None
    return repeats


class _Comparison(NamedTuple):
    """What the options ask about: models that are not loaded yet, and the images."""

    about: dict[str, Any]  # notes for the manifest
    suffix: str  # of the run's default directory
    dataset: str  # where the images are loaded from
    data: Dataset
    origins: Mapping[str, Sequence[AnyOrigin]]
    notes: list[str]  # lines about the models, for who waits


def _of_the_zoo(options: Namespace, tell: Say) -> _Comparison:
    """Check and look up what ``--model`` asks for."""
    from ..networks.architecture import get_architecture
    from ..sources.from_zoo import check_names, common_seeds, zoo_origins
    from ..sources.recipes import default_dataset, load_test_set

    if options.architecture is not None:
        raise UsageError("--architecture describes the network of --weights and cannot be combined with --model")
    named = {"frameworks": options.framework, "recipe": options.recipe, "weights_of": options.same_weights}
    seeds = options.training_seeds
    check_names(
        options.model, options.dataset or default_dataset(options.model, options.recipe), seeds=seeds or [0], **named
    )
    data = load_test_set(options.model, options.dataset, options.data_dir, tell, options.recipe)
    if seeds is None:
        frameworks = [options.same_weights] if options.same_weights else options.framework
        seeds = common_seeds(options.model, data.name, frameworks, options.recipe)
        seeds = seeds[:1] if options.same_weights else seeds
    origins = zoo_origins(options.model, dataset=data.name, seeds=seeds, **named)
    model = get_architecture(options.model).name
    about = {"model": model, "dataset": data.name, "recipe": options.recipe, "data": data.digest}
    suffix = f"-same-weights-{options.same_weights}" if options.same_weights else ""
    return _Comparison(about, suffix, data.name, data, origins, [])


def _describe_trainings(options: Namespace, comparison: _Comparison) -> list[str]:
    """Return a line for each kind of training of the zoo: whose, how many, and where they come from."""
    from ..sources.from_zoo import FromZoo, describe_sources

    trained: dict[str, list[FromZoo]] = {}
    for origins in comparison.origins.values():
        of_zoo = [origin for origin in origins if isinstance(origin, FromZoo)]
        if of_zoo:
            trained[of_zoo[0].framework] = of_zoo
    alike: dict[str, list[str]] = {}
    for framework, trainings in trained.items():
        count = f"{len(trainings)} trainings" if len(trainings) > 1 else "one training"
        alike.setdefault(f"{count} each, {describe_sources(trainings)}", []).append(framework)
    return [f"{options.model} on {comparison.data.name}: {', '.join(names)}; {about}" for about, names in alike.items()]


def _from_files(options: Namespace) -> _Comparison:
    """Check and look up what ``--weights`` asks for."""
    from ..data import is_own, load_dataset
    from ..sources.named_files import (
        describe_normalisation,
        describe_pooling,
        directory_part,
        file_origins,
        pair_with_sources,
    )
    from ..sources.recipes import default_dataset

    if options.framework or options.same_weights or options.training_seeds or options.recipe != "default":
        raise UsageError("--weights cannot be combined with --framework, --training-seeds, --recipe or --same-weights")
    unpaired = file_origins(options.weights, options.architecture)
    origins, lines = pair_with_sources(unpaired)
    lines += describe_pooling(unpaired)
    networks = [network for each in origins.values() for network in each]
    design = networks[0].design
    dataset = options.dataset or (design and default_dataset(design))
    if dataset is None:
        raise UsageError("expected --dataset: the images that the networks are compared on")
    data = load_dataset(dataset, "test", data_dir=options.data_dir)
    if len({*data.labels.tolist()}) < 2:
        raise UsageError(
            f"expected images of two classes or more, received one class in {dataset}. In a folder, each class has a "
            "subfolder of images"
        )
    lines += describe_normalisation(origins, data.images.shape[-1])
    if is_own(dataset):
        lines.append(_describe_images(data))
    about: dict[str, Any] = {
        "model": networks[0].name,
        "dataset": data.name,
        "recipe": None,
        "data": data.digest,
        "classes": list(data.class_names),
    }
    if data.notes:
        about["data_notes"] = [f"{data.name}: {note}" for note in data.notes]
    is_normalised = any(origin.mean or origin.std for each in unpaired.values() for origin in each)
    suffix = f"-weights-{directory_part(origins)}{'-normalised' if is_normalised else ''}"
    return _Comparison(about, suffix, dataset, data, origins, lines)


def _describe_images(data: Dataset) -> str:
    """Return a line about images of the user's: which class has which number is worth a look."""
    shape = " × ".join(map(str, data.images.shape[1:]))
    names = ", ".join(f"{number} {name}" for number, name in enumerate(data.class_names[:SHOWN]))
    return f"{data.name}: {len(data.images):,} images of {shape}, {data.classes} classes{names and f': {names}'}"


def _add_deployments(options: Namespace, comparison: _Comparison) -> _Comparison:
    """Add the deployments that ``--deploy`` asks for."""
    if not options.deploy:
        return comparison
    from ..sources.deployed import deployments_of
    from ..sources.from_files import FromFile
    from ..sources.from_zoo import FromZoo

    if options.same_weights:
        raise UsageError("--deploy converts every model that is compared: it cannot be combined with --same-weights")
    sources = {
        label: [origin for origin in each if isinstance(origin, FromZoo | FromFile)]
        for label, each in comparison.origins.items()
    }
    sources = {label: each for label, each in sources.items() if each}
    deployed = deployments_of(sources, options.deploy, comparison.dataset, options.data_dir)
    if both := [label for label in deployed if label in comparison.origins]:
        raise UsageError(
            f"{both[0]} is compared as a file and asked for with --deploy: leave out one of them, or compare twice"
        )
    line = f"each also as {', '.join(options.deploy)}"
    return comparison._replace(
        origins={**comparison.origins, **deployed},
        suffix=f"{comparison.suffix}-deployed",
        notes=[*comparison.notes, line],
    )


def _introduce(comparison: _Comparison, suite: Suite, options: Namespace, repeats: dict[str, int]) -> list[str]:
    """Return the lines that say, before any work, what is compared."""
    data = comparison.data
    lines = [*_describe_trainings(options, comparison), *comparison.notes]
    wanted = options.images or suite.images
    if wanted < suite.images and wanted == IMAGES.get(data.name):
        lines.append(f"{wanted} images of {data.name} are attacked (all of them: --images {len(data.images)})")
    if len(data.images) < wanted:
        lines.append(f"{data.name} has {len(data.images)} test images, fewer than the {wanted:,} requested")
    trainings = min(map(len, comparison.origins.values()))
    random = max((repeats[name] for name, attack in suite.attacks.items() if not attack.deterministic), default=1)
    if trainings > 1 and random > 1 and not options.repeats:
        lines.append(
            f"the {trainings} trainings of a framework share the {random} repeats of a random attack "
            f"(all repeats on each: --repeats {random})"
        )
    return lines
