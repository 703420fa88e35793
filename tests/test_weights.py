"""Weights files: round trips bit for bit, and every kind of damage told apart from a good file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robustcmp.errors import WeightsError
from robustcmp.files import digest, write_bytes_atomically
from robustcmp.networks.architecture import Architecture, get_architecture
from robustcmp.networks.weights import Weights, WeightsFile, check_shapes, pair_arrays, read_weights, write_weights

RandomWeights = Callable[[Architecture, int], Weights]

NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), unique=True, max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, width=64) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def arrays(dtype: Any, dimensions: int) -> st.SearchStrategy[Any]:
    shapes = hnp.array_shapes(max_dims=dimensions, min_side=0, max_side=5)
    return hnp.arrays(dtype, shapes, elements={"allow_nan": True, "allow_infinity": True, "allow_subnormal": True})


@st.composite
def contents(draw: st.DrawFn) -> WeightsFile:
    weights = {f"{layer}/{kind}": draw(arrays(np.float32, 4)) for layer in draw(NAMES) for kind in ("kernel", "bias")}
    curves = {name: draw(arrays(np.float64, 1)) for name in draw(NAMES)}
    return WeightsFile(weights, draw(st.dictionaries(st.text(), JSON, max_size=4)), curves)


def same_bits(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(
        (a[name].dtype, a[name].shape, a[name].tobytes()) == (b[name].dtype, b[name].shape, b[name].tobytes())
        for name in a
    )


@pytest.fixture
def content(tiny: Architecture, random_weights: RandomWeights) -> WeightsFile:
    return WeightsFile(
        random_weights(tiny, 0), {"model": "tiny", "settings": {"epochs": 2}}, {"loss": np.array([1.5, 0.25])}
    )


@pytest.fixture
def path(tmp_path: Path, content: WeightsFile) -> Path:
    write_weights(tmp_path / "w.h5", content)
    return tmp_path / "w.h5"


# Round trips


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=contents())
def test_round_trip_bit_for_bit(content: WeightsFile, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("weights") / "w.h5"
    write_weights(path, content)
    received = read_weights(path)
    assert same_bits(received.weights, content.weights)
    assert same_bits(received.curves, content.curves)
    assert received.metadata == content.metadata
    assert received.sha256 == content.sha256


def test_the_same_content_gives_the_same_bytes(path: Path, content: WeightsFile, tmp_path: Path) -> None:
    write_weights(tmp_path / "again.h5", content)
    assert (tmp_path / "again.h5").read_bytes() == path.read_bytes()


def test_the_digest_is_that_of_the_weights(content: WeightsFile) -> None:
    assert WeightsFile(content.weights, {"settings": {"epochs": 3}}).sha256 == content.sha256
    weights = dict(content.weights)
    weights["logits/bias"] = np.nextafter(weights["logits/bias"], np.float32(9))
    assert WeightsFile(weights, content.metadata, content.curves).sha256 != content.sha256


def test_digest_of_arrays() -> None:
    a = np.arange(6, dtype=np.float32)
    same = digest({"a": a, "b": a})
    assert digest({"b": a, "a": a}) == same
    assert digest({"a": np.repeat(a, 2)[::2], "b": a}) == same
    different: list[dict[str, Any]] = [
        {"a": a},
        {"a": a, "c": a},
        {"a": a, "b": a.reshape(2, 3)},
        {"a": a, "b": a.view(np.int32)},
        {"a": a, "b": -a},
    ]
    assert len({digest(arrays) for arrays in different} | {same}) == 6


# Damage


FLIPPER = """
import sys
from pathlib import Path
from robustcmp.errors import WeightsError
from robustcmp.networks.weights import read_weights

path = Path(sys.argv[1])
good, whole = read_weights(path), path.read_bytes()
refused = 0
for position in [*range(0, 256, 3), *range(256, len(whole), 19)]:
    damaged = bytearray(whole)
    damaged[position] ^= 0xFF
    path.write_bytes(damaged)
    try:
        received = read_weights(path)
    except WeightsError:
        refused += 1
        continue
    if received.sha256 != good.sha256:
        sys.exit(f"byte {position}: other content was read")
print(refused)
"""


def test_a_flipped_byte_is_an_error_or_changes_nothing(path: Path) -> None:
    # In a process of its own: the HDF5 library may crash on, or never return from, what it is not protected against.
    done = subprocess.run(
        [sys.executable, "-c", FLIPPER, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 100


def change(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["weights/logits/bias"][0] += 1


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a changed weight": change,
    "a third": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 3]),
    "all but the end": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "nothing": lambda path: path.write_bytes(b""),
    "an HDF5 signature": lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n"),
    "a pickle": lambda path: path.write_bytes(b"\x80\x04\x95pickle."),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused(path: Path, damage: str) -> None:
    DAMAGE[damage](path)
    with pytest.raises(WeightsError, match=r"w\.h5.*train again"):
        read_weights(path)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no weights file at .*missing\.h5"):
        read_weights(tmp_path / "missing.h5")
    with pytest.raises(WeightsError, match="is not a weights file of robustcmp"):
        read_weights(tmp_path)


def test_weights_of_another_network_name_the_layer_and_both_shapes(
    tmp_path: Path, random_weights: RandomWeights
) -> None:
    lenet1, lenet5 = get_architecture("lenet1"), get_architecture("lenet5")
    write_weights(tmp_path / "w.h5", WeightsFile(random_weights(lenet1, 0), {}))
    with pytest.raises(WeightsError) as caught:
        read_weights(tmp_path / "w.h5", lenet5)
    for part in ("w.h5", "conv1/kernel", "(5, 5, 1, 6)", "(5, 5, 1, 4)", "lenet5"):
        assert part in str(caught.value)


def test_layers_missing_and_superfluous(tiny: Architecture, random_weights: RandomWeights) -> None:
    weights = random_weights(tiny, 0)
    check_shapes(weights, tiny, "here")
    without = {name: array for name, array in weights.items() if name != "dense1/bias"}
    with pytest.raises(WeightsError, match=r"here, as weights of tiny: expected dense1/bias \(7,\); received nothing"):
        check_shapes(without, tiny, "here")
    with pytest.raises(WeightsError, match=r"here, as weights of tiny: .* received also dense9/bias \(2,\)"):
        check_shapes(weights | {"dense9/bias": np.zeros(2)}, tiny, "here")


def dense(**sizes: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of dense layers in the order in which safetensors keeps them: sorted by name."""
    weights = {f"{name}.weight": size for name, size in sizes.items()}
    biases = {f"{name}.bias": size[:1] for name, size in sizes.items()}
    return dict(sorted((weights | biases).items()))


DESIGN = dense(first=(8, 4), second=(8, 8), last=(2, 8))
WITH_TWINS = dense(first=(8, 8), second=(8, 8), last=(2, 8))


@pytest.mark.parametrize(
    ("received", "layers"),
    [
        ({f"module.{name}": shape for name, shape in DESIGN.items()}, ("module.first", "module.second", "module.last")),
        (dense(a=(2, 8), b=(8, 8), c=(8, 4)), ("c", "b", "a")),
        (dense(last=(8, 4), second=(8, 8), z=(2, 8)), ("last", "second", "z")),
    ],
    ids=["a prefix", "other names", "some names"],
)
def test_arrays_are_paired_by_names_or_else_by_shapes(
    received: dict[str, tuple[int, ...]], layers: tuple[str, ...]
) -> None:
    theirs = dict(zip(("first", "second", "last"), layers, strict=True))
    expected = {f"{ours}.{kind}": f"{theirs[ours]}.{kind}" for ours in theirs for kind in ("weight", "bias")}
    assert pair_arrays(received, DESIGN, "here") == expected
    assert pair_arrays(dict(reversed(received.items())), DESIGN, "here") == expected


@pytest.mark.parametrize(
    ("received", "expected", "message"),
    [
        (
            dense(a=(8, 8), b=(8, 8), c=(2, 8)),
            WITH_TWINS,
            r"expected first\.bias \(8,\), .*; received a\.bias \(8,\), .* do not tell which is which.*Or rename",
        ),
        (
            dense(first=(8, 8), b=(8, 8), last=(2, 8)),
            WITH_TWINS,
            r"expected second\.bias .*; received b\.bias \(8,\), b\.weight \(8, 8\)\. Name the network",
        ),
        (
            dense(first=(8, 8), second=(8, 4), last=(2, 8)),
            DESIGN,
            r"here: expected first\.weight \(8, 4\), second\.weight \(8, 8\); received first\.weight \(8, 8\), second",
        ),
        (
            {f"ema.{name}": shape for name, shape in DESIGN.items()} | DESIGN,
            DESIGN,
            r"expected the network's arrays alone, received also ema\.first\.bias \(8,\), ",
        ),
        (
            DESIGN | {"ema.first.weight": (8, 4)},
            DESIGN,
            r"expected the network's arrays alone, received also ema\.first\.weight \(8, 4\)\. Save",
        ),
        (dense(first=(8, 4), second=(8, 8)), DESIGN, r"expected last\.bias .*; received nothing\. Name the network"),
    ],
    ids=["two alike", "two alike and some names", "other shapes", "twice", "more", "fewer"],
)
def test_arrays_that_cannot_be_told_apart_are_listed(
    received: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(WeightsError, match=message):
        pair_arrays(received, expected, "here")


# Writing


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def replace(temporary: Path, _: Path) -> None:
        assert temporary.parent == path.parent  # else the renaming would not be atomic
        assert path.read_bytes() == b"old"
        raise error

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(type(error)):
        write_bytes_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
