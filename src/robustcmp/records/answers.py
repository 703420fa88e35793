"""Answers to further questions about a run: its health checks, and what attacks do to contested images."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import SealError
from ..sealed import Hdf5

IMAGES = 100  # of which health checks look at the outcomes, the first of those that were attacked
PASS = "pass"
FAIL = "fail"
NOT_APPLICABLE = "not applicable"
NOTED = "noted"


class Check(msgspec.Struct, frozen=True):
    """One check of one model: its outcome, the figure that it rests on, and what to do about it."""

    check: str
    model: str
    outcome: Annotated[str, msgspec.Meta(pattern=r"\A(pass|fail|not applicable|noted)\Z")]
    figure: str
    advice: str = ""


def judge(check: str, passed: bool, figure: str, advice: str) -> Check:
    """Return a check of a model that is named later, with its advice where it failed."""
    return Check(check, "", PASS if passed else FAIL, figure, "" if passed else advice)


def not_applicable(check: str, reason: str) -> Check:
    """Return a check that could not be made of a model that is named later."""
    return Check(check, "", NOT_APPLICABLE, reason)


class Checked(msgspec.Struct, frozen=True):
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
        The success rate of PGD, by model; None where it cannot run.
    """

    checks: list[Check]
    epsilon: float
    images: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    pgd: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1)] | None] = {}

    def note_expected(self, expected_failures: Collection[str]) -> Checked:
        """Return the same checks, those that fail by the nature of the attacks' settings only noted."""
        checks = [
            msgspec.structs.replace(check, outcome=NOTED)
            if check.outcome == FAIL and check.check in expected_failures
            else check
            for check in self.checks
        ]
        return msgspec.structs.replace(self, checks=checks)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Checked:
        """Read it from JSON's types; raise `SealError` or `msgspec.ValidationError` for anything else."""
        stored = msgspec.convert(content, cls)
        if not math.isfinite(stored.epsilon):
            raise SealError(f"expected a finite epsilon, received {stored.epsilon}")
        return stored


NAMES = ("attacks", "index", "right", "success", "counts")  # of its arrays


@dataclass(frozen=True)
class Contested:
    """What each attack does to images that are in the subset of some models and not in that of all.

    Attributes
    ----------
    attacks : list of str
        The attacks that were run on them.
    index : ndarray of int64, shape (N,)
        Where the attacked ones stand in the data that was passed.
    right : ndarray of bool, shape (models, N)
        Which of them each trained model classifies correctly.
    success : ndarray of float64, shape (models, attacks, N)
        The share of the repeats in which the attack succeeds; NaN where the model is wrong, or the attack cannot run.
    counts : ndarray of int64, shape (2,)
        Among all images: how many every model classifies correctly, and how many are contested. The attacked ones are
        a random part of the latter.
    """

    attacks: list[str]
    index: NDArray[np.int64]
    right: NDArray[np.bool_]
    success: NDArray[np.float64]
    counts: NDArray[np.int64]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return it as arrays, for the store."""
        return vars(self) | {"attacks": np.array(self.attacks, "S")}

    @staticmethod
    def most_bytes(models: int, attacks: int, of: int) -> int:
        """Return how many bytes a file of so many models, attacks and images has at the most."""
        return 2**20 + 2 * of * (8 + models * (1 + 8 * attacks))

    @classmethod
    def from_file(cls, file: Hdf5, models: int, attacks: int, of: int) -> Contested:
        """Read what `to_arrays` returned, of so many models, and of at most so many attacks and images.

        Raises
        ------
        SealError
            The file has other arrays; nothing of them was read.
        """
        file.check_names(NAMES)
        file.check("attacks")
        file.check("index", np.int64, (...,))
        names = file.arrays["attacks"]
        index = file.arrays["index"]
        if names.dtype.kind != "S" or names.ndim != 1 or len(names) > attacks:
            raise SealError(f"attacks should be a list of at most {attacks} names")
        if index.ndim != 1 or len(index) > of:
            raise SealError(f"index should be a list of at most {of} places, received the shape {index.shape}")
        images = len(index)
        form: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {
            "index": (np.int64, (images,)),
            "right": (np.bool_, (models, images)),
            "success": (np.float64, (models, len(names), images)),
            "counts": (np.int64, (2,)),
        }
        for name, (dtype, shape) in form.items():
            file.check(name, dtype, shape)
        arrays = {name: file.array(name) for name in NAMES}
        if (arrays["counts"] < 0).any() or (arrays["index"] < 0).any():
            raise SealError("counts and places of images should not be below 0")
        return cls([name.decode() for name in arrays["attacks"].tolist()], *(arrays[name] for name in form))
