"""Data flows one way, a framework is imported by its adapter alone, and importing the package loads none."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import robustcmp

SOURCE = Path(robustcmp.__file__).parent

# A module may import those above its own line, and those that stand in its own line.
ORDER = [
    ["errors"],
    ["environment", "draws", "data", "architecture"],
    ["weights"],
    ["frameworks", "hosts", "workers"],
    ["classifier"],
    ["model"],
    ["bridge", "training", "ingest"],
    ["zoo", "subset"],
    ["attacks"],
    ["experiment", "checks", "transfer"],
    ["store"],
    ["indicator", "statistics", "control"],
    ["inference"],
    ["results"],
    ["report"],
    ["evaluation"],
    ["command"],
    ["eval", "train", "hosting"],
]
RANK = {module: rank for rank, line in enumerate(ORDER) for module in line}
ONLY_IN = {
    "torch": {"frameworks/torch.py", "hosts/torch_host.py"},
    "tensorflow": {"frameworks/tensorflow.py", "hosts/keras_host.py"},
    "keras": {"frameworks/tensorflow.py", "hosts/keras_host.py"},
    "jax": {"frameworks/jax.py"},
    "chainer": {"hosts/chainer_host.py"},
    "mxnet": {"hosts/mxnet_host.py"},
    "theano": {"hosts/keras_host.py"},
    "sklearn": {"data.py"},
}
NOT_LOADED = ["torch", "tensorflow", "keras", "jax", "sklearn", "xarray", "pandas", "scipy.stats", "statsmodels"]


def sources() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def module_of(path: Path) -> str:
    """The part of the package that a file belongs to: its folder, or itself."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


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


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_data_flows_one_way(path: Path) -> None:
    here = module_of(path)
    if here == "resources":
        assert not list(imports(path))
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "robustcmp" and len(parts) > 1 and parts[1] in RANK:
            assert RANK[parts[1]] <= RANK[here], f"{here} imports {parts[1]}, which comes after it"


def test_every_module_has_its_place() -> None:
    assert {module_of(path) for path in sources()} - {"resources"} == set(RANK)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_framework_is_imported_by_its_adapter_alone(path: Path) -> None:
    for name in imports(path):
        allowed = ONLY_IN.get(name.partition(".")[0])
        assert allowed is None or path.relative_to(SOURCE).as_posix() in allowed, name


@pytest.mark.parametrize("module", ["indicator", "statistics"])
def test_numbers_can_be_analysed_without_frameworks_or_store(module: str) -> None:
    named = {name.partition(".")[0] for name in imports(SOURCE / f"{module}.py")}
    allowed = {"__future__", "collections", "math", "typing", "numpy", "robustcmp"}
    assert named <= allowed | ({"contextlib", "scipy", "statsmodels"} if module == "statistics" else set())
    own = {name.split(".")[1] for name in imports(SOURCE / f"{module}.py") if name.startswith("robustcmp.")}
    assert own <= {"errors"}


def test_importing_the_package_loads_no_framework() -> None:
    code = f"import sys, robustcmp; print([name for name in {NOT_LOADED} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_public_function_has_the_name_of_a_submodule() -> None:
    modules = {path.stem for path in SOURCE.glob("*.py")} | {"attacks", "frameworks"}
    functions = {name for name in robustcmp.__all__ if callable(getattr(robustcmp, name))}
    assert not functions & modules


def test_every_folder_of_the_package_is_in_the_wheel() -> None:
    settings = configparser.ConfigParser()
    settings.read(SOURCE.parents[1] / "setup.cfg", encoding="utf-8")
    folders = {".".join(path.parent.relative_to(SOURCE.parent).parts) for path in SOURCE.rglob("__init__.py")}
    mapped = {"robustcmp.resources.attacks", "robustcmp.resources.zoo"}
    assert set(settings["options"]["packages"].split()) == folders | mapped
