"""What do the images have that FGSM does not fool? Their margins, and whether PGD fools them at a smaller ε.

``python tools/unfooled.py``, for the ResNet-20s of docs/results/resnet20-cifar10-guo2019; docs/results.md quotes it.
"""

from __future__ import annotations

from pathlib import Path

import foolbox as fb
import numpy as np

import robustcmp as rc
from robustcmp.models.classifier import Classifier

RUN = Path(__file__).parents[1] / "docs" / "results" / "resnet20-cifar10-guo2019"
EPSILON = 0.03

if __name__ == "__main__":
    ev, data = rc.open_run(RUN), rc.load_dataset("cifar10")
    images, labels = data.images[ev.dataset.image.values], data.labels[ev.dataset.image.values]
    for framework in ev.dataset.model.values:
        model = rc.load_model("resnet20", framework=framework, device="cpu")
        classifier = Classifier(model)
        two = np.sort(classifier.logits(images), axis=1)[:, -2:]
        margins = two[:, 1] - two[:, 0]
        left = ~ev.dataset.success.sel(model=framework, attack="fgsm", repeat=0).squeeze().values
        x, y = classifier.tensor(images[left]), classifier.tensor(labels[left])
        pgd = fb.attacks.LinfPGD(steps=40, rel_stepsize=0.1, random_start=False)
        _, _, fooled = pgd(model, x, fb.criteria.Misclassification(y), epsilons=EPSILON)
        print(
            f"{framework}: {left.sum()} images, median margin {np.median(margins[left]):.1f}, of all "
            f"{np.median(margins):.1f}; {int(np.sum(classifier.array(fooled)))} fall to PGD at ε = {EPSILON}"
        )
