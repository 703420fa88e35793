"""A run on disk: a manifest, one small HDF5 file a finished cell, and all results in one file.

``manifest.json`` says what was asked for and with what; ``cells/KEY.h5`` is one cell; ``results.h5`` holds a value an
image of every cell that was asked for last, for xarray or h5py; ``costs.jsonl`` logs what each task cost. No pickle
anywhere. A file appears whole or not at all, and the log line by line, so a run can be killed at any moment.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ..errors import StoreError, UsageError, nearest
from ..files import make_directory, write_atomically, write_text_atomically
from . import format_1
from .attack import OWN_NAMES
from .cell import AttackResult, Cell, Extras
from .costs import Cost, log, logged
from .manifest import FORMAT, is_known, upgraded

if TYPE_CHECKING:
    import xarray


COORDS = ("label",)  # beside those that are named as their dimensions


class Run:
    """The directory of a run."""

    def __init__(self, directory: str | os.PathLike[str], keep_images: bool = True):
        self.directory = Path(directory)
        self._keep_images = keep_images
        self.temporary = False  # whether the directory goes with this object

    @classmethod
    def create(cls, directory: str | os.PathLike[str] | None, keep_images: bool = True) -> Run:
        """Return the run in a directory, made if it is not there; in one that goes with the run for None.

        Raises
        ------
        UsageError
            The directory cannot be written, or holds something that is no run.
        """
        run = cls(tempfile.mkdtemp(prefix="robustcmp-") if directory is None else directory, keep_images)
        if directory is None:
            run.temporary = True
            weakref.finalize(run, shutil.rmtree, run.directory, ignore_errors=True)
        make_directory(run.directory)
        if not run._manifest_path.exists() and not all(_is_temporary(path) for path in run.directory.iterdir()):
            raise UsageError(f"{run.directory} is not empty and is not a run of robustcmp. Name another directory.")
        if run._manifest_path.exists():
            run.manifest()  # a broken one is found before any work
        run._remove_left_over()
        return run

    def _remove_left_over(self) -> None:
        """Remove what sessions that were killed while they wrote have left."""
        for path in [*self.directory.glob(".*.tmp"), *self.directory.glob("cells/.*.tmp")]:
            pid = path.name.split(".")[-2]
            if pid.isdigit() and int(pid) != os.getpid() and not _is_alive(int(pid)):
                path.unlink(missing_ok=True)

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Run:
        """Return the finished run in a directory.

        Raises
        ------
        UsageError
            The directory is no run, or its results are not there yet.
        """
        run = cls(directory)
        if not run._manifest_path.exists():
            raise UsageError(
                f"{run.directory} is not a run of robustcmp: it has no manifest.json{_hint(run.directory)}"
            )
        if not run.has_results:
            raise UsageError(run._interrupted)
        return run

    @property
    def has_results(self) -> bool:
        """Whether it was finished once."""
        return self._results_path.exists()

    @property
    def _manifest_path(self) -> Path:
        return self.directory / "manifest.json"

    @property
    def _results_path(self) -> Path:
        return self.directory / "results.h5"

    # the manifest ------------------------------------------------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """Return what was asked for last, in today's format, or an empty dict if nothing was yet."""
        if not self._manifest_path.exists():
            return {}
        try:
            manifest: dict[str, Any] = json.loads(self._manifest_path.read_text(encoding="utf-8"))
            if not is_known(manifest):
                raise UsageError(f"{self._manifest_path}: expected {FORMAT!r}, received {manifest['format']!r}")
            return upgraded(manifest)
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"{self._manifest_path} is not the manifest of a run: {error!r}") from None

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, unless it is there already word for word."""
        text = json.dumps({"format": FORMAT} | manifest, indent=1, sort_keys=True) + "\n"
        if not self._manifest_path.exists() or self._manifest_path.read_text(encoding="utf-8") != text:
            write_text_atomically(self._manifest_path, text)

    # cells -------------------------------------------------------------------------------------------------------

    def _cell_path(self, key: str) -> Path:
        return self.directory / "cells" / f"{key}.h5"

    def __contains__(self, key: str) -> bool:
        return self._cell_path(key).exists()

    def save(self, cell: Cell, result: AttackResult) -> None:
        """Write a finished cell."""

        def write(path: Path) -> None:
            with h5py.File(path, "w") as file:
                for name in OWN_NAMES:
                    file.create_dataset(name, data=getattr(result, name), track_times=False)
                for name, values in result.extras.items():
                    file.create_dataset(f"extras/{name}", data=values, track_times=False)
                if self._keep_images:
                    file.create_dataset(
                        "adversarials",
                        data=result.adversarials.astype(np.float32),
                        compression="gzip",
                        compression_opts=4,
                        shuffle=True,
                        track_times=False,
                    )
                file.attrs.update(
                    model=cell.model, training_seed=cell.training_seed, attack=cell.attack, repeat=cell.repeat
                )

        write_atomically(self._cell_path(cell.key), write)

    def adopt(self, key: str, other: str) -> None:
        """Let a finished cell also be known under another key. It is the same file, so it takes no space.

        Raises
        ------
        StoreError
            The cell's file is broken.
        """
        self.load(other)
        path, known = self._cell_path(key), self._cell_path(other)
        try:
            os.link(known, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            write_atomically(path, lambda temporary: shutil.copyfile(known, temporary))

    def load(self, key: str) -> dict[str, NDArray[Any]]:
        """Return a cell's arrays by name, extras as ``extras/NAME``, without the adversarial images.

        Raises
        ------
        StoreError
            The cell's file is broken.
        """
        path = self._cell_path(key)
        try:
            with h5py.File(path, "r") as file:
                arrays = {name: file[name][()] for name in OWN_NAMES}
                extras = file.get("extras", {})
                return arrays | {f"extras/{name}": extras[name][()] for name in extras}
        except (OSError, KeyError) as error:
            raise self._broken_cell(key, error) from None

    def extras(self, key: str) -> Extras:
        """Return what only a cell's attack has.

        Raises
        ------
        StoreError
            The cell's file is broken.
        """
        arrays = self.load(key).items()
        return {name.removeprefix("extras/"): values for name, values in arrays if name.startswith("extras/")}

    def _broken_cell(self, key: str, error: Exception) -> StoreError:
        return StoreError(
            f"{self._cell_path(key)} is broken ({error}). Delete it, and rerun the same command to recreate it."
        )

    def has_images(self, key: str) -> bool:
        """Whether a cell was stored with its adversarial images."""
        if key not in self:
            return False
        try:
            with h5py.File(self._cell_path(key), "r") as file:
                return "adversarials" in file
        except OSError as error:
            raise self._broken_cell(key, error) from None

    def adversarials(self, key: str) -> NDArray[np.float32]:
        """Return a cell's adversarial images (N, H, W, C), the clean ones where the attack failed.

        Raises
        ------
        StoreError
            The cell was stored without images, or its file is gone or broken.
        """
        path = self._cell_path(key)
        try:
            with h5py.File(path, "r") as file:
                if "adversarials" not in file:
                    raise StoreError(
                        f"{path} was stored without images. Delete it, and rerun with keep_images=True.",
                        parameters=["keep_images"],
                    )
                images: NDArray[np.float32] = file["adversarials"][()]
                return images
        except FileNotFoundError:
            raise StoreError(f"{path} is missing. Rerun the same command to recreate it.") from None
        except OSError as error:
            raise self._broken_cell(key, error) from None

    # arrays beside the cells ---------------------------------------------------------------------------------------

    def write_arrays(self, name: str, answers: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write `NAME.h5` with the question that its arrays belong to."""

        def write(path: Path) -> None:
            with h5py.File(path, "w") as file:
                for array_name, values in arrays.items():
                    options = {"compression": "gzip", "compression_opts": 4, "shuffle": True, "track_times": False}
                    file.create_dataset(array_name, data=values, **options)
                file.attrs["answers"] = answers

        write_atomically(self.directory / f"{name}.h5", write)

    def read_arrays(self, name: str, answers: str) -> dict[str, NDArray[Any]] | None:
        """Return what `write_arrays` wrote, or None if there is nothing, or it belongs to another question."""
        try:
            with h5py.File(self.directory / f"{name}.h5", "r") as file:
                if file.attrs["answers"] != answers:
                    return None
                return {array_name: values[()] for array_name, values in file.items()}
        except (OSError, KeyError):
            return None  # they are written anew

    def write_clean(self, answers: str, images: NDArray[np.float32]) -> None:
        """Write the clean images (N, H, W, C) that were attacked, with the question that they belong to.

        Nothing is written where they are there already, or adversarial images are not kept either.
        """
        if self._keep_images and self.read_clean(answers) is None:
            self.write_arrays("clean", answers, {"images": images.astype(np.float32)})

    def read_clean(self, answers: str) -> NDArray[np.float32] | None:
        """Return the clean images, or None if there are none, or they belong to another question."""
        return (self.read_arrays("clean", answers) or {}).get("images")

    # costs -------------------------------------------------------------------------------------------------------

    def log_cost(self, cost: Cost) -> None:
        """Add what a task cost to the log."""
        log(self._costs_path, cost)

    def costs(self) -> list[Cost]:
        """Return what the tasks of all sessions and questions cost; nothing of those before costs were logged."""
        return list(logged(self._costs_path))

    @property
    def _costs_path(self) -> Path:
        return self.directory / "costs.jsonl"

    # results -----------------------------------------------------------------------------------------------------

    def write_results(self, results: xarray.Dataset, manifest: dict[str, Any]) -> None:
        """Write `results.h5` with the manifest that it answers, unless the same is there already."""
        path = self._results_path
        content = results.assign_attrs(manifest=json.dumps({"format": FORMAT} | manifest, sort_keys=True))
        if path.exists():
            try:
                if self._load().identical(content):
                    return
            except StoreError:
                pass  # it is written anew
        write_atomically(path, lambda temporary: _write_netcdf(temporary, content))

    def read_results(self) -> tuple[xarray.Dataset, dict[str, Any]]:
        """Return what `write_results` wrote.

        Raises
        ------
        UsageError
            The run was asked another question since, and interrupted before that was answered.
        StoreError
            The file is broken.
        """
        content = self._load()
        try:
            manifest: dict[str, Any] = json.loads(content.attrs.pop("manifest"))
        except (KeyError, TypeError, ValueError) as error:
            raise self._broken_results(error) from None
        asked = self.manifest()
        if upgraded({"format": format_1.FORMAT} | manifest) != asked:
            raise UsageError(self._interrupted)
        return content, asked

    def write_answer(self, name: str, answers: str, content: dict[str, Any]) -> None:
        """Write `NAME.json`, with what it is an answer to."""
        text = json.dumps({"answers": answers, name: content}, indent=1) + "\n"
        write_text_atomically(self.directory / f"{name}.json", text)

    def read_answer(self, name: str, answers: str) -> dict[str, Any] | None:
        """Return what `write_answer` wrote, or None if there is nothing, or it answers something else."""
        try:
            content = json.loads((self.directory / f"{name}.json").read_text(encoding="utf-8"))
            answer: dict[str, Any] = content[name]
            return answer if content["answers"] == answers else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # it is made anew

    def _load(self) -> xarray.Dataset:
        try:
            return _read_netcdf(self._results_path)
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
            raise self._broken_results(error) from None

    def _broken_results(self, error: Exception) -> StoreError:
        return StoreError(
            f"{self._results_path} is broken ({error!r}). Delete it, and rerun the same command to "
            "recreate it from the cells."
        )

    @property
    def _interrupted(self) -> str:
        return (
            f"the run {self.directory} was interrupted before its results were complete. "
            "Rerun the same command, or the same call of robustcmp.evaluate, to resume it."
        )


def runs_in(directory: str | os.PathLike[str]) -> list[Run]:
    """Return the runs that lie side by side in a directory, finished or not; none where it is no directory."""
    return [Run(path.parent) for path in sorted(Path(directory).glob("*/manifest.json"))]


def _hint(directory: Path) -> str:
    """Return what was probably meant by a directory that is no run: one in it, or one beside it."""
    inside, beside = (runs_in(place) for place in (directory, directory.parent))
    if inside:
        return f". It holds runs: {', '.join(str(run.directory) for run in inside)}"
    near = nearest(directory.name, [run.directory.name for run in beside])
    return f". Did you mean {directory.with_name(near)}?" if near else ""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _is_temporary(path: Path) -> bool:
    """Whether a file is what a session that was killed before its manifest was written may have left."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def _read_netcdf(path: Path) -> xarray.Dataset:
    """Read what `_write_netcdf` wrote, as `xarray.load_dataset` does in five times the time."""
    import xarray

    variables: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        for name, item in file.items():
            if item.attrs.get("NAME", b"").startswith(b"This is a netCDF dimension but not"):
                continue
            values = item.asstr()[()].astype(str) if h5py.check_string_dtype(item.dtype) else item[()]
            if item.attrs.get("dtype") == "bool":
                values = values.astype(np.bool_)
            dims = (
                [name] if item.is_scale else [item.dims[axis][0].name.rpartition("/")[2] for axis in range(item.ndim)]
            )
            (coords if dims == [name] or name in COORDS else variables)[name] = (dims, values)
        attrs = {"manifest": file.attrs["manifest"]}
    return xarray.Dataset(variables, coords, attrs)


def _write_netcdf(path: Path, content: xarray.Dataset) -> None:
    import h5netcdf  # type: ignore[import-untyped, unused-ignore]
    from xarray.backends import H5NetCDFStore

    # With its order tracked, as `to_netcdf` has it, a file also holds the time at which it was written.
    with h5netcdf.File(path, "w", track_order=False) as file:
        per_image = [name for name, variable in content.data_vars.items() if "image" in variable.dims]
        compressed = {name: {"zlib": True, "complevel": 4, "shuffle": True} for name in per_image}
        content.dump_to_store(H5NetCDFStore(file), encoding=compressed)
