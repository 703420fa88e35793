"""Hosts: the protocol, the process, its faults, and frameworks that live in one."""

from __future__ import annotations

import ast
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quick_hosts
from conftest import CAPABILITIES, HOSTS, as_at_a_terminal, waited_for
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import robustcmp as rc
from robustcmp import frameworks
from robustcmp.attacks import FGSM, Boundary, SinglePixel
from robustcmp.cli import eval, train
from robustcmp.cli import hosts as hosting
from robustcmp.cli import list as listing
from robustcmp.data.dataset import Dataset
from robustcmp.errors import HostError, ModelError, UsageError
from robustcmp.frameworks.hosted import Hosted
from robustcmp.hosts import environments
from robustcmp.hosts.process import HostProcess
from robustcmp.hosts.protocol import MAGIC, Channel, Closed, ProtocolError
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import wrap
from robustcmp.networks.architecture import Architecture, Dense, Flatten

HOST = Path(__file__).parent / "linear_host.py"
LINEAR = Architecture("linear", (28, 28, 1), (Flatten("flatten"), Dense("logits", 10)))


def start(fault: str = "none", **seconds: float) -> HostProcess:
    return environments.run("linear", sys.executable, HOST, [fault], **seconds)


@pytest.fixture
def hosted(request: pytest.FixtureRequest) -> Iterator[Hosted]:
    """The framework ``linear`` in a host with the fault that the test's parameter names."""
    framework = Hosted("linear", partial(start, getattr(request, "param", "none")))
    yield framework
    if framework._process is not None:
        framework._process.close()


def trained(framework: Hosted, data: Dataset) -> Any:
    """A linear network that tells digits apart."""
    network = framework.build(LINEAR, 0, "cpu")
    trainer = framework.trainer(network, LINEAR, 0.9, 0.0)
    for _ in range(60):
        trainer.step(data.images, data.labels, 0.1)
    weights = framework.get_weights(network, LINEAR)
    network = framework.build(LINEAR, 0, "cpu")  # one that may be started again
    framework.set_weights(network, LINEAR, weights)
    return network


def children() -> set[int]:
    """The processes that this one has started and that are there."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True)
    return {int(pid) for pid in found.stdout.split() if Path(f"/proc/{pid}").exists()}


def gone(pid: int, seconds: float = 120) -> bool:
    """Whether a process ends within some seconds."""
    for _ in range(int(10 * seconds)):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(params=environments.SETUPS)
def ready(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A host that has its environment."""
    monkeypatch.setattr(environments, "directory", lambda: HOSTS)
    if not environments.is_ready(request.param):
        pytest.skip(f"{request.param} has no environment: robustcmp hosts create {request.param}")
    return str(request.param)


def test_a_host_greets_as_the_framework_that_it_is(ready: str) -> None:
    """The tests over all frameworks run on it as well."""
    framework, _, version = ready.partition("@")
    greeting = frameworks.get_framework(ready).process().greeting  # type: ignore[attr-defined]
    assert greeting["framework"] == framework
    assert greeting["version"].startswith(version)
    assert ready in CAPABILITIES


def test_a_host_is_what_it_is_after_other_frameworks_were_loaded(ready: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow 2 leaves a variable in the environment that turns TensorFlow 1.15 into something else."""
    for variable, value in {"TF2_BEHAVIOR": "1", "KERAS_BACKEND": "jax"}.items():
        monkeypatch.setenv(variable, value)
    host = Hosted(ready, partial(environments.start, ready))
    network = host.build(LINEAR, 0, "cpu")
    assert network(np.zeros((3, 28, 28, 1), np.float32)).shape == (3, 10)
    host.process().close()


def test_the_commands_take_a_host_as_any_other(
    ready: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It trains, it is compared with torch, and torch's weights come out alike in both."""
    monkeypatch.chdir(tmp_path)
    model = ["--model", "lenet1", "--dataset", "digits"]
    assert train.main([*model, "--framework", ready, "--epochs", "2"]) == 0
    capsys.readouterr()
    compared = [*model, "--framework", "torch", ready, "--suite", "smoke", "--json"]
    assert eval.main(compared) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["frameworks"] == ["torch", ready]
    assert set(content["success_rate"][ready]) == {"fgsm", "single_pixel", "boundary"}
    assert eval.main([*compared, "--same-weights", "torch"]) == 0
    control = json.loads(capsys.readouterr().out)["same_weights"]
    assert control["passed"]
    assert control["differ"]["fgsm"] == control["differ"]["single_pixel"] == {f"torch|{ready}": 0}


# the protocol


@pytest.mark.parametrize("bytes_of_memory", [None, 64, 4096])  # some messages fit into 64 bytes
@given(
    content=st.dictionaries(
        st.text().filter(lambda key: key not in ("arrays", "memory")), st.integers() | st.text() | st.booleans()
    ),
    sent=st.dictionaries(
        st.text(min_size=1),
        st.sampled_from(["float32", "float64", "int64", "uint8"]).flatmap(
            lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
        ),
        max_size=3,
    ),
)
@settings(max_examples=60, deadline=None)
def test_a_message_arrives_as_it_was_sent(
    bytes_of_memory: int | None, content: dict[str, Any], sent: dict[str, Any]
) -> None:
    memory = mmap.mmap(-1, bytes_of_memory) if bytes_of_memory else None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=Channel(ours, memory).send, args=(content, sent))
        thread.start()
        received, came = Channel(theirs, memory).receive(10)
        thread.join()
    assert received == content
    assert list(came) == list(sent)
    for name, array in sent.items():
        assert (came[name].dtype, came[name].shape) == (array.dtype, array.shape)
        assert came[name].tobytes() == np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"HTTP/1.1", "expected a message that begins with"),
        (MAGIC + (2**31).to_bytes(4, "little"), "header of at most"),
        (MAGIC + (4).to_bytes(4, "little") + b"nope", "header in JSON"),
        (MAGIC + (2).to_bytes(4, "little") + b"[]", "header in JSON"),
        ({"arrays": [["x", "float32", [2**20, 2**20]]]}, "cannot be"),
        ({"arrays": [["x", "object", [1]]]}, "cannot be: object"),
        ({"arrays": [["x", "float32", [-1]]]}, "cannot be"),
        ({"arrays": [["x", "float32", [1] * 70]]}, "cannot be"),
        ({"arrays": [["x", "float32", [0, 2**70]]]}, "cannot be"),
        ({"arrays": [["x", "float32", [0, 2**40, 2**40]]]}, "cannot be"),
        ({"arrays": [["x", "float32", ["3"]]]}, "cannot be"),
        ({"arrays": [["x", "float32", [3]]], "memory": True}, "over the socket, received 12 bytes that lie in memory"),
    ],
)
def test_what_is_no_message_is_refused_before_memory_is_taken(frame: Any, message: str) -> None:
    if isinstance(frame, dict):
        header = json.dumps(frame).encode()
        frame = MAGIC + len(header).to_bytes(4, "little") + header
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(frame)
        with pytest.raises(ProtocolError, match=message):
            Channel(theirs).receive(10)


def test_a_message_that_breaks_off_and_one_that_never_comes() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with pytest.raises(TimeoutError):
            Channel(theirs).receive(0.05)
        ours.sendall(MAGIC)
        ours.close()
        with pytest.raises(Closed):
            Channel(theirs).receive(10)


# a framework in a host


def test_it_behaves_as_the_network_that_it_holds(hosted: Hosted, digits: Dataset) -> None:
    network = trained(hosted, digits)
    weights = hosted.get_weights(network, LINEAR)
    assert hosted.differences == {"initialisation": "kernels normal, 0.1; biases zero"}
    assert hosted.version() == "1.0"
    model = wrap(network)
    assert repr(model) == "<robustcmp.Model linear, bounds (0, 1)>"
    kernel, bias = weights.values()
    own = rc.wrap_functions(
        logits=lambda x: x.reshape(len(x), -1) @ kernel + bias, vjp=lambda x, v: (v @ kernel.T).reshape(x.shape)
    )
    x, y = digits.images[:12], digits.labels[:12]
    assert Classifier(model).framework is hosted
    for attack in (FGSM(epsilons=10), SinglePixel(max_pixels=10), Boundary(iterations=3)):
        one, other = (attack.attack(its, x, y) for its in (model, own))
        np.testing.assert_array_equal(one.success, other.success)
        np.testing.assert_array_equal(one.adversarials, other.adversarials)


def test_a_training_goes_on_as_it_would_have(hosted: Hosted, digits: Dataset) -> None:
    """The velocity comes and goes, so that a checkpoint holds all of a training."""
    x, y = digits.images[:50], digits.labels[:50]

    def steps(network: Any, velocity: Any, count: int) -> Any:
        trainer = hosted.trainer(network, LINEAR, 0.9, 1e-3)
        if velocity:
            trainer.set_velocity(velocity)
        losses = [trainer.step(x, y, 0.05) for _ in range(count)]
        return losses, trainer.velocity()

    whole, _ = steps(hosted.build(LINEAR, 3, "cpu"), None, 6)
    first = hosted.build(LINEAR, 3, "cpu")
    losses, velocity = steps(first, None, 3)
    second = hosted.build(LINEAR, 0, "cpu")
    hosted.set_weights(second, LINEAR, hosted.get_weights(first, LINEAR))
    more, _ = steps(second, velocity, 3)
    assert losses + more == whole
    assert whole[-1] < whole[0]


# what goes wrong


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no library", r"died and did not greet .exit status 1.*theano_of_2018"),
        ("never greets", r"did not greet within 2 seconds"),
        ("babbles", r"did not greet as it should: expected a message that begins with"),
        ("promises too much", r"did not greet as it should: expected a header of at most"),
    ],
)
def test_a_host_that_does_not_start_is_one_message_and_leaves_no_process(fault: str, message: str) -> None:
    before = children()
    with pytest.raises(HostError, match=f"(?s)the host linear {message}"):
        start(fault, start_seconds=2 if fault == "never greets" else 60)
    assert children() == before


@pytest.mark.parametrize(
    ("hosted", "error", "message"),
    [
        ("short", ModelError, r"should return one row per image for 12 images, received \(11, 10\)"),
        ("nan", ModelError, "returns NaN or infinity"),
        ("raises", HostError, "failed in logits: ValueError: no such thing as a digit"),
        ("dies always", HostError, r"(?s)died and did not answer logits .exit status 7.*about to fall over"),
    ],
    indirect=["hosted"],
)
def test_a_host_that_answers_wrongly(hosted: Hosted, error: type, message: str, digits: Dataset) -> None:
    model = wrap(hosted.build(LINEAR, 0, "cpu"))
    with pytest.raises(error, match=message):
        Classifier(model).predict(digits.images[:12])


@pytest.mark.parametrize("hosted", ["small"], indirect=True)
def test_a_host_that_runs_out_of_memory_is_asked_less_at_once(
    hosted: Hosted, digits: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "robustcmp")
    assert Classifier(wrap(hosted.build(LINEAR, 0, "cpu"))).logits(digits.images[:12]).shape == (12, 10)
    assert "a batch of 6 does not fit into the memory; 3 at once" in caplog.text


@pytest.mark.parametrize("hosted", ["NaN weights"], indirect=True)
def test_a_host_that_trains_to_no_numbers(hosted: Hosted, digits: Dataset) -> None:
    network = hosted.build(LINEAR, 0, "cpu")
    trainer = hosted.trainer(network, LINEAR, 0.9, 0.0)
    trainer.step(digits.images[:8], digits.labels[:8], 0.1)
    with pytest.raises(HostError, match="should answer get_weights with finite floats, received NaN or infinity for "):
        hosted.get_weights(network, LINEAR)


def test_a_host_that_answers_late_is_ended(digits: Dataset) -> None:
    process = start("late")
    answer, _ = process.call("build", architecture=LINEAR.description, seed=0)
    process._seconds = 1
    with pytest.raises(HostError, match=r"did not answer logits within 1 seconds"):
        process.call("logits", {"images": digits.images[:2]}, of=answer["is"])
    assert not process.alive
    assert gone(process._process.pid)


@pytest.mark.parametrize("hosted", ["floods"], indirect=True)
def test_what_a_host_prints_without_end_is_not_kept(hosted: Hosted, digits: Dataset) -> None:
    network = hosted.build(LINEAR, 0, "cpu")
    for _ in range(3):
        network(digits.images[:2])
    assert os.fstat(hosted.process()._process.output.fileno()).st_blocks * 512 <= 2**24
    os.kill(hosted.process()._process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("name", "value", "spins"),
    [
        ("LANG", "C", ["GOMP_SPINCOUNT=1000"]),
        ("GOMP_SPINCOUNT", "7", ["GOMP_SPINCOUNT=7"]),
        ("OMP_WAIT_POLICY", "active", []),
    ],
)
def test_threads_wait_as_the_caller_says(
    name: str, value: str, spins: list[str], hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    seen = Path(f"/proc/{hosted.process()._process.pid}/environ").read_text().split("\0")
    assert [variable for variable in seen if "SPIN" in variable] == spins


@pytest.mark.parametrize("hosted", ["dies once"], indirect=True)
def test_a_host_that_dies_is_started_again_for_the_next_network(
    hosted: Hosted, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    classifier = Classifier(wrap(hosted.build(LINEAR, 0, "cpu")), batch_size=4)
    first = hosted.process()._process.pid
    with pytest.raises(HostError, match="died and did not answer logits"):
        classifier.predict(digits.images[:40])
    with pytest.raises(HostError, match="died, and its networks with it"):
        classifier.predict(digits.images[:40])
    assert len(Classifier(wrap(hosted.build(LINEAR, 0, "cpu"))).predict(digits.images[:40])) == 40
    assert hosted.process()._process.pid != first


def test_an_interrupted_call_does_not_leave_its_answer_to_the_next(hosted: Hosted, digits: Dataset) -> None:
    model = Classifier(wrap(trained(hosted, digits)))
    zeros, ones = (np.full((2, 28, 28, 1), value, np.float32) for value in (0, 1))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    process = hosted.process()
    channel, receive = process._channel, process._channel.receive
    channel.receive = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        model.logits(zeros)
    channel.receive = receive  # type: ignore[method-assign]
    with pytest.raises(HostError, match="Load the model again"):
        model.logits(ones)
    assert gone(process._process.pid)


@pytest.mark.parametrize("when", ["in a call", "while it starts"])
def test_a_host_ends_with_its_parent_even_if_that_is_killed(when: str) -> None:
    asked = f"""
host = run("linear", sys.executable, {str(HOST)!r}, ["late"])
print(host._process.pid, flush=True)
host.call("logits", of=host.call("build", architecture={LINEAR.description!r}, seed=0)[0]["is"])
"""
    starting = f"""
def begin(self, *arguments, start=Process.__init__, **options):
    start(self, *arguments, **options)
    print(self.pid, flush=True)
Process.__init__ = begin
run("linear", sys.executable, {str(HOST)!r}, ["never greets"])
"""
    imports = "import sys\nfrom robustcmp.hosts.environments import run\nfrom robustcmp.processes import Process\n"
    script = imports + (asked if when == "in a call" else starting)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(1)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(child)


# environments


@pytest.fixture
def create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command that makes a host that needs nothing but NumPy, which is lent to it."""
    monkeypatch.setattr(environments, "_run", quick_hosts.run_and_lend)
    script, requirements = tmp_path / "tiny_host.py", tmp_path / "r.txt"
    script.write_text(
        "import protocol\n"
        "class Tiny(protocol.Network):\n"
        "    framework = 'tiny'\n"
        "    version = '0.1'\n"
        "protocol.serve(Tiny)\n"
    )
    requirements.write_text("# nothing\n")
    return ["create", "tiny", "--script", str(script), "--requirements", str(requirements), "--python", sys.executable]


def list_environments() -> list[str]:
    """What lies in the directory of environments, finished or not."""
    return sorted(os.listdir(environments.directory())) if environments.directory().exists() else []


def test_an_environment_is_made_listed_and_removed(create: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert hosting.main(create) == 0
    assert "tiny is ready: 0.1" in capfd.readouterr().err
    assert list_environments() == ["tiny"]
    assert hosting.main(create) == 0
    assert "already exists" in capfd.readouterr().err
    assert listing.main(["hosts", "--json"]) == 0
    rows = {row["host"]: row for row in json.loads(capfd.readouterr().out)}
    assert list(rows) == environments.known()
    assert rows["executorch"]["state"] == "not installed; create it with robustcmp hosts create executorch"
    assert (rows["tiny"]["framework"], rows["tiny"]["version"], rows["tiny"]["state"]) == ("tiny", "0.1", "installed")
    assert frameworks.get_framework("tiny").version() == "0.1"
    assert len(frameworks.versions("tiny")) == 3
    frameworks._adapter.cache_clear()
    (environments.directory() / "tiny" / environments.REQUIREMENTS).write_text("# something else\n")
    with pytest.raises(HostError, match="was created from requirements that"):
        environments.start("tiny")
    (environments.directory() / ".tiny~killed").mkdir()
    assert hosting.main(["remove", "tiny"]) == 0
    assert list_environments() == []
    assert hosting.main(["remove", "tiny"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create"], "the following arguments are required: NAME"),
        (["create", "theamo"], "did you mean 'theano'"),
        (["create", "theano", "--python", "/bin/echo"], "expected CPython 3.7 in /bin/echo, received no Python"),
        (["create", "theano", "--python", sys.executable], "expected CPython 3.7 in"),
        (["create", "torch", "--script", "x.py"], "should have a name that no built-in host has"),
        (["create", "mine", "--script", "x.py"], "script requires requirements\nSee --requirements, --script."),
        (["create", "mine", "--script", "x.py", "--requirements", "r.txt"], "there is no file x.py"),
        (["remove", "theano", "--python", "x"], "options of create only"),
    ],
)
def test_what_cannot_be_made(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert hosting.main(arguments) == 2
    assert message in capfd.readouterr().err
    assert list_environments() == []


def test_without_its_compiler_a_host_is_not_made(
    create: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    setup = replace(environments.SETUPS["theano"], python="3", compiler="no-such-compiler")
    monkeypatch.setitem(environments.SETUPS, "theano", setup)
    assert hosting.main(["create", "theano", "--python", sys.executable]) == 2
    assert "theano needs the compiler no-such-compiler, which is not installed" in capfd.readouterr().err


def test_a_wrong_hash_leaves_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "six-1.17.0.tar.gz").write_bytes(b"anything")
    (tmp_path / "r.txt").write_text(f"{tmp_path / 'six-1.17.0.tar.gz'} --hash=sha256:{'0' * 64}\n")
    given = ["--script", str(HOST), "--requirements", str(tmp_path / "r.txt"), "--python", sys.executable]
    assert hosting.main(["create", "tiny", *given]) == 1
    error = capfd.readouterr().err
    assert "the environment of tiny cannot be created" in error
    assert "DO NOT MATCH THE HASHES" in error
    assert list_environments() == []


@pytest.mark.slow
def test_a_host_that_does_not_start_has_no_environment(create: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    Path(create[3]).write_text("import there_is_no_such_thing\n")
    assert hosting.main(create) == 1
    assert "there_is_no_such_thing" in capfd.readouterr().err
    assert list_environments() == []


@pytest.mark.slow
def test_two_processes_make_one_environment(create: list[str], own_cache: Path) -> None:
    processes = [subprocess.Popen([sys.executable, quick_hosts.__file__, *create]) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert list_environments() == ["tiny"]
    environments.start("tiny").close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_create_that_is_ended_leaves_no_tool_and_the_next_one_removes_its_folder(
    number: int, create: list[str], own_cache: Path
) -> None:
    def is_running() -> bool:
        listed = subprocess.run(["ps", "-ww", "-eo", "args="], capture_output=True, text=True, check=True).stdout
        return f"{environments.directory()}{os.sep}" in listed

    command = [*as_at_a_terminal(), sys.executable, quick_hosts.__file__, *create]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert waited_for(is_running)  # a tool is at work
    process.send_signal(number)
    assert "Traceback" not in process.communicate()[1]
    assert process.returncode == 128 + number
    assert waited_for(lambda: not is_running())  # what is killed needs a processor to end on
    assert not list(environments.directory().glob(".tiny~*/bin/pip"))  # which a tool that lives on installs
    assert hosting.main(create) == 0
    assert list_environments() == ["tiny"]


@pytest.mark.parametrize(
    "name",
    ["protocol", "layers", "keras_layers", "keras_host", "torch_host", "chainer_host", "cntk_host", "mxnet_host"],
)
def test_what_runs_in_hosts_is_python_3_6(name: str) -> None:
    text = (environments.HERE / f"{name}.py").read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))


def test_a_framework_without_its_environment_names_the_command() -> None:
    for action in (
        lambda: rc.load_model("lenet5", framework="theano", dataset="digits"),
        lambda: frameworks.get_framework("theano"),
    ):
        with pytest.raises(UsageError, match="Create it with: robustcmp hosts create theano"):
            action()
