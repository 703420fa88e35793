"""``python -m robustcmp.eval``: compare trained models of one network design."""

from __future__ import annotations

import json
import logging
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ControlError, UsageError
from .command import Parser, run_command, say

if TYPE_CHECKING:
    from ..attacks.suite import Suite
    from ..data.dataset import Dataset
    from ..evaluation import Evaluation
    from ..zoo.origins import Origin


def _parser() -> Parser:
    parser = Parser(
        "python -m robustcmp.eval",
        "Attack the images that all models classify correctly, and print success rates and the indicator R. "
        "The same command again does only what is missing.",
    )
    models = parser.add_mutually_exclusive_group(required=True)
    models.add_argument("--model", help="lenet1, lenet5, resnet20, vgg16 or FILE.toml")
    models.add_argument(
        "--weights",
        nargs="+",
        action="extend",
        metavar="FRAMEWORK=FILE",
        help="networks trained elsewhere: a file, or module:function, for each",
    )
    parser.add_argument(
        "--architecture", metavar="NAME", help="what network --weights are for: a name, FILE.toml or module:function"
    )
    parser.add_argument(
        "--framework",
        nargs="+",
        help="torch, tensorflow, jax, theano, …; those installed here if not given",
    )
    parser.add_argument("--dataset", help="mnist, digits or cifar10; the one that fits the model if not given")
    parser.add_argument("--recipe", default="default", help="the recipe that the models were trained by")
    parser.add_argument("--training-seeds", type=int, nargs="+", default=[0], help="trainings of each framework")
    parser.add_argument("--suite", default="guo2019", help="a suite's name or TOML file")
    parser.add_argument("--images", type=int, help="how many images; the suite's number if not given")
    parser.add_argument(
        "--repeats",
        nargs="+",
        metavar=("N", "ATTACK=N"),
        help="how often, and single attacks otherwise (10 boundary=2); the suite's number if not given",
    )
    parser.add_argument("--seed", type=int, default=0, help="the attacks' seed")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", help="the run's directory; runs/MODEL-DATASET-SUITE if not given")
    parser.add_argument("--no-images", action="store_true", help="do not store adversarial images")
    parser.add_argument("--batch-size", type=int, help="candidates asked at once; measured if not given")
    parser.add_argument("--data-dir", help="where the dataset lies")
    parser.add_argument(
        "--same-weights", metavar="FRAMEWORK", help="carry this framework's training into every framework: the control"
    )
    parser.add_argument("--transfer", action="store_true", help="also ask what fools one model about the others")
    parser.add_argument("--verbose", action="store_true", help="say how each model is asked")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare what the arguments name and return the exit status."""
    return run_command(_evaluate, "python -m robustcmp.eval", arguments)


def _evaluate(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    if options.verbose:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("robustcmp").setLevel(logging.INFO)
    # Only now: a mistyped option should not wait for imports.
    from ..attacks.suite import load_suite
    from ..comparison import check_numbers
    from ..frameworks import check_device

    suite = load_suite(options.suite)
    repeats = suite.repeated(_repeats(options.repeats or [], suite))
    check_numbers(options.images, options.batch_size, options.seed)
    check_device(options.device)
    if options.transfer and options.no_images:
        raise UsageError("--transfer needs the adversarial images, so it cannot stand beside --no-images")
    asked = _from_files(options) if options.weights else _of_the_zoo(options)
    evaluation = _answer(options, suite, repeats, asked)
    _ask_more(options, evaluation)
    _print(options, evaluation)
    if evaluation.same_weights and not evaluation.same_weights["passed"]:
        raise ControlError("the same weights do not come out alike in these frameworks: the control did not pass")


def _answer(options: Namespace, suite: Suite, repeats: dict[str, int], asked: _Asked) -> Evaluation:
    """Return the finished run of just this question where there is one, else make or finish it."""
    from ..comparison import evaluate
    from ..evaluation import answered
    from ..zoo.origins import fingerprints

    prints = fingerprints(asked.origins)
    about = asked.about | {"question": _question(options, suite, repeats) | {"models": prints}}
    out = options.out or f"runs/{asked.about['model']}-{asked.data.name}-{suite.name}{asked.suffix}"
    finished = answered(out, about) if prints else None
    if finished and not (options.transfer and finished.transferred is None):
        return finished
    asked.announce()
    return evaluate(
        asked.origins,
        asked.data.images,
        asked.data.labels,
        suite=suite,
        n=options.images,
        repeats=repeats,
        seed=options.seed,
        out=out,
        batch_size=options.batch_size,
        keep_images=not options.no_images,
        about=about,
        device=options.device,
    )


def _question(options: Namespace, suite: Suite, repeats: dict[str, int]) -> dict[str, Any]:
    """Return what the outcome depends on, beside the models and the images."""
    from ..provenance import made_with

    return {
        "suite": suite.digest,
        "images": options.images or suite.images,
        "repeats": repeats,
        "seed": options.seed,
        "batch_size": options.batch_size,
        "device": options.device,
        "keep_images": not options.no_images,
        "training_seeds": options.training_seeds,
        "same_weights": options.same_weights,
        "environment": made_with(),
    }


def _ask_more(options: Namespace, evaluation: Evaluation) -> None:
    """Make the health checks, and the transfer where it was asked for, unless they are there."""
    if not evaluation.same_weights and evaluation.has_models:
        say("health checks")
        if evaluation.checked is None:
            evaluation.run_checks()
    if options.transfer and evaluation.transferred is None:
        evaluation.run_transfer()


def _print(options: Namespace, evaluation: Evaluation) -> None:
    from ..report.text import to_text

    dataset = evaluation.manifest["about"]["dataset"]
    for trained in sorted(
        {model["info"].get("dataset", dataset) for model in evaluation.manifest["models"]} - {dataset}
    ):
        say(f"some of these weights were trained on {trained}, and are compared on {dataset}")
    if options.json:
        print(json.dumps(evaluation.to_json()))
    else:
        print(to_text(evaluation, color=sys.stdout.isatty()))
        say(f"the run is kept in {evaluation.run.directory}")


def _repeats(given: Sequence[str], suite: Suite) -> dict[str, int]:
    """Read numbers of repeats, of all attacks of a suite (``10``) or of one (``boundary=2``)."""
    repeats: dict[str, int] = {}
    for text in given:
        attack, _, number = text.rpartition("=")
        try:
            repeats |= {attack: int(number)} if attack else dict.fromkeys(suite.attacks, int(number))
        except ValueError:
            raise UsageError(f"--repeats: expected numbers like 10 or boundary=2, received {text!r}") from None
    return repeats


class _Asked(NamedTuple):
    """What the options ask about: models that are not loaded yet, and the images."""

    about: dict[str, Any]  # notes for the manifest
    suffix: str  # of the run's default directory
    data: Dataset
    origins: Mapping[str, Sequence[Origin]]
    announce: Callable[[], None]  # tell where the models come from


def _of_the_zoo(options: Namespace) -> _Asked:
    """Check and look up what ``--model`` asks for."""
    from ..networks.architecture import get_architecture
    from ..zoo.from_zoo import check_names, sources, zoo_origins
    from ..zoo.recipes import default_dataset, load_test_set

    if options.architecture is not None:
        raise UsageError("--architecture says what network --weights are for; with --model it has no meaning")
    named = {"frameworks": options.framework, "seeds": options.training_seeds, "recipe": options.recipe}
    named |= {"weights_of": options.same_weights}
    check_names(options.model, options.dataset or default_dataset(options.model, options.recipe), **named)
    data = load_test_set(options.model, options.dataset, options.data_dir, say, options.recipe)
    origins = zoo_origins(options.model, dataset=data.name, **named)

    def announce() -> None:
        trained = {origin.framework: each for each in origins.values() for origin in each}
        for framework, each in trained.items():
            say(f"{framework}: {options.model} trained on {data.name}, {sources(each)}")

    model = get_architecture(options.model).name
    about = {"model": model, "dataset": data.name, "recipe": options.recipe, "data": data.digest}
    suffix = f"-same-weights-{options.same_weights}" if options.same_weights else ""
    return _Asked(about, suffix, data, origins, announce)


def _from_files(options: Namespace) -> _Asked:
    """Check and look up what ``--weights`` asks for."""
    from ..data import load_dataset
    from ..zoo.from_files import file_origins
    from ..zoo.recipes import default_dataset

    if options.framework or options.same_weights or options.training_seeds != [0] or options.recipe != "default":
        raise UsageError("--weights takes no --framework, --training-seeds, --recipe or --same-weights beside it")
    origins = file_origins(options.weights, options.architecture)
    networks = [network for each in origins.values() for network in each]
    design = networks[0].design
    dataset = options.dataset or (design and default_dataset(design))
    if dataset is None:
        raise UsageError("say with --dataset which images the networks are compared on")
    data = load_dataset(dataset, "test", data_dir=options.data_dir)

    about = {"model": networks[0].name, "dataset": data.name, "recipe": None, "data": data.digest}
    return _Asked(about, "-weights", data, origins, lambda: None)
