"""Trials in processes that are watched from outside: one that hangs, dies or takes too much memory is a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robustcmp.processes import Child, Ended, Limits

from .material import environment

LIMITS = Limits(seconds=60.0, memory=3 * 2**30)  # of a process, with what a framework takes to start
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
        By what went wrong: some trials that show it again.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[str]] = field(default_factory=dict)

    def add(self, number: int, outcome: dict[str, Any]) -> None:
        """Count a trial."""
        self.outcomes[outcome["outcome"]] += 1
        if outcome["outcome"] not in GOOD:
            examples = self.findings.setdefault(f"{outcome['outcome']}: {outcome.get('why', '')}", [])
            if len(examples) < EXAMPLES:
                examples.append(f"trial {number}: {outcome.get('kind', '')}")

    @property
    def failed(self) -> int:
        """How many trials ended as none should."""
        return sum(count for outcome, count in self.outcomes.items() if outcome not in GOOD)

    def to_json(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        outcomes = dict(sorted(self.outcomes.items()))
        return {
            "trials": self.outcomes.total(),
            "outcomes": outcomes,
            "failed": self.failed,
            "findings": self.findings,
        }


def trials(
    reader: str,
    material: Path,
    count: int,
    *,
    seed: int,
    workers: int,
    tally: Tally,
    shown: Callable[[], None] = lambda: None,
) -> None:
    """Run trials of a reader in so many processes, and count their outcomes."""

    def work(first: int) -> None:
        child = Child("soak.readers:serve", LIMITS, environment())
        try:
            for number in range(first, count, workers):
                outcome, *_ = child.request((reader, material, seed, number))
                if isinstance(outcome, Ended):
                    outcome = {"outcome": "died", "why": outcome.reason}
                tally.add(number, outcome)
                shown()
        finally:
            child.close()

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
