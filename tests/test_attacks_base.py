"""An attack that no module of the package knows: it is stored, resumed, tabled, tested and drawn all the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM, Attack, SinglePixel
from robustcmp.attacks.base import Perturbed
from robustcmp.attacks.draws import Draws
from robustcmp.attacks.suite import Suite
from robustcmp.data.dataset import Dataset
from robustcmp.errors import AttackError, UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.records.answers import Check, judge
from robustcmp.records.attack import AttackTable, Cell, Column, Extra, PositionDraws
from robustcmp.report.tables import tables
from robustcmp.report.words import notes

matplotlib.use("agg")


class Grey(Attack):
    """Fades an image towards grey with random noise, in so many steps: the first one that fools the model counts."""

    norm = "l2"
    compares_distances = True
    table = AttackTable(
        "how far it had to fade",
        (Column("mean shade", "shade"), Column("fell at once", "shade", "within", 0.1, percent=True)),
    )
    check_names = ("grey fades",)

    def __init__(self, *, steps: int = 4):
        self.steps = steps

    @property
    def extras(self) -> dict[str, Extra]:
        return {"shade": Extra(), "path": Extra(dims=("step",)), "mean_value": Extra(per_repeat=False)}

    @property
    def notes(self) -> list[str]:
        return ["fades towards grey, which no paper has."]

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return repeats * self.steps

    def health_checks(self, name: str, outcomes: Any) -> Iterator[Check]:
        shade = float(outcomes.shade.mean())
        yield judge("grey fades", shade > 0, f"{name}: mean shade {shade:.2f}", "It does not fade.")

    def perturb(
        self, classifier: Classifier, images: Any, labels: Any, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        for repeat in repeats:
            draws = Draws("Grey", seed, [repeat], images)
            noise = np.array([draws.block(row, 0).random(image.shape) for row, image in enumerate(images)])
            fooled, result = np.zeros(len(images), np.bool_), images.copy()
            shade, path = np.ones(len(images)), np.zeros((len(images), self.steps))
            for step in range(1, self.steps + 1):
                share = step / self.steps
                faded = ((1 - share) * images + share * noise).astype(np.float32)
                path[:, step - 1] = classifier.predict(faded) != labels
                new = (path[:, step - 1] == 1) & ~fooled
                result[new], shade[new] = faded[new], share
                fooled |= new
            extras: dict[str, NDArray[Any]] = {"shade": shade, "path": path, "mean_value": images.mean(axis=(1, 2, 3))}
            yield Perturbed(fooled, result, np.full(len(images), self.steps), extras)


@pytest.fixture(scope="module")
def digits_of_two(digits: Dataset) -> dict[str, Any]:
    return {
        "models": {
            "a": rc.load_model("lenet1", framework="torch", dataset="digits", device="cpu"),
            "b": rc.load_model("lenet5", framework="torch", dataset="digits", device="cpu"),
        },
        "images": digits.images,
        "labels": digits.labels,
        "suite": Suite("own", "", 12, 2, {"grey": Grey(), "fgsm": FGSM(epsilons=4)}),
        "progress": False,
        "batch_size": 32,
    }


@pytest.fixture(scope="module")
def ev(digits_of_two: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    pytest.importorskip("torch")
    return rc.evaluate(**digits_of_two, out=tmp_path_factory.mktemp("own") / "run")


def test_its_values_are_stored_as_it_declares_them(ev: rc.Evaluation) -> None:
    data = rc.open_run(ev.results.run.directory).dataset
    assert data.identical(ev.dataset)
    assert data.shade.dims == ("model", "training_seed", "attack", "repeat", "image")
    assert data.path.dims == (*data.shade.dims, "step")
    assert data.mean_value.dims == ("model", "training_seed", "attack", "image")
    grey, fgsm = (data.sel(attack=attack) for attack in ("grey", "fgsm"))
    assert set(np.unique(grey.shade)) <= {0.25, 0.5, 0.75, 1.0}
    assert ((grey.path.sum("step") > 0) == grey.success).all()
    assert fgsm.shade.isnull().all()
    assert fgsm.path.isnull().all()
    assert grey.smallest_epsilon.isnull().all()
    declared = json.loads((ev.results.run.directory / "manifest.json").read_text())["suite"]["attacks"]["grey"]
    assert (declared["class"], declared["settings"], declared["norm"]) == ("Grey", {"steps": 4}, "l2")
    assert set(declared["extras"]) == {"shade", "path", "mean_value"}


def test_a_run_of_it_is_resumed(ev: rc.Evaluation, digits_of_two: dict[str, Any], saved: list[Cell]) -> None:
    gone = ev.results._cell_key("b", "grey", repeat=1)
    (ev.results.run.directory / "cells" / f"{gone}.h5").unlink()
    assert rc.evaluate(**digits_of_two, out=ev.results.run.directory).dataset.identical(ev.dataset)
    assert [cell.key for cell in saved] == [gone]


def test_its_columns_its_tests_and_its_sentence_are_in_the_report(ev: rc.Evaluation) -> None:
    opened = rc.open_run(ev.results.run.directory)
    (table,) = (table for table in tables(opened.results) if table.title == "grey: how far it had to fade")
    assert table.names == ["model", "mean shade", "fell at once"]
    shades = opened.results.values("a", "grey", "shade")
    assert table.rows[0] == ["a", pytest.approx(shades.mean()), pytest.approx((shades <= 0.1).mean())]
    assert "grey: fades towards grey, which no paper has." in notes(opened.results)
    assert set(opened.tests("models").query("attack == 'grey'").test) == {"sign flips", "permutation of models"} | {
        "Friedman of L2",
        "sign test of L2",
    }
    assert "grey" in opened.success_rate.attack


def test_it_checks_its_own_outcomes(ev: rc.Evaluation) -> None:
    checks = ev.run_checks().query("check == 'grey fades'")
    assert list(checks.model) == ["a", "b"]
    assert set(checks.outcome) == {"pass"}


def test_it_is_drawn(ev: rc.Evaluation, tmp_path: Path) -> None:
    axes = rc.open_run(ev.results.run.directory).plot.trainings()
    assert [panel.get_title() for panel in axes] == ["grey: median L2", "fgsm: success, %"]
    drawn = [line.get_ydata() for line in axes[0].get_lines()]
    expected = [np.quantile(ev.results.values(model, "grey", "l2"), 0.5, method="higher") for model in ("a", "b")]
    assert [float(y[0]) for y in drawn] == pytest.approx(expected)
    axes[0].figure.savefig(tmp_path / "trainings.svg")
    assert (tmp_path / "trainings.svg").stat().st_size
    rc.open_run(ev.results.run.directory).to_html(tmp_path / "page.html")
    assert "how far it had to fade" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_two_values_of_one_name_are_refused_before_any_work(digits_of_two: dict[str, Any]) -> None:
    class Clash(Grey):
        @property
        def extras(self) -> dict[str, Extra]:
            return {"smallest_epsilon": Extra(dims=("step",))}

    suite = Suite("own", "", 12, 2, {"fgsm": FGSM(), "clash": Clash()})
    with pytest.raises(UsageError, match=r"clash has an extra value 'smallest_epsilon', a name that .* already uses"):
        rc.evaluate(**digits_of_two | {"suite": suite})


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"extras": {"label": Extra()}}, "an extra value 'label', a name that .* already uses"),
        ({"extras": {"shade": Extra(dims=("image",))}}, "'shade' has the dimensions .*unique names"),
        ({"start": "begun"}, "clash uses the value 'begun', which it does not declare. It declares shade, path"),
        ({"table": AttackTable("x", (Column("x", "depth"),))}, "uses the value 'depth'"),
        ({"norm": None}, "Clash should declare its norm"),
    ],
)
def test_declarations_that_cannot_be_kept_are_refused(
    digits_of_two: dict[str, Any], declared: dict[str, Any], message: str, tmp_path: Path
) -> None:
    clash = type("Clash", (Grey,), {name: value for name, value in declared.items() if value is not None})
    if "norm" in declared:
        clash = type("Clash", (Attack,), {"perturb": Grey.perturb, "usual_queries": Grey.usual_queries})
    suite = Suite("own", "", 12, 2, {"clash": clash()})
    with pytest.raises(UsageError, match=message):
        rc.evaluate(**digits_of_two | {"suite": suite}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_yielded_and_not_declared_is_an_error(digits_of_two: dict[str, Any], digits: Dataset) -> None:
    silent = type("Silent", (Grey,), {"extras": {}, "table": None})()
    with pytest.raises(UsageError, match="Silent declares the extras none, and yields shade, path, mean_value"):
        silent.attack(digits_of_two["models"]["a"], digits.images[:3], digits.labels[:3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda images: [images * np.nan] * 2, r"Made should yield an image within \(0.0, 1.0\).*from nan to nan"),
        (lambda images: [images + 0.5] * 2, r"within \(0.0, 1.0\).*to 1.4"),
        (lambda images: [images[:2]] * 2, r"for each of \(3, 28, 28, 1\), received \(2, 28, 28, 1\)"),
        (lambda images: [images], "each of 2 repeats, received 1"),
    ],
)
def test_images_that_cannot_be_are_an_error(
    make: Callable[[Any], list[Any]], message: str, digits_of_two: dict[str, Any], digits: Dataset
) -> None:
    def perturb(self: Attack, classifier: Classifier, images: Any, *settings: Any) -> Iterator[Perturbed]:
        for made in make(images):
            yield Perturbed(np.ones(len(images), np.bool_), made, np.ones(len(images), np.int64))

    attack = type("Made", (Grey,), {"perturb": perturb, "extras": {}, "table": None})()
    classifier = Classifier(digits_of_two["models"]["a"])
    with pytest.raises(AttackError, match=message):
        list(attack.outcomes(classifier, digits.images[:3], digits.labels[:3], 0, [0, 1]))


def test_another_exact_attack_has_positions_of_its_own(digits_of_two: dict[str, Any]) -> None:
    class Other(SinglePixel):
        """Single pixel, whose extras have other names."""

        @property
        def extras(self) -> dict[str, Extra]:
            return {f"own_{name}": extra for name, extra in super().extras.items()}

        @property
        def position_draws(self) -> PositionDraws:
            return PositionDraws("own_vulnerable_pixels", "own_pixels", "own_vulnerable_map", self.max_pixels)

        def perturb(self, *given: Any) -> Iterator[Perturbed]:
            for result in SinglePixel(max_pixels=self.max_pixels, exact=True).perturb(*given):
                extras = {f"own_{name}": values for name, values in result.extras.items()}
                yield Perturbed(result.fooled, result.images, result.queries, extras)

    suite = Suite(
        "own", "", 6, 2, {"pixel": SinglePixel(max_pixels=40, exact=True), "other": Other(max_pixels=40, exact=True)}
    )
    ev = rc.evaluate(**digits_of_two | {"suite": suite})
    assert ev.exact_pixel.attacks == ["pixel", "other"]
    one, other = (ev.exact_pixel.success_rate.sel(attack=attack).values for attack in ("pixel", "other"))
    np.testing.assert_array_equal(one, other)
    assert str(ev)
