"""Files that robustcmp keeps: sealed, read with distrust, and written by one at a time."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import planted
import pytest

import robustcmp as rc
from robustcmp import files, sealed
from robustcmp.cli import command
from robustcmp.errors import RobustcmpError, SealError, StoreError, UsageError, WeightsError
from robustcmp.networks.weights import read_weights
from robustcmp.records.attack import AttackResult, Cell
from robustcmp.records.store import Cost, Run
from robustcmp.records.upkeep import verify
from robustcmp.sources.recipes import SHIPPED

IMAGES = planted.IMAGES.copy()
IMAGES[-1, 0, 0, 0] = 0.4  # the second model is wrong
WEIGHTS = Path(str(SHIPPED)) / "weights" / "lenet1-digits-jax-default-0.h5"
Damage = Callable[[h5py.File], object]


evaluated = partial(planted.evaluate_two, images=IMAGES)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run that has every file that a run can have."""
    directory = tmp_path_factory.mktemp("sealed")
    ev = evaluated(directory)
    ev.run_checks()
    ev.run_transfer()
    ev.run_conditioning()
    return directory


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of that run."""
    return Path(shutil.copytree(whole / "run", tmp_path / "run"))


def used(run: Path) -> None:
    """Read everything that an opened run has."""
    ev = rc.open_run(run)
    str(ev)
    _ = ev.checks, ev.transfer, ev.conditioning, ev.results.clean
    for cell in ev.manifest["cells"]:
        ev.results.run.load(cell["key"])
        ev.results.run.adversarials(cell["key"])


def cells(run: Path) -> list[Path]:
    return sorted((run / "cells").iterdir())


def changed(path: Path, damage: Damage, kind: str | None = None) -> None:
    """Change an HDF5 file as a stranger can, who also seals it as a kind if one is named."""
    content = sealed.read_bytes(path)
    front = content.startswith(sealed.MARK)
    path.write_bytes(content if front else content[: -sealed.BLOCK])
    with h5py.File(path, "r+") as file:
        damage(file)
    if kind:
        kind = f"cell {path.stem}" if kind == "cell" else kind
        image = path.read_bytes()
        block = sealed.seal(kind, image[sealed.BLOCK :] if front else image).encode().ljust(sealed.BLOCK, b"\0")
        path.write_bytes(block + image[sealed.BLOCK :] if front else image + block)


# one bit -------------------------------------------------------------------------------------------------------------


def stored_places(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each array of an HDF5 file with where a byte of its values is stored."""
    found: dict[str, int] = {}

    def look(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.size:
            if item.chunks and item.id.get_num_chunks():
                chunk = item.id.get_chunk_info(0)
                found[name] = chunk.byte_offset + chunk.size // 2
            elif item.id.get_offset():
                found[name] = item.id.get_offset() + item.id.get_storage_size() // 2

    with h5py.File(path) as file:
        file.visititems(look)
    return iter(found.items())


@pytest.mark.parametrize("name", ["cells", "results.h5", "clean.h5", "contested.h5"])
def test_one_bit_of_any_stored_array(run: Path, name: str) -> None:
    path = cells(run)[2] if name == "cells" else run / name
    content = path.read_bytes()
    places = dict(stored_places(path))
    assert len(places) >= (1 if name == "clean.h5" else 5)
    for place in places.values():
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=rf"{path.name} is broken .*SHA-256"):
            used(run)
    path.write_bytes(content)
    used(run)


@pytest.mark.parametrize("name", ["checks.json", "transfer.json", "manifest.json"])
def test_one_digit_of_an_answer(run: Path, name: str) -> None:
    path = run / name
    text = path.read_text()
    digits = [place for place, letter in enumerate(text) if letter.isdigit()]
    for place in digits[:: max(1, len(digits) // 12)]:
        path.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
        with pytest.raises(
            RobustcmpError, match=rf"{name} is (not the manifest of a run, or it is )?broken|{name}: exp"
        ):
            used(run)
    path.write_text(text)
    used(run)


def test_two_cells_exchanged(run: Path) -> None:
    one, other, *_ = cells(run)
    contents = one.read_bytes(), other.read_bytes()
    other.write_bytes(contents[0])
    one.write_bytes(contents[1])
    with pytest.raises(StoreError, match=rf"{one.name} is broken .*received 'cell {other.stem}'"):
        rc.open_run(run).results.run.load(one.stem)


def test_a_sealed_file_of_another_kind(run: Path) -> None:
    shutil.copyfile(run / "clean.h5", run / "results.h5")
    with pytest.raises(StoreError, match=r"results\.h5 is broken \(expected a file of the kind 'results'"):
        rc.open_run(run)


def test_a_broken_answer_is_named_and_made_again_once_it_is_deleted(run: Path) -> None:
    path = run / "checks.json"
    path.write_bytes(b"{")
    for read in (lambda: str(rc.open_run(run)), lambda: evaluated(run.parent).checks):
        with pytest.raises(StoreError, match=r"checks\.json is broken .*Delete it to read the run without it"):
            read()
    path.unlink()
    evaluated(run.parent).run_checks()
    used(run)


# strangers -----------------------------------------------------------------------------------------------------------


def replaced(name: str, values: Any, **options: Any) -> Damage:
    def damage(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, data=values, **options)

    return damage


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (replaced("l2", 1.0), r"l2 should have the shape \(5\), received \(\)"),
        (replaced("success", np.True_), r"success should have the shape \(5\), received \(\)"),
        (replaced("success", np.ones(4, bool)), r"success should have the shape \(5\), received \(4,\)"),
        (replaced("queries", np.ones(5)), r"queries should be int64, received float64"),
        (replaced("extras/start", np.float64(1)), r"extras/start should have the shape \(5, …\), received \(\)"),
        (replaced("adversarials", np.float32(0)), r"adversarials should have the shape \(5, …\), received \(\)"),
        (
            replaced("adversarials", np.zeros((5, 36), np.float32)),
            r"adversarials should have the axes \(images, height",
        ),
        (lambda file: file.pop("linf"), "linf is missing"),
    ],
)
def test_a_cell_of_other_values(run: Path, damage: Damage, said: str) -> None:
    path = next(path for path in cells(run) if "extras/start" in h5py.File(path))
    changed(path, damage, "cell")
    with pytest.raises(StoreError, match=rf"{path.name} is broken \({said}"):
        used(run)


def secret_of(tmp_path: Path) -> Path:
    """A file that a stranger wants to read: 5 numbers in HDF5 and as bytes."""
    path = tmp_path / "secret.h5"
    with h5py.File(path, "w") as file:
        file["l2"] = np.arange(5.0)
    return path


def external(secret: Path, name: str, file: h5py.File) -> None:
    shape, dtype = file[name].shape, file[name].dtype
    del file[name]
    file.create_dataset(name, shape, dtype, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])


def virtual(secret: Path, name: str, file: h5py.File) -> None:
    shape, dtype = file[name].shape, file[name].dtype
    del file[name]
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(str(secret), "l2", shape)
    file.create_virtual_dataset(name, layout)


def soft(secret: Path, name: str, file: h5py.File) -> None:
    file.move(name, f"{name}2")
    file[name] = h5py.SoftLink(f"/{name}2")


def external_link(secret: Path, name: str, file: h5py.File) -> None:
    del file[name]
    file[name] = h5py.ExternalLink(str(secret), "l2")


def other_filter(secret: Path, name: str, file: h5py.File) -> None:
    values = file[name][()]
    del file[name]
    file.create_dataset(name, data=values, compression="lzf")


def cycle(secret: Path, name: str, file: h5py.File) -> None:
    file.create_group("loop")["again"] = file["/"]


def huge(secret: Path, name: str, file: h5py.File) -> None:
    dtype = file[name].dtype
    del file[name]
    file.create_dataset(name, (2**28,), dtype, chunks=(2**16,), compression="gzip", fillvalue=1)


def more(file: h5py.File) -> None:
    file.create_dataset("more", data=np.zeros(2**16), compression="gzip")


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("clean", more, "expected the arrays images alone, received more as well"),
        ("contested", more, "expected the arrays .*, success alone, received more as well"),
        ("contested", lambda file: file.pop("counts"), "counts is missing"),
        ("contested", replaced("index", np.arange(13)), "index should be a list of at most 12 places"),
        ("contested", replaced("right", np.ones((9, 1), bool)), r"right should have the shape \(2, 1\), received"),
        ("contested", replaced("attacks", np.array(["a"] * 9, "S")), "attacks should be a list of at most 2 names"),
        ("clean", replaced("images", np.ones((5, 36), np.float32)), r"images should have the axes \(images, height"),
    ],
)
def test_arrays_that_the_manifest_knows_nothing_of(run: Path, name: str, damage: Damage, said: str) -> None:
    changed(run / f"{name}.h5", damage, name)
    with pytest.raises(StoreError, match=rf"{name}\.h5 is broken \({said}"):
        used(run)


STRANGE = [external, virtual, soft, external_link, other_filter, cycle, huge]


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize(("kind", "name"), [("cell", "l2"), ("results", "epsilon_curve")])
def test_what_a_stranger_may_seal_into_a_run(
    run: Path, tmp_path: Path, strange: Callable[..., None], kind: str, name: str
) -> None:
    path = cells(run)[0] if kind == "cell" else run / f"{kind}.h5"
    changed(path, lambda file: strange(secret_of(tmp_path), name, file), kind)
    with pytest.raises(StoreError, match=rf"{path.name} is broken"):
        used(run)


@pytest.mark.parametrize("strange", STRANGE)
def test_what_a_stranger_may_seal_into_weights(tmp_path: Path, strange: Callable[..., None]) -> None:
    path = Path(shutil.copyfile(WEIGHTS, tmp_path / "w.h5"))
    changed(path, lambda file: strange(secret_of(tmp_path), "weights/conv1/bias", file), "weights")
    with pytest.raises(WeightsError, match=r"w\.h5"):
        read_weights(path)


def test_strings_that_are_one_long_one(run: Path) -> None:
    path, places = run / "results.h5", []

    def damage(file: h5py.File) -> None:
        del file["attack"]
        file.create_dataset("attack", data=["a" * 50_000, *["b"] * 9_999], dtype=h5py.string_dtype())
        file.flush()
        places.append(file["attack"].id.get_offset())

    changed(path, damage)
    content = bytearray(path.read_bytes())
    (place,) = places
    content[place : place + 160_000] = content[place : place + 16] * 10_000  # each is where the first one is
    path.write_bytes(content + sealed.seal("results", content).encode().ljust(sealed.BLOCK, b"\0"))
    with pytest.raises(StoreError, match=r"results\.h5 is broken \(attack is longer than the file"):
        rc.open_run(run)


READER = """
import os, sys
from pathlib import Path
import robustcmp as rc
from robustcmp.errors import RobustcmpError
from robustcmp.files import file_digest
from robustcmp.networks.weights import is_sealed, read_weights
from robustcmp.records.store import Run
run, key = Path(sys.argv[1]), sys.argv[2]
asked = {
    "weights.h5": [read_weights, is_sealed, file_digest],
    f"cells/{key}.h5": [lambda path: Run(run).load(key), lambda path: Run(run).has_images(key)],
    "costs.jsonl": [lambda path: Run(run).costs()],
    "checks.json": [lambda path: rc.open_run(run).checks],
    "results.h5": [lambda path: rc.open_run(run)],
    "manifest.json": [lambda path: rc.open_run(run)],
}
for name, readers in asked.items():
    path = run / name
    content = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for read in readers:
        try:
            read(path)
        except (RobustcmpError, OSError) as error:
            assert path.name in str(error) and "expected a regular file" in str(error), error
        else:
            sys.exit(f"{name} was read")
    path.unlink()
    path.write_bytes(content)
"""


def test_a_pipe_is_no_file(run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READER, str(run), cells(run)[0].stem], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


HOLDER = """
import sys, time
from robustcmp.records.store import Run
with Run.create(sys.argv[1]).lock():
    print("ready", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes the run."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_another_process_is_writing(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"run is being written by another process\. Wait"):
        evaluated(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert evaluated(tmp_path).dataset.sizes["image"] == 5
    assert not (tmp_path / "run" / files.LOCK).exists()


def test_a_run_is_read_while_it_is_written(run: Path) -> None:
    with Run.create(run).lock():
        used(run)
        assert list(verify(Run(run))) == []


def test_another_thread_is_writing(tmp_path: Path) -> None:
    with (
        files.sole_writer(tmp_path),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(StoreError, match="is being written"),
    ):
        pool.submit(files.sole_writer(tmp_path).__enter__).result()
    assert os.listdir(tmp_path) == []


def refuse_locks(descriptor: int) -> bool:
    raise OSError(errno.ENOSYS, "Function not implemented")


def test_a_disk_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("filelock._unix.lock_fd_nonblocking", refuse_locks)
    said = r"\.writer\.lock cannot be locked: Function not implemented\. Name a directory on a disk with working file"
    with pytest.raises(StoreError, match=said), files.sole_writer(tmp_path):
        pass


COST = Cost("a", 0, "fgsm", ["0" * 32], 5, 1.25)
INSTEAD: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to(path.with_name("elsewhere.txt")),
    "a link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
}


@pytest.mark.parametrize("instead", INSTEAD)
def test_nothing_is_added_to_what_is_no_file(tmp_path: Path, instead: str) -> None:
    (tmp_path / "elsewhere.txt").write_text("important")
    path = tmp_path / "costs.jsonl"
    INSTEAD[instead](path)
    with pytest.raises(StoreError, match=r"nothing can be added to .*costs\.jsonl: .*\. Remove it"):
        Run(tmp_path).log_cost(COST)
    assert (tmp_path / "elsewhere.txt").read_text() == "important"
    assert not (tmp_path / "nothing").exists()


# a lost manifest -----------------------------------------------------------------------------------------------------


def test_a_lost_manifest_is_made_again(run: Path) -> None:
    path = run / "manifest.json"
    manifest = path.read_bytes()
    path.write_bytes(manifest[:-9])
    for read in (lambda: rc.open_run(run), lambda: evaluated(run.parent)):
        with pytest.raises(StoreError, match=r"manifest\.json is .*broken.*Delete it"):
            read()
    path.unlink()
    with pytest.raises(UsageError, match="Rerun the same command"):
        rc.open_run(run)
    assert [(finding.file.name, finding.state) for finding in verify(Run(run))] == [("manifest.json", "missing")]
    before = [path.stat().st_mtime_ns for path in cells(run)]
    (run / "results.h5").unlink()
    evaluated(run.parent)
    assert path.read_bytes() == manifest
    assert [path.stat().st_mtime_ns for path in cells(run)] == before


def test_what_is_wrong_with_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["verify", str(run)]) == 0
    assert "every file but the page is as it was written" in capsys.readouterr().err
    assert command.main(["verify", str(run), "--sums"]) == 0
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=run, check=True)
    assert len((run / "SHA256SUMS").read_text().splitlines()) == sum(path.is_file() for path in run.rglob("*")) - 1
    first, second, third, *_ = cells(run)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    changed(third, replaced("l0", 1.0))
    (run / "checks.json").write_text("{}")
    assert command.main(["verify", str(run), "--json"]) == 1
    out, err = capsys.readouterr()
    found = {(Path(row["file"]).name, row["state"]) for row in json.loads(out)}
    broken = {(path.name, "broken") for path in (second, third, run / "checks.json")}
    assert found == broken | {(first.name, "missing")}
    assert "is not whole: 3 broken, 1 missing" in err
    assert command.main(["verify", "nowhere"]) == 2
    assert command.main(["verify"]) == 2


# a full disk ---------------------------------------------------------------------------------------------------------


FILLER = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_sealed
from robustcmp.errors import RobustcmpError
limit = int(sys.argv[3])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    ev = test_sealed.evaluated(Path(sys.argv[1]))
    ev.run_checks()
    print("done")
except RobustcmpError as error:
    print(type(error).__name__, error)
"""


def filled(directory: Path, limit: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FILLER, str(directory), str(Path(__file__).parent), str(limit)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


def check_nothing_broken(run: Path) -> None:
    if (run / "manifest.json").exists():
        assert [finding for finding in verify(Run(run)) if finding.state == "broken"] == []
    assert [path for path in run.rglob("*") if path.suffix == ".tmp" or path.name == files.LOCK] == []


@pytest.mark.parametrize("limit", [12_000, pytest.param(700, marks=pytest.mark.slow)])
def test_files_that_may_not_be_so_large(tmp_path: Path, limit: int) -> None:
    said = filled(tmp_path, limit)
    assert said.startswith("DiskError"), said
    assert "cannot be written, the file is too large: it takes" in said
    check_nothing_broken(tmp_path / "run")
    assert filled(tmp_path) == "done\n"


# readers -------------------------------------------------------------------------------------------------------------


def test_sealed_json_comes_back() -> None:
    content = {"a": [1, 0.1, None, "ü", {"b": 1e300}], "c": float("inf")}
    text = sealed.to_json("answer", content)
    assert sealed.from_json(text.encode(), "answer") == content
    with pytest.raises(SealError, match="it was changed"):
        sealed.from_json(text.encode(), "another")


def test_a_result_that_cannot_be_kept(tmp_path: Path) -> None:
    ones = np.ones(3)
    bad = AttackResult(ones, np.ones(3, bool), ones, ones[:2], ones, np.ones(3, int), np.ones(3, int))
    run = Run.create(tmp_path / "run")
    with pytest.raises(StoreError, match=r"cannot be stored: l2 should have the shape \(3\)"):
        run.save(Cell("a", 0, "fgsm", 0, "0" * 32), bad)
    assert not (tmp_path / "run" / "cells").exists()


# what a stranger makes up --------------------------------------------------------------------------------------------


def _resealed(path: Path, kind: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change sealed JSON as a stranger can."""
    content = sealed.from_json(path.read_bytes(), kind)
    change(content)
    path.write_text(sealed.to_json(kind, content, sort_keys=True))


MADE_UP: dict[str, Callable[[dict[str, Any]], object]] = {
    "no models": lambda said: said["models"].clear(),
    "no attacks": lambda said: said["suite"]["attacks"].clear(),
    "an attack that says nothing": lambda said: said["suite"]["attacks"].update(pixel={}),
    "a norm": lambda said: said["suite"]["attacks"]["walk"].update(norm="l7"),
    "an undeclared value": lambda said: said["suite"]["attacks"]["walk"].update(start="begin"),
    "positions without a map": lambda said: said["suite"]["attacks"]["walk"].update(
        position_draws={"vulnerable": "l0", "positions": "l2", "vulnerable_map": "linf", "tried": 1}
    ),
    "a grid": lambda said: said["suite"]["attacks"]["walk"].update(grid=[float("nan")]),
    "an accuracy": lambda said: said["models"][0].update(clean_accuracy=1.5),
    "an accuracy that is no number": lambda said: said["models"][0].update(clean_accuracy=float("nan")),
    "a training seed": lambda said: said["models"][0].update(training_seed="0"),
    "a model twice": lambda said: said["models"].append(said["models"][0]),
    "a model more": lambda said: said["models"].append(said["models"][0] | {"name": "c"}),
    "an identity": lambda said: said["models"][0]["identity"].update(logits={}),
    "a model's info": lambda said: said["models"][0].update(info={"differences": 3}),
    "reasons": lambda said: said["models"][0].update(not_applicable={"walk": 3}),
    "a key": lambda said: said["cells"][0].update(key="../../key"),
    "a cell twice": lambda said: said["cells"].append(said["cells"][0]),
    "a cell less": lambda said: said["cells"].pop(),
    "a cell of no model": lambda said: said["cells"][0].update(model="c"),
    "a cell of no attack": lambda said: said["cells"][0].update(attack="run"),
    "a repeat": lambda said: said["cells"][0].update(repeat=-1),
    "images": lambda said: said["images"].update(used=True),
    "more images": lambda said: said["images"].update(used=6),
    "the share": lambda said: said["images"].update(correct_by_all=None),
    "a subset": lambda said: said["images"].update(subset="none"),
    "repeats": lambda said: said.update(repeats=10**40),
    "twins": lambda said: said.update(twins=[{"a": ["a", 0], "b": ["c", 0], "correlation": 0.99}]),
    "the same weights": lambda said: said.update(same_weights={"logits": 0.0, "predictions": 0.0}),
    "versions": lambda said: said["environment"].update(versions=None),
    "a machine": lambda said: said["environment"].pop("cpus"),
    "headings": lambda said: said["about"].update(model=["lenet1"]),
}


@pytest.mark.parametrize("change", MADE_UP.values(), ids=MADE_UP)
def test_a_manifest_that_is_made_up(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    _resealed(run / "manifest.json", "manifest", change)
    said = json.dumps(sealed.read_json(run / "manifest.json", "manifest"))
    changed(run / "results.h5", lambda file: file.attrs.update(manifest=said), "results")
    with pytest.raises(StoreError, match=r"manifest\.json is not the manifest|results\.h5 is broken"):
        rc.open_run(run)


def test_a_run_keeps_only_what_can_be_read_again(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\$\.about\.model"):
        evaluated(tmp_path, about={"model": 5})


def _replace(file: h5py.File, name: str, data: Any) -> None:
    """Put another array in the place of one, with its attributes: its dimensions are those of the old one."""
    attributes = dict(file[name].attrs)
    del file[name]
    file[name] = data
    file[name].attrs.update(attributes)


OTHER_ARRAYS: dict[str, tuple[str, Damage]] = {
    "results: a scalar": ("results", lambda file: _replace(file, "start", 1.0)),
    "results: other axes": ("results", lambda file: _replace(file, "start", np.ones(file["start"].shape[::-1]))),
    "results: fewer axes": ("results", lambda file: _replace(file, "queries", np.ones(5, np.int64))),
    "results: more axes": ("results", lambda file: _replace(file, "margin", np.ones((1,) * 32))),
    "results: a type": ("results", lambda file: _replace(file, "l2_half", file["l2_half"][()].astype(np.float32))),
    "results: no truth values": ("results", lambda file: file["ran"].attrs.pop("dtype")),
    "results: other models": ("results", lambda file: _replace(file, "model", np.array([b"b", b"a"], object))),
    "results: other images": ("results", lambda file: _replace(file, "image", np.zeros(5, np.int64))),
    "results: other repeats": ("results", lambda file: _replace(file, "repeats", np.array([2, 3]))),
    "results: another index": ("results", lambda file: _replace(file, "repeat", np.array([0, 2]))),
    "results: what ran": ("results", lambda file: _replace(file, "ran", np.zeros(file["ran"].shape, np.int8))),
    "results: no starts": ("results", lambda file: file.pop("start")),
    "clean: a scalar": ("clean", lambda file: _replace(file, "images", np.float32(1))),
    "clean: fewer images": ("clean", lambda file: _replace(file, "images", file["images"][:3])),
    "clean: a type": ("clean", lambda file: _replace(file, "images", file["images"][()].astype(np.float64))),
    "clean: no images": ("clean", lambda file: file.pop("images")),
    "contested: a scalar": ("contested", lambda file: _replace(file, "index", 0)),
    "contested: fewer models": (
        "contested",
        lambda file: [_replace(file, n, file[n][:1]) for n in ("right", "success")],
    ),
    "contested: counts": ("contested", lambda file: _replace(file, "counts", np.array([1, -1]))),
    "contested: a type": ("contested", lambda file: _replace(file, "right", file["right"][()].astype(np.int8))),
    "contested: other attacks": ("contested", lambda file: _replace(file, "attacks", np.array([b"x", b"walk"]))),
}


@pytest.mark.parametrize(("kind", "damage"), OTHER_ARRAYS.values(), ids=OTHER_ARRAYS)
def test_an_array_that_is_not_what_the_records_declare(run: Path, kind: str, damage: Damage) -> None:
    path = run / f"{kind}.h5"
    changed(path, damage, kind)
    with pytest.raises(StoreError, match=rf"{path.name} is broken .*\. Delete it"):
        used(run)


OTHER_CELLS: dict[str, Damage] = {
    "one array under two names": lambda file: [file.pop("extras/start"), file.__setitem__("extras/start", file["l2"])],
    "another axis": lambda file: _replace(file, "extras/start", np.ones((5, 2), np.bool_)),
    "larger than the file": lambda file: file.create_dataset("extras/more", data=bytes_of(5, 2**20), compression=9),
}


def bytes_of(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.int8)


@pytest.mark.parametrize("damage", OTHER_CELLS.values(), ids=OTHER_CELLS)
def test_a_cell_whose_extras_are_not_what_the_records_declare(run: Path, damage: Damage) -> None:
    cell = next(cell for cell in rc.open_run(run).manifest["cells"] if cell["attack"] == "walk")
    changed(run / "cells" / f"{cell['key']}.h5", damage, "cell")
    with pytest.raises(StoreError, match=r"extras/(start (is linked twice|should have 1 axes)|more is compressed)"):
        used(run)


OTHER_ANSWERS: dict[str, tuple[str, Any]] = {
    "checks: a list": ("checks", []),
    "checks: no checks": ("checks", {"epsilon": 0.1, "images": 5, "pgd": {}}),
    "checks: another check": ("checks", {"checks": [{"x": 1}], "epsilon": 0.1, "images": 5, "pgd": {}}),
    "checks: a rate": ("checks", {"checks": [], "epsilon": 0.1, "images": 5, "pgd": {"a": "all"}}),
    "checks: images": ("checks", {"checks": [], "epsilon": 0.1, "images": None, "pgd": {}}),
    "checks: an epsilon": ("checks", {"checks": [], "epsilon": float("inf"), "images": 5, "pgd": {}}),
    "checks: no text": (
        "checks",
        {
            "checks": [{"check": "x", "model": "a", "outcome": "pass", "figure": "\ud800"}],
            "epsilon": 0.1,
            "images": 5,
            "pgd": {},
        },
    ),
    "transfer: no counts": ("transfer", {"attacks": ["walk"]}),
    "transfer: too few": ("transfer", {"counts": [[1]], "attacks": ["walk"]}),
    "transfer: shares": ("transfer", {"counts": [[[[0.5] * 3]] * 2] * 2, "attacks": ["walk"]}),
    "transfer: another attack": ("transfer", {"counts": [[[[1] * 3]] * 2] * 2, "attacks": ["run"]}),
    "transfer: a number": ("transfer", {"counts": [[[[1] * 3]] * 2] * 2, "attacks": 1}),
    "transfer: lists": ("transfer", {"counts": [[[[1] * 3]] * 2] * 2, "attacks": [["walk"]]}),
}


@pytest.mark.parametrize(("kind", "answer"), OTHER_ANSWERS.values(), ids=OTHER_ANSWERS)
def test_an_answer_of_another_form(run: Path, kind: str, answer: Any) -> None:
    _resealed(run / f"{kind}.json", kind, lambda said: said.update({kind: answer}))
    with pytest.raises(StoreError, match=rf"{kind}.json is broken .* Delete it"):
        used(run)
