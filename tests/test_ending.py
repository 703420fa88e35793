"""How commands end: Ctrl-C, SIGTERM and SIGHUP, sent to real processes at every moment, also where something hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import SIGNALS, as_at_a_terminal
from test_hosts import HOST, LINEAR, gone

from robustcmp.cli import eval as eval_command
from robustcmp.threads import in_order

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says when a process handles signals")

EVAL = ["-m", "robustcmp.eval"]
EXAMPLE = [*EVAL, "--model", "lenet1", "--framework", "torch", "--dataset", "digits", "--suite", "long.toml"]
LONG = """
description = "one attack, and another that has no end"
images = 4
repeats = 2
[attacks.fgsm]
attack = "FGSM"
epsilons = 4
[attacks.walk]
attack = "Boundary"
iterations = 10000000
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in a directory of the test's own, with a suite that has no end in it; return it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.toml").write_text(LONG)
    return tmp_path


@contextmanager
def started(*arguments: str, ignored: int = 0, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process with signals as a terminal leaves them; killed at the end."""

    with subprocess.Popen(
        [*as_at_a_terminal(ignored), sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)} | environment,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_for(child: subprocess.Popen[str], there: Callable[[], object]) -> None:
    """Wait until something is there while a process runs."""
    until = time.monotonic() + 300
    while not there():
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.01)


def handles(child: subprocess.Popen[str], number: int) -> bool:
    """Whether a process handles a signal."""
    status = Path(f"/proc/{child.pid}/status").read_text()
    [caught] = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def hanging() -> list[Path]:
    """A file for each thread that hangs."""
    return list(Path().glob("hanging-*"))


def ended(child: subprocess.Popen[str], number: int, command: str = "robustcmp.eval") -> str:
    """Check that a process has ended in order after a signal, and return what it said."""
    out, said = child.communicate(timeout=300)
    assert child.returncode == 128 + number, said
    assert out == ""
    assert "Traceback" not in said
    what = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    assert said.count(f"{what}. What is finished is kept; rerun the command to resume:") == 1
    assert f" -m {command}" in said.splitlines()[-1]
    return said


# at which moment


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([*EVAL, "--model", "lenet1"], "robustcmp.eval --model lenet1"),
        (["-m", "robustcmp.train", "--help"], "robustcmp.train --help"),
        (["-m", "robustcmp", "list", "zoo"], "robustcmp list zoo"),
    ],
    ids=["eval", "help", "robustcmp"],
)
def test_a_signal_at_the_very_beginning(arguments: list[str], command: str, number: int) -> None:
    with started(*arguments) as child:
        wait_for(child, lambda: all(handles(child, each) for each in SIGNALS))  # Python by itself does SIGINT only
        child.send_signal(number)
        ended(child, number, command)


def test_the_console_script_handles_signals_as_soon_as_its_module_is_there() -> None:
    script = Path(sys.executable).with_name("robustcmp").read_text()
    assert "from robustcmp.cli.script import main" in script
    code = "from robustcmp.cli.script import main; import sys; print([*sys.modules]); sys.exit(main())"
    with started("-c", code, "list", "zoo") as child:
        loaded = child.communicate()[0].splitlines()[0]
    assert "'argparse'" not in loaded
    assert "'robustcmp.errors'" not in loaded


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_an_interrupt_while_a_framework_is_imported(framework: str) -> None:
    library = {"tensorflow": "tensorflow/python", "jax": "jaxlib"}.get(framework, framework)
    for seconds in (0.0, 0.7):
        with started(*EVAL, "--model", "lenet1", "--framework", framework, "--dataset", "digits") as child:
            wait_for(child, lambda child=child: library in Path(f"/proc/{child.pid}/maps").read_text())
            time.sleep(seconds)
            child.send_signal(signal.SIGINT)
            ended(child, signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "threads"), [(signal.SIGINT, "1"), (signal.SIGTERM, "2")])
def test_a_signal_in_the_middle_of_an_attack(number: int, threads: str, elsewhere: Path) -> None:
    with started(*EXAMPLE, "--training-seeds", "0", "--out", "run", OMP_NUM_THREADS=threads) as child:
        wait_for(child, lambda: list(elsewhere.glob("run/cells/*.h5")))
        time.sleep(0.5)
        child.send_signal(number)
        ended(child, number)
    assert len(list(elsewhere.glob("run/cells/*.h5"))) == 1
    assert list(elsewhere.glob("run/**/*.tmp")) == []


# what hangs


def hung(where: str) -> list[str]:
    """Arguments of a process whose command hangs."""
    code = (
        "import sys, hung\nfrom robustcmp.cli import command, ending\n"
        f"run = lambda given: hung.{where}()\n"
        "sys.exit(ending.run_process(lambda: command.run_command(run, 'robustcmp.eval', None), 'robustcmp.eval'))"
    )
    return ["-c", code, "--model", "lenet1"]


@pytest.mark.parametrize("where", ["forever", "in_native_code"])
def test_what_hangs_is_ended(where: str) -> None:
    with started(*hung(where)) as child:
        wait_for(child, hanging)
        child.send_signal(signal.SIGTERM)
        ended(child, signal.SIGTERM)


def test_an_interrupt_does_not_wait_for_threads_that_hang() -> None:
    stop = threading.Event()
    results = in_order(lambda task, _: task == 0 or stop.wait(60), range(4), 2)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert next(results)
        main = threading.main_thread().ident
        threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            next(results)
        assert [thread for thread in threading.enumerate() if thread.name.startswith("robustcmp_")]  # they hang still
    finally:
        stop.set()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("fault", "number"), [("late", signal.SIGINT), ("holds", signal.SIGTERM)])
def test_a_host_that_hangs_ends_with_the_command(fault: str, number: int) -> None:
    code = f"""
import sys
from robustcmp.cli import command, ending
def run(given):
    from robustcmp.hosts.environments import run
    host = run("linear", sys.executable, {str(HOST)!r}, [{fault!r}])
    network = host.call("build", architecture={LINEAR.description!r}, seed=0)[0]["is"]
    open("host", "w").write(str(host._process.pid))
    import numpy
    host.call("logits", dict(images=numpy.zeros((1, 28, 28, 1), "float32")), of=network)
sys.exit(ending.run_process(lambda: command.run_command(run, "robustcmp.eval", None), "robustcmp.eval"))
"""
    with started("-c", code) as child:
        wait_for(child, lambda: Path("host").exists() and Path("host").read_text())
        time.sleep(0.5)
        child.send_signal(number)
        ended(child, number)
    assert gone(int(Path("host").read_text()))


# terminals


def test_standard_error_that_is_gone_changes_nothing() -> None:
    with started(*hung("forever")) as child:
        wait_for(child, hanging)
        assert child.stderr is not None
        child.stderr.close()
        child.send_signal(signal.SIGHUP)
        assert child.wait(timeout=300) == 128 + signal.SIGHUP
        child.stderr = None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_ignored_stays_ignored(number: int) -> None:
    other = signal.SIGTERM if number != signal.SIGTERM else signal.SIGHUP
    with started(*hung("forever"), ignored=number) as child:
        wait_for(child, hanging)
        child.send_signal(number)
        time.sleep(0.3)
        child.send_signal(other)
        ended(child, other)


# programs that call commands, or the library


def test_a_command_that_a_program_calls_leaves_its_handlers(capfd: pytest.CaptureFixture[str]) -> None:
    def own(*_: Any) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGHUP, own)
    try:
        handlers = [signal.getsignal(number) for number in SIGNALS]
        assert eval_command.main(["--model", "lenet6"]) == 2
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
        statuses: list[int] = []
        thread = threading.Thread(target=lambda: statuses.append(eval_command.main(["--model", "lenet6"])))
        thread.start()
        thread.join()
        assert statuses == [2]
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
    finally:
        signal.signal(signal.SIGHUP, before)
    assert "did you mean" in capfd.readouterr().err
