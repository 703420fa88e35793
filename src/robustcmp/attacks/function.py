"""Attacks from elsewhere: a function of the caller's or of another library, whose images are checked here."""

from __future__ import annotations

import hashlib
import inspect
import logging
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .. import frameworks, limits
from ..errors import AttackError, RobustcmpError, UsageError, check_size
from ..frameworks.base import seed_generators
from ..models.batches import default_batch_size
from ..models.classifier import Classifier
from ..records.attack import AttackResult, Norm
from .base import Attack, Images, Labels, Perturbed, distances
from .draws import image_hashes

Takes = Literal["numpy", "torch", "foolbox"]
TOLERANCE = 1e-6  # a value; what float32 rounds in images from 0 to 1 is a tenth of it
LEVELS = 255  # of an image in 8 bits, above 0
OFF_LEVEL = 1e-3  # of a level: float32 rounds an 8-bit value by less
OFFERED = ("epsilon", "norm", "seed", "seeds")  # to a function that has parameters of these names
STORED = (bool, int, float, str, type(None))
PLAIN = (*STORED, bytes)
DEEP = 2  # of attributes: those of an object, and those of the objects that these are


class FunctionAttack(Attack):
    """An attack from elsewhere, as a function ``attack(model, images, labels)`` that returns adversarial images.

    The function gets images that the model classifies correctly; one that the model misclassifies has fallen at
    distance 0. What the function returns is checked: shape, numbers, the range [0, 1], and its distance from the clean
    images. Whether an image fools the model is asked here, whatever the function says or thinks.

    Parameters
    ----------
    function : callable
        The attack, a Python function. What it gets and returns is described under `takes`. If it has parameters named
        ``epsilon`` or ``norm``, it gets this attack's. ``seed`` is an int for each call and ``seeds`` an ndarray of
        int64, shape (N,), with one for each image, a function of (seed, attack, repeat, image).
    epsilon : float or None
        The budget, checked with a tolerance of 1e-6 a value: the largest L2 or L∞ distance of images in [0, 1], or the
        number of pixels for L0. None for an attack that searches for the smallest perturbation.
    norm : {"linf", "l2", "l0"}
        The distance that the budget is in.
    takes : {"numpy", "torch", "foolbox"}
        ``"numpy"``: images (N, H, W, C) float32, labels (N,) int64, and a `robustcmp.models.classifier.Classifier` with
        ``logits(images)``, ``predict(images)`` and ``vjp(images, v)``. ``"torch"``: tensors, images (N, C, H, W), and a
        `torch.nn.Module` that returns logits, with gradients, whatever framework the model is of. ``"foolbox"``:
        tensors of the model's own framework in its own layout, and the Foolbox model. It returns such images.
    needs_gradient : bool, default True
        Whether it needs gradients; then it does not run on models that have none.
    deterministic : bool, default False
        Whether the function draws nothing, so that one repeat stands for all.
    one_by_one : bool, default False
        Whether the function is called with one image at a time, so that no result depends on other images. Else it
        gets up to 256 at once.
    eight_bit : bool, default False
        Whether its images are rounded to 8 bits, towards the clean image, before they are checked. Clean images have to
        be multiples of 1/255.
    packages : sequence of str
        Distributions whose versions belong to the settings, such as ``["torchattacks"]``.
    **parameters : bool, int, float, str, None, or lists of them
        Further arguments of the function. They are stored with the results.

    Raises
    ------
    UsageError
        The function cannot be called like this, an argument is invalid, or a package is not installed.
    AttackError
        While it runs: the function failed, or returned images that cannot be used or are not within the budget.

    Notes
    -----
    The global generators of Python, NumPy, the model's framework and, for ``takes="torch"``, of PyTorch are seeded for
    each call by a function of (seed, attack, repeat, images of the call), and restored afterwards. A generator that a
    function makes and seeds itself cannot be reached: give it a `seed`. A run tells two functions apart by name,
    bytecode, the plain values and arrays that they use, and the attributes of objects that they close over; not by the
    code that they call, nor by attributes more than two levels down.

    Examples
    --------
    >>> import robustcmp as rc
    >>> def darker(model, images, labels, epsilon):
    ...     return np.maximum(images - epsilon, 0)
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> attack = FunctionAttack(darker, epsilon=0.3, needs_gradient=False, deterministic=True)
    >>> result = attack.attack(model, data.images[:50], data.labels[:50])
    >>> bool((result.linf[result.success] <= 0.3 + 1e-6).all())
    True
    """

    takes_misclassified = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        epsilon: float | None,
        norm: Norm = "linf",
        takes: Takes = "numpy",
        needs_gradient: bool = True,
        deterministic: bool = False,
        one_by_one: bool = False,
        eight_bit: bool = False,
        packages: Sequence[str] = (),
        **parameters: Any,
    ):
        for name, value, allowed in (("norm", norm, get_args(Norm)), ("takes", takes, get_args(Takes))):
            if value not in allowed:
                raise UsageError(f"{name} should be one of {', '.join(map(repr, allowed))}, received {value!r}")
        self.function = function
        self.epsilon = None if epsilon is None else check_size("epsilon", epsilon, limits.EPSILON)
        self.norm, self.takes, self.needs_gradient = norm, takes, needs_gradient
        self.deterministic, self.one_by_one, self.eight_bit = deterministic, one_by_one, eight_bit
        self.parameters = parameters
        self._code = _digest(function)
        self._offered = _choose_offered(function, parameters)
        self._versions = {package: _version(package) for package in packages}

    @property
    def name(self) -> str:
        """The function, ``module:function``."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def settings(self) -> dict[str, Any]:
        """What determines its outcomes."""
        given = ("epsilon", "norm", "takes", "needs_gradient", "one_by_one", "eight_bit", "parameters")
        return {name: getattr(self, name) for name in given} | {
            "function": self.name,
            "code": self._code,
            "packages": self._versions,
        }

    @property
    def notes(self) -> list[str]:
        """What its budget was, and what its draws depend on."""
        budget = "any distance counts" if self.epsilon is None else f"budget {self.norm} ≤ {self.epsilon:g}, checked"
        drawn = "an image's draws depend on the images that are attacked with it"
        if self.deterministic:
            drawn = "it is said to draw nothing"
        elif self.one_by_one or "seeds" in self._offered:
            drawn = "an image's draws depend on no other image where they come from what is seeded"
        return [f"an attack from elsewhere, {self.function.__qualname__}: {budget}; {drawn}."]

    def most_queries(self, pixels: int, repeats: int) -> int:
        """Return one query a step: a function does not say how many it takes."""
        steps = self.parameters.get("steps", 1)
        return repeats * (steps if isinstance(steps, int) else 1)

    def not_applicable(self, classifier: Classifier) -> str:
        """Return why the attack cannot run on a model, or "" if it can."""
        if self.takes == "torch" and "torch" not in frameworks.installed():
            return "the attack is one of torch tensors, and torch is not installed."
        return super().not_applicable(classifier)

    def outcomes(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[AttackResult]:
        """Yield the result of each of the repeats, one after another: global generators belong to no thread."""
        result = None
        for repeat in repeats:
            if result is None or not self.deterministic:
                (perturbed,) = self.perturb(classifier, images, labels, seed, [repeat])
                result = self.assess(classifier, images, labels, perturbed)
            yield result

    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        if classifier.bounds != (0.0, 1.0):
            raise UsageError(
                f"attacks from elsewhere take images in [0, 1], and the model's bounds are {classifier.bounds}: "
                "pass model.transform_bounds((0, 1)) and such images"
            )
        n, left = len(images), np.flatnonzero(classifier.predict(images) == labels)
        size = 1 if self.one_by_one else default_batch_size(images)
        size = min(size, classifier.batch_size) if self.takes == "foolbox" else size  # else queries are cut in batches
        for repeat in repeats:
            result = images.copy()
            if len(left):
                attacked = partial(self._attack_part, classifier, seed, repeat)
                parts = classifier.with_batch_size(size).in_batches(attacked, images[left], labels[left], left)
                result[left] = np.concatenate([*parts])
            # All are asked about: whether an image has fallen is not for the function to say.
            yield Perturbed(np.ones(n, np.bool_), result, np.full(n, -1, np.int64))

    def _attack_part(
        self, classifier: Classifier, seed: int, repeat: int, images: Images, labels: Labels, places: NDArray[np.int64]
    ) -> Images:
        """Return what the function makes of images, checked; `places` (N,) are their numbers in messages."""
        drawn_from = {classifier.framework, *([frameworks.get_framework("torch")] if self.takes == "torch" else [])}
        prefix = struct.pack("<qq", seed, repeat) + self.name.encode()
        hashes = [*image_hashes(images, prefix, size=8)]
        seeds = np.array([_number(each) for each in hashes], np.int64)
        number = int(seeds[0]) if len(seeds) == 1 else _number(hashlib.blake2b(b"".join(hashes)).digest())
        values = {"epsilon": self.epsilon, "norm": self.norm, "seed": number, "seeds": seeds}
        offered = {name: values[name] for name in self._offered}
        try:
            with classifier.full_precision(), ExitStack() as generators:
                for framework in drawn_from:
                    generators.enter_context(seed_generators(framework, f"{self.name}:{number}", seed, repeat))
                answer = self._call(classifier, images, labels, offered | self.parameters)
        except RobustcmpError:
            raise
        except Exception as error:
            if classifier.framework.is_out_of_memory(error):
                raise
            raise AttackError(
                f"the attack {self.name} failed on a model of {classifier.framework.name}: {type(error).__name__}: "
                f"{' '.join(str(error).split()) or 'no message'}"
            ) from error
        return self._check(answer, images, places)

    def _call(self, classifier: Classifier, images: Images, labels: Labels, given: Mapping[str, Any]) -> Any:
        """Return what the function answers, as an array (N, H, W, C) if it can be one."""
        adapter, model, x, y = classifier.framework, classifier.model, images.copy(), labels.copy()
        if self.takes == "torch":
            adapter = frameworks.get_framework("torch")
            model = adapter.module_through(classifier.logits, classifier.vjp)
            x, y = adapter.tensor(images.transpose(0, 3, 1, 2), model.on), adapter.tensor(labels, model.on)
        elif self.takes == "foolbox":
            x, y = classifier.tensor(images), classifier.tensor(labels)
        answer = self.function(classifier if self.takes == "numpy" else model, x, y, **given)
        if isinstance(answer, (tuple, list, dict, type(None))):
            raise AttackError(
                f"the attack {self.name} should return its images alone, received {type(answer).__name__}"
            )
        if self.takes == "foolbox":
            return classifier.array(answer)
        array = np.asarray(answer) if self.takes == "numpy" or isinstance(answer, np.ndarray) else adapter.array(answer)
        return array.transpose(0, 2, 3, 1) if self.takes == "torch" and array.ndim == 4 else array

    def _check(self, answer: NDArray[Any], images: Images, places: NDArray[np.int64]) -> Images:
        """Return an answer as images, or raise `AttackError` where they cannot be used or are not within the budget."""
        if answer.shape != images.shape:
            raise AttackError(
                f"the attack {self.name} should return an image for each of those that it gets, {images.shape} as "
                f"(N, H, W, C), received {answer.shape}"
            )
        if answer.dtype.kind != "f":
            raise AttackError(f"the attack {self.name} should return float32 in [0, 1], received dtype {answer.dtype}")
        outside = np.abs(answer - np.clip(answer, 0, 1)).max(axis=(1, 2, 3))
        for place in np.flatnonzero(~(outside <= TOLERANCE))[:1]:  # nor is it NaN
            raise AttackError(
                f"the attack {self.name} left [0, 1] at image {places[place]}, by {outside[place]:.3g}: clip its images"
            )
        found = np.clip(answer, 0, 1).astype(np.float32)
        if self.eight_bit:
            found = self._round(found, images)
        if self.epsilon is not None:
            l0, l2, linf = distances(images, found)
            slack = TOLERANCE * np.sqrt(images[0].size)
            far, most = {"l0": (l0, 0.0), "l2": (l2, slack), "linf": (linf, TOLERANCE)}[self.norm]
            for place in np.flatnonzero(far > self.epsilon + most)[:1]:
                raise AttackError(
                    f"the attack {self.name} left its budget at image {places[place]}: expected {self.norm} ≤ "
                    f"{self.epsilon:g}, received {far[place]:.9g}. Give the function this budget, for images in [0, 1]"
                )
        return np.ascontiguousarray(found)

    def _round(self, found: Images, images: Images) -> Images:
        """Return images at 8-bit values, no farther from the clean ones than they were."""
        clean = images.astype(np.float64) * LEVELS
        if (np.abs(clean - np.rint(clean)) > OFF_LEVEL).any():
            raise UsageError("eight_bit=True needs clean images that are multiples of 1/255, as 8-bit images / 255 are")
        moved = found.astype(np.float64) * LEVELS - np.rint(clean)
        whole = np.trunc(moved + np.copysign(OFF_LEVEL, moved))
        rounded: Images = ((np.rint(clean) + whole) / LEVELS).astype(np.float32)
        return np.where(whole == 0, images, rounded)

    def __repr__(self) -> str:
        return f"FunctionAttack({self.name}, epsilon={self.epsilon}, norm={self.norm!r})"


def _number(digest: bytes) -> int:
    """Return a seed that every generator takes, from 0 to 2³¹ − 1."""
    return int.from_bytes(digest[:4], "little") % 2**31


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise UsageError(f"the package {package!r} is not installed: name it as pip does, or install it") from None


def _choose_offered(function: Callable[..., Any], parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which values of ours a function wants, or raise `UsageError` where it cannot be called."""
    for name, value in parameters.items():
        if not _is_plain(value, STORED):
            raise UsageError(
                f"the parameter {name} should be a finite number, a text, None or a list of these, as it is stored "
                f"with the results; received {type(value).__name__}. Make other objects inside the function."
            )
    signature = inspect.signature(function)
    offered = tuple(name for name in OFFERED if name in signature.parameters)
    try:
        signature.bind("model", "images", "labels", **dict.fromkeys([*offered, *parameters]))
    except TypeError as error:
        raise UsageError(
            f"the attack should be a function of model, images, labels{''.join(f', {name}' for name in parameters)}; "
            f"{function.__qualname__}{signature} cannot be called like this: {error}"
        ) from None
    return offered


def _digest(function: Any) -> str:
    """Return a digest of a function's bytecode and of the plain values that it uses."""
    code = getattr(function, "__code__", None)
    if code is None:
        raise UsageError(
            f"expected a function attack(model, images, labels), received {type(function).__name__}. Write a function "
            "with def that makes and calls it, and pass its arguments here"
        )
    used = {name: function.__globals__.get(name) for name in _names(code)}
    held = _plain((_closed_over(function), function.__defaults__, function.__kwdefaults__), DEEP)
    return hashlib.blake2b(repr((_instructions(code), [*held, _plain(used)])).encode(), digest_size=16).hexdigest()


def _instructions(code: CodeType) -> tuple[Any, ...]:
    return code.co_code, code.co_names, [_constant(each) for each in code.co_consts]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _instructions(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)  # sets have no order


def _names(code: CodeType) -> list[str]:
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return sorted({*code.co_names, *inner})


def _is_plain(value: Any, types: tuple[type, ...]) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each, types) for each in value)
    return isinstance(value, types) and not (isinstance(value, float) and not math.isfinite(value))


def _plain(value: Any, deep: int = 0) -> Any:
    """Return a value by what can be told of it.

    An object of a class of its own is told by the class's name and, `deep` levels down, by its attributes: what a
    function uses of its module has none looked at, as these change while it is used, such as those of a logger.
    """
    if isinstance(value, (list, tuple)):
        return [_plain(each, deep) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each, deep) for name, each in value.items()}
    if (array := _array(value)) is not None:
        return [str(array.dtype), array.shape, hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()]
    if isinstance(value, FunctionType):
        told = [value.__module__, value.__qualname__, _instructions(value.__code__)]
        return [*told, *_plain(_closed_over(value), deep - 1)] if deep else told
    if isinstance(value, partial):
        return _plain((value.func, value.args, value.keywords), deep)
    if isinstance(value, MethodType):
        return _plain((value.__func__, value.__self__), deep)
    if isinstance(value, type):
        return [value.__module__, value.__qualname__]
    if isinstance(value, PLAIN):
        return value
    name = type(value).__qualname__
    attributes = getattr(value, "__dict__", {}) if deep and not isinstance(value, (ModuleType, logging.Logger)) else {}
    return [name, _plain(attributes, deep - 1)] if attributes else name


def _closed_over(function: FunctionType) -> list[Any]:
    try:
        return [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a cell is empty as yet, such as that of a name that is given after the function was made
        return []


def _array(value: Any) -> NDArray[Any] | None:
    """Return an array or a tensor whose values can be had as an array, None for anything else."""
    try:
        # A file or a socket has `detach` as well, and is of no use after it.
        tensor = value.detach().cpu() if hasattr(value, "detach") and hasattr(value, "cpu") else value
        array = np.asarray(tensor.__array__())
    except Exception:  # there is none, or a framework has reasons of its own
        return None
    return None if array.dtype.hasobject else array  # whose bytes are addresses
