"""The host of docs/hosts.md, which can be told to go wrong: ``linear_host.py FAULT``."""

import ctypes
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import protocol

FAULT = sys.argv[1]
PAGE = Path(__file__).parents[1] / "docs" / "hosts.md"
CODE = re.search(r'title="linear_host.py"\n(.*?)^serve\(Linear\)$', PAGE.read_text(encoding="utf-8"), re.S | re.M)
exec(compile(CODE[1], str(PAGE), "exec"))


class Faulty(Linear):  # noqa: F821
    asked = 0

    def logits(self, images):
        self.asked += 1
        z = super().logits(images)
        if FAULT == "dies once" and self.asked >= 3 and not os.path.exists("died"):
            open("died", "w").close()
            os._exit(7)
        if FAULT == "dies always":
            print("about to fall over", file=sys.stderr, flush=True)
            os._exit(7)
        if FAULT == "late":
            time.sleep(60)
        if FAULT == "holds":  # no other thread runs meanwhile
            ctypes.PyDLL(None).sleep(60)
        if FAULT == "raises":
            raise ValueError("no such thing as a digit")
        if FAULT == "small" and len(images) > 5:
            raise MemoryError("too many")
        if FAULT == "floods":
            for _ in range(40):
                print("x" * 2**20, flush=True)
        return {"short": z[:-1], "nan": z * np.nan}.get(FAULT, z)

    def get_weights(self):
        weights = super().get_weights()
        if FAULT == "NaN weights":
            return {name: weight * np.float32("nan") for name, weight in weights.items()}
        return weights


if FAULT == "no library":
    import theano_of_2018  # noqa: F401
if FAULT == "never greets":
    time.sleep(60)
if FAULT == "prints":
    print("Using NumPy backend.", flush=True)
if FAULT == "babbles":
    os.write(int(sys.argv[-1]), b"Using NumPy backend.\n")
if FAULT == "promises too much":
    os.write(int(sys.argv[-1]), b"RCMP" + (2**31).to_bytes(4, "little"))
protocol.serve(Faulty)
