"""The upkeep of a run's files: what is wrong with them, and their checksums."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import RobustcmpError, StoreError
from ..files import file_digest, write_text_atomically
from ..threads import cores, in_order
from .logs import count_broken
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

    The arrays of a cell or of results that have their seal are not looked at: whoever reads them checks them.
    """
    path = run.directory / "manifest.json"
    manifest: dict[str, Any] = {}
    try:
        manifest = run.manifest()
        if not path.exists():
            yield Finding(path, "missing", RERUN)
    except RobustcmpError as error:
        yield _describe(path, "broken", error)
    kept_keys = run.kept()
    keys = dict.fromkeys(cell["key"] for cell in manifest.get("cells", []))
    yield from (Finding(run.cell_path(key), "missing", RERUN) for key in keys if key not in {*kept_keys})
    if manifest and not run.has_results:
        yield Finding(run.directory / "results.h5", "missing", RERUN)
    yield from _find_broken(run, kept_keys)
    readers = _answers(run)
    if manifest and run.has_results:
        readers[run.directory / "results.h5"] = run.check_results
    for file, read in readers.items():
        try:
            read()
        except RobustcmpError as error:
            yield _describe(file, "broken", error)
    log = run.directory / "costs.jsonl"
    if changed := count_broken(log):
        yield Finding(log, "broken", f"{changed} of its lines are no records, or were changed. They are left out.")


def _find_broken(run: Run, keys: list[str]) -> Iterator[Finding]:
    """Yield the cells that are not as they were sealed; several are read at once."""

    def check_some(some: list[str], stop: Callable[[], None]) -> list[Finding]:
        stop()
        broken = []
        for key in some:
            try:
                run.check_cell(key)
            except StoreError as error:
                broken.append(_describe(run.cell_path(key), "broken", error))
        return broken

    some = (keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE))
    return chain.from_iterable(in_order(check_some, some, min(READERS, cores())))


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
