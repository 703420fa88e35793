"""Broken files: bytes, text, archives and HDF5 that are changed at random, each a function of a generator."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np

T = TypeVar("T")
BLOCK = 512
BOMB = 3 * 2**29  # bytes
SEAL = re.compile(rb"(sha256 )[0-9a-f]{64}")
CANARY = b"<no reader of strangers' files shows this file to them>"  # the content of a file that nobody may read


@dataclass(frozen=True)
class Mutation:
    """A broken file.

    Attributes
    ----------
    kind : str
        What was done to it.
    content : bytes
        All of it.
    strict : bool
        Whether it has to be refused, or read as the unbroken file is: a check sum in it tells that it was changed.
    """

    kind: str
    content: bytes
    strict: bool


def generator(seed: int, name: str, number: int) -> np.random.Generator:
    """Return the generator of a trial."""
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}:{number}".encode()).digest()[:16])
    return np.random.Generator(np.random.Philox(key=key))


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """Return one of several."""
    return options[int(rng.integers(len(options)))]


# bytes ---------------------------------------------------------------------------------------------------------------


def _bits(content: bytearray, rng: np.random.Generator) -> None:
    for place in rng.integers(len(content), size=int(rng.integers(1, 9))):
        content[place] ^= 1 << int(rng.integers(8))


def _bytes(content: bytearray, rng: np.random.Generator) -> None:
    for place in rng.integers(len(content), size=int(rng.integers(1, 17))):
        content[place] = int(pick(rng, [0, 0xFF, int(rng.integers(256))]))


def _truncation(content: bytearray, rng: np.random.Generator) -> None:
    del content[int(rng.integers(len(content))) :]


def _insertion(content: bytearray, rng: np.random.Generator) -> None:
    place = int(rng.integers(len(content) + 1))
    content[place:place] = rng.bytes(int(rng.integers(1, 65)))


def _deletion(content: bytearray, rng: np.random.Generator) -> None:
    place = int(rng.integers(len(content)))
    del content[place : place + int(rng.integers(1, 65))]


def _duplication(content: bytearray, rng: np.random.Generator) -> None:
    start, length = int(rng.integers(len(content))), int(rng.integers(1, 1025))
    block, place = content[start : start + length], int(rng.integers(len(content)))
    over = bool(rng.integers(2))
    content[place : place + (len(block) if over else 0)] = block


def _zeros(content: bytearray, rng: np.random.Generator) -> None:
    start = int(rng.integers(len(content))) // 512 * 512
    lost = content[start : start + 512 * int(rng.integers(1, 9))]
    content[start : start + len(lost)] = bytes(len(lost))


def _reversal(content: bytearray, rng: np.random.Generator) -> None:
    start, length = int(rng.integers(len(content))), int(rng.integers(2, 65))
    content[start : start + length] = content[start : start + length][::-1]


BYTES: dict[str, Callable[[bytearray, np.random.Generator], None]] = {
    "bits": _bits,
    "bytes": _bytes,
    "truncation": _truncation,
    "insertion": _insertion,
    "deletion": _deletion,
    "duplication": _duplication,
    "zeros": _zeros,
    "reversal": _reversal,
}


def broken_bytes(content: bytes, rng: np.random.Generator, others: Sequence[bytes] = ()) -> tuple[str, bytes]:
    """Return content of which some bytes are others, or which is (in part) that of another file."""
    if others and rng.random() < 0.05:
        other = pick(rng, others)
        cut = int(rng.integers(len(content) + 1))
        return pick(rng, [("other file", other), ("half of another file", content[:cut] + other[cut:])])
    kind = pick(rng, list(BYTES))
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 3))):
        if changed:
            BYTES[kind](changed, rng)
    return kind, bytes(changed)


# text ----------------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r'"[^"\n]*"|-?\d[\d_.]*(?:[eE][+-]?\d+)?|\b(?:true|false|null|NaN)\b')
NUMBERS = ["0", "-1", "1", "2", "0.5", "-0.0", "1e308", "1e999", "1e-320", "1000000000000", str(2**63), str(2**64)]
ODD = {
    "toml": ["nan", "inf", "-inf", "1979-05-27", "07:32:00", "{}", "{ a = 1 }", "0xff", "1_0", "'''x'''", "true"],
    "json": ["NaN", "Infinity", "-Infinity", "null", "{}", '{"a": 1}', "true", '"\\ud800"'],
}
TEXTS = ['""', '"x"', '"\\u0007\\u001b[31m"', '"<script>alert(1)</script>"', '"../../etc/passwd"', '"/dev/zero"']


def _large(rng: np.random.Generator, language: str) -> str:
    deep, long = 10 ** int(rng.integers(1, 6)), 10 ** int(rng.integers(1, 6))
    nested = (
        "{a=" * min(deep, 3000) + "1" + "}" * min(deep, 3000)
        if language == "toml"
        else '{"a":' * deep + "1" + "}" * deep
    )
    digits = "9" * pick(rng, [50, 400, 5000, 100_000])
    options = [
        "[" * deep + "]" * deep,
        nested,
        digits,
        f"1.{digits}",
        "[" + "1, " * long + "1]",
        '"' + "a" * long + '"',
    ]
    return pick(rng, options)


def _value(text: str, rng: np.random.Generator, language: str) -> str:
    """Another value in the place of one."""
    found = list(TOKEN.finditer(text))
    if not found:
        return text
    token = pick(rng, found)
    draw = rng.random()
    if draw < 0.15:
        value = _large(rng, language)
    elif draw < 0.3:
        value = pick(rng, found)[0]
    else:
        value = pick(rng, [*NUMBERS, *ODD[language], *TEXTS, "[]", "[[]]", "[1, 2]", '["x"]'])
    return text[: token.start()] + value + text[token.end() :]


def _word(text: str, rng: np.random.Generator, language: str) -> str:
    """A word misspelt."""
    found = list(re.finditer(r"[A-Za-z_]{3,}", text))
    if not found:
        return text
    word = pick(rng, found)
    letters, place = list(word[0]), int(rng.integers(len(word[0])))
    change = pick(rng, ["twice", "gone", "other", "capital", "control"])
    letters[place] = {"twice": letters[place] * 2, "gone": "", "other": "x", "capital": letters[place].swapcase()}.get(
        change, pick(rng, ["\x00", "\x07", "\x1b[2J", "\u202e", "é", "\ufeff", " "])
    )
    return text[: word.start()] + "".join(letters) + text[word.end() :]


def _lines(text: str, rng: np.random.Generator, language: str) -> str:
    """Lines gone, twice, or elsewhere."""
    lines = text.splitlines(keepends=True)
    i, k = (int(place) for place in rng.integers(len(lines), size=2))
    change = pick(rng, ["gone", "twice", "elsewhere", "exchanged"])
    if change == "gone":
        del lines[i : i + int(rng.integers(1, 4))]
    elif change == "twice":
        lines.insert(i, lines[i])
    elif change == "elsewhere":
        lines.insert(k, lines.pop(i))
    else:
        lines[i], lines[k] = lines[k], lines[i]
    return "".join(lines)


def _sign(text: str, rng: np.random.Generator, language: str) -> str:
    """A character gone, or another one in its place."""
    place = int(rng.integers(len(text)))
    new = pick(rng, ["", "", "[", "]", "{", "}", '"', "'", "=", ",", ":", "#", "\n", "\\", "\x00", ".", "-", "9"])
    return text[:place] + new + text[place + 1 :]


def _key(text: str, rng: np.random.Generator, language: str) -> str:
    """A key more."""
    name = pick(rng, ["x", "name", "attack", "epsilons", "steps", "format", "cells", "__class__", "a" * 10_000])
    value = pick(rng, [*NUMBERS, *TEXTS, *ODD[language]])
    lines = text.splitlines(keepends=True)
    depth = 10 ** int(rng.integers(1, 5))
    deep = "[" + ".".join(["a"] * depth) + "]\n"
    new = pick(rng, [f"{name} = {value}\n", deep]) if language == "toml" else f'"{name}": {value},\n'
    lines.insert(int(rng.integers(len(lines) + 1)), new)
    return "".join(lines)


TEXT: dict[str, Callable[[str, np.random.Generator, str], str]] = {
    "another value": _value,
    "misspelt word": _word,
    "lines moved": _lines,
    "character changed": _sign,
    "key added": _key,
}


def broken_text(content: bytes, rng: np.random.Generator, language: str) -> tuple[str, bytes]:
    """Return TOML or JSON that says something else, or that is neither."""
    text = content.decode()
    kind = pick(rng, ["another value", *TEXT])
    for _ in range(int(rng.integers(1, 3))):
        text = TEXT[kind](text, rng, language) or "\n"
    return kind, text.encode("utf-8", "surrogatepass")


# archives ------------------------------------------------------------------------------------------------------------


def _broken_member(name: str, content: bytes, rng: np.random.Generator, canary: Path) -> bytes:
    if name.endswith(".json"):
        return broken_text(content, rng, "json")[1]
    if name.endswith(".h5"):
        return broken_hdf5(content, rng, canary)[1]
    return broken_bytes(content, rng)[1]


def broken_archive(
    content: bytes,
    rng: np.random.Generator,
    bomb: Path,
) -> tuple[str, bytes]:
    """Return a ZIP archive whose members are others, with check sums that fit; now and then the file `bomb`."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = list(members)
    name, other = pick(rng, names), pick(rng, names)
    kind = pick(rng, ["member changed"] * 6 + ["gone", "renamed", "exchanged", "empty", "more", "path", "bomb"])
    if kind == "member changed":
        members[name] = _broken_member(name, members[name], rng, bomb.with_name("canary"))
    elif kind == "gone":
        del members[name]
    elif kind == "renamed":
        members[pick(rng, [name + "x", name.upper(), "x/" + name, name * 100])] = members.pop(name)
    elif kind == "exchanged":
        members[name], members[other] = members[other], members[name]
    elif kind == "empty":
        members[name] = b""
    elif kind == "more":
        members |= {f"{name}-{i}": members[name] for i in range(int(rng.integers(1, 2000)))}
    elif kind == "path":
        members[pick(rng, ["../outside", "/outside"]) + Path(name).suffix] = members[name]
    elif kind == "bomb" and rng.random() < 0.1:
        return "archive: bomb", bomb.read_bytes()
    compression = pick(rng, [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for member, its in members.items():
            archive.writestr(member, its)
    return f"archive: {kind}", out.getvalue()


# HDF5 ----------------------------------------------------------------------------------------------------------------


def reseal(content: bytes) -> bytes:
    """Return a file with a seal that is right again, where it has one; so can a stranger make one.

    The seal is the SHA-256 of the file without a block of 512 bytes, which stands in front or at the end.
    """
    for block, rest in ((content[:BLOCK], content[BLOCK:]), (content[-BLOCK:], content[:-BLOCK])):
        if block.startswith(b"robustcmp ") and SEAL.search(block):
            sha256 = hashlib.sha256(rest).hexdigest().encode()
            sealed = SEAL.sub(lambda found, sha256=sha256: found[1] + sha256, block)  # type: ignore[misc]
            return sealed + rest if content.startswith(block) else rest + sealed
    return content


def reseal_json(content: bytes) -> bytes:
    """Return JSON with a seal that is right again, where it has one: of all members but itself."""
    said = json.loads(content)
    seal = said.pop("seal", "") if isinstance(said, dict) else ""
    if not isinstance(seal, str) or not SEAL.search(seal.encode()):
        return content
    sha256 = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    said["seal"] = SEAL.sub(lambda found: found[1] + sha256.encode(), seal.encode()).decode()
    return json.dumps(said, indent=1, sort_keys=True).encode() + b"\n"


def edited_hdf5(content: bytes, edit: Callable[[h5py.File], T]) -> tuple[T, bytes]:
    """Return what an edit of an HDF5 file returned, and the file with a right seal if it had one."""
    behind = content[-BLOCK:] if content[-BLOCK:].startswith(b"robustcmp ") else b""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.h5"
        path.write_bytes(content[: len(content) - len(behind)])
        with h5py.File(path, "r+") as file:
            said = edit(file)
        return said, reseal(path.read_bytes() + behind)


def _items(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def _dtype(rng: np.random.Generator) -> Any:
    return pick(
        rng,
        [
            *(np.int8, np.uint64, np.float16, np.float64, np.complex64, np.bool_, "S5", "V7", ">f4", ">i8"),
            *(np.dtype([("a", "f4"), ("b", "i2")]), h5py.string_dtype(), h5py.vlen_dtype(np.float32)),
            *(h5py.ref_dtype, h5py.enum_dtype({"a": 1, "b": 2}), np.dtype(("f4", (3,)))),
        ],
    )


def _replaced(file: h5py.File, name: str, rng: np.random.Generator, canary: Path) -> str:
    """Put something else in the place of a dataset; return what."""
    old = file[name]
    shape, dtype = old.shape, old.dtype
    attributes = dict(old.attrs)
    values = old[()]
    del file[name]
    kind = pick(
        rng,
        [
            *("external storage", "virtual", "external link", "soft link", "loop", "huge", "type", "scalar", "empty"),
            *("shape", "group", "gone", "not finite", "swapped", "deep", "same type", "filter"),
        ],
    )
    size = int(np.prod(shape)) * dtype.itemsize
    if kind == "external storage" and shape and dtype.kind in "fiuS":
        file.create_dataset(name, shape, dtype, external=[(str(canary), 0, max(size, 1))])
    elif kind == "virtual" and shape:
        layout = h5py.VirtualLayout(shape, dtype)
        source = h5py.VirtualSource(canary.with_suffix(".h5"), "canary", shape=(2**18,))
        layout[...] = source[: int(np.prod(shape))]
        file.create_virtual_dataset(name, layout)
    elif kind == "external link":
        file[name] = h5py.ExternalLink(str(canary.with_suffix(".h5")), "canary")
    elif kind == "soft link":
        others = _items(file)
        file[name] = h5py.SoftLink("/" + pick(rng, [*others, "nowhere", "."]))
    elif kind == "loop":
        group = file.create_group(name)
        group["again"] = pick(rng, [group, file["/"], h5py.SoftLink(f"/{name}/again")])
    elif kind == "huge":
        large = pick(rng, [(2**34,), (2**31, 2**10), (*shape[:-1], 2**32), (2**62,), (2**29,)])
        chunks = tuple(min(length, 1024) or 1 for length in large)
        file.create_dataset(name, large, dtype, chunks=chunks, compression="gzip")
    elif kind == "type":
        with contextlib.suppress(TypeError, ValueError):
            file.create_dataset(name, shape, _dtype(rng))
    elif kind == "same type":  # other values of the same kind
        file.create_dataset(name, data=np.roll(values, 1) if shape else values)
    elif kind == "scalar":
        file.create_dataset(name, data=values.flat[0] if np.size(values) else 0)
    elif kind == "empty":
        file[name] = h5py.Empty(dtype)
    elif kind == "shape":
        other = pick(rng, [(0,), (1,), shape[::-1], (*shape, 1), (1, *shape), tuple(n + 1 for n in shape), (1,) * 32])
        file.create_dataset(name, other, dtype)
    elif kind == "group":
        file.create_group(name)
    elif kind == "not finite" and dtype.kind == "f":
        file.create_dataset(name, data=np.full(shape, pick(rng, [np.nan, np.inf, -np.inf, 1e38]), dtype))
    elif kind == "swapped":
        others = _items(file)
        if others:
            file[name] = file[pick(rng, others)]
    elif kind == "deep":
        file.create_group(name + "/a" * pick(rng, [50, 1000]))
    elif kind == "filter" and shape and dtype.kind != "O":
        file.create_dataset(name, shape, dtype, chunks=True, compression="lzf", fletcher32=True, data=values)
    if isinstance(file.get(name), h5py.Dataset):
        with contextlib.suppress(Exception):
            for key, value in attributes.items():
                file[name].attrs[key] = value
    return kind


def _attribute(file: h5py.File, rng: np.random.Generator) -> str:
    """Change an attribute; return how."""
    holders = [holder for holder in [file, *(file[name] for name in _items(file))] if len(holder.attrs)]
    if not holders:
        return "attribute"
    holder = pick(rng, holders)
    key = pick(rng, list(holder.attrs))
    kind = pick(rng, ["gone", "number", "text", "array", "empty", "bytes", "large"])
    if kind == "text" and isinstance(holder.attrs[key], str):
        _, broken = broken_text(holder.attrs[key].encode() or b"{}", rng, "json")
        holder.attrs[key] = broken.decode("utf-8", "replace").replace("\0", "")[:60_000]
        return "attribute text"
    del holder.attrs[key]
    new: dict[str, Any] = {
        "number": 3,
        "array": np.zeros((3, 3)),
        "empty": h5py.Empty("f4"),
        "bytes": np.bytes_(b"\xff\xfe"),
        "large": "[" * 50_000,
        "text": "text",
    }
    if kind != "gone":
        holder.attrs[key] = new[kind]
    return f"attribute {kind}"


def broken_hdf5(content: bytes, rng: np.random.Generator, canary: Path) -> tuple[str, bytes]:
    """Return an HDF5 file with other content than it should have, and with a right seal if it had one."""

    def edit(file: h5py.File) -> str:
        names, draw = _items(file), rng.random()
        if draw < 0.15:
            return _attribute(file, rng)
        if draw < 0.25 or not names:
            for i in range(int(rng.integers(1, 300))):
                file.create_dataset(f"{pick(rng, ['', 'weights/', 'extras/'])}more{i}", data=np.zeros(3))
            return "more"
        return _replaced(file, pick(rng, names), rng, canary)

    kind, broken = edited_hdf5(content, edit)
    return f"HDF5: {kind}", broken


def make_canaries(path: Path) -> None:
    """Write the files that nobody may read: bytes as they are, and the same in HDF5."""
    text = (CANARY * (2**20 // len(CANARY) + 1))[: 2**20]
    path.write_bytes(text)
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        file["canary"] = np.frombuffer(text, "<f4")


def make_bomb(path: Path, content: bytes, member: str) -> None:
    """Write an archive of which a member is small only as long as it is compressed."""
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new,
    ):
        for name in old.namelist():
            if name != member:
                new.writestr(name, old.read(name))
        with new.open(member, "w", force_zip64=True) as file:
            start, blocks = old.read(member), BOMB // 2**20
            if member.endswith(".npy"):
                header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({BOMB // 4},), }}"
                start = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header.encode()
            file.write(start)
            for _ in range(blocks):
                file.write(bytes(2**20))


def copy_tree(source: Path, target: Path) -> Path:
    """Copy a directory, in place of what is there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
