"""ONNX files of our layers: what is written answers as its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import robustcmp as rc
from robustcmp.deployments.onnx_files import _write_onnx
from robustcmp.frameworks import get_framework
from robustcmp.models.classifier import Classifier
from robustcmp.networks.architecture import (
    Architecture,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Relu,
    Residual,
)
from robustcmp.networks.weights import Weights

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """Small networks of every kind of layer, in any order that fits."""
    names = iter(draw(st.permutations([f"layer{i}" for i in range(30)])))
    sides = st.integers(5, 9)  # so that channels are told from them
    shape: tuple[int, ...] = (draw(sides), draw(sides), draw(st.integers(1, 3)))
    images = shape
    layers: list[Layer] = []

    def conv(same: bool) -> Conv:
        kernel = draw(st.sampled_from([1, 3])) if same else draw(st.integers(1, min(shape[:2])))
        stride, padding = (1, kernel // 2) if same else (draw(st.integers(1, 2)), draw(st.integers(0, 2)))
        return Conv(next(names), shape[2] if same else draw(st.integers(1, 3)), kernel, stride, padding)

    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["conv", "norm", "relu", "pool", "residual"]))
        if kind == "pool" and min(shape[:2]) < 2:
            continue
        layer: Layer
        match kind:
            case "conv":
                layer = conv(same=False)
            case "norm":
                layer = BatchNorm(next(names))
            case "relu":
                layer = Relu(next(names))
            case "pool":
                layer = MaxPool(next(names), 2)
            case _:
                inner = tuple(
                    draw(st.sampled_from([conv(True), Relu(next(names))])) for _ in range(draw(st.integers(1, 2)))
                )
                shortcut = (conv(True),) if draw(st.booleans()) else ()
                layer = Residual(next(names), inner, shortcut)
        layers.append(layer)
        shape = layer.output(shape)
    layers.append(draw(st.sampled_from([Flatten(next(names)), GlobalAveragePool(next(names))])))
    for _ in range(draw(st.integers(0, 2))):
        layers += [Dense(next(names), draw(st.integers(1, 4))), Relu(next(names))]
    return Architecture("drawn", images, (*layers, Dense(next(names), 3)))  # type: ignore[arg-type]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(architecture=architectures(), seed=st.integers(0, 99))
def test_any_network_answers_as_its_source(
    architecture: Architecture, seed: int, random_weights: Callable[..., Weights], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    weights = random_weights(architecture, seed)
    _write_onnx(architecture, weights, path := tmp_path / "x.onnx")
    adapter = get_framework("torch")
    native = adapter.build(architecture, 0, "cpu")
    adapter.set_weights(native, architecture, weights)
    images = np.random.default_rng(seed).random((3, *architecture.input_shape), np.float32)
    expected = Classifier(rc.wrap(native)).logits(images)
    received = Classifier(rc.open_deployed(path, "onnxruntime")).logits(images)
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5)
