"""What hangs, for tests/test_ending.py."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path


def here() -> None:
    """Let the test know that a thread hangs."""
    Path(f"hanging-{threading.get_ident()}").touch()


def forever() -> None:
    """Hang as an endless loop does."""
    here()
    while True:
        time.sleep(0.1)


def in_native_code() -> None:
    """Hang where Python sees no signal: a lock is taken twice."""
    here()
    system = ctypes.CDLL(None)
    lock = ctypes.create_string_buffer(64)  # PTHREAD_MUTEX_INITIALIZER is zeros
    system.pthread_mutex_lock(lock)
    system.pthread_mutex_lock(lock)
