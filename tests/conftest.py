"""What all tests share: the frameworks, the datasets, trained models, and the same network in plain NumPy."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

# The batches of the tests are small: more threads cost more than they give, most of all beside other processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# XLA compiles for seconds what it then computes in milliseconds: what one test compiled, in this process or another,
# the others read. The first process to come here, of which the others are children, removes it at its end.
COMPILED = "JAX_COMPILATION_CACHE_DIR"
OWN_COMPILED = None if COMPILED in os.environ else tempfile.mkdtemp(prefix="robustcmp-compiled-")
if OWN_COMPILED:
    os.environ[COMPILED] = OWN_COMPILED
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import numpy as np
import pytest
import reference as ref
from hypothesis import settings
from numpy.typing import NDArray

from robustcmp import evaluate, frameworks, load_dataset, load_model, wrap_functions
from robustcmp.data.dataset import Dataset
from robustcmp.errors import DataError
from robustcmp.files import user_cache
from robustcmp.frameworks import Framework, TrainableFramework
from robustcmp.frameworks.hosted import Hosted
from robustcmp.hosts import environments
from robustcmp.models.model import Model
from robustcmp.networks.architecture import (
    Architecture,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    MaxPool,
    Relu,
    Residual,
)
from robustcmp.networks.weights import Weights
from robustcmp.records.attack import AttackResult, Cell
from robustcmp.records.store import Run
from robustcmp.sources.from_files import FromFile

settings.register_profile("without a clock", deadline=None)  # beside other processes an example takes what it takes
settings.load_profile("without a clock")

# What a framework can do; a test that needs more than logits says so with @pytest.mark.needs(...). "tensors" are its
# own, not NumPy's, and networks of them can be wrapped; what "compiles" is asked through a snapshot; of the "first of
# equals" in a pool's window it takes the gradient, and of no other; the "zoo" has all of its models.
CAPABILITIES: dict[str, frozenset[str]] = {
    "torch": frozenset({"trainable", "gradients", "tensors", "compiles", "first of equals", "zoo"}),
    "tensorflow": frozenset({"trainable", "gradients", "tensors", "compiles", "first of equals", "zoo"}),
    "jax": frozenset({"trainable", "gradients", "tensors", "compiles", "first of equals", "zoo"}),
    "theano": frozenset({"trainable", "gradients"}),
    "tensorflow@1.15": frozenset({"trainable", "gradients", "first of equals"}),
    "chainer": frozenset({"trainable", "gradients", "first of equals"}),
    "mxnet": frozenset({"trainable", "gradients", "first of equals"}),
    "cntk": frozenset({"trainable", "gradients", "first of equals"}),
    "paddle": frozenset({"trainable", "gradients", "first of equals"}),
    "mlx": frozenset({"trainable", "gradients"}),
    "tinygrad": frozenset({"trainable", "gradients"}),
    "torch@1.0": frozenset({"trainable", "gradients", "first of equals"}),
    "keras-tensorflow": frozenset({"trainable", "gradients", "first of equals"}),
    "keras-jax": frozenset({"trainable", "gradients", "first of equals"}),
    "keras-torch": frozenset({"trainable", "gradients", "first of equals"}),
    "template": frozenset({"trainable", "gradients"}),
}
TEMPLATE = os.environ.get("ROBUSTCMP_HOST", str(environments.HERE / "torch_host.py"))
"""The file of a host that is tried in this Python: the one that docs/extending.md names, or one of a user's own."""

# Read before `own_cache` hides them.
DATA_DIRECTORIES = [
    Path(os.environ["ROBUSTCMP_DATA"]).resolve() if os.environ.get("ROBUSTCMP_DATA") else None,
    user_cache().resolve(),
]
HOSTS = environments.directory().resolve()
# Hosts are tested as all frameworks are, where their environments are there; tests/test_hosts.py names the others.
TESTED = [name for name in CAPABILITIES if name not in environments.SETUPS or environments.is_ready(name)]

TINY = Architecture(
    "tiny",
    (13, 19, 2),
    (
        Conv("conv1", 4, 3),
        Relu("relu1"),
        MaxPool("pool1", 2),
        Conv("conv2", 5, 2),
        Relu("relu2"),
        MaxPool("pool2", 2),
        Flatten("flatten"),
        Dense("dense1", 7),
        Relu("relu3"),
        Dense("logits", 3),
    ),
)


# Every kind of layer that TINY has not: strides, padding and a shortcut over sides of which one is even, one odd, and a
# kernel that is larger than its image.
TINY_RESIDUAL = Architecture(
    "tiny_residual",
    (9, 12, 2),
    (
        Conv("conv", 4, 3, padding=1),
        BatchNorm("norm"),
        Relu("relu"),
        Residual("block1", (Conv("block1_conv", 4, 3, padding=1), BatchNorm("block1_norm"))),
        Relu("block1_relu"),
        Residual(
            "block2",
            (
                Conv("block2_conv1", 6, 3, 2, padding=1),
                BatchNorm("block2_norm1"),
                Relu("block2_relu1"),
                Conv("block2_conv2", 6, 5, padding=2),
                BatchNorm("block2_norm2"),
            ),
            (Conv("block2_shortcut", 6, 1, 2),),
        ),
        Relu("block2_relu2"),
        Conv("large", 6, 7, 2, padding=3),
        GlobalAveragePool("pool"),
        Dense("dense1", 5),
        BatchNorm("dense_norm"),
        Relu("dense_relu"),
        Dense("logits", 3),
        BatchNorm("logits_norm"),
    ),
)


class NumpyNetwork(NamedTuple):
    """A network in float64 NumPy: `logits` (N, H, W, C) to (N, K), `vjp` as `Classifier.vjp`."""

    logits: Callable[[NDArray[Any]], NDArray[np.float64]]
    vjp: Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
    layers: ref.Layers


def files(directory: Path) -> dict[str, str]:
    """Every file below a directory with its SHA-256."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def answers(directory: Path) -> dict[str, str]:
    """Every file of a run with its SHA-256, but for the logs, which are about the machine."""
    return {name: sha for name, sha in files(directory).items() if name != "costs.jsonl"}


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FirstFailure(config))
        if target := config.getoption("--brought"):
            config.pluginmanager.register(Brought(Path(target)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--brought", metavar="FILE", help="keep in a JSON file how tests of what people bring ended")


class Brought:
    """Keeps what was tried of the things that people bring, and how it ended, for tools/brought.py."""

    def __init__(self, target: Path):
        self.target, self.rows = target, json.loads(target.read_text()) if target.exists() else {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, row in report.user_properties:
            if name == "brought" and (report.when == "call" or report.skipped):
                reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
                self.rows[report.nodeid] = dict(row) | {"outcome": report.outcome, "reason": reason}

    def pytest_sessionfinish(self) -> None:
        self.target.write_text(json.dumps(self.rows, indent=1, sort_keys=True) + "\n")


class FirstFailure:
    """Shows the first failure as soon as it is there; all come at the end."""

    def __init__(self, config: pytest.Config):
        self.plugins, self.shown = config.pluginmanager, False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.plugins.get_plugin("terminalreporter")
        if report.failed and not self.shown and terminal:
            self.shown = True
            terminal.write_line(f"\nThe first failure, {report.nodeid}:\n{report.longreprtext}")


def pytest_unconfigure() -> None:
    if OWN_COMPILED:
        shutil.rmtree(OWN_COMPILED, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # before the marks are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("brought"):
            item.user_properties.append(("brought", mark.kwargs))
        # Theano compiles a minute or two for each; it has small networks, and float32, as well.
        if "[theano-resnet20" in item.name or "[theano-small_vgg-float64" in item.name:
            item.add_marker("whole_zoo")
    # The template has no trained models, and the tests over all frameworks are what it has to pass.
    items[:] = [item for item in items if "[template" not in item.name or item.path.name == "test_frameworks.py"]
    # What asks trained models comes last, so that a mistake elsewhere is seen in the first minutes.
    items.sort(key=lambda item: bool({"zoo_model", "framework"} & {*getattr(item, "fixturenames", ())}))


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def load_file(source: str | Path, framework: str, architecture: str | None = None) -> Any:
    """Check a file or a function of a user's own and load its network, as a comparison does."""
    origin = FromFile(str(source), framework, architecture)
    origin.check()
    return origin.load()


def as_at_a_terminal(ignored: int = 0) -> list[str]:
    """Return the beginning of a command whose signals should be as a terminal leaves them, but for an ignored one.

    Not by a function between fork and exec: the threads of a framework in this process forbid one.
    """
    default = ",".join(signal.Signals(number).name for number in SIGNALS if number != ignored)
    ignore = [f"--ignore-signal={signal.Signals(ignored).name}"] if ignored else []
    return ["env", f"--default-signal={default}", *ignore]


def waited_for(condition: Callable[[], object], seconds: float = 120) -> bool:
    """Whether something comes to hold within some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def left_by_a_dead_writer(path: Path) -> None:
    """Make the temporary file that a process leaves which is killed while it writes a file."""
    code = "import sys; from pathlib import Path; from robustcmp.files import _temporary_beside; "
    code += "_temporary_beside(Path(sys.argv[1])).touch()"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide what the user has trained or downloaded; return the cache that this test has instead."""
    monkeypatch.setenv("ROBUSTCMP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=TESTED)
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TrainableFramework:
    """One framework's adapter after the other."""
    name: str = request.param
    marker = request.node.get_closest_marker("needs")
    missing = set(marker.args if marker else ()) - CAPABILITIES[name]
    if missing:
        pytest.skip(f"{name} has not: {', '.join(sorted(missing))}")
    if name == "template":
        if request.node.get_closest_marker("gpu"):
            pytest.skip("a host is on the CPU")
        return hosted_template()
    if name in environments.SETUPS:
        monkeypatch.setattr(environments, "directory", lambda: HOSTS)
    elif name not in frameworks.list_installed():
        pytest.skip(f"{name} is not installed")
    if request.node.get_closest_marker("gpu") and not gpus(name):
        pytest.skip(f"{name} sees no GPU")
    return frameworks.get_framework(name)


@cache
def hosted_template() -> Hosted:
    """Return the host of the template, one process for all tests."""
    return Hosted("template", partial(environments.run, "template", sys.executable, TEMPLATE))


def gpus(name: str) -> int:
    """Return how many GPUs a framework sees."""
    if name in environments.SETUPS:
        return 0
    if name == "torch":
        import torch

        return torch.cuda.device_count()
    if name == "tensorflow":
        import tensorflow

        return len(tensorflow.config.list_physical_devices("GPU"))
    import jax

    return sum(device.platform == "gpu" for device in jax.devices())


@pytest.fixture(scope="session")
def digits() -> Dataset:
    """The 500 test images of digits."""
    return load_dataset("digits", "test")


@pytest.fixture(scope="session")
def mnist() -> Dataset:
    """The 10,000 test images of MNIST."""
    return at_hand("mnist")


@pytest.fixture(scope="session")
def cifar10() -> Dataset:
    """The 10,000 test images of CIFAR-10."""
    return at_hand("cifar10")


def at_hand(name: str) -> Dataset:
    """A test set from a directory; nothing is downloaded."""
    for directory in filter(None, DATA_DIRECTORIES):
        try:
            return load_dataset(name, "test", data_dir=directory)
        except DataError as error:
            if "received a directory without" not in str(error) and "received no directory" not in str(error):
                raise
    pytest.skip(f"{name} is neither in $ROBUSTCMP_DATA nor in the user cache")


@pytest.fixture(scope="session")
def zoo_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    """Return a function that gives a model of the zoo that ships, LeNet-5 on digits unless asked otherwise."""
    nowhere = tmp_path_factory.mktemp("nothing-trained-here")

    @cache
    def load(
        framework: Framework | str, model: str = "lenet5", dataset: str = "digits", seed: int = 0, device: str = "cpu"
    ) -> Model:
        name = framework if isinstance(framework, str) else framework.name
        return load_model(model, framework=name, dataset=dataset, seed=seed, device=device, directory=nowhere)

    return load


@pytest.fixture(scope="session")
def tiny() -> Architecture:
    """A network that hides no mistake in the layout: two channels, sides that differ, pools with a rest."""
    return TINY


@pytest.fixture(scope="session")
def tiny_residual() -> Architecture:
    """A network with batch norms, strides and shortcuts."""
    return TINY_RESIDUAL


@pytest.fixture(scope="session")
def numpy_network() -> Callable[[Architecture, Weights], NumpyNetwork]:
    """Return a function that makes the NumPy reference of an architecture with canonical weights."""

    def make(architecture: Architecture, weights: Weights) -> NumpyNetwork:
        layers = [_reference_layer(layer) for layer in architecture.layers]
        return NumpyNetwork(
            lambda images: ref.numpy_logits(layers, weights, images),
            lambda images, v: ref.numpy_vjp(layers, weights, images, v),
            layers,
        )

    return make


def _reference_layer(layer: object) -> tuple[Any, ...]:
    match layer:
        case Conv():
            return "conv", layer.name, layer.stride, layer.padding
        case BatchNorm():
            return "norm", layer.name
        case GlobalAveragePool():
            return ("mean",)
        case Residual():
            return "residual", *([_reference_layer(its) for its in part] for part in (layer.layers, layer.shortcut))
        case Dense():
            return "dense", layer.name
        case MaxPool(size=2):
            return ("pool",)
        case Relu():
            return ("relu",)
        case Flatten():
            return ("flatten",)
    raise NotImplementedError(f"the reference has no {layer}")


@pytest.fixture(scope="session")
def random_weights() -> Callable[[Architecture, int], Weights]:
    """Return a function (architecture, seed) to canonical weights, with biases that are not zero."""

    def make(architecture: Architecture, seed: int) -> Weights:
        rng = np.random.default_rng(seed)
        weights = {}
        for name, shape in architecture.weight_shapes.items():
            scale = math.sqrt(2 / math.prod(shape[:-1])) if name.endswith("/kernel") else 0.1
            weights[name] = (scale * rng.normal(size=shape)).astype(np.float32)
            if name.endswith(("/gamma", "/variance")):
                weights[name] += 1
        return weights

    return make


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """The cells that are finished during the test, in their order."""
    cells: list[Cell] = []
    save = Run.save

    def counted(self: Run, cell: Cell, result: AttackResult) -> None:
        save(self, cell, result)
        cells.append(cell)

    monkeypatch.setattr(Run, "save", counted)
    return cells


@pytest.fixture
def untouched_rng() -> Iterator[None]:
    """Put Python's and NumPy's global random states back after a test that seeds them."""
    import random

    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (what a caller may use)
    yield
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002


@pytest.fixture(scope="session")
def small_run(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with everything that a report shows: two trainings each of two linear models, in NumPy alone."""
    directory = tmp_path_factory.mktemp("small") / "run"
    models = {"left": [linear(0), linear(1)], "right": [linear(2), linear(3)]}
    ev = evaluate(
        models,
        digits.images,
        digits.labels,
        suite="smoke",
        n=20,
        repeats=2,
        out=directory,
        batch_size=64,
        progress=False,
        about={"model": "linear", "dataset": "digits", "command": "python compare.py --model linear"},
    )
    ev.run_checks()
    ev.run_transfer()
    return directory


def linear(seed: int) -> Any:
    """A linear classifier of digits, fitted to images that are drawn by a seed."""
    train = load_dataset("digits", "train")
    chosen = np.random.default_rng(seed).choice(len(train.images), 400)
    images, classes = train.images[chosen].reshape(400, -1).astype(np.float64), np.eye(10)[train.labels[chosen]]
    weights = 8 * np.linalg.solve(images.T @ images + 150 * np.eye(images.shape[1]), images.T @ classes)
    return wrap_functions(
        logits=lambda x: (x.reshape(len(x), -1) @ weights).astype(np.float32),
        vjp=lambda x, v: (v @ weights.T).reshape(x.shape).astype(np.float32),
        bounds=(0, 1),
    )


class Slow:
    """A linear classifier of digits that takes its time on a clock of its own, and counts the images asked.

    A gradient counts as three images.

    Parameters
    ----------
    seconds : float
        What each image takes.
    monkeypatch : pytest.MonkeyPatch
        Gives its clock to those that measure.
    """

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch):
        self._fast, self._seconds = linear(0), seconds
        self.asked = 0
        monkeypatch.setattr("robustcmp.models.batches.time", SimpleNamespace(perf_counter=self._clock))
        self.model = wrap_functions(logits=self._logits, vjp=self._vjp)

    def _clock(self) -> float:
        return self._seconds * self.asked

    def _logits(self, x: Any) -> Any:
        self.asked += len(x)
        return self._fast.native(x)

    def _vjp(self, x: Any, v: Any) -> Any:
        self.asked += 3 * len(x)
        return self._fast.vjp(x, v)
