"""The environments of hosts: a directory each in the user cache, with a Python and a framework of its own."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .. import processes
from ..errors import HostError, UsageError, unknown
from ..files import file_digest, user_cache
from ..threads import cores
from ..untrusted import read_json
from .process import HostProcess

HERE = Path(__file__).parent
PYTHON = Path("bin", "python")
SCRIPT, REQUIREMENTS = "host.py", "requirements.txt"
READY = "host.json"  # written last
ABOUT = ("requirements", "framework", "version", "python", "numpy")  # what it holds
NAME = re.compile(r"[a-z0-9][a-z0-9@._-]*")

_log = logging.getLogger("robustcmp")


@dataclass(frozen=True)
class Setup:
    """What an environment is made of.

    Attributes
    ----------
    script : Path
        The host, a file that ends with `robustcmp.hosts.protocol.serve`.
    requirements : Path
        What pip installs for it; every file's hash must be there.
    python : str
        The version of CPython that it needs, such as ``"3.7"``.
    arguments : tuple of str
        For the script.
    compiler : str
        Without it, it is some hundred times slower; none for "".
    advice : str
        What to say where pip fails.
    """

    script: Path
    requirements: Path
    python: str
    arguments: tuple[str, ...] = ()
    compiler: str = ""
    advice: str = ""

    @property
    def lacks(self) -> str:
        """What to say where its compiler is not there, or nothing."""
        if not self.compiler or shutil.which(self.compiler):
            return ""
        return (
            f"there is no {self.compiler}, which it compiles its functions with: it will be some hundred times slower"
        )


TORCH_FOR_CPUS = (
    "If pip did not find torch: its build for CPUs is in an index of PyTorch's own. Set PIP_EXTRA_INDEX_URL "
    "to the address that PyTorch's installation page names for CPU, or PIP_FIND_LINKS to a folder with the wheel."
)
SETUPS = {
    "theano": Setup(HERE / "keras_host.py", HERE / "theano.txt", "3.7", ("theano",), "g++"),
    "tensorflow@1.15": Setup(HERE / "keras_host.py", HERE / "tensorflow-1.15.txt", "3.7", ("tensorflow",)),
    "chainer": Setup(HERE / "chainer_host.py", HERE / "chainer.txt", "3.7"),
    "mxnet": Setup(HERE / "mxnet_host.py", HERE / "mxnet.txt", "3.7"),
    "torch@1.0": Setup(HERE / "torch_host.py", HERE / "torch-1.0.txt", "3.7"),
    "keras-tensorflow": Setup(HERE / "keras3_host.py", HERE / "keras-tensorflow.txt", "3.11", ("tensorflow",)),
    "keras-jax": Setup(HERE / "keras3_host.py", HERE / "keras-jax.txt", "3.11", ("jax",)),
    "keras-torch": Setup(HERE / "keras3_host.py", HERE / "keras-torch.txt", "3.11", ("torch",), advice=TORCH_FOR_CPUS),
}
RUNTIMES = {
    "executorch": Setup(HERE / "executorch_host.py", HERE / "executorch.txt", "3.11", advice=TORCH_FOR_CPUS),
}
"""Those of programs that answer with networks and train none: no frameworks."""


def directory() -> Path:
    """Return where environments lie."""
    return user_cache() / "hosts"


def names() -> list[str]:
    """Return the names of all frameworks in hosts: those that robustcmp can make, and those that a user has made."""
    made = [path.parent.name for path in sorted(directory().glob(f"[!.]*/{READY}"))]
    return [name for name in dict.fromkeys([*SETUPS, *made]) if name not in RUNTIMES]


def known() -> list[str]:
    """Return the names of all hosts: those of frameworks, and those of runtimes."""
    return [*names(), *RUNTIMES]


def is_ready(name: str) -> bool:
    """Say whether a host's environment is there."""
    return (directory() / name / READY).exists()


def described(name: str) -> dict[str, Any]:
    """Return what is known of an environment that is there: framework, version, python, numpy, requirements' digest.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    if name not in known():
        raise unknown("host", name, known())
    if not is_ready(name):
        raise UsageError(f"the host {name!r} has no environment yet. Create it with: robustcmp hosts create {name}")
    try:
        content = read_json(directory() / name / READY, "the description")
        return {key: str(content[key]) for key in ABOUT}
    except (UsageError, TypeError, LookupError) as error:
        raise HostError(
            f"the environment of {name} is broken ({error!r}). Recreate it: robustcmp hosts remove {name}, and "
            f"robustcmp hosts create {name}"
        ) from None


def start(name: str) -> HostProcess:
    """Start a host in its environment.

    Raises
    ------
    UsageError
        It has no environment.
    HostError
        It cannot be started, or was made from other requirements than it has now.
    """
    about, where = described(name), directory() / name
    setup = (SETUPS | RUNTIMES).get(name) or Setup(where / SCRIPT, where / REQUIREMENTS, "3")
    if about["requirements"] != file_digest(setup.requirements):
        raise HostError(
            f"the environment of {name} was created from requirements that {setup.requirements} no longer has. "
            f"Recreate it: robustcmp hosts remove {name}, and robustcmp hosts create {name}"
        )
    if setup.lacks:
        _log.warning("%s: %s", name, setup.lacks)
    return run(name, where / PYTHON, setup.script, setup.arguments)


def run(
    name: str,
    python: str | os.PathLike[str],
    script: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    **seconds: float,
) -> HostProcess:
    """Start a host's file in some Python, such as `sys.executable` to try it out.

    Parameters
    ----------
    name : str
        What it is called in errors.
    python, script : path
        The interpreter and the file.
    arguments : sequence of str
        For the file.
    start_seconds, call_seconds : float, optional
        How long it may take to greet, and to answer.
    """
    threads = cores()
    # What else shapes a Python from outside stays outside.
    command = [str(python), "-E", "-s", str(HERE / "protocol.py"), str(script), *arguments]
    host = HostProcess(name, command, {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}, **seconds)
    host.call("threads", count=threads)
    return host


def create(
    name: str,
    *,
    script: str | os.PathLike[str] | None = None,
    requirements: str | os.PathLike[str] | None = None,
    python: str | None = None,
    reserved: Collection[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Make a host's environment; nothing is done where it is there.

    It is made beside its place and moved there when its host has answered, so none is ever half made. Of two processes
    that make the same one the second waits. What one that was killed has left is deleted by the next.

    Parameters
    ----------
    name : str
        One that robustcmp knows, or a name for a host of one's own.
    script, requirements : path, optional
        For a host of one's own: its file, and what pip installs for it.
    python : str, optional
        The interpreter; one of the version that is needed is looked for if nothing is said.
    reserved : collection of str, optional
        Names that a host of one's own may not have: those of frameworks in this process.
    say : callable, optional
        Called with a line for the person at the terminal.

    Raises
    ------
    UsageError
        The name cannot be, a file is not there, or there is no such Python.
    HostError
        pip failed, or the host does not start.
    """
    setup = _setup(name, script, requirements, reserved)
    if is_ready(name):
        say(f"{name} already exists in {directory() / name}. Remove it with: robustcmp hosts remove {name}")
        return
    interpreter = _find_python(setup.python, python)
    if setup.lacks:
        say(f"{name}: {setup.lacks}")
    directory().mkdir(parents=True, exist_ok=True)
    with _alone(name, say) as lock:
        if is_ready(name):
            say(f"another process has created {name} in the meantime")
            return
        for path in (directory() / name, *_left(name)):  # what is there is not ready
            shutil.rmtree(path, ignore_errors=True)
        where = Path(tempfile.mkdtemp(prefix=f".{name}~", dir=directory()))
        try:
            say(f"creating an environment for {name} with {interpreter}")
            _run(name, [interpreter, "-I", "-m", "venv", str(where)], lock)
            pip = [str(where / PYTHON), "-I", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            try:
                _run(name, [*pip, "--require-hashes", "--requirement", str(setup.requirements)], lock)
            except HostError as error:
                raise HostError(f"{error}\n{setup.advice}".strip()) from None
            shutil.copy(setup.script, where / SCRIPT)
            shutil.copy(setup.requirements, where / REQUIREMENTS)
            host = run(name, where / PYTHON, setup.script, setup.arguments)
            host.close()
            about = {"requirements": file_digest(setup.requirements), **host.greeting}
            about = {key: about[key] for key in ABOUT}
            (where / READY).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
            where.rename(directory() / name)
        finally:
            shutil.rmtree(where, ignore_errors=True)
    say(f"{name} is ready: {about['version']}, Python {about['python']}")


@contextmanager
def _alone(name: str, say: Callable[[str], None]) -> Iterator[IO[str]]:
    """Hold the lock of a host's environment; what is started with its file holds it too, until that has ended."""
    import fcntl  # Windows has none

    path = directory() / f".{name}.lock"
    while True:
        with path.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another process is creating {name}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is(lock, path):  # who had it has deleted it
                continue
            try:
                yield lock
            finally:
                path.unlink()
            return


def _is(file: IO[str], path: Path) -> bool:
    """Say whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _left(name: str) -> list[Path]:
    """What was left of environments of a host that were never ready, or not wholly removed."""
    return [path for path in directory().glob(".*~*") if path.name.partition("~")[0] == f".{name}"]


def _setup(
    name: str,
    script: str | os.PathLike[str] | None,
    requirements: str | os.PathLike[str] | None,
    reserved: Collection[str],
) -> Setup:
    if script is None:
        if name not in (setups := SETUPS | RUNTIMES):
            raise unknown("host", name, setups)
        if requirements is not None:
            raise UsageError("requirements are only for a host with a script", parameters=["requirements", "script"])
        return setups[name]
    if name in (*SETUPS, *RUNTIMES, *reserved, "numpy") or not NAME.fullmatch(name):
        raise UsageError(
            f"a host of your own should have a name that no built-in host has, of a-z, 0-9 and @._-; received {name!r}"
        )
    if requirements is None:
        raise UsageError("script requires requirements", parameters=["requirements", "script"])
    for path in (Path(script), Path(requirements)):
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
    return Setup(Path(script), Path(requirements), "3")


def remove(name: str) -> None:
    """Delete a host's environment, and what was left of one that was never ready.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    left = _left(name)
    whole = directory() / name
    if not (NAME.fullmatch(name) and (whole.exists() or left)):
        raise UsageError(f"there is no environment of a host {name!r} in {directory()}")
    if whole.exists():  # out of sight first: one that is half removed should not be found
        left.append(whole.rename(directory() / f".{name}~{secrets.token_hex(8)}"))
    for path in left:
        shutil.rmtree(path)


def _find_python(version: str, given: str | None) -> str:
    """Return an interpreter of a version: the one given, or one that is found on PATH, with pyenv, uv or py."""
    for candidate in [given] if given else _pythons(version):
        candidate_version = _version(candidate)
        if candidate_version is not None and (
            candidate_version == version or candidate_version.startswith(f"{version}.")
        ):
            return candidate
        if given:
            raise UsageError(f"expected CPython {version} in {given}, received {candidate_version or 'no Python'}")
    raise UsageError(
        f"there is no CPython {version}. Install it, for example with pyenv install {version} or uv python install "
        f"{version}, or name its interpreter with python.",
        parameters=["python"],
    )


def _pythons(version: str) -> Iterator[str]:
    yield from filter(None, [shutil.which(f"python{version}")])
    root = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    yield from map(str, sorted(Path(root).glob(f"versions/{version}.*/bin/python"), reverse=True))
    for command in (
        ["uv", "python", "find", version],
        ["py", f"-{version}", "-c", "import sys; print(sys.executable)"],
    ):
        if shutil.which(command[0]):
            status, output, _ = processes.run(command)
            if not status:
                yield output.strip()


def _version(python: str) -> str | None:
    """Return an interpreter's version, or None if it is none."""
    code = "import platform, sys; print(platform.python_implementation(), '%d.%d.%d' % sys.version_info[:3])"
    try:
        status, output, _ = processes.run([python, "-c", code], seconds=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    kind, _, version = output.strip().partition(" ")
    return version if status == 0 and kind == "CPython" else None


def _run(name: str, command: list[str], lock: IO[str]) -> None:
    """Run a tool, which holds the lock until it ends."""
    status, output, errors = processes.run(command, descriptors=[lock.fileno()])
    if status:
        tail = "\n".join((output + errors).strip().splitlines()[-15:])
        raise HostError(
            f"the environment of {name} cannot be created. Last output of {' '.join(command[:4])} …:\n{tail}"
        )
