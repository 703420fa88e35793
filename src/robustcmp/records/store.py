"""A run on disk: a manifest, one small HDF5 file a finished cell, and all results in one file.

``manifest.json`` says what was asked for and with what; ``cells/KEY.h5`` is one cell; ``results.h5`` holds a value an
image of every cell that was asked for last, for xarray or h5py; ``costs.jsonl`` logs what each task cost. No pickle
anywhere. A file appears whole or not at all, and the log line by line, so a run can be killed at any moment. Every file
is sealed, see `robustcmp.sealed`.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import h5py
import msgspec
import numpy as np
from numpy.typing import NDArray

from .. import sealed
from ..errors import LOG, SealError, StoreError, UsageError
from ..files import (
    append_line,
    as_path,
    json_digest,
    make_directory,
    remove_left_over,
    sole_writer,
    write_bytes_atomically,
)
from ..limits import LAYER_VALUES
from . import results_file
from .attack import OWN_NAMES, OWN_TYPES, AttackResult, Cell
from .manifest import FORMAT, attack_records, check

COMPRESSED = {"compression": "gzip", "compression_opts": 4, "shuffle": True}

T = TypeVar("T")


class Cost(msgspec.Struct, frozen=True):
    """What a task cost: one model under one attack, in the repeats that were finished together in one session.

    Attributes
    ----------
    model, training_seed, attack
        What was attacked, and with what.
    cells : list of str
        The keys of the cells that were finished, one for each repeat.
    images : int
        How many images were attacked in each repeat.
    seconds : float
        From the start of the task to the end of the last of these cells.
    queries : int, optional
        What the attack's definition asked in all of these cells, as in `AttackResult.queries`; None if the attack does
        not count.
    worker : str, optional
        Who did it, None for the process of the comparison itself.
    """

    model: str
    training_seed: int
    attack: str
    cells: list[str]
    images: int
    seconds: float
    queries: int | None = None
    worker: str | None = None


class Run:
    """The directory of a run."""

    def __init__(self, directory: str | os.PathLike[str], keep_images: bool = True):
        self.directory = as_path(directory, "out")
        self.costs_path = self.directory / "costs.jsonl"
        self._manifest_path = self.directory / "manifest.json"
        self._cells = self.directory / "cells"
        self._results_path = self.directory / "results.h5"
        self.keep_images = keep_images
        self._made = False  # whether the directory was not there before
        self.temporary = False  # whether the directory goes with this object
        self._keys: dict[str, int] = {}  # of the cells that it lists, with their numbers of images
        self._axes: dict[str, dict[str, int]] = {}  # of the same cells: how many each of their extras has
        self._question = ""  # what tells its outcomes from those of another question in the same directory

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
        run._made = not run.directory.exists()
        make_directory(run.directory)
        if any(run.directory.glob("[!.]*")) and not run.is_there:
            raise UsageError(f"{run.directory} is not empty and is not a run of robustcmp. Name another directory.")
        run.manifest()  # a broken one is found before any work
        return run

    @contextmanager
    def lock(self) -> Iterator[Run]:
        """Be the only one who writes the run.

        Raises
        ------
        StoreError
            Another process, or another thread of this one, is writing it.
        """
        if self.temporary:
            yield self
            return
        try:
            with sole_writer(self.directory):
                for directory in (self.directory, self._cells):
                    remove_left_over(directory)
                yield self
        finally:
            if self._made:
                with suppress(OSError):  # it is not empty
                    self.directory.rmdir()

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Run:
        """Return the finished run in a directory.

        Raises
        ------
        UsageError
            The directory is no run, or its results are not there yet.
        """
        run = cls(directory)
        if run.has_results:
            return run
        if run.manifest():
            raise UsageError(run._resume_hint)
        raise UsageError(f"{run.directory} is not a run of robustcmp: it has no manifest.json. See robustcmp list runs")

    @property
    def is_there(self) -> bool:
        """Whether the directory has what a run has, with or without its manifest."""
        paths = (self._manifest_path, self._results_path)
        return any(path.exists() for path in paths) or any(self._cells.glob("*.h5"))

    @property
    def has_results(self) -> bool:
        """Whether it was finished once."""
        return self._results_path.exists()

    # the manifest ------------------------------------------------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """Return what was asked for last, or an empty dict if nothing was yet.

        Raises
        ------
        UsageError
            The file has a format that is not known.
        StoreError
            It is no manifest, or was changed after it was written.
        """
        path = self._manifest_path
        try:
            with sealed.seal_errors():
                manifest = sealed.read_json(path, "manifest")
                kind = str(manifest["format"])
                if kind == FORMAT:
                    check(manifest)
        except FileNotFoundError:
            return {}
        except SealError as error:
            raise StoreError(
                f"{path} is not the manifest of a run, or it is broken ({error}). Delete it, and rerun the same "
                "command: it finds its cells again."
            ) from None
        if kind.startswith("robustcmp benchmark"):
            raise UsageError(f"{self.directory} is a benchmark, not a run: open it with robustcmp.open_benchmark")
        if kind != FORMAT:
            raise UsageError(f"{path}: expected {FORMAT!r}, received {kind!r}")
        self._know(manifest)
        return manifest

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, unless it is there already word for word."""
        content = {"format": FORMAT} | manifest
        text = sealed.to_json("manifest", content, sort_keys=True).encode()
        if not self._manifest_path.exists() or sealed.read_bytes(self._manifest_path) != text:
            write_bytes_atomically(self._manifest_path, text)
        self._know(content)

    def _know(self, manifest: dict[str, Any]) -> None:
        """Keep what a manifest says that is needed for each cell."""
        self._question = json_digest({"cells": manifest["cells"]})
        self._keys = dict.fromkeys((cell["key"] for cell in manifest["cells"]), manifest["images"]["used"])
        axes = {
            attack: {name: 1 + len(extra.dims) for name, extra in record.extras.items() if extra.in_results}
            for attack, record in attack_records(manifest).items()
        }
        self._axes = {cell["key"]: axes[cell["attack"]] for cell in manifest["cells"]}

    # cells -------------------------------------------------------------------------------------------------------

    def cell_path(self, key: str) -> Path:
        """Return where a cell is kept."""
        return self._cells / f"{key}.h5"

    def list_keys(self) -> list[str]:
        """Return the keys of all cells that there are, of this question and of others, sorted."""
        return sorted(path.stem for path in self._cells.glob("*.h5"))

    def __contains__(self, key: str) -> bool:
        return self.cell_path(key).exists()

    def save(self, cell: Cell, result: AttackResult) -> None:
        """Write a finished cell.

        Raises
        ------
        StoreError
            The result is none of so many images.
        DiskError
            There is no room for it.
        """
        arrays = {name: np.asarray(getattr(result, name)) for name in OWN_NAMES}
        arrays |= {f"extras/{name}": np.asarray(values) for name, values in result.extras.items()}
        images = result.adversarials.astype(np.float32) if self.keep_images else None

        def write(file: h5py.File) -> None:
            for name, values in arrays.items():
                typed = values.astype(OWN_TYPES[name], casting="same_kind") if name in OWN_TYPES else values
                file.create_dataset(name, data=typed, track_times=False)
            if images is not None:
                file.create_dataset("adversarials", data=images, track_times=False, **COMPRESSED)
            file.attrs.update(asdict(cell))

        content = sealed.hdf5(_kind(cell.key), write)
        try:
            with sealed.from_bytes(content, _kind(cell.key)) as file:
                known_arrays = self._read_cell(file, cell.key)
                if images is not None:
                    _check_images(file, "adversarials", len(known_arrays["success"]))
        except SealError as error:
            raise StoreError(f"the result of {cell.attack} on {cell.model} cannot be stored: {error}.") from None
        write_bytes_atomically(self.cell_path(cell.key), content)

    @contextmanager
    def cell(self, key: str) -> Iterator[sealed.Hdf5]:
        """Open a cell's file.

        Raises
        ------
        StoreError
            It is missing or broken.
        """
        path = self.cell_path(key)
        try:
            with sealed.open_hdf5(path, _kind(key)) as file:
                yield file
        except FileNotFoundError:
            raise StoreError(f"{path} is missing. Rerun the same command to recreate it.") from None
        except SealError as error:
            raise StoreError(
                f"{path} is broken ({error}). Delete it, and rerun the same command to recreate it."
            ) from None

    def _read_cell(self, file: sealed.Hdf5, key: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of an open cell, but for the adversarial images, of as many images as they should be."""
        success = file.array("success", OWN_TYPES["success"])
        images = self._keys.get(key, success.size)
        arrays = {name: file.array(name, dtype, (images,)) for name, dtype in OWN_TYPES.items()}
        extras = [name for name in file.arrays if name.startswith("extras/")]
        file.check_plain([*OWN_TYPES, *extras])
        arrays |= {name: file.array(name, None, (images, ...)) for name in extras}
        for name, axes in self._axes.get(key, {}).items():
            received = arrays.get(f"extras/{name}")
            if received is not None and received.ndim != axes:
                raise SealError(f"extras/{name} should have {axes} axes, received the shape {received.shape}")
        return arrays

    def load(self, key: str) -> dict[str, NDArray[Any]]:
        """Return a cell's arrays by name, extras as ``extras/NAME``, without the adversarial images.

        Raises
        ------
        StoreError
            The cell's file is missing or broken.
        """
        with self.cell(key) as file:
            return self._read_cell(file, key)

    def has_images(self, key: str) -> bool:
        """Whether a cell was stored with its adversarial images."""
        if key not in self:
            return False
        with self.cell(key) as file:
            return "adversarials" in file.arrays

    def adversarials(self, key: str) -> NDArray[np.float32]:
        """Return a cell's adversarial images (N, H, W, C), the clean ones where the attack failed.

        Raises
        ------
        StoreError
            The cell was stored without images, or its file is missing or broken.
        """
        with self.cell(key) as file:
            if "adversarials" not in file.arrays:
                raise StoreError(
                    f"{self.cell_path(key)} was stored without images. Delete it, and rerun with keep_images=True.",
                    parameters=["keep_images"],
                )
            _check_images(file, "adversarials", len(self._read_cell(file, key)["success"]))
            return file.array("adversarials")

    # arrays beside the cells ---------------------------------------------------------------------------------------

    def write_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write `NAME.h5` with the question that its arrays belong to."""

        def write(file: h5py.File) -> None:
            for array_name, values in arrays.items():
                file.create_dataset(array_name, data=values, track_times=False, **COMPRESSED)
            file.attrs["answers"] = self._question

        write_bytes_atomically(self.directory / f"{name}.h5", sealed.hdf5(name, write))

    def read_arrays(self, name: str, read: Callable[[sealed.Hdf5], T], limit: int = sealed.LARGEST) -> T | None:
        """Return what `read` makes of what `write_arrays` wrote, once it has checked what the file declares.

        None if there is nothing, or it belongs to another question. A file of more than `limit` bytes is broken.

        Raises
        ------
        StoreError
            The file is broken.
        """
        path = self.directory / f"{name}.h5"
        try:
            with sealed.open_hdf5(path, name, limit=limit) as file:
                if file.attribute("answers") != self._question:
                    return None
                return read(file)
        except FileNotFoundError:
            return None
        except SealError as error:
            raise _answer_error(path, error) from None

    def write_clean(self, images: NDArray[np.float32]) -> None:
        """Write the clean images (N, H, W, C) that were attacked, with the question that they belong to.

        Nothing is written where they are there already, or adversarial images are not kept either.
        """
        if self.keep_images and self.read_clean() is None:
            self.write_arrays("clean", {"images": images.astype(np.float32)})

    def read_clean(self) -> NDArray[np.float32] | None:
        """Return the clean images, or None if there are none, or they belong to another question.

        Raises
        ------
        StoreError
            The file is broken.
        """
        return self.read_arrays("clean", self._clean)

    def _clean(self, file: sealed.Hdf5) -> NDArray[np.float32]:
        """Return the clean images of their file, or raise `SealError` if they are none, before they are read."""
        file.check_names(["images"])
        stored = len(file.arrays["images"]) if file.arrays["images"].ndim else 0
        _check_images(file, "images", next(iter(self._keys.values()), stored))
        return file.array("images")

    # costs -------------------------------------------------------------------------------------------------------

    def log_cost(self, cost: Cost) -> None:
        """Add what a task cost to the log, which is made if it is not there."""
        append_line(self.costs_path, sealed.to_json("cost", msgspec.to_builtins(cost), indent=None))

    def costs(self) -> list[Cost]:
        """Return what the tasks of all sessions and questions cost.

        Records that were changed are left out, with a warning.

        Raises
        ------
        StoreError
            The log cannot be read.
        """
        try:
            costs, broken = self.read_costs()
        except SealError as error:
            raise StoreError(f"{self.costs_path} cannot be read ({error}). Delete it: nothing depends on it.") from None
        if broken:
            LOG.warning("%s: %d lines are broken or were changed, and are left out", self.costs_path, broken)
        return costs

    def read_costs(self) -> tuple[list[Cost], int]:
        """Return the records of the log, none if there is no log, and how many lines are no records or were changed.

        The log describes the machine, not the answer, so no key and no other file depends on it. A last line without a
        line break is what a killed process left.
        """
        costs: list[Cost] = []
        broken = 0
        try:
            lines = sealed.read_bytes(self.costs_path, sealed.LARGEST_JSON).split(b"\n")[:-1]
        except FileNotFoundError:
            return costs, broken
        for line in filter(bytes.strip, lines):
            try:
                costs.append(msgspec.convert(sealed.from_json(line, "cost"), Cost))
            except (SealError, msgspec.ValidationError):
                broken += 1
        return costs, broken

    # results -----------------------------------------------------------------------------------------------------

    def write_results(self, arrays: results_file.Arrays, manifest: dict[str, Any]) -> None:
        """Write `results.h5` with the manifest that it answers, unless the same is there already."""
        content = sealed.hdf5("results", lambda file: results_file.write(file, arrays, {"format": FORMAT} | manifest))
        if not self.has_results or sealed.read_bytes(self._results_path) != content:
            write_bytes_atomically(self._results_path, content)

    def read_results(self) -> tuple[results_file.Arrays, dict[str, Any]]:
        """Return what `write_results` wrote.

        Raises
        ------
        UsageError
            The run was asked another question since, and interrupted before that was answered.
        StoreError
            The file is broken.
        """
        try:
            with sealed.open_hdf5(self._results_path, "results") as file:
                arrays, answered = results_file.read(file)
        except (FileNotFoundError, SealError) as error:
            raise StoreError(
                f"{self._results_path} is broken ({error}). Delete it, and rerun the same command to recreate it from "
                "the cells."
            ) from None
        manifest = self.manifest()
        if answered != manifest:
            raise UsageError(self._resume_hint)
        return arrays, manifest

    def write_answer(self, name: str, content: dict[str, Any]) -> None:
        """Write `NAME.json`, with what it is an answer to."""
        text = sealed.to_json(name, {"answers": self._question, name: content})
        write_bytes_atomically(self.directory / f"{name}.json", text.encode())

    def read_answer(self, name: str, read: Callable[[dict[str, Any]], T]) -> T | None:
        """Return what `read` makes of what `write_answer` wrote, None if there is nothing, or of something else.

        Raises
        ------
        StoreError
            The file is broken.
        """
        path = self.directory / f"{name}.json"
        try:
            with sealed.seal_errors():
                content = sealed.read_json(path, name)
                json.dumps(content, ensure_ascii=False).encode()  # half a surrogate pair is no text
                return read(content[name]) if content["answers"] == self._question else None
        except FileNotFoundError:
            return None
        except SealError as error:
            raise _answer_error(path, error) from None

    @property
    def _resume_hint(self) -> str:
        return (
            f"the run {self.directory} was interrupted before its results were complete. "
            "Rerun the same command, or the same call of robustcmp.evaluate, to resume it."
        )


def _check_images(file: sealed.Hdf5, name: str, count: int) -> None:
    """Raise `SealError` unless an array declares so many images, of a size that a network can take."""
    file.check(name, np.float32, (count, ...))
    shape = file.arrays[name].shape
    if len(shape) != 4 or math.prod(shape[1:]) > LAYER_VALUES:
        raise SealError(
            f"{name} should have the axes (images, height, width, channels) and at most {LAYER_VALUES:,} values an "
            f"image, received the shape {shape}"
        )


def _kind(key: str) -> str:
    """Return the kind of file that a cell is: of its own, so that no cell can take the place of another."""
    return f"cell {key}"


def _answer_error(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path} is broken ({error}). Delete it to read the run without it, and rerun what made it to recreate it."
    )
