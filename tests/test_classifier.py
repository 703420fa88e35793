"""Asking fast: compiled snapshots, several threads, and batches that fit."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import foolbox as fb
import numpy as np
import pytest
from conftest import Slow
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM, Attack, Boundary, SinglePixel
from robustcmp.attacks.foolbox import FoolboxAttack
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError
from robustcmp.frameworks import TrainableFramework
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model

Zoo = Callable[..., Model]
ATTACKS: list[Attack] = [FGSM(), SinglePixel(max_pixels=40), Boundary(iterations=20, max_directions=2)]
# Every attack on one framework, and on the others the attack that asks for logits and for gradients.
PAIRS = [*(("torch", attack) for attack in ATTACKS), ("tensorflow", FGSM()), ("jax", FGSM())]
on_each = pytest.mark.parametrize(
    ("framework", "attack"),
    PAIRS,
    ids=[f"{name}-{type(attack).__name__}" for name, attack in PAIRS],
    indirect=["framework"],
)


def numpy_model(logits: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> Any:
    return fb.NumPyModel(logits, bounds=(0, 1), data_format="channels_last")


def two_classes(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.stack([x.sum(axis=(1, 2, 3)), 200 - x.sum(axis=(1, 2, 3))], axis=1)


@pytest.mark.needs("compiles")
def test_compiled_answers_are_those_of_the_model(
    framework: TrainableFramework, zoo_model: Zoo, digits: Dataset
) -> None:
    eager = Classifier(zoo_model(framework, "lenet1"), 64)
    compiled = eager.compile(digits.images)
    assert compiled is not eager
    for n in (1, 64, 100):
        x = digits.images[:n]
        np.testing.assert_allclose(compiled.logits(x), eager.logits(x), rtol=1e-5, atol=1e-5)
        v = np.random.default_rng(0).normal(size=(n, 10)).astype(np.float32)
        expected = eager.vjp(x, v)
        np.testing.assert_allclose(compiled.vjp(x, v), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.needs("compiles")
def test_many_models_are_compiled_without_a_warning(
    framework: TrainableFramework, zoo_model: Zoo, digits: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    x = digits.images[:2]
    for _ in range(6):
        Classifier(zoo_model(framework)).compile(x).vjp(x, np.ones((2, 10), np.float32))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@on_each
def test_workers_change_no_outcome(
    framework: TrainableFramework,
    zoo_model: Zoo,
    digits: Dataset,
    attack: Attack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    several = Classifier(zoo_model(framework)).compile(digits.images)
    assert several.workers == 3
    one = Classifier(zoo_model(framework)).compile(digits.images)
    one.workers = 1
    x, y = digits.images[:12], digits.labels[:12]
    for a, b in zip(attack.outcomes(several, x, y, 3, range(2)), attack.outcomes(one, x, y, 3, range(2)), strict=True):
        same = (a.success == b.success) & (a.queries == b.queries) & (a.adversarial_class == b.adversarial_class)
        assert (~same).sum() <= 1
        np.testing.assert_allclose(a.adversarials[same], b.adversarials[same], atol=1e-4)


@on_each
def test_where_candidates_are_made_changes_no_outcome(
    framework: TrainableFramework, zoo_model: Zoo, digits: Dataset, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = Classifier(zoo_model(framework), 6)
    results = []
    for there in (True, False):
        made = []
        monkeypatch.setattr(type(framework), "fill_size", lambda self, n: n + 3)
        make = type(framework).maker
        monkeypatch.setattr(type(framework), "is_on_gpu", lambda self, like, there=there: there)
        monkeypatch.setattr(type(framework), "maker", lambda *its, make=make, made=made: made.append(1) or make(*its))
        results.append(next(iter(attack.outcomes(classifier, digits.images[:4], digits.labels[:4], 3, [0]))))
        assert bool(made) == there
        monkeypatch.undo()
    a, b = (vars(result) | result.extras for result in results)
    for name in a.keys() - {"extras"}:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: type(attack).__name__)
def test_attacks_on_a_gpu_find_what_they_find_on_a_cpu(
    framework: TrainableFramework, zoo_model: Zoo, digits: Dataset, attack: Attack
) -> None:
    x, y = digits.images[:40], digits.labels[:40]
    a, b = (attack.attack(zoo_model(framework, device=device), x, y, seed=3) for device in ("cuda", "cpu"))
    same = (a.success == b.success) & (a.queries == b.queries) & (a.adversarial_class == b.adversarial_class)
    assert (~same).sum() <= 0.05 * len(x)
    np.testing.assert_allclose(a.adversarials[same], b.adversarials[same], atol=1e-4)


def test_threads_of_the_caller_are_left_as_they_were(
    zoo_model: Zoo, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = torch.get_num_threads()
    classifier = Classifier(zoo_model("torch")).compile(digits.images)
    inside = list(classifier.map(lambda one, _: torch.get_num_threads(), range(4)))
    assert inside == [1] * 4
    assert torch.get_num_threads() == before


def test_a_model_that_cannot_be_traced_is_asked_as_it_is(digits: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    import torch

    class Brighter(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pixels = x.flatten(1)[:, :10]
            return pixels if pixels.mean() > 0.5 else -pixels  # depends on the values: no trace can hold it

    caplog.set_level(logging.INFO, "robustcmp")
    classifier = Classifier(rc.wrap(Brighter().eval(), device="cpu"))
    compiled = classifier.compile(digits.images)
    assert compiled.workers == 1
    assert "runs without compilation: ModelError: its trace may be valid only for these images" in caplog.text
    np.testing.assert_array_equal(compiled.logits(digits.images[:9]), classifier.logits(digits.images[:9]))


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("dict", "a call writes into the network's own arrays"),
        ("list", "a call writes into the network's own arrays"),
        ("hook", "it has forward hooks"),
    ],
)
def test_a_model_that_keeps_features_is_asked_one_call_after_another(
    digits: Dataset, caplog: pytest.LogCaptureFixture, kept: str, said: str
) -> None:
    import torch

    elsewhere: dict[str, Any] = {}

    class Keeping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(784, 30), torch.nn.Linear(30, 10)
            self.kept: Any = {"features": {}} if kept == "dict" else []
            if kept == "hook":
                self.first.register_forward_hook(lambda module, x, features: elsewhere.update(features=features))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            features = self.first(x.flatten(1))
            if kept == "dict":
                self.kept["features"]["first"] = features
            elif kept == "list":
                self.kept[:] = [features]
            return self.last(torch.relu(elsewhere["features"] if kept == "hook" else features))

    caplog.set_level(logging.INFO, "robustcmp")
    compiled = Classifier(rc.wrap(Keeping().eval(), device="cpu")).compile(digits.images)
    assert compiled.workers == 1
    assert said in caplog.text


def test_out_of_memory_halves_the_batch_and_goes_on(digits: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    sizes = []

    def logits(x: NDArray[np.float32]) -> NDArray[np.float32]:
        sizes.append(len(x))
        if len(x) > 20:
            raise MemoryError
        return two_classes(x)

    caplog.set_level(logging.INFO, "robustcmp")
    classifier = Classifier(numpy_model(logits), 100)
    np.testing.assert_array_equal(classifier.logits(digits.images[:130]), two_classes(digits.images[:130]))
    assert sizes == [100, 50, 25] + [12] * 10 + [10]
    assert "a batch of 100 does not fit into the memory; 50 at once from now on" in caplog.text


def test_frameworks_say_what_out_of_memory_is(framework: TrainableFramework) -> None:
    assert framework.is_out_of_memory(MemoryError())
    assert not framework.is_out_of_memory(ValueError("not enough memory"))
    assert not framework.is_out_of_memory(RuntimeError("shapes differ"))
    if framework.name == "torch":
        assert framework.is_out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    if framework.name == "tensorflow":
        import tensorflow as tf

        assert framework.is_out_of_memory(tf.errors.InternalError(None, None, "Dst tensor is not initialized."))
        assert not framework.is_out_of_memory(tf.errors.InternalError(None, None, "something else"))


def test_an_attack_of_foolbox_halves_its_batch_as_well(
    zoo_model: Zoo, digits: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    network = zoo_model("torch").native

    class Small(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 5:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return network(x)  # type: ignore[no-any-return]

    attack = FoolboxAttack(fb.attacks.LinfFastGradientAttack(), {}, [0.05, 0.1])
    x, y = digits.images[:12], digits.labels[:12]
    caplog.set_level(logging.INFO, "robustcmp")
    received, expected = (
        next(attack.outcomes(Classifier(rc.wrap(its, device="cpu"), 12), x, y, 0, [0]))
        for its in (Small().eval(), network)
    )
    assert "a batch of 6 does not fit into the memory; 3 at once" in caplog.text
    assert expected.success.any()
    np.testing.assert_array_equal(received.success, expected.success)
    np.testing.assert_allclose(received.adversarials, expected.adversarials, atol=1e-6)


@pytest.mark.needs("tensors")
def test_answers_and_gradients_are_asked_exactly(
    framework: TrainableFramework, zoo_model: Zoo, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    full_precision = framework.full_precision

    def watched(like: object) -> object:
        asked.append(like)
        return full_precision(like)

    classifier = Classifier(zoo_model(framework))
    monkeypatch.setattr(framework, "full_precision", watched)
    classifier.logits(digits.images[:2])
    assert len(asked) == 1
    classifier.vjp(digits.images[:2], np.ones((2, 10), np.float32))
    assert len(asked) == 2


@pytest.mark.parametrize(("name", "on", "off"), [("allow_tf32", True, False), ("fp32_precision", "tf32", "ieee")])
def test_torchs_tf32_is_off_until_the_last_thread_has_gone(name: str, on: bool | str, off: bool | str) -> None:
    """In a process of its own, as torch does not forget which of its two APIs was used."""
    code = f"""
import torch
from robustcmp.frameworks.torch import _NoTF32
cudnn = torch.backends.cudnn.conv if "{name}" == "fp32_precision" else torch.backends.cudnn
switches = cudnn, torch.backends.cuda.matmul
for switch in switches:
    switch.{name} = {on!r}
tf32 = _NoTF32()
with tf32:
    with tf32:
        pass
    print([switch.{name} for switch in switches])
print([switch.{name} for switch in switches])
"""
    import torch

    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this torch has none")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str([off, off]), str([on, on])]


@pytest.mark.parametrize("n", [1, 5, 64, 512, 513, 1000, 10_000])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_parts_are_all_images_once_and_equal(n: int, workers: int) -> None:
    classifier = Classifier(numpy_model(two_classes), 256)
    classifier.workers = workers
    parts = classifier.parts(np.zeros((n, 4, 4, 1), np.float32))
    np.testing.assert_array_equal(np.concatenate([np.arange(n)[part] for part in parts]), np.arange(n))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= 256
    assert len(parts) % workers == 0 or n < workers


def test_large_images_have_small_parts_and_batches() -> None:
    asked: list[int] = []

    def count(x: NDArray[np.float32]) -> NDArray[np.float32]:
        asked.append(len(x))
        return two_classes(x)

    x = np.ones((110, 224, 224, 3), np.float32)
    assert len(Classifier(numpy_model(count), 8).parts(x)) == 2  # 64 MiB in float64 are 55 images
    SinglePixel(max_pixels=1).attack(numpy_model(count), x, np.ones(110, np.int64))
    assert max(asked) == 55


@pytest.mark.parametrize(("seconds", "expected"), [(0.2, 259), (0.02, 296)])
def test_a_slow_network_is_asked_little_beside_its_attacks(
    seconds: float, expected: int, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(seconds, monkeypatch)
    x = digits.images[:40]
    y = rc.predict(slow.model, x)
    slow.asked = 0
    given: Any = {"suite": {"fgsm": FGSM()}, "n": 19, "repeats": 1, "executor": "auto", "progress": False}
    ev = rc.evaluate({"slow": slow.model}, x, y, **given)
    assert ev.manifest["batch_sizes"] == {"slow": 32}
    queries = int(ev.dataset.queries.sum())
    attacks = 19 + 3 * 19 + queries + int(ev.dataset.success.sum())
    beside = slow.asked - len(x) - attacks
    assert beside == expected
    assert beside <= max(10 * 32, queries // 20)


def test_another_shape_for_another_batch_is_refused(digits: Dataset) -> None:
    def more_rows(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return two_classes(x)[: max(1, len(x) - 1)]

    with pytest.raises(ModelError, match="should return one row per image for 6 images"):
        Classifier(numpy_model(more_rows)).predict(digits.images[:6])

    def more_classes(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.zeros((len(x), 2 + (len(x) < 4)), np.float32)

    with pytest.raises(ModelError, match="the same number of classes for every batch"):
        Classifier(numpy_model(more_classes), 4).logits(digits.images[:6])

    def fewer_axes(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return two_classes(x) if len(x) == 4 else two_classes(x)[:, 0]

    with pytest.raises(ModelError, match=r"number of classes for every batch, received the shapes \(4, 2\), \(2,\)"):
        Classifier(numpy_model(fewer_axes), 4).predict(digits.images[:6])
    with pytest.raises(ModelError, match=r"should return logits \(1, 2\) for one image"):
        rc.evaluate({"m": numpy_model(more_classes)}, digits.images[:6], digits.labels[:6] % 2, suite="smoke")


def test_a_snapshot_of_jax_in_another_order_is_confirmed_by_the_network_itself(zoo_model: Zoo, digits: Dataset) -> None:
    eager = Classifier(zoo_model("jax", "lenet5"), 64)
    compiled, images = eager.compile(digits.images), digits.images[:64]
    exact = compiled.function.exact  # type: ignore[attr-defined]
    assert exact is not compiled.function
    np.testing.assert_allclose(compiled.logits(images), eager.logits(images), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(compiled.ask(exact, images), eager.forward(images))
    np.testing.assert_array_equal(compiled.confirm(images), eager.predict(images))
