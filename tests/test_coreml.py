"""Core ML: networks are converted, and asking says why it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import deployed
import pytest

import robustcmp as rc
from robustcmp.cli import command
from robustcmp.deployments.coreml import RUNTIME
from robustcmp.errors import DeploymentError, UsageError
from robustcmp.models.model import Model


@pytest.mark.slow
@pytest.mark.parametrize("source", deployed.SOURCES, ids=str)
def test_a_network_is_converted_and_not_asked(source: deployed.Source, tmp_path: Path) -> None:
    pytest.importorskip("coremltools", exc_type=ImportError)
    model, _ = deployed.asked(source)
    sizes = {}
    for kind in RUNTIME.conversions:
        path = tmp_path / f"a{kind}.mlpackage"
        RUNTIME.convert(model, kind, None, path)
        sizes[kind] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        with pytest.raises(DeploymentError, match="not applicable: predicting needs macOS"):
            RUNTIME.open(path)
    assert model.architecture is not None
    assert sizes[""] > 4 * model.architecture.parameters > sizes["float16"]


@pytest.mark.slow
def test_a_comparison_has_its_size_and_goes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("coremltools", exc_type=ImportError)
    arguments = ["eval", "--model", "lenet1", "--framework", "torch", "--dataset", "digits", "--suite", "smoke"]
    arguments += ["--training-seeds", "0", "--images", "10", "--deploy", "coreml", "--out", str(tmp_path / "run")]
    status = command.main(arguments)
    said = capsys.readouterr()
    assert status == 0, said.err
    assert "converted, and not applicable to every attack: predicting needs macOS" in " ".join(said.out.split())
    [network] = rc.open_run(tmp_path / "run").results.deployed_networks.to_dict("records")
    assert network["bytes"] > 4 * 3_246


def test_it_is_not_asked(zoo_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RUNTIME, "missing", lambda: "")
    with pytest.raises(UsageError, match="coreml is not applicable: predicting needs macOS"):
        rc.deploy(zoo_model("torch", "lenet1"), "coreml")
    with pytest.raises(UsageError, match="coreml is not applicable: predicting needs macOS"):
        rc.open_deployed("a.mlpackage", "coreml")


def test_a_package_that_is_not_installed_is_named_before_any_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(RUNTIME), "package", "a-package-that-nobody-has")
    arguments = ["eval", "--model", "lenet1", "--framework", "torch", "--dataset", "digits", "--deploy", "coreml"]
    assert command.main(arguments) == 2
    said = capsys.readouterr().err
    assert "pip install 'robustcmp[coreml]'" in said
