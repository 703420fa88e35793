"""Models that are no networks, or are not here: of scikit-learn, XGBoost, LightGBM, and behind a REST endpoint."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from brought import beside
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks.suite import Suite
from robustcmp.errors import ModelError, UsageError
from robustcmp.models import metered as metering

GROUP = "Other models"
SUITE = """
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 5
[attacks.walk]
attack = "Boundary"
iterations = 3
"""
Compare = Callable[[rc.Model], rc.Evaluation]


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

    def compared(model: rc.Model) -> rc.Evaluation:
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


# an endpoint ----------------------------------------------------------------------------------------------------------


class Endpoint(BaseHTTPRequestHandler):
    """Answers logits as JSON, and every third request with 429, too many of them."""

    weights: NDArray[np.float64]
    requests = 0
    images = 0

    def do_POST(self) -> None:
        type(self).requests += 1
        asked = np.array(json.loads(self.rfile.read(int(self.headers["Content-Length"]))), np.float32)
        refused = self.requests % 3 == 0
        self.send_response(429 if refused else 200)
        self.end_headers()
        if not refused:
            type(self).images += len(asked)
            self.wfile.write(json.dumps((flat(asked) @ self.weights).tolist()).encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint(small: Any) -> Iterator[tuple[type[Endpoint], Callable[[NDArray[np.float32]], Any]]]:
    """Return a running endpoint, and a function that asks it."""
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(max_iter=300, fit_intercept=False).fit(flat(small[0]), small[1])
    handler = type("Running", (Endpoint,), {"weights": fitted.coef_.T})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()

    def ask(images: NDArray[np.float32]) -> Any:
        request = Request(f"http://127.0.0.1:{server.server_port}", json.dumps(images.tolist()).encode())
        try:
            with urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except HTTPError as error:
            error.close()
            raise

    yield handler, ask
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.mark.brought(
    group=GROUP,
    what="a REST endpoint with a limit of calls a second, retries, a budget, and no image asked twice",
    typed="rc.wrap_functions(logits=rc.metered(ask, calls_per_second=10, budget=100_000))",
    got=NO_GRADIENT,
)
def test_an_endpoint(endpoint: Any, small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "FIRST_WAIT", 0.01)
    handler, ask = endpoint
    asked = rc.metered(ask)
    models = {"brought": rc.wrap_functions(logits=asked), "beside": beside(small[2][:40], small[3][:40], 10)}
    suite = Suite("pixel", "", 4, 1, {"pixel": rc.attacks.SinglePixel(max_pixels=5)})
    rc.evaluate(models, small[2][:40], small[3][:40], suite=suite, progress=False)
    assert asked.calls == handler.requests  # those that were refused, too
    assert asked.images == handler.images < asked.calls * 32  # nothing was answered twice
    assert handler.requests > 9


def test_what_was_answered_is_not_asked_again(small: Any) -> None:
    images, seen = small[2][:6], []

    def first_pixels(x: NDArray[np.float32]) -> NDArray[np.float32]:
        seen.append(len(x))
        return flat(x)[:, :3]

    asked = rc.metered(first_pixels, at_once=4)
    doubled = np.concatenate([images, images[::-1]])
    np.testing.assert_array_equal(asked(doubled), flat(doubled)[:, :3])
    np.testing.assert_array_equal(asked(images[2:3]), flat(images[2:3])[:, :3])
    assert (seen, asked.images, asked.calls) == ([4, 2], 6, 2)


def test_a_budget_is_kept_to(small: Any) -> None:
    asked = rc.metered(lambda x: flat(x)[:, :3], budget=5)
    asked(small[2][:5])
    asked(small[2][:5])
    with pytest.raises(ModelError, match="the budget of 5 images is used up: 5 were asked, and 1 more are wanted"):
        asked(small[2][:6])


def test_calls_are_apart_and_an_error_that_stays_is_raised(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)

    def fails(x: NDArray[np.float32]) -> Any:
        raise TimeoutError("no answer")

    asked = rc.metered(fails, calls_per_second=0.5, retries=3)
    with pytest.raises(TimeoutError, match="no answer"):
        asked(small[2][:1])
    assert slept == [0, 2, 2, 4]  # calls are two seconds apart; after errors 1, 2 and 4
    assert (asked.calls, asked.images) == (4, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calls_per_second": 0}, "calls_per_second should be above 0, received 0"),
        ({"at_once": 0}, "at_once should be 1 or more, received 0"),
        ({"retries": -1}, "retries should be 0 or more, received -1"),
        ({"budget": 0}, "budget should be 1 or more, received 0"),
    ],
)
def test_numbers_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rc.metered(lambda x: x, **options)
    with pytest.raises(UsageError, match="expected a function of images, received int"):
        rc.metered(3)  # type: ignore[arg-type]
