"""OpenVINO: conversions agree with their sources, and files that cannot be asked are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import deployed
import numpy as np
import pytest

import robustcmp as rc
from robustcmp.deployments.openvino import RUNTIME, _openvino
from robustcmp.errors import DeploymentError, RobustcmpError

pytestmark = pytest.mark.skipif(bool(RUNTIME.explain_absence()), reason=RUNTIME.explain_absence() or "it is there")


@pytest.mark.parametrize("source", deployed.SLOW_SOURCES, ids=str)
def test_a_float_conversion_answers_as_its_source(source: deployed.Source, tmp_path: Path) -> None:
    model, images = deployed.asked(source)
    session = deployed.converted(RUNTIME, model, "", None, tmp_path)
    deployed.check_agreement(model, session, images)
    deployed.check_independence(session, images)
    deployed.check_threads(session, images)


@pytest.mark.parametrize("source", deployed.SLOW_SOURCES, ids=str)
def test_an_int8_conversion_computes_in_int8_and_changes_few_classes(source: deployed.Source, tmp_path: Path) -> None:
    if find_spec("nncf") is None:  # an import here would bring the package that reports
        pytest.skip("nncf is not installed")
    model, images = deployed.asked(source)
    session = deployed.converted(RUNTIME, model, "int8", deployed.calibration(source), tmp_path)
    assert deployed.distance(model, session, images) > 1e-4
    assert deployed.changed(model, session, images) <= 0.05 * len(images)
    deployed.check_independence(session, images)
    float32 = deployed.converted(RUNTIME, model, "", None, tmp_path / "float32")
    assert float32.layout.shape == session.layout.shape
    sizes = [path.stat().st_size for path in (tmp_path / "float32" / "network.bin", tmp_path / "network.bin")]
    assert sizes[0] > 3 * sizes[1]


def test_a_torch_module_of_ones_own_is_converted_as_it_is(tmp_path: Path) -> None:
    model, images = deployed.own_network()
    session = deployed.converted(RUNTIME, model, "", images[:4], tmp_path)
    assert session.layout.shape == images.shape[1:]
    deployed.check_agreement(model, session, images)
    with pytest.raises(DeploymentError, match="pass calibration images"):
        RUNTIME.convert(model, "", None, tmp_path / "b.xml")


def test_what_is_no_torch_module_is_refused(tmp_path: Path) -> None:
    model = rc.wrap_functions(logits=lambda x: x.reshape(len(x), -1)[:, :10], bounds=(0, 1))
    with pytest.raises(DeploymentError, match="models of the zoo"):
        RUNTIME.convert(model, "", None, tmp_path / "a.xml")


def written(tmp_path: Path, shape: list[int], make: Any = None) -> Path:
    """A file of OpenVINO of a network with an input of a shape."""
    ov = _openvino()
    from openvino import opset13 as ops

    x = ops.parameter(shape, np.float32)
    outputs = make(ops, x) if make else [ops.reduce_mean(x, np.array([2, 3]), False)]
    ov.save_model(ov.Model(outputs, [x]), tmp_path / "a.xml")
    return tmp_path / "a.xml"


def in_layout(x: Any, layout: str) -> Any:
    x.set_layout(_openvino().Layout(layout))
    return x


def test_a_file_of_channels_last_is_asked_in_its_layout(tmp_path: Path) -> None:
    path = written(tmp_path, [-1, 6, 5, 3], lambda ops, x: [ops.reduce_mean(x, np.array([1, 2]), False)])
    session = RUNTIME.load(path)
    images = np.random.default_rng(0).random((3, 6, 5, 3), np.float32)
    assert session.layout.shape == (6, 5, 3)
    np.testing.assert_allclose(session(images), images.mean((1, 2)), rtol=1e-6)


def test_a_batch_that_is_fixed_is_made_free(tmp_path: Path) -> None:
    session = RUNTIME.load(written(tmp_path, [1, 3, 4, 5]))
    images = np.random.default_rng(0).random((7, 4, 5, 3), np.float32)
    np.testing.assert_allclose(session(images), images.mean((1, 2)), rtol=1e-6)
    assert any("(N, C, H, W)" in note for note in session.notes)


@pytest.mark.parametrize(
    ("shape", "make", "said"),
    [
        ([12], lambda ops, x: [x], "expected a batch of images"),
        ([-1, 3, 4, 5], lambda ops, x: [ops.reduce_mean(in_layout(x, "NCWH"), np.array([2, 3]), False)], "layout NCWH"),
        ([-1, 3, 4, 5], lambda ops, x: [ops.relu(x), ops.relu(x)], "one output of floats"),
        ([1, 3, 4, 5], lambda ops, x: [ops.reshape(x, np.array([1, 60]), False)], "8 rows of numbers|failed on"),
    ],
)
def test_a_network_that_is_no_classifier_of_images_is_refused(
    shape: list[int], make: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DeploymentError, match=said):
        rc.open_deployed(written(tmp_path, shape, make), "openvino")


def test_files_that_are_cut_or_missing_are_refused(tmp_path: Path) -> None:
    model, _ = deployed.asked(deployed.SOURCES[0])
    RUNTIME.convert(model, "", None, tmp_path / "a.xml")
    xml, weights = ((tmp_path / name).read_bytes() for name in ("a.xml", "a.bin"))
    for name, content, beside, said in (
        ("b.xml", xml[: len(xml) // 2], weights, "not a network of OpenVINO"),
        ("c.xml", xml, weights[: len(weights) // 2], "cut"),
        ("d.xml", xml, None, "which does not exist"),
        ("e.xml", b"", weights, "empty"),
        ("f.xml", b"\0" * 1000, weights, "not a network of OpenVINO"),
    ):
        (tmp_path / name).write_bytes(content)
        if beside is not None:
            (tmp_path / name).with_suffix(".bin").write_bytes(beside)
        with pytest.raises(RobustcmpError, match=said):
            rc.open_deployed(tmp_path / name, "openvino")
    with pytest.raises(RobustcmpError, match="cannot be read"):
        rc.open_deployed(tmp_path / "none.xml", "openvino")


def test_nothing_is_reported_to_anybody(tmp_path: Path) -> None:
    code = (
        "import robustcmp as rc, sys; from pathlib import Path; from robustcmp.deployments.openvino import RUNTIME\n"
        "model = rc.load_model('lenet5', framework='torch', dataset='digits')\n"
        "images = rc.load_dataset('digits').images[:20]\n"
        "RUNTIME.convert(model, '', None, Path('a.xml')); RUNTIME.load(Path('a.xml'))\n"
        "RUNTIME.convert(model, 'int8', images, Path('b.xml')); RUNTIME.load(Path('b.xml'))\n"
        "assert not [name for name in sys.modules if name.startswith('openvino_telemetry.')]\n"
    )
    cache = os.environ.get("ROBUSTCMP_CACHE", str(tmp_path / "cache"))
    home = {**os.environ, "HOME": str(tmp_path), "ROBUSTCMP_CACHE": cache}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=home, check=True)
    assert not (tmp_path / "intel").exists()


INTERRUPTED = """
import gc, signal, sys
from pathlib import Path
import numpy as np
import pytest
from robustcmp.deployments.openvino import RUNTIME

images = np.zeros((2, *map(int, sys.argv[2:])), np.float32)
networks = [RUNTIME.load(Path(sys.argv[1])) for _ in range(2)]
for network in networks:
    network(images)
del network
while networks:  # the first one ends first
    del networks[0]
    gc.collect()
with pytest.raises(KeyboardInterrupt):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
print("interrupted")
"""


def test_a_signal_after_two_networks_is_handled(tmp_path: Path) -> None:
    """The stack for signal handlers was freed when the second ended: a segmentation fault (OpenVINO 2026.4)."""
    model, images = deployed.asked(deployed.SOURCES[0])
    RUNTIME.convert(model, "", None, tmp_path / "network.xml")
    command = [sys.executable, "-X", "faulthandler", "-c", INTERRUPTED, tmp_path / "network.xml"]
    ended = subprocess.run([*command, *map(str, images.shape[1:])], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr
