"""Suites and recipes that strangers write: valid, or an error of ours, soon and in little memory."""

from __future__ import annotations

import codecs
import inspect
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import robustcmp as rc
from robustcmp import limits
from robustcmp.attacks.suite import FOOLBOX, OURS, _is_plain, load_suite
from robustcmp.errors import OutOfMemoryError, UsageError, enough_memory
from robustcmp.networks.architecture import Architecture, get_architecture
from robustcmp.sources.recipes import Recipe, load_recipe
from robustcmp.untrusted import read_toml

SUITE = """\
description = "a suite"
images = 20
repeats = 2
subset = "common"

[attacks.fgsm]
attack = "FGSM"
epsilons = 20
max_epsilon = 0.1

[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 20
exact = true

[attacks.boundary]
attack = "Boundary"
iterations = 20
max_directions = 2

[attacks.pgd]
attack = "LinfPGD"
epsilons = [0.01, 0.03]
steps = 40
random_start = true

[attacks.hop]
attack = "HopSkipJumpAttack"
constraint = "l2"
"""
NETWORK = """\
[architecture]
input_shape = [28, 28, 1]
layers = [
    { type = "Conv", name = "conv1", channels = 4, kernel = 5, stride = 1, padding = 2 },
    { type = "Residual", name = "sum", layers = [{ type = "Relu", name = "relu" }] },
    { type = "MaxPool", name = "pool", size = 2 },
    { type = "Flatten", name = "flatten" },
    { type = "Dense", name = "logits", units = 10 },
]

[default.digits]
epochs = 3
batch_size = 32
learning_rate = 0.02
momentum = 0.9
weight_decay = 5e-4
schedule = "cosine"
crop = 2
flip = true
"""


def recipe(path: Path) -> Recipe:
    assert isinstance(get_architecture(str(path)), Architecture)
    return load_recipe(str(path), "digits")


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "suite": (SUITE, load_suite),
    "recipe": (NETWORK, recipe),
}


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let what takes longer be an error, also where it never ends."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refused(reader: str, content: str | bytes, directory: Path, message: str) -> None:
    """See that a file is an error that names it."""
    path = directory / "mine.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with within(5), pytest.raises(UsageError, match=message) as caught:
        READERS[reader][1](path)
    assert "mine.toml" in str(caught.value)


# any file


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("a = " + "[" * 100 + "]" * 100, "nested too deeply; expected at most 64"),
        ("a = " + "{ a = " * 2_000, "nested too deeply"),
        ("a." * 60_000 + "a = 1", "keys of at most 64 parts"),
        ("[" + "a." * 60_000 + "a]", "keys of at most 64 parts"),
        ("a = " + "1" * 5_000, "too many digits"),
        ("a = " + "1" * 30, "a should be a number of 64 bits, received one of 30 digits"),
        ("[x]\na = [1.0, nan]", r"x\.a\.2 should be a finite number, received (nan|NaN)"),
        ("a = 1e999", "a should be a finite number, received inf"),
        ("a = 1\na = 1", "cannot be read as TOML: Cannot overwrite a value"),
        (b"a = '\xff'", "expected text in UTF-8"),
        (b"\0", "cannot be read as TOML"),
        ("#" * (limits.FILE_BYTES + 1), f"expected at most {limits.FILE_BYTES:,} bytes"),
        ("", "mine.toml"),
    ],
    ids=range(14),
)
def test_a_file_that_no_tool_writes(reader: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    refused(reader, content, tmp_path, message if "1e999" not in str(content) else "finite number")


@pytest.mark.parametrize("reader", READERS)
def test_a_byte_order_mark_changes_nothing(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    content, read = READERS[reader]
    path.write_text(content)
    wanted = read(path)
    path.write_bytes(codecs.BOM_UTF8 + content.encode())
    received = read(path)
    assert getattr(received, "digest", received) == getattr(wanted, "digest", wanted)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "nothing", "name"])
def test_what_is_no_file(reader: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    elif kind == "name":
        path = tmp_path / "mi\0ne.toml"
    with within(5), pytest.raises(UsageError, match=r"cannot be read|without control characters"):
        READERS[reader][1](path)


def test_dots_in_a_text_are_no_key(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('a = "' + "see this. " * 200 + '"\nb = [' + "0.1, " * 200 + "]\n")
    assert len(read_toml(path, "the file")["b"]) == 200


# numbers


@pytest.mark.parametrize(
    ("reader", "old", "new", "message"),
    [
        ("suite", "images = 20", "images = 1_000_000_000_000", "10000000"),
        ("suite", "repeats = 2", "repeats = 1_000_000", "10000"),
        ("suite", "repeats = 2", "repaets = 2", "unknown key 'repaets': did you mean 'repeats'"),
        ("suite", "epsilons = 20", "epsilons = 1_000_000_000", "epsilons should be at most 10,000"),
        ("suite", "max_epsilon = 0.1", "max_epsilon = 1e300", "max_epsilon should be at most"),
        ("suite", "max_pixels = 20", "max_pixels = 1_000_000_000", "max_pixels should be at most"),
        ("suite", "iterations = 20", "iterations = 1_000_000_000", "iterations should be at most"),
        ("suite", "max_directions = 2", "max_directions = 1_000_000", "max_directions should be at most"),
        ("suite", "steps = 40", "steps = 1_000_000_000", "steps should be at most"),
        ("suite", "steps = 40", "steps = -1", "steps should be 1 or more"),
        ("suite", "steps = 40", "rel_stepsize = 1e300", "rel_stepsize should be at most"),
        ("suite", "[0.01, 0.03]", f"[{'0.1, ' * 10_001}]", "epsilons"),
        ("suite", "[attacks.fgsm]", f"[attacks.{'f' * 65}]", "at most 64 of a-z"),
        ("suite", 'constraint = "l2"', "initial_gradient_eval_steps = 1_000_000", "should be at most 10,000"),
        ("recipe", "units = 10", "units = 1_000_000_000", "at most 100,000,000 values an image"),
        ("recipe", "units = 10", "units = 2_000_000", "expected at most 1,000,000,000 weights"),
        ("recipe", "padding = 2", "padding = 1_000_000", "at most 100,000,000 values an image"),
        ("recipe", "[28, 28, 1]", "[100_000, 100_000, 3]", "at most 100,000,000 values an image"),
        ("recipe", "stride = 1", "strid = 1", "unknown field `strid`"),
        ("recipe", "epochs = 3", "epochs = 1_000_000_000", "100000"),
        ("recipe", "epochs = 3", "epoch = 3", "unknown field `epoch`"),
        ("recipe", "batch_size = 32", "batch_size = 1_000_000_000", "1000000"),
        ("recipe", "crop = 2", "crop = 100_000", "crop should be less than the image"),
        ("recipe", "learning_rate = 0.02", "learning_rate = nan", "learning_rate should be a finite number"),
    ],
)
def test_a_number_that_no_machine_has_time_or_memory_for(
    reader: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    text = READERS[reader][0]
    assert old in text
    refused(reader, text.replace(old, new, 1), tmp_path, message)


def test_the_limits_hold_for_calls_as_well() -> None:
    images, labels = np.zeros((2, 28, 28, 1), np.float32), np.zeros(2, np.int64)
    for make in (
        lambda: rc.attacks.FGSM(epsilons=10**9),
        lambda: rc.attacks.Boundary(iterations=10**5000),
        lambda: rc.evaluate({"a": None}, images, labels, repeats=10**9),  # type: ignore[dict-item]
        lambda: rc.evaluate({"a": None}, images, labels, n=10**12),  # type: ignore[dict-item]
        lambda: rc.fit("lenet1", framework="torch", dataset="digits", epochs=10**9),
    ):
        with within(5), pytest.raises(UsageError, match="should be at most"):
            make()


def test_too_little_memory_says_what_to_lower() -> None:
    expected = pytest.raises(OutOfMemoryError, match=r"does not suffice for this \(Unable to allocate .*Lower that, or")
    with expected, enough_memory("this", "that"):
        np.empty(2**55)


# what a suite may set


@pytest.mark.parametrize("name", ["BoundaryAttack", "HopSkipJumpAttack", "L2BrendelBethgeAttack"])
def test_a_suite_writes_no_files(name: str, tmp_path: Path) -> None:
    written = tmp_path / "written"
    text = f'[attacks.x]\nattack = "{name}"\ntensorboard = "{written}"\n'
    refused(
        "suite",
        text,
        tmp_path,
        rf"\[attacks\.x\]: {name}: tensorboard cannot be set in a file",
    )
    assert not written.exists()


def test_a_suite_sets_numbers_switches_and_listed_words_alone() -> None:
    settable = {
        (name, str(hint))
        for cls in (*OURS.values(), *FOOLBOX.values())
        for name, hint in get_type_hints(cls.__init__).items()
        if name in inspect.signature(cls).parameters and _is_plain(hint)
    }
    words = {hint for _, hint in settable if "str" in hint or "Any" in hint or "foolbox" in hint or "Path" in hint}
    assert words == set()
    assert {name for name, _ in settable} >= {"steps", "constraint", "reduced_dims", "random_start", "rel_stepsize"}


# mutations
