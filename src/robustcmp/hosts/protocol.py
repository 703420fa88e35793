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
import queue
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

VERSION = 1
MAGIC = b"RCMP"
DTYPES = ("float32", "float64", "int64", "uint8")
MOST_HEADER = 2**22  # bytes
MOST_ARRAYS = 2**32  # bytes of all arrays of a message
MOST_DIMENSIONS = 32
CHUNK = 2**20
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
        self._deadline: Optional[float] = None

    def send(self, content: Dict[str, Any], arrays: Optional[Arrays] = None, seconds: Optional[float] = None) -> None:
        """Send a message.

        Raises
        ------
        Closed
            The other side is gone.
        socket.timeout
            It did not take the message within so many seconds.
        """
        self._start(seconds)
        described: List[Any] = []
        parts: List[Array] = []
        for name, value in (arrays or {}).items():
            array = np.ascontiguousarray(value, dtype=np.asarray(value).dtype.newbyteorder("<"))
            if array.dtype.name not in DTYPES:
                raise ProtocolError("expected an array of {}, received {}".format(", ".join(DTYPES), array.dtype))
            described.append([name, array.dtype.name, list(np.shape(value))])
            parts.append(array)
        total = sum(part.nbytes for part in parts)
        memory = self.memory if self.memory is not None and 0 < total <= len(self.memory) else None
        header = json.dumps(dict(content, arrays=described, memory=memory is not None)).encode("utf-8")
        if len(header) > MOST_HEADER or total > MOST_ARRAYS:
            raise ProtocolError(f"the message is too large: a header of {len(header)} bytes and arrays of {total}")
        try:
            if memory is not None:
                _lay(parts, memory)
            self._tick()
            self._socket.sendall(MAGIC + struct.pack("<I", len(header)) + header)
            for part in parts:
                if part.size and memory is None:
                    self._tick()
                    self._socket.sendall(memoryview(part).cast("B"))
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
            The message was not there within so many seconds.
        """
        self._start(seconds)
        start = self._read(bytearray(8))
        if start[:4] != MAGIC:
            raise ProtocolError(f"expected a message that begins with {MAGIC!r}, received {bytes(start)!r}")
        (length,) = struct.unpack("<I", start[4:])
        if length > MOST_HEADER:
            raise ProtocolError(f"expected a header of at most {MOST_HEADER} bytes, received {length}")
        try:
            content = json.loads(self._read(bytearray(length)).decode("utf-8"))
            described = [
                (str(name), str(dtype), tuple(int(size) for size in shape))
                for name, dtype, shape in content.pop("arrays")
            ]
            in_memory = content.pop("memory", False)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"expected a header in JSON, received something else: {error}") from error
        total = 0
        for name, dtype, shape in described:
            if dtype not in DTYPES or len(shape) > MOST_DIMENSIONS or any(not 0 <= size < 2**48 for size in shape):
                raise ProtocolError(f"the array {name!r} cannot be: {dtype} of the shape {shape}")
            bytes_of_it = np.dtype(dtype).itemsize
            for size in shape:
                bytes_of_it *= size
            total += bytes_of_it
        if total > MOST_ARRAYS:
            raise ProtocolError(f"expected arrays of at most {MOST_ARRAYS} bytes, received {total}")
        memory = self.memory if in_memory else None
        if in_memory and (memory is None or total > len(memory)):
            raise ProtocolError(f"expected arrays over the socket, received {total} bytes that lie in memory")
        arrays, position = {}, 0
        for name, dtype, shape in described:
            try:
                array: Any = np.empty(shape, dtype)
            except (ValueError, MemoryError) as error:
                raise ProtocolError(f"the array {name!r} cannot be held: {dtype} of the shape {shape}") from error
            if array.size and memory is not None:
                array.reshape(-1)[:] = np.frombuffer(memory, dtype, array.size, position)
                position += array.nbytes
            elif array.size:
                self._read(memoryview(array.reshape(-1)).cast("B"))
            arrays[name] = array
        return content, arrays

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _start(self, seconds: Optional[float]) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def _tick(self) -> None:
        """Let the next operation take what is left of the time."""
        if self._deadline is None:
            self._socket.settimeout(None)
            return
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self._socket.settimeout(left)

    def _read(self, into: Any) -> Any:
        view, done = memoryview(into), 0
        while done < len(view):
            try:
                self._tick()
                count = self._socket.recv_into(view[done : done + CHUNK])
            except socket.timeout:
                raise
            except OSError as error:
                raise Closed(str(error)) from error
            if not count:
                raise Closed("the other side hung up")
            done += count
        return into


def _lay(arrays: List[Array], memory: mmap.mmap) -> None:
    """Put arrays into memory, one after another."""
    position = 0
    for array in arrays:
        np.frombuffer(memory, array.dtype, array.size, position)[:] = array.reshape(-1)
        position += array.nbytes


class Host:
    """What a host can be asked; a framework's host is a subclass, and ends its file with ``serve(TheHost)``.

    Weights are in the canonical layout, images (N, H, W, C) float32. Networks are known by numbers that `build` gives.
    """

    framework = ""  # its name
    differences: Dict[str, str] = {}  # what stays its own in a training that is otherwise the same everywhere

    def version(self) -> str:
        """Return the framework's version."""
        raise NotImplementedError

    def build(self, architecture: Dict[str, Any], seed: int) -> Any:
        """Return a network with the framework's own layers and initialisation, a function of the seed."""
        raise NotImplementedError

    def get_weights(self, network: Any) -> Arrays:
        """Return the weights."""
        raise NotImplementedError

    def set_weights(self, network: Any, weights: Arrays) -> None:
        """Put weights into a network."""
        raise NotImplementedError

    def logits(self, network: Any, images: Array) -> Array:
        """Return the logits (N, K)."""
        raise NotImplementedError

    def vjp(self, network: Any, images: Array, v: Array) -> Array:
        """Return the gradient (N, H, W, C) of the sum of v·logits with respect to the images."""
        raise NotImplementedError

    def trainer(self, network: Any, momentum: float, weight_decay: float) -> Any:
        """Return what `step` needs to train a network."""
        raise NotImplementedError

    def step(self, trainer: Any, images: Array, labels: Array, learning_rate: float) -> float:
        """Take a step v = momentum·v + g, w = w − rate·v, and return the batch's mean cross-entropy."""
        raise NotImplementedError

    def velocity(self, trainer: Any) -> Arrays:
        """Return v, in the canonical layout."""
        raise NotImplementedError

    def set_velocity(self, trainer: Any, velocity: Arrays) -> None:
        """Restore v."""
        raise NotImplementedError

    def threads(self, count: int) -> None:
        """Let calls use so many threads, where the framework can be told."""

    def other(
        self, call: str, that: Any, content: Dict[str, Any], arrays: Arrays
    ) -> Tuple[Any, Dict[str, Any], Arrays]:
        """Answer a call of the host's own: with a thing to keep or None, the answer's header and its arrays."""
        raise ProtocolError(f"unknown call {call!r}")


class _Calls:
    """The calls of the protocol, each with its answer: JSON's types, and arrays."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._kept: Dict[int, Any] = {}
        self._number = 0

    def answer(self, content: Dict[str, Any], arrays: Arrays) -> Tuple[Dict[str, Any], Arrays]:
        call = content.get("call")
        host, that = self._host, self._kept.get(content.get("of", 0))
        if call == "build":
            return self._keep(host.build(content["architecture"], content["seed"])), {}
        if call == "trainer":
            return self._keep(host.trainer(that, content["momentum"], content["weight_decay"])), {}
        if call == "get_weights":
            return {}, host.get_weights(that)
        if call == "set_weights":
            host.set_weights(that, arrays)
            return {}, {}
        if call == "logits":
            return {}, {"logits": np.asarray(host.logits(that, arrays["images"]), np.float32)}
        if call == "vjp":
            return {}, {"gradient": np.asarray(host.vjp(that, arrays["images"], arrays["v"]), np.float32)}
        if call == "step":
            return {"loss": float(host.step(that, arrays["images"], arrays["labels"], content["learning_rate"]))}, {}
        if call == "velocity":
            return {}, host.velocity(that)
        if call == "set_velocity":
            host.set_velocity(that, arrays)
            return {}, {}
        if call == "threads":
            host.threads(content["count"])
            return {}, {}
        if call == "forget":
            self._kept.pop(content["of"], None)
            return {}, {}
        thing, answer, answered = host.other(str(call), that, content, arrays)
        return (answer if thing is None else dict(answer, **self._keep(thing))), answered

    def _keep(self, thing: Any) -> Dict[str, Any]:
        self._number += 1
        self._kept[self._number] = thing
        return {"is": self._number}


def serve(kind: Any) -> None:
    """Answer the parent at the socket whose number is the last argument of the process, until it hangs up.

    Calls are read beside the work.
    """
    connection = socket.fromfd(int(sys.argv[-1]), socket.AF_UNIX, socket.SOCK_STREAM)
    os.close(int(sys.argv[-1]))
    memory = mmap.mmap(int(os.environ[MEMORY]), MEMORY_SIZE) if MEMORY in os.environ else None
    channel = Channel(connection)
    host = kind()
    greeting = {
        "protocol": VERSION,
        "shares_memory": memory is not None,
        "framework": host.framework,
        "version": host.version(),
        "differences": host.differences,
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": np.__version__,
    }
    channel.send(greeting)
    channel.memory = memory
    inbox: Any = queue.Queue()

    def listen() -> None:
        while True:
            try:
                inbox.put(channel.receive())
            except Closed:
                end(0)
            except BaseException:
                traceback.print_exc()
                end(1)

    threading.Thread(target=listen, daemon=True).start()
    calls = _Calls(host)
    while True:
        content, arrays = inbox.get()
        try:
            start = time.perf_counter()
            answer, answered = calls.answer(content, arrays)
            channel.send(dict(answer, seconds=time.perf_counter() - start), answered)
        except Closed:
            end(0)
        except Exception as error:
            traceback.print_exc()
            said = f"{type(error).__name__}: {error}"
            full = isinstance(error, MemoryError) or any(words in said for words in OUT_OF_MEMORY)
            channel.send({"error": said, "out_of_memory": full})


def end(status: int) -> None:
    """End this process at once, and what it has started if it leads them."""
    sys.stderr.flush()
    if os.getpgrp() == os.getpid() and not status:
        os.killpg(0, signal.SIGKILL)
    os._exit(status)


def watch(number: int) -> None:
    """End this process when the parent hangs up, also while the framework is still being imported."""
    parent = os.dup(number)

    def wait() -> None:
        hung_up = select.poll()
        hung_up.register(parent, 0)
        hung_up.poll()
        end(0)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    watch(int(sys.argv[-1]))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
