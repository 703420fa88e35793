"""Models of the zoo, by name: what ships, and what the user has trained."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..data import check_named
from ..errors import MissingWeightsError, UsageError, WeightsError
from ..files import user_cache
from ..frameworks import (
    NAMES,
    NONE_INSTALLED,
    Device,
    check_framework,
    check_name,
    get_framework,
    list_installed,
    require_name,
    versions,
)
from ..networks.architecture import Architecture, get_architecture
from ..networks.weights import Weights, WeightsFile, read_weights
from .recipes import SHIPPED, default_dataset, load_recipe

if TYPE_CHECKING:
    from ..models.model import Model

CHECKPOINT = ".checkpoint.h5"
SOURCES = {"own": "trained here", "zoo": "from the zoo that ships"}


class FromZoo(msgspec.Struct, frozen=True, tag="zoo"):
    """One trained model of the zoo: an architecture, trained on a dataset in a framework by a recipe and a seed.

    Attributes
    ----------
    model, dataset, framework, recipe : str
        For example ``"lenet5"``, ``"mnist"``, ``"torch"``, ``"default"``.
    seed : int
        The training seed.
    into : str, optional
        The framework that this training is carried into, where it is another's than its own, or the control's.

    Examples
    --------
    >>> FromZoo("lenet5", "mnist", "jax", seed=2).file
    'lenet5-mnist-jax-default-2.h5'
    """

    model: str
    dataset: str
    framework: str
    recipe: str = "default"
    seed: int = 0
    into: str | None = None

    @property
    def label(self) -> str:
        """What it is called in a comparison: the framework that it runs in."""
        return self.into or self.framework

    @property
    def file(self) -> str:
        """The name of its weights file."""
        model = get_architecture(self.model).name
        return f"{model}-{self.dataset}-{self.framework}-{self.recipe}-{self.seed}.h5"

    @property
    def fit_arguments(self) -> dict[str, str | int]:
        """What `robustcmp.fit` trains it from."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "into"}

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What tells it from other models, without loading a framework: versions, and the SHA-256 of its weights."""
        return {"versions": versions(self.label), "weights": self.weights().sha256}

    def check(self) -> None:
        """Raise `UsageError` for a model, dataset, framework or seed that cannot be."""
        get_architecture(self.model)
        check_named(self.dataset)
        check_name(self.framework)
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"a training seed should be from 0 to 2**32 - 1, received {self.seed}")

    def weights(self, directory: str | os.PathLike[str] | None = None) -> WeightsFile:
        """Return its weights, as `find_weights` does, or raise `WeightsError` if there are none."""
        content = find_weights(self, directory)
        if content is None:
            raise no_weights([self])
        return content

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that it takes to load it."""
        return (self.framework,) if self.into is None else (self.into, self.framework)

    @property
    def files(self) -> dict[str, Path]:
        """The files that it is loaded from, by what they are; raise `WeightsError` if it has no weights."""
        weights = _find_file(self)
        if weights is None:
            raise no_weights([self])
        return {"weights": weights[1]} | ({"model": Path(self.model)} if self.model.endswith(".toml") else {})

    def load_from(self, files: Mapping[str, Path], device: Device = "auto") -> Model:
        """Load it from copies of its `files`, which have their names."""
        origin = msgspec.structs.replace(self, model=str(files["model"])) if "model" in files else self
        return origin.load(device, files["weights"].parent)

    def load(self, device: Device = "auto", directory: str | os.PathLike[str] | None = None) -> Model:
        """Load it, as `load_model` does."""
        self.check()
        check_framework(self.framework)
        model = make_model(self, self.weights(directory), device)
        return model if self.into is None else same_weights(model, [self.into], device=device)[self.into]


def weights_directory() -> Path:
    """Return the directory in the user cache where `fit` keeps weights."""
    return user_cache() / "weights"


def find_weights(name: FromZoo, directory: str | os.PathLike[str] | None = None) -> WeightsFile | None:
    """Return a model's weights from a directory, the user cache or the zoo that ships, or None.

    The metadata's ``source`` says where they were: ``"own"`` for a directory or the user cache, or ``"zoo"``.

    Raises
    ------
    WeightsError
        The file is broken, or is another model's.
    """
    file = _find_file(name, directory)
    return None if file is None else read_named(file[1], name, file[0])


def _list_directories() -> list[tuple[str, Path]]:
    """Return where weights are, as `SOURCES` calls it, with the directory."""
    return [("own", weights_directory()), ("zoo", Path(str(SHIPPED / "weights")))]


def _find_file(name: FromZoo, directory: str | os.PathLike[str] | None = None) -> tuple[str, Path] | None:
    """Return where a model's weights are first found, as `SOURCES` calls it, with their file."""
    for source, usual in _list_directories():
        path = Path(directory if directory and source == "own" else usual) / name.file
        if path.exists():
            return source, path
    return None


def read_named(path: Path, name: FromZoo, source: str) -> WeightsFile:
    """Read the weights of a model from the file that is named after it; `source` is as `SOURCES` calls it."""
    content = read_weights(path, get_architecture(name.model))
    named = {
        "dataset": name.dataset,
        "framework": name.framework,
        "recipe": name.recipe,
        "training_seed": name.seed,
    }
    for key, expected in named.items():
        if content.metadata.get(key, expected) != expected:
            raise WeightsError(
                f"{path} holds a training with {key} {content.metadata[key]}, but its name says {expected}. "
                "If it was renamed, restore its name; otherwise delete it."
            )
    return _add_source(content, source)


def _add_source(content: WeightsFile, source: str) -> WeightsFile:
    about = {"source": source, "sha256": content.sha256}
    return WeightsFile(content.weights, content.metadata | about, content.curves)


def list_seeds(model: str, dataset: str, framework: str, recipe: str = "default") -> list[int]:
    """Return the training seeds for which there are weights: trained here, or shipped with the zoo.

    Examples
    --------
    >>> list_seeds("resnet20", "cifar10", "jax")
    [0]
    """
    stem, _, _ = FromZoo(model, dataset, framework, recipe).file.rpartition("-")
    files = [file for _, directory in _list_directories() for file in directory.glob(f"{stem}-*.h5")]
    seeds = {file.stem.removeprefix(f"{stem}-") for file in files}
    return sorted(int(seed) for seed in seeds if seed.isdecimal())


def common_seeds(
    model: str, dataset: str, frameworks: Sequence[str] | None = None, recipe: str = "default"
) -> list[int]:
    """Return the training seeds that all frameworks have weights of, [0] where there is none.

    Parameters
    ----------
    model, dataset, recipe : str
        As for `load_model`.
    frameworks : sequence of str, optional
        Every installed one that has weights of any seed if nothing is said.

    Examples
    --------
    >>> common_seeds("lenet5", "mnist", ["torch", "jax"])
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    each = [set(list_seeds(model, dataset, framework, recipe)) for framework in frameworks or list_installed()]
    if frameworks is None:
        each = [seeds for seeds in each if seeds]
    return sorted(set.intersection(*each)) if each and set.intersection(*each) else [0]


def frameworks_with(model: str, dataset: str, recipe: str = "default", seeds: Sequence[int] = (0,)) -> list[str]:
    """Return the installed frameworks for which there are weights of a model with any of the training seeds."""
    return [
        framework
        for framework in list_installed()
        if any(find_weights(FromZoo(model, dataset, framework, recipe, seed)) for seed in seeds)
    ]


def list_trainings() -> list[dict[str, Any]]:
    """Return the metadata of every training that there is, in the user cache or in the zoo that ships.

    ``source`` is as for `find_weights`; of two files with one name it is the one in the user cache.

    Raises
    ------
    WeightsError
        A file is broken.
    """
    metadata: dict[str, dict[str, Any]] = {}
    for source, directory in _list_directories():
        for path in sorted(directory.glob("*.h5")):
            if path.name not in metadata and not path.name.endswith(CHECKPOINT):
                metadata[path.name] = _add_source(read_weights(path), source).metadata
    return list(metadata.values())


def make_model(name: FromZoo, content: WeightsFile, device: Device) -> Model:
    """Return the model that has some weights, in the framework that trained them."""
    return _build(name.framework, get_architecture(name.model), content.weights, device, content.metadata)


def _build(framework: str, architecture: Architecture, weights: Weights, device: Device, info: dict[str, Any]) -> Model:
    from ..models.model import wrap  # it loads Foolbox, which a finished run does without

    adapter = get_framework(framework)
    native = adapter.build(architecture, None, device)
    adapter.set_weights(native, architecture, weights)
    model = wrap(native, framework=framework, device=device, info=info)
    model.architecture = architecture
    return model


def load_model(
    model: str,
    *,
    framework: str | None = None,
    dataset: str | None = None,
    seed: int = 0,
    recipe: str = "default",
    device: Device = "auto",
    directory: str | os.PathLike[str] | None = None,
) -> Model:
    """Load a trained model by name.

    Parameters
    ----------
    model, framework, dataset, recipe : str
        For example ``"lenet5"``, ``"torch"``, ``"mnist"``, ``"default"``. The framework is required. The dataset
        defaults to the first that the recipe names.
    seed : int, default 0
        The training seed.
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    directory : path, optional
        The directory to search first, instead of the user cache: the `out` of `robustcmp.fit`.

    Returns
    -------
    Model
        With bounds (0, 1). ``info["source"]`` says ``"own"`` (trained here) or ``"zoo"`` (shipped).

    Raises
    ------
    UsageError
        A name is unknown or missing, or the framework is not installed.
    WeightsError
        The weights do not exist, or their file is broken.

    Examples
    --------
    >>> load_model("lenet5", framework="torch", dataset="digits")
    <robustcmp.Model lenet5 digits 0 torch, bounds (0, 1)>
    """
    dataset = dataset or default_dataset(model, recipe)
    return FromZoo(model, dataset, require_name(framework), recipe, seed).load(device, directory)


def same_weights(model: Model, frameworks: Sequence[str] | None = None, *, device: Device = "auto") -> dict[str, Model]:
    """Copy one training's weights into several frameworks: the control for the evaluation itself.

    `robustcmp.evaluate` on these models measures how closely they agree, in ``Evaluation.same_weights``. It computes no
    R.

    Parameters
    ----------
    model : Model
        From `load_model` or `fit`.
    frameworks : sequence of str, optional
        The frameworks (default: all that are installed).
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.

    Returns
    -------
    dict of str to Model
        By framework.

    Raises
    ------
    UsageError
        The network is not a model of the zoo, or a framework is unknown or not installed.

    Examples
    --------
    >>> from robustcmp import load_model
    >>> model = load_model("lenet1", framework="torch", dataset="digits")
    >>> same_weights(model, ["torch", "jax"])["jax"]
    <robustcmp.Model lenet1 digits 0 jax, bounds (0, 1)>
    """
    from ..models.model import Model

    if not isinstance(model, Model) or "model" not in model.info:
        raise UsageError(
            "expected a model of the zoo, received another network. Load one with robustcmp.load_model, or train one "
            "with robustcmp.fit."
        )
    described = model.info.get("architecture")
    architecture = msgspec.convert(described, Architecture) if described else get_architecture(model.info["model"])
    weights = get_framework(model.framework).get_weights(model.native, architecture)
    info = {key: value for key, value in model.info.items() if key != "differences"}
    info |= {"same_weights": model.framework}
    names = frameworks or list_installed()
    return {framework: _build(framework, architecture, weights, device, info) for framework in names}


def check_names(
    model: str,
    dataset: str,
    frameworks: Sequence[str] | None,
    seeds: Sequence[int],
    recipe: str = "default",
    weights_of: str | None = None,
) -> None:
    """Raise `UsageError` for a name that is unknown, a framework that is not installed, or what was given twice."""
    for kind, values in (("framework", frameworks or ()), ("training seed", seeds)):
        if len(set(values)) < len(values):
            raise UsageError(f"a {kind} was given twice: {', '.join(map(str, values))}")
    for framework in frameworks or NAMES[:1]:
        for seed in seeds:
            FromZoo(model, dataset, framework, recipe, seed).check()
    for framework in frameworks or ():
        check_framework(framework)
    if weights_of is not None:
        check_framework(weights_of)
    into = frameworks or list_installed()
    if weights_of is not None and len(into) < 2:
        raise UsageError(f"the same-weights control needs at least two frameworks, received {', '.join(into)}")
    load_recipe(model, dataset, recipe)


def zoo_origins(
    model: str,
    *,
    dataset: str,
    frameworks: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    recipe: str = "default",
    weights_of: str | None = None,
) -> dict[str, list[FromZoo]]:
    """Return one network design as it was trained in several frameworks, looked up and nothing loaded yet.

    Parameters
    ----------
    model, dataset, recipe : str
        As for `load_model`.
    frameworks : sequence of str, optional
        Every installed one that has weights of any of the seeds if nothing is said.
    seeds : sequence of int, default (0,)
        The training seeds.
    weights_of : str, optional
        Carry this framework's trainings into the frameworks, of which none needs weights of its own then.

    Returns
    -------
    dict of str to list of FromZoo
        By framework, a training a seed.

    Raises
    ------
    UsageError
        A name is unknown or given twice, or no framework is installed.
    WeightsError
        There are no such weights for any framework.
    """
    check_names(model, dataset, frameworks, seeds, recipe, weights_of)
    if frameworks is None and weights_of is None:
        frameworks = frameworks_with(model, dataset, recipe, seeds)
    frameworks = frameworks or list_installed()
    if not frameworks:
        raise UsageError(NONE_INSTALLED)
    origins = {
        framework: [
            FromZoo(model, dataset, weights_of or framework, recipe, seed, framework if weights_of else None)
            for seed in seeds
        ]
        for framework in frameworks
    }
    missing = {origin.file: origin for each in origins.values() for origin in each if _find_file(origin) is None}
    if missing:
        raise no_weights(list(missing.values()))
    return origins


def no_weights(missing: Sequence[FromZoo]) -> MissingWeightsError:
    """Return the error for trainings of one model that nobody made, which says how to train them.

    Raises
    ------
    UsageError
        The zoo has no recipe for the model, so training is no remedy.
    """
    first = missing[0]
    load_recipe(first.model, first.dataset, first.recipe)
    lacking: dict[str, list[int]] = {}
    for name in missing:
        lacking.setdefault(name.framework, []).append(name.seed)
    each = "; ".join(f"{framework}: {', '.join(map(str, seeds))}" for framework, seeds in lacking.items())
    return MissingWeightsError(
        f"there are no weights of {first.model} on {first.dataset} (recipe {first.recipe}) with these training seeds: "
        f"{each}.",
        [name.fit_arguments for name in missing],
    )


def describe_sources(origins: Sequence[FromZoo]) -> str:
    """Say where the weights of some trainings come from."""
    return ", ".join(dict.fromkeys(SOURCES[origin.weights().metadata["source"]] for origin in origins))
