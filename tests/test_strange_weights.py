"""Weights files that are not what they should be: an error of ours that says what to do, or weights that work."""

from __future__ import annotations

import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from conftest import load_file

from robustcmp.errors import UsageError, WeightsError
from robustcmp.frameworks import list_installed

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


def bomb(path: Path, entry: str, size: int = 2**30) -> None:
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
    bomb(tmp_path / name, entry)
    with pytest.raises(WeightsError, match=r"says that it holds 1,073,741,824; expected at most 268,435,456"):
        load_file(str(tmp_path / name), framework, "lenet1")


@pytest.mark.parametrize("name", ["a.pt", "a.npz", "a.h5"])
@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "empty"])
def test_what_is_no_file_is_not_opened(name: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    else:
        path.touch()
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
