"""Networks that were trained elsewhere: read from files without running anything of them, or made by a function."""

from __future__ import annotations

import importlib
import json
import logging
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import load_file
from msgspec.structs import replace

import robustcmp as rc
from robustcmp.cli import eval as eval_command
from robustcmp.cli import report as report_command
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError, UsageError, WeightsError
from robustcmp.frameworks import TrainableFramework, list_installed
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.models.preflight import in_unit_bounds
from robustcmp.networks.architecture import get_architecture
from robustcmp.networks.weights import WeightsFile, write_weights
from robustcmp.sources.from_files import FromFile
from robustcmp.sources.from_zoo import FromZoo, find_weights
from robustcmp.sources.named_files import describe_normalisation, describe_pooling, directory_part, file_origins

# Keras reads its own variables in a way that NumPy 2 warns of, when it saves them.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

# A user's own code: the same design as lenet1, with names and a style of its own in each framework.
NETS = """
def torch_network():
    import torch
    return torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Conv2d(1, 4, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        torch.nn.Sequential(torch.nn.Conv2d(4, 12, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        torch.nn.Flatten(), torch.nn.Linear(192, 10),
    )

def tensorflow_network():
    import keras
    return keras.Sequential([
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(4, 5, activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(12, 5, activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Flatten(), keras.layers.Dense(10),
    ])

def jax_wrapped(weights):
    import robustcmp
    return robustcmp.wrap(jax_network(weights), framework="jax")

def jax_network(weights):
    import jax
    def logits(x):
        for layer in ("conv1", "conv2"):
            x = jax.lax.conv_general_dilated(
                x, weights[layer + "/kernel"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x + weights[layer + "/bias"])
            x = jax.lax.reduce_window(x, -float("inf"), jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return x.reshape(len(x), -1) @ weights["logits/kernel"] + weights["logits/bias"]
    return logits

def trained():
    import torch
    import robustcmp
    network = torch_network()
    state = torch.load("own.pt", weights_only=True)
    network.load_state_dict(dict(zip(network.state_dict(), state.values())))
    return robustcmp.wrap(network.eval(), bounds=(-1, 1), preprocessing={"mean": [-1.0], "std": [2.0], "axis": -3})

def logistic():
    from sklearn.linear_model import LogisticRegression
    import robustcmp
    data = robustcmp.load_dataset("digits", split="train")
    fitted = LogisticRegression(tol=1e-3, max_iter=500).fit(data.images.reshape(len(data.images), -1), data.labels)
    return lambda x: fitted.decision_function(x.reshape(len(x), -1))

def sums(images):
    return images.sum(axis=1)[:, :10, 0]

def of_sums():
    return sums

number = 3

def soft():
    import torch
    return torch.nn.Sequential(*torch_network(), torch.nn.Softmax(1)).eval()

def fails():
    raise RuntimeError("no such luck")

def nonsense():
    return "no network"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory with the user's module in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    Path("nets.py").write_text(NETS)
    return tmp_path


def zoo_model(framework: str) -> Model:
    return rc.load_model("lenet1", framework=framework, dataset="digits")


def zoo_weights(framework: str) -> WeightsFile:
    content = find_weights(FromZoo("lenet1", "digits", framework))
    assert content is not None
    return content


def write_torch(path: str, of: str = "torch", names: bool = True, **more: Any) -> None:
    """Write a state dict as a user would, after training or with more in a checkpoint beside it."""
    import torch

    state = rc.same_weights(zoo_model(of), ["torch"])["torch"].native.state_dict()
    if not names:
        state = {f"module.{i}": its for i, its in enumerate(state.values())}
    elif more:
        state = {f"module.{name}": its for name, its in reversed(state.items())}  # of DataParallel
    torch.save({"net": state, **more} if more else state, path)


def write_keras(path: str) -> None:
    zoo_model("tensorflow").native.save(path)


def same_answers(model: Any, expected: Model, digits: Dataset, tolerance: float = 1e-5) -> None:
    images = digits.images[:50]
    np.testing.assert_allclose(
        Classifier(in_unit_bounds(model)).logits(images), Classifier(expected).logits(images), atol=tolerance
    )


@pytest.mark.brought(
    group="JAX",
    what="parameters in a NumPy archive, such as `conv1/kernel`",
    typed="robustcmp eval --weights jax=a.npz --architecture lenet1",
    got="a comparison",
)
def test_canonical_weights_run_in_every_framework(framework: TrainableFramework, folder: Path, digits: Dataset) -> None:
    content = zoo_weights(framework.name)
    write_weights(Path("own.h5"), content)
    np.savez("own.npz", **content.weights)
    for file in ("own.h5", "own.npz"):
        model = load_file(file, framework.name, "lenet1")
        same_answers(model, zoo_model(framework.name), digits, 0)
        assert model.info["source"] == file


@pytest.mark.parametrize("more", [{}, {"epoch": 3}])
@pytest.mark.parametrize("names", [True, False])
def test_a_state_dict_of_torch(
    folder: Path, digits: Dataset, names: bool, more: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch")
    write_torch("own.pt", names=names, **more)
    for architecture in ("lenet1", "nets:torch_network"):
        caplog.clear()
        same_answers(load_file("own.pt", "torch", architecture), zoo_model("torch"), digits)
        by_shape = not names or architecture != "lenet1"  # a prefix alone would not matter
        assert (caplog.record_tuples != []) == by_shape
        assert all(level == logging.WARNING and "by their shapes" in text for _, level, text in caplog.record_tuples)


def lightning(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a checkpoint as Lightning writes it."""
    import torch

    weighted = {f"model.{name}": tensor for name, tensor in state.items()}
    about = {"epoch": 1, "optimizer_states": [{"state": {0: torch.ones(3)}}], "hyper_parameters": {"lr": 0.1}}
    return {**about, "pytorch-lightning_version": "2.6.6", "state_dict": weighted, **more}


def averaged(network: Any) -> dict[str, Any]:
    import torch

    state: dict[str, Any] = torch.optim.swa_utils.AveragedModel(network).state_dict()
    assert "n_averaged" in state
    return state


CHECKPOINTS: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "Lightning": ("a.ckpt", lambda network: lightning(network.state_dict())),
    "averages in Lightning": (
        "a.ckpt",
        lambda network: lightning(
            network.state_dict(),
            current_model_state={f"model.{name}": tensor + 1 for name, tensor in network.state_dict().items()},
            averaging_state={"n_averaged": next(network.parameters())[0]},
        ),
    ),
    "averages of torch": ("a.pt", averaged),
    "compiled": ("a.pth", lambda network: {f"_orig_mod.{name}": its for name, its in network.state_dict().items()}),
    "of a hub": ("pytorch_model.bin", lambda network: network.state_dict()),
}


@pytest.mark.parametrize("architecture", ["lenet1", "nets:torch_network"])
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_checkpoints_as_trainers_write_them(kind: str, architecture: str, folder: Path, digits: Dataset) -> None:
    torch = pytest.importorskip("torch")
    write_torch("own.pt")
    network = load_file("own.pt", "torch", architecture).native
    file, make = CHECKPOINTS[kind]
    torch.save(make(network), file)
    ((origin,),) = file_origins([f"torch={file}"], architecture).values()
    same_answers(origin.load("cpu"), zoo_model("torch"), digits)


HIDDEN = """
from collections import OrderedDict
import torch

def network(names, *widths):
    layers = OrderedDict(flatten=torch.nn.Flatten())
    for name, inputs, outputs in zip(names, (784, *widths), (*widths, 10)):
        layers[name] = torch.nn.Linear(inputs, outputs, bias=False)
        layers[f"{name}_relu"] = torch.nn.ReLU()
    return torch.nn.Sequential(layers)[:-1]

NAMES = ("a", "hidden9", "hidden10", "last")  # sorted as text, 10 stands before 9

def alike(names=NAMES):
    return network(names, 32, 32, 32)

def distinct(names=NAMES):
    return network(names, 40, 32, 24)

def alike_by_other_names():
    return alike("wxyz")

def distinct_by_other_names():
    return distinct("wxyz")
"""


@pytest.fixture
def hidden(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A user's module with layers of several widths."""
    pytest.importorskip("safetensors")
    monkeypatch.delitem(sys.modules, "hidden", raising=False)
    Path("hidden.py").write_text(HIDDEN)
    return importlib.import_module("hidden")


@pytest.mark.parametrize("widths", ["alike", "distinct"])
def test_weights_in_the_order_of_their_names(hidden: Any, widths: str, digits: Dataset) -> None:
    """By place, layers of one shape would get each other's weights."""
    from safetensors.torch import save_file

    network = getattr(hidden, widths)()
    save_file(network.state_dict(), "own.safetensors")
    same_answers(load_file("own.safetensors", "torch", f"hidden:{widths}"), rc.wrap(network.eval()), digits)
    if widths == "distinct":
        same_answers(load_file("own.safetensors", "torch", "hidden:distinct_by_other_names"), rc.wrap(network), digits)
    else:
        message = r"expected w\.weight .*; received a\.weight .*which is which.*module:funct"
        with pytest.raises(WeightsError, match=message):
            load_file("own.safetensors", "torch", "hidden:alike_by_other_names")


def test_a_network_with_batch_norms_and_shortcuts_in_torch(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    framework = rc.frameworks.get_framework("torch")
    architecture = get_architecture("resnet20")
    native = framework.build(architecture, 3, "cpu")
    state = native.state_dict()
    torch.save({name: its for name, its in state.items() if "num_batches" not in name}, "own.pth")
    received = load_file("own.pth", "torch", "resnet20").native.state_dict()
    assert all(torch.equal(state[name], received[name]) for name in state)


@pytest.mark.brought(
    group="Keras and TensorFlow",
    what="a file `.weights.h5`",
    typed="robustcmp eval --weights tensorflow=a.weights.h5 --architecture lenet1",
    got="a comparison",
)
def test_whole_models_and_weights_of_keras(folder: Path, digits: Dataset) -> None:
    pytest.importorskip("tensorflow")
    write_keras("own.keras")
    zoo_model("tensorflow").native.save_weights("own.weights.h5")
    for file, architecture in (
        ("own.keras", None),
        ("own.keras", "lenet1"),
        ("own.keras", "nets:tensorflow_network"),
        ("own.weights.h5", "lenet1"),
    ):
        same_answers(load_file(file, "tensorflow", architecture), zoo_model("tensorflow"), digits)


def test_functions_make_networks(folder: Path, digits: Dataset) -> None:
    if "jax" in list_installed():
        np.savez("own.npz", **zoo_weights("jax").weights)
        same_answers(load_file("own.npz", "jax", "nets:jax_network"), zoo_model("jax"), digits)
    pytest.importorskip("torch")
    write_torch("own.pt")
    # The network's own bounds and preprocessing: images are compared in [0, 1] all the same.
    same_answers(load_file("nets:trained", "torch"), zoo_model("torch"), digits)
    with pytest.raises(ModelError, match="nets:fails failed: RuntimeError: no such luck"):
        load_file("nets:fails", "torch")
    with pytest.raises(ModelError, match=r"expected a torch.nn.Module, received str"):
        load_file("nets:nonsense", "torch")


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("it-ran"),)


def test_files_that_hold_code_are_not_run(folder: Path) -> None:
    if "torch" in list_installed():
        import torch

        torch.save({"weight": Malicious()}, "evil.pt")
        Path("evil.pth").write_bytes(pickle.dumps(Malicious()))
        torch.save(lightning({}, hyper_parameters={"path": Malicious()}), "evil.ckpt")
        for file in ("evil.pt", "evil.pth", "evil.ckpt"):
            with pytest.raises(WeightsError, match=rf"{file} is broken, or it holds more than tensors.*state_dict"):
                load_file(file, "torch", "lenet1")
    if "tensorflow" in list_installed():
        import keras

        x = keras.Input((28, 28, 1))
        code = keras.layers.Lambda(lambda x: Path("it-ran").touch() or x)(x)
        keras.Model(x, keras.layers.Dense(10)(keras.layers.Flatten()(code))).save("evil.keras")
        Path("it-ran").unlink(missing_ok=True)
        with pytest.raises(WeightsError, match=r"evil.keras is broken, does not fit, or holds code.*[Ll]ambda"):
            load_file("evil.keras", "tensorflow")
    np.savez("evil.npz", weights=np.array([Malicious()], dtype=object))
    with pytest.raises(WeightsError, match=r"evil.npz is not a file of named arrays"):
        load_file("evil.npz", list_installed()[0], "lenet1")
    assert not Path("it-ran").exists()


def test_weights_of_another_network_of_keras_name_the_layer_and_both_shapes(folder: Path) -> None:
    pytest.importorskip("tensorflow")
    write_keras("own.keras")
    zoo_model("tensorflow").native.save_weights("own.weights.h5")
    with pytest.raises(
        WeightsError, match=r"expected conv1/kernel \(5, 5, 1, 6\), .*received .*conv1/kernel \(5, 5, 1, 4\)"
    ):
        load_file("own.keras", "tensorflow", "lenet5")
    with pytest.raises(WeightsError, match=r"own.weights.h5.*conv1.*\(5, 5, 1, 6\).*\(5, 5, 1, 4\)"):
        load_file("own.weights.h5", "tensorflow", "lenet5")


COLOURS = """
[architecture]
input_shape = [5, 4, 3]
layers = [{ type = "Conv", name = "conv", channels = 4, kernel = 3 }, { type = "Relu", name = "relu" },
          { type = "Flatten", name = "flatten" }, { type = "Dense", name = "logits", units = 3 }]
"""


@pytest.mark.parametrize(
    ("mean", "std"), [([0.3], []), ([0.1, 0.2, 0.3], [0.5, 1, 2]), ([], [1 / 255]), ([0.4], [1, 2, 3])]
)
def test_a_file_of_a_network_for_normalised_images(
    framework: TrainableFramework, folder: Path, random_weights: Any, mean: list[float], std: list[float]
) -> None:
    Path("colours.toml").write_text(COLOURS)
    np.savez("own.npz", **random_weights(get_architecture("colours.toml"), 0))
    images = np.random.default_rng(0).random((6, 5, 4, 3), np.float32)
    normalised = ((images - (mean or [0])) / (std or [1])).astype(np.float32)
    plain = load_file("own.npz", framework.name, "colours.toml")
    description = f"{framework.name}=own.npz"
    for name, numbers in (("mean", mean), ("std", std)):
        description += f",{name}={':'.join(map(str, numbers))}" if numbers else ""
    ((origin,),) = file_origins([description], "colours.toml").values()
    assert isinstance(origin, FromFile)
    received = Classifier(origin.load()).logits(images)
    np.testing.assert_allclose(received, Classifier(plain).logits(normalised), rtol=1e-4, atol=1e-4)
    assert origin.fingerprint != replace(origin, mean=(), std=()).fingerprint


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("torch=own.npz,mean=0.1,std=0", "std: expected positive numbers, received [0.0]"),
        ("torch=own.npz,mean=nan", "mean: expected finite numbers, received [nan]"),
        ("torch=own.npz,mean=1:2,std=1:2:3", "as many numbers"),
        ("torch=own.npz,mean=half", "mean: expected a number like 0.1307 or 1/255, or one for each channel"),
        ("torch=own.npz,std=1/0", "0.49:0.48:0.45; received '1/0'"),
        ("torch=own.npz,mean=1,mean=2", "torch=own.npz,mean=1,mean=2: expected each property once"),
        ("torch=own.npz,meen=1", "there is no file own.npz,meen=1"),
        ("torch=nets:trained,mean=0.1", "let nets:trained return robustcmp.wrap(network, preprocessing="),
        ("onnxruntime=own.onnx,softmax", "leave ,softmax out"),
        ("numpy=nets:logistic,softmax", "let nets:logistic return logits, or robustcmp.wrap_functions"),
    ],
)
def test_descriptions_that_cannot_be(folder: Path, description: str, message: str) -> None:
    pytest.importorskip("torch")
    np.savez("own.npz", **{"logits/bias": np.zeros(3)})
    Path("own.onnx").write_text("some content")
    with pytest.raises(UsageError, match=re.escape(message)):
        file_origins([description], "lenet1")


def test_normalisation_of_each_model(folder: Path) -> None:
    for package in ("torch", "jax"):
        pytest.importorskip(package)
    for path in ("a.npz", "b.npz", "c.npz"):
        np.savez(path, of=np.array([float(ord(path[0]))]))
    files = ["torch=a.npz,mean=0.5", "torch=b.npz,mean=0.5", "mine:jax=c.npz", "code:torch=nets:trained"]
    origins = file_origins([*files[:2], f"{files[2]},mean=0.1:0.2:0.3,std=2/255", files[3]], "lenet1")
    found = {name: [(its.mean, its.std) for its in each if isinstance(its, FromFile)] for name, each in origins.items()}
    assert found["torch"] == [((0.5,), ())] * 2
    assert found["mine"] == [((0.1, 0.2, 0.3), (2 / 255,))]
    assert found["code"] == [((), ())]
    assert describe_normalisation(origins, 3) == [
        "torch: given (images - 0.5) / 1",
        "mine: given (images - (0.1, 0.2, 0.3)) / 0.00784314",
        "code: given images",
    ]
    with pytest.raises(UsageError, match="mean: expected 1 number or one for each of 1 channels, received 3"):
        describe_normalisation(origins, 1)
    assert describe_normalisation(file_origins(files[2:], "lenet1"), 3) == []


def test_which_softmax_is_cut(folder: Path, digits: Dataset) -> None:
    pytest.importorskip("torch")
    write_torch("a.pt")
    ((soft,),) = file_origins(["torch=a.pt,softmax"], "nets:soft").values()
    same_answers(soft.load("cpu"), zoo_model("torch"), digits)
    ((plain,),) = file_origins(["torch=a.pt,softmax"], "lenet1").values()
    assert plain.fingerprint not in (None, replace(plain, cut_softmax=False).fingerprint)
    with pytest.raises(UsageError, match=r"a\.pt: cut_softmax=True takes .* received Linear"):
        plain.load("cpu")
    ((wrapped,),) = file_origins(["torch=nets:trained,softmax"]).values()
    write_torch("own.pt")
    with pytest.raises(UsageError, match=r"nets:trained comes with .* put cut_softmax=True there"):
        wrapped.load("cpu")


def test_code_that_cannot_be_imported(folder: Path) -> None:
    Path("broken.py").write_text("def network(:\n")
    Path("divides.py").write_text("1 / 0\n")
    for module in ("broken", "divides"):
        with pytest.raises(ModelError, match=f"{module} failed when it was imported: (SyntaxError|ZeroDivisionError)"):
            load_file(f"{module}:network", list_installed()[0])
    with pytest.raises(UsageError, match=r"name the module without .py, nets:trained"):
        load_file("nets.py:trained", list_installed()[0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nets:unlike", r"nets\.py has no attribute 'unlike'\. It has"),
        (
            "nets:traned",
            r"nets\.py has no attribute 'traned': did you mean 'trained'\? It has torch_network, tens",
        ),
        ("nets:Trained", "did you mean 'trained'"),
        ("nts:trained", r"there is no module 'nts' in .*, and none is installed$"),
    ],
)
def test_mistyped_code(folder: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_file(name, list_installed()[0])


def test_weights_of_keras_under_another_name_are_not_called_broken(folder: Path) -> None:
    pytest.importorskip("tensorflow")
    zoo_model("tensorflow").native.save_weights("own.weights.h5")
    Path("own.weights.h5").rename("own.h5")
    with pytest.raises(WeightsError, match=r"own.h5 holds no model of Keras.*x\.weights\.h5"):
        load_file("own.h5", "tensorflow", "lenet1")


def test_more_or_fewer_layers_are_refused(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    write_torch("own.pt")
    state = torch.load("own.pt", weights_only=True)
    torch.save(dict(list(state.items())[:-1]), "fewer.pt")
    torch.save(state | {"extra.weight": torch.zeros(3)}, "more.pt")
    with pytest.raises(WeightsError, match=r"expected logits.bias \(10,\); received nothing"):
        load_file("fewer.pt", "torch", "lenet1")
    with pytest.raises(WeightsError, match=r"received also extra.weight \(3,\)"):
        load_file("more.pt", "torch", "lenet1")
    torch.save([1, 2], "list.pt")
    with pytest.raises(WeightsError, match=r"list.pt should hold one state dict"):
        load_file("list.pt", "torch", "lenet1")


@pytest.mark.parametrize("name", ["own.pt", "own.keras", "own.npz", "own.h5", "own.weights.h5"])
def test_broken_files_are_one_message(folder: Path, name: str) -> None:
    framework = {".pt": "torch", ".keras": "tensorflow", ".weights.h5": "tensorflow"}.get(name[3:], list_installed()[0])
    if framework not in list_installed():
        pytest.skip(f"{framework} is not installed")
    content = zoo_weights(framework)
    {
        ".pt": write_torch,
        ".keras": write_keras,
        ".npz": lambda path: np.savez(path, **content.weights),
        ".h5": lambda path: write_weights(Path(path), content),
        ".weights.h5": lambda path: zoo_model("tensorflow").native.save_weights(path),
    }[name[3:]](name)
    whole = Path(name).read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:10], b"", b"\x00" * 1000):
        Path(name).write_bytes(broken)
        with pytest.raises(WeightsError, match=name):
            load_file(name, framework, "lenet1")


@pytest.mark.parametrize(
    ("given", "architecture", "message"),
    [
        (["own.npz"], "lenet1", "expected FRAMEWORK=FILE"),
        (["torch="], "lenet1", "expected FRAMEWORK=FILE"),
        (["tensorflw=own.npz"], "lenet1", "unknown framework 'tensorflw': did you mean 'tensorflow'"),
        (["torch=missing.pt"], "lenet1", r"there is no file missing.pt\.$"),
        (["torch=own.nzp"], "lenet1", "there is no file own.nzp: did you mean 'own.npz'"),
        (["torch=."], "lenet1", "expected a file, received ., a directory"),
        (["tensorflow=own.pt"], "lenet1", r"tensorflow reads \.keras, .* received own\.pt\. Write torch=own\.pt"),
        (["torch=own.tflite"], None, r"received own\.tflite\. Write litert=own\.tflite"),
        (
            ["jax=own.gguf"],
            None,
            r"jax reads \.h5, \.npz, received own\.gguf\. Save the network as one of these",
        ),
        (["torch=own.npz"], None, "own.npz holds only weights: name their network with architecture"),
        (["torch=own.npz"], "lenet6", "unknown model 'lenet6'"),
        (["torch=own.npz"], "none.toml", r"none\.toml"),
        (["torch=own.npz", "torch=own.npz"], "lenet1", "given twice"),
        (["torch=own.npz", "torch=copy.npz"], "lenet1", "given twice, or it is a copy"),
        (["numpy=own.npz"], "lenet1", "numpy= takes code, module:function, .* received own.npz"),
        (["sklearn=nets:logistic"], None, "unknown framework 'sklearn': did you mean 'numpy'"),
        (["torch=own.keras"], None, r"received own\.keras\. Write tensorflow=own\.keras"),
        (["onnx=own.npz"], "lenet1", "unknown framework 'onnx': did you mean 'onnxruntime'"),
        (["mine=own.npz"], "lenet1", "unknown framework 'mine'"),
        (["JAX:torch=own.npz"], "lenet1", "JAX is the name of another framework than torch"),
        (["onnxruntime-int8:torch=own.npz"], "lenet1", "is the name of another framework than torch"),
        ([":torch=own.npz"], "lenet1", r"the name before the framework should be at most 40 letters, .* received ''"),
        (["a/b:torch=own.npz"], "lenet1", "the name before the framework should be"),
        (["a\tb:torch=own.npz"], "lenet1", "the name before the framework should be"),
        ([f"{'a' * 41}:torch=own.npz"], "lenet1", "the name before the framework should be"),
        (["a:torch=own.npz", "b:torch=copy.npz"], "lenet1", "given twice, or it is a copy"),
    ],
)
def test_mistakes_are_found_before_anything_is_loaded(
    folder: Path, given: list[str], architecture: str | None, message: str
) -> None:
    pytest.importorskip("torch")
    for name in ("own.npz", "copy.npz", "own.keras", "own.pt", "own.tflite", "own.gguf"):
        Path(name).write_text("some content")
    with pytest.raises(UsageError, match=message):
        file_origins(given, architecture)


def test_one_name_is_one_framework(folder: Path) -> None:
    for framework in ("torch", "jax"):
        pytest.importorskip(framework)
    with pytest.raises(UsageError, match=r"mine is given for torch and jax\. Use a name for each, as in mine-jax:jax="):
        file_origins(["mine:torch=nets:small", "mine:jax=nets:large"])


def test_functions_of_arrays(folder: Path, digits: Dataset) -> None:
    pytest.importorskip("sklearn")
    for function, least in (("logistic", 0.9), ("of_sums", 0)):
        model = load_file(f"nets:{function}", "numpy")
        assert (Classifier(model).predict(digits.images) == digits.labels).mean() >= least
        assert Classifier(model).no_gradient
        assert model.info == {"source": f"nets:{function}"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("framework", "function", "message"),
    [
        ("numpy", "nonsense", "nets:nonsense should return a function of images .* received str"),
        ("numpy", "sums", r"nets:sums failed: TypeError: sums\(\) missing 1 required"),
        ("numpy", "number", "nets:number should be a function, received int"),
        ("numpy", "torch_network", "is a network of torch, but was given for numpy: write torch=nets:torch_network"),
    ],
)
def test_functions_that_return_something_else(folder: Path, framework: str, function: str, message: str) -> None:
    for package in ("torch", "sklearn"):
        pytest.importorskip(package)
    with pytest.raises(ModelError, match=message):
        load_file(f"nets:{function}", framework)


def test_what_functions_return_that_need_more(folder: Path, digits: Dataset) -> None:
    pytest.importorskip("sklearn")
    fitted = rc.load_dataset("digits", split="train")
    from sklearn.naive_bayes import GaussianNB

    bayes = GaussianNB(var_smoothing=0.1).fit(fitted.images.reshape(len(fitted.images), -1), fitted.labels)
    probable = rc.wrap_functions(logits=lambda x: bayes.predict_proba(x.reshape(len(x), -1)))
    with pytest.raises(ModelError, match=r'keep it with outputs="probabilities" where it is wrapped'):
        rc.evaluate({"m": probable}, digits.images, digits.labels, suite="smoke", progress=False)


def test_an_interrupted_call_says_what_is_kept(folder: Path, digits: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    def interrupt(images: Any) -> Any:
        raise KeyboardInterrupt

    models = {"m": rc.wrap_functions(logits=interrupt)}
    for out, said in (("run", "kept in run: repeat the call to resume"), (None, "Without out= nothing is kept")):
        with pytest.raises(KeyboardInterrupt):
            rc.evaluate(models, digits.images, digits.labels, suite="smoke", out=out, progress=False)
        assert said in caplog.text


def test_names_in_the_name_of_the_directory(folder: Path) -> None:
    pytest.importorskip("torch")
    for path in ("a.pt", "runs/best.pt", "c d.pt"):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(path)
    named = ["torch=a.pt", "torch=runs/best.pt", "torch=c d.pt", "my own:torch=nets:small", "pytorch:torch=nets:large"]
    origins = file_origins(named, "lenet1")
    assert [*origins] == ["torch", "my own", "pytorch"]
    assert directory_part(origins) == "torch-a-runs-best-c-d-my-own-pytorch"
    assert describe_pooling(origins)[0].endswith("To compare them, name each: a:torch=a.pt b:torch=runs/best.pt …")
    many = [directory_part(file_origins([f"torch=nets:f{i}" for i in range(n)])) for n in (40, 41)]
    assert many[0] != many[1]
    assert max(map(len, many)) == 60


@pytest.mark.brought(
    group="PyTorch",
    what="a file `.pt` of a state dict",
    typed="robustcmp eval --weights torch=a.pt --architecture lenet1",
    got="a comparison",
)
def test_one_file_compared_on_the_command_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    write_torch("a.pt")
    given = ["--dataset", "digits", "--suite", "smoke", "--json"]
    given += ["--images", "4", "--repeats", "1", "--batch-size", "64"]
    own = ["--weights", "torch=a.pt", "--architecture", "lenet1", *given]
    assert eval_command.main(own) == 0
    summary = json.loads(capfd.readouterr().out)
    out = "runs/lenet1-digits-smoke-weights-torch-a"
    assert (summary["model"], summary["out"]) == ("lenet1", out)
    assert eval_command.main(["--model", "lenet1", "--framework", "torch", "--training-seeds", "0", *given]) == 0
    assert json.loads(capfd.readouterr().out)["success_rate"] == summary["success_rate"]


@pytest.mark.brought(
    group="PyTorch",
    what="two networks, from a file and from a function of yours",
    typed="robustcmp eval --weights mine:torch=a.pt yours:torch=nets:yours --architecture lenet1 --dataset digits",
    got="a comparison",
)
def test_two_models_of_one_framework_are_compared_by_name(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    write_torch("a.pt")
    write_torch("own.pt", of="tensorflow")
    given = ["--architecture", "lenet1", "--dataset", "digits", "--suite", "smoke", "--batch-size", "64"]
    given += ["--images", "4", "--repeats", "1"]
    own = ["--weights", "mine:torch=a.pt", "yours:torch=nets:trained", *given]
    assert eval_command.main(own) == 0
    said = capfd.readouterr()
    assert "2 models; 4 images" in said.out
    out = "runs/lenet1-digits-smoke-weights-mine-yours"
    ev = rc.open_run(out)
    assert ev.results.models == ["mine", "yours"]
    assert [model["framework"] for model in ev.manifest["models"]] == ["torch", "torch"]
    assert [*ev.tests("models").a.unique()] == ["all", "mine"]
    assert "yours" in Path(out, "report.html").read_text()
    assert report_command.main([out]) == 0


def test_options_that_do_not_go_with_files(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    write_torch("a.pt")
    write_torch("own.pt")
    own = ["--weights", "torch=a.pt", "--architecture", "lenet1", "--dataset", "digits", "--suite", "smoke"]
    for wrong, message in (
        (["--weights", "torch=nets:trained"], "expected --dataset"),
        ([*own, "--model", "lenet1"], "argument --model: not allowed with argument --weights"),
        ([*own, "--framework", "torch"], "cannot be combined with --framework"),
        (["--model", "lenet1", "--architecture", "lenet1"], "cannot be combined with --model"),
    ):
        assert eval_command.main(wrong) == 2
        assert message in capfd.readouterr().err
