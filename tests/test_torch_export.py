"""Exported programs of torch and compiled ones agree with their sources, and no file of a stranger is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deployed
import numpy as np
import pytest

import robustcmp as rc
from robustcmp.data.dataset import Dataset
from robustcmp.deployments import torch_compile, torch_export
from robustcmp.deployments.torch_export import RUNTIME
from robustcmp.errors import DeploymentError, UsageError
from robustcmp.models.classifier import Classifier

ROUNDING = 1e-6  # of the largest logit: Inductor's code rounds otherwise in what is left of a batch after whole vectors

pytestmark = pytest.mark.skipif(bool(RUNTIME.explain_absence()), reason=RUNTIME.explain_absence() or "it is there")


@pytest.mark.parametrize("source", deployed.SLOW_SOURCES, ids=str)
def test_a_float_conversion_answers_as_its_source(source: deployed.Source, tmp_path: Path) -> None:
    model, images = deployed.asked(source)
    session = deployed.converted(RUNTIME, model, "", None, tmp_path)
    deployed.check_agreement(model, session, images)
    deployed.check_independence(session, images)


@pytest.mark.slow
@pytest.mark.parametrize("source", deployed.SOURCES, ids=str)
def test_a_compiled_network_answers_as_its_source(source: deployed.Source, tmp_path: Path) -> None:
    if said := torch_compile.RUNTIME.explain_absence():
        pytest.skip(said)
    model, images = deployed.asked(source)
    session = deployed.converted(torch_compile.RUNTIME, model, "", None, tmp_path)
    deployed.check_agreement(model, session, images)
    np.testing.assert_array_equal(session(images), session(images))
    others = np.concatenate([images[:1], images[:0:-1]])  # what depends on its place does not on the others
    np.testing.assert_array_equal(session(others)[0], session(images)[0])
    assert torch_compile.PLACE in session.notes


@pytest.mark.slow
@pytest.mark.parametrize("source", deployed.SOURCES, ids=str)
def test_an_int8_conversion_computes_in_int8_and_changes_few_classes(source: deployed.Source, tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    if not RUNTIME.has_compiler():
        pytest.skip("there is no C++ compiler")
    from torch._dynamo.utils import counters

    model, images = deployed.asked(source)
    before = counters["inductor"]["qconv_unary_lower_count"] + counters["inductor"]["qlinear_unary_lower_count"]
    session = deployed.converted(RUNTIME, model, "int8", deployed.calibration(source), tmp_path)
    assert deployed.distance(model, session, images) > 1e-4
    after = counters["inductor"]["qconv_unary_lower_count"] + counters["inductor"]["qlinear_unary_lower_count"]
    assert after > before  # kernels of int8
    assert deployed.changed(model, session, images) <= 0.05 * len(images)
    deployed.check_independence(session, images, ROUNDING)
    deployed.converted(RUNTIME, model, "", None, tmp_path / "float32")
    sizes = [path.stat().st_size for path in (tmp_path / "float32" / "network.pt2", tmp_path / "network.pt2")]
    assert sizes[0] > sizes[1], "no weights in float32 beside those in int8"


@pytest.mark.slow
def test_an_int8_file_is_opened_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchao")
    monkeypatch.setenv("CXX", "no-such-compiler")  # which would take its time twice
    source = deployed.SOURCES[0]
    model, images = deployed.asked(source, 8)
    session = deployed.converted(RUNTIME, model, "int8", deployed.calibration(source), tmp_path)
    opened = rc.open_deployed(tmp_path / "network.pt2", "torch-program")
    np.testing.assert_array_equal(rc.predict(opened, images), session(images).argmax(1))


@pytest.mark.parametrize(
    ("able", "saturates"),
    [
        ({"architecture": "x86_64", "avx2": True, "avx512_vnni": False, "avx_vnni": False}, True),
        ({"architecture": "x86_64", "avx512_vnni": True, "avx_vnni": False}, False),
        ({"architecture": "x86_64", "avx512_vnni": False, "avx_vnni": True}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_activations_have_seven_bits_where_sums_of_eight_overflow(
    able: dict[str, Any], saturates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: able)
    assert torch_export._saturates() is saturates


@pytest.mark.parametrize(("saturates", "largest"), [(False, 255), (True, 127)])
def test_int8_without_a_compiler_is_computed_by_the_graph(
    saturates: bool, largest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchao")
    import torch

    monkeypatch.setattr(torch_export.TorchExport, "has_compiler", staticmethod(lambda: False))
    monkeypatch.setattr(torch_export, "_saturates", lambda: saturates)
    model, images = deployed.asked(deployed.SOURCES[0])
    session = deployed.converted(RUNTIME, model, "int8", deployed.calibration(deployed.SOURCES[0]), tmp_path)
    assert any("no C++ compiler" in note for note in session.notes)
    assert deployed.distance(model, session, images) > 1e-4
    assert deployed.changed(model, session, images) <= 0.05 * len(images)
    deployed.check_independence(session, images)
    nodes = torch.export.load(tmp_path / "network.pt2").graph.nodes
    activations = [node.args for node in nodes if "quantize_per_tensor" in str(node.target)]
    assert {(args[3], args[4]) for args in activations} == {(0, largest)}


def test_where_there_is_no_compiler_torch_compile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert "C++ compiler" in torch_compile.RUNTIME.explain_absence()
    monkeypatch.undo()
    monkeypatch.setenv("CXX", "no-such-compiler")  # Inductor takes no other, whatever there is
    assert "C++ compiler" in torch_compile.RUNTIME.explain_absence()


def test_a_compiler_that_does_not_work_is_one_line(tmp_path: Path) -> None:
    from torch._inductor import config

    model, images = deployed.asked(deployed.SOURCES[0])
    with (
        config.patch({"cpp.cxx": (None, "/bin/false")}),
        pytest.raises(DeploymentError, match="No working C\\+\\+ compiler") as error,
    ):
        deployed.converted(torch_compile.RUNTIME, model, "", None, tmp_path)(images)
    assert "\n" not in str(error.value)


def test_a_torch_module_of_ones_own_is_converted_as_it_is(tmp_path: Path) -> None:
    model, images = deployed.own_network()
    session = deployed.converted(RUNTIME, model, "", images[:4], tmp_path)
    deployed.check_agreement(model, session, images)
    deployed.check_threads(session, images)


def test_a_network_that_is_tied_to_a_number_of_images_is_refused(tmp_path: Path) -> None:
    import torch

    import robustcmp as rc

    class Tied(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(2, -1)

    with pytest.raises(DeploymentError, match="cannot trace"):
        RUNTIME.convert(rc.wrap(Tied().eval()), "", deployed.own_network()[1], tmp_path / "a.pt2")


def test_files_are_opened_in_a_process_of_their_own_alone(tmp_path: Path) -> None:
    model, images = deployed.asked(deployed.SOURCES[0])
    path = tmp_path / "network.pt2"
    logits = Classifier(rc.deploy(model, "torch-export", path=path)).logits(images)
    with pytest.raises(UsageError, match="use torch-program"):
        rc.open_deployed(path, "torch-export")
    np.testing.assert_allclose(Classifier(rc.open_deployed(path, "torch-program")).logits(images), logits, atol=1e-4)


def test_autocast_around_a_caller_changes_nothing(zoo_model: Any, digits: Dataset, own_cache: Path) -> None:
    model, images = zoo_model("torch"), digits.images[:8]
    torch = pytest.importorskip("torch")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = Classifier(rc.deploy(model, "torch-export")).logits(images)
    np.testing.assert_allclose(logits, Classifier(model).logits(images), atol=1e-4)
