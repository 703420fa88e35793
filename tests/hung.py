"""What hangs, for tests/test_ending.py: the environment variable HANG says where."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any

WHERE = os.environ.get("HANG", "")


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


def while_it_cleans_up() -> None:
    """Hang, and once more after the first interrupt."""
    try:
        forever()
    finally:
        Path("cleaning").touch()
        forever()


def in_a_file_that_fails() -> None:
    """Hang, and make an error of its own of an interrupt."""
    try:
        forever()
    except BaseException:
        raise ImportError("an optional part is missing") from None


def whatever_comes() -> None:
    """Hang, and go on hanging after an interrupt."""
    try:
        forever()
    except BaseException:
        forever()


def in_a_destructor() -> None:
    """Hang where Python reports exceptions and goes on."""

    class Late:
        def __del__(self) -> None:
            forever()

    del_me: Any = Late()
    del del_me
    while True:
        time.sleep(0.1)


HANGS = {
    each.__name__: each
    for each in (forever, in_native_code, while_it_cleans_up, in_a_file_that_fails, whatever_comes, in_a_destructor)
}


def network() -> Any:
    """Return a network of the zoo that hangs in the threads that ask it."""
    import torch

    import robustcmp as rc

    @torch.library.custom_op("robustcmp_tests::hang", mutates_args=(), schema="(Tensor x) -> Tensor")
    def hang(x: Any) -> Any:  # also in what was traced
        if threading.current_thread() is not threading.main_thread():
            forever()
        return x.clone()

    hang.register_autograd(lambda context, gradient: gradient)

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.native = rc.load_model("lenet1", framework="torch", dataset="digits", device="cpu").native

        def forward(self, x: torch.Tensor) -> Any:
            return torch.ops.robustcmp_tests.hang(self.native(x))

    return Network().eval()


if WHERE:  # while it is imported, as code that a user names
    HANGS[WHERE]()
