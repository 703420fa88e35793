"""Classifiers from elsewhere in a comparison, and files that cannot be in one: one clear line, before any work."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.cli import command
from robustcmp.data.dataset import Dataset
from robustcmp.deployments import onnxruntime
from robustcmp.deployments.sessions import Layout, Session
from robustcmp.errors import DeploymentError, RobustcmpError, UsageError, WeightsError
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.report.text import summary, to_text
from robustcmp.sources.deployed import FromDeployedFile
from robustcmp.sources.named_files import describe_normalisation, file_origins, pair_with_sources

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
FLOAT = onnx.TensorProto.FLOAT
LINE_END = "\n"
brought = partial(pytest.mark.brought, group="Other models")
NO_GRADIENT = "a comparison; gradient attacks are not applicable"


def linear(n: Any = "n", shape: tuple[Any, ...] = (1, 28, 28), dtype: int = FLOAT, **more: Any) -> Any:
    """An ONNX model that casts, flattens and multiplies: the simplest classifier of images."""
    helper = onnx.helper
    kernel = np.random.default_rng(0).normal(size=(784, 10)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=FLOAT),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
        *more.get("nodes", []),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "linear",
        [value("x", dtype, [n, *shape]), *more.get("inputs", [])],
        more.get("outputs", [value("y", FLOAT, [n, 10])]),
        [onnx.numpy_helper.from_array(kernel, "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def saved(model: Any, folder: Path, name: str = "x.onnx") -> Path:
    (path := folder / name).write_bytes(model.SerializeToString())
    return path


@pytest.fixture(scope="module")
def scikit(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Export a classifier of scikit-learn, trained on the digits, once."""
    folder = tmp_path_factory.mktemp("scikit")

    @cache
    def export(kind: str) -> Path:
        skl2onnx = pytest.importorskip("skl2onnx")
        from sklearn.linear_model import LogisticRegression
        from sklearn.neural_network import MLPClassifier

        data = rc.load_dataset("digits", "train")
        images, labels = data.images[:400].reshape(400, -1), data.labels[:400]
        made = {
            "logistic": lambda: LogisticRegression(C=0.1, tol=0.01),
            "perceptron": lambda: MLPClassifier((16,), max_iter=25, tol=0.1, n_iter_no_change=3, random_state=0),
        }
        fitted = made[kind]().fit(images, labels)
        model = skl2onnx.to_onnx(fitted, images[:1], options={"zipmap": False})
        np.save(folder / f"{kind}.npy", fitted.predict_proba(rc.load_dataset("digits").images[:50].reshape(50, -1)))
        return saved(model, folder, f"{kind}.onnx")

    return export


# a model from elsewhere ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["logistic", "perceptron"])
def test_a_classifier_of_scikit_learn_answers_as_there(
    kind: str, scikit: Callable[[str], Path], digits: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    path = scikit(kind)
    with caplog.at_level(logging.INFO, "robustcmp"):
        model = rc.open_deployed(path, "onnxruntime")
    expected = np.load(path.with_suffix(".npy"))
    logits = Classifier(model).logits(digits.images[:50])
    np.testing.assert_allclose(np.exp(logits), expected, rtol=1e-3, atol=1e-5)
    notes = model.info["deployment"]["notes"]
    assert any("one row of values" in note for note in notes)
    assert any("logarithm of its probabilities" in note for note in notes)
    assert all(note in caplog.text for note in notes)
    assert "not known" in Classifier(model).no_gradient


@brought(
    what="an ONNX file, in Python",
    typed='rc.evaluate({"a": rc.open_deployed("a.onnx", "onnxruntime"), …}, images, labels)',
    got=NO_GRADIENT,
)
def test_a_classifier_of_scikit_learn_stands_in_a_comparison(scikit: Callable[[str], Path], digits: Dataset) -> None:
    models = {
        "logistic": rc.open_deployed(scikit("logistic"), "onnxruntime"),
        "perceptron": FromDeployedFile(str(scikit("perceptron")), "onnxruntime"),
    }
    ev = rc.evaluate(
        models, digits.images[:200], digits.labels[:200], suite="smoke", n=6, repeats=1, batch_size=64, progress=False
    )
    rates = ev.success_rate
    assert np.isfinite(rates.sel(attack="boundary")).all()
    assert np.isnan(rates.sel(attack="fgsm")).all()


@pytest.fixture(scope="module")
def own_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Weights of two trainings of LeNet-1, and each as a file of ONNX Runtime."""
    pytest.importorskip("torch")
    folder, made = tmp_path_factory.mktemp("own"), {}
    for seed, name in enumerate("ab"):
        model = rc.load_model("lenet1", framework="torch", dataset="digits", seed=seed)
        made[name], made[f"{name}.onnx"] = folder / f"{name}.npz", folder / f"{name}.onnx"
        np.savez(made[name], **model.weights)  # type: ignore[attr-defined]
        rc.deploy(model, "onnxruntime", path=made[f"{name}.onnx"])
    return made


def compared_files(files: dict[str, Path], out: Path, *weights: str) -> list[str]:
    """Return a command that compares ``FRAMEWORK=NAME`` of files by their names."""
    named = [f"{framework}={files[name]}" for framework, _, name in (each.partition("=") for each in weights)]
    asked = ["eval", "--weights", *named, "--architecture", "lenet1", "--dataset", "digits", "--suite", "smoke"]
    return [*asked, "--images", "8", "--repeats", "1", "--batch-size", "64", "--out", str(out)]


@brought(
    what="an ONNX file beside the network that it was converted from",
    typed="robustcmp eval --weights torch=a.npz onnxruntime=a.onnx --architecture lenet1",
    got="a comparison; gradient attacks take the network's gradient, which the result says",
)
def test_a_file_is_compared_with_the_network_that_it_was_made_from(
    own_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(compared_files(own_files, tmp_path / "run", "torch=a", "onnxruntime=a.onnx")) == 0
    said = capsys.readouterr()
    assert f"onnxruntime={own_files['a.onnx']} is taken to be converted from torch={own_files['a']}" in said.err
    ev = rc.open_run(tmp_path / "run")
    assert ev.results.sources == ["torch"]
    assert {*ev.deployments().attack} == {"fgsm", "single_pixel", "boundary"}
    assert ev.manifest["models"][1]["source_gradient"] == ["fgsm"]
    assert [*ev.results.deployed_networks.gate] == ["measured"]
    assert ev.manifest["deployments"][0]["changed"] == 0
    assert "does not answer as" not in to_text(ev.results)


@pytest.fixture
def beside_a_stranger(digits: Dataset, tmp_path: Path) -> Callable[..., rc.Evaluation]:
    """Compare LeNet-1 with ``file``, which is another network and said to be converted from it, and with others."""
    source = rc.load_model("lenet1", framework="torch", dataset="digits", seed=0)
    stranger = rc.open_deployed(saved(linear(), tmp_path), "onnxruntime", source=source)

    def compare(others: Callable[[Any], dict[str, Any]] = lambda source: {}) -> rc.Evaluation:
        models = {"torch": source, **others(source), "file": stranger}
        return rc.evaluate(models, digits.images, digits.labels, suite="smoke", n=4, repeats=1, progress=False)

    return compare


def test_a_file_that_classifies_otherwise_gives_no_answer(beside_a_stranger: Callable[..., rc.Evaluation]) -> None:
    said = " ".join(summary(beside_a_stranger().results).split())
    assert "No answer yet. file gives" in said
    assert "another class than torch does" in said
    assert "Deploying makes a difference" not in said


def test_what_a_source_does_to_images_is_done_for_its_file_too(digits: Dataset, tmp_path: Path) -> None:
    network = rc.load_model("lenet1", framework="torch", dataset="digits", seed=0).native
    source = rc.wrap(network, bounds=(0, 2), preprocessing={"mean": [0.1], "std": [0.5], "axis": -3})
    path, images = tmp_path / "own.onnx", 2 * digits.images[:50]
    rc.deploy(source, "onnxruntime", calibration=digits.images[:50], path=path)
    again = rc.open_deployed(path, "onnxruntime", source=source)
    assert tuple(again.bounds) == (0, 2)
    np.testing.assert_allclose(Classifier(again).logits(images), Classifier(source).logits(images), atol=1e-4)
    plain = rc.open_deployed(path, "onnxruntime", source=source, bounds=(0, 1))
    assert tuple(plain.bounds) == (0, 1)
    given = rc.open_deployed(
        path, "onnxruntime", bounds=(0, 2), preprocessing={"mean": [0.1], "std": [0.5], "axis": -1}
    )
    np.testing.assert_allclose(Classifier(given).logits(images), Classifier(source).logits(images), atol=1e-4)
    with pytest.raises(UsageError, match="bounds"):
        rc.open_deployed(path, "onnxruntime", bounds=(1, 0))


@pytest.mark.parametrize("bounds", [(0, 1), (0, 255), (-1, 1)])
@pytest.mark.parametrize("preprocessing", [None, {"mean": [0.1], "std": [0.5], "axis": -3}])
def test_images_of_bytes_are_those_of_the_source(
    bounds: tuple[float, float], preprocessing: dict[str, Any] | None, digits: Dataset, tmp_path: Path
) -> None:
    """What a source subtracts and divides by is of floats, so a file of bytes has it inside."""
    network = rc.load_model("lenet1", framework="torch", dataset="digits", seed=0).native
    source = rc.wrap(network, bounds=bounds, preprocessing=preprocessing)
    model = linear(dtype=onnx.TensorProto.UINT8)
    path, kernel = saved(model, tmp_path), onnx.numpy_helper.to_array(model.graph.initializer[0])
    of_source = rc.open_deployed(path, "onnxruntime", source=source)
    assert tuple(of_source.bounds) == bounds
    unit = digits.images[:8]
    expected = np.rint(255 * unit).reshape(8, -1) @ kernel
    images = np.float32(bounds[0]) + np.float32(bounds[1] - bounds[0]) * unit
    given = rc.open_deployed(path, "onnxruntime", bounds=bounds)
    for opened in (of_source, given):
        np.testing.assert_allclose(Classifier(opened).logits(images), expected, rtol=1e-4, atol=20)  # a byte's rounding
    stated = rc.open_deployed(path, "onnxruntime", preprocessing={"std": 1 / 255})
    assert tuple(stated.bounds) == (0, 1)
    halved = rc.open_deployed(path, "onnxruntime", bounds=bounds, preprocessing={"std": 2.0})
    np.testing.assert_allclose(
        Classifier(halved).logits(images), np.clip(np.rint(255 * images / 2), 0, 255).reshape(8, -1) @ kernel, atol=0.1
    )


def test_levels_of_an_onnx_file_for_other_images_are_one_error(zoo_model: Any, digits: Dataset, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Centred(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = zoo_model("torch", "lenet1").native

        def forward(self, x: Any) -> Any:
            return self.network(x * 0.5 + 0.5)

    path = tmp_path / "x.onnx"
    onnxruntime.RUNTIME.convert(rc.wrap(Centred().eval()), "int8-minmax", 2 * digits.images[:50] - 1, path)
    with pytest.raises(DeploymentError, match=r"is quantised for images from -1\.004 to .*FILE,mean=MEAN,std=STD"):
        rc.open_deployed(path, "onnxruntime")
    model = rc.open_deployed(path, "onnxruntime", preprocessing={"mean": 0.5, "std": 0.5})
    expected = (rc.predict(zoo_model("torch", "lenet1"), digits.images) == digits.labels).mean()
    assert (rc.predict(model, digits.images) == digits.labels).mean() == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ("", {"mean": (), "std": ()}),
        (",mean=0,std=1", {"mean": (0.0,), "std": (1.0,)}),
        (",mean=0.5,std=0.25", {"mean": (0.5,), "std": (0.25,)}),
    ],
)
def test_a_file_that_normalises_its_images_itself_says_so(
    numbers: str, expected: dict[str, Any], own_files: dict[str, Path], digits: Dataset
) -> None:
    given = [f"torch={own_files['a']},mean=0.1,std=0.5", f"onnxruntime={own_files['a.onnx']}{numbers}"]
    origins, _ = pair_with_sources(file_origins(given, "lenet1"))
    [file] = origins["onnxruntime"]
    assert isinstance(file, FromDeployedFile)
    assert {"mean": file.mean, "std": file.std} == expected
    native, images = rc.load_model("lenet1", framework="torch", dataset="digits", seed=0).native, digits.images[:4]
    done = {"mean": [*(file.mean or (0.1,))], "std": [*(file.std or (0.5,))], "axis": -3}
    shown = rc.wrap(native, preprocessing=done)
    np.testing.assert_allclose(Classifier(file.load()).logits(images), Classifier(shown).logits(images), atol=1e-4)
    said = " ".join(describe_normalisation(origins, 1))
    assert said.startswith("torch, onnxruntime: given") == (not numbers)
    assert len({str(each.fingerprint) for each in (file, replace(file, mean=(0.7,)))}) == 2


@pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed")
def test_a_file_without_the_other_half_is_named_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = rc.load_model("lenet1", framework="torch", dataset="digits", seed=0)
    rc.deploy(source, "openvino", path=tmp_path / "x.xml")
    (tmp_path / "x.bin").unlink()
    with pytest.raises(DeploymentError, match=r"x\.bin, which does not exist"):
        rc.open_deployed(tmp_path / "x.xml", "openvino")
    asked = [
        "eval",
        "--weights",
        f"openvino={tmp_path / 'x.xml'}",
        "--dataset",
        "digits",
        "--out",
        str(tmp_path / "run"),
    ]
    assert command.main(asked) != 0
    assert "x.bin, which does not exist" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_as_many_files_as_trained_networks_are_paired_in_their_order(own_files: dict[str, Path]) -> None:
    given = [f"torch={own_files['b']}", f"torch={own_files['a']}"]
    runtimes = [f"onnxruntime={own_files['b.onnx']}", f"onnxruntime={own_files['a.onnx']}"]
    pairs, lines = pair_with_sources(file_origins([*given, *runtimes], "lenet1"))
    assert [file.converted_from for file in pairs["onnxruntime"]] == pairs["torch"]  # type: ignore[union-attr]
    assert len(lines) == 2
    for unclear in ([*given, runtimes[0]], [given[0], f"jax={own_files['a']}", *runtimes[:1]]):
        if unclear[1].startswith("jax"):
            pytest.importorskip("jax")
        pairs, lines = pair_with_sources(file_origins(unclear, "lenet1"))
        assert [file.converted_from for file in pairs["onnxruntime"]] == [None]  # type: ignore[union-attr]
        [line] = lines
        assert "Name one trained network, or as many files of onnxruntime as of one framework" in line
    assert pair_with_sources(file_origins(runtimes))[1] == []


@pytest.mark.parametrize("order", ["NHWC", "NCHW"])
@pytest.mark.parametrize("n", ["n", 3])
@pytest.mark.parametrize("dtype", ["FLOAT", "UINT8", "DOUBLE"])
def test_layout_batch_and_number_format_are_recognised(
    order: str, n: Any, dtype: str, digits: Dataset, tmp_path: Path
) -> None:
    shape = (28, 28, 1) if order == "NHWC" else (1, 28, 28)
    model = linear(n, shape, getattr(onnx.TensorProto, dtype))
    deployed = rc.open_deployed(saved(model, tmp_path), "onnxruntime")
    kernel = onnx.numpy_helper.to_array(model.graph.initializer[0])
    images = digits.images[:8]
    flat = images.reshape(8, -1)  # one channel: both orders are the same
    expected = (np.rint(flat * 255) if dtype == "UINT8" else flat) @ kernel
    np.testing.assert_allclose(Classifier(deployed).logits(images), expected, rtol=1e-4, atol=1e-3)
    notes = " ".join(deployed.info["deployment"]["notes"])
    assert ("channels first, (N, C, H, W)" in notes) == (order == "NCHW")
    assert ("images are given as" in notes) == (dtype != "FLOAT")
    assert ("always 3 images" in notes) == (n == 3)


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("n", [0, 1, 3, 7])
def test_any_number_of_images_is_asked_in_batches(batch: int | None, n: int) -> None:
    asked: list[int] = []

    def ask(x: NDArray[Any]) -> NDArray[Any]:
        asked.append(len(x))
        return x.reshape(len(x), 64)[:, :2]

    images = np.random.default_rng(0).random((n, 8, 8, 1), np.float32)
    answer = Session(Layout.of([batch, 8, 8, 1], "float32", "it"), ask)(images)
    np.testing.assert_array_equal(answer, images.reshape(n, 64)[:, :2])
    assert batch is None or set(asked) == {batch}


@pytest.mark.parametrize("order", ["NHWC", "NCHW"])
@pytest.mark.parametrize("shape", [(28, 28, 5), (4, 4, 5), (3, 3, 50), (1, 300, 12), (3, 4, 3), (32, 24, 3)])
def test_images_say_where_the_channels_are(shape: tuple[int, int, int], order: str) -> None:
    images = np.random.default_rng(0).random((2, *shape), np.float32)
    given = images if order == "NHWC" else images.transpose(0, 3, 1, 2)
    layout = Layout.of([None, *given.shape[1:]], "float32", "it")
    np.testing.assert_array_equal(layout.to_input(images), given)


@pytest.fixture(scope="module")
def int8(zoo_model: Callable[..., Model], digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TFLite file of LeNet-5 whose input and output are int8."""
    pytest.importorskip("tensorflow")
    pytest.importorskip("ai_edge_litert")
    path = tmp_path_factory.mktemp("int8") / "theirs.tflite"
    rc.deploy(zoo_model("tensorflow"), "litert-int8", calibration=digits.images[:50], path=path)
    return path


@pytest.mark.parametrize(
    "runtime",
    [
        pytest.param(
            runtime,
            marks=brought(
                what=what, typed=f"robustcmp eval --weights {runtime}={name} --dataset digits", got=NO_GRADIENT
            ),
        )
        for runtime, name, what in (
            ("onnxruntime", "a.onnx", "an ONNX file"),
            ("litert", "a.tflite", "a TFLite file with int8 input and output"),
        )
    ],
)
def test_a_file_at_the_terminal(
    runtime: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = request.getfixturevalue("int8") if runtime == "litert" else request.getfixturevalue("scikit")("logistic")
    asked = ["eval", "--weights", f"{runtime}={path}", "--dataset", "digits", "--suite", "smoke", "--images", "5"]
    assert command.main([*asked, "--repeats", "1", "--out", str(tmp_path / "run"), "--batch-size", "64"]) == 0
    assert f"fgsm is not applicable to {runtime}" in " ".join(capsys.readouterr().out.split())
    assert np.isfinite(rc.open_run(tmp_path / "run").results.rates()[runtime]["single_pixel"])


# bad input -----------------------------------------------------------------------------------------------------------


def external(location: str, **more: int) -> Any:
    model = linear()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    return model


def hidden_external() -> Any:
    """A value in another file, inside a function of the model's own."""
    helper = onnx.helper
    model = linear()
    tensor = onnx.TensorProto(name="secret", data_type=FLOAT, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../etc/passwd")
    inner = helper.make_node("Constant", [], ["c"], value=tensor)
    model.functions.append(helper.make_function("own", "f", [], ["c"], [inner], [helper.make_opsetid("", 17)]))
    return model


def flattening(*shape: int) -> Any:
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Flatten", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [value("x", FLOAT, shape)], [value("y", FLOAT, ["n", "k"])])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


BAD = {
    "no batch": (flattening(28, 28, 1), "shape.*expected a batch of images"),
    "two inputs": (
        linear(
            inputs=[onnx.helper.make_tensor_value_info("z", FLOAT, ["n", 10])],
            nodes=[onnx.helper.make_node("Add", ["y", "z"], ["o"])],
            outputs=[onnx.helper.make_tensor_value_info("o", FLOAT, ["n", 10])],
        ),
        "should have one input, .* it has 2: x, z",
    ),
    "two outputs": (
        linear(nodes=[onnx.helper.make_node("Relu", ["y"], ["o"])],
               outputs=[onnx.helper.make_tensor_value_info(name, FLOAT, ["n", 10]) for name in "yo"]),
        "should have one output of floats",
    ),
    "custom operator": (
        linear(nodes=[onnx.helper.make_node("Mine", ["y"], ["o"], domain="own")],
               outputs=[onnx.helper.make_tensor_value_info("o", FLOAT, ["n", 10])]),
        r"cannot be opened.*own:Mine|cannot be opened.*Mine",
    ),
    "unknown operator": (
        linear(nodes=[onnx.helper.make_node("Mine", ["y"], ["o"])],
               outputs=[onnx.helper.make_tensor_value_info("o", FLOAT, ["n", 10])]),
        "is not an ONNX network .*Mine",
    ),
    "external": (external("../../etc/passwd"), r"'w' in '\.\./\.\./etc/passwd'; only files of its own folder that"),
    "external, absolute": (external("/etc/passwd"), "'w' in '/etc/passwd'; only files of its own folder that"),
    "external, below": (external("a/b"), "'w' in 'a/b'; only files of its own folder that"),
    "external, unnamed": (external(""), "'w' in ''; only files of its own folder that"),
    "external, gone": (external("x.data"), r"'w' in .*x\.data, which does not exist: copy it\. Or export one file"),
    "external, cut": (external("x.onnx", length=10**6), "is not an ONNX network"),
    "external, negative": (external("x.onnx", offset=-1), "is not an ONNX network"),
    "external, hidden": (hidden_external(), "keeps 'secret' in .*; only files of its own folder that"),
    "text": (linear(dtype=onnx.TensorProto.INT64), r"takes int64; expected images as floats or as bytes"),
    "huge images": (linear(shape=(1, 10**5, 10**5)), "cannot be opened|values an image"),
    "one number": (
        linear(nodes=[onnx.helper.make_node("ReduceSum", ["y"], ["o"], keepdims=0)],
               outputs=[onnx.helper.make_tensor_value_info("o", FLOAT, [])]),
        "should return 8 rows of numbers",
    ),
}  # fmt: skip


def test_values_beside_a_file_belong_to_it(digits: Dataset, tmp_path: Path) -> None:
    """Files of two trainings may be the same but for the values beside them."""
    kernels = [np.random.default_rng(seed).normal(size=(784, 10)).astype(np.float32) for seed in (0, 1)]
    paths = []
    for seed, kernel in enumerate(kernels):
        (folder := tmp_path / str(seed)).mkdir()
        (folder / "x.data").write_bytes(b"1234" + kernel.tobytes())
        paths.append(saved(external("x.data", offset=4, length=kernel.nbytes), folder))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    origins = file_origins([f"onnxruntime={path}" for path in paths])["onnxruntime"]
    for origin, kernel in zip(origins, kernels, strict=True):
        expected = digits.images[:8].reshape(8, -1) @ kernel
        np.testing.assert_allclose(Classifier(origin.load()).logits(digits.images[:8]), expected, rtol=1e-4, atol=1e-4)
    assert origins[0].fingerprint != origins[1].fingerprint
    models = [origin.load() for origin in origins]
    assert models[0].info["sha256"] != models[1].info["sha256"]
    assert models[0].info["deployment"]["bytes"] > kernels[0].nbytes
    shutil.copy(tmp_path / "0" / "x.data", tmp_path / "1" / "x.data")
    with pytest.raises(UsageError, match="is a copy of another file"):
        file_origins([f"onnxruntime={path}" for path in paths])


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_compared_is_one_error(name: str, tmp_path: Path) -> None:
    model, said = BAD[name]
    path = saved(model, tmp_path)
    with pytest.raises(DeploymentError, match=said) as caught:
        rc.open_deployed(path, "onnxruntime")
    assert str(path) in str(caught.value)
    assert LINE_END not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\x08\x01" * 9, "is not an ONNX network"),
        (bytes(range(256)) * 40, "is not an ONNX network"),
        (linear().SerializeToString()[:-300], "is not an ONNX network|cannot be opened"),
    ],
    ids=["empty", "short", "random", "cut"],
)
def test_a_file_that_is_no_network_is_one_error(content: bytes, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "x.onnx").write_bytes(content)
    with pytest.raises((WeightsError, DeploymentError), match=said):
        rc.open_deployed(path, "onnxruntime")


def test_what_is_no_file_or_too_large_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "x.onnx").mkdir()
    for path in (folder, tmp_path / "none.onnx"):
        with pytest.raises(WeightsError, match="cannot be read"):
            rc.open_deployed(path, "onnxruntime")
    with (large := tmp_path / "large.onnx").open("wb") as file:
        file.truncate(2**31)  # no block of it is written
    with pytest.raises(DeploymentError, match="expected at most 2,147,483,647 bytes, received 2,147,483,648"):
        rc.open_deployed(large, "onnxruntime")
    with pytest.raises(UsageError, match=r"onnxruntime opens \.onnx, received"):
        rc.open_deployed(tmp_path / "x.pb", "onnxruntime")
    (other := tmp_path / "x.tflite").write_text("some content")
    with pytest.raises(UsageError, match=r"onnxruntime reads \.onnx, received .*\. Write litert=.*x\.tflite"):
        file_origins([f"onnxruntime={other}"])


@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 28, 28)])
def test_images_of_another_size_are_one_error_before_any_work(
    shape: tuple[int, ...], digits: Dataset, tmp_path: Path
) -> None:
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("GlobalMaxPool", ["x"], ["p"]), helper.make_node("Flatten", ["p"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("y", FLOAT, ["n", shape[0]])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    deployed = rc.open_deployed(saved(model, tmp_path), "onnxruntime")
    out = tmp_path / "run"
    with pytest.raises(RobustcmpError, match=r"takes images \(.*\), received images \(28, 28, 1\)"):
        rc.evaluate({"a": deployed}, digits.images[:20], digits.labels[:20], suite="smoke", n=4, out=out)
    assert not list(out.glob("**/*.h5"))


def test_an_unknown_deployment_suggests_the_nearest(zoo_model: Callable[..., Model]) -> None:
    with pytest.raises(UsageError, match="unknown deployment 'onnxruntim': did you mean 'onnxruntime'"):
        rc.open_deployed("x.onnx", "onnxruntim")
    with pytest.raises(UsageError, match="unknown deployment 'onnxruntime-int9': did you mean 'onnxruntime-int8'"):
        rc.deploy(None, "onnxruntime-int9")  # type: ignore[arg-type]


@pytest.mark.parametrize("package", ["onnxruntime", "onnx"])
def test_what_is_not_installed_is_one_line(package: str, tmp_path: Path) -> None:
    path = saved(linear(), tmp_path)
    code = f"""
import importlib.metadata, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Blocked())
found = importlib.metadata.version
def version(name):
    if name == {package!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)
importlib.metadata.version = version
from robustcmp.cli import command
asked = ["eval", "--weights", "onnxruntime={path}", "--dataset", "digits", "--out", "{tmp_path / "run"}"]
sys.exit(command.main(asked))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2), done.stderr
    assert f"{package}" in done.stderr
    assert "pip install 'robustcmp[onnx]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


# damage --------------------------------------------------------------------------------------------------------------


def test_values_behind_a_link_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    path = saved(external("x.data"), folder)
    (tmp_path / "secret").write_bytes(bytes(31360))
    (folder / "x.data").symlink_to(tmp_path / "secret")
    with pytest.raises(DeploymentError, match="only files of its own folder that"):
        rc.open_deployed(path, "onnxruntime")
