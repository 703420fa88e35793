"""A reader that goes wrong in every way, so that the watch over readers can be tested."""

from __future__ import annotations

import os
import time

import numpy as np

from robustcmp.errors import UsageError

from .mutations import Mutation
from .readers import Reader, Value

FAULTS = ("refused", "same", "other", "wrong", "exception", "hang", "crash", "memory")


class Faults(Reader):
    """Trial n goes wrong in the n-th way."""

    part = "texts"
    files = ("suite.toml",)
    fault = "same"

    def trial(self, seed: int, number: int) -> dict[str, str]:
        self.fault = FAULTS[number % len(FAULTS)]
        return self.tried("suite.toml", Mutation(self.fault, b"", self.fault == "wrong"))

    def read(self, name: str) -> Value:
        if self.fault == "refused":
            raise UsageError("expected another file")
        if self.fault == "exception":
            raise KeyError("no such key")
        if self.fault == "hang":
            time.sleep(600)
        if self.fault == "crash":
            os.abort()
        if self.fault == "memory":
            np.ones(2**24)  # 128 MiB
        return {"value": np.array([float(self.fault in ("other", "wrong"))])}
