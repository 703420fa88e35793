"""Deployed networks: one body of tests over every runtime that is installed."""

from __future__ import annotations

import html
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from deployed import shared_cache
from scipy import stats

import robustcmp as rc
from robustcmp import deployments
from robustcmp.analysis.deployments import answers_alike
from robustcmp.analysis.results import Results
from robustcmp.analysis.verdicts import find_within_noise
from robustcmp.attacks.fgsm import _loss_gradient
from robustcmp.cli import command
from robustcmp.data.dataset import Dataset
from robustcmp.deployments.deploy import _find_or_write, deploy
from robustcmp.deployments.model import DeployedModel
from robustcmp.deployments.onnx_files import write_float
from robustcmp.deployments.onnxruntime import _OnnxRuntime
from robustcmp.deployments.silence import silence
from robustcmp.errors import ControlError, DeploymentError, UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.report.page import to_html
from robustcmp.report.text import to_text
from robustcmp.report.words import answer, answer_deployed, answers
from robustcmp.runs.loading import check_models, load
from robustcmp.runs.progress import Unseen
from robustcmp.runs.question import validate

torch = pytest.importorskip("torch", reason="torch is not installed")

NAMES = deployments.names()
COMPILED = ("torch-compile", "torch-export-int8")  # by a C++ compiler, for 20 seconds
RESULTS = Path(__file__).parents[1] / "docs" / "results"
CHANGED = 0.03  # of 500 images, at most, by eight bits

Deploy = Callable[..., DeployedModel]


@pytest.fixture(scope="module")
def calibration() -> np.ndarray[Any, np.dtype[np.float32]]:
    return rc.load_dataset("digits", "train").images[:200]


@pytest.fixture(scope="module")
def source(zoo_model: Callable[..., Model]) -> Model:
    return zoo_model("torch", "lenet5")


@pytest.fixture
def deployed(
    source: Model, calibration: Any, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Deploy:
    """Return a function that converts LeNet-5, once for all tests, or skips with the reason why that cannot be done."""
    monkeypatch.setenv("ROBUSTCMP_CACHE", str(shared_cache(tmp_path_factory)))

    def convert(name: str, model: Model = source, **options: Any) -> DeployedModel:
        runtime, _ = deployments.split(name)
        if reason := runtime.explain_absence():
            pytest.skip(reason)
        return or_skipped(model, name, calibration=calibration, **options)

    return convert


def or_skipped(model: Model, name: str, **options: Any) -> DeployedModel:
    """Convert a model, or skip the test where something for it is not here."""
    try:
        return deploy(model, name, **options)
    except DeploymentError as error:
        if "pip install" in str(error) or "npm could not fetch" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in COMPILED)) for name in NAMES])
def test_a_deployed_network_answers_as_its_source(name: str, deployed: Deploy, source: Model, digits: Dataset) -> None:
    model = deployed(name)
    classifier = Classifier(model)
    theirs, ours = Classifier(source).logits(digits.images), classifier.logits(digits.images)
    changed = float((theirs.argmax(axis=1) != ours.argmax(axis=1)).mean())
    if deployments.conversion(name).is_exact:
        assert answers_alike(float(np.abs(ours - theirs).max() / theirs.std()), changed)
    else:
        assert changed <= CHANGED
        assert np.abs(ours - theirs).max() > 0
    said = model.info["deployment"]
    assert said["bytes"] > 10_000
    assert said["precision"] == deployments.conversion(name).precision
    assert model.framework == name
    for size, order in ((1, slice(None)), (7, slice(None)), (64, slice(None, None, -1))):
        others = classifier.with_batch_size(size).logits(np.ascontiguousarray(digits.images[:64][order]))[order]
        np.testing.assert_allclose(others, ours[:64], atol=1e-4)


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime-int8"])
def test_fgsm_asks_about_the_candidates_of_the_source(
    name: str, deployed: Deploy, source: Model, digits: Dataset
) -> None:
    model, fgsm = deployed(name), rc.attacks.FGSM()
    images, labels = digits.images[:40], digits.labels[:40]
    ours, theirs = (fgsm.attack(each, images, labels) for each in (model, source))
    direction = np.sign(_loss_gradient(Classifier(source), images, labels))
    epsilon = np.where(ours.success, ours.extras["smallest_epsilon"], 0)[:, None, None, None]
    np.testing.assert_allclose(ours.adversarials, np.clip(images + epsilon * direction, 0, 1), atol=1e-6)
    if deployments.conversion(name).is_exact:
        np.testing.assert_array_equal(ours.extras["smallest_epsilon"], theirs.extras["smallest_epsilon"])


def test_finite_differences_ask_the_deployed_network(deployed: Deploy, source: Model, digits: Dataset) -> None:
    model = rc.wrap_functions(logits=deployed("onnxruntime"), vjp="finite-differences")
    ours = _loss_gradient(Classifier(model), digits.images[:4], digits.labels[:4])
    theirs = _loss_gradient(Classifier(source), digits.images[:4], digits.labels[:4])
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.9


def test_without_a_gradient_of_its_own_other_attacks_do_not_run(deployed: Deploy) -> None:
    of_source = Classifier(deployed("onnxruntime"))
    attack = rc.attacks.MinimumL2()
    assert "onnxruntime has no gradient" in attack.not_applicable(of_source)


def test_autoattack_follows_the_source(deployed: Deploy, source: Model, digits: Dataset) -> None:
    attack = rc.attacks.AutoAttack(epsilon=0.1)
    ours, theirs = (
        attack.attack(each, digits.images[:2], digits.labels[:2]) for each in (deployed("onnxruntime"), source)
    )
    np.testing.assert_array_equal(ours.success, [False, True])
    np.testing.assert_array_equal(ours.extras["fooled_by"], theirs.extras["fooled_by"])


def test_a_network_whose_batch_matters_is_asked_one_image_at_a_time(deployed: Deploy, digits: Dataset) -> None:
    model = deployed("onnxruntime-int8-dynamic")  # takes the range of activations from the whole batch
    assert model.info["deployment"]["alone"]
    assert "each image is asked alone" in model.info["deployment"]["notes"][0]
    question = validate(digits.images, digits.labels, "smoke", None, None, False, 0, None)
    [trained] = load({"a": model}, "auto", Unseen())
    check_models([trained], question, Unseen())
    assert not trained.depends_on_batch


def test_the_same_conversion_is_made_once(deployed: Deploy) -> None:
    first, again = deployed("onnxruntime-int8"), deployed("onnxruntime-int8")
    assert first.native.files == again.native.files
    assert deployed("onnxruntime-int8-p99").native.files.sha256 != first.native.files.sha256


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "torch-export"])
def test_a_conversion_does_not_depend_on_others_before(
    name: str, deployed: Deploy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    digests = []
    for place, model in enumerate(("lenet1", "lenet5", "lenet1")):
        monkeypatch.setenv("ROBUSTCMP_CACHE", str(tmp_path / str(place)))
        network = rc.load_model(model, framework="torch", dataset="digits")
        digests.append(deployed(name, network).info["deployment"]["sha256"])
    assert digests[0] == digests[2] != digests[1]


def test_what_is_broken_in_the_cache_is_converted_again(
    deployed: Deploy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROBUSTCMP_CACHE", str(tmp_path))
    first = deployed("onnxruntime")
    main = first.native.files.main
    content = main.read_bytes()
    for broken in (content[:-9], b"", content[:-9] + b"x" + content[-8:]):
        main.write_bytes(broken)
        assert deployed("onnxruntime").native.files.sha256 == first.native.files.sha256
    assert main.read_bytes() == content
    assert [path.name for path in (tmp_path / "deployments").iterdir()] == [main.parent.name]


def test_of_two_that_convert_at_once_the_first_stays(tmp_path: Path) -> None:
    onnx = deployments.runtime("onnxruntime")

    def write_first(path: Path) -> None:
        path.write_bytes(b"first")

    def write(path: Path) -> None:
        _find_or_write(tmp_path / "network", onnx, write_first)
        path.write_bytes(b"second")

    assert _find_or_write(tmp_path / "network", onnx, write).read_bytes() == b"first"


@pytest.mark.parametrize("name", ["onnxruntime", "litert"])
def test_bounds_and_preprocessing_stay(name: str, deployed: Deploy, digits: Dataset) -> None:
    whole = rc.load_model("lenet5", framework="tensorflow" if name == "litert" else "torch", dataset="digits")
    first = whole.data_format == "channels_first"
    normal = {"mean": [0.1], "std": [0.5], "axis": -3 if first else -1}
    model = rc.wrap(whole.native, framework=whole.framework, bounds=(-1, 1), preprocessing=normal)
    model.architecture = whole.architecture
    images = 2 * digits.images[:20] - 1
    ours = Classifier(deployed(name, model)).logits(images)
    np.testing.assert_allclose(ours, Classifier(model).logits(images), atol=1e-3)


# a comparison ------------------------------------------------------------------------------------------------------

SIZES = {"n": 30, "repeats": 2, "progress": False}


@pytest.fixture(scope="module")
def evaluation(calibration: Any, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    """Three trainings of LeNet-1 in torch, each as ONNX Runtime has it in float32 and in eight bits."""
    trainings = [rc.load_model("lenet1", framework="torch", dataset="digits", seed=seed) for seed in range(3)]
    models = {"torch": trainings} | {
        name: [deploy(model, name, calibration=calibration) for model in trainings]
        for name in ("onnxruntime", "onnxruntime-int8")
    }
    return rc.evaluate(
        models, digits.images, digits.labels, suite="smoke", out=tmp_path_factory.mktemp("deployed") / "run", **SIZES
    )


def test_a_run_says_what_was_deployed_from_what(evaluation: rc.Evaluation) -> None:
    again = rc.open_run(evaluation.results.run.directory)
    assert again.results.has_deployments
    entries = again.manifest["deployments"]
    assert [entry["model"] for entry in entries] == [
        [name, seed] for name in ("onnxruntime", "onnxruntime-int8") for seed in range(3)
    ]
    assert [entry["source"] for entry in entries] == [["torch", seed] for seed in (0, 1, 2, 0, 1, 2)]
    assert [entry["exact"] for entry in entries] == [True] * 3 + [False] * 3
    followed = {model["name"]: model.get("source_gradient") for model in again.manifest["models"]}
    assert followed == {"torch": None, "onnxruntime": ["fgsm"], "onnxruntime-int8": ["fgsm"]}
    assert len(again.results.twins) == 9


def test_ties_are_the_images_whose_two_largest_logits_are_the_same(
    evaluation: rc.Evaluation, calibration: Any, digits: Dataset
) -> None:
    trainings = [rc.load_model("lenet1", framework="torch", dataset="digits", seed=seed) for seed in range(3)]
    deployed = [Classifier(deploy(model, "onnxruntime-int8", calibration=calibration)) for model in trainings]
    largest = [np.sort(classifier.logits(digits.images), axis=1)[:, -2:] for classifier in deployed]
    ties = [float((both[:, 0] == both[:, 1]).mean()) for both in largest]
    assert sum(ties) > 0
    entries = rc.open_run(evaluation.results.run.directory).manifest["deployments"]
    assert [entry["ties"] for entry in entries] == [0.0] * 3 + ties
    networks = evaluation.results.deployed_networks.set_index("deployment")
    assert networks.ties.to_dict() == {"onnxruntime": 0.0, "onnxruntime-int8": pytest.approx(np.mean(ties))}


def test_differences_are_those_of_the_outcomes(evaluation: rc.Evaluation) -> None:
    every = evaluation.deployments()
    l2 = every[every.measure == "median L2"].set_index("deployment")
    medians = evaluation.dataset.l2.sel(attack="boundary").quantile(0.5, ["repeat", "image"], method="higher")
    for name, row in l2.iterrows():
        assert row.value - row.source_value == pytest.approx(row.difference)
        assert row.value == pytest.approx(float(medians.sel(model=name).mean()))
    found = every[every.measure == "success rate"].set_index(["deployment", "attack"])
    success = evaluation.dataset.success
    for (name, attack), row in found.iterrows():
        repeats = slice(0, 1 if evaluation.results.attack_records[attack].deterministic else None)
        ours, theirs = (success.sel(model=m, attack=attack).values[:, repeats] for m in (name, "torch"))
        assert row.difference == pytest.approx(ours.mean() - theirs.mean())
        assert (row.only_source, row.only_deployed) == ((theirs & ~ours).sum(), (ours & ~theirs).sum())
        rates = [each.mean(axis=(1, 2)) for each in (ours, theirs)]
        if np.ptp(rates[0] - rates[1]):
            assert row.p == pytest.approx(stats.ttest_rel(*rates).pvalue)
        assert row.gradient == ("source" if attack == "fgsm" else "")
    networks = evaluation.results.deployed_networks.set_index("deployment")
    assert networks.gate.to_dict() == {"onnxruntime": "passed", "onnxruntime-int8": "measured"}
    assert networks["size"]["onnxruntime-int8"] < networks["size"]["onnxruntime"]


def test_what_the_deployment_changes_is_the_answer(evaluation: rc.Evaluation, tmp_path: Path) -> None:
    assert "fgsm¹" in to_text(evaluation.results)
    assert "by the source's gradient" in to_text(evaluation.results)
    evaluation.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="deployments"' in page
    assert "the margin of equivalence" in page
    json.dumps(evaluation.to_json()["deployments"], allow_nan=False)


def test_a_conversion_in_float32_that_answers_otherwise_is_refused(
    monkeypatch: pytest.MonkeyPatch, digits: Dataset, tmp_path: Path
) -> None:
    class Exchanged(_OnnxRuntime):
        name = "exchanged"

        def convert(self, model: Model, kind: str, calibration: Any, path: Path) -> None:
            write_float(rc.load_model("lenet1", framework="torch", dataset="digits", seed=1), None, path)

    monkeypatch.setitem(deployments.MODULES, "exchanged", "")
    monkeypatch.setattr(deployments, "runtime", lambda name: Exchanged() if name == "exchanged" else _OnnxRuntime())
    monkeypatch.setenv("ROBUSTCMP_CACHE", str(tmp_path))
    model = rc.load_model("lenet1", framework="torch", dataset="digits", seed=0)
    models = {"torch": model, "exchanged": deploy(model, "exchanged")}
    with pytest.raises(ControlError, match=r"does not answer as torch.*nothing was attacked"):
        rc.evaluate(models, digits.images, digits.labels, suite="smoke", out=tmp_path / "run", **SIZES)
    assert not list((tmp_path / "run").glob("cells/*.h5"))


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["eval", "--model", "lenet1", "--framework", "torch", "--dataset", "digits", "--suite", "smoke"]
    arguments += ["--training-seeds", "0", "--images", "10", "--deploy", "onnxruntime", "onnxruntime-int8"]
    status = command.main([*arguments, "--out", str(tmp_path / "run"), "--json"])
    said = capsys.readouterr()
    assert status == 0, said.err
    answer = json.loads(said.out)
    assert answer["frameworks"] == ["torch", "onnxruntime", "onnxruntime-int8"]
    assert [row["deployment"] for row in answer["deployments"]["networks"]] == ["onnxruntime", "onnxruntime-int8"]
    assert "each also as onnxruntime, onnxruntime-int8" in said.err


# deployed networks beside several frameworks -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_frameworks(calibration: Any, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    """Three trainings of LeNet-1 in two frameworks, each also in eight bits; one attack runs on the trained alone."""
    pytest.importorskip("jax", reason="jax is not installed")
    directory = tmp_path_factory.mktemp("frameworks")
    suite = directory / "suite.toml"
    suite.write_text(
        '[attacks.fgsm]\nattack = "FGSM"\nepsilons = 10\n'
        '[attacks.single_pixel]\nattack = "SinglePixel"\nmax_pixels = 20\n'
        '[attacks.pgd]\nattack = "LinfPGD"\nepsilons = [0.1]\nsteps = 2\n'
    )
    trainings = {
        name: [rc.load_model("lenet1", framework=name, dataset="digits", seed=seed) for seed in range(3)]
        for name in ("torch", "jax")
    }
    models = trainings | {
        f"onnxruntime-int8 of {name}": [deploy(model, "onnxruntime-int8", calibration=calibration) for model in each]
        for name, each in trainings.items()
    }
    evaluation = rc.evaluate(models, digits.images, digits.labels, suite=suite, out=directory / "run", **SIZES)
    evaluation.run_transfer()
    return evaluation


def without_deployed(evaluation: rc.Evaluation) -> rc.Evaluation:
    """Return a run as it would be without its deployed networks, on the same images."""
    sources = ["torch", "jax"]
    manifest = {name: said for name, said in evaluation.manifest.items() if name not in ("deployments", "twins")}
    manifest["models"] = [model for model in manifest["models"] if model["name"] in sources]
    manifest["cells"] = [cell for cell in manifest["cells"] if cell["model"] in sources]
    selected = evaluation.dataset.sel(model=sources).variables
    arrays = {str(name): variable.values for name, variable in selected.items()}
    return rc.Evaluation(Results(evaluation.results.run, arrays, manifest))


def test_frameworks_are_compared_as_if_nothing_were_deployed(of_frameworks: rc.Evaluation) -> None:
    alone = without_deployed(of_frameworks)
    assert of_frameworks.results.sources == alone.results.models == ["torch", "jax"]
    assert of_frameworks.results.level == "frameworks"
    pandas.testing.assert_frame_equal(of_frameworks.tests(), alone.tests())
    assert {*of_frameworks.tests().attack} >= {"fgsm", "single_pixel", "pgd"}  # pgd runs on the sources alone
    pandas.testing.assert_frame_equal(of_frameworks.variance(), alone.variance())
    pandas.testing.assert_frame_equal(of_frameworks.equivalence(0.02), alone.equivalence(0.02))
    pandas.testing.assert_frame_equal(of_frameworks.plan(0.1), alone.plan(0.1))
    assert [str(v) for v in of_frameworks.verdicts] == [str(v) for v in alone.verdicts]
    assert find_within_noise(of_frameworks.results) == find_within_noise(alone.results)
    assert answers(of_frameworks.results)[:-1] == answers(alone.results)


def test_both_answers_are_given_the_frameworks_first(of_frameworks: rc.Evaluation) -> None:
    first, second = answer(of_frameworks.results), answer_deployed(of_frameworks.results)
    assert first.startswith("Is one framework easier to fool?")
    page, plain = to_html(of_frameworks.results), " ".join(str(of_frameworks).split())
    for shown in (page, plain):
        text = html.unescape(" ".join(shown.split()))
        assert -1 < text.find(first) < text.find(second)
    content = of_frameworks.to_json()
    assert content["sources"] == ["torch", "jax"]
    assert content["deployments"]["differences"]


def test_one_framework_has_the_answer_about_its_deployments_alone(evaluation: rc.Evaluation) -> None:
    assert evaluation.results.sources == ["torch"]
    assert evaluation.verdicts == []
    assert answers(evaluation.results) == [answer_deployed(evaluation.results)]
    assert "easier to fool?" not in str(evaluation) + to_html(evaluation.results)
    assert {*evaluation.tests().a} <= {"all", "torch/0", "torch/1", "torch/2"}
    with pytest.raises(UsageError, match="at least two frameworks"):
        evaluation.variance()


@pytest.mark.parametrize(("step", "is_compared"), [(1e-2, False), (1e-6, True)])
def test_distances_are_interpreted_where_walks_have_converged(step: float, is_compared: bool) -> None:
    """A larger distance is harder to fool; that of a starting point says nothing."""
    stored = rc.open_run(RESULTS / "lenet5-mnist-deployed-boundary")
    stored.dataset["source_step"][:] = step
    stored.dataset["l2_half"][:] = stored.dataset.l2
    stored.dataset["l2"].loc[{"model": "litert-int8"}] += 0.5
    rows = stored.deployments().query("measure == 'median L2'").set_index("deployment")
    assert rows.difference["litert-int8"] == pytest.approx(0.566, abs=1e-3)
    assert rows.p_adjusted["litert-int8"] < 0.05
    assert {*rows.not_compared} == (
        {""} if is_compared else {"the walk has not converged; run the suite boundary-long"}
    )
    said = answer_deployed(stored.results)
    assert ("litert-int8 is harder to fool by boundary (+0.566" in said) == is_compared
    assert ("harder" in said) == is_compared
    assert stored.to_json()["deployments"]["differences"][1]["not_compared"] == rows.not_compared.iloc[0]


class Talking(_OnnxRuntime):
    """A runtime that prints in every way there is."""

    fails = False

    def convert(self, model: Model, kind: str, calibration: Any, path: Path) -> None:
        talk("converting")
        if self.fails:
            raise DeploymentError("it cannot be converted")
        super().convert(model, kind, calibration, path)

    def load(self, path: Path) -> Any:
        talk("opening")
        return super().load(path)


def talk(what: str) -> None:
    os.write(1, f"{what}, C++ to 1\n".encode())
    os.write(2, f"{what}, C++ to 2\n".encode())
    print(f"{what}, Python")
    print(f"{what}, Python's error", file=sys.stderr)
    warnings.warn(f"{what}, a warning", UserWarning, stacklevel=1)
    logging.getLogger("a_library").warning("%s, a log line", what)


@pytest.mark.parametrize("fails", [False, True])
def test_what_libraries_print_is_for_nobody_unless_they_fail(
    fails: bool, source: Model, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("a_library").addHandler(handler)
    runtime = Talking()
    runtime.fails = fails
    monkeypatch.setattr(deployments, "runtime", lambda name: runtime)
    monkeypatch.setenv("ROBUSTCMP_CACHE", str(tmp_path))
    try:
        if fails:
            with pytest.raises(DeploymentError, match="it cannot be converted\nThe last of what was printed:") as error:
                deploy(source, "onnxruntime")
            assert "converting, C++ to 2" in str(error.value)
            assert "converting, Python's error" in str(error.value)
        else:
            deploy(source, "onnxruntime")
    finally:
        logging.getLogger("a_library").removeHandler(handler)
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == 0


def test_streams_that_a_library_keeps_are_the_terminals_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    with silence():
        streams = [sys.stdout, sys.stderr]  # as the logs of NNCF and TensorFlow do when they are imported
        print("converting")
    for stream in streams:
        print("later", file=stream)
    assert capfd.readouterr() == ("later\n", "later\n")


# what cannot be -------------------------------------------------------------------------------------------------------


def test_what_is_no_trained_model_is_not_deployed(deployed: Deploy) -> None:
    for model in (deployed("onnxruntime"), torch.nn.Linear(2, 2)):
        with pytest.raises(UsageError, match="expected a trained model"):
            deploy(model, "onnxruntime")


def test_a_design_without_an_exporter_says_what_to_do(digits: Dataset) -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    model = rc.wrap(lambda x: x.reshape(len(x), -1) @ np.ones((784, 10), np.float32), framework="jax")
    with pytest.raises(DeploymentError, match=r"onnxruntime=FILE\.onnx"):
        deploy(model, "onnxruntime", calibration=digits.images[:2])


def test_a_runtime_that_is_not_installed_is_named(source: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_OnnxRuntime, "package", "a-package-that-nobody-has")
    with pytest.raises(UsageError, match=r"pip install 'robustcmp\[onnx\]'"):
        deploy(source, "onnxruntime")
