"""What the tasks of a run cost: a log that outlives every session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import foolbox as fb
import numpy as np
import pandas
import pytest
from conftest import PIXEL_AND_WALK, files
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import AttackResult
from robustcmp.evaluation import COSTS
from robustcmp.records.attack import Cell
from robustcmp.records.store import Cost, Run

N = 12
IMAGES = np.random.default_rng(3).random((N, 6, 6, 1), np.float32) * 0.1
IMAGES[::2, 0, 0, 0] = 0.9
COST = Cost("a", 0, "fgsm", ["0" * 32], 5, 1.25, 100)


def corner(threshold: float) -> fb.NumPyModel:
    """A model that looks at the first pixel only."""

    def logits(x: NDArray[Any]) -> NDArray[np.float32]:
        gap = x[:, 0, 0, 0] - np.float32(threshold)
        return np.stack([gap, -gap], axis=1) * 4

    return fb.NumPyModel(logits, bounds=(0, 1))


Evaluate = Callable[..., rc.Evaluation]


@pytest.fixture
def evaluate(tmp_path: Path) -> Evaluate:
    """Return `robustcmp.evaluate` of two planted models under two random attacks, into ``tmp_path / "run"``."""
    suite = tmp_path / "suite.toml"
    suite.write_text(PIXEL_AND_WALK)

    def call(**options: Any) -> rc.Evaluation:
        models = {"a": corner(0.5), "b": corner(0.3)}
        defaults = {"suite": suite, "n": 5, "repeats": 2, "out": tmp_path / "run", "batch_size": 5, "progress": False}
        return rc.evaluate(models, IMAGES, np.arange(N) % 2, **defaults | options)

    return call


# the log -------------------------------------------------------------------------------------------------------------


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


# a run ---------------------------------------------------------------------------------------------------------------


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


def test_what_is_finished_costs_nothing_more(evaluate: Evaluate, tmp_path: Path) -> None:
    evaluate()
    before = files(tmp_path / "run")
    evaluate()
    assert files(tmp_path / "run") == before
    more = evaluate(repeats=3).costs
    assert more.repeats.tolist() == [2, 2, 2, 2, 1, 1, 1, 1]


def test_both_sessions_of_an_interrupted_run_are_kept(
    evaluate: Evaluate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = evaluate(out=tmp_path / "straight")
    save, saved = Run.save, []

    def interrupted(self: Run, cell: Cell, result: AttackResult) -> None:
        save(self, cell, result)
        saved.append(cell)
        if len(saved) == 5:  # the first repeat of a's walks
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            evaluate()
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
