"""Notebooks run from their first cell to their last, and are stored with their outputs and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import at_hand

import robustcmp as rc
from robustcmp import frameworks

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
notebooks = pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))


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


def find(cells: list[str], beginning: str) -> str:
    (found,) = [text for text in cells if text.lstrip().startswith(beginning)]
    return found


@pytest.fixture
def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that runs a notebook and gives what its code cells wrote."""
    if "torch" not in frameworks.installed():
        pytest.skip("torch is not installed")
    for place in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(place, str(tmp_path / place))  # the user's own Jupyter has no say
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def run(name: str, network: str = "lenet5") -> list[str]:
        notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
        for cell in notebook.cells:
            cell.source = cell.source.replace('network = "lenet5"', f'network = "{network}"')
            cell.source = cell.source.replace('"../docs/results"', repr(str(NOTEBOOKS.parent / "docs" / "results")))
        nbclient.NotebookClient(
            notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": str(elsewhere)}}
        ).execute()
        assert not list(elsewhere.iterdir())  # nothing is left behind
        return texts(notebook)

    return run


@pytest.mark.slow
def test_the_quickstart(execute: Callable[..., list[str]]) -> None:
    cells = execute("quickstart.ipynb")
    table = find(cells, "smoke")
    assert "Success rates: the share of images that fall" in table
    assert re.search(r"boundary +mine +100\.0 %", table)
    assert re.search(r"fgsm +lenet5 +\d+\.\d %", table)
    rates = find(cells, "attack")
    assert {line.split()[0] for line in rates.splitlines()[2:]} == {"mine", "lenet5"}
    assert len(re.findall(r"a (\d) taken for a (?!\1)\d: ε = 0\.\d+", cells[-1])) == 4
    for name, share in re.findall(r"(\w+) +([\d.]+)% of the test images", "\n".join(cells)):
        assert float(share) > 90, name


@pytest.mark.slow
def test_any_code(execute: Callable[..., list[str]]) -> None:
    cells = execute("any_code.ipynb")
    table = find(cells, "smoke")
    (mlp, lenet5) = (re.search(rf"fgsm +{name} +([\d.]+) %", table) for name in ("mlp", "lenet5"))
    assert mlp is not None
    assert lenet5 is not None
    assert float(mlp[1]) > float(lenet5[1])
    assert float(find(cells, "correlation").split()[1]) > 0.95
    assert float(re.findall(r"[\d.]+", cells[-1])[-1]) > 0.9


@pytest.mark.whole_zoo
@pytest.mark.parametrize("network", ["lenet5", "lenet1"])
def test_is_it_the_framework(execute: Callable[..., list[str]], network: str) -> None:
    """It takes minutes; what it comes to is what the page and the run behind it say."""
    at_hand("mnist")
    docs, run = NOTEBOOKS.parent / "docs", f"{network}-mnist-ten-trainings"
    cells = execute("is_it_the_framework.ipynb", network)
    ev = rc.open_run(docs / "results" / run)
    rates = (100 * ev.success_rate.sel(attack="fgsm").mean("repeat")).round(1)
    assert find(cells, "model          torch") == str(rates.to_pandas().T)
    assert "no rate differs by more than 0.0 points" in find(cells, "'no rate differs")
    page = (docs / "is-it-the-framework.md").read_text(encoding="utf-8")
    of_one = page.split(f"<!-- {run}, one training each -->")[1].split("<!--")[0]
    (spread,) = re.findall(r"[\d.]+ to [\d.]+ points", of_one)
    assert spread in find(cells, "'under FGSM the three")
    for framework, share in re.findall(r"(torch|tensorflow|jax) in (\d+%)", of_one):
        assert f"'{framework}': '{share}'" in "".join(cells)
    told = page.split(f"| {run} | boundary: sign test of L2 |")[1].split("\n")[0]
    shares = [int(share) / 100 for share in re.findall(r"(\d+)%", told)]
    assert find(cells, "of").splitlines()[-1].split()[-2:] == [f"{share:.2f}" for share in shares]


@notebooks
def test_what_a_notebook_imports_is_there(name: str) -> None:
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / name, as_version=4).cells if cell.cell_type == "code"]
    lines = [line for line in "\n".join(cells).splitlines() if re.match(r"(import|from) robustcmp\b", line)]
    assert lines
    for line in lines:
        exec(line, {})


@notebooks
def test_what_is_stored_is_clean(name: str) -> None:
    stored = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(stored)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(output for output in texts(stored)[1:])
    for cell in code:
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr"
            assert not re.search(r"/(?:home|root|tmp|Users|work)/", str(output))
