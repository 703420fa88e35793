"""Files from elsewhere: what shows other files, unpacks to more than it is, or crashes what opens it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from robustcmp import sealed
from robustcmp.errors import DeploymentError, SealError, WeightsError
from robustcmp.untrusted import _check_chunks, check_answers, check_hdf5

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
