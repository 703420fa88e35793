"""The commands that list what there is, and where it comes from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from robustcmp.cli import command
from robustcmp.data import DATASETS, mnist
from robustcmp.records.manifest import suite_names
from robustcmp.sources.from_zoo import FromZoo, find_weights, list_seeds, list_trainings
from robustcmp.sources.recipes import SHIPPED, models_on

RESULTS = Path(__file__).parents[1] / "docs" / "results"
Json = Callable[..., list[dict[str, object]]]


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str]) -> Json:
    """Return a function that runs a command that lists something and returns its rows."""

    def rows(*arguments: str) -> list[dict[str, object]]:
        assert command.main(["list", *arguments, "--json"]) == 0
        found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
        return found

    return rows


def test_the_zoo_that_ships(listed: Json) -> None:
    rows = listed("zoo")
    files = [path.name for path in (SHIPPED / "weights").iterdir() if path.name.endswith(".h5")]
    assert len(files) == len(list_trainings())
    for row in rows:
        name = f"{row['model']}-{row['dataset']}-{row['framework']}-{row['recipe']}-"
        seeds = [int(file.removeprefix(name).removesuffix(".h5")) for file in files if file.startswith(name)]
        assert row["training_seeds"] == ", ".join(map(str, sorted(seeds)))
        assert row["from"] == "from the zoo that ships"


def test_what_was_trained_here_stands_before_what_ships(listed: Json, own_cache: Path) -> None:
    directory = own_cache / "weights"
    directory.mkdir(parents=True)
    name = FromZoo("lenet1", "digits", "torch")
    shutil.copyfile(str(SHIPPED / "weights" / name.file), directory / name.file)
    (directory / "lenet1-digits-torch-default-7.checkpoint.h5").write_bytes(b"half a training")
    mine = [row for row in listed("zoo") if row["from"] == "trained here"]
    assert [(row["model"], row["framework"], row["training_seeds"]) for row in mine] == [("lenet1", "torch", "0")]
    content = find_weights(name)
    assert content is not None
    assert mine[0]["test_accuracy"] == f"{100 * content.metadata['test_accuracy']:.2f} %"


def test_the_seeds_of_a_model(own_cache: Path) -> None:
    shipped = list_seeds("lenet1", "digits", "torch")
    assert 0 in shipped
    (own_cache / "weights").mkdir(parents=True)
    for file in (FromZoo("lenet1", "digits", "torch", seed=77).file, "lenet1-digits-torch-default-x.h5"):
        (own_cache / "weights" / file).touch()
    assert list_seeds("lenet1", "digits", "torch") == [*shipped, 77]


def test_the_suites(listed: Json) -> None:
    rows = {row["suite"]: row for row in listed("suites")}
    assert list(rows) == suite_names()
    assert rows["guo2019"]["attacks"] == "fgsm, single_pixel, boundary"
    assert (rows["smoke"]["images"], rows["smoke"]["repeats"]) == (20, 2)
    assert all(row["description"] for row in rows.values())


def test_the_datasets(listed: Json, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBUSTCMP_DATA", str(tmp_path))
    rows = {row["dataset"]: row for row in listed("data")}
    assert list(rows) == list(DATASETS)
    assert rows["digits"]["models"] == "dlbench_mnist, lenet1, lenet5"
    assert rows["mnist"]["where"] == f"not here yet; downloaded from {mnist.URLS[0]}"
    (tmp_path / "mnist").mkdir()
    for names in mnist.SOURCE.files.values():
        assert listed("data")[0]["where"] == rows["mnist"]["where"]  # until all of them are there
        for name in names:
            (tmp_path / "mnist" / name).touch()
    assert listed("data")[0]["where"] == str(tmp_path / "mnist")
    assert models_on("cifar10") == ["dlbench_cifar10", "resnet20", "vgg16"]


def test_the_runs(listed: Json, tmp_path: Path) -> None:
    run = "lenet5-mnist-ten-trainings"
    for name in ("whole", "half"):
        (tmp_path / name).mkdir()
        shutil.copyfile(RESULTS / run / "manifest.json", tmp_path / name / "manifest.json")
    (tmp_path / "whole" / "results.h5").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    (tmp_path / "none").mkdir()
    broken, half, whole = listed("runs", str(tmp_path))
    assert whole == {
        "run": str(tmp_path / "whole"),
        "model": "lenet5",
        "dataset": "mnist",
        "suite": "guo2019",
        "compared": "torch × 10, tensorflow × 10, jax × 10",
        "images": 1000,
        "state": "finished",
    }
    assert half == whole | {"run": str(tmp_path / "half"), "state": "interrupted"}
    assert "is not the manifest of a run" in str(broken["state"])


def test_no_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command.main(["list", "runs", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"no runs in {tmp_path}. Create one with: robustcmp eval")


def test_a_table_in_a_pipe_is_whole_and_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list", "suites"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    lines = said.splitlines()
    assert len(lines) == 2 + len(suite_names())
    assert "FGSM and single pixel as in Guo et al., for the same-weights control" in said
