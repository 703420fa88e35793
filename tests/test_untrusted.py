"""Files from elsewhere: what shows other files, unpacks to more than it is, or crashes what opens it."""

from __future__ import annotations

import codecs
import inspect
import os
import signal
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

import h5py
import numpy as np
import pytest
from conftest import load_file

import robustcmp as rc
from robustcmp import limits, sealed
from robustcmp.attacks.suite import FOOLBOX, OURS, _is_plain, load_suite
from robustcmp.errors import DeploymentError, OutOfMemoryError, SealError, UsageError, WeightsError, enough_memory
from robustcmp.frameworks import list_installed
from robustcmp.networks.architecture import Architecture, get_architecture
from robustcmp.sources.recipes import Recipe, load_recipe
from robustcmp.untrusted import _check_chunks, check_answers, check_hdf5, read_toml

ZEROS = bytes(2**27)
PACKED = zlib.compress(ZEROS, 9)  # 128 KiB
FEW = 20


def created(file: h5py.File, size: int, filters: str) -> h5py.Dataset:
    """A chunked array of bytes with filters in an order of one's own, and no values yet."""
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((size,))
    for each in filters.split():
        made.set_deflate(9) if each == "gzip" else made.set_shuffle()
    h5py.h5d.create(file.id, b"values", h5py.h5t.STD_I8LE, h5py.h5s.create_simple((size,)), made)
    return file["values"]


def gzip_twice(file: h5py.File) -> None:
    packed = zlib.compress(PACKED, 9)
    created(file, FEW, "gzip gzip").id.write_direct_chunk((0,), packed)


def a_chunk_larger_than_its_array(file: h5py.File) -> None:
    array = file.create_dataset("values", (FEW,), "i1", maxshape=(None,), chunks=(len(ZEROS),), compression="gzip")
    array[:5] = 1


def a_stream_longer_than_its_chunk(file: h5py.File) -> None:
    created(file, 2**20, "gzip").id.write_direct_chunk((0,), PACKED)


def a_stream_that_was_shuffled(file: h5py.File) -> None:
    created(file, 2**20, "gzip shuffle").id.write_direct_chunk((0,), b"\1" + PACKED[1:])


def lzf(file: h5py.File) -> None:
    file.create_dataset("values", data=np.ones(FEW, np.int8), compression="lzf")


BOMBS: dict[Callable[[h5py.File], None], str] = {
    gzip_twice: "values is stored with the filters gzip, gzip, expected gzip and shuffle alone, once each",
    a_chunk_larger_than_its_array: "values has 20 bytes in chunks of 134,217,728 each",
    a_stream_longer_than_its_chunk: "values has a chunk of more than the 1,048,576 bytes that it declares",
    a_stream_that_was_shuffled: "values has a chunk that is not of gzip",
    lzf: "values is stored with the filters 32000, expected gzip and shuffle alone",
}


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_what_unpacks_to_more_than_it_declares(bomb: Callable[[h5py.File], None], tmp_path: Path) -> None:
    content = sealed.hdf5("cell ab", bomb)
    assert len(content) < 2**20
    with pytest.raises(SealError, match=BOMBS[bomb]), sealed.from_bytes(content, "cell ab"):
        pass
    with h5py.File(tmp_path / "a.weights.h5", "w") as file:
        bomb(file)
    with pytest.raises(WeightsError, match=rf"a\.weights\.h5: {BOMBS[bomb]}.*\. Save the weights again\."):
        check_hdf5(tmp_path / "a.weights.h5")


@pytest.mark.parametrize("values", ["zeros", "noise"])
def test_what_h5py_writes_is_read(values: str) -> None:
    """Also where gzip does not make a chunk smaller, and HDF5 leaves it as it is."""
    rng = np.random.default_rng(0)
    arrays = {
        "large": np.zeros((2000, 28, 28, 1), np.float32) if values == "zeros" else rng.random((2000, 28, 28, 1)),
        "one chunk": rng.integers(0, 2 if values == "zeros" else 256, 2**20, np.uint8),
    }

    def write(file: h5py.File) -> None:
        file.create_dataset("large", data=arrays["large"], compression="gzip", shuffle=True)
        file.create_dataset("one chunk", data=arrays["one chunk"], chunks=(2**20,), compression="gzip", shuffle=True)
        file.create_dataset("growing", data=np.arange(3), maxshape=(None,))
        file["empty"] = h5py.Empty("f4")

    with sealed.from_bytes(sealed.hdf5("cell ab", write), "cell ab") as file:
        for name, array in arrays.items():
            np.testing.assert_array_equal(file.array(name), array)
        for name in ("growing", "empty"):
            _check_chunks(name, file.arrays[name])


def crashes(content: bytes) -> None:
    import os

    os.abort()


def hangs(content: bytes) -> None:
    import time

    time.sleep(60)


def never_ends(content: bytes) -> None:
    while True:
        pass


def refuses(content: bytes) -> None:
    raise ValueError(content.decode())


@pytest.mark.parametrize(
    ("ask", "seconds", "message"),
    [
        (crashes, 60, r"crashes LiteRT \(exit status -6\)\. The file is broken"),
        (hangs, 0.1, "gives no answer within 0.1 seconds"),
        (never_ends, 0.1, "gives no answer within 0.1 seconds"),
        (refuses, 60, "x cannot be opened: no such shape$"),
    ],
)
def test_what_a_file_does_in_a_process_of_its_own_is_one_error(
    ask: Callable[[bytes], None], seconds: float, message: str
) -> None:
    with pytest.raises(DeploymentError, match=message):
        check_answers(Path("x"), b"no such\nshape", ask, "LiteRT", seconds)


# suites and recipes that strangers write: valid, or an error of ours, soon and in little memory -----------------------

SUITE = """\
description = "a suite"
images = 20
repeats = 2
subset = "common"

[attacks.fgsm]
attack = "FGSM"
epsilons = 20
max_epsilon = 0.1

[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 20
exact = true

[attacks.boundary]
attack = "Boundary"
iterations = 20
max_directions = 2

[attacks.pgd]
attack = "LinfPGD"
epsilons = [0.01, 0.03]
steps = 40
random_start = true

[attacks.hop]
attack = "HopSkipJumpAttack"
constraint = "l2"
"""
NETWORK = """\
[architecture]
input_shape = [28, 28, 1]
layers = [
    { type = "Conv", name = "conv1", channels = 4, kernel = 5, stride = 1, padding = 2 },
    { type = "Residual", name = "sum", layers = [{ type = "Relu", name = "relu" }] },
    { type = "MaxPool", name = "pool", size = 2 },
    { type = "Flatten", name = "flatten" },
    { type = "Dense", name = "logits", units = 10 },
]

[default.digits]
epochs = 3
batch_size = 32
learning_rate = 0.02
momentum = 0.9
weight_decay = 5e-4
schedule = "cosine"
crop = 2
flip = true
"""


def recipe(path: Path) -> Recipe:
    assert isinstance(get_architecture(str(path)), Architecture)
    return load_recipe(str(path), "digits")


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "suite": (SUITE, load_suite),
    "recipe": (NETWORK, recipe),
}


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let what takes longer be an error, also where it never ends."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refused(reader: str, content: str | bytes, directory: Path, message: str) -> None:
    """See that a file is an error that names it."""
    path = directory / "mine.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with within(60), pytest.raises(UsageError, match=message) as caught:
        READERS[reader][1](path)
    assert "mine.toml" in str(caught.value)


# any file


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("a = " + "[" * 100 + "]" * 100, "nested too deeply; expected at most 64"),
        ("a = " + "{ a = " * 2_000, "nested too deeply"),
        ("a." * 60_000 + "a = 1", "keys of at most 64 parts"),
        ("[" + "a." * 60_000 + "a]", "keys of at most 64 parts"),
        ("a = " + "1" * 5_000, "too many digits"),
        ("a = " + "1" * 30, "a should be a number of 64 bits, received one of 30 digits"),
        ("[x]\na = [1.0, nan]", r"x\.a\.2 should be a finite number, received (nan|NaN)"),
        ("a = 1e999", "a should be a finite number, received inf"),
        ("a = 1\na = 1", "cannot be read as TOML: Cannot overwrite a value"),
        (b"a = '\xff'", "expected text in UTF-8"),
        (b"\0", "cannot be read as TOML"),
        ("#" * (limits.FILE_BYTES + 1), f"expected at most {limits.FILE_BYTES:,} bytes"),
        ("", "mine.toml"),
    ],
    ids=range(14),
)
def test_a_file_that_no_tool_writes(reader: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    refused(reader, content, tmp_path, message if "1e999" not in str(content) else "finite number")


@pytest.mark.parametrize("reader", READERS)
def test_a_byte_order_mark_changes_nothing(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    content, read = READERS[reader]
    path.write_text(content)
    wanted = read(path)
    path.write_bytes(codecs.BOM_UTF8 + content.encode())
    received = read(path)
    assert getattr(received, "digest", received) == getattr(wanted, "digest", wanted)


INSTEAD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": Path.mkdir,
    "empty": Path.touch,
    "nothing": lambda path: None,
    "name": lambda path: None,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "nothing", "name"])
def test_what_is_no_file(reader: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("mi\0ne.toml" if kind == "name" else "mine.toml")
    INSTEAD[kind](path)
    with within(60), pytest.raises(UsageError, match=r"cannot be read|without control characters"):
        READERS[reader][1](path)


def test_dots_in_a_text_are_no_key(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('a = "' + "see this. " * 200 + '"\nb = [' + "0.1, " * 200 + "]\n")
    assert len(read_toml(path, "the file")["b"]) == 200


# numbers


@pytest.mark.parametrize(
    ("reader", "old", "new", "message"),
    [
        ("suite", "images = 20", "images = 1_000_000_000_000", "10000000"),
        ("suite", "repeats = 2", "repeats = 1_000_000", "10000"),
        ("suite", "repeats = 2", "repaets = 2", "unknown key 'repaets': did you mean 'repeats'"),
        ("suite", "epsilons = 20", "epsilons = 1_000_000_000", "epsilons should be at most 10,000"),
        ("suite", "max_epsilon = 0.1", "max_epsilon = 1e300", "max_epsilon should be at most"),
        ("suite", "max_pixels = 20", "max_pixels = 1_000_000_000", "max_pixels should be at most"),
        ("suite", "iterations = 20", "iterations = 1_000_000_000", "iterations should be at most"),
        ("suite", "max_directions = 2", "max_directions = 1_000_000", "max_directions should be at most"),
        ("suite", "steps = 40", "steps = 1_000_000_000", "steps should be at most"),
        ("suite", "steps = 40", "steps = -1", "steps should be 1 or more"),
        ("suite", "steps = 40", "rel_stepsize = 1e300", "rel_stepsize should be at most"),
        ("suite", "[0.01, 0.03]", f"[{'0.1, ' * 10_001}]", "epsilons"),
        ("suite", "[attacks.fgsm]", f"[attacks.{'f' * 65}]", "at most 64 of a-z"),
        ("suite", 'constraint = "l2"', "initial_gradient_eval_steps = 1_000_000", "should be at most 10,000"),
        ("recipe", "units = 10", "units = 1_000_000_000", "at most 100,000,000 values an image"),
        ("recipe", "units = 10", "units = 2_000_000", "expected at most 1,000,000,000 weights"),
        ("recipe", "padding = 2", "padding = 1_000_000", "at most 100,000,000 values an image"),
        ("recipe", "[28, 28, 1]", "[100_000, 100_000, 3]", "at most 100,000,000 values an image"),
        ("recipe", "stride = 1", "strid = 1", "unknown field `strid`"),
        ("recipe", "epochs = 3", "epochs = 1_000_000_000", "100000"),
        ("recipe", "epochs = 3", "epoch = 3", "unknown field `epoch`"),
        ("recipe", "batch_size = 32", "batch_size = 1_000_000_000", "1000000"),
        ("recipe", "crop = 2", "crop = 100_000", "crop should be less than the image"),
        ("recipe", "learning_rate = 0.02", "learning_rate = nan", "learning_rate should be a finite number"),
    ],
)
def test_a_number_that_no_machine_has_time_or_memory_for(
    reader: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    text = READERS[reader][0]
    assert old in text
    refused(reader, text.replace(old, new, 1), tmp_path, message)


def test_the_limits_hold_for_calls_as_well() -> None:
    images, labels = np.zeros((2, 28, 28, 1), np.float32), np.zeros(2, np.int64)
    for make in (
        lambda: rc.attacks.FGSM(epsilons=10**9),
        lambda: rc.attacks.Boundary(iterations=10**5000),
        lambda: rc.evaluate({"a": None}, images, labels, repeats=10**9),  # type: ignore[dict-item]
        lambda: rc.evaluate({"a": None}, images, labels, n=10**12),  # type: ignore[dict-item]
        lambda: rc.fit("lenet1", framework="torch", dataset="digits", epochs=10**9),
    ):
        with within(60), pytest.raises(UsageError, match="should be at most"):
            make()


def test_too_little_memory_says_what_to_lower() -> None:
    expected = pytest.raises(OutOfMemoryError, match=r"does not suffice for this \(Unable to allocate .*Lower that, or")
    with expected, enough_memory("this", "that"):
        np.empty(2**55)


# what a suite may set


@pytest.mark.parametrize("name", ["BoundaryAttack", "HopSkipJumpAttack", "L2BrendelBethgeAttack"])
def test_a_suite_writes_no_files(name: str, tmp_path: Path) -> None:
    written = tmp_path / "written"
    text = f'[attacks.x]\nattack = "{name}"\ntensorboard = "{written}"\n'
    refused(
        "suite",
        text,
        tmp_path,
        rf"\[attacks\.x\]: {name}: tensorboard cannot be set in a file",
    )
    assert not written.exists()


def test_a_suite_sets_numbers_switches_and_listed_words_alone() -> None:
    settable = {
        (name, str(hint))
        for cls in (*OURS.values(), *FOOLBOX.values())
        for name, hint in get_type_hints(cls.__init__).items()
        if name in inspect.signature(cls).parameters and _is_plain(hint)
    }
    words = {hint for _, hint in settable if "str" in hint or "Any" in hint or "foolbox" in hint or "Path" in hint}
    assert words == set()
    assert {name for name, _ in settable} >= {"steps", "constraint", "reduced_dims", "random_start", "rel_stepsize"}


# mutations


# weights that are not what they should be: an error of ours, or weights that work -------------------------------------

# Keras reads its own variables in a way that NumPy 2 warns of, when it saves them.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SHAPES = {
    "conv1/kernel": (5, 5, 1, 4),
    "conv1/bias": (4,),
    "conv2/kernel": (5, 5, 4, 12),
    "conv2/bias": (12,),
    "logits/kernel": (192, 10),
    "logits/bias": (10,),
}


def arrays(dtype: str = "float32") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in SHAPES.items()}


def state() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    layers = [nn.Conv2d(1, 4, 5), nn.Conv2d(4, 12, 5), nn.Linear(192, 10)]
    return {
        f"{name}.{kind}": getattr(layer, kind).detach().clone()
        for name, layer in zip(("conv1", "conv2", "logits"), layers, strict=True)
        for kind in ("weight", "bias")
    }


def with_first(change: Any) -> dict[str, Any]:
    content = state()
    content["conv1.weight"] = change(content["conv1.weight"])
    return content


def quantised(tensor: Any) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still in files
        return torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)


ODD: dict[str, tuple[Any, str]] = {
    "sparse": (
        lambda: with_first(lambda t: t.to_sparse()),
        r"conv1\.weight should be a dense tensor .*sparse_coo.*to_dense",
    ),
    "quantised": (lambda: with_first(quantised), r"conv1\.weight should be .*qint8.*dequantize"),
    "complex": (
        lambda: with_first(lambda t: t.to(__import__("torch").complex64)),
        r"a Tensor of torch\.complex64",
    ),
    "meta": (lambda: with_first(lambda t: t.to("meta")), "on meta"),
    "integer": (lambda: with_first(lambda t: t.int()), r"received a Tensor of torch\.int32"),
    "boolean": (lambda: with_first(lambda t: t > 0), r"received a Tensor of torch\.bool"),
    "NaN": (lambda: with_first(lambda t: t * float("nan")), r"conv1\.weight has NaN or infinite values"),
    "infinite": (lambda: with_first(lambda t: t / 0), r"conv1\.weight has NaN or infinite values"),
    "too large for float32": (lambda: with_first(lambda t: t.double() * 1e300), "NaN or infinite"),
    "of another shape": (
        lambda: with_first(lambda t: t[:2]),
        r"expected conv1\.weight \(4, 1, 5, 5\); received .*\(2, ",
    ),
    "expanded": (lambda: with_first(lambda t: t[:1, :1, :1, :1].expand(10**9, 1, 5, 5)), r"received .*\(1000000000, "),
    "a number among tensors": (lambda: state() | {"epoch": 3}, "a dict with .*epoch"),
    "a number as a name": (lambda: {3: state()["conv1.weight"]}, "a dict with 3"),
    "two state dicts": (lambda: {"net": state(), "ema": state()}, "a dict with net, ema"),
    "nested twice": (lambda: {"a": {"b": state()}}, "a dict with a"),
    "empty": (dict, "a dict with nothing"),
    "a tensor": (lambda: state()["conv1.bias"], "should hold one state dict.*received a Tensor"),
    "nothing": (lambda: None, "should hold one state dict.*received a NoneType"),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_state_dict_that_is_none(odd: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    make, message = ODD[odd]
    torch.save(make(), tmp_path / "a.pt")
    with pytest.raises(WeightsError, match=message) as caught:
        load_file(str(tmp_path / "a.pt"), "torch", "lenet1")
    assert str(tmp_path / "a.pt") in str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_precisions_are_converted(dtype: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    content = {name: tensor.to(getattr(torch, dtype)) for name, tensor in state().items()}
    torch.save(content, tmp_path / "a.pt")
    network = load_file(str(tmp_path / "a.pt"), "torch", "lenet1").native  # type: ignore[attr-defined]
    loaded = network.state_dict()["conv1.weight"]
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded, content["conv1.weight"].float())


def write_bomb(path: Path, entry: str, size: int = 2**30) -> None:
    """Write an archive of a few hundred kilobytes that unpacks to a gibibyte of zeros."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(entry, "w", force_zip64=True) as file,
    ):
        for _ in range(size // 2**20):
            file.write(bytes(2**20))


@pytest.mark.parametrize(
    ("name", "entry"), [("a.pt", "a/data.pkl"), ("a.npz", "conv1.npy"), ("a.keras", "model.weights.h5")]
)
@pytest.mark.slow
def test_an_archive_that_unpacks_to_gigabytes(name: str, entry: str, tmp_path: Path) -> None:
    framework = {"a.pt": "torch", "a.keras": "tensorflow"}.get(name, list_installed()[0])
    if framework not in list_installed():
        pytest.skip(f"{framework} is not installed")
    write_bomb(tmp_path / name, entry)
    with pytest.raises(WeightsError, match=r"says that it holds 1,073,741,824; expected at most 268,435,456"):
        load_file(str(tmp_path / name), framework, "lenet1")


@pytest.mark.parametrize("name", ["a.pt", "a.npz", "a.h5"])
@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "empty"])
def test_what_is_no_file_is_not_opened(name: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / name
    INSTEAD[kind](path)
    message = "is empty" if kind == "empty" else "expected a file, received "
    framework = "torch" if name == "a.pt" else list_installed()[0]
    if framework not in list_installed():
        pytest.skip(f"{framework} is not installed")
    with pytest.raises((UsageError, WeightsError), match=message):
        load_file(str(path), framework, "lenet1")


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("int32", "conv1/kernel should be an array of floating-point numbers, received int32"),
        ("complex64", "received complex64"),
        ("<U5", "received <U5"),
    ],
)
def test_arrays_of_another_kind(dtype: str, message: str, tmp_path: Path) -> None:
    content = arrays()
    np.savez(tmp_path / "a.npz", **content | {"conv1/kernel": content["conv1/kernel"].astype(dtype)})
    with pytest.raises(WeightsError, match=message):
        load_file(str(tmp_path / "a.npz"), list_installed()[0], "lenet1")


def external_link(file: h5py.File, secret: Path) -> None:
    file["layers"] = h5py.ExternalLink(str(secret), "/")


def huge(file: h5py.File, secret: Path) -> None:
    file.create_dataset("layers/vars/0", (2**36,), "float32", chunks=(2**20,), compression="gzip")


def named_type(file: h5py.File, secret: Path) -> None:
    file["layers"] = np.dtype("float32")


HDF5 = {
    external_link: "ExternalLink, which can show another file",
    huge: "says that it holds 274,877,906,944",
    named_type: "should be a group or an array, received Datatype",
}


@pytest.mark.parametrize("make", HDF5, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", ["a.weights.h5", "a.keras"])
def test_hdf5_shows_nothing_but_itself(make: Any, name: str, tmp_path: Path) -> None:
    if "tensorflow" not in list_installed():
        pytest.skip("tensorflow is not installed")
    secret = tmp_path / "secret"
    secret.write_bytes(b"1234")
    with h5py.File(tmp_path / "a.weights.h5", "w") as file:
        make(file, secret)
    if name == "a.keras":
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("config.json", "{}")
            archive.write(tmp_path / "a.weights.h5", "model.weights.h5")
    with pytest.raises(WeightsError, match=HDF5[make]):
        load_file(str(tmp_path / name), "tensorflow", "lenet1")


def test_a_model_of_keras_with_huge_layers_is_not_built(tmp_path: Path) -> None:
    if "tensorflow" not in list_installed():
        pytest.skip("tensorflow is not installed")
    import keras

    dense = keras.layers.Dense
    keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), dense(111), dense(10)]).save(
        tmp_path / "a.keras"
    )
    load_file(str(tmp_path / "a.keras"), "tensorflow")
    with zipfile.ZipFile(tmp_path / "a.keras") as whole, zipfile.ZipFile(tmp_path / "huge.keras", "w") as changed:
        for name in whole.namelist():
            changed.writestr(name, whole.read(name).replace(b'"units": 111', b'"units": 111000000000'))
    with pytest.raises(WeightsError, match=r"huge\.keras describes .* weights or more; expected at most 1,000,000,000"):
        load_file(str(tmp_path / "huge.keras"), "tensorflow")
