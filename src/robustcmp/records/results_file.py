"""The file of all results: which arrays it has is known from the manifest in it, not from the file's own dimensions.

It is netCDF, so that xarray opens it. The HDF5 library ends the process on some dimensions that do not fit, which a
stranger can have sealed, so that they are never read: what every attack has and what its record declares say which
axes an array has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import sealed
from ..errors import SealError
from .attack import DIMS, OWN_NAMES, OWN_TYPES, AttackRecord, collect_extras
from .manifest import FORMAT, attack_records, check

if TYPE_CHECKING:
    import xarray

AXES = ("model", "training_seed", "attack", "repeat", "image", "epsilon")
INDEXES = ("training_seed", "repeat", "image")  # those that are integers
NUMBERS = "biuf"


# Variables and the axes that they are over, by their names.
Arrays = dict[str, NDArray[Any]]


def make_dataset(arrays: Arrays, records: Mapping[str, AttackRecord]) -> xarray.Dataset:
    """Return results with the names of their axes."""
    import xarray

    dims = {name: dims for name, (dims, _) in _list_arrays(records)}
    coords = {name: arrays[name] for name in AXES} | {"label": ("image", arrays["label"])}
    variables = {name: (dims[name], values) for name, values in arrays.items() if name in dims}
    return xarray.Dataset(variables, coords)


def write(file: h5py.File, arrays: Arrays, manifest: dict[str, Any]) -> None:
    """Write results, and the manifest that they answer, into an HDF5 file."""
    import h5netcdf  # type: ignore[import-untyped, unused-ignore]
    from xarray.backends import H5NetCDFStore

    # With its order tracked, as `to_netcdf` has it, a file also holds the time at which it was written.
    content = make_dataset(arrays, attack_records(manifest))
    content.attrs["manifest"] = json.dumps(manifest, sort_keys=True)
    with h5netcdf.File(file, "w", track_order=False) as netcdf:
        per_image = [name for name, variable in content.data_vars.items() if "image" in variable.dims]
        compressed = {name: {"zlib": True, "complevel": 4, "shuffle": True} for name in per_image}
        content.dump_to_store(H5NetCDFStore(netcdf), encoding=compressed)


def _read_manifest(file: sealed.Hdf5) -> dict[str, Any]:
    """Return the manifest that the results answer, checked.

    Raises
    ------
    SealError
        There is none, it has another format, or it contradicts itself.
    """
    with sealed.seal_errors():
        manifest: dict[str, Any] = json.loads(file.attribute("manifest"))
        if manifest["format"] != FORMAT:
            raise SealError(f"expected {FORMAT!r}, received {manifest['format']!r}")
        check(manifest)
        return manifest


def read(file: sealed.Hdf5) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays that `write` wrote, and their manifest.

    Raises
    ------
    SealError
        An array has other axes, another length or another type than the manifest in the file says.
    """
    manifest = _read_manifest(file)
    records = attack_records(manifest)
    axes: Arrays = {name: file.strings(name) for name in ("model", "attack")}
    axes |= {name: _vector(file, name, np.int64) for name in INDEXES}
    axes["epsilon"] = _vector(file, "epsilon", np.float64)
    _check_axes(axes, manifest)
    sizes = {name: len(values) for name, values in axes.items()}
    variables: Arrays = {}
    for name, (dims, dtype) in sorted(_list_arrays(records)):
        if name in file.arrays:
            variables[name] = _array(file, name, dims, dtype, sizes)
        elif name in (*OWN_NAMES, "ran", "repeats", "epsilon_curve"):
            raise SealError(f"{name} is missing")
    _check_ran(variables, axes, manifest, records)
    label = file.array("label", np.int64, (sizes["image"],))
    return axes | variables | {"label": label}, manifest


def _list_arrays(records: Mapping[str, AttackRecord]) -> Iterator[tuple[str, tuple[tuple[str, ...], DTypeLike | None]]]:
    """Yield the names of all arrays that results may have, with their axes and types; None for any numbers."""
    yield from ((name, (DIMS, dtype)) for name, dtype in OWN_TYPES.items())
    yield "ran", (DIMS[:3], np.bool_)
    yield "repeats", (("attack",), np.int64)
    yield "epsilon_curve", ((*DIMS[:3], "epsilon"), np.float64)
    yield "margin", (("model", "training_seed", "image"), np.float64)
    maps = {record.position_draws.vulnerable_map for record in records.values() if record.position_draws}
    for name, extra in collect_extras(records).items():
        if extra.in_results:
            dims = DIMS if extra.per_repeat else (*DIMS[:3], "image")
            dtype = np.uint8 if name in maps else np.float64 if extra.empty is None else None
            yield name, ((*dims, *extra.dims), dtype)


def _array(
    file: sealed.Hdf5, name: str, dims: tuple[str, ...], dtype: DTypeLike | None, sizes: dict[str, int]
) -> NDArray[Any]:
    """Return an array over some axes; the first one over an axis that only extras have says how long that is."""
    received = file.arrays[name].shape or ()
    if len(received) == len(dims):
        for dim, size in zip(dims, received, strict=True):
            sizes.setdefault(dim, size)
    shape = tuple(sizes.get(dim, 0) for dim in dims)
    is_bool = file.attribute("dtype", name) in ("bool", b"bool")
    if dtype == np.bool_ and not is_bool:
        raise SealError(f"{name} should be booleans, received {file.arrays[name].dtype}")
    values = file.array(name, np.int8 if is_bool else dtype, shape)
    return values.astype(np.bool_) if is_bool else values


def _vector(file: sealed.Hdf5, name: str, dtype: DTypeLike) -> NDArray[Any]:
    values = file.array(name, dtype)
    if values.ndim != 1:
        raise SealError(f"{name} should have one axis, received {values.shape}")
    return values


def _check_axes(axes: Arrays, manifest: dict[str, Any]) -> None:
    """Raise `SealError` unless the axes are those of the manifest."""
    models = manifest["models"]
    expected = {
        "model": list(dict.fromkeys(model["name"] for model in models)),
        "training_seed": sorted({model["training_seed"] for model in models}),
        "attack": sorted(manifest["suite"]["attacks"]),  # the manifest's order is not theirs
        "repeat": list(range(len(axes["repeat"]))),
    }
    for name, values in expected.items():
        received = axes[name].tolist()
        if (sorted(received) if name == "attack" else received) != values:
            raise SealError(f"expected {name} {values}, as in the manifest, received {received}")
    images = axes["image"]
    used = manifest["images"]["used"]
    of = manifest["images"]["of"]
    if len(images) != used or len(np.unique(images)) < used or (used and not 0 <= images.min() <= images.max() < of):
        raise SealError(
            f"image should list {used} different images of {of}, as in the manifest, received {len(images)}"
        )


def _check_ran(
    variables: Arrays,
    axes: Arrays,
    manifest: dict[str, Any],
    records: Mapping[str, AttackRecord],
) -> None:
    """Raise `SealError` unless what ran, and how often, are the manifest's cells, and all values of it are there."""
    ran = variables["ran"]
    repeats = variables["repeats"]
    if not 1 <= repeats.min() <= repeats.max() == len(axes["repeat"]):
        raise SealError(f"expected from 1 to {len(axes['repeat'])} repeats, received {repeats.tolist()}")
    models, seeds, attacks = (axes[name].tolist() for name in DIMS[:3])
    cells = Counter((cell["model"], cell["training_seed"], cell["attack"]) for cell in manifest["cells"])
    expected = np.zeros(ran.shape, np.int64)
    for (model, seed, attack), count in cells.items():
        expected[models.index(model), seeds.index(seed), attacks.index(attack)] = count
    each = np.where([records[attack].deterministic for attack in attacks], 1, repeats)
    if not np.array_equal(expected, ran * each):
        raise SealError("what ran, and how often, is not what the cells in the manifest are")
    for position, attack in enumerate(attacks):
        record = records[attack]
        used = [record.start, *(column.value for column in (record.table.columns if record.table else ()))]
        if missing := [name for name in used if name and name not in variables and ran[:, :, position].any()]:
            raise SealError(f"{', '.join(missing)} missing")
        draws = record.position_draws
        if draws and 0 < sum(n in variables for n in (draws.vulnerable, draws.positions, draws.vulnerable_map)) < 3:
            raise SealError(f"part of the positions of {attack} is missing")
