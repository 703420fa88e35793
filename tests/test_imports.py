"""The house: two wings that meet at records, a framework in its adapter alone, and what each door loads."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import made_up
import pytest

import robustcmp

SOURCE = Path(robustcmp.__file__).parent

GROUND = [
    "chunks",
    "documents",
    "errors",
    "files",
    "limits",
    "locks",
    "printable",
    "processes",
    "provenance",
    "sealed",
    "threads",
]
# A folder may import those above its own line, and itself.
RUNNING = [
    [*GROUND],
    ["records", "data", "networks", "hosts"],
    ["frameworks"],
    ["models"],
    ["deployments"],
    ["sources", "attacks"],
    ["runs"],
    ["executors"],
]
READING = [[*GROUND], ["records"], ["analysis"], ["report"], ["evaluation"]]
TOP = [["compare", "bench"], ["cli"], ["eval", "train", "__main__"]]  # they may import both wings

MEASURING = ["__main__.py", "jobs.py", "machine.py", "measure.py", "process.py"]  # the rest of bench/ only reads

WINGS = {"running": RUNNING, "reading": READING}
ONLY_IN = {
    "torch": {
        "frameworks/torch.py",
        "frameworks/torch_alone.py",
        "frameworks/torch_files.py",
        "frameworks/torch_modules.py",
        "hosts/torch_host.py",
        "hosts/keras3_host.py",
        "hosts/executorch_host.py",
        "deployments/torch_network.py",
        "deployments/torch_export.py",
        "deployments/torch_compile.py",
        "deployments/coreml.py",
    },
    "openvino": {"deployments/openvino.py", "deployments/openvino_trial.py"},
    "nncf": {"deployments/openvino.py"},
    "torchao": {"deployments/torch_export.py", "hosts/executorch_host.py"},
    "executorch": {"hosts/executorch_host.py"},
    "coremltools": {"deployments/coreml.py"},
    "playwright": {"deployments/browser.py"},
    "tensorflow": {
        "frameworks/tensorflow.py",
        "hosts/keras_host.py",
        "hosts/keras3_host.py",
        "deployments/litert.py",
    },
    "keras": {"frameworks/tensorflow.py", "hosts/keras_host.py", "hosts/keras3_host.py"},
    "jax": {"frameworks/jax.py", "frameworks/jax_network.py", "hosts/keras3_host.py"},
    "chainer": {"hosts/chainer_host.py"},
    "mxnet": {"hosts/mxnet_host.py"},
    "theano": {"hosts/keras_host.py"},
    "sklearn": {"data/digits.py"},
    "onnx": {"deployments/onnx_files.py"},
    "onnxruntime": {"deployments/onnxruntime.py", "deployments/onnxruntime_trial.py"},
    "ai_edge_litert": {"deployments/litert.py", "deployments/litert_trial.py"},
}
FRAMEWORKS = ["torch", "tensorflow", "keras", "jax", "sklearn"]
NOT_LOADED = [*FRAMEWORKS, "foolbox", "eagerpy", "xarray", "pandas", "scipy.stats", "statsmodels"]


def sources() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def room_of(path: Path) -> str:
    """The part of the package that a file belongs to: its folder, or itself."""
    inside = path.relative_to(SOURCE)
    return inside.stem if inside.stem == "__main__" else inside.parts[0].removesuffix(".py")


def allowed(room: str) -> set[str]:
    """What a room may import beside itself."""
    for wing in WINGS.values():
        for place, line in enumerate(wing):
            if room in line:
                above = {other for lines in wing[:place] for other in lines}
                return above | ({*GROUND} if room in GROUND else set())
    everything = {other for wing in WINGS.values() for line in wing for other in line}
    for line in TOP:
        if room in line:
            return everything
        everything |= {*line}
    raise AssertionError(f"{room} has no place in the house")


def imports(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, absolute, wherever in the file."""
    package = ["robustcmp", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *([node.module] if node.module else [])]
            yield ".".join(base)
            yield from (".".join([*base, name.name]) for name in node.names)


def rooms() -> set[str]:
    return {room_of(path) for path in sources()} - {"resources"}


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_what_it_may(path: Path) -> None:
    here = room_of(path)
    if here == "resources":
        assert not list(imports(path))
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "robustcmp" and len(parts) > 1 and parts[1] in rooms() - {here}:
            assert parts[1] in allowed(here), f"{here} imports {parts[1]}"


@pytest.mark.parametrize("path", sorted((SOURCE / "bench").rglob("*.py")), ids=lambda path: path.name)
def test_reading_a_benchmark_needs_nothing_that_runs(path: Path) -> None:
    if path.parent.name == "bench" and path.name in MEASURING:
        return
    readable = {room for line in READING for room in line} | {"bench"}
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "robustcmp" and len(parts) > 1 and parts[1] in rooms():
            assert parts[1] in readable, name
            assert parts[1] != "bench" or f"{parts[-1]}.py" not in MEASURING, name


def test_the_wings_meet_at_records_and_the_ground_alone() -> None:
    running, reading = ({room for line in wing for room in line} for wing in WINGS.values())
    assert running & reading == {*GROUND, "records"}
    assert rooms() == running | reading | {room for line in TOP for room in line}


@pytest.mark.parametrize("folder", sorted(path.parent for path in SOURCE.glob("*/__init__.py")), ids=lambda it: it.name)
def test_a_folder_says_what_lives_there_and_what_it_may_import(folder: Path) -> None:
    said = (ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or "").splitlines()[0]
    assert said.endswith(".")
    if folder.name == "resources":
        return
    may = set(re.findall(r"\w+", said.partition("Imports ")[2]))
    assert "ground" in may or "everything" in may
    imported = {
        name.split(".")[1] for path in folder.rglob("*.py") for name in imports(path) if name.startswith("robustcmp.")
    }
    assert (imported & rooms()) - {folder.name, *GROUND} <= may or "everything" in may


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_framework_is_imported_by_its_adapter_alone(path: Path) -> None:
    for name in imports(path):
        in_files = ONLY_IN.get(name.partition(".")[0])
        assert in_files is None or path.relative_to(SOURCE).as_posix() in in_files, name


@pytest.mark.parametrize("path", sorted((SOURCE / "analysis" / "statistics").glob("*.py")), ids=lambda path: path.stem)
def test_statistics_are_made_from_arrays_alone(path: Path) -> None:
    standard = {"__future__", "bisect", "collections", "functools", "itertools", "math", "typing"}
    assert {name.partition(".")[0] for name in imports(path)} <= {
        *standard,
        "numpy",
        "scipy",
        "robustcmp",
    }
    own = {name for name in imports(path) if name.startswith("robustcmp.")}
    assert all(name.startswith(("robustcmp.errors", "robustcmp.analysis.statistics")) for name in own)


def test_importing_the_package_loads_no_framework() -> None:
    assert loaded("import robustcmp", NOT_LOADED) == []


STORED = SOURCE.parents[1] / "docs" / "results" / "lenet5-mnist-guo2019"


@pytest.mark.parametrize(
    ("shown", "drawing"),
    [
        ("str(ev); ev._repr_html_()", ["matplotlib"]),
        ("ev.to_html({page!r})", ["matplotlib.pyplot"]),  # it has a state of its own, which is the caller's
        ("import matplotlib; matplotlib.use('agg'); ev.plot.trainings()", []),
    ],
    ids=["printed", "page", "picture"],
)
def test_showing_a_stored_run_loads_no_framework_and_nothing_that_runs(
    tmp_path: Path, shown: str, drawing: list[str]
) -> None:
    code = f"import robustcmp as rc; ev = rc.open_run({str(STORED)!r}); " + shown.format(
        page=str(tmp_path / "page.html")
    )
    running = {room for line in RUNNING for room in line} - {*GROUND, "records"}
    unwanted = [*FRAMEWORKS, "foolbox", "eagerpy", *drawing, *(f"robustcmp.{room}" for room in sorted(running))]
    assert loaded(code, unwanted) == []
    assert (tmp_path / "page.html").exists() == ("to_html" in shown)


def test_reading_a_benchmark_loads_no_framework_and_nothing_that_runs(tmp_path: Path) -> None:
    made_up.write(tmp_path / "b", made_up.trainings({"a": 1.0, "b": 1.1}, 6))
    directory, page = str(tmp_path / "b"), tmp_path / "page.html"
    code = f"import robustcmp as rc; b = rc.open_benchmark({directory!r}); str(b); b.to_html({str(page)!r})"
    running = {room for line in RUNNING for room in line} - {*GROUND, "records"}
    unwanted = [*FRAMEWORKS, "foolbox", "scipy.stats", *(f"robustcmp.{room}" for room in sorted(running))]
    assert loaded(code, unwanted) == []
    assert page.exists()


def loaded(code: str, modules: list[str]) -> list[str]:
    """Run code in a fresh process, and return which of the modules it has loaded."""
    code += f"; import sys; print([name for name in {modules} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names: list[str] = ast.literal_eval(done.stdout)
    return names


def test_no_public_function_has_the_name_of_a_submodule() -> None:
    functions = {name for name in robustcmp.__all__ if callable(getattr(robustcmp, name))}
    assert not functions & rooms()


def test_every_folder_of_the_package_is_in_the_wheel() -> None:
    settings = configparser.ConfigParser()
    settings.read(SOURCE.parents[1] / "setup.cfg", encoding="utf-8")
    folders = {".".join(path.parent.relative_to(SOURCE.parent).parts) for path in SOURCE.rglob("__init__.py")}
    mapped = {"robustcmp.resources.attacks", "robustcmp.resources.zoo"}
    assert set(settings["options"]["packages"].split()) == folders | mapped
