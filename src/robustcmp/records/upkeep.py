"""The upkeep of a run's files: what is wrong with them, and their checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import RobustcmpError
from ..files import file_digest, write_bytes_atomically
from .store import Run

ANSWERS = ("checks", "transfer")  # in JSON
ARRAYS = ("clean", "contested")  # in HDF5
RERUN = "Rerun the same command to recreate it."


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
    """Read every file of a run, and yield what is wrong with it, or that it is not there."""
    path = run.directory / "manifest.json"
    manifest: dict[str, Any] = {}
    try:
        manifest = run.manifest()
        if not path.exists():
            yield Finding(path, "missing", RERUN)
    except RobustcmpError as error:
        yield _describe(path, error)
    stored_keys = dict.fromkeys(run.list_keys())
    keys = dict.fromkeys(cell["key"] for cell in manifest.get("cells", []))
    yield from (Finding(run.cell_path(key), "missing", RERUN) for key in keys if key not in stored_keys)
    results = run.directory / "results.h5"
    readers: dict[Path, Callable[[], object]] = {run.cell_path(key): partial(run.load, key) for key in stored_keys}
    readers |= {run.directory / f"{name}.h5": partial(run.read_arrays, name, lambda file: None) for name in ARRAYS}
    readers |= {run.directory / f"{name}.json": partial(run.read_answer, name, dict) for name in ANSWERS}
    if manifest and run.has_results:
        readers[results] = run.read_results
    elif manifest:
        yield Finding(results, "missing", RERUN)
    for file, read in readers.items():
        try:
            read()
        except RobustcmpError as error:
            yield _describe(file, error)
    _, broken = run.read_costs()
    if broken:
        reason = f"{broken} of its lines are no records, or were changed. They are left out."
        yield Finding(run.costs_path, "broken", reason)


def _describe(file: Path, error: RobustcmpError) -> Finding:
    """Return what an error says of a file, whose name stands beside it."""
    reason = str(error).removeprefix(str(file)).lstrip(": ")
    return Finding(file, "broken", reason[:1].upper() + reason[1:])


def write_sums(directory: Path) -> Path:
    """Write ``SHA256SUMS``, which ``sha256sum --check`` reads, of the files in a directory, and return its path."""
    path = directory / "SHA256SUMS"
    files = (file for file in directory.rglob("*") if file.is_file() and not file.name.startswith("."))
    names = sorted(file.relative_to(directory).as_posix() for file in files if file != path)
    sums = "".join(f"{file_digest(directory / name)}  {name}\n" for name in names)
    write_bytes_atomically(path, sums.encode())
    return path
