"""Two short commands whose files are compared bit for bit: an evaluation, and a training."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .material import SUITE, environment

SUITE_FILE = SUITE.partition("\n[attacks.pgd]")[0]
MODEL = ("--model", "lenet1", "--dataset", "digits", "--framework", "torch")
FREE = ("costs.jsonl",)  # how long a session took, so no two are alike
SECONDS = 300.0  # for a whole command


def run_files(folder: Path) -> dict[str, str]:
    """Return every file of a run with its SHA-256, but for its logs."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "run").rglob("*"))
        if path.is_file() and path.name not in FREE
    }


def trained_files(folder: Path) -> dict[str, str]:
    """Return every file of a training, weights by what they hold: how long an epoch took is no part of it."""
    from robustcmp.networks.weights import read_weights

    said = {}
    for path in sorted((folder / "weights").rglob("*")):
        said[path.name] = ""
        if path.suffix == ".h5":
            content = read_weights(path)
            curves = {name: curve.tolist() for name, curve in content.curves.items() if name != "seconds"}
            said[path.name] = f"{content.sha256} {sorted(content.metadata.items())} {sorted(curves.items())}"
    return said


@dataclass(frozen=True)
class Job:
    """A command.

    Attributes
    ----------
    name, module : str
        What it is, and what ``python -m`` runs.
    arguments : tuple of str
        Its options, which name files relative to the folder that it runs in.
    place : str
        The directory that it writes, in that folder.
    files : callable
        What it wrote, for comparing.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    place: str
    files: Callable[[Path], dict[str, str]]

    def prepare(self, folder: Path) -> Path:
        """Make a folder to run it in."""
        folder.mkdir(parents=True)
        (folder / "short.toml").write_text(SUITE_FILE, encoding="utf-8")
        return folder

    def command(self, *before: str) -> list[str]:
        """Return the command, run by another module where one is named with its arguments."""
        return [sys.executable, "-m", *before, self.module, *self.arguments]

    def start(self, folder: Path, command: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start it."""
        with open(folder.with_suffix(".err"), "wb") as errors:
            return subprocess.Popen(
                command or self.command(),
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def finish(self, folder: Path, command: Sequence[str] = ()) -> tuple[int, str]:
        """Run it to its end; return the exit status, -9 where it took too long, and what it said last."""
        process = self.start(folder, command)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return process.returncode, said(folder)


def said(folder: Path) -> str:
    """Return what the last command in a folder said on standard error, from its end."""
    return folder.with_suffix(".err").read_text("utf-8", "replace")[-3000:]


def last_words(text: str) -> str:
    """Return the line of an error that names it."""
    lines = [
        line.strip() for line in text.splitlines() if re.match(r"\s*(error:|\w+(\.\w+)*(Error|Exception)\b)", line)
    ]
    return lines[-1][:200] if lines else text.strip()[-200:]


EVALUATION = Job(
    "evaluation",
    "robustcmp.eval",
    (
        *(*MODEL, "--training-seeds", "0", "--suite", "short.toml", "--images", "8", "--repeats", "3"),
        *("--batch-size", "64", "--out", "run"),
    ),
    "run",
    run_files,
)
TRAINING = Job("training", "robustcmp.train", (*MODEL, "--epochs", "6", "--out", "weights"), "weights", trained_files)
