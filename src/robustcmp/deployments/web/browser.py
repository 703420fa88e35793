"""Chromium without a screen, as a host of networks: a page of its own for each, in which a runtime's JavaScript runs.

Playwright drives Chromium from an event loop in a thread of its own, as a notebook has another loop, and ends it with
this process. Scripts, images and answers go over a server in this process at 127.0.0.1, under an address that only the
page is told. It may ask nothing else of the net.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import secrets
import shutil
import subprocess
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import processes
from ...errors import DeploymentError
from ...hosts.variables import select_variables
from ..base import Runtime

if TYPE_CHECKING:
    from playwright.async_api import Browser
    from playwright.async_api import Page as Tab

CHROMIUM = "ROBUSTCMP_CHROMIUM"  # the variable that names another Chromium
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
ON_MACOS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0  # for one batch, or for a network to be made ready
TAIL = 300  # characters of what Chromium wrote that an error shows
BATCH = 32  # images that are computed at once: more are slower, as what a layer returns no longer fits into the caches
BATCHES = 16  # in one question, as asking takes about as long as computing one
LOAD = "(header) => robustcmp.load(header)"
CONVERSE = "() => robustcmp.converse()"

# The page may run its scripts and WebAssembly and talk to this process; nothing else.
POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; base-uri 'none'"
TYPES = {
    "": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".wasm": "application/wasm",
}


def _find_program() -> str | None:
    """Return the Chromium, Chrome or Edge that is started, or None."""
    program = os.environ.get(CHROMIUM)
    if program:
        return shutil.which(os.path.expanduser(program))
    return next(filter(None, map(shutil.which, (*NAMES, ON_MACOS))), None)


class BrowserRuntime(Runtime):
    """A runtime whose JavaScript runs in a page of Chromium.

    Attributes
    ----------
    library : str
        The version of its JavaScript.
    """

    can_crash = False
    library: ClassVar[str]

    def version(self) -> str:
        program = _find_program()
        return f"{self.library}, Chromium {_version(program) if program else 'unknown'}"

    def explain_absence(self) -> str:
        if find_spec("playwright") is None:
            return (
                f"{self.name} runs in a browser, which Playwright drives. Install it with: pip install 'robustcmp[web]'"
            )
        if _find_program() is None:
            program = os.environ.get(CHROMIUM)
            where = (
                f"${CHROMIUM} names {program!r}, which is no program"
                if program
                else f"none of {', '.join(NAMES)} is here"
            )
            return (
                f"{self.name} runs in Chromium, and {where}. Install Chromium (apt-get install chromium) or Chrome, or "
                f"set {CHROMIUM} to its program"
            )
        return ""


@cache
def _version(program: str) -> str:
    try:
        _, output, _ = processes.run([program, "--version"], seconds=START_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    match = re.search(r"\d+(\.\d+)+", output)
    return match[0] if match else "unknown"


def start_page(name: str, scripts: Sequence[str], available: Mapping[str, Path]) -> _Page:
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
        There is no Chromium, or it does not start.
    """
    with _lock:
        if not _started or not _started[-1].is_alive:
            _started[:] = [_Chromium()]
    return _Page(_started[-1], name, scripts, available)


class _Chromium:
    """A running Chromium."""

    def __init__(self) -> None:
        self._has_ended = False
        self._loop = asyncio.new_event_loop()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        for run in (self._loop.run_forever, self._server.serve_forever):
            threading.Thread(target=run, name="robustcmp browser", daemon=True).start()
        self._browser: Browser = self.wait("Chromium cannot be started", self._launch(), START_SECONDS)

    @property
    def is_alive(self) -> bool:
        """Whether it can open pages."""
        return not self._has_ended and self._browser.is_connected()

    async def _launch(self) -> Browser:
        from playwright.async_api import async_playwright

        playwright = await async_playwright().start()
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0  # for root, Chromium makes no sandbox
        browser = await playwright.chromium.launch(
            executable_path=_find_program(),
            chromium_sandbox=not is_root,
            env={**select_variables(os.environ)},
            handle_sigint=False,  # Ctrl-C is for this process
        )
        browser.on("disconnected", lambda _: asyncio.ensure_future(playwright.stop()))
        return browser

    async def new_tab(self, key: str) -> Tab:
        """Open the page of a key."""
        tab = await self._browser.new_page()
        await tab.goto(f"http://127.0.0.1:{self._server.server_port}/{key}/")
        return tab

    def close(self, tab: Tab, key: str) -> None:
        """Let it close a page; nothing is waited for."""
        _Handler.exchanges.pop(key).questions.put(None)
        if self.is_alive:
            self.begin(tab.close())

    def begin(self, task: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Let its thread do something."""
        return asyncio.run_coroutine_threadsafe(task, self._loop)

    def wait(self, name: str, task: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """Return what its thread makes of a task, or raise `DeploymentError` for what fails or takes too long."""
        from playwright.async_api import Error

        future = self.begin(task)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise DeploymentError(f"{name} did not answer within {seconds:g} seconds. Open the file again.") from None
        except Error as error:
            raise self.explain(name, error) from None

    def explain(self, name: str, error: BaseException | None) -> DeploymentError:
        """Return the first line of an error of Playwright, or what Chromium itself wrote where it did not start."""
        first, *others = str(error).splitlines()
        wrote = [line.partition("[err]")[2].strip() for line in others if "[err]" in line]
        text = " ".join(wrote) if wrote and first.startswith("BrowserType.launch") else first
        self._has_ended |= "has been closed" in text  # where its driver has died, it is still said to be connected
        return DeploymentError(f"{name}: {text.removeprefix('Page.evaluate: ')[:TAIL]}. Open the file again to go on.")


_lock = threading.Lock()
_started: list[_Chromium] = []  # the last one


class _Exchange(NamedTuple):
    """What a page can load, by its name, and what it is asked and answers."""

    content: dict[str, bytes | Path]
    questions: queue.SimpleQueue[tuple[str, bytes] | None]
    answers: queue.SimpleQueue[tuple[list[int], bytes] | Future[Any]]


class _Page:
    """A page that answers one question at a time.

    Attributes
    ----------
    name : str
        What it is called in errors.
    """

    def __init__(self, chromium: _Chromium, name: str, scripts: Sequence[str], available: Mapping[str, Path]):
        self.name = name
        content: dict[str, bytes | Path] = dict(available)
        html = "<!doctype html><meta charset=utf-8><title>robustcmp</title>"
        for script in ("browser_page.js", *scripts):
            html += f'<script src="{script}"></script>'
            if script not in available:
                content[script] = (files("robustcmp.resources") / script).read_bytes()
        content[""] = html.encode()
        self._exchange = _Exchange(content, queue.SimpleQueue(), queue.SimpleQueue())
        self._chromium = chromium
        self._one_at_a_time = threading.Lock()
        key = secrets.token_urlsafe()
        _Handler.exchanges[key] = self._exchange
        self._tab: Tab = chromium.wait(name, chromium.new_tab(key), START_SECONDS)
        self.close = weakref.finalize(self, chromium.close, self._tab, key)
        self.close.atexit = False  # then Chromium itself ends

    def load(self, values: bytes, **header: Any) -> Any:
        """Let its script load a network, and return what that says of it; from then on it can be asked.

        Raises
        ------
        DeploymentError
            It failed, and cannot be asked any more.
        """
        self._exchange.content["values"] = values
        try:
            described = self._chromium.wait(self.name, self._tab.evaluate(LOAD, header), ANSWER_SECONDS)
        except BaseException:
            self.close()
            raise
        self._chromium.begin(self._tab.evaluate(CONVERSE)).add_done_callback(self._exchange.answers.put)
        return described

    def ask(self, header: dict[str, Any], values: bytes) -> tuple[list[int], bytes]:
        """Return what its network answers, the shape and the values.

        Raises
        ------
        DeploymentError
            It failed, has ended or did not answer in time; it cannot be asked any more.
        """
        with self._one_at_a_time:
            if not self.close.alive:
                raise DeploymentError(f"{self.name} has stopped. Open the file again.")
            self._exchange.questions.put((json.dumps(header), values))
            try:
                answer = self._exchange.answers.get(timeout=ANSWER_SECONDS)
            except queue.Empty:
                self.close()
                raise DeploymentError(f"{self.name} did not answer within {ANSWER_SECONDS:g} seconds") from None
            except BaseException:  # an interrupt between question and answer: the next answer would be this one's
                self.close()
                raise
            if isinstance(answer, Future):  # its script has ended
                self.close()
                raise self._chromium.explain(self.name, answer.exception())
            return answer


class _Handler(BaseHTTPRequestHandler):
    """Serves pages, their scripts and their questions, and takes their answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    exchanges: ClassVar[dict[str, _Exchange]] = {}

    def log_message(self, *arguments: Any) -> None:
        """Keep standard error for the user."""

    def do_GET(self) -> None:
        """Send a page, or something that it loads."""
        key, _, name = self.path.removeprefix("/").partition("/")
        exchange = self.exchanges.get(key)
        content = None if exchange is None else exchange.content.get(name)
        if content is None:
            self.send_error(404)
        else:
            self._send(content if isinstance(content, bytes) else content.read_bytes(), Path(name).suffix)

    def do_POST(self) -> None:
        """Take a page's answer, if there is one, and send the next question once there is one."""
        exchange = self.exchanges.get(self.path.split("/")[1])
        values = self.rfile.read(int(self.headers["Content-Length"]))
        if exchange is None:  # the page was closed in the meantime
            self.send_error(404)
            return
        if "Shape" in self.headers:
            exchange.answers.put((json.loads(self.headers["Shape"]), values))
        if question := exchange.questions.get():
            self._send(question[1], ".bin", question[0])

    def _send(self, content: bytes, suffix: str, question: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Type", TYPES.get(suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Question", question)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)


def ask_rows(page: _Page, x: NDArray[Any], **header: Any) -> NDArray[np.float32]:
    """Return what a page's network answers, the first axis being that of the images.

    Parameters
    ----------
    page : _Page
        The page.
    x : ndarray
        The network's input.
    **header
        What `ask` of the page's script wants beside it.
    """
    answers = []
    for start in range(0, len(x), BATCHES * BATCH):
        part = np.ascontiguousarray(x[start : start + BATCHES * BATCH])
        settings = {"shape": [*part.shape], "dtype": part.dtype.name, "batch": BATCH, **header}
        shape, answer = page.ask(settings, part.tobytes())
        answers.append(np.frombuffer(answer, "<f4").reshape(shape))
    return np.concatenate(answers)
