"""What is asked of the models of a comparison after its attacks: health checks, transfer, and conditioning.

*Transfer*: does what fools one trained model also fool another? Do networks of one framework share weaknesses more than
networks of different ones? After Papernot et al., "Transferability in Machine Learning", arXiv:1605.07277, 2016.

*Conditioning*: what the common subset leaves out is attacked, images that some models classify correctly and others do
not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..attacks.suite import Suite
from ..errors import UsageError
from ..models.classifier import Classifier
from ..records.answers import Checked, Contested
from .blame import blame, blame_each
from .checks import run_checks
from .plan import Plan
from .progress import Progress
from .subset import choose


def check_conditional(suite: Suite) -> None:
    """Raise `UsageError` for a suite that attacks all images, so that its rates are not conditional."""
    if suite.subset == "all":
        raise UsageError(
            f"the suite {suite.name} attacks all images, so its rates do not depend on which models are compared"
        )


class FollowUps:
    """The models of a comparison, for what is asked of them after their attacks.

    Parameters
    ----------
    plan : Plan
        What was executed.
    progress_of : callable
        Returns whom to tell of the progress, given whether it is shown.
    """

    def __init__(self, plan: Plan, progress_of: Callable[[bool], AbstractContextManager[Progress]]):
        self.plan = plan
        self._progress_of = progress_of

    def _find_common(self) -> NDArray[np.int64]:
        """Return the places of the attacked images that every model classifies correctly: all in a common subset."""
        images = self.plan.images
        labels = self.plan.labels
        if self.plan.suite.subset == "common":
            return np.arange(len(images))
        right = [model.classifier.predict(images) == labels for model in self.plan.models]
        return np.flatnonzero(np.all(right, axis=0))

    def run_checks(self, results: Any, shown: bool = False) -> Checked:
        """Make the health checks of every model but those on which an attack failed, which may end this process."""
        plan = self.plan
        right = self._find_common()
        outcomes = results.dataset.isel(image=right)
        models = [
            (label, model.classifier, outcomes.sel(model=model.name, training_seed=model.training_seed))
            for label, model in zip(results.labels, plan.models, strict=True)
            if not model.failed
        ]
        with self._progress_of(shown) as progress:
            return run_checks(models, plan.suite, plan.images[right], plan.labels[right], plan.question.seed, progress)

    def run_transfer(self, results: Any, shown: bool = False) -> NDArray[np.int64]:
        """Count the adversarial images of every model that fool every other.

        A model on which an attack failed is not asked about those of others, which may end this process.
        """
        plan = self.plan
        right = self._find_common()

        def adversarials(source: int, attack: str) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
            model = plan.models[source]
            name, seed = model.key
            if attack in model.not_applicable or attack in model.failed:
                return
            success = results.dataset.success.sel(model=name, training_seed=seed, attack=attack).values
            for repeat in range(1 if results.attack_records[attack].deterministic else results.repeats(attack)):
                images = results.adversarials(name, attack, training_seed=seed, repeat=repeat)
                yield images[right], success[repeat][right]

        targets = [None if model.failed else model.classifier for model in plan.models]
        with self._progress_of(shown) as progress:
            return _count_transfers(targets, results.attacks, plan.labels[right], adversarials, progress)

    def run_conditioning(self, shown: bool = False) -> Contested:
        """Attack the images that some models classify correctly and others do not."""
        with self._progress_of(shown) as progress:
            return _attack_contested(self.plan, progress)


def _count_transfers(
    targets: Sequence[Classifier | None],
    attacks: Sequence[str],
    labels: NDArray[np.int64],
    adversarials: Callable[[int, str], Iterable[tuple[NDArray[np.float32], NDArray[np.bool_]]]],
    progress: Progress,
) -> NDArray[np.int64]:
    """Count the adversarial images of every model that fool every other.

    Parameters
    ----------
    targets : sequence of Classifier
        The models, sources and targets alike. One that is None is asked nothing: it is a target of no other's images.
    attacks : sequence of str
        The attacks' names.
    labels : ndarray of int64, shape (N,)
        The true classes.
    adversarials : callable
        (place of the source, attack) to the images (N, H, W, C) and the successes (N,) of each repeat.
    progress : Progress
        Is told of every source.

    Returns
    -------
    ndarray of int64, shape (sources, targets, attacks, 3)
        How many adversarial images fool the target, how many there are, and how many images were attacked, over all
        repeats.
    """
    counts = np.zeros((len(targets), len(targets), len(attacks), 3), np.int64)
    progress.begin("transfer", len(targets))
    for source in range(len(targets)):
        for k, attack in enumerate(attacks):
            for images, success in adversarials(source, attack):
                for target, classifier in enumerate(targets):
                    if target == source:  # its own were judged when they were found
                        fooled = success[success]
                    elif classifier is None:
                        continue
                    else:
                        activity = f"measuring transfer to model {target + 1} of {len(targets)}"
                        fooled = blame(activity, classifier.predict, images[success]) != labels[success]
                    counts[source, target, k] += [int(fooled.sum()), int(success.sum()), len(success)]
        progress.step()
    return counts


def _attack_contested(plan: Plan, progress: Progress) -> Contested:
    """Attack contested images, each with the models that classify it correctly.

    Together with the outcomes on the common subset, they give the rates on the subset of any of the models. What is
    exact over all draws is sampled here, in the repeats of the comparison; at most as many contested images are
    attacked as common ones, chosen alike.
    """
    question = plan.question
    check_conditional(question.suite)
    correct = np.array([model.correct for model in plan.models])
    common = np.all(correct, axis=0)
    contested: NDArray[np.bool_] = np.any(correct, axis=0) & ~common
    index = choose(contested, question.images, question.n, question.seed)
    attacks = question.suite.only_draws().attacks
    success = np.full((len(plan.models), len(attacks), len(index)), np.nan)
    progress.begin(f"attacks on {len(index)} images that some models misclassify", len(plan.models))
    for model, right, of_model in zip(plan.models, correct[:, index], success, strict=True):
        x = question.images[index[right]]
        y = question.labels[index[right]]
        for (name, attack), of_attack in zip(attacks.items(), of_model, strict=True):
            repeats = [cell.repeat for cell in plan.cells if cell.task == (*model.key, name)]
            if len(x) and repeats:
                results = attack.outcomes(model.classifier, x, y, question.seed, repeats)
                activity = f"attacking {model.label} with {name}"
                of_attack[right] = np.mean([result.success for result in blame_each(activity, results)], axis=0)
        progress.step()
    counts = np.array([common.sum(), contested.sum()], np.int64)
    return Contested(list(attacks), index, correct[:, index], success, counts)
