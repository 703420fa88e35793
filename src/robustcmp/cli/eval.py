"""``python -m robustcmp.eval``: compare trained models of one network design."""

from __future__ import annotations

import json
import logging
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ControlError, UsageError
from .command import Parser, run_command, say

if TYPE_CHECKING:
    from ..attacks.suite import Suite
    from ..data.dataset import Dataset
    from ..runs.subset import Models


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
    from ..comparison import answered, check_question, evaluate
    from ..frameworks import check_device
    from ..provenance import environment
    from ..report.report import to_text

    suite = load_suite(options.suite)
    repeats = suite.repeated(_repeats(options.repeats or [], suite))
    check_question(options.images, options.batch_size, options.seed)
    check_device(options.device)
    if options.transfer and options.no_images:
        raise UsageError("--transfer needs the adversarial images, so it cannot stand beside --no-images")
    asked = _from_files(options) if options.weights else _of_the_zoo(options)
    about = {
        "model": asked.model,
        "dataset": asked.data.name,
        "recipe": None if options.weights else options.recipe,
        "data": asked.data.digest,
        "question": {
            "suite": suite.digest,
            "images": options.images or suite.images,
            "repeats": repeats,
            "seed": options.seed,
            "batch_size": options.batch_size,
            "device": options.device,
            "keep_images": not options.no_images,
            "training_seeds": options.training_seeds,
            "models": asked.models,
            "same_weights": options.same_weights,
            "environment": environment(),
        },
    }
    out = options.out or f"runs/{asked.model}-{asked.data.name}-{suite.name}{asked.suffix}"
    finished = answered(out, about) if asked.models else None
    if options.transfer and finished and finished.transferred is None:
        finished = None  # the models are needed once more
    evaluation = finished or evaluate(
        asked.load(),
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
    )
    if not evaluation.same_weights and evaluation.has_models:
        say("health checks")
        if evaluation.checked is None:
            evaluation.run_checks()
    if options.transfer and evaluation.transferred is None:
        evaluation.run_transfer()
    if options.json:
        print(json.dumps(evaluation.to_json()))
    else:
        print(to_text(evaluation, color=sys.stdout.isatty()))
        say(f"the run is kept in {evaluation.run.directory}")
    if evaluation.same_weights and not evaluation.same_weights["passed"]:
        raise ControlError("the same weights do not come out alike in these frameworks: the control did not pass")


def _repeats(given: Sequence[str], suite: Suite) -> dict[str, int]:
    """Read numbers of repeats, of all attacks of a suite (``10``) or of one (``boundary=2``)."""
    repeats: dict[str, int] = {}
    for one in given:
        attack, _, number = one.rpartition("=")
        try:
            repeats |= {attack: int(number)} if attack else dict.fromkeys(suite.attacks, int(number))
        except ValueError:
            raise UsageError(f"--repeats: expected numbers like 10 or boundary=2, received {one!r}") from None
    return repeats


class _Asked(NamedTuple):
    """What a comparison is about, before a framework is loaded."""

    model: str  # in headings and in the name of the run
    suffix: str
    data: Dataset
    models: dict[str, Any] | None  # what tells them apart, where that can be known without loading them
    load: Callable[[], Models]


def _of_the_zoo(options: Namespace) -> _Asked:
    """Check and look up what ``--model`` asks for."""
    from ..networks.architecture import get_architecture
    from ..zoo.loading import load_models, load_test_set
    from ..zoo.names import check_names, fingerprints
    from ..zoo.recipes import default_dataset

    if options.architecture is not None:
        raise UsageError("--architecture says what network --weights are for; with --model it has no meaning")
    named = {"frameworks": options.framework, "seeds": options.training_seeds, "recipe": options.recipe}
    named |= {"weights_of": options.same_weights}
    check_names(options.model, options.dataset or default_dataset(options.model, options.recipe), **named)
    data = load_test_set(options.model, options.dataset, options.data_dir, say, options.recipe)
    named |= {"dataset": data.name}
    return _Asked(
        get_architecture(options.model).name,
        f"-same-weights-{options.same_weights}" if options.same_weights else "",
        data,
        fingerprints(options.model, **named),
        lambda: load_models(options.model, **named, device=options.device, say=say),
    )


def _from_files(options: Namespace) -> _Asked:
    """Check and look up what ``--weights`` asks for."""
    from ..data import load_dataset
    from ..zoo.from_files import Sources
    from ..zoo.recipes import default_dataset

    if options.framework or options.same_weights or options.training_seeds != [0] or options.recipe != "default":
        raise UsageError("--weights takes no --framework, --training-seeds, --recipe or --same-weights beside it")
    sources = Sources.parse(options.weights, options.architecture)
    dataset = options.dataset or (sources.design and default_dataset(sources.design))
    if dataset is None:
        raise UsageError("say with --dataset which images the networks are compared on")

    def load() -> Models:
        models = sources.load(options.device)
        infos = [getattr(model, "info", {}) for its in models.values() for model in its]
        for trained in sorted({info.get("dataset", dataset) for info in infos} - {dataset}):
            say(f"some of these weights were trained on {trained}, and are compared on {dataset}")
        return models

    data = load_dataset(dataset, "test", data_dir=options.data_dir)
    return _Asked(sources.name, "-weights", data, sources.fingerprint, load)
