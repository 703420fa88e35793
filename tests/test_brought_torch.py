"""What people bring from PyTorch: it is attacked beside another model, or a message says what to do."""

from __future__ import annotations

import copy
import logging
import random
import shutil
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from brought import ONE_ATTACK, SUITE, compared
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM
from robustcmp.errors import ModelError, UsageError, WeightsError
from robustcmp.models.classifier import Classifier
from robustcmp.models.preflight import check_model
from robustcmp.report.text import summary
from robustcmp.sources.from_files import load_network
from robustcmp.sources.named_files import file_origins

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.* is (deprecated|not supported):DeprecationWarning")

N, SIDE, CLASSES = 24, 8, 3
brought = partial(pytest.mark.brought, group="PyTorch", typed="rc.wrap(network)", got="a comparison")


def convolutional(seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * (SIDE - 2) ** 2, CLASSES),
        ).eval()


def drawn(n: int = N, side: int = SIDE) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((n, side, side, 3), dtype=np.float32)


def answered(network: Any, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what a network answers without robustcmp, for images (N, H, W, C)."""
    with torch.no_grad():
        answer: NDArray[np.float32] = network(torch.tensor(images.transpose(0, 3, 1, 2))).float().numpy()
    return answer


def check_same(network: Any, plain: Any, atol: float, images: NDArray[np.float32] | None = None) -> Any:
    """Compare logits and the gradient of what was brought with those of a float32 module; return its model."""
    images = drawn() if images is None else images
    model = rc.wrap(network, device="cpu")
    received, expected = Classifier(model), Classifier(rc.wrap(plain, device="cpu"))
    logits = received.logits(images)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, answered(plain, images), atol=atol)
    v = np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)
    np.testing.assert_allclose(received.vjp(images, v), expected.vjp(images, v), atol=2 * atol)
    check_model("m", received, images, logits.argmax(axis=1))
    compiled = received.compile(images)
    np.testing.assert_allclose(compiled.logits(images), logits, atol=1e-4)
    return model


# precision ------------------------------------------------------------------------------------------------------------

PRECISIONS = {"float16": 5e-3, "bfloat16": 3e-2, "float64": 1e-5}


@pytest.mark.parametrize(
    "dtype", [pytest.param(name, marks=brought(what=f"a module in {name}")) for name in PRECISIONS]
)
def test_a_module_in_another_precision(dtype: str, tmp_path: Path) -> None:
    plain = convolutional()
    network = copy.deepcopy(plain).to(getattr(torch, dtype))
    model = check_same(network, plain, PRECISIONS[dtype])
    assert Classifier(model).parameters()
    compared(model, drawn(), tmp_path)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_below_the_smallest_float16_arrive(dtype: str) -> None:
    plain = convolutional()
    network = copy.deepcopy(plain).to(getattr(torch, dtype))
    images, v = drawn(), np.zeros((N, CLASSES), np.float32)
    v[:, 0], v[0] = 1e-12, 0  # one image has no gradient
    received, expected = (Classifier(rc.wrap(each, device="cpu")).vjp(images, v) for each in (network, plain))
    assert not received[0].any()
    np.testing.assert_allclose(received * 1e12, expected * 1e12, atol=2e-2)


# kinds of modules -----------------------------------------------------------------------------------------------------


def exported(network: Any) -> Any:
    images = torch.tensor(drawn(2).transpose(0, 3, 1, 2))
    return torch.export.export(network, (images,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))


def traced(network: Any) -> Any:
    return torch.jit.trace(network, torch.tensor(drawn(2).transpose(0, 3, 1, 2)))


KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "torch.nn.DataParallel, on a CPU": ("rc.wrap(parallel.eval())", lambda n: torch.nn.DataParallel(n).eval()),
    "a module from torch.jit.trace": ("rc.wrap(traced)", traced),
    "a module from torch.jit.script": ("rc.wrap(scripted)", lambda n: torch.jit.script(n)),
    "a module from torch.jit.freeze": ("rc.wrap(frozen)", lambda n: torch.jit.freeze(torch.jit.script(n))),
    "a module from torch.compile, backend eager": ("rc.wrap(compiled)", lambda n: torch.compile(n, backend="eager")),
    "a program from torch.export": ("rc.wrap(exported)", exported),
    "a module in the memory format channels-last": (
        "rc.wrap(network)",
        lambda n: n.to(memory_format=torch.channels_last),
    ),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=brought(what=kind, typed=typed)) for kind, (typed, _) in KINDS.items()]
)
def test_a_kind_of_module(kind: str, tmp_path: Path) -> None:
    plain = convolutional()
    model = check_same(KINDS[kind][1](copy.deepcopy(plain)), plain, 1e-5)
    compared(model, drawn(), tmp_path)


@brought(what="a module from torch.compile, by its default backend inductor", typed="rc.wrap(compiled)")
@pytest.mark.slow  # a minute of compiling C++
@pytest.mark.filterwarnings("default")  # of torch's own
def test_a_module_that_inductor_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip("torch.compile needs a compiler of C++")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    plain = convolutional()
    compared(check_same(torch.compile(copy.deepcopy(plain)), plain, 1e-5), drawn(), tmp_path)


class Scratch(torch.nn.Module):  # type: ignore[misc]
    """Computes through a tensor of its own, into which every call writes."""

    def __init__(self, network: Any, kept: str) -> None:
        super().__init__()
        self.first, self.last = network[:-1], network[-1]
        hidden = torch.zeros(64, self.last.in_features)
        if kept == "an attribute":
            self.hidden = hidden
        else:
            self.register_buffer("hidden", hidden)

    def forward(self, x: Any) -> Any:
        features, n = self.first(x), x.shape[0]
        self.hidden[:n] = features.detach()
        return self.last(self.hidden[:n] + (features - features.detach()))


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(
            kept,
            marks=brought(
                what=f"a model that is not safe for threads: it writes into {kept} of its own",
                got="a comparison; it is asked one call after another",
            ),
        )
        for kept in ("a buffer", "an attribute")
    ],
)
def test_a_model_that_is_not_safe_for_threads(kept: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain = convolutional()
    model = check_same(Scratch(copy.deepcopy(plain), kept).eval(), plain, 1e-5)
    caplog.set_level(logging.INFO, "robustcmp")
    assert Classifier(model).compile(drawn()).traced is None
    assert "a call writes into the network's own arrays" in caplog.text
    compared(model, drawn(), tmp_path)


class Answering(torch.nn.Module):  # type: ignore[misc]
    """A classifier like those of transformers, which answer an object."""

    def __init__(self) -> None:
        super().__init__()
        self.network = convolutional()

    def forward(self, pixel_values: Any) -> Any:
        return SimpleNamespace(loss=None, logits=self.network(pixel_values), hidden_states=None)


MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]


@brought(
    what="an answer with `.logits`, and a processor with mean and standard deviation",
    typed='rc.wrap(network, preprocessing={"mean": processor.image_mean, "std": processor.image_std, "axis": -3})',
)
def test_an_answer_with_logits_and_a_processor(tmp_path: Path) -> None:
    model = rc.wrap(Answering().eval(), preprocessing={"mean": MEAN, "std": STD, "axis": -3}, device="cpu")
    images = drawn()
    expected = answered(convolutional(), ((images - np.float32(MEAN)) / np.float32(STD)).astype(np.float32))
    np.testing.assert_allclose(Classifier(model).logits(images), expected, atol=1e-5)
    compared(model, images, tmp_path)


class Residual(torch.nn.Module):  # type: ignore[misc]
    """A block of two convolutions and a shortcut, as in a ResNet."""

    def __init__(self, channels: int, wider: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, wider, 3, 2, padding=1)
        self.second = torch.nn.Conv2d(wider, wider, 3, padding=1)
        self.shortcut = torch.nn.Conv2d(channels, wider, 1, 2)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.shortcut(x) + self.second(torch.relu(self.first(x))))


@brought(
    what="a hand-written ResNet of 224 × 224 images and 1,000 classes, trained on normalised images",
    typed='rc.wrap(network, preprocessing={"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "axis": -3})',
    got="a comparison; tried with random weights",
)
def test_a_network_of_the_size_of_imagenet(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            *(torch.nn.Conv2d(3, 16, 7, 2, padding=3), torch.nn.BatchNorm2d(16), torch.nn.ReLU()),
            *(torch.nn.MaxPool2d(3, 2, padding=1), Residual(16, 32), Residual(32, 64), Residual(64, 128)),
            *(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 1000)),
        ).eval()
    images = drawn(3, 224)
    expected = answered(network, ((images - np.float32(MEAN)) / np.float32(STD)).astype(np.float32))
    assert expected.shape == (3, 1000)
    model = rc.wrap(network, preprocessing={"mean": MEAN, "std": STD, "axis": -3}, device="cpu")
    np.testing.assert_allclose(Classifier(model).logits(images), expected, atol=1e-4)
    compared(model, images, tmp_path)


@brought(
    what="a softmax at the end of a torch.nn.Sequential",
    typed="rc.wrap(network, cut_softmax=True)",
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_softmax_is_cut(nested: bool, tmp_path: Path) -> None:
    plain, softmax = convolutional(), torch.nn.Softmax(dim=1)
    network = (
        torch.nn.Sequential(convolutional(), softmax) if nested else torch.nn.Sequential(*convolutional(), softmax)
    )
    network = torch.nn.Sequential(torch.nn.Identity(), network).eval()
    with pytest.raises(ModelError, match=r"returns probabilities.*Cut its last softmax with .*cut_softmax=True"):
        rc.wrap(network, device="cpu")
    model = rc.wrap(network, cut_softmax=True, device="cpu")
    np.testing.assert_allclose(Classifier(model).logits(drawn()), answered(plain, drawn()), atol=1e-5)
    np.testing.assert_allclose(answered(network, drawn()).sum(axis=1), 1, atol=1e-5)
    compared(model, drawn(), tmp_path)
    with pytest.raises(UsageError, match="training mode"):
        rc.wrap(network.train(), cut_softmax=True)
    assert network.training
    assert softmax.training
    with pytest.raises(UsageError, match=r"cut_softmax=True takes .* received Linear\. Return logits"):
        rc.wrap(plain, cut_softmax=True)


# one number for two classes -------------------------------------------------------------------------------------------


def one_number(shape: str, end: str | None) -> Any:
    """Return a network that puts about half of the drawn images into each class."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(*convolutional(), torch.nn.Tanh(), torch.nn.Linear(CLASSES, 1))
    network[-1].bias.data -= answered(network, drawn()).mean()
    layers = [*network, *([torch.nn.Sigmoid()] if end else []), *([torch.nn.Flatten(0)] if shape == "(N,)" else [])]
    return torch.nn.Sequential(*layers).eval()


SAID = {None: "binary-logit", "sigmoid": "binary-probability"}


@pytest.mark.parametrize("shape", ["(N,)", "(N, 1)"])
@pytest.mark.parametrize(
    "end",
    [
        pytest.param(
            end,
            marks=brought(
                what=f"one {'number after a sigmoid' if end else 'logit'} for two classes, (N,) or (N, 1)",
                typed=f'rc.wrap(network, outputs="{outputs}")',
            ),
        )
        for end, outputs in SAID.items()
    ],
)
def test_one_number_for_two_classes(end: str | None, shape: str, tmp_path: Path) -> None:
    network = one_number(shape, end)
    model = rc.wrap(network, outputs=SAID[end], device="cpu")
    answer, logits = answered(network, drawn()).reshape(N), Classifier(model).logits(drawn())
    assert 0 < (logits.argmax(axis=1) == 1).sum() < N
    np.testing.assert_array_equal(logits.argmax(axis=1), answer > (0.5 if end else 0))
    of_class_1 = answer if end else 1 / (1 + np.exp(-answer))
    np.testing.assert_allclose(np.exp(logits[:, 1]) / np.exp(logits).sum(axis=1), of_class_1, atol=1e-5)
    compared(model, drawn(), tmp_path)


@brought(
    what="one number for two classes, without saying so",
    got='the message: pass outputs="binary-logit" or "binary-probability"',
)
@pytest.mark.parametrize("shape", ["(N,)", "(N, 1)"])
@pytest.mark.parametrize("end", SAID)
def test_one_number_for_two_classes_without_saying_so(end: str | None, shape: str) -> None:
    model = rc.wrap(one_number(shape, end), device="cpu")
    with pytest.raises(ModelError, match=r'received shape \(8,.*outputs="binary-logit"\), or "binary-probability"'):
        rc.evaluate({"m": model}, drawn(), np.zeros(N, np.int64), suite="smoke", progress=False)


# messages -------------------------------------------------------------------------------------------------------------


@brought(what="a module left in training mode", got="the message: call module.eval() first")
@pytest.mark.parametrize("kind", ["plain", "DataParallel", "exported"])
def test_training_mode(kind: str) -> None:
    network = convolutional().train()
    made = {
        "plain": lambda: network,
        "DataParallel": lambda: torch.nn.DataParallel(network.eval()),  # which is a module with a mode of its own
        "exported": lambda: exported(network.eval()).module(),
    }
    with pytest.raises(UsageError, match=r"training mode.*module\.eval\(\)"):
        rc.wrap(made[kind](), device="cpu")


@brought(what="lazy layers that have no weights yet", got="the message: call it once, and load its weights")
def test_lazy_layers() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(CLASSES)).eval()
    with pytest.raises(UsageError, match=r"lazy layers.*Call it once"):
        rc.wrap(network, device="cpu")
    network(torch.rand(2, 3, SIDE, SIDE))
    check_same(network, copy.deepcopy(network), 1e-5)


@brought(what="tensors on the device meta, all or some", got="the message: load its weights, without offloading")
@pytest.mark.parametrize("some", [False, True])
def test_tensors_without_values(some: bool) -> None:
    network = convolutional()
    (network[4] if some else network).to("meta")
    with pytest.raises(UsageError, match=r"device 'meta'.*load_state_dict"):
        rc.wrap(network, device="cpu")


# files ----------------------------------------------------------------------------------------------------------------

DESIGN = "lenet5"


@pytest.fixture
def state() -> dict[str, Any]:
    network = rc.frameworks.get_framework("torch").build(rc.networks.architecture.get_architecture(DESIGN), 3, "cpu")
    return dict(network.state_dict())


@brought(what="a `.safetensors` file", typed="robustcmp eval --weights torch=a.safetensors --architecture lenet5")
def test_safetensors(tmp_path: Path, state: dict[str, Any]) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "a.safetensors"
    safetensors.save_file(state, path)
    (origin,) = file_origins([f"torch={path}"], DESIGN)["torch"]
    loaded = origin.load("cpu").native.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())


@brought(
    what="a TorchScript file `.pt`",
    typed="robustcmp eval --weights torch=a.pt",
    got="the message: it is a program, which could run code; save its weights, or return it from module:function",
)
@pytest.mark.parametrize("architecture", [None, DESIGN])
def test_a_file_of_torchscript(architecture: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.jit.save(torch.jit.script(convolutional()), str(path))
    with pytest.raises(WeightsError, match=r"TorchScript program, which is not run.*torch\.jit\.load.*module:function"):
        file_origins([f"torch={path}"], architecture)
    with pytest.raises(WeightsError, match="TorchScript program, which is not run"):
        load_network(str(path), "torch", architecture, device="cpu")


@brought(
    what="a torch.export file `.pt2`",
    typed="robustcmp eval --weights torch=a.pt2",
    got="the message: it is a program, which could run code; save its weights, or return it from module:function",
)
def test_a_file_of_torch_export(tmp_path: Path) -> None:
    path = tmp_path / "a.pt2"
    torch.export.save(exported(convolutional()), path)
    with pytest.raises(WeightsError, match=r"torch\.export program, which is not run.*torch\.export\.load"):
        file_origins([f"torch={path}"])
    with pytest.raises(WeightsError, match=r"torch\.export program, which is not run"):
        load_network(str(path), "torch", device="cpu")


@brought(
    what="a TorchScript or torch.export file that you trust",
    typed="robustcmp eval --weights torch=nets:mine",
)
@pytest.mark.parametrize("opened", ["torch.jit.load('a.pt')", "torch.export.load('a.pt2')"])
def test_a_program_from_a_function(opened: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    plain = convolutional()
    torch.jit.save(torch.jit.script(plain), "a.pt")
    torch.export.save(exported(plain), "a.pt2")
    module = f"brought_{'jit' if 'jit' in opened else 'export'}"
    Path(f"{module}.py").write_text(f"import torch\n\n\ndef mine():\n    return {opened}\n")
    (origin,) = file_origins([f"torch={module}:mine"])["torch"]
    np.testing.assert_allclose(Classifier(origin.load("cpu")).logits(drawn()), answered(plain, drawn()), atol=1e-5)


# libraries ------------------------------------------------------------------------------------------------------------


def library(name: str) -> Any:
    """Import a library, or skip: torchvision ends in a RuntimeError beside a torch that was built otherwise."""
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} cannot be imported: {error}")


@brought(
    what="torchvision: resnet18, 224 × 224, 1,000 classes",
    typed='rc.wrap(resnet18(weights=…).eval(), preprocessing={"mean": …, "std": …, "axis": -3})',
)
def test_torchvision(tmp_path: Path) -> None:
    models = library("torchvision.models")
    network = models.resnet18(weights=None).eval()
    model = rc.wrap(network, preprocessing={"mean": MEAN, "std": STD, "axis": -3}, device="cpu")
    images = drawn(2, 224)
    expected = answered(network, ((images - np.float32(MEAN)) / np.float32(STD)).astype(np.float32))
    assert expected.shape == (2, 1000)
    np.testing.assert_allclose(Classifier(model).logits(images), expected, atol=1e-4)
    compared(model, images, tmp_path)


@brought(what="timm: a ResNet", typed="rc.wrap(timm.create_model(…).eval())")
def test_timm(tmp_path: Path) -> None:
    timm = library("timm")
    network = timm.create_model("resnet10t", pretrained=False, num_classes=CLASSES).eval()
    images = drawn(4, 32)
    check_same(network, copy.deepcopy(network), 1e-4, images)
    compared(rc.wrap(network, device="cpu"), images, tmp_path)


@brought(what="transformers: a vision transformer for classes", typed="rc.wrap(ViTForImageClassification(…).eval())")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_transformers(dtype: str, tmp_path: Path) -> None:
    transformers = library("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=SIDE,
        patch_size=4,
        num_labels=CLASSES,
        initializer_range=0.5,  # of a tenth, no image changes its class
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = transformers.ViTForImageClassification(config).eval()
    images = drawn(4)
    with torch.no_grad():
        expected = network(torch.tensor(images.transpose(0, 3, 1, 2))).logits.numpy()
    model = rc.wrap(network.to(getattr(torch, dtype)), device="cpu")
    np.testing.assert_allclose(Classifier(model).logits(images), expected, atol=1e-4 if dtype == "float32" else 0.2)
    compared(model, images, tmp_path)


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """A network that takes images of 8 bits, and scales them itself."""

    def __init__(self, network: Any):
        super().__init__()
        self.network = network

    def forward(self, x: Any) -> Any:
        return self.network(x / 255)


@brought(
    what="networks that scale images from [0, 255] themselves, with the bounds left out",
    got="no answer: a warning and the first screen say that they seem to expect images in [0, 255]",
)
def test_networks_that_are_all_asked_wrongly_give_no_answer() -> None:
    data = rc.load_dataset("digits")
    seeds = (1, 2)  # which take what is black for the same digit
    trained = [rc.load_model("lenet5", framework="torch", dataset="digits", seed=seed).native for seed in seeds]

    def answer(**bounds: Any) -> str:
        models = {name: rc.wrap(Scaled(network).eval(), **bounds) for name, network in zip("ab", trained, strict=True)}
        ev = rc.evaluate(models, data.images, data.labels, suite=ONE_ATTACK, n=20, repeats=1, progress=False)
        return " ".join(summary(ev.results, width=1000).split())

    expected = "No answer yet: a (9.6 %), b (9.6 %) have no more accuracy than naming the most frequent class each time"
    assert expected in (said := answer())
    assert said.count("Nothing was changed. If that is so, pass bounds=(0, 255)") == 2
    assert "No answer yet" not in answer(bounds=(0, 255))


class Normalising(torch.nn.Sequential):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return super().forward((x - 0.13) / 0.3)


@brought(
    what="a `torch.nn.Sequential` with a softmax and a `forward` or hooks of its own",
    typed="rc.wrap(network, cut_softmax=True)",
    got='the message: return logits, or keep it with outputs="probabilities"',
)
@pytest.mark.parametrize("what", ["a forward of its own", "one within", "a hook", "a hook before"])
def test_what_does_more_than_its_layers_is_not_cut(what: str) -> None:
    layers = [torch.nn.Flatten(), torch.nn.Linear(SIDE * SIDE * 3, CLASSES), torch.nn.Softmax(1)]
    network = (Normalising if "own" in what or "within" in what else torch.nn.Sequential)(*layers).eval()
    if what == "one within":
        network = torch.nn.Sequential(network).eval()
    if what == "a hook":
        network.register_forward_hook(lambda module, inputs, answer: answer)
    if what == "a hook before":
        network.register_forward_pre_hook(lambda module, inputs: inputs)
    with pytest.raises(UsageError, match=r"has a forward or hooks of its own\. Return logits from the network"):
        rc.wrap(network, cut_softmax=True)
    model = rc.wrap(network)  # what it does is not known by its layers, but seen when it is asked
    with pytest.raises(ModelError, match="returns probabilities"):
        check_model("m", Classifier(model), drawn(), np.zeros(N, np.int64))


class Rarely(torch.nn.Module):  # type: ignore[misc]
    """A defence that draws every tenth time, by the generator that is named."""

    def __init__(self, by: str):
        super().__init__()
        self.network, self.by = convolutional(), by

    def forward(self, x: Any) -> Any:
        drawn = {"random": random.random, "numpy": np.random.random, "torch": lambda: float(torch.rand(()))}[self.by]()
        return self.network(x + 0.3 if drawn < 0.1 else x)


@brought(
    what="a network that seldom draws, by `random`, NumPy or torch",
    typed="rc.averaged(rc.wrap(network))",
    got="a comparison with the mean of passes; without it the message",
)
@pytest.mark.parametrize("by", ["random", "numpy", "torch"])
def test_a_network_that_seldom_draws_is_found(by: str) -> None:
    images, labels = drawn(), np.zeros(N, np.int64)
    for _ in range(5):
        classifier = Classifier(rc.wrap(Rarely(by).eval())).compile(images)
        assert classifier.traced is None
        with pytest.raises(ModelError, match=r"(draws from a global random generator|different logits).*rc|averaged"):
            check_model("m", classifier, images, labels)
    averaged = Classifier(rc.averaged(rc.wrap(Rarely(by).eval()), passes=4)).compile(images)
    check_model("m", averaged, images, labels)


def quantised(kind: str) -> Any:
    """Return a convolutional network in int8, as torch converts one: its layers say that they are in training."""
    ao = torch.ao.quantization
    convolution, _, *others = convolutional()  # torch cannot script a quantised batch norm
    network = torch.nn.Sequential(ao.QuantStub(), convolution, *others, ao.DeQuantStub()).eval()
    if kind == "dynamic":
        return ao.quantize_dynamic(torch.nn.Sequential(*network[1:-1]).eval(), {torch.nn.Linear})
    network.qconfig = ao.get_default_qconfig("x86")
    ao.prepare(network, inplace=True)(torch.tensor(drawn().transpose(0, 3, 1, 2)))
    converted = ao.convert(network)
    return torch.jit.script(converted) if kind == "scripted" else converted


@pytest.mark.filterwarnings("ignore:.*(torch.ao.quantization|torch.jit).*:DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("kind", ["static", "scripted", "dynamic"])
def test_a_quantised_module_has_no_gradient_and_other_attacks_run(kind: str, tmp_path: Path) -> None:
    network = quantised(kind)
    assert any(module.training for module in network.modules())
    model = rc.wrap(network, device="cpu")
    labels = rc.predict(model, drawn(), batch_size=1)
    with pytest.raises(ModelError, match="whole numbers"):
        FGSM().attack(model, drawn(), labels)
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE)
    asked = {"suite": suite, "n": N, "repeats": 1, "progress": False}
    if kind == "dynamic":
        with pytest.raises(
            ModelError, match=r"differently beside other images.*dynamic one scales a whole batch alike"
        ):
            rc.evaluate({"m": model}, drawn(), labels, **asked)
    ev = rc.evaluate({"m": model}, drawn(), labels, batch_size=1, **asked)
    assert ev.dataset.sizes["image"] == N
    assert "whole numbers" in ev.results.not_applicable["m"]["fgsm"]
    assert ev.results.rates()["m"]["single_pixel"] >= 0


def test_a_module_that_detaches_its_answer_has_no_gradient_and_other_attacks_run(tmp_path: Path) -> None:
    class Detached(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = convolutional()

        def forward(self, x: Any) -> Any:
            return self.network(x).detach()

    model = rc.wrap(Detached().eval(), device="cpu")
    labels = rc.predict(model, drawn())
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE)
    ev = rc.evaluate({"m": model}, drawn(), labels, suite=suite, n=N, repeats=1, progress=False)
    assert "its forward detaches it" in ev.results.not_applicable["m"]["fgsm"]
    assert ev.results.rates()["m"]["single_pixel"] >= 0


@brought(
    what="one network, wrapped twice with other weights loaded in between",
    got="a note on the first screen: they are one network",
)
def test_weights_that_are_loaded_into_a_wrapped_network_make_two_models_one() -> None:
    trained = [convolutional(), convolutional()]
    with torch.no_grad():
        trained[1][-1].bias += 1e-3  # the same classes, and other weights
    network, models = convolutional(), {}
    for name, other in zip("ab", trained, strict=True):
        network.load_state_dict(other.state_dict())
        models[name] = rc.wrap(network)
    images = drawn()
    labels = rc.predict(models["a"], images)

    def said(models: dict[str, Any]) -> str:
        ev = rc.evaluate(models, images, labels, suite=ONE_ATTACK, n=5, repeats=1, progress=False)
        return " ".join(summary(ev.results).split())

    assert "a/0, b/0 are one network: their weights and answers are the same in every bit." in said(models)
    assert "one network" not in said({"a": rc.wrap(trained[0]), "b": rc.wrap(trained[1])})


class PartlyDetached(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.network, self.other = convolutional(1), convolutional(2)

    def forward(self, x: Any) -> Any:
        return self.network(x) + 3 * self.other(x.detach())


class Reversed(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:  # type: ignore[override]
        return -gradient


class Backwards(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.network = convolutional()

    def forward(self, x: Any) -> Any:
        return self.network(Reversed.apply(x))


@brought(
    what="a gradient that is not whole: detached tensors, a backward pass of one's own",
    got="a comparison; its health checks fail and say how far the slopes are off",
)
@pytest.mark.parametrize("make", [PartlyDetached, Backwards])
def test_a_gradient_that_is_not_whole_is_named(make: Any) -> None:
    images = drawn()
    model = rc.wrap(make().eval())
    models = {"m": model, "beside": rc.wrap(convolutional())}
    labels = rc.predict(model, images)
    ev = rc.evaluate(models, images, labels, suite=ONE_ATTACK, n=5, repeats=1, progress=False)
    checks = ev.run_checks().set_index(["model", "check"]).outcome
    assert checks["m", "gradient fits finite differences"] == "fail"
    assert checks["beside", "gradient fits finite differences"] == "pass"
