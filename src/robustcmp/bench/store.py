"""A benchmark on disk: a manifest, and one small file a finished measurement. No pickle anywhere.

``manifest.json`` says what was asked for and with what; ``measurements/KEY.json`` is one measurement. Every file is
sealed, see `robustcmp.sealed`, and appears whole or not at all, so a benchmark can be killed at any moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from .. import sealed
from ..errors import SealError, StoreError, UsageError
from ..files import as_path, make_directory, remove_left_over, sole_writer, write_bytes_atomically
from ..records.attack import CellKey
from .measurement import Asked, Measurement

Content = TypeVar("Content")


class Planned(msgspec.Struct, frozen=True):
    """A measurement that was asked for, and where it is kept."""

    asked: Asked
    key: CellKey


class Manifest(msgspec.Struct):
    """What a benchmark was asked for, and with what.

    Attributes
    ----------
    about : dict
        model, dataset, recipe, data (its digest), epochs, weights_of, training_seed, command: None where it does not
        apply.
    plan : list of Planned
        All measurements that were asked for last.
    seed : int
        Of the random order.
    failed : dict of str to str
        Why a measurement has none, by its key.
    control : dict of str to str
        What the same-weights control found, by subject: ``"passed"``, what differs, or for a quantised deployment how
        much it does.
    environment : dict
        Versions and hardware.
    not_applicable : dict of str to str
        Why a subject does not do a task, by ``"SUBJECT TASK"``.
    """

    format: Literal["robustcmp benchmark 1"]
    about: dict[str, Any]
    plan: list[Planned]
    seed: int
    failed: dict[str, str]
    control: dict[str, str]
    environment: dict[str, Any]
    not_applicable: dict[str, str] = {}


class BenchmarkStore:
    """The directory of a benchmark."""

    def __init__(self, directory: str | os.PathLike[str]):
        self.directory = as_path(directory, "out")
        self.manifest_path = self.directory / "manifest.json"

    @property
    def is_there(self) -> bool:
        """Whether the directory is that of a benchmark, whole or not."""
        return (self.directory / "measurements").is_dir()

    def find_broken(self) -> Iterator[tuple[Path, str]]:
        """Yield each file that is not as it was written, or is missing without a failure, and why."""
        manifest = self.manifest()
        for planned in manifest.plan:
            task = f"{planned.asked.subject} {planned.asked.task}"
            if planned.key not in self and (planned.key in manifest.failed or task in manifest.not_applicable):
                continue
            try:
                self.load(planned)
            except StoreError as error:
                yield self.path(planned.key), str(error)

    def path(self, key: str) -> Path:
        """Return where a measurement is kept."""
        return self.directory / "measurements" / f"{key}.json"

    def __contains__(self, key: str) -> bool:
        return self.path(key).exists()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only one who writes it; the directory is made if it is not there.

        Raises
        ------
        StoreError
            Another process is writing it.
        UsageError
            The directory holds something else, or cannot be written.
        """
        make_directory(self.directory)
        if self.manifest_path.exists():
            self.manifest()  # one that is something else is found before any work
        elif any(self.directory.glob("[!.]*")):
            raise UsageError(
                f"{self.directory} is not empty and is not a benchmark of robustcmp. Name another directory.",
                parameters=["out"],
            )
        with sole_writer(self.directory):
            make_directory(self.directory / "measurements")
            for directory in (self.directory, self.directory / "measurements"):
                remove_left_over(directory)
            yield

    def manifest(self) -> Manifest:
        """Return what was asked for last.

        Raises
        ------
        UsageError
            The directory is no benchmark.
        StoreError
            The file is broken.
        """
        if not self.manifest_path.exists():
            raise UsageError(f"{self.directory} is not a benchmark of robustcmp: it has no manifest.json")
        if not self.is_there:
            raise UsageError(f"{self.directory} is a run, not a benchmark: open it with robustcmp.open_run")
        return _read(self.manifest_path, "manifest", Manifest)

    def write_manifest(self, manifest: Manifest) -> None:
        """Write what is asked for."""
        text = sealed.to_json("manifest", msgspec.to_builtins(manifest), sort_keys=True)
        write_bytes_atomically(self.manifest_path, text.encode())

    def save(self, measurement: Measurement) -> None:
        """Write a finished measurement.

        Raises
        ------
        DiskError
            There is no room for it.
        """
        text = sealed.to_json(f"measurement {measurement.key}", msgspec.to_builtins(measurement), indent=None)
        write_bytes_atomically(self.path(measurement.key), f"{text}\n".encode())

    def load(self, planned: Planned) -> Measurement:
        """Return a measurement that is what was asked for.

        Raises
        ------
        StoreError
            It is missing or broken, or of something else.
        """
        path = self.path(planned.key)
        measurement = _read(path, f"measurement {planned.key}", Measurement)
        lengths = {len(measurement.resources.seconds), *map(len, measurement.resources.series.values())}
        if measurement.asked != planned.asked or len(lengths) > 1:
            raise StoreError(
                f"{path}: expected {planned.asked}, as in the manifest, and series of one length; received "
                f"{measurement.asked} and the lengths {sorted(lengths)}. Delete it, and rerun the same command."
            )
        return measurement


def _read(path: Path, kind: str, form: type[Content]) -> Content:
    """Return the content of a sealed file, or raise `StoreError`."""
    try:
        with sealed.seal_errors():
            return msgspec.convert(sealed.read_json(path, kind), form)
    except FileNotFoundError:
        raise StoreError(f"{path} is missing. Rerun the same command to make it again.") from None
    except SealError as error:
        raise StoreError(f"{path} is broken ({error}). Delete it, and rerun the same command.") from None
