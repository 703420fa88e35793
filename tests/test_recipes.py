"""A network of one's own: one TOML file, trained, compared and carried over in every framework, without Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import robustcmp as rc
from robustcmp.cli import eval as eval_command
from robustcmp.cli import train as train_command
from robustcmp.errors import UsageError, WeightsError
from robustcmp.frameworks import list_installed
from robustcmp.networks.architecture import get_architecture
from robustcmp.sources.from_zoo import FromZoo, find_weights

NETWORK = """
[architecture]
input_shape = [28, 28, 1]
layers = [
    { type = "Conv", name = "conv1", channels = 6, kernel = 3, stride = 2, padding = 1 },
    { type = "BatchNorm", name = "norm1" },
    { type = "Relu", name = "relu1" },
    { type = "Residual", name = "block", layers = [
        { type = "Conv", name = "conv2", channels = 6, kernel = 3, padding = 1 },
        { type = "Relu", name = "relu2" },
    ] },
    { type = "MaxPool", name = "pool", size = 2 },
    { type = "Flatten", name = "flatten" },
    { type = "Dense", name = "logits", units = 10 },
]

[default.digits]
epochs = 2
batch_size = 32
learning_rate = 0.01
crop = 1
"""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(NETWORK)
    return Path("mine.toml")


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(
    "frameworks", [list_installed()[:2], pytest.param(list_installed(), marks=pytest.mark.slow)], ids=len
)
def test_trained_compared_and_carried_over(frameworks: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert train_command.main(["--model", "mine.toml", "--framework", *frameworks]) == 0
    for framework in frameworks:
        content = find_weights(FromZoo("mine.toml", "digits", framework))
        assert content is not None
        assert content.metadata["model"] == "mine"
        assert content.metadata["architecture"] == get_architecture("mine.toml").description
        assert content.metadata["test_accuracy"] > 0.5
    capfd.readouterr()
    compared = ["--model", "mine.toml", "--suite", "smoke", "--images", "10", "--json"]
    assert eval_command.main(compared) == 0
    summary = json.loads(capfd.readouterr().out)
    assert (summary["model"], summary["dataset"], summary["frameworks"]) == ("mine", "digits", frameworks)
    assert summary["out"] == "runs/mine-digits-smoke"
    assert eval_command.main([*compared, "--same-weights", frameworks[-1], "--framework", *frameworks]) == 0
    assert json.loads(capfd.readouterr().out)["same_weights"]["passed"] is True

    # The same name for another network: its weights are refused, and kept.
    Path("mine.toml").write_text(NETWORK.replace("relu2", "relu3"))
    with pytest.raises(WeightsError, match=r"another network named mine, .*'relu2'"):
        rc.load_model("mine.toml", framework=list_installed()[0])
    Path("mine.toml").write_text(NETWORK.replace("channels = 6", "channels = 7"))
    with pytest.raises(WeightsError, match=r"conv1/bias|conv1/kernel"):
        rc.load_model("mine.toml", framework=list_installed()[0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"Relu", name = "relu2"', '"Reluu", name = "relu2"', r"Invalid value 'Reluu'.*Layers are Conv, Dense"),
        ("channels = 6", "channels = 0", r"Expected `int` >= 1 - at `\$\.layers\[0\]\.channels`"),
        ("kernel = 3, stride", 'kernel = "3", stride', r"Expected `int`, got `str`"),
        ("size = 2", "size = 20", r"the layer 'pool' \(MaxPool\) is too large for its input"),
        (
            '    { type = "Flatten", name = "flatten" },\n',
            "",
            r"'logits' \(Dense\) should get features, received",
        ),
        ('"MaxPool", name = "pool"', '"MaxPool", name = "relu1"', r"'relu1' \(MaxPool\) should have a unique name"),
        ('"MaxPool", name = "pool"', '"MaxPool", name = "a/b"', r"'a/b' \(MaxPool\) should have a unique name"),
        ('"conv2", channels = 6', '"conv2", channels = 5', r"'block' \(Residual\) should add equal shapes"),
        (
            '    { type = "Dense", name = "logits", units = 10 },\n',
            "",
            r"'flatten' \(Flatten\) should be followed by a Dense",
        ),
        ("padding = 1 },", "pading = 1 },", r"unknown field `pading` - at `\$\.layers\[0\]`"),
        (
            '"Flatten", name = "flatten" }',
            '"Flatten", name = "flatten" }, { type = "Relu", name = "x" }',
            r"followed by a De",
        ),
        ('"Relu", name = "relu2"', '"Dense", name = "x", units = 3', r"'x' \(Dense\) should get features"),
        ("[default.digits]", "[default]", r"mine\.toml: expected tables \[default\.DATASET\]"),
        ("input_shape = [28, 28, 1]\n", "", r"missing required field `input_shape`"),
        ("[architecture]", "[architektur]", r"expected a table \[architecture\]"),
        ("[architecture]", "[architecture", r"cannot be read"),
    ],
)
def test_a_file_with_a_mistake(network: Path, old: str, new: str, message: str) -> None:
    text = NETWORK.replace(old, new, 1)
    assert text != NETWORK
    network.write_text(text)
    with pytest.raises(UsageError, match=message):
        rc.load_model("mine.toml", framework=list_installed()[0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("units = 10", "units = 11", "mine has 11 classes, but digits has 10"),
        ("[28, 28, 1]", "[32, 28, 1]", r"mine takes images of shape \(32, 28, 1\).*digits has \(28, 28, 1\)"),
        ('"Relu", name = "relu2"', '"Relu", name = "pop"', "a name that torch uses itself"),
        ("batch_size = 32", "batch_size = 1", "a batch norm should get two images or more"),
    ],
)
def test_what_cannot_be_trained(network: Path, own_cache: Path, old: str, new: str, message: str) -> None:
    network.write_text(NETWORK.replace(old, new, 1))
    with pytest.raises(UsageError, match=message):
        rc.fit("mine.toml", framework="torch")
    assert not list(own_cache.rglob("*.h5"))


def test_the_file_itself(network: Path) -> None:
    network.rename("lenet5.toml")
    with pytest.raises(UsageError, match=r"a network lenet5 already exists\."):
        rc.load_model("lenet5.toml", framework=list_installed()[0])
    Path("other.toml").write_text(NETWORK.partition("[default.digits]")[0])
    with pytest.raises(UsageError, match=r"other\.toml has no recipe: add a table \[default\.DATASET\]"):
        rc.load_model("other.toml", framework=list_installed()[0])
