"""What the rivals' scripts share: the LeNet-5 in torch, the task file, the command line and the clock.

This runs on CPython 3.7 with torch 1.0 as well as on the project's own versions. Images are (N, 1, 28, 28) here, in
torch's order; the task file keeps robustcmp's (N, 28, 28, 1).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
import time
from collections import OrderedDict
from typing import Any, Callable

import numpy as np
import torch

EPSILONS = 100
MAX_EPSILON = 0.1
MAX_PIXELS = 100
ITERATIONS = 100
DIRECTIONS = 5
STEP = 0.01
START_DRAWS = 1000
FLATTENED = (4, 4, 16)  # (H, W, C) that the first dense layer sees
SEED = 0


class Flatten(torch.nn.Module):
    """(N, ...) to (N, F); torch has one of its own since 1.2."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(len(x), -1)


def lenet5(weights: dict[str, np.ndarray]) -> torch.nn.Sequential:
    """Return the LeNet-5 with these weights, in evaluation mode.

    Parameters
    ----------
    weights : dict of str to ndarray
        robustcmp's canonical arrays, such as ``"conv1/kernel"`` (5, 5, 1, 6).
    """
    layers = [
        ("conv1", torch.nn.Conv2d(1, 6, 5)),
        ("relu1", torch.nn.ReLU()),
        ("pool1", torch.nn.MaxPool2d(2)),
        ("conv2", torch.nn.Conv2d(6, 16, 5)),
        ("relu2", torch.nn.ReLU()),
        ("pool2", torch.nn.MaxPool2d(2)),
        ("flatten", Flatten()),
        ("dense1", torch.nn.Linear(256, 120)),
        ("dense_relu1", torch.nn.ReLU()),
        ("dense2", torch.nn.Linear(120, 84)),
        ("dense_relu2", torch.nn.ReLU()),
        ("logits", torch.nn.Linear(84, 10)),
    ]
    network = torch.nn.Sequential(OrderedDict(layers))
    network.load_state_dict({_torch_name(name): _torch_array(name, array) for name, array in weights.items()})
    return network.eval()


def _torch_name(name: str) -> str:
    layer, _, kind = name.partition("/")
    return f"{layer}.{'weight' if kind == 'kernel' else kind}"


def _torch_array(name: str, array: np.ndarray) -> torch.Tensor:
    """Return a canonical array in torch's layout: kernels are (out, in, height, width) and (out, in) there."""
    if array.ndim == 4:
        array = array.transpose(3, 2, 0, 1)
    elif name == "dense1/kernel":  # its inputs are in (H, W, C) order, and in (C, H, W) in torch
        array = array.reshape(*FLATTENED, -1).transpose(2, 0, 1, 3).reshape(array.shape).T
    elif array.ndim == 2:
        array = array.T
    return torch.from_numpy(array.copy())


def logits(network: torch.nn.Module, images: np.ndarray) -> np.ndarray:
    """Return the logits (N, 10) of images (N, 1, 28, 28)."""
    with torch.no_grad():
        return network(torch.from_numpy(images)).numpy()


def run(
    tool: str,
    wrap: Callable[[torch.nn.Module], Any],
    attacks: dict[str, Callable[[Any, np.ndarray, np.ndarray], tuple[np.ndarray, str]]],
    versions: dict[str, str],
) -> None:
    """Time the attack that the command line names, and print one JSON object.

    Parameters
    ----------
    tool : str
        The tool's name and version.
    wrap : function
        Makes the tool's model of a network.
    attacks : dict of str to function
        The tool's attacks by robustcmp's names: of model, images (N, 1, 28, 28) and labels (N,) each makes the
        adversarial images, of the same shape, with the clean image where it failed, and a note on what differs from
        robustcmp's attack.
    versions : dict of str to str
        The versions of the tool's own packages.
    """
    parser = argparse.ArgumentParser(description=f"Time {tool}.")
    parser.add_argument("task", help="the .npz file with images, labels and weights/...")
    parser.add_argument("--attack", choices=tuple(attacks), required=True)
    parser.add_argument("--images", type=int, required=True, help="how many of the task's images, the first ones")
    parser.add_argument("--threads", type=int, required=True, help="threads of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002  the tools draw from the global generator
    images, labels, network = _read_task(options.task, options.images)
    model = wrap(network)
    x = torch.from_numpy(images).requires_grad_()
    torch.autograd.grad(network(x).sum(), x)  # what torch does more slowly the first time
    with contextlib.redirect_stdout(sys.stderr):  # Foolbox 1.8.0 prints
        start = time.perf_counter()
        adversarials, note = attacks[options.attack](model, images, labels)
        seconds = time.perf_counter() - start
    fooled = logits(network, np.asarray(adversarials, np.float32)).argmax(axis=1) != labels
    shared = {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
    outcome = {
        "tool": tool,
        "attack": options.attack,
        "images": len(images),
        "threads": options.threads,
        "seconds": seconds,
        "fooled": fooled.tolist(),
        "versions": dict(shared, **versions),
        "note": note,
    }
    print(json.dumps(outcome))


def _read_task(path: str, count: int) -> tuple[np.ndarray, np.ndarray, torch.nn.Module]:
    """Return the first images (count, 1, 28, 28), their labels (count,) and the network of a task file."""
    with np.load(path) as task:
        arrays = dict(task.items())
    prefix = "weights/"
    network = lenet5({name[len(prefix) :]: arrays[name] for name in arrays if name.startswith(prefix)})
    labels = arrays["labels"][:count].astype(np.int64)
    images = np.ascontiguousarray(arrays["images"][:count].transpose(0, 3, 1, 2), np.float32)
    assert (logits(network, images).argmax(axis=1) == labels).all(), "the network classifies all images correctly"
    return images, labels, network
