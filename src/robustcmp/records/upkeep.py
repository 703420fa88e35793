"""The upkeep of a run's files: what is wrong with them, their checksums, a lost manifest made again."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .. import sealed
from ..errors import RobustcmpError, SealError, StoreError, UsageError
from ..files import file_digest, write_text_atomically
from ..threads import cores, in_order
from . import results_file
from .logs import count_broken
from .manifest import check, merge_parts
from .store import Run

ANSWERS = ("checks", "transfer")  # in JSON
ARRAYS = ("clean", "contested")  # in HDF5
RERUN = "Rerun the same command to recreate it."
READERS = 4  # threads, with more of which Python's own share is the limit, and
AT_ONCE = 500  # cells for one of them

_log = logging.getLogger("robustcmp")


class Finding(NamedTuple):
    """What is wrong with a file of a run.

    Attributes
    ----------
    file : Path
        The file.
    state : str
        ``"broken"`` or ``"missing"``.
    reason : str
        What is wrong, and what to do about it.
    """

    file: Path
    state: Literal["broken", "missing"]
    reason: str


def verify(run: Run) -> Iterator[Finding]:
    """Read every file of a run, and yield what is wrong with it: its seal, or that it is not there.

    The arrays of a cell or of results that have their seal are not looked at: whoever reads them checks them. Without a
    manifest, a file is judged by its own seal alone, and missing cells are not known.
    """
    path = run.directory / "manifest.json"
    manifest: dict[str, Any] = {}
    try:
        manifest = run.manifest()
        if not manifest:
            yield _describe(path, "missing", run.lost_manifest)
    except RobustcmpError as error:
        yield _describe(path, "broken", error)
    kept_keys = run.kept()
    yield from _find_missing(run, manifest, {*kept_keys})
    yield from _find_broken(run, kept_keys)
    readers = _answers(run) | ({run.directory / "results.h5": run.check_results} if run.has_results else {})
    for file, read in readers.items():
        try:
            if manifest:
                read()
            else:
                _check_alone(file)
        except RobustcmpError as error:
            yield _describe(file, "broken", error)
    log = run.directory / "costs.jsonl"
    if changed := count_broken(log):
        yield Finding(log, "broken", f"{changed} of its lines are no records, or were changed. They are left out.")


def _find_missing(run: Run, manifest: dict[str, Any], kept_keys: set[str]) -> Iterator[Finding]:
    """Yield the cells and the results that a manifest promises and that are not there."""
    keys = dict.fromkeys(cell["key"] for cell in manifest.get("cells", []))
    if keys and not kept_keys and not (run.directory / "cells").is_dir():
        yield Finding(run.directory / "cells", "missing", f"{RERUN} It has {len(keys)} cells.")
    else:
        yield from (Finding(run.cell_path(key), "missing", RERUN) for key in keys if key not in kept_keys)
    if manifest and not run.has_results:
        yield Finding(run.directory / "results.h5", "missing", RERUN)


def _find_broken(run: Run, keys: list[str]) -> Iterator[Finding]:
    """Yield the cells that are not as they were sealed; several are read at once."""

    def findings(some: list[str], stop: Callable[[], None]) -> list[Finding]:
        stop()
        broken = []
        for key in some:
            try:
                run.check_cell(key)
            except StoreError as error:
                broken.append(_describe(run.cell_path(key), "broken", error))
        return broken

    some = (keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE))
    return chain.from_iterable(in_order(findings, some, min(READERS, cores())))


def _check_alone(file: Path) -> None:
    """Check the seal of a file that is no cell; raise `StoreError` if it is broken."""
    if not file.exists():
        return
    try:
        if file.suffix == ".json":
            sealed.read_json(file, file.stem)
        else:
            sealed.check(file, file.stem)
    except SealError as error:
        raise StoreError(f"{file} is broken ({error}). Rerun the same command once the manifest is there.") from None


def _describe(file: Path, state: Literal["broken", "missing"], error: RobustcmpError) -> Finding:
    """Return what an error says of a file, whose name stands beside it."""
    reason = str(error).removeprefix(str(file)).lstrip(": ")
    return Finding(file, state, reason[:1].upper() + reason[1:])


def write_sums(directory: Path) -> Path:
    """Write ``SHA256SUMS``, which ``sha256sum --check`` reads, of the files in a directory, and return its path."""
    path = directory / "SHA256SUMS"
    files = (file for file in directory.rglob("*") if file.is_file() and not file.name.startswith("."))
    names = sorted(file.relative_to(directory).as_posix() for file in files if file != path)
    write_text_atomically(path, "".join(f"{file_digest(directory / name)}  {name}\n" for name in names))
    return path


def discard_broken(run: Run) -> None:
    """Remove the answers of a run that are broken, with a warning: they are made anew when they are asked for."""
    for path, read in _answers(run).items():
        try:
            read()
        except StoreError as error:
            _log.warning("%s It is removed.", error)
            path.unlink()


def _answers(run: Run) -> dict[Path, Callable[[], object]]:
    """Return how to read the files that hold answers to further questions, if they are there."""
    arrays = {run.directory / f"{name}.h5": partial(run.read_arrays, name, "", lambda file: None) for name in ARRAYS}
    return arrays | {run.directory / f"{name}.json": partial(run.read_answer, name, "", dict) for name in ANSWERS}


# a lost manifest -----------------------------------------------------------------------------------------------------


def repair(run: Run) -> list[str]:
    """Make the manifest of a run again if it is lost or broken, and say what was done and what could not be.

    Its source is `results.h5`, which has the manifest of the last finished question; without it, the cells, which say
    enough that the same command finds them again.

    Raises
    ------
    StoreError
        Neither says what was asked.
    """
    path = run.directory / "manifest.json"
    try:
        if run.manifest():
            return [f"{path} is whole"]
    except UsageError:
        raise
    except StoreError:
        broken = _set_aside(path)
        messages = [f"the broken manifest is kept as {broken}"]
    else:
        messages = []
    manifest = _of_results(run)
    if manifest is not None:
        run.write_manifest(manifest)
        listed = {cell["key"] for cell in manifest["cells"]}
        others = sum(cell.stem not in listed for cell in run.directory.glob("cells/*.h5"))
        messages.append(f"{path} is made again from results.h5: the question that was finished last")
        if others:
            messages.append(
                f"{others} other cells are of other questions, or of one that was not finished; they are kept"
            )
        return messages
    parts, unusable = _of_cells(run)
    if not parts:
        raise StoreError(
            f"{run.directory} has no results.h5 and no cell that says what was asked, so its manifest cannot be made "
            "again. Move its files away, and rerun the command."
        )
    manifest = merge_parts(parts)
    run.write_manifest(manifest)
    messages.append(f"{path} is made again from {len(manifest['cells'])} cells. Rerun the same command to resume")
    if len(parts) > len(manifest["cells"]):
        messages.append(f"{len(parts) - len(manifest['cells'])} cells are of other questions; they are kept")
    if unusable:
        messages.append(f"{unusable} cells are broken, or do not say what they are; they are kept")
    messages.append(
        "not recovered: the repeats that were asked for, models and attacks without a cell, notes and twins"
    )
    return messages


def _set_aside(path: Path) -> Path:
    """Rename a broken file, beside those that were set aside before, and return its new name."""
    names = (path.with_name(f"{path.name}.broken{suffix}") for suffix in ("", *(f"-{n}" for n in range(2, 10**6))))
    broken = next(name for name in names if not name.exists())
    path.rename(broken)
    return broken


def _of_results(run: Run) -> dict[str, Any] | None:
    """Return the manifest in the results, None if there is none that can be read."""
    try:
        with sealed.open_hdf5(run.directory / "results.h5", "results") as file:
            return results_file.manifest_of(file)
    except (FileNotFoundError, SealError):
        return None


def _of_cells(run: Run) -> tuple[list[dict[str, Any]], int]:
    """Return what the sealed cells say of their manifest, the latest last, and how many say nothing."""
    parts, unusable = [], 0
    paths = sorted(run.directory.glob("cells/*.h5"), key=lambda path: path.stat().st_mtime_ns)
    for path in paths:
        try:
            with run.cell(path.stem) as file:
                part = json.loads(file.attribute("manifest"))
                check(merge_parts([part]))
        except StoreError:
            unusable += 1
        else:
            parts.append(part)
    return parts, unusable
