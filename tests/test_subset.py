"""The common subset: the images that all models classify correctly, chosen by the image and not by its place."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any

import foolbox as fb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError
from robustcmp.models.model import Model

CLASSES = 5
N = 60
LABELS = np.random.default_rng(1).integers(0, CLASSES, N)
# Image i holds i/N in its first pixel, so a planted model knows which one it sees; the rest is noise.
IMAGES = np.random.default_rng(2).random((N, 4, 4, 1), np.float32)
IMAGES[:, 0, 0, 0] = np.arange(N) / N


def knows(wrong: Sequence[int] = ()) -> fb.NumPyModel:
    """A model that is right on all images but some."""
    mistaken = np.isin(np.arange(N), list(wrong))

    def logits(x: NDArray[Any]) -> NDArray[np.float32]:
        which = np.rint(x[:, 0, 0, 0] * N).astype(int)
        return np.eye(CLASSES, dtype=np.float32)[(LABELS[which] + mistaken[which]) % CLASSES] * 5 - 1

    return fb.NumPyModel(logits, bounds=(0, 1))


def test_only_what_every_model_classifies_correctly() -> None:
    models = {"a": knows([3, 7]), "b": [knows([7, 8]), knows([59])], "c": (knows([0]),)}
    indices = rc.common_subset(models, IMAGES, LABELS)
    assert indices.tolist() == sorted(set(range(N)) - {0, 3, 7, 8, 59})


def test_none_that_all_classify_correctly() -> None:
    indices = rc.common_subset({"a": knows(range(30)), "b": knows(range(30, N))}, IMAGES, LABELS, n=4)
    assert indices.shape == (0,)
    assert indices.dtype == np.int64


@given(st.integers(1, N - 1), st.integers(-(2**63), 2**63 - 1))
@settings(deadline=None)
def test_fewer_images_are_a_part_of_more(n: int, seed: int) -> None:
    models = {"a": knows([4])}
    fewer, more = (rc.common_subset(models, IMAGES, LABELS, n=count, seed=seed) for count in (n, n + 1))
    assert set(fewer) <= set(more)


@given(st.permutations(range(N)), st.integers(1, N))
@settings(deadline=None, max_examples=50)
def test_the_order_of_the_images_is_nothing(order: list[int], n: int) -> None:
    models = {"a": knows([4]), "b": knows([40])}
    straight = rc.common_subset(models, IMAGES, LABELS, n=n)
    permuted = rc.common_subset(models, IMAGES[order], LABELS[order], n=n)
    assert sorted(order[i] for i in permuted) == straight.tolist()


@given(st.sets(st.integers(0, N - 1), min_size=1), st.integers(1, N))
@settings(deadline=None, max_examples=50)
def test_the_other_images_are_nothing(kept: set[int], n: int) -> None:
    # Whatever is chosen of all images is chosen of a part that holds it.
    part = np.array(sorted(kept))
    whole = rc.common_subset({"a": knows()}, IMAGES, LABELS, n=n)
    of_part = part[rc.common_subset({"a": knows()}, IMAGES[part], LABELS[part], n=n)]
    assert set(whole) & kept <= set(of_part)
    if set(whole) <= kept:
        assert of_part.tolist() == whole.tolist()


@pytest.mark.parametrize("seed", [0, 1, -5])
def test_the_ranks_are_a_keyed_hash_of_the_image(seed: int) -> None:
    # Stored runs rest on it: another rank is another subset for everyone.
    key = b"robustcmpsubset" + struct.pack("<q", seed)
    hashes = [hashlib.blake2b(key + image.astype("<f4").tobytes(), digest_size=16).digest() for image in IMAGES]
    expected = sorted(sorted(range(N), key=hashes.__getitem__)[:9])
    assert rc.common_subset({"a": knows()}, IMAGES, LABELS, n=9, seed=seed).tolist() == expected


def test_on_trained_models(digits: Dataset, zoo_model: Callable[..., Model]) -> None:
    models = {"torch": [zoo_model("torch"), zoo_model("torch", "lenet1")], "jax": zoo_model("jax")}
    indices = rc.common_subset(models, digits.images, digits.labels)
    answers = [rc.predict(model, digits.images) for model in (*models["torch"], models["jax"])]
    right = np.logical_and.reduce([answer == digits.labels for answer in answers])
    assert 400 < len(indices) < 500
    np.testing.assert_array_equal(indices, np.flatnonzero(right))


# errors


def test_evaluate_says_when_there_is_none() -> None:
    models = {"a": knows(range(30)), "b": knows(range(30, N))}
    with pytest.raises(ModelError, match=r"no image is classified correctly by all.*a: 50\.0%, b: 50\.0%"):
        rc.evaluate(models, IMAGES, LABELS, suite="boundary-long", n=4, batch_size=8, progress=False)
