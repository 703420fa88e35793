"""Compare the attacks of the suite `reference` with their authors' code and with Foolbox's attacks, image by image.

    git clone https://github.com/fra31/auto-attack build/auto-attack
    git -C build/auto-attack checkout a39220048b3c9f2cca9a4d3a54604793c68eca7e
    python benchmarks/agreement.py build/auto-attack    # half an hour on one core; benchmarks/results/agreement.json
    python benchmarks/tables.py                         # into docs/attacks.md

The authors' code gets our random numbers: the same starting points for APGD, the same stripes and squares for Square.
It also runs with its own, from two seeds: how much these two differ is the yardstick. Foolbox's attack of Brendel and
Bethge needs numba, and is left out without it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import copy
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import foolbox as fb
import numpy as np
import torch
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import APGD, APGDTargeted, FABTargeted, MinimumL2, MinimumLinf, Square
from robustcmp.attacks.apgd import LOSSES, START
from robustcmp.attacks.ball import Ball
from robustcmp.attacks.square import BLOCK, STRIPES, squares
from robustcmp.models.classifier import Classifier
from robustcmp.provenance import made_with

RESULTS = Path(__file__).parent / "results" / "agreement.json"
EPSILONS = {"mnist": (0.1, 0.2, 0.3), "cifar10": (0.5 / 255, 2 / 255, 4 / 255, 8 / 255)}
NETWORKS = {"lenet1": ("mnist", 200), "lenet5": ("mnist", 200), "resnet20": ("cifar10", 40)}  # the first test images
EPSILONS_L2 = {"lenet1": (0.5, 1.0), "lenet5": (1.0, 1.5)}
IMAGES_L2 = 40
NORMS: dict[Any, str] = {"linf": "Linf", "l2": "L2"}  # what the authors call them
STEPS, RESTARTS, SQUARES = 100, 5, 1000
SEED = 0
OWN_SEEDS = (0, 1)  # of the authors' code
NEAREST_IMAGES = 100
Rows = NDArray[np.int64]
Climb = Callable[[Rows, NDArray[np.float32]], tuple[NDArray[np.bool_], NDArray[np.float64]]]


class Question:
    """A network, the first images that it classifies correctly, an epsilon and its norm."""

    def __init__(self, network: str, dataset: str, images: int, epsilon: float, norm: Any = "linf"):
        data = rc.load_dataset(dataset)
        model = rc.load_model(network, framework="torch", dataset=dataset)
        x, y = data.images[:images], data.labels[:images]
        right = Classifier(model).predict(x) == y
        self.model, self.classifier, self.labels, self.epsilon = model, Classifier(model), y[right], epsilon
        self.ball = Ball.around(x[right], epsilon, self.classifier.bounds, norm)
        self.settings: dict[str, Any] = {"epsilon": epsilon, "norm": norm}
        self.norm = NORMS[norm]
        self.x, self.y = as_tensor(x[right]), torch.from_numpy(y[right])

    def fooled(self, images: torch.Tensor) -> NDArray[np.bool_]:
        with torch.no_grad():
            fooled: NDArray[np.bool_] = (self.model(images).argmax(1) != self.y).numpy()
        return fooled

    def doubled(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the network in float64, of images in float32."""
        network = copy.deepcopy(self.model.native).double()
        return lambda images: network(images.double())


class Recorded:
    """A classifier that keeps the highest loss of each image that is still right, as `APGD.climb` asks about it."""

    def __init__(self, classifier: Classifier, labels: NDArray[np.int64], loss: str):
        self.classifier, self.labels, self.loss = classifier, labels, LOSSES[loss]
        self.gradient_source = None
        self.rows, self.best = np.arange(len(labels)), np.full(len(labels), -np.inf)

    def logits(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.note(self.classifier.logits(images))

    def logits_and_vjp(self, images: NDArray[np.float32], rise: Any, *labels: NDArray[np.int64]) -> Any:
        z, loss, gradient = self.classifier.logits_and_vjp(images, rise, *labels)
        return self.note(z), loss, gradient

    def note(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Keep the losses of logits (M, K)."""
        loss, _ = self.loss(z, self.labels[self.rows])
        self.best[self.rows] = np.maximum(self.best[self.rows], loss)
        self.rows = self.rows[z.argmax(axis=1) == self.labels[self.rows]]
        return z


def as_tensor(images: NDArray[np.float32]) -> torch.Tensor:
    """Return images (N, H, W, C) as a tensor (N, C, H, W)."""
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def climb_restarts(question: Question, attack: APGD, climb: Climb) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which images fall within the attack's restarts from our starting points, and the highest losses."""
    draws = attack.draws(question.classifier, question.ball, SEED, 0)
    fooled, best = np.zeros(len(question.labels), np.bool_), np.full(len(question.labels), -np.inf)
    for restart in range(attack.restarts):
        left = np.flatnonzero(~fooled)
        if not len(left):
            break
        fooled[left], loss = climb(left, question.ball.draw_points(draws, left, START, restart))
        best[left] = np.maximum(best[left], loss)
    return fooled, best


def apgd(question: Question, authors: Any, loss: str) -> dict[str, Any]:
    """Compare APGD: their code in float32 and, with float64 logits and gradients, in float64."""
    attack = APGD(loss=loss, steps=STEPS, restarts=RESTARTS, **question.settings)  # type: ignore[arg-type]

    def make(predict: Any, seed: int) -> Any:
        settings: dict[str, Any] = {"n_iter": STEPS, "n_restarts": RESTARTS, "loss": loss, "device": "cpu"}
        return authors.APGDAttack(predict, norm=question.norm, eps=question.epsilon, seed=seed, **settings)

    def ours(rows: Rows, start: NDArray[np.float32]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        recorded: Any = Recorded(question.classifier, question.labels[rows], loss)
        part = attack.climb(recorded, question.ball.rows(rows), question.labels[rows], start)
        return part.fooled, recorded.best

    def theirs(predict: Any) -> Climb:
        runner = make(predict, SEED)
        runner.init_hyperparam(question.x)

        def climb(rows: Rows, start: NDArray[np.float32]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
            _, right, best, _ = runner.attack_single_run(question.x[rows], question.y[rows], x_init=as_tensor(start))
            return ~right.numpy(), best.double().numpy()

        return climb

    fooled, best = climb_restarts(question, attack, ours)
    whole = attack.search(question.classifier, question.ball, question.labels, SEED, 0)
    assert (whole.fooled == fooled).all(), "the restarts of APGD.search should be those made here"
    row: dict[str, Any] = {"robust": int((~fooled).sum())}
    for name, predict in (("float32", question.model), ("float64", question.doubled())):
        their_fooled, their_best = climb_restarts(question, attack, theirs(predict))
        row[name] = compare(fooled, their_fooled)
        difference = np.abs(best - their_best)[~fooled & ~their_fooled]
        if len(difference):
            row[name]["loss_difference"] = {"most": float(difference.max()), "median": float(np.median(difference))}
    seeds = [question.fooled(make(question.model, seed).perturb(question.x, question.y)) for seed in OWN_SEEDS]
    return row | {"own_seeds": compare(*seeds) | {"robust_first": int((~seeds[0]).sum())}}


def targeted(question: Question, attack: APGDTargeted | FABTargeted, make: Callable[[Any, int], Any]) -> dict[str, Any]:
    """Compare APGD-T, from our starting points and in float64 too, or FAB-T, whose projection is in float32 only."""
    ours = attack.search(question.classifier, question.ball, question.labels, SEED, 0)
    draws = attack.draws(question.classifier, question.ball, SEED, 0)
    row: dict[str, Any] = {"robust": int((~ours.fooled).sum())}
    predictors = {"float32": question.model}
    if isinstance(attack, APGDTargeted):
        predictors["float64"] = question.doubled()
    for name, predict in predictors.items():
        runner, fooled = make(predict, SEED), np.zeros(len(question.labels), np.bool_)
        if isinstance(attack, APGDTargeted):
            runner.init_hyperparam(question.x)
        with torch.no_grad():
            ranked = predict(question.x).sort(dim=1)[1]
        for rank in range(attack.targets):
            left = np.flatnonzero(~fooled)
            if not len(left):
                break
            x, y = question.x[left], question.y[left]
            if isinstance(attack, APGDTargeted):
                runner.y_target = ranked[left, -rank - 2]
                start = as_tensor(question.ball.draw_points(draws, left, START, rank))
                _, right, _, _ = runner.attack_single_run(x, y, x_init=start)
                fooled[left] = ~right.numpy()
            else:
                runner.target_class = rank + 2
                found = runner.attack_single_run(x, y, is_targeted=True)
                moved = (found - x).flatten(1)
                near = moved.norm(dim=1, p=2 if question.norm == "L2" else torch.inf) <= question.epsilon
                with torch.no_grad():
                    fooled[left] = ((predict(found).argmax(1) != y) & near).numpy()
        row[name] = compare(ours.fooled, fooled)
    seeds = [question.fooled(make(question.model, seed).perturb(question.x, question.y)) for seed in OWN_SEEDS]
    return row | {"own_seeds": compare(*seeds) | {"robust_first": int((~seeds[0]).sum())}}


def apgd_targeted(question: Question, authors: Any) -> dict[str, Any]:
    """Compare APGD-T, towards nine classes."""

    def make(predict: Any, seed: int) -> Any:
        settings: dict[str, Any] = {"n_iter": STEPS, "eps": question.epsilon, "norm": question.norm, "device": "cpu"}
        return authors.APGDAttack_targeted(predict, seed=seed, **settings)

    return targeted(question, APGDTargeted(steps=STEPS, **question.settings), make)


def fab_targeted(question: Question, authors: Any) -> dict[str, Any]:
    """Compare FAB-T, towards nine classes."""

    def make(predict: Any, seed: int) -> Any:
        settings: dict[str, Any] = {"n_iter": STEPS, "eps": question.epsilon, "norm": question.norm, "device": "cpu"}
        return authors.FABAttack_PT(predict, seed=seed, targeted=True, **settings)

    return targeted(question, FABTargeted(steps=STEPS, **question.settings), make)


def square(question: Question, authors: Any) -> dict[str, Any]:
    """Compare Square: their code, an image at a time, with our stripes and squares."""
    attack = Square(iterations=SQUARES, **question.settings)
    part = attack.search(question.classifier, question.ball, question.labels, SEED, 0)
    draws = attack.draws(question.classifier, question.ball, SEED, 0)

    def make(seed: int) -> Any:
        settings: dict[str, Any] = {"n_queries": SQUARES, "p_init": 0.8, "resc_schedule": False, "device": "cpu"}
        return authors.SquareAttack(question.model, norm=question.norm, eps=question.epsilon, seed=seed, **settings)

    def uniform(row: int) -> Iterator[NDArray[np.float64]]:
        _, height, width, channels = question.ball.clean.shape
        places = 5 if question.norm == "L2" else 2
        if question.norm == "L2":
            tiles = height // (height // 5), width // (height // 5)
            for drawn in draws.block(row, STRIPES).random((*tiles, 1 + channels)).reshape(-1, 1 + channels):
                yield from (drawn[:1], drawn[1:])
        else:
            yield draws.block(row, STRIPES).random((1, width, channels)).transpose(2, 0, 1)
        for block in range(SQUARES // BLOCK + 1):
            for drawn in squares(draws, np.array([row]), block, places + channels)[0]:
                yield from (*drawn[:places, None], drawn[places:])

    def from_our_draws(row: int) -> bool:
        values, runner = uniform(row), make(SEED)
        runner.init_hyperparam(question.x)
        with patch.object(torch, "rand", lambda shape: torch.from_numpy(next(values)).reshape(shape)):
            _, best = runner.attack_single_run(question.x[row : row + 1], question.y[row : row + 1])
        with torch.no_grad():
            return bool((question.model(best.float()).argmax(1) != question.y[row]).item())

    theirs = np.array([from_our_draws(row) for row in range(len(question.labels))])
    seeds = [question.fooled(make(seed).perturb(question.x, question.y)) for seed in OWN_SEEDS]
    return {
        "robust": int((~part.fooled).sum()),
        "float32": compare(part.fooled, theirs),
        "own_seeds": compare(*seeds) | {"robust_first": int((~seeds[0]).sum())},
    }


def compare(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """Return how many images only one of two attacks fools, and how many are robust to the second."""
    return {
        "robust": int((~second).sum()),
        "only_first": int((first & ~second).sum()),
        "only_second": int((~first & second).sum()),
    }


def nearest(images: int) -> Iterator[dict[str, Any]]:
    """Compare the smallest distances with those of Foolbox's attacks, on LeNet-5."""
    question = Question("lenet5", "mnist", images, 1.0)
    rivals = {
        "l2": {
            "DDN": fb.attacks.DDNAttack(steps=1000),
            "Carlini-Wagner": fb.attacks.L2CarliniWagnerAttack(binary_search_steps=9, steps=1000),
        },
        "linf": {"FMN": fb.attacks.LInfFMNAttack(steps=1000, max_stepsize=10)},
    }
    try:
        rivals["l2"]["Brendel-Bethge"] = fb.attacks.L2BrendelBethgeAttack(steps=1000)
        rivals["linf"]["Brendel-Bethge"] = fb.attacks.LinfinityBrendelBethgeAttack(steps=1000)
    except ImportError as error:
        print(f"without Brendel-Bethge: {error}")
    for norm, attack in (("l2", MinimumL2()), ("linf", MinimumLinf())):
        clean, labels = question.ball.clean, question.labels
        result = attack.attack(question.model, clean, labels)
        distances = {"robustcmp": np.asarray(getattr(result, norm))}
        for name, rival in rivals[norm].items():
            distances[name] = _distances(question, rival, norm)
            print(norm, name, np.median(distances[name]), flush=True)
        least = np.min(list(distances.values()), axis=0)
        yield {
            "norm": norm,
            "images": images,
            "correct": len(labels),
            "steps": attack.steps,
            "median": {name: float(np.median(values)) for name, values in distances.items()},
            "fooled": {name: int(np.isfinite(values).sum()) for name, values in distances.items()},
            "least_median": float(np.median(least)),
            "excess": {name: float(np.median(values / least - 1)) for name, values in distances.items()},
        }


def _distances(question: Question, attack: Any, norm: str) -> NDArray[np.float64]:
    """Return the distances (N,) of what an attack of Foolbox finds, infinite where that fools nobody."""
    torch.manual_seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002  Foolbox draws from the global generator
    _, adversarials, _ = attack(question.model, question.x, question.y, epsilons=None)
    difference = (adversarials.double() - question.x.double()).flatten(1)
    size = (difference.norm(dim=1) if norm == "l2" else difference.abs().amax(1)).detach().numpy()
    return np.where(question.fooled(adversarials.detach()), size, np.inf)


def agreement(checkout: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of the agreement in L∞."""
    for network, (dataset, images) in NETWORKS.items():
        for epsilon in EPSILONS[dataset]:
            yield from parts(checkout, network, dataset, images, epsilon)


def agreement_l2(checkout: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of the agreement in L2."""
    for network, epsilons in EPSILONS_L2.items():
        for epsilon in epsilons:
            yield from parts(checkout, network, "mnist", IMAGES_L2, epsilon, "l2")


def parts(
    checkout: Path, network: str, dataset: str, images: int, epsilon: float, norm: str = "linf"
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one network, a part of AutoAttack each."""
    sys.path.insert(0, str(checkout))
    apgd_code, fab_code, square_code = (
        importlib.import_module(f"autoattack.{name}") for name in ("autopgd_base", "fab_pt", "square")
    )
    question = Question(network, dataset, images, epsilon, norm)
    for name, make in (
        ("APGD-CE", lambda question: apgd(question, apgd_code, "ce")),
        ("APGD-DLR", lambda question: apgd(question, apgd_code, "dlr")),
        ("APGD-T", lambda question: apgd_targeted(question, apgd_code)),
        ("FAB-T", lambda question: fab_targeted(question, fab_code)),
        ("Square", lambda question: square(question, square_code)),
    ):
        about = {"network": network, "epsilon": epsilon, "norm": norm, "attack": name, "images": images}
        yield about | {"correct": len(question.labels)} | make(question)


def main() -> None:
    """Make the comparisons and write them, a row as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of the authors' auto-attack")
    parser.add_argument(
        "--only", choices=("agreement", "agreement_l2", "nearest"), help="make one part again and keep the other"
    )
    options = parser.parse_args()
    if not (options.checkout / "autoattack" / "autopgd_base.py").exists():
        parser.error(f"{options.checkout} should be a checkout of https://github.com/fra31/auto-attack")
    head = subprocess.run(["git", "-C", options.checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    torch.set_num_threads(1)
    makers = {
        "agreement": lambda: agreement(options.checkout),
        "agreement_l2": lambda: agreement_l2(options.checkout),
        "nearest": lambda: nearest(NEAREST_IMAGES),
    }
    content = json.loads(RESULTS.read_text(encoding="utf-8")) if options.only else {}
    content |= {
        "settings": {"steps": STEPS, "restarts": RESTARTS, "squares": SQUARES, "seed": SEED, "own_seeds": OWN_SEEDS},
        "versions": made_with()["versions"] | {"torch": torch.__version__, "auto-attack": head.stdout.strip()},
    }
    for name in [options.only] if options.only else list(makers):
        content[name] = []
        for row in makers[name]():
            print(row, flush=True)
            content[name].append(row)
            RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
