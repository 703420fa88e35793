"""A run in the formats of other programs: what is written is what the run says."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robustcmp as rc
from robustcmp.attacks import FGSM, Attack, Boundary, SinglePixel
from robustcmp.cli import command
from robustcmp.report.exports import SPECIAL, escape, to_bibtex

RESULTS = Path(__file__).parents[1] / "docs" / "results"
RUNS = ["lenet5-mnist-guo2019", "lenet1-mnist-2018-five-trainings", "resnet20-cifar10-guo2019"]
of_every_run = pytest.mark.parametrize("run", RUNS)


@cache
def opened(run: str = "lenet5-mnist-guo2019") -> rc.Evaluation:
    return rc.open_run(RESULTS / run)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    """A run of today, with names that LaTeX and BibTeX do not take as they are."""
    data = rc.load_dataset("digits")
    model = rc.load_model("lenet1", framework="torch", dataset="digits")
    suite = tmp_path_factory.mktemp("suite") / "quick_one.toml"
    suite.write_text('[attacks.fgsm]\nattack = "FGSM"\nepsilons = 4\n[attacks.l2]\nattack = "L2FastGradientAttack"\n')
    suite.write_text(suite.read_text() + "epsilons = [1.0]\n")
    return rc.evaluate(
        {"a_b & c": model, "d": rc.wrap(model.native, framework="torch")},
        data.images,
        data.labels,
        suite=suite,
        n=5,
        repeats=2,
        batch_size=64,
        progress=False,
        about={"model": "mine", "dataset": "my_own"},
    )


# data frames, CSV


@of_every_run
def test_a_row_a_model_training_and_attack(run: str) -> None:
    ev = opened(run)
    frame = ev.to_dataframe()
    assert len(frame) == len(ev.manifest["models"]) * len(ev.results.attacks)
    assert not frame.duplicated(["model", "training_seed", "attack"]).any()
    for (model, attack), rows in frame.groupby(["model", "attack"]):
        np.testing.assert_allclose(rows.success_rate.mean(), ev.results.rate(model, attack))
    assert (frame.low.isna() | (frame.low <= frame.success_rate)).all()
    assert (frame.high.isna() | (frame.high >= frame.success_rate)).all()


def test_an_attack_that_cannot_run_has_no_rate() -> None:
    data = rc.load_dataset("digits")
    weights = np.random.default_rng(0).standard_normal((784, 10)).astype(np.float32)
    model = rc.wrap_functions(logits=lambda x: x.reshape(len(x), -1) @ weights, bounds=(0, 1))
    ev = rc.evaluate(
        {"m": model}, data.images, data.labels, suite="smoke", n=4, repeats=1, batch_size=64, progress=False
    )
    frame = ev.to_dataframe().set_index("attack")
    assert math.isnan(frame.success_rate["fgsm"])
    assert frame.success_rate["single_pixel"] == ev.results.rate("m", "single_pixel")
    assert "& -- & --" in ev.to_latex()


# LaTeX


def cells(latex: str) -> list[list[str]]:
    """The rows between the rules, cell by cell."""
    body = latex.split("\\midrule\n")[1].split("\\bottomrule")[0]
    return [re.split(r"(?<!\\) & ", row.removesuffix(" \\\\")) for row in body.splitlines()]


@of_every_run
def test_the_table_has_the_rates_and_r(run: str) -> None:
    ev = opened(run)
    latex = ev.to_latex()
    rows = cells(latex)
    assert [row[0] for row in rows] == [escape(model) for model in ev.results.models]
    for model, row in zip(ev.results.models, rows, strict=True):
        assert [float(rate) for rate in row[1:-1:2]] == [
            pytest.approx(100 * ev.results.rate(model, attack), abs=0.051) for attack in ev.results.attacks
        ]
        assert float(row[-1]) == pytest.approx(ev.indicator[model], abs=0.00051)
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", latex)
    assert columns
    assert {len(row) for row in rows} == {len(columns[1])}
    assert latex.count("{") == latex.count("}")


def test_the_caption_says_what_the_intervals_are_over() -> None:
    assert "95\\,\\% intervals are over images." in opened().to_latex()
    several = opened("lenet5-mnist-ten-trainings").to_latex()
    assert "all 30 models classify correctly; 95\\,\\% intervals are over 10 trainings of each framework." in several


def test_special_characters_are_escape(fresh: rc.Evaluation) -> None:
    latex = fresh.to_latex()
    assert cells(latex)[0][0] == r"a\_b \& c"
    assert r"mine on my\_own" in latex
    assert escape("".join(SPECIAL)) == "".join(SPECIAL.values())
    assert r"\label{tab:mine-my_own-quick_one}" in latex


# BibTeX

ENTRY = re.compile(r"@(\w+)\{([\w]+),\n(.*?)\n\}\n", re.DOTALL)


def entries(bibtex: str) -> dict[str, str]:
    """The fields of each entry by its key; what is no entry is a failure."""
    assert ENTRY.sub("", bibtex).strip() == ""
    found = ENTRY.findall(bibtex)
    keys = [key for _, key, _ in found]
    assert len(set(keys)) == len(keys)
    return {key: fields for _, key, fields in found}


@of_every_run
def test_what_a_published_run_used_is_cited(run: str) -> None:
    ev = opened(run)
    cited = entries(to_bibtex(ev.results))
    assert {"robustcmp", "guo2018orchestrated", "rauber2020foolbox"} <= set(cited)
    attacks = {"fgsm": "goodfellow2015explaining", "boundary": "brendel2018decision"}
    for attack, key in attacks.items():
        assert (key in cited) is (attack in ev.results.attacks)
    frameworks = {model.partition("@")[0] for model in ev.results.models}
    for framework, key in {"theano": "theano2016", "jax": "bradbury2018jax"}.items():
        assert (key in cited) is (framework in frameworks)
    assert ("krizhevsky2009learning" in cited) is ("cifar10" in run)
    assert ("lecun1998gradient" in cited) is ("lenet" in run)


@pytest.mark.parametrize("attack", [FGSM(), SinglePixel(), Boundary()], ids=lambda attack: type(attack).__name__)
def test_an_attack_says_what_to_cite_for_it(attack: Attack) -> None:
    assert attack.record.cite == attack.cite
    assert len(entries(attack.cite + "\n")) == 1
    assert "cite" not in attack.record.outcome  # or every stored cell would be another


# the command


def export(*arguments: Any) -> int:
    return command.main(["report", str(RESULTS / "lenet5-mnist-guo2019"), *map(str, arguments)])


def test_the_command_prints_what_the_methods_return(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ev = opened()
    texts = {"csv": ev.to_dataframe().to_csv(index=False), "latex": ev.to_latex(), "bibtex": to_bibtex(ev.results)}
    for name, text in texts.items():
        assert export("--format", name) == 0
        assert capsys.readouterr().out == text
        assert export("--format", name, "--out", tmp_path / name) == 0
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "cvs"], "unknown --format 'cvs': did you mean 'csv'?"),
        (["--out", "/dev/null/x"], "/dev/null/x cannot be written: "),
    ],
)
def test_exports_that_cannot_be(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(*arguments) == 2
    assert said in capsys.readouterr().err


def test_adversarial_images_are_a_data_set(small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(small_run), "--adversarials", str(tmp_path), "--format", "csv"]
    assert command.run_named(["report", *arguments]) == 0
    results = rc.open_run(small_run).results
    data = rc.load_dataset(f"folder:{tmp_path}/left/boundary")
    fooled = results.values("left", "boundary", "success")[0, 0]
    assert len(data.images) == fooled.sum()
    expected = results.adversarials("left", "boundary")[fooled]
    differences = np.abs(np.sort(data.images.reshape(-1)) - np.sort(expected.reshape(-1)))
    assert differences.max() <= 0.5 / 255 + 1e-6
    assert command.run_named(["report", str(RESULTS / "lenet5-digits"), *arguments[1:]]) == 2
    assert "was stored without adversarial images" in capsys.readouterr().err
