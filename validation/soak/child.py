"""A process that reads broken files: it is told the number of a trial, and answers with the outcome.

``python -m soak.child READER MATERIAL SCRATCH SEED DESCRIPTOR``
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from .faults import Faults
from .readers import READERS


def memory(field: str) -> int:
    """Return a figure of this process's memory in bytes: ``VmRSS``, or ``VmHWM`` for the most since it was reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def where(error: BaseException) -> str:
    """Return the last place in robustcmp that an exception came through, and the last one at all."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/robustcmp/" in frame.filename]
    places = [f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.name}" for frame in (*ours[-1:], *frames[-1:])]
    return " < ".join(dict.fromkeys(places))


def main() -> None:
    """Answer until the parent hangs up."""
    name, material, scratch, seed, descriptor = sys.argv[1:]
    faulthandler.enable()
    warnings.simplefilter("ignore")
    reader = {"faults": Faults, **READERS}[name](Path(material), Path(scratch))
    with os.fdopen(int(descriptor), "w", buffering=1) as answers:
        answers.write(json.dumps({"ready": True}) + "\n")
        for line in sys.stdin:
            number = int(line)
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # from here on VmHWM is this trial's
            before, start = memory("VmRSS"), time.perf_counter()
            said: dict[str, Any]
            try:
                said = dict(reader.trial(int(seed), number))
            except BaseException as error:
                kind = next(iter(getattr(error, "__notes__", [])), "")
                text = f"{type(error).__name__}: {error}"[:300]
                said = {"outcome": "exception", "type": type(error).__name__, "where": where(error), "why": text}
                said["kind"] = kind.removeprefix("soak: ")
            said["seconds"] = time.perf_counter() - start
            said["memory"] = memory("VmHWM") - before
            answers.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
