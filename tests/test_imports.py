"""The house: two wings that meet at records, a framework in its adapter alone, and what each door loads."""

from __future__ import annotations

import ast
import configparser
import functools
import re
import subprocess
import sys
from pathlib import Path

import made_up
import pytest

import robustcmp

SOURCE = Path(robustcmp.__file__).parent

GROUND = ["errors", "files", "limits", "processes", "provenance", "sealed", "threads", "untrusted"]
# A folder may import those above its own line, and itself.
RUNNING = [
    [*GROUND],
    ["records", "data", "networks", "hosts"],
    ["frameworks"],
    ["models"],
    ["deployments"],
    ["sources", "attacks"],
    ["runs"],
]
READING = [[*GROUND], ["records"], ["analysis"], ["report"], ["evaluation"]]
TOP = [["compare", "bench"], ["cli"], ["eval", "train", "__main__"]]  # they may import both wings

MEASURING = ["__main__.py", "jobs.py", "measure.py", "process.py"]  # the rest of bench/ only reads

WINGS = {"running": RUNNING, "reading": READING}
ONLY_IN = {
    "torch": {
        "frameworks/torch.py",
        "frameworks/torch_files.py",
        "hosts/torch_host.py",
        "hosts/keras3_host.py",
        "hosts/executorch_host.py",
        "hosts/torch_program_host.py",
        "deployments/torch_network.py",
        "deployments/torch_export.py",
        "deployments/torch_compile.py",
    },
    "openvino": {"deployments/openvino.py"},
    "cv2": {"deployments/opencv.py"},
    "nncf": {"deployments/openvino.py"},
    "torchao": {"deployments/torch_export.py", "hosts/executorch_host.py"},
    "executorch": {"hosts/executorch_host.py"},
    "playwright": {"deployments/web/browser.py"},
    "tensorflow": {
        "frameworks/tensorflow.py",
        "hosts/keras_host.py",
        "hosts/keras3_host.py",
        "deployments/litert.py",
    },
    "keras": {"frameworks/tensorflow.py", "hosts/keras_host.py", "hosts/keras3_host.py"},
    "jax": {"frameworks/jax.py", "hosts/keras3_host.py"},
    "chainer": {"hosts/chainer_host.py"},
    "mxnet": {"hosts/mxnet_host.py"},
    "cntk": {"hosts/cntk_host.py"},
    "paddle": {"hosts/paddle_host.py"},
    "mlx": {"hosts/mlx_host.py"},
    "tinygrad": {"hosts/tinygrad_host.py"},
    "theano": {"hosts/keras_host.py"},
    "sklearn": set(),
    "onnx": {"deployments/onnx_files.py"},
    "onnxruntime": {"deployments/onnxruntime.py"},
    "ai_edge_litert": {"deployments/litert.py"},
}
FRAMEWORKS = ["torch", "tensorflow", "keras", "jax", "sklearn"]


SOURCES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def room_of(path: Path) -> str:
    """The part of the package that a file belongs to: its folder, or itself."""
    inside = path.relative_to(SOURCE)
    return inside.stem if inside.stem == "__main__" else inside.parts[0].removesuffix(".py")


ROOMS = {room_of(path) for path in SOURCES} - {"resources"}


def allowed(room: str) -> set[str]:
    """What a room may import beside itself."""
    for wing in WINGS.values():
        for floor, line in enumerate(wing):
            if room in line:
                above = {other for lines in wing[:floor] for other in lines}
                return above | ({*GROUND} if room in GROUND else set())
    everything = {other for wing in WINGS.values() for line in wing for other in line}
    for line in TOP:
        if room in line:
            return everything
        everything |= {*line}
    raise AssertionError(f"{room} has no place in the house")


@functools.cache
def imports(path: Path) -> list[str]:
    """Every module that a file imports, absolute, wherever in the file."""
    package = ["robustcmp", *path.relative_to(SOURCE).parts[:-1]]
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *([node.module] if node.module else [])]
            names += [".".join(base), *(".".join([*base, name.name]) for name in node.names)]
    return names


def rooms_imported(path: Path) -> set[str]:
    parts = [name.split(".") for name in imports(path)]
    return {name[1] for name in parts if name[0] == "robustcmp" and len(name) > 1} & ROOMS


def test_a_room_imports_what_it_may() -> None:
    assert not any(imports(path) for path in SOURCES if room_of(path) == "resources")
    mistakes = [
        f"{path.relative_to(SOURCE)} imports {other}"
        for path in SOURCES
        if (room := room_of(path)) != "resources"
        for other in rooms_imported(path) - {room} - allowed(room)
    ]
    assert mistakes == []


def test_reading_a_benchmark_needs_nothing_that_runs() -> None:
    readable = {room for line in READING for room in line} | {"bench"}
    measuring = {f"robustcmp.bench.{name.removesuffix('.py')}" for name in MEASURING}
    mistakes = [
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "bench").rglob("*.py")
        if path.relative_to(SOURCE / "bench").as_posix() not in MEASURING
        and (rooms_imported(path) - readable or measuring & {*imports(path)})
    ]
    assert mistakes == []


def test_the_wings_meet_at_records_and_the_ground_alone() -> None:
    running, reading = ({room for line in wing for room in line} for wing in WINGS.values())
    assert running & reading == {*GROUND, "records"}
    assert running | reading | {room for line in TOP for room in line} == ROOMS


@pytest.mark.parametrize("folder", sorted(path.parent for path in SOURCE.glob("*/__init__.py")), ids=lambda it: it.name)
def test_a_folder_says_what_lives_there_and_what_it_may_import(folder: Path) -> None:
    line = (ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or "").splitlines()[0]
    assert line.endswith(".")
    if folder.name == "resources":
        return
    may = set(re.findall(r"\w+", line.partition("Imports ")[2]))
    assert "ground" in may or "everything" in may
    imported = {room for path in folder.rglob("*.py") for room in rooms_imported(path)}
    assert imported - {folder.name, *GROUND} <= may or "everything" in may


def test_a_framework_is_imported_by_its_adapter_alone() -> None:
    files = {
        (name.partition(".")[0], path.relative_to(SOURCE).as_posix()) for path in SOURCES for name in imports(path)
    }
    assert sorted((name, file) for name, file in files if file not in ONLY_IN.get(name, {file})) == []


def test_statistics_are_made_from_arrays_alone() -> None:
    standard = {"__future__", "bisect", "collections", "functools", "itertools", "math", "typing"}
    names = {name for path in (SOURCE / "analysis" / "statistics").glob("*.py") for name in imports(path)}
    assert {name.partition(".")[0] for name in names} <= {*standard, "numpy", "scipy", "robustcmp"}
    of_package = {name for name in names if name.startswith("robustcmp.")}
    assert all(name.startswith(("robustcmp.errors", "robustcmp.analysis.statistics")) for name in of_package)


STORED = SOURCE.parents[1] / "docs" / "results" / "lenet5-mnist-guo2019"


def test_reading_loads_no_framework_and_nothing_that_runs(tmp_path: Path) -> None:
    """One fresh process takes the steps of a reader, from the import on, and says what it has loaded after each."""
    made_up.write(tmp_path / "b", made_up.trainings({"a": 1.0, "b": 1.1}, 6))
    running = [f"robustcmp.{room}" for line in RUNNING for room in line if room not in [*GROUND, "records"]]
    without = [*FRAMEWORKS, "foolbox", "eagerpy", *running]
    steps = [
        ("import robustcmp as rc", [*without, "xarray", "pandas", "scipy.stats", "statsmodels"]),
        (f"b = rc.open_benchmark({str(tmp_path / 'b')!r}); str(b)", [*without, "scipy.stats"]),
        (f"ev = rc.open_run({str(STORED)!r}); str(ev); ev._repr_html_()", [*without, "matplotlib"]),
        # pyplot has a state of its own, which is the caller's.
        (f"ev.to_html({str(tmp_path / 'page.html')!r})", [*without, "matplotlib.pyplot"]),
        (f"b.to_html({str(tmp_path / 'b.html')!r})", [*without, "matplotlib.pyplot"]),
        ("import matplotlib; matplotlib.use('agg'); ev.plot.trainings()", without),
    ]
    lines = ["import sys"]
    for step, unwanted in steps:
        lines += [step, f"print({step!r}, [name for name in {unwanted} if name in sys.modules])"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{step} []" for step, _ in steps]
    assert (tmp_path / "page.html").exists()
    assert (tmp_path / "b.html").exists()


def test_no_public_function_has_the_name_of_a_submodule() -> None:
    functions = {name for name in robustcmp.__all__ if callable(getattr(robustcmp, name))}
    assert not functions & ROOMS


def test_every_folder_of_the_package_is_in_the_wheel() -> None:
    settings = configparser.ConfigParser()
    settings.read(SOURCE.parents[1] / "setup.cfg", encoding="utf-8")
    folders = {".".join(path.parent.relative_to(SOURCE.parent).parts) for path in SOURCE.rglob("__init__.py")}
    mapped = {"robustcmp.resources.attacks", "robustcmp.resources.zoo"}
    assert set(settings["options"]["packages"].split()) == folders | mapped


def test_the_wheel_is_small() -> None:
    """Uncompressed it has less than the 60 MB that are promised."""
    folders = [SOURCE, SOURCE.parents[1] / "zoo", SOURCE.parents[1] / "attacks"]
    shipped = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in shipped) < 60e6


def test_child_processes_are_started_in_one_module() -> None:
    starts = re.compile(r"\bPopen\b|subprocess\.(run|call|check)|\bos\.(fork|spawn|exec|system|popen)|\bProcessPool")
    starting = [path.relative_to(SOURCE).as_posix() for path in SOURCES if starts.search(path.read_text("utf-8"))]
    assert starting == ["processes.py"]


def test_tests_mirror_the_house() -> None:
    """A file of tests is called as a module, a room, a room and its module, or what else it tests."""
    others = {"brought", "docs", "imports", "notebooks", "reference", "soak", "weigh", "zoo"}
    parts = [path.relative_to(SOURCE).with_suffix("").parts for path in SOURCE.rglob("*") if "__" not in path.name]
    names = {name for path in parts for name in (path[-1], "_".join(path))}
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert tests <= names | others
