"""The environments of hosts: a directory each in the user cache, with a Python and a framework of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import processes
from ..errors import HostError, UsageError, unknown
from ..files import file_digest, user_cache
from ..threads import cores
from .process import HostProcess

HERE = Path(__file__).parent
PYTHON = Path("bin", "python")
SCRIPT = "host.py"
REQUIREMENTS = "requirements.txt"
READY = "host.json"  # written last
DESCRIBED = ("framework", "version", "python", "numpy")
NAME = re.compile(r"[a-z0-9][a-z0-9@._-]*")


@dataclass(frozen=True)
class _Setup:
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
        A program that it compiles with; none for "".
    advice : str
        What to say where pip fails.
    """

    script: Path
    requirements: Path
    python: str
    arguments: tuple[str, ...] = ()
    compiler: str = ""
    advice: str = ""


TORCH_FOR_CPUS = (
    "If pip did not find torch: its build for CPUs is in an index of PyTorch's own. Set PIP_EXTRA_INDEX_URL "
    "to the address that PyTorch's installation page names for CPU, or PIP_FIND_LINKS to a folder with the wheel."
)
SETUPS = {
    "theano": _Setup(HERE / "keras_host.py", HERE / "theano.txt", "3.7", ("theano",), "g++"),
    "tensorflow@1.15": _Setup(HERE / "keras_host.py", HERE / "tensorflow-1.15.txt", "3.7", ("tensorflow",)),
    "chainer": _Setup(HERE / "chainer_host.py", HERE / "chainer.txt", "3.7"),
    "mxnet": _Setup(HERE / "mxnet_host.py", HERE / "mxnet.txt", "3.7"),
    "cntk": _Setup(HERE / "cntk_host.py", HERE / "cntk.txt", "3.6"),
    "paddle": _Setup(HERE / "paddle_host.py", HERE / "paddle.txt", "3.11"),
    "mlx": _Setup(HERE / "mlx_host.py", HERE / "mlx.txt", "3.11"),
    "tinygrad": _Setup(HERE / "tinygrad_host.py", HERE / "tinygrad.txt", "3.11", compiler="clang"),
    "torch@1.0": _Setup(HERE / "torch_host.py", HERE / "torch-1.0.txt", "3.7"),
    "keras-tensorflow": _Setup(HERE / "keras3_host.py", HERE / "keras-tensorflow.txt", "3.11", ("tensorflow",)),
    "keras-jax": _Setup(HERE / "keras3_host.py", HERE / "keras-jax.txt", "3.11", ("jax",)),
    "keras-torch": _Setup(HERE / "keras3_host.py", HERE / "keras-torch.txt", "3.11", ("torch",), advice=TORCH_FOR_CPUS),
}
RUNTIMES = {
    "executorch": _Setup(HERE / "executorch_host.py", HERE / "executorch.txt", "3.11", advice=TORCH_FOR_CPUS),
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


def describe(name: str) -> dict[str, str]:
    """Return framework, version, python and numpy of an environment that is there, and its requirements' digest.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    if name not in known():
        raise unknown("host", name, known())
    if not is_ready(name):
        raise UsageError(f"the host {name!r} has no environment yet. Create it with: robustcmp hosts create {name}")
    return dict(json.loads((directory() / name / READY).read_text(encoding="utf-8")))


def start(name: str) -> HostProcess:
    """Start a host in its environment.

    Raises
    ------
    UsageError
        It has no environment.
    HostError
        It cannot be started, or was made from other requirements than it has now.
    """
    path = directory() / name
    description = describe(name)
    setup = (SETUPS | RUNTIMES).get(name) or _Setup(path / SCRIPT, path / REQUIREMENTS, "3")
    if description["requirements"] != file_digest(setup.requirements):
        raise HostError(
            f"the environment of {name} was created from requirements that {setup.requirements} no longer has. "
            f"Recreate it: robustcmp hosts remove {name}, and robustcmp hosts create {name}"
        )
    return run(name, path / PYTHON, setup.script, setup.arguments)


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
    # GNU's threads spin for milliseconds: up to half a query's time, and ten times that on a busy machine.
    waits = {} if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys() else {"GOMP_SPINCOUNT": "1000"}
    host = HostProcess(name, command, {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""} | waits, **seconds)
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

    It is made beside its place and moved there when its host has answered, so none is ever half made.

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
        The name cannot be, a file is not there, or there is no such Python or compiler.
    HostError
        pip failed, or the host does not start.
    """
    setup = _choose_setup(name, script, requirements, reserved)
    if is_ready(name):
        say(f"{name} already exists in {directory() / name}. Remove it with: robustcmp hosts remove {name}")
        return
    interpreter = _find_python(setup.python, python)
    if setup.compiler and not shutil.which(setup.compiler):
        raise UsageError(f"{name} needs the compiler {setup.compiler}, which is not installed. Install it first")
    directory().mkdir(parents=True, exist_ok=True)
    for left in directory().glob(f".{name}~*~*"):  # by creations whose process was ended
        if not Path("/proc", left.name.split("~")[1]).exists():
            shutil.rmtree(left)
    path = Path(tempfile.mkdtemp(prefix=f".{name}~{os.getpid()}~", dir=directory()))
    try:
        say(f"creating an environment for {name} with {interpreter}")
        _run(name, [interpreter, "-I", "-m", "venv", str(path)])
        pip = [str(path / PYTHON), "-I", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run(name, [*pip, "--require-hashes", "--requirement", str(setup.requirements)], setup.advice)
        shutil.copy(setup.script, path / SCRIPT)
        shutil.copy(setup.requirements, path / REQUIREMENTS)
        host = run(name, path / PYTHON, setup.script, setup.arguments)
        host.close()
        description = {key: host.greeting[key] for key in DESCRIBED}
        description["requirements"] = file_digest(setup.requirements)
        (path / READY).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        if not is_ready(name):  # another process may have made it in the meantime
            path.rename(directory() / name)
    finally:
        shutil.rmtree(path, ignore_errors=True)
    say(f"{name} is ready: {description['version']}, Python {description['python']}")


def _choose_setup(
    name: str,
    script: str | os.PathLike[str] | None,
    requirements: str | os.PathLike[str] | None,
    reserved: Collection[str],
) -> _Setup:
    setups = SETUPS | RUNTIMES
    if script is None:
        if name not in setups:
            raise unknown("host", name, setups)
        return setups[name]
    if name in (*setups, *reserved, "numpy") or not NAME.fullmatch(name):
        raise UsageError(
            f"a host of your own should have a name that no built-in host has, of a-z, 0-9 and @._-; received {name!r}"
        )
    if requirements is None:
        raise UsageError("script requires requirements", parameters=["requirements", "script"])
    for path in (Path(script), Path(requirements)):
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
    return _Setup(Path(script), Path(requirements), "3")


def remove(name: str) -> None:
    """Delete a host's environment, and what is left of its creations that were killed.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    paths = [*directory().glob(f".{name}~*"), directory() / name]
    existing = [path for path in paths if path.exists()]
    if not NAME.fullmatch(name) or not existing:
        raise UsageError(f"there is no environment of a host {name!r} in {directory()}")
    (directory() / name / READY).unlink(missing_ok=True)  # first: one that is half removed is not ready
    for path in existing:
        shutil.rmtree(path)


def _find_python(version: str, python: str | None) -> str:
    """Return an interpreter of a version: the one named, or one that is found on PATH, with pyenv or uv."""
    for candidate in [python] if python else _list_pythons(version):
        received = _read_version(candidate)
        if f"{received}.".startswith(f"{version}."):
            return candidate
        if python:
            raise UsageError(f"expected CPython {version} in {python}, received {received or 'no Python'}")
    raise UsageError(
        f"there is no CPython {version}. Install it, for example with pyenv install {version} or uv python install "
        f"{version}, or name its interpreter with python.",
        parameters=["python"],
    )


def _list_pythons(version: str) -> Iterator[str]:
    if path := shutil.which(f"python{version}"):
        yield path
    root = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    yield from map(str, sorted(Path(root).glob(f"versions/{version}.*/bin/python"), reverse=True))
    if shutil.which("uv"):
        _, output, _ = processes.run(["uv", "python", "find", version])
        yield output.strip()


def _read_version(python: str) -> str:
    """Return an interpreter's version, or "" if it is none of CPython."""
    code = "import platform, sys; print(platform.python_implementation(), '%d.%d.%d' % sys.version_info[:3])"
    try:
        _, output, _ = processes.run([python, "-c", code], seconds=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    kind, _, version = output.strip().partition(" ")
    return version if kind == "CPython" else ""


def _run(name: str, command: list[str], advice: str = "") -> None:
    """Run a tool; `advice` is what to say where it fails."""
    status, output, errors = processes.run(command)
    if status:
        tail = "\n".join([*(output + errors).strip().splitlines()[-15:], advice]).strip()
        raise HostError(
            f"the environment of {name} cannot be created. Last output of {' '.join(command[:4])} …:\n{tail}"
        )
