"""Attacks from elsewhere: a function of the caller's or of another library, whose images are checked here."""

from __future__ import annotations

import hashlib
import inspect
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .. import frameworks, limits
from ..errors import AttackError, RobustcmpError, UsageError, check_size, in_one_line
from ..files import digest
from ..models.batches import default_batch_size
from ..models.classifier import Classifier
from ..provenance import package_version
from ..records.attack import AttackResult, Norm
from .base import Attack, Images, Labels, Perturbed, distances
from .draws import image_hashes

Takes = Literal["numpy", "torch", "foolbox"]
TOLERANCE = 1e-6  # a value; what float32 rounds in images from 0 to 1 is a tenth of it
OFFERED = ("epsilon", "norm", "seed")  # to a function that has parameters of these names
PLAIN = (bool, int, float, str, bytes, type(None))
NAMED = (type, ModuleType, BuiltinFunctionType)


class FunctionAttack(Attack):
    """An attack from elsewhere, as a function ``attack(model, images, labels)`` that returns adversarial images.

    The function gets images that the model classifies correctly; one that the model misclassifies has fallen at
    distance 0. What the function returns is checked: shape, numbers, the range [0, 1], and its distance from the clean
    images. Whether an image fools the model is asked here, whatever the function says or thinks.

    Parameters
    ----------
    function : callable
        The attack, a Python function. What it gets and returns is described under `takes`. If it has parameters named
        ``epsilon`` or ``norm``, it gets this attack's. ``seed`` is an int for each call, a function of (seed, attack,
        repeat, images of the call).
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
    bytecode, and the plain values, arrays and functions that they use; not by the code that they call. So a function
    may close over nothing else: what else it needs, it makes itself.

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
        packages: Sequence[str] = (),
        **parameters: Any,
    ):
        for name, value, allowed in (("norm", norm, get_args(Norm)), ("takes", takes, get_args(Takes))):
            if value not in allowed:
                raise UsageError(f"{name} should be one of {', '.join(map(repr, allowed))}, received {value!r}")
        self.function = function
        self.epsilon = None if epsilon is None else check_size("epsilon", epsilon, limits.EPSILON)
        self.norm = norm
        self.takes = takes
        self.needs_gradient = needs_gradient
        self.deterministic = deterministic
        self.one_by_one = one_by_one
        self.parameters = parameters
        self._code = _digest_function(function)
        self._offered = _choose_offered(function, parameters)
        self._versions = {package: package_version(package) for package in packages}
        for package, version in self._versions.items():
            if version is None:
                raise UsageError(f"the package {package!r} is not installed: name it as pip does, or install it")

    @property
    def name(self) -> str:
        """The function, ``module:function``."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def settings(self) -> dict[str, Any]:
        """What determines its outcomes."""
        names = ("epsilon", "norm", "takes", "needs_gradient", "one_by_one", "parameters")
        return {name: getattr(self, name) for name in names} | {
            "function": self.name,
            "code": self._code,
            "packages": self._versions,
        }

    @property
    def notes(self) -> list[str]:
        budget = "any distance counts" if self.epsilon is None else f"budget {self.norm} ≤ {self.epsilon:g}, checked"
        return [f"an attack from elsewhere, {self.function.__qualname__}: {budget}."]

    def usual_queries(self, pixels: int, repeats: int) -> int:
        """Return one query a step: a function does not say how many it takes."""
        steps = self.parameters.get("steps", 1)
        return repeats * (steps if isinstance(steps, int) else 1)

    def not_applicable(self, classifier: Classifier) -> str:
        """Return why the attack cannot run on a model, or "" if it can."""
        if self.takes == "torch" and "torch" not in frameworks.list_installed():
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
        generators = {classifier.framework}
        if self.takes == "torch":
            generators.add(frameworks.get_framework("torch"))
        prefix = struct.pack("<qq", seed, repeat) + self.name.encode()
        hashes = b"".join(image_hashes(images, prefix, size=8))
        number = int.from_bytes(hashlib.blake2b(hashes).digest()[:4], "little") % 2**31  # every generator takes it
        values = {"epsilon": self.epsilon, "norm": self.norm, "seed": number}
        offered = {name: values[name] for name in self._offered}
        try:
            with classifier.full_precision(), ExitStack() as seeded:
                for framework in generators:
                    seeded.enter_context(framework.fork_generators(f"{self.name}:{number}", seed, repeat))
                answer = self._call(classifier, images, labels, offered | self.parameters)
        except RobustcmpError:
            raise
        except Exception as error:
            if classifier.framework.is_out_of_memory(error):
                raise
            raise AttackError(
                f"the attack {self.name} failed on a model of {classifier.framework.name}: {type(error).__name__}: "
                f"{in_one_line(error) or 'no message'}"
            ) from error
        return self._check(answer, images, places)

    def _call(self, classifier: Classifier, images: Images, labels: Labels, given: Mapping[str, Any]) -> Any:
        """Return what the function answers, as an array (N, H, W, C) if it can be one."""
        adapter: Any = classifier.framework
        model, x, y = classifier.model, images.copy(), labels.copy()
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
        if answer.shape != images.shape or answer.dtype.kind != "f":
            raise AttackError(
                f"the attack {self.name} should return float32 in [0, 1], an image for each of those that it gets, "
                f"{images.shape} as (N, H, W, C), received {answer.dtype} {answer.shape}"
            )
        outside = np.abs(answer - np.clip(answer, 0, 1)).max(axis=(1, 2, 3))
        for row in np.flatnonzero(~(outside <= TOLERANCE))[:1]:  # nor is it NaN
            raise AttackError(
                f"the attack {self.name} left [0, 1] at image {places[row]}, by {outside[row]:.3g}: clip its images"
            )
        perturbed = np.ascontiguousarray(np.clip(answer, 0, 1), np.float32)
        if self.epsilon is not None:
            l0, l2, linf = distances(images, perturbed)
            slack = {"l0": 0.0, "l2": TOLERANCE * np.sqrt(images[0].size), "linf": TOLERANCE}[self.norm]
            far = {"l0": l0, "l2": l2, "linf": linf}[self.norm]
            for row in np.flatnonzero(far > self.epsilon + slack)[:1]:
                raise AttackError(
                    f"the attack {self.name} left its budget at image {places[row]}: expected {self.norm} ≤ "
                    f"{self.epsilon:g}, received {far[row]:.9g}. Give the function this budget, for images in [0, 1]"
                )
        return perturbed


def _choose_offered(function: Callable[..., Any], parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which values of ours a function wants, or raise `UsageError` where it cannot be called."""
    try:
        json.dumps(parameters, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"parameters should be finite numbers, text, None or lists of these, as they are stored with the results: "
            f"{error}. Make other objects inside the function."
        ) from None
    signature = inspect.signature(function)
    offered = tuple(name for name in OFFERED if name in signature.parameters)
    try:
        signature.bind("model", "images", "labels", **dict.fromkeys([*offered, *parameters]))
    except TypeError as error:
        raise UsageError(
            f"the attack should be a function of {', '.join(['model', 'images', 'labels', *parameters])}; "
            f"{function.__qualname__}{signature} cannot be called like this: {error}"
        ) from None
    return offered


def _digest_function(function: Any) -> str:
    """Return a digest of a function's bytecode, and of the values that it uses."""
    if not isinstance(function, FunctionType):
        raise UsageError(
            f"expected a function attack(model, images, labels), received {type(function).__name__}. Write a function "
            "with def that makes and calls it, and pass its arguments here"
        )
    used = [_describe_global(function.__globals__.get(name)) for name in _list_names(function.__code__)]
    content = [_describe_function(function), used]
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()


def _describe_global(value: Any) -> Any:
    try:
        return _describe(value)
    except UsageError:  # of what a module holds, such as a logger, no more is told
        return type(value).__qualname__


def _describe_function(function: FunctionType) -> list[Any]:
    values = [cell.cell_contents for cell in function.__closure__ or () if cell.cell_contents is not function]
    values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [function.__module__, function.__qualname__, _list_instructions(function.__code__), _describe(values)]


def _describe(value: Any) -> Any:
    """Return a value that a function uses by what does not differ between processes."""
    if isinstance(value, list | tuple):
        return [_describe(item) for item in value]
    if isinstance(value, np.ndarray):
        return digest({"array": value})
    if isinstance(value, FunctionType):
        return _describe_function(value)
    if isinstance(value, NAMED):
        return value.__name__
    if isinstance(value, PLAIN):
        return value
    raise UsageError(
        f"an attack should close over numbers, text, arrays or functions, by which a run tells it from others; "
        f"received {type(value).__name__}. Make it inside the function, from parameters that you pass here"
    )


def _list_instructions(code: CodeType) -> list[Any]:
    return [code.co_code, code.co_names, [_describe_constant(constant) for constant in code.co_consts]]


def _describe_constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _list_instructions(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)  # sets have no order


def _list_names(code: CodeType) -> list[str]:
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _list_names(constant)]
    return sorted({*code.co_names, *inner})
