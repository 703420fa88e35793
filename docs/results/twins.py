"""Write into the manifests of runs of the zoo which of their models are twins, for runs made before it was recorded.

``python docs/results/twins.py docs/results/lenet5-mnist-2018-five-trainings`` reads the shipped weights. It changes
only the key ``twins`` of ``manifest.json`` and of the manifest in ``results.h5``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py

from robustcmp.errors import WeightsError
from robustcmp.files import write_text_atomically
from robustcmp.networks.weights import Weights, read_weights
from robustcmp.runs.related import correlate

ZOO = Path(__file__).parents[2] / "zoo" / "weights"


def weights_of(manifest: dict[str, Any]) -> Iterator[tuple[tuple[str, int], Weights]]:
    """Yield the models of a run with their weights, once these are seen to be those that were attacked."""
    for model in manifest["models"]:
        info = model["info"]
        parts = (info[key] for key in ("model", "dataset", "framework", "recipe", "training_seed"))
        path = ZOO / f"{'-'.join(map(str, parts))}.h5"
        content = read_weights(path)
        if content.sha256 != info["sha256"]:
            raise WeightsError(f"{path}: expected the weights {info['sha256']}, received {content.sha256}")
        yield (model["name"], model["training_seed"]), content.weights


def changed(text: str, write: Callable[[dict[str, Any]], str]) -> str:
    """Return the text of a manifest with its twins, in the form in which it is kept."""
    manifest = json.loads(text)
    if write(manifest) != text:
        raise ValueError("the manifest is kept in another form, and more than its twins would change")
    return write(manifest | {"twins": correlate(weights_of(manifest))})


def main(directory: Path) -> None:
    """Change the two manifests of a run."""
    path = directory / "manifest.json"
    text = changed(
        path.read_text(encoding="utf-8"), lambda content: json.dumps(content, indent=1, sort_keys=True) + "\n"
    )
    with h5py.File(directory / "results.h5", "r+") as file:
        kept = changed(file.attrs["manifest"], lambda content: json.dumps(content, sort_keys=True))
        file.attrs.modify("manifest", kept)
    write_text_atomically(path, text)
    print(f"{directory}: {len(json.loads(text)['twins'])} pairs of twins")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(Path(name))
