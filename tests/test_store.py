"""A run on disk: cells, the manifest, results.h5, and every way in which one of them can be wrong."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import foolbox as fb
import h5py
import numpy as np
import pandas
import planted
import pytest
import xarray

import robustcmp as rc
from robustcmp import sealed
from robustcmp.attacks import FGSM, AttackResult, Boundary
from robustcmp.attacks.foolbox import FoolboxAttack
from robustcmp.bench.store import BenchmarkStore
from robustcmp.errors import ModelError, StoreError, UsageError
from robustcmp.evaluation import COSTS
from robustcmp.files import write_named
from robustcmp.records.attack import AttackRecord, Cell
from robustcmp.records.results_file import make_dataset
from robustcmp.records.store import Cost, Run
from robustcmp.runs.assembly import assemble

Evaluate = Callable[..., rc.Evaluation]


@pytest.fixture
def evaluate(tmp_path: Path) -> Evaluate:
    """Return a function that compares two planted models, into ``tmp_path / "run"`` unless asked otherwise."""
    return partial(planted.evaluate_two, tmp_path)


def stamps(directory: Path) -> dict[str, tuple[int, int, str]]:
    """What every file is: which one, from when, and its content."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def result(success: list[bool], **extras: Any) -> AttackResult:
    """An outcome of the attack on some images of 2×2 pixels, with values that tell the images apart."""
    hit = np.array(success)
    number = np.arange(1, len(hit) + 1)
    return AttackResult(
        adversarials=np.full((len(hit), 2, 2, 1), 0.25, np.float32),
        success=hit,
        l0=np.where(hit, number, np.inf),
        l2=np.where(hit, number / 10, np.inf),
        linf=np.where(hit, number / 100, np.inf),
        adversarial_class=np.where(hit, number, -1),
        queries=number * 7,
        extras={name: np.asarray(values) for name, values in extras.items()},
    )


CELL = Cell("a", 0, "fgsm", 0, "0" * 32)


# cells


def test_a_cell_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    saved = result([True, False, True], smallest_epsilon=[0.1, np.inf, 0.2], many=np.eye(3))
    assert CELL.key not in run
    run.save(CELL, saved)
    assert CELL.key in run
    arrays = run.load(CELL.key)
    for name in ("success", "l0", "l2", "linf", "adversarial_class", "queries"):
        np.testing.assert_array_equal(arrays[name], getattr(saved, name))
        assert arrays[name].dtype == getattr(saved, name).dtype
    np.testing.assert_array_equal(arrays["extras/smallest_epsilon"], [0.1, np.inf, 0.2])
    np.testing.assert_array_equal(arrays["extras/many"], np.eye(3))
    np.testing.assert_array_equal(run.adversarials(CELL.key), saved.adversarials)
    assert run.has_images(CELL.key)
    assert not run.has_images("another")


def test_a_cell_is_plain_hdf5(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    run.save(CELL, result([True, False]))
    (path,) = (tmp_path / "run" / "cells").iterdir()
    assert path.name == f"{CELL.key}.h5"
    with h5py.File(path) as file:
        assert dict(file.attrs) == {"model": "a", "training_seed": 0, "attack": "fgsm", "repeat": 0, "key": CELL.key}
        assert file["adversarials"].dtype == np.float32
        assert file["adversarials"].compression == "gzip"
        assert file["success"].dtype == np.bool_
        assert file["success"][()].tolist() == [True, False]


def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    with pytest.raises(TypeError):
        run.save(CELL, result([True], odd=np.array([object()])))
    assert CELL.key not in run
    assert list((tmp_path / "run").rglob("*.*")) == []


def test_a_cell_that_is_broken(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    run.save(CELL, result([True]))
    path = tmp_path / "run" / "cells" / f"{CELL.key}.h5"
    for content in (path.read_bytes()[:500], b"", b"no HDF5"):
        path.write_bytes(content)
        for ask in (run.load, run.has_images, run.adversarials):
            with pytest.raises(StoreError, match=rf"{CELL.key}\.h5 is broken.*Delete it"):
                ask(CELL.key)
    path.unlink()
    with pytest.raises(StoreError, match=rf"{CELL.key}\.h5 is missing\. Rerun the same command to recreate it"):
        run.adversarials(CELL.key)
    with h5py.File(path, "w") as file:
        file["success"] = [True]
    with pytest.raises(StoreError, match=r"is broken .*no seal.*Delete it, and rerun the same command to recreate it"):
        run.load(CELL.key)


# directories


def test_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"is not empty and is not a run of robustcmp\. Name another directory"):
        Run.create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_a_killed_session_left_is_nothing(tmp_path: Path) -> None:
    (tmp_path / ".manifest.json.4711.tmp").write_text("{")
    assert Run.create(tmp_path).manifest() == {}


def test_a_run_in_the_users_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Run.create("~/run").directory == tmp_path / "run"
    assert BenchmarkStore("~/run").directory == tmp_path / "run"
    write_named("~/x.csv", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "x.csv"]


OTHER_FORMAT = sealed.to_json("manifest", {"format": "robustcmp run 99"})


@pytest.mark.parametrize("content", ["no JSON", "[]", "{}", "3", OTHER_FORMAT, "\xff", "[" * 9999])
def test_a_manifest_that_is_none(tmp_path: Path, evaluate: Evaluate, content: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text(content, encoding="latin-1")
    said = r"manifest\.json( is not the manifest of a run.*Delete it|: expected 'robustcmp run 3')"
    with pytest.raises((StoreError, UsageError), match=said):
        evaluate()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["manifest.json"]


def test_open_run_where_there_is_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match=r"is not a run of robustcmp: it has no manifest\.json"):
            rc.open_run(path)


# a whole run


def test_the_files_of_a_run(tmp_path: Path, evaluate: Evaluate) -> None:
    ev = evaluate()
    keys = {cell["key"] for cell in ev.manifest["cells"]}
    assert len(keys) == 2 * 2 * 2
    files = {"manifest.json", "results.h5", "clean.h5", "costs.jsonl"} | {f"cells/{key}.h5" for key in keys}
    assert set(stamps(tmp_path / "run")) == files
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest.pop("seal").startswith("robustcmp manifest, sha256 ")
    assert manifest == {"format": "robustcmp run 3"} | ev.manifest


def test_the_manifest_says_what_was_asked_and_with_what(evaluate: Evaluate) -> None:
    manifest = evaluate(seed=4, about={"why": "a test"}).manifest
    assert manifest["about"] == {"why": "a test"}
    assert (manifest["seed"], manifest["repeats"]) == (4, 2)
    assert manifest["suite"]["name"] == "suite"
    attack = manifest["suite"]["attacks"]["pixel"]
    outcome = {
        "class": "SinglePixel",
        "settings": {"max_pixels": 9, "exact": False},
        "semantics": rc.attacks.SinglePixel.semantics,
        "deterministic": False,
    }
    assert attack | outcome == attack
    assert (attack["norm"], attack["extras"], attack["position_draws"], attack["in_control"]) == ("l0", {}, None, True)
    images = manifest["images"]
    assert (images["asked"], images["used"], images["of"], images["correct_by_all"]) == (5, 5, 12, 1.0)
    assert [(m["name"], m["training_seed"], m["framework"], m["batch_size"]) for m in manifest["models"]] == [
        ("a", 0, "numpy", 16),
        ("b", 0, "numpy", 16),
    ]
    assert manifest["environment"]["versions"]["numpy"] == np.__version__


def test_the_same_question_again_touches_nothing(tmp_path: Path, evaluate: Evaluate) -> None:
    first = evaluate()
    before = stamps(tmp_path / "run")
    again = evaluate()
    assert stamps(tmp_path / "run") == before
    assert again.dataset.identical(first.dataset)


def test_another_question_adds_cells_and_results_hold_the_last(tmp_path: Path, evaluate: Evaluate) -> None:
    evaluate()
    before = stamps(tmp_path / "run")
    second = evaluate(repeats=3)
    after = stamps(tmp_path / "run")
    kept = {name for name in before if name.startswith("cells/")}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert len([name for name in after if name.startswith("cells/")]) == 12
    assert rc.open_run(tmp_path / "run").dataset.identical(second.dataset)
    assert second.dataset.sizes["repeat"] == 3
    # Back to the first question: nothing is done again, and the results are those of the first.
    cells = {name: stamp for name, stamp in after.items() if name.startswith("cells/")}
    assert evaluate().dataset.sizes["repeat"] == 2
    last = stamps(tmp_path / "run")
    assert {name: last[name] for name in cells} == cells
    assert last["results.h5"][2] == before["results.h5"][2]
    assert last["manifest.json"][2] == before["manifest.json"][2]


def test_a_run_opens_as_it_was_evaluated(tmp_path: Path, evaluate: Evaluate) -> None:
    ev = evaluate(about={"model": "planted", "dataset": "noise"})
    opened = rc.open_run(str(tmp_path / "run"))
    assert opened.dataset.identical(ev.dataset)
    assert opened.manifest == ev.manifest
    assert opened.to_json() == ev.to_json()
    assert repr(opened) == repr(ev)
    np.testing.assert_array_equal(opened.adversarials("b", "walk", repeat=1), ev.adversarials("b", "walk", repeat=1))


def test_results_open_in_xarray_and_h5py_and_hold_no_pickle(tmp_path: Path, evaluate: Evaluate) -> None:
    ev = evaluate()
    with xarray.open_dataset(tmp_path / "run" / "results.h5") as content:
        assert json.loads(content.attrs["manifest"]) == ev.manifest
        assert content.drop_attrs().identical(ev.dataset.drop_attrs())
        assert content.success.dtype == np.bool_
    for path in (tmp_path / "run").rglob("*.h5"):
        with h5py.File(path) as file:
            file.visititems(lambda name, item: _plain(item) if isinstance(item, h5py.Dataset) else None)


def _plain(item: h5py.Dataset) -> None:
    assert item.dtype.kind in "biuf" or h5py.check_string_dtype(item.dtype) is not None, item


# with and without images


def test_without_images_a_cell_is_smaller_and_finished(tmp_path: Path, evaluate: Evaluate) -> None:
    bare = evaluate(keep_images=False)
    assert not bare.results.has_adversarials("a", "pixel")
    with pytest.raises(StoreError, match=r"was stored without images\. Delete it, and rerun with keep_images=True"):
        bare.adversarials("a", "pixel")
    before = stamps(tmp_path / "run")
    full = evaluate(keep_images=True)
    after = stamps(tmp_path / "run")
    assert after.pop("clean.h5")
    assert after == before
    assert full.dataset.identical(bare.dataset)
    with pytest.raises(StoreError, match="was stored without images"):
        full.adversarials("a", "pixel")


def test_clean_images_are_kept_with_the_adversarial_ones(tmp_path: Path, evaluate: Evaluate) -> None:
    bare = evaluate(keep_images=False, out=tmp_path / "bare")
    assert bare.results.clean is None
    assert not (tmp_path / "bare" / "clean.h5").exists()
    full = evaluate(out=tmp_path / "full")
    opened = rc.open_run(tmp_path / "full")
    assert full.results.clean is not None
    np.testing.assert_array_equal(full.results.clean, opened.results.clean)
    failed = ~opened.results.values("a", "pixel")[0, 0]
    np.testing.assert_array_equal(opened.results.clean[failed], opened.adversarials("a", "pixel")[failed])  # type: ignore[index]


def test_broken_clean_images_are_named_and_are_made_again_once_deleted(tmp_path: Path, evaluate: Evaluate) -> None:
    clean = evaluate().results.clean
    path = tmp_path / "run" / "clean.h5"
    path.write_bytes(b"broken")
    with pytest.raises(StoreError, match=r"clean\.h5 is broken .* Delete it"):
        evaluate()
    path.unlink()
    np.testing.assert_array_equal(evaluate().results.clean, clean)


# what can go wrong with a run


def test_a_broken_cell_is_named_and_is_made_again_once_deleted(tmp_path: Path, evaluate: Evaluate) -> None:
    ev = evaluate()
    key = ev.manifest["cells"][3]["key"]
    path = tmp_path / "run" / "cells" / f"{key}.h5"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        StoreError, match=rf"{key}\.h5 is broken .*Delete it, and rerun the same command to recreate it"
    ):
        evaluate()
    path.unlink()
    assert evaluate().dataset.identical(ev.dataset)
    assert path.read_bytes() == whole


def test_broken_results_are_named_and_made_again(tmp_path: Path, evaluate: Evaluate) -> None:
    ev = evaluate()
    path = tmp_path / "run" / "results.h5"
    whole = path.read_bytes()
    for content in (b"", b"no HDF5", whole[: len(whole) // 3]):
        path.write_bytes(content)
        with pytest.raises(StoreError, match=r"results\.h5 is broken .*recreate it from the cells"):
            rc.open_run(tmp_path / "run")
        assert evaluate().dataset.identical(ev.dataset)
        assert path.read_bytes() == whole


def test_a_run_that_was_interrupted(tmp_path: Path, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(3, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluate()
    assert len(list((tmp_path / "run" / "cells").iterdir())) == 3
    with pytest.raises(UsageError, match=r"run was interrupted before .*Rerun the same command, .* to resume it"):
        rc.open_run(tmp_path / "run")
    before = {name: stamp for name, stamp in stamps(tmp_path / "run").items() if name.startswith("cells/")}
    monkeypatch.undo()
    ev = evaluate()
    after = stamps(tmp_path / "run")
    assert {name: after[name] for name in before} == before
    assert ev.dataset.identical(evaluate(out=tmp_path / "straight").dataset)


def test_a_run_whose_last_question_was_interrupted(
    tmp_path: Path, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The old results are there, but they do not answer what the manifest asks.
    evaluate()
    interrupt_after(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluate(seed=1)
    with pytest.raises(UsageError, match="was interrupted before its results were complete"):
        rc.open_run(tmp_path / "run")
    monkeypatch.undo()
    assert evaluate(seed=1).manifest["seed"] == rc.open_run(tmp_path / "run").manifest["seed"] == 1


def interrupt_after(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    save, saved = Run.save, []

    def interrupted(self: Run, cell: Cell, outcome: AttackResult) -> None:
        save(self, cell, outcome)
        saved.append(cell)
        if len(saved) == cells:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "save", interrupted)


def test_a_comparison_without_images_leaves_a_directory_that_can_be_used(tmp_path: Path, evaluate: Evaluate) -> None:
    with pytest.raises(ModelError, match="no image is classified correctly by all models"):
        rc.evaluate(
            {"a": planted.bright()},
            planted.IMAGES,
            1 - planted.LABELS,
            suite="boundary-long",
            out=tmp_path / "run",
            batch_size=8,
        )
    assert evaluate().dataset.sizes["image"] == 5


# nothing is kept


def test_without_out_nothing_is_kept(evaluate: Evaluate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    ev = evaluate(out=None)
    directory = ev.results.run.directory
    assert directory.parent == tmp_path / "tmp"
    assert ev.adversarials("a", "pixel").shape == (5, 6, 6, 1)
    rate = ev.success_rate
    del ev
    gc.collect()
    assert os.listdir(tmp_path / "tmp") == []
    assert rate.shape == (2, 1, 2, 2)


# putting cells together


def pgd(epsilons: list[float]) -> AttackRecord:
    """What an attack of Foolbox's says of itself."""
    return FoolboxAttack(fb.attacks.LinfPGD(), {}, epsilons).record


def test_assembled_cells(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    outcomes = {
        Cell("a", 0, "fgsm", 0, "k0"): result([True, False, True], smallest_epsilon=[0.2, np.inf, 0.1]),
        Cell("a", 0, "walk", 0, "k1"): result([True, True, True], start=[True, True, True]),
        Cell("a", 0, "walk", 1, "k2"): result([False, False, True], start=[False, False, True]),
        Cell("b", 3, "fgsm", 0, "k3"): result([False, False, True], smallest_epsilon=[np.inf, np.inf, 0.2]),
        Cell("b", 3, "walk", 0, "k4"): result([True, False, True], start=[True, False, True]),
        Cell("b", 3, "walk", 1, "k5"): result([True, True, False], start=[True, True, False]),
    }
    for cell, outcome in outcomes.items():
        run.save(cell, outcome)
    index, labels = np.array([4, 8, 9]), np.array([1, 0, 1])
    attacks = {"fgsm": FGSM(epsilons=2, max_epsilon=0.2).record, "walk": Boundary().record}
    margins = {("a", 0): np.full(3, np.nan), ("b", 3): np.arange(3.0)}
    arrays = assemble(run, list(outcomes), attacks, {"fgsm": 2, "walk": 2}, index, labels, margins)
    data = make_dataset(arrays, attacks)

    assert data.success.dims == ("model", "training_seed", "attack", "repeat", "image")
    assert dict(data.sizes) == {"model": 2, "training_seed": 2, "attack": 2, "repeat": 2, "image": 3, "epsilon": 2}
    assert data.model.values.tolist() == ["a", "b"]
    assert data.training_seed.values.tolist() == [0, 3]
    assert data.attack.values.tolist() == ["fgsm", "walk"]
    assert data.image.values.tolist() == [4, 8, 9]
    assert data.label.values.tolist() == [1, 0, 1]
    assert data.ran.values.tolist() == [[[True, True], [False, False]], [[False, False], [True, True]]]
    assert data.margin.sel(model="b", training_seed=3).values.tolist() == [0, 1, 2]
    assert data.margin.isnull().sum() == 9  # of models that there are not, and where none was said

    assert data.repeats.to_series().to_dict() == {"fgsm": 2, "walk": 2}

    # One cell of a deterministic attack stands for all repeats.
    of_a = data.sel(model="a", training_seed=0)
    assert of_a.success.sel(attack="fgsm").values.tolist() == [[True, False, True]] * 2
    assert of_a.l0.sel(attack="fgsm").values.tolist() == [[1, np.inf, 3]] * 2
    assert of_a.success.sel(attack="walk").values.tolist() == [[True, True, True], [False, False, True]]
    assert of_a.adversarial_class.sel(attack="walk", repeat=1).values.tolist() == [-1, -1, 3]
    assert of_a.queries.sel(attack="walk", repeat=1).values.tolist() == [7, 14, 21]

    # What an attack does not have is NaN, what a model did not run likewise.
    assert of_a.smallest_epsilon.sel(attack="fgsm", repeat=1).values.tolist() == [0.2, np.inf, 0.1]
    assert np.isnan(of_a.smallest_epsilon.sel(attack="walk")).all()
    assert np.isnan(of_a.start.sel(attack="fgsm")).all()
    assert data.start.sel(model="b", training_seed=3, attack="walk").values.tolist() == [[1, 0, 1], [1, 1, 0]]
    missing = data.sel(model="a", training_seed=3)
    assert not missing.success.any()
    assert (missing.queries == -1).all()
    assert (missing.adversarial_class == -1).all()
    for name in ("l0", "l2", "linf", "start", "smallest_epsilon"):
        assert np.isnan(missing[name]).all()

    curve = data.epsilon_curve
    assert curve.dims == ("model", "training_seed", "attack", "epsilon")
    np.testing.assert_allclose(curve.sel(model="a", training_seed=0, attack="fgsm"), [1 / 3, 2 / 3])
    np.testing.assert_allclose(curve.sel(model="b", training_seed=3, attack="fgsm"), [0, 1 / 3])
    assert np.isnan(curve.sel(attack="walk")).all()
    assert np.isnan(curve.sel(model="a", training_seed=3)).all()


def test_an_attack_with_fewer_repeats(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    at_each = [[[False, True], [False, False]], [[True, True], [False, True]]]
    cells = [Cell("a", 0, "walk", repeat, f"w{repeat}") for repeat in range(3)]
    for cell in cells:
        run.save(cell, result([True, True]))
    few = [Cell("a", 0, "pgd", repeat, f"k{repeat}") for repeat in range(2)]
    for cell, epsilon_success in zip(few, at_each, strict=True):
        run.save(cell, result([row[-1] for row in epsilon_success], epsilon_success=np.array(epsilon_success)))
    once = Cell("a", 0, "once", 0, "o")
    run.save(once, result([True, False]))
    counts = {"walk": 3, "pgd": 2, "once": 1}
    attacks = {"walk": Boundary().record, "pgd": pgd([0.1, 0.3]), "once": Boundary().record}
    zeros = np.zeros(2, int)
    arrays = assemble(run, [*cells, *few, once], attacks, counts, np.arange(2), zeros, {("a", 0): np.zeros(2)})
    data = make_dataset(arrays, attacks)
    assert data.repeats.to_series().to_dict() == counts
    found = data.squeeze(["model", "training_seed"], drop=True)
    assert found.success.sel(attack="once").values.tolist() == [[True, False], [False, False], [False, False]]
    assert found.queries.sel(attack="pgd", repeat=2).values.tolist() == [-1, -1]
    assert np.isnan(found.l2.sel(attack="pgd", repeat=2)).all()
    np.testing.assert_array_equal(found.epsilon_curve.sel(attack="pgd"), [0.25, 0.75])


# what the tasks of a run cost: a log that outlives every session ------------------------------------------------------

COST = Cost("a", 0, "fgsm", ["0" * 32], 5, 1.25, 100)


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_a_torn_line_is_ignored_and_spoils_no_other(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "costs.jsonl"
    run = Run(tmp_path)
    run.log_cost(COST)
    line = path.read_bytes()
    path.write_bytes(line + line[: kept - 1 if kept < 0 else kept])  # all but the end of the line, and its last brace
    assert run.read_costs() == ([COST], 0)
    run.log_cost(COST)
    assert run.read_costs() == ([COST, COST], 0)


@pytest.mark.parametrize("place", [0, 40, -2])
def test_a_changed_character_breaks_a_record_wherever_it_is(tmp_path: Path, place: int) -> None:
    path = tmp_path / "costs.jsonl"
    run = Run(tmp_path)
    run.log_cost(COST)
    line = bytearray(path.read_bytes())
    line[place] ^= 1
    for content in (bytes(line), bytes(line) + path.read_bytes()):
        path.write_bytes(content)
        _, broken = run.read_costs()
        assert broken == 1
    assert run.read_costs() == ([COST], 1)


def test_every_task_of_a_run_has_a_record(evaluate: Evaluate) -> None:
    ev = evaluate()
    costs = ev.costs
    assert tuple(costs.columns) == COSTS
    assert costs[["model", "attack"]].to_numpy().tolist() == [
        ["a", "pixel"],
        ["b", "pixel"],
        ["a", "walk"],
        ["b", "walk"],
    ]
    assert (costs[["repeats", "images"]] == [2, 5]).all(axis=None)
    assert (costs.seconds > 0).all()
    queries = ev.dataset.queries.sum(["training_seed", "repeat", "image"])
    for row in costs.itertuples():
        assert row.queries == int(queries.sel(model=row.model, attack=row.attack))
    pandas.testing.assert_frame_equal(rc.open_run(ev.results.run.directory).costs, costs)
    assert evaluate(repeats=3).costs.repeats.tolist() == [2, 2, 2, 2, 1, 1, 1, 1]


def test_both_sessions_of_an_interrupted_run_are_kept(
    evaluate: Evaluate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = evaluate(out=tmp_path / "straight")
    interrupt_after(5, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluate()
    monkeypatch.undo()
    assert [len(cost.cells) for cost in Run(tmp_path / "run").costs()] == [2, 2, 1]
    ev = evaluate()
    costs = ev.costs
    assert costs[["model", "attack", "repeats"]].to_numpy().tolist() == [
        ["a", "pixel", 2],
        ["b", "pixel", 2],
        ["a", "walk", 1],
        ["a", "walk", 1],
        ["b", "walk", 2],
    ]
    keys = [key for cost in ev.results.run.costs() for key in cost.cells]
    assert sorted(keys) == sorted(cell["key"] for cell in ev.manifest["cells"])
    assert ev.dataset.identical(straight.dataset)
    assert costs.queries.sum() == straight.costs.queries.sum()
