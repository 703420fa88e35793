"""How many images are asked at once."""

from __future__ import annotations

import math
import time
import timeit
from typing import TYPE_CHECKING

import numpy as np

from ..data.arrays import Images

if TYPE_CHECKING:
    from .classifier import Classifier

DEFAULT_BATCH_SIZE = 256
BATCH_SIZES = (32, 64, 128, 256, 512, 1024)
ROUNDS = 3  # in which batch sizes are measured
SLOW = 2e-3  # seconds an image
FEW = 4  # images of a small batch
# What an attack does for each batch besides asking, however large it is: FGSM on LeNet-5, two threads, took 8 µs more a
# query with batches of 64 than with 256.
OWN_SECONDS = 5e-4
LARGEST_BATCH = 2**26  # bytes of one batch in float64; an attack holds a few such arrays


def default_batch_size(images: Images) -> int:
    """Return how many such images an attack asks at once where nothing was measured."""
    return min(DEFAULT_BATCH_SIZE, largest_batch_size(images))


def largest_batch_size(images: Images) -> int:
    """Return how many such images take 64 MiB in float64."""
    return max(1, LARGEST_BATCH // (8 * math.prod(images.shape[1:])))


def measure_batch_size(classifier: Classifier, images: Images, seconds: float = 0.1) -> int:
    """Return the smallest batch size with which an attack asks nearly as fast as with the best, bounded by memory.

    It is a power of two from 32 to 1024, or smaller for images so large that 32 of them take more than 64 MiB in
    float64. Each size has so many seconds, in a few rounds, of which the best counts: others may be at work on this
    machine. Of a slow network the smallest is taken, as what a call takes by itself is nothing beside its images.
    """
    fitting = largest_batch_size(images)
    sizes = [size for size in BATCH_SIZES if size <= fitting] or [fitting]
    if len(sizes) == 1 or is_slow(classifier, images):
        return sizes[0]
    rates = dict.fromkeys(sizes, 0.0)
    began = time.perf_counter()
    for _ in range(ROUNDS):
        if time.perf_counter() - began > 2 * seconds * len(sizes):
            break
        for size in sizes:
            rate = _time_batches(classifier, images, size, seconds / ROUNDS)
            rates[size] = max(rates[size], 1 / (classifier.workers / rate + OWN_SECONDS / size))
    return min(size for size, rate in rates.items() if rate >= 0.97 * max(rates.values()))


def _image_seconds(classifier: Classifier, images: Images) -> float:
    """Return about how long one more image of a small batch takes, without what a call takes by itself."""
    if classifier.image_seconds is None:

        def least_seconds(size: int) -> float:
            batch = images[np.arange(size) % len(images)]
            return min(timeit.repeat(lambda: classifier.forward(batch), timer=time.perf_counter, number=1, repeat=2))

        # Both sizes were asked before, as new ones may be compiled.
        classifier.image_seconds = max(0.0, least_seconds(FEW) - least_seconds(1)) / (FEW - 1)
    return classifier.image_seconds


def is_slow(classifier: Classifier, images: Images) -> bool:
    """Return whether checks should ask as few images as possible."""
    return _image_seconds(classifier, images) > SLOW


def measure_rate(classifier: Classifier, images: Images, size: int, seconds: float) -> float:
    """Return how many images a second are answered in batches of a size, by all workers, over so many seconds.

    A network of which one batch seems to take longer is asked smaller ones: that it does is a guess from a few images,
    which other programs on the machine can make a hundred times too long.
    """
    guess = classifier.workers * size * _image_seconds(classifier, images)
    if guess > seconds:
        size = max(FEW, int(size * seconds / guess))
    return _time_batches(classifier, images, size, seconds)


def _time_batches(classifier: Classifier, images: Images, size: int, seconds: float) -> float:
    """Return how many images a second are answered in batches of a size, by all workers, measured over some seconds."""
    batch = images[np.arange(size) % len(images)]

    def rate_of(worker: Classifier, _: int) -> float:
        calls = 0
        passed = 0.0
        start = time.perf_counter()
        while passed < seconds:
            worker.logits(batch)
            calls = calls + 1
            passed = time.perf_counter() - start
        return calls * size / passed

    sized = classifier.with_batch_size(size)
    sized.logits(batch)  # the first call may compile; after it, all threads begin together
    return sum(sized.map(rate_of, range(classifier.workers)))
