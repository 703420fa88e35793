"""Compare AutoAttack with its authors' code and other libraries: processor time, and networks from outside.

    git clone https://github.com/fra31/auto-attack build/auto-attack
    python -m pip install --no-deps --target build/rivals torchattacks==3.5.1 adv-lib==0.2.8
    python benchmarks/autoattack.py speed lenet5 20 build/auto-attack build/rivals
    python benchmarks/autoattack.py networks 16 build/auto-attack

`speed` runs each part and the whole in each library, one after the other. It prints how many images stay robust, and
seconds: the processor's, of one core, or by the clock on a GPU. `networks` wraps the two example networks of the
authors' repository as a user would.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import importlib
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import APGD, APGDTargeted, Attack, AutoAttack, FABTargeted, Square

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


def networks(checkout: Path, images: int) -> None:
    """Print the robust accuracy of the authors' two networks, by robustcmp and by their code."""
    examples = checkout / "autoattack" / "examples"
    code = importlib.import_module("autoattack")
    data = rc.load_dataset("mnist")
    x, y = data.images[:images], data.labels[:images]
    keras = importlib.import_module("keras")
    layers = [keras.layers.Input((28, 28, 1))]
    for _ in range(2):
        layers += [keras.layers.Conv2D(16, 3, padding="same", activation="relu") for _ in range(2)]
        layers.append(keras.layers.MaxPooling2D(2))
    layers += [keras.layers.Flatten(), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)]
    network = keras.Sequential(layers)
    network.load_weights(examples / "tf_model.weight.h5")
    model: Any = rc.wrap(network, bounds=(0, 1))
    print("MNIST network, clean", robust(model, x, y), "of", images, flush=True)
    adapted = importlib.import_module("autoattack.utils_tf2").ModelAdapter(network)
    settings: dict[str, Any] = {"norm": "Linf", "seed": 0, "verbose": False, "device": "cpu"}
    authors = code.AutoAttack(adapted, eps=0.3, is_tf_model=True, **settings)
    with patch.object(torch.Tensor, "cuda", lambda tensor: tensor):  # their adapter asks for a GPU
        compare(model, AutoAttack(epsilon=0.3), x, y, authors.run_standard_evaluation)

    data = rc.load_dataset("cifar10")
    few = images // 2
    x, y = data.images[:few], data.labels[:few]
    sys.path.insert(0, str(examples))
    resnet = importlib.import_module("resnet").ResNet18()
    resnet.load_state_dict(torch.load(examples / "model_test.pt", map_location="cpu"))
    model = rc.wrap(resnet.eval(), bounds=(0, 1))
    print("CIFAR-10 network, clean", robust(model, x, y), "of", few, flush=True)
    authors = code.AutoAttack(resnet, eps=4 / 255, **settings)
    authors.apgd.n_iter = 20
    authors.apgd.n_iter_2, authors.apgd.n_iter_min, authors.apgd.size_decr = 4, 1, 1
    compare(model, APGD(loss="ce", epsilon=4 / 255, steps=20, restarts=1), x, y, authors.apgd.perturb)


def compare(model: Any, attack: Attack, x: Images, y: Labels, authors: Perturb) -> None:
    """Print how many images stay robust to an attack and to the authors' code."""
    fooled = attack.attack(model, x, y).success
    print(attack, "robust", int((~fooled).sum()), flush=True)
    adversarial = authors(*as_tensors(x, y)).detach().numpy().transpose(0, 2, 3, 1)
    theirs = rc.predict(model, np.clip(adversarial, 0, 1)) != y
    print("the authors' code: robust", int((~theirs).sum()), "differ", int((fooled != theirs).sum()), flush=True)


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
    wrapped = commands.add_parser("networks")
    wrapped.add_argument("images", type=int)
    wrapped.add_argument("checkout", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "speed":
        sys.path[:0] = map(str, options.checkouts)
        speed(options.network, options.images, options.only, options.device)
    else:
        sys.path.insert(0, str(options.checkout))
        networks(options.checkout, options.images)


if __name__ == "__main__":
    main()
