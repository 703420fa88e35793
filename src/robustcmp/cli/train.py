"""``python -m robustcmp.train``: train models with a recipe of the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ..errors import check_count
from .command import Parser, as_command, say
from .screen import drop_log_lines


def _parser() -> Parser:
    parser = Parser(
        "python -m robustcmp.train",
        "Train a model with a recipe of the zoo. Rerun the same command to resume.",
        "  python -m robustcmp.train --model lenet5 --framework torch\n"
        "  python -m robustcmp.train --model lenet5 --framework torch jax --dataset digits --training-seeds 0 1",
        usage="%(prog)s --model NAME --framework NAME [NAME ...] [options]",
    )
    group = parser.add_argument_group("what to train")
    group.add_argument(
        "--model",
        required=True,
        metavar="NAME",
        help="lenet1, lenet5, resnet20, vgg16, dlbench_mnist, dlbench_cifar10 or FILE.toml",
    )
    group.add_argument(
        "--framework", required=True, nargs="+", metavar="NAME", help="torch, tensorflow, jax, theano, …"
    )
    group.add_argument("--dataset", metavar="NAME", help="mnist, digits or cifar10 (default: the recipe's first)")
    group.add_argument("--recipe", default="default", metavar="NAME", help="a recipe of zoo/MODEL.toml")
    group.add_argument("--training-seeds", type=int, nargs="+", default=[0], metavar="N", help="one training for each")
    group.add_argument("--epochs", type=int, metavar="N", help="number of epochs (default: the recipe's)")
    group.add_argument("--data-dir", metavar="DIR", help="directory of the dataset")
    machine = parser.add_argument_group("machine and output")
    machine.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu or cuda")
    machine.add_argument("--out", metavar="DIR", help="directory for the weights (default: the user cache)")
    return parser


@as_command("robustcmp.train")
@drop_log_lines()
def main(given: Sequence[str]) -> None:
    """Train what the arguments name."""
    options = _parser().parse_args(given)
    # Only now: a mistyped option should not wait for imports.
    from tqdm import tqdm

    from ..frameworks import check_device
    from ..sources.from_zoo import check_names
    from ..sources.recipes import default_dataset
    from ..sources.training import fit

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
