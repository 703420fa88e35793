"""``python -m robustcmp.train``: train models by a recipe of the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ..errors import check_count
from ..frameworks import check_device
from .command import Parser, run_command, say


def _parser() -> Parser:
    parser = Parser("python -m robustcmp.train", "Train a model by a recipe of the zoo; the same command resumes.")
    parser.add_argument("--model", required=True, help="lenet1, lenet5, resnet20, vgg16 or FILE.toml")
    parser.add_argument("--framework", required=True, nargs="+", help="torch, tensorflow, jax, theano, …")
    parser.add_argument("--dataset", help="mnist, digits or cifar10; the one that the recipe names first if not given")
    parser.add_argument("--recipe", default="default", help="a recipe of zoo/MODEL.toml")
    parser.add_argument("--training-seeds", type=int, nargs="+", default=[0], help="one training each")
    parser.add_argument("--epochs", type=int, default=None, help="instead of the recipe's")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--data-dir", default=None, help="where the dataset lies")
    parser.add_argument("--out", default=None, help="directory for the weights instead of the user cache")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what the arguments name and return the exit status."""
    return run_command(_train, "python -m robustcmp.train", arguments)


def _train(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    # Only now: a mistyped option should not wait for imports.
    from tqdm import tqdm

    from ..zoo.fitting import fit
    from ..zoo.from_zoo import check_names
    from ..zoo.recipes import default_dataset

    dataset = options.dataset or default_dataset(options.model, options.recipe)
    check_names(options.model, dataset, options.framework, options.training_seeds, options.recipe)
    if options.epochs is not None:
        check_count("epochs", options.epochs)
    check_device(options.device)
    for framework in options.framework:
        for seed in options.training_seeds:
            bar = tqdm(desc=f"{options.model} {dataset} {framework} seed {seed}", unit="epoch")

            def progress(epoch: int, epochs: int, last: dict[str, float], bar: tqdm[NoReturn] = bar) -> None:
                bar.total = epochs
                bar.set_postfix(loss=f"{last['loss']:.4f}", validation=f"{last['validation_accuracy']:.4f}")
                bar.update(epoch - bar.n)

            with bar:
                model = fit(
                    options.model,
                    framework=framework,
                    dataset=dataset,
                    seed=seed,
                    recipe=options.recipe,
                    epochs=options.epochs,
                    device=options.device,
                    out=options.out,
                    data_dir=options.data_dir,
                    progress=progress,
                )
            say(f"test accuracy {model.info['test_accuracy']:.4f}")
