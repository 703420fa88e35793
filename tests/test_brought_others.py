"""Models that are no networks, or are not here: of scikit-learn, XGBoost, LightGBM, and behind a REST endpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brought import beside
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.errors import ModelError
from robustcmp.models.model import Model

GROUP = "Other models"
SUITE = """
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 5
[attacks.walk]
attack = "Boundary"
iterations = 3
"""
Compare = Callable[[Model], rc.Evaluation]


@pytest.fixture(scope="module")
def small() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Digits of 7 × 7 pixels to fit and to attack."""
    parts = [rc.load_dataset("digits", split=split) for split in ("train", "test")]
    train, test = (np.ascontiguousarray(data.images[:, 2::4, 2::4]) for data in parts)
    return train, parts[0].labels, test, parts[1].labels


@pytest.fixture
def compare(small: Any, tmp_path: Path) -> Compare:
    """Compare a model with a linear one; it has to be right about most images, and some have to fall."""
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE)
    _, _, images, labels = small
    linear = beside(images[:40], labels[:40], 10)

    def compared(model: Model) -> rc.Evaluation:
        assert (rc.predict(model, images) == labels).mean() > 0.8
        models = {"brought": model, "beside": linear}
        ev = rc.evaluate(models, images[:40], labels[:40], suite=suite, n=4, repeats=1, progress=False)
        assert (ev.success_rate.sel(attack="walk") > 0).all()
        return ev

    return compared


def flat(images: NDArray[np.float32]) -> NDArray[np.float32]:
    return images.reshape(len(images), -1)


def pipeline(images: NDArray[np.float32], labels: NDArray[np.int64]) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(images, labels).predict_proba


def boosted(images: NDArray[np.float32], labels: NDArray[np.int64]) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(images, labels).predict_proba


def xgboost(images: NDArray[np.float32], labels: NDArray[np.int64]) -> Any:
    classifier = pytest.importorskip("xgboost").XGBClassifier(n_estimators=20, n_jobs=1)
    return classifier.fit(images, labels).predict_proba


def lightgbm(images: NDArray[np.float32], labels: NDArray[np.int64]) -> Any:
    package = pytest.importorskip("lightgbm")
    settings = {"objective": "multiclass", "num_class": 10, "num_threads": 1, "verbose": -1}
    return package.train(settings, package.Dataset(images, labels), 20).predict


FITTED = {
    "a pipeline of scikit-learn, with scaling inside": pipeline,
    "boosted trees of scikit-learn": boosted,
    "XGBoost": xgboost,
    "LightGBM": lightgbm,
}
TYPED = 'rc.wrap_functions(logits=lambda x: fitted.predict_proba(x.reshape(len(x), -1)), outputs="probabilities")'
NO_GRADIENT = "a comparison; gradient attacks are not applicable"


@pytest.mark.parametrize(
    "fit",
    [
        pytest.param(
            fit,
            marks=pytest.mark.brought(
                group=GROUP,
                what=what,
                typed=TYPED.replace("predict_proba", "predict") if fit is lightgbm else TYPED,
                got=NO_GRADIENT,
            ),
        )
        for what, fit in FITTED.items()
    ],
)
def test_a_classifier_that_is_no_network(fit: Callable[..., Any], small: Any, compare: Compare) -> None:
    probabilities = fit(flat(small[0]), small[1])
    compare(rc.wrap_functions(logits=lambda x: probabilities(flat(x)), outputs="probabilities"))


@pytest.mark.brought(
    group=GROUP,
    what="two classes of scikit-learn, by a decision function",
    typed='rc.wrap_functions(logits=lambda x: svm.decision_function(x.reshape(len(x), -1)), outputs="binary-logit")',
)
def test_two_classes(small: Any) -> None:
    from sklearn.svm import SVC

    train, of_train, images, labels = small
    svm = SVC().fit(flat(train), of_train > 4)
    model = rc.wrap_functions(logits=lambda x: svm.decision_function(flat(x)), outputs="binary-logit")
    np.testing.assert_array_equal(rc.predict(model, images), svm.predict(flat(images)))
    ev = rc.evaluate({"a": model}, images, (labels > 4).astype(int), suite="smoke", n=3, repeats=1, progress=False)
    assert "finite-differences" in ev.results.not_applicable["a"]["fgsm"]


@pytest.mark.brought(
    group=GROUP,
    what="a model that answers classes alone",
    typed="rc.wrap_functions(logits=lambda x: fitted.predict(x.reshape(len(x), -1)))",
    got="the message: return (N, K), one row for each image",
)
def test_classes_are_no_logits(small: Any) -> None:
    model = rc.wrap_functions(logits=lambda x: np.arange(len(x)))
    with pytest.raises(ModelError, match=r"logits should return \(N, K\), one row for each of 9 images, received \(9,"):
        rc.predict(model, small[2][:9])
