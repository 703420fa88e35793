"""Compare AutoAttack with its authors' code and other libraries: processor time, and networks from outside.

    git clone https://github.com/fra31/auto-attack build/auto-attack
    python -m pip install --no-deps --target build/rivals torchattacks==3.5.1 adv-lib==0.2.8
    python benchmarks/autoattack.py speed lenet5 20 build/auto-attack build/rivals
    python benchmarks/autoattack.py whole lenet5 1000 build/auto-attack
    python benchmarks/autoattack.py networks 24 6 build/auto-attack

`speed` runs each part and the whole in each library, one after the other. It prints how many images stay robust, and
seconds: the processor's, of one core, or by the clock on a GPU. `whole` compares the robust accuracy with that by the
authors' code, with three seeds. `networks` wraps the two example networks of the authors' repository as a user would,
on so many images of MNIST and of CIFAR-10.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import importlib
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import APGD, APGDTargeted, Attack, AutoAttack, FABTargeted, Square

SEEDS = (0, 1, 2)
EPSILONS = {"mnist": 0.1, "cifar10": 0.5 / 255}
Images = NDArray[np.float32]
Labels = NDArray[np.int64]
Perturb = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def as_tensors(x: Images, y: Labels) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (N, C, H, W) and labels (N,)."""
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))), torch.from_numpy(y)


def robust(model: Any, x: Images, y: Labels) -> int:
    """Return how many images the model classifies correctly."""
    return int((rc.predict(model, np.clip(x, 0, 1)) == y).sum())


def clock(device: str) -> float:
    """Return a time in seconds, of the processor or beside a GPU."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def rivals(network: Any, epsilon: float, device: str) -> dict[str, dict[str, Perturb]]:
    """Return the parts and the whole in each library."""
    code = importlib.import_module("autoattack")
    authors = code.AutoAttack(network, norm="Linf", eps=epsilon, seed=0, verbose=False, device=device)
    authors.fab.targeted = True
    torchattacks = importlib.import_module("torchattacks")
    for name in ("attacks", "utils"):  # the packages themselves import what needs torchvision and visdom
        package = types.ModuleType(f"adv_lib.{name}")
        package.__path__ = [str(Path(importlib.import_module("adv_lib").__path__[0]) / name)]
        sys.modules[package.__name__] = package
    pgd = importlib.import_module("adv_lib.attacks.auto_pgd")
    limits: dict[str, Any] = {"eps": epsilon, "norm": float("inf")}
    return {
        "authors": {
            "APGD-CE": authors.apgd.perturb,
            "APGD-T": authors.apgd_targeted.perturb,
            "FAB-T": authors.fab.perturb,
            "Square": authors.square.perturb,
            "whole": authors.run_standard_evaluation,
        },
        "torchattacks": {
            "APGD-CE": torchattacks.APGD(network, eps=epsilon, steps=100),
            "APGD-T": torchattacks.APGDT(network, eps=epsilon, steps=100),
            "FAB-T": torchattacks.FAB(network, eps=epsilon, steps=100, multi_targeted=True, n_classes=10),
            "Square": torchattacks.Square(network, eps=epsilon, n_queries=5000),
            "whole": torchattacks.AutoAttack(network, eps=epsilon, seed=0),
        },
        "adv-lib": {
            "APGD-CE": lambda x, y: pgd.apgd(network, x, y, loss_function="ce", **limits),
            "APGD-T": lambda x, y: pgd.apgd_targeted(network, x, y, num_targets=9, **limits),
        },
    }


def ours(epsilon: float) -> dict[str, Attack]:
    """Return the parts and the whole of robustcmp."""
    return {
        "APGD-CE": APGD(loss="ce", epsilon=epsilon, restarts=1),
        "APGD-T": APGDTargeted(epsilon=epsilon),
        "FAB-T": FABTargeted(epsilon=epsilon),
        "Square": Square(epsilon=epsilon),
        "whole": AutoAttack(epsilon=epsilon),
    }


def speed(network: str, images: int, only: list[str], device: Any) -> None:
    """Print the seconds of each part in each library."""
    dataset = "cifar10" if network == "resnet20" else "mnist"
    data = rc.load_dataset(dataset)
    model: Any = rc.load_model(network, framework="torch", dataset=dataset, device=device)
    right = rc.predict(model, data.images[:images]) == data.labels[:images]
    x, y = data.images[:images][right], data.labels[:images][right]
    others = rivals(model.native, EPSILONS[dataset], device)
    print(f"{network}, {len(y)} images, epsilon {EPSILONS[dataset]:.4f}")
    for part, attack in ours(EPSILONS[dataset]).items():
        if only and part not in only:
            continue
        start = clock(device)
        left = int((~attack.attack(model, x, y).success).sum())
        seconds = clock(device) - start
        print(f"{part}: robustcmp {seconds:.1f} s, robust {left}", flush=True)
        for library, parts in others.items():
            if part not in parts:
                continue
            start = clock(device)
            adversarial = parts[part](*(tensor.to(device) for tensor in as_tensors(x, y))).detach().cpu()
            theirs = clock(device) - start
            left = robust(model, adversarial.numpy().transpose(0, 2, 3, 1), y)
            print(f"{part}: {library} {theirs:.1f} s, {theirs / seconds:.1f} times, robust {left}", flush=True)


def whole(network: str, images: int, epsilon: float | None) -> None:
    """Print how many of the first images stay robust, by robustcmp and by the authors' code."""
    dataset = "cifar10" if network == "resnet20" else "mnist"
    data = rc.load_dataset(dataset)
    model: Any = rc.load_model(network, framework="torch", dataset=dataset, device="cpu")
    compare(model, model.native, data.images[:images], data.labels[:images], epsilon or EPSILONS[dataset], SEEDS)


def networks(checkout: Path, grey: int, colour: int) -> None:
    """Print the robust accuracy of the authors' two networks, by robustcmp and by their code."""
    examples = checkout / "autoattack" / "examples"
    data = rc.load_dataset("mnist")
    keras = importlib.import_module("keras")
    layers = [keras.layers.Input((28, 28, 1))]
    for _ in range(2):
        layers += [keras.layers.Conv2D(16, 3, padding="same", activation="relu") for _ in range(2)]
        layers.append(keras.layers.MaxPooling2D(2))
    layers += [keras.layers.Flatten(), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)]
    network = keras.Sequential(layers)
    network.load_weights(examples / "tf_model.weight.h5")
    adapted = importlib.import_module("autoattack.utils_tf2").ModelAdapter(network)
    with patch.object(torch.Tensor, "cuda", lambda tensor: tensor):  # their adapter asks for a GPU
        compare(rc.wrap(network, bounds=(0, 1)), adapted, data.images[:grey], data.labels[:grey], 0.3, is_tf_model=True)

    data = rc.load_dataset("cifar10")
    sys.path.insert(0, str(examples))
    resnet = importlib.import_module("resnet").ResNet18()
    resnet.load_state_dict(torch.load(examples / "model_test.pt", map_location="cpu"))
    model = rc.wrap(resnet.eval(), bounds=(0, 1))
    for epsilon in (8 / 255, 1 / 255):
        compare(model, resnet, data.images[:colour], data.labels[:colour], epsilon)


def compare(
    model: Any, network: Any, x: Images, y: Labels, epsilon: float, seeds: Sequence[int] = (0,), **settings: Any
) -> None:
    """Print how many images stay robust to AutoAttack by robustcmp and by the authors' code, which gets the network."""
    code = importlib.import_module("autoattack")
    right = rc.predict(model, x) == y
    print(f"epsilon {epsilon:.5f}, clean {right.sum()} of {len(y)}", flush=True)
    for seed in seeds:
        fooled = AutoAttack(epsilon=epsilon).attack(model, x, y, seed=seed).success
        print(f"seed {seed}: robustcmp {(~fooled).sum()} robust", flush=True)
        authors = code.AutoAttack(network, eps=epsilon, seed=seed, verbose=False, device="cpu", **settings)
        adversarial = authors.run_standard_evaluation(*as_tensors(x, y)).detach().numpy().transpose(0, 2, 3, 1)
        theirs = rc.predict(model, np.clip(adversarial, 0, 1)) != y
        print(f"seed {seed}: authors {(~theirs).sum()} robust, {(fooled != theirs).sum()} differ", flush=True)


def main() -> None:
    """Run one of the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    timed = commands.add_parser("speed")
    timed.add_argument("network", choices=("lenet5", "resnet20"))
    timed.add_argument("images", type=int)
    timed.add_argument("checkouts", type=Path, nargs=2)
    timed.add_argument("--only", nargs="*", default=[], help="these parts alone")
    timed.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    compared = commands.add_parser("whole")
    compared.add_argument("network", choices=("lenet5", "resnet20"))
    compared.add_argument("images", type=int)
    compared.add_argument("checkouts", type=Path, nargs=1)
    compared.add_argument("--epsilon", type=float)
    wrapped = commands.add_parser("networks")
    wrapped.add_argument("grey", type=int)
    wrapped.add_argument("colour", type=int)
    wrapped.add_argument("checkouts", type=Path, nargs=1)
    options = parser.parse_args()
    sys.path[:0] = map(str, options.checkouts)
    match options.command:
        case "speed":
            speed(options.network, options.images, options.only, options.device)
        case "whole":
            whole(options.network, options.images, options.epsilon)
        case _:
            networks(options.checkouts[0], options.grey, options.colour)


if __name__ == "__main__":
    main()
