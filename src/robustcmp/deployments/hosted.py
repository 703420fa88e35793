"""Runtimes that are asked in a process of their own."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..frameworks.hosted import Hosted
from ..hosts.process import HostProcess
from .base import Runtime
from .sessions import Layout, Session


class HostedRuntime(Runtime):
    """A runtime whose networks live in a host."""

    can_crash = False

    def __init__(self) -> None:
        self._host = Hosted(self.name, self.start)

    @abstractmethod
    def start(self) -> HostProcess:
        """Start its host."""

    def open_program(self, path: Path, content: bytes, **about: str) -> Session:
        """Return a network whose file the host has opened."""
        process = self._host.process()
        number = process.call("load", {"program": np.frombuffer(content, np.uint8)}, **about)[0]["is"]
        _, sizes = process.call("sizes", of=number)

        def ask(images: NDArray[Any]) -> Any:
            _, answer = process.call("logits", {"images": images}, of=number)
            return answer["logits"]

        shape = [size or None for size in sizes["input"].tolist()]
        session = Session(Layout.of(shape, "float32", str(path)), ask)
        weakref.finalize(session, process.forget, number)
        return session
