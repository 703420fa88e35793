"""Networks as robustcmp.wrap takes them: files of Keras 2, other backends, small gradients and networks without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from brought import CLASSES, N, ask, drawn, library
from brought.models import (
    SHAPE,
    apply,
    in_keras,
    in_policy,
    in_precision,
    in_torch,
    pair,
    through,
    torch_tensor,
    weights,
)
from conftest import load_file

import robustcmp as rc
from robustcmp.errors import UsageError
from robustcmp.models.classifier import Classifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(torch.ao.quantization|torch.jit).*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]

UNDERFLOWS: dict[str, Callable[[], Any]] = {
    "torch": lambda: (in_torch().to(library("torch").float16), in_torch()),
    "tensorflow": lambda: (in_policy("mixed_float16"), in_keras()),
    "jax": lambda: (in_precision("float16"), pair()),
}


@pytest.mark.parametrize("framework", UNDERFLOWS)
def test_gradients_below_the_smallest_float16_arrive(framework: str) -> None:
    pytest.importorskip(framework)
    images, v = drawn(), np.zeros((N, CLASSES), np.float32)
    v[1:, 0] = 1e-12  # one image has no gradient
    received, expected = (Classifier(rc.wrap(each, device="cpu")).vjp(images, v) for each in UNDERFLOWS[framework]())
    assert not received[0].any()
    np.testing.assert_allclose(received * 1e12, expected * 1e12, atol=5e-2)


def in_keras_2(kind: str, name: str, before: list[Any], **settings: Any) -> dict[str, Any]:
    """Return what Keras 2 writes of a layer; `before` are the uses of layers that it takes its input from."""
    nodes = [[[*use, 0, {}] for use in before]] if before else []
    return {"class_name": kind, "name": name, "config": {"name": name, **settings}, "inbound_nodes": nodes}


def test_the_words_of_keras_2_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models within models count their uses from 1, and Keras 3 refuses some settings."""
    pytest.importorskip("tensorflow")
    keras = library("keras")
    layers = keras.layers
    keras.utils.set_random_seed(0)
    images, inner = keras.Input(SHAPE), keras.Input(SHAPE)
    within = keras.Model(inner, layers.Add()([layers.DepthwiseConv2D(3, padding="same")(inner), inner]))
    x = layers.LeakyReLU(0.2)(within(within(images)))
    network = keras.Model(images, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))
    batch = {"batch_input_shape": [None, *SHAPE]}
    parts = [
        in_keras_2("InputLayer", "inner", [], **batch),
        in_keras_2("DepthwiseConv2D", "depth", [("inner", 0)], kernel_size=[3, 3], padding="same", groups=1),
        in_keras_2("Add", "add", [("depth", 0), ("inner", 0)]),
    ]
    ends = {"input_layers": [["inner", 0, 0]], "output_layers": [["add", 0, 0]]}
    whole = [
        in_keras_2("InputLayer", "images", [], **batch),
        in_keras_2("Functional", "within", [], layers=parts, **ends),
        in_keras_2("LeakyReLU", "leaky", [("within", 2)], alpha=0.2),
        in_keras_2("GlobalAveragePooling2D", "pool", [("leaky", 0)]),
        in_keras_2("Dense", "dense", [("pool", 0)], units=CLASSES),
    ]
    whole[1]["inbound_nodes"] = [[["images", 0, 0, {}]], [["within", 1, 0, {}]]]
    config = {"name": "all", "layers": whole, "input_layers": [["images", 0, 0]], "output_layers": [["dense", 0, 0]]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.save(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Functional", "config": config})
        file.attrs["keras_version"] = "2.15.0"
    with pytest.warns(UserWarning, match="`alpha` is deprecated"):
        model = load_file(str(tmp_path / "a.h5"), "tensorflow")
    np.testing.assert_allclose(Classifier(model).logits(drawn()), ask(network), atol=1e-6)


ON_A_BACKEND = """
import sys
import keras
import numpy as np
import robustcmp as rc
from robustcmp.models.classifier import Classifier

assert keras.backend.backend() == sys.argv[1]
images, v = (np.load("given.npz")[name] for name in ("images", "v"))
classifier = Classifier(rc.wrap(keras.models.load_model("plain.keras")))
np.savez("answers.npz", logits=classifier.logits(images), gradient=classifier.compile(images).vjp(images, v))
"""


@pytest.mark.slow  # a process of its own for each
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(
            backend,
            marks=pytest.mark.brought(
                group="Keras and TensorFlow",
                what=f"a model on the backend {name}",
                typed="rc.wrap(model)",
                got="a comparison",
            ),
        )
        for backend, name in {"jax": "JAX", "torch": "PyTorch"}.items()
    ],
)
def test_a_backend(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    pytest.importorskip(backend)
    model, images = in_keras(), drawn()
    model.save(tmp_path / "plain.keras")
    v = np.random.default_rng(1).normal(size=(N, CLASSES)).astype(np.float32)
    np.savez(tmp_path / "given.npz", images=images, v=v)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ON_A_BACKEND, backend]
    subprocess.run(command, env=os.environ | {"KERAS_BACKEND": backend}, cwd=tmp_path, check=True)
    answers, expected = np.load(tmp_path / "answers.npz"), Classifier(rc.wrap(model, device="cpu"))
    np.testing.assert_allclose(answers["logits"], expected.logits(images), atol=1e-4)
    np.testing.assert_allclose(answers["gradient"], expected.vjp(images, v), atol=1e-4)


def digest_of(seed: int) -> str | None:
    return Classifier(rc.wrap((apply, weights(seed)), device="cpu")).weights_digest


def test_parameters_tell_pairs_apart_and_stay_as_they_were() -> None:
    pytest.importorskip("jax")
    assert digest_of(0) == digest_of(0) != digest_of(1)
    parameters = weights()
    classifier = Classifier(rc.wrap((apply, parameters), device="cpu"))
    parameters["out"][:] = 0
    np.testing.assert_allclose(classifier.logits(drawn()), apply(weights(), drawn()), atol=1e-5)


def quantised() -> Any:
    """Return a convolutional network in int8, as torch converts one: its layers say that they are in training."""
    ao, torch = library("torch.ao.quantization"), library("torch")
    convolution, _, *others = in_torch()
    network = torch.nn.Sequential(ao.QuantStub(), convolution, *others, ao.DeQuantStub()).eval()
    network.qconfig = ao.get_default_qconfig("x86")
    ao.prepare(network, inplace=True)(torch_tensor())
    return ao.convert(network)


def quantised_in_part() -> Any:
    """Return a network whose gradient by way of its float branch alone would be a wrong one."""
    branch = in_torch()
    return through(lambda m, x: m.network(x) + branch(x), quantised())


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (quantised, "whole numbers"),
        (quantised_in_part, "whole numbers"),
        (lambda: through(lambda m, x: m.network(x).detach()), "its forward detaches it"),
    ],
    ids=["quantised", "quantised in part", "detached"],
)
def test_a_module_without_a_gradient_is_attacked_without(make: Any, reason: str) -> None:
    pytest.importorskip("torch")
    model = rc.wrap(make(), device="cpu")
    labels = rc.predict(model, drawn(), batch_size=1)
    suite = {"fgsm": rc.attacks.FGSM(epsilons=10), "pixel": rc.attacks.SinglePixel(max_pixels=3)}
    ev = rc.evaluate({"m": model}, drawn(), labels, suite=suite, n=N, repeats=1, batch_size=1, progress=False)
    assert reason in ev.results.reasons("not_applicable")["m"]["fgsm"]
    assert ev.results.rates()["m"]["pixel"] >= 0


def test_a_module_with_one_layer_in_training_mode_is_refused() -> None:
    network = in_torch()
    network[1].train()
    with pytest.raises(UsageError, match="training mode"):
        rc.wrap(network, device="cpu")
