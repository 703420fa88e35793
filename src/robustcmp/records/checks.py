"""Health checks: what came out of them."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec

from ..errors import SealError

IMAGES = 100  # that health checks look at, the first of those that were attacked
PASS, FAIL, NOT_APPLICABLE, NOTED = "pass", "fail", "not applicable", "noted"


@dataclass(frozen=True)
class Check:
    """One check of one model: its outcome, the figure that it rests on, and what to do about it."""

    check: str
    model: str
    outcome: str
    figure: str
    advice: str = ""


def judged(check: str, passed: bool, figure: str, advice: str) -> Check:
    """Return a check of a model that is named later, with its advice where it failed."""
    return Check(check, "", PASS if passed else FAIL, figure, "" if passed else advice)


def not_applicable(check: str, reason: str) -> Check:
    """Return a check that could not be made of a model that is named later."""
    return Check(check, "", NOT_APPLICABLE, reason)


class _StoredCheck(msgspec.Struct):
    check: str
    model: str
    outcome: Literal["pass", "fail", "not applicable", "noted"]
    figure: str
    advice: str = ""


class _StoredChecks(msgspec.Struct):
    checks: list[_StoredCheck]
    epsilon: float
    images: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    pgd: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1)] | None]


@dataclass(frozen=True)
class Checked:
    """The checks of all models, and what PGD does at FGSM's largest ε: a lower bound on vulnerability.

    Attributes
    ----------
    checks : list of Check
        A row a check and model.
    epsilon : float
        The ε of PGD.
    images : int
        How many images were looked at.
    pgd : dict of str to float
        The success rate of PGD, by model; NaN where it cannot run.
    """

    checks: list[Check]
    epsilon: float
    images: int
    pgd: dict[str, float] = field(default_factory=dict)

    def noting(self, expected_failures: Collection[str]) -> Checked:
        """Return the same checks, those that fail by the nature of the attacks' settings only noted."""
        checks = [
            replace(check, outcome=NOTED) if check.outcome == FAIL and check.check in expected_failures else check
            for check in self.checks
        ]
        return replace(self, checks=checks)

    def to_json(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        pgd = {model: rate if math.isfinite(rate) else None for model, rate in self.pgd.items()}
        return asdict(self) | {"pgd": pgd}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Checked:
        """The inverse of `to_json`; raises `SealError` or `msgspec.ValidationError` for what that does not return."""
        stored = msgspec.convert(content, _StoredChecks)
        if not math.isfinite(stored.epsilon):
            raise SealError(f"expected a finite epsilon, received {stored.epsilon}")
        checks = [Check(**msgspec.structs.asdict(check)) for check in stored.checks]
        pgd = {model: math.nan if rate is None else rate for model, rate in stored.pgd.items()}
        return cls(checks, stored.epsilon, stored.images, pgd)
