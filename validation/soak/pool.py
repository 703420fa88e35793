"""Trials in processes that are watched from outside: one that hangs, dies or takes too much memory is a finding."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .material import environment

SECONDS = 10.0
MEMORY = 2**30  # bytes beyond what the process had before
START = 300.0  # seconds that a process may take to be ready
EXAMPLES = 5  # trials that are kept of each finding
GOOD = ("refused", "same", "other")


@dataclass
class Tally:
    """The outcomes of a part.

    Attributes
    ----------
    outcomes : Counter
        How many trials had which outcome.
    findings : dict
        By what was found and where: how often, and some trials that show it again.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)
    slowest: float = 0.0
    largest: int = 0

    def add(self, number: int | str, said: dict[str, Any]) -> None:
        """Count a trial."""
        outcome = said["outcome"]
        self.slowest = max(self.slowest, said.get("seconds", 0.0))
        self.largest = max(self.largest, said.get("memory", 0))
        self.outcomes[outcome] += 1
        self.places |= {said["place"]} if "place" in said else set()
        if outcome not in GOOD:
            what = " ".join(str(said[key]) for key in ("type", "where") if said.get(key)) or said.get("why", "")[:80]
            found = self.findings.setdefault(f"{outcome}: {what}", {"count": 0, "examples": []})
            found["count"] += 1
            if len(found["examples"]) < EXAMPLES:
                kept = {key: value for key, value in said.items() if key not in ("outcome", "where", "type")}
                found["examples"].append({"trial": number, **kept})

    @property
    def failed(self) -> int:
        """How many trials ended as none should."""
        return sum(count for outcome, count in self.outcomes.items() if outcome not in GOOD)

    def to_json(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        findings = dict(sorted(self.findings.items(), key=lambda item: -item[1]["count"]))
        return {
            "trials": self.outcomes.total(),
            "outcomes": dict(sorted(self.outcomes.items())),
            "failed": self.failed,
            **({"places": len(self.places)} if self.places else {}),
            "slowest": round(self.slowest, 3),
            "largest": self.largest,
            "findings": findings,
        }


class Child:
    """A process of `soak.child`, started when it is needed."""

    def __init__(self, reader: str, material: Path, seed: int, seconds: float = SECONDS, memory: int = MEMORY):
        self._seconds, self._memory = seconds, memory
        self._reader, self._material, self._seed = reader, material, seed
        self._process: subprocess.Popen[str] | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="soak-")
        self._errors: IO[bytes]
        self._answers = -1
        self._rest = b""

    def trial(self, number: int) -> dict[str, Any]:
        """Return the outcome of a trial. A hang is one if it hangs twice: the machine may have been busy."""
        said = self._tried(number)
        if said["outcome"] == "hang":
            said = self._tried(number)
        return said

    def _tried(self, number: int) -> dict[str, Any]:
        process = self._process if self._process is not None and self._process.poll() is None else self._start()
        assert process.stdin is not None
        base = self._resident(process)
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        start = time.monotonic()
        while True:
            line = self._line(0.05)
            seconds = time.monotonic() - start
            if line:
                said: dict[str, Any] = json.loads(line)
                if said["outcome"] in GOOD and said["seconds"] > self._seconds:
                    said |= {"outcome": "hang", "why": f"{said['seconds']:.0f} s"}
                elif said["outcome"] in GOOD and said["memory"] > self._memory:
                    said |= {"outcome": "memory", "why": said.get("kind", "")}
                return said
            if line is None:
                process.wait()
                status = process.returncode
                what = signal.Signals(-status).name if status < 0 else f"exit status {status}"
                return self._dead("crash", what, seconds)
            if seconds > self._seconds:
                return self._dead("hang", "", seconds)
            if self._resident(process) - base > self._memory * 1.2:
                return self._dead("memory", "", seconds)

    def _dead(self, outcome: str, why: str, seconds: float) -> dict[str, Any]:
        """End the process, let it say where it was, and return the outcome."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGABRT)
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 8000))
        lines = self._errors.read().decode("utf-8", "replace").splitlines()
        kind = next((line.partition(": ")[2] for line in reversed(lines) if line.startswith("soak: ")), "")
        frames = [line.strip() for line in lines if line.strip().startswith("File ")]
        trace = [frame for frame in frames if "/robustcmp/" in frame][:1] or frames[:1]
        where = "; ".join(
            dict.fromkeys(["/".join(line.split('"')[1].split("/")[-2:]) + line.split('"')[2] for line in trace])
        )
        self.close()
        where = f"{why} {where}".strip()
        return {"outcome": outcome, "why": why, "where": where, "kind": kind, "seconds": seconds}

    def _start(self) -> subprocess.Popen[str]:
        self.close()
        ours, theirs = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        arguments = [self._reader, str(self._material), self._scratch.name, str(self._seed), str(theirs)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "soak.child", *arguments],
            stdin=subprocess.PIPE,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=[theirs],
            env=environment() | {"TMPDIR": self._scratch.name},
            text=True,
        )
        os.close(theirs)
        self._answers, self._rest = ours, b""
        start = time.monotonic()
        while (line := self._line(0.5)) == "" and time.monotonic() - start < START:
            pass
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"{self._reader} did not start:\n{self._errors.read().decode()}")
        return self._process

    def _line(self, seconds: float) -> str | None:
        """Return the next line that the child says, nothing if it says none in time, None if it is gone."""
        if b"\n" not in self._rest:
            if not select.select([self._answers], [], [], seconds)[0]:
                return ""
            more = os.read(self._answers, 2**16)
            if not more:
                return None
            self._rest += more
        line, newline, rest = self._rest.partition(b"\n")
        if not newline:
            return ""
        self._rest = rest
        return line.decode()

    @staticmethod
    def _resident(process: subprocess.Popen[str]) -> int:
        try:
            return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def end(self) -> None:
        """End the process, and leave nothing of it."""
        self.close()
        self._scratch.cleanup()

    def close(self) -> None:
        """End the process; the next trial starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            os.close(self._answers)
            self._errors.close()
            self._process = None


def trials(
    reader: str,
    material: Path,
    numbers: Iterator[int],
    *,
    seed: int,
    workers: int,
    tally: Tally,
    seconds: float = SECONDS,
    memory: int = MEMORY,
    shown: Callable[[], None] = lambda: None,
) -> None:
    """Run trials of a reader in so many processes, and count their outcomes."""
    lock, errors = threading.Lock(), list[BaseException]()

    def work() -> None:
        child = Child(reader, material, seed, seconds, memory)
        try:
            while not errors:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    break
                said = child.trial(number)
                with lock:
                    tally.add(number, said)
                    shown()
        except BaseException as error:
            errors.append(error)
        finally:
            child.end()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
    except BaseException as error:
        errors.append(error)
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
