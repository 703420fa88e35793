"""Train torch's VGG-16 for some batches from another framework's initial weights, and print the loss of each batch.

``python tools/same_start.py tensorflow 80``: does the loss fall as it does there? What came out is in
docs/figures/vgg16-cifar10-one-epoch.csv. Everything else is the epoch of ``python -m robustcmp.train --model vgg16
--epochs 1``.
"""

from __future__ import annotations

import math
import sys

import robustcmp as rc
from robustcmp.data.dataset import stratified_split
from robustcmp.frameworks import get_framework
from robustcmp.networks.architecture import get_architecture
from robustcmp.sources.recipes import load_recipe
from robustcmp.sources.training import VALIDATION_FRACTION, Augmentation, batch_order

if __name__ == "__main__":
    torch, source, batches = get_framework("torch"), get_framework(sys.argv[1]), int(sys.argv[2])
    vgg16, recipe, data = (
        get_architecture("vgg16"),
        load_recipe("vgg16", "cifar10"),
        rc.load_dataset("cifar10", "train"),
    )
    network = torch.build(vgg16, 0, "cpu")
    torch.set_weights(network, vgg16, source.get_weights(source.build(vgg16, 0, "cpu"), vgg16))
    trainer = torch.trainer(network, vgg16, recipe.momentum, recipe.weight_decay)
    rest, _ = stratified_split(data.labels, VALIDATION_FRACTION)
    order = rest[batch_order(0, 0, len(rest))]
    augmented = Augmentation(recipe, 0, 0, len(data.images))
    steps = math.ceil(len(rest) / recipe.batch_size)
    for step in range(batches):
        batch = order[step * recipe.batch_size : (step + 1) * recipe.batch_size]
        print(f"{trainer.step(augmented(data.images, batch), data.labels[batch], recipe.rate(step / steps)):.5f}")
