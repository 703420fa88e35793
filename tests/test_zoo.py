"""The zoo: recipes and weights that ship, models by name, and training them anew."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import HOSTS, at_hand

from robustcmp import fit, load_model, predict
from robustcmp.cli.command import describe
from robustcmp.cli.train import _parser
from robustcmp.data.dataset import Dataset
from robustcmp.errors import MissingDataError, UsageError, WeightsError
from robustcmp.frameworks import TrainableFramework, list_installed
from robustcmp.hosts import environments
from robustcmp.models.model import Classifier, Model
from robustcmp.networks.architecture import get_architecture
from robustcmp.networks.weights import WeightsFile, read_weights, write_weights
from robustcmp.sources import recipes, training
from robustcmp.sources.from_zoo import CHECKPOINT, FromZoo, describe_sources, find_weights, frameworks_with, zoo_origins
from robustcmp.sources.recipes import Recipe, load_recipe

SEEDS = {"mnist": (0, 1, 2), "digits": (0,)}
SHIPPED = [
    *((model, dataset, seed) for model in ("lenet1", "lenet5") for dataset, seeds in SEEDS.items() for seed in seeds),
    ("resnet20", "cifar10", 0),
]
LEAST = {"lenet1": 0.983, "lenet5": 0.987, "resnet20": 0.82}  # test accuracy on MNIST and CIFAR-10


@pytest.fixture
def name(framework: TrainableFramework) -> FromZoo:
    """A model that no zoo ships."""
    return FromZoo("lenet1", "digits", framework.name, "default", 11)


def quick(name: FromZoo, out: Path | None = None, epochs: int = 1, **options: Any) -> Model:
    return fit(
        name.model,
        framework=name.framework,
        dataset=name.dataset,
        seed=name.seed,
        epochs=epochs,
        device="cpu",
        out=out,
        **options,
    )


def keep(shipped: WeightsFile, name: FromZoo, cache: Path) -> None:
    """Put weights into the user cache as those of another training seed."""
    metadata = shipped.metadata | {"training_seed": name.seed}
    write_weights(cache / "weights" / name.file, WeightsFile(shipped.weights, metadata, shipped.curves))


def never(*arguments: Any, **options: Any) -> WeightsFile:
    raise AssertionError("trained")


def load(name: FromZoo, **options: Any) -> Model:
    return load_model(name.model, framework=name.framework, dataset=name.dataset, seed=name.seed, **options)


# What ships


@pytest.mark.needs("zoo")
@pytest.mark.parametrize(
    ("model", "dataset", "recipe", "seed"),
    [
        *((model, dataset, "default", seed) for model, dataset, seed in SHIPPED),
        *(("resnet20", "cifar10", "long", seed) for seed in range(5)),
        ("resnet20", "cifar10", "paper", 0),
    ],
)
def test_weights_that_ship_say_how_they_were_made(
    framework: TrainableFramework, model: str, dataset: str, recipe: str, seed: int
) -> None:
    content = find_weights(FromZoo(model, dataset, framework.name, recipe, seed))
    assert content is not None
    metadata = content.metadata
    assert metadata["source"] == "zoo"
    assert {key: metadata[key] for key in ("model", "dataset", "framework", "recipe", "training_seed")} == {
        "model": model,
        "dataset": dataset,
        "framework": framework.name,
        "recipe": recipe,
        "training_seed": seed,
    }
    settings = load_recipe(model, dataset, recipe)
    assert msgspec.convert(metadata["settings"], Recipe) == settings
    assert len(content.curves["loss"]) == settings.epochs
    assert len(metadata["data"]) == len(metadata["test_data"]) == len(metadata["sha256"]) == 64
    assert metadata["data"] != metadata["test_data"]
    assert content.curves["validation_accuracy"][-1] == metadata["validation_accuracy"]
    if dataset != "digits":
        assert metadata["test_accuracy"] >= (0.9 if recipe == "long" else LEAST[model])


@pytest.mark.parametrize("model", ["lenet1", "lenet5"])
def test_accuracy_on_digits_is_the_recorded_one(
    framework: TrainableFramework, zoo_model: Callable[..., Model], digits: Dataset, model: str
) -> None:
    loaded = zoo_model(framework, model)
    accuracy = (predict(loaded, digits.images) == digits.labels).mean()
    assert loaded.info["test_data"] == digits.digest
    assert accuracy == pytest.approx(loaded.info["test_accuracy"], abs=1.5 / len(digits.labels))
    assert accuracy > 0.95


@pytest.mark.needs("zoo")
@pytest.mark.parametrize("seed", SEEDS["mnist"])
@pytest.mark.parametrize("model", ["lenet1", "lenet5"])
def test_accuracy_on_mnist_is_the_recorded_one(
    framework: TrainableFramework, zoo_model: Callable[..., Model], mnist: Dataset, model: str, seed: int
) -> None:
    loaded = zoo_model(framework, model, "mnist", seed)
    assert loaded.info["test_data"] == mnist.digest
    correct = predict(loaded, mnist.images[::5]) == mnist.labels[::5]
    # 2,000 of the 10,000: four standard deviations of such a draw, and of the loader's mistakes far more.
    recorded = loaded.info["test_accuracy"]
    assert correct.mean() == pytest.approx(recorded, abs=4 * (recorded * (1 - recorded) / len(correct)) ** 0.5)


@pytest.mark.whole_zoo
@pytest.mark.parametrize("path", sorted(path.name for path in (recipes.SHIPPED / "weights").iterdir()))
def test_accuracy_on_the_whole_test_set_is_the_recorded_one(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = read_weights(Path(str(recipes.SHIPPED / "weights" / path))).metadata
    keys = ("framework", "dataset", "recipe")
    seed = metadata["training_seed"]
    if metadata["framework"] in environments.SETUPS:
        monkeypatch.setattr(environments, "directory", lambda: HOSTS)
        if not environments.is_ready(metadata["framework"]):
            pytest.skip(f"{metadata['framework']} has no environment")
    loaded = load_model(metadata["model"], seed=seed, device="cpu", **{key: metadata[key] for key in keys})
    data = at_hand(metadata["dataset"])
    assert data.digest == metadata["test_data"]
    accuracy = (predict(loaded, data.images) == data.labels).mean()
    assert accuracy == pytest.approx(metadata["test_accuracy"], abs=2.5 / len(data.labels))


def test_weights_of_one_framework_answer_alike_in_every_other(
    framework: TrainableFramework, zoo_model: Callable[..., Model], digits: Dataset
) -> None:
    lenet5 = get_architecture("lenet5")
    native = framework.build(lenet5, 0, "cpu")
    function, like = framework.place(native, "cpu")
    images = digits.images[:50]
    own = images.transpose(0, 3, 1, 2) if framework.data_format == "channels_first" else images
    for trained in frameworks_with("lenet5", "digits"):
        content = find_weights(FromZoo("lenet5", "digits", trained))
        assert content is not None
        framework.set_weights(native, lenet5, content.weights)
        expected = Classifier(zoo_model(trained)).logits(images)
        np.testing.assert_allclose(framework.forward(function, like, own), expected, rtol=1e-5, atol=1e-4)


# Models by name


def test_vgg16_comes_with_the_command_that_makes_it() -> None:
    with pytest.raises(WeightsError, match=r"robustcmp\.fit\(model='vgg16', dataset='cifar10', framework='torch'"):
        load_model("vgg16", framework="torch")


def test_own_weights_come_before_the_zoos(framework: TrainableFramework, tmp_path: Path, own_cache: Path) -> None:
    name = FromZoo("lenet5", "digits", framework.name)
    shipped = find_weights(name)
    assert shipped is not None
    assert load(name).info["source"] == "zoo"
    metadata = {key: value for key, value in shipped.metadata.items() if key not in ("source", "sha256")}
    for directory, options in ((own_cache / "weights", {}), (tmp_path / "mine", {"directory": tmp_path / "mine"})):
        changed = {key: array * np.float32(0.5) for key, array in shipped.weights.items()}
        write_weights(directory / name.file, WeightsFile(changed, metadata | {"note": str(directory)}))
        model = load(name, **options)
        assert (model.info["source"], model.info["note"]) == ("own", str(directory))
        content = read_weights(directory / name.file)
        assert model.info["sha256"] == content.sha256 != shipped.metadata["sha256"]
    assert load(name, directory=tmp_path / "empty").info["source"] == "zoo"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"framework": "chainer"}, "with framework torch, but its name says chainer"),
        ({"dataset": "mnist"}, "with dataset digits, but its name says mnist"),
        ({"recipe": "mine"}, "with recipe default, but its name says mine"),
        ({"seed": 5}, "with training_seed 0, but its name says 5"),
    ],
)
def test_weights_that_were_renamed_are_refused(change: dict[str, Any], message: str, own_cache: Path) -> None:
    name = FromZoo("lenet1", "digits", "torch")
    renamed = msgspec.structs.replace(name, **change)
    shipped = find_weights(name)
    assert shipped is not None
    write_weights(own_cache / "weights" / renamed.file, shipped)
    with pytest.raises(WeightsError, match=message):
        find_weights(renamed)


def test_broken_own_weights_are_not_passed_over(framework: TrainableFramework, own_cache: Path) -> None:
    name = FromZoo("lenet5", "digits", framework.name)
    (own_cache / "weights").mkdir(parents=True)
    (own_cache / "weights" / name.file).write_bytes(b"junk")
    with pytest.raises(WeightsError, match="train again"):
        load(name)


def test_missing_weights_come_with_the_command_that_trains_them(name: FromZoo) -> None:
    message = rf"no weights of lenet1 on digits \(recipe default\) .*{name.framework}: 11"
    with pytest.raises(WeightsError, match=message) as caught:
        load(name)
    assert "robustcmp.fit(model='lenet1', dataset='digits', framework=" in str(caught.value)
    program, *arguments = shlex.split(describe(caught.value).splitlines()[-1])[2:]
    assert program == "robustcmp.train"
    options = _parser().parse_args(arguments)
    assert (options.model, options.framework, options.dataset) == ("lenet1", [name.framework], "digits")
    assert (options.recipe, options.training_seeds) == ("default", [11])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "lenet6"}, r"unknown model 'lenet6': did you mean 'lenet5'\?"),
        ({"framework": "tensorflo"}, r"unknown framework 'tensorflo': did you mean 'tensorflow'\?"),
        (
            {"dataset": "mnits"},
            r"unknown dataset 'mnits': did you mean 'mnist'\? Expected one of cifar10, digits, mnist",
        ),
        ({"seed": -1}, "training seed should be from 0 to .*, received -1"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
    ],
)
@pytest.mark.parametrize("function", [load_model, fit])
def test_names_that_nothing_has(function: Callable[..., Model], change: dict[str, Any], message: str) -> None:
    options = {"model": "lenet5", "framework": list_installed()[0], "dataset": "digits"} | change
    with pytest.raises(UsageError, match=message):
        function(options.pop("model"), **options)


# Training by name


def test_a_fitted_model_is_kept_and_found(name: FromZoo, own_cache: Path, digits: Dataset) -> None:
    told: list[tuple[int, int]] = []
    model = quick(name, progress=lambda epoch, epochs, last: told.append((epoch, epochs)))
    assert told == [(1, 1)]
    assert [path.name for path in (own_cache / "weights").iterdir()] == [name.file]
    assert (model.info["source"], model.info["training_seed"]) == ("own", 11)
    assert model.info["settings"]["epochs"] == 1
    loaded = load(name)
    assert loaded.info == model.info
    np.testing.assert_array_equal(
        Classifier(loaded).logits(digits.images[:9]), Classifier(model).logits(digits.images[:9])
    )
    accuracy = (predict(loaded, digits.images) == digits.labels).mean()
    assert accuracy == pytest.approx(loaded.info["test_accuracy"], abs=1.5 / len(digits.labels))


def test_a_finished_training_is_not_done_again(name: FromZoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = quick(name, tmp_path)
    before = (tmp_path / name.file).read_bytes()

    monkeypatch.setattr(training, "train", never)
    again = quick(name, tmp_path)
    assert again.info == first.info
    assert (tmp_path / name.file).read_bytes() == before

    # And another training than the one that lies there is an error that changes nothing.
    with pytest.raises(WeightsError, match=r"was trained with .*'epochs': 1.*'epochs': 2.*with out"):
        quick(name, tmp_path, epochs=2)
    assert (tmp_path / name.file).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".h5"] == [name.file]


def test_an_interrupted_fit_goes_on(name: FromZoo, tmp_path: Path) -> None:
    whole = quick(name, tmp_path / "whole", epochs=2)

    def interrupt(epoch: int, epochs: int, last: dict[str, float]) -> None:
        raise KeyboardInterrupt

    out, told = tmp_path / "part", []
    with pytest.raises(KeyboardInterrupt):
        quick(name, out, epochs=2, progress=interrupt)
    assert not (out / name.file).exists()
    with pytest.raises(WeightsError, match="no weights"):
        load(name, directory=out)
    with pytest.raises(WeightsError, match="belongs to another training: its settings is"):
        quick(name, out, epochs=3)
    model = quick(name, out, epochs=2, progress=lambda epoch, epochs, last: told.append(epoch))
    assert told == [2]
    (out / name.file).with_suffix(CHECKPOINT).touch()  # as a kill right after the weights were written leaves it
    model = quick(name, out, epochs=2)
    assert [path.name for path in out.iterdir()] == [name.file]
    contents = [read_weights(path / name.file) for path in (tmp_path / "whole", out)]
    for key, array in contents[0].weights.items():
        assert contents[1].weights[key].tobytes() == array.tobytes()
    ignored = ("sha256", "environment")  # the seconds of the epochs differ, and with them the checksum
    assert {k: v for k, v in model.info.items() if k not in ignored} == {
        k: v for k, v in whole.info.items() if k not in ignored
    }


# Models and data of a comparison


def test_one_design_in_every_framework_that_has_it(own_cache: Path) -> None:
    origins = zoo_origins("lenet1", dataset="digits")
    assert list(origins) == list_installed()
    assert [describe_sources(each) for each in origins.values()] == ["from the zoo that ships"] * len(list_installed())
    assert [[origin.load("cpu").framework for origin in each] for each in origins.values()] == [
        [n] for n in list_installed()
    ]

    first = list_installed()[0]
    shipped = find_weights(FromZoo("lenet1", "digits", first))
    assert shipped is not None
    keep(shipped, FromZoo("lenet1", "digits", first, seed=44), own_cache)
    with pytest.raises(
        WeightsError, match=rf"{'; '.join(f'{other}: 44' for other in list_installed()[1:])}.*robustcmp\.fit"
    ):
        zoo_origins("lenet1", dataset="digits", seeds=(0, 44))
    origins = zoo_origins("lenet1", dataset="digits", frameworks=[first], seeds=(0, 44))
    assert {name: [origin.seed for origin in each] for name, each in origins.items()} == {first: [0, 44]}
    assert describe_sources(origins[first]) == "from the zoo that ships, trained here"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"frameworks": ["torch", "torch"]}, UsageError, "framework was given twice: torch, torch"),
        ({"seeds": (0, 0)}, UsageError, "training seed was given twice: 0, 0"),
        ({"seeds": (0, -2)}, UsageError, "received -2"),
        ({"seeds": (0, 99)}, WeightsError, r"no weights of lenet1 on digits .*: 99.*robustcmp\.fit"),
        ({"dataset": "digit"}, UsageError, r"unknown dataset 'digit': did you mean 'digits'\?"),
        ({"recipe": "defalt"}, UsageError, r"'defalt': did you mean 'default'\?"),
    ],
)
def test_comparisons_that_cannot_be(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        zoo_origins("lenet1", **({"dataset": "digits"} | options))


def test_digits_stand_in_for_mnist_only_where_no_dataset_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, digits: Dataset
) -> None:
    said: list[str] = []

    def without_mnist(name: str, split: str, **options: Any) -> Dataset:
        if name == "mnist":
            raise MissingDataError("no network", "no network")
        assert (name, split) == ("digits", "test")
        return digits

    monkeypatch.setattr(recipes, "load_dataset", without_mnist)
    assert recipes.load_test_set("lenet5", say=said.append) is digits
    assert len(said) == 1
    assert said[0].startswith("mnist is not available (")
    assert "so this run uses digits" in said[0]
    for options in ({"dataset": "mnist"}, {"data_dir": "nowhere"}):
        with pytest.raises(MissingDataError, match="no network"):
            recipes.load_test_set("lenet5", say=said.append, **options)
    assert recipes.load_test_set("lenet5", "digits", say=said.append) is digits
    assert len(said) == 1
