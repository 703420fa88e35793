"""How much memory the chunks of an HDF5 array take when they are unpacked.

HDF5 reads a whole chunk for one value of it, unpacks whatever its stream holds, however long the chunk should be, and
lets a filter stand in the pipeline more than once: of gzip twice, 7 KB can become 2 GiB. So all three are checked
before a value is read.
"""

from __future__ import annotations

import math
import zlib

import h5py

from .errors import SealError

DEFLATED = 1032  # times that DEFLATE can shrink bytes at the most
LARGEST = 2**20  # bytes of a chunk of an array that has room to grow, as h5py makes them
LEAST = 2**26  # bytes that any chunk may become, so that most need not be looked into
FILTERS = {h5py.h5z.FILTER_DEFLATE: "gzip", h5py.h5z.FILTER_SHUFFLE: "shuffle"}


def check_chunks(name: str, array: h5py.Dataset) -> None:
    """Check that the chunks of an array hold what they declare, and declare no more than the array.

    Parameters
    ----------
    name : str
        What it is called in errors.
    array : h5py.Dataset
        Any array, none of whose values is read.

    Raises
    ------
    SealError
        A chunk would take more memory than it should, or the array has other filters than gzip and shuffle, once each.
    """
    if array.chunks is None:  # nor has it filters, which are for chunks
        return
    made = array.id.get_create_plist()
    filters = [made.get_filter(place)[0] for place in range(made.get_nfilters())]
    if len({*filters}) < len(filters) or not {*filters} <= FILTERS.keys():
        said = ", ".join(FILTERS.get(number, str(number)) for number in filters)
        raise SealError(f"{name} is stored with the filters {said}, expected gzip and shuffle alone, once each")
    declared = math.prod(array.chunks) * array.dtype.itemsize
    if declared > max(LARGEST, array.nbytes):
        raise SealError(f"{name} has {array.nbytes:,} bytes in chunks of {declared:,} each")
    if h5py.h5z.FILTER_DEFLATE not in filters:
        return
    skipped = 1 << filters.index(h5py.h5z.FILTER_DEFLATE)  # in a chunk's mask, where gzip did not make it smaller
    large: list[tuple[int, ...]] = []

    def look(chunk: h5py.h5d.StoreInfo) -> None:
        if not chunk.filter_mask & skipped and chunk.size * DEFLATED > LEAST + declared:
            large.append(chunk.chunk_offset)

    array.id.chunk_iter(look)
    for place in large:
        _, packed = array.id.read_direct_chunk(place)
        try:
            unpacked = zlib.decompressobj().decompress(packed, declared + 1)
        except zlib.error as error:
            raise SealError(f"{name} has a chunk that is not of gzip: {error}") from None
        if len(unpacked) > declared:
            raise SealError(f"{name} has a chunk of more than the {declared:,} bytes that it declares")
