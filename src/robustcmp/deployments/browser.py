"""Chromium without a screen, as a host of networks: a page of its own for each, in which a runtime's JavaScript runs.

Chromium is started with the first page, in a session of its own, and ends with this process, however that ends. Pages
and scripts come from a server in this process at 127.0.0.1, under an address that only the page is told; images and
logits are exchanged through a WebSocket. A page may ask nothing else of the net.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import queue
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
from ..files import write_text_atomically
from ..hosts.variables import passed_on
from . import chromium_keeper
from .websocket import Closed, WebSocket, accepted

CHROMIUM = "ROBUSTCMP_CHROMIUM"  # the variable that names another Chromium
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
ELSEWHERE = (  # on macOS, and what Playwright has installed
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "~/.cache/ms-playwright/chromium-*/chrome-linux*/chrome",
    "~/Library/Caches/ms-playwright/chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
)
OPTIONS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",  # containers have little of it
    "--disable-extensions",
    "--disable-renderer-backgrounding",
    "--disable-sync",
    "--enable-unsafe-webgpu",  # Linux's Chromium has WebGPU behind this option
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
    "about:blank",
)
WEBGPU = "webgpu"
KEEPER = (sys.executable, "-I", "-S", chromium_keeper.__file__)
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0  # for one batch, or for a network to be made ready
DEATH_SECONDS = 2.0  # until Chromium has said why a page ended
MOST_BYTES = 2**30  # of an answer
TAIL = 300  # characters of what Chromium wrote that an error shows
BATCH = 32  # images a question: more are slower, as what a layer returns no longer fits into the caches

# The page may run its scripts and WebAssembly and talk to this process; nothing else.
POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' {socket}; base-uri 'none'"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".mjs": "text/javascript"}
TYPES |= {".wasm": "application/wasm"}


def executable() -> str | None:
    """Return the Chromium, Chrome or Edge that is started, or None."""
    given = os.environ.get(CHROMIUM)
    if given:
        return shutil.which(os.path.expanduser(given))
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or next(filter(None, map(_newest, ELSEWHERE)), None)


def _newest(pattern: str) -> str | None:
    root, _, rest = os.path.expanduser(pattern).partition("/")
    paths = sorted(map(str, Path(root or "/").glob(rest)), key=lambda path: [*map(int, re.findall(r"\d+", path))])
    return next((path for path in reversed(paths) if os.access(path, os.X_OK)), None)


def missing(name: str) -> str:
    """Say why a runtime that needs a browser cannot be asked here, "" if it can."""
    if os.name != "posix":
        return f"{name} runs in a browser, which robustcmp can drive on Linux and macOS alone, not on {sys.platform}"
    if executable() is None:
        given = os.environ.get(CHROMIUM)
        where = f"${CHROMIUM} names {given!r}, which is no program" if given else f"none of {', '.join(NAMES)} is here"
        return (
            f"{name} runs in Chromium, and {where}. Install Chromium (apt-get install chromium) or Chrome, or set "
            f"{CHROMIUM} to its program"
        )
    return ""


def version() -> str:
    """Return Chromium's version, "unknown" where it does not say it."""
    program = executable()
    return _version(program) if program else "unknown"


@cache
def _version(program: str) -> str:
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, timeout=START_SECONDS, stdin=subprocess.DEVNULL, check=False
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else "unknown"


def write_backend(path: Path, backend: str) -> None:
    """Note beside a file what computes it, if that is not WebAssembly."""
    if backend != "wasm":
        write_text_atomically(_note(path), f"{backend}\n")
    else:
        _note(path).unlink(missing_ok=True)  # of a file that this one replaces


def read_backend(path: Path) -> str:
    """Return what computes a file: WebAssembly, unless a conversion has noted something else beside it."""
    return WEBGPU if _note(path).is_file() else "wasm"


def beside(path: Path) -> list[Path]:
    """Return the note of what computes a file, if there is one."""
    return [_note(path)] if _note(path).is_file() else []


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.{WEBGPU}")


def check_backend(name: str, backend: str) -> None:
    """Raise `DeploymentError` where Chromium is not there, or has no WebGPU and that is asked for."""
    why = missing(name)
    if why:
        raise DeploymentError(why)
    if backend == WEBGPU:
        page = open_page(f"{name} on WebGPU", (), {})
        try:
            page.ask("adapter")
        finally:
            page.close()


def open_page(name: str, scripts: Sequence[str], available: Mapping[str, Path]) -> Page:
    """Open a page in Chromium, which is started if it does not run.

    Parameters
    ----------
    name : str
        What it is called in errors.
    scripts : sequence of str
        What it runs, in this order: names of `available`, or of robustcmp's own files.
    available : dict of str to Path
        The files that its scripts can load, by their names.

    Raises
    ------
    DeploymentError
        There is no Chromium, it does not start, or a script fails.
    """
    why = missing(name)
    if why:
        raise DeploymentError(why)
    return Page(_running(), name, scripts, available)


_lock = threading.Lock()
_started: list[Browser] = []  # the last one; in a process that was forked off, the parent's


def _running() -> Browser:
    with _lock:
        if not _started or not _started[-1].alive:
            for ended in _started:
                ended.close()
            _started[:] = [Browser()]
        return _started[-1]


class Browser:
    """Chromium's process, as the keeper of pages.

    Attributes
    ----------
    pages : dict of str to Page
        Those that are open, by the secret part of their addresses.

    Raises
    ------
    DeploymentError
        It does not start.
    """

    def __init__(self) -> None:
        self.pages: weakref.WeakValueDictionary[str, Page] = weakref.WeakValueDictionary()
        self._owner = os.getpid()
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._crashed: dict[str, str] = {}
        self._ended = threading.Event()
        self._sending = threading.Lock()
        self._process = _start()
        self._server = _Server(self)
        for target in (self._server.serve_forever, self._listen):
            threading.Thread(target=target, name="robustcmp-browser", daemon=True).start()
        self.close = weakref.finalize(self, _end, self._owner, self._process, self._server)
        try:
            self.command("Target.setDiscoverTargets", discover=True)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can open pages, asked by this process."""
        return os.getpid() == self._owner and bool(self.close.alive) and not self._ended.is_set()

    @property
    def address(self) -> str:
        """Where its pages are, without the scheme."""
        return f"127.0.0.1:{self._server.server_port}"

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give Chromium a command of its DevTools protocol, and return the result.

        Raises
        ------
        DeploymentError
            Chromium has ended, does not answer, or refuses.
        """
        number = next(self._numbers)
        answer = self._answers[number] = queue.SimpleQueue()
        try:
            self._send({"id": number, "method": method, "params": parameters})
            said = {"error": {"message": "it has ended"}} if self._ended.is_set() else answer.get(timeout=START_SECONDS)
        except OSError as error:
            said = {"error": {"message": f"it has ended ({error.strerror})"}}
        except queue.Empty:
            said = {"error": {"message": f"no answer within {START_SECONDS:g} seconds"}}
        finally:
            del self._answers[number]
        if "error" in said:
            raise DeploymentError(f"Chromium did not do {method}: {said['error']['message']}.{self._wrote()}")
        return cast(dict[str, Any], said["result"])

    def forget(self, target: str) -> None:
        """Let it close a page; nothing is waited for."""
        with suppress(OSError):
            self._send({"id": next(self._numbers), "method": "Target.closeTarget", "params": {"targetId": target}})

    def why(self, target: str) -> str:
        """Say why the connection to a page is lost."""
        if self._ended.wait(DEATH_SECONDS if target not in self._crashed else 0):
            return f"Chromium ended.{self._wrote()}"
        return f"the page {self._crashed.get(target, 'closed its connection')}"

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:
            left = memoryview(json.dumps(message).encode() + b"\0")
            while left:
                left = left[self._process.commands.write(left) or 0 :]

    def _wrote(self) -> str:
        """What it wrote last; a keeper that could not start it says so as well."""
        with suppress(OSError, ValueError):
            output = self._process.output
            output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL))
            last = " ".join(output.read().decode("utf-8", "replace").split())
            return f" It wrote last: {last}" if last else ""
        return ""

    def _listen(self) -> None:
        """Hand out what Chromium says, in a thread of its own, until it ends."""
        with self._process.answers as answers:
            for message in _messages(answers):
                if "id" in message and message["id"] in self._answers:
                    self._answers[message["id"]].put(message)
                elif message.get("method") == "Target.targetCrashed":
                    self._lost(message["params"])
        self._ended.set()
        for answer in list(self._answers.values()):
            answer.put({"error": {"message": "it has ended"}})
        for page in list(self.pages.values()):
            page.hang_up()

    def _lost(self, said: dict[str, Any]) -> None:
        target = said["targetId"]
        self._crashed[target] = f"crashed ({said.get('status')}, {said.get('errorCode')})"
        for page in list(self.pages.values()):
            if page.target == target:
                page.hang_up()


def _messages(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield JSON objects that end with a zero byte."""
    left = b""
    while True:
        try:
            piece = os.read(file.fileno(), 1 << 16)
        except OSError:
            return
        if not piece:
            return
        *whole, left = (left + piece).split(b"\0")
        yield from map(json.loads, whole)


class _Process(NamedTuple):
    """Chromium with its keeper.

    Attributes
    ----------
    keeper : Popen
        The process that has started Chromium.
    commands, answers : file
        The pipes to and from Chromium.
    output : file
        What both have written.
    profile : str
        The folder of what Chromium keeps.
    """

    keeper: subprocess.Popen[bytes]
    commands: IO[bytes]
    answers: IO[bytes]
    output: IO[bytes]
    profile: str


def _start() -> _Process:
    output = tempfile.TemporaryFile()  # noqa: SIM115, as long as the process
    profile = chromium_keeper.new_profile()
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0  # for root, Chromium makes no sandbox
    chromium = [cast(str, executable()), *["--no-sandbox"] * as_root, *OPTIONS]
    try:
        keeper = subprocess.Popen(
            [*KEEPER, str(theirs_read), str(theirs_write), profile, *chromium],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[theirs_read, theirs_write],
            start_new_session=True,  # Ctrl-C is for this process
            env=passed_on(os.environ),
        )
    finally:
        os.close(theirs_read)
        os.close(theirs_write)
    return _Process(keeper, os.fdopen(ours_write, "wb", buffering=0), os.fdopen(ours_read, "rb"), output, profile)


def _end(owner: int, process: _Process, server: _Server) -> None:
    """End Chromium, and see that nothing is left of it."""
    process.output.close()
    if os.getpid() != owner:
        return
    for pipe in (process.commands, cast(IO[bytes], process.keeper.stdin)):
        with suppress(OSError):
            pipe.close()
    server.shutdown()
    server.server_close()
    process.keeper.wait()
    chromium_keeper.remove(process.profile)  # where the keeper was killed


class Page:
    """A page that answers one question at a time.

    Attributes
    ----------
    target : str
        What Chromium calls it.
    """

    def __init__(self, browser: Browser, name: str, scripts: Sequence[str], available: Mapping[str, Path]):
        self.name = name
        self.target = ""
        self.available = available
        self.html = "".join(
            ["<!doctype html><meta charset=utf-8><title>robustcmp</title>"]
            + [f'<script src="{script}"></script>' for script in ("browser_page.js", *scripts)]
        ).encode()
        self._browser = browser
        self._owner = os.getpid()
        self._dead = ""
        self._numbers = itertools.count(1)
        self._one_at_a_time = threading.Lock()
        self._gone = threading.Event()
        self._socket: WebSocket | None = None
        self._arrived: queue.SimpleQueue[WebSocket | None] = queue.SimpleQueue()
        key = secrets.token_urlsafe()
        browser.pages[key] = self
        self.target = browser.command("Target.createTarget", url=f"http://{browser.address}/{key}/")["targetId"]
        self.close = weakref.finalize(self, _close, browser, self.target, self._gone)
        self.close.atexit = False  # then Chromium itself ends
        try:
            socket = self._arrived.get(timeout=START_SECONDS)
            if socket is None:
                raise self._ended(browser.why(self.target))
            self._received(socket, 0, START_SECONDS)
        except Closed:
            raise self._ended(browser.why(self.target)) from None
        except (queue.Empty, TimeoutError):
            raise self._ended(f"did not connect within {START_SECONDS:g} seconds") from None
        except BaseException:
            self.close()
            raise

    def ask(self, call: str, values: bytes | memoryview = b"", **header: Any) -> tuple[dict[str, Any], bytes]:
        """Ask one thing, and return the answer.

        Raises
        ------
        DeploymentError
            It failed, or the page has ended or did not answer in time, and was ended.
        """
        with self._one_at_a_time:
            if os.getpid() != self._owner:
                raise DeploymentError(f"{self.name} was opened in another process. Open the file again in this one.")
            if self._dead:
                raise DeploymentError(f"{self.name} cannot be asked any more: {self._dead} Open the file again.")
            socket, number = cast(WebSocket, self._socket), next(self._numbers)
            text = json.dumps({"id": number, "call": call, **header}).encode()
            text += b" " * (-(4 + len(text)) % 8)
            message = b"".join([len(text).to_bytes(4, "little"), text, values])
            try:
                socket.send(message, ANSWER_SECONDS)
                return self._received(socket, number, ANSWER_SECONDS)
            except Closed:
                raise self._ended(self._browser.why(self.target)) from None
            except TimeoutError:
                raise self._ended(f"did not answer {call} within {ANSWER_SECONDS:g} seconds") from None
            except DeploymentError:
                raise
            except BaseException:  # an interrupt between question and answer: the next answer would be this one's
                self._ended("was interrupted")
                raise

    def hang_up(self) -> None:
        """Let whoever waits for an answer know that there will be none."""
        self._arrived.put(None)
        if self._socket is not None:
            self._socket.hang_up()
        self._gone.set()

    def connected(self, socket: WebSocket) -> threading.Event:
        """Take the connection that the page has opened, and return what is set when it is no longer needed."""
        self._socket = socket
        self._arrived.put(socket)
        return self._gone

    def _received(self, socket: WebSocket, number: int, seconds: float) -> tuple[dict[str, Any], bytes]:
        message = socket.receive(seconds)
        start = 4 + int.from_bytes(message[:4], "little")
        try:
            header: dict[str, Any] = json.loads(message[4:start])
        except ValueError:
            header = {"id": None, "error": "an answer that is no JSON"}
        if header.get("id") != number:
            raise self._ended(f"failed: {header.get('error', 'an answer to another question')}")
        if "error" in header:
            raise DeploymentError(f"{self.name}: {header['error']}")
        return header, message[start:]

    def _ended(self, why: str) -> DeploymentError:
        self._dead = f"{why.rstrip('.')}."
        self.close()
        return DeploymentError(f"{self.name}: {self._dead} Open the file again to go on.")


def _close(browser: Browser, target: str, gone: threading.Event) -> None:
    gone.set()
    browser.forget(target)


class _Server(ThreadingHTTPServer):
    """Serves the pages of a browser, their scripts, and their WebSockets."""

    daemon_threads = True

    def __init__(self, browser: Browser):
        self.browser = weakref.ref(browser)
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a page that has gone is noticed by whoever asks it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments: Any) -> None:
        """Keep standard error for the user."""

    def do_GET(self) -> None:
        key, _, name = self.path.removeprefix("/").partition("/")
        server = cast(_Server, self.server)
        browser = server.browser()
        page = browser.pages.get(key) if browser else None
        if page is None:
            self.send_error(404)
        elif name == "socket" and "Sec-WebSocket-Key" in self.headers:
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", accepted(self.headers["Sec-WebSocket-Key"]))
            self.end_headers()
            gone = page.connected(WebSocket(self.connection, MOST_BYTES))
            del page, browser  # whoever uses the page may forget it
            gone.wait()
            self.close_connection = True
        else:
            self._send(name, page)

    def _send(self, name: str, page: Page) -> None:
        content = page.html if not name else _content(name, page.available)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", TYPES.get(Path(name or "x.html").suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(content)))
        host = f"127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
        self.send_header("Content-Security-Policy", POLICY.format(socket=f"ws://{host}"))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)


def _content(name: str, available: Mapping[str, Path]) -> bytes | None:
    if name in available:
        return available[name].read_bytes()
    own = files("robustcmp.resources") / name
    return own.read_bytes() if re.fullmatch(r"[a-z_]+_page\.js", name) and own.is_file() else None


def rows(page: Page, x: NDArray[Any], **header: Any) -> NDArray[np.float32]:
    """Ask a page what its network answers, the first axis being that of the images.

    Parameters
    ----------
    page : Page
        The page.
    x : ndarray
        The network's input.
    **header
        What `ask` of the page's script wants beside it.
    """
    answers = []
    for start in range(0, len(x), BATCH):
        part = np.ascontiguousarray(x[start : start + BATCH])
        said, values = page.ask("ask", part.data.cast("B"), shape=part.shape, dtype=part.dtype.name, **header)
        shape = said["shape"]
        if not shape or shape[0] != len(part) or len(values) != 4 * math.prod(shape):
            raise DeploymentError(f"{page.name} should answer {len(part)} images with as many rows, received {shape}")
        answers.append(np.frombuffer(values, "<f4").reshape(shape))
    return np.concatenate(answers)
