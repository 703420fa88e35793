"""Commands on a disk that is full: a file system in memory, of which the size is drawn.

It is mounted in a name space of its own (``unshare --user --mount``), so no rights are needed and nothing outside sees
it; where the system allows no such name space, nothing is tried. A command has to end with an error that names the
disk. Then the disk is enlarged, and the same command has to write what it writes on one that was never full.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .jobs import EVALUATION, TRAINING, Job, last_words
from .material import environment
from .mutations import generator
from .pool import Tally

SPACE = ["unshare", "--user", "--map-root-user", "--mount"]
WORDS = ("disk", "space", "No space left", "full")


def possible() -> bool:
    """Whether a file system can be mounted in a name space here."""
    if shutil.which("unshare") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        command = [*SPACE, "mount", "-t", "tmpfs", "-o", "size=64k", "soak", folder]
        return subprocess.run(command, capture_output=True).returncode == 0


def fill(
    count: int, *, seed: int, workers: int, tally: Tally, shown: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Let the disk be full at so many points."""
    if not possible():
        return {"not_tried": "no file system can be mounted here"}
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        whole: dict[str, tuple[Job, dict[str, str], int, int]] = {}
        for job in (EVALUATION, TRAINING):
            folder = job.prepare(Path(scratch) / job.name)
            status, text = job.finish(folder)
            if status:
                raise RuntimeError(f"{job.name} failed undisturbed:\n{text}")
            paths = [path for path in (folder / job.place).rglob("*") if path.is_file()]
            blocks = sum(-(-path.stat().st_size // 4096) * 4096 for path in paths)
            whole[job.name] = (job, job.files(folder), blocks, len(paths))

        def tried(number: int) -> tuple[int, dict[str, Any]]:
            job, expected, size, files = whole["training" if number % 4 == 3 else "evaluation"]
            rng = generator(seed, "disk", number)
            if number % 5 == 4:  # no room for another file, whatever its size
                options = f"size=1g,nr_inodes={int(rng.integers(2, files + 3))}"
            else:
                options = f"size={int(rng.uniform(4096, size * 0.98)) // 4096 * 4096}"
            folder = job.prepare(Path(scratch) / f"full-{number}")
            (folder / job.place).mkdir()
            command = [*SPACE, sys.executable, "-m", "soak.disk", job.name, str(folder), options]
            done = subprocess.run(command, capture_output=True, env=environment(), text=True)
            if done.returncode:
                raise RuntimeError(done.stderr)
            shutil.rmtree(folder)
            trial = json.loads(done.stdout.splitlines()[-1])
            return number, _judged(trial, expected) | {"kind": f"{job.name}, {options}"}

        with ThreadPoolExecutor(workers) as pool:
            for number, outcome in pool.map(tried, range(count)):
                tally.add(number, outcome)
                shown()
    return {"method": "a file system in memory (tmpfs), mounted in a name space of its own"}


def _judged(trial: dict[str, Any], expected: dict[str, str]) -> dict[str, Any]:
    """Return the outcome: of the command on the full disk, and of the same command after that."""
    status, text = trial["full"]
    words = last_words(text)
    job = trial["job"]
    if status < 0:
        return {"outcome": "crash", "type": job, "where": f"signal {-status}", "why": words}
    if "Traceback" in text or status not in (0, 1, 2):
        return {"outcome": "exception", "type": job, "where": words}
    if status and not any(word in text for word in WORDS):
        return {"outcome": "wrong", "type": job, "where": f"says nothing of the disk: {words[:60]}", "why": words}
    status, text = trial["again"]
    if status:
        return {"outcome": "exception", "type": job, "where": f"again: {last_words(text)}"}
    files = trial["files"]
    names = sorted(name for name in {*files, *expected} if files.get(name) != expected.get(name))
    if names:
        return {"outcome": "wrong", "type": job, "where": f"again: {len(names)} files differ", "why": names[0]}
    return {"outcome": "refused" if trial["full"][0] else "same"}


def main() -> None:
    """Within the name space: run a command on a full disk, and again after that is enlarged; print what came out."""
    name, place, options = sys.argv[1:]
    job = {job.name: job for job in (EVALUATION, TRAINING)}[name]
    folder = Path(place)
    disk = str(folder / job.place)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "soak", disk], check=True)
    full = job.finish(folder)
    subprocess.run(["mount", "-o", "remount,size=1g,nr_inodes=100000", disk], check=True)
    again = job.finish(folder)
    files = job.files(folder) if again[0] == 0 else {}
    os.sync()
    print(json.dumps({"job": name, "full": full, "again": again, "files": files}))


if __name__ == "__main__":
    main()
