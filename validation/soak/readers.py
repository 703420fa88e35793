"""What reads which files, and what counts as a wrong value of each.

Three kinds of broken files:

- **strict**: a check sum in the file (a seal of ours, the CRC of an archive's member) no longer fits. The file has to
  be refused, or read as the unbroken one is.
- **a stranger's**: all check sums fit. Other values cannot be told from the right ones. Whatever is read has to have
  the names, types and shapes that it should have, and nothing of any other file.
- **text**: what can be read counts as meant. Numbers have to be finite.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from robustcmp.errors import RobustcmpError
from robustcmp.processes import Ended

from . import mutations
from .mutations import CANARY, Mutation, broken_archive, broken_bytes, broken_hdf5, broken_text, generator, pick

Value = dict[str, Any]
NO_FILES = ("pipe", "directory", "endless file", "gone")
SEALED = ("run", "weights")  # parts of the material whose text has a check sum
SLOW = 10.0  # seconds


class Reader:
    """What reads one kind of file. A subclass says which files, and how they are read."""

    title = ""
    part = "run"  # of the material
    files: Sequence[str] = ()
    refusals: tuple[type[BaseException], ...] = (RobustcmpError,)
    keeps_form = True  # a stranger's file has the names, types and shapes of the unbroken one

    def __init__(self, material: Path, scratch: Path):
        self.folder = mutations.copy_tree(material / self.part, scratch / self.part)
        self.prepare()
        self.contents = {name: (self.folder / name).read_bytes() for name in self.files}
        self.expected = {name: self.read(name) for name in self.files}

    def prepare(self) -> None:
        """Get ready for many trials."""

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        """Return a broken file."""
        content, suffix = self.contents[name], Path(name).suffix
        if suffix in (".toml", ".json"):
            sealed = self.part in SEALED
            if rng.random() < 0.3:
                return Mutation(*broken_bytes(content, rng), sealed)
            kind, text = broken_text(content, rng, suffix[1:])
            with contextlib.suppress(ValueError, RecursionError):
                if sealed and rng.random() < 0.5 and (resealed := mutations.reseal_json(text)) != text:
                    return Mutation(f"sealed: {kind}", resealed, False)
            return Mutation(kind, text, sealed)
        if rng.random() < 0.5:
            unchecked = name.endswith(".weights.h5") or name == "old.pt"
            return Mutation(*broken_bytes(content, rng), not unchecked)
        if suffix == ".h5":
            return Mutation(*broken_hdf5(content, rng, self.folder / "canary"), False)
        if name == "old.pt":  # the old format has no check sum
            return Mutation(*broken_bytes(content, rng), False)
        return Mutation(*broken_archive(content, rng, self.folder / f"bomb{suffix}"), False)

    def read(self, name: str) -> Value:
        """Return all that a user sees of a file."""
        raise NotImplementedError

    def wrong(self, value: Value) -> str:
        """Return what is wrong with a value that was read, or nothing."""
        return ""

    def trial(self, seed: int, number: int) -> dict[str, str]:
        """Break a file, read it, and return the outcome; an exception that is no refusal is the caller's."""
        rng = generator(seed, type(self).__name__, number)
        name = pick(rng, self.files)
        no_file = rng.random() < 0.004
        return self.tried(name, Mutation(pick(rng, NO_FILES), b"", True) if no_file else self.broken(name, rng))

    def tried(self, name: str, mutation: Mutation) -> dict[str, str]:
        """Put a broken file in the place of one, read it, and return the outcome."""
        self.write(name, mutation)
        try:
            value = self.read(name)
        except self.refusals:
            return {"kind": mutation.kind, "outcome": "refused"}
        finally:
            self.restore(name)
        return {"kind": mutation.kind} | self.judged(value, self.expected[name], mutation.strict)

    def judged(self, value: Value, expected: Value, strict: bool) -> dict[str, str]:
        """Return the outcome of a value that was read."""
        seen = b"".join(plain(value))
        if not value:  # what is not there any more, and is not made up
            return {"outcome": "refused"}
        if seen == b"".join(plain(expected)):
            return {"outcome": "same"}
        if any(CANARY[i : i + 16] in seen for i in range(len(CANARY) - 15)):
            return {"outcome": "wrong", "why": "shows another file"}
        if strict:
            return {"outcome": "wrong", "why": "differs from the file as it was written"}
        why = (self.keeps_form and other_form(value, expected)) or self.wrong(value)
        return {"outcome": "wrong", "why": why} if why else {"outcome": "other"}

    def write(self, name: str, mutation: Mutation) -> None:
        """Put a broken file in the place of one, or something that is no file."""
        path = self.folder / name
        if mutation.kind not in NO_FILES:
            path.write_bytes(mutation.content)
            return
        path.unlink()
        if mutation.kind == "pipe":
            os.mkfifo(path)
        elif mutation.kind == "directory":
            path.mkdir()
        elif mutation.kind == "endless file":
            path.symlink_to("/dev/zero")

    def restore(self, name: str) -> None:
        """Put the unbroken file back."""
        path = self.folder / name
        if path.is_dir():
            path.rmdir()
        elif path.is_symlink() or path.is_fifo():
            path.unlink()
        path.write_bytes(self.contents[name])


def plain(value: Any) -> Iterator[bytes]:
    """Yield the bytes that tell a value from others."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield f"{key}:".encode("utf-8", "surrogatepass")
            yield from plain(value[key])
    elif isinstance(value, list | tuple):
        yield f"[{len(value)}]".encode()
        for each in value:
            yield from plain(each)
    elif isinstance(value, np.ndarray) and value.dtype.kind not in "OV":
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    else:
        yield (value if isinstance(value, str) else repr(value)).encode("utf-8", "surrogatepass")


def other_form(value: Any, expected: Any, where: str = "") -> str:
    """Return where arrays have other types or shapes than they should, or nothing; one may be missing."""
    if isinstance(expected, np.ndarray):
        if not isinstance(value, np.ndarray):
            return f"{where}: no array but {type(value).__name__}"
        same_type = value.dtype == expected.dtype or value.dtype.kind == expected.dtype.kind == "U"
        if not same_type or value.shape != expected.shape:
            return f"{where}: {value.dtype} {value.shape}, not {expected.dtype} {expected.shape}"
    elif isinstance(expected, dict):
        for key in value.keys() & expected.keys():
            if why := other_form(value[key], expected[key], f"{where}/{key}"):
                return why
    return ""


def finite(value: Any) -> bool:
    """Whether all numbers in JSON's types are finite."""
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


# text ----------------------------------------------------------------------------------------------------------------


class Suites(Reader):
    """`load_suite`, and what a plan asks of its attacks."""

    title = "suites (TOML)"
    part = "texts"
    files = ("suite.toml",)
    keeps_form = False

    def read(self, name: str) -> Value:
        from robustcmp.attacks.suite import load_suite

        suite = load_suite(self.folder / name)
        attacks = {}
        for attack_name, attack in suite.attacks.items():
            attack.usual_queries(784, 10)
            attacks[attack_name] = {"settings": attack.settings, "grid": list(attack.grid)}
        value = {"images": suite.images, "repeats": suite.count_repeats(), "subset": suite.subset, "attacks": attacks}
        return value | {"digest": suite.digest, "description": suite.description}

    def wrong(self, value: Value) -> str:
        return "" if finite(value) else "a number that is not finite"


class Recipes(Suites):
    """A network with recipes in TOML."""

    title = "networks and recipes (TOML)"
    files = ("mine.toml",)

    def read(self, name: str) -> Value:
        import msgspec

        from robustcmp.networks.architecture import get_architecture
        from robustcmp.sources.recipes import default_dataset, load_recipe

        path = str(self.folder / name)
        design, first = get_architecture(path), default_dataset(path)
        value = {"design": design.description, "parameters": design.parameters, "first": first}
        for dataset in dict.fromkeys([first, "mnist", "digits"]):
            value[f"recipe {dataset}"] = msgspec.to_builtins(load_recipe(path, dataset))
        return value


# runs ----------------------------------------------------------------------------------------------------------------


class RunReader(Reader):
    """What reads a finished run."""

    def prepare(self) -> None:
        from robustcmp.analysis.results import open_results

        self.open = open_results
        self.run = self.folder / "run"

    def read(self, name: str) -> Value:
        from robustcmp.report.exports import to_json

        results = self.open(self.run)
        variables = {str(name): its.values for name, its in results.dataset.variables.items()}
        return {"variables": variables, "summary": to_json(results), "manifest": results.manifest}


class Manifests(RunReader):
    """`manifest.json`, through `open_results`."""

    title = "manifests (JSON)"
    files = ("run/manifest.json",)


class Strangers(RunReader):
    """A run whose manifest says something else, in all places alike: one that somebody made up."""

    title = "runs with a made-up manifest"
    files = ("run/manifest.json",)
    keeps_form = False

    def prepare(self) -> None:
        super().prepare()
        self.results = (self.run / "results.h5").read_bytes()

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        for _ in range(50):
            kind, content = broken_text(self.contents[name], rng, "json")
            with contextlib.suppress(ValueError, RecursionError):
                return Mutation(kind, mutations.reseal_json(content), False)
        return Mutation("none", self.contents[name], False)

    def write(self, name: str, mutation: Mutation) -> None:
        super().write(name, mutation)
        with contextlib.suppress(ValueError, RecursionError):
            made_up = json.loads(mutation.content)
            if isinstance(made_up, dict):
                made_up.pop("seal", None)
            text = json.dumps(made_up, sort_keys=True)
            if len(text) < 60_000 and "\\u0000" not in text and "\\ud8" not in text:
                _, results = mutations.edited_hdf5(self.results, lambda file: file.attrs.update(manifest=text))
                (self.run / "results.h5").write_bytes(results)

    def restore(self, name: str) -> None:
        super().restore(name)
        (self.run / "results.h5").write_bytes(self.results)

    def read(self, name: str) -> Value:
        from robustcmp.report.text import summary

        return super().read(name) | {"screen": summary(self.open(self.run))}

    def wrong(self, value: Value) -> str:
        shown = [sign for sign in value["screen"] if sign != "\n" and not sign.isprintable()]
        return f"prints the control character {shown[0]!r}" if shown else ""


class Answers(RunReader):
    """`checks.json` and `transfer.json`."""

    title = "answers (JSON)"
    files = ("run/checks.json", "run/transfer.json")

    def read(self, name: str) -> Value:
        results = self.open(self.run)
        if "checks" in name:
            return {} if results.checked is None else msgspec.to_builtins(results.checked)
        transferred = results.transferred
        return {} if transferred is None else {str(key): its.values for key, its in transferred.variables.items()}


class StoredResults(RunReader):
    """`results.h5`, through `open_results`."""

    title = "results (HDF5)"
    files = ("run/results.h5",)


class Cells(RunReader):
    """The files of cells: their arrays and images."""

    title = "cells (HDF5)"

    def prepare(self) -> None:
        super().prepare()
        self.stored = self.open(self.run).run
        self.files = [str(path.relative_to(self.folder)) for path in sorted(self.folder.glob("run/cells/*"))]

    def read(self, name: str) -> Value:
        key = Path(name).stem
        return {"arrays": self.stored.load(key), "images": self.stored.adversarials(key)}


class Arrays(RunReader):
    """`clean.h5` and `contested.h5`."""

    title = "images and contested images (HDF5)"
    files = ("run/clean.h5", "run/contested.h5")

    def read(self, name: str) -> Value:
        results = self.open(self.run)
        if "clean" in name:
            return {} if results.clean is None else {"images": results.clean}
        return {} if results.conditioned is None else {"rows": results.conditioned.curve().to_dict("list")}


# networks ------------------------------------------------------------------------------------------------------------


class Networks(Reader):
    """What reads networks that were trained elsewhere: what ``--weights`` does."""

    part = "networks"
    framework = "torch"

    def read(self, name: str) -> Value:
        from robustcmp.sources.from_files import FromFile

        architecture = None if name.endswith(".keras") else "lenet1"
        origin = FromFile(str(self.folder / name), self.framework, architecture)
        origin.check()
        native: Any = origin.load()
        return {key: np.asarray(array) for key, array in self.arrays(native.native).items()}

    def arrays(self, native: Any) -> dict[str, Any]:
        return {key: tensor.numpy() for key, tensor in native.state_dict().items()}


class Weights(Networks):
    """Our own weights."""

    title = "weights (HDF5)"
    files = ("torch.h5", "tensorflow.h5")


class NumpyArchives(Networks):
    """Arrays of NumPy."""

    title = "`.npz`"
    files = ("lenet1.npz", "packed.npz")


class Torch(Networks):
    """State dicts of torch."""

    title = "`.pt`"
    files = ("lenet1.pt", "old.pt")


class Keras(Networks):
    """Whole models of Keras, and their weights."""

    title = "`.keras`, `.weights.h5`"
    files = ("lenet1.keras", "lenet1.weights.h5")
    framework = "tensorflow"
    keeps_form = False

    def arrays(self, native: Any) -> dict[str, Any]:
        return {str(i): array for i, array in enumerate(native.get_weights())}


# hosts ---------------------------------------------------------------------------------------------------------------


def frame(content: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """Return a message of the hosts' protocol, put together by hand."""
    described = [[name, "float32", list(np.shape(its))] for name, its in arrays.items()]
    header = json.dumps({**content, "arrays": described, "memory": False}).encode()
    return _with_header(header, b"".join(np.array(its, "<f4").tobytes() for its in arrays.values()))


def _with_header(header: bytes, rest: bytes) -> bytes:
    return b"RCMP" + struct.pack("<I", len(header)) + header + rest


def _say(connection: socket.socket, message: bytes) -> None:
    with contextlib.suppress(OSError):  # the other side has heard enough
        connection.sendall(message)
        connection.shutdown(socket.SHUT_WR)


class Frames(Reader):
    """Messages of hosts, through `Channel.receive`. Its own errors count: `HostProcess` makes a `HostError` of them."""

    title = "hosts' messages"
    part = "texts"
    files = ("frames.json",)
    keeps_form = False

    def prepare(self) -> None:
        from robustcmp.hosts.protocol import Channel, Closed, ProtocolError

        self.channel = Channel
        self.refusals = (Closed, ProtocolError, TimeoutError)
        self.frames = [frame(*message) for message in json.loads((self.folder / "frames.json").read_text())]
        self.message = self.frames[0]

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        message = pick(rng, self.frames)
        if rng.random() < 0.5:
            return Mutation(*broken_bytes(message, rng, self.frames), False)
        length = int.from_bytes(message[4:8], "little")
        kind, header = broken_text(message[8 : 8 + length], rng, "json")
        return Mutation(f"header: {kind}", _with_header(header, message[8 + length :]), False)

    def write(self, name: str, mutation: Mutation) -> None:
        self.message = mutation.content

    def restore(self, name: str) -> None:
        self.message = self.frames[0]

    def read(self, name: str) -> Value:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            threading.Thread(target=_say, args=(ours, self.message), daemon=True).start()
            content, arrays = self.channel(theirs).receive(5)
        return {"content": content, "arrays": arrays}


READERS: dict[str, type[Reader]] = {
    "suites": Suites,
    "recipes": Recipes,
    "manifests": Manifests,
    "strangers": Strangers,
    "answers": Answers,
    "cells": Cells,
    "results": StoredResults,
    "arrays": Arrays,
    "weights": Weights,
    "pt": Torch,
    "npz": NumpyArchives,
    "keras": Keras,
    "frames": Frames,
}


def serve(connection: Connection[Any, Any]) -> None:
    """Answer requests for trials, each with its outcome, until the parent hangs up."""
    with TemporaryDirectory(prefix="soak-") as scratch, contextlib.suppress(EOFError):
        name, material, seed, number = connection.recv()
        reader = READERS[name](material, Path(scratch))
        while True:
            start = time.perf_counter()
            try:
                outcome = reader.trial(seed, number)
            except BaseException as error:
                outcome = {"outcome": "exception", "why": f"{type(error).__name__}: {error}"[:300]}
            if time.perf_counter() - start > SLOW:
                outcome |= {"outcome": "slow"}
            connection.send(outcome)
            connection.send(Ended())
            _, _, seed, number = connection.recv()
