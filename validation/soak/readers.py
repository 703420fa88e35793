"""What reads which files, and what counts as a wrong value of each.

Three kinds of broken files:

- **strict**: a check sum in the file (a seal of ours, the CRC of an archive's member) no longer fits. The file has to
  be refused, or read as the unbroken one is.
- **a stranger's**: all check sums fit. Other values cannot be told from the right ones. Whatever is read has to have
  the names, types and shapes that it should have, and nothing of any other file.
- **text**: what can be read counts as meant. Numbers have to be finite, and no key may name a file to write.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from robustcmp.errors import RobustcmpError

from . import mutations
from .mutations import CANARY, Mutation, broken_archive, broken_bytes, broken_hdf5, broken_text, generator, pick

Value = dict[str, Any]
NO_FILES = ("pipe", "directory", "endless file", "gone")
GONE: Value = {}  # what is not there any more, and is not made up


class Reader:
    """What reads one kind of file. A subclass says which files, how they are broken, and how they are read."""

    title = ""
    part = "run"  # of the material
    trials = 10_000
    files: Sequence[str] = ()
    refusals: tuple[type[BaseException], ...] = (RobustcmpError,)
    keeps_form = True  # a stranger's file has the names, types and shapes of the unbroken one
    replaced = True  # now and then the file is no file at all

    def __init__(self, material: Path, scratch: Path):
        self.folder = mutations.copy_tree(material / self.part, scratch / self.part)
        self.canary = self.folder / "canary"
        self.prepare()
        self.contents = {name: (self.folder / name).read_bytes() for name in self.files}
        self.expected = {name: self.read(name) for name in self.files}

    def prepare(self) -> None:
        """Get ready for many trials."""

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        """Return a broken file."""
        raise NotImplementedError

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
        if self.replaced and rng.random() < 0.004:
            return self.tried(name, Mutation(pick(rng, NO_FILES), b"", True))
        return self.tried(name, self.broken(name, rng))

    def tried(self, name: str, mutation: Mutation) -> dict[str, str]:
        """Put a broken file in the place of one, read it, and return the outcome."""
        said = {"file": name, "kind": mutation.kind}
        print(f"soak: {mutation.kind} in {name}", file=sys.stderr, flush=True)  # the last words, if this is the end
        self.write(name, mutation)
        try:
            value = self.read(name)
        except self.refusals:
            return said | {"outcome": "refused"}
        except BaseException as error:
            error.add_note(f"soak: {mutation.kind} in {name}")
            raise
        finally:
            self.restore(name)
        return said | self.judged(value, self.expected[name], mutation.strict)

    def judged(self, value: Value, expected: Value, strict: bool) -> dict[str, str]:
        """Return the outcome of a value that was read."""
        if value is GONE:
            return {"outcome": "refused"}
        seen = b"".join(plain(value))
        if seen == b"".join(plain(expected)):
            return {"outcome": "same"}
        if any(CANARY[i : i + 16] in seen for i in range(len(CANARY) - 15)):
            return {"outcome": "wrong", "why": "shows another file"}
        if strict:
            return {
                "outcome": "wrong",
                "why": "differs from the file as it was written: " + difference(value, expected),
            }
        if self.keeps_form and (why := other_form(value, expected)):
            return {"outcome": "wrong", "why": why}
        why = self.wrong(value)
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

    def others(self, name: str) -> list[bytes]:
        """Return what may stand in a file's place by mistake."""
        return [content for other, content in self.contents.items() if other != name]


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
    """Return where arrays have other types or shapes than they should, or nothing.

    An array that is missing is no wrong value: older files have fewer.
    """
    if isinstance(expected, np.ndarray):
        if not isinstance(value, np.ndarray):
            return f"{where}: no array but {type(value).__name__}"
        same_type = value.dtype == expected.dtype or value.dtype.kind == expected.dtype.kind == "U"
        if not same_type or value.shape != expected.shape:
            return f"{where}: {value.dtype} {value.shape}, not {expected.dtype} {expected.shape}"
    elif isinstance(expected, dict):
        if not isinstance(value, dict):
            return f"{where}: no table"
        for key in value.keys() & expected.keys():
            if why := other_form(value[key], expected[key], f"{where}/{key}"):
                return why
    return ""


def difference(value: Any, expected: Any, where: str = "") -> str:
    """Return the first place where two values differ."""
    if isinstance(value, dict) and isinstance(expected, dict):
        for key in [*expected, *value]:
            if key not in value or key not in expected:
                return f"{where}/{key}"
            if b"".join(plain(value[key])) != b"".join(plain(expected[key])):
                return difference(value[key], expected[key], f"{where}/{key}")
    return where or "/"


# text ----------------------------------------------------------------------------------------------------------------


def finite(value: Any) -> bool:
    """Whether all numbers in JSON's types are finite."""
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


NUMERIC = [*mutations.NUMBERS, "1000000000", "1e-9", "3", "0.3", "inf", "nan"]


class Suites(Reader):
    """`load_suite`, and what a plan asks of its attacks."""

    title = "suites (TOML)"
    part = "texts"
    files = ("suite.toml",)
    keeps_form = False

    def prepare(self) -> None:
        from robustcmp.attacks.suite import FOOLBOX, OURS, load_suite

        self.load = load_suite
        self.classes = OURS | FOOLBOX

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        if rng.random() < 0.25:
            return Mutation("parameter", self.with_parameter(rng), False)
        if rng.random() < 0.3:
            return Mutation(*broken_bytes(self.contents[name], rng), False)
        return Mutation(*broken_text(self.contents[name], rng, "toml"), False)

    def with_parameter(self, rng: np.random.Generator) -> bytes:
        """A suite of any attack there is, with an odd value of one of its parameters."""
        import inspect

        cls_name = pick(rng, list(self.classes))
        names = [name for name in inspect.signature(self.classes[cls_name]).parameters if name != "kwargs"]
        lines = ["[attacks.odd]", f'attack = "{cls_name}"', "epsilons = [0.1]"]
        values = [
            *mutations.NUMBERS,
            *mutations.TEXTS,
            *mutations.ODD["toml"],
            "1000000000",
            "1e-9",
            "[]",
            "[0.1, 0.2]",
        ]
        for name in dict.fromkeys(pick(rng, names) for _ in range(int(rng.integers(1, 3)))) if names else ():
            numeric = rng.random() < 0.7
            lines.append(f"{name} = {pick(rng, NUMERIC if numeric else values)}")
        if "epsilons" in names:
            del lines[2]
        return ("\n".join(lines) + "\n").encode()

    def read(self, name: str) -> Value:
        suite = self.load(self.folder / name)
        attacks = {}
        for attack_name, attack in suite.attacks.items():
            attack.usual_queries(784, 10)
            attacks[attack_name] = {"settings": attack.settings, "grid": np.array(attack.grid, np.float64)}
        value = {"images": suite.images, "repeats": suite.count_repeats(), "subset": suite.subset, "attacks": attacks}
        return value | {"digest": suite.digest, "description": suite.description}

    def wrong(self, value: Value) -> str:
        for attack in value["attacks"].values():
            if not finite(attack["settings"]) or not np.isfinite(attack["grid"]).all():
                return "a number that is not finite"
            if isinstance(attack["settings"].get("tensorboard"), str):
                return "a parameter that writes files"
        return ""


class Recipes(Reader):
    """A network with recipes in TOML, and weights loaded into it."""

    title = "networks and recipes (TOML)"
    part = "texts"
    files = ("mine.toml",)
    keeps_form = False

    def prepare(self) -> None:
        import torch

        from robustcmp.networks.architecture import get_architecture
        from robustcmp.sources.from_files import load_network
        from robustcmp.sources.recipes import default_dataset, load_recipe

        torch.set_num_threads(1)
        self.functions = get_architecture, default_dataset, load_recipe
        self.load = load_network
        np.savez(self.folder / "none.npz", none=np.zeros(1, np.float32))

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        if rng.random() < 0.3:
            return Mutation(*broken_bytes(self.contents[name], rng), False)
        return Mutation(*broken_text(self.contents[name], rng, "toml"), False)

    def read(self, name: str) -> Value:
        import msgspec

        get_architecture, default_dataset, load_recipe = self.functions
        path = str(self.folder / name)
        design, first = get_architecture(path), default_dataset(path)
        value = {"design": design.description, "parameters": design.parameters, "first": first}
        for dataset in dict.fromkeys([first, "mnist", "digits"]):
            value[f"recipe {dataset}"] = msgspec.to_builtins(load_recipe(path, dataset))
        try:
            self.load(str(self.folder / "none.npz"), "torch", path)
        except RobustcmpError:
            return value
        raise AssertionError("weights of no network were loaded")

    def wrong(self, value: Value) -> str:
        return "" if finite(value) else "a number that is not finite"


# runs ----------------------------------------------------------------------------------------------------------------


class RunReader(Reader):
    """What reads a finished run."""

    def prepare(self) -> None:
        from robustcmp.analysis.results import open_results

        self.open = open_results
        self.run = self.folder / "run"
        self.evaluation = self.open(self.run)

    def named(self, pattern: str) -> list[str]:
        return [str(path.relative_to(self.folder)) for path in sorted(self.folder.glob(f"run/{pattern}"))]

    def whole(self) -> Value:
        """Return what a run says."""
        self.last = evaluation = self.open(self.run)
        variables = {str(name): its.values for name, its in evaluation.dataset.variables.items()}
        return {"variables": variables, "summary": evaluation.to_json(), "manifest": evaluation.manifest}


class Manifests(RunReader):
    """`manifest.json`, through `open_results`."""

    title = "manifests (JSON)"
    files = ("run/manifest.json",)

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        if rng.random() < 0.3:
            return Mutation(*broken_bytes(self.contents[name], rng), True)
        return Mutation(*broken_text(self.contents[name], rng, "json"), True)

    def read(self, name: str) -> Value:
        return self.whole()


class Strangers(RunReader):
    """A run whose manifest says something else, in all places alike: one that somebody made up."""

    title = "runs with a made-up manifest"
    files = ("run/manifest.json",)
    trials = 10_000
    keeps_form = False
    replaced = False

    def prepare(self) -> None:
        super().prepare()
        self.results = (self.run / "results.h5").read_bytes()

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        for _ in range(50):
            kind, content = broken_text(self.contents[name], rng, "json")
            try:
                return Mutation(kind, mutations.reseal_json(content), False)
            except (ValueError, RecursionError):
                continue
        return Mutation("none", self.contents[name], False)

    def write(self, name: str, mutation: Mutation) -> None:
        super().write(name, mutation)
        made_up = json.loads(mutation.content)
        if isinstance(made_up, dict):
            made_up.pop("seal", None)
        text = json.dumps(made_up, sort_keys=True)
        if len(text) < 60_000 and "\\u0000" not in text and "\\ud8" not in text:

            def tell(file: h5py.File) -> None:
                file.attrs["manifest"] = text

            _, results = mutations.edited_hdf5(self.results, tell)
            (self.run / "results.h5").write_bytes(results)

    def restore(self, name: str) -> None:
        super().restore(name)
        (self.run / "results.h5").write_bytes(self.results)

    def read(self, name: str) -> Value:
        value = self.whole()
        return value | {"screen": str(self.last)}

    def wrong(self, value: Value) -> str:
        shown = [sign for sign in value["screen"] if sign != "\n" and not sign.isprintable()]
        return f"prints the control character {shown[0]!r}" if shown else ""


class Answers(RunReader):
    """`checks.json` and `transfer.json`."""

    title = "answers (JSON)"
    files = ("run/checks.json", "run/transfer.json")

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        if rng.random() < 0.3:
            return Mutation(*broken_bytes(self.contents[name], rng, self.others(name)), True)
        kind, content = broken_text(self.contents[name], rng, "json")
        with contextlib.suppress(ValueError, RecursionError):
            resealed = mutations.reseal_json(content)
            if resealed != content and rng.random() < 0.5:
                return Mutation(f"sealed: {kind}", resealed, False)
        return Mutation(kind, content, True)

    def read(self, name: str) -> Value:
        evaluation = self.open(self.run)
        if "checks" in name:
            return evaluation.checked.to_json()
        return {str(key): its.values for key, its in evaluation.transferred.variables.items()}


class Results(RunReader):
    """`results.h5`, through `open_results`."""

    title = "results (HDF5)"
    files = ("run/results.h5",)

    def prepare(self) -> None:
        super().prepare()
        self.cells = [(self.folder / name).read_bytes() for name in self.named("cells/*")]

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        if rng.random() < 0.5:
            return Mutation(*broken_bytes(self.contents[name], rng, self.cells), True)
        return Mutation(*broken_hdf5(self.contents[name], rng, self.canary), False)

    def read(self, name: str) -> Value:
        return self.whole()


class Cells(RunReader):
    """The files of cells: their arrays and images."""

    title = "cells (HDF5)"

    def prepare(self) -> None:
        super().prepare()
        self.files = self.named("cells/*")

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        if rng.random() < 0.5:
            return Mutation(*broken_bytes(self.contents[name], rng, self.others(name)), True)
        return Mutation(*broken_hdf5(self.contents[name], rng, self.canary), False)

    def read(self, name: str) -> Value:
        key, run = Path(name).stem, self.evaluation.run
        return {"arrays": run.load(key), "extras": run.extras(key), "images": run.adversarials(key)}


class Arrays(RunReader):
    """`clean.h5` and `contested.h5`."""

    title = "images and contested images (HDF5)"
    files = ("run/clean.h5", "run/contested.h5")

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        if rng.random() < 0.5:
            return Mutation(*broken_bytes(self.contents[name], rng, self.others(name)), True)
        return Mutation(*broken_hdf5(self.contents[name], rng, self.canary), False)

    def read(self, name: str) -> Value:
        evaluation = self.open(self.run)
        if "clean" in name:
            return GONE if evaluation.clean is None else {"images": evaluation.clean}
        return {"rows": evaluation.conditioning(picks=2).to_dict("list")}


class Bits(RunReader):
    """One bit in each array, and in each line of text, that a run and weights hold."""

    title = "one bit in each stored array and line"
    trials = 5000

    def prepare(self) -> None:
        super().prepare()
        from robustcmp.networks.weights import read_weights

        self.read_weights = read_weights
        self.files = sorted(self.named("*.json*") + self.named("*.h5") + self.named("cells/*") + ["weights.h5"])
        self.places = [(name, *place) for name in self.files for place in places(self.folder / name)]

    def trial(self, seed: int, number: int) -> dict[str, str]:
        name, place, starts, lengths = self.places[number % len(self.places)]
        rng = generator(seed, type(self).__name__, number)
        content = bytearray(self.contents[name])
        which = int(rng.integers(len(starts)))
        content[starts[which] + int(rng.integers(lengths[which]))] ^= 1 << int(rng.integers(8))
        said = self.tried(name, Mutation(place, bytes(content), True))
        return said | {"place": f"{name} {place}"}

    def read(self, name: str) -> Value:
        last = Path(name).name
        evaluation = self.evaluation if "cells/" in name else self.open(self.run)
        if name == "weights.h5":
            content = self.read_weights(self.folder / name)
            return {"weights": dict(content.weights), "curves": dict(content.curves), "metadata": content.metadata}
        if last == "costs.jsonl":
            from robustcmp.records.logs import count_broken

            log = self.folder / name
            said = count_broken(log) > 0 or not log.read_bytes().endswith(b"\n")  # the latter is what a kill leaves
            return {"costs": [repr(row) for row in evaluation.costs().to_dict("records")], "said": said}
        if last == "checks.json":
            return evaluation.checked.to_json()
        if last == "transfer.json":
            return {str(key): its.values for key, its in evaluation.transferred.variables.items()}
        if last == "clean.h5":
            return GONE if evaluation.clean is None else {"images": evaluation.clean}
        if last == "contested.h5":
            return {"rows": evaluation.conditioning(picks=2).to_dict("list")}
        if "cells/" in name:
            key = Path(name).stem
            arrays, images = evaluation.run.load(key), evaluation.run.adversarials(key)
            return {"arrays": arrays, "extras": evaluation.run.extras(key), "images": images}
        return self.whole()

    def judged(self, value: Value, expected: Value, strict: bool) -> dict[str, str]:
        if "costs" in value:
            lost = len(value["costs"]) < len(expected["costs"]) and set(value["costs"]) <= set(expected["costs"])
            if lost and value["said"]:
                return {"outcome": "refused"}  # a line of the log that is no record is left out
            value, expected = ({"costs": each["costs"]} for each in (value, expected))
        return super().judged(value, expected, strict)


def places(path: Path) -> list[tuple[str, list[int], list[int]]]:
    """Return the arrays of an HDF5 file, or the lines of another, with where their bytes lie: starts and lengths."""
    content = path.read_bytes()
    if path.suffix != ".h5":
        found, start = [], 0
        for i, line in enumerate(content.splitlines(keepends=True)):
            found.append((f"line {i + 1}", [start], [len(line)]))
            start += len(line)
        return found
    arrays: dict[str, tuple[list[int], list[int]]] = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.chunks:
            chunks = [item.id.get_chunk_info(i) for i in range(item.id.get_num_chunks())]
            arrays[name] = ([chunk.byte_offset for chunk in chunks], [chunk.size for chunk in chunks])
        elif item.id.get_offset() is not None and item.id.get_storage_size():
            arrays[name] = ([item.id.get_offset()], [item.id.get_storage_size()])

    with h5py.File(path) as file:
        file.visititems(visit)
    # What is not the bytes of an array: names, types, shapes and attributes.
    return [(name, starts, lengths) for name, (starts, lengths) in arrays.items()] + [
        ("all of it", [0], [len(content)])
    ]


# networks ------------------------------------------------------------------------------------------------------------


class Networks(Reader):
    """What reads networks that were trained elsewhere: what ``--weights`` does."""

    part = "networks"
    framework = "torch"
    architecture: str | None = "lenet1"

    def prepare(self) -> None:
        from robustcmp.frameworks import get_framework
        from robustcmp.sources.from_files import load_network

        get_framework(self.framework)
        self.load = load_network

    def read(self, name: str) -> Value:
        model = self.load(str(self.folder / name), self.framework, self.architecture)
        return {key: np.asarray(array) for key, array in self.arrays(model.native).items()}

    def arrays(self, native: Any) -> dict[str, Any]:
        return {key: tensor.numpy() for key, tensor in native.state_dict().items()}


class Weights(Networks):
    """Our own weights."""

    title = "weights (HDF5)"
    files = ("torch.h5", "tensorflow.h5")

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        if rng.random() < 0.5:
            return Mutation(*broken_bytes(self.contents[name], rng, self.others(name)[:0]), True)
        return Mutation(*broken_hdf5(self.contents[name], rng, self.canary), False)


class NumpyArchives(Networks):
    """Arrays of NumPy."""

    title = "`.npz`"
    files = ("lenet1.npz", "packed.npz")

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        content, draw = self.contents[name], rng.random()
        if draw < 0.1 and (unchecked := mutations.unchecked_npy(content, rng)):
            return Mutation("type changed, check sum not", unchecked, True)
        if draw < 0.5:
            return Mutation(*broken_bytes(content, rng), True)
        return Mutation(*broken_archive(content, rng, self.member, self.folder / "bomb.npz"), False)

    @staticmethod
    def member(name: str, content: bytes, rng: np.random.Generator) -> bytes:
        """An array with another header, or other bytes."""
        return mutations.broken_npy(content, rng) if rng.random() < 0.6 else broken_bytes(content, rng)[1]


class Torch(Networks):
    """State dicts of torch."""

    title = "`.pt`"
    files = ("lenet1.pt", "old.pt")

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        draw = rng.random()
        if draw < 0.3:
            return Mutation(*self.saved(rng))
        if draw < 0.65 or name == "old.pt":  # the old format has no check sum
            return Mutation(*broken_bytes(self.contents[name], rng), name != "old.pt")
        change = lambda _, content, rng: broken_bytes(content, rng)[1]  # noqa: E731
        return Mutation(*broken_archive(self.contents[name], rng, change, self.folder / "bomb.pt"), False)

    def saved(self, rng: np.random.Generator) -> tuple[str, bytes, bool]:
        """A state dict with something odd in it, as torch saves it; most of it has to be refused."""
        import torch

        state: dict[str, Any] = dict(torch.load(self.folder / "lenet1.pt", weights_only=True))
        key = pick(rng, list(state))
        tensor = state[key]
        odd: dict[str, tuple[Any, bool]] = {
            "half": (lambda: tensor.half(), False),
            "bfloat16": (lambda: tensor.bfloat16(), False),
            "double": (lambda: tensor.double(), False),
            "whole numbers": (lambda: tensor.int(), False),
            "complex": (lambda: torch.complex(tensor, tensor), True),
            "sparse": (lambda: tensor.to_sparse(), True),
            "sparse rows": (lambda: tensor.reshape(len(tensor), -1).to_sparse_csr(), True),
            "quantised": (lambda: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8), True),
            "8 bits": (lambda: tensor.to(torch.float8_e4m3fn), False),
            "meta": (lambda: tensor.to("meta"), True),
            "parameter": (lambda: torch.nn.Parameter(tensor), False),
            "not finite": (lambda: tensor * math.nan, False),
            "repeated": (lambda: tensor.flatten()[:1].expand(tensor.numel()).reshape(tensor.shape), False),
            "huge": (lambda: torch.zeros(1).expand(2**40), True),
            "number": (lambda: 3.0, True),
            "text": (lambda: "text", True),
            "none": (lambda: None, True),
            "list": (lambda: [tensor], True),
            "nested": (lambda: {"a": tensor}, True),
            "code": (lambda: _Runs(), True),
        }
        kind = pick(rng, [*odd, "list of all", "deep", "key", "empty", "a module", "a tensor"])
        content: Any = state
        strict = False
        if kind in odd:
            make, strict = odd[kind]
            state[key] = make()
        elif kind == "list of all":
            content = list(state.values())
        elif kind == "deep":
            for _ in range(pick(rng, [3, 300])):
                content = {"state_dict": content}
        elif kind == "key":
            state[pick(rng, [3, ("a", 1), "\x1b[31m", "x" * 100_000, None])] = state.pop(key)  # type: ignore[index]
        elif kind == "empty":
            content = pick(rng, [{}, [], None, 3])
        elif kind == "a module":
            content = torch.nn.Linear(3, 3)
        elif kind == "a tensor":
            content = tensor
        out = io.BytesIO()
        torch.save(content, out, _use_new_zipfile_serialization=bool(rng.integers(2)))
        return f"saved: {kind}", out.getvalue(), strict


class _Runs:
    """Code in a pickle: a file that is read must not run it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (sys.exit, ("code of the file was run",))


class Keras(Networks):
    """Whole models of Keras, and their weights."""

    title = "`.keras`, `.weights.h5`"
    files = ("lenet1.keras", "lenet1.weights.h5")
    framework = "tensorflow"
    keeps_form = False

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        content, whole = self.contents[name], name == "lenet1.keras"
        if rng.random() < 0.4:
            return Mutation(*broken_bytes(content, rng), whole)  # HDF5 alone has no check sum
        if whole:
            return Mutation(*broken_archive(content, rng, self.member, self.folder / "bomb.keras"), False)
        return Mutation(*broken_hdf5(content, rng, self.canary), False)

    def member(self, name: str, content: bytes, rng: np.random.Generator) -> bytes:
        if name.endswith(".json"):
            return broken_text(content, rng, "json")[1]
        return broken_hdf5(content, rng, self.canary)[1]

    def read(self, name: str) -> Value:
        import keras

        keras.backend.clear_session()
        architecture = None if name.endswith(".keras") else "lenet1"
        model = self.load(str(self.folder / name), self.framework, architecture)
        return {str(i): np.asarray(array) for i, array in enumerate(model.native.get_weights())}


# hosts ---------------------------------------------------------------------------------------------------------------


def frame(content: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """Return a message of the hosts' protocol, put together by hand."""
    described = [[name, "float32", list(np.shape(its))] for name, its in arrays.items()]
    header = json.dumps({**content, "arrays": described, "memory": False}).encode()
    return _with_header(header, b"".join(np.array(its, "<f4").tobytes() for its in arrays.values()))


def _with_header(header: bytes, rest: bytes) -> bytes:
    return b"RCMP" + struct.pack("<I", len(header)) + header + rest


def decoded(message: bytes) -> Value | None:
    """Return what a message says, read without `robustcmp.hosts.protocol`; None if it is none."""
    if message[:4] != b"RCMP" or len(message) < 8:
        return None
    length = int.from_bytes(message[4:8], "little")
    content = json.loads(message[8 : 8 + length])
    arrays, position = {}, 8 + length
    for name, dtype, shape in content.pop("arrays"):
        size = math.prod(int(each) for each in shape) * np.dtype(str(dtype)).itemsize
        if len(message) < position + size:
            return None
        its = np.frombuffer(message[position : position + size], str(dtype)).reshape([int(each) for each in shape])
        arrays[str(name)] = its
        position += size
    content.pop("memory", None)
    return {"content": content, "arrays": arrays}


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
    replaced = False

    def prepare(self) -> None:
        from robustcmp.hosts.protocol import Channel, Closed, ProtocolError

        self.channel = Channel
        self.refusals = (Closed, ProtocolError, TimeoutError)
        conversation = json.loads((self.folder / "frames.json").read_text())
        self.frames = [frame(*message) for message in conversation]
        self.message = self.frames[0]

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        message = pick(rng, self.frames)
        length = int.from_bytes(message[4:8], "little")
        header, rest = message[8 : 8 + length], message[8 + length :]
        if rng.random() < 0.5:
            return Mutation(*broken_bytes(message, rng, self.frames), False)
        kind, header = broken_text(header, rng, "json")
        if rng.random() < 0.2:
            rest = broken_bytes(rest or b"x", rng)[1]
        return Mutation(f"header: {kind}", _with_header(header, rest), False)

    def write(self, name: str, mutation: Mutation) -> None:
        self.message = self.last = mutation.content

    def restore(self, name: str) -> None:
        self.message = self.frames[0]

    def read(self, name: str) -> Value:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            threading.Thread(target=_say, args=(ours, self.message), daemon=True).start()
            content, arrays = self.channel(theirs).receive(5)
        return {"content": content, "arrays": arrays}

    def wrong(self, value: Value) -> str:
        expected = decoded(self.last)
        if expected is None or b"".join(plain(expected)) != b"".join(plain(value)):
            return "is not what the message says"
        return ""


HOST = """
import os, socket, sys
connection = socket.socket(fileno=int(sys.argv[-1]))
with open(sys.argv[1], "rb") as file:
    greeting, answer = (file.read(int(n)) for n in sys.argv[2:4])
connection.sendall(greeting)
connection.settimeout(0.5)
try:
    connection.recv(1)
except OSError:
    sys.exit()
connection.sendall(answer)
connection.shutdown(socket.SHUT_WR)
while connection.recv(65536):
    pass
"""


class Hosts(Frames):
    """The same through `HostProcess`: a host of which the greeting or an answer is broken."""

    title = "hosts' messages, with their process"
    trials = 10_000
    refusals = (RobustcmpError,)

    def prepare(self) -> None:
        from robustcmp.hosts.process import HostProcess

        super().prepare()
        self.refusals = (RobustcmpError,)
        self.process = HostProcess
        self.said = [self.frames[0], self.frames[2]]
        (self.folder / "host.py").write_text(HOST)

    def broken(self, name: str, rng: np.random.Generator) -> Mutation:
        self.place = int(rng.integers(2))
        frames, self.frames = self.frames, [self.said[self.place]]
        try:
            return super().broken(name, rng)
        finally:
            self.frames = frames

    def write(self, name: str, mutation: Mutation) -> None:
        self.said = [self.frames[0], self.frames[2]]
        self.said[self.place] = mutation.content

    def restore(self, name: str) -> None:
        self.said = [self.frames[0], self.frames[2]]

    def read(self, name: str) -> Value:
        path = self.folder / "said"
        path.write_bytes(b"".join(self.said))
        lengths = [str(len(message)) for message in self.said]
        command = [sys.executable, "-I", "-S", str(self.folder / "host.py"), str(path), *lengths]
        process = self.process("broken", command, start_seconds=5, call_seconds=5)
        try:
            content, arrays = process.call("logits", {"images": np.zeros((2, 2), np.float32)})
            return {"greeting": process.greeting, "content": content, "arrays": arrays}
        finally:
            process.close()

    def wrong(self, value: Value) -> str:
        return ""


READERS: dict[str, type[Reader]] = {
    "suites": Suites,
    "recipes": Recipes,
    "manifests": Manifests,
    "strangers": Strangers,
    "answers": Answers,
    "cells": Cells,
    "results": Results,
    "arrays": Arrays,
    "weights": Weights,
    "pt": Torch,
    "npz": NumpyArchives,
    "keras": Keras,
    "frames": Frames,
    "hosts": Hosts,
    "bits": Bits,
}
