"""LiteRT: conversions agree with their source, files from elsewhere are asked as they want, and bad files are named."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed import check_threads
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.data.dataset import Dataset
from robustcmp.deployments.litert import RUNTIME
from robustcmp.errors import DeploymentError, RobustcmpError
from robustcmp.frameworks import get_framework
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model

needs_litert = pytest.mark.skipif(bool(RUNTIME.explain_absence()), reason=RUNTIME.explain_absence())
needs_converter = pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
KINDS = list(RUNTIME.conversions)
# The largest distance between logits of the source and the deployed network, as a share of the logits' range.
NEAR = {"": 1e-4, "float16": 2e-3, "int8-dynamic": 0.03, "int8": 0.15}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Convert a model once, and return its file."""
    made: dict[tuple[int, str], tuple[Model, Path]] = {}

    def convert(model: Model, kind: str, calibration: NDArray[np.float32]) -> Path:
        if (id(model), kind) not in made:
            path = tmp_path_factory.mktemp("litert") / f"network{RUNTIME.suffix}"
            RUNTIME.convert(model, kind, calibration if RUNTIME.conversions[kind].calibrated else None, path)
            made[id(model), kind] = model, path
        return made[id(model), kind][1]

    return convert


@pytest.fixture(scope="module")
def sources() -> Callable[[str, str], Model]:
    """Load a model of the zoo once."""
    loaded: dict[tuple[str, str], Model] = {}

    def load(name: str, framework: str) -> Model:
        pytest.importorskip(framework)
        dataset = "cifar10" if name == "resnet20" else "digits"
        if (name, framework) not in loaded:
            loaded[name, framework] = rc.load_model(name, framework=framework, dataset=dataset)
        return loaded[name, framework]

    return load


@pytest.fixture(scope="module")
def images(digits: Dataset) -> Callable[[str], NDArray[np.float32]]:
    """Test images for a model; for ResNet-20 made from digits where CIFAR-10 is not at hand, blobs in three colours."""

    def of(name: str) -> NDArray[np.float32]:
        if name != "resnet20":
            return digits.images[:200]
        colours = np.random.default_rng(0).uniform(0.3, 1, (40, 1, 1, 3))
        return (np.pad(digits.images[:40], ((0, 0), (2, 2), (2, 2), (0, 0))) * colours).astype(np.float32)

    return of


@needs_litert
@needs_converter
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("lenet5", "torch"),
        *(
            pytest.param(*source, marks=pytest.mark.slow)
            for source in [("lenet5", "tensorflow"), ("lenet5", "jax"), ("resnet20", "torch")]
        ),
    ],
)
def test_a_conversion_answers_as_its_source_in_every_batch_and_with_any_number_of_threads(
    name: str, framework: str, kind: str, sources: Any, images: Any, deployed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, x = sources(name, framework), images(name)
    path = deployed(source, kind, x[:50])
    session = RUNTIME.load(path)
    assert session.layout.shape == x.shape[1:]
    own, theirs = Classifier(source).logits(x), session(x)
    assert theirs.dtype == np.float32
    assert theirs.shape == own.shape
    assert np.abs(own - theirs).max() <= NEAR[kind] * np.ptp(own)
    changed = int((own.argmax(1) != theirs.argmax(1)).sum())
    assert changed <= (0 if RUNTIME.conversions[kind].is_exact else len(x) // 10)
    assert bool(session.notes) == (kind == "int8")

    x = x[:8]
    # What would show a range that is taken from the whole batch: images of far smaller and far larger values.
    x = np.concatenate([x, x * 1e-3, np.zeros_like(x[:1]), np.ones_like(x[:1]), x * 1e3 - 500]).astype(np.float32)
    alone = np.concatenate([session(x[i : i + 1]) for i in range(len(x))])
    order = np.random.default_rng(0).permutation(len(x))
    np.testing.assert_array_equal(session(x), alone)
    np.testing.assert_array_equal(session(x[order]), alone[order])
    np.testing.assert_array_equal(session(x[:7]), alone[:7])
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    np.testing.assert_array_equal(RUNTIME.load(path)(x), alone)
    check_threads(session, x)


# networks and files from elsewhere -------------------------------------------------------------------------------


def keras_network(shape: tuple[int, ...] = (8, 6, 3), **more: Any) -> Any:
    """A small network of Keras that no architecture describes."""
    keras = pytest.importorskip("keras")
    layers = keras.layers
    initialiser = keras.initializers.GlorotUniform(seed=3)
    x = keras.Input(shape, **more)
    y = layers.DepthwiseConv2D(3, activation="relu", depthwise_initializer=initialiser)(x)
    y = layers.Dense(4, kernel_initializer=initialiser)(layers.Flatten()(y))
    return keras.Model(x, y)


def drawn(n: int, shape: tuple[int, ...] = (8, 6, 3)) -> NDArray[np.float32]:
    return np.random.default_rng(5).random((n, *shape)).astype(np.float32)


def made_elsewhere(
    path: Path,
    function: Any,
    shapes: list[list[int | None]],
    quantised: str = "",
    select: bool = False,
    images: NDArray[np.float32] | None = None,
) -> Path:
    """Write what someone else may have converted: a function of TensorFlow, with inputs of these shapes."""
    tf = pytest.importorskip("tensorflow")
    signature = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    traced = tf.function(function, input_signature=signature, autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced.get_concrete_function()], traced)
    if quantised:
        calibration = drawn(40, tuple(shapes[0][1:])) if images is None else images  # type: ignore[arg-type]
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([x] for x in calibration[:, None])
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = getattr(tf, quantised)
    if select:
        converter.target_spec.supported_ops = [tf.lite.OpsSet.SELECT_TF_OPS]
    path.write_bytes(quietly(converter.convert))
    return path


def quietly(convert: Callable[[], bytes]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return convert()


@needs_litert
@needs_converter
@pytest.mark.parametrize("kind", KINDS)
def test_a_keras_model_of_ones_own_is_converted(kind: str, tmp_path: Path) -> None:
    get_framework("tensorflow")
    model, x = rc.wrap(keras_network()), drawn(50)
    RUNTIME.convert(model, kind, x, tmp_path / "own.tflite")
    own = Classifier(model).logits(x)
    assert np.abs(RUNTIME.load(tmp_path / "own.tflite")(x) - own).max() <= NEAR[kind] * np.ptp(own)


@needs_litert
@needs_converter
@pytest.mark.parametrize("quantised", ["int8", "uint8"])
@pytest.mark.parametrize("batch", [None, 1])
def test_a_quantised_file_made_elsewhere_is_asked_and_its_numbers_are_named(
    quantised: str, batch: int | None, tmp_path: Path
) -> None:
    get_framework("tensorflow")
    network, x = keras_network(), drawn(9)
    session = RUNTIME.load(made_elsewhere(tmp_path / "x.tflite", network, [[batch, 8, 6, 3]], quantised))
    expected = np.asarray(network(x))
    assert np.abs(session(x) - expected).max() <= 0.05 * np.ptp(expected)
    assert session.notes[0].startswith(f"images in {quantised}: 256 levels from 0 to ")
    assert session.notes[1].startswith(f"logits in {quantised}: 256 levels from ")
    assert len(session.notes) == (3 if batch else 2)


@needs_litert
@needs_converter
@pytest.mark.parametrize(
    ("shape", "channels", "change", "note"),
    [
        ([4, 8, 6, 3], 3, lambda tf, x: x, "its batch has always 4 images"),
        ([None, 3, 8, 6], 3, lambda tf, x: tf.transpose(x, [0, 2, 3, 1]), "channels first, (N, C, H, W)"),
        ([None, 8, 6], 1, lambda tf, x: tf.reshape(x, [-1, 8, 6, 1]), "image is given without channels"),
    ],
    ids=["fixed batch", "channels first", "grey"],
)
def test_layouts_are_told_by_the_shape_and_named(
    shape: list[int | None], channels: int, change: Any, note: str, tmp_path: Path
) -> None:
    get_framework("tensorflow")
    import tensorflow as tf

    network = keras_network((8, 6, channels))
    session = RUNTIME.load(made_elsewhere(tmp_path / "x.tflite", lambda x: network(change(tf, x)), [shape]))
    assert session.layout.shape == (8, 6, channels)
    assert note in session.notes[0]
    for n in (1, 4, 9):
        x = drawn(n, session.layout.shape)
        np.testing.assert_allclose(session(x), np.asarray(network(x)), atol=1e-5)
    assert session(drawn(0, session.layout.shape)).shape == (0, 4)


@needs_litert
@needs_converter
@pytest.mark.parametrize(
    ("make", "shapes", "said"),
    [
        (lambda tf: lambda x, y: tf.reshape(x + y, [-1, 16]), [[None, 4, 4, 1]] * 2, "has 2 inputs and 1 outputs"),
        (lambda tf: lambda x: (tf.reshape(x, [-1, 16]), x), [[None, 4, 4, 1]], "has 1 inputs and 2 outputs"),
        (lambda tf: lambda x: tf.reshape(x, [1, 16]), [[4, 4, 1]], "expected a batch of images"),
        (lambda tf: lambda x: x * 2, [[None, 4, 4, 1]], "should return logits"),
        (lambda tf: lambda x: tf.reshape(x, [1, -1]), [[None, 4, 4, 1]], "should return logits"),
        (lambda tf: lambda x: tf.reshape(tf.cast(x, tf.int32), [-1, 16]), [[None, 4, 4, 1]], "received int32"),
    ],
    ids=["two inputs", "two outputs", "no batch", "images", "one row", "int32"],
)
def test_a_network_of_another_kind_is_one_error(
    make: Any, shapes: list[list[int | None]], said: str, tmp_path: Path
) -> None:
    get_framework("tensorflow")
    import tensorflow as tf

    with pytest.raises(DeploymentError, match=said):
        rc.open_deployed(made_elsewhere(tmp_path / "x.tflite", make(tf), shapes), "litert")


@needs_litert
@needs_converter
def test_operations_of_tensorflow_are_refused_and_nothing_of_them_runs(tmp_path: Path) -> None:
    get_framework("tensorflow")
    import tensorflow as tf

    written = tmp_path / "written"

    def writing(x: Any) -> Any:
        with tf.control_dependencies([tf.io.write_file(str(written), "by a file")]):
            return tf.reshape(x, [-1, 16]) * 2

    path = made_elsewhere(tmp_path / "x.tflite", writing, [[None, 4, 4, 1]], select=True)
    with pytest.raises(RobustcmpError, match="not supported"):
        rc.open_deployed(path, "litert")
    assert not written.exists()


def test_a_network_of_ones_own_in_another_framework_says_what_to_do() -> None:
    torch = pytest.importorskip("torch")
    model = rc.wrap(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)).eval())
    with pytest.raises(DeploymentError, match=r"litert-torch for torch\) and pass the \.tflite file"):
        RUNTIME.convert(model, "", None, Path("x.tflite"))


# bad files -------------------------------------------------------------------------------------------------------


@needs_litert
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"TFL3", "is not a TFLite file"),
        (bytes(range(256)) * 9, "is not a TFLite file"),
        (b"\0\0\0\0TFL3", "cannot be opened"),
        (b"\x1c\0\0\0TFL3" + np.random.default_rng(0).bytes(5000), "cannot be opened"),
    ],
    ids=["empty", "short", "other", "no content", "random"],
)
def test_a_broken_file_is_one_error(content: bytes, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "x.tflite").write_bytes(content)
    with pytest.raises(RobustcmpError, match=said) as caught:
        rc.open_deployed(path, "litert")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def rewritten(content: bytes, change: Callable[[Any], None]) -> bytes:
    """A file whose network was changed by hand, in a way that every offset in it is right."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    change(model)
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def without_inputs(model: Any) -> None:
    model.subgraphs[0].inputs = np.array([], np.int32)


def without_kernel(model: Any) -> None:  # LiteRT 2.3 reads the kernel from nowhere
    first = model.subgraphs[0].operators[0]
    first.inputs = np.array([first.inputs[0], -1, *first.inputs[2:]], np.int32)


def with_a_custom_operation(model: Any) -> None:
    model.operatorCodes[0].builtinCode = model.operatorCodes[0].deprecatedBuiltinCode = 32
    model.operatorCodes[0].customCode = b"Own"


@needs_litert
@needs_converter
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_inputs, "cannot be opened|has 0 inputs"),
        (without_kernel, "crashes litert|cannot be opened"),
        (with_a_custom_operation, "custom op: Own"),
    ],
)
def test_a_crafted_file_is_one_error(
    change: Any, said: str, sources: Any, images: Any, deployed: Any, tmp_path: Path
) -> None:
    content = deployed(sources("lenet5", "torch"), "", images("lenet5")[:50]).read_bytes()
    (path := tmp_path / "x.tflite").write_bytes(rewritten(content, change))
    with pytest.raises(RobustcmpError, match=said):
        rc.open_deployed(path, "litert")


@needs_litert
@needs_converter
@pytest.mark.parametrize("quantised", ["int8", "uint8"])
def test_a_quantised_softmax_made_elsewhere_stands_in_a_comparison(quantised: str, tmp_path: Path) -> None:
    """Rounded to 8 bits, probabilities do not sum to 1."""
    get_framework("tensorflow")
    import tensorflow as tf

    network = keras_network()
    path = made_elsewhere(tmp_path / "x.tflite", lambda x: tf.nn.softmax(network(x)), [[None, 8, 6, 3]], quantised)
    model = rc.open_deployed(path, "litert")
    assert any("divided by their sum" in note for note in model.info["deployment"]["notes"])
    x = drawn(40)
    labels = np.asarray(network(x)).argmax(axis=1)
    np.testing.assert_allclose(np.exp(Classifier(model).logits(x)).sum(axis=1), 1, atol=1e-5)
    ev = rc.evaluate({"litert": model}, x, labels, suite="smoke", n=4, repeats=1, progress=False)
    assert ev.results.clean_accuracy["litert"] > 0.8


@needs_litert
@needs_converter
def test_images_of_bytes_are_told_by_the_format_of_a_file(tmp_path: Path) -> None:
    get_framework("tensorflow")
    network, x = keras_network(), drawn(9)
    bytes_in = made_elsewhere(tmp_path / "bytes.tflite", lambda x: network(x / 255), [[None, 8, 6, 3]])
    assert not RUNTIME.load(bytes_in).holds_bytes  # float32 says nothing

    ends = np.concatenate([drawn(40), np.zeros((1, 8, 6, 3)), np.ones((1, 8, 6, 3))]).astype(np.float32)
    path = made_elsewhere(
        tmp_path / "int8.tflite", lambda x: network(x / 255), [[None, 8, 6, 3]], "int8", images=255 * ends
    )
    model = rc.open_deployed(path, "litert")
    assert tuple(model.bounds) == (0, 255)
    assert model.info["deployment"]["notes"][-1].endswith("given as 255 times their values")
    expected = np.asarray(network(x))
    assert np.abs(Classifier(model.transform_bounds((0, 1))).logits(x) - expected).max() <= 0.05 * np.ptp(expected)
    assert tuple(rc.open_deployed(path, "litert", bounds=(0, 1)).bounds) == (0, 1)


@needs_litert
@needs_converter
@pytest.mark.parametrize(("mean", "std"), [(0.5, 0.5), (0, 1 / 240)])
def test_levels_of_other_images_than_a_file_would_get_are_one_error(
    mean: float, std: float, sources: Any, digits: Dataset, tmp_path: Path
) -> None:
    network = sources("lenet1", "tensorflow").native
    path = made_elsewhere(
        tmp_path / "x.tflite",
        lambda x: network(x * std + mean),
        [[None, 28, 28, 1]],
        "int8",
        images=(digits.images[:50] - np.float32(mean)) / np.float32(std),
    )
    for source in (None, rc.wrap(network)):
        with pytest.raises(DeploymentError, match=r"is quantised for images.*from 0 to 1.*FILE,mean=MEAN,std=STD"):
            rc.open_deployed(path, "litert", source=source)
    accuracy = float((np.asarray(network(digits.images)).argmax(axis=1) == digits.labels).mean())
    assert accuracy > 0.9
    for stated in (
        {"preprocessing": {"mean": mean, "std": std}},
        {"source": rc.wrap(network, preprocessing={"mean": mean, "std": std})},
    ):
        model = rc.open_deployed(path, "litert", **stated)
        assert (rc.predict(model, digits.images) == digits.labels).mean() == pytest.approx(accuracy, abs=0.01)
    as_they_are = rc.open_deployed(path, "litert", bounds=(0, 1))
    assert as_they_are.info["deployment"]["notes"][-1] == "images are given from 0 to 1, as stated"
