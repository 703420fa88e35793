"""Chromium without a screen, as a host of networks: a page of its own for each, in which a runtime's JavaScript runs.

Playwright starts Chromium with the first page, in a thread of its own, and ends it with this process. Pages and scripts
come from a server in this process at 127.0.0.1, under an address that only the page is told; there a page posts its
answers and receives the next question. It may ask nothing else of the net.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import queue
import re
import secrets
import shutil
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import processes
from ...errors import DeploymentError
from ...files import write_text_atomically
from ...hosts.variables import select_variables

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

CHROMIUM = "ROBUSTCMP_CHROMIUM"  # the variable that names another Chromium
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
ON_MACOS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
OPTIONS = ("--enable-unsafe-webgpu",)  # Linux's Chromium has WebGPU behind it
WEBGPU = "webgpu"
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0  # for one batch, or for a network to be made ready
EVENTS_MILLISECONDS = 100  # between two looks at what Chromium says, such as that a page has crashed
MOST_BYTES = 2**30  # of an answer
TAIL = 300  # characters of what Chromium wrote that an error shows
BATCH = 32  # images that are computed at once: more are slower, as what a layer returns no longer fits into the caches
BATCHES = 16  # in one question, as asking takes about as long as computing one

# The page may run its scripts and WebAssembly and talk to this process; nothing else.
POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; base-uri 'none'"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".wasm": "application/wasm",
}


def executable() -> str | None:
    """Return the Chromium, Chrome or Edge that is started, or None."""
    program = os.environ.get(CHROMIUM)
    if program:
        return shutil.which(os.path.expanduser(program))
    return next(filter(None, map(shutil.which, (*NAMES, ON_MACOS))), None)


def missing(name: str) -> str:
    """Say why a runtime that needs a browser cannot be asked here, "" if it can."""
    if find_spec("playwright") is None:
        return f"{name} runs in a browser, which Playwright drives. Install it with: pip install 'robustcmp[web]'"
    if executable() is None:
        program = os.environ.get(CHROMIUM)
        where = (
            f"${CHROMIUM} names {program!r}, which is no program" if program else f"none of {', '.join(NAMES)} is here"
        )
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
        _, output, _ = processes.run([program, "--version"], seconds=START_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    match = re.search(r"\d+(\.\d+)+", output)
    return match[0] if match else "unknown"


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
    return Page(_running_browser(), name, scripts, available)


_lock = threading.Lock()
_started: list[Chromium] = []  # the last one; in a process that was forked off, the parent's


def _running_browser() -> Chromium:
    with _lock:
        if not _started or not _started[-1].is_alive:
            _started[:] = [Chromium()]
        return _started[-1]


class _Exchange(NamedTuple):
    """What a page is made of, and what it is asked and answers; None says that there will be no more."""

    html: bytes
    available: Mapping[str, Path]
    questions: queue.SimpleQueue[bytes | None]
    answers: queue.SimpleQueue[bytes | None]


class Chromium:
    """A running Chromium.

    Attributes
    ----------
    exchanges : dict of str to _Exchange
        The pages that are open, by the secret part of their addresses.

    Raises
    ------
    DeploymentError
        It does not start.
    """

    def __init__(self) -> None:
        self.exchanges: dict[str, _Exchange] = {}
        self._owner = os.getpid()
        self._crashed: set[str] = set()
        self._ended = threading.Event()
        self._tabs: dict[str, Tab] = {}
        self._tasks: queue.SimpleQueue[Callable[[Browser], None]] = queue.SimpleQueue()
        self._server = _Server(self.exchanges)
        threading.Thread(target=self._server.serve_forever, name="robustcmp pages", daemon=True).start()
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=[started], name="robustcmp browser", daemon=True)
        self._thread.start()
        started.result()
        atexit.register(self.end)

    @property
    def is_alive(self) -> bool:
        """Whether it can open pages, asked by this process."""
        return os.getpid() == self._owner and not self._ended.is_set()

    def open(self, key: str) -> None:
        """Open the page of an exchange."""
        opened: Future[None] = Future()

        def task(browser: Browser) -> None:
            try:
                tab = self._tabs[key] = browser.new_page()
                tab.on("crash", lambda _: self._crash(key))
                tab.goto(f"http://127.0.0.1:{self._server.server_port}/{key}/", wait_until="commit")
                opened.set_result(None)
            except Exception as error:
                opened.set_exception(DeploymentError(f"Chromium did not open a page: {_short(error)}"))

        self._tasks.put(task)
        try:
            opened.result(START_SECONDS)
        except TimeoutError:
            raise DeploymentError(f"Chromium did not open a page within {START_SECONDS:g} seconds") from None

    def close(self, key: str) -> None:
        """Let it close a page; nothing is waited for."""
        self.exchanges.pop(key).questions.put(None)

        def task(_: Browser) -> None:
            tab = self._tabs.pop(key)
            if key not in self._crashed:  # for which Playwright would wait for ever
                tab.close()

        self._tasks.put(task)

    def explain(self, key: str) -> str:
        """Say why a page answers no more."""
        return "the page crashed" if key in self._crashed else "Chromium ended"

    def end(self) -> None:
        """End Chromium with all its pages."""
        if os.getpid() == self._owner:
            self._ended.set()
            self._thread.join()

    def _run(self, started: Future[None]) -> None:
        """Start Chromium, and do what it is asked to until it ends, in a thread of its own, as Playwright wants it."""
        from playwright.sync_api import Error, sync_playwright

        is_root = hasattr(os, "geteuid") and os.geteuid() == 0  # for root, Chromium makes no sandbox
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=executable(),
                    args=OPTIONS,
                    chromium_sandbox=not is_root,
                    env={**select_variables(os.environ)},
                    handle_sigint=False,  # Ctrl-C is for this process
                )
                browser.on("disconnected", self._note_end)
                listener = browser.new_page()
                started.set_result(None)
                while not self._ended.is_set():
                    try:
                        task = self._tasks.get_nowait()
                    except queue.Empty:
                        listener.wait_for_timeout(EVENTS_MILLISECONDS)
                    else:
                        task(browser)
        except Error as error:
            if not started.done():
                started.set_exception(DeploymentError(f"Chromium cannot be started: {_short(error)}"))
        finally:
            self._ended.set()
            for exchange in list(self.exchanges.values()):
                exchange.questions.put(None)
                exchange.answers.put(None)
            self._server.shutdown()
            self._server.server_close()

    def _note_end(self, browser: Browser) -> None:
        self._ended.set()

    def _crash(self, key: str) -> None:
        self._crashed.add(key)
        if key in self.exchanges:
            self.exchanges[key].answers.put(None)


def _short(error: Exception) -> str:
    """Return what Chromium itself wrote, if an error of Playwright shows it, else the error's first line."""
    wrote = [line.partition("[err]")[2].strip() for line in str(error).splitlines() if "[err]" in line]
    return " ".join(wrote or str(error).splitlines()[:1])[:TAIL]


class Page:
    """A page that answers one question at a time."""

    def __init__(self, chromium: Chromium, name: str, scripts: Sequence[str], available: Mapping[str, Path]):
        self.name = name
        self._chromium = chromium
        self._owner = os.getpid()
        self._dead = ""
        self._numbers = itertools.count(1)
        self._one_at_a_time = threading.Lock()
        self._key = secrets.token_urlsafe()
        html = "".join(
            ["<!doctype html><meta charset=utf-8><title>robustcmp</title>"]
            + [f'<script src="{script}"></script>' for script in ("browser_page.js", *scripts)]
        )
        self._exchange = _Exchange(html.encode(), available, queue.SimpleQueue(), queue.SimpleQueue())
        chromium.exchanges[self._key] = self._exchange
        self.close = weakref.finalize(self, chromium.close, self._key)
        self.close.atexit = False  # then Chromium itself ends
        try:
            chromium.open(self._key)
            self._receive(0, START_SECONDS)
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
            number = next(self._numbers)
            text = json.dumps({"id": number, "call": call, **header}).encode()
            text += b" " * (-(4 + len(text)) % 8)
            self._exchange.questions.put(b"".join([len(text).to_bytes(4, "little"), text, values]))
            try:
                return self._receive(number, ANSWER_SECONDS)
            except DeploymentError:
                raise
            except BaseException:  # an interrupt between question and answer: the next answer would be this one's
                self._end("was interrupted")
                raise

    def _receive(self, number: int, seconds: float) -> tuple[dict[str, Any], bytes]:
        try:
            message = self._exchange.answers.get(timeout=seconds)
        except queue.Empty:
            raise self._end(f"did not answer within {seconds:g} seconds") from None
        if message is None:
            raise self._end(self._chromium.explain(self._key))
        start = 4 + int.from_bytes(message[:4], "little")
        try:
            header: dict[str, Any] = json.loads(message[4:start])
        except ValueError:
            header = {"id": None, "error": "an answer that is no JSON"}
        if header.get("id") != number:
            raise self._end(f"failed: {header.get('error', 'an answer to another question')}")
        if "error" in header:
            raise DeploymentError(f"{self.name}: {header['error']}")
        return header, message[start:]

    def _end(self, why: str) -> DeploymentError:
        self._dead = f"{why.rstrip('.')}."
        self.close()
        return DeploymentError(f"{self.name}: {self._dead} Open the file again to go on.")


class _Server(ThreadingHTTPServer):
    """Serves pages, their scripts, and their questions."""

    daemon_threads = True

    def __init__(self, exchanges: Mapping[str, _Exchange]):
        super().__init__(("127.0.0.1", 0), partial(_Handler, exchanges))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a page that has gone is noticed by whoever asks it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, exchanges: Mapping[str, _Exchange], *arguments: Any):
        self._exchanges = exchanges
        super().__init__(*arguments)

    def log_message(self, *arguments: Any) -> None:
        """Keep standard error for the user."""

    def do_GET(self) -> None:
        """Send a page, or a file that it loads."""
        key, _, name = self.path.removeprefix("/").partition("/")
        exchange = self._exchanges.get(key)
        content = None
        if exchange is not None:
            content = _content(name, exchange.available) if name else exchange.html
        self._send(content, TYPES.get(Path(name or "x.html").suffix, "application/octet-stream"))

    def do_POST(self) -> None:
        """Take a page's answer, and send the next question once there is one; or take a failure beside them."""
        key, _, name = self.path.removeprefix("/").partition("/")
        exchange, length = self._exchanges.get(key), int(self.headers["Content-Length"])
        if exchange is None or length > MOST_BYTES:
            self._send(None)
            return
        exchange.answers.put(self.rfile.read(length))
        self._send(exchange.questions.get() if name == "answer" else b"")

    def _send(self, content: bytes | None, kind: str = "application/octet-stream") -> None:
        if content is None:
            self.close_connection = True
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)


def _content(name: str, available: Mapping[str, Path]) -> bytes | None:
    if name in available:
        return available[name].read_bytes()
    resource = files("robustcmp.resources") / name
    return resource.read_bytes() if re.fullmatch(r"[a-z_]+_page\.js", name) and resource.is_file() else None


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
    for start in range(0, len(x), BATCHES * BATCH):
        part = np.ascontiguousarray(x[start : start + BATCHES * BATCH])
        values = part.data.cast("B")
        response, answer = page.ask("rows", values, shape=part.shape, dtype=part.dtype.name, batch=BATCH, **header)
        answers.append(np.frombuffer(answer, "<f4").reshape(response["shape"]))
    return np.concatenate(answers)
