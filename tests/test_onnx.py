"""ONNX as exchange: networks of our layers become weights, bit for bit, and any other classifier is asked as it is."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robustcmp import frameworks
from robustcmp.data.dataset import Dataset
from robustcmp.deployments.onnx_files import read_onnx, write_onnx
from robustcmp.errors import DeploymentError, UsageError, WeightsError
from robustcmp.frameworks import get_framework
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
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
    check_architecture,
    get_architecture,
)
from robustcmp.networks.weights import Weights
from robustcmp.sources.from_files import FromFile, load_network

onnx = pytest.importorskip("onnx")
FRAMEWORKS = frameworks.installed()
needs_runtime = pytest.mark.skipif(not find_spec("onnxruntime"), reason="onnxruntime is not installed")


def assert_same(received: Weights, expected: Weights) -> None:
    assert list(received) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(received[name].view(np.uint32), array.view(np.uint32), err_msg=name)


def through(architecture: Architecture, weights: Weights, folder: Path, frameworks: Sequence[str] = FRAMEWORKS) -> None:
    """Carry a network to ONNX, into frameworks, and to ONNX again; nothing of it may change."""
    write_onnx(architecture, weights, first := folder / "first.onnx")
    design, read = read_onnx(first)
    assert design == architecture
    assert_same(read, weights)
    for name in frameworks:
        adapter = get_framework(name)
        native = adapter.build(design, 1, "cpu")
        adapter.set_weights(native, design, read)
        write_onnx(design, adapter.get_weights(native, design), second := folder / f"{name}.onnx")
        assert second.read_bytes() == first.read_bytes(), name


# round trips ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_network_comes_back_bit_for_bit_from_onnx_and_every_framework(
    tiny: Architecture, tiny_residual: Architecture, random_weights: Callable[..., Weights], tmp_path: Path
) -> None:
    for architecture in (tiny, tiny_residual):
        through(architecture, random_weights(architecture, 0), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet1", "lenet5", "resnet20", "vgg16"])
def test_large_networks_come_back_bit_for_bit(
    name: str, random_weights: Callable[..., Weights], tmp_path: Path
) -> None:
    architecture = get_architecture(name)
    through(architecture, random_weights(architecture, 0), tmp_path)


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """Small networks of every kind of layer, in any order that fits."""
    names = iter(draw(st.permutations([f"layer{i}" for i in range(30)])))
    sides = st.integers(3, 9)
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
    architecture = Architecture("drawn", images, (*layers, Dense(next(names), 3)))  # type: ignore[arg-type]
    check_architecture(architecture)
    return architecture


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(architecture=architectures())
def test_any_network_comes_back_bit_for_bit(
    architecture: Architecture, random_weights: Callable[..., Weights], tmp_path: Path
) -> None:
    through(architecture, random_weights(architecture, 0), tmp_path, frameworks=[])


def test_values_that_are_rare_come_back_bit_for_bit(tiny: Architecture, random_weights: Any, tmp_path: Path) -> None:
    weights = random_weights(tiny, 0)
    first = next(iter(weights))
    weights[first].reshape(-1)[:4] = [-0.0, np.float32(1e-45), np.finfo(np.float32).max, np.finfo(np.float32).tiny]
    write_onnx(tiny, weights, path := tmp_path / "x.onnx")
    assert_same(read_onnx(path)[1], weights)


# weights for a framework ---------------------------------------------------------------------------------------------


@pytest.mark.brought(
    group="Other models",
    what="an ONNX file of the kinds of layers that robustcmp knows, as a network of any framework",
    typed="robustcmp eval --weights torch=a.onnx",
    got="a comparison, with gradients",
)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_onnx_file_is_weights_for_every_framework(
    framework: str, zoo_model: Callable[..., Model], digits: Dataset, tmp_path: Path
) -> None:
    source = zoo_model(FRAMEWORKS[0])
    write_onnx(source.architecture, source.weights, path := tmp_path / "mine.onnx")  # type: ignore[arg-type]
    for architecture in (None, "lenet5"):
        model: Any = load_network(str(path), framework, architecture)
        assert model.framework == framework
        assert model.architecture == get_architecture("lenet5")
        assert_same(model.weights, source.weights)  # type: ignore[arg-type]
    ours, theirs = (Classifier(each).logits(digits.images[:20]) for each in (source, model))
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4)


def test_layers_may_have_other_names_than_those_of_the_architecture(
    random_weights: Callable[..., Weights], tmp_path: Path
) -> None:
    lenet = get_architecture("lenet1")
    renamed = Architecture(
        "mine", lenet.input_shape, tuple(type(it)(**{**vars_of(it), "name": f"my_{it.name}"}) for it in lenet.layers)
    )
    write_onnx(renamed, weights := random_weights(renamed, 0), path := tmp_path / "mine.onnx")
    model: Any = load_network(str(path), FRAMEWORKS[0], "lenet1")
    assert model.architecture == lenet
    for (ours, array), theirs in zip(model.weights.items(), weights.values(), strict=True):
        assert not ours.startswith("my_")
        np.testing.assert_array_equal(array, theirs)


def vars_of(layer: Any) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in layer.__struct_fields__}


def test_another_design_than_the_one_named_is_one_error(
    tiny: Architecture, random_weights: Any, tmp_path: Path
) -> None:
    write_onnx(tiny, random_weights(tiny, 0), path := tmp_path / "x.onnx")
    with pytest.raises(
        WeightsError, match=r"should be a network lenet1 of images .*, received another design"
    ) as caught:
        load_network(str(path), FRAMEWORKS[0], "lenet1")
    assert "\n" not in str(caught.value)


def test_weights_that_are_not_finite_are_one_error(tiny: Architecture, random_weights: Any, tmp_path: Path) -> None:
    weights = random_weights(tiny, 0)
    next(iter(weights.values())).reshape(-1)[0] = np.nan
    write_onnx(tiny, weights, path := tmp_path / "x.onnx")
    with pytest.raises(WeightsError, match="has NaN or infinite values"):
        load_network(str(path), FRAMEWORKS[0])


def test_an_onnx_file_needs_no_architecture(tmp_path: Path) -> None:
    (path := tmp_path / "x.onnx").write_bytes(b"-")
    FromFile(str(path), FRAMEWORKS[0]).check()
    (other := tmp_path / "x.npz").write_bytes(b"-")
    with pytest.raises(UsageError, match="holds only weights"):
        FromFile(str(other), FRAMEWORKS[0]).check()


# exporters of torch --------------------------------------------------------------------------------------------------


def exported(network: Any, shape: tuple[int, ...], path: Path, **options: Any) -> Path:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            (torch.zeros(2, *shape),),
            path,
            dynamo=True,
            verbose=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            **options,
        )
    return path


def assert_answers_alike(network: Any, path: Path) -> Architecture:
    """Compare a torch network with what was read of its ONNX file, in every framework."""
    import torch

    design, _ = read_onnx(path)
    images = np.random.default_rng(0).random((6, *design.input_shape), np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    for framework in FRAMEWORKS:
        received = Classifier(load_network(str(path), framework)).logits(images)
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5, err_msg=framework)
    return design


def convolutional(seed: int = 0) -> Any:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(3, 4, 2, stride=2),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(4 * 2 * 3, 7),
            nn.ReLU(),
            nn.Linear(7, 5, bias=False),
        )


def test_a_network_of_torchs_exporter_is_read(tmp_path: Path) -> None:
    network = convolutional()
    path = exported(network, (2, 9, 13), tmp_path / "x.onnx")
    design = assert_answers_alike(network, path)
    assert [layer.name for layer in design.layers][:4] == ["conv1", "relu1", "pool1", "conv2"]
    _, weights = read_onnx(path)
    np.testing.assert_array_equal(weights["conv2/bias"], network[3].bias.detach().numpy())
    assert not weights["dense2/bias"].any()


def test_values_beside_the_file_of_torchs_exporter_travel_with_it(tmp_path: Path) -> None:
    paths = [exported(convolutional(seed), (2, 9, 13), tmp_path / f"{seed}.onnx") for seed in (0, 1)]
    origins = [FromFile(str(path), FRAMEWORKS[0]) for path in paths]
    assert [path.name for path in origins[0].files.values()] == ["0.onnx", "0.onnx.data"]
    assert origins[0].fingerprint != origins[1].fingerprint
    images = np.random.default_rng(0).random((6, 9, 13, 2), np.float32)
    expected = [Classifier(origin.load()).logits(images) for origin in origins]
    (elsewhere := tmp_path / "elsewhere").mkdir()
    copies = {field: Path(shutil.move(path, elsewhere)) for field, path in origins[0].files.items()}
    np.testing.assert_array_equal(Classifier(origins[0].load_from(copies)).logits(images), expected[0])
    digest = origins[1].fingerprint
    shutil.copy(elsewhere / "0.onnx.data", tmp_path / "1.onnx.data")
    assert FromFile(str(paths[1]), FRAMEWORKS[0]).fingerprint != digest
    (tmp_path / "1.onnx.data").unlink()
    with pytest.raises(DeploymentError, match=r"1\.onnx\.data, which is not there: copy it\. Or export one file"):
        origins[1].check()


def test_batch_norm_that_the_exporter_folded_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.BatchNorm2d(4),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 5),
        )
        for norm in (network[1], network[3]):
            for array in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                nn.init.uniform_(array, 0.5, 1.5)
    design = assert_answers_alike(network, exported(network, (3, 8, 6), tmp_path / "x.onnx"))
    assert [type(layer) for layer in design.layers] == [Conv, Relu, BatchNorm, GlobalAveragePool, Dense]


def test_a_residual_network_of_torchs_exporter_keeps_its_names(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.Conv2d(3, 3, 3, padding=1)
            self.side, self.out = torch.nn.Conv2d(2, 3, 1), torch.nn.Linear(3, 4)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.second(torch.relu(self.first(x))) + self.side(x))
            return self.out((y + torch.relu(self.second(y))).mean((2, 3)))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Net()
    design = assert_answers_alike(network, exported(network, (2, 5, 6), tmp_path / "x.onnx"))
    block, _, other, *_, last = design.layers
    assert isinstance(block, Residual)
    assert isinstance(other, Residual)
    assert (block.shortcut[0].name, last.name) == ("side", "out")
    assert not other.shortcut


# what does not fit ---------------------------------------------------------------------------------------------------


def small(*nodes: Any, arrays: dict[str, Any] | None = None, shape: Any = ("n", 1, 4, 4), inputs: int = 1) -> Any:
    """An ONNX model from nodes; x goes in, y comes out."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info("x", kind, list(shape))]
        + [helper.make_tensor_value_info(f"x{i}", kind, list(shape)) for i in range(1, inputs)],
        [helper.make_tensor_value_info("y", kind, ["n", "k"])],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (arrays or {}).items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(kind, inputs.split(), [output], **attributes)


KERNEL = {"w": np.ones((2, 1, 3, 3), np.float32), "d": np.ones((32, 3), np.float32), "f": np.ones((16, 3), np.float32)}
FLAT = node("Flatten", "x", "a")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (small(FLAT, node("MatMul", "a f", "b"), node("Softmax", "b", "y"), arrays=KERNEL), "has the operator Softmax"),
        (small(node("Own", "x", "y", domain="own")), r"has the operator own\.Own"),
        (small(node("Conv", "x w", "y", group=2), arrays=KERNEL), "Conv conv1 is grouped"),
        (small(node("Conv", "x w", "y", pads=[1, 1, 0, 0]), arrays=KERNEL), "Conv conv1 is .*padded alike"),
        (small(node("Conv", "x w", "y", strides=[0, 0]), arrays=KERNEL), "stride`"),
        (small(node("MaxPool", "x", "y", kernel_shape=[3, 3], strides=[2, 2])), "windows that overlap"),
        (small(node("AveragePool", "x", "y", kernel_shape=[2, 2])), "operator AveragePool"),
        (small(FLAT, node("Gemm", "a f", "y", alpha=0.5), arrays=KERNEL), "operator Gemm with these options"),
        (small(FLAT, node("Gemm", "a d", "y"), arrays=KERNEL), "dense1/kernel should be"),
        (small(FLAT, node("MatMul", "a f", "y"), arrays=KERNEL, shape=("n", 1, "h", "w")), r"shape \(\?, 1, \?, \?\)"),
        (small(FLAT, node("MatMul", "a f", "y"), arrays=KERNEL, inputs=2), "has 2 inputs and 1 outputs"),
        (small(FLAT, node("MatMul", "a f", "y"), arrays={"f": np.ones((16, 3))}), "weights in float64"),
        (small(FLAT, node("Add", "a f", "y"), arrays={"f": np.ones((1, 16), np.float32)}), "Add with constant"),
        (small(node("Relu", "x", "a"), node("Add", "a a", "y")), "last layer|logits"),
        (small(node("Relu", "x", "a"), node("Add", "x a", "b"), node("Add", "b a", "y")), "used twice"),
        (small(node("Transpose", "x", "a"), node("Flatten", "a", "y")), "operator Transpose|followed by a Dense"),
        (small(node("RandomUniform", "", "y", shape=[2, 3])), "does not come from the images"),
    ],
)  # fmt: skip
def test_what_is_not_made_of_our_layers_is_one_error(model: Any, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "x.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(DeploymentError, match=said) as caught:
        load_network(str(path), FRAMEWORKS[0])
    assert f"ONNX Runtime can run the file as it is: onnxruntime={path}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sums_within_sums_end_with_an_error(tmp_path: Path) -> None:
    nodes, last = [], "x"
    for i in range(200):  # each holds all those before it twice
        nodes += [node("Relu", last, f"r{i}"), node("Add", f"{last} r{i}", f"s{i}"), node("Add", f"s{i} r{i}", f"t{i}")]
        last = f"t{i}"
    (path := tmp_path / "x.onnx").write_bytes(small(*nodes, node("Relu", last, "y")).SerializeToString())
    with pytest.raises(DeploymentError, match=r"used twice|nested more than"):
        read_onnx(path)
