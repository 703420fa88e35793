"""Files from elsewhere, opened in a process of their own before they are opened in this one.

Runtimes do not check everything that a file says, so a crafted one can crash them, take all memory or never answer.
What does so in another process is refused here. This does not find a file that does it for particular images only.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

from .. import processes
from ..errors import DeploymentError
from ..files import check_holes, open_regular

TRIAL = Path(__file__).with_name("trial.py")
TRIAL_SECONDS = 60.0  # of processor time
WAITED = 10  # times as long, as other programs may take most of the processors' time
OUT_OF_TIME = -getattr(signal, "SIGXCPU", math.inf)  # the exit status


def whole(path: Path, limit: int) -> bytes:
    """Return the bytes of a file, or raise `DeploymentError` for one that cannot be read, is empty, or too large."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < limit:
                check_holes(file.fileno(), path)
            content = file.read() if size < limit else b""
    except (OSError, MemoryError) as error:
        reason = str(error) if isinstance(error, OSError) else "it does not fit into memory"
        raise DeploymentError(f"{path} cannot be read: {reason}") from None
    if size >= limit:
        raise DeploymentError(f"{path} has {size:,} bytes; its runtime opens less than {limit:,}")
    if not content:
        raise DeploymentError(f"{path} is empty. Convert the network again, or copy the file again.")
    return content


def check_answers(path: Path, content: bytes, script: Path, program: str, seconds: float = TRIAL_SECONDS) -> None:
    """Raise `DeploymentError` unless a runtime opens and asks a file in a process of its own.

    Parameters
    ----------
    path : Path
        Where the file is, for errors.
    content : bytes
        What was read of it.
    script : Path
        What opens the content, from its standard input, and asks it.
    program : str
        What the runtime is called.
    seconds : float
        How much processor time it has; it is waited for longer, as the machine may be busy.
    """
    # -P, as the modules beside the scripts have the names of packages.
    command = [sys.executable, "-P", str(TRIAL), str(script), str(math.ceil(seconds))]
    outcome = f"gives no answer within {seconds:g} seconds"
    try:
        status, output, _ = processes.run(command, seconds=WAITED * seconds, content=content)
    except subprocess.TimeoutExpired:
        pass
    else:
        if not status:
            return
        if status != OUT_OF_TIME:
            outcome = f"crashes {program} (exit status {status})"
        if status == 1:
            reason = in_one_line(output)
            raise DeploymentError(f"{path} cannot be opened: {reason or f'{program} refuses it'}")
    raise DeploymentError(
        f"{path} {outcome}, in a process of its own. The file is broken or crafted, or this machine has too little "
        "memory for it. Convert the network again."
    )


def in_one_line(reason: object) -> str:
    """Return a reason in one line; those of runtimes may have hundreds."""
    return " ".join(str(reason).split())[:400]
