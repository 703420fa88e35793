"""What a comparison tells of its progress, and how that is shown."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.cli.ending import _format_command
from robustcmp.data.dataset import Dataset
from robustcmp.models.model import Model
from robustcmp.records.attack import Cell
from robustcmp.report.progress import _Lines, _LiveTable
from robustcmp.runs.progress import Progress, Unseen


class Told(Unseen):
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.queries: dict[str, int] = {}
        self.expected: dict[Cell, int] = {}

    def begin(self, what: str, steps: int) -> None:
        self.events.append((what, steps))

    def step(self) -> None:
        self.events.append(("step",))

    def begin_attacks(self, cells: Mapping[Cell, int]) -> None:
        self.expected = dict(cells)

    def count(self, attack: str, queries: int) -> None:
        self.queries[attack] = self.queries.get(attack, 0) + queries

    def finish(self, cell: Cell, success: NDArray[np.bool_]) -> None:
        self.events.append((cell.attack, cell.model, cell.repeat, int(success.sum())))

    def end(self) -> None:
        self.events.append(("end",))


@pytest.fixture
def asked(zoo_model: Callable[..., Model], digits: Dataset, tmp_path: Path) -> dict[str, Any]:
    suite = tmp_path / "two.toml"
    suite.write_text(
        'images = 6\nrepeats = 2\n[attacks.pixel]\nattack = "SinglePixel"\nmax_pixels = 20\n'
        '[attacks.fgsm]\nattack = "FGSM"\nepsilons = 3\n',
        encoding="utf-8",
    )
    models = {name: zoo_model(name, "lenet1") for name in ("torch", "jax")}
    return {"models": models, "images": digits.images, "labels": digits.labels, "suite": suite, "batch_size": 32}


def test_it_is_told_of_every_step_cell_and_query(asked: dict[str, Any], tmp_path: Path) -> None:
    told = Told()
    assert isinstance(told, Progress)
    assert isinstance(Unseen(), Progress)
    ev = rc.evaluate(**asked, out=tmp_path / "run", progress=told)
    preparing = [
        ("loading models", 2),
        ("step",),
        ("step",),
        ("compiling and checking models", 2),
        ("step",),
        ("step",),
    ]
    assert told.events[:6] == preparing
    cells = [("fgsm", "torch", 0), ("fgsm", "jax", 0)]  # the cheapest attack first, over all models
    cells += [("pixel", model, repeat) for model in ("torch", "jax") for repeat in (0, 1)]
    success = ev.dataset.success
    fell = [int(success.sel(model=m, attack=a, repeat=r, training_seed=0).sum()) for a, m, r in cells]
    assert told.events[6] == ("attacks on 6 images that every model classifies correctly", 0)
    assert told.events[7:-1] == [(*cell, count) for cell, count in zip(cells, fell, strict=True)]
    assert told.events[-1] == ("end",)
    assert set(told.expected.values()) == {6 * 3, 6 * 2 * 20}
    assert told.queries["fgsm"] >= int(ev.dataset.queries.sel(attack="fgsm", repeat=0).sum())

    again = Told()
    rc.evaluate(**asked, out=tmp_path / "run", progress=again)
    assert again.queries == {}
    assert set(again.expected.values()) == {0}
    assert sorted(again.events[7:-1]) == sorted(told.events[7:-1])


def cells(trainings: int = 3) -> dict[Cell, int]:
    return {
        Cell(model, seed, attack, 0, f"{model}{seed}{attack}"): queries
        for attack, queries in (("quick", 100), ("slow", 1000))
        for model in ("a", "b")
        for seed in range(trainings)
    }


def begin(expected: dict[Cell, int]) -> _Lines:
    lines = _Lines()
    lines.begin_attacks(expected)
    return lines


def test_the_time_left_follows_what_was_really_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks take half of what is usual here, a query a hundredth of a second."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    tallies = begin(cells())
    assert tallies.seconds_left is None
    for cell, queries in cells().items():
        if cell.attack == "slow":
            continue
        now[0] += queries / 2 / 100
        tallies.count(cell.attack, queries // 2)
        tallies.finish(cell, np.array([True, False]))
    assert tallies.seconds_left == pytest.approx(6 * 1000 / 100)  # of the other attack nothing is known yet
    slow = [cell for cell in cells() if cell.attack == "slow"]
    now[0] += 500 / 100
    tallies.count("slow", 500)
    tallies.finish(slow[0], np.array([True, True]))
    assert tallies.seconds_left == pytest.approx(5 * 500 / 100)
    for cell in slow[1:]:
        tallies.finish(cell, np.array([True, True]))
    assert tallies.seconds_left == 0


def test_lines_say_an_attack_when_all_its_models_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _Lines()
    lines.begin("loading models", 6)
    lines.begin_attacks(cells())
    rng = np.random.default_rng(0)
    for cell in cells():
        lines.count(cell.attack, 10)
        lines.finish(cell, rng.random(50) < 0.5)
    lines.end()
    first, quick, slow = capsys.readouterr().err.splitlines()
    assert first == "loading models: 6"
    assert re.fullmatch(r"quick: a [\d.]+ %, b [\d.]+ %; about .* left for the attacks", quick)
    assert slow.startswith("slow: a ")


def test_the_table_fills_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    screen = io.StringIO()
    table = _LiveTable()
    try:
        console = Console(file=screen, width=80, force_terminal=False)
        console.print(table._draw())
        table.begin("attacks on 6 images", 0)
        console.print(table._draw())
        table.begin("loading models", 6)
        table.step()
        console.print(table._draw())
        table.begin_attacks(cells())
        for cell in list(cells())[:4]:
            table.count(cell.attack, 10)
            table.finish(cell, np.array([True, False, False, False]))
        console.print(table._draw())
        table.end()
        table.begin("health checks", 6)
        console.print(table._draw())
    finally:
        table.end()
    text = screen.getvalue()
    assert text.count("25.0 % (3)") == 2  # while health checks run, too
    assert "health checks: 0 of 6" in text
    assert "attacks on 6 images · " in text
    assert "0 of 0" not in text
    assert "loading models: 1 of 6" in text
    assert "25.0 % (3)" in text
    assert "25.0 % (1)" in text
    assert "quick: 4 of 6" in text


def test_a_command_is_told_as_it_works_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within make, ``python`` is not the interpreter that runs."""
    monkeypatch.setenv("PATH", "/nowhere")
    python, command = _format_command("robustcmp.eval", ["--out", "a b"]).rsplit(" -m ", 1)
    assert command == "robustcmp.eval --out 'a b'"
    assert Path(python).is_absolute() or (Path.cwd() / python).exists()
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert _format_command("robustcmp.eval", []) == "python -m robustcmp.eval"


def test_log_lines_of_libraries_do_not_reach_the_screen_and_last_words_do() -> None:
    code = """
import os, sys
from robustcmp.cli.screen import drop_log_lines
with drop_log_lines():
    os.write(2, b"I0000 00:00:1795466579.336773    3933 port.cc:153] oneDNN custom operations are on.\\n")
    print("of Python", file=sys.stderr)
    os.write(2, b"F0000 00:00:1795466579.336773    3933 port.cc:153] Check failed\\n" + b"x" * 200_000 + b"\\n")
    os.abort()
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.returncode < 0
    assert "oneDNN" not in said.stderr
    for line in ("of Python", "Check failed", "x" * 200_000):
        assert line in said.stderr


def test_a_command_works_where_standard_error_is_closed() -> None:
    command = f"{sys.executable} -m robustcmp.eval --model lenet1 --dataset mars 2>&-"
    assert subprocess.run(command, shell=True, capture_output=True).returncode == 2
