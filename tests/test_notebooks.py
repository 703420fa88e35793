"""Notebooks run from their first cell to their last, and are stored with their outputs and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from robustcmp import frameworks

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
notebooks = pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))


EXPECTED = {
    "quickstart.ipynb",
    "your_own_model.ipynb",
    "the_papers_figure.ipynb",
    "framework_or_seed.ipynb",
    "coursework.ipynb",
    "coursework_solutions.ipynb",
}
MOST_BYTES = 500_000


class Executed(NamedTuple):
    """A notebook that was run: what each code cell wrote, the number of its pictures, and the files it left."""

    cells: list[str]
    pictures: int
    files: list[str]


def texts(notebook: Any) -> list[str]:
    """What each code cell printed and returned, in one string a cell."""
    return [
        "".join(
            output.get("text", "") if output.output_type == "stream" else output.get("data", {}).get("text/plain", "")
            for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def pictures(notebook: Any) -> int:
    return sum(
        "image/png" in output.get("data", {})
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )


def find(cells: list[str], beginning: str) -> str:
    (found,) = [text for text in cells if text.lstrip().startswith(beginning)]
    return found


def number(pattern: str, text: str) -> float:
    """Return the one number that a pattern finds."""
    (found,) = re.findall(pattern, text)
    return float(found)


@pytest.fixture
def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Executed]:
    """Return a function that runs a notebook in an empty directory, beside a link to docs/."""
    for place in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(place, str(tmp_path / place))  # the user's own Jupyter has no say
    (tmp_path / "docs").symlink_to(NOTEBOOKS.parent / "docs")
    elsewhere = tmp_path / "notebooks"
    elsewhere.mkdir()

    def run(name: str, *needed: str) -> Executed:
        missing = set(needed) - set(frameworks.list_installed())
        if missing:
            pytest.skip(f"not installed: {', '.join(sorted(missing))}")
        notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
        nbclient.NotebookClient(
            notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": str(elsewhere)}}
        ).execute()
        return Executed(texts(notebook), pictures(notebook), sorted(path.name for path in elsewhere.iterdir()))

    return run


@pytest.mark.slow
def test_the_quickstart(execute: Callable[..., Executed]) -> None:
    ran = execute("quickstart.ipynb", "torch", "jax")
    summary, verdicts = find(ran.cells, "suite smoke"), find(ran.cells, "fgsm ")
    assert "3 trainings of each framework; 100 images that all 6 classify correctly" in summary
    assert "Is one framework easier to fool?" in summary
    apart, detectable = re.findall(r"([\d.]+) points", verdicts.splitlines()[0])
    assert 0 < float(apart) < float(detectable)
    assert ran.files == ["quickstart.html"]
    assert ran.pictures == 3


@pytest.mark.slow
def test_your_own_model(execute: Callable[..., Executed]) -> None:
    ran = execute("your_own_model.ipynb", "torch")
    summary = find(ran.cells, "suite smoke")
    fooled = {name: number(rf"(?m)^{name} +([\d.]+) %", summary) for name in ("own", "mlp", "lenet5")}
    assert fooled["mlp"] > fooled["own"] > fooled["lenet5"]
    everything = "\n".join(ran.cells)
    assert all(float(share) > 90 for share in re.findall(r"([\d.]+)% of the test images", everything))
    assert "returns probabilities" in find(ran.cells, "ModelError: model 'model' returns probabilities")
    assert find(ran.cells, "UsageError: images should lie within the bounds")
    assert find(ran.cells, "ModelError: model 'model' returns different logits")
    success = [int(share) for share in re.findall(r"'(\d+)%'", ran.cells[-1])]
    assert success == sorted(success)
    assert success[-1] > 80
    assert ran.files == []


@pytest.mark.slow
def test_the_papers_figure(execute: Callable[..., Executed]) -> None:
    """No framework is needed; its figures are those of docs/results/across-runs.md."""
    ran = execute("the_papers_figure.ipynb")
    everything = "\n".join(ran.cells)
    assert re.search(r"theano +2\.000 +0\.390 +1\.392 +0\.125", everything)
    assert find(ran.cells, "{'a': 0.0, 'b': 1.0}").splitlines() == ["{'a': 0.0, 'b': 1.0}"] * 2
    page = (NOTEBOOKS.parent / "docs/results/across-runs.md").read_text(encoding="utf-8")
    of_one = page.split("<!-- lenet5-mnist-ten-trainings, one training each -->")[1].split("<!--")[0]
    (spread,) = re.findall(r"[\d.]+ to [\d.]+ points", of_one)
    assert spread in everything
    for framework, share in re.findall(r"(torch|tensorflow|jax) in (\d+%)", of_one):
        assert f"'{framework}': '{share}'" in everything
    assert number(r"paper's three differ by ([\d.]+)", everything) == 8.2


@pytest.mark.slow
def test_framework_or_seed(execute: Callable[..., Executed]) -> None:
    ran = execute("framework_or_seed.ipynb", "torch", "tensorflow", "jax")
    summary = find(ran.cells, "suite own")
    assert "10 trainings of each framework" in summary
    plan = [float(points) for points in re.findall(r"trainings of each: +([\d.]+) points", "\n".join(ran.cells))]
    assert len(plan) == 7
    assert plan == sorted(plan, reverse=True)
    assert ran.files == []


@pytest.mark.slow
def test_the_coursework_and_its_solutions(execute: Callable[..., Executed]) -> None:
    assert execute("coursework.ipynb", "torch").pictures == 1
    ran = execute("coursework_solutions.ipynb", "torch")
    everything = "\n".join(ran.cells)
    rounded, exact = (
        number(rf"{dtype}: the same ε on ([\d.]+)% of the images", everything) for dtype in ("float32", "float64")
    )
    assert rounded < exact
    assert exact > 98
    detectable = [float(points) for points in re.findall(r"images: +([\d.]+) points detectable", everything)]
    assert detectable == sorted(detectable, reverse=True)
    a_first, b_first = (eval(row) for row in find(ran.cells, "{'a': 0.02").splitlines())
    assert a_first["a"] < a_first["b"]
    assert b_first["b"] < b_first["a"]
    distances = [float(distance) for distance in re.findall(r"median L2 ([\d.]+)", everything)]
    assert distances == sorted(distances, reverse=True)
    assert find(ran.cells, "ModelError: the gradient of model 'rounded' is zero")
    assert ran.files == []


@pytest.mark.parametrize("name", ["coursework.ipynb", "coursework_solutions.ipynb"])
def test_the_sheet_and_its_solutions_ask_the_same(name: str) -> None:
    cells = nbformat.read(NOTEBOOKS / name, as_version=4).cells
    asked = [cell.source.splitlines()[0] for cell in cells if cell.source.startswith("## Exercise")]
    assert [title.split(":")[0] for title in asked] == [f"## Exercise {i}" for i in range(1, 7)]
    other = nbformat.read(NOTEBOOKS / "coursework.ipynb", as_version=4).cells
    assert asked == [cell.source.splitlines()[0] for cell in other if cell.source.startswith("## Exercise")]
    answers = [cell for cell in cells if cell.cell_type == "code" and cell.source.startswith("# Your code")]
    assert len(answers) == (6 if name == "coursework.ipynb" else 0)


def test_every_notebook_is_there() -> None:
    assert {path.name for path in NOTEBOOKS.glob("*.ipynb")} == EXPECTED


@notebooks
def test_what_a_notebook_imports_is_there(name: str) -> None:
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / name, as_version=4).cells if cell.cell_type == "code"]
    lines = [line for line in "\n".join(cells).splitlines() if re.match(r"(import|from) robustcmp\b", line)]
    assert lines
    for line in lines:
        exec(line, {})


@notebooks
def test_a_notebook_begins_and_ends_as_the_others_do(name: str) -> None:
    cells = nbformat.read(NOTEBOOKS / name, as_version=4).cells
    assert cells[0].source.startswith("# ")
    assert "you will learn" in cells[0].source.lower()
    assert "## Try next" in cells[-1].source
    for cell in cells:
        assert len(cell.source.splitlines()) <= 40
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", cell.source if cell.cell_type == "markdown" else ""):
            assert (NOTEBOOKS / target).exists(), target


@notebooks
def test_what_is_stored_is_clean(name: str) -> None:
    stored = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(stored)
    assert (NOTEBOOKS / name).stat().st_size < MOST_BYTES
    assert pictures(stored) >= 1
    code = [cell for cell in stored.cells if cell.cell_type == "code" and not cell.source.startswith("# Your code")]
    assert all(cell.execution_count for cell in code)
    silent = [cell for cell in code if not cell.outputs]
    assert len(silent) <= 2  # definitions alone
    for cell in stored.cells:
        assert not re.search(r"/(?:home|root|tmp|Users|work|private)/|[A-Z]:\\\\", str(cell)), cell.source
    for output in (output for cell in code for output in cell.outputs):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
