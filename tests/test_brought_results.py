"""What leaves a run: each line of "Take results elsewhere" in docs/howto.md, on the run that stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray

import robustcmp as rc

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/howto.md").read_text(encoding="utf-8")


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the lines use, in an empty directory: a run, a table of one model's images, and one of a user's own."""
    monkeypatch.chdir(tmp_path)
    ev = rc.open_run(ROOT / "docs/results/lenet5-mnist-ten-trainings")
    one = ev.dataset[["success", "linf"]].sel(attack="fgsm", model="torch", training_seed=0, repeat=0).to_dataframe()
    return {"ev": ev, "one": one, "about": pandas.DataFrame({"image": [16, 17], "writer": ["a", "b"]})}


def by_epsilon(table: Any, names: dict[str, Any]) -> None:
    assert [*table.index] == names["ev"].results.models
    np.testing.assert_allclose(table.loc["jax", 0.1], names["ev"].results.rates()["jax"]["fgsm"])


def single_images(table: Any, names: dict[str, Any]) -> None:
    assert len(table) == 1000
    assert table.success.mean() == names["ev"].success_rate.sel(attack="fgsm", model="torch", training_seed=0)[0]


def joined(table: Any, names: dict[str, Any]) -> None:
    assert [*table.writer] == ["a", "b"]
    assert [*table.success] == [*names["one"].success[:2]]


def netcdf(_: Any, names: dict[str, Any]) -> None:
    with xarray.open_dataset("outcomes.nc") as stored:
        xarray.testing.assert_equal(stored.load(), names["ev"].dataset[["success", "linf"]])


def csv(_: Any, names: dict[str, Any]) -> None:
    assert [*pandas.read_csv("outcomes.csv").success] == [*names["one"].success]


def parquet(_: Any, names: dict[str, Any]) -> None:
    assert [*pandas.read_parquet("outcomes.parquet").success] == [*names["one"].success]


def plot(axes: Any, names: dict[str, Any]) -> None:
    from matplotlib import pyplot

    (shown,) = axes
    assert shown.get_xlabel().startswith("ε")
    assert {*names["ev"].results.models} <= {*shown.get_legend_handles_labels()[1]}
    pyplot.close(shown.figure)


LINES = {
    "success by ε": (
        'ev.epsilon_curve.sel(attack="fgsm").mean("training_seed").to_pandas()',
        "a table, a row for each model and a column for each ε",
        by_epsilon,
    ),
    "single images in pandas": (
        'ev.dataset[["success", "linf"]].sel(attack="fgsm", model="torch", training_seed=0, repeat=0).to_dataframe()',
        "a table, a row for each image",
        single_images,
    ),
    "a join with what you know of the images": (
        'one.reset_index().merge(about, on="image")',
        "a table, a row for each image that both tables have",
        joined,
    ),
    "netCDF": ('ev.dataset[["success", "linf"]].to_netcdf("outcomes.nc")', "a file that xarray opens", netcdf),
    "CSV": ('one.to_csv("outcomes.csv")', "a file", csv),
    "Parquet": ('one.to_parquet("outcomes.parquet")', "a file", parquet),
    "a plot": ("ev.plot.curves()", "axes of matplotlib", plot),
}
NEEDS = {"Parquet": "pyarrow", "a plot": "matplotlib"}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=pytest.mark.brought(group="Results out", what=what, typed=typed, got=got))
        for what, (typed, got, _) in LINES.items()
    ],
)
def test_a_line_takes_results_elsewhere(what: str, names: dict[str, Any]) -> None:
    if package := NEEDS.get(what):
        pytest.importorskip(package, reason=f"{package} is not installed")
    typed, _, check = LINES[what]
    assert typed in PAGE.replace('f"{directory}/', '"')
    check(eval(typed, names), names)
