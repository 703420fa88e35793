"""Images and labels as arrays: which axis counts channels, and what is refused without an expression that helps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from brought.images import CLASSES, drawn, eight_bit, linear
from PIL import Image

import robustcmp as rc
from robustcmp.data.arrays import check_unit_images
from robustcmp.errors import UsageError


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("shape", [(3, 3, 50), (1, 300, 12), (4, 4, 5)])
def test_a_stated_axis_of_channels_wins(shape: tuple[int, int, int], data_format: Any) -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(int(np.prod(shape)), CLASSES))
    images, labels = rng.random((60, *shape), dtype=np.float32), rng.integers(0, CLASSES, 60)
    correct = ((images.reshape(60, -1) - 0.5) @ weights).argmax(axis=1) == labels
    model = rc.wrap_functions(logits=lambda x: (x.reshape(len(x), -1) - 0.5) @ weights)
    given = images.transpose(0, 3, 1, 2) if data_format == "channels_first" else images

    assert (rc.predict(model, given, data_format=data_format) == labels).mean() == correct.mean()
    subset = rc.common_subset({"m": model}, given, labels, data_format=data_format)
    np.testing.assert_array_equal(subset, np.flatnonzero(correct))
    suite = {"pixel": rc.attacks.SinglePixel(max_pixels=1)}
    options: dict[str, Any] = {"suite": suite, "n": 5, "repeats": 1, "progress": False}
    ev = rc.evaluate({"m": model}, given, labels, data_format=data_format, **options)
    assert ev.manifest["images"]["correct_by_all"] == correct.mean()
    np.testing.assert_array_equal(ev.results.clean, images[ev.dataset.image.values])
    result = suite["pixel"].attack(model, given[subset], labels[subset], data_format=data_format)
    assert result.adversarials.shape == (len(subset), *shape)


def test_an_axis_of_channels_that_is_not_stated() -> None:
    images = np.zeros((2, 4, 4, 5), np.float32)
    with pytest.raises(UsageError, match='images have 4 × 4 pixels and 5 channels, state data_format="channels_last"'):
        rc.predict(linear(), images)
    with pytest.raises(UsageError, match="unknown data_format 'last': Expected one of channels_first, channels_last"):
        rc.predict(linear(), images, data_format="last")  # type: ignore[arg-type]


GIVEN: dict[str, tuple[Callable[[], Any], str]] = {
    "a generator": (lambda: (image for image in drawn()), "received generator. Make an array of it"),
    "a table": (lambda: {"images": 1}, "received dict"),
    "several sizes": (
        lambda: [np.zeros((3, 3, 1)), np.zeros((4, 3, 1))],
        "received a list that NumPy cannot take",
    ),
    "a number": (lambda: 50, "received the number 50. To attack so many of the images, pass n=50"),
    "pictures": (lambda: [Image.fromarray(image) for image in eight_bit()], "images / 255"),
}


@pytest.mark.parametrize("what", GIVEN)
def test_images_that_are_no_array(what: str) -> None:
    make, message = GIVEN[what]
    with pytest.raises(UsageError, match=re.escape(message)):
        check_unit_images(make())
