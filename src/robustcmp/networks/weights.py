"""Trained weights in one canonical layout, kept in HDF5.

A weights file holds a group ``weights`` with one dataset an array, a group ``curves`` with one value an epoch or a
batch, and an attribute ``metadata``, a JSON object (recipe, versions, accuracy). Its first 512 bytes, which HDF5
leaves to the user, hold the SHA-256 of all that follow. No pickle, no code.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from .. import sealed
from ..errors import SealError, WeightsError
from ..files import digest, write_bytes_atomically
from .architecture import Architecture, Shape

Weights = dict[str, NDArray[np.float32]]
KIND = "weights"
LISTED = 8  # arrays in an error
BESIDE = 2**28  # bytes of a file that are no weights: curves with a value a batch, metadata, what HDF5 needs


@dataclass(frozen=True)
class WeightsFile:
    """What a weights file holds.

    Attributes
    ----------
    weights : dict of str to ndarray of float32
        The canonical weights, see `robustcmp.networks.architecture`.
    metadata : dict
        What made them: model, dataset, framework, recipe, training seed, versions, accuracy. JSON types only.
    curves : dict of str to ndarray
        One value an epoch: ``loss``, ``validation_accuracy``, ``learning_rate``, ``seconds``; and one a batch:
        ``batch_loss``, which older files lack.
    """

    weights: Weights
    metadata: dict[str, Any]
    curves: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The digest of the weights alone: two trainings that ended alike have the same."""
        return digest(self.weights)


def write_weights(path: Path, content: WeightsFile) -> None:
    """Write a weights file; it appears whole or not at all."""

    def write(file: h5py.File) -> None:
        for group, arrays in (("weights", content.weights), ("curves", content.curves)):
            target = file.create_group(group)
            for name, array in arrays.items():
                target.create_dataset(name, data=array, track_times=False)
        file.attrs["metadata"] = json.dumps(content.metadata, sort_keys=True)

    write_bytes_atomically(path, sealed.hdf5(KIND, write))


def most_bytes(architecture: Architecture | None) -> int:
    """Return how many bytes a weights file of a network has at the most."""
    if architecture is None:
        return sealed.LARGEST
    return BESIDE + 2 * 4 * sum(map(math.prod, architecture.weight_shapes.values()))


def read_weights(path: Path, architecture: Architecture | None = None, most: int | None = None) -> WeightsFile:
    """Read a weights file and check it.

    Parameters
    ----------
    path : Path
        The file.
    architecture : Architecture, optional
        The network that the weights are for; names and shapes must fit it.
    most : int, optional
        How many bytes the file may have (default: what those of the network can have).

    Raises
    ------
    WeightsError
        The file is missing, is no HDF5, is truncated, has other bytes than its SHA-256 says, or has the weights of
        another network.
    """
    try:
        with sealed.open_hdf5(path, KIND, limit=most or most_bytes(architecture)) as file:
            file.check_plain(file.arrays)
            if architecture is not None:  # before any array is read: a small file can declare large ones
                check_shapes(_group(file, "weights"), architecture, str(path))
            weights = {name: file.array(f"weights/{name}", np.float32) for name in _group(file, "weights")}
            curves = {name: file.array(f"curves/{name}", np.float64) for name in _group(file, "curves")}
            metadata: dict[str, Any] = json.loads(file.attribute("metadata"))
    except FileNotFoundError:
        raise WeightsError(f"no weights file at {path}") from None
    except SealError as error:
        raise WeightsError(
            f"{path} is not a weights file of robustcmp, or it is broken ({error}). "
            "Delete it and train again, or copy it again."
        ) from None
    if architecture is not None:
        trained = metadata.get("architecture", architecture.description)
        if trained != architecture.description:
            raise WeightsError(
                f"{path} belongs to another network named {architecture.name}, with the layers {trained}. "
                "Rename the file of one of the two networks."
            )
    return WeightsFile(weights, metadata, curves)


def is_sealed(path: Path) -> bool:
    """Say whether a file begins as our weights files do."""
    return sealed.is_sealed(path, KIND)


def _group(file: sealed.Hdf5, group: str) -> dict[str, h5py.Dataset]:
    """Return the arrays of a group by their names in it."""
    prefix = f"{group}/"
    return {name.removeprefix(prefix): array for name, array in file.arrays.items() if name.startswith(prefix)}


def check_shapes(weights: Mapping[str, NDArray[Any] | h5py.Dataset], architecture: Architecture, source: str) -> None:
    """Raise `WeightsError` unless names and shapes are those of the architecture."""
    shapes = {name: tuple(array.shape) for name, array in weights.items()}
    if shapes != architecture.weight_shapes:
        raise _unfit(shapes, architecture.weight_shapes, f"{source}, as weights of {architecture.name}")


def check_finite(weights: Mapping[str, NDArray[Any]], source: str) -> None:
    """Raise `WeightsError` for weights that are not finite: no network with them has an answer."""
    for name, array in weights.items():
        if not np.isfinite(array).all():
            raise WeightsError(f"{source}: {name} has NaN or infinite values. Train again, or save an earlier state.")


def pair_arrays(received: Mapping[str, Shape], expected: Mapping[str, Shape], source: str) -> dict[str, str]:
    """Return which of a file's arrays belongs to which of a network's.

    Names decide where the file has all of the network's, but for a prefix (``module.``); else shapes, where they allow
    one assignment alone. The order of a file decides nothing: some formats sort by name.

    Raises
    ------
    WeightsError
        The file has other shapes or more arrays, or neither names nor shapes tell which is which.
    """
    names = _without_prefix(received, expected)
    shapes = {short: received[name] for short, name in names.items()}
    if shapes == expected:
        return {name: names[name] for name in expected}
    if not expected.keys() <= shapes.keys():
        for described in (_by_layer, lambda shapes: {shape: name for name, shape in shapes.items()}):
            ours = described(expected)
            theirs = described(received)
            if ours.keys() == theirs.keys() and len(ours) == len(expected) and len(theirs) == len(received):
                return {name: theirs[key] for key, name in ours.items()}
    raise _unfit(shapes, expected, source)


def _without_prefix(received: Collection[str], expected: Collection[str]) -> dict[str, str]:
    """Return a file's names by what is left without the prefix of most of the expected ones, if they stay distinct."""
    prefixes = Counter(
        theirs.removesuffix(ours) for theirs in received for ours in expected if f".{theirs}".endswith(f".{ours}")
    )
    prefix = prefixes.most_common(1)[0][0] if prefixes else ""
    short = {name.removeprefix(prefix): name for name in received}
    return short if len(short) == len(received) else {name: name for name in received}


def _by_layer(shapes: Mapping[str, Shape]) -> dict[Any, str]:
    """Return names by their last part, such as ``weight``, and all shapes of the layer."""
    layers: defaultdict[str, set[tuple[str, Shape]]] = defaultdict(set)
    for name, shape in shapes.items():
        layer, _, kind = name.rpartition(".")
        layers[layer].add((kind, shape))
    return {(name.rpartition(".")[2], frozenset(layers[name.rpartition(".")[0]])): name for name in shapes}


def _unfit(received: Mapping[str, Shape], expected: Mapping[str, Shape], source: str) -> WeightsError:
    """Return the error that lists what only a file has, and what only its network has."""
    surplus = {name: shape for name, shape in received.items() if expected.get(name) != shape}
    missing = {name: shape for name, shape in expected.items() if received.get(name) != shape}
    if not missing:
        return WeightsError(
            f"{source}: expected the network's arrays alone, received also {_list_shapes(surplus)}. Save the "
            "weights of the network alone; or name the network that has these, too, such as your own code that makes "
            "it, module:function."
        )
    reason = ""
    if len({*missing.values()}) < len(missing) and sorted(surplus.values()) == sorted(missing.values()):
        reason = "The names differ, and the shapes do not tell which is which. "
    return WeightsError(
        f"{source}: expected {_list_shapes(missing)}; received {_list_shapes(surplus)}. {reason}Name the network "
        "that has these arrays: an architecture, or your own code that makes it, module:function. Or rename those of "
        "the file."
    )


def _list_shapes(shapes: Mapping[str, Shape]) -> str:
    """Return arrays as text, the first of many."""
    first = [f"{name} {shape}" for name, shape in [*shapes.items()][:LISTED]]
    if len(shapes) > LISTED:
        first.append(f"and {len(shapes) - LISTED} more")
    return ", ".join(first) or "nothing"
