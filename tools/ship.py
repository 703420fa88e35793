"""Put weights files into zoo/weights, without the loss of every batch, which takes as much room as a small network.

    python tools/ship.py FILE.h5 …

What is in the file is checked on the way.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from robustcmp.networks.architecture import get_architecture
from robustcmp.networks.weights import read_weights, write_weights

WEIGHTS = Path(__file__).parents[1] / "zoo" / "weights"

for path in map(Path, sys.argv[1:]):
    content = read_weights(path)
    content = read_weights(path, get_architecture(content.metadata["model"]))
    curves = {name: values for name, values in content.curves.items() if name != "batch_loss"}
    write_weights(WEIGHTS / path.name, replace(content, curves=curves))
