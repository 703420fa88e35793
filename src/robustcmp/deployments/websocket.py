"""The server's end of a WebSocket (RFC 6455), for binary messages between this program and a page of its own."""

from __future__ import annotations

import base64
import hashlib
import select
import socket
import struct
import time
from contextlib import suppress

import numpy as np

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
CONTINUED, BINARY, CLOSE, PING, PONG = 0x0, 0x2, 0x8, 0x9, 0xA
FINAL, MASKED = 0x80, 0x80


class Closed(ConnectionError):
    """The other end has gone, or does not speak the protocol."""


def accepted(key: str) -> str:
    """Return the answer to the key of a request for a WebSocket.

    Examples
    --------
    >>> accepted("dGhlIHNhbXBsZSBub25jZQ==")
    's3pPLMBiTxaQ9kYGzzhZRbK+xOo='
    """
    return base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()


class WebSocket:
    """A connection after its handshake. A single thread at a time uses it."""

    def __init__(self, connection: socket.socket, most: int):
        self._connection = connection
        self._most = most
        connection.setblocking(False)

    def send(self, message: bytes, seconds: float) -> None:
        """Send a binary message.

        Raises
        ------
        Closed, TimeoutError
        """
        self._send(BINARY, message, time.monotonic() + seconds)

    def receive(self, seconds: float) -> bytes:
        """Return the next binary message.

        Raises
        ------
        Closed, TimeoutError
        """
        deadline = time.monotonic() + seconds
        message = bytearray()
        while True:
            first, second = self._read(2, deadline)
            length = second & ~MASKED
            if length > 125:
                length = int.from_bytes(self._read(2 if length == 126 else 8, deadline), "big")
            kind = first & 0x0F
            if not second & MASKED or len(message) + length > self._most:
                raise Closed(f"a frame of {length} bytes")
            mask = self._read(4, deadline)
            content = _masked(self._read(length, deadline), mask)
            if kind == PING:
                self._send(PONG, content, deadline)
            elif kind in (BINARY, CONTINUED):
                message += content
                if first & FINAL:
                    return bytes(message)
            elif kind != PONG:
                raise Closed("the page has closed it" if kind == CLOSE else f"a frame of kind {kind}")

    def hang_up(self) -> None:
        """End the connection, also under a thread that waits for a message."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _send(self, kind: int, content: bytes, deadline: float) -> None:
        size = len(content)
        short = size if size < 126 else 126 if size < 1 << 16 else 127
        extended = b"" if size < 126 else struct.pack(">H" if short == 126 else ">Q", size)
        for part in (bytes([FINAL | kind, short]) + extended, content):
            left = memoryview(part)
            while left:
                try:
                    left = left[self._connection.send(left) :]
                except (BlockingIOError, InterruptedError):
                    self._wait(deadline, writing=True)
                except OSError as error:
                    raise Closed(str(error)) from None

    def _read(self, size: int, deadline: float) -> bytes:
        content = bytearray(size)
        left = memoryview(content)
        while left:
            try:
                received = self._connection.recv_into(left)
            except (BlockingIOError, InterruptedError):
                self._wait(deadline, writing=False)
                continue
            except OSError as error:
                raise Closed(str(error)) from None
            if not received:
                raise Closed("it has been closed")
            left = left[received:]
        return bytes(content)

    def _wait(self, deadline: float, writing: bool) -> None:
        wanted = select.poll()  # select would refuse descriptors above 1023
        try:
            wanted.register(self._connection, select.POLLOUT if writing else select.POLLIN)
        except ValueError:
            raise Closed("it has been closed") from None
        left = deadline - time.monotonic()
        if left <= 0 or not wanted.poll(1000 * left):
            raise TimeoutError


def _masked(content: bytes, mask: bytes) -> bytes:
    """Return content with a mask of 4 bytes applied to it, or taken off it."""
    padded = np.frombuffer(content.ljust(-(-len(content) // 4) * 4, b"\0"), np.uint32)
    return (padded ^ np.frombuffer(mask, np.uint32)).tobytes()[: len(content)]
