"""Commands that are killed with SIGKILL, at any moment and around every touch of their files, and then run again.

Several kills hit one directory before its command is left to end. What is there then has to be what an undisturbed
command writes, bit for bit.
"""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .jobs import EVALUATION, TRAINING, Job, last_words, said
from .mutations import generator, pick
from .pool import Tally

IN_A_ROW = 6


class Killing:
    """Kills of one job.

    Attributes
    ----------
    kinds : dict of str to int
        How many kills there were, by job and kind.
    """

    def __init__(self, job: Job, folder: Path):
        self.job, self.folder = job, folder
        whole = job.prepare(folder / f"{job.name}-whole")
        start = time.monotonic()
        status, text = job.finish(whole, job.command("soak.victim", str(whole / job.place), "0", "0"))
        self.seconds = time.monotonic() - start
        if status:
            raise RuntimeError(f"{job.name} failed undisturbed:\n{text}")
        self.touches = int(re.findall(r"touched (\d+)", text)[-1])
        self.expected = job.files(whole)

    def sequence(self, seed: int, number: int, kills: int) -> list[dict[str, Any]]:
        """Kill a command up to so many times in a row, and let it end; return an outcome for each kill."""
        rng = generator(seed, f"kills {self.job.name}", number)
        folder = self.job.prepare(self.folder / f"{self.job.name}-{number}")
        outcomes: list[dict[str, Any]] = []
        for _ in range(kills):
            if rng.random() < 0.3:
                kind, killed = "at any moment", self._at_any_moment(folder, rng.random() * self.seconds)
            else:
                delay = pick(rng, [0.0, 0.0, float(rng.random() * 0.002), float(rng.random() * 0.05)])
                kind = "at a touch" if not delay else "after a touch"
                killed = self._at_a_touch(folder, int(rng.integers(1, 1 + max(self.touches // 2, 8))), delay)
            if killed != -signal.SIGKILL:
                if killed:  # it failed by itself
                    return [*outcomes, self._found("exception", said(folder))]
                break
            outcomes.append({"kind": kind})
        status, text = self.job.finish(folder)
        if status:
            return [*outcomes[:-1], self._found("exception" if status > 0 else "crash", text)]
        try:
            files = self.job.files(folder)
        except Exception as error:
            return [*outcomes[:-1], self._found("wrong", repr(error))]
        names = sorted(name for name in {*files, *self.expected} if files.get(name) != self.expected.get(name))
        if names:
            left = [name for name in names if name not in self.expected]
            why = "left behind: " if len(left) == len(names) else "differs: "
            return [*outcomes[:-1], self._found("wrong", why + re.sub(r"[0-9a-f]{8,}|\d{3,}", "*", names[0]))]
        shutil.rmtree(folder)
        return [{"outcome": "same", **outcome} for outcome in outcomes]

    def _found(self, outcome: str, text: str) -> dict[str, Any]:
        return {"outcome": outcome, "kind": self.job.name, "why": last_words(text)}

    def _at_any_moment(self, folder: Path, seconds: float) -> int:
        process = self.job.start(folder)
        try:
            process.wait(seconds)
        except Exception:
            process.send_signal(signal.SIGKILL)
            process.wait()
        return process.returncode

    def _at_a_touch(self, folder: Path, touch: int, delay: float) -> int:
        command = self.job.command("soak.victim", str(folder / self.job.place), str(touch), str(delay))
        return self.job.finish(folder, command)[0]


def kill(
    count: int, *, seed: int, workers: int, tally: Tally, shown: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Kill commands so many times; return how many kills there were of each kind."""
    kinds: dict[str, int] = {}
    lock, errors = threading.Lock(), list[BaseException]()
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        jobs = [Killing(EVALUATION, Path(scratch)), Killing(TRAINING, Path(scratch))]
        number = iter(range(10**6))

        def work() -> None:
            try:
                while not errors:
                    with lock:
                        if tally.outcomes.total() >= count:
                            break
                        mine = next(number)
                        left = count - tally.outcomes.total()
                    job = jobs[mine % 3 == 2]  # twice as many evaluations as trainings
                    outcomes = job.sequence(seed, mine, min(IN_A_ROW, left))
                    with lock:
                        for outcome in outcomes:
                            outcome.setdefault("outcome", "same")
                            tally.add(mine, outcome)
                            kind = f"{job.job.name}, {outcome['kind']}"
                            kinds[kind] = kinds.get(kind, 0) + 1
                        shown()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
    if errors:
        raise errors[0]
    return {"kinds": dict(sorted(kinds.items()))}
