"""Where models come from is one serialisable value, which another process can load."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import robustcmp as rc
from robustcmp.data.dataset import Dataset
from robustcmp.errors import WeightsError
from robustcmp.models.classifier import Classifier
from robustcmp.networks.weights import write_weights
from robustcmp.sources.deployed import Origin
from robustcmp.sources.from_files import FromFile
from robustcmp.sources.from_zoo import FromZoo, zoo_origins
from robustcmp.sources.named_files import file_origins

NAME = FromZoo("lenet1", "digits", "torch")


@pytest.fixture
def saved(tmp_path: Path) -> FromFile:
    pytest.importorskip("torch")
    write_weights(tmp_path / "a.h5", NAME.weights())
    return FromFile(str(tmp_path / "a.h5"), "torch", "lenet1")


def test_an_origin_survives_json_and_loads_the_same_model(saved: FromFile, digits: Dataset) -> None:
    carried = FromZoo("lenet1", "digits", "jax", into="torch")
    for origin in (NAME, carried, saved):
        other = msgspec.json.decode(msgspec.json.encode(origin), type=Origin)
        assert other == origin
        assert other.label == "torch"
        assert other.fingerprint == origin.fingerprint
        logits = [Classifier(each.load("cpu")).logits(digits.images[:4]) for each in (origin, other)]
        np.testing.assert_array_equal(*logits)


def test_models_and_their_origins_are_the_same_comparison(saved: FromFile, digits: Dataset, tmp_path: Path) -> None:
    asked = {"images": digits.images, "labels": digits.labels, "suite": "smoke", "n": 4, "progress": False}
    by_origin = rc.evaluate({"zoo": NAME, "file": [saved]}, **asked, batch_size=32, device="cpu", out=tmp_path / "run")
    models = {"zoo": NAME.load("cpu"), "file": [saved.load("cpu")]}
    by_model = rc.evaluate(models, **asked, batch_size=32)
    assert by_model.dataset.equals(by_origin.dataset)
    assert by_origin.manifest["models"][0]["info"]["source"] == "zoo"


def test_fingerprints_tell_models_apart_before_a_framework_is_loaded(saved: FromFile) -> None:
    [zoo] = zoo_origins("lenet1", dataset="digits", frameworks=["torch"])["torch"]
    assert zoo.fingerprint == {"versions": NAME.fingerprint["versions"], "weights": NAME.weights().sha256}
    assert saved.fingerprint != zoo.fingerprint
    [[code]] = file_origins(["torch=nets:mine"]).values()
    assert code.fingerprint is None
    with pytest.raises(WeightsError, match=r"no weights of lenet1 on digits .*torch: 77"):
        zoo_origins("lenet1", dataset="digits", frameworks=["torch"], seeds=[77])


def test_a_file_that_was_replaced_after_its_check_is_not_loaded(saved: FromFile) -> None:
    saved.check()
    assert saved.sha256
    Path(saved.source).rename(f"{saved.source}.old")
    write_weights(Path(saved.source), FromZoo("lenet1", "digits", "jax").weights())
    with pytest.raises(WeightsError, match=r"a\.h5 changed while it was read"):
        saved.load("cpu")
