"""Attack the images that some models of a published run classify correctly and others do not.

``python docs/results/conditioning.py RUN [--attacks NAME ...]`` loads the run's models from the zoo, attacks them as
``python -m robustcmp.eval ... --also conditioning`` does, and stores the outcomes in
docs/results/RUN/contested.h5, which ``ev.conditioning`` reads. The cells of a published run
are not done again. Models of hosts need their environments:
``robustcmp hosts create theano tensorflow@1.15 torch@1.0``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import robustcmp as rc
from robustcmp.analysis.results import open_results
from robustcmp.models.classifier import Classifier
from robustcmp.records.attack import Cell
from robustcmp.report.progress import shown_progress
from robustcmp.runs.followups import attack_contested, count_repeats
from robustcmp.runs.loading import TrainedModel
from robustcmp.runs.question import validate
from robustcmp.runs.subset import choose_subset, classify
from robustcmp.sources.from_zoo import FromZoo

HERE = Path(__file__).parent


def main() -> int:
    """Do it, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--attacks", nargs="+")
    options = parser.parse_args()
    results = open_results(HERE / options.run)
    manifest, about = results.manifest, results.manifest["about"]
    data = rc.load_dataset(about["dataset"], "test")
    models = []
    for entry in manifest["models"]:
        origin = FromZoo(about["model"], about["dataset"], entry["name"], about["recipe"], entry["training_seed"])
        model = origin.load("cpu")
        if model.info["sha256"] != entry["info"]["sha256"]:
            sys.exit(f"{entry['name']}, seed {entry['training_seed']}: other weights than when {options.run} was made")
        classifier = Classifier(model, entry["batch_size"]).compile(data.images)
        models.append(TrainedModel(entry["name"], entry["training_seed"], classifier, origin))
    asked, suite_name = manifest["images"]["asked"], manifest["suite"]["name"]
    question = validate(data.images, data.labels, suite_name, asked, None, False, manifest["seed"], None)
    subset = choose_subset(models, question, classify(models, question))
    if not np.array_equal(subset.indices, results.dataset.image.values):
        sys.exit(f"the models classify other images correctly here than when {options.run} was made")
    suite = question.suite
    attacks = options.attacks or list(suite.attacks)
    if changed := [name for name in attacks if suite.records[name].outcome != results.attack_records[name].outcome]:
        sys.exit(f"{', '.join(changed)} of the suite {suite.name} changed since {options.run} was made")
    progress = shown_progress()
    repeats = count_repeats(Cell(**cell) for cell in manifest["cells"])
    contested = attack_contested(models, question, subset.correct, repeats, attacks, progress)
    progress.end()
    results.run.write_arrays("contested", results.question, contested.to_arrays())
    print(open_results(HERE / options.run).conditioning().query("models in (1, 3, models.max())").to_string())
    return 0


if __name__ == "__main__":
    sys.exit(main())
