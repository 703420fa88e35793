"""What a host and its parent say to each other; the host's half of the conversation is `serve`.

This file runs in the host's Python as well as in ours: any CPython from 3.6, with NumPy alone. There it is what is
started, ``python protocol.py HOST.py … SOCKET``, and runs the host's file. A message is a frame

    4 bytes   RCMP
    4 bytes   length of the header, unsigned, little-endian
    header    JSON, UTF-8: {"arrays": [[name, dtype, shape], ...], ...}
    arrays    their bytes one after another, C-contiguous, little-endian

over a socket of their own, never over standard output, which frameworks write to. Where both sides have mapped the same
memory and a header says ``"memory": true``, the arrays lie there instead: no question is asked before the last answer
is read, so it is free for the next message. Sizes are checked before memory is taken for them, and nothing in a message
is executed. docs/hosts.md has the calls.
"""

import json
import mmap
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

MAGIC = b"RCMP"
DTYPES = {"f4": "float32", "f8": "float64", "i8": "int64", "u1": "uint8"}  # asking NumPy for a name takes 0.02 ms
MOST_HEADER = 2**22  # bytes
MOST_ARRAYS = 2**32  # bytes of all arrays of a message
MOST_DIMENSIONS = 32
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "OOM when allocating")  # in errors
MEMORY = "ROBUSTCMP_HOST_MEMORY"  # the variable with the number of the file that is mapped
MEMORY_SIZE = 2**26  # bytes; larger messages go over the socket

Array = Any  # an ndarray, whose types old versions do not have
Arrays = Dict[str, Array]


class ProtocolError(Exception):
    """What came is no message of this protocol."""


class Closed(Exception):
    """The other side is gone."""


class Channel:
    """Messages over a connected socket.

    Attributes
    ----------
    memory : mmap or None
        What the other side has mapped too.
    """

    def __init__(self, connection: socket.socket, memory: Optional[mmap.mmap] = None) -> None:
        self.memory = memory
        self._socket = connection

    def send(self, content: Dict[str, Any], arrays: Optional[Arrays] = None, seconds: Optional[float] = None) -> None:
        """Send a message.

        Raises
        ------
        Closed
            The other side is gone.
        socket.timeout
            It took nothing for so many seconds.
        """
        described: List[Any] = []
        parts: List[Array] = []
        for name, value in (arrays or {}).items():
            array = np.asarray(value)
            code = array.dtype.str[1:]
            if code not in DTYPES:
                raise ProtocolError(f"expected an array of {', '.join(DTYPES.values())}, received {array.dtype}")
            described.append([name, DTYPES[code], array.shape])
            parts.append(np.asarray(array, "<" + code, order="C"))
        total = sum(part.nbytes for part in parts)
        memory = self.memory if self.memory is not None and 0 < total <= len(self.memory) else None
        header = json.dumps(dict(content, arrays=described, memory=memory is not None)).encode("utf-8")
        if len(header) > MOST_HEADER or total > MOST_ARRAYS:
            raise ProtocolError(f"the message is too large: a header of {len(header)} bytes and arrays of {total}")
        if memory is not None:
            position = 0
            for part in parts:
                np.ndarray(part.shape, part.dtype, memory, position)[...] = part
                position += part.nbytes
            parts = []
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(MAGIC + len(header).to_bytes(4, "little") + header)
            for part in parts:
                self._socket.sendall(part)
        except socket.timeout:
            raise
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, seconds: Optional[float] = None) -> Tuple[Dict[str, Any], Arrays]:
        """Return the next message.

        Raises
        ------
        Closed
            The other side is gone.
        ProtocolError
            What came is no message, or one too large.
        socket.timeout
            Nothing came for so many seconds.
        """
        self._socket.settimeout(seconds)
        frame = bytearray()
        self._read(frame, 8)
        if frame[:4] != MAGIC:
            raise ProtocolError(f"expected a message that begins with {MAGIC!r}, received {bytes(frame[:8])!r}")
        position = 8 + int.from_bytes(frame[4:8], "little")
        if position > 8 + MOST_HEADER:
            raise ProtocolError(f"expected a header of at most {MOST_HEADER} bytes, received {position - 8}")
        self._read(frame, position)
        try:
            content = json.loads(frame[8:position].decode("utf-8"))
            described = content.pop("arrays")
            total = sum(_count_bytes(*array) for array in described)
            in_memory = content.pop("memory", False)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"expected a header in JSON, received something else: {error}") from error
        if total > MOST_ARRAYS:
            raise ProtocolError(f"expected arrays of at most {MOST_ARRAYS} bytes, received {total}")
        if in_memory and (self.memory is None or total > len(self.memory)):
            raise ProtocolError(f"expected arrays over the socket, received {total} bytes that lie in memory")
        if not in_memory:
            self._read(frame, position + total)
        position = 0 if in_memory else position
        arrays: Arrays = {}
        for name, dtype, shape in described:
            arrays[name] = np.ndarray(shape, dtype, self.memory if in_memory else frame, position).copy()
            position += arrays[name].nbytes
        return content, arrays

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _read(self, frame: bytearray, size: int) -> None:
        """Read more of a message until there are so many bytes of it."""
        while len(frame) < size:
            try:
                part = self._socket.recv(2**16)
            except socket.timeout:
                raise
            except OSError as error:
                raise Closed(str(error)) from error
            if not part:
                raise Closed("the other side hung up")
            frame += part


def _count_bytes(name: str, dtype: str, shape: List[int]) -> int:
    """Return the size of an array, or raise `ProtocolError` for one that cannot be."""
    is_known = isinstance(name, str) and dtype in DTYPES.values() and len(shape) <= MOST_DIMENSIONS
    if is_known and all(type(size) is int and size >= 0 for size in shape):
        filled = np.dtype(dtype).itemsize
        for size in shape:
            filled *= size or 1  # an empty array, too, may not have dimensions that NumPy cannot multiply
        if filled <= MOST_ARRAYS:
            return 0 if 0 in shape else filled
    raise ProtocolError(f"the array {name!r} cannot be: {dtype} of the shape {shape}")


class Network:
    """A network in a host; a framework's file ends with ``serve(ItsNetwork)``, a subclass.

    It is built as ``ItsNetwork(architecture, seed)``, of the framework's own layers and initialisation, and has the
    methods of `CALLS`. Weights are in the canonical layout, images (N, H, W, C) float32, gradients those of the sum of
    v·logits. `trainer` begins a training with a velocity of zero, and returns what has `step`, `velocity` and
    `set_velocity`: itself. A step is v = momentum·v + g, w = w − rate·v, and returns the batch's mean cross-entropy.
    """

    framework = ""  # its name
    version = ""  # the framework's
    differences: Dict[str, str] = {}  # what stays its own in a training that is otherwise the same everywhere
    calls: Dict[str, Tuple[Tuple[str, ...], str]] = {}  # more than `CALLS`, if it has any

    @staticmethod
    def threads(count: int) -> None:
        """Let calls use so many threads, where the framework can be told."""


# The arguments of each call, and what its answer is: something to keep, whose number is sent, arrays by name, one
# array, a number, or nothing.
CALLS: Dict[str, Tuple[Tuple[str, ...], str]] = {
    "build": (("architecture", "seed"), "is"),
    "get_weights": ((), "arrays"),
    "set_weights": (("arrays",), ""),
    "logits": (("images",), "logits"),
    "vjp": (("images", "v"), "gradient"),
    "trainer": (("momentum", "weight_decay"), "is"),
    "step": (("images", "labels", "learning_rate"), "loss"),
    "velocity": ((), "arrays"),
    "set_velocity": (("arrays",), ""),
    "threads": (("count",), ""),
}


class _Calls:
    """The calls of the protocol, each with its answer: JSON's types, and arrays."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self._things: Dict[int, Any] = {}
        self._number = 0

    def answer(self, content: Dict[str, Any], arrays: Arrays) -> Tuple[Dict[str, Any], Arrays]:
        call = str(content.get("call"))
        if call == "forget":
            self._things.pop(content["of"], None)
            return {}, {}
        calls = dict(CALLS, **self._network.calls)
        if call not in calls:
            raise ProtocolError(f"unknown call {call!r}")
        names, kind = calls[call]
        values = dict(content, **arrays, arrays=arrays)
        of = self._things[content["of"]] if "of" in content else self._network
        function = of if call == "build" else getattr(of, call)
        result = function(*[values.get(name) for name in names])
        if kind == "is":
            self._number += 1
            self._things[self._number] = result
            return {"is": self._number}, {}
        if kind == "arrays":
            return {}, result
        if kind == "loss":
            return {"loss": float(result)}, {}
        return {}, {kind: np.asarray(result, np.float32)} if kind else {}


def serve(network: Any) -> None:
    """Answer the parent at the socket whose number is the last argument of the process, until it hangs up."""
    channel = Channel(socket.fromfd(int(sys.argv[-1]), socket.AF_UNIX, socket.SOCK_STREAM))
    os.close(int(sys.argv[-1]))
    memory = mmap.mmap(int(os.environ[MEMORY]), MEMORY_SIZE) if MEMORY in os.environ else None
    channel.send(
        {
            "shares_memory": memory is not None,
            "framework": network.framework,
            "version": str(network.version),
            "differences": network.differences,
            "python": ".".join(map(str, sys.version_info[:3])),
            "numpy": np.__version__,
        }
    )
    channel.memory = memory
    calls = _Calls(network)
    try:
        while True:
            content, arrays = channel.receive()
            channel.send(*_try(calls, content, arrays))
    except Closed:
        _end()


def _try(calls: _Calls, content: Dict[str, Any], arrays: Arrays) -> Tuple[Dict[str, Any], Arrays]:
    """Return the answer to a call, or what it raised."""
    try:
        return calls.answer(content, arrays)
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"
        full = isinstance(error, MemoryError) or any(words in text for words in OUT_OF_MEMORY)
        return {"error": text, "out_of_memory": full}, {}


def _end() -> None:
    """End this process at once, and what it has started if it leads them."""
    sys.stderr.flush()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _watch(number: int) -> None:
    """End this process when the parent hangs up, also in a call and while the framework is still being imported."""
    parent = os.dup(number)

    def wait() -> None:
        hung_up = select.poll()
        hung_up.register(parent, 0)
        hung_up.poll()
        _end()

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    _watch(int(sys.argv[-1]))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
