"""The upkeep of a run's files: what is wrong with them, a lost manifest made again, older files sealed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from .. import sealed
from ..errors import RobustcmpError, SealError, StoreError, UsageError
from ..threads import cores, in_order
from . import costs, results_file
from .cell import Cell
from .manifest import UNSEALED, check, merged
from .store import Run

ANSWERS = ("checks", "transfer")  # in JSON
ARRAYS = ("clean", "contested")  # in HDF5
RERUN = "Rerun the same command to recreate it."
OLDER = "It is older than seals. Rerun the same command to seal it."
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
        ``"broken"``; ``"missing"``; or ``"unsealed"``, for one that can be read and is older than seals.
    reason : str
        What is wrong, and what to do about it.
    """

    file: Path
    state: Literal["broken", "missing", "unsealed"]
    reason: str

    @property
    def is_broken(self) -> bool:
        """Whether the file cannot be read as it is, so that an opened run may be wrong or fail."""
        return self.state != "unsealed"


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
            yield _finding(path, "missing", run.lost_manifest)
        elif not run.is_sealed:
            yield Finding(path, "unsealed", OLDER)
    except RobustcmpError as error:
        yield _finding(path, "broken", error)
    kept = run.kept()
    required = run.is_sealed if manifest else _has_seals(run, kept)
    yield from _missing(run, manifest, {*kept})
    for key in _suspects(run, kept) if required else kept:
        file = run.cell_path(key)
        older = not manifest and not required
        yield from _wrong(file, partial(has_seal, file) if older else partial(run.check_cell, key), required)
    readers = _answers(run) | ({run.directory / "results.h5": run.check_results} if run.has_results else {})
    for file, read in readers.items():
        yield from _wrong(file, read if manifest else partial(_check_alone, file, required), required)
    log = run.directory / "costs.jsonl"
    with suppress(FileNotFoundError):
        if changed := costs.broken(log, required):
            yield Finding(log, "broken", f"{changed} of its lines are no records, or were changed. They are left out.")
        elif costs.broken(log):
            yield Finding(log, "unsealed", OLDER)


def _missing(run: Run, manifest: dict[str, Any], kept: set[str]) -> Iterator[Finding]:
    """Yield the cells and the results that a manifest promises and that are not there."""
    keys = dict.fromkeys(cell["key"] for cell in manifest.get("cells", []))
    if keys and not kept and not (run.directory / "cells").is_dir():
        yield Finding(run.directory / "cells", "missing", f"{RERUN} It has {len(keys)} cells.")
    else:
        yield from (Finding(run.cell_path(key), "missing", RERUN) for key in keys if key not in kept)
    if manifest and not run.has_results:
        yield Finding(run.directory / "results.h5", "missing", RERUN)


def _suspects(run: Run, keys: list[str]) -> Iterator[str]:
    """Yield the cells that are not as they were sealed; several are read at once."""

    def broken(some: list[str], stop: Callable[[], None]) -> list[str]:
        stop()
        return [key for key in some if not _is_whole(run, key)]

    some = (keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE))
    return chain.from_iterable(in_order(broken, some, min(READERS, cores())))


def _is_whole(run: Run, key: str) -> bool:
    try:
        run.check_seal(key)
    except StoreError:
        return False
    return True


def _wrong(file: Path, read: Callable[[], object], required: bool) -> Iterator[Finding]:
    """Yield what is wrong with a file: that it cannot be read, or has no seal where that is no error."""
    try:
        read()
        lacks = not required and file.exists() and not has_seal(file)
    except RobustcmpError as error:
        yield _finding(file, "broken", error)
    else:
        if lacks:
            yield Finding(file, "unsealed", OLDER)


def _has_seals(run: Run, keys: list[str]) -> bool:
    """Say whether any file of a run without a manifest has a seal, so that the run is not older than seals."""
    files = [run.directory / "results.h5", *map(run.cell_path, keys), *_answers(run)]
    for file in files:
        with suppress(SealError, FileNotFoundError):
            if has_seal(file):
                return True
    return not files


def _check_alone(file: Path, required: bool) -> None:
    """Check the seal of a file that is no cell, if there is one; raise `StoreError` if it is broken."""
    if not file.exists():
        return
    try:
        if file.suffix == ".json":
            sealed.read_json(file, file.stem, required=required)
        elif required:
            sealed.check(file, file.stem)
    except SealError as error:
        raise StoreError(f"{file} is broken ({error}). Rerun the same command once the manifest is there.") from None


def _finding(file: Path, state: Literal["broken", "missing"], error: RobustcmpError) -> Finding:
    """Return what an error says of a file, whose name stands beside it."""
    reason = str(error).removeprefix(str(file)).lstrip(": ")
    return Finding(file, state, reason[:1].upper() + reason[1:])


def has_seal(path: Path) -> bool:
    """Say whether a file of a run has a seal, whatever it is."""
    content = sealed.read_bytes(path)
    if path.suffix == ".json":
        with sealed.distrusted():
            return sealed.MEMBER in json.loads(content)
    return content[-sealed.BLOCK :].startswith(sealed.MARK)


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


# older runs ----------------------------------------------------------------------------------------------------------


def seal_older(run: Run) -> None:
    """Seal the files of a run that is older than seals, which are taken as they are, before its manifest is written.

    What cannot be read stays as it is, and is an error once it is asked for.
    """
    if run.is_sealed:
        return
    listed = {cell["key"]: Cell(**cell) for cell in run.manifest()["cells"]}
    count = 0
    for path in sorted(run.directory.glob("cells/*.h5")):
        with suppress(StoreError):
            if not has_seal(path):
                _seal_cell(run, path.stem, listed.get(path.stem))
                count += 1
    for name in ANSWERS:
        path = run.directory / f"{name}.json"
        with suppress(FileNotFoundError, SealError):
            content = sealed.read_json(path, name, required=False)
            run.write_file(path, sealed.to_json(name, content).encode())
    for name in ARRAYS:
        path = run.directory / f"{name}.h5"
        with suppress(FileNotFoundError, SealError):
            with sealed.opened(path, name, required=False) as file:
                answers = str(file.attribute("answers"))
                arrays = {array: file.array(array) for array in file.arrays}
            run.write_arrays(name, answers, arrays)
    if records := run.costs():
        lines = [sealed.to_json(costs.KIND, msgspec.to_builtins(record), indent=None) for record in records]
        run.write_file(run.directory / "costs.jsonl", ("\n".join(lines) + "\n").encode())
    _log.info("%s: %d cells from before files were sealed are sealed as they are", run.directory, count)


def _seal_cell(run: Run, key: str, listed: Cell | None) -> None:
    """Seal a cell: as the one that the manifest lists, or as the file says."""
    arrays = run.load(key)
    images = run.adversarials(key) if run.has_images(key) else None
    with run.cell(key) as file:
        said = {name: file.attribute(name) for name in ("model", "training_seed", "attack", "repeat")}
    cell = listed or Cell(said["model"], int(said["training_seed"]), said["attack"], int(said["repeat"]), key)
    run.write_cell(cell, arrays, images)


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
        if run.stored_manifest():
            return [f"{path} is whole"]
    except UsageError:
        raise
    except StoreError:
        broken = _set_aside(path)
        said = [f"the broken manifest is kept as {broken}"]
    else:
        said = []
    manifest = _of_results(run)
    if manifest is not None:
        _write(run, manifest)
        listed = {cell["key"] for cell in manifest["cells"]}
        others = sum(cell.stem not in listed for cell in run.directory.glob("cells/*.h5"))
        said.append(f"{path} is made again from results.h5: the question that was finished last")
        if others:
            said.append(f"{others} other cells are of other questions, or of one that was not finished; they are kept")
        return said
    parts, unusable = _of_cells(run)
    if not parts:
        raise StoreError(
            f"{run.directory} has no results.h5 and no cell that says what was asked, so its manifest cannot be made "
            "again. Move its files away, and rerun the command."
        )
    manifest = merged(parts)
    _write(run, manifest)
    said.append(f"{path} is made again from {len(manifest['cells'])} cells. Rerun the same command to resume")
    if len(parts) > len(manifest["cells"]):
        said.append(f"{len(parts) - len(manifest['cells'])} cells are of other questions; they are kept")
    if unusable:
        said.append(f"{unusable} cells are broken, or do not say what they are; they are kept")
    said.append("not recovered: the repeats that were asked for, models and attacks without a cell, notes and twins")
    return said


def _set_aside(path: Path) -> Path:
    """Rename a broken file, beside those that were set aside before, and return its new name."""
    names = (path.with_name(f"{path.name}.broken{suffix}") for suffix in ("", *(f"-{n}" for n in range(2, 10**6))))
    broken = next(name for name in names if not name.exists())
    path.rename(broken)
    return broken


def _write(run: Run, manifest: dict[str, Any]) -> None:
    """Write a manifest in its own format: in an older one, the run's other files need no seal."""
    if manifest["format"] in UNSEALED:
        text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
        run.write_file(run.directory / "manifest.json", text.encode())
    else:
        run.write_manifest(manifest)


def _of_results(run: Run) -> dict[str, Any] | None:
    """Return the manifest in the results, None if there is none that can be read."""
    path = run.directory / "results.h5"
    try:
        with sealed.opened(path, "results", required=False) as file:
            results_file.manifest_of(file)  # or it is none
            manifest: dict[str, Any] = json.loads(file.attribute("manifest"))
            manifest.setdefault("format", UNSEALED[0])
            if manifest["format"] not in UNSEALED and not has_seal(path):
                return None
            return manifest
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
                check(merged([part]))
        except StoreError:
            unusable += 1
        else:
            parts.append(part)
    return parts, unusable
